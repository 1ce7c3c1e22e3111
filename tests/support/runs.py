"""A small config of squares, trainings that are killed, in two processes, and without a report."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch

from contml.app.experiment import load
from contml.app.experiment.captioner_run import CaptionResults
from contml.app.experiment.run_results import RetrievalResults
from contml.data import Task
from contml.labels import ClassLabels
from contml.runs import create

from .miniature import squares
from .processes import run_connected

CONFIG = """
task: {name: "support.runs:squares_task", classes: %(classes)s}
model: {backbone: small_cnn, dim: 4}
images: {resize: 32, crop: 32}
transform: {scale_jitter: 1, shift: 1}
sampler: %(sampler)s
training: {epochs: 2, evaluate_every: 2, checkpoint_minutes: 0.0}
optimizer: {name: adamw, loss_lr: 0.1}
seed: 3
"""


def squares_task(classes: bool = True) -> Task:
    """Images with a bright square. The label is its place, or the class of its place.

    Args:
        classes: label by class.
    """
    splits = [squares(24), squares(12, seed=1)]
    if classes:
        splits = [replace(split, labels=ClassLabels(split.labels.values[:, 0].long() // 4 + 10)) for split in splits]
    return Task(*splits)


def from_text(folder, classes, parts, *overrides):
    dense = "{name: dense, batch_size: 6, anchors_per_batch: 3, neighbours: 1, batches: 3}"
    sampler = "{name: classes, classes: 3, instances: 2, batches: 3}" if classes else dense
    path = folder / "own.yaml"
    path.write_text(CONFIG % {"classes": str(classes).lower(), "sampler": sampler} + parts + "\n")
    return load(str(path), overrides)


class Killed(BaseException):
    """Stands for SIGKILL: nothing of ours may catch it."""


def kill_at(trainer, epoch, step):
    """Train until the batch of this epoch and step is needed, and stop as if killed."""
    batch = trainer.sampler.batch

    def batch_or_die(*position):
        if position == (epoch, step):
            raise Killed
        return batch(*position)

    trainer.sampler.batch = batch_or_die
    with pytest.raises(Killed):
        trainer.fit()


def whole_state(trainer):
    """Every tensor of model, step and best weights."""
    parts = {"model": trainer.bare_model.state_dict(), "step": trainer.training_step.state_dict()}
    if trainer.best is not None:
        parts["best"] = trainer.best.weights or {}
    return {f"{name}.{key}": value.clone() for name, part in parts.items() for key, value in part.items()}


def without_speed(run):
    """The rows of metrics of a run, without what depends on the machine."""
    return [{key: value for key, value in row.items() if key != "images_per_second"} for row in run.rows()]


def assert_resumes(make, folder, *positions):
    """Trainings that are killed at each (epoch, step) and resumed end as one that was not, to the bit, metrics too.

    make: a function of a run that returns a trainer, which saves its state after each step. Returns the whole training.
    """
    whole = make(create(folder, "whole"))
    start = whole_state(whole)
    whole.fit()
    expected = whole_state(whole)
    assert any(not torch.equal(value, start[key]) for key, value in expected.items() if key in start)
    for position in positions:
        run = create(folder, "killed")
        kill_at(make(run), *position)
        resumed = make(run)
        resumed.resume()
        assert (resumed.epoch, resumed.step) == position
        resumed.fit()
        found = whole_state(resumed)
        assert found.keys() == expected.keys()
        assert [key for key, value in expected.items() if not torch.equal(found[key], value)] == []
        assert without_speed(run) == without_speed(whole.run)
        if whole.best is not None:
            assert resumed.best.summary() == whole.best.summary()
    return whole


def of_two_processes(function, *arguments):
    """What a function of a test file returns in each of two connected processes. Its arguments are literals."""
    name = function.__name__
    with TemporaryDirectory() as folder:
        result = f"torch.save({name}(*{arguments!r}), os.path.join({folder!r}, os.environ['RANK']))"
        run_connected(f"import os, torch; from {function.__module__} import {name}; {result}", seconds=300)
        return [torch.load(Path(folder, rank)) for rank in "01"]


@contextmanager
def without_reports():
    """No run writes a report, which takes ten times as long as a small training. For tests that look at no report."""
    with pytest.MonkeyPatch.context() as patch:
        for evaluator in (RetrievalResults, CaptionResults):
            patch.setattr(evaluator, "report", lambda _, run, *__, **___: run.folder / "report.html")
        yield
