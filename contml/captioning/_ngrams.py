"""Loops over the n-grams of captions, n = 1 ... 4, compiled by numba.

Captions are one array of words (numbers), and where each caption starts and stops in it. They are short, so that the
n-grams of two captions are compared word by word. Only document frequencies need a table of all n-grams: a tree, whose
nodes are n-grams and whose branches are the next words. The key of a branch is (node, word) in 64 bits.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from contml.distances._compiled import compiled

Doubles: TypeAlias = npt.NDArray[np.float64]
Longs: TypeAlias = npt.NDArray[np.int64]
#: Words, where each caption starts, and where it stops.
Captions: TypeAlias = tuple[Longs, Longs, Longs]
#: The table of the tree, the inverse document frequency of each node, and that of an n-gram without a node.
Tree: TypeAlias = tuple[Longs, Doubles, float]

#: A free place of the table.
_FREE = -1
#: 2^64 / golden ratio, as a signed number: spreads keys over the table.
_MIX = np.int64(-0x61C8864680B583EB)
#: Words must be below this, to fit into a key.
WORDS = 1 << 31


@compiled
def _place(table: Longs, key: int) -> Any:
    """Returns where a key is in the table of keys and nodes `[places, 2]`, or the free place for it."""
    mask = len(table) - 1
    slot = (key * _MIX >> 32) & mask
    while table[slot, 0] != key and table[slot, 0] != _FREE:
        slot = (slot + 1) & mask
    return slot


@compiled
def count_images(captions: Captions, images: Longs) -> tuple[Longs, Longs, npt.NDArray[np.int32]]:
    """Returns the table of the tree of all n-grams, and in how many images each n-gram (node) occurs.

    Returns also the nodes of the n-grams that start at each word `[words, 4]`. `images` is the image of each caption;
    the captions of an image are side by side.
    """
    words, starts, stops = captions
    ngrams = np.zeros((len(words), 4), np.int32)
    table = np.full((1 << 12, 2), _FREE, np.int64)
    counts = np.full((1 << 11, 2), -1, np.int64)  # of each node: its number of images, less 1, and the last image
    num_nodes = 1  # node 0 is the root
    for caption in range(len(starts)):
        for start in range(starts[caption], stops[caption]):
            node = 0
            for position in range(start, min(start + 4, stops[caption])):
                key = node << 32 | words[position]
                slot = _place(table, key)
                if table[slot, 0] == _FREE:
                    if num_nodes == len(counts):
                        table = _twice(table)
                        counts = np.concatenate((counts, np.full((num_nodes, 2), -1, np.int64)))
                        slot = _place(table, key)
                    table[slot] = key, num_nodes
                    num_nodes += 1
                node = table[slot, 1]
                ngrams[start, position - start] = node
                if counts[node, 1] != images[caption]:
                    counts[node, 0] += 1
                    counts[node, 1] = images[caption]
    return table, counts[:num_nodes, 0] + 1, ngrams


@compiled
def _twice(table: Longs) -> Longs:
    """Returns the table with twice as many places."""
    larger = np.full((2 * len(table), 2), _FREE, np.int64)
    for slot in range(len(table)):
        if table[slot, 0] != _FREE:
            larger[_place(larger, table[slot, 0])] = table[slot]
    return larger


@compiled
def _occurrences(a: Longs, at: int, stop: int, b: Longs, first: int, end: int, b_stop: int, counts: Longs) -> None:
    """Counts how often the n-grams at `at` of a (which ends at `stop`) start at `first` ... `end - 1` in b."""
    word = a[at]
    for position in range(first, end):
        if b[position] == word:
            counts[0] += 1
            n = 1
            while n < 4 and at + n < stop and position + n < b_stop and a[at + n] == b[position + n]:
                counts[n] += 1
                n += 1


@compiled
def _own(words: Longs, start: int, at: int, stop: int, earlier: Longs, counts: Longs) -> int:
    """Counts the n-grams at `at` in their own caption, and before `at`. Returns how many n-grams there are."""
    for n in range(4):
        earlier[n] = 0
    _occurrences(words, at, stop, words, start, at, stop, earlier)
    for n in range(4):
        counts[n] = earlier[n]
    _occurrences(words, at, stop, words, at, stop, stop, counts)
    return min(4, stop - at)


@compiled
def _weights(words: Longs, at: int, stop: int, tree: Tree, out: Doubles) -> None:
    """Looks up the inverse document frequencies of the n-grams at `at`."""
    table, idf, unseen = tree
    node = 0
    for n in range(min(4, stop - at)):
        word = words[at + n]
        # -1 at a free place of the table
        node = table[_place(table, node << 32 | word), 1] if node >= 0 and 0 <= word < WORDS else -1
        out[n] = idf[node] if node >= 0 else unseen


@compiled
def norms(captions: Captions, ngrams: npt.NDArray[np.int32], idf: Doubles) -> Doubles:
    """Returns the norms of the tf-idf vectors of captions `[C, 4]`, whose n-grams `count_images` returned."""
    words, starts, stops = captions
    squared_norms = np.zeros((len(starts), 4))
    earlier, counts = np.zeros(4, np.int64), np.zeros(4, np.int64)
    for caption in range(len(starts)):
        for position in range(starts[caption], stops[caption]):
            for n in range(_own(words, starts[caption], position, stops[caption], earlier, counts)):
                if not earlier[n]:
                    squared_norms[caption, n] += (counts[n] * idf[ngrams[position, n]]) ** 2
    return np.sqrt(squared_norms)


@compiled
def ciders(
    captions: Captions, rows: Longs, references: Captions, lengths: Doubles, first: Longs, tree: Tree
) -> tuple[Doubles, Doubles]:
    """Returns CIDEr and CIDEr-D of captions `[N]`.

    Args:
        captions: N captions.
        rows: the image of each `[N]`.
        references: C references; the references of an image are adjacent.
        lengths: the norms of the tf-idf vectors of the references `[C, 4]`.
        first: the first reference of each image, and C.
        tree: the tree of the n-grams of all references.
    """
    words, starts, stops = captions
    reference_words, reference_starts, reference_stops = references
    cider, cider_d = np.zeros(len(starts)), np.zeros(len(starts))
    earlier, counts, reference_counts = np.zeros(4, np.int64), np.zeros(4, np.int64), np.zeros(4, np.int64)
    weights = np.zeros(4)
    for caption in range(len(starts)):
        start, stop = starts[caption], stops[caption]
        low, high = first[rows[caption]], first[rows[caption] + 1]
        products, clipped, length = np.zeros((high - low, 4)), np.zeros((high - low, 4)), np.zeros(4)
        for position in range(start, stop):
            ngrams = _own(words, start, position, stop, earlier, counts)
            _weights(words, position, stop, tree, weights)
            for n in range(ngrams):
                if not earlier[n]:
                    length[n] += (counts[n] * weights[n]) ** 2
            for reference in range(low, high):
                begin, end = reference_starts[reference], reference_stops[reference]
                reference_counts[:] = 0
                _occurrences(words, position, stop, reference_words, begin, end, end, reference_counts)
                for n in range(ngrams):
                    if not earlier[n]:
                        product = reference_counts[n] * weights[n] ** 2
                        products[reference - low, n] += counts[n] * product
                        clipped[reference - low, n] += min(counts[n], reference_counts[n]) * product
        for reference in range(low, high):
            # Lengths are numbers of bigrams, as in pycocoevalcap.
            longer = max(stop - start - 1, 0) - max(reference_stops[reference] - reference_starts[reference] - 1, 0)
            penalty = math.exp(-(longer**2) / (2 * 6.0**2))
            for n in range(4):
                divisor = math.sqrt(length[n]) * lengths[reference, n] * 4 * (high - low)
                if divisor > 0:
                    cider[caption] += products[reference - low, n] / divisor
                    cider_d[caption] += 10 * penalty * clipped[reference - low, n] / divisor
    return cider, cider_d


@compiled
def matches(captions: Captions, references: Captions, first: Longs) -> tuple[Longs, Longs]:
    """Returns the clipped counts of BLEU `[N, 4]`, and the length of the reference closest in length `[N]`.

    Caption i is of image i; `references` and `first` as in `ciders`.
    """
    words, starts, stops = captions
    reference_words, reference_starts, reference_stops = references
    clipped, closest = np.zeros((len(starts), 4), np.int64), np.zeros(len(starts), np.int64)
    earlier, counts, reference_counts = np.zeros(4, np.int64), np.zeros(4, np.int64), np.zeros(4, np.int64)
    for caption in range(len(starts)):
        start, stop = starts[caption], stops[caption]
        for position in range(start, stop):
            ngrams = _own(words, start, position, stop, earlier, counts)
            max_counts = np.zeros(4, np.int64)
            for reference in range(first[caption], first[caption + 1]):
                begin, end = reference_starts[reference], reference_stops[reference]
                reference_counts[:] = 0
                _occurrences(words, position, stop, reference_words, begin, end, end, reference_counts)
                max_counts = np.maximum(max_counts, reference_counts)
            for n in range(ngrams):
                if not earlier[n]:
                    clipped[caption, n] += min(counts[n], max_counts[n])
        nearest = -1
        for reference in range(first[caption], first[caption + 1]):
            length = reference_stops[reference] - reference_starts[reference]
            distance = abs(length - (stop - start))
            if nearest < 0 or distance < nearest or (distance == nearest and length < closest[caption]):
                nearest, closest[caption] = distance, length
    return clipped, closest
