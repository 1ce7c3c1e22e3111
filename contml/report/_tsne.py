"""Gradient descent of t-SNE, exact over all pairs. Compiled by numba.

    dKL/dy_i = 4 sum_j (p_ij - q_ij) (y_i - y_j) / (1 + |y_i - y_j|^2),    q_ij ~ 1 / (1 + |y_i - y_j|^2)

van der Maaten and Hinton: "Visualizing Data using t-SNE", JMLR 2008, Eq. 5. Step sizes, momentum and early exaggeration
are scikit-learn's.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from contml.distances._compiled import compiled

Singles: TypeAlias = "np.ndarray[Any, np.dtype[np.float32]]"
Shorts: TypeAlias = "np.ndarray[Any, np.dtype[np.int32]]"

#: Iterations in all, iterations with exaggerated attraction, and how much it is exaggerated.
ITERATIONS, EARLY, EXAGGERATION = 1000, 250, 12


@compiled
def descend(
    starts: Shorts,
    columns: Shorts,
    p: Singles,
    points: Singles,
    rate: np.float32,
    iterations: int,
    early: int,
    exaggeration: np.float32,
) -> None:
    """Move `points` `[2, N]`, in place.

    `p` are the joint probabilities of the near pairs, as a sparse matrix: row i has the columns
    `columns[starts[i]:starts[i + 1]]`; all others are 0.
    """
    n = points.shape[1]
    x, y = points[0], points[1]
    one = np.float32(1)
    near, push_x, push_y = np.empty(n, np.float32), np.empty(n, np.float32), np.empty(n, np.float32)
    pulls = np.empty((2, n), np.float32)
    velocity, gains = np.zeros((2, n), np.float32), np.ones((2, n), np.float32)
    for iteration in range(iterations):
        factor = exaggeration if iteration < early else one
        momentum = np.float32(0.5) if iteration < early else np.float32(0.8)
        near[:], push_x[:], push_y[:] = 0, 0, 0
        for i in range(n):
            xi, yi = x[i], y[i]
            for j in range(n):  # one sum for each j, so that the loop is vectorized
                dx, dy = x[j] - xi, y[j] - yi
                q = np.reciprocal(one + dx * dx + dy * dy)  # `/` checks for 0
                near[j] += q
                push_x[j] += q * q * dx
                push_y[j] += q * q * dy
            pull_x, pull_y = np.float32(0), np.float32(0)
            for entry in range(starts[i], starts[i + 1]):
                j = columns[entry]
                dx, dy = xi - x[j], yi - y[j]
                q = p[entry] / (one + dx * dx + dy * dy)
                pull_x += q * dx
                pull_y += q * dy
            pulls[0, i], pulls[1, i] = factor * pull_x, factor * pull_y
        scale = np.float32(1 / max(float(near.sum()) - n, 1e-12))  # each point is near itself
        for axis in range(2):
            pushes = push_x if axis == 0 else push_y
            for i in range(n):
                slope = np.float32(4) * (pulls[axis, i] - scale * pushes[i])
                gain = gains[axis, i]
                gain = gain + np.float32(0.2) if velocity[axis, i] * slope < 0 else gain * np.float32(0.8)
                gain = max(gain, np.float32(0.01))
                gains[axis, i] = gain
                velocity[axis, i] = momentum * velocity[axis, i] - rate * gain * slope
            points[axis] += velocity[axis]
