"""Judgments in place of labels: repeats are one judgment, a batch has what is whole in it, a subset keeps the rest."""

from collections import Counter, defaultdict

import numpy as np
import pytest
import torch

from contml.labels import RankingLabels, TripletLabels


def random_triplets(items, count, seed=0):
    random = np.random.default_rng(seed)
    return np.stack([random.choice(items, 3, replace=False) for _ in range(count)]), random


def loop_counts(triplets, answers, number):
    """Votes by the items of a triplet: {(anchor, {x, y}): {item: votes}}; of the odd one out, without an anchor."""
    votes = defaultdict(Counter)
    for row, answer in zip(triplets.tolist(), answers.tolist(), strict=True):
        anchored = number == 2
        key = (row[0] if anchored else None, frozenset(row[1:] if anchored else row))
        votes[key][row[answer + anchored]] += 1
    return votes


@pytest.mark.parametrize("number", [2, 3])
def test_repeats_in_any_order_are_one_triplet_with_counted_answers(number):
    triplets, random = random_triplets(7, 300)
    answers = random.integers(0, number, len(triplets))
    labels = TripletLabels(triplets, answers, 7, odd_one_out=number == 3)
    votes = loop_counts(triplets, answers, number)
    assert labels.count == len(votes) < 300
    for row, counts in zip(labels.triplets.tolist(), labels.counts.tolist(), strict=True):
        choosable = row[1:] if number == 2 else row
        found = votes[row[0] if number == 2 else None, frozenset(choosable)]
        assert [found[item] for item in choosable] == counts
    assert labels.contradictions == sum(len(each) > 1 for each in votes.values())
    assert f"{labels.contradictions:,}" in labels.facts()
    assert TripletLabels(labels.triplets, labels.counts, 7).fingerprint() == labels.fingerprint()


@pytest.mark.parametrize("number", [2, 3])
def test_a_batch_has_the_triplets_that_are_whole_in_it(number):
    triplets, random = random_triplets(30, 400, seed=1)
    labels = TripletLabels(triplets, random.integers(0, number, 400), 30, odd_one_out=number == 3)
    for size in (3, 10, 30):
        rows = random.permutation(30)[:size]
        batch = labels[torch.from_numpy(rows)].within()
        found = {
            tuple(rows[triplet]): shares for triplet, shares in zip(batch.positions.tolist(), batch.shares, strict=True)
        }
        inside = [n for n, triplet in enumerate(labels.triplets.tolist()) if set(triplet) <= set(rows.tolist())]
        assert len(batch) == len(found) == len(inside)
        for n in inside:
            expected = labels.counts[n] / labels.counts[n].sum()
            torch.testing.assert_close(found[tuple(labels.triplets[n])], torch.from_numpy(expected))


def test_a_subset_keeps_the_triplets_among_its_items():
    triplets, random = random_triplets(20, 200, seed=2)
    labels = TripletLabels(triplets, random.integers(0, 2, 200), 20).with_texts(identity=[f"i{n}" for n in range(20)])
    rows = random.permutation(20)[:9]
    part = labels[rows].as_root()
    kept = {tuple(rows[triplet]): counts for triplet, counts in zip(part.triplets, part.counts.tolist(), strict=True)}
    wanted = {
        tuple(t): c for t, c in zip(labels.triplets.tolist(), labels.counts.tolist(), strict=True) if set(t) <= {*rows}
    }
    assert (kept, len(part), part.digests()) == (wanted, 9, [labels.digests()[row] for row in rows])
    assert part[[0, 1, 2, 3, 4, 5, 6, 7, 8]].as_root().count == part.count


def test_digests_depend_on_the_judgments_of_an_item_alone():
    labels = TripletLabels([[0, 1, 2], [3, 4, 5]], [0, 1], 6)
    changed = TripletLabels([[0, 1, 2], [3, 4, 5]], [0, 0], 6)
    same = [a == b for a, b in zip(labels.digests(), changed.digests(), strict=True)]
    assert same == [True, True, True, False, False, False]
    assert labels.fingerprint() != changed.fingerprint()


def test_rankings_have_the_mean_of_repeated_values_and_label_distances_from_the_query():
    pairs, grades = [[4, 1], [4, 2], [4, 1], [0, 3], [0, 2]], [1.0, 4.0, 2.0, 0.0, 2.0]
    labels = RankingLabels(pairs, grades, 5)
    assert (labels.queries.tolist(), labels.members.tolist()) == ([0, 4], [0, 2, 3, 4, 1, 2])
    assert (labels.values.tolist(), labels.label_distances.tolist()) == ([0, 2, 0, 0, 1.5, 4], [0, 0.5, 1, 0, 0.625, 0])
    assert (labels.count, labels.judged, labels.contradictions) == (2, 4, 1)
    distances = RankingLabels(pairs, grades, 5, of="distance")
    assert distances.label_distances.tolist() == [0, 2, 0, 0, 1.5, 4]
    assert distances.gains[[1, 4]].tolist() == [1 / 3, 1 / 2.5]


def test_a_batch_has_the_lists_of_its_queries_and_a_subset_keeps_those_with_two_grades():
    random = np.random.default_rng(3)
    pairs = np.array([(q, i) for q in range(8) for i in random.choice(np.arange(8, 40), 10, replace=False)])
    grades = random.integers(0, 4, len(pairs)).astype(float)
    labels = RankingLabels(pairs, grades, 40)
    by_query = {q: {i: g for (a, i), g in zip(pairs.tolist(), grades, strict=True) if a == q} for q in range(8)}
    for size in (10, 25, 40):
        rows = random.permutation(40)[:size]
        inside = set(rows.tolist())
        expected = {}
        for query in inside & set(range(8)):
            items = {i: (3 - g) / 3 for i, g in by_query[query].items() if i in inside}
            if len(set(items.values())) > 1:
                expected[query] = items
        found = {}
        for (query, *others), distances in labels[rows].within():
            found[int(rows[query])] = dict(zip(rows[others].tolist(), distances[1:].tolist(), strict=True))
        assert found == expected
        part = labels[rows].as_root()
        assert {int(rows[q]) for q in part.queries} == set(expected)
        assert part.highest == labels.highest  # a subset has the label distances of the whole


def test_queries_without_two_grades_are_dropped_and_counted():
    labels = RankingLabels([[0, 2], [0, 1], [1, 2], [2, 0], [2, 1]], [1, 2, 3, 4, 4], 4, missing="drop")
    assert (labels.queries.tolist(), labels.dropped) == ([0], 2)
    assert "2 queries dropped" in labels.facts()
