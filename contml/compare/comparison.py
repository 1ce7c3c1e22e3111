"""Runs side by side: a row holds runs that differ only in seed and fold, columns show where the configs of rows differ.

The evaluations of a run's best and last weights are different rows. Evaluations on different data, or on different
splits, are never in one table: their metrics cannot be compared.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from contml._support.errors import InputError, closest
from contml.compare.differences import ABSENT, CONFIG, differing, distinct, identity, is_name, short
from contml.compare.evaluated_runs import EvaluatedRun, by_test_set, drop_repeats, read_runs, test_set_title
from contml.compare.verdict import SettingResult, Verdict, verdict
from contml.contracts import PLAIN
from contml.evaluation.evaluated import epoch_text
from contml.evaluation.metrics import metric_of, title_of
from contml.evaluation.results import FORMS, Evaluation, Score, measurable, measured, split_form, usual
from contml.evaluation.table import value_text

#: A note names at most so many runs.
_NAMED = 3


@dataclass(frozen=True)
class Row:
    """Runs that are averaged; `cells` distinguish them from other rows, `x` is their place on the axis of a plot."""

    cells: tuple[str, ...]
    x: Any
    runs: tuple[EvaluatedRun, ...]

    def values(self, metric: str) -> list[float]:
        """The metric of each run that has it."""
        scores = [measured(run.evaluation, metric) for run in self.runs]
        return [score.model for score in scores if score is not None and math.isfinite(score.model)]

    def mean(self, metric: str) -> float:
        """The mean of the metric; NaN where no run has it."""
        values = self.values(metric)
        return statistics.fmean(values) if values else math.nan

    @property
    def untrained(self) -> int:
        """The number of runs whose weights are untrained."""
        return sum(bool(run.evaluated.untrained) for run in self.runs)

    @property
    def epochs(self) -> str:
        """The epochs of the weights, in words."""
        return epoch_text([run.evaluated.epoch for run in self.runs], self.untrained)

    @property
    def folds(self) -> frozenset[int]:
        """The folds that the metrics are of; empty without cross-validation."""
        return frozenset(run.fold for run in self.runs if run.fold is not None)

    @property
    def source(self) -> str | None:
        """The paper that reports metrics for the first of the runs that has one."""
        return next((run.source for run in self.runs if run.source), None)

    @property
    def published(self) -> Mapping[str, float]:
        """The metrics that this paper reports."""
        return next((run.published for run in self.runs if run.published), {})


@dataclass(frozen=True)
class RunTable:
    """The rows of one split; `keys` are the config keys of the cells, `axis` is the key on the x axis of a plot.

    `verdicts` say which row is best, by metric.
    """

    title: str
    keys: tuple[str, ...]
    rows: tuple[Row, ...]
    metrics: tuple[str, ...]
    axis: str | None
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)

    @property
    def evaluation(self) -> Evaluation:
        """The evaluation of the first run; those of the others have the same unit."""
        return self.rows[0].runs[0].evaluation

    @property
    def columns(self) -> list[str]:
        """The titles of the keys."""
        return [short(key, self.keys) for key in self.keys]

    def score(self, metric: str) -> Score | None:
        """The metric of any run: its title, which direction is better, its values for random ranking and oracle.

        Of folds, these are the means over the folds.
        """
        runs = {run.fold: run for row in self.rows for run in row.runs if measured(run.evaluation, metric) is not None}
        scores = [score for run in runs.values() if (score := measured(run.evaluation, metric)) is not None]
        if not scores:
            return None
        random, oracle = (
            statistics.fmean(values) for values in zip(*((s.random, s.oracle) for s in scores), strict=True)
        )
        return replace(scores[0], random=random, oracle=oracle)

    def verdict(self, metric: str) -> Verdict | None:
        """Which row is best by a metric; None where fewer than two rows have it."""
        return self.verdicts.get(metric.partition("/")[0])

    def with_verdicts(self) -> RunTable:
        """The table with a verdict on the main metric and on each of its metrics."""
        bases = dict.fromkeys([self.evaluation.headline, *(metric.partition("/")[0] for metric in self.metrics)])
        verdicts = {metric: found for metric in bases if (found := self._compared(metric)) is not None}
        return replace(self, verdicts=verdicts)

    def _compared(self, metric: str) -> Verdict | None:
        score = self.score(metric)
        table = replace(self, axis=None)  # so that names have the key of the axis
        compared = {n: result for n, row in enumerate(self.rows) if (result := table.result(row, metric)).values}
        if score is None or len(compared) < 2:
            return None
        positions, results = [*compared], [*compared.values()]
        measure = self.evaluation.measure_of(metric) or PLAIN
        found = verdict(results, score.title, score.better, measure)
        best = None if found.best is None else positions[found.best]
        return replace(found, best=best, tied=tuple(positions[n] for n in found.tied))

    def result(self, row: Row, metric: str) -> SettingResult:
        """A row as `verdict` compares it. The metric of each query is known for the main metric only."""
        runs = {run.key: run for run in row.runs}
        scores = {key: measured(run.evaluation, metric) for key, run in runs.items()}
        values = {key: s.model for key, s in scores.items() if s is not None and math.isfinite(s.model)}

        if metric == self.evaluation.headline:
            options: dict[str, Any] = {"queries": lambda key: runs[key].queries()}
        else:
            options = {"unknown": f"of single runs, only {title_of(self.evaluation.headline)} has one"}
        label = self.label(row)
        name = f"'{label}'" if ", " in label else label  # in a sentence
        return SettingResult(name, values, folds=row.folds, untrained=row.untrained, **options)

    def text(self, metric: str, value: float) -> str:
        """A value of a metric as a cell; the unit of a label distance is in the title of its column."""
        return self.evaluation.text(metric, value, unit=False)

    def label(self, row: Row) -> str:
        """The name of a row's line in a plot: the name of its config where it is unique, else its other cells."""
        config, other_cells = self._label_parts(row)
        same_config = {
            other_parts for other_row in self.rows if (other_parts := self._label_parts(other_row))[0] == config
        }
        return (config if len(same_config) == 1 else "") or other_cells or "ours"

    def _label_parts(self, row: Row) -> tuple[str, str]:
        """The name of the row's config, where it has a column, and its other cells except the axis."""
        cells = {key: cell for key, cell in zip(self.keys, row.cells, strict=True) if key != self.axis}
        config = cells.pop(CONFIG, "")
        titles = {key: "" if is_name(key) else f"{short(key, self.keys)} " for key in cells}
        return config, ", ".join(titles[key] + cell for key, cell in cells.items() if cell != ABSENT)


