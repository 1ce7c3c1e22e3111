"""Nearest neighbours by label distance in a memory budget, and the order of equal distances.

Label distances are the same numbers to float32 rounding on every device, and nearest neighbours of equal distance come
in order of their rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from contml._support.errors import InputError

#: Memory that one block of label distances may take with its temporaries, in bytes.
MEMORY = 256 << 20
#: Bytes an entry of a block takes while it is computed: float64 arithmetic with its temporaries.
_BYTES = 64


class Neighbours(NamedTuple):
    """The k nearest rows of each row by label distance, nearest first, ties by lower row."""

    distances: Tensor  # [R,k] float32
    rows: Tensor  # [R,k] int64


def stream_nearest(
    pairwise: Callable[[Tensor, Tensor], Tensor],
    k: int,
    rows: Tensor,
    among: Tensor,
    memory: int,
    progress: Callable[[int], None] | None,
) -> Neighbours:
    """The k nearest of `among` `[C]` to each of `rows` `[R]`, never itself, from blocks of `pairwise(rows, among)`."""
    keys = torch.empty(len(rows), k, dtype=torch.int64, device=rows.device)
    width = min(len(among), 1 << 14)
    for chunk in chunks(len(rows), width, memory):
        best: Tensor | None = None
        for start in range(0, len(among), width):
            cols = among[start : start + width]
            key = _keys(pairwise(rows[chunk], cols).float(), cols)
            key.masked_fill_(rows[chunk, None] == cols, _LAST)
            key = key if best is None else torch.cat((best, key), 1)
            best = key.topk(min(k, key.shape[1]), dim=1, largest=False).values
        assert best is not None
        keys[chunk] = best
        if progress is not None:
            progress(chunk.stop)
    return _unpack(keys)


def smallest(distances: Tensor, ids: Tensor, k: int, *, excluded: Tensor | None = None) -> Neighbours:
    """The k smallest of each row of distances `[R, C]`, smallest first, ties by the lower of the columns' `ids` `[C]`.

    `excluded` `[R, C]` marks entries that do not count; a row needs k entries that do.
    """
    key = _keys(distances, ids)
    if excluded is not None:
        key.masked_fill_(excluded, _LAST)
    return _unpack(key.topk(k, dim=1, largest=False).values)


def checked(distances: Tensor) -> Tensor:
    """The same label distances `[R, C]`, after a check that they are finite numbers >= 0."""
    if distances.numel() and not all(0 <= float(edge) < float("inf") for edge in torch.aminmax(distances)):
        bad = (~((distances >= 0) & distances.isfinite())).nonzero()[0].tolist()
        raise InputError(
            f"a label distance is {distances[tuple(bad)].item()} (row {bad[0]}, column {bad[1]} of the block); "
            "label distances are finite numbers >= 0: look for NaN in the labels"
        )
    return distances


def chunks(rows: int, cols: int, memory: int) -> Iterator[slice]:
    """Slices of the rows, so that a block of a slice and all columns fits in `memory` bytes."""
    step = max(1, memory // (_BYTES * max(cols, 1)))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


#: The key of an entry that does not count: behind all that do.
_LAST = torch.iinfo(torch.int64).max


def _unpack(keys: Tensor) -> Neighbours:
    return Neighbours((keys >> 32).int().view(torch.float32), keys & 0xFFFFFFFF)


def _keys(distances: Tensor, cols: Tensor) -> Tensor:
    # A float >= 0 orders as its bits do, so (distance, row) packs into one integer that a plain top-k can order: ties
    # then go to the lower row, on every device. Adding 0 turns -0.0, whose bits are negative, into 0.0.
    return (distances.add(0.0).view(torch.int32).long() << 32) | cols
