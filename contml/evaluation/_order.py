"""Sorts the nearest items of ranked lists. Compiled by numba: several times as fast as sorting pairs."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from contml.distances._compiled import compiled

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"


@compiled
def order_by_distance(distances: Array, values: Array, nearest: Array, ordered: Array, beyond: Array) -> None:
    """Fill `ordered` `[Q, D]` with the values of the D nearest items; items at equal distance stay in order.

    distances `[Q, C]`; values `[Q, C]`: label distances of the same items; nearest `[Q, C]`: the distances, sorted;
    beyond `[3, Q]`: number, sum of label distances and sum of gains of further items that tie with the last place.
    """
    places, items = ordered.shape[1], distances.shape[1]
    count, levels = np.empty(places, np.int64), np.empty(places, nearest.dtype)
    # Unsigned: numba then need not handle negative indices, and loops become vector instructions.
    kept, begins = np.empty(items, np.uint32), np.empty(items, np.uint32)
    near = np.empty(items, distances.dtype)
    beyond[:] = 0
    for q in range(len(distances)):
        row = distances[q]
        levels[:] = nearest[q, :places]
        n = np.uint32(0)
        for j in range(items):
            kept[n], near[n] = j, row[j]
            n += np.uint32(row[j] <= levels[places - 1])
        begins[:n] = 0
        size = np.uint32(places)
        while size > 1:  # bisection for the first place of each item's distance
            half = size // np.uint32(2)
            below = half - np.uint32(1)
            for i in range(n):
                begins[i] += half if levels[begins[i] + below] < near[i] else np.uint32(0)
            size -= half
        count[:] = 0
        for i in range(n):
            place, value = begins[i] + count[begins[i]], values[q, kept[i]]
            count[begins[i]] += 1
            if place < places:
                ordered[q, place] = value
            else:
                beyond[0, q] += 1
                beyond[1, q] += value
                beyond[2, q] += 1 / (1 + value)
