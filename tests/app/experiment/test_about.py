"""What a report says of the run: from its config, its data record and `about.json`."""

import html
import json

import pytest
from support.miniature import small_trainer
from support.refusals import refuses
from support.runs import kill_at

import contml
from contml._support.text import duration
from contml.app.experiment.loading import load_run
from contml.app.experiment.run_results import brief_of, read_training
from contml.runs import Run, create


@pytest.fixture
def run(tiny_run):
    return Run(tiny_run)


def test_the_header_has_the_essentials(run):
    experiment, opened = load_run(run.folder)
    training = read_training(opened)
    data, network, parameters, loss, trained, version = brief_of(experiment, opened, 8)
    assert data.startswith("pose/synthetic: ")
    assert data.endswith(f"{len(experiment.build_task().test):,} test")
    assert training.parameters == sum(each.numel() for each in contml.load(run.folder).model.parameters())
    assert (network, parameters) == ("small_cnn, 8 dimensions", f"{training.parameters:,} parameters")
    assert (loss, trained) == ("loss log_ratio", f"trained {duration(training.seconds)} on {training.device}")
    assert version == f"contml {training.versions['contml']}"
    header = (run.folder / "report.html").read_text(encoding="utf-8").partition("<header>")[2].partition("</header>")[0]
    assert all(html.escape(each) in header for each in (data, network, parameters, loss, trained, version))
    assert opened.command == ""  # it was started from Python


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


def test_a_run_without_the_record_has_fewer_facts_and_a_damaged_one_is_refused(run):
    experiment, opened = load_run(run.folder)
    text = opened.about.read_text(encoding="utf-8")
    opened.about.unlink()
    assert len(brief_of(experiment, opened, 8)) == 3
    opened.about.write_text(json.dumps({**json.loads(text), "parameters": -1}), encoding="utf-8")
    with refuses(str(opened.about), got="cannot be read", hint="remove it"):
        brief_of(experiment, opened, 8)
    opened.about.write_text(text, encoding="utf-8")
