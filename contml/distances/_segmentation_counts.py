"""Machine code over bit masks of label maps: the pixels that regions have in common, and the distances they make.

Popcounts of 64 pixels at a time, vectorised by LLVM where the processor can. Hamming distances by FAISS give the same
counts, but a matrix of them a class; doing a pair of maps in one go took a third to two fifths of their time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba.extending import intrinsic

from contml.distances._compiled import Floats, Ints, compiled

#: Typed loosely: numba's own type does not tell that the first argument is left out in a call.
_intrinsic: Callable[[Callable[..., Any]], Callable[..., Any]] = intrinsic


@_intrinsic
def _ones(_: Any, word: Any) -> Any:
    """The bits of a word that are 1: one instruction."""

    def code(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return word(word), code


@compiled
def labelled(masks: Ints, areas: Ints) -> Ints:
    """`[N, words]`: the pixels of any class, which are all that are not ignored."""
    out = np.zeros((masks.shape[0], masks.shape[2]), np.int64)
    for i in range(masks.shape[0]):
        for c in range(masks.shape[1]):
            if areas[i, c] > 0:
                for k in range(masks.shape[2]):
                    out[i, k] |= masks[i, c, k]
    return out


@compiled
def all_equal(v: Ints, w: Ints) -> bool:
    """Whether all rows of v and w are one."""
    for side in (v, w):
        for i in range(side.shape[0]):
            for k in range(side.shape[1]):
                if side[i, k] != v[0, k]:
                    return False
    return True


@compiled
def _common(a: Ints, b: Ints) -> int:
    count = 0
    for k in range(len(a)):
        count += _ones(a[k] & b[k])
    return count


@compiled
def _counts(a: Ints, b: Ints, v: Ints, w: Ints) -> tuple[int, int]:
    """|A & B| and |A & W| + |V & B|."""
    common, inside = 0, 0
    for k in range(len(a)):
        common += _ones(a[k] & b[k])
        inside += _ones(a[k] & w[k]) + _ones(v[k] & b[k])
    return common, inside


@compiled
def distances(
    masks: Ints,
    areas: Ints,
    v: Ints,
    other_masks: Ints,
    other_areas: Ints,
    w: Ints,
    whole: bool,
    same: bool,
    width: int,
    start: int,
    step: int,
    out: Floats,
) -> None:
    """1 - mIoU of maps x, in rows, to maps y; NaN without a common pixel. Part `start` of `step` of the work.

    `whole`: all maps have labels at the same pixels, as without ignored ones, so that no area depends on the other map.
    `same`: y is x, and the upper half is enough. A part takes rows of blocks of `width` columns, which stay in a cache.
    """
    part = 0
    for left in range(0, len(w), width):
        for i in range(len(v)):
            part += 1
            if part % step != start:
                continue
            for j in range(max(left, i) if same else left, min(left + width, len(w))):
                total, classes = 0.0, 0
                for c in range(masks.shape[1]):
                    in_x, in_y = areas[i, c] > 0, other_areas[j, c] > 0
                    common, inside = 0, areas[i, c] + other_areas[j, c]
                    if in_x and in_y and whole:
                        common = _common(masks[i, c], other_masks[j, c])
                    elif in_x and in_y:
                        common, inside = _counts(masks[i, c], other_masks[j, c], v[i], w[j])
                    elif in_x and not whole:
                        inside = _common(masks[i, c], w[j])
                    elif in_y and not whole:
                        inside = _common(v[i], other_masks[j, c])
                    if inside > 0:
                        classes += 1
                        total += common / (inside - common)
                out[i, j] = 1 - total / classes if classes > 0 else np.nan
                if same:
                    out[j, i] = out[i, j]
