"""Distances of captions and of caption sets: the Word Mover's Distance, exact, and sums of its minima.

    W(c, c')  = min_f sum_ij f_ij |x_i - x_j|    f: exact transport between two normalised bags of words
    D(i, j)   = sum_{c in i} min_{c' in j} W(c, c') + sum_{c' in j} min_{c in i} W(c, c')

W: Kusner, Sun, Kolkin and Weinberger, From Word Embeddings To Document Distances, ICML 2015, equation 2. D: Kim, Seo,
Laptev, Cho and Kwak, Deep Metric Learning Beyond Binary Supervision, CVPR 2019, section 5.4. On the CPU only the minima
of D are solved, the rest is told by bounds; what comes out is the same to the last bit. On a GPU all are solved.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from contml.contracts import InputError
from contml.distances import _caption_sets as kernels
from contml.distances._caption_sets import Bags, Sides
from contml.distances._threads import in_threads
from contml.distances._transport import Floats, Ints, workspace
from contml.distances._word_costs import WordCosts

#: Word vectors by word: a mapping, gensim's KeyedVectors, or an array whose rows are the words' vectors.
Vectors = Any
#: Captions on a side of a tile of D: a tile's bounds, or its W on a GPU, then take a few megabytes.
_TILE = 1280


class Match(NamedTuple):
    """How much of a caption's mass goes from one word to another, and how far."""

    source: Hashable
    target: Hashable
    share: float
    distance: float


