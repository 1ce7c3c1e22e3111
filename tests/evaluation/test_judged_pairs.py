"""Evaluation of judged pairs: correlations and the values of pairs against SciPy, what judges allow."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import rankdata, spearmanr
from support.label_spaces import judged
from support.refusals import refuses

from contml.evaluation.evaluated import Evaluated, headline_words, scope, sentence, summary
from contml.evaluation.intervals import half_width
from contml.evaluation.judgments import ceiling, evaluate_judgments, spearman_values
from contml.labels import PairLabels


@pytest.mark.parametrize("decimals", [0, 9])
def test_the_values_are_the_influence_of_each_pair_on_the_correlation(decimals):
    x, noise = np.random.default_rng(0).normal(size=(2, 30))
    y = np.round(x + noise, decimals)
    assert spearman_values(x, y).mean() == pytest.approx(spearmanr(x, y).statistic)
    assert np.isnan(spearman_values(x, np.ones(30))).all()

    def correlation(weights):
        (a, b), (_, d) = np.cov(rankdata(x), rankdata(y), aweights=weights, ddof=0)
        return b / math.sqrt(a * d)

    rates = [(correlation(1 + step) - correlation(1 - step)) / 2e-6 for step in 1e-6 * np.eye(30)]
    np.testing.assert_allclose(spearman_values(x, y), correlation(np.ones(30)) + 30 * np.array(rates), rtol=1e-5)


def test_scores_are_those_of_embedding_distances_and_mean_judgments():
    labels = judged(0.4, repeats=20)
    x = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    evaluation, found = evaluate_judgments(x, labels)
    pairs = labels.judged_pairs
    distances = [(x[a].double() - x[b].double()).norm().item() for a, b in pairs.rows.tolist()]
    assert evaluation.kind == "pairs"
    assert evaluation.queries == len(pairs.rows) == len(found.values)
    assert evaluation.main.model == pytest.approx(spearmanr(distances, pairs.distances).statistic)
    np.testing.assert_allclose(found.distances, distances)
    assert evaluation.intervals["judged_spearman"] == half_width(found.values, pairs.rows)
    assert (evaluation.unit, evaluation.measure.unit) == ("1 points of judged distance", "points")


def test_pairs_of_unreadable_images_are_left_out():
    labels = judged(0.4)
    x = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    evaluation, _ = evaluate_judgments(x, labels, torch.tensor([3, 8]))
    kept = [pair for pair in labels.judged_pairs.rows.tolist() if not {3, 8} & set(pair)]
    assert (evaluation.queries, evaluation.skipped) == (len(kept), 2)
    with refuses("judgments", got="none whose images"):
        evaluate_judgments(x, PairLabels([[3, 4]], [1.0], 20), torch.tensor([3]))


def test_what_is_said_of_judged_pairs():
    labels = judged(0.4, repeats=0)
    evaluation, _ = evaluate_judgments(torch.randn(20, 3, generator=torch.Generator().manual_seed(0)), labels)
    assert math.isnan(evaluation.main.oracle)  # no pair was judged twice
    assert headline_words(evaluation).startswith("Embedding distances and judged distances have a rank correlation of ")
    assert " ± " in sentence(evaluation)
    assert "76 judged pairs" in scope(evaluation)
    assert [row[0] for row in summary(evaluation)[1:]] == ["Spearman, judged pairs"]
    again = Evaluated.from_dict(Evaluated(evaluation, "test", "best", 1.0, 2).to_dict()).evaluation
    assert (again.intervals, again.kind) == (evaluation.intervals, "pairs")


def test_the_ceiling_is_what_the_truth_would_have():
    random, count = np.random.default_rng(0), 3000
    truth = random.uniform(0, 10, count)
    repeats = random.integers(1, 4, count)
    rows = np.stack((np.arange(count), np.arange(count) + count), 1)
    judgments = np.repeat(truth, repeats) + random.normal(0, 2, repeats.sum())
    pairs = PairLabels(np.repeat(rows, repeats, axis=0), judgments - judgments.min(), 2 * count).judged_pairs
    assert ceiling(pairs) == pytest.approx(spearmanr(truth, pairs.distances).statistic, abs=0.02)


def test_the_ceiling_at_the_ends():
    assert math.isnan(ceiling(PairLabels([[0, 1], [2, 3], [4, 5]], [1.0, 2.0, 3.0], 6).judged_pairs))
    rows = [[0, 1], [0, 1], [2, 3], [2, 3], [4, 5], [4, 5]]
    assert ceiling(PairLabels(rows, [1.0, 1.0, 2.0, 2.0, 3.0, 3.0], 6).judged_pairs) == pytest.approx(1.0)
    assert ceiling(PairLabels(rows, [1.0, 3.0, 3.0, 1.0, 2.0, 2.1], 6).judged_pairs) == 0.0
