"""Nearest neighbours by label distance within a memory budget; neighbours at equal distance are in order of rows.

Label distances are the same numbers on every device, to float32 rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from contml._support.errors import InputError

#: Bytes that a block of label distances may take, with temporaries.
MEMORY = 256 << 20
#: Bytes per entry of a block while it is computed: float64 arithmetic with temporaries.
_BYTES = 64


class Neighbours(NamedTuple):
    """The k nearest rows of each row by label distance, nearest first, ties by lower row.

    Where fewer than k have a label distance to the row, the other places have row -1 and distance infinity.
    """

    distances: Tensor  # [R,k] float32
    rows: Tensor  # [R,k] int64


def stream_nearest(
    pairwise: Callable[[Tensor, Tensor], Tensor],
    known: Callable[[Tensor, Tensor], Tensor | None],
    k: int,
    rows: Tensor,
    among: Tensor,
    memory: int,
    progress: Callable[[int], None] | None,
) -> Neighbours:
    """The k nearest of `among` `[C]` to each of `rows` `[R]`, without the row itself, by blocks of `pairwise`.

    `known` gives the pairs of a block that have a label distance; None: all.
    """
    keys = torch.empty(len(rows), k, dtype=torch.int64, device=rows.device)
    width = min(len(among), 1 << 14)
    for chunk in chunks(len(rows), width, memory):
        best: Tensor | None = None
        for start in range(0, len(among), width):
            cols = among[start : start + width]
            key = _keys(pairwise(rows[chunk], cols).float(), cols)
            key.masked_fill_(rows[chunk, None] == cols, _LAST)
            if (has_distance := known(rows[chunk], cols)) is not None:
                key.masked_fill_(~has_distance, _LAST)
            key = key if best is None else torch.cat((best, key), 1)
            best = key.topk(min(k, key.shape[1]), dim=1, largest=False).values
        assert best is not None
        keys[chunk] = best
        if progress is not None:
            progress(chunk.stop)
    return _unpack(keys)


def checked(distances: Tensor) -> Tensor:
    """Check that label distances `[R, C]` are finite numbers >= 0; returns them."""
    if distances.numel() and not all(0 <= float(edge) < float("inf") for edge in torch.aminmax(distances)):
        row, col = (~((distances >= 0) & distances.isfinite())).nonzero()[0].tolist()
        value = f"{distances[row, col].item()} in row {row}, column {col} of a block"
        is_negative = bool(distances[row, col] < 0)
        hint = "similarities? give 1 - similarity" if is_negative else "look for NaN in the labels"
        raise InputError("label distance", value, "must be a finite number >= 0", hint)
    return distances


def chunks(rows: int, cols: int, memory: int) -> Iterator[slice]:
    """Slices of the rows such that a block of a slice and all columns fits in `memory` bytes."""
    step = max(1, memory // (_BYTES * max(cols, 1)))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


#: The key of an entry that does not count: after all others.
_LAST = torch.iinfo(torch.int64).max


def _unpack(keys: Tensor) -> Neighbours:
    none = keys == _LAST
    distances, rows = (keys >> 32).int().view(torch.float32), keys & 0xFFFFFFFF
    return Neighbours(distances.masked_fill_(none, torch.inf), rows.masked_fill_(none, -1))


def _keys(distances: Tensor, cols: Tensor) -> Tensor:
    # Floats >= 0 have the order of their bits, so (distance, row) packs into one integer for a plain top-k: ties go to
    # the lower row, on every device. Adding 0 turns -0.0, whose bits are negative, into 0.0.
    return (distances.add(0.0).view(torch.int32).long() << 32) | cols
