"""Plots of several runs: a metric against a config key, over epochs, and over K.

A row of the table, or a group of rows, is one line in all of them; its seeds are a band. Random ranking and oracle are
drawn where they are known.
"""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from contml._support.errors import InputError
from contml.compare.comparison import Comparison, Row, RunTable, has_numeric_axis, is_normalized
from contml.compare.differences import ABSENT
from contml.compare.table import NOT_MEASURED, title
from contml.contracts import Measure
from contml.data.split import SPLIT_TITLES
from contml.evaluation.metrics import metric_of, title_of
from contml.evaluation.results import Evaluation, Score, measured
from contml.evaluation.table import value_text
from contml.report.plots import (
    BLUE,
    DPI,
    GREY,
    INK,
    ORACLE,
    RANDOM,
    STYLE,
    WIDTH,
    Array,
    draw_baselines,
    draw_note,
    in_unit,
    neighbours_axis,
    panels,
    plain,
    series,
    unit_axis,
)

# Okabe and Ito's colours without the two of random and oracle, and without yellow, which is pale on white.
_COLORS = (BLUE, "#E69F00", "#009E73", "#CC79A7", "#56B4E9", INK)
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_DASHES: tuple[Any, ...] = ("solid", (0, (6, 2)), (0, (3, 1.5, 1, 1.5)))
#: An axis of at most this many values has a tick at each of them.
_MAX_TICKS = 9
#: Characters of a line of a title, so that it ends before the next panel.
_TITLE_WIDTH = 44
#: Characters of a name beside the panels; longer names are below them, in lines of so many characters.
_BESIDE, _BELOW = 48, 110


def comparison_plot(comparison: Comparison, metrics: Sequence[str] = ()) -> Figure:
    """One panel per test set and metric against the key of the tables' axis; default the headline metric."""

    def panel(table: RunTable, metric: str) -> _Panel:
        def draw(axes: Axes, styles: Mapping[str, dict[str, Any]]) -> None:
            _draw_panel(axes, table, metric, styles)

        return draw

    tables = comparison.tables
    return _plot(tables, [panel(each, metric) for each in tables for metric in metrics or [each.evaluation.plotted]])


def curves_plot(comparison: Comparison, metrics: Sequence[str] = ()) -> Figure:
    """Per test set: the metric that the training watched over epochs, and the metrics over K; default the headline."""
    tables = [replace(table, axis=None) for table in comparison.tables]  # each row has a line of its own
    return _plot(tables, [panel for table in tables for panel in (*_over_epochs(table), *_over_k(table, metrics))])


#: Draws on axes, with the style of each label.
_Panel: TypeAlias = Callable[[Axes, Mapping[str, dict[str, Any]]], None]


def legend_of(figure: Figure) -> list[tuple[str, str, str]]:
    """The lines of the legend of a plot, for a page: colour, the name of a dash in CSS, text."""
    handles = [handle for legend in figure.legends for handle in legend.legend_handles]
    lines = [handle for handle in handles if isinstance(handle, Line2D)]
    names = {"-": "solid", ":": "dotted"}
    line_styles = [(to_hex(line.get_color()), names.get(str(line.get_linestyle()), "dashed")) for line in lines]
    return [(*style, str(line.get_label()).replace(r"\$", "$")) for style, line in zip(line_styles, lines, strict=True)]


def _is_metric(name: str) -> bool:
    try:
        metric_of(name)
    except InputError:
        return False
    return True


