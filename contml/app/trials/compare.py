"""Runs side by side: a row holds runs that differ only in seed and fold, columns show where the configs of rows differ.

The evaluations of a run's best and last weights are different rows. Evaluations on different data, or on different
splits, are never in one table: their metrics cannot be compared.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from contml._support.errors import InputError
from contml.app.trials.runs import (
    ABSENT,
    CONFIG,
    EvaluatedRun,
    by_test_set,
    distinct,
    drop_repeats,
    identity,
    is_name,
    read_runs,
    test_set_title,
    title_of_key,
)
from contml.app.trials.verdict import SettingResult, Verdict, verdict
from contml.contracts import PLAIN
from contml.evaluation.evaluated import epoch_text
from contml.evaluation.metrics import Published, metric_of, title_of
from contml.evaluation.results import Evaluation, Score, measurable, measured, split_form, usual


@dataclass(frozen=True)
class Row:
    """Runs that are averaged; `cells` distinguish them from other rows."""

    cells: tuple[str, ...]
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
    def paper(self) -> Published | None:
        """The metrics that a paper reports for the first of the runs that has some."""
        return next((run.published for run in self.runs if run.published), None)


@dataclass(frozen=True)
class RunTable:
    """The rows of one split; `keys` are the config keys of the cells."""

    title: str
    keys: tuple[str, ...]
    rows: tuple[Row, ...]
    metrics: tuple[str, ...]

    @property
    def evaluation(self) -> Evaluation:
        """The evaluation of the first run; those of the others have the same unit."""
        return self.rows[0].runs[0].evaluation

    @property
    def columns(self) -> list[str]:
        """The titles of the keys."""
        return [title_of_key(key) for key in self.keys]

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
        return self._verdicts.get(metric.partition("/")[0])

    @cached_property
    def _verdicts(self) -> dict[str, Verdict]:
        """The verdicts on the main metric and on each of the metrics; their positions are those of `rows`."""
        found = {}
        for metric in {self.evaluation.headline, *(metric.partition("/")[0] for metric in self.metrics)}:
            results = {n: each for n, row in enumerate(self.rows) if (each := self.result(row, metric)).values}
            score, positions = self.score(metric), [*results]
            if score is not None and len(results) > 1:
                measure = self.evaluation.measure_of(metric) or PLAIN
                result = verdict([*results.values()], score.title, score.better, measure)
                best = None if result.best is None else positions[result.best]
                found[metric] = replace(result, best=best, tied=tuple(positions[n] for n in result.tied))
        return found

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
        """The name of a row: the name of its config where it is unique, else its other cells."""
        cells = dict(zip(self.keys, row.cells, strict=True))
        config = cells.pop(CONFIG, "")
        if config and [each.cells[self.keys.index(CONFIG)] for each in self.rows].count(config) == 1:
            return config
        titles = {key: "" if is_name(key) else f"{title_of_key(key)} " for key in cells}
        return ", ".join(titles[key] + cell for key, cell in cells.items() if cell != ABSENT) or "ours"


@dataclass(frozen=True)
class Comparison:
    """One table per split; `left_out`: runs without metrics, and why; `notes`: what to know about the tables."""

    tables: tuple[RunTable, ...]
    left_out: tuple[str, ...]
    notes: tuple[str, ...]


def compare(paths: Sequence[Path], metrics: Sequence[str] = ()) -> Comparison:
    """Read runs, and compare the runs that were tested on the same data.

    Args:
        paths: run folders, and folders that hold some.
        metrics: by name: "recall@1", "label_distance@10/random"; default: the metrics that papers report.

    Raises:
        InputError: no run has an evaluation, or there is no such metric.
    """
    runs, left_out = read_runs(paths)
    if not runs:
        more = f" (and {len(left_out) - 1} more)" if len(left_out) > 1 else ""
        raise InputError("runs", "none is finished and evaluated", hint=f"{left_out[0]}{more}")
    for metric in metrics:
        _check_metric(metric, runs)
    test_sets = by_test_set(runs)
    tables, notes = [], []
    if len(test_sets) > 1:
        notes.append(
            f"{len(test_sets)} different test sets or splits, one table each: their metrics cannot be compared"
        )
    for test_set in test_sets:
        distinct_runs, repeats = drop_repeats(test_set)
        rows, columns = _rows(distinct_runs)
        notes += [*repeats, *_notes(rows, distinct_runs)]
        usual_metrics = [name for run in distinct_runs for name in usual(run.evaluation)]
        published = [name for run in distinct_runs if run.published for name in run.published.metrics]
        table_metrics = tuple(metrics) or tuple(dict.fromkeys([*usual_metrics, *published]))
        tables.append(RunTable(test_set_title(test_set, runs), columns, tuple(rows), table_metrics))
    return Comparison(tuple(tables), tuple(left_out), tuple(notes))


def _rows(runs: Sequence[EvaluatedRun]) -> tuple[list[Row], tuple[str, ...]]:
    """The rows of a table, sorted, and the keys of their cells. Runs that differ only in seed and fold are a row."""
    columns = distinct([run.config for run in runs])
    grouped: dict[tuple[str, ...], list[EvaluatedRun]] = {}
    for run, cells in zip(runs, zip(*columns.values(), strict=True), strict=True):
        grouped.setdefault((*cells, identity(run.config)), []).append(run)
    rows = [Row(key[:-1], tuple(row_runs)) for key, row_runs in grouped.items()]
    orders = [{cell: n for n, cell in enumerate(dict.fromkeys(column))} for column in columns.values()]
    rows.sort(key=lambda row: [_sort_key(cell, order) for cell, order in zip(row.cells, orders, strict=True)])
    return rows, tuple(columns)


def _sort_key(cell: str, place: dict[str, int]) -> tuple[int, float]:
    """Numbers by size, words in order of appearance."""
    try:
        return 0, float(cell)
    except ValueError:
        return 1, place[cell]


def _notes(rows: Sequence[Row], runs: Sequence[EvaluatedRun]) -> list[str]:
    """What to know about the rows of a table."""
    notes, folds = [], frozenset[int]().union(*(row.folds for row in rows))
    if partial := sum(row.folds != folds for row in rows):
        notes.append(f"{partial} of {len(rows)} rows have not all {len(folds)} folds: their means are of other queries")
    if untrained := sum(bool(run.evaluated.untrained) for run in runs):
        notes.append(f"{untrained} of {len(runs)} runs have untrained weights, see the column epoch")
    if chosen := sum(run.evaluated.chosen_on_split for run in runs):
        words = "were chosen on the validation split whose metrics are shown: these metrics are optimistic"
        notes.append(f"the weights of {chosen} of {len(runs)} runs {words}")
    return notes


def _check_metric(metric: str, runs: Sequence[EvaluatedRun]) -> None:
    base = split_form(metric)
    if any(measured(run.evaluation, metric) or (run.published and metric in run.published.metrics) for run in runs):
        return
    metric_of(base)  # refuses an unknown name, and suggests the closest
    measured_names = dict.fromkeys(name for run in runs for name in measurable(run.evaluation))
    raise InputError(base, "not measured in any of these runs", f"must be one of {', '.join(measured_names)}")
