"""Judged pairs as labels: which pairs are known, repeated judgments, subsets, what asks for all label distances."""

import statistics

import pytest
import torch
from hypothesis import given, settings, strategies as st
from support.label_spaces import judged, tags, vectors, with_gaps
from support.refusals import refused, refuses

from contml.contracts import Part
from contml.data.split import refuse_equal
from contml.labels import (
    NearestLabels,
    NumberLabels,
    PairLabels,
    ThresholdLabels,
    TripletLabels,
    WeightedLabels,
    nearest,
)
from contml.losses.graded_pairs import median_distance
from contml.sampling import DenseSampler, JudgedSampler, UniformSampler

ITEMS = 9
JUDGED = st.tuples(st.integers(0, ITEMS - 1), st.integers(0, ITEMS - 1), st.integers(0, 640))
JUDGMENTS = st.lists(JUDGED.filter(lambda j: j[0] != j[1]), min_size=1, max_size=30)


def of(judgments):
    """The labels of (item, item, distance times 64)."""
    return PairLabels([j[:2] for j in judgments], [j[2] / 64 for j in judgments], ITEMS)


def by_pair(judgments):
    found = {}
    for a, b, distance in judgments:
        found.setdefault((min(a, b), max(a, b)), []).append(distance / 64)
    return found


@settings(max_examples=50, deadline=None)
@given(judgments=JUDGMENTS, rows=st.lists(st.integers(0, ITEMS - 1), min_size=1, max_size=12), data=st.data())
def test_blocks_hold_the_means_of_what_was_judged(judgments, rows, data):
    labels, expected = of(judgments), by_pair(judgments)
    cols = data.draw(st.lists(st.integers(0, ITEMS - 1), min_size=1, max_size=12))
    distances, known = labels.pairwise(rows, cols), labels.known(rows, cols)
    for i, a in enumerate(rows):
        for j, b in enumerate(cols):
            values = [0.0] if a == b else expected.get((min(a, b), max(a, b)))
            assert bool(known[i, j]) == (values is not None)
            assert distances[i, j].item() == pytest.approx(statistics.fmean(values or [0.0]), rel=1e-6)
    part = labels[rows]
    assert torch.equal(part.known(), labels.known(rows, rows))
    assert torch.equal(part.known([0], None), labels.known(rows[:1], rows))
    assert torch.equal(labels.known(part, labels[cols]), known)


@settings(max_examples=50, deadline=None)
@given(judgments=JUDGMENTS)
def test_each_judged_pair_once_with_its_mean_count_and_spread(judgments):
    expected, pairs = by_pair(judgments), of(judgments).judged_pairs
    assert pairs.rows.tolist() == sorted(map(list, expected))
    for row, mean, count, spread in zip(*pairs, strict=True):
        values = expected[tuple(row.tolist())]
        assert mean.item() == pytest.approx(statistics.fmean(values))
        assert count.item() == len(values)
        assert spread.item() == pytest.approx(statistics.stdev(values)) if len(values) > 1 else spread.isnan()


def test_a_split_keeps_the_pairs_within_it_and_their_judgments():
    labels = PairLabels([[0, 1], [4, 1], [1, 4], [2, 4], [0, 3]], [1.0, 2.0, 3.0, 4.0, 5.0], 5, "points")
    part = labels[[4, 1, 2]].as_root()
    assert (part.judged_pairs.rows.tolist(), part.judged_pairs.distances.tolist()) == ([[0, 1], [0, 2]], [2.5, 4.0])
    arguments = part.arguments()
    assert (arguments["pairs"].tolist(), arguments["distances"].tolist()) == ([[0, 1], [0, 1], [0, 2]], [2.0, 3.0, 4.0])
    assert (arguments["items"], arguments["unit"]) == (3, "points")
    assert part.parts(0, 1) == [Part("judged distance", "", "", "2.50 points, 2 judgments")]
    assert part.parts(2, 1) == [Part("judged distance", "", "", "not judged")]
    assert part.digests() == [labels.digests()[row] for row in (4, 1, 2)]