@matplotlib.rc_context(STYLE)
def _plot(tables: Sequence[RunTable], chosen: Sequence[_Panel]) -> Figure:
    """The panels in two columns, and one legend for all of them."""
    columns = min(len(chosen), 2)
    labels = dict.fromkeys(table.label(row) for table in tables for row in table.rows)
    styles = {label: _style(n) for n, label in enumerate(labels)}
    width = WIDTH if columns > 1 or max(map(len, labels)) > 24 else 0.78 * WIDTH
    legend_below = max(map(len, labels)) > _BESIDE
    rows, legend_lines = -(-len(chosen) // columns), sum(-(-len(label) // _BELOW) for label in labels)
    height = 4.2 * rows + 0.27 * (legend_lines + 2) if legend_below else max(4.2 * rows, 0.27 * len(labels) + 1)
    figure = Figure(figsize=(width, height), dpi=DPI, layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12))
    handles: dict[str, Any] = {}
    for axes, draw in zip(panels(figure, len(chosen), columns), chosen, strict=True):
        draw(axes, styles)
        artists, texts = axes.get_legend_handles_labels()
        handles |= zip(texts, artists, strict=True)
    order = [*(plain(label) for label in labels), "published", "random", "oracle"]
    legend_handles = [handles[text] for text in order if text in handles]
    if len(legend_handles) > 1:
        texts = [textwrap.fill(str(handle.get_label()), _BELOW) for handle in legend_handles]
        figure.legend(
            legend_handles, texts, loc="outside lower left" if legend_below else "outside right upper", handlelength=2.6
        )
    return figure


