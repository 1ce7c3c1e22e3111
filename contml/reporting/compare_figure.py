"""A metric against a config key: a line for each group of runs, seeds as points and band, random and oracle beside."""

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

from contml.evaluation.results import headline
from contml.reporting.compare import Comparison, Group, Row, numeric
from contml.reporting.differences import ABSENT, said
from contml.reporting.figures import BLUE, DPI, GREY, INK, ORACLE, RANDOM, STYLE, WIDTH, plain

# Okabe and Ito's colours without those of random and oracle, and yellow, which is faint on white.
_COLORS = (BLUE, "#E69F00", "#009E73", "#CC79A7", "#56B4E9", INK)
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_DASHES: tuple[Any, ...] = ("solid", (0, (6, 2)), (0, (3, 1.5, 1, 1.5)))
#: An axis has a tick at each value up to so many.
_TICKS = 9


def comparison_figure(comparison: Comparison, metrics: Sequence[str] = ()) -> Figure:
    """One panel for each test set and metric; default the one metric that stands for all others."""
    panels = [
        (group, metric)
        for group in comparison.groups
        for metric in metrics or [headline(group.rows[0].runs[0].evaluation)]
    ]
    columns = min(len(panels), 2)
    lines = -(-len(panels) // columns)
    labels = dict.fromkeys(_label(group, row) for group in comparison.groups for row in group.rows)
    styles = {label: _style(n) for n, label in enumerate(labels)}
    with matplotlib.rc_context(STYLE):
        width = WIDTH if columns > 1 or max(map(len, labels)) > 24 else 0.78 * WIDTH
        height = max(4.2 * lines, 0.27 * len(labels) + 1)
        figure = Figure(figsize=(width, height), dpi=DPI, layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12))
        grid = figure.subplots(lines, columns, squeeze=False)
        for axes, (group, metric) in zip(grid.flat, panels, strict=False):
            _panel(axes, group, metric, styles, several=len(comparison.groups) > 1)
            axes.set_xlabel(plain(comparison.by or ""))
        for axes in list(grid.flat)[len(panels) :]:
            axes.set_axis_off()
        handles = {text: artist for axes in grid.flat for artist, text in _entries(axes)}
        order = [*(plain(label) for label in labels), "published", "random", "oracle"]
        shown = [handles[text] for text in order if text in handles]
        if len(shown) > 1:
            figure.legend(handles=shown, loc="outside right upper", handlelength=2.6)
    return figure


def _label(group: Group, row: Row) -> str:
    return group.label(row) or "ours"


