"""Statistics of a benchmark against slow loops, hand examples and scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from support.refusals import refuses

from contml.app.trials.statistics import critical_difference, estimate, friedman, holm, mean_ranks
from contml.evaluation import half_width
from contml.evaluation.intervals import half_width_of_sum


def test_an_estimate_has_the_variances_of_seeds_and_queries():
    """Formulas by hand: variances of both means, and Satterthwaite's degrees of freedom."""
    generator = np.random.default_rng(1)
    values = generator.normal(0.3, 1, (4, 50))
    of_seeds, of_queries = values.mean(1).var(ddof=1) / 4, values.mean(0).var(ddof=1) / 50
    variance = of_seeds + of_queries
    degrees = variance**2 / (of_seeds**2 / 3 + of_queries**2 / 49)
    found, half = estimate([values], [range(50)]), stats.t.ppf(0.975, degrees) * math.sqrt(variance)
    assert (found.mean, found.low, found.high) == pytest.approx(
        (values.mean(), values.mean() - half, values.mean() + half)
    )
    assert found.p == pytest.approx(2 * stats.t.sf(abs(values.mean()) / math.sqrt(variance), degrees))


def test_the_mean_over_sets_has_the_sum_of_their_variances():
    generator = np.random.default_rng(2)
    values = [generator.normal(size=(3, 20)), generator.normal(size=(3, 700))]
    parts = [
        (variance / 4, degrees)
        for each in values
        for variance, degrees in (
            (each.mean(0).var(ddof=1) / each.shape[1], each.shape[1] - 1),
            (each.mean(1).var(ddof=1) / 3, 2),
        )
    ]
    found = estimate(values, [range(20), range(700)])
    assert found.mean == pytest.approx((values[0].mean() + values[1].mean()) / 2)
    assert found.high - found.mean == pytest.approx(half_width_of_sum(parts))


def test_dependent_queries_count_once():
    """Four photographs of each house say no more than one; one seed says nothing about others."""
    houses = np.random.default_rng(3).normal(size=30)
    photographs = np.repeat(houses, 4)[None]
    by_house = estimate([photographs], [np.repeat(np.arange(30), 4).tolist()])
    assert by_house.high - by_house.mean == pytest.approx(half_width(houses))
    assert by_house.p == pytest.approx(stats.ttest_1samp(houses, 0).pvalue)
    by_photograph = estimate([photographs], [range(120)])
    assert by_photograph.high - by_photograph.mean < 0.55 * (by_house.high - by_house.mean)


def test_what_has_no_interval():
    nothing = estimate([np.zeros((3, 5))], [range(5)])
    assert (nothing.low, nothing.high, nothing.p) == (0, 0, 1)
    always = estimate([np.full((3, 5), 0.5)], [range(5)])
    assert (always.low, always.high, always.p) == (0.5, 0.5, 0)
    one_group = estimate([np.random.default_rng(0).normal(size=(3, 5))], [[7] * 5])
    assert math.isnan(one_group.low)
    assert one_group.p == 1
    with refuses(subject="values", got="no seeds, or no queries"):
        estimate([np.zeros((3, 0))], [[]])


def test_holm_of_a_hand_example():
    """0.01 x 4, 0.013 x 3 raised to it, 0.03 x 2, 0.04 raised to it."""
    assert holm([0.04, 0.01, 0.03, 0.013]) == pytest.approx([0.06, 0.04, 0.06, 0.04])
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_ranks_and_friedman_of_demsars_table():
    """Demsar 2006, Table 6: four versions of C4.5 on fourteen sets; mean ranks, chi-squared 9.28 with 3 degrees."""
    scores = np.array(
        [
            *([0.763, 0.768, 0.771, 0.798], [0.599, 0.591, 0.590, 0.569], [0.954, 0.971, 0.968, 0.967]),
            *([0.628, 0.661, 0.654, 0.657], [0.882, 0.888, 0.886, 0.898], [0.936, 0.931, 0.916, 0.931]),
            *([0.661, 0.668, 0.609, 0.685], [0.583, 0.583, 0.563, 0.625], [0.775, 0.838, 0.866, 0.875]),
            *([1.000, 1.000, 1.000, 1.000], [0.940, 0.962, 0.965, 0.962], [0.619, 0.666, 0.614, 0.669]),
            *([0.972, 0.981, 0.9751, 0.975], [0.957, 0.978, 0.946, 0.970]),
        ]
    )
    assert mean_ranks(scores) == pytest.approx([3.143, 2.000, 2.893, 1.964], abs=5e-4)
    from scipy.stats import chi2

    # The paper has no correction for ties: 12 N / (k (k + 1)) (sum R^2 - k (k + 1)^2 / 4). Here they are corrected.
    ranks = mean_ranks(scores)
    uncorrected = 12 * 14 / 20 * ((ranks**2).sum() - 4 * 25 / 4)
    assert uncorrected == pytest.approx(9.28, abs=0.01)
    assert friedman(scores) == pytest.approx(float(chi2.sf(uncorrected, 3)), abs=0.01)
    assert friedman(scores) < 0.05


@pytest.mark.parametrize(("methods", "q"), [(2, 1.960), (4, 2.569), (10, 3.164)])
def test_critical_difference_has_the_constants_of_demsars_table_5(methods, q):
    assert critical_difference(methods, 14) == pytest.approx(
        q * math.sqrt(methods * (methods + 1) / (6 * 14)), rel=1e-3
    )


def test_ranks_are_of_the_highest_score_first_and_ties_share():
    assert mean_ranks(np.array([[0.3, 0.3, 0.1], [0.9, 0.1, 0.5]])).tolist() == [1.25, 2.25, 2.5]
    assert math.isnan(friedman(np.ones((3, 2))))


def test_paired_differences_have_narrower_intervals_than_their_parts():
    generator = np.random.default_rng(4)
    hard = generator.normal(size=(5, 60))
    first, second = hard, hard + 0.1 + 0.01 * generator.normal(size=hard.shape)
    widths = [found.high - found.low for found in (estimate([v], [range(60)]) for v in (first, second, second - first))]
    assert widths[2] < 0.1 * min(widths[:2])
