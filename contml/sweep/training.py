"""The trainings of a sweep: in this process, or several at a time, each in a process of its own."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import shutil
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Literal

from contml._support.errors import InputError
from contml.config import difference, read
from contml.evaluation.results import Evaluation
from contml.experiment import Experiment, load, load_table, resume, train
from contml.runs import Run
from contml.sweep.trials import Training


@dataclass(frozen=True)
class Source:
    """What a sweep trains: the arguments of `contml train`."""

    config: str | None
    overrides: Sequence[str] = ()
    data: Path | None = None
    labels: Sequence[str] = ()
    image: str | None = None

    def load(self, changes: Sequence[str] = ()) -> Experiment:
        """The experiment, with more overrides."""
        overrides = [*self.overrides, *changes]
        if self.data is not None:
            return load_table(self.data, self.labels, self.image, self.config, overrides)
        if self.config is None:
            raise InputError("config", "missing", hint="name one, or give data")
        return load(self.config, overrides)

    def arguments(self, changes: Sequence[str] = ()) -> list[str]:
        """The arguments of `contml train` that load the same experiment."""
        config = [] if self.config is None else [self.config]
        data = [] if self.data is None else ["--data", str(self.data)]
        labels = [word for label in self.labels for word in ("--label", label)]
        image = [] if self.image is None else ["--image", self.image]
        return [*config, *data, *labels, *image, *self.overrides, *changes]


@dataclass(frozen=True)
class Job:
    """A training to do: `training` without its result, the run folder, and the overrides."""

    training: Training
    folder: Path
    changes: Sequence[str]


class _Refused(Exception):
    """An `InputError` before the first step of a training."""


def run_job(source: Source, job: Job) -> tuple[Training, bool]:
    """Train and evaluate on the validation split; go on with a training that was interrupted.

    Returns the result, and whether the training began: a refused config fails before.
    """
    start = time.monotonic()
    began = False

    def on_start(_: Run) -> None:
        nonlocal began
        began = True

    def failed(message: str) -> tuple[Training, bool]:
        return replace(job.training, error=message, seconds=round(time.monotonic() - start, 2)), began

    try:
        experiment = source.load(job.changes)
        if not _resumed(experiment, job.folder):
            shutil.rmtree(job.folder, ignore_errors=True)
            train(experiment, job.folder.parent, on_start=on_start, evaluate="val", folder=job.folder)
    except InputError as error:
        return failed(str(error))
    began = True
    saved = json.loads((job.folder / "evaluation.json").read_text(encoding="utf-8"))
