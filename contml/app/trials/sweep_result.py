"""The result of a sweep: its trials from best to worst, the chosen values, and how sure the choice is."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from contml._support.errors import InputError
from contml._support.text import MISSING
from contml.app.trials.record import Result
from contml.app.trials.space import Params, Space, overrides_of
from contml.app.trials.table import mean_text
from contml.app.trials.verdict import SettingResult, Verdict, verdict
from contml.contracts import PLAIN, Measure
from contml.evaluation.evaluated import epoch_text, value_text
from contml.evaluation.metrics import measure_of, metric_of, title_of
from contml.evaluation.results import QueryValues
from contml.runs import Run


@dataclass(frozen=True)
class Trial(SettingResult):
    """Values that were tried, and the results of their trainings in order of the seeds.

    Attributes:
        number: from 0.
        params: the values.
        results: the results of its trainings, up to the first that failed.
    """

    number: int = 0
    params: Params = field(default_factory=dict)
    results: tuple[Result, ...] = ()

    @classmethod
    def of(cls, number: int, params: Params, results: Mapping[int | None, Result], folder: Path) -> Trial:
        """Make a trial of the sweep in a folder, from the results of its trainings by seed."""

        def queries(seed: int | None) -> QueryValues | None:
            try:
                return QueryValues.read(Run(folder / Path(results[seed]["run"]).name).query_values("val"))
            except InputError:
                return None

        values = {seed: result["value"] for seed, result in results.items() if "value" in result}
        untrained = sum(bool(result.get("untrained")) for result in results.values())
        unknown = "a single training, whose run folder does not have the metric of each query; --seeds 3 gives one"
        return cls(f"trial {number}", values, queries, unknown, untrained, number, params, tuple(results.values()))

    @property
    def error(self) -> str:
        """The reason why the trial failed: the message of the training that failed. Otherwise it is empty."""
        return next((result["error"] for result in self.results if "error" in result), "")

    @property
    def epochs(self) -> list[float]:
        """The epoch of the best weights of each training."""
        return [result["epoch"] for result in self.results if "epoch" in result]


def better(trials: Sequence[Trial]) -> str:
    """Return whether a "lower" or a "higher" value of the metric is better."""
    name = _metric(trials)
    return metric_of(name).better if name else "lower"


def ranked(trials: Sequence[Trial]) -> list[Trial]:
    """Sort the trials from best to worst. Equal ones stay in order, and failed ones come last."""
    sign = 1 if better(trials) == "lower" else -1
    return sorted(trials, key=lambda trial: (bool(trial.error), 0.0 if trial.error else sign * trial.mean))


def outcome(result: Result, measure: Measure) -> str:
    """Return the result of a training as a text."""
    if "error" in result:
        return str(result["error"])
    text = f"{result['metric']} {(measure_of(result['metric'], measure) or PLAIN).text(result['value'])}"
    return f"{text}, untrained weights" if result["untrained"] else text


def _metric(trials: Sequence[Trial]) -> str:
    return next((result["metric"] for trial in trials for result in trial.results if "metric" in result), "")


@dataclass(frozen=True)
class Sweep:
    """The result of a sweep.

    Attributes:
        folder: the folder of the sweep, with the run folders of its trials.
        space: the values that were tried.
        trials: all trials, from best to worst, and failed ones last.
        arguments: the arguments of `contml train` without the chosen values.
        measure: how label distances are printed.
    """

    folder: Path
    space: Space
    trials: tuple[Trial, ...]
    arguments: tuple[str, ...]
    measure: Measure = PLAIN

    @property
    def metric(self) -> str:
        """The metric that judged the trials: "label_distance@10" or "recall@1", of the validation split."""
        return _metric(self.trials)

    @property
    def unit(self) -> Measure:
        """The format of values of the metric."""
        return measure_of(self.metric, self.measure) or PLAIN

    @property
    def better(self) -> str:
        """The better direction of the metric: "lower" or "higher"."""
        return better(self.trials)

    @cached_property
    def verdict(self) -> Verdict:
        """The best of the trials that did not fail, and how sure this is."""
        finished = [trial for trial in self.trials if not trial.error]
        return verdict(finished, title_of(self.metric), self.better, self.unit)

    @property
    def chosen(self) -> Trial | None:
        """The trial with the best mean, or None if the trials are no reason to choose one.

        Of equal ones, it is the first.
        """
        return None if self._nothing_chosen else self.trials[0]

    @property
    def params(self) -> Params | None:
        """The chosen values by key. None if nothing is chosen."""
        return None if self.chosen is None else self.chosen.params

    @property
    def command(self) -> str | None:
        """The command that trains the chosen values. None if nothing is chosen."""
        if self.chosen is None:
            return None
        return shlex.join(["contml", "train", *self.arguments, *overrides_of(self.chosen.params)])

    def table(self) -> list[list[str]]:
        """Return the trials as rows of text, a header first."""
        keys = [dimension.key for dimension in self.space]
        name = "mean ± std" if len(self.trials[0].results) > 1 else self.metric.replace("_", " ")
        title = f"{name}, {self.unit.distance_unit}" if self.unit.distance_unit else name
        rows = [["trial", *keys, "epoch", title]]
        for trial in self.trials:
            cells = [str(trial.number), *(value_text(trial.params[key]) for key in keys)]
            if trial.error:
                rows.append([*cells, MISSING, "failed"])
            else:
                epoch = epoch_text(trial.epochs, trial.untrained)
                rows.append([*cells, epoch, mean_text([*trial.values.values()], self.unit)])
        return rows

    def sentences(self) -> list[str]:
        """Return sentences on the chosen values, how sure the choice is, and why trials failed."""
        first = self.trials[0]
        count = len(first.results)
        queries = sorted({result["queries"] for result in first.results})
        mean_note = f", mean of {count} trainings" if count > 1 else ""
        size = f"{queries[0]:,}" if len(queries) == 1 else f"{queries[0]:,} to {queries[-1]:,}"
        if self._nothing_chosen:
            lines = [f"nothing is chosen: {self._nothing_chosen}"]
        else:
            metric = f"{self.metric.replace('_', ' ')} {self.unit.text(first.mean)} on the validation split"
            about = f"{self.better} is better; {size} queries{mean_note}"
            lines = [f"chosen: trial {first.number}, {' '.join(overrides_of(first.params))}: {metric} ({about})"]
            lines += [self.verdict.sentence] if self.verdict.sentence else []
            if count == 1 and self.verdict.best is not None:
                lines.append("each trial is one training: --seeds 3 shows whether the difference is more than chance")
        return [*lines, *(f"trial {trial.number} failed: {trial.error}" for trial in self.trials if trial.error)]

    def as_data(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        second, trials = self.verdict.second, list[dict[str, Any]]()
        for trial in self.trials:
            found = {
                "mean": None if trial.error else trial.mean,
                "values": [*trial.values.values()],
                "error": trial.error,
            }
            about = {"trial": trial.number, "params": dict(trial.params)}
            trials.append({**about, **found, "epochs": trial.epochs, "untrained": trial.untrained})
        judged = {"metric": self.metric, "better": self.better, "trials": trials}
        return {
            **judged,
            "chosen": None if self.params is None else dict(self.params),
            "second": None if second is None else {"difference": abs(second.mean), "interval": second.interval},
            "verdict": self.sentences()[0] if self.chosen is None else self.verdict.sentence,
            "command": self.command,
            "folder": str(self.folder),
        }

    @property
    def _nothing_chosen(self) -> str:
        """The reason why the sweep chooses no trial. It is empty if a trial is chosen."""
        finished = [trial for trial in self.trials if not trial.error]
        count = f"all {len(finished)} trials" if len(finished) > 1 else "the trial"
        more = "try other values, or train for more epochs"
        if all(trial.is_untrained for trial in finished):
            return f"{count} ended with untrained weights: no training improved the result on validation; {more}"
        first = self.trials[0]
        if first.is_untrained:
            return f"no trial is better than the untrained weights of trial {first.number}; {more}"
        if self.verdict.equal:
            keys = ", ".join(dimension.key for dimension in self.space)
            return f"{count} are equal in {self.metric.replace('_', ' ')}: {keys} made no difference"
        return ""
