"""Intervals of a mean: those of scipy, of definitions in matrices and loops."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats

from contml.evaluation.intervals import (
    degrees_of_freedom,
    half_width,
    half_width_of_share,
    half_width_of_sum,
    items_of_queries,
    variance_of_mean,
)


def half_of(interval):
    return (interval.high - interval.low) / 2


@pytest.mark.parametrize("count", [2, 3, 5, 200])
def test_without_groups_it_is_the_t_interval_of_scipy(count):
    values = np.random.default_rng(count).normal(size=count)
    expected = half_of(stats.ttest_1samp(values, 0).confidence_interval(0.95))
    assert half_width(values.tolist()) == pytest.approx(expected)
    assert half_width(values, torch.arange(count)[:, None]) == pytest.approx(expected)  # a group of each


def bell_mccaffrey(values, groups):
    """CR2's variance of a mean and its degrees of freedom, by the matrices of their definition."""
    count = len(values)
    residual_maker = np.eye(count) - 1 / count
    rows = []  # the estimate is the sum of squares of these, times the residuals
    for group in np.unique(groups):
        own = groups == group
        size, vectors = np.linalg.eigh(residual_maker[np.ix_(own, own)])
        rows.append(np.ones(own.sum()) @ (vectors / np.sqrt(size)) @ vectors.T @ residual_maker[own] / count)
    products = np.array(rows) @ np.array(rows).T
    return ((np.array(rows) @ values) ** 2).sum(), np.trace(products) ** 2 / (products**2).sum()


@pytest.mark.parametrize("sizes", [(1, 2, 30), (3, 4, 5, 20, 1), (2,) * 6 + (15,), (10, 10), (10,) * 8])
def test_with_groups_it_is_that_of_bell_and_mccaffrey(sizes):
    random = np.random.default_rng(0)
    groups = random.permutation(np.repeat(np.arange(len(sizes)), sizes))
    values = random.normal(size=len(sizes))[groups] + random.normal(size=len(groups)) / 10
    variance, degrees = bell_mccaffrey(values, groups)
    items = torch.from_numpy(groups[:, None])
    assert variance_of_mean(torch.from_numpy(values), items) == pytest.approx(variance)
    assert degrees_of_freedom(len(values), items) == pytest.approx(degrees)
    expected = stats.t.ppf(0.975, degrees) * math.sqrt(variance)
    assert half_width(values, items) == pytest.approx(expected)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_variance_counts_each_pair_of_values_that_share_an_item_once(size):
    random = np.random.default_rng(1)
    items = np.stack([random.choice(24, size, replace=False) for _ in range(30)])
    values = random.normal(size=24)[items].sum(1)
    residuals, sets = values - values.mean(), [set(row) for row in items.tolist()]
    independent = values.var(ddof=1) / 30
    shared = 0.0
    subsets = {subset for row in sets for n in range(1, size + 1) for subset in itertools.combinations(sorted(row), n)}
    for subset in subsets:
        own = np.array([row.issuperset(subset) for row in sets])
        shared -= (-1) ** len(subset) * residuals[own].sum() ** 2 / (1 - own.mean()) ** size
    found = variance_of_mean(torch.from_numpy(values), torch.from_numpy(items))
    assert found == pytest.approx(max(independent, shared / 30**2))
    assert variance_of_mean(torch.from_numpy(values)) == pytest.approx(independent)
    # Without the correction, it is the sum over the pairs of values that share an item.
    plain = sum(residuals[t] * residuals[u] for t in range(30) for u in range(30) if sets[t] & sets[u])
    assert found > max(independent, plain / 30**2)


def test_where_all_values_share_an_item_there_is_no_interval():
    assert math.isnan(half_width([1.0]))
    assert math.isnan(half_width([1.0, 2.0, 4.0], torch.zeros(3, 1, dtype=torch.int64)))
    assert math.isnan(half_width([1.0, 2.0, 4.0], torch.tensor([[0, 1], [0, 2], [3, 0]])))
    assert math.isfinite(half_width([1.0, 2.0, 4.0], torch.tensor([[0, 1], [0, 2], [3, 2]])))
    assert half_width([1.0, 1.0, 1.0], torch.tensor([[0], [0], [1]])) == 0


@pytest.mark.parametrize(("groups", "count"), [(None, 12), (torch.arange(4).repeat(3)[:, None], 4)], ids=["", "groups"])
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_share_of_none_or_all_has_the_exact_binomial_interval(value, groups, count):
    hits = torch.full((12,), value)
    exact = stats.binomtest(int(value * count), count).proportion_ci(0.95, "exact")
    assert half_width_of_share(hits, groups) == pytest.approx(exact.high - exact.low)
    assert math.isnan(half_width_of_share(hits, torch.zeros(12, 1, dtype=torch.long)))
    mixed = torch.tensor([1.0, 0.0, 1.0, 1.0])
    assert half_width_of_share(mixed) == half_width(mixed) > 0
    assert half_width_of_share(torch.full((5,), 0.5)) == 0


def test_the_interval_of_a_difference_is_that_of_welch():
    a, b = np.random.default_rng(0).normal(size=5), np.random.default_rng(1).normal(0, 3, size=9)
    expected = half_of(stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95))
    assert half_width_of_sum([(x.var(ddof=1) / len(x), len(x) - 1) for x in (a, b)]) == pytest.approx(expected)
    assert math.isnan(half_width_of_sum([(0.1, 3), (math.nan, 1)]))


@pytest.mark.parametrize("sizes", [(10, 10, 10), (40, 5, 5, 5, 5), (10,) * 8])
def test_intervals_of_few_groups_cover_the_truth(sizes):
    """A standard normal effect of each group: 1.96 standard errors of the group means miss 0 in 9 to 25 %."""
    random, groups = np.random.default_rng(0), np.repeat(np.arange(len(sizes)), sizes)
    missed, items = np.zeros(2), torch.from_numpy(groups[:, None])
    for _ in range(1000):
        values = torch.from_numpy(random.normal(size=len(sizes))[groups])
        mean = abs(float(values.mean()))
        missed += mean > half_width(values, items), mean > 1.96 * math.sqrt(variance_of_mean(values, items))
    assert missed[0] / 1000 < 0.07
    assert missed[1] / 1000 > 0.08


def test_items_of_queries_are_the_coarser_of_classes_and_groups():
    classes, finer, coarser = torch.tensor([7, 7, 7, 3, 3, 5]), torch.tensor([0, 0, 1, 2, 3, 4]), torch.arange(6) // 5
    assert items_of_queries(None, None) is None
    for single in ((classes, None), (None, classes), (classes, finer), (finer, classes), (classes, classes)):
        assert torch.equal(items_of_queries(*single), classes[:, None])
    assert torch.equal(items_of_queries(classes, coarser), coarser[:, None])
    both = items_of_queries(classes, torch.tensor([3, 5, 3, 3, 5, 5]))  # neither is in the other
    assert both.shape == (6, 2)
    shares = (both[:, None, :, None] == both[None, :, None, :]).any((2, 3))
    groups = torch.tensor([3, 5, 3, 3, 5, 5])
    assert torch.equal(shares, (classes[:, None] == classes) | (groups[:, None] == groups))
