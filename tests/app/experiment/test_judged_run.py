"""Runs on judgments: check, train, evaluate, report, compare, sweep, index, search; what needs labels is refused."""

import json

import pytest
from support.tables import write_judgments

from contml.app import experiment
from contml.app.experiment import read_evaluation
from contml.evaluation.results import QueryValues

SHORT = [
    *("images.workers=0", "images.resize=32", "images.crop=32", "transform.scale_jitter=2", "transform.shift=1"),
    *("model.dim=8", "sampler.batch_size=10", "training.epochs=2", "training.evaluate_every=1"),
]


@pytest.fixture
def short(tmp_path):
    """The arguments of a training on 50 images with judgments, in its folder."""
    write_judgments(tmp_path)
    common = [*SHORT, "--runs", tmp_path / "runs"]
    return {kind: [f"table/{kind}", f"task.data={tmp_path}/{kind}.csv", *common] for kind in ("triplets", "rankings")}


@pytest.mark.parametrize("kind", ["triplets", pytest.param("rankings", marks=pytest.mark.slow)])
def test_commands_on_a_run(contml, accepted, refused, short, tmp_path, kind):
    words = short[kind]
    out, err = accepted("check", *words[:-2])
    assert f"{'30 triplets' if kind == 'triplets' else '10 queries'}" in out + err
    status, out, err = contml("train", *words, "--name", "a")
    assert (status, "report" in out) == (0, True), err
    first = tmp_path / "runs" / words[0] / "a"
    evaluated = read_evaluation(experiment.load_run(first)[1])
    assert evaluated.evaluation.kind == kind
    assert evaluated.evaluation.intervals.keys() == evaluated.evaluation.scores.keys()
    page = (first / "report.html").read_text()
    assert ("Which is nearer?" in page) == (kind == "triplets")
    assert "95 % interval" in page
    before = (first / "evaluation.json").read_bytes()
    status, out, _ = contml("evaluate", first, "--json")
    assert (json.loads(out)["kind"], (first / "evaluation.json").read_bytes()) == (kind, before)
    values = QueryValues.read(experiment.load_run(first)[1].query_values("test"))
    assert (values.items is not None, len(values.values)) == (kind == "triplets", evaluated.evaluation.queries)
    out, _ = accepted("compare", first)
    assert ("triplet accuracy" if kind == "triplets" else "judged nDCG") in out
    accepted("index", first, tmp_path / "img", "--out", tmp_path / "index")
    status, out, _ = contml("search", tmp_path / "index", tmp_path / "img" / "003.png")
    assert "003.png" in out
    assert "judgments" in refused("explore", first, "--export", tmp_path / "page")
    assert "judgments" in refused("audit", first)
    assert "judgments" in refused("predict", first, tmp_path / "img" / "003.png")
    accepted("train", "--resume", first)
    table = tmp_path / f"{kind}.csv"
    table.write_text(table.read_text().replace(",x,train", ",y,train").replace(",1,train", ",9,train"))
    assert "with another label" in refused("evaluate", first)
    assert contml("evaluate", first, "--accept-changes")[0] == 0
