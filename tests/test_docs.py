"""The page of losses is written by hand, and complete: every loss with all its options and their defaults."""

from __future__ import annotations

import inspect
import re

import pytest
from support.paths import ROOT

from contml.config import options
from contml.experiment import config_names, load
from contml.labels import LABELS
from contml.losses import LOSSES
from contml.mining import MINERS

PAGE = (ROOT / "docs" / "losses.md").read_text(encoding="utf-8")
#: The rows of the family's tables: | `name` (options) | value | weight | paper | paper against code |
ROWS = {
    match[1]: (match[2], match[0].strip("|").split("|"))
    for match in re.finditer(r"^\| `(\w+)` \(([^)]*)\) \|.*\|$", PAGE, re.MULTILINE)
}


def shown(value):
    return value if isinstance(value, str) else repr(value).removesuffix(".0")


def test_every_loss_stands_on_the_page_once_and_in_reading_order():
    assert list(ROWS) == list(LOSSES)


@pytest.mark.parametrize("name", LOSSES)
def test_options_and_defaults_are_those_of_the_code(name):
    documented = dict(part.split(" = ") for part in ROWS[name][0].split(", ") if part)
    assert documented == {option.name: shown(option.default) for option in options(LOSSES[name])}


@pytest.mark.parametrize("name", LOSSES)
def test_a_row_has_value_weight_and_paper(name):
    cells = [cell.strip() for cell in ROWS[name][1]]
    assert len(cells) == 5
    assert all(cells[1:4])


def test_what_is_your_label_names_every_loss_and_label_space():
    table = PAGE.split("## What is your label?")[1].split("## The family")[0]
    for name in (*LOSSES, *MINERS):
        assert name in re.findall(r"\w+", table), name
    for space in LABELS.values():
        assert inspect.isclass(space)
        assert space.__name__ in table, space.__name__


def test_the_page_of_class_benchmarks_has_every_protocol_and_its_published_recall():
    page = (ROOT / "docs" / "classes.md").read_text(encoding="utf-8")
    rows = r"^\| `(classes/\w+_\w+)` \| [^|]+ \| [^|]+ \| ([\d.]+|not reported)"
    documented = dict(re.findall(rows, page, re.MULTILINE))
    published = {}
    for name in config_names():
        parts = load(name).config.parts
        if parts["task"].name in ("classes/cub", "classes/cars", "classes/sop", "classes/inshop"):
            metrics = parts["published"].options if "published" in parts else {}
            published[name] = str(metrics.get("recall@1", "not reported"))
    assert documented == published
