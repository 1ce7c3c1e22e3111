"""Tags, several labels, levels, places, sequences and weighted sums against loops of one pair at a time."""

import math
import random
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from contml.distances import tag_distance
from contml.labels import (
    GeoLabels,
    MultiHotLabels,
    OrdinalLabels,
    SequenceLabels,
    TagLabels,
    VectorLabels,
    WeightedLabels,
    nearest,
)


def loop(one_pair, items):
    return torch.tensor([[one_pair(a, b) for b in items] for a in items], dtype=torch.float64)


def assert_equals(space, expected):
    ours = space.pairwise()
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours.double(), expected, rtol=1e-6, atol=1e-7)
    assert torch.equal(ours, ours.T)
    assert torch.equal(ours == 0, expected == 0)


# ---------------------------------------------------------------------------------------------------------------------
# sets


def jaccard(a, b):
    return 1 - len(a & b) / len(a | b) if a | b else 0.0


@settings(max_examples=60, deadline=None)
@given(sets=st.lists(st.sets(st.integers(-3, 8)), min_size=1, max_size=9))
def test_tags_equal_the_loop(sets):
    assert_equals(TagLabels(sets), loop(jaccard, sets))


def test_tags_of_any_kind():
    space = TagLabels([["red", "dog", "dog"], {"dog", 7}, (), frozenset(["red", "dog"]), iter([])])
    assert space.pairwise([0]).tolist() == [[0, pytest.approx(2 / 3), 1, 0, 1]]
    assert space.pairwise([2]).tolist() == [[1, 1, 0, 1, 0]]
    assert TagLabels([[], []]).pairwise().tolist() == [[0, 0], [0, 0]]
    assert tag_distance(torch.empty(2, 0), torch.tensor([[4, -1]])).tolist() == [[1], [1]]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**16), share=st.sampled_from([0.1, 0.5, 0.9]), labels=st.integers(1, 20))
def test_multi_labels_equal_the_loop(seed, share, labels):
    vectors = np.random.default_rng(seed).random((7, labels)) < share
    sets = [set(np.flatnonzero(v).tolist()) for v in vectors]
    assert_equals(MultiHotLabels(vectors), loop(jaccard, sets))
    assert_equals(MultiHotLabels(vectors, "hamming"), loop(lambda a, b: len(a ^ b) / labels, sets))


# ---------------------------------------------------------------------------------------------------------------------
# scales and places


@settings(max_examples=40, deadline=None)
@given(levels=st.integers(2, 9), data=st.data())
def test_ordinal_equals_the_loop(levels, data):
    ranks = data.draw(st.lists(st.integers(0, levels - 1), min_size=1, max_size=9))
    names = [f"level {7 * i % 11}" for i in range(levels)]  # not sorted
    assert_equals(OrdinalLabels([names[r] for r in ranks], names), loop(lambda a, b: abs(a - b) / (levels - 1), ranks))


def great_circle(a, b):
    """Vincenty's formula for a sphere, well conditioned everywhere."""
    (p, x), (q, y) = ((math.radians(v) for v in place) for place in (a, b))
    turn = x - y
    across = math.hypot(
        math.cos(q) * math.sin(turn), math.cos(p) * math.sin(q) - math.sin(p) * math.cos(q) * math.cos(turn)
    )
    return 6371.0088 * math.atan2(across, math.sin(p) * math.sin(q) + math.cos(p) * math.cos(q) * math.cos(turn))


places = st.tuples(st.floats(-90, 90), st.floats(-180, 180))


@settings(max_examples=60, deadline=None)
@given(drawn=st.lists(places, min_size=2, max_size=8), nudge=st.floats(1e-7, 1e-3))
def test_places_equal_the_loop(drawn, nudge):
    drawn[-1] = (max(-90.0, drawn[0][0] - nudge), drawn[0][1])  # centimetres to a hundred metres away
    space = GeoLabels(drawn)
    expected = loop(great_circle, drawn)
    ours = space.pairwise()
    torch.testing.assert_close(ours.double(), expected, rtol=1e-6, atol=1e-8)
    assert torch.equal(ours, ours.T)
    assert (ours.diagonal() == 0).all()


headings = st.one_of(st.floats(-1e4, 1e4), st.sampled_from([0.0, 90.0, 180.0, 359.999, 360.0, -90.0, 720.0]))


