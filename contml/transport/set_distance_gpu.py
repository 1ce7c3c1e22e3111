"""Step 5. Distances of caption sets on a GPU: every W by the solver on the GPU, minima and sums by torch.

Bounds, which save solves on the CPU, are not used here: solving every pair is faster than finding out which are needed.
"""

from __future__ import annotations

import warnings
from functools import cache

import numpy as np
import torch
from torch import Tensor

import contml.transport.set_distance_cpu as cpu
import contml.transport.solver_gpu as solver
from contml.distances._compiled import Floats, Ints
from contml.distances.euclidean import euclidean
from contml.transport.bags import Bags, WordCosts, pack, take_captions


@cache
def works(device: torch.device) -> bool:
    """Return True if the solver compiles and solves a known problem on this device. If not, warn once."""
    # Words on a line: a third each at 0, 1 and 2, moved to a half each at 2 and 3.
    x, y = pack([[[0, 1, 2]]]), pack([[[2, 3]]])
    try:
        distance = word_movers_distances(x, y, WordCosts(np.arange(4.0)[:, None]), device).item()
        problem = "" if distance == 1.5 else f"it returns {distance} instead of 1.5"
    except Exception as error:  # a compiler may fail in any way: the CPU gives the same numbers
        problem = " ".join(f"{type(error).__name__}: {error}".split())[:200]
    if problem:
        warnings.warn(
            f"caption distances are computed on the CPU: the kernel does not work on {device} ({problem})", stacklevel=2
        )
    return not problem


def set_distances(x: Bags, y: Bags, costs: WordCosts, device: torch.device) -> Tensor:
    """Compute D `[X, Y]` in float32 of packed caption sets."""
    w = word_movers_distances(x, y, costs, device)  # [A,B]
    x_sizes, y_sizes = (_to_device(device, np.diff(bags.sets)) for bags in (x, y))
    from_x = _reduce_sets(_reduce_sets(w.T, y_sizes, "min").T, x_sizes, "sum")  # [X,Y]
    from_y = _reduce_sets(_reduce_sets(w, x_sizes, "min").T, y_sizes, "sum")  # [Y,X]
    return (from_x + from_y.T).float()


def _reduce_sets(values: Tensor, sizes: Tensor, how: str) -> Tensor:
    """Take the minimum or the sum of values `[captions, N]` over the captions of each set, in their order: `[S, N]`."""
    return torch.segment_reduce(values.contiguous(), how, lengths=sizes, axis=0, unsafe=True)


def word_movers_distances(x: Bags, y: Bags, costs: WordCosts, device: torch.device) -> Tensor:
    """Compute W `[A, B]` in float64 of the captions of x to the captions of y. If x is y, half the work is enough."""
    out = torch.zeros(len(x.totals), len(y.totals), dtype=torch.float64, device=device)
    if not out.numel():
        return out
    packed, tile_x, tile_y = _pack_pairs(x, y, costs, device), _tiles(x), _tiles(y)
    rows, cols = (
        {t: _to_device(device, np.flatnonzero(tiles == t)) for t in solver.TILES} for tiles in (tile_x, tile_y)
    )
    for p in solver.TILES:
        for q in solver.TILES:
            solver.solve_pairs(packed, rows[p], cols[q], len(x.totals), max(p, q), x is y, out)
    # Captions longer than the largest tile go to the solver on the CPU, which takes any length.
    if len(long := np.flatnonzero(tile_x == 0)):
        out[_to_device(device, long)] = cpu.word_movers_distances(take_captions(x, long), y, costs, device).double()
    if len(long := np.flatnonzero(tile_y == 0)):
        out[:, _to_device(device, long)] = cpu.word_movers_distances(x, take_captions(y, long), costs, device).double()
    return out


def _tiles(bags: Bags) -> Ints:
    """Return the smallest tile that holds each caption `[K]`. Return 0 for a caption that no tile holds."""
    tiles, length = np.array([*solver.TILES, 0]), np.diff(bags.starts)
    return np.where(bags.totals <= solver.MOST_WORDS, tiles[np.searchsorted(tiles[:-1], length)], 0)


def _pack_pairs(x: Bags, y: Bags, costs: WordCosts, device: torch.device) -> solver.PackedPairs:
    device_costs = costs.on(device)
    if costs.whole:
        table, row_places, col_places = device_costs, x.words * len(device_costs), y.words
    else:
        row_words, row_places = np.unique(x.words, return_inverse=True)
        col_words, col_places = np.unique(y.words, return_inverse=True)
        row_places *= len(col_words)
        rows, cols = (device_costs[_to_device(device, words)] for words in (row_words, col_words))
        table = euclidean(rows, cols).float()
    return solver.PackedPairs(
        words=_to_device(device, np.concatenate((x.words, y.words))),
        counts=_to_device(device, np.concatenate((x.counts, y.counts)).astype(np.int32)),
        places=_to_device(device, np.concatenate((row_places, col_places))),
        starts=_to_device(device, np.concatenate((x.starts, x.starts[-1] + y.starts[1:]))),
        totals=_to_device(device, np.concatenate((x.totals, y.totals)).clip(max=solver.MOST_WORDS).astype(np.int32)),
        keys=_to_device(device, np.concatenate((_keys(x), _keys(y)))),
        costs=table,
    )


def _to_device(device: torch.device, array: Floats | Ints) -> Tensor:
    return torch.from_numpy(array).to(device)


def _keys(bags: Bags) -> Ints:
    """Compute a hash of each caption, equal for equal captions. The caption with the smaller hash becomes the rows."""
    mixed = bags.words.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + bags.counts.astype(np.uint64)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return np.add.reduceat(mixed ^ (mixed >> np.uint64(32)), bags.starts[:-1]).view(np.int64)
