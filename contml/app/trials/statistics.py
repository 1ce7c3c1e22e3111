"""Intervals over seeds and queries, and corrected comparisons.

The score of a method on a data set is a matrix `[S, Q]`: one score per seed and query. Its mean varies by chance with
the seeds and with the queries. Queries of one group (the photographs of a house) or class are not independent.

    variance of the mean = variance of the mean of a seed / S  +  variance of the mean over groups of queries

Each term has its own degrees of freedom. Satterthwaite's formula gives the degrees of freedom of the sum. Chance that
depends on seed and query together is counted in both terms, so the interval is a little wide.

The variance of the mean over data sets follows from the sum of their variances. Settings with the same queries are one
data set, whose scores are their mean. Two methods are compared by the differences on the same seeds and queries.
`benchmarks/results/intervals.md` has the measured coverage.

Holm: "A simple sequentially rejective multiple test procedure", 1979.
"""

from __future__ import annotations

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


def estimate(
    values: Sequence[Array],
    groups: Sequence[Sequence[int] | Sequence[Sequence[int]]],
    data: Sequence[str] | None = None,
) -> Estimate:
    """Estimate the mean over data sets, with its interval over seeds and groups of queries.

    With one seed, the interval does not cover other seeds.

    Args:
        values: `[S, Q]` of each data set.
        groups: the group of each query `[Q]`, or its items `[Q, m]` (`contml.evaluation.metrics`), of each data set.
            With a single group the interval is NaN, and p is 1.
        data: a key of the queries of each data set. Sets with the same queries are pooled by seed and query, since
            their errors are not independent. Default: all sets have different queries.

    Raises:
        InputError: a data set has no seed, or no query.
    """
    if not values or not all(each.size for each in values):
        raise InputError("values", "no seeds, or no queries", "must be at least one of each")
    mean, variances = float(np.mean([each.mean() for each in values])), list[tuple[float, float]]()
    for same in _same_data(data or [str(n) for n in range(len(values))]):
        each, of_queries, share = np.mean([values[n] for n in same], axis=0), groups[same[0]], len(same) / len(values)
        items = torch.tensor(of_queries).view(each.shape[1], -1)
        by_query = torch.from_numpy(each.mean(0))
        parts = [(variance_of_mean(by_query, items), degrees_of_freedom(len(by_query), items))]
        if len(each) > 1:
            parts.append((float(each.mean(1).var(ddof=1)) / len(each), len(each) - 1))
        variances += [(variance * share**2, degrees) for variance, degrees in parts]
    half = half_width_of_sum(variances)
    return Estimate(mean, mean - half, mean + half, p_value(mean, variances))


def _same_data(data: Sequence[str]) -> list[list[int]]:
    """Return the positions of each different text."""
    return [[n for n, each in enumerate(data) if each == text] for text in dict.fromkeys(data)]


def holm(p: Sequence[float]) -> list[float]:
    """Return Holm's corrected p-values, in the order of `p`. Each can then be compared with 0.05."""
    order = sorted(range(len(p)), key=lambda n: p[n])
    corrected, largest = [0.0] * len(p), 0.0
    for rank, n in enumerate(order):
        largest = max(largest, min(1.0, (len(p) - rank) * p[n]))
        corrected[n] = largest
    return corrected
