"""Approximate nearest neighbours by NN-descent: of any label space, as it needs only blocks of label distances.

    random trees    items nearer to one of two random items are divided from those nearer to the other, down to leaves
                    of about 100 items; all pairs of a leaf are compared
    descent         a neighbour of a neighbour is likely a neighbour: the neighbours of each item, and the items that
                    it is a neighbour of, are compared with each other, until hardly anything changes

Dong et al.: "Efficient k-nearest neighbor graph construction for generic similarity measures", WWW 2011. The trees are
those of pynndescent, with two items in place of a hyperplane, since labels need not be vectors. Libraries call a
compiled function for each pair of vectors; label distances are computed for many pairs at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from torch import Tensor

Integers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Floats: TypeAlias = "np.ndarray[Any, np.dtype[np.float32]]"
#: Distances `[R, C]` of rows `[R]` to columns `[C]`; rows are distinct, and so are columns.
Block: TypeAlias = "Callable[[Integers, Integers], Floats]"

#: Trees, and the largest leaf.
_TREES, _LEAF = 4, 128
#: Neighbours that are kept of each item at least, so that the descent finds its way.
_KEPT = 20
#: New neighbours of an item that a round compares, and as many items that it is a new neighbour of; as many old ones.
_SAMPLED = 8
#: Rounds at most, and the share of items below which changes of their neighbours end the descent.
_ROUNDS, _CHANGED = 12, 0.02
#: Items whose candidates are compared together.
_GROUP = 8
#: Items whose candidates are chosen at a time, and pairs that are merged at a time.
_ITEMS, _PAIRS = 1 << 17, 1 << 20
#: The key of no neighbour: after all others.
_NONE = np.iinfo(np.int64).max


class ApproximateNeighbours(NamedTuple):
    """The nearest rows of each row that NN-descent found, nearest first; label distances are exact.

    Attributes:
        distances: `[N, k]` float32.
        rows: `[N, k]` int64.
        recall: the share of the k nearest that were found, on a random sample of the rows; of items at the same label
            distance as the k-th, each counts.
        recall_low: the lower end of its 95% interval (Wilson, with one observation per row, which is cautious).
        recall_high: the upper end.
        sampled_rows: the number of rows of the sample.
        compared: the share of all pairs of rows whose label distance was computed, without the sample.
    """

    distances: Tensor
    rows: Tensor
    recall: float
    recall_low: float
    recall_high: float
    sampled_rows: int
    compared: float

    @property
    def description(self) -> str:
        """One line: the recall with its interval, and the share of pairs."""
        return (
            f"approximate nearest neighbours: recall {self.recall:.3f} ({self.recall_low:.3f} to "
            f"{self.recall_high:.3f}) on {self.sampled_rows:,} rows, {self.compared:.2%} of the pairs compared"
        )


def descend(
    block: Block, items: int, k: int, seed: int, progress: Callable[[int], None] | None = None
) -> tuple[Floats, Integers, int]:
    """Distances and rows `[N, k]` of the neighbours that were found, and the number of pairs that were compared.

    Args:
        block: label distances of rows to columns.
        items: the number of items N, below 2^31.
        k: the number of neighbours, below N.
        seed: the same seed gives the same neighbours.
        progress: called with the number of items that are finished, of N; a round counts as a share of them.
    """
    graph, random = _Graph(block, items, min(items - 1, max(k, _KEPT))), np.random.default_rng(seed)
    rounds = _TREES + _ROUNDS
    for tree in range(_TREES):
        leaves = [*_leaves(block, graph, random)]
        for leaf in leaves:
            graph.compare(leaf, leaf[:0])
        graph.merge()
        if progress is not None:
            progress(items * (tree + 1) // (rounds + 1))
    order = np.concatenate(leaves)
    for number in range(_ROUNDS):
        graph.changes = 0
        graph.descend(order, random)
        if progress is not None:
            progress(items * (_TREES + number + 1) // (rounds + 1))
        if graph.changes <= _CHANGED * items:
            break
    # A leaf may be too small, or all of its items equal: whoever still lacks neighbours is compared with all items.
    for row in np.flatnonzero(graph.keys[:, k - 1] == _NONE).tolist():
        graph.compare(np.array([row]), np.delete(np.arange(items), row))
    graph.merge()
    keys = graph.keys[:, :k]
    if progress is not None:
        progress(items)
    return _distances(keys), _rows(keys), graph.pairs


def interval(share: float, count: int) -> tuple[float, float]:
    """The 95% Wilson interval of a share of `count` observations between 0 and 1."""
    z = 1.959964
    centre, width = share + z * z / (2 * count), z * math.sqrt(share * (1 - share) / count + (z / (2 * count)) ** 2)
    scale = 1 + z * z / count
    return max(0.0, (centre - width) / scale), min(1.0, (centre + width) / scale)


class _Graph:
    """The nearest neighbours so far as keys `[N, K]`, ascending: bits of the distance, row, whether it is new."""

    def __init__(self, block: Block, items: int, kept: int) -> None:
        self.block, self.items = block, items
        self.keys = np.full((items, kept), _NONE)
        self.pairs, self.changes = 0, 0
        self._found: list[tuple[Integers, Integers, Floats]] = []
        self._waiting = 0

    def compare(self, new: Integers, old: Integers) -> None:
        """Compare the `new` items with each other and with the `old` ones; all are distinct."""
        columns = np.concatenate((new, old))
        d = self.block(new, columns)
        self.pairs += len(new) * (len(new) - 1) // 2 + len(new) * len(old)
        limit = self.keys[:, -1]
        bits = (d + np.float32(0)).view(np.int32).astype(np.int64) << 32  # + 0: -0.0 is 0.0
        wanted = (bits < limit[new][:, None]) | (bits < limit[columns])
        wanted[:, : len(new)] &= np.tri(len(new), k=-1, dtype=bool).T  # each pair once, and no item with itself
        rows, cols = np.nonzero(wanted)
        self._found.append((new[rows], columns[cols], d[rows, cols]))
        self._waiting += len(rows)
        if self._waiting > _PAIRS:
            self.merge()

    def merge(self) -> None:
        """Merge the pairs that were found into the keys."""
        if not self._found:
            return
        a, b, d = (np.concatenate(each) for each in zip(*self._found, strict=True))
        self._found, self._waiting = [], 0
        owners, others = np.concatenate((a, b)), np.concatenate((b, a))
        keys = _keys(np.concatenate((d, d)), others)
        useful = keys < self.keys[owners, -1]
        owners, others, keys = owners[useful], others[useful], keys[useful]
        _, first = np.unique(owners * self.items + others, return_index=True)  # a pair may be found several times
        owners, others, keys = owners[first], others[first], keys[first]
        is_known = (_rows(self.keys[owners]) == others[:, None]).any(1)
        owners, keys = owners[~is_known], keys[~is_known]
        order = np.lexsort((keys, owners))
        owners, keys = owners[order], keys[order]
        affected, starts, counts = np.unique(owners, return_index=True, return_counts=True)
        place = np.arange(len(owners)) - np.repeat(starts, counts)
        kept = self.keys.shape[1]
        fits = place < kept
        added = np.full((len(affected), min(kept, int(counts.max(initial=0)))), _NONE)
        added[np.repeat(np.arange(len(affected)), counts)[fits], place[fits]] = keys[fits]
        before = self.keys[affected]
        after = np.sort(np.concatenate((before, added), 1), axis=1)[:, :kept]
        self.changes += int((after != before).any(1).sum())
        self.keys[affected] = after

    def descend(self, order: Integers, random: np.random.Generator) -> None:
        """One round: compare the new neighbours of items with each other and with the old ones.

        Those of a few items that are near each other, as in `order` `[N]`, are compared together: a block has a cost
        of its own, whatever its size.
        """
        snapshot, places = self.keys.copy(), np.argsort(order)
        for start in range(0, self.items, _ITEMS):
            new, old = self._candidates(snapshot, order[start : start + _ITEMS], places - start, random)
            for its_new, its_old in zip(new, old, strict=True):
                if len(its_new):
                    self.compare(its_new, np.setdiff1d(its_old, its_new, assume_unique=True))
        self.merge()

    def _candidates(
        self, snapshot: Integers, items: Integers, places: Integers, random: np.random.Generator
    ) -> tuple[list[Integers], list[Integers]]:
        """Of a few items at a time, some new and some old neighbours, and items that they are neighbours of.

        `items` `[M]`; places `[N]` are their places among these.
        """
        own, groups = snapshot[items], -(-len(items) // _GROUP)
        targets = places[np.minimum(_rows(snapshot), self.items - 1)]
        owner, place = np.nonzero((targets >= 0) & (targets < len(items)) & (snapshot != _NONE))
        forward_owner, forward_place = np.nonzero(own != _NONE)
        found: list[list[Integers]] = []
        for is_new in (True, False):
            of_forward = (own[forward_owner, forward_place] & 1) == is_new
            of_reverse = (snapshot[owner, place] & 1) == is_new
            i, p = forward_owner[of_forward], forward_place[of_forward]
            sampled = _sample(i, random)
            i, p = i[sampled], p[sampled]
            if is_new:  # not new in the next round
                self._age(items[i], own[i, p])
            r, q = owner[of_reverse], place[of_reverse]
            target = targets[r, q]
            reverse = _sample(target, random)
            owners = np.concatenate((i, target[reverse]))
            others = np.concatenate((_rows(own[i, p]), r[reverse]))
            pairs = np.unique(owners // _GROUP * self.items + others)  # by group, each item once
            ends = np.searchsorted(pairs // self.items, np.arange(1, groups))
            found.append(np.split(pairs % self.items, ends))
        return found[0], found[1]

    def _age(self, rows: Integers, keys: Integers) -> None:
        """These neighbours are no longer new, as far as they are still neighbours."""
        matches = self.keys[rows] == keys[:, None]
        which, place = np.nonzero(matches)
        self.keys[rows[which], place] &= ~np.int64(1)


def _sample(owners: Integers, random: np.random.Generator) -> Integers:
    """Up to `_SAMPLED` random entries of each owner `[E]`, by position."""
    order = np.lexsort((random.random(len(owners), np.float32), owners))
    _, starts, counts = np.unique(owners[order], return_index=True, return_counts=True)
    place = np.arange(len(owners)) - np.repeat(starts, counts)
    return order[place < _SAMPLED]


def _leaves(block: Block, graph: _Graph, random: np.random.Generator) -> Iterator[Integers]:
    """The leaves of a random tree: each set is divided in half, by which of two random items is nearer."""
    waiting = [np.arange(graph.items)]
    while waiting:
        items = waiting.pop()
        if len(items) <= _LEAF:
            yield items
            continue
        pivots = random.choice(items, 2, replace=False)
        d = block(items, pivots)
        graph.pairs += 2 * len(items)
        # Equal differences in random order: all items may be at the same distance.
        order = np.lexsort((random.random(len(items)), d[:, 0].astype(np.float64) - d[:, 1]))
        half = len(items) // 2
        waiting += [np.sort(items[order[:half]]), np.sort(items[order[half:]])]


def _keys(distances: Floats, rows: Integers) -> Integers:
    """New neighbours as keys, in the order of distances, then rows."""
    bits = (distances + np.float32(0)).view(np.int32).astype(np.int64)
    keys: Integers = (bits << 32) | (rows << 1) | 1
    return keys


def _rows(keys: Integers) -> Integers:
    rows: Integers = (keys & 0xFFFFFFFF) >> 1
    return rows


def _distances(keys: Integers) -> Floats:
    distances: Floats = (keys >> 32).astype(np.int32).view(np.float32)
    return distances
