"""Distances of captions and of caption sets: the Word Mover's Distance, exact, and sums of its minima.

    W(c, c')  = min_f sum_ij f_ij |x_i - x_j|    f: exact transport between two normalised bags of words
    D(i, j)   = sum_{c in i} min_{c' in j} W(c, c') + sum_{c' in j} min_{c in i} W(c, c')

W: Kusner, Sun, Kolkin and Weinberger, From Word Embeddings To Document Distances, ICML 2015, equation 2. D: Kim, Seo,
Laptev, Cho and Kwak, Deep Metric Learning Beyond Binary Supervision, CVPR 2019, section 5.4. On the CPU only the minima
of D are solved, the rest is told by bounds; what comes out is the same to the last bit. On a GPU all are solved.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from contml._support.errors import InputError
from contml.distances._bags import Bags, Floats, grouped, pack, take
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
    from contml.distances import _captions_cpu as cpu  # here: it imports numba

    return torch.from_numpy(cpu.all_movers(a, b, costs)).to(device)


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


def set_distances(
    x: Bags, y: Bags, costs: WordCosts, *, prune: bool = True, device: torch.device | str = "cpu"
) -> Tensor:
    """D `[X, Y]` in float32 of packed caption sets, on `device`; half the work where x is y.

    On the CPU in torch's number of threads; so too where the device has no kernel.
    """
    device = torch.device(device)
    on_gpu = _uses_gpu(device)
    out = torch.zeros(len(x.sets) - 1, len(y.sets) - 1, device=device if on_gpu else "cpu")
    for r in grouped(np.diff(x.sets), _TILE):
        for c in grouped(np.diff(y.sets), _TILE):
            if x is y and c[0] < r[0]:
                continue
            same = x is y and c[0] == r[0]
            a = take(x, r)
            b = a if same else take(y, c)
            if on_gpu:
                from contml.distances import _captions_gpu as gpu

                tile = gpu.set_distances(a, b, costs, device)
            else:
                from contml.distances import _captions_cpu as cpu

                tile = torch.from_numpy(cpu.set_distances(a, b, costs, prune))
            out[r[0] : r[-1] + 1, c[0] : c[-1] + 1] = tile
            if x is y and not same:
                out[c[0] : c[-1] + 1, r[0] : r[-1] + 1] = tile.T
    return out.to(device)


def _uses_gpu(device: torch.device) -> bool:
    if device.type != "cuda":
        return False
    try:  # here: nothing but a CUDA device needs Triton, and torch comes without it for some systems
        from contml.distances import _captions_gpu as gpu
    except ImportError:
        return False
    return gpu.works(device)


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
