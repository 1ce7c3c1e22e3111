"""Numbers on a circle: distances, means, intervals and words, against loops over the unit circle."""

import cmath
import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, strategies as st

from contml.labels import CircularLabels
from contml.search.answers import answer_of, predicted

PERIODS = (360.0, 24.0, 7.0, 365.25)
TURNS = st.floats(-2, 2)


def point(value, period):
    return cmath.exp(2j * math.pi * value / period)


@given(st.sampled_from(PERIODS), st.lists(TURNS, min_size=2, max_size=6), st.floats(0.1, 60))
def test_the_distance_is_the_arc_between_two_points_of_the_circle(period, turns, scale):
    values = [turn * period for turn in turns]
    labels = CircularLabels(values, period, "degrees", scale)
    for i, a in enumerate(values):
        for j, b in enumerate(values):
            arc = abs(cmath.phase(point(a, period) / point(b, period))) * period / 2 / math.pi
            expected = pytest.approx(arc / scale, abs=1e-5 * period / scale)
            assert labels.pairwise([i], [j]).item() == expected
            chord = float((labels.vectors[i] - labels.vectors[j]).norm()) / (period / math.pi / scale)
            assert 2 * math.asin(min(1, chord)) * period / 2 / math.pi / scale == expected


@given(st.sampled_from(PERIODS), st.floats(0, 1), st.floats(-0.4, 0.4))
def test_the_mean_of_two_labels_is_halfway_on_the_shorter_way(period, start, turn):
    labels = CircularLabels([start * period, (start + turn) * period], period)
    mean = labels.of_vectors(labels.vectors.mean(0, keepdim=True))
    halfway = point((start + turn / 2) * period, period)
    assert abs(point(mean.plain(0), period) - halfway) < 1e-6
    assert labels.start <= mean.plain(0) < labels.start + period


def test_predicted_labels_are_in_the_range_of_the_values():
    for values, expected in (([350.0, 10.0], 0.0), ([-20.0, 0.0], -10.0), ([170.0, -170.0], -180.0)):
        labels = CircularLabels(values)
        assert labels.of_vectors(labels.vectors.mean(0, keepdim=True)).plain(0) == pytest.approx(expected)


def test_an_answer_has_an_interval_that_crosses_the_start():
    labels = CircularLabels([355.0, 5.0, 3.0, 180.0], unit="degrees")
    found = predicted(labels, torch.tensor([[0, 1]]), torch.tensor([[0.5, 0.5]], dtype=torch.float64))
    bound = SimpleNamespace(high=20.0)
    calibration = SimpleNamespace(kind="interval", level=0.9, label_distance=lambda spread: bound)
    answer = answer_of(found, 0, labels, calibration, 4, None, same=False)
    assert (answer.value, answer.low, answer.high) == (0.0, 340.0, 20.0)
    assert (answer.words, answer.bound_text) == ("0 degrees (340 to 20)", "20.0 degrees")
    assert answer.excludes(labels[[3]])
    assert not answer.excludes(labels[[0]])
    bound.high = 180.0
    answer = answer_of(found, 0, labels, calibration, 4, None, same=False)
    assert (answer.low, answer.high, answer.words) == (None, None, "0 degrees (within 180 degrees, 90 %)")


def test_an_interval_of_half_a_period_is_the_whole_circle():
    labels = CircularLabels([23.0, 1.0], 24, "hours", scale=2.0)
    assert (labels.largest, labels.interval(0, 2.0)) == (6, (19.0, 3.0))
    assert labels.interval(0, 6.0) is None
    assert labels.interval_texts(23.0, 19.0, 3.04) == ("23.0 hours", "19.0", "3.0")
    assert labels.interval_texts(0.0, 23.9996, 0.0004) == ("0.00000 hours", "23.99960", "0.00040")


def test_words():
    labels = CircularLabels([350.0, -10.0, 95.5], unit="degrees")
    assert not labels.mirrored
    assert labels.text(2) == "95.5 degrees"
    assert labels.parts(0, 2) == [("angle", "350 degrees", "95.5 degrees", "106 degrees", "")]
    assert (labels.pairwise([0], [1]).item(), labels.colours().values.tolist()) == (0, [-10, -10, 95.5])
