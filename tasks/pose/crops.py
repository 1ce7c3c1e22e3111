"""Squares around people, and joints in the pixels of a crop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from contml.data import Square

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"


def square_round(points: Array, margin: float) -> Square:
    """The square around points `[n, 2]` (pixel centres at integers): `margin` times their extent, at least 1 pixel."""
    low, high = points.min(0), points.max(0)
    side = margin * max(1.0, float((high - low).max()))
    left, top = ((low + high) / 2 + 0.5 - side / 2).tolist()
    return Square(left, top, side)


def in_crop(joints: Array, squares: Sequence[Square], side: int) -> Array:
    """Joints `[N, J, 2]` of images as joints of their crops, `side` pixels square; pixel centres at integers."""
    left, top, size = np.asarray(squares, np.float64).T[:, :, None, None]  # [N,1,1] each
    corner = np.concatenate([left, top], 2)  # [N,1,2]
    return np.asarray((joints + 0.5 - corner) * (side / size) - 0.5)
