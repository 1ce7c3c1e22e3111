"""Runs side by side: rows are runs that differ in nothing but the seed, columns what differs in their configs.

Runs that were tested on different data never share a table: their figures cannot be compared.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contml._support.errors import InputError, closest, did_you_mean
from contml.evaluation.metrics import Published, metric_of
from contml.evaluation.results import Score, measurable, measured, split_form, usual
from contml.reporting.compare_runs import Trained, by_test_set, once, read_runs, tested
from contml.reporting.differences import ABSENT, CONFIG, differing, distinct, identity, named, said, short


@dataclass(frozen=True)
class Row:
    """Runs that are averaged; `cells` tell them from other rows, `at` is their place on the axis of a plot."""

    cells: tuple[str, ...]
    at: Any
    runs: tuple[Trained, ...]

    def values(self, metric: str) -> list[float]:
        """The metric of each run that has it."""
        found = [measured(run.evaluation, metric) for run in self.runs]
        return [score.model for score in found if score is not None and math.isfinite(score.model)]

    def mean(self, metric: str) -> float:
        """The mean of the metric; NaN where no run has it."""
        values = self.values(metric)
        return statistics.fmean(values) if values else math.nan

    @property
    def published(self) -> Published | None:
        """What a paper reports: the first that any of the runs holds."""
        return next((run.published for run in self.runs if run.published is not None), None)


@dataclass(frozen=True)
class Group:
    """The rows of one test set; `keys` say what the cells of a row are of, `axis` which of them a plot is against."""

    title: str
    keys: tuple[str, ...]
    rows: tuple[Row, ...]
    metrics: tuple[str, ...]
    axis: str | None

    @property
    def columns(self) -> list[str]:
        """The titles of the keys."""
        return [short(key, self.keys) for key in self.keys]

    def score(self, metric: str) -> Score | None:
        """The metric of any run: its title, which way is better, what random and oracle have on this test set."""
        found = (measured(run.evaluation, metric) for row in self.rows for run in row.runs)
        return next((score for score in found if score is not None), None)

    def label(self, row: Row) -> str:
        """What tells a row from others at the same place of the axis; the name of its config, where that does."""
        alike = [self._told(other) for other in self.rows if self._told(other)[0] == self._told(row)[0]]
        config, words = self._told(row)
        return config if config and len(set(alike)) == 1 else words

    def _told(self, row: Row) -> tuple[str, str]:
        """The cells of a row but for the axis: the name of its config, where it has a column, and all others."""
        cells = {key: cell for key, cell in zip(self.keys, row.cells, strict=True) if key != self.axis}
        config = cells.pop(CONFIG, "")
        titles = {key: "" if named(key) else f"{short(key, self.keys)} " for key in cells}
        return config, ", ".join(titles[key] + cell for key, cell in cells.items() if cell != ABSENT)


@dataclass(frozen=True)
class Comparison:
    """Rows by test set; `left_out` are runs without figures, and why; `notes` what a reader has to know."""

    groups: tuple[Group, ...]
    by: str | None
    left_out: tuple[str, ...]
    notes: tuple[str, ...]


def compare(
    paths: Sequence[Path], metrics: Sequence[str] = (), by: str | None = None, group: Sequence[str] = ()
) -> Comparison:
    """Read runs, and put those side by side that were tested on the same data.

    Args:
        paths: run folders, and folders that hold such.
        metrics: by name: "recall@1", "label_distance@10/random"; default those that papers report.
        by: a config key that makes the axis of a plot, and the last column.
        group: config keys that make the rows, instead of all that differ.

    Raises:
        InputError: no run has an evaluation, or there is no such metric or key.
    """
    runs, left_out = read_runs(paths)
    if not runs:
        more = f" (and {len(left_out) - 1} more such)" if len(left_out) > 1 else ""
        raise InputError(f"nothing to compare yet: {left_out[0]}{more}")
    keys = list(dict.fromkeys(key for run in runs for key in run.config))
    by = None if by is None else _known(by, keys)
    if by is not None:
        _check_axis(by, runs)
    for metric in metrics:
        _check_metric(metric, runs)
    chosen = tuple(dict.fromkeys(_known(key, keys) for key in group))
    groups, notes = [], []
    sets = by_test_set(runs)
    if len(sets) > 1:
        notes.append(f"{len(sets)} different test sets, a table each: figures cannot be compared across them")
    if len({run.checkpoint for run in runs}) > 1:
        best = sum(run.checkpoint == "best" for run in runs)
        notes.append(f"{best} of {len(runs)} runs were evaluated with their best weights, the others with their last")
    for test_set in sets:
        kept, twice = once(test_set)
        rows, columns = _rows(kept, by, chosen)
        notes += [*twice, *_mixed(rows), *_off_axis(rows, by)]
        groups.append(Group(tested(test_set, runs), columns, tuple(rows), tuple(metrics) or _usual(kept), by))
    return Comparison(tuple(groups), by, tuple(left_out), tuple(notes))


def _rows(runs: Sequence[Trained], by: str | None, chosen: Sequence[str]) -> tuple[list[Row], tuple[str, ...]]:
    """Runs together that are averaged, in order; and the keys of their cells."""
    configs = [run.config for run in runs]
    if chosen:
        columns = {key: [said(config.get(key)) for config in configs] for key in chosen if key != by}
    else:
        columns = distinct(configs, [by] if by else [])
    if by:
        columns[by] = [said(config.get(by)) for config in configs]
    together: dict[tuple[str, ...], list[Trained]] = {}
    cells = list(zip(*columns.values(), strict=True))
    for run, own in zip(runs, cells, strict=True):
        # Where the keys are chosen, so is what is averaged.
        together.setdefault(own if chosen else (*own, identity(run.config)), []).append(run)
    rows = [
        Row(key[: len(columns)], same[0].config.get(by) if by else None, tuple(same)) for key, same in together.items()
    ]
    places = [{cell: n for n, cell in enumerate(dict.fromkeys(column))} for column in columns.values()]
    rows.sort(key=lambda row: [_order(cell, place) for cell, place in zip(row.cells, places, strict=True)])
    return rows, tuple(columns)


def _order(cell: str, place: dict[str, int]) -> tuple[int, float]:
    """Numbers by size, words in the order in which they came."""
    try:
        return 0, float(cell)
    except ValueError:
        return 1, place[cell]


def _mixed(rows: Sequence[Row]) -> list[str]:
    """What has to be said of rows that are more than seeds of one experiment."""
    mixed = Counter(", ".join(differing([run.config for run in row.runs])) for row in rows)
    notes = [f"{count} of {len(rows)} rows average runs that differ in {keys}" for keys, count in mixed.items() if keys]
    published = [{json.dumps(vars(run.published)) for run in row.runs if run.published is not None} for row in rows]
    if several := sum(len(figures) > 1 for figures in published):
        notes.append(f"{several} of {len(rows)} rows hold different published metrics; the first are shown")
    return notes


def _off_axis(rows: Sequence[Row], by: str | None) -> list[str]:
    without = sum(row.at is None for row in rows)
    if by is None or not without or not numeric(rows):
        return []
    return [f"{without} of {len(rows)} rows have no {by}, and are not in the plot"]


def numeric(rows: Sequence[Row]) -> bool:
    """Whether the axis is one of numbers."""
    places = [row.at for row in rows if row.at is not None]
    return bool(places) and all(isinstance(at, int | float) and not isinstance(at, bool) for at in places)


def _usual(runs: Sequence[Trained]) -> tuple[str, ...]:
    own = (name for run in runs for name in usual(run.evaluation))
    reported = (name for run in runs if run.published is not None for name in run.published.metrics)
    return tuple(dict.fromkeys([*own, *reported]))


def _check_metric(metric: str, runs: Sequence[Trained]) -> None:
    base = split_form(metric)
    if any(measured(run.evaluation, metric) for run in runs):
        return
    if any(run.published is not None and metric in run.published.metrics for run in runs):
        return
    metric_of(base)  # an error suggests what it may have meant
    have = list(dict.fromkeys(name for run in runs for name in measurable(run.evaluation)))
    raise InputError(f"none of these runs has measured '{base}'; they have {', '.join(have)}")


def _check_axis(by: str, runs: Sequence[Trained]) -> None:
    if len({said(run.config.get(by)) for run in runs}) > 1:
        return
    others = ", ".join(key for key in differing([run.config for run in runs]))
    hint = f"choose a key that differs: {others}" if others else "these runs differ in no key, so leave out --by"
    raise InputError(f"'{by}' is {said(runs[0].config.get(by))} in all of these runs; {hint}")


def _known(key: str, keys: Sequence[str]) -> str:
    """A key of the configs; 'loss' is short for loss.name."""
    if key in keys:
        return key
    if f"{key}.name" in keys:
        return f"{key}.name"
    section, _, option = key.partition(".")
    sections = dict.fromkeys(known.partition(".")[0] for known in keys)
    inside = [known for known in keys if option and known.partition(".")[0] == section]
    near = [known for known in keys if known.rpartition(".")[2] == key]
    if inside:
        options = {known.partition(".")[2]: known for known in inside}
        near = [options[option] for option in [closest(option, options)] if option is not None]
    there_are = f"there are {', '.join(inside or sections)}"
    if near or inside:
        hint = f"did you mean '{near[0]}'?" if near else there_are
    else:
        hint = did_you_mean(key, [*keys, *sections], there_are)
    raise InputError(f"the configs of these runs have no key '{key}'; {hint}")
