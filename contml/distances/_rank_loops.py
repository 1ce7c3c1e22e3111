"""Loops of exact ranks, compiled by numba: the order of rows, and counts over a block of matrix products.

A count has entries that are certainly nearer, and undecided ones. The score of row i and column j is
`products[i, j] + offset[j]`. A score above `high[i]` counts. A score below `low[i]` does not. Between the two, the
entry is undecided.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from contml.distances._compiled import Floats, Ints, compiled

Singles: TypeAlias = "np.ndarray[Any, np.dtype[np.float32]]"
Shorts: TypeAlias = "np.ndarray[Any, np.dtype[np.int32]]"


@compiled
def count_above(
    products: Singles, offset: Singles, low: Singles, high: Singles, weights: Ints, above: Ints, unsure: Ints
) -> None:
    """Add to `above` the weights of the scores above `high`.

    Also write the number of undecided entries of each row to `unsure`. `weights` of length 0 means that all are 1.
    """
    for i in range(products.shape[0]):
        sure, maybe, lowest, highest = np.int32(0), np.int32(0), low[i], high[i]
        for j in range(products.shape[1]):
            score = products[i, j] + offset[j]
            sure += np.int32(score > highest)
            maybe += np.int32(score >= lowest)
        unsure[i] = maybe - sure
        if len(weights):
            for j in range(products.shape[1]):
                if products[i, j] + offset[j] > highest:
                    above[i] += weights[j]
        else:
            above[i] += sure


@compiled
def count_columns(products: Singles, offset: Singles, low: Singles, high: Singles, sure: Shorts, maybe: Shorts) -> None:
    """Count the scores of each column, with columns as queries.

    Scores above `high` are added to `sure`, scores from `low` on to `maybe`. `offset` belongs to the rows, `low` and
    `high` to the columns.
    """
    for i in range(products.shape[0]):
        row_offset = offset[i]
        for j in range(products.shape[1]):
            score = products[i, j] + row_offset
            sure[j] += np.int32(score > high[j])
            maybe[j] += np.int32(score >= low[j])


@compiled
def unsure_entries(
    products: Singles, offset: Singles, low: Singles, high: Singles, unsure: Ints, rows: Ints, cols: Ints
) -> None:
    """Write the positions of the undecided entries, `unsure[i]` in row i, to `rows` and `cols`."""
    num_found = 0
    for i in range(products.shape[0]):
        remaining = unsure[i]
        j = 0
        while remaining > 0:
            if low[i] <= products[i, j] + offset[j] <= high[i]:
                rows[num_found], cols[num_found] = i, j
                num_found += 1
                remaining -= 1
            j += 1


@compiled
def argsort_rows(values: Floats, order: Ints) -> None:
    """Write the columns of each row of values `[Q, C]` in ascending order `[Q, C]`, ties by lower column.

    Values must not be NaN. This is a radix sort of the numbers rounded to float32, 11 bits at a time. Numbers that are
    equal after rounding are sorted again.
    """
    columns = values.shape[1]
    rounded = np.empty(columns, np.float32)
    bits = rounded.view(np.uint32)
    keys, other_keys = np.empty(columns, np.uint32), np.empty(columns, np.uint32)
    items, other_items = np.empty(columns, np.uint32), np.empty(columns, np.uint32)
    shift, digit, one = np.uint32(11), np.uint32(2047), np.uint32(1)
    starts = np.empty((3, 2048), np.uint32)
    for q in range(len(values)):
        starts[:] = 0
        for j in range(columns):
            rounded[j] = values[q, j] + np.float32(0)  # -0 becomes 0
        for j in range(columns):
            # Bits of floats >= 0 have the order of the floats. Bits of negative floats have the opposite order.
            key = np.uint32(bits[j] ^ np.uint32(0xFFFFFFFF if bits[j] >> np.uint32(31) else 0x80000000))
            keys[j] = key
            starts[0, key & digit] += one
            starts[1, (key >> shift) & digit] += one
            starts[2, key >> (shift + shift)] += one
        for level in range(3):
            total = np.uint32(0)
            for n in range(2048):
                count = starts[level, n]
                starts[level, n] = total
                total += count
        for j in range(columns):
            n = keys[j] & digit
            place = starts[0, n]
            other_keys[place], other_items[place] = keys[j], j
            starts[0, n] += one
        for j in range(columns):
            n = (other_keys[j] >> shift) & digit
            place = starts[1, n]
            keys[place], items[place] = other_keys[j], other_items[j]
            starts[1, n] += one
        for j in range(columns):
            n = keys[j] >> (shift + shift)
            order[q, starts[2, n]] = items[j]
            starts[2, n] += one
        row, places, start = values[q], order[q], 0
        while start < columns:
            end, is_sorted = start + 1, True
            while end < columns and np.float32(row[places[end]]) == np.float32(row[places[start]]):
                is_sorted &= row[places[end - 1]] <= row[places[end]]
                end += 1
            if not is_sorted:
                places[start:end] = places[start:end][np.argsort(row[places[start:end]], kind="mergesort")]
            start = end


@compiled
def mean_ranks(values: Floats, order: Ints, ranks: Floats) -> None:
    """Write the rank of each of values `[P]`, from 0. Equal values get their mean rank.

    order `[P]` is the ascending order of the values.
    """
    start, count = 0, len(order)
    while start < count:
        end = start + 1
        while end < count and values[order[end]] == values[order[start]]:
            end += 1
        for place in range(start, end):
            ranks[order[place]] = (start + end - 1) / 2
        start = end
