"""Distances of captions and of caption sets, on the CPU or a GPU. The package explains the steps."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from contml._support.errors import InputError
from contml.distances._compiled import Floats
from contml.transport.bags import Bags, WordCosts, pack, split_sets, take, whole_weights

#: Word vectors by word: a mapping, gensim's KeyedVectors, or an array whose rows are the vectors of the words.
Vectors = Any
#: Captions as sequences of words.
Captions: TypeAlias = "Sequence[Sequence[Hashable]]"
#: The weights of words. A weight is the mass of a word in a caption. None means that every word weighs 1.
Weights: TypeAlias = "Mapping[Any, float] | None"
#: D is computed in tiles of this many captions on each axis: the bounds or distances of a tile take some megabytes.
_TILE = 1280


class Match(NamedTuple):
    """The mass of a caption that moves from one word to another, and the distance between the words."""

    source: Hashable
    target: Hashable
    share: float
    distance: float


def word_movers_distance(
    x: Captions, y: Captions, vectors: Vectors, device: torch.device | str = "cpu", weights: Weights = None
) -> Tensor:
    """Compute Word Mover's Distances `[N, M]` in float32 of N captions x to M captions y, on `device`.

    A caption is a sequence of words. Distances are exact to float32 rounding, symmetric, and exactly 0 for captions of
    the same words. `vectors[word]` is the vector of a word: a mapping, gensim's KeyedVectors, or an array `[V, d]` with
    words as row numbers.

    The mass of a caption is 1. It is divided among its words in proportion to their number of occurrences times their
    weight in `weights` (1 if a word has no weight). Weights are rounded to 1/1024 of the largest one.

    Raises:
        InputError: a caption is empty, a word has no finite vector, or a weight is not above 0.
    """
    a, b, costs = _pack_captions([[caption] for caption in x], [[caption] for caption in y], vectors, weights)
    device = torch.device(device)
    return _solver(device).word_movers_distances(a, a if x is y else b, costs, device).float()


def caption_distance(
    x: Sequence[Captions],
    y: Sequence[Captions],
    vectors: Vectors,
    device: torch.device | str = "cpu",
    weights: Weights = None,
) -> Tensor:
    """Compute distances D `[N, M]` in float32 of N caption sets x to M caption sets y: minima of W, summed.

    The sum is over the captions of both sets. A set is a sequence of captions, a caption a sequence of words. Other
    arguments are as in `word_movers_distance`.

    Raises:
        InputError: a set or a caption is empty, a word has no finite vector, or a weight is not above 0.
    """
    a, b, costs = _pack_captions(x, y, vectors, weights)
    return set_distances(a, b, costs, device=device)


def word_movers_plan(
    a: Sequence[Hashable], b: Sequence[Hashable], vectors: Vectors, weights: Weights = None
) -> list[Match]:
    """Find an optimal plan from caption a to caption b, for plots: the words that move to each other, and their shares.

    POT solves it. Shares sum to 1, and the sum of share times distance is W(a, b). Matches are sorted by contribution
    to W, then by share, largest first.

    Raises:
        InputError: a caption is empty, a word has no finite vector, or a weight is not above 0.
    """
    import ot  # here: its import takes a second, and training does not need it

    x, y, costs = _pack_captions([[a]], [[b]], vectors, weights)
    block = costs.block(x.words, y.words).astype(np.float64)
    common_words = np.intersect1d(x.words, y.words)
    plan = np.zeros(block.shape)
    rest_x, rest_y = x.counts / x.totals[0], y.counts / y.totals[0]
    for word in common_words:  # words of both captions stay: the solver might choose another plan of equal cost
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


def set_distances(x: Bags, y: Bags, costs: WordCosts, device: torch.device | str = "cpu") -> Tensor:
    """Compute D `[X, Y]` in float32 of packed caption sets, on `device`. If x is y, half the work is enough.

    If the solver does not run on the device, the CPU computes, in torch's number of threads.
    """
    device = torch.device(device)
    solver = _solver(device)
    out = torch.empty(len(x.sets) - 1, len(y.sets) - 1, device=device)
    for rows in split_sets(np.diff(x.sets), _TILE):
        for cols in split_sets(np.diff(y.sets), _TILE):
            if x is y and cols[0] < rows[0]:
                continue
            on_diagonal = x is y and cols[0] == rows[0]
            a = take(x, rows)
            b = a if on_diagonal else take(y, cols)
            tile = solver.set_distances(a, b, costs, device)
            out[rows[0] : rows[-1] + 1, cols[0] : cols[-1] + 1] = tile
            if x is y and not on_diagonal:
                out[cols[0] : cols[-1] + 1, rows[0] : rows[-1] + 1] = tile.T
    return out


def _solver(device: torch.device) -> ModuleType:
    """Return the module that computes distances on this device: on a GPU where Triton works, else on the CPU."""
    if device.type == "cuda":
        try:  # here: only a CUDA device needs Triton, and some systems have torch without it
            import contml.transport.set_distance_gpu as gpu
        except ImportError:
            pass
        else:
            if gpu.works(device):
                return gpu
    import contml.transport.set_distance_cpu as cpu  # here: it imports numba

    return cpu


def _pack_captions(
    x: Sequence[Captions], y: Sequence[Captions], vectors: Vectors, weights: Weights
) -> tuple[Bags, Bags, WordCosts]:
    for sets in (x, y):
        for number, captions in enumerate(sets):
            if not captions or not all(len(caption) for caption in captions):
                raise InputError(f"item {number}", "no caption, or an empty one", "a caption has at least one word")
    words = {word for sets in (x, y) for captions in sets for caption in captions for word in caption}
    # Sorted, so that swapping x and y changes no computation.
    names: list[Any] = sorted(words, key=lambda word: (type(word).__name__, word))
    number_of = {word: number for number, word in enumerate(names)}
    costs = WordCosts(np.array([_vector(vectors, word) for word in names]), names)
    word_weights = None if weights is None else whole_weights(weights, names)
    numbered = ([[[number_of[w] for w in caption] for caption in captions] for captions in sets] for sets in (x, y))
    a, b = (pack(sets, word_weights) for sets in numbered)
    return a, b, costs


def _vector(vectors: Vectors, word: Hashable) -> Floats:
    try:
        vector: Floats = np.asarray(vectors[word], dtype=np.float64)
    except (KeyError, IndexError):
        raise InputError(f"the word {word!r}", "no vector", hint="leave it out, or give a vector for it") from None
    return vector