def turn(a, b):
    """The smaller angle between two directions, by their vectors."""
    p, q = math.radians(a % 360), math.radians(b % 360)
    return math.degrees(abs(math.atan2(math.sin(p - q), math.cos(p - q))))


views = st.lists(st.tuples(st.floats(48, 48.02), st.floats(11, 11.02), headings), min_size=2, max_size=8)


@settings(max_examples=60, deadline=None)
@given(drawn=views, weight=st.floats(1e-3, 100), unit=st.sampled_from(["m", "km"]))
def test_places_with_headings_equal_the_loop(drawn, weight, unit):
    drawn.append(drawn[0])
    space = GeoLabels([item[:2] for item in drawn], [item[2] for item in drawn], weight, unit)
    scale = 1 if unit == "m" else 1000

    def slow(a, b):
        return (1000 * great_circle(a[:2], b[:2]) + weight * turn(a[2], b[2])) / scale

    d = space.distances(space, space)
    # The loop's arctangent of near directions is right to 1e-10 degrees.
    torch.testing.assert_close(d, loop(slow, drawn), rtol=1e-10, atol=1e-8 * (1 + weight) / scale)
    assert torch.equal(d, d.T)
    assert float(d.diagonal().max()) == float(d[0, -1]) == 0


def test_headings_their_weight_and_their_unit_are_content():
    found = [GeoLabels([[0, 0]], *given) for given in ((), ([0],), ([1],), ([1], 3), ([1], 3, "m"))]
    assert len({space.fingerprint() for space in found}) == 5
    assert found[0].digests() != found[1].digests()


# ---------------------------------------------------------------------------------------------------------------------
# sequences


def edits(a, b):
    """Levenshtein's distance over the longer length, by the table."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, row = row, [i]
        for j, y in enumerate(b, 1):
            row.append(min(last[j] + 1, row[-1] + 1, last[j - 1] + (x != y)))
    return row[-1] / max(len(a), len(b), 1)


@settings(max_examples=60, deadline=None)
@given(sequences=st.lists(st.lists(st.sampled_from(["do", "re", 3, None]), max_size=9), min_size=1, max_size=8))
def test_sequences_equal_the_loop(sequences):
    assert_equals(SequenceLabels(["", "", *sequences]), loop(edits, ["", "", *sequences]))


@pytest.mark.parametrize("length", [63, 64, 65, 200])
def test_long_sequences_and_threads(length, monkeypatch):
    monkeypatch.setattr(sys.modules["contml.distances.labels"], "_PAIRS", 4)
    draw = random.Random(0)
    sequences = ["".join(draw.choices("abcd", k=length + i)) for i in range(4)] + [""]
    assert_equals(SequenceLabels(sequences), loop(edits, sequences))


def test_all_tokens_are_different():
    # The ids of tokens include Unicode's surrogates and numbers above 16 bits.
    sequences = [list(range(0xD000, 0x10100)), list(range(0xD001, 0x10101)), [0xD800], [0xD801], [-1], [-2]]
    space = SequenceLabels([list(range(0x10200)), *sequences])
    assert space.pairwise([3], [4, 5, 6]).tolist() == [[1, 1, 1]]
    assert space.pairwise([1], [2])[0, 0] == pytest.approx(2 / 0x3100)


# ---------------------------------------------------------------------------------------------------------------------
# weighted sums


def test_a_weighted_sum_is_one():
    vectors = VectorLabels(torch.randn(12, 2, generator=torch.Generator().manual_seed(0)))
    tags = TagLabels([range(i % 5) for i in range(12)])
    space = WeightedLabels({vectors: 0.5, tags: 3})
    expected = 0.5 * vectors.pairwise().double() + 3 * tags.pairwise().double()
    torch.testing.assert_close(space.pairwise().double(), expected, rtol=1e-6, atol=0)
    assert space.unit == "0.5 x (difference of labels) + 3 x (Jaccard distance of tags)"
    assert WeightedLabels({vectors: 1}, unit="apples").unit == "apples"
    assert torch.equal(space[[3, 1]].pairwise(), space.pairwise([3, 1], [3, 1]))
    ranked = expected.float().double().fill_diagonal_(torch.inf).sort(dim=1, stable=True).indices
    assert torch.equal(nearest(space, 5).rows, ranked[:, :5])
