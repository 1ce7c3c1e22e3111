"""Statistics of a benchmark against slow loops, hand examples and scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.refusals import refuses

from contml.benchmark.statistics import Draws, critical_difference, draw, estimate, friedman, holm, mean_ranks


def test_means_of_draws_equal_a_loop():
    generator = np.random.default_rng(1)
    values, groups = generator.normal(size=(3, 7)), [4, 4, 9, 0, 0, 0, 2]
    draws = draw(3, groups, seed=5, draws=40)
    for r, mean in enumerate(draws.means(values)):
        drawn = [
            values[s, q]
            for s in range(3)
            for q in range(7)
            for _ in range(int(draws.seeds[r, s]) * int(draws.queries[r, q]))
        ]
        assert mean == pytest.approx(np.mean(drawn))


def test_draws_take_as_many_seeds_and_groups_as_there_are_and_whole_groups():
    groups = np.array([4, 4, 9, 0, 0, 0, 2])
    draws = draw(3, groups.tolist(), seed=5, draws=300)
    assert (draws.seeds.sum(1) == 3).all()
    counts = np.stack([draws.queries[:, groups == group] for group in (4,)])[0]
    assert (counts[:, 0] == counts[:, 1]).all()
    per_group = sum(draws.queries[:, np.flatnonzero(groups == group)[0]] for group in (0, 2, 4, 9))
    assert (per_group == 4).all()
    assert len({tuple(row) for row in draws.queries}) > 20  # they differ
    assert (draw(3, groups.tolist(), seed=5, draws=300).queries == draws.queries).all()
    assert not (draw(3, groups.tolist(), seed=6, draws=300).queries == draws.queries).all()


def test_the_variance_over_draws_is_that_of_seeds_and_queries():
    """With effects a of seeds and b of queries, the mean of a draw has the variance var(a) / S + var(b) / Q."""
    generator = np.random.default_rng(2)
    a, b = generator.normal(size=5), generator.normal(size=50)
    means = draw(5, range(50), seed=0, draws=20_000).means(a[:, None] + b)
    assert means.mean() == pytest.approx(a.mean() + b.mean(), abs=0.02)
    assert means.var() == pytest.approx(a.var() / 5 + b.var() / 50, rel=0.05)


def test_dependent_queries_count_once():
    """Four photographs of each house say no more than one."""
    generator = np.random.default_rng(3)
    houses = generator.normal(size=30)
    photographs = np.repeat(houses, 4)[None]
    wide = draw(1, np.repeat(np.arange(30), 4).tolist(), seed=0).means(photographs).std()
    narrow = draw(1, range(120), seed=0).means(photographs).std()
    assert wide == pytest.approx(houses.std() / math.sqrt(30), rel=0.05)
    assert narrow == pytest.approx(wide / 2, rel=0.05)


def test_no_seeds_or_queries_are_refused():
    with refuses(subject="bootstrap", got="0 queries"):
        draw(3, [], seed=0)


def test_estimate_is_the_percentile_interval_and_twice_the_smaller_tail():
    draws = np.arange(-3, 97, dtype=float)  # 3 below 0, and one 0, of 100
    found = estimate(48.0, draws)
    assert (found.mean, found.low, found.high) == (48.0, *np.percentile(draws, [2.5, 97.5]))
    assert found.p == pytest.approx(2 * (4 + 1) / 101)
    assert estimate(0.0, np.zeros(9)).p == 1


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
    """The same seeds and queries are drawn for both methods."""
    generator = np.random.default_rng(4)
    hard = generator.normal(size=(5, 60))
    first, second = hard, hard + 0.1 + 0.01 * generator.normal(size=hard.shape)
    draws: Draws = draw(5, range(60), seed=0)
    means = [draws.means(first), draws.means(second)]
    assert (means[1] - means[0]).std() < 0.1 * min(mean.std() for mean in means)