@dataclass(frozen=True)
class Comparison:
    """One table per split; `left_out`: runs without metrics, and why; `notes`: what to know about the tables."""

    tables: tuple[RunTable, ...]
    left_out: tuple[str, ...]
    notes: tuple[str, ...]


def compare(
    paths: Sequence[Path], metrics: Sequence[str] = (), by: str | None = None, group: Sequence[str] = ()
) -> Comparison:
    """Read runs, and compare the runs that were tested on the same data.

    Args:
        paths: run folders, and folders that hold some.
        metrics: by name: "recall@1", "label_distance@10/random"; default: the metrics that papers report.
        by: a config key for the axis of a plot; it is also the last column.
        group: config keys that make the rows, instead of all keys that differ.

    Raises:
        InputError: no run has an evaluation, or there is no such metric or key.
    """
    runs, left_out = read_runs(paths)
    if not runs:
        more = f" (and {len(left_out) - 1} more)" if len(left_out) > 1 else ""
        raise InputError("runs", "none is finished and evaluated", hint=f"{left_out[0]}{more}")
    keys = list(dict.fromkeys(key for run in runs for key in run.config))
    if by is not None:
        by = _known_key(by, keys)
        _check_axis(by, runs)
    for metric in metrics:
        _check_metric(metric, runs)
    group_keys = tuple(dict.fromkeys(_known_key(key, keys) for key in group))
    test_sets = by_test_set(runs)
    tables, notes = [], []
    if len(test_sets) > 1:
        notes.append(
            f"{len(test_sets)} different test sets or splits, one table each: their metrics cannot be compared"
        )
    for test_set in test_sets:
        distinct_runs, repeats = drop_repeats(test_set)
        rows, columns = _rows(distinct_runs, by, group_keys)
        notes += [*repeats, *_notes_on_mixed_rows(rows), *_notes_on_folds(rows), *_notes_on_untrained(distinct_runs)]
        if num_chosen := sum(run.evaluated.chosen_on_split for run in distinct_runs):
            words = "were chosen on the validation split whose metrics are shown: these metrics are optimistic"
            notes.append(f"the weights of {num_chosen} of {len(distinct_runs)} runs {words}")
        num_missing = sum(row.x is None for row in rows)
        if num_missing and has_numeric_axis(rows):
            notes.append(f"{num_missing} of {len(rows)} rows have no {by}, and are not in the plot")
        usual_metrics = [name for run in distinct_runs for name in usual(run.evaluation)]
        published = [name for run in distinct_runs for name in run.published]
        table_metrics = tuple(metrics) or tuple(dict.fromkeys([*usual_metrics, *published]))
        tables.append(RunTable(test_set_title(test_set, runs), columns, tuple(rows), table_metrics, by).with_verdicts())
    return Comparison(tuple(tables), tuple(left_out), tuple(notes))


def is_normalized(metric: str) -> bool:
    """Whether the metric is a normalized score: 0 for a random ranking, 1 for the oracle."""
    return metric.endswith(f"/{FORMS[1]}")


def has_numeric_axis(rows: Sequence[Row]) -> bool:
    """Whether the values on the x axis are numbers."""
    values = [row.x for row in rows if row.x is not None]
    return bool(values) and all(isinstance(x, int | float) and not isinstance(x, bool) for x in values)


