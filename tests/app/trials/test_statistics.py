"""Statistics of a benchmark against slow loops, hand examples and scipy."""

import math

import numpy as np
import pytest
from scipy import stats
from support.refusals import refuses

from contml.app.trials.statistics import estimate, holm
from contml.evaluation import half_width
from contml.evaluation.intervals import half_width_of_sum


def test_an_estimate_has_the_variances_of_seeds_and_queries():
    """Formulas by hand: variances of both means, and Satterthwaite's degrees of freedom."""
    values = np.random.default_rng(1).normal(0.3, 1, (4, 50))
    of_seeds, of_queries = values.mean(1).var(ddof=1) / 4, values.mean(0).var(ddof=1) / 50
    variance = of_seeds + of_queries
    degrees = variance**2 / (of_seeds**2 / 3 + of_queries**2 / 49)
    found, half = estimate([values], [range(50)]), stats.t.ppf(0.975, degrees) * math.sqrt(variance)
    expected = values.mean(), values.mean() - half, values.mean() + half
    assert (found.mean, found.low, found.high) == pytest.approx(expected)
    assert found.p == pytest.approx(2 * stats.t.sf(abs(values.mean()) / math.sqrt(variance), degrees))


def test_the_mean_over_sets_has_the_sum_of_their_variances():
    generator = np.random.default_rng(2)
    values = [generator.normal(size=(3, 20)), generator.normal(size=(3, 700))]
    parts = [(each.mean(0).var(ddof=1) / each.shape[1] / 4, each.shape[1] - 1) for each in values]
    parts += [(each.mean(1).var(ddof=1) / 3 / 4, 2) for each in values]
    found = estimate(values, [range(20), range(700)])
    assert found.mean == pytest.approx((values[0].mean() + values[1].mean()) / 2)
    assert found.high - found.mean == pytest.approx(half_width_of_sum(parts))


def test_sets_of_the_same_queries_are_one_sample():
    """Three sizes of an embedding on the same people: of 400 drawn benchmarks whose truth is 0, 5 % miss it."""
    generator, missed = np.random.default_rng(5), {"pooled": 0, "apart": 0}
    for _ in range(400):
        people = generator.normal(size=40)
        values = [people + 0.3 * generator.normal(size=(3, 40)) for _ in range(3)]
        for name, data in (("pooled", ["same"] * 3), ("apart", None)):
            found = estimate(values, [range(40)] * 3, data)
            missed[name] += not found.low <= 0 <= found.high
    assert missed["pooled"] / 400 == pytest.approx(0.05, abs=0.03)
    assert missed["apart"] / 400 > 0.15
    mixed = estimate([*values, values[0]], [range(40)] * 4, ["a", "b", "a", "a"])
    of_a, of_b = (values[0] + values[2] + values[0]) / 3, values[1]
    assert mixed.mean == pytest.approx(np.mean([of_a.mean()] * 3 + [of_b.mean()]))


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
    assert (holm([0.04, 0.01, 0.03, 0.013]), holm([0.9, 0.8])) == (pytest.approx([0.06, 0.04, 0.06, 0.04]), [1.0, 1.0])
