"""Caption distances on a GPU: every W of a tile by one kernel, minima and sums by torch.

Here no bound saves a solve, as it does on the CPU: the minima of all are quicker than finding out which are needed.
"""

from __future__ import annotations

import warnings
from functools import cache

import numpy as np
import torch
from torch import Tensor

from contml.distances import _captions_cpu as cpu, _transport_triton as kernel
from contml.distances._bags import Bags, Floats, Ints, pack, take_captions
from contml.distances._word_costs import WordCosts
from contml.distances.euclidean import euclidean


@cache
def works(device: torch.device) -> bool:
    """Whether the kernel compiles there and solves a problem whose answer is known; told once where it does not."""
    # On a line: a third each at 0, 1 and 2 against halves at 2 and 3.
    x, y = pack([[[0, 1, 2]]]), pack([[[2, 3]]])
    try:
        found = all_movers(x, y, WordCosts(np.arange(4.0)[:, None]), device).item()
        problem = "" if found == 1.5 else f"it gives {found} for 1.5"
    except Exception as error:  # whatever keeps a compiler from working: the CPU gives the same numbers
        problem = " ".join(f"{type(error).__name__}: {error}".split())[:200]
    if problem:
        warnings.warn(
            f"caption distances are computed on the CPU: the kernel does not work on {device} ({problem})", stacklevel=2
        )
    return not problem


def set_distances(x: Bags, y: Bags, costs: WordCosts, device: torch.device) -> Tensor:
    """D `[X, Y]` in float32 of packed caption sets."""
    w = all_movers(x, y, costs, device)  # [A,B]
    of_x, of_y = (_on(device, np.diff(bags.sets)) for bags in (x, y))
    forth = _of_sets(_of_sets(w.T, of_y, "min").T, of_x, "sum")  # [X,Y]
    back = _of_sets(_of_sets(w, of_x, "min").T, of_y, "sum")  # [Y,X]
    return (forth + back.T).float()


def _of_sets(values: Tensor, sizes: Tensor, how: str) -> Tensor:
    """`[S, N]` of values `[captions, N]`: the minimum or the sum of each set's captions, always in their order."""
    return torch.segment_reduce(values.contiguous(), how, lengths=sizes, axis=0, unsafe=True)


def all_movers(x: Bags, y: Bags, costs: WordCosts, device: torch.device) -> Tensor:
    """W `[A, B]` in float64 of the captions of x to those of y; half the work where x is y."""
    out = torch.zeros(len(x.totals), len(y.totals), dtype=torch.float64, device=device)
    if not out.numel():
        return out
    packed, tile_x, tile_y = _packed(x, y, costs, device), _tiles(x), _tiles(y)
    rows, cols = ({t: _on(device, np.flatnonzero(of == t)) for t in kernel.TILES} for of in (tile_x, tile_y))
    for p in kernel.TILES:
        for q in kernel.TILES:
            kernel.movers(packed, rows[p], cols[q], len(x.totals), max(p, q), x is y, out)
    # A caption longer than the largest tile goes to the solver of the CPU. POT's emd2 would do as well; ours
    # takes any length, is tested against POT, and is far faster.
    if len(long := np.flatnonzero(tile_x == 0)):
        out[_on(device, long)] = _on(device, cpu.all_movers(take_captions(x, long), y, costs)).double()
    if len(long := np.flatnonzero(tile_y == 0)):
        out[:, _on(device, long)] = _on(device, cpu.all_movers(x, take_captions(y, long), costs)).double()
    return out


def _tiles(bags: Bags) -> Ints:
    """`[K]`: the tile that holds each caption, 0 where none does."""
    tiles, length = np.array([*kernel.TILES, 0]), np.diff(bags.starts)
    return np.where(bags.totals <= kernel.MOST_WORDS, tiles[np.searchsorted(tiles[:-1], length)], 0)


def _packed(x: Bags, y: Bags, costs: WordCosts, device: torch.device) -> kernel.Packed:
    kept = costs.on(device)
    if costs.whole:
        table, row_places, col_places = kept, x.words * len(kept), y.words
    else:
        row_words, row_places = np.unique(x.words, return_inverse=True)
        col_words, col_places = np.unique(y.words, return_inverse=True)
        row_places *= len(col_words)
        rows, cols = (kept[_on(device, words)] for words in (row_words, col_words))
        table = euclidean(rows, cols).float()
    return kernel.Packed(
        words=_on(device, np.concatenate((x.words, y.words))),
        counts=_on(device, np.concatenate((x.counts, y.counts)).astype(np.int32)),
        places=_on(device, np.concatenate((row_places, col_places))),
        starts=_on(device, np.concatenate((x.starts, x.starts[-1] + y.starts[1:]))),
        totals=_on(device, np.concatenate((x.totals, y.totals)).clip(max=kernel.MOST_WORDS).astype(np.int32)),
        keys=_on(device, np.concatenate((_keys(x), _keys(y)))),
        costs=table,
    )


def _on(device: torch.device, array: Floats | Ints) -> Tensor:
    return torch.from_numpy(array).to(device)


def _keys(bags: Bags) -> Ints:
    """A number of each caption's content, to tell the row side of a pair by: equal for equal captions, else hardly."""
    mixed = bags.words.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + bags.counts.astype(np.uint64)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return np.add.reduceat(mixed ^ (mixed >> np.uint64(32)), bags.starts[:-1]).view(np.int64)
