"""Runs on judgments: check, train, evaluate, report, compare, sweep, index, search; what needs labels is refused."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from support.refusals import refuses
from support.tables import write_judgments

from contml.app import experiment
from contml.app.audit import audit_run, draw_folds
from contml.app.experiment import load, read_evaluation
from contml.evaluation.results import QueryValues
from contml.training import Trainer

SHORT = [
    *("images.workers=0", "images.resize=32", "images.crop=32", "transform.scale_jitter=2", "transform.shift=1"),
    *("model.dim=8", "sampler.batch_size=10", "training.epochs=2", "training.evaluate_every=1"),
]


@pytest.fixture
def short(tmp_path):
    """The arguments of a training on 50 images with judgments, in its folder."""
    write_judgments(tmp_path)
    return {
        kind: [f"table/{kind}", f"task.data={tmp_path}/{kind}.csv", *SHORT, "--runs", tmp_path / "runs"]
        for kind in ("triplets", "rankings")
    }


@pytest.mark.parametrize("kind", ["triplets", "rankings"])
def test_commands_on_a_run(contml, refused, short, tmp_path, kind):
    words = short[kind]
    status, out, err = contml("check", *words[:-2])
    assert status == 0
    assert f"{'30 triplets' if kind == 'triplets' else '10 queries'}" in out + err
    for name, options in (("a", []), ("b", ["training.epochs=0"])):
        status, out, err = contml("train", *words, *options, "--name", name)
        assert (status, "report" in out) == (0, True), err
    first, second = (tmp_path / "runs" / words[0] / name for name in "ab")
    evaluated = read_evaluation(experiment.load_run(first)[1])
    assert evaluated.evaluation.kind == kind
    assert evaluated.evaluation.intervals.keys() == evaluated.evaluation.scores.keys()
    page = (first / "report.html").read_text()
    assert ("Which is nearer?" in page) == (kind == "triplets")
    assert "95 % interval" in page
    lines = (first / "queries.csv").read_text().splitlines()
    assert len(lines) == 1 + (6 if kind == "triplets" else 8)
    before = (first / "evaluation.json").read_bytes()
    status, out, _ = contml("evaluate", first, "--json")
    assert json.loads(out)["kind"] == kind
    assert (first / "evaluation.json").read_bytes() == before
    values = QueryValues.read(experiment.load_run(first)[1].query_values("test"))
    assert (values.items is not None) == (kind == "triplets")
    assert len(values.values) == evaluated.evaluation.queries
    status, _, _ = contml("report", first)
    assert status == 0
    status, out, err = contml("compare", first, second)
    assert status == 0
    assert ("triplet accuracy" if kind == "triplets" else "judged nDCG") in out
    status, _, _ = contml("index", first, tmp_path / "img", "--out", tmp_path / "index")
    assert status == 0
    status, out, _ = contml("search", tmp_path / "index", tmp_path / "img" / "003.png")
    assert "003.png" in out
    assert "judgments" in refused("explore", first, "--export", tmp_path / "page")
    assert "labels" in refused("report", first, "--pair", "1", "2")
    line = refused("predict", first, tmp_path / "img" / "003.png")
    assert "judgments" in line
    status, _, err = contml("train", "--resume", first)
    assert status == 0
    table = tmp_path / f"{kind}.csv"
    table.write_text(table.read_text().replace(",x,train", ",y,train").replace(",1,train", ",9,train"))
    assert "with another label" in refused("evaluate", first)
    assert contml("evaluate", first, "--accept-changes")[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "roles", "judgments"),
    [("triplets", "anchor,x,y", 24), ("rankings", "query,item", 32), ("pairs", "a,b", 40)],
)
def test_an_audit_scores_the_judgments(contml, refused, tmp_path, no_reports, kind, roles, judgments):
    write_judgments(tmp_path)
    words = [f"table/{kind}", f"task.data={tmp_path}/{kind}.csv", *SHORT, "--runs", tmp_path / "runs"]
    status, _, err = contml("train", *words, "--name", "a", "training.select=none")
    assert status == 0, err
    run = tmp_path / "runs" / "table" / kind / "a"
    status, out, err = contml("audit", run, "--folds", 2, "--top", 7)
    assert status == 0, err
    assert "training 2 of 2 networks, each without one of 2 parts of the training judgments" in err
    assert f"the 7 judgments with the highest scores of {judgments}" in out
    with (run / "audit/train.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert ",".join(rows[0]).startswith(f"{roles},score,judged,predicted,judgments,others_differ")
    scores = [float(row["score"]) for row in rows]
    assert scores == sorted(scores, reverse=True)
    assert len(rows) == 7
    with (tmp_path / f"{kind}.csv").open(newline="", encoding="utf-8") as file:
        given = list(csv.DictReader(file))
    items = {Path(rows[0][role]).name for role in roles.split(",")}
    (original,) = (line for line in given if {Path(line[role]).name for role in roles.split(",")} == items)
    if kind == "triplets":
        assert Path(original[original["choice"]]).name == Path(rows[0]["judged"]).name
    elif kind == "pairs":
        assert float(rows[0]["judged"]) == max(float(line["score"]) for line in given) - float(original["score"])
    else:
        assert float(rows[0]["judged"]) == float(original["grade"])
    page = (run / "audit/train.html").read_text(encoding="utf-8")
    assert page.count('<div class="query">') == 7
    assert "2 networks, each judgment by the one that was not trained on it" in page
    assert rows[0][roles.partition(",")[0]] in page
    again = contml("audit", run, "--folds", 2)
    assert "training" not in again[2]  # the networks are kept
    status, out, err = contml("audit", run, "--split", "test", "--out", "mine.csv")
    assert (status, "training" in err) == (0, False)
    assert contml("audit", run, "--split", "test", "--out", "mine.csv")[0] == 0  # complete already
    assert "omit it" in refused("audit", run, "--neighbours", 3)
    assert "must be 2 to" in refused("audit", run, "--folds", 99)


@pytest.mark.slow
def test_each_judgment_is_scored_by_a_network_without_it(tmp_path, no_reports, monkeypatch):
    write_judgments(tmp_path)
    config = load("table/triplets", [f"task.data={tmp_path}/triplets.csv", *SHORT, "training.select=none"])
    run = experiment.train(config, tmp_path / "runs")
    seen, fit = [], Trainer.fit

    def noted(trainer):
        labels, names = trainer.split.labels, trainer.split.names
        seen.append(set(labels.judgment_names(names)))
        fit(trainer)

    monkeypatch.setattr(Trainer, "fit", noted)
    found = audit_run(run.folder, folds=3)
    keys = found.split.labels.judgment_names(found.split.names)
    folds = draw_folds(keys, 3).tolist()
    assert len(seen) == 3
    for fold, known in enumerate(seen):
        assert known == {key for key, other in zip(keys, folds, strict=True) if other != fold}


def test_a_sweep_chooses_by_the_judgments_of_validation(contml, short, tmp_path, no_reports):
    words = [*short["triplets"][:-2], "--runs", tmp_path / "sweeps"]
    status, out, err = contml("sweep", *words, "--try", "step.temperature=0.05,0.5")
    assert status == 0, err
    assert "triplet accuracy" in out


@pytest.mark.parametrize(
    ("kind", "change", "subject", "got"),
    [
        ("triplets", "sampler={name: uniform, batch_size: 10}", "sampler", "step triplets learns from judgments"),
        ("triplets", "loss={name: log_ratio}", "loss", "step triplets does not use it"),
        ("triplets", "memory={size: 100}", "memory", "step triplets does not use it"),
        ("rankings", "memory={size: 100}", "memory", "step rankings does not use it"),
        ("rankings", "regularizer={name: rank_sim}", "regularizer", "step rankings does not use it"),
        ("rankings", "binarize={name: nearest, k: 2}", "binarize", "step rankings does not use it"),
    ],
)
def test_sections_that_a_step_for_judgments_does_not_use_are_refused(kind, change, subject, got):
    with refuses(subject, got=got):
        load(f"table/{kind}", ["task.data=t.csv", change])


def test_judgments_and_steps_of_another_kind_are_refused_before_training(short, tmp_path):
    def check(kind, *changes):
        experiment.check(load(short[kind][0], [*short[kind][1:-2], *changes]))

    with refuses("RankingStep", got="judgments of triplets", hint="step=triplets"):
        check("rankings", f"task.data={tmp_path}/triplets.csv")
    with refuses("TripletStep", got="judged lists", hint="step=rankings"):
        check("triplets", f"task.data={tmp_path}/rankings.csv")
    with refuses("loss log_ratio", got="judged lists", hint="step=rankings"):
        check("rankings", "step={name: embedding}", "loss={name: log_ratio}")
    with refuses("LogRatioLoss", got="grades"):
        check("rankings", "loss={name: log_ratio}")
    with refuses("MultiSimilarityLoss", got="graded labels"):
        check("rankings", "loss={name: multi_similarity}")


@pytest.mark.slow
def test_a_resumed_run_equals_one_that_was_not_stopped(short, tmp_path, no_reports):
    from safetensors.torch import load_file
    from support.miniature import assert_equal
    from support.runs import Killed

    config = load(short["triplets"][0], [*short["triplets"][1:-2], "training.checkpoint_minutes=0.0001"])
    whole = experiment.train(config, tmp_path / "whole")
    from contml.sampling import JudgedSampler

    original, calls = JudgedSampler.batch, []

    def batch(self, epoch, step):
        calls.append((epoch, step))
        if (epoch, step) == (1, 3):
            raise Killed
        return original(self, epoch, step)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JudgedSampler, "batch", batch)
        with pytest.raises(Killed):
            experiment.train(config, tmp_path / "killed", folder=tmp_path / "killed" / "run")
    resumed = experiment.resume(tmp_path / "killed" / "run")
    for name in ("last", "best"):
        a, b = (load_file(run.checkpoints / f"{name}.safetensors") for run in (whole, resumed))
        assert_equal(a, b)
