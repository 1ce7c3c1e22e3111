"""Judgments that contradict others: planted ones are found, by the network, by repeats and by two other triplets."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.refusals import refuses

from contml.evaluation import judgment_errors
from contml.labels import NumberLabels, PairLabels, RankingLabels, TripletLabels

ITEMS = 40


@pytest.fixture
def x():
    """The true numbers of the items, which are their embeddings too."""
    return torch.from_numpy(np.random.default_rng(0).permutation(ITEMS)).double()[:, None]


def pairs_of(random, count=300):
    first = random.integers(ITEMS, size=count)
    return np.sort(np.stack((first, (first + random.integers(1, ITEMS, count)) % ITEMS), axis=1), axis=1)


def found_items(found, count):
    return {tuple(found.items[n].tolist()) for n in found.order[:count].tolist()}


def test_wrong_scores_of_pairs_are_found_with_their_prediction(x):
    rows = np.unique(pairs_of(np.random.default_rng(1)), axis=0)
    true = (x[rows[:, 0]] - x[rows[:, 1]]).abs()[:, 0].numpy()
    judged = true.copy()
    wrong = [3, 50, 111]
    judged[wrong] = (true[wrong] + 20) % 40
    found = judgment_errors(x, PairLabels(rows, judged, ITEMS))
    assert found_items(found, 3) == {tuple(rows[n]) for n in wrong}
    for n in found.order[:3].tolist():
        place = int(np.flatnonzero((rows == found.items[n].numpy()).all(1))[0])
        assert found.judged[n] == judged[place]
        assert found.predicted[n] == pytest.approx(true[place], abs=2)
    assert (found.judgments == 1).all()


def test_a_judgment_that_differs_from_its_repeats_is_found_without_an_embedding():
    """Of three judges of each pair, one is wrong: the network knows nothing, and all of its distances are equal."""
    random = np.random.default_rng(2)
    rows = np.unique(pairs_of(random), axis=0)
    judged = np.repeat(random.uniform(2, 8, len(rows)), 3) + random.normal(0, 0.2, 3 * len(rows))
    judged[[30, 301]] += 4
    found = judgment_errors(torch.zeros(ITEMS, 2), PairLabels(np.repeat(rows, 3, axis=0), judged, ITEMS))
    assert found.judged[found.order[:2]].tolist() in (judged[[30, 301]].tolist(), judged[[301, 30]].tolist())
    assert found.judgments.tolist() == [3] * len(judged)
    assert found.others_differ.tolist() == [2] * len(judged)


@pytest.mark.parametrize("answers", [2, 3])
def test_wrong_answers_to_triplets_are_found(x, answers):
    random = np.random.default_rng(3)
    rows = np.unique(np.sort([random.choice(ITEMS, 3, replace=False) for _ in range(200)], axis=1), axis=0)
    a, b, c = (x[rows[:, n], 0].numpy() for n in range(3))
    distances = [abs(a - b), abs(a - c)] if answers == 2 else [abs(b - c), abs(a - c), abs(a - b)]
    distances = np.stack(distances, axis=1)
    answer = distances.argmin(1)
    clear = np.flatnonzero(np.ptp(distances, axis=1) > 15)[:4]
    answer[clear] = distances[clear].argmax(1)
    found = judgment_errors(x, TripletLabels(rows, answer, ITEMS, odd_one_out=answers == 3))
    assert found_items(found, 4) == {tuple(rows[n]) for n in clear}
    assert (found.predicted[found.order[:4]] < 0.1).all()
    assert (found.others_differ == 0).all()


def test_an_answer_that_two_other_triplets_contradict_counts_them():
    """By the first two, (0, 1) is nearer than (0, 2), and that than (0, 3); the last one says the opposite."""
    labels = TripletLabels([[0, 1, 2], [0, 2, 3], [0, 3, 1]], [0, 0, 0], 4)
    found = judgment_errors(torch.zeros(4, 2), labels)
    assert found.implied_otherwise.tolist() == [1, 1, 1]  # a circle: each is contradicted by the other two
    consistent = judgment_errors(torch.zeros(4, 2), TripletLabels(labels.triplets, [0, 0, 0], 4))
    assert consistent.implied_otherwise.tolist() == [0, 0, 0]
    assert (found.scores > consistent.scores).all()
    repeated = TripletLabels([[0, 1, 2], [0, 1, 2], [0, 1, 2]], [0, 0, 1], 3, odd_one_out=True)
    votes = judgment_errors(torch.zeros(3, 2), repeated)
    assert votes.judged.tolist() == [0, 1]
    assert votes.others_differ.tolist() == [1, 2]
    assert votes.order.tolist() == [1, 0]


@pytest.mark.parametrize("of", ["grade", "distance"])
def test_wrong_grades_are_found(x, of):
    random = np.random.default_rng(4)
    pairs = np.array([(q, i) for q in range(20) for i in random.choice(range(20, ITEMS), 8, replace=False)])
    true = (x[pairs[:, 0]] - x[pairs[:, 1]]).abs()[:, 0].numpy()
    values = true if of == "distance" else 40 - true
    wrong = [int(8 * q + values[8 * q : 8 * q + 8].argmax()) for q in (2, 9)]
    values[wrong] = 0
    found = judgment_errors(x, RankingLabels(pairs, values, ITEMS, of))
    assert found_items(found, 2) == {tuple(pairs[n]) for n in wrong}
    assert (found.judged == torch.from_numpy(values)).all()


def test_each_fold_is_predicted_by_its_own_network(x):
    """A network that is wrong about a third of the items makes errors in its own fold."""
    rows = np.unique(pairs_of(np.random.default_rng(5)), axis=0)
    labels = PairLabels(rows, (x[rows[:, 0]] - x[rows[:, 1]]).abs()[:, 0], ITEMS)
    folds = torch.arange(len(rows)) % 2
    far = x.clone()
    far[x[:, 0] % 3 == 0] += 50
    whole = judgment_errors([x, 3 * x], labels, folds=folds)  # the scale of a network does not count
    assert whole.scores.nanmean() < 1
    assert (whole.judged - whole.predicted).abs().max() < 3
    mixed = judgment_errors([x, far], labels, folds=folds)
    error = (mixed.judged - mixed.predicted).abs()
    assert error[folds == 1].mean() > 1.5 * error[folds == 0].mean()


def test_judgments_of_images_that_could_not_be_read_have_no_score(x):
    labels = PairLabels([[0, 1], [1, 2], [3, 4], [5, 6], [7, 8], [2, 9]], [1.0, 2, 3, 4, 5, 6], ITEMS)
    found = judgment_errors(x, labels, missing=[1])
    unscored = found.scores.isnan()
    assert [tuple(pair) for pair in found.items[unscored].tolist()] == [(0, 1), (1, 2)]
    assert len(found.order) == 4
    lists = RankingLabels([[0, 1], [0, 2], [0, 3], [4, 5], [4, 6]], [1.0, 2, 3, 1, 2], ITEMS)
    assert judgment_errors(x, lists, missing=[4, 2]).scores.isnan().tolist() == [False, True, False, True, True]


def test_other_arguments_are_refused(x):
    labels = PairLabels([[0, 1], [1, 2]], [1.0, 2], ITEMS)
    with refuses("labels", got="NumberLabels"):
        judgment_errors(x, NumberLabels(x[:, 0]))
    with refuses("folds", got="3 for 2 judgments"):
        judgment_errors([x, x], labels, folds=[0, 1, 1])
    with refuses("folds", got="fold 2", allowed="2 networks"):
        judgment_errors([x, x], labels, folds=[0, 2])
    with refuses("embeddings", got="39 for 40 items"):
        judgment_errors(x[1:], labels)