def test_the_digest_of_an_item_is_what_was_judged_about_it():
    labels = PairLabels([[0, 1], [2, 1], [0, 3]], [1.0, 2.0, 5.0], 5)
    changed = PairLabels([[0, 1], [2, 1], [0, 3]], [1.0, 2.5, 5.0], 5)
    same = [a == b for a, b in zip(labels.digests(), changed.digests(), strict=True)]
    assert same == [True, False, False, True, True]
    assert labels.fingerprint() != changed.fingerprint()
    assert labels.fingerprint() == PairLabels([[1, 0], [1, 2], [0, 3]], [1.0, 2.0, 5.0], 5).fingerprint()


def test_similarities():
    labels = PairLabels.from_similarities([[0, 1], [1, 2]], [10, 4], 3, "points", largest=10)
    assert labels.judged_pairs.distances.tolist() == [0, 6]
    assert PairLabels.from_similarities([[0, 1], [1, 2]], [-1.0, -3.0], 3).judged_pairs.distances.tolist() == [0, 2]


# ---------------------------------------------------------------------------------------------------------------------
# neighbours


def test_neighbours_are_the_nearest_of_those_that_were_judged(tmp_path):
    labels = judged(0.2)
    for cache in (None, tmp_path, tmp_path):
        found = nearest(labels, 6, cache=cache)
        for row in range(len(labels)):
            known = [j for j in range(len(labels)) if j != row and labels.known([row], [j])]
            order = sorted(known, key=lambda j: (labels.pairwise([row], [j]).item(), j))[:6]
            assert found.rows[row].tolist() == order + [-1] * (6 - len(order))
            assert found.distances[row, : len(order)].tolist() == [labels.pairwise([row], [j]).item() for j in order]
            assert found.distances[row, len(order) :].isinf().all()


def test_positives_are_the_nearest_of_those_that_were_judged():
    space = judged(0.2)
    labels = NearestLabels(space, 3)
    assert torch.equal(labels.known(), space.known())
    found = space.nearest(3).rows
    for row in range(len(space)):
        positives = {j for j in found[row].tolist() if j >= 0}
        near = labels.known()[row] & (labels.pairwise()[row] == 0)
        assert set(near.nonzero()[:, 0].tolist()) == {row, *positives}
    assert torch.equal(labels[[3, 9, 3, 1]].known(), space.known([3, 9, 3, 1], [3, 9, 3, 1]))


# ---------------------------------------------------------------------------------------------------------------------
# what needs label distances of all items


def test_two_items_without_a_shared_label_are_not_known():
    labels = with_gaps()
    present = labels.present
    expected = (present[:, None] & present[None]).any(2)
    assert torch.equal(labels.known(), expected)
    assert not labels.pairwise()[~expected].any()
    assert (labels.filled()[~expected] == 2.5).all()
    assert torch.equal(labels.filled()[expected], labels.pairwise()[expected])
    assert labels[[2, 6]].known() is None  # both have both
    one = WeightedLabels({vectors(): 0.5, tags(): 2.0}, present=present | torch.tensor([True, False]))
    assert one.known() is None


def test_a_sum_with_judged_pairs_has_the_other_labels_where_none_was_judged():
    space = judged(0.3)
    labels = WeightedLabels({space: 1.0, vectors(): 3.0})
    assert labels.known() is None or labels.known().all()
    expected = torch.where(space.known(), space.pairwise() + 3 * vectors().pairwise(), 4 * vectors().pairwise())
    torch.testing.assert_close(labels.pairwise(), expected)


def test_the_median_is_that_of_the_judged_pairs():
    labels = PairLabels([[0, 1], [2, 3], [900, 7]], [2.0, 3.0, 7.0], 1000)
    assert (median_distance(labels), median_distance(labels[[900, 7]])) == (3, 7)
    assert median_distance(ThresholdLabels(labels, 2.5)) == 1


