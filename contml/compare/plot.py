"""Plots a metric against a config key: one line per group of rows, its seeds as points, random ranking and oracle."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from contml.compare.comparison import Comparison, Row, Table, has_numeric_axis, is_normalized
from contml.compare.differences import ABSENT
from contml.compare.table import NOT_MEASURED, title
from contml.evaluation.results import headline
from contml.report.plots import BLUE, DPI, GREY, INK, STYLE, WIDTH, draw_baselines, draw_note, panels, plain
from contml.report.table import value_text

# Okabe and Ito's colours without those of random and oracle, and without yellow, which is pale on white.
_COLORS = (BLUE, "#E69F00", "#009E73", "#CC79A7", "#56B4E9", INK)
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_DASHES: tuple[Any, ...] = ("solid", (0, (6, 2)), (0, (3, 1.5, 1, 1.5)))
#: An axis of at most this many values has a tick at each of them.
_MAX_TICKS = 9


@matplotlib.rc_context(STYLE)
def comparison_plot(comparison: Comparison, metrics: Sequence[str] = ()) -> Figure:
    """One panel per test set and metric; default the headline metric."""
    chosen = [
        (table, metric)
        for table in comparison.tables
        for metric in metrics or [headline(table.rows[0].runs[0].evaluation)]
    ]
    columns = min(len(chosen), 2)
    labels = dict.fromkeys(table.label(row) for table in comparison.tables for row in table.rows)
    styles = {label: _style(n) for n, label in enumerate(labels)}
    width = WIDTH if columns > 1 or max(map(len, labels)) > 24 else 0.78 * WIDTH
    height = max(4.2 * -(-len(chosen) // columns), 0.27 * len(labels) + 1)
    figure = Figure(figsize=(width, height), dpi=DPI, layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12))
    handles: dict[str, Any] = {}
    for axes, (table, metric) in zip(panels(figure, len(chosen), columns), chosen, strict=True):
        _draw_panel(axes, table, metric, styles)
        axes.set_xlabel(plain(table.axis or ""))
        artists, texts = axes.get_legend_handles_labels()
        handles |= zip(texts, artists, strict=True)
    order = [*(plain(label) for label in labels), "published", "random", "oracle"]
    shown = [handles[text] for text in order if text in handles]
    if len(shown) > 1:
        figure.legend(handles=shown, loc="outside right upper", handlelength=2.6)
    return figure


def _style(n: int) -> dict[str, Any]:
    return {
        "color": _COLORS[n % len(_COLORS)],
        "marker": _MARKERS[n % len(_MARKERS)],
        "linestyle": _DASHES[n // len(_COLORS) % len(_DASHES)],
    }


def _draw_panel(axes: Axes, table: Table, metric: str, styles: dict[str, dict[str, Any]]) -> None:
    score, words, about = table.score(metric), title(table, metric), table.title.partition(": ")[0]
    axes.set_title(plain(f"{about}\n" + (words.capitalize() if score and words.islower() else words)))
    axes.set_ylabel(f"{score.better} is better" if score else "", color=GREY)
    numeric = has_numeric_axis(table.rows)
    rows = [row for row in table.rows if row.values(metric) or metric in row.published]
    rows = [row for row in rows if row.x is not None or not numeric]
    places = _numeric_axis(axes, rows) if numeric else _word_axis(axes, rows)
    labels = list(dict.fromkeys(table.label(row) for row in rows))
    for n, label in enumerate(labels):
        # Words have no order, so there is no line; their points are side by side.
        offset = 0.0 if numeric else 0.6 * ((n + 0.5) / len(labels) - 0.5)
        points = [(places[value_text(row.x)] + offset, row) for row in rows if table.label(row) == label]
        _draw_series(axes, points, metric, label, styles[label], line=numeric)
    if score is not None and metric.startswith("label_distance"):
        draw_baselines(axes, score.random, score.oracle)
        if not is_normalized(metric):
            # An oracle at 0 stays above the axis.
            axes.set_ylim(bottom=0 if score.oracle else -0.02 * axes.get_ylim()[1])
    if not rows:
        draw_note(axes, NOT_MEASURED)


def _draw_series(
    axes: Axes, points: list[tuple[float, Row]], metric: str, label: str, style: dict[str, Any], *, line: bool
) -> None:
    """One group of rows: the means, the runs as points, and their range as a band or a bar."""
    measured = sorted(((x, row) for x, row in points if row.values(metric)), key=lambda point: point[0])
    x = [place for place, _ in measured]
    low, high = ([bound(row.values(metric)) for _, row in measured] for bound in (min, max))
    if measured:
        means, shape = [row.mean(metric) for _, row in measured], style if line else {**style, "linestyle": "none"}
        axes.plot(x, means, linewidth=2, markersize=6.5, label=plain(label), **shape)
    if any(a < b for a, b in zip(low, high, strict=True)):
        if line and len(x) > 1:
            axes.fill_between(x, low, high, color=style["color"], alpha=0.18, linewidth=0)
        else:
            axes.vlines(x, low, high, color=style["color"], linewidth=1.4)
        several = [(place, row.values(metric)) for place, row in measured if len(row.values(metric)) > 1]
        places, values = zip(*((place, value) for place, of_row in several for value in of_row), strict=True)
        axes.scatter(places, values, s=9, color=style["color"], alpha=0.55, linewidths=0, zorder=3)
    published = sorted((place, row.published[metric]) for place, row in points if metric in row.published)
    if published:
        hollow: dict[str, Any] = {"markerfacecolor": "white", "markersize": 7.5, "linewidth": 1.2}
        hollow["linestyle"] = (0, (1, 1)) if line else "none"
        axes.plot(*zip(*published, strict=True), color=style["color"], marker=style["marker"], zorder=4, **hollow)
        axes.plot([], [], color=GREY, marker="o", label="published", **hollow)


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
    shown = ["absent" if word == ABSENT else plain(word) for word in words]
    axes.set_xlim(-0.5, len(words) - 0.5)
    crowded = sum(map(len, shown)) > 50
    axes.set_xticks(range(len(words)), shown, rotation=30 if crowded else 0, ha="right" if crowded else "center")
    axes.grid(visible=False, axis="x")
    return {word: float(n) for n, word in enumerate(words)}
