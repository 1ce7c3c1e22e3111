"""Numbers that may stand for a missing value are named, and the tails of a distribution are not."""

from pathlib import Path

import numpy as np
import pytest
from support.tables import dials, write_table

from contml.app.experiment import OwnData, load_table
from contml.tasks.table.number_labels import missing_codes

HEIGHTS = np.random.default_rng(0).normal(170, 10, 200)


@pytest.mark.parametrize("codes", [[-999], [9999], [0], [-1], [-999, 9999], [-99, 999, 9999]])
def test_repeated_codes(codes):
    values = HEIGHTS.copy()
    for place, code in enumerate(codes):
        values[place :: 20 + place] = code
    assert missing_codes(values) == {code: int((values == code).sum()) for code in codes}


def test_a_negative_code_within_the_range_of_prices():
    values = np.random.default_rng(0).lognormal(13, 0.6, 200).round()
    values[:3] = -999
    assert missing_codes(values) == {-999: 3}


@pytest.mark.parametrize(("value", "is_found"), [(-999, True), (400, False), (1e6, True), (250, False)])
def test_one_number_far_away(value, is_found):
    assert list(missing_codes(np.append(HEIGHTS, value))) == ([value] if is_found else [])


@pytest.mark.parametrize("scale", [0.5, 1, 2])
def test_tails_are_no_codes(scale):
    random = np.random.default_rng(1)
    for size in (50, 400):
        tail = random.lognormal(3, scale, size)
        drawn = [random.lognormal(0, scale, size), tail.round(), random.poisson(scale, size)]
        drawn += [np.where(random.random(size) < 0.3, 0, tail), random.integers(-1, 3, size)]
        for values in drawn:
            assert missing_codes(np.asarray(values, np.float64)) == {}


def test_few_numbers_are_no_codes():
    for values in ([0, 1], [0, 1, 5], [0, 0, 1, 1], [0, 1, 2, 3, 4], [7, 7, 7]):
        assert missing_codes(np.array(values * 5, np.float64)) == {}


@pytest.mark.parametrize("kind", ["number", "number:log", "vector"])
def test_the_line_of_the_column_names_them(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    rows = dials(tmp_path, 40)
    for row in rows[:3]:
        row["reading"] = "99999"
    write_table(tmp_path / "items.csv", rows, ["image", "reading"])
    task = load_table(OwnData(Path("items.csv"), [f"reading={kind}"])).task
    (line,) = [line for line in task.columns if line[0] == "reading"]
    says = "; reading: 99,999 in 3 rows is far from all other numbers: if it means a missing value, empty the cells"
    assert says in line[3]
