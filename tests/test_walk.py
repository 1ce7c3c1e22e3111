"""The calls from file to loss that CONTRIBUTING lists are those of a training step, in order."""

from __future__ import annotations

import re
import sys

from support.paths import ROOT

from contml._support.progress import TrainingProgress
from contml.app.experiment import load

STEPS = 12


def listed_calls():
    """Returns (function, file) of each row of the table in CONTRIBUTING."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.split("## A batch from file to loss")[1].split("\n## ")[0]
    return re.findall(r"^\| `([\w.]+)[^`]*` \| `([^`]+)` \|", section, re.MULTILINE)


def test_a_training_step_makes_the_listed_calls_in_order():
    rows = listed_calls()
    assert 8 <= len(rows) <= STEPS
    changes = ["task.train=40", "task.test=210", "sampler.batches=1", "sampler.batch_size=12", "training.epochs=1"]
    experiment = load("pose/synthetic", [*changes, "sampler.anchors_per_batch=2"])
    trainer = experiment.build_trainer(experiment.build_task(), quiet=True)
    calls: list[tuple[str, str]] = []

    def record(frame, event, _):
        if event == "call":
            calls.append((frame.f_code.co_qualname, frame.f_code.co_filename))

    profiler = sys.getprofile()
    sys.setprofile(record)
    try:
        with TrainingProgress(1, 1, 0, silent=True) as progress:
            trainer._train_epoch(progress)
    finally:
        sys.setprofile(profiler)
    first = []
    for name, place in rows:
        function = name.rpartition(".")[2]
        part = place.strip("/").replace("<loss>", "log_ratio")
        names = [(qualified.rpartition(".")[2], file) for qualified, file in calls]
        found = [number for number, (name, file) in enumerate(names) if name == function and part in file]
        assert found, f"{name} of {place} is not called"
        first.append(found[0])
    assert first == sorted(first)
