"""Machine code over a block of scores: how many of each row are surely above a level, and which may or may not be."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from contml.distances._transport import compiled

Singles: TypeAlias = "np.ndarray[Any, np.dtype[np.float32]]"
Ints: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"


@compiled
def count_above(scores: Singles, low: Singles, high: Singles, weights: Ints, above: Ints, unsure: Ints) -> None:
    """Add to `above` the weights of the scores beyond `high`; `unsure`: how many lie within `low` and `high`.

    `weights` of length 0 are all 1.
    """
    for i in range(scores.shape[0]):
        sure, maybe, lowest, highest = 0, 0, low[i], high[i]
        for j in range(scores.shape[1]):
            sure += scores[i, j] > highest
            maybe += scores[i, j] >= lowest
        unsure[i] = maybe - sure
        if len(weights):
            sure = 0
            for j in range(scores.shape[1]):
                if scores[i, j] > highest:
                    sure += weights[j]
        above[i] += sure


@compiled
def unsure_entries(scores: Singles, low: Singles, high: Singles, unsure: Ints, rows: Ints, cols: Ints) -> None:
    """Where they are, in `rows` and `cols`, which are as long as there are."""
    found = 0
    for i in range(scores.shape[0]):
        left = unsure[i]
        j = 0
        while left > 0:
            if low[i] <= scores[i, j] <= high[i]:
                rows[found], cols[found] = i, j
                found += 1
                left -= 1
            j += 1
