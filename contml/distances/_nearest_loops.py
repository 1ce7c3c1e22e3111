"""Loops of the exact search on the CPU, compiled by numba: squared distances by subtraction, and smallest entries."""

from __future__ import annotations

from typing import Any

import numpy as np

from contml.distances._compiled import Floats, Ints, compiled

#: Columns that are compared at once. They are read one by one only if one of them is among the smallest so far.
_TOGETHER = 64
#: The largest number of classes. Columns with equal numbers modulo `num_classes` are one class; see `bound_of`.
_CLASSES = 16 * _TOGETHER
#: Pairs that are sorted by column together.
_PAIRS = 1 << 16


@compiled
def subtracted(x: Floats, y: Floats, rows: Ints, cols: Ints, out: Floats) -> None:
    """Write the squared distances `[P]` of `x[rows[p]]` and `y[cols[p]]`, summed in the order of `squared_norms`.

    Pairs with the same row of y are computed one after another, so that the row comes from the processor's cache.
    """
    dim, items = x.shape[1], len(y)
    terms = np.zeros(max(dim, 1), np.float64)
    starts, by_column = np.empty(items + 1, np.int64), np.empty(min(len(rows), _PAIRS), np.int64)
    for first in range(0, len(rows), _PAIRS):
        count = min(_PAIRS, len(rows) - first)
        if count > items:
            starts[:] = 0
            for p in range(first, first + count):
                starts[cols[p] + 1] += 1
            for j in range(items):
                starts[j + 1] += starts[j]
            for p in range(first, first + count):
                by_column[starts[cols[p]]] = p
                starts[cols[p]] += 1
        else:
            for p in range(count):
                by_column[p] = first + p
        for p in by_column[:count]:
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
def num_classes(count: int) -> Any:
    """Return the number of classes: a multiple of `_TOGETHER`, about four times `count`."""
    return min(_CLASSES, (4 * count + _TOGETHER - 1) // _TOGETHER * _TOGETHER)


@compiled
def keep_nearest(
    products: Floats, size: Floats, first: int, count: int, near: Floats, ids: Ints, used: Ints, limit: Floats
) -> None:
    """Add the columns of a block of products `[Q, C]` to the nearest so far, if `size - 2 products` is below `limit`.

    size `[C]` are the squared norms of the columns. Their ids are first, first + 1, ... near and ids
    `[Q, at least 2 count]` are values and ids; their first `used` `[Q]` places are filled. limit `[Q]` is the count-th
    smallest value so far.
    """
    columns, room = products.shape[1], near.shape[1]
    least = np.empty(num_classes(count), np.float32)
    for i in range(len(products)):
        n, threshold = used[i], limit[i]
        if first == 0 and columns > room:
            least[:] = np.inf
            for start in range(0, columns, _TOGETHER):
                row, squared = products[i, start : start + _TOGETHER], size[start : start + _TOGETHER]
                smallest = least[start % len(least) : start % len(least) + _TOGETHER]
                for j in range(len(row)):
                    value = squared[j] - np.float32(2) * row[j]
                    smallest[j] = value if value < smallest[j] else smallest[j]
            threshold = bound_of(least, count)
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
def bound_of(least: Floats, count: int) -> Any:
    """Return a number above the `count` smallest numbers, given the least number `[C]` of each of C classes.

    The `count` smallest entries of `least` belong to different classes. So at least `count` numbers are not larger than
    the last of these entries. Return inf if there are fewer classes than `count`.
    """
    if count > len(least):
        return least.dtype.type(np.inf)
    return np.nextafter(np.partition(least, count - 1)[count - 1], least.dtype.type(np.inf))


@compiled
def keep_smallest(values: Floats, ids: Ints, count: int) -> Any:
    """Move the `count` smallest values to the front, with their ids, and return the largest of them."""
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
    """Find the k smallest of each row of label distances `[Q, C]`, in order, and sums over the row.

    Ties go to the lower column. A column of the row's own group does not count: own `[Q]`, groups `[C]`. Results are
    near and ids `[Q, k]`, and sums `[3, Q]`: the number of columns that count, the sum of D and the sum of 1 / (1 + D)
    over these columns. room_near and room_ids `[at least 2 k]` are scratch memory.
    """
    columns, count, room = distances.shape[1], near.shape[1], len(room_near)
    total, gain, least = np.zeros(_TOGETHER), np.zeros(_TOGETHER), np.empty(num_classes(count), distances.dtype)
    for i in range(len(distances)):
        n, group, item_count = 0, own[i], columns
        total[:], gain[:], least[:] = 0, 0, np.inf
        for start in range(0, columns, _TOGETHER):
            row, members = distances[i, start : start + _TOGETHER], groups[start : start + _TOGETHER]
            smallest = least[start % len(least) : start % len(least) + _TOGETHER]
            excluded = np.int64(0)
            for j in range(len(row)):
                excluded += np.int64(members[j] == group)
            if excluded:
                item_count -= excluded
                for j in range(len(row)):
                    if members[j] != group:
                        total[j] += row[j]
                        gain[j] += 1 / (1 + np.float64(row[j]))
                        smallest[j] = min(smallest[j], row[j])
                continue
            for j in range(len(row)):
                value = np.float64(row[j])
                total[j] += value
                gain[j] += 1 / (1 + value)
            for j in range(len(row)):
                smallest[j] = row[j] if row[j] < smallest[j] else smallest[j]
        threshold = bound_of(least, count)
        for start in range(0, columns, _TOGETHER):
            row, members = distances[i, start : start + _TOGETHER], groups[start : start + _TOGETHER]
            hits = np.int32(0)
            for j in range(len(row)):
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
        sums[0, i], sums[1, i], sums[2, i] = item_count, total.sum(), gain.sum()
