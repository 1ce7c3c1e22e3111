"""Loops of the exact search on the CPU, compiled by numba: squared distances by subtraction, and smallest entries."""

from __future__ import annotations

from typing import Any

import numpy as np

from contml.distances._compiled import Floats, Ints, compiled

#: Columns that are compared at once. They are read one by one only if one of them is among the smallest so far.
_TOGETHER = 64


@compiled
def subtracted(x: Floats, y: Floats, rows: Ints, cols: Ints, out: Floats) -> None:
    """Write the squared distances `[P]` of `x[rows[p]]` and `y[cols[p]]`, summed in the order of `squared_norms`."""
    dim = x.shape[1]
    terms = np.zeros(max(dim, 1), np.float64)
    for p in range(len(rows)):
        i, j = rows[p], cols[p]
        for t in range(dim):
            difference = np.float64(x[i, t]) - np.float64(y[j, t])
            terms[t] = difference * difference
        n = dim
        while n > 1:
            half = (n + 1) // 2
            for t in range(n - half):
                terms[t] += terms[half + t]
            n = half
        out[p] = terms[0]


@compiled
def keep_nearest(
    products: Floats, size: Floats, first: int, count: int, near: Floats, ids: Ints, used: Ints, limit: Floats
) -> None:
    """Add the columns of a block of products `[Q, C]` to the nearest so far, if `size - 2 products` is below `limit`.

    size `[C]`: squared norms of the columns, whose ids are first, first + 1, ...; near, ids `[Q, at least 2 count]`:
    values and ids, of which the first `used` `[Q]` are filled; limit `[Q]`: the count-th smallest value so far.
    """
    columns, room = products.shape[1], near.shape[1]
    for i in range(len(products)):
        n, threshold = used[i], limit[i]
        for start in range(0, columns, _TOGETHER):
            row, squared = products[i, start : start + _TOGETHER], size[start : start + _TOGETHER]
            hits = np.int32(0)
            for j in range(len(row)):
                hits += np.int32(squared[j] - np.float32(2) * row[j] < threshold)
            if not hits:
                continue
            for j in range(len(row)):
                value = squared[j] - np.float32(2) * row[j]
                if value < threshold:
                    near[i, n], ids[i, n] = value, first + start + j
                    n += 1
                    if n == room:
                        threshold = keep_smallest(near[i], ids[i], count)
                        n = count
        used[i], limit[i] = n, threshold


@compiled
def keep_smallest(values: Floats, ids: Ints, count: int) -> Any:
    """Move the `count` smallest values to the front, with their ids; returns the largest of them."""
    largest = np.partition(values, count - 1)[count - 1]
    num_kept, num_ties = 0, count - int((values < largest).sum())
    for index in range(len(values)):
        value = values[index]
        if value < largest or (value == largest and num_ties > 0):
            num_ties -= value == largest
            values[num_kept], ids[num_kept] = value, ids[index]
            num_kept += 1
    return largest


@compiled
def summarize_rows(
    distances: Floats, own: Ints, groups: Ints, near: Floats, ids: Ints, sums: Floats, room_near: Floats, room_ids: Ints
) -> None:
    """The k smallest of each row of label distances `[Q, C]` in order, ties by lower column, and sums over the row.

    A column of the row's own group does not count: own `[Q]`, groups `[C]`. near, ids `[Q, k]`; sums `[3, Q]`: the
    number of columns that count, and the sums of D and 1 / (1 + D) over them; room_near, room_ids `[at least 2 k]`.
    """
    columns, count, room = distances.shape[1], near.shape[1], len(room_near)
    item_counts, total, gain = np.zeros(_TOGETHER), np.zeros(_TOGETHER), np.zeros(_TOGETHER)
    for i in range(len(distances)):
        n, threshold, group = 0, distances.dtype.type(np.inf), own[i]
        item_counts[:], total[:], gain[:] = 0, 0, 0
        for start in range(0, columns, _TOGETHER):
            row, members = distances[i, start : start + _TOGETHER], groups[start : start + _TOGETHER]
            hits = np.int32(0)
            for j in range(len(row)):
                value, counts = np.float64(row[j]), np.float64(members[j] != group)
                item_counts[j] += counts
                total[j] += counts * value
                gain[j] += counts / (1 + value)
                hits += np.int32(row[j] < threshold)
            if not hits:
                continue
            for j in range(len(row)):
                if row[j] < threshold and members[j] != group:
                    room_near[n], room_ids[n] = row[j], start + j
                    n += 1
                    if n == room:
                        threshold = keep_smallest(room_near, room_ids, count)
                        n = count
        keep_smallest(room_near[:n], room_ids[:n], count)
        order = np.argsort(room_near[:count], kind="mergesort")
        near[i], ids[i] = room_near[order], room_ids[order]
        sums[0, i], sums[1, i], sums[2, i] = item_counts.sum(), total.sum(), gain.sum()
