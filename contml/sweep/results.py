"""The result of a sweep: its trials from best to worst, the chosen values, and how sure the choice is."""

from __future__ import annotations

import math
import shlex
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contml._support.text import MISSING, number
from contml.evaluation.table import value_text
from contml.sweep.space import Params, Space, overrides_of
from contml.sweep.trials import Trial, better, metric


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
    """

    folder: Path
    file: Path
    space: Space
    trials: tuple[Trial, ...]
    arguments: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def metric(self) -> str:
        """The metric that judged the trials: "label_distance@10" or "recall@1", of the validation split."""
        return metric(self.trials)

    @property
    def better(self) -> str:
        """Whether a "lower" or a "higher" value is better."""
        return better(self.trials)

    @property
    def chosen(self) -> Trial:
        """The best trial; of equal ones the first."""
        return self.trials[0]

    @property
    def params(self) -> Params:
        """The chosen values by key."""
        return self.chosen.params

    @property
    def command(self) -> str:
        """The command that trains the chosen values."""
        return shlex.join(["contml", "train", *self.arguments, *overrides_of(self.params)])

    @property
    def gap_to_second(self) -> tuple[float, float | None] | None:
        """How much worse the second best trial is, and half the width of the 95 % interval of this difference.

        The interval is that of the mean difference over seeds and folds, by Student's t; None for a single training.
        None if no second trial succeeded.
        """
        if len(self.trials) < 2 or self.trials[1].error:
            return None
        sign = 1 if self.better == "lower" else -1
        pairs = zip(self.trials[0].values, self.trials[1].values, strict=True)
        differences = [sign * (second_value - best_value) for best_value, second_value in pairs]
        mean, count = statistics.fmean(differences), len(differences)
        if count < 2:
            return mean, None
        from scipy.special import stdtrit

        return mean, float(stdtrit(count - 1, 0.975)) * statistics.stdev(differences) / math.sqrt(count)

    def table(self) -> list[list[str]]:
        """The trials as rows of text, a header first."""
        keys = [dimension.key for dimension in self.space]
        is_averaged = len(self.chosen.trainings) > 1
        name = self.metric.replace("_", " ")
        rows = [["trial", *keys, *(["mean", "std"] if is_averaged else [name])]]
        for trial in self.trials:
            values = [number(trial.mean), *([number(trial.deviation)] if is_averaged else [])]
            result_cells = ["failed", *[MISSING] * (len(values) - 1)] if trial.error else values
            rows.append([str(trial.number), *(value_text(trial.params[key]) for key in keys), *result_cells])
        return rows

    def sentences(self) -> list[str]:
        """What was chosen, and how sure this is; why trials failed."""
        best = self.chosen
        count = len(best.trainings)
        queries = sorted({training.queries for training in best.trainings})
        mean_note = f", mean of {count} trainings" if count > 1 else ""
        size = f"{queries[0]:,}" if len(queries) == 1 else f"{queries[0]:,} to {queries[-1]:,}"
        name = self.metric.replace("_", " ")
        lines = [
            f"chosen: trial {best.number}, {' '.join(overrides_of(best.params))}: {name} {number(best.mean)} on "
            f"the validation split ({self.better} is better; {size} queries{mean_note})"
        ]
        lines += [self._doubt()] if self.gap_to_second is not None else []
        failed = [trial for trial in self.trials if trial.error]
        lines += [f"trial {trial.number} failed: {trial.error}" for trial in failed]
        return lines

    def _doubt(self) -> str:
        assert self.gap_to_second is not None
        difference, interval = self.gap_to_second
        start = f"the second best, trial {self.trials[1].number}, is worse by {number(difference)}"
        if interval is None:
            return f"{start}; with --seeds 3 you see whether that is more than the difference between seeds"
        if difference > interval:
            return f"{start} ± {number(interval)} (95 % interval): a clear choice"
        return f"{start} ± {number(interval)}, which is within the 95 % interval: the two cannot be distinguished"

    def as_data(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        second = self.gap_to_second
        return {
            "metric": self.metric,
            "better": self.better,
            "trials": [_trial_data(trial) for trial in self.trials],
            "chosen": dict(self.params),
            "second": None if second is None else {"difference": second[0], "interval": second[1]},
            "command": self.command,
            "folder": str(self.folder),
            "file": str(self.file),
            "notes": list(self.notes),
        }


def _trial_data(trial: Trial) -> dict[str, Any]:
    deviation = trial.deviation
    return {
        "trial": trial.number,
        "params": dict(trial.params),
        "mean": None if trial.error else trial.mean,
        "std": None if math.isnan(deviation) else deviation,
        "values": trial.values,
        "error": trial.error,
    }
