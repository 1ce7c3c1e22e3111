"""Runs side by side. A row holds runs that differ only in the seed. Columns show the differences between configs.

The evaluations of a run's best and last weights are different rows. Evaluations on different data, or on different
splits, are never in one table: their metrics cannot be compared.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from contml._support.errors import InputError
from contml.app.trials import runs as of_runs
from contml.app.trials.runs import ABSENT, CONFIG, EvaluatedRun, title_of_key
from contml.app.trials.table import TableCell, mean_text
from contml.app.trials.verdict import SettingResult, Verdict, verdict
from contml.contracts import PLAIN, Measure
from contml.evaluation.evaluated import epoch_text
from contml.evaluation.metrics import metric_of, title_of
from contml.evaluation.results import Evaluation, Score, measurable, measured, split_form, usual


@dataclass(frozen=True)
class Row:
    """Runs that are averaged. `cells` distinguish them from other rows."""

    cells: tuple[str, ...]
    runs: tuple[EvaluatedRun, ...]

    def by_seed(self, metric: str) -> dict[int | None, float]:
        """Return the metric of each run that has it, by seed."""
        scores = {run.seed: measured(run.evaluation, metric) for run in self.runs}
        return {seed: score.model for seed, score in scores.items() if score and math.isfinite(score.model)}

    def values(self, metric: str) -> list[float]:
        """Return the metric of each run that has it."""
        return [*self.by_seed(metric).values()]

    @property
    def untrained(self) -> int:
        """The number of runs whose weights are untrained."""
        return sum(bool(run.evaluated.untrained) for run in self.runs)


@dataclass(frozen=True)
class RunTable:
    """The rows of one split. `keys` are the config keys of the cells."""

    title: str
    keys: tuple[str, ...]
    rows: tuple[Row, ...]
    metrics: tuple[str, ...]

    @property
    def evaluation(self) -> Evaluation:
        """The evaluation of the first run. The other evaluations have the same unit."""
        return self.rows[0].runs[0].evaluation

    def measure(self, metric: str) -> Measure:
        """Return how a metric is printed."""
        return self.evaluation.measure_of(metric) or PLAIN

    def score(self, metric: str) -> Score | None:
        """Return the metric of the first run that has it: its title, and which direction is better."""
        scores = (measured(run.evaluation, metric) for row in self.rows for run in row.runs)
        return next((score for score in scores if score is not None), None)

    @cached_property
    def verdicts(self) -> dict[str, Verdict]:
        """The best row by each metric that two rows have, as positions in `rows`."""
        found = {}
        for metric in dict.fromkeys(metric.partition("/")[0] for metric in self.metrics):
            positions = [n for n, row in enumerate(self.rows) if row.values(metric)]
            if (score := self.score(metric)) is not None and len(positions) > 1:
                results = [self._result(self.rows[n], metric) for n in positions]
                result = verdict(results, score.title, score.better, self.measure(metric))
                best = None if result.best is None else positions[result.best]
                found[metric] = replace(result, best=best, tied=tuple(positions[n] for n in result.tied))
        return found

    @property
    def main_verdict(self) -> Verdict | None:
        """The best row by the main metric. If the table does not show this metric, the first metric is used."""
        shown = [metric.partition("/")[0] for metric in self.metrics]
        return self.verdicts.get(self.evaluation.headline if self.evaluation.headline in shown else shown[0])

    def _result(self, row: Row, metric: str) -> SettingResult:
        """Return a row as `verdict` compares it. The metric of each query is known for the main metric only."""
        runs, label = {run.seed: run for run in row.runs}, self.label(row)
        options: Any = {"unknown": f"of single runs, only {title_of(self.evaluation.headline)} has one"}
        if metric == self.evaluation.headline:
            options = {"queries": lambda seed: runs[seed].queries()}
        name = f"'{label}'" if ", " in label else label  # in a sentence
        return SettingResult(name, row.by_seed(metric), untrained=row.untrained, **options)

    def label(self, row: Row) -> str:
        """Return the name of a row: the name of its config if it is unique, otherwise its other cells."""
        cells = dict(zip(self.keys, row.cells, strict=True))
        config = cells.pop(CONFIG, "")
        if config and [each.cells[self.keys.index(CONFIG)] for each in self.rows].count(config) == 1:
            return config
        titles = {key: "" if of_runs.is_name(key) else f"{title_of_key(key)} " for key in cells}
        return ", ".join(titles[key] + cell for key, cell in cells.items() if cell != ABSENT) or "ours"

    @cached_property
    def lines(self) -> list[list[TableCell]]:
        """The table: a line of titles, and a line for each row."""
        rows = self.rows
        columns = [[title_of_key(key), *(row.cells[n] for row in rows)] for n, key in enumerate(self.keys)]
        if any(len(row.runs) > 1 for row in rows):
            columns.append(["runs", *(str(len(row.runs)) for row in rows)])
        epochs = [epoch_text([run.evaluated.epoch for run in row.runs], row.untrained) for row in rows]
        cells = [[TableCell(text) for text in column] for column in [*columns, ["epoch", *epochs]]]
        for metric in self.metrics:
            score, found = self.score(metric), self.verdicts.get(metric.partition("/")[0])
            title = metric if score is None else self.evaluation.titled(metric, score.title)
            best = None if found is None else found.best
            texts = [mean_text(row.values(metric), self.measure(metric)) for row in rows]
            cells.append([TableCell(title), *(TableCell(text, n == best) for n, text in enumerate(texts))])
        return [list(line) for line in zip(*cells, strict=True)]

    @property
    def remarks(self) -> list[str]:
        """The lines under the table: the best row, how to read several runs, and published metrics."""
        lines = [] if self.main_verdict is None else [self.main_verdict.sentence]
        if any(len(row.values(metric)) > 1 for row in self.rows for metric in self.metrics):
            lines.append("±: the standard deviation over the runs of a row")
        papers = dict.fromkeys(run.published for row in self.rows for run in row.runs if run.published)
        return [*lines, *(f"published: {paper}" for paper in papers)]

    def as_data(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        found, labels = self.main_verdict, [self.label(row) for row in self.rows]
        scores = {metric: self.score(metric) for metric in self.metrics}
        metrics = {name: score and {"title": score.title, "better": score.better} for name, score in scores.items()}
        best: dict[str, Any] | None = None
        if found is not None:
            best = {"best": None if found.best is None else labels[found.best], "sentence": found.sentence}
            best["tied"] = [labels[n] for n in found.tied]
            best["difference_to_second"] = found.second and found.second.mean
            best["interval"] = found.second and found.second.interval
        about = {"test_set": self.title, "unit": self.evaluation.unit, "measure": asdict(self.evaluation.measure)}
        return {**about, "verdict": best, "metrics": metrics, "rows": [self._row_data(row) for row in self.rows]}

    def _row_data(self, row: Row) -> dict[str, Any]:
        first, values = row.runs[0].evaluated, {metric: row.values(metric) for metric in self.metrics}
        return {
            "split": first.split,
            "checkpoint": first.checkpoint,
            "config": dict(zip(self.keys, row.cells, strict=True)),
            "folders": [str(run.folder) for run in row.runs],
            "seeds": [run.config.get("seed") for run in row.runs],
            "epochs": [run.evaluated.epoch for run in row.runs],
            "untrained": [bool(run.evaluated.untrained) for run in row.runs],
            "metrics": {k: {"mean": statistics.fmean(v) if v else None, "values": v} for k, v in values.items()},
        }


@dataclass(frozen=True)
class RunComparison:
    """One table per split. `left_out` has runs without metrics with the reason, `notes` has remarks on the tables."""

    tables: tuple[RunTable, ...]
    left_out: tuple[str, ...]
    notes: tuple[str, ...]

    def as_data(self) -> dict[str, Any]:
        """Return everything, for JSON."""
        tables = [table.as_data() for table in self.tables]
        return {"tables": tables, "left_out": list(self.left_out), "notes": list(self.notes)}


def compare(paths: Sequence[Path], metrics: Sequence[str] = ()) -> RunComparison:
    """Read runs, and compare the runs that were tested on the same data.

    Args:
        paths: run folders, and folders that hold some.
        metrics: metrics by name: "recall@1", "label_distance@10/random". Default: the metrics that papers report.

    Raises:
        InputError: no run has an evaluation, or there is no such metric.
    """
    runs, left_out = of_runs.read_runs(paths)
    if not runs:
        more = f" (and {len(left_out) - 1} more)" if len(left_out) > 1 else ""
        raise InputError("runs", "none is finished and evaluated", hint=f"{left_out[0]}{more}")
    for metric in metrics:
        base = split_form(metric)
        if not any(measured(run.evaluation, metric) for run in runs):
            metric_of(base)  # refuses an unknown name, and suggests the closest
            measured_names = dict.fromkeys(name for run in runs for name in measurable(run.evaluation))
            raise InputError(base, "not measured in any of these runs", f"must be one of {', '.join(measured_names)}")
    test_sets = of_runs.by_test_set(runs)
    tables, notes = [], []
    if (count := len(test_sets)) > 1:
        notes.append(f"{count} different test sets or splits, one table each: their metrics cannot be compared")
    for test_set in test_sets:
        distinct_runs, repeats = of_runs.drop_repeats(test_set)
        rows, columns = _rows(distinct_runs)
        notes += [*repeats, *_notes(distinct_runs)]
        shown = metrics or dict.fromkeys(name for run in distinct_runs for name in usual(run.evaluation))
        tables.append(RunTable(of_runs.test_set_title(test_set, runs), columns, tuple(rows), tuple(shown)))
    return RunComparison(tuple(tables), tuple(left_out), tuple(notes))


def _rows(runs: Sequence[EvaluatedRun]) -> tuple[list[Row], tuple[str, ...]]:
    """Return the rows of a table, sorted, and the keys of their cells.

    Runs that differ only in the seed are one row.
    """
    columns = of_runs.distinct([run.config for run in runs])
    grouped: dict[tuple[str, ...], list[EvaluatedRun]] = {}
    for run, cells in zip(runs, zip(*columns.values(), strict=True), strict=True):
        grouped.setdefault((*cells, of_runs.identity(run.config)), []).append(run)
    rows = [Row(key[:-1], tuple(row_runs)) for key, row_runs in grouped.items()]
    orders = [{cell: n for n, cell in enumerate(dict.fromkeys(column))} for column in columns.values()]
    rows.sort(key=lambda row: [_sort_key(cell, order) for cell, order in zip(row.cells, orders, strict=True)])
    return rows, tuple(columns)


def _sort_key(cell: str, place: dict[str, int]) -> tuple[int, float]:
    """Return a key that sorts numbers by size, and words in order of appearance."""
    try:
        return 0, float(cell)
    except ValueError:
        return 1, place[cell]


def _notes(runs: Sequence[EvaluatedRun]) -> list[str]:
    """Return remarks on the rows of a table."""
    notes = []
    if untrained := sum(bool(run.evaluated.untrained) for run in runs):
        notes.append(f"{untrained} of {len(runs)} runs have untrained weights, see the column epoch")
    if chosen := sum(run.evaluated.chosen_on_split for run in runs):
        words = "were chosen on the validation split whose metrics are shown: these metrics are optimistic"
        notes.append(f"the weights of {chosen} of {len(runs)} runs {words}")
    return notes
