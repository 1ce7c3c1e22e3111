"""The driver of label distances: blocks and nearest neighbours of any label space, in a memory budget.

A label space chooses its backend by its device, in `pairwise` and, where it knows better than to stream blocks, in a
method `nearest_rows`; docs/engine.md tells which runs where. Whatever runs, label distances are the same numbers to
float32 rounding, and nearest neighbours of equal distance come in order of their rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from contml.contracts import InputError, LabelSpace, Rows, as_rows
from contml.distances.cache import Cache

#: Memory that one block of label distances may take with its temporaries, in bytes.
MEMORY = 256 << 20
#: Bytes an entry of a block takes while it is computed: float64 arithmetic with its temporaries.
_BYTES = 64


class Neighbours(NamedTuple):
    """The k nearest rows of each row by label distance, nearest first, ties by lower row."""

    distances: Tensor  # [R,k] float32
    rows: Tensor  # [R,k] int64


def pairwise(space: LabelSpace, rows: Rows = None, cols: Rows = None, *, memory: int = MEMORY) -> Tensor:
    """Label distances `[R, C]` in float32 on the space's device, computed in blocks of at most `memory` bytes.

    Raises:
        InputError: a row does not exist, or a label distance is negative or not a number.
    """
    r, c = as_rows(rows, len(space), space.device), as_rows(cols, len(space), space.device)
    out = torch.empty(len(r), len(c), device=space.device)
    for chunk in _chunks(len(r), len(c), memory):
        out[chunk] = checked(space.pairwise(r[chunk], None if cols is None else c))
    return out


def nearest(
    space: LabelSpace,
    k: int,
    rows: Rows = None,
    *,
    among: Rows = None,
    memory: int = MEMORY,
    progress: Callable[[int], None] | None = None,
    cache: Path | str | None = None,
) -> Neighbours:
    """The exact k nearest rows by label distance of each of `rows`, among `among` (default all), never itself.

    Never an N x N matrix in memory. Ties of the float32 label distances go to the lower row.

    Args:
        space: any label space.
        k: how many.
        rows: whose neighbours are wanted.
        among: rows that may be neighbours.
        memory: bytes that a block of label distances may take with its temporaries.
        progress: called with the number of rows finished so far; `progress_bar` shows it.
        cache: a folder where the result is kept under a key of the labels' content and the options of their distance;
            an interrupted search goes on where it stopped. The space needs a `fingerprint`, as `PackedLabels` has.

    Raises:
        InputError: k is not in 1 ... number of candidates, a label distance is negative or not a number, or the cache
            cannot be used: the space has no fingerprint, a file of it is damaged, or the folder cannot be written.
    """
    r, c = as_rows(rows, len(space), space.device), torch.unique(as_rows(among, len(space), space.device))
    others = len(c) - int(torch.isin(r, c).any())
    if not 1 <= k <= others:
        raise InputError(f"k is {k}, but there are {others} items to choose neighbours from; k must be 1 to {others}")
    if cache is None:
        return _search(space, k, r, c, memory, progress)
    kept = Cache(Path(cache).expanduser(), space, k, r, c)
    return Neighbours(*kept.get(lambda part, tell: _search(space, k, part, c, memory, tell), progress))


def _search(
    space: LabelSpace, k: int, r: Tensor, c: Tensor, memory: int, progress: Callable[[int], None] | None
) -> Neighbours:
    own = getattr(space, "nearest_rows", None)
    if own is None:
        return _stream(space, k, r, c, memory, progress)
    found = Neighbours(*own(k, r, c, memory, progress))
    checked(found.distances)
    return found


def _stream(
    space: LabelSpace, k: int, r: Tensor, c: Tensor, memory: int, progress: Callable[[int], None] | None
) -> Neighbours:
    keys = torch.empty(len(r), k, dtype=torch.int64, device=space.device)
    width = min(len(c), 1 << 14)
    for chunk in _chunks(len(r), width, memory):
        best: Tensor | None = None
        for start in range(0, len(c), width):
            cols = c[start : start + width]
            key = _keys(checked(space.pairwise(r[chunk], cols)), cols)
            key.masked_fill_(r[chunk, None] == cols, _LAST)
            key = key if best is None else torch.cat((best, key), 1)
            best = key.topk(min(k, key.shape[1]), dim=1, largest=False).values
        assert best is not None
        keys[chunk] = best
        if progress is not None:
            progress(chunk.stop)
    return _unpack(keys)


def smallest(distances: Tensor, ids: Tensor, k: int, *, out: Tensor | None = None) -> Neighbours:
    """The k smallest of each row of distances `[R, C]`, smallest first, ties by the lower of the columns' `ids` `[C]`.

    `out` `[R, C]` marks entries that do not count; a row needs k entries that do.
    """
    key = _keys(distances, ids)
    if out is not None:
        key.masked_fill_(out, _LAST)
    return _unpack(key.topk(k, dim=1, largest=False).values)


def checked(distances: Tensor) -> Tensor:
    """The same label distances, once it is sure that they are finite numbers >= 0."""
    if distances.numel() and not all(0 <= float(edge) < float("inf") for edge in torch.aminmax(distances)):
        bad = (~((distances >= 0) & distances.isfinite())).nonzero()[0].tolist()
        raise InputError(
            f"a label distance is {distances[tuple(bad)].item()} (row {bad[0]}, column {bad[1]} of the block); "
            "label distances are finite numbers >= 0: look for NaN in the labels"
        )
    return distances


#: The key of an entry that does not count: behind all that do.
_LAST = torch.iinfo(torch.int64).max


def _unpack(keys: Tensor) -> Neighbours:
    return Neighbours((keys >> 32).int().view(torch.float32), keys & 0xFFFFFFFF)


def _keys(distances: Tensor, cols: Tensor) -> Tensor:
    # A float >= 0 orders as its bits do, so (distance, row) packs into one integer that a plain top-k can order: ties
    # then go to the lower row, on every device. Adding 0 turns -0.0, whose bits are negative, into 0.0.
    return (distances.add(0.0).view(torch.int32).long() << 32) | cols


def _chunks(rows: int, cols: int, memory: int) -> Iterator[slice]:
    step = max(1, memory // (_BYTES * max(cols, 1)))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))
