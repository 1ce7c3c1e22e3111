"""Intervals over seeds and queries, corrected comparisons, and ranks over data sets.

The score of a method on a data set is a matrix `[S, Q]`: of each seed and each query. Two things in its mean are
chance: the seeds, and the queries. A two-way bootstrap draws both with replacement:

    mean over a drawn seed s and a drawn group of queries g of  V[s, g],   many times

Queries of one group (the photographs of a house) are drawn together, since they are not independent. Two methods are
compared on the same draws. Owen: "The pigeonhole bootstrap", Annals of Applied Statistics 2007. Holm: "A simple
sequentially rejective multiple test procedure", 1979. Demsar: "Statistical comparisons of classifiers over multiple
data sets", JMLR 2006.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from contml._support.errors import InputError

Array: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"

#: Draws of a bootstrap: the smallest p-value is 2 / (DRAWS + 1).
DRAWS = 10_000
#: Draws at a time.
_BLOCK = 500


@dataclass(frozen=True)
class Draws:
    """The draws of seeds and of groups of queries of a data set, the same for all methods.

    Attributes:
        seeds: how often each seed is drawn, `[R, S]`.
        queries: how often each query is drawn, `[R, Q]`.
    """

    seeds: Array
    queries: Array

    def means(self, values: Array) -> Array:
        """The mean of `values` `[S, Q]` over each draw, `[R]`."""
        blocks = (slice(start, start + _BLOCK) for start in range(0, len(self.seeds), _BLOCK))
        sums = [((self.seeds[part] @ values) * self.queries[part]).sum(1) for part in blocks]
        means: Array = np.concatenate(sums) / (self.seeds.sum(1) * self.queries.sum(1))
        return means


def draw(seeds: int, groups: Sequence[int], seed: int, draws: int = DRAWS) -> Draws:
    """Draws with replacement.

    Args:
        seeds: the number of seeds.
        groups: the group of each query `[Q]`.
        seed: of the draws.
        draws: their number R.

    Raises:
        InputError: there is no seed, or no query.
    """
    if seeds < 1 or not len(groups):
        raise InputError("bootstrap", f"{seeds} seeds and {len(groups)} queries", "must be at least one of each")
    generator = np.random.default_rng(seed)
    _, group = np.unique(np.asarray(groups), return_inverse=True)
    count = int(group.max()) + 1
    drawn_seeds = generator.multinomial(seeds, np.full(seeds, 1 / seeds), draws)
    drawn_groups = generator.multinomial(count, np.full(count, 1 / count), draws)
    return Draws(drawn_seeds.astype(float), drawn_groups[:, group].astype(float))


@dataclass(frozen=True)
class Estimate:
    """A mean, its 95 % interval, and the p-value of the hypothesis that it is 0."""

    mean: float
    low: float
    high: float
    p: float


def estimate(mean: float, draws: Array) -> Estimate:
    """The percentile interval of drawn means `[R]`, and the two-sided p-value of 0."""
    low, high = (float(bound) for bound in np.quantile(draws, (0.025, 0.975)))
    tail = min(int((draws <= 0).sum()), int((draws >= 0).sum()))
    return Estimate(mean, low, high, min(1.0, 2 * (tail + 1) / (len(draws) + 1)))


def holm(p: Sequence[float]) -> list[float]:
    """Holm's corrected p-values, in the order of `p`: each may be compared with 0.05 alone."""
    order = sorted(range(len(p)), key=lambda n: p[n])
    corrected, largest = [0.0] * len(p), 0.0
    for rank, n in enumerate(order):
        largest = max(largest, min(1.0, (len(p) - rank) * p[n]))
        corrected[n] = largest
    return corrected


def mean_ranks(scores: Array) -> Array:
    """The mean rank of each method `[M]` over data sets; rank 1 is the highest score, ties share their mean rank.

    Args:
        scores: `[N, M]`: one row per data set.
    """
    from scipy.stats import rankdata

    ranks: Array = rankdata(-scores, axis=1).mean(0)
    return ranks


def friedman(scores: Array) -> float:
    """The p-value of Friedman's test that all methods are equal; NaN with fewer than 3 methods or 2 data sets.

    Args:
        scores: `[N, M]`: one row per data set.
    """
    from scipy.stats import friedmanchisquare

    if scores.shape[0] < 2 or scores.shape[1] < 3:
        return math.nan
    return float(friedmanchisquare(*scores.T).pvalue)


def critical_difference(methods: int, sets: int) -> float:
    """Nemenyi's critical difference of mean ranks at 5 %: ranks do not distinguish methods closer than this.

    q sqrt(M (M + 1) / (6 N)), with q the 95 % quantile of the studentized range of M, divided by sqrt(2).
    """
    from scipy.stats import studentized_range

    q = float(studentized_range.ppf(0.95, methods, math.inf)) / math.sqrt(2)
    return q * math.sqrt(methods * (methods + 1) / (6 * sets))
