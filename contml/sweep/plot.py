"""The plot of a sweep: the metric of all trials against each key."""

from __future__ import annotations

from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from contml.report.plots import BLUE, DPI, STYLE, VERMILION, WIDTH, in_unit, panels, plain, unit_axis
from contml.sweep.results import Sweep
from contml.sweep.space import Choice, Range, value_text


@matplotlib.rc_context(STYLE)
def sweep_plot(sweep: Sweep) -> Figure:
    """One panel per key; a point per trial, its trainings as a bar; the chosen trial, if any, in another colour."""
    columns = min(len(sweep.space), 2)
    height = 4.2 * -(-len(sweep.space) // columns)
    figure = Figure(figsize=(WIDTH if columns > 1 else 0.78 * WIDTH, height), dpi=DPI, layout="constrained")
    for axes, dimension in zip(panels(figure, len(sweep.space), columns), sweep.space, strict=True):
        _draw_panel(axes, sweep, dimension)
    return figure


def _draw_panel(axes: Axes, sweep: Sweep, part: Choice | Range) -> None:
    name = sweep.metric.replace("_", " ")
    unit = f", {sweep.unit.distance_unit}" if sweep.unit.distance_unit else ""
    axes.set_title(plain(f"{name[0].upper()}{name[1:]}{unit}, validation split"))
    axes.set_xlabel(plain(part.key))
    axes.set_ylabel(f"{sweep.better} is better")
    unit_axis(axes.yaxis, sweep.unit)
    if isinstance(part, Choice):
        words = [value_text(value) for value in part.values]
        axes.set_xticks(range(len(words)), [plain(word) for word in words])
        axes.set_xlim(-0.5, len(words) - 0.5)
        x_positions = {trial.number: float(words.index(value_text(trial.params[part.key]))) for trial in sweep.trials}
    else:
        axes.set_xscale("log" if part.log else "linear")
        axes.set_xlim(part.low, part.high)
        x_positions = {trial.number: float(trial.params[part.key]) for trial in sweep.trials}
    for trial in (trial for trial in reversed(sweep.trials) if not trial.error):
        color = VERMILION if trial is sweep.chosen else BLUE
        # Trials of one value may overlap.
        style: dict[str, Any] = {"color": color, "alpha": 1.0 if trial is sweep.chosen else 0.6}
        low, high, mean = in_unit([min(trial.values), max(trial.values), trial.mean], sweep.unit)
        axes.vlines(x_positions[trial.number], low, high, linewidth=1.4, **style)
        axes.plot(x_positions[trial.number], mean, "o", clip_on=False, **style)
    if sweep.chosen is not None:
        axes.plot([], [], "o", color=VERMILION, label=f"chosen: trial {sweep.chosen.number}")
        axes.legend(loc="best")
