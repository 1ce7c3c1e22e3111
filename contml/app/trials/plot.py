"""The plot of trainings against a key of their configs: a point per setting, its trainings as a bar or a band."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from contml.app.trials.compare import Comparison
from contml.app.trials.table import title
from contml.contracts import Measure
from contml.evaluation.metrics import metric_of
from contml.evaluation.results import Score
from contml.evaluation.table import value_text
from contml.report.plots import (
    BLUE,
    DPI,
    GREY,
    INK,
    STYLE,
    WIDTH,
    draw_baselines,
    in_unit,
    panels,
    plain,
    unit_axis,
)

# Okabe and Ito's colours without the two of random and oracle, and without yellow, which is pale on white.
_COLORS = (BLUE, "#E69F00", "#009E73", "#CC79A7", "#56B4E9", INK)
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
#: An axis of at most this many values has a tick at each of them.
_MAX_TICKS = 9
#: Characters of a line of a title, so that it ends before the next panel, and of a name in the legend.
_TITLE_WIDTH, _NAME_WIDTH = 44, 110


@dataclass(frozen=True)
class Panel:
    """A metric against a key.

    Attributes:
        about: the data and the split.
        metric: its title.
        key: of the configs.
        better: whether a "lower" or a "higher" value is better.
        series: values of the key, each with the metric of its trainings, by the name of a line.
        measure: how the metric is printed; None: as it is.
        baselines: random ranking and oracle; None: not drawn.
    """

    about: str
    metric: str
    key: str
    better: str
    series: Mapping[str, Sequence[tuple[Any, Sequence[float]]]]
    measure: Measure | None = None
    baselines: Score | None = None


@matplotlib.rc_context(STYLE)
def key_plot(drawn: Sequence[Panel]) -> Figure:
    """Return the panels in two columns, with a legend for all of them."""
    columns = min(len(drawn), 2)
    names = list(dict.fromkeys(name for panel in drawn for name in panel.series))
    height = 4.2 * -(-len(drawn) // columns) + 0.27 * (len(names) + 2)
    figure = Figure(figsize=(WIDTH if columns > 1 else 0.78 * WIDTH, height), dpi=DPI, layout="constrained")
    handles: dict[str, Any] = {}
    for axes, panel in zip(panels(figure, len(drawn), columns), drawn, strict=True):
        _draw(axes, panel, names)
        artists, texts = axes.get_legend_handles_labels()
        handles |= zip(texts, artists, strict=True)
    if len(handles) > 1:
        texts = [textwrap.fill(text, _NAME_WIDTH) for text in handles]
        figure.legend(handles.values(), texts, loc="outside lower left", handlelength=2.6)
    return figure


def _draw(axes: Axes, panel: Panel, names: Sequence[str]) -> None:
    is_word = bool(panel.better) and panel.metric.partition("@")[0].islower()
    metric = panel.metric[:1].upper() + panel.metric[1:] if is_word else panel.metric
    axes.set_title(plain(f"{textwrap.fill(panel.about, _TITLE_WIDTH)}\n{metric}"), fontsize=10)
    axes.set_xlabel(plain(panel.key))
    axes.set_ylabel(f"{panel.better} is better" if panel.better else "", color=GREY)
    keys = [value for points in panel.series.values() for value, _ in points]
    is_number = all(isinstance(key, int | float) and not isinstance(key, bool) for key in keys)
    words = [] if is_number else list(dict.fromkeys(map(value_text, keys)))
    if words:
        axes.set_xticks(range(len(words)), [plain(word) for word in words])
        axes.set_xlim(-0.5, len(words) - 0.5)
        place = {word: float(n) for n, word in enumerate(words)}
    else:
        place = {value_text(key): float(key) for key in keys}
        values = sorted({*place.values()})
        if values and 0 < 8 * values[0] <= values[-1]:
            axes.set_xscale("log")
        if len(values) <= _MAX_TICKS:
            axes.xaxis.set_major_locator(FixedLocator(values))
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.xaxis.set_minor_locator(NullLocator())
    for name, points in panel.series.items():
        n, found = (
            names.index(name),
            sorted(((place[value_text(key)], values) for key, values in points), key=itemgetter(0)),
        )
        # Words have no order, so there is no line; the points of several series are side by side.
        offset = 0.6 * ((n + 0.5) / len(names) - 0.5) if words else 0.0
        x, color = [position + offset for position, _ in found], _COLORS[n % len(_COLORS)]
        means, lows, highs = (
            in_unit([of(values) for _, values in found], panel.measure) for of in (statistics.fmean, min, max)
        )
        line = "none" if words else "-"
        marker = _MARKERS[n % len(_MARKERS)]
        axes.plot(x, means, label=plain(name), color=color, marker=marker, linestyle=line)
        if (lows < highs).any():
            axes.vlines(x, lows, highs, color=color)
    unit_axis(axes.yaxis, panel.measure)
    if panel.baselines is not None:
        draw_baselines(axes, panel.baselines, panel.measure)


def comparison_plot(comparison: Comparison, metrics: Sequence[str] = ()) -> Figure:
    """Return one panel per test set and metric against the key of the tables' axis; default the headline metric."""
    drawn = []
    for table in comparison.tables:
        for metric in metrics or [table.evaluation.plotted]:
            series: dict[str, list[tuple[Any, Sequence[float]]]] = {}
            for row in table.rows:
                if values := row.values(metric):
                    series.setdefault(table.label(row), []).append((row.x, values))
            score, about = table.score(metric), table.title.partition(": ")[0]
            is_distance = metric_of(metric.partition("/")[0]).is_label_distance
            measure = table.evaluation.measure_of(metric)
            better, baselines = (score.better if score else ""), (score if is_distance else None)
            name = title(table, metric)
            drawn.append(Panel(about, name, str(table.axis), better, series, measure, baselines=baselines))
    return key_plot(drawn)
