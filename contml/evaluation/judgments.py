"""Evaluation by judgments: answers to triplets beside those of judges, nDCG of judged lists, ranks of judged pairs.

    accuracy   mean over triplets of [the model's answer is that of most judges]
    agreement  mean over triplets of the share of the judges who gave the model's answer
    pairs      Spearman's and Kendall's correlation of judged distance and embedding distance (`judged_pairs.py`)
    nDCG       mean over queries of DCG / (DCG of the best order),  DCG = sum_i gain_i / log2(rank_i + 1)

The model's answer is the pair of items at the smallest embedding distance. Ties, of distances and of votes, are
expectations. A judge is the ceiling: one judge of a triplet beside the others, over triplets with two or more:

    accuracy   sum_a c_a / n [a is the answer of most of the other n - 1 judges]
    agreement  sum_a c_a (c_a - 1) / (n (n - 1))

Triplets and pairs that share an item are not independent: `variance_of_mean`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from contml._support.errors import InputError
from contml.data.split import Split
from contml.evaluation.evaluators import Device, Evaluator
from contml.evaluation.intervals import half_width, half_width_of_share
from contml.evaluation.judged_pairs import ceilings, kendall_values, spearman_values
from contml.evaluation.metrics import discounts
from contml.evaluation.results import Evaluation, Score, score_of
from contml.labels.judged import ANSWER_PAIRS, JudgedItems, PairLabels, RankingLabels, TripletLabels

_Floats: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"
_Integers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

#: Entries of a block of differences of embeddings.
_ENTRIES = 1 << 22


@dataclass(frozen=True, eq=False)
class Judged:
    """What a model says about the judgments of a split.

    Attributes:
        labels: the judgments whose images could be read, over all items of the split.
        queries: their numbers in this order `[J]`.
        values: the main metric of each `[J]`, float64.
        distances: the embedding distances that decide: of the pair of each answer `[J, 2]` or `[J, 3]`, of each judged
            pair `[J]`, or from the query to each of the `members` of the labels `[M]`.
        embeddings: of the whole split `[N, d]`.
        items: the rows of the items of each triplet `[J, 3]` or pair `[J, 2]`, since those that share one are not
            independent; None: each query is one judgment.
    """

    labels: JudgedItems
    queries: Tensor
    values: Tensor
    distances: Tensor
    embeddings: Tensor
    items: Tensor | None

    def shown(self, count: int = 8) -> list[int]:
        """Judgments at equal quantiles of the main metric, best first; of equal values, those at equal steps."""
        order = np.argsort(-self.values.numpy(), kind="stable")
        count = min(count, len(order))
        return [int(order[int((rank + 0.5) / count * len(order))]) for rank in range(count)]


class JudgmentEvaluator(Evaluator):
    """Embeds a split, and compares embedding distances with its judgments."""

    def evaluate(
        self, outputs: Tensor, missing: Tensor, split: Split, device: Device = "cpu"
    ) -> tuple[Evaluation, Judged]:
        """The metrics of the embeddings of a split."""
        return evaluate_judgments(outputs.to(device), split.labels, missing)


def evaluate_judgments(embeddings: Tensor, labels: object, missing: Tensor | None = None) -> tuple[Evaluation, Judged]:
    """Compare the distances of embeddings with judgments.

    Args:
        embeddings: of all items `[N, d]`.
        labels: `PairLabels`, `TripletLabels` or `RankingLabels` of these items.
        missing: rows without an embedding: their judgments are left out.

    Raises:
        InputError: other labels, or no judgment is left.
    """
    if not isinstance(labels, PairLabels | TripletLabels | RankingLabels):
        raise InputError("labels", type(labels).__name__, "must be PairLabels, TripletLabels or RankingLabels")
    if len(embeddings) != len(labels):
        raise InputError("embeddings", f"{len(embeddings)} for {len(labels)} items", "must be one per item")
    skipped = 0
    if missing is not None and len(missing):
        readable = np.ones(len(labels), dtype=bool)
        readable[missing.cpu().numpy()] = False
        labels, skipped = labels.keep_items(readable), int((~readable).sum())
    if not labels.count:
        raise InputError("judgments", "none whose images can be read", "needs at least one")
    if isinstance(labels, PairLabels):
        return _pairs(embeddings, labels, skipped)
    if isinstance(labels, TripletLabels):
        return _triplets(embeddings, labels, skipped)
    return _rankings(embeddings, labels, skipped)


def _pairs(embeddings: Tensor, labels: PairLabels, skipped: int) -> tuple[Evaluation, Judged]:
    pairs = labels.judged_pairs
    distances = np.sqrt(squared_distances(embeddings, pairs.rows.numpy()))
    judged = pairs.distances.numpy()
    rho, tau = spearman_values(distances, judged), kendall_values(distances, judged)
    rho_ceiling, tau_ceiling = ceilings(pairs)
    scores = {
        "judged_spearman": score_of("judged_spearman", float(rho.mean()), 0.0, rho_ceiling),
        "judged_kendall": score_of("judged_kendall", float(tau.mean()), 0.0, tau_ceiling),
    }
    shares = {"judged_spearman": torch.from_numpy(rho), "judged_kendall": torch.from_numpy(tau)}
    intervals = {name: half_width(each, pairs.rows) for name, each in shares.items()}
    values, order = shares["judged_spearman"], torch.arange(labels.count)
    found = Judged(labels, order, values, torch.from_numpy(distances), embeddings.cpu(), pairs.rows)
    evaluation = _evaluation("pairs", labels.count, 0, scores, intervals, skipped)
    return replace(evaluation, unit=labels.unit, measure=labels.measure), found


def _triplets(embeddings: Tensor, labels: TripletLabels, skipped: int) -> tuple[Evaluation, Judged]:
    counts = labels.counts
    answers = counts.shape[1]
    pairs = [labels.triplets[:, list(pair)] for pair in ANSWER_PAIRS[answers]]
    distances = np.stack([squared_distances(embeddings, pair) for pair in pairs], axis=1)
    model, majority = _smallest(distances), _smallest(-counts)
    judges = counts.sum(1)
    values = {"triplet_accuracy": (model * majority).sum(1), "judge_agreement": (model * labels.shares).sum(1)}
    several = (judges >= 2) & (counts == np.floor(counts)).all(1)
    ceilings = _judge(counts[several])
    scores = {
        name: score_of(name, float(each.mean()), 1 / answers, float(ceiling.mean()) if len(ceiling) else math.nan)
        for (name, each), ceiling in zip(values.items(), ceilings, strict=True)
    }
    items = torch.from_numpy(labels.triplets)
    intervals = {name: half_width_of_share(torch.from_numpy(each), items) for name, each in values.items()}
    found = Judged(
        labels,
        torch.arange(labels.count),
        torch.from_numpy(values["triplet_accuracy"]),
        torch.from_numpy(np.sqrt(distances)),
        embeddings.cpu(),
        items,
    )
    return _evaluation("triplets", labels.count, 0, scores, intervals, skipped), found


def _rankings(embeddings: Tensor, labels: RankingLabels, skipped: int) -> tuple[Evaluation, Judged]:
    owner, queries = labels.judgment_of, labels.queries
    distances = squared_distances(embeddings, np.stack((queries[owner], labels.members), axis=1))
    model, random = np.zeros(labels.count), np.zeros(labels.count)
    for judgment, (start, end) in enumerate(zip(labels.offsets[:-1] + 1, labels.offsets[1:], strict=True)):
        model[judgment], random[judgment] = ndcg(distances[start:end], labels.gains[start:end])
    scores = {"judged_ndcg": score_of("judged_ndcg", float(model.mean()), float(random.mean()), 1.0)}
    intervals = {"judged_ndcg": half_width(torch.from_numpy(model))}
    parts = (torch.arange(labels.count), torch.from_numpy(model), torch.from_numpy(np.sqrt(distances)))
    found = Judged(labels, *parts, embeddings.cpu(), None)
    judged = len(labels.members) - labels.count
    return _evaluation("rankings", labels.count, judged, scores, intervals, skipped), found


def _evaluation(
    kind: Any, queries: int, gallery: int, scores: dict[str, Score], intervals: dict[str, float], skipped: int
) -> Evaluation:
    return Evaluation("", queries, gallery, {}, math.nan, skipped, scores, kind=kind, intervals=intervals)


def squared_distances(embeddings: Tensor, pairs: _Integers) -> _Floats:
    """Squared Euclidean distances of pairs of rows `[P, 2]`, by subtraction in float64 `[P]`."""
    found = np.zeros(len(pairs))
    step = max(1, _ENTRIES // max(1, embeddings.shape[1]))
    for start in range(0, len(pairs), step):
        rows = torch.from_numpy(pairs[start : start + step]).to(embeddings.device)
        difference = embeddings[rows[:, 0]].double() - embeddings[rows[:, 1]].double()
        found[start : start + step] = difference.square().sum(1).cpu().numpy()
    return found


def ndcg(distances: _Floats, gains: _Floats) -> tuple[float, float]:
    """The nDCG of the items of a query in order of their distances `[I]`, and of a random order; the mean over ties."""
    discount = discounts(len(gains)).numpy()
    ideal = float((np.sort(gains)[::-1] * discount).sum())
    _, place, sizes = np.unique(distances, return_inverse=True, return_counts=True)
    ends = sizes.cumsum()
    cumulated = np.concatenate(([0.0], discount.cumsum()))
    of_group = (cumulated[ends] - cumulated[ends - sizes]) / sizes  # the mean discount of tied items
    return float((gains * of_group[place.reshape(-1)]).sum()) / ideal, float(gains.mean() * discount.sum()) / ideal


def _smallest(values: _Floats) -> _Floats:
    """1 at the smallest value of each row `[J, answers]`, divided among equal ones."""
    is_smallest: _Floats = (values == values.min(1, keepdims=True)).astype(np.float64)
    is_smallest /= is_smallest.sum(1, keepdims=True)
    return is_smallest


def _judge(counts: _Floats) -> tuple[_Floats, _Floats]:
    """Accuracy and agreement of one judge beside the others, for triplets of two or more whole judges `[R]` each."""
    judges = counts.sum(1, keepdims=True)
    accuracy = np.zeros(len(counts))
    for answer in range(counts.shape[1]):
        others = counts.copy()
        others[:, answer] -= 1
        accuracy += counts[:, answer] * _smallest(-others)[:, answer]
    agreement = (counts * (counts - 1)).sum(1) / (judges * (judges - 1))[:, 0]
    return accuracy / judges[:, 0], agreement
