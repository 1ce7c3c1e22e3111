"""The pages on tables agree with the code: the snippet runs, all kinds and options are listed, guesses are made."""

import re
import shlex
import sys

import pytest
import yaml
from support.paths import ROOT

from contml.app.cli import main
from contml.config import all_options, fields_of
from contml.tasks.table.columns import Guess, guess_cells, pair_up
from contml.tasks.table.file import file
from contml.tasks.table.kinds import KINDS, LABEL_SECTIONS, label_parts

PAGE = "".join((ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("table.md", "table_columns.md"))


def section(title):
    return PAGE.split(f"# {title}\n")[1].split("\n## ")[0]


def rows(title):
    found = re.findall(r"^\| (.*) \|$", re.split("^#", section(title), flags=re.MULTILINE)[0], re.MULTILINE)
    return [[cell.strip() for cell in line.split(" | ")] for line in found if line not in ("word", "---")]


@pytest.mark.slow
def test_the_snippet_draws_a_table_that_trains(tmp_path, monkeypatch, capsys):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "docs/table.md", "exec"), {})
    tiny = ["images.resize=24", "images.crop=24", "transform.scale_jitter=0", "images.workers=0"]
    (first, second, third) = re.findall(r"^contml train (--data dials.csv[^#\n]*)", PAGE, re.MULTILINE)
    printed = {}
    for command in (first, second, third):
        monkeypatch.setattr(sys, "argv", ["contml", "check", *shlex.split(command), *tiny])
        with pytest.raises(SystemExit) as stop:
            main()
        assert not stop.value.code
        printed[command] = " ".join(capsys.readouterr().out.split())
    assert "another class" in printed[third]
    (shown,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    for line in shown.splitlines():
        assert " ".join(line.split()).removesuffix(" ...") in printed[second]


def test_all_kinds_are_listed_in_order():
    assert [cells[0].strip("`") for cells in rows("The kinds")[1:]] == list(KINDS)


def test_all_options_are_listed():
    judgments = (ROOT / "docs" / "judgments.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `task\.([\w.]+)=", section("Options") + judgments, re.MULTILINE)
    names = [option.name for option in all_options(file) if fields_of(option) is None]
    names = [name for name in names if name not in ("data", "labels", "image")]
    assert sorted(listed) == sorted(names)


def test_all_options_of_the_kinds_are_listed():
    listed = {
        cells[0].strip("`").split(":")[0]: re.findall(r"\w+", cells[1]) for cells in rows("Options of a kind")[1:]
    }
    kinds = {option: [kind for kind in having if kind != "auto"] for option, having in LABEL_SECTIONS.options.items()}
    assert listed == {option: ["all"] if having == KINDS else having for option, having in kinds.items()}


def test_the_sections_on_the_page_are_valid():
    for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL):
        assert label_parts(yaml.safe_load(block)["task"]["labels"])


@pytest.mark.parametrize("cells", rows("The guesses")[1:], ids=lambda cells: cells[0])
def test_guesses_are_as_documented(cells):
    names, examples = (re.findall(r"`([^`]*)`", cell) for cell in cells[:2])
    want = cells[2].strip("`")
    if names[0] in ("photo", "mask"):  # of files: test_table.py
        return
    if len(names) == 2:
        assert pair_up({name: Guess("number", "") for name in names})[",".join(names)].kind == want
    else:
        assert guess_cells(names[0], examples, False).kind == want.replace("nothing", "")


def test_all_labels_on_the_page_are_valid():
    labels = re.findall(r"--label '?([\w, ]+=[a-z]+(?::[\d.]+)?)", PAGE)
    assert len(labels) > 8
    for label in labels:
        name, _, kind = label.rpartition("=")
        assert label_parts({name: kind})
