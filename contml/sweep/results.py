"""The result of a sweep: its trials from best to worst, the chosen values, and how sure the choice is."""

from __future__ import annotations

import math
import shlex
import statistics
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from contml._support.errors import InputError
from contml._support.text import MISSING, number
from contml.compare.verdict import Key, SettingResult, Verdict, verdict
from contml.contracts import PLAIN, Measure
from contml.evaluation.evaluated import epoch_text
from contml.evaluation.metrics import measure_of, title_of
from contml.evaluation.query_values import QueryValues
from contml.evaluation.table import value_text
from contml.runs import Run
from contml.sweep.space import Params, Space, overrides_of
from contml.sweep.trials import TrainingResult, Trial, better, metric


@dataclass(frozen=True)
class Sweep:
    """The result of a sweep.

    Attributes:
        folder: the folder of the sweep, with the run folders of its trials.
        file: the file of its trainings.
        space: what was tried.
        trials: all trials, from best to worst; failed ones last.
        arguments: the arguments of `contml train` without the chosen values.
        notes: what to know about the trials.
        measure: how label distances are printed.
    """

    folder: Path
    file: Path
    space: Space
    trials: tuple[Trial, ...]
    arguments: tuple[str, ...]
    notes: tuple[str, ...] = ()
    measure: Measure = PLAIN

    @property
    def metric(self) -> str:
        """The metric that judged the trials: "label_distance@10" or "recall@1", of the validation split."""
        return metric(self.trials)

    @property
    def unit(self) -> Measure:
        """How values of the metric are printed."""
        return measure_of(self.metric, self.measure) or PLAIN

    @property
    def better(self) -> str:
        """Whether a "lower" or a "higher" value is better."""
        return better(self.trials)

    @cached_property
    def verdict(self) -> Verdict:
        """Which of the trials that did not fail is the best, and how sure this is."""
        results = [self._result(trial) for trial in self.trials if not trial.error]
        return verdict(results, title_of(self.metric), self.better, self.unit)

    @property
    def chosen(self) -> Trial | None:
        """The trial with the best mean, of equal ones the first; None if the trials are no reason to choose one."""
        return None if self._nothing_chosen else self.trials[0]

    @property
    def params(self) -> Params | None:
        """The chosen values by key; None if nothing is chosen."""
        return None if self.chosen is None else self.chosen.params

    @property
    def command(self) -> str | None:
        """The command that trains the chosen values; None if nothing is chosen."""
        if self.chosen is None:
            return None
        return shlex.join(["contml", "train", *self.arguments, *overrides_of(self.chosen.params)])

    def table(self) -> list[list[str]]:
        """The trials as rows of text, a header first."""
        keys = [dimension.key for dimension in self.space]
        is_averaged = len(self.trials[0].trainings) > 1
        name = "mean" if is_averaged else self.metric.replace("_", " ")
        title = f"{name}, {self.unit.distance_unit}" if self.unit.distance_unit else name
        rows = [["trial", *keys, "epoch", title, *(["std"] if is_averaged else [])]]
        for trial in self.trials:
            cells = [str(trial.number), *(value_text(trial.params[key]) for key in keys)]
            if trial.error:
                cells += [MISSING, "failed", *([MISSING] if is_averaged else [])]
            else:
                cells.append(epoch_text([training.epoch for training in trial.trainings], trial.untrained))
                cells.append(self.unit.text(trial.mean, unit=False))
                deviation = statistics.stdev(map(self.unit.of, trial.values)) if is_averaged else math.nan
                cells += [number(deviation)] if is_averaged else []
            rows.append(cells)
        return rows

    def sentences(self) -> list[str]:
        """What was chosen, and how sure this is; why trials failed."""
        first = self.trials[0]
        count = len(first.trainings)
        queries = sorted({training.queries for training in first.trainings})
        mean_note = f", mean of {count} trainings" if count > 1 else ""
        size = f"{queries[0]:,}" if len(queries) == 1 else f"{queries[0]:,} to {queries[-1]:,}"
        name = self.metric.replace("_", " ")
        if self._nothing_chosen:
            lines = [f"nothing is chosen: {self._nothing_chosen}"]
        else:
            lines = [
                f"chosen: trial {first.number}, {' '.join(overrides_of(first.params))}: {name} "
                f"{self.unit.text(first.mean)} on the validation split ({self.better} is better; "
                f"{size} queries{mean_note})"
            ]
            lines += [self.verdict.sentence] if self.verdict.sentence else []
            if count == 1 and self.verdict.best is not None:
                lines.append("each trial is one training: --seeds 3 shows whether the difference is more than chance")
        failed = [trial for trial in self.trials if trial.error]
        lines += [f"trial {trial.number} failed: {trial.error}" for trial in failed]
        return lines

    def as_data(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        second = self.verdict.second
        return {
            "metric": self.metric,
            "better": self.better,
            "trials": [_trial_data(trial) for trial in self.trials],
            "chosen": None if self.params is None else dict(self.params),
            "second": None if second is None else {"difference": abs(second.mean), "interval": second.interval},
            "verdict": self.sentences()[0] if self.chosen is None else self.verdict.sentence,
            "command": self.command,
            "folder": str(self.folder),
            "file": str(self.file),
            "notes": list(self.notes),
        }

    @property
    def _nothing_chosen(self) -> str:
        """Why the trials are no reason to choose one; empty if they are."""
        finished = [trial for trial in self.trials if not trial.error]
        count = f"all {len(finished)} trials" if len(finished) > 1 else "the trial"
        more = "try other values, or train for more epochs"
        if all(trial.untrained == len(trial.trainings) for trial in finished):
            return f"{count} ended with untrained weights: no training improved the result on validation; {more}"
        first = self.trials[0]
        if first.untrained == len(first.trainings):
            return f"no trial is better than the untrained weights of trial {first.number}; {more}"
        if self.verdict.equal:
            keys = ", ".join(dimension.key for dimension in self.space)
            return f"{count} are equal in {self.metric.replace('_', ' ')}: {keys} made no difference"
        return ""

    def _result(self, trial: Trial) -> SettingResult:
        """A trial as `verdict` compares it."""
        results: dict[Key, TrainingResult] = {(result.seed, result.fold): result for result in trial.trainings}

        def queries(key: Key) -> QueryValues | None:
            path = Run(self.folder / Path(results[key].run).name).query_values("val")
            try:
                return QueryValues.read(path)
            except InputError:
                return None

        values = {key: result.value for key, result in results.items() if result.value is not None}
        folds = frozenset(fold for _, fold in results if fold is not None)
        unknown = "a single training, whose run folder does not have the metric of each query; --seeds 3 gives one"
        return SettingResult(f"trial {trial.number}", values, queries, unknown, folds, trial.untrained)


def _trial_data(trial: Trial) -> dict[str, Any]:
    deviation = trial.deviation
    return {
        "trial": trial.number,
        "params": dict(trial.params),
        "mean": None if trial.error else trial.mean,
        "std": None if math.isnan(deviation) else deviation,
        "values": trial.values,
        "epochs": [training.epoch for training in trial.trainings],
        "untrained": [training.untrained for training in trial.trainings],
        "error": trial.error,
    }
