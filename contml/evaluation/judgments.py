"""Evaluation by judgments: answers to triplets beside the judges' answers, nDCG of judged lists, ranks of judged pairs.

    accuracy   mean over triplets of [the model's answer is that of most judges]
    agreement  mean over triplets of the share of the judges who gave the model's answer
    pairs      Spearman's correlation of judged distance and embedding distance
    nDCG       mean over queries of DCG / (DCG of the best order),  DCG = sum_i gain_i / log2(rank_i + 1)

The model's answer is the pair of items at the smallest embedding distance. Ties of distances and of votes are
expectations. The ceiling is one judge of a triplet, compared with the other judges, over triplets with two or more:

    accuracy   sum_a c_a / n [a is the answer of most of the other n - 1 judges]
    agreement  sum_a c_a (c_a - 1) / (n (n - 1))

Triplets and pairs that share an item are not independent: `variance_of_mean`.

The rank correlation of judged pairs has a value for each pair, and a ceiling that follows from the noise of judges.

    Spearman's rho   mean over pairs of z_p w_p             z, w: standardized ranks of embedding and judged distances

A correlation is not a mean over pairs, but its influence function is. The values of pairs here have the correlation as
their mean. To first order, they also have its variance, even if pairs share an item (`variance_of_mean`):

    rho + z_p w_p - rho / 2 (z_p^2 + w_p^2)

The ceiling is the correlation of true distances with judged means, where each pair keeps its number of judges. Both are
simulated with a fixed seed. True distances are the judged means, shrunk to the variance of the true distances. Judged
means are true distances plus the noise of judges. The variance of the noise comes from repeated judgments of a pair.
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
from contml.evaluation.metrics import discounts
from contml.evaluation.results import Evaluation, Score, score_of
from contml.labels.base import JudgedPairs
from contml.labels.judged import ANSWER_PAIRS, JudgedItems, PairLabels, RankingLabels, TripletLabels

_Floats: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"
_Integers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

#: Entries of a block of differences of embeddings.
_ENTRIES = 1 << 22


@dataclass(frozen=True, eq=False)
class Judged:
    """The answers of a model to the judgments of a split.

    Attributes:
        labels: the judgments whose images could be read, over all items of the split.
        queries: the numbers of the judgments in this order `[J]`.
        values: the main metric of each judgment `[J]`, float64.
        distances: the embedding distances that decide. For triplets, of the pair of each answer `[J, 2]` or `[J, 3]`.
            For pairs, of each judged pair `[J]`. For rankings, from the query to each of the `members` of the labels
            `[M]`.
        embeddings: of the whole split `[N, d]`.
        items: the rows of the items of each triplet `[J, 3]` or pair `[J, 2]`. Judgments that share an item are not
            independent. It is None for rankings, where each query is one judgment.
    """

    labels: JudgedItems
    queries: Tensor
    values: Tensor
    distances: Tensor
    embeddings: Tensor
    items: Tensor | None

    def shown(self, count: int = 8) -> list[int]:
        """Choose judgments at equal quantiles of the main metric, best first.

        Equal values are sampled at equal steps.
        """
        order = np.argsort(-self.values.numpy(), kind="stable")
        count = min(count, len(order))
        return [int(order[int((rank + 0.5) / count * len(order))]) for rank in range(count)]


class JudgmentEvaluator(Evaluator):
    """Evaluation of the embedding distances of a split by its judgments."""

    def evaluate(
        self, outputs: Tensor, missing: Tensor, split: Split, device: Device = "cpu"
    ) -> tuple[Evaluation, Judged]:
        """Compute the metrics of the embeddings of a split."""
        return evaluate_judgments(outputs.to(device), split.labels, missing)


def evaluate_judgments(embeddings: Tensor, labels: object, missing: Tensor | None = None) -> tuple[Evaluation, Judged]:
    """Compare the distances of embeddings with judgments.

    Args:
        embeddings: of all items `[N, d]`.
        labels: `PairLabels`, `TripletLabels` or `RankingLabels` of these items.
        missing: rows without an embedding. Their judgments are left out.

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
    values = torch.from_numpy(spearman_values(distances, pairs.distances.numpy()))
    scores = {"judged_spearman": score_of("judged_spearman", float(values.mean()), 0.0, ceiling(pairs))}
    intervals = {"judged_spearman": half_width(values, pairs.rows)}
    decided = values, torch.from_numpy(distances)
    found = Judged(labels, torch.arange(labels.count), *decided, embeddings.cpu(), pairs.rows)
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
    ceilings = _judge(counts[(judges >= 2) & (counts == np.floor(counts)).all(1)])
    scores = {
        name: score_of(name, float(each.mean()), 1 / answers, float(ceiling.mean()) if len(ceiling) else math.nan)
        for (name, each), ceiling in zip(values.items(), ceilings, strict=True)
    }
    items = torch.from_numpy(labels.triplets)
    intervals = {name: half_width_of_share(torch.from_numpy(each), items) for name, each in values.items()}
    decided = torch.from_numpy(values["triplet_accuracy"]), torch.from_numpy(np.sqrt(distances))
    found = Judged(labels, torch.arange(labels.count), *decided, embeddings.cpu(), items)
    return _evaluation("triplets", labels.count, 0, scores, intervals, skipped), found


