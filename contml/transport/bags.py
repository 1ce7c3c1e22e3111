"""Steps 1 and 2: bags of words, and word costs.

Step 1. Captions become bags of words, packed into flat arrays: sets of captions, captions of words.

Step 2. Word costs are the distances between word vectors. All distances of a small vocabulary are computed once. Blocks
of a large one are computed when they are needed.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from contml._support.errors import InputError
from contml.distances._compiled import Floats, Ints
from contml.distances.euclidean import recompute

#: The largest word weight as a whole number. On a GPU, captions of 31 words then fit the solver at any weights.
_LARGEST = 1024


class Bags(NamedTuple):
    """Packed caption sets.

    Set s has captions sets[s]:sets[s + 1]. Caption c has entries starts[c]:starts[c + 1].
    """

    words: Ints  # [E] int64, word numbers, ascending within a caption
    counts: Ints  # [E] int64, the count of the word in the caption, times its weight
    starts: Ints  # [K+1] int64
    totals: Ints  # [K] int64, the sum of the counts of a caption
    sets: Ints  # [S+1] int64


class CaptionPairs(NamedTuple):
    """All pairs of a caption of x and a caption of y, with the costs between their words."""

    cost: Floats  # [R,C] float32, the cost block
    columns: int  # C
    x: Bags
    rows: Ints  # [E of x] the row of the cost block of each entry
    y: Bags
    cols: Ints  # [E of y] the column of the cost block of each entry


def pack(sets: Iterable[Iterable[Sequence[int]]], weights: Ints | None = None) -> Bags:
    """Pack caption sets into bags. A caption is a sequence of word numbers >= 0.

    The count of a word is its number of occurrences in the caption. With `weights` `[V]`, it is multiplied by the
    weight of the word, a whole number.
    """
    words, counts, starts, edges = (array("q", first) for first in ((), (), (0,), (0,)))
    for captions in sets:
        for caption in captions:
            for word, count in sorted(Counter(caption).items()):
                words.append(word)
                counts.append(count)
            starts.append(len(words))
        edges.append(len(starts) - 1)
    numbers, masses, caption_starts, set_starts = (
        np.frombuffer(values, np.int64) for values in (words, counts, starts, edges)
    )
    if weights is not None:
        masses = masses * weights[numbers]
    ends = np.concatenate(([0], np.cumsum(masses)))[caption_starts]
    return Bags(numbers, masses, caption_starts, np.diff(ends), set_starts)


def check_weights(weights: Mapping[Any, float]) -> None:
    """Check the weights of words.

    Raises:
        InputError: a weight is not a finite number above 0.
    """
    for word, weight in weights.items():
        if isinstance(weight, bool) or not isinstance(weight, int | float | np.number) or not 0 < weight < np.inf:
            raise InputError(f"the weight of the word {word!r}", repr(weight), "must be a finite number above 0")


def whole_weights(weights: Mapping[Any, float], words: Sequence[Any]) -> Ints:
    """Return the weights `[V]` of these words as whole numbers, so that mass stays whole.

    A word without a weight weighs 1. A whole number counts steps of M / 1024. M is the largest weight of all words, or
    1 if that is larger. Weights are rounded to steps, and are at least one step.

    Raises:
        InputError: a weight is not a finite number above 0.
    """
    check_weights(weights)
    step = max(1.0, *weights.values()) / _LARGEST if weights else 1.0
    rounded = np.array([max(1, round(weights.get(word, 1.0) / step)) for word in words], dtype=np.int64)
    return rounded // np.gcd.reduce(rounded) if len(rounded) else rounded


def take(bags: Bags, rows: Ints) -> Bags:
    """Return the sets with these row numbers, in this order."""
    captions, sets = set_members(bags.sets, rows)
    return take_captions(bags, captions)._replace(sets=sets)


def take_captions(bags: Bags, captions: Ints) -> Bags:
    """Return these captions, each as a set of its own."""
    entries, starts = set_members(bags.starts, captions)
    edges = np.arange(len(captions) + 1)
    return Bags(bags.words[entries], bags.counts[entries], starts, bags.totals[captions], edges)


def most_words(*bags: Bags) -> int:
    """Return the number of distinct words of the longest caption, at least 1."""
    return max([1, *(int(np.diff(bag.starts).max()) for bag in bags if len(bag.totals))])


def split_sets(sizes: Ints, most: int) -> list[Ints]:
    """Split sets of `sizes` captions into groups of consecutive sets.

    A group has at most `most` captions, or is one larger set.
    """
    groups: list[list[int]] = []
    room = 0
    for row, size in enumerate(sizes.tolist()):
        if not groups or size > room:
            groups.append([])
            room = most
        groups[-1].append(row)
        room -= size
    return [np.array(group) for group in groups]


def set_members(edges: Ints, chosen: Ints) -> tuple[Ints, Ints]:
    """Return the members of the chosen sets edges[r]:edges[r + 1], set after set, and the new edges."""
    lengths = edges[chosen + 1] - edges[chosen]
    new_edges = np.concatenate(([0], np.cumsum(lengths)))
    return np.repeat(edges[chosen] - new_edges[:-1], lengths) + np.arange(new_edges[-1]), new_edges


#: Vocabularies of at most this many words keep all distances: at most 900 MB.
WHOLE = 15_000
#: Squared distances below this share of |x|^2 + |y|^2 are recomputed by subtraction: equal vectors have distance 0.
_CANCELS = 1e-6
_BLOCK = 1024


class WordCosts:
    """Euclidean distances of word vectors, computed in float64 and kept in float32.

    Args:
        vectors: `[V, d]`.
        names: the words, for error messages.
    """

    def __init__(self, vectors: Floats, names: Sequence[Hashable] | None = None) -> None:
        self.names = range(len(vectors)) if names is None else names
        self.vectors = np.ascontiguousarray(vectors, dtype=np.float64).reshape(len(vectors), -1)
        with np.errstate(over="ignore", invalid="ignore"):
            self.squares = np.einsum("vd,vd->v", self.vectors, self.vectors)
        # Below 1e37, since four times 1e37 still fits in float32.
        invalid_words = np.flatnonzero(~(self.squares < 1e37))
        if len(invalid_words):
            name = self.names[int(invalid_words[0])]
            raise InputError(f"the vector of the word {name!r}", "not finite, or too long", hint="give finite vectors")
        self._whole = self._all_distances() if len(self.vectors) <= WHOLE else None
        self._by_device: dict[torch.device, Tensor] = {}

    @property
    def whole(self) -> bool:
        """True if all distances are kept, False if only the vectors are kept."""
        return self._whole is not None

    def on(self, device: torch.device) -> Tensor:
        """Return all distances `[V, V]` in float32 on a device, if they are kept.

        Otherwise return the vectors `[V, d]` in float64.
        """
        if device not in self._by_device:
            self._by_device[device] = torch.from_numpy(self.vectors if self._whole is None else self._whole).to(device)
        return self._by_device[device]

    def block(self, rows: Ints, cols: Ints) -> Floats:
        """Return distances `[R, C]` in float32 of these words, a contiguous array."""
        if self._whole is None:
            return self._compute_block(rows, cols)
        from contml.transport.bounds import gather_costs  # here: it imports numba

        out = np.empty((len(rows), len(cols)), np.float32)
        gather_costs(self._whole, rows, cols, out)
        return out

    def _all_distances(self) -> Floats:
        v = len(self.vectors)
        out = np.empty((v, v), np.float32)
        for start in range(0, v, _BLOCK):
            rows = np.arange(start, min(start + _BLOCK, v))
            block = self._compute_block(rows, np.arange(start, v))
            square = np.triu(block[:, : len(rows)], 1)  # a product need not be symmetric to the last bit
            block[:, : len(rows)] = square + square.T
            out[rows, start:] = block
            out[start:, rows] = block.T
        return out

    def _compute_block(self, rows: Ints, cols: Ints) -> Floats:
        x, y = self.vectors[rows], self.vectors[cols]
        size = self.squares[rows, None] + self.squares[cols]
        d = x @ y.T
        d *= -2
        d += size
        i, j = np.nonzero(d <= _CANCELS * size)
        recompute(d, i, j, lambda a, b: np.square(x[a] - y[b]).sum(1))
        return np.sqrt(d, out=d).astype(np.float32)

    def __getstate__(self) -> dict[str, Any]:
        # The distances of a large vocabulary are quicker to compute again than to send to another process.
        return {**self.__dict__, "_whole": None, "_by_device": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._whole = self._all_distances() if len(self.vectors) <= WHOLE else None