def _style(n: int) -> dict[str, Any]:
    colors = len(_COLORS)
    return {
        "color": _COLORS[n % colors],
        "marker": _MARKERS[n % len(_MARKERS)],
        "linestyle": _DASHES[n // colors % len(_DASHES)],
    }


def _entries(axes: Axes) -> list[tuple[Any, str]]:
    return list(zip(*axes.get_legend_handles_labels(), strict=True))


def _panel(axes: Axes, group: Group, metric: str, styles: dict[str, dict[str, Any]], *, several: bool) -> None:
    score = group.score(metric)
    words = metric if score is None else score.title.capitalize() if score.title.islower() else score.title
    axes.set_title(plain(f"{group.title.partition(':')[0]}\n{words}" if several else words))
    axes.set_ylabel("" if score is None else f"{score.better} is better", color=GREY)
    rows = [row for row in group.rows if row.values(metric) or _published(row, metric) is not None]
    ordered = numeric(group.rows)
    rows = [row for row in rows if row.at is not None or not ordered]
    places = _numbers(axes, rows) if ordered else _categories(axes, rows)
    labels = list(dict.fromkeys(_label(group, row) for row in rows))
    for n, label in enumerate(labels):
        of = [row for row in rows if _label(group, row) == label]
        # Words have no order to draw a line along; their points stand side by side.
        aside = 0.0 if ordered else 0.6 * ((n + 0.5) / len(labels) - 0.5)
        _series(axes, [(places[said(row.at)] + aside, row) for row in of], metric, label, styles[label], line=ordered)
    if score is not None and metric.startswith("label_distance"):
        for value, style in ((score.random, RANDOM), (score.oracle, ORACLE)):
            if math.isfinite(value):
                axes.axhline(value, **style)
        if not metric.endswith("/normalized"):
            # An oracle at 0 stands above the axis.
            axes.set_ylim(bottom=0 if score.oracle else -0.02 * axes.get_ylim()[1])
    if not rows:
        axes.text(0.5, 0.5, "not measured", transform=axes.transAxes, ha="center", va="center", color=GREY)


def _series(
    axes: Axes, points: list[tuple[float, Row]], metric: str, label: str, style: dict[str, Any], *, line: bool
) -> None:
    """One group of runs: the mean, its runs as points, from the least to the largest as a band or a bar."""
    drawn = sorted(((x, row) for x, row in points if row.values(metric)), key=lambda point: point[0])
    x = [place for place, _ in drawn]
    low, high = ([end(row.values(metric)) for _, row in drawn] for end in (min, max))
    if drawn:
        shape = style if line else {**style, "linestyle": "none"}
        axes.plot(x, [row.mean(metric) for _, row in drawn], linewidth=2, markersize=6.5, label=plain(label), **shape)
    if any(a < b for a, b in zip(low, high, strict=True)):
        if line and len(x) > 1:
            axes.fill_between(x, low, high, color=style["color"], alpha=0.18, linewidth=0)
        else:
            axes.vlines(x, low, high, color=style["color"], linewidth=1.4)
        each = [(place, value) for place, row in drawn for value in row.values(metric) if len(row.values(metric)) > 1]
        places, values = zip(*each, strict=True)
        axes.scatter(places, values, s=9, color=style["color"], alpha=0.55, linewidths=0, zorder=3)
    theirs = [(place, value) for place, row in points if (value := _published(row, metric)) is not None]
    if theirs:
        hollow: dict[str, Any] = {
            "markerfacecolor": "white",
            "markersize": 7.5,
            "linestyle": (0, (1, 1)) if line else "none",
        }
        places, values = zip(*sorted(theirs), strict=True)
        axes.plot(places, values, color=style["color"], marker=style["marker"], linewidth=1.2, zorder=4, **hollow)
        axes.plot([], [], color=GREY, marker="o", linewidth=1.2, label="published", **hollow)


def _published(row: Row, metric: str) -> float | None:
    return None if row.published is None else row.published.metrics.get(metric)


def _numbers(axes: Axes, rows: Sequence[Row]) -> dict[str, float]:
    """An axis of numbers: logarithmic where that spaces them more evenly, ticks where the runs are."""
    values = sorted({float(row.at) for row in rows})
    if _geometric(values):
        axes.set_xscale("log")
    if len(values) <= _TICKS:
        axes.xaxis.set_major_locator(FixedLocator(values))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.xaxis.set_minor_locator(NullLocator())
    elif not _geometric(values):
        axes.xaxis.set_major_locator(MaxNLocator(_TICKS))
    return {said(row.at): float(row.at) for row in rows}


def _geometric(values: Sequence[float]) -> bool:
    if len(values) < 3 or values[0] <= 0:
        return False

    def uneven(places: Sequence[float]) -> float:
        gaps = [after - before for before, after in itertools.pairwise(places)]
        return max(gaps) / min(gaps)

    return uneven([math.log(value) for value in values]) < uneven(values)


def _categories(axes: Axes, rows: Sequence[Row]) -> dict[str, float]:
    names = list(dict.fromkeys(said(row.at) for row in rows))
    shown = ["absent" if name == ABSENT else plain(name) for name in names]
    axes.set_xlim(-0.5, len(names) - 0.5)
    crowded = sum(map(len, shown)) > 50
    axes.set_xticks(range(len(names)), shown, rotation=30 if crowded else 0, ha="right" if crowded else "center")
    axes.grid(visible=False, axis="x")
    return {name: float(n) for n, name in enumerate(names)}