def _rankings(embeddings: Tensor, labels: RankingLabels, skipped: int) -> tuple[Evaluation, Judged]:
    owner, queries = labels.judgment_of, labels.queries
    distances = squared_distances(embeddings, np.stack((queries[owner], labels.members), axis=1))
    model, random = np.zeros(labels.count), np.zeros(labels.count)
    for judgment, (start, end) in enumerate(zip(labels.offsets[:-1] + 1, labels.offsets[1:], strict=True)):
        model[judgment], random[judgment] = ndcg(distances[start:end], labels.gains[start:end])
    scores = {"judged_ndcg": score_of("judged_ndcg", float(model.mean()), float(random.mean()), 1.0)}
    intervals = {"judged_ndcg": half_width(torch.from_numpy(model))}
    decided = torch.from_numpy(model), torch.from_numpy(np.sqrt(distances))
    found = Judged(labels, torch.arange(labels.count), *decided, embeddings.cpu(), None)
    judged = len(labels.members) - labels.count
    return _evaluation("rankings", labels.count, judged, scores, intervals, skipped), found


def _evaluation(
    kind: Any, queries: int, gallery: int, scores: dict[str, Score], intervals: dict[str, float], skipped: int
) -> Evaluation:
    return Evaluation("", queries, gallery, {}, math.nan, skipped, scores, kind=kind, intervals=intervals)


def squared_distances(embeddings: Tensor, pairs: _Integers) -> _Floats:
    """Compute squared Euclidean distances of pairs of rows `[P, 2]`, by subtraction in float64 `[P]`."""
    found = np.zeros(len(pairs))
    step = max(1, _ENTRIES // max(1, embeddings.shape[1]))
    for start in range(0, len(pairs), step):
        rows = torch.from_numpy(pairs[start : start + step]).to(embeddings.device)
        difference = embeddings[rows[:, 0]].double() - embeddings[rows[:, 1]].double()
        found[start : start + step] = difference.square().sum(1).cpu().numpy()
    return found


def ndcg(distances: _Floats, gains: _Floats) -> tuple[float, float]:
    """Compute the nDCG of the items of a query in order of their distances `[I]`, and the nDCG of a random order.

    Ties have the mean over their orders.
    """
    discount = discounts(len(gains)).numpy()
    ideal = float((np.sort(gains)[::-1] * discount).sum())
    _, place, sizes = np.unique(distances, return_inverse=True, return_counts=True)
    ends = sizes.cumsum()
    cumulated = np.concatenate(([0.0], discount.cumsum()))
    of_group = (cumulated[ends] - cumulated[ends - sizes]) / sizes  # the mean discount of tied items
    return float((gains * of_group[place.reshape(-1)]).sum()) / ideal, float(gains.mean() * discount.sum()) / ideal


def _smallest(values: _Floats) -> _Floats:
    """Return 1 at the smallest value of each row `[J, answers]`, divided among equal values, and 0 elsewhere."""
    is_smallest: _Floats = (values == values.min(1, keepdims=True)).astype(np.float64)
    is_smallest /= is_smallest.sum(1, keepdims=True)
    return is_smallest


def _judge(counts: _Floats) -> tuple[_Floats, _Floats]:
    """Compute accuracy and agreement of one judge against the other judges, both `[R]`.

    Each triplet has two or more judges, whose votes `counts` are whole numbers.
    """
    judges = counts.sum(1, keepdims=True)
    accuracy = np.zeros(len(counts))
    for answer in range(counts.shape[1]):
        others = counts.copy()
        others[:, answer] -= 1
        accuracy += counts[:, answer] * _smallest(-others)[:, answer]
    agreement = (counts * (counts - 1)).sum(1) / (judges * (judges - 1))[:, 0]
    return accuracy / judges[:, 0], agreement


#: Draws of noise for the ceiling.
_DRAWS = 20


def spearman_values(x: _Floats, y: _Floats) -> _Floats:
    """Compute values of pairs `[P]` whose mean is Spearman's correlation of x and y `[P]`.

    They are NaN if x or y is constant.
    """
    from scipy.stats import rankdata  # here: it takes a while to import

    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return np.full(len(x), math.nan)
    z, w = ((ranks - ranks.mean()) / ranks.std() for ranks in map(rankdata, (x, y)))
    product = z * w
    return product.mean() + product - product.mean() / 2 * (z**2 + w**2)


def ceiling(pairs: JudgedPairs) -> float:
    """Compute Spearman's correlation of true distances with the judged means. NaN without a repeated judgment."""
    from scipy.stats import spearmanr  # here: it takes a while to import

    means, counts, spreads = (tensor.cpu().double().numpy() for tensor in pairs[1:])
    several = counts > 1
    if not several.any() or len(means) < 3:
        return math.nan
    noise = float(((counts - 1) * spreads**2)[several].sum() / (counts - 1)[several].sum())  # variance of one judge
    total = float(means.var(ddof=1))
    true = total - noise * float((1 / counts).mean())
    if true <= 0:
        return 0.0
    distances = means.mean() + math.sqrt(true / total) * (means - means.mean())
    random, found = np.random.default_rng(0), []
    for _ in range(_DRAWS):
        judged = distances + random.normal(0, np.sqrt(noise / counts))
        found.append(float(spearmanr(distances, judged).statistic))
    return float(np.mean(found))
