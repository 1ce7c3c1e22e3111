"""Counts over a block of matrix products: entries that are certainly nearer, and undecided ones. Compiled by numba.

The score of row i and column j is `products[i, j] + offset[j]`. Above `high[i]` it counts, below `low[i]` it does not;
between the two it is undecided.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from contml.distances._compiled import compiled

Singles: TypeAlias = "np.ndarray[Any, np.dtype[np.float32]]"
Ints: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Shorts: TypeAlias = "np.ndarray[Any, np.dtype[np.int32]]"


@compiled
def count_above(
    products: Singles, offset: Singles, low: Singles, high: Singles, weights: Ints, above: Ints, unsure: Ints
) -> None:
    """Add to `above` the weights of the scores above `high`; write to `unsure` how many of each row are undecided.

    `weights` of length 0 means that all are 1.
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
    """The same for columns as queries: add the scores of each column above `high` to `sure`, from `low` on to `maybe`.

    `offset` belongs to the rows, `low` and `high` to the columns.
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
