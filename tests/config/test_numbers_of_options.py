"""Numbers of options: their ranges are in annotations, which configs and callers are checked with."""

from __future__ import annotations

import inspect
import math
from typing import Annotated, Literal

import pytest
from support.refusals import refuses

from contml._support.validation import (
    FiniteFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Range,
    check_ranges,
    is_choice,
    range_of,
)
from contml.app.experiment import schema, task_table
from contml.config import Section, from_overrides, options, validate
from contml.config.schema import words
from contml.config.source import check_numbers
from contml.labels import PoseLabels
from contml.losses import GeneralizedContrastiveLoss
from contml.training import Training


def parts():
    for key, section in schema().items():
        if isinstance(section, Section):
            table = section.parts.items() if hasattr(section.parts, "items") else [("", section.parts)]
            for name, part in table:
                yield pytest.param(key, name, part, id=f"{key} {name}".strip())


@check_ranges
def function(count: PositiveInt = 1, share: Annotated[float, Range(above=0, most=0.5)] | None = None) -> tuple:
    return count, share


def test_a_call_is_checked_against_the_annotations():
    assert (function(), function(2, share=0.5), function(3, None)) == ((1, None), (2, 0.5), (3, None))
    with refuses("count", "0", "must be a whole number of at least 1"):
        function(0)
    with refuses("count", "1.0", "a whole number"):
        function(count=1.0)
    for share in (0, 0.6, math.nan, math.inf, "0.1"):
        with refuses("share", str(share), "above 0 and at most 0.5"):
            function(share=share)
    with pytest.raises(TypeError, match="unexpected keyword argument 'shares'"):
        function(shares=1)
    with refuses("label_scale", "0", "above 0"):
        GeneralizedContrastiveLoss(label_scale=0)
    assert GeneralizedContrastiveLoss(label_scale="median").label_scale == "median"


@check_ranges
def worded(how: Literal["fast", "slow"] = "fast", side: Literal["left"] | None = None, size: int | Literal["all"] = 1):
    return how, side, size


def test_words_are_checked_against_the_annotations():
    assert worded() == ("fast", None, 1)
    assert worded("slow", side="left", size="any") == ("slow", "left", "any")  # not only words
    for how in ("Fast", None, 1, ["fast"]):
        with refuses("how", repr(how), "must be one of fast, slow"):
            worded(how)
    with refuses("side", "'right'", "must be one of left"):
        worded(side="right")
    with refuses("hidden", "'keep'", "must be one of refuse, drop"):
        PoseLabels([[[0.0, 0.0], [1.0, 1.0]]], hidden="keep")


def test_a_range_in_words():
    assert words(PositiveInt) == "a whole number of at least 1"
    assert words(NonNegativeInt | None) == "a whole number of at least 0 or null"
    assert (words(PositiveFloat), words(FiniteFloat)) == ("a number above 0", "a finite number")


@pytest.mark.parametrize(("section", "name", "part"), [*parts()])
def test_ranges_are_read_from_the_source_and_checked_by_the_part(section, name, part):
    """The same ranges, without an import; and the part checks them where it is called from Python."""
    ranges = {option.name: range_of(option.type) for option in options(part) if range_of(option.type) is not None}
    for option, allowed in ranges.items():
        for value in [str(value) for value in (-1, 0, 1, 5, 20, 1000) if not inside(allowed, value)] or [".nan"]:
            document = from_overrides([f"{section}.name={name}"] * bool(name) + [f"{section}.{option}={value}"])
            with refuses(f"{section}.{option}", allowed=str(allowed)):
                validate(document, {section: schema()[section]})
            with refuses(f"{section}.{option}", allowed=str(allowed)):
                check_numbers(document, "contml.app.experiment.parts:schema", task_table().path)
    if (ranges or any(is_choice(option.type) for option in options(part))) and part is not Training:
        made_by = part.__init__ if inspect.isclass(part) else part
        assert inspect.unwrap(made_by) is not made_by, f"{section} {name} has ranges or words without @check_ranges"


def inside(allowed, value):
    try:
        allowed.check("value", value)
    except ValueError:
        return False
    return True


def test_every_number_of_a_part_has_a_range():
    """Except those whose limits depend on other options."""
    free = {"ignore"}
    for param in parts():
        section, name, part = param.values
        for option in options(part):
            if option.type in (int, float, int | None, float | None):
                assert option.name in free, f"{section} {name}: {option.name}"
