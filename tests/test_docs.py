"""The pages are complete: every loss with all its options and defaults, every kind of label. Their code runs."""

from __future__ import annotations

import inspect
import re
import runpy
from typing import Any

import pytest
from support.paths import ROOT
from typer.main import get_command

from contml.app.cli.commands import app
from contml.app.experiment import schema
from contml.config import Section, options
from contml.labels import BINARY_LABELS, LABELS
from contml.losses import LOSSES
from contml.mining import MINERS

SITE = runpy.run_path(str(ROOT / "docs" / "conf.py"))
PAGE = (ROOT / "docs" / "losses.md").read_text(encoding="utf-8")
#: The options of each loss in the rows of the family's tables: | [`name`](losses/name.md) | options |
ROWS = dict(re.findall(r"^\| \[`(\w+)`\]\(losses/\1\.md\) \| (.*?) ?\|$", PAGE, re.MULTILINE))
#: Pages whose Python runs with data or trainings of its own, and the test that runs it.
ELSEWHERE = {
    "README.md": "test_readme.py", "CONTRIBUTING.md": "test_contributing.py", "docs/export.md": "search/test_page.py",
    "docs/sweep.md": "app/cli/test_sweep.py", "docs/table.md": "tasks/table/test_table_docs.py",
    "docs/using_a_model.md": "search/test_page.py",
}  # fmt: skip


def shown(value):
    return value if isinstance(value, str) else repr(value).removesuffix(".0")


def test_every_loss_stands_on_the_page_once_and_in_reading_order():
    assert list(ROWS) == list(LOSSES)


@pytest.mark.parametrize("name", LOSSES)
def test_options_and_defaults_are_those_of_the_code(name):
    documented = dict(part.split(" = ") for part in ROWS[name].split(", ") if part)
    assert documented == {option.name: shown(option.default) for option in options(LOSSES[name])}


@pytest.mark.parametrize("name", LOSSES)
def test_the_page_of_a_loss_has_formula_paper_and_weight_and_its_example_runs(name):
    page = (ROOT / "docs" / "losses" / f"{name}.md").read_text(encoding="utf-8")
    formula, paper, weight = re.split(r"^## (?:Paper|Weight of a pair)\n", page, flags=re.MULTILINE)
    assert re.match("# .*```math\n", formula, re.DOTALL)
    assert all((paper.strip(), weight.strip()))
    code = SITE["example"](name)
    names: dict[str, Any] = {}
    exec(compile(code, name, "exec"), names)
    assert type(names["loss_function"]) is LOSSES[name]
    assert names["loss"].isfinite()
    assert names["embeddings"].grad.norm() > 0


def test_each_page_of_a_loss_is_of_a_loss():
    assert {page.stem for page in (ROOT / "docs" / "losses").iterdir()} == set(LOSSES)


def test_what_is_your_label_names_every_loss_and_label_space():
    table = PAGE.split("## What is your label?")[1].split("## The family")[0]
    for name in LOSSES:
        assert name in re.findall(r"\w+", table), name
    for name in MINERS:
        assert f"`{name}`" in PAGE, name
    for space in LABELS.values():
        assert inspect.isclass(space)
        assert space.__name__ in table, space.__name__


def python(page):
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)


def run(page):
    names: dict[str, Any] = {}
    for block in python(page):
        exec(compile(block, page, "exec"), names)
    return names


FILES = [path.relative_to(ROOT).as_posix() for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])]
PAGES = [page for page in FILES if python(page)]
NOTEBOOKS = [page for page in PAGES if page.startswith("docs/notebooks/")]


#: A page whose code takes long.
LONG = pytest.param("docs/metrics.md", marks=pytest.mark.slow)


OTHERS = {*ELSEWHERE, *NOTEBOOKS, "docs/in_your_code.md", "docs/labels.md", *LONG.values}


@pytest.mark.parametrize("page", [*sorted({*PAGES} - OTHERS), LONG])
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(page)


def test_there_are_six_notebooks_and_the_site_has_them():
    names = ["captions", "classes", "judgments", "maps", "numbers", "poses"]
    assert [page.split("/")[-1].removesuffix(".md") for page in NOTEBOOKS] == names
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    for page in NOTEBOOKS:
        assert f"\n{page.removeprefix('docs/').removesuffix('.md')}\n" in index


