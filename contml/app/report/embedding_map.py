"""A t-SNE map of the embeddings as dots in the colours of the labels."""

from __future__ import annotations

from collections import Counter
from datetime import date, timedelta
from typing import Any

import matplotlib
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullLocator
from torch import Tensor

from contml._support.text import number
from contml.app.report.plots import DPI, STYLE, WIDTH, Array, draw_note, plain
from contml.contracts import Colours
from contml.data.renderers.text import class_colour
from contml.labels.base import LabelSpace

#: The most items of t-SNE: more would take longer than the rest of a report. The least: fewer than ten show nothing.
MAX_TSNE, MIN_TSNE = 1000, 10
PERPLEXITY = 30
#: Classes in a legend, characters of a name there, and the items whose label distances colour labels of other kinds.
_CLASSES, _NAME, _LANDMARKS = 9, 22, 200
_UNKNOWN = "#b9bec3"


def map_plot(labels: LabelSpace, embeddings: Tensor) -> Figure:
    """Plot the t-SNE map. If there are many items, plot a sample drawn from seed 0.

    Items whose embedding is not finite are left out.
    """
    finite = torch.isfinite(embeddings).all(dim=1).nonzero().flatten() if embeddings.numel() else torch.zeros(0).long()
    sample = torch.randperm(len(finite), generator=torch.Generator().manual_seed(0))[:MAX_TSNE].sort().values
    rows = finite[sample]
    few = 0 < len(rows) < MIN_TSNE
    note = f"t-SNE needs at least {MIN_TSNE} items" if few else "no embeddings recorded"
    figure, axes = _dots(tsne(embeddings[rows[:0] if few else rows]), _colours_of(labels, rows), note)
    axes.set_xticks([])
    axes.set_yticks([])
    items = f"{len(finite):,} item{'s' * (len(finite) != 1)}"
    if len(rows) < len(finite):
        items = f"{len(rows):,} of {len(finite):,} items, drawn at random"
    axes.set_xlabel(f"t-SNE of {items} (seed 0)")
    return figure


def _colours_of(labels: LabelSpace, rows: Tensor) -> Colours | None:
    """Return the labels of some rows as colours. Return None if there are no rows."""
    if not len(rows):
        return None
    colours = labels.colours()
    if colours is None:
        return main_direction(labels[rows].as_root())
    return Colours(colours.values[rows], colours.title, colours.classes, colours.scale)


def main_direction(labels: LabelSpace, seed: int = 0) -> Colours:
    """Sort the labels along the direction in which they vary most, and return their places from 0 to 1, `[N]`.

    The direction comes from multidimensional scaling by the label distances to some items (landmarks). Places are used
    instead of coordinates, since a few far labels would take most of a scale of coordinates.
    """
    from scipy.stats import rankdata  # here: it takes a second to import

    landmarks = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))[:_LANDMARKS]
    distances = labels.filled(None, landmarks).cpu().double()  # [N,L]
    points = _components(distances - distances.mean(1, keepdim=True))[:, 0]
    points = (points / (float(distances.max()) or 1.0)).round(9)  # equal labels have equal places
    places = (rankdata(points) - 1) / max(1, len(points) - 1)
    return Colours(torch.from_numpy(places), f"{labels.title} (main direction)")


@matplotlib.rc_context({**STYLE, "axes.grid": False})
def _dots(points: Array, colours: Colours | None, note: str) -> tuple[Figure, Axes]:
    """Plot items at their points `[N, 2]` in the colours of their labels, with a legend.

    Without points, write a note.
    """
    figure = Figure(figsize=(WIDTH / 2, 0.46 * WIDTH), dpi=DPI, layout="constrained")
    axes = figure.subplots()
    if not len(points) or colours is None:
        draw_note(axes, note)
        return figure, axes
    axes.set_aspect("equal", adjustable="datalim")
    shown: Any = {"s": max(4.0, min(26.0, 12000 / len(points))), "linewidths": 0, "alpha": 0.85}
    values = colours.values.double().numpy()
    if colours.classes:
        numbers = values.astype(np.int64)
        axes.scatter(points[:, 0], points[:, 1], c=[_colour(n) for n in numbers.tolist()], **shown)
        counts = Counter(numbers.tolist()).most_common()
        keys = [_key(colours.classes[n], _colour(n)) for n, _ in counts[:_CLASSES]]
        if len(counts) > _CLASSES:
            keys.append(_key(f"and {len(counts) - _CLASSES:,} more", "none"))
        figure.legend(handles=keys, loc="outside lower center", ncols=3, fontsize=9, handletextpad=0.1)
        return figure, axes
    known = np.isfinite(values)
    axes.scatter(points[~known, 0], points[~known, 1], c=_UNKNOWN, **shown)
    low, high = np.quantile(values[known], [0.01, 0.99]) if known.any() else (0.0, 1.0)
    is_log = colours.scale == "log" and low > 0
    norm: Normalize = (LogNorm if is_log else Normalize)(low, high if high > low else low + 1)
    axes.scatter(points[known, 0], points[known, 1], c=values[known], norm=norm, cmap="viridis", **shown)
    bar = figure.colorbar(ScalarMappable(norm, "viridis"), ax=axes, location="bottom", pad=0.02, aspect=36)
    bar.set_label(plain(f"{colours.title}{' (log scale)' if is_log else ''}"))
    bar.ax.xaxis.set_minor_locator(NullLocator())
    bar.set_ticks([*(np.geomspace if is_log else np.linspace)(low, float(norm.vmax or 0), 5)])
    bar.ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _written(value, colours)))
    return figure, axes


def _colour(number: int) -> tuple[float, ...]:
    return tuple(part / 255 for part in class_colour(number))


def _key(name: str, colour: Any) -> Line2D:
    name = " ".join(name.split())
    name = name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"
    return Line2D([], [], marker="o", linestyle="", markersize=6, color=colour, label=plain(name))


def _written(value: float, colours: Colours) -> str:
    if colours.scale != "date":
        return number(value)
    try:
        return (date(1970, 1, 1) + timedelta(days=round(value))).isoformat()
    except OverflowError:
        return number(value)


def tsne(embeddings: Tensor, seed: int = 0) -> Array:
    """Compute coordinates `[N, 2]` of a t-SNE map that starts from the principal components.

    Equal seeds give equal maps. With fewer than ten items, the map shows the principal components.
    """
    n = len(embeddings)
    if n == 0:
        return np.zeros((0, 2))
    from sklearn.manifold import TSNE  # here: it takes a second to import

    # The map does not depend on the scale, and squares of a large scale would overflow.
    values = embeddings.detach().cpu().double()
    values = values - values.mean(dim=0)
    values = torch.nn.functional.pad(values / (float(values.abs().max()) or 1.0), (0, 2))
    # The noise separates equal items, and the second axis where the embeddings have one dimension.
    x = values.numpy() + np.random.default_rng(seed).normal(scale=1e-6, size=values.shape)
    if n < MIN_TSNE:
        return _components(torch.from_numpy(x))
    made = TSNE(perplexity=min(PERPLEXITY, (n - 1) / 3), init="pca", random_state=seed)
    return made.fit_transform(x).astype(np.float64)


def _components(x: Tensor) -> Array:
    """Compute coordinates `[N, 2]` of x `[N, d]` in the two directions of largest variance."""
    left, values, _ = torch.linalg.svd(x - x.mean(0), full_matrices=False)
    points: Array = (left * values)[:, :2].numpy()
    return np.pad(points, ((0, 0), (0, 2 - points.shape[1])))