def _style(n: int) -> dict[str, Any]:
    return {
        "color": _COLORS[n % len(_COLORS)],
        "marker": _MARKERS[n % len(_MARKERS)],
        "linestyle": _DASHES[n // len(_COLORS) % len(_DASHES)],
    }


def _over_epochs(table: RunTable) -> list[_Panel]:
    """A panel for each split and metric that runs of the table watched during the training."""
    watched = dict.fromkeys(
        (str(row["split"]), str(row["metric"]))
        for table_row in table.rows
        for run in table_row.runs
        for row in run.during
        if _is_metric(str(row.get("metric")))
    )

    def panel(split: str, metric: str) -> _Panel:
        def draw(axes: Axes, styles: Mapping[str, dict[str, Any]]) -> None:
            about = f"{table.title.partition(',')[0]}, {SPLIT_TITLES[split]} split"
            measure, name = table.evaluation.measure_of(metric), table.evaluation.titled(metric, title_of(metric))
            _set_titles(axes, about, name, metric_of(metric).better)
            unit_axis(axes.yaxis, measure)
            axes.set_xlabel("epoch")
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
            for row in table.rows:
                run_evaluations = [
                    [evaluation for evaluation in run.during if evaluation["split"] == split] for run in row.runs
                ]
                curves = [series(evaluations, metric, over="epoch") for evaluations in run_evaluations]
                _draw_curves(axes, curves, measure, table.label(row), styles)

        return draw

    return [panel(split, metric) for split, metric in watched]


def _over_k(table: RunTable, metrics: Sequence[str]) -> list[_Panel]:
    """A panel for each of the metrics that has a K, whatever its K; for the headline if none has one."""
    names = dict.fromkeys(
        (base.partition("@")[0], slash + form)
        for base, slash, form in (metric.partition("/") for metric in metrics)
        if "@" in base
    )
    if not names:
        base, slash, form = table.evaluation.plotted.partition("/")
        name, _, k = base.partition("@")
        names = {(name, slash + form): None} if k else {}

    def panel(name: str, form: str) -> _Panel:
        def draw(axes: Axes, styles: Mapping[str, dict[str, Any]]) -> None:
            scores: list[Score] = []
            metric = f"{name}@1{form}"
            measure = table.evaluation.measure_of(metric)
            for row in table.rows:
                scores_of_runs = [_scores_over_k(run.evaluation, name, form) for run in row.runs]
                scores = max(scores, *scores_of_runs, key=len)
                curves = [
                    (np.arange(1.0, 1 + len(run_scores)), np.array([score.model for score in run_scores]))
                    for run_scores in scores_of_runs
                ]
                _draw_curves(axes, curves, measure, table.label(row), styles)
            if not scores:
                _set_titles(axes, table.title.partition(": ")[0], f"{name}@K{form}", "")
                draw_note(axes, NOT_MEASURED)
                return
            k = np.arange(1, 1 + len(scores))
            axes.plot(k, in_unit([score.random for score in scores], measure), **RANDOM)
            axes.plot(k, in_unit([score.oracle for score in scores], measure), **ORACLE)
            words = table.evaluation.titled(metric, scores[0].title).replace("@1", "@K", 1)
            unit_axis(axes.yaxis, measure)
            _set_titles(axes, table.title.partition(": ")[0], words, scores[0].better)
            neighbours_axis(axes, len(k))

        return draw

    return [panel(name, form) for name, form in names]


def _scores_over_k(evaluation: Evaluation, name: str, form: str) -> list[Score]:
    """The metric at K = 1, 2, ..."""
    curve = evaluation.curves.get(name)
    scores = (measured(evaluation, f"{name}@{k}{form}") for k in range(1, 1 + len(curve.model) if curve else 1))
    return [score for score in scores if score is not None]


def _draw_curves(
    axes: Axes,
    found: Sequence[tuple[Array, Array]],
    measure: Measure | None,
    label: str,
    styles: Mapping[str, dict[str, Any]],
) -> None:
    """The mean of the curves of the seeds, where all have a value, and their range as a band, in the unit."""
    x_values = sorted(set.intersection(*(set(x.tolist()) for x, _ in found)))
    if not x_values:
        return
    values = np.array(
        [[dict(zip(x.tolist(), y.tolist(), strict=True))[x_value] for x_value in x_values] for x, y in found]
    )
    marker_step = -(-len(x_values) // _MAX_TICKS)  # few markers, at other places on each line
    start = list(styles).index(label) * marker_step // len(styles)
    marker_style: dict[str, Any] = {"markersize": 5.5, "markevery": (start, marker_step)}
    means, low, high = (in_unit(each, measure) for each in (values.mean(0), values.min(0), values.max(0)))
    axes.plot(x_values, means, label=plain(label), linewidth=2, **marker_style, **styles[label])
    if len(values) > 1:
        band: dict[str, Any] = {"color": styles[label]["color"], "alpha": 0.18, "linewidth": 0}
        axes.fill_between(x_values, low, high, **band)


def _set_titles(axes: Axes, about: str, words: str, better: str) -> None:
    if better and words.partition("@")[0].islower():
        words = words[:1].upper() + words[1:]
    axes.set_title(plain(f"{textwrap.fill(about, _TITLE_WIDTH)}\n{words}"), fontsize=10)
    axes.set_ylabel(f"{better} is better" if better else "", color=GREY)


def _draw_panel(axes: Axes, table: RunTable, metric: str, styles: Mapping[str, dict[str, Any]]) -> None:
    score, measure = table.score(metric), table.evaluation.measure_of(metric)
    _set_titles(axes, table.title.partition(": ")[0], title(table, metric), score.better if score else "")
    axes.set_xlabel(plain(table.axis or ""))
    numeric = has_numeric_axis(table.rows)
    rows = [row for row in table.rows if row.values(metric) or metric in row.published]
    rows = [row for row in rows if row.x is not None or not numeric]
    positions = _numeric_axis(axes, rows) if numeric else _word_axis(axes, rows)
    labels = list(dict.fromkeys(table.label(row) for row in rows))
    for n, label in enumerate(labels):
        # Words have no order, so there is no line; their points are side by side.
        offset = 0.0 if numeric else 0.6 * ((n + 0.5) / len(labels) - 0.5)
        points = [(positions[value_text(row.x)] + offset, row) for row in rows if table.label(row) == label]
        _draw_series(axes, points, metric, measure, label, styles[label], line=numeric)
    unit_axis(axes.yaxis, measure)
    if score is not None and metric_of(metric.partition("/")[0]).is_label_distance:
        draw_baselines(axes, score, measure)
        if not is_normalized(metric):
            # An oracle at 0 stays above the axis.
            zero = 0.0 if measure is None else measure.of(0.0)
            axes.set_ylim(bottom=zero if score.oracle else zero - 0.02 * (axes.get_ylim()[1] - zero))
    if not rows:
        draw_note(axes, NOT_MEASURED)


def _draw_series(
    axes: Axes,
    points: list[tuple[float, Row]],
    metric: str,
    measure: Measure | None,
    label: str,
    style: dict[str, Any],
    *,
    line: bool,
) -> None:
    """One group of rows: the means, the runs as points, and their range as a band or a bar."""
    measured_points = sorted(((x, row) for x, row in points if row.values(metric)), key=lambda point: point[0])
    x = [position for position, _ in measured_points]
    low, high = (
        in_unit([bound(row.values(metric)) for _, row in measured_points], measure).tolist() for bound in (min, max)
    )
    if measured_points:
        means, shape = (
            in_unit([row.mean(metric) for _, row in measured_points], measure),
            style if line else {**style, "linestyle": "none"},
        )
        axes.plot(x, means, linewidth=2, markersize=6.5, label=plain(label), **shape)
    if any(a < b for a, b in zip(low, high, strict=True)):
        if line and len(x) > 1:
            axes.fill_between(x, low, high, color=style["color"], alpha=0.18, linewidth=0)
        else:
            axes.vlines(x, low, high, color=style["color"], linewidth=1.4)
        run_values = [
            (position, in_unit(row.values(metric), measure))
            for position, row in measured_points
            if len(row.values(metric)) > 1
        ]
        positions, values = zip(
            *((position, value) for position, row_values in run_values for value in row_values), strict=True
        )
        axes.scatter(positions, values, s=9, color=style["color"], alpha=0.55, linewidths=0, zorder=3)
    published = sorted((position, row.published[metric]) for position, row in points if metric in row.published)
    if published:
        published = [(position, float(in_unit([value], measure)[0])) for position, value in published]
        hollow_style: dict[str, Any] = {"markerfacecolor": "white", "markersize": 7.5, "linewidth": 1.2}
        hollow_style["linestyle"] = (0, (1, 1)) if line else "none"
        axes.plot(*zip(*published, strict=True), color=style["color"], marker=style["marker"], zorder=4, **hollow_style)
        axes.plot([], [], color=GREY, marker="o", label="published", **hollow_style)


def _numeric_axis(axes: Axes, rows: Sequence[Row]) -> dict[str, float]:
    """An axis of numbers, logarithmic where that spaces them more evenly; returns the place of each value."""
    values = sorted({float(row.x) for row in rows})
    logarithmic = _is_geometric(values)
    if logarithmic:
        axes.set_xscale("log")
    if len(values) <= _MAX_TICKS:
        axes.xaxis.set_major_locator(FixedLocator(values))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.xaxis.set_minor_locator(NullLocator())
    elif not logarithmic:
        axes.xaxis.set_major_locator(MaxNLocator(_MAX_TICKS))
    return {value_text(row.x): float(row.x) for row in rows}


def _is_geometric(values: Sequence[float]) -> bool:
    """Whether the values are spaced more evenly on a logarithmic axis."""
    if len(values) < 3 or values[0] <= 0:
        return False

    def unevenness(places: Sequence[float]) -> float:
        gaps = [after - before for before, after in itertools.pairwise(places)]
        return max(gaps) / min(gaps)

    return unevenness([math.log(value) for value in values]) < unevenness(values)


def _word_axis(axes: Axes, rows: Sequence[Row]) -> dict[str, float]:
    """An axis of words, in order; returns the place of each."""
    words = list(dict.fromkeys(value_text(row.x) for row in rows))
    tick_labels = ["absent" if word == ABSENT else plain(word) for word in words]
    axes.set_xlim(-0.5, len(words) - 0.5)
    crowded = sum(map(len, tick_labels)) > 50
    axes.set_xticks(range(len(words)), tick_labels, rotation=30 if crowded else 0, ha="right" if crowded else "center")
    axes.grid(visible=False, axis="x")
    return {word: float(n) for n, word in enumerate(words)}
