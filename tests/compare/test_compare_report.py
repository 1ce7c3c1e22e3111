"""`contml compare --report`: several runs on the same queries, on one page."""

from __future__ import annotations

import html
import re
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from support.miniature import TINY
from support.runs import without_reports

from contml._support.text import number
from contml.compare.comparison import compare
from contml.compare.page import _headline
from contml.evaluation.evaluated import Evaluated
from contml.experiment import load, train
from contml.experiment.loading import load_run
from contml.report.rendering import LIMIT


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs of the same data, one of other data."""
    root = tmp_path_factory.mktemp("runs")
    options = ("model.dim=4", "model.dim=8", "task.seed=1")
    with without_reports():
        return [train(load("pose/synthetic", [*TINY, each]), root, folder=root / each).folder for each in options]


def test_the_page_has_all_runs_and_the_same_queries(contml, refused, runs, tmp_path):
    *same, other = runs
    status, out, err = contml("compare", *same, "--report", "out/page.html")
    assert (status, err) == (0, "")
    assert out.splitlines()[-1] == "out/page.html"
    page = (tmp_path / "out/page.html").read_text(encoding="utf-8")
    assert len(page.encode()) < LIMIT
    assert not re.search("<script|https?:|url\\(", page)
    (table,) = compare(same).tables
    measure = load_run(same[0])[0].build_task().test.labels.measure
    values = {table.label(row): row.mean("label_distance@1") for row in table.rows}
    found = table.verdict("label_distance@1")
    text = html.unescape(page).replace("\N{NO-BREAK SPACE}", " ")
    assert found.best is None  # six queries do not distinguish them
    assert f'<p class="result">N{found.sentence[1:]}.</p>' in text
    assert f'<p class="caption">{found.sentence}. Sorted by the main metric.' in text
    assert '<th scope="col">epoch</th>' in page
    for value in values.values():
        assert f">{number(measure.of(value))}</td>" in page
    baselines = Evaluated.read(same[0] / "evaluation.json").evaluation.main
    assert number(measure.of(baselines.random)) in page
    assert number(measure.of(baselines.oracle)) in page
    # Each query has a line for both runs, untrained weights and the oracle.
    for heading in (*values, "Untrained, first run", "Best possible: nearest by label"):
        assert len(re.findall(f"<h4>{re.escape(heading)}</h4>", text)) == page.count("<h3>Query ")
    assert page.count("<h3>Query ") >= 4
    line = refused("compare", *same, other, "--report", "page.html")
    assert "--report: runs with different test data" in line
    line = refused("compare", *same, "--report", "page.pdf")
    assert "page.pdf: suffix '.pdf'; must end in .html" in line


def test_the_headline_names_the_best_run(runs):
    (table,) = compare(runs[:2]).tables
    metric = table.evaluation.headline
    first = min(table.rows, key=lambda row: row.mean(metric))
    words = f"The nearest item differs by {table.evaluation.measure.text(first.mean(metric))}"
    certain = replace(table.verdict(metric), best=table.rows.index(first), sentence="...")
    found = _headline(replace(table, verdicts={metric: certain}), first, metric)
    assert found.startswith(f"{table.label(first)} is best. {words}")
    # One run is not compared with others.
    (alone,) = compare(runs[:1]).tables
    assert _headline(alone, alone.rows[0], metric).startswith("The nearest item differs by ")
    initial = replace(alone.rows[0].runs[0].evaluated, epoch=0)
    row = replace(alone.rows[0], runs=(replace(alone.rows[0].runs[0], evaluated=initial),))
    assert _headline(alone, row, metric).startswith("Untrained weights. The nearest item differs by ")


def test_the_first_queries_are_those_on_which_the_runs_differ_most(contml, runs, tmp_path):
    *same, _ = runs
    assert contml("compare", *same, "--report", "page.html")[0] == 0
    task = load_run(same[0])[0].build_task()
    split = task.test
    distances, values = split.labels.pairwise(split.queries, split.gallery), []
    for run in same:
        (file,) = (path for path in run.glob("embeddings/test*.safetensors") if "untrained" not in path.name)
        x = load_file(file)["embeddings"]
        nearest = torch.cdist(x[split.queries], x[split.gallery]).argsort(1)[:, :1]
        values.append(distances.gather(1, nearest).mean(1))
    row = int(split.queries[(values[0] - values[1]).abs().argmax()])
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    first = page.partition("<h3>Query 1</h3>")[2].partition("<h3>")[0]
    assert split.name(row) in first.partition('class="line"')[0]


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(400, "dark"), (1280, "light")])
def test_the_page_fits_a_phone(chromium, contml, runs, tmp_path, width, scheme):
    assert contml("compare", *runs[:2], "--report", "page.html")[0] == 0
    page = chromium.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page.goto(f"file://{tmp_path / 'page.html'}")
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
    assert page.evaluate("[...document.images].every(each => each.complete && each.naturalWidth > 0)")
    page.close()
