"""What a report says of the run: from its config, its data record and `about.json`."""

from __future__ import annotations

import html
import json
import shlex

import pytest
from support.miniature import TINY, small_trainer
from support.refusals import refuses
from support.runs import kill_at

import contml
from contml._support.text import duration
from contml.app.experiment import load
from contml.app.experiment.loading import load_run
from contml.app.experiment.run_results import brief_of, facts_of, ideal_of, read_training, usage_of
from contml.runs import Run, create, open_run


@pytest.fixture
def run(tiny_run):
    return Run(tiny_run)


def test_the_facts_are_those_of_the_run(run):
    experiment, opened = load_run(run.folder)
    facts, training = dict(facts_of(experiment, opened, 8)), read_training(opened)
    model = contml.load(run.folder).model
    assert training.parameters == sum(each.numel() for each in model.parameters())
    assert facts["Parameters"] == f"{training.parameters:,}"
    assert f"contml {training.versions['contml']}" in facts["Versions"]
    assert facts["Data"].startswith("pose/synthetic: ")
    assert facts["Data"].endswith(f"{len(experiment.build_task().test):,} test")
    assert facts["Loss"].startswith("log_ratio (squared: true")
    assert facts["Same training"].endswith("config.yaml")
    assert ideal_of(experiment) == 1
    assert ideal_of(load("classes/synthetic", [])) is None
    page = (run.folder / "report.html").read_text(encoding="utf-8")
    for value in (facts["Parameters"], facts["Backbone"], facts["Device"]):
        assert value in page


def test_the_header_has_the_essentials(run):
    experiment, opened = load_run(run.folder)
    training = read_training(opened)
    data, network, parameters, loss, trained, version = brief_of(experiment, opened, 8)
    assert data == dict(facts_of(experiment, opened, 8))["Data"]
    assert network == "small_cnn, 8 dimensions"
    assert parameters == f"{training.parameters:,} parameters"
    assert loss == "loss log_ratio"
    assert trained == f"trained {duration(training.seconds)} on {training.device}"
    assert version == f"contml {training.versions['contml']}"
    page = (run.folder / "report.html").read_text(encoding="utf-8")
    header = page.partition("<header>")[2].partition("</header>")[0]
    assert all(html.escape(each) in header for each in (data, network, parameters, loss, trained, version))
    assert "contml.load(" in page
    assert opened.command == ""  # it was started from Python


def test_the_command_that_was_typed_is_in_the_report(contml, tmp_path):
    arguments = ["train", "pose/synthetic", *TINY, "training.epochs=0", "--name", "it's <b>"]
    status, _, err = contml(*arguments)
    assert status == 0, err
    folder = tmp_path / "runs/pose/synthetic/it's <b>"
    command = shlex.join(["contml", *arguments])
    assert open_run(folder).command == command
    assert html.escape(command) in (folder / "report.html").read_text(encoding="utf-8").replace(
        "&#34;", "&quot;"
    ).replace("&#39;", "&#x27;")
    assert open_run(folder).name == "pose/synthetic"


def test_the_time_of_a_training_is_that_of_all_its_sessions(tmp_path, monkeypatch):
    now = iter(range(0, 10**6, 10))  # each look at the clock is ten seconds later
    monkeypatch.setattr("contml.training.trainer.time.monotonic", lambda: float(next(now)))
    run = create(tmp_path, "run")
    kill_at(small_trainer(run), 1, 2)
    resumed = small_trainer(run)
    resumed.resume()
    before = resumed.seconds
    assert before > 0
    resumed.fit()
    assert resumed.seconds > before
    last = small_trainer(run)
    last.resume()
    assert last.seconds == resumed.seconds


def test_the_lines_of_code_use_the_model(run):
    experiment, _ = load_run(run.folder)
    names = {}
    exec("\n".join(usage_of(experiment, run.folder).splitlines()[:2]), names)
    assert names["model"].embedding_dim == experiment.values["model"]["dim"]


def test_a_run_without_the_record_has_fewer_facts_and_a_damaged_one_is_refused(run):
    experiment, opened = load_run(run.folder)
    text = opened.about.read_text(encoding="utf-8")
    opened.about.unlink()
    assert not {"Parameters", "Device", "Versions"} & dict(facts_of(experiment, opened, 8)).keys()
    opened.about.write_text(json.dumps({**json.loads(text), "parameters": -1}), encoding="utf-8")
    with refuses(str(opened.about), got="cannot be read", hint="remove it"):
        facts_of(experiment, opened, 8)
    opened.about.write_text(text, encoding="utf-8")
