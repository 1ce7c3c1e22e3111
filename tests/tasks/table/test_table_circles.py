"""Numbers on a circle in a table: the short form, distances, what is refused, and the hint for columns of numbers."""

import numpy as np
import pytest
from PIL import Image
from support.refusals import refused, refuses

from contml.tasks.table.file import file
from contml.tasks.table.kinds import section_of


@pytest.fixture
def table(tmp_path):
    for row in range(24):
        Image.new("RGB", (8, 8), (10 * row, 0, 0)).save(tmp_path / f"{row}.png")

    def write(name, values):
        path = tmp_path / "items.csv"
        path.write_text(f"image,{name}\n" + "".join(f"{row}.png,{value}\n" for row, value in enumerate(values)))
        return path

    return write


def summary(path, name, kind):
    return next(column[3] for column in file(path, {name: kind}).columns if column[0] == name)


@pytest.mark.parametrize(("kind", "period"), [("circular", 360), ("circular:24", 24)])
def test_distances_are_radians_along_the_circle(table, kind, period):
    values = [period * row / 24 for row in range(24)]
    split = file(table("heading", values), {"heading": kind}).train
    radians = (
        2 * np.pi / period * np.array([values[int(split.name(row).split("/")[-1][:-4])] for row in range(len(split))])
    )
    expected = np.abs(np.angle(np.exp(1j * (radians[:, None] - radians))))
    np.testing.assert_allclose(split.labels.pairwise().numpy(), expected, atol=1e-6)
    assert not split.labels.mirrored


def test_the_short_form_names_the_period_before_the_weight():
    assert section_of("circular") == {"kind": "circular"}
    assert section_of("circular:24") == {"kind": "circular", "period": 24}
    assert section_of("circular:24:0.5") == {"kind": "circular", "period": 24, "weight": 0.5}
    refused(lambda: section_of("circular:noon"), "", "weight 'noon'", "circular:24")


def test_values_beyond_a_period_and_constant_values_are_refused(table):
    with refuses("items.csv:25: hour", "99", "-24 to 24", "hour=circular:360"):
        file(table("hour", [*range(23), 99]), {"hour": "circular:24"})
    refused(lambda: file(table("hour", [7] * 24), {"hour": "circular:24"}), "labels.hour", "7 in all of")


@pytest.mark.parametrize(
    ("name", "values", "hint"),
    [
        ("heading", range(0, 360, 15), "heading=circular:360"),
        ("camera yaw", range(-180, 180, 15), "camera yaw=circular:360"),
        ("hour", range(24), "hour=circular:24"),
        ("hour", [row % 6 for row in range(24)], ""),
        ("price", range(0, 360, 15), ""),
        ("heading", range(0, 720, 30), ""),
    ],
)
def test_a_column_of_numbers_named_as_a_circle_gets_a_hint(table, name, values, hint):
    found = summary(table(name, values), name, "number")
    assert (hint in found) if hint else ("circular" not in found)


def test_few_values_of_a_period_get_a_hint(table):
    assert "if the period is another" in summary(table("hour", range(24)), "hour", "circular")
    assert "if the period is another" not in summary(table("hour", range(24)), "hour", "circular:24")


@pytest.mark.parametrize(
    ("values", "period"), [([0.1, 6.2], "6.28319"), ([0, 6.9], "7"), ([0, 11], "12"), ([2, 400], "400")]
)
def test_the_hint_names_a_period_that_holds_the_values(table, values, period):
    path = table("at", values * 12)
    if max(values) <= 360:
        assert f"at=circular:{period}" in summary(path, "at", "circular")
    else:
        refused(lambda: file(path, {"at": "circular"}), "at", hint=f"at=circular:{period}")
