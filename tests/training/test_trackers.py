"""Trackers: what a training logs is also in TensorBoard or Weights & Biases, once, in one log over all sessions."""

import importlib.util
import json
import math

import pytest
from support.miniature import TINY, fitted, small_trainer, squares
from support.processes import run_connected
from support.refusals import refuses
from support.runs import kill_at

from contml.app.experiment import load, train
from contml.app.experiment.building import Experiment
from contml.runs import Run, create
from contml.training import Training
from contml.training.trackers import RunLog

MISSING = importlib.util.find_spec("tensorboard") is None
tensorboard = pytest.mark.skipif(MISSING, reason="tensorboard is not installed")
#: TensorBoard and its packages still use what others deprecate.
quiet = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")


def scalars(folder):
    """The values of each scalar by its steps, as TensorBoard shows them; a step that is there twice fails."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log = EventAccumulator(str(folder / "tensorboard"))
    log.Reload()
    found = {}
    for tag in log.Tags()["scalars"]:
        steps = [event.step for event in log.Scalars(tag)]
        assert len(set(steps)) == len(steps), tag
        found[tag] = {event.step: event.value for event in log.Scalars(tag)}
    return found


def logged(run, event, name):
    """The values of a number in metrics.jsonl by their steps."""
    return {row["step"]: row[name] for row in run.rows() if row["event"] == event}


def same(found, expected):
    assert found.keys() == expected.keys()
    assert all(math.isclose(found[step], expected[step], rel_tol=1e-6) for step in expected)


@tensorboard
@quiet
@pytest.mark.slow
@pytest.mark.usefixtures("no_reports")
def test_tensorboard_has_the_metrics_the_options_and_the_result(tmp_path):
    run = train(load("pose/synthetic", [*TINY, "training.tracker=tensorboard"]), tmp_path)
    found = scalars(run.folder)
    same(found["train/loss"], logged(run, "train", "loss"))
    same(found["train/learning_rate"], logged(run, "train", "learning_rate"))
    headline = next(row["metric"] for row in run.rows() if row["event"] == "evaluation")
    same(found[f"val/{headline}"], logged(run, "evaluation", headline))
    evaluation = json.loads(run.evaluation().read_text())
    k = int(headline.partition("@")[2])
    (value,) = found[f"result_test/{headline}"].values()
    assert value == pytest.approx(evaluation["curves"]["label_distance"]["model"][k - 1], rel=1e-6)
    (options,) = (run.folder / "tensorboard").glob("*/hparams.yml")
    assert "loss.name: log_ratio" in options.read_text()


@tensorboard
@quiet
def test_a_resumed_run_goes_on_in_the_same_log(tmp_path):
    run = create(tmp_path, "run")
    run.config.write_text("")
    options = {"tracker": "tensorboard", "val": squares(12, seed=2), "checkpoint_minutes": 0.03}
    kill_at(small_trainer(run, **options), 1, 2)
    resumed = fitted(small_trainer(run, **options), resume=True)
    resumed.log.close()
    found = scalars(run.folder)
    same(found["train/loss"], logged(run, "train", "loss"))
    assert len(found["train/loss"]) == resumed.total_steps
    assert len([*(run.folder / "tensorboard").glob("*/hparams.yml")]) == 1  # the options are not logged again


@quiet
def test_wandb_works_offline_and_a_resumed_run_keeps_its_id(tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="wandb is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = create(tmp_path, "run")
    run.config.write_text("")
    ids = []
    for step in (None, 4):
        log = RunLog("wandb")
        log.open(run, {"loss": {"name": "log_ratio"}}, step=step)
        log.add("train", 0.5, 5, loss=0.25)
        log.add("train", 0.6, 6, loss=0.125)  # W&B takes the values of a step when the next one begins
        ids.append(log._tracker.run.id)
        assert log._tracker.run.summary["train/loss"] == 0.25
        log.close()
    assert ids[0] == ids[1]
    assert all(ids[0] in folder.name for folder in (run.folder / "wandb").glob("offline-run-*"))


def test_a_missing_package_is_one_line_before_data_are_read(monkeypatch, tmp_path):
    monkeypatch.setattr("contml.training.trackers.find_spec", lambda _: None)
    monkeypatch.setattr(Experiment, "build_task", lambda _: pytest.fail("data are read"))
    for name in ("tensorboard", "wandb"):
        experiment = load("pose/synthetic", [*TINY, f"training.tracker={name}"])
        with refuses("training.tracker", got=f"{name} is not installed", hint=f"pip install {name}"):
            train(experiment, tmp_path)
    assert not any(tmp_path.iterdir())


def test_a_tracker_that_does_not_start_is_one_line(monkeypatch, tmp_path):
    def failing(_):
        raise OSError("no login\nat all")

    monkeypatch.setattr("contml.training.trackers.find_spec", lambda _: True)
    monkeypatch.setattr("accelerate.tracking.WandBTracker.start", failing)
    run = create(tmp_path, "run")
    run.config.write_text("")
    with refuses("tracker", got="wandb does not start (no login at all)", hint="WANDB_MODE=offline"):
        RunLog("wandb").open(run, {}, step=None)


def test_nothing_is_tracked_unless_it_is_asked_for(tmp_path):
    assert Training().tracker is None
    run = create(tmp_path, "run")
    trainer = fitted(small_trainer(run))
    assert not (run.folder / "tensorboard").exists()
    names = {"event", "epoch", "step", "loss", "learning_rate", "images_per_second"}
    assert all(set(row) == names for row in run.rows() if row["event"] == "train")
    assert trainer.seconds > 0


@tensorboard
@pytest.mark.slow
def test_several_processes_log_once(tmp_path):
    run = create(tmp_path, "run")
    run.config.write_text("")
    script = f"""
from pathlib import Path
from support.miniature import *
from contml.runs import Run
trainer = small_trainer(Run(Path({str(run.folder)!r})), tracker="tensorboard")
trainer.fit()
trainer.log.close()
"""
    run_connected(script, 300)
    assert len([*(run.folder / "tensorboard").glob("events.*")]) == 1
    same(scalars(run.folder)["train/loss"], logged(Run(run.folder), "train", "loss"))
