"""Metrics of rankings by class: Recall@K, MAP@R and R-precision.

    Recall@K    = share of the queries with an item of their own class among the K nearest
    MAP@R       = mean over queries of 1/R sum_{i = 1..R} P(i),  P(i) = precision at i if the i-th is relevant, else 0
    R-precision = mean over queries of the share of relevant items among the R nearest

Song, Xiang, Jegelka, Savarese: "Deep Metric Learning via Lifted Structured Feature Embedding", CVPR 2016; Musgrave,
Belongie, Lim: "A Metric Learning Reality Check", ECCV 2020. R is the number of items of the query's class in the
gallery, itself left out. A query that is alone in its class finds nothing: it counts, as a miss. Items at equal
distance: the expectation over their orders, as in `contml.evaluation.ties`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from contml.evaluation.ties import Ties, prefix_sums

#: Rows of a `[rows, K]` table of probabilities at a time.
_ROWS = 1 << 9


@dataclass(frozen=True)
class FirstRelevant:
    """Where the nearest item of its own class stands in the ranking of each query: all that Recall@K asks."""

    nearer: Tensor  # [Q] items that are nearer
    tied: Tensor  # [Q] items exactly as near, itself among them
    relevant: Tensor  # [Q] those of them of the query's class; 0: the gallery has none of its class

    def recall(self, k: int) -> Tensor:
        """Recall@K `[k]` for K = 1 ... k."""
        # Once the place is beyond k it does not matter by how much, and most queries have no ties.
        nearer = torch.where(self.relevant > 0, self.nearer.clamp(max=k), k)
        each = torch.stack((nearer, self.tied, self.relevant), 1)
        cases, count = torch.unique(each, dim=0, return_counts=True)
        found = torch.zeros(k, dtype=torch.float64)
        for part, weight in zip(torch.split(cases, _ROWS), torch.split(count, _ROWS), strict=True):
            found += weight.double() @ _chance_of_a_hit(part[:, 0], part[:, 1], part[:, 2], k)
        return found / len(self.nearer)


def _chance_of_a_hit(before: Tensor, tied: Tensor, relevant: Tensor, k: int) -> Tensor:
    """Chance `[n, k]` that the first K = 1 ... k places hold a relevant item: some of the tied that follow `before`."""
    place = torch.arange(k) - before[:, None]  # [n,K] among the tied, from 0
    misses = (tied - relevant)[:, None] - place
    chance = misses.clamp(min=0).double() / (tied[:, None] - place).clamp(min=1)
    return 1 - torch.where((place >= 0) & (relevant > 0)[:, None], chance, 1.0).cumprod(1)


def relevant_items(query_class: Tensor, gallery_class: Tensor, own: Tensor) -> Tensor:
    """How many of the gallery `[G]` are of each query's class, itself left out, `[Q]`.

    own `[Q]`: where each query stands in the gallery, or -1.
    """
    largest = max((int(ids.max()) for ids in (query_class, gallery_class) if len(ids)), default=0)
    of_class = torch.bincount(gallery_class, minlength=largest + 1)
    return of_class[query_class] - (own >= 0).long()


def recall_by_chance(relevant: Tensor, others: Tensor, k: int) -> Tensor:
    """Expected Recall@K `[K]` of a random ranking, K = 1 ... k: all items tie.

    relevant `[Q]`: how many of the gallery are of the query's class; others `[Q]`: how many are not; itself in neither.
    """
    return FirstRelevant(torch.zeros_like(relevant), relevant + others, relevant).recall(k)


def precision_at_r(same: Tensor, relevant: Tensor) -> Tensor:
    """Share `[Q]` of relevant items among the first R, 0 where R is 0; as `average_precision_at_r`."""
    inside = torch.arange(same.shape[1]) < relevant[:, None]
    return (same * inside).double().sum(1) / relevant.clamp(min=1)


def average_precision_at_r(same: Tensor, relevant: Tensor) -> Tensor:
    """`1/R sum P(i)` of each query `[Q]`, 0 where R is 0.

    same `[Q, K]` bool, best first, K at least the largest R: which items are of the query's class; relevant `[Q]`: R.
    """
    rank = torch.arange(1, same.shape[1] + 1)
    hits = same & (rank <= relevant[:, None])
    precision = hits.double().cumsum(1) / rank
    return (precision * hits).sum(1) / relevant.clamp(min=1)


def expected_precision_at_r(same: Tensor, relevant: Tensor, ties: Ties, beyond: Tensor) -> tuple[Tensor, Tensor]:
    """R-precision and average precision at R `[c]` of rankings with ties: expectations over the orders of equals.

    Within a group of t items, p of them relevant, each place holds a relevant item with probability p/t; given one,
    the j places of the group before it hold j (p - 1)/(t - 1) others on average.

    Args:
        same: of these rankings `[c, D]`.
        relevant: R, `[c]`.
        ties: of these rankings.
        beyond: relevant items of the last group that the rankings leave out `[c]`.
    """
    place = torch.arange(same.shape[1])
    size, found = ties.size.double(), ties.sums(same, beyond)
    chance = found / size
    again = (found - 1).clamp(min=0) / (size - 1).clamp(min=1)
    before = ties.before(same) + (place - ties.first) * again
    inside = place < relevant[:, None]
    r = relevant.clamp(min=1)
    average = chance * (before + 1) / (place + 1)
    return (chance * inside).sum(1) / r, (average * inside).sum(1) / r


def first_relevant(same: Tensor, ties: Ties, beyond: Tensor) -> FirstRelevant:
    """Where the first relevant item of each ranking `[q, D]` stands; not in the ranking: D nearer, one tied."""
    at = torch.where(same.any(1), same.int().argmax(1), same.shape[1])
    found = FirstRelevant(at, torch.ones_like(at), torch.ones_like(at))
    if len(ties.rows):
        of_group = ties.sums(same[ties.rows], beyond)
        shown = (of_group > 0).any(1).nonzero()[:, 0]
        first, rows = (of_group > 0).int().argmax(1)[shown, None], ties.rows[shown]
        found.nearer[rows] = ties.first[shown].gather(1, first)[:, 0]
        found.tied[rows] = ties.size[shown].gather(1, first)[:, 0]
        found.relevant[rows] = of_group[shown].gather(1, first)[:, 0].long()
    return found


def average_precision_at_r_by_chance(relevant: Tensor, others: Tensor) -> Tensor:
    """Its expectation `[Q]` over random rankings.

    With n items to rank, the i-th is relevant with probability R/n, and each before it then with (R - 1)/(n - 1).
    """
    r, n = relevant.double(), (relevant + others).double().clamp(min=1)
    inverse = 1 / torch.arange(1, int(relevant.max()) + 1, dtype=torch.float64)
    harmonic = prefix_sums(inverse[None])[0][relevant]  # [Q] sum of 1/i to R
    again = (r - 1) / (n - 1).clamp(min=1)
    return torch.where(relevant > 0, (harmonic * (1 - again) + r * again) / n, 0.0)


def precision_at_r_by_chance(relevant: Tensor, others: Tensor) -> Tensor:
    """Its expectation `[Q]` over random rankings: R/n."""
    return relevant.double() / (relevant + others).clamp(min=1)