def word_movers_distance(
    x: Sequence[Sequence[Hashable]],
    y: Sequence[Sequence[Hashable]],
    vectors: Vectors,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Word Mover's Distances `[N, M]` in float32 of N captions x to M captions y, each a sequence of words.

    Exact to float32 rounding; symmetric, and exactly 0 for captions of the same words. `vectors[word]` is the vector of
    a word: a mapping, gensim's KeyedVectors, or an array `[V, d]` with words as row numbers. Computed on `device`.

    Raises:
        InputError: a caption is empty, or a word has no finite vector.
    """
    a, b, costs = _packed([[caption] for caption in x], [[caption] for caption in y], vectors)
    a, b, device = (a, a if x is y else b, torch.device(device))
    if _uses_gpu(device):
        from contml.distances import _captions_gpu as gpu

        return gpu.all_movers(a, b, costs, device).float()
    return torch.from_numpy(movers_on_cpu(a, b, costs)).to(device)


def caption_distance(
    x: Sequence[Sequence[Sequence[Hashable]]],
    y: Sequence[Sequence[Sequence[Hashable]]],
    vectors: Vectors,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Distances D `[N, M]` in float32 of N caption sets x to M caption sets y, from minima of W in both directions.

    A set is a sequence of captions, a caption a sequence of words; `vectors` and `device` as in `word_movers_distance`.

    Raises:
        InputError: a set or a caption is empty, or a word has no finite vector.
    """
    a, b, costs = _packed(x, y, vectors)
    return set_distances(a, b, costs, device=device)


def word_movers_plan(a: Sequence[Hashable], b: Sequence[Hashable], vectors: Vectors) -> list[Match]:
    """Which words of caption a go to which of caption b in an optimal plan, and how much: for galleries, by POT.

    Shares sum to 1, and share * distance to W(a, b). Largest contributions to W first, then largest shares.

    Raises:
        InputError: a caption is empty, or a word has no finite vector.
    """
    import ot  # here: it takes a second to import, and no training needs it

    x, y, costs = _packed([[a]], [[b]], vectors)
    block = costs.block(x.words, y.words).astype(np.float64)
    common = np.intersect1d(x.words, y.words)
    plan = np.zeros(block.shape)
    rest_x, rest_y = x.counts / x.totals[0], y.counts / y.totals[0]
    for word in common:  # what both have stays: the solver may choose otherwise among equals
        i, j = int(np.searchsorted(x.words, word)), int(np.searchsorted(y.words, word))
        plan[i, j] = min(rest_x[i], rest_y[j])
        rest_x[i] -= plan[i, j]
        rest_y[j] -= plan[i, j]
    if rest_x.sum() > 1e-12:
        plan += ot.emd(rest_x / rest_x.sum(), rest_y / rest_y.sum(), block) * rest_x.sum()
    matches = [
        Match(costs.names[x.words[i]], costs.names[y.words[j]], float(plan[i, j]), float(block[i, j]))
        for i, j in zip(*np.nonzero(plan > 1e-12), strict=True)
    ]
    return sorted(matches, key=lambda match: (-match.share * match.distance, -match.share))


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


def set_distances(
    x: Bags, y: Bags, costs: WordCosts, *, prune: bool = True, device: torch.device | str = "cpu"
) -> Tensor:
    """D `[X, Y]` in float32 of packed caption sets, on `device`; half the work where x is y.

    On the CPU in torch's number of threads; so too where the device has no kernel.
    """
    device = torch.device(device)
    on_gpu = _uses_gpu(device)
    out = torch.zeros(len(x.sets) - 1, len(y.sets) - 1, device=device if on_gpu else "cpu")
    for r in _groups(np.diff(x.sets), _TILE):
        for c in _groups(np.diff(y.sets), _TILE):
            if x is y and c[0] < r[0]:
                continue
            same = x is y and c[0] == r[0]
            a = take(x, r)
            b = a if same else take(y, c)
            if on_gpu:
                from contml.distances import _captions_gpu as gpu

                tile = gpu.set_distances(a, b, costs, device)
            else:
                tile = torch.from_numpy(_tile(a, b, costs, prune))
            out[r[0] : r[-1] + 1, c[0] : c[-1] + 1] = tile
            if x is y and not same:
                out[c[0] : c[-1] + 1, r[0] : r[-1] + 1] = tile.T
    return out.to(device)


def movers_on_cpu(x: Bags, y: Bags, costs: WordCosts) -> Floats:
    """W `[A, B]` in float32 of the captions of x to those of y; half the work where x is y."""
    sides, size, same = _sides(x, y, costs), longest(x, y), x is y
    out = np.zeros((len(x.totals), len(y.totals)), np.float32)
    in_threads(lambda start, step: kernels.movers_rows(sides, workspace(size), same, start, step, out), len(out))
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
    groups = _groups(np.diff(x.sets), kernels.LANES)
    # What a thread takes: costs of a group's words, their minima, and bounds and candidates of a few queries.
    each = 4 * (len(vocabulary) * 10 * kernels.LANES + len(ids) * (2 * 4 + kernels.LANES))
    threads = max(1, min(torch.get_num_threads(), memory // each))

    def search(group: Ints) -> int:
        queries = take(x, group)
        words, at = np.unique(queries.words, return_inverse=True)
        sides = Sides(costs.block(words, vocabulary), queries, at, y, cols)
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


def _uses_gpu(device: torch.device) -> bool:
    if device.type != "cuda":
        return False
    try:  # here: nothing but a CUDA device needs Triton, and torch comes without it for some systems
        from contml.distances import _captions_gpu as gpu
    except ImportError:
        return False
    return gpu.works(device)


def _tile(x: Bags, y: Bags, costs: WordCosts, prune: bool) -> Floats:
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


def _bounds(cost: Floats, x: Bags, rows: Ints, y: Bags, cols: Ints, out: Floats) -> None:
    def part(start: int, step: int) -> None:
        edges = np.linspace(0, len(out), step + 1).astype(int)
        kernels.relaxed(cost, x, rows, y, cols, edges[start], edges[start + 1], out)

    in_threads(part, len(out))


def _sides(x: Bags, y: Bags, costs: WordCosts) -> Sides:
    row_words, rows = np.unique(x.words, return_inverse=True)
    col_words, cols = (row_words, rows) if x is y else np.unique(y.words, return_inverse=True)
    return Sides(costs.block(row_words, col_words), x, rows, y, cols)


def _ranges(edges: Ints, chosen: Ints) -> tuple[Ints, Ints]:
    """The members of these ranges one after the other, and the edges of the ranges among them."""
    lengths = edges[chosen + 1] - edges[chosen]
    new = np.concatenate(([0], np.cumsum(lengths)))
    return np.repeat(edges[chosen] - new[:-1], lengths) + np.arange(new[-1]), new


def _groups(sizes: Ints, most: int) -> list[Ints]:
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


def _packed(
    x: Sequence[Sequence[Sequence[Hashable]]], y: Sequence[Sequence[Sequence[Hashable]]], vectors: Vectors
) -> tuple[Bags, Bags, WordCosts]:
    for side in (x, y):
        for number, captions in enumerate(side):
            if not captions or not all(len(caption) for caption in captions):
                raise InputError(f"item {number} has no caption, or an empty one; a caption needs at least one word")
    # Words in an order of their own, so that swapping x and y leaves every computation as it is.
    names = sorted(
        {word for side in (x, y) for captions in side for caption in captions for word in caption},
        key=lambda word: (type(word).__name__, word),
    )
    position = {word: place for place, word in enumerate(names)}
    costs = WordCosts(np.array([_vector(vectors, word) for word in names]), names)
    a, b = (pack([[position[w] for w in caption] for caption in captions] for captions in side) for side in (x, y))
    return a, b, costs


def _vector(vectors: Vectors, word: Hashable) -> Floats:
    try:
        vector: Floats = np.asarray(vectors[word], dtype=np.float64)
    except (KeyError, IndexError):
        raise InputError(f"the word {word!r} has no vector; leave it out, or give vectors that have it") from None
    return vector
