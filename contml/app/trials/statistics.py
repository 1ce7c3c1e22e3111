"""Intervals over seeds and queries, corrected comparisons, and ranks over data sets.

The score of a method on a data set is a matrix `[S, Q]`: of each seed and each query. Two things in its mean are
chance: the seeds, and the queries. Queries of one group (the photographs of a house) or class are not independent.

    variance of the mean = variance of the mean of a seed / S  +  variance of the mean over groups of queries

Each has its own degrees of freedom; Satterthwaite's formula gives the degrees of freedom of the sum. Differences by
seed and query together are counted in both, so that the interval is a little wide.
The mean over data sets has the sum of their variances. Two methods are
compared by the differences on the same seeds and queries. `benchmarks/results/intervals.md` has the measured coverage.
Holm: "A simple sequentially rejective multiple test procedure", 1979. Demsar: "Statistical comparisons of classifiers
over multiple data sets", JMLR 2006.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch

from contml._support.errors import InputError
from contml.evaluation.intervals import degrees_of_freedom, half_width_of_sum, p_value, variance_of_mean

Array: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"


@dataclass(frozen=True)
class Estimate:
    """A mean, its 95 % interval, and the p-value of the hypothesis that it is 0."""

    mean: float
    low: float
    high: float
    p: float


def estimate(values: Sequence[Array], groups: Sequence[Sequence[int] | Sequence[Sequence[int]]]) -> Estimate:
    """The mean over data sets, with the interval over seeds and groups of queries. One seed says nothing about others.

    Args:
        values: `[S, Q]` of each data set.
        groups: the group of each query `[Q]`, or its items `[Q, m]` (`contml.evaluation.metrics`), of each data set.
            With a single group the interval is NaN, and p is 1.

    Raises:
        InputError: a data set has no seed, or no query.
    """
    if not values or not all(each.size for each in values):
        raise InputError("values", "no seeds, or no queries", "must be at least one of each")
    mean, variances = float(np.mean([each.mean() for each in values])), list[tuple[float, float]]()
    for each, of_queries in zip(values, groups, strict=True):
        items = torch.tensor(of_queries).view(each.shape[1], -1)
        by_query = torch.from_numpy(each.mean(0))
        parts = [(variance_of_mean(by_query, items), degrees_of_freedom(len(by_query), items))]
        if len(each) > 1:
            parts.append((float(each.mean(1).var(ddof=1)) / len(each), len(each) - 1))
        variances += [(variance / len(values) ** 2, degrees) for variance, degrees in parts]
    half = half_width_of_sum(variances)
    return Estimate(mean, mean - half, mean + half, p_value(mean, variances))


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
