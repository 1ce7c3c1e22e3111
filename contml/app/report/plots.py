"""The plots of a report: training, metrics over K, density. They use matplotlib's object interface, not pyplot."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence, Sized
from pathlib import Path
from typing import Any, TypeAlias

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, StrMethodFormatter
from PIL import Image
from torch import Tensor

from contml._support.pages import picture_bytes, shareable
from contml._support.text import score_text
from contml.contracts import PLAIN, Measure
from contml.data.split import SPLIT_TITLES
from contml.evaluation.evaluated import Evaluated
from contml.evaluation.results import Evaluation, Score, measured

Array: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"

#: Bins of the densities of classes, bins of the quartiles, and the points that one of these needs.
_DENSITY_BINS, _BINS, _LEAST = 80, 40, 10

# Okabe and Ito's colours, distinct for any colour vision. The line styles differ as well, for print in grey.
BLUE, VERMILION, GREY, INK = "#0072B2", "#D55E00", "#767676", "#222222"
MODEL: dict[str, Any] = {"color": BLUE, "linewidth": 2.0, "label": "model"}
RANDOM: dict[str, Any] = {"color": GREY, "linewidth": 1.4, "linestyle": (0, (1, 1.5)), "label": "random"}
ORACLE: dict[str, Any] = {"color": VERMILION, "linewidth": 1.4, "linestyle": (0, (5, 2)), "label": "oracle"}
COUNTS = LinearSegmentedColormap.from_list("counts", ["#dbe9f3", "#7fb2d6", BLUE, "#06263f"])

#: The style of all plots. The type of its parameters differs between versions of matplotlib.
STYLE: Any = matplotlib.rc_params_from_file(Path(__file__).with_name("plots.mplstyle"), use_default_template=False)
WIDTH = 10.8  # inches: 1,080 px on the page, at DPI / 100 of the screen's density
DPI = 180
LONG = 200  # curves over more values of K have a logarithmic axis


def picture_of(figure: Figure) -> Image.Image:
    """Return the plot as a picture."""
    canvas: Any = FigureCanvasAgg(figure)  # its methods have no types
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        # A metric's title may hold characters that the font lacks; they are drawn as boxes.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        canvas.draw()
    return Image.fromarray(np.ascontiguousarray(np.asarray(canvas.buffer_rgba())[:, :, :3]))


def encode(picture: Image.Image) -> bytes:
    """Encode the picture as a PNG file."""
    return picture_bytes(picture, "PNG", compress_level=4)  # half the time of 6, 3 % larger


def png(figure: Figure) -> bytes:
    """Encode the plot as a PNG file."""
    return encode(picture_of(figure))


def panels(figure: Figure, count: int, columns: int) -> list[Axes]:
    """Return axes for `count` plots in a grid. The rest of the last line is left empty."""
    grid = list(figure.subplots(-(-count // columns), columns, squeeze=False).flat)
    for axes in grid[count:]:
        axes.set_axis_off()
    return grid[:count]


@matplotlib.rc_context(STYLE)
def training_plot(rows: Sequence[Mapping[str, Any]], evaluated: Evaluated) -> Figure:
    """Plot loss, headline metric and learning rate over the steps of a run.

    The headline metric comes from the evaluations during the training. It is label distance or Recall.
    """
    train = [row for row in rows if row.get("event") == "train"]
    figure = Figure(figsize=(WIDTH, 3.5), dpi=DPI, layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    _plot_loss(left, *series(train, "loss"))
    _plot_evaluations(middle, rows, evaluated)
    right.set_title("Learning rate")
    steps, rates = series(train, "learning_rate")
    _line_or_note(right, steps, rates, "no learning rate recorded", color=INK, linewidth=1.4)
    if len(rates):
        right.set_ylim(bottom=0)
        right.yaxis.set_major_formatter(StrMethodFormatter("{x:.3g}"))
    for axes in (left, middle, right):
        axes.set_xlabel("step")
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    return figure


@matplotlib.rc_context(STYLE)
def metrics_plot(evaluation: Evaluation) -> Figure:
    """Plot each metric over K, of the model, a random ranking and the oracle."""
    curves = list(evaluation.curves.items())
    columns = min(len(curves), 2)
    figure = Figure(figsize=(WIDTH, 3.8 * math.ceil(len(curves) / columns)), dpi=DPI, layout="constrained")
    grid = panels(figure, len(curves), columns)
    for axes, (name, curve) in zip(grid, curves, strict=False):
        k, measure = np.arange(1, len(curve.model) + 1), evaluation.measure_of(f"{name}@1")
        for values, style in ((curve.random, RANDOM), (curve.oracle, ORACLE), (curve.model, MODEL)):
            axes.plot(k, in_unit(values, measure), marker=_marker(k), **style)
        title = evaluation.titled(f"{name}@1", curve.title)
        axes.set_title(f"{plain(title)}  ({plain(curve.better)} is better)")
        unit_axis(axes.yaxis, measure)
        neighbours_axis(axes, len(k))
    random, oracle, model = grid[0].get_lines()
    figure.legend(handles=[model, random, oracle], loc="outside upper right", ncols=3)
    return figure


def neighbours_axis(axes: Axes, largest: int) -> None:
    """Set up the axis of K = 1 to `largest`. A long axis is logarithmic, since Recall@1000 changes most at small K."""
    axes.set_xlabel("K (number of neighbours)")
    if largest > LONG:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))


@matplotlib.rc_context(STYLE)
def density_plot(pairs: Tensor, spearman: float, measure: Measure = PLAIN) -> Figure:
    """Plot label distance against embedding distance as a density of pairs `[P, 2]`, with median and quartiles.

    `measure` is the unit of the label distances.
    """
    figure, axes, label_distances, embedding = _pairs_plot(pairs, f"Spearman correlation {score_text(spearman)}", 5.4)
    axes.set_ylabel(distance_title(measure))
    if not len(label_distances):
        return figure
    axes.grid(visible=False)
    label = in_unit(label_distances, measure)
    scale: Any = "log" if measure.kind == "ratio" else "linear"
    hexes = axes.hexbin(embedding, label, gridsize=(64, 36), mincnt=1, cmap=COUNTS, linewidths=0.1, yscale=scale)
    unit_axis(axes.yaxis, measure)
    hexes.set_norm(LogNorm(1, max(10.0, float(np.max(np.asarray(hexes.get_array()))))))
    figure.colorbar(hexes, ax=axes, label="pairs in a cell (log scale)", pad=0.02, aspect=32)
    centres, (lower, median, upper) = binned_quartiles(embedding, label)
    axes.plot(centres, median, color="white", linewidth=4.5)
    axes.plot(centres, median, color=VERMILION, linewidth=2.2, label="median", marker=_marker(centres))
    for quartile, name in ((lower, "quartiles"), (upper, None)):
        axes.plot(centres, quartile, color=VERMILION, linewidth=1.1, linestyle=(0, (4, 2)), label=name)
    axes.legend(loc="upper left")
    return figure


@matplotlib.rc_context(STYLE)
def class_density_plot(pairs: Tensor) -> Figure:
    """Plot embedding distances of pairs `[P, 2]` as two densities: within a class, and between classes.

    Pairs within a class have label distance 0.
    """
    figure, axes, label, embedding = _pairs_plot(pairs, "Pairs within a class and between classes", 4.2)
    axes.set_ylabel("density")
    axes.set_yticks([])
    if not len(label):
        return figure
    low, high = float(embedding.min()), float(embedding.max())
    edges = np.linspace(low, high if high > low else low + 1, _DENSITY_BINS + 1)
    for mask, color, name in ((label == 0, BLUE, "within a class"), (label != 0, VERMILION, "between classes")):
        if mask.any():
            density, _ = np.histogram(embedding[mask], edges, density=True)
            axes.stairs(density, edges, fill=True, color=color, alpha=0.25)
            axes.stairs(density, edges, color=color, linewidth=2.0, label=f"{name} ({int(mask.sum()):,})")
    figure.legend(loc="outside upper right", ncols=2)
    return figure


def _pairs_plot(pairs: Tensor, title: str, height: float) -> tuple[Figure, Axes, Array, Array]:
    """Return an empty plot over the embedding distance, and the label and embedding distances of the finite pairs."""
    points = pairs.detach().cpu().double().reshape(-1, 2).numpy()
    label, embedding = points[np.isfinite(points).all(axis=1)].T
    figure = Figure(figsize=(0.72 * WIDTH, height), dpi=DPI, layout="constrained")
    axes = figure.subplots()
    axes.set_title(title)
    axes.set_xlabel("embedding distance")
    if not len(label):
        draw_note(axes, "no pairs recorded")
    return figure, axes, label, embedding


def binned_quartiles(x: Array, y: Array) -> tuple[Array, Array]:
    """Compute centres `[B]` and quartiles `[3, B]` of y in bins of equal width over x that hold at least 10 points."""
    low, high = float(x.min()), float(x.max())
    position = np.zeros(len(x)) if high == low else (x - low) / (high - low)
    bin_of = np.minimum((position * _BINS).astype(np.int64), _BINS - 1)
    counts = np.bincount(bin_of, minlength=_BINS)
    valid_bins = np.flatnonzero(counts >= min(_LEAST, int(counts.max())))
    quartiles = [np.quantile(y[bin_of == b], [0.25, 0.5, 0.75]) for b in valid_bins]
    return low + (valid_bins + 0.5) * (high - low) / _BINS, np.transpose(quartiles)


def plain(text: str) -> str:
    """Return a text that matplotlib prints unchanged, without absolute folders.

    Dollar signs are escaped, since matplotlib would read them as formulas.
    """
    return shareable(text).replace("$", r"\$")


def _plot_loss(axes: Axes, steps: Array, losses: Array) -> None:
    from scipy.ndimage import uniform_filter1d  # here: it takes a while to import

    axes.set_title("Training loss")
    smoothed = uniform_filter1d(losses, max(1, len(losses) // 20), mode="nearest") if len(losses) else losses
    _line_or_note(axes, steps, losses, "no training rows recorded", color=BLUE, alpha=0.25, linewidth=0.8)
    axes.plot(steps, smoothed, color=BLUE, linewidth=2.0)
    if len(losses) and losses.min() > 0 and losses.max() > 100 * losses.min():
        axes.set_yscale("log")


def watched(rows: Sequence[Mapping[str, Any]], evaluated: Evaluated) -> str:
    """Return the split that was evaluated during the training, "val" or "test".

    By default, return the split of the result.
    """
    splits = [row.get("split") for row in rows if row.get("event") == "evaluation"]
    return next((str(split) for split in splits if str(split) in SPLIT_TITLES), evaluated.split)


def _plot_evaluations(axes: Axes, rows: Sequence[Mapping[str, Any]], evaluated: Evaluated) -> None:
    evaluation, split = evaluated.evaluation, watched(rows, evaluated)
    rows = [row for row in rows if row.get("event") == "evaluation"]
    key = next((str(row["metric"]) for row in rows if "metric" in row), evaluation.headline)
    score = measured(evaluation, key)
    measure = None if score is None else evaluation.measure_of(key)
    title = evaluation.titled(key, score.title) if score else key
    axes.set_title(f"{SPLIT_TITLES[split].capitalize()} split:\n{plain(title)}")
    steps, values = series(rows, key)
    values = in_unit(values, measure)
    _line_or_note(axes, steps, values, "no evaluations recorded", **{**MODEL, "marker": "o", "markersize": 4})
    # The metrics of a random ranking and of the oracle depend on the split.
    if split == evaluated.split and score is not None:
        draw_baselines(axes, score, measure)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="best")
    zero = 0.0 if measure is None else measure.of(0.0)
    axes.set_ylim(zero, zero + 1.05 * (axes.get_ylim()[1] - zero))  # with room above nearly equal values
    unit_axis(axes.yaxis, measure)


def draw_baselines(axes: Axes, score: Score, measure: Measure | None) -> None:
    """Draw horizontal lines at the metric of a random ranking and of the oracle, if they are finite."""
    for value, style in zip(in_unit((score.random, score.oracle), measure), (RANDOM, ORACLE), strict=True):
        if math.isfinite(value):
            axes.axhline(value, **style)


def in_unit(values: Sequence[float] | Array, measure: Measure | None) -> Array:
    """Convert label distances `[N]` to the unit of the labels. Without a measure, the values stay as they are."""
    given = np.asarray(values, dtype=np.float64)
    return given if measure is None else np.array([measure.of(value) for value in given.tolist()])


def unit_axis(axis: Axis, measure: Measure | None) -> None:
    """Write the numbers of an axis as label distances. Without a measure, the axis stays as it is."""
    if measure is None:
        return
    if axis.get_scale() == "log":  # of factors
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(lambda value, _: f"{measure.before}{value:{',.0f' if value >= 1000 else 'g'}}")


def distance_title(measure: Measure) -> str:
    """Return the title of an axis of label distances in the unit of the labels."""
    unit = f", {measure.distance_unit}" if measure.distance_unit else ""
    return plain(f"label distance{f' in {measure.name}' if measure.name else ''}{unit}")


def draw_note(axes: Axes, text: str) -> None:
    """Write the reason in the middle of an empty plot."""
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=GREY)


def _line_or_note(axes: Axes, x: Array, y: Array, note: str, **style: Any) -> None:
    if len(y):
        axes.plot(x, y, **{"marker": _marker(y), **style})
    else:
        draw_note(axes, note)


def _marker(values: Sized) -> str | None:
    # A line of one point is invisible.
    return "o" if len(values) == 1 else None


def series(rows: Sequence[Mapping[str, Any]], key: str) -> tuple[Array, Array]:
    """Return sorted steps and their values, if both are finite.

    If a resumed run repeated a step, its last value counts.
    """
    pairs: list[tuple[Any, Any]] = [(row.get("step"), row.get(key)) for row in rows]
    values_by_step = dict(pair for pair in pairs if all(isinstance(x, int | float) and math.isfinite(x) for x in pair))
    steps = sorted(values_by_step)
    return np.array(steps, dtype=np.float64), np.array([values_by_step[step] for step in steps], dtype=np.float64)