@pytest.mark.slow
@pytest.mark.parametrize("page", NOTEBOOKS)
def test_a_notebook_is_its_page_and_its_code_trains_an_embedding(page, tmp_path, monkeypatch):
    """The cells of the notebook that the site offers are run in order, as Jupyter does."""
    made = SITE["notebook"]((ROOT / page).read_text(encoding="utf-8"))
    sources = {"code": [], "markdown": []}
    for cell in made["cells"]:
        sources[cell["cell_type"]].append("".join(cell["source"]))
    assert [f"{source}\n" for source in sources["code"]] == python(page)
    assert sources["markdown"][0].startswith("# ")
    assert "](.." not in "".join(sources["markdown"])
    assert len({cell["id"] for cell in made["cells"]}) == len(made["cells"])
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for source in sources["code"]:
        exec(compile(source, page, "exec"), names)
    before, after = names["before"], names["after"]
    assert after.better == before.better
    assert (after.model - before.model) * (1 if after.better == "higher" else -1) > 0
    assert not [*tmp_path.iterdir()]  # nothing is left in the reader's folder


@pytest.mark.parametrize("page", ELSEWHERE)
def test_the_python_of_other_pages_runs_in_a_test_of_its_own(page):
    assert page in PAGES
    test = (ROOT / "tests" / ELSEWHERE[page]).read_text(encoding="utf-8")
    assert page.rpartition("/")[2] in test
    assert "```python" in test


def test_the_gallery_of_label_kinds_prints_what_it_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run("docs/labels.md")
    code = "".join(python("docs/labels.md"))
    assert capsys.readouterr().out.splitlines() == re.findall(r"^print.*  # (.*)$", code, re.MULTILINE)
    for space in (*LABELS.values(), *BINARY_LABELS.values()):
        assert f"contml.{space.__name__}(" in code, space.__name__


@pytest.mark.slow
def test_the_code_of_the_page_on_own_code_runs(tmp_path, monkeypatch):
    page = (ROOT / "docs" / "in_your_code.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    names = run("docs/in_your_code.md")
    assert names["embeddings"].shape == (len(names["y_test"]), 16)
    assert 0.2 < names["pipeline"].score(names["X_test"], names["y_test"]) < 1
    assert names["metric"].embedding_.shape == (len(names["X"]), 8)
    for file in re.findall(r"\]\(\.\./(\S+?)\)", page):
        assert (ROOT / file).exists(), file
    for example in (ROOT / "examples").glob("*.py"):
        assert example.stem == "dials" or f"examples/{example.name}" in page


def test_the_page_on_security_names_every_command_and_section_that_may_import_code():
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    table, sections = page.split("## Code")[1].split("## Files")[0].split("- **A name is checked")
    for name, command in get_command(app).commands.items():
        names = {option for each in command.params for option in each.opts}
        if "--trust" in names or {"overrides", "suite"} & {each.name for each in command.params}:
            assert re.search(rf"`{name}\b", table), name
    for name, section in schema().items():
        if isinstance(section, Section) and section.contract is not None:
            assert f"`{name}`" in sections, name


#: For each row of the tables of SECURITY.md, by its first words: the test that attacks it.
ATTACKS = dict(line.split(" || ") for line in (ROOT / "tests/attacks.txt").read_text("utf-8").splitlines())


def test_each_row_of_the_page_on_security_has_a_test():
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8").replace("`", "")
    rows = re.findall(r"^\| (?!what you do|file |section|---)(.+?) \|.*\|$", page, re.MULTILINE)
    assert [re.split(" with|,| \\(", row)[0] for row in rows] == [*ATTACKS]
    for test in ATTACKS.values():
        file, name = test.split("::")
        assert f"def {name}(" in (ROOT / "tests" / file).read_text(encoding="utf-8"), test


def test_the_files_of_the_architecture_exist_and_the_reading_list_is_short():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    for name in re.findall(r"`((?:contml|tasks|configs)/[\w/.]*)`", text):
        assert (ROOT / name).exists(), name
    first = re.findall(r"^\| `(contml/[\w/]+\.py)` \|", text.split("## Read")[1].split("## Where")[0], re.MULTILINE)
    assert len(first) == 9
    lines = runpy.run_path(str(ROOT / ".ci" / "size"))["code_lines"]
    assert sum(lines((ROOT / name).read_text(encoding="utf-8")) for name in first) < 1850
    assert len(text.splitlines()) <= 120
