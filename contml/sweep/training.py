"""The trainings of a sweep."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from contml._support.errors import InputError
from contml.config import difference, read
from contml.evaluation.evaluated import Evaluated
from contml.experiment import Experiment, OwnData, load, load_table, resume, train
from contml.runs import Run
from contml.sweep.space import overrides_of
from contml.sweep.trials import TrainingResult


@dataclass(frozen=True)
class Source:
    """What a sweep trains: the arguments of `contml train`."""

    config: str | None
    overrides: Sequence[str] = ()
    own: OwnData | None = None

    def load(self, changes: Sequence[str] = ()) -> Experiment:
        """The experiment, with more overrides."""
        overrides = [*self.overrides, *changes]
        if self.own is not None:
            return load_table(self.own, self.config, overrides)
        if self.config is None:
            raise InputError("config", "missing", hint="name a config, or give data")
        return load(self.config, overrides)

    def arguments(self, changes: Sequence[str] = ()) -> list[str]:
        """The arguments of `contml train` that load the same experiment."""
        config = [] if self.config is None else [self.config]
        data_arguments = [] if self.own is None else self.own.arguments()
        return [*config, *data_arguments, *self.overrides, *changes]


@dataclass(frozen=True)
class Job:
    """A training to do: `training` without its result, the run folder, and the overrides.

    Attributes:
        is_first: whether it is the first training: if its options do not fit the data, the sweep ends.
    """

    training: TrainingResult
    folder: Path
    changes: Sequence[str]
    is_first: bool = False

    def __str__(self) -> str:
        return str(self.folder)

    @property
    def key(self) -> str:
        """The key of the training."""
        return self.training.key

    @property
    def log(self) -> Path:
        """The file for what another process prints."""
        return self.folder.with_name(f"{self.folder.name}.log")


def run_job(source: Source, job: Job) -> TrainingResult:
    """Train, and evaluate the best weights on the validation split; resume a training that was interrupted.

    Raises:
        InputError: another process trains in this folder, or the first training of the sweep could not begin. Other
            errors are in the result.
    """
    start = time.monotonic()
    began: list[object] = []
    if job.folder.is_dir():
        with Run(job.folder).lock():  # raises if the training of another sweep has not ended yet
            pass
    try:
        experiment = source.load(job.changes)
        if _resumed(experiment, job.folder):
            began.append(job)
        else:
            shutil.rmtree(job.folder, ignore_errors=True)
            train(experiment, job.folder.parent, on_start=began.append, split="val", folder=job.folder)
        evaluated = Evaluated.read(Run(job.folder).evaluation())
        metric, value = evaluated.evaluation.headline, evaluated.evaluation.main.model
        if not math.isfinite(value):
            raise InputError(metric, str(value), hint="no query of the validation split can be evaluated")
    except InputError as error:
        if job.is_first and not began:
            params = " ".join(overrides_of(job.training.params))
            raise InputError(f"trial {job.training.trial} ({params})", str(error)) from None
        return replace(job.training, error=str(error), seconds=_since(start))
    return replace(
        job.training,
        value=value,
        metric=metric,
        queries=evaluated.evaluation.queries,
        epoch=evaluated.epoch,
        untrained=bool(evaluated.untrained),
        run=job.folder.as_posix(),
        seconds=_since(start),
    )


def _since(start: float) -> float:
    return round(time.monotonic() - start, 1)


def _resumed(experiment: Experiment, folder: Path) -> bool:
    """Resume an interrupted training of the same config; False if there is none, or if it cannot be resumed."""
    config = folder / "config.yaml"
    if not (config.exists() and (folder / "checkpoints" / "state.safetensors").exists()):
        return False
    if difference(read(config).values, experiment.values, experiment.document.values):  # left by another sweep
        return False
    try:
        resume(folder, trust=True, split="val")
    except InputError:
        return False
    return True
