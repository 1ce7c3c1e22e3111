"""Real trainings of a sweep: killed, in several processes, without the test split."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support import sweeps
from support.refusals import refuses

from contml.app.trials.sweep import _Source, _train, _TrialTraining, sweep
from contml.runs import Run

TRIES = ["loss.margin=0.01,0.1,0.3", "optimizer.lr=1e-4..1e-1"]


@pytest.fixture
def folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    sweeps.config(tmp_path)
    return tmp_path


def test_the_test_split_is_not_read(folder):
    """Every image of the test split raises when it is read."""
    result = sweep("own.yaml", [], TRIES, trials=1)
    assert result.trials[0].results[0]["queries"] < 60  # of about 20 of 100 training items
    saved = json.loads((result.folder / "trial_000/evaluation.json").read_text())
    assert (saved["split"], saved["checkpoint"]) == ("val", "best")
    assert [path.name for path in result.folder.glob("**/*.safetensors")] == ["data.safetensors"]  # no weights
    assert not list(result.folder.glob("**/report.html"))


@pytest.mark.slow
def test_an_interrupted_training_is_resumed_and_one_of_other_options_begins_again(folder, monkeypatch):
    job = _TrialTraining(0, {}, 3, ["training.select=val", "training.epochs=3"], folder / "trial_000")
    source = _Source("own.yaml", [], None, [])
    whole = _train(source, job)["value"]
    begun = []
    monkeypatch.setattr("contml.app.trials.sweep.train", lambda *_, **__: begun.append(1))
    config = job.folder / "config.yaml"
    newer = config.read_text()
    config.write_text(newer.replace("  precision: auto\n", ""))  # begun before the option existed
    assert config.read_text() != newer
    assert _train(source, job)["value"] == whole
    assert not begun
    with pytest.raises(FileNotFoundError):
        _train(source, replace(job, changes=[*job.changes, "loss.margin=0.2"]))
    assert begun
    assert not job.folder.exists()


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_run_that_another_process_trains_is_not_removed(folder, processes):
    run = folder / "runs/own/sweep/trial_000"
    run.mkdir(parents=True)
    (run / "config.yaml").write_text("mine")
    with Run(run).lock(), refuses(str(Path("runs/own/sweep/trial_000")), "another process is training this run"):
        sweep("own.yaml", [], TRIES, trials=1, processes=processes)
    assert (run / "config.yaml").read_text() == "mine"
    assert not (folder / "runs/own/sweep/trials.jsonl").exists()


@pytest.mark.slow
def test_a_process_that_dies_is_not_a_failed_trial(folder):
    overrides = ["task=support.sweeps:failing_task", "task.dies=true"]
    with refuses("runs/own/sweep/trial_000", "a process died", hint="trial_000.log"):
        sweep("own.yaml", overrides, TRIES, trials=1, processes=2)
    assert not (folder / "runs/own/sweep/trials.jsonl").exists()
    with pytest.raises(RuntimeError, match="a bug"):
        sweep("own.yaml", [overrides[0], "task.dies=false"], TRIES, trials=1, processes=2, name="bug")
