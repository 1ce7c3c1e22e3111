"""Captions as bags of words, packed into arrays: sets of captions, captions of words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.floating[Any]]
Ints: TypeAlias = npt.NDArray[np.integer[Any]]


class Bags(NamedTuple):
    """Packed caption sets: set s has the captions sets[s] to sets[s + 1], caption c the entries from starts[c]."""

    words: Ints  # [E] int64, ascending within a caption
    counts: Ints  # [E] int64
    starts: Ints  # [K+1] int64
    totals: Ints  # [K] int64: words of a caption, repeats included
    sets: Ints  # [S+1] int64


class Sides(NamedTuple):
    """Two packs of caption sets and the block of costs between their words."""

    cost: Floats  # [R,C] float32
    columns: int  # C
    x: Bags
    rows: Ints  # [E of x]
    y: Bags
    cols: Ints  # [E of y]


def pack(sets: Iterable[Iterable[Sequence[int]]]) -> Bags:
    """Pack caption sets, given as word numbers >= 0, into bags."""
    words, counts, starts, totals, edges = [], [], [0], [], [0]
    for captions in sets:
        for caption in captions:
            bag: dict[int, int] = {}
            for word in caption:
                bag[word] = bag.get(word, 0) + 1
            for word in sorted(bag):
                words.append(word)
                counts.append(bag[word])
            starts.append(len(words))
            totals.append(len(caption))
        edges.append(len(totals))
    return Bags(*(np.array(values, dtype=np.int64) for values in (words, counts, starts, totals, edges)))


def take(bags: Bags, rows: Ints) -> Bags:
    """The bags of these sets, in this order."""
    captions, sets = _ranges(bags.sets, rows)
    entries, starts = _ranges(bags.starts, captions)
    return Bags(bags.words[entries], bags.counts[entries], starts, bags.totals[captions], sets)


def take_captions(bags: Bags, captions: Ints) -> Bags:
    """These captions, each a set of its own."""
    entries, starts = _ranges(bags.starts, captions)
    edges = np.arange(len(captions) + 1)
    return Bags(bags.words[entries], bags.counts[entries], starts, bags.totals[captions], edges)


def longest(*bags: Bags) -> int:
    """Distinct words of the longest caption, at least 1."""
    return max([1, *(int(np.diff(part.starts).max()) for part in bags if len(part.totals))])


def grouped(sizes: Ints, most: int) -> list[Ints]:
    """Consecutive sets in groups of at most `most` captions, or of one set."""
    groups: list[list[int]] = []
    room = 0
    for row, size in enumerate(sizes.tolist()):
        if not groups or size > room:
            groups.append([])
            room = most
        groups[-1].append(row)
        room -= size
    return [np.array(group) for group in groups]


def _ranges(edges: Ints, chosen: Ints) -> tuple[Ints, Ints]:
    """The members of these ranges one after the other, and the edges of the ranges among them."""
    lengths = edges[chosen + 1] - edges[chosen]
    new = np.concatenate(([0], np.cumsum(lengths)))
    return np.repeat(edges[chosen] - new[:-1], lengths) + np.arange(new[-1]), new