def test_equal_labels_are_those_of_judged_pairs():
    refuse_equal(PairLabels([[3, 4], [1, 2]], [0.0, 0.5], 5))
    with refuses("labels", got="all 2 judged pairs", hint="judgments that differ"):
        refuse_equal(PairLabels([[3, 4], [1, 2]], [0.0, 0.0], 5))
    with refuses("labels", got="no judged pair"):
        refuse_equal(PairLabels([[3, 4], [1, 2]], [0.0, 0.5], 5)[[0, 1, 3]])
    numbers, present = NumberLabels([0.0, 1.0, 2.0]), torch.tensor([[False], [True], [True]])
    refuse_equal(WeightedLabels({numbers: 1.0}, present=present))


# ---------------------------------------------------------------------------------------------------------------------
# samplers


def together(sampler, labels, epochs):
    """How often each judged pair is in a batch."""
    counts = dict.fromkeys(map(tuple, labels.judged_pairs.rows.tolist()), 0)
    for epoch in range(epochs):
        for step in range(len(sampler)):
            rows = set(sampler.batch(epoch, step))
            for a, b in counts:
                counts[a, b] += a in rows and b in rows
    return list(counts.values())


def sparse(items=400, pairs=900, popular=30):
    """Random pairs, and an item that was judged with many others."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(items, (pairs, 2), generator=generator)
    rows = torch.cat((rows[rows[:, 0] != rows[:, 1]], torch.tensor([[7, 100 + n] for n in range(popular)])))
    return PairLabels(rows, torch.rand(len(rows), generator=generator), items)


def test_each_judged_pair_is_in_a_batch_about_equally_often():
    labels = sparse()
    sampler, uniform = JudgedSampler(32, labels=labels), UniformSampler(32, labels=labels)
    counts = torch.tensor(together(sampler, labels, 10), dtype=torch.float64)
    assert counts.min() >= 10  # at least once per epoch
    assert 15 <= counts.mean() <= 30
    assert counts.std() < 0.3 * counts.mean()
    by_chance = torch.tensor(together(uniform, labels, 10), dtype=torch.float64) / 10 / len(uniform)
    assert counts.mean() / 10 / len(sampler) > 5 * by_chance.mean()


def test_batches_are_full_and_distinct_and_hold_an_anchor_with_two_others():
    labels = sparse(popular=80)
    for size in (2, 3, 16, 400):
        sampler = JudgedSampler(size, labels=labels)
        for step in range(len(sampler)):
            rows = sampler.batch(1, step)
            assert len(rows) == len(set(rows)) == size
            assert labels[rows].known().sum() > size  # some pair
    assert len(JudgedSampler(16, 5, labels=labels)) == 5


def test_a_whole_group_is_never_divided():
    triplets = [[n, (n + 1) % 12, (n + 5) % 12] for n in range(10)]
    labels = TripletLabels(triplets, [0] * 10, 12)
    sampler = JudgedSampler(7, labels=labels)
    for epoch in range(4):
        batches = [set(sampler.batch(epoch, step)) for step in range(len(sampler))]
        missing = [triplet for triplet in triplets if not any(set(triplet) <= batch for batch in batches)]
        assert len(missing) <= 2  # the last batch of an epoch is the last of its triplets that fits
    refused(lambda: JudgedSampler(2, labels=labels), "batch_size", got="2", allowed="at least 3")


def test_the_judged_sampler_needs_judgments():
    refused(lambda: JudgedSampler(4, labels=vectors()), "JudgedSampler", got="VectorLabels", allowed="judged pairs")
    with refuses("JudgedSampler", got="no judgment"):
        JudgedSampler(2, labels=PairLabels([[0, 1]], [1.0], 6)[[2, 3, 4]])


@pytest.mark.parametrize("share", [0.05, 0.1])
def test_the_dense_sampler_adds_the_nearest_that_were_judged(share):
    labels = judged(share)
    sampler, found = DenseSampler(12, 2, 5, labels=labels), labels.nearest(5).rows
    for step in range(len(sampler)):
        rows = sampler.batch(0, step)
        assert len(set(rows)) == 12
        assert min(rows) >= 0
        assert {row for anchor in rows[:2] for row in found[anchor].tolist() if row >= 0} <= set(rows)
