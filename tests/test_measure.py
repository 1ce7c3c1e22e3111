"""How label distances are printed: one function, one unit for all commands and pages."""

import math

import pytest
import torch

from contml.app.report.plots import distance_title
from contml.contracts import Measure
from contml.evaluation.results import Evaluation
from contml.labels import NumberLabels


@pytest.mark.parametrize(("measure", "distance", "text", "interval"), [
    (Measure(), 0.41, "0.410", "0.410 (0 to 1.00)"),
    (Measure("km"), 12.34, "12.3 km", "12.3 km (0 to 1.00)"),
    (Measure("", 1000.0, name="price_usd"), 12.3, "12,300", "12,300 (0 to 1,000)"),
    (Measure("levels", 4), 0.5, "2.00 levels", "2.00 levels (0 to 4.00)"),
    (Measure("days", 365.25, dates=True), 2, "730 days", "730 days (0 to 365)"),
    (Measure("", math.log(2), "ratio"), 2, "x 4.00", "x 4.00 (1.00 to 2.00)"),
    (Measure("", 1e4, "ratio"), 1, "-", "- (1.00 to -)"),
    (Measure("km"), math.nan, "-", "- (0 to 1.00)"),
    (Measure("k\x1bm\n"), 1, "1.00 k\\x1bm\\n", None),
])  # fmt: skip
def test_one_function_prints_label_distances(measure, distance, text, interval):
    assert measure.text(distance) == text
    assert math.isnan(measure.of(math.nan))
    if interval is not None:
        assert measure.text(distance, 0.0, 1.0) == interval
    assert measure.text(distance, unit=False) == text.removesuffix(measure.after)


def test_a_ratio_of_two_labels_has_no_unit():
    """The labels have it: 50,000 USD is x 2.00 of 25,000 USD. So do no titles of tables and plots."""
    labels = NumberLabels(torch.tensor([25_000.0, 50_000.0]).log())
    labels.measure = Measure("USD", 1.0, "ratio", "price")
    assert (labels.text(1), labels.measure.text(float(labels.pairwise([0], [1])))) == ("50,000 USD", "x 2.00")
    assert labels.measure.difference(1.0, 1.5, 0.25) == "x 1.65 (1.28 to 2.12)"
    assert distance_title(labels.measure) == "label distance in price"
    evaluation = Evaluation("", 2, 1, {}, 0.5, measure=labels.measure)
    assert evaluation.titled("label_distance@1", "mean label distance") == "mean label distance"
    assert labels.parts(0, 1)[0].difference == "x 2.00"


@pytest.mark.parametrize(("measure", "expected"), [
    (Measure(), "0.500 ± 0.250"),
    (Measure("km", 10), "5.00 ± 2.50 km"),
    (Measure("", math.log(4), "ratio"), "x 2.00 (1.41 to 2.83)"),
])  # fmt: skip
def test_a_difference_has_its_interval_in_the_unit(measure, expected):
    assert measure.difference(1.0, 1.5, 0.25) == measure.difference(1.5, 1.0, 0.25) == expected


@pytest.mark.parametrize("factor", [0.0, -1.0, math.inf, math.nan])
def test_a_factor_is_a_finite_number_above_0(factor):
    with pytest.raises(ValueError, match="factor"):
        Measure("km", factor)
