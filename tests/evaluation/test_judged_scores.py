"""Evaluation by judgments: scores and ceilings against loops over votes and orders."""

import itertools
import math

import numpy as np
import pytest
import torch
from support.refusals import refused

from contml.evaluation.evaluated import headline_words, sentence
from contml.evaluation.judgments import evaluate_judgments, ndcg
from contml.evaluation.results import measured
from contml.labels import NumberLabels, RankingLabels, TripletLabels

PAIRS = {2: [(0, 1), (0, 2)], 3: [(1, 2), (0, 2), (0, 1)]}


def drawn(number, seed=0, items=9, triplets=40, judges=5):
    """Embeddings on a grid, with ties of distances, and votes, with ties too."""
    random = np.random.default_rng(seed)
    rows = np.array(list(itertools.combinations(range(items), 3)))
    rows = random.permuted(rows[random.choice(len(rows), triplets, replace=False)], axis=1)
    counts = random.multinomial(judges, [1 / number] * number, triplets)
    counts[: triplets // 4] = random.multinomial(1, [1 / number] * number, triplets // 4)  # one judge
    return torch.from_numpy(random.integers(0, 3, (items, 2)).astype(float)), TripletLabels(rows, counts, items)


def chosen(values):
    """Each position of the smallest value with its probability, where ties are drawn."""
    best = [n for n, value in enumerate(values) if value == min(values)]
    return {n: 1 / len(best) for n in best}


@pytest.mark.parametrize("number", [2, 3])
@pytest.mark.parametrize("judges", [4, 5])
def test_scores_of_triplets_equal_a_loop_over_votes(number, judges):
    x, labels = drawn(number, judges=judges)
    accuracy, agreement, judge_accuracy, judge_agreement = [], [], [], []
    for triplet, counts in zip(labels.triplets.tolist(), labels.counts.astype(int).tolist(), strict=True):
        model = chosen([float((x[triplet[i]] - x[triplet[j]]).square().sum()) for i, j in PAIRS[number]])
        majority = chosen([-count for count in counts])
        accuracy.append(sum(p * majority.get(n, 0) for n, p in model.items()))
        agreement.append(sum(p * counts[n] / sum(counts) for n, p in model.items()))
        votes = [n for n, count in enumerate(counts) for _ in range(count)]
        if len(votes) < 2:
            continue
        of_others = [
            chosen([-votes[:v].count(n) - votes[v + 1 :].count(n) for n in range(number)]) for v in range(len(votes))
        ]
        judge_accuracy.append(np.mean([others.get(vote, 0) for vote, others in zip(votes, of_others, strict=True)]))
        judge_agreement.append(np.mean([a == b for a, b in itertools.permutations(votes, 2)]))
    evaluation, judged = evaluate_judgments(x, labels)
    assert len(judge_accuracy) == 30 < len(accuracy)
    for name, values, ceiling in (
        ("triplet_accuracy", accuracy, judge_accuracy),
        ("judge_agreement", agreement, judge_agreement),
    ):
        score = evaluation.scores[name]
        assert score.model == pytest.approx(np.mean(values), abs=1e-12)
        assert score.oracle == pytest.approx(np.mean(ceiling), abs=1e-12)
        assert score.random == pytest.approx(1 / number)
    assert judged.values.tolist() == pytest.approx(accuracy)
    assert any(0 < value < 1 for value in accuracy)  # ties
    assert evaluation.headline == "triplet_accuracy"
    assert evaluation.main.model == evaluation.scores["triplet_accuracy"].model
    assert measured(evaluation, "spearman") is None


def test_ndcg_is_the_mean_over_the_orders_of_tied_items():
    random = np.random.default_rng(0)
    for _ in range(20):
        count = int(random.integers(2, 7))
        distances, gains = random.integers(0, 3, count).astype(float), random.integers(0, 4, count).astype(float)
        gains[0] = 3

        def dcg(order, gains=gains):
            return sum(gains[item] / math.log2(2 + place) for place, item in enumerate(order))

        orders = list(itertools.permutations(range(count)))
        sorted_orders = [order for order in orders if (np.diff(distances[list(order)]) >= 0).all()]
        best = max(map(dcg, orders))
        model, at_random = ndcg(distances, gains)
        assert model == pytest.approx(np.mean([dcg(order) for order in sorted_orders]) / best)
        assert at_random == pytest.approx(np.mean([dcg(order) for order in orders]) / best)


def test_rankings_are_evaluated_on_their_judged_items_alone():
    x = torch.tensor([[0.0], [1.0], [2.0], [3.0], [0.1]])
    labels = RankingLabels([[0, 1], [0, 2], [0, 3], [3, 0], [3, 2]], [3, 2, 0, 2, 1], 5)
    evaluation, judged = evaluate_judgments(x, labels)
    swapped = (1 + 2 / math.log2(3)) / (2 + 1 / math.log2(3))
    assert judged.values.tolist() == pytest.approx([1.0, swapped])
    assert evaluation.main.model == pytest.approx((1 + swapped) / 2)
    assert (evaluation.queries, evaluation.gallery, evaluation.main.oracle) == (2, 5, 1)
    distances = RankingLabels([[0, 1], [0, 2]], [0.0, 3.0], 5, of="distance")
    assert evaluate_judgments(-x, distances)[0].main.model == 1
    gain = 1 / (1 + 3.0)
    turned = (gain + 1 / math.log2(3)) / (1 + gain / math.log2(3))
    assert evaluate_judgments(torch.tensor([[0.0], [2.0], [1.0], [0.0], [0.0]]), distances)[
        0
    ].main.model == pytest.approx(turned)


def test_judgments_of_unreadable_images_are_left_out():
    x, labels = drawn(2)
    evaluation, judged = evaluate_judgments(x, labels, torch.tensor([0, 4]))
    left = ~np.isin(labels.triplets, [0, 4]).any(1)
    assert (evaluation.queries, evaluation.skipped) == (left.sum(), 2)
    assert judged.labels.triplets.tolist() == labels.triplets[left].tolist()
    refused(lambda: evaluate_judgments(x, labels, torch.arange(9)), "judgments", got="none")
    refused(lambda: evaluate_judgments(x, NumberLabels(torch.randn(9))), "labels", got="NumberLabels")
    refused(lambda: evaluate_judgments(x[:8], labels), "embeddings", got="8")


def test_a_ceiling_that_is_not_known_is_left_out():
    """One answer per triplet says nothing of how well judges agree."""
    labels = TripletLabels([[0, 1, 2], [3, 0, 2]], [0, 1], items=4)
    evaluation, _ = evaluate_judgments(torch.tensor([[0.0], [0.1], [1.0], [1.2]]), labels)
    assert all(math.isnan(score.oracle) for score in evaluation.scores.values())
    assert sentence(evaluation).endswith("; random: 0.500.")
    assert headline_words(evaluation) == "The answer is that of most judges for 100 % of the triplets; random: 50 %."
    several = TripletLabels([[0, 1, 2], [0, 1, 2], [3, 0, 2]], [0, 0, 1], items=4)
    evaluation, _ = evaluate_judgments(torch.tensor([[0.0], [0.1], [1.0], [1.2]]), several)
    assert "; one judge beside the others: 100 %." in headline_words(evaluation)
