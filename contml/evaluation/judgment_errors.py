"""Judgments that contradict other judgments of the same items, or an embedding that was trained without them.

A network that has not seen a judgment predicts it; judgments of the same items by other judges are evidence too.

    pairs     y_i      judged distance
              m_i      predicted distance: an increasing function of the embedding distance of the pair, fitted on the
                       judgments of other folds (isotonic regression); v: mean of (y - m)^2 minus s^2
              o_i, n   mean of the n other judgments of the pair; s^2: variance of judgments of one pair
              p_i      (m_i / v + o_i n / s^2) / (1 / v + n / s^2)
              score_i  |y_i - p_i| / sqrt(s^2 + 1 / (1 / v + n / s^2))

    triplets  m_a      predicted share of answer a: softmax of - d_a^2 / tau, d_a the embedding distance of the pair of
                       items that a says to be more alike; tau: of the largest likelihood
              n_a      other judges who gave answer a, and w times the two-step paths that imply it: if pair u is nearer
                       than pair w by one triplet, and w nearer than v by another, u is nearer than v
              score    - log((k m_a + n_a) / (k + sum_b n_b))

    rankings  as pairs, without o: y is the grade or the distance of an item, m that of the item at its place in the
              list of the query, where the items are in the order of their embedding distances

A judgment that contradicts others is not necessarily the wrong one of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from contml._support.conversion import Numbers
from contml._support.errors import InputError
from contml._support.ids import as_class_ids
from contml.evaluation.judgments import squared_distances
from contml.evaluation.query_gallery import as_embeddings, as_row_numbers
from contml.labels.judged import ANSWER_PAIRS, JudgedItems, PairLabels, RankingLabels, TripletLabels

Floats: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"
Integers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Mask: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"

#: A prediction of the shares of answers counts as so many judges; a path of two triplets as so many.
_PREDICTED, _PATH = 1.0, 0.5
#: Parts of the judgments for the function of the embedding distance, where one network has seen none of them.
_PARTS, _SEED = 5, 0
#: The smallest variance, as a share of the variance of all.
_LEAST = 1e-3
#: Values of tau that are tried, relative to the mean of all squared distances.
_TEMPERATURES = np.logspace(-3, 2, 51)


class ScoredJudgments(NamedTuple):
    """How much each judgment contradicts the others.

    A judgment is a judged distance of a pair; an answer to a triplet, by one judge or more; or an item of a query.

    Attributes:
        scores: `[A]`, float64, the higher the more suspicious; NaN without an embedding.
        items: `[A, m]`, the rows of the items of each: two, or the three of a triplet.
        judged: `[A]`, float64: the distance or grade; of triplets the number of the answer.
        predicted: `[A]`, float64: the distance or grade that the network predicts; of triplets the share of the answer.
        judgments: `[A]`, how many judgments there are of the same items, with this one.
        others_differ: `[A]`, how many of these say otherwise; of a query and an item, whose values are put together, 1
            if they differ.
        implied_otherwise: `[A]`, of triplets the number of pairs of other triplets that imply another answer; 0 of
            others.
    """

    scores: Tensor
    items: Tensor
    judged: Tensor
    predicted: Tensor
    judgments: Tensor
    others_differ: Tensor
    implied_otherwise: Tensor

    @property
    def order(self) -> Tensor:
        """The judgments that have a score, the highest first; of equal scores the first one first."""
        rows = self.scores.isfinite().nonzero()[:, 0]
        return rows[self.scores[rows].sort(descending=True, stable=True).indices]


def judgment_errors(
    embeddings: Numbers | Iterable[Numbers],
    labels: JudgedItems,
    *,
    folds: Numbers | None = None,
    missing: Numbers | None = None,
) -> ScoredJudgments:
    """Score each judgment by how much it contradicts the others, and what an embedding predicts.

    Args:
        embeddings: `[N, d]` of a network that was trained without these judgments; with `folds`, those of each fold's
            network, in order.
        labels: the judgments: `PairLabels`, `TripletLabels` or `RankingLabels`.
        folds: the fold of each judgment of the label space `[J]`: the network of fold f has not seen it. A judgment is
            a pair, a triplet or the list of a query.
        missing: rows without an embedding: their judgments get no score.

    Raises:
        InputError: other labels, or the numbers of embeddings, items, folds or networks differ.
    """
    if not isinstance(labels, PairLabels | TripletLabels | RankingLabels):
        raise InputError("labels", type(labels).__name__, "must be PairLabels, TripletLabels or RankingLabels")
    labels = labels.as_root()
    fold = np.zeros(labels.count, dtype=np.int64) if folds is None else as_class_ids("folds", folds).numpy()
    if len(fold) != labels.count:
        raise InputError("folds", f"{len(fold)} for {labels.count} judgments", "must be one per judgment")
    networks: list[Any] = [embeddings] if folds is None else list(embeddings)
    if fold.max(initial=0) >= len(networks):
        allowed = f"must be 0 to {len(networks) - 1}: there are embeddings of {len(networks)} networks"
        raise InputError("folds", f"fold {fold.max()}", allowed)
    spaces = [as_embeddings("embeddings", each) for each in networks]
    for x in spaces:
        if len(x) != len(labels):
            raise InputError("embeddings", f"{len(x)} for {len(labels)} items", "must be one per item")
    readable = np.ones(len(labels), dtype=bool)
    if missing is not None:
        readable[as_row_numbers("missing", missing, len(labels)).numpy()] = False
    if isinstance(labels, PairLabels):
        found = _pairs(labels, spaces, fold, readable)
    elif isinstance(labels, TripletLabels):
        found = _triplets(labels, spaces, fold, readable)
    else:
        found = _rankings(labels, spaces, fold, readable)
    return ScoredJudgments(*(torch.from_numpy(np.asarray(each)) for each in found))


def _pairs(labels: PairLabels, spaces: Sequence[Tensor], fold: Integers, readable: Mask) -> tuple[Any, ...]:
    from sklearn.isotonic import IsotonicRegression  # here: the import is slow

    rows, (judged, pair) = labels.judged_pairs.rows.numpy(), labels.given
    usable = readable[rows].all(1)
    distances = _held_out(spaces, rows, fold, usable)
    part = fold if len(spaces) > 1 else np.random.default_rng(_SEED).permutation(len(rows)) % _PARTS
    predicted = np.full(len(judged), math.nan)
    for number in np.unique(part):
        held_out, fitted = (part[pair] == number) & usable[pair], (part[pair] != number) & usable[pair]
        if held_out.any() and fitted.any():
            isotonic = IsotonicRegression(out_of_bounds="clip").fit(distances[pair[fitted]], judged[fitted])
            predicted[held_out] = isotonic.predict(distances[pair[held_out]])
    return _scored_numbers(judged, pair, predicted, rows[pair])


def _rankings(labels: RankingLabels, spaces: Sequence[Tensor], fold: Integers, readable: Mask) -> tuple[Any, ...]:
    owner, values = labels.judgment_of, labels.values
    pairs = np.stack((labels.queries[owner], labels.members), axis=1)
    usable: Mask = np.all(readable[pairs], axis=1)
    distances = _held_out(spaces, pairs, fold[owner], usable)
    predicted = np.full(len(pairs), math.nan)
    sign = -1 if labels.of == "grade" else 1
    for start, end in zip(labels.offsets[:-1] + 1, labels.offsets[1:], strict=True):
        kept = start + np.flatnonzero(usable[start:end])
        if not len(kept):
            continue
        _, place, sizes = np.unique(distances[kept], return_inverse=True, return_counts=True)
        ends, cumulated = sizes.cumsum(), np.concatenate(([0.0], (sign * np.sort(sign * values[kept])).cumsum()))
        predicted[kept] = ((cumulated[ends] - cumulated[ends - sizes]) / sizes)[place.reshape(-1)]  # means over ties
    judged, position = labels.given
    return _scored_numbers(judged, position, predicted[position], pairs[position])


def _scored_numbers(judged: Floats, of: Integers, predicted: Floats, items: Integers) -> tuple[Any, ...]:
    """The fields of `ScoredJudgments` of judged numbers `[A]`; equal numbers `of`: of the same items."""
    counts, sums = np.bincount(of), np.bincount(of, judged)
    n = counts[of] - 1
    mean_of_others = (sums[of] - judged) / np.maximum(n, 1)
    least = _LEAST * max(float(judged.var()), 1e-30)
    freedom = int((counts[counts > 1] - 1).sum())
    noise = max(least, float(np.square(judged - sums[of] / counts[of])[n > 0].sum()) / max(1, freedom))
    squares = np.square(judged - predicted)
    error = max(least, (float(np.nanmean(squares)) if np.isfinite(squares).any() else 0.0) - noise * (freedom > 0))
    weight = 1 / error + n / noise
    scores = abs(judged - (predicted / error + mean_of_others * n / noise) / weight) / np.sqrt(noise + 1 / weight)
    _, equal, alike = np.unique(np.stack((of, judged), axis=1), axis=0, return_inverse=True, return_counts=True)
    differing = counts[of] - alike[equal.reshape(-1)]
    return scores, items, judged, predicted, counts[of], differing, np.zeros_like(of)


def _triplets(labels: TripletLabels, spaces: Sequence[Tensor], fold: Integers, readable: Mask) -> tuple[Any, ...]:
    rows, counts = labels.triplets, labels.counts
    answers = counts.shape[1]
    pairs = np.sort(rows[:, ANSWER_PAIRS[answers]], axis=2)  # [T,answers,2]
    usable = np.repeat(readable[rows].all(1), answers)
    distances = _held_out(spaces, pairs.reshape(-1, 2), np.repeat(fold, answers), usable).reshape(counts.shape)
    shares, implied = _shares(np.square(distances), counts), _implied(pairs, counts)
    triplet, answer = np.nonzero(counts)
    own, judges, share = counts[triplet, answer], counts.sum(1)[triplet], shares[triplet, answer]
    paths, paths_to_others = implied[triplet, answer], implied[triplet].sum(1) - implied[triplet, answer]
    # One judge beside the others.
    others_alike = np.maximum(own - 1, 0) + _PATH * paths
    others = others_alike + judges - own + _PATH * paths_to_others
    scores = -np.log((_PREDICTED * share + others_alike) / (_PREDICTED + others))
    numbers = (each.round().astype(np.int64) for each in (judges, judges - own, paths_to_others))
    return scores, rows[triplet], answer.astype(np.float64), share, *numbers


def _shares(squared: Floats, counts: Floats) -> Floats:
    """The predicted share of each answer `[T, answers]`, of squared embedding distances; NaN without them."""
    usable = np.isfinite(squared).all(1)
    scale = float(squared[usable].mean()) if usable.any() else 1.0
    logits = -(squared - squared.min(1, keepdims=True)) / (scale or 1.0)
    likelihoods = [(counts * _log_softmax(logits / each))[usable].sum() for each in _TEMPERATURES]
    shares: Floats = np.exp(_log_softmax(logits / _TEMPERATURES[int(np.argmax(likelihoods))]))
    return shares


def _log_softmax(logits: Floats) -> Floats:
    result: Floats = logits - np.log(np.exp(logits).sum(1, keepdims=True))  # the largest one is 0
    return result


def _implied(pairs: Integers, counts: Floats) -> Floats:
    """How many pairs of other triplets imply each answer `[T, answers]`: u nearer than w, and w nearer than v.

    Of an answer to the odd one out, the paths to both other pairs of items. `pairs`: of each answer `[T, answers, 2]`.
    """
    from scipy.sparse import coo_array  # here: it takes a while to import

    answers = counts.shape[1]
    _, number = np.unique(pairs.reshape(-1, 2), axis=0, return_inverse=True)
    numbers = number.reshape(-1, answers)  # of the pairs
    decided = np.flatnonzero((counts == counts.max(1, keepdims=True)).sum(1) == 1)
    chosen = counts[decided].argmax(1)
    near = [numbers[decided, chosen]] * (answers - 1)
    far = [numbers[decided, (chosen + other) % answers] for other in range(1, answers)]
    size = int(number.max()) + 1
    entries = (np.ones(len(decided) * len(near)), (np.concatenate(near), np.concatenate(far)))
    nearer = coo_array(entries, shape=(size, size)).tocsr()
    nearer.data[:] = 1  # once, however many triplets say so
    paths = (nearer @ nearer).tocsr()
    implied = np.zeros(counts.shape)
    for answer in range(answers):
        for other in range(1, answers):
            implied[:, answer] += np.asarray(paths[numbers[:, answer], numbers[:, (answer + other) % answers]]).ravel()
    return implied


def _held_out(spaces: Sequence[Tensor], pairs: Integers, fold: Integers, usable: Mask) -> Floats:
    """The embedding distance of each pair `[P]` by the network of its fold, relative to the mean of this network."""
    distances = np.full(len(pairs), math.nan)
    for number, x in enumerate(spaces):
        scale = np.sqrt(squared_distances(x, pairs[usable])).mean() if usable.any() else 1.0
        held_out = (fold == number) & usable
        distances[held_out] = np.sqrt(squared_distances(x, pairs[held_out])) / (scale or 1.0)
    return distances
