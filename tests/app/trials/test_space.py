"""What --try means: choices, ranges, and what is refused."""

import math
import string

import pytest
from hypothesis import given, settings, strategies as st

from contml.app.trials.space import Choice, Interval, draw, grid, overrides_of, parse_space, written_value
from contml.config import from_overrides

numbers = st.one_of(st.integers(-(10**9), 10**9), st.floats(-1e9, 1e9).map(lambda x: x + 0.0))
texts = st.text(string.ascii_letters + string.digits + "._-:, []{}#'\"=\\", min_size=1, max_size=12)
texts = texts.filter(lambda text: ".." not in text)  # a range
leaves = st.one_of(numbers, st.booleans(), st.none(), texts)
values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3), max_leaves=4)


def read(override):
    return from_overrides([override]).values["loss"]["margin"]


def the_only(text):
    (part,) = parse_space([text])
    return part


@settings(max_examples=50)
@given(st.lists(values, min_size=2, max_size=5, unique_by=written_value))
def test_any_values_of_a_choice_are_read_back(chosen):
    text = "loss.margin=" + ",".join(map(written_value, chosen))
    part = the_only(text)
    assert isinstance(part, Choice)
    assert (list(part.values), list(map(type, part.values))) == (chosen, list(map(type, chosen)))
    assert the_only(f"loss.margin={part}") == part
    for value in chosen:
        (override,) = overrides_of({"loss.margin": value})
        assert read(override) == value


@given(numbers, numbers)
def test_a_range_is_read_back_and_its_values_lie_within(a, b):
    if a == b:
        return
    low, high = sorted((a, b))
    part = the_only(f"loss.margin={written_value(low)}..{written_value(high)}")
    assert part == Interval("loss.margin", low, high)
    assert (part.is_integer, part.log) == (isinstance(low, int) and isinstance(high, int), low > 0 and high >= 10 * low)
    assert the_only(f"loss.margin={part}") == part
    for share in (0.0, 1e-9, 0.3, 0.5, 1.0):
        value = part.value(low + share * (high - low))
        assert low <= value <= high
        assert (isinstance(value, int), read(overrides_of({"loss.margin": value})[0])) == (part.is_integer, value)


def test_whole_numbers_and_the_logarithmic_scale():
    assert the_only("model.dim=16..256").points == (16, 64, 256)
    rate = the_only("optimizer.lr=1e-4..1e-2")
    assert rate.points == pytest.approx((1e-4, 1e-3, 1e-2))
    space = [rate]
    logs = [math.log10(draw(space, "random", 0, n)["optimizer.lr"]) for n in range(200)]
    assert sum(log < -3 for log in logs) == pytest.approx(100, abs=25)


def test_a_grid_has_all_combinations():
    space = parse_space(["loss=raw,ice", "optimizer.lr=1e-3,1e-2"])
    assert grid(space) == [{"loss": loss, "optimizer.lr": rate} for loss in ("raw", "ice") for rate in (0.001, 0.01)]
