"""Step 1. Captions become bags of words, packed into flat arrays: sets of captions, captions of words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from contml.distances._compiled import Floats, Ints


class Bags(NamedTuple):
    """Packed caption sets. Set s has captions sets[s]:sets[s + 1], caption c has entries starts[c]:starts[c + 1]."""

    words: Ints  # [E] int64, word numbers, ascending within a caption
    counts: Ints  # [E] int64, how often the word occurs in the caption
    starts: Ints  # [K+1] int64
    totals: Ints  # [K] int64, words of a caption, repeats included
    sets: Ints  # [S+1] int64


class CaptionPairs(NamedTuple):
    """All pairs of a caption of x and a caption of y, with the costs between their words."""

    cost: Floats  # [R,C] float32, the cost block
    columns: int  # C
    x: Bags
    rows: Ints  # [E of x] the row of the cost block of each entry
    y: Bags
    cols: Ints  # [E of y] the column of the cost block of each entry


def pack(sets: Iterable[Iterable[Sequence[int]]]) -> Bags:
    """Pack caption sets into bags; a caption is a sequence of word numbers >= 0."""
    words, counts, starts, totals, edges = [], [], [0], [], [0]
    for captions in sets:
        for caption in captions:
            for word, count in sorted(Counter(caption).items()):
                words.append(word)
                counts.append(count)
            starts.append(len(words))
            totals.append(len(caption))
        edges.append(len(totals))
    return Bags(*(np.array(values, dtype=np.int64) for values in (words, counts, starts, totals, edges)))


def take(bags: Bags, rows: Ints) -> Bags:
    """The sets with these row numbers, in this order."""
    captions, sets = _members(bags.sets, rows)
    return take_captions(bags, captions)._replace(sets=sets)


def take_captions(bags: Bags, captions: Ints) -> Bags:
    """These captions, each as a set of its own."""
    entries, starts = _members(bags.starts, captions)
    edges = np.arange(len(captions) + 1)
    return Bags(bags.words[entries], bags.counts[entries], starts, bags.totals[captions], edges)


def most_words(*bags: Bags) -> int:
    """The number of distinct words of the longest caption, at least 1."""
    return max([1, *(int(np.diff(part.starts).max()) for part in bags if len(part.totals))])


def split_sets(sizes: Ints, most: int) -> list[Ints]:
    """Split sets of `sizes` captions into groups of consecutive sets: at most `most` captions, or one larger set."""
    groups: list[list[int]] = []
    room = 0
    for row, size in enumerate(sizes.tolist()):
        if not groups or size > room:
            groups.append([])
            room = most
        groups[-1].append(row)
        room -= size
    return [np.array(group) for group in groups]


def _members(edges: Ints, chosen: Ints) -> tuple[Ints, Ints]:
    """The members of the chosen ranges edges[r]:edges[r + 1], range after range, and the new edges."""
    lengths = edges[chosen + 1] - edges[chosen]
    new = np.concatenate(([0], np.cumsum(lengths)))
    return np.repeat(edges[chosen] - new[:-1], lengths) + np.arange(new[-1]), new
