"""Machine code over a block of products: how many of each row are surely near enough, and which may or may not be.

The score of row i and column j is `products[i, j] + offset[j]`: above `high[i]` it counts, below `low[i]` it does not.
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
    """Add to `above` the weights of the scores beyond `high`; `unsure`: how many lie within `low` and `high`.

    `weights` of length 0 are all 1.
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
    """The same with columns asking and rows counted: scores beyond `high` and at least `low` of each column are added.

    `offset` is of the rows, `low` and `high` of the columns.
    """
    for i in range(products.shape[0]):
        own = offset[i]
        for j in range(products.shape[1]):
            score = products[i, j] + own
            sure[j] += np.int32(score > high[j])
            maybe[j] += np.int32(score >= low[j])


@compiled
def unsure_entries(
    products: Singles, offset: Singles, low: Singles, high: Singles, unsure: Ints, rows: Ints, cols: Ints
) -> None:
    """Where the unsure of the rows are, in `rows` and `cols`, which are as long as there are."""
    found = 0
    for i in range(products.shape[0]):
        left = unsure[i]
        j = 0
        while left > 0:
            if low[i] <= products[i, j] + offset[j] <= high[i]:
                rows[found], cols[found] = i, j
                found += 1
                left -= 1
            j += 1


@compiled
def unsure_of_columns(
    products: Singles, offset: Singles, low: Singles, high: Singles, total: int, rows: Ints, cols: Ints
) -> None:
    """Where the `total` unsure of the columns are."""
    found = 0
    for i in range(products.shape[0]):
        own = offset[i]
        for j in range(products.shape[1]):
            score = products[i, j] + own
            if (score >= low[j]) & (score <= high[j]):
                rows[found], cols[found] = i, j
                found += 1
        if found == total:
            return