def _rows(runs: Sequence[EvaluatedRun], by: str | None, chosen: Collection[str]) -> tuple[list[Row], tuple[str, ...]]:
    """The rows of a table, sorted, and the keys of their cells."""
    configs, axis = [run.config for run in runs], [by] if by else []
    columns = {} if chosen else distinct(configs, axis)
    if chosen and len({run.evaluated.checkpoint for run in runs}) > 1:  # two weights of one run are never averaged
        chosen = dict.fromkeys((*chosen, "checkpoint"))
    for key in (*(key for key in chosen if key != by), *axis):
        columns[key] = [value_text(config.get(key)) for config in configs]
    grouped: dict[tuple[str, ...], list[EvaluatedRun]] = {}
    for run, cells in zip(runs, list(zip(*columns.values(), strict=True)), strict=True):
        # Unless keys are chosen, only runs whose configs are equal but for the seed are averaged.
        grouped.setdefault(cells if chosen else (*cells, identity(run.config)), []).append(run)
    rows = [
        Row(key[: len(columns)], row_runs[0].config.get(by) if by else None, tuple(row_runs))
        for key, row_runs in grouped.items()
    ]
    orders = [{cell: n for n, cell in enumerate(dict.fromkeys(column))} for column in columns.values()]
    rows.sort(key=lambda row: [_sort_key(cell, order) for cell, order in zip(row.cells, orders, strict=True)])
    return rows, tuple(columns)


def _sort_key(cell: str, place: dict[str, int]) -> tuple[int, float]:
    """Numbers by size, words in order of appearance."""
    try:
        return 0, float(cell)
    except ValueError:
        return 1, place[cell]


def _notes_on_mixed_rows(rows: Sequence[Row]) -> list[str]:
    """Notes on rows whose runs differ in more than the seed."""
    mixed = Counter(", ".join(differing([run.config for run in row.runs])) for row in rows)
    notes = [f"{count} of {len(rows)} rows average runs that differ in {keys}" for keys, count in mixed.items() if keys]
    published = [{(run.source, *run.published.items()) for run in row.runs if run.published} for row in rows]
    if differing_rows := sum(len(results) > 1 for results in published):
        notes.append(f"{differing_rows} of {len(rows)} rows hold different published results; the first is shown")
    return notes


def _notes_on_folds(rows: Sequence[Row]) -> list[str]:
    """A note on rows without some of the folds that others have."""
    folds = frozenset[int]().union(*(row.folds for row in rows))
    partial = sum(row.folds != folds for row in rows)
    if not partial:
        return []
    return [f"{partial} of {len(rows)} rows have not all {len(folds)} folds: their means are of other queries"]


def _notes_on_untrained(runs: Sequence[EvaluatedRun]) -> list[str]:
    """A note on each run with untrained weights; of many, on the first ones."""
    untrained = [run for run in runs if run.evaluated.untrained]
    notes = [f"{run.folder}: {run.evaluated.untrained}" for run in untrained[:_NAMED]]
    if len(untrained) > _NAMED:
        notes.append(f"{len(untrained) - _NAMED} more runs have untrained weights, see the column epoch")
    return notes


def _check_metric(metric: str, runs: Sequence[EvaluatedRun]) -> None:
    base = split_form(metric)
    if any(measured(run.evaluation, metric) or metric in run.published for run in runs):
        return
    metric_of(base)  # refuses an unknown name, and suggests the closest
    measured_names = dict.fromkeys(name for run in runs for name in measurable(run.evaluation))
    raise InputError(base, "not measured in any of these runs", f"must be one of {', '.join(measured_names)}")


def _check_axis(by: str, runs: Sequence[EvaluatedRun]) -> None:
    values = {value_text(run.config.get(by)) for run in runs}
    if len(values) > 1:
        return
    keys = ", ".join(differing([run.config for run in runs]))
    hint = f"choose a key that differs: {keys}" if keys else "these runs differ in no key, so omit --by"
    raise InputError(by, f"{values.pop()} in all of these runs", hint=hint)


def _known_key(key: str, keys: Sequence[str]) -> str:
    """A key of the configs; 'loss' is short for loss.name."""
    if key in keys:
        return key
    if f"{key}.name" in keys:
        return f"{key}.name"
    section, _, option = key.partition(".")
    sections = list(dict.fromkeys(full_key.partition(".")[0] for full_key in keys))
    options = {
        full_key.partition(".")[2]: full_key for full_key in keys if option and full_key.startswith(f"{section}.")
    }
    if options:
        similar = options.get(closest(option, options) or "")
    else:
        similar = next(
            (full_key for full_key in keys if full_key.endswith(f".{key}")), closest(key, [*keys, *sections])
        )
    allowed = "" if similar else f"must be one of {', '.join(options.values() or sections)}"
    hint = f"did you mean '{similar}'?" if similar else ""
    raise InputError(key, "no such key in the configs of these runs", allowed, hint)
