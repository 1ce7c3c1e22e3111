"""The file of a sweep, trials.jsonl: its spec, then one line per finished training. Trials are made from the lines."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from contml._support.errors import InputError
from contml.config import difference
from contml.evaluation.metrics import metric_of
from contml.sweep.space import Params
from contml.work import Lines

#: The key of the number of trials in a round.
ROUND = "trials in a round"
#: A message names at most so many differences between two specs.
_SHOWN = 3


@dataclass(frozen=True)
class TrainingResult:
    """One line of the file: a finished or failed training of a trial.

    Attributes:
        trial: the number of the trial, from 0.
        params: what the trial tries.
        seed: the seed of the training.
        fold: the fold that was left out for validation; None without --folds.
        value: the metric of the best weights on the validation split; None if the training failed.
        metric: the name of the metric, such as "label_distance@10".
        queries: the number of queries of the validation split.
        epoch: the epoch of the best weights.
        run: the run folder.
        seconds: how long it took; of a resumed training, the last part.
        error: why the training failed.
        untrained: whether the best weights are the initial ones.
    """

    trial: int
    params: Params
    seed: int
    fold: int | None
    value: float | None = None
    metric: str = ""
    queries: int = 0
    epoch: float = 0
    run: str = ""
    seconds: float = 0.0
    error: str = ""
    untrained: bool = False

    @property
    def key(self) -> str:
        """What distinguishes it from the other trainings of the sweep."""
        return key_of(self.trial, self.seed, self.fold)


def key_of(trial: int, seed: int, fold: int | None) -> str:
    """The key of a training."""
    return f"trial {trial}, seed {seed}, fold {fold}"


_TRAINING = TypeAdapter(TrainingResult)


@dataclass(frozen=True)
class Trial:
    """Values that were tried, and their trainings in order: all seeds of a fold after another."""

    number: int
    params: Params
    trainings: tuple[TrainingResult, ...]

    @property
    def values(self) -> list[float]:
        """The metric of each training."""
        return [training.value for training in self.trainings if training.value is not None]

    @property
    def error(self) -> str:
        """Why the trial failed: the message of its first failed training, or nothing."""
        return next((training.error for training in self.trainings if training.error), "")

    @property
    def untrained(self) -> int:
        """The number of trainings whose best weights are the initial ones."""
        return sum(training.untrained for training in self.trainings)

    @property
    def mean(self) -> float:
        """The mean over seeds and folds, by which the trial is judged; NaN if it failed."""
        return math.nan if self.error else statistics.fmean(self.values)

    @property
    def deviation(self) -> float:
        """The standard deviation over seeds and folds; NaN for a single training."""
        return statistics.stdev(self.values) if len(self.values) > 1 and not self.error else math.nan


class TrialsFile(Lines[TrainingResult]):
    """The lines of the file.

    Args:
        path: the file, created with the first line.
        spec: what the sweep is: its first line. A file keeps its number of trials in a round.
        written: the spec with the config as it was written, without defaults.

    Attributes:
        round_size: that number; None where trials do not come in rounds.

    Raises:
        InputError: the file belongs to another sweep, or has a broken line.
    """

    of = "a sweep"

    def __init__(self, path: Path, spec: Mapping[str, Any], written: Mapping[str, Any]) -> None:
        self.spec, self.written, self.round_size = spec, written, spec[ROUND]
        super().__init__(path, spec)

    def parse(self, row: dict[str, Any]) -> tuple[str, TrainingResult]:
        """The training of a line: of the right types, with all values that the sweep tries, a result or an error."""
        training = _TRAINING.validate_json(json.dumps(row), strict=True)
        finished = training.value is not None and math.isfinite(training.value)
        if (
            training.params.keys() != self.spec["space"].keys()
            or finished == bool(training.error)
            or training.trial < 0
        ):
            raise ValueError
        return training.key, training

    def row(self, key: str, value: TrainingResult) -> Mapping[str, Any]:  # noqa: ARG002
        """The line of a training."""
        return asdict(value)

    def check_head(self, stored: dict[str, Any]) -> None:
        """Compare the spec of the file with that of the command; take over its number of trials in a round."""
        size, spec = stored.get(ROUND), self.spec
        if spec[ROUND] is not None and type(size) is int and size > 0:
            spec = {**spec, ROUND: size}
        if changes := [change.removeprefix("config.") for change in difference(stored, spec, self.written)]:
            more = f"; and {len(changes) - _SHOWN} more" if len(changes) > _SHOWN else ""
            got = f"belongs to another sweep ({'; '.join(changes[:_SHOWN])}{more})"
            raise InputError(str(self.path), got, hint="repeat the command that began it, or choose another --name")
        self.round_size = size

    def check(self, value: TrainingResult) -> None:
        """All trainings are judged by one metric; unreadable images make a smaller gallery, with another."""
        metric = next((training.metric for training in self.values() if training.metric), "")
        if value.metric and metric not in ("", value.metric):
            got = f"judged by {value.metric}, the trainings before it by {metric}"
            raise InputError(value.run, got, hint="repair the images that could not be read, or use --name")


def stored_spec(path: Path) -> Mapping[str, Any]:
    """The first line of a file: what a sweep that goes on was begun with; empty without a file."""
    spec_line, line_end, _ = path.read_bytes().partition(b"\n") if path.exists() else (b"", b"", b"")
    try:
        spec = json.loads(spec_line) if line_end else {}
    except (ValueError, RecursionError):  # `TrialsFile` refuses it
        return {}
    return spec if isinstance(spec, dict) else {}


def ranked(trials: Sequence[Trial]) -> list[Trial]:
    """The trials from best to worst; equal ones in order; failed ones last."""
    sign = 1 if better(trials) == "lower" else -1
    return sorted(trials, key=lambda trial: (bool(trial.error), 0.0 if trial.error else sign * trial.mean))


def metric(trials: Sequence[Trial]) -> str:
    """The name of the metric; nothing if all trials failed."""
    return next((training.metric for trial in trials for training in trial.trainings if training.metric), "")


def better(trials: Sequence[Trial]) -> str:
    """Whether a "lower" or a "higher" value of the metric is better."""
    name = metric(trials)
    return metric_of(name).better if name else "lower"
