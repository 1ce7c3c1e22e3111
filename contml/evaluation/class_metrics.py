"""Metrics of rankings by class: Recall@K, and MAP@R.

    Recall@K = share of the queries with an item of their own class among the K nearest
    MAP@R    = mean over queries of 1/R sum_{i = 1..R} P(i),   P(i) = precision at i if the i-th is relevant, else 0

Song, Xiang, Jegelka, Savarese: "Deep Metric Learning via Lifted Structured Feature Embedding", CVPR 2016; Musgrave,
Belongie, Lim: "A Metric Learning Reality Check", ECCV 2020. R is the number of items of the query's class in the
gallery, itself left out. A query that is alone in its class finds nothing: it counts, as a miss.
"""

from __future__ import annotations

import torch
from torch import Tensor

from contml.evaluation.result import Curve, Score


class ClassFigures:
    """Recall@K and MAP@R of a ranking that comes in parts, since MAP@R reads as many places as a class has items.

    Args:
        query_class: class ids of the queries `[Q]`.
        gallery_class: class ids of the gallery `[G]`.
        own: where each query stands in the gallery, or -1, `[Q]`.
    """

    def __init__(self, query_class: Tensor, gallery_class: Tensor, own: Tensor) -> None:
        self.query_class, self.gallery_class = query_class, gallery_class
        self.relevant = relevant_items(query_class, gallery_class, own)
        self.others = len(gallery_class) - (own >= 0).long() - self.relevant
        #: How many places of each ranking MAP@R reads.
        self.depth = int(self.relevant.max())
        self._precision = torch.zeros(len(query_class), dtype=torch.float64)

    def add(self, part: slice, positions: Tensor) -> None:
        """The ranking of some queries: positions in the gallery `[q, depth or more]`, best first."""
        self._precision[part] = average_precision_at_r(self._same(part, positions), self.relevant[part])

    def recall(self, positions: Tensor) -> Curve:
        """Recall@K of the ranking of all queries `[Q, K]`."""
        k = positions.shape[1]
        model = recall_at(self._same(slice(None), positions))
        random = recall_by_chance(self.relevant, self.others, k)
        return Curve("Recall", "higher", model.tolist(), random.tolist(), [self._possible] * k)

    def map_at_r(self) -> Score:
        """MAP@R of what was added."""
        random = average_precision_at_r_by_chance(self.relevant, self.others)
        return Score("MAP@R", "higher", float(self._precision.mean()), float(random.mean()), self._possible)

    @property
    def _possible(self) -> float:
        return float((self.relevant > 0).double().mean())

    def _same(self, part: slice, positions: Tensor) -> Tensor:
        return self.gallery_class[positions] == self.query_class[part, None]


def relevant_items(query_class: Tensor, gallery_class: Tensor, own: Tensor) -> Tensor:
    """How many of the gallery `[G]` are of each query's class, itself left out, `[Q]`; own as in `ClassFigures`."""
    largest = max((int(ids.max()) for ids in (query_class, gallery_class) if len(ids)), default=0)
    of_class = torch.bincount(gallery_class, minlength=largest + 1)
    return of_class[query_class] - (own >= 0).long()


def recall_at(same: Tensor) -> Tensor:
    """Recall@K `[K]` for K = 1, 2, ... of a ranking `[Q, K]` bool, best first: which items are of the query's class."""
    return same.cummax(1).values.double().mean(0)


def recall_by_chance(relevant: Tensor, others: Tensor, k: int) -> Tensor:
    """Expected Recall@K `[K]` of a random ranking, K = 1 ... k.

    relevant `[Q]`: how many of the gallery are of the query's class; others `[Q]`: how many are not; itself in neither.
    """
    drawn = torch.arange(k)  # before each draw
    left = (relevant + others)[:, None] - drawn
    misses = ((others[:, None] - drawn).double() / left.clamp(min=1)).clamp(min=0)  # [Q,K]
    return (1 - misses.cumprod(1)).mean(0)


def average_precision_at_r(same: Tensor, relevant: Tensor) -> Tensor:
    """`1/R sum P(i)` of each query `[Q]`, 0 where R is 0.

    same `[Q, K]` bool, best first, K at least the largest R: which items are of the query's class; relevant `[Q]`: R.
    """
    rank = torch.arange(1, same.shape[1] + 1)
    hits = same & (rank <= relevant[:, None])
    precision = hits.double().cumsum(1) / rank
    return (precision * hits).sum(1) / relevant.clamp(min=1)


def average_precision_at_r_by_chance(relevant: Tensor, others: Tensor) -> Tensor:
    """Its expectation `[Q]` over random rankings.

    With n items to rank, the i-th is relevant with probability R/n, and each before it then with (R - 1)/(n - 1).
    """
    r, n = relevant.double(), (relevant + others).double().clamp(min=1)
    inverse = 1 / torch.arange(1, int(relevant.max()) + 1, dtype=torch.float64)
    harmonic = torch.nn.functional.pad(inverse.cumsum(0), (1, 0))[relevant]  # [Q] sum of 1/i to R
    again = (r - 1) / (n - 1).clamp(min=1)
    return torch.where(relevant > 0, (harmonic * (1 - again) + r * again) / n, 0.0)
