"""Caption distances on a CPU: what the kernels make of packed bags of words, in threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from contml.distances import _caption_sets as kernels
from contml.distances._bags import Bags, Floats, Ints, Sides, grouped, longest, take
from contml.distances._threads import in_threads
from contml.distances._transport import workspace
from contml.distances._word_costs import WordCosts


def all_movers(x: Bags, y: Bags, costs: WordCosts) -> Floats:
    """W `[A, B]` in float32 of the captions of x to those of y; half the work where x is y."""
    sides, size, same = _sides(x, y, costs), longest(x, y), x is y
    out = np.zeros((len(x.totals), len(y.totals)), np.float32)
    in_threads(lambda start, step: kernels.movers_rows(sides, workspace(size), same, start, step, out), len(out))
    return out + out.T if same else out


def set_distances(x: Bags, y: Bags, costs: WordCosts, prune: bool) -> Floats:
    """D `[X, Y]` in float32 of packed caption sets: the minima that bounds do not tell; all of them without `prune`."""
    same, size = x is y, longest(x, y)
    sides = _sides(x, y, costs)
    forward = backward = np.empty((0, 0), np.float32)
    if prune:
        forward = np.empty((len(x.totals), len(y.totals)), np.float32)
        _bounds(sides.cost, x, sides.rows, y, sides.cols, forward)
        backward = forward
        if not same:
            backward = np.empty(forward.shape[::-1], np.float32)
            _bounds(np.ascontiguousarray(sides.cost.T), y, sides.cols, x, sides.rows, backward)
    out = np.zeros((len(x.sets) - 1, len(y.sets) - 1), np.float32)
    # More parts than threads, interleaved: rows of a half matrix are not of one length.
    in_threads(
        lambda start, step: kernels.distance_rows(sides, workspace(size), forward, backward, same, start, step, out),
        len(out),
    )
    return out + out.T if same else out


def nearest_sets(
    x: Bags,
    own: Ints,
    y: Bags,
    ids: Ints,
    k: int,
    costs: WordCosts,
    memory: int,
    progress: Callable[[int], None] | None = None,
) -> tuple[Floats, Ints]:
    """The k nearest sets of y of each set of x by D, and their ids, `[X, k]` each: nearest first, ties by lower id.

    `own` `[X]` are ids that do not count for a set, `ids` `[Y]` those of the sets of y, distinct.
    """
    distances, rows = np.empty((len(own), k), np.float32), np.empty((len(own), k), np.int64)
    size = longest(x, y)
    slack = 1 - (size + 16) * 1.2e-7
    vocabulary, cols = np.unique(y.words, return_inverse=True)
    groups = grouped(np.diff(x.sets), kernels.GROUP)
    # What a thread takes: costs of a group's words, their minima, and bounds and candidates of a few queries.
    each = 4 * (len(vocabulary) * 10 * kernels.GROUP + len(ids) * (2 * 4 + kernels.GROUP))
    threads = max(1, min(torch.get_num_threads(), memory // each))

    def search(group: Ints) -> int:
        queries = take(x, group)
        words, at = np.unique(queries.words, return_inverse=True)
        sides = Sides(costs.block(words, vocabulary), len(vocabulary), queries, at, y, cols)
        best, best_ids = np.empty((len(group), k), np.float32), np.empty((len(group), k), np.int64)
        kernels.nearest_sets(sides, workspace(size), own[group], ids, slack, best, best_ids)
        distances[group], rows[group] = best, best_ids
        return len(group)

    with ThreadPoolExecutor(threads) as pool:
        done = 0
        for finished in pool.map(search, groups):
            done += finished
            if progress is not None:
                progress(done)
    return distances, rows


def _bounds(cost: Floats, x: Bags, rows: Ints, y: Bags, cols: Ints, out: Floats) -> None:
    def part(start: int, step: int) -> None:
        edges = np.linspace(0, len(out), step + 1).astype(int)
        kernels.relaxed(cost, x, rows, y, cols, edges[start], edges[start + 1], out)

    in_threads(part, len(out))


def _sides(x: Bags, y: Bags, costs: WordCosts) -> Sides:
    row_words, rows = np.unique(x.words, return_inverse=True)
    col_words, cols = (row_words, rows) if x is y else np.unique(y.words, return_inverse=True)
    return Sides(costs.block(row_words, col_words), len(col_words), x, rows, y, cols)
