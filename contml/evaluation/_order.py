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
    num_placed, nearest_distances = np.empty(places, np.int64), np.empty(places, nearest.dtype)
    # Unsigned, so that numba need not handle negative indices and can vectorize the loops.
    candidates, first_place = np.empty(items, np.uint32), np.empty(items, np.uint32)
    distance_of = np.empty(items, distances.dtype)
    beyond[:] = 0
    for q in range(len(distances)):
        row = distances[q]
        nearest_distances[:] = nearest[q, :places]
        num_candidates = np.uint32(0)
        for j in range(items):
            candidates[num_candidates], distance_of[num_candidates] = j, row[j]
            num_candidates += np.uint32(row[j] <= nearest_distances[places - 1])
        first_place[:num_candidates] = 0
        size = np.uint32(places)
        while size > 1:  # bisection for the first place of each item's distance
            half = size // np.uint32(2)
            below = half - np.uint32(1)
            for i in range(num_candidates):
                first_place[i] += half if nearest_distances[first_place[i] + below] < distance_of[i] else np.uint32(0)
            size -= half
        num_placed[:] = 0
        for i in range(num_candidates):
            place, value = first_place[i] + num_placed[first_place[i]], values[q, candidates[i]]
            num_placed[first_place[i]] += 1
            if place < places:
                ordered[q, place] = value
            else:
                beyond[0, q] += 1
                beyond[1, q] += value
                beyond[2, q] += 1 / (1 + value)
