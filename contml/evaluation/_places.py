"""Machine code that ranks lists of items by distance, and shares places among equals."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from contml.distances._compiled import compiled

Floats: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"


@compiled
def share_places(
    distances: np.ndarray[Any, Any],
    values: np.ndarray[Any, Any],
    nearest: np.ndarray[Any, Any],
    expected: Floats,
    gain: Floats,
) -> None:
    """Expected label distance and gain at the first K places, `expected` and `gain` `[Q, K]`.

    distances `[Q, C]`; values `[Q, C]`: label distances of the same items; nearest `[Q, C]`: the distances in order.
    """
    k, items = expected.shape[1], distances.shape[1]
    count, levels = np.empty(k, np.int64), np.empty(k, nearest.dtype)
    # Unsigned numbers never mean "from the end": such loops become vector instructions.
    kept, begins = np.empty(items, np.uint32), np.empty(items, np.uint32)
    near = np.empty(items, distances.dtype)
    for q in range(len(distances)):
        row = distances[q]
        levels[:] = nearest[q, :k]
        n = np.uint32(0)
        for j in range(items):
            kept[n], near[n] = j, row[j]
            n += np.uint32(row[j] <= levels[k - 1])
        begins[:n] = 0
        size = np.uint32(k)
        while size > 1:  # bisection for the place where the group of each begins
            half = size // np.uint32(2)
            below = half - np.uint32(1)
            for i in range(n):
                begins[i] += half if levels[begins[i] + below] < near[i] else np.uint32(0)
            size -= half
        count[:] = 0
        expected[q] = 0
        for i in range(n):
            count[begins[i]] += 1
            expected[q, begins[i]] += values[q, kept[i]]
        tied = False
        for place in range(k):
            gain[q, place] = 1 / (1 + expected[q, place])
            tied |= count[place] != 1
        if tied:
            gain[q] = 0
            for i in range(n):
                gain[q, begins[i]] += 1 / (1 + values[q, kept[i]])
            start = 0
            while start < k:
                distance, gained = expected[q, start] / count[start], gain[q, start] / count[start]
                stop = start + count[start]
                expected[q, start : min(stop, k)] = distance
                gain[q, start : min(stop, k)] = gained
                start = stop
