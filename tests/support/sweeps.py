"""Sweeps: a task whose test images cannot be read, and trainings that take no time."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import signal
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from joblib import Parallel, delayed

from contml import work
from contml._support.errors import DivergedError
from contml.data import Task
from contml.data.sources import Pixels
from contml.evaluation.evaluated import Evaluated
from contml.evaluation.results import QueryValues
from contml.runs import create
from contml.training.trainer import Interrupted

from .fake_runs import poses
from .miniature import closed, squares

CONFIG = """
task: {name: "support.sweeps:task"}
model: {backbone: small_cnn, dim: 4}
images: {resize: 16, crop: 14}
transform: {scale_jitter: 1, shift: 1}
sampler: {name: dense, batch_size: 6, anchors_per_batch: 3, neighbours: 1, batches: 2}
loss: {name: dense_triplet, margin: 0.03}
optimizer: {name: adamw, lr: 0.002}
training: {epochs: 2, val_share: 0.2}
seed: 3
"""


def task(own_val: bool = False) -> Task:
    """Images with a bright square, labelled by its position. A test image cannot be read.

    Args:
        own_val: the data name a validation split.
    """
    test = squares(12, seed=1)
    test = replace(test, images=[Pixels(closed()) for _ in test.images])
    return Task(squares(100), test, squares(12, seed=2) if own_val else None)


def failing_task(dies: bool) -> Task:
    """A task that can be built only in the process of the sweep.

    Args:
        dies: another process ends without a message; else it raises.
    """
    if multiprocessing.parent_process() is not None:
        if dies:
            os._exit(9)
        raise RuntimeError("a bug")
    return task()


def config(folder: Path) -> str:
    """Write the config; returns its path."""
    (folder / "own.yaml").write_text(CONFIG)
    return str(folder / "own.yaml")


def share(margin, rate, seed):
    """A result that depends on all options, best at a margin of 0.12."""
    return 0.2 + (margin - 0.12) ** 2 + 0.01 * abs(math.log10(rate) + 2.5) + 0.003 * (7 * seed % 5)


class Trainings:
    """Stands for `train` of an experiment: the result is a function of the options. Counts the trainings.

    Attributes:
        done: the options of the trainings that were begun: margin, lr, seed.
        diverges: whether a training with this margin diverges.
        learns: whether a training with this margin improves on the initial weights.
        share: the result of a training, as a share of that of a random ranking, by margin, lr and seed.
        queries: whether a training keeps the metric of each query.
        stop_at: the number of the training that is interrupted.
    """

    def __init__(self) -> None:
        self.done: list[tuple[float, float, int]] = []
        self.diverges = lambda margin: False
        self.learns = lambda margin: True
        self.share = share
        self.queries = False
        self.stop_at = math.inf

    def train(self, experiment, root, *, split, folder):
        assert split == "val"
        values = experiment.values
        assert values["training"]["select"] == "val"
        run = create(root, experiment.name, folder)
        margin, rate = values["loss"].get("margin", 0.5), values["optimizer"]["lr"]
        seed = values["seed"]
        self.done.append((margin, rate, seed))
        (run.checkpoints / "last.safetensors").write_bytes(b"weights")
        if len(self.done) > self.stop_at:
            raise Interrupted("stopped by SIGINT")
        if self.diverges(margin):
            raise DivergedError("loss", "not finite in epoch 1: training diverged")
        run.config.write_text("seed: 0")
        evaluation = poses(self.share(margin, rate, seed))
        result = Evaluated(evaluation, "val", "best", 2 if self.learns(margin) else 0, 2)
        if self.queries:
            of_queries = evaluation.main.model + 100 * np.random.default_rng(0).normal(size=50)
            of_queries += evaluation.main.model - of_queries.mean()
            names = [f"query {number}" for number in range(50)]
            values = QueryValues.of(evaluation.headline, names, torch.from_numpy(of_queries))
            values.save(run.query_values("val"))
        (run.folder / "evaluation.json").write_text(json.dumps(result.to_dict()))
        return run


@contextmanager
def within(seconds: float):
    """Fail if the block takes longer: a call that waits for ever is interrupted."""

    def stop(*_):
        raise TimeoutError(f"not finished after {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def in_threads(monkeypatch):
    """Trainings run in threads, which stand for processes."""

    def run(items, function, results, processes, cluster, on_done, log):
        threads = Parallel(
            processes, backend="threading", return_as="generator_unordered", pre_dispatch="n_jobs", batch_size=1
        )
        for item, result in threads(delayed(lambda item: (item, function(item)))(item) for item in items):
            results.add(item.key, result)
            on_done(item)

    monkeypatch.setattr(work, "_run_by_joblib", run)
