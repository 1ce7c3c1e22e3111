"""Distances of label maps from the bit masks of their classes, compiled by numba.

Each step counts the bits of 64 pixels. LLVM vectorizes the counts where the processor can. Hamming distances by FAISS
give the same counts, but need one matrix per class. Computing all classes of a pair at once took 33 to 40 % of their
time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba.extending import intrinsic

from contml.distances._compiled import Floats, Ints, compiled

#: Typed loosely: in numba's own type, calls do not omit the first argument.
_intrinsic: Callable[[Callable[..., Any]], Callable[..., Any]] = intrinsic


class MapArrays(NamedTuple):
    """Packed label maps."""

    masks: Ints  # [N,C,words] int64
    areas: Ints  # [N,C] int32
    labelled: Ints  # [N,words] int64, the pixels of any class


@_intrinsic
def _popcount(_: Any, word: Any) -> Any:
    """Return the number of bits of a word that are 1: one instruction."""

    def code(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return word(word), code


@compiled
def _common(a: Ints, b: Ints) -> int:
    count = 0
    for k in range(len(a)):
        count += _popcount(a[k] & b[k])
    return count


@compiled
def _counts(a: Ints, b: Ints, v: Ints, w: Ints) -> tuple[int, int]:
    """Return |A & B| and |A & W| + |V & B|."""
    common, inside = 0, 0
    for k in range(len(a)):
        common += _popcount(a[k] & b[k])
        inside += _popcount(a[k] & w[k]) + _popcount(v[k] & b[k])
    return common, inside


@compiled
def distances(
    x: MapArrays, y: MapArrays, same_pixels: bool, same: bool, width: int, start: int, step: int, out: Floats
) -> None:
    """Write 1 - mIoU of maps x, in rows, to maps y; NaN without a common pixel.

    The call does part `start` of `step` of the work. A part takes rows of blocks of `width` columns, which stay in a
    cache. `same_pixels` means that all maps have labels at the same pixels, so no area depends on the other map. `same`
    means that y is x, so the upper half is enough.
    """
    task = 0
    for first_column in range(0, len(y.labelled), width):
        for i in range(len(x.labelled)):
            task += 1
            if task % step != start:
                continue
            for j in range(max(first_column, i) if same else first_column, min(first_column + width, len(y.labelled))):
                total, classes = 0.0, 0
                for c in range(x.masks.shape[1]):
                    in_x, in_y = x.areas[i, c] > 0, y.areas[j, c] > 0
                    common, inside = 0, x.areas[i, c] + y.areas[j, c]
                    if in_x and in_y and same_pixels:
                        common = _common(x.masks[i, c], y.masks[j, c])
                    elif in_x and in_y:
                        common, inside = _counts(x.masks[i, c], y.masks[j, c], x.labelled[i], y.labelled[j])
                    elif in_x and not same_pixels:
                        inside = _common(x.masks[i, c], y.labelled[j])
                    elif in_y and not same_pixels:
                        inside = _common(x.labelled[i], y.masks[j, c])
                    if inside > 0:
                        classes += 1
                        total += common / (inside - common)
                out[i, j] = 1 - total / classes if classes > 0 else np.nan
                if same:
                    out[j, i] = out[i, j]
