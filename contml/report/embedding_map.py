"""Maps of the embeddings, with the pictures of some of them: their two principal components, and t-SNE."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import matplotlib
import numpy as np
import torch
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

from contml._support.text import percent
from contml.data.split import Split
from contml.distances.vectors import nearest_vectors
from contml.report.gallery import draw
from contml.report.plots import DPI, STYLE, WIDTH, Array, draw_note

MAX_PICTURES = 120
MAX_COLUMNS = 22  # so that a picture is at least 40 px wide on the page
#: t-SNE of more items takes longer than all else of a report; of fewer than ten it shows nothing.
MAX_TSNE, MIN_TSNE = 2000, 10
PERPLEXITY = 30


class Grid(NamedTuple):
    """Square cells over a plane: lower left corner, side of a cell, columns and lines."""

    corner: Array  # [2]
    side: float
    columns: int
    lines: int


class _Pixels(Artist):
    """A picture that fills its axes. `imshow` would take half a second, and ten times the memory."""

    def __init__(self, picture: Image.Image) -> None:
        super().__init__()
        self.picture = picture

    def draw(self, renderer: Any) -> None:
        """Draw the picture, resized to the axes."""
        assert self.axes is not None
        box = self.axes.get_window_extent(renderer)
        left, bottom, right, top = (round(edge) for edge in box.extents)
        picture = self.picture.resize((right - left, top - bottom), Image.Resampling.BILINEAR).convert("RGBA")
        renderer.draw_image(renderer.new_gc(), left, bottom, np.asarray(picture)[::-1])


def map_plot(split: Split, embeddings: Tensor, broken: dict[int, str]) -> Figure:
    """Pictures at the place of their embeddings in the plane of the two principal components."""
    rows = _finite_rows(embeddings)
    points, shares = principal_components(embeddings[rows])
    figure, axes = _draw_map(split, rows, points, broken)
    axes.set_xlabel(f"first principal component ({percent(shares[0])} of the variance)")
    axes.set_ylabel(f"second ({percent(shares[1])})")
    return figure


def tsne_plot(split: Split, embeddings: Tensor, broken: dict[int, str], seed: int = 0) -> Figure:
    """Pictures at the place of their embeddings on a t-SNE map; of many items, of a sample that the seed fixes."""
    finite_rows = _finite_rows(embeddings)
    generator = torch.Generator().manual_seed(seed)
    rows = finite_rows[torch.randperm(len(finite_rows), generator=generator)[:MAX_TSNE].sort().values]
    if too_few := 0 < len(rows) < MIN_TSNE:
        rows = rows[:0]
    figure, axes = _draw_map(
        split, rows, tsne(embeddings[rows], seed), broken, f"t-SNE needs at least {MIN_TSNE} items" if too_few else ""
    )
    axes.set_xticks([])
    axes.set_yticks([])
    items = f"{len(finite_rows):,} item{'s' * (len(finite_rows) != 1)}"
    if len(rows) < len(finite_rows) and not too_few:
        items = f"{len(rows):,} of {len(finite_rows):,} items, drawn at random"
    axes.set_xlabel(f"t-SNE of {items} (seed {seed}); the axes have no unit")
    return figure


def _finite_rows(embeddings: Tensor) -> Tensor:
    return torch.isfinite(embeddings).all(dim=1).nonzero().flatten() if embeddings.numel() else torch.zeros(0).long()


@matplotlib.rc_context({**STYLE, "axes.grid": False})
def _draw_map(split: Split, rows: Tensor, points: Array, broken: dict[int, str], note: str = "") -> tuple[Figure, Axes]:
    """The pictures of `rows` at their `points`, at most one per cell of a grid; without points, a note."""
    grid, placements = place_pictures(points)
    height = (WIDTH - 0.65) * grid.lines / grid.columns + 0.55  # inches; the constants are the axes' labels
    figure = Figure(figsize=(WIDTH, height), dpi=DPI, layout="constrained")
    axes = figure.subplots()
    (left, bottom), (right, top) = grid.corner, grid.corner + grid.side * np.array([grid.columns, grid.lines])
    cell = int(DPI * WIDTH / grid.columns)
    canvas = Image.new("RGB", (cell * grid.columns, cell * grid.lines), "white")
    for position, centre in placements:
        x, y = (centre - [left, top]) / grid.side * [cell, -cell] - 0.46 * cell  # pixels from the upper left
        picture = draw(split, int(rows[position]), int(0.92 * cell), broken)
        canvas.paste(picture, (round(float(x)), round(float(y))))
    axes.set_xlim(left, right)
    axes.set_ylim(bottom, top)
    axes.set_aspect("equal")
    axes.add_artist(_Pixels(canvas))
    if not placements:
        draw_note(axes, note or "no embeddings recorded")
    return figure, axes


def tsne(embeddings: Tensor, seed: int = 0) -> Array:
    """Coordinates `[N, 2]` of a t-SNE map that starts from the principal components; equal for equal seeds."""
    n = len(embeddings)
    if n == 0:
        return np.zeros((0, 2))
    from contml.report._tsne import EARLY, EXAGGERATION, ITERATIONS, descend  # here: it imports numba

    # The map does not depend on the scale, and squares of a large scale would overflow.
    values = embeddings.detach().cpu().double()
    values = values - values.mean(dim=0)
    values = values / (float(values.abs().max()) or 1.0)
    start, _ = principal_components(values)
    # The noise separates equal items, and the second axis where the embeddings have one dimension.
    noise = np.random.default_rng(seed).normal(scale=1e-6, size=start.shape)
    start = 1e-4 * start / (start[:, 0].std() or 1.0) + noise
    points: Any = np.ascontiguousarray(start.T, dtype=np.float32)
    rate = max(n / EXAGGERATION / 4, 50)
    descend(*_joint_probabilities(values), points, np.float32(rate), ITERATIONS, EARLY, np.float32(EXAGGERATION))
    return np.asarray(points.T, dtype=np.float64)


def _joint_probabilities(values: Tensor) -> tuple[Any, Any, Any]:
    """The probabilities of the pairs of near items, symmetric: where each row starts `[N + 1]`, columns, and values.

        p_ij = (p_j|i + p_i|j) / 2N,    p_j|i ~ exp(-b_i |x_i - x_j|^2) for the 3 perplexities nearest to i

    b_i is bisected until the perplexity of p_.|i, the exponential of its entropy, is `PERPLEXITY`.
    """
    from scipy.sparse import csr_array  # here: the import is slow

    n = len(values)
    perplexity = min(PERPLEXITY, (n - 1) / 3)
    count = min(int(3 * perplexity + 1), n - 1)
    near = nearest_vectors(values, values, count, self_index=torch.arange(n))
    squared = near.values - near.values[:, :1]  # the nearest at 0, so that its exponential is 1
    low, high = torch.zeros(n, 1, dtype=torch.float64), torch.full((n, 1), torch.inf, dtype=torch.float64)
    b = 1 / squared.mean(1, keepdim=True).clamp(min=1e-12)
    for _ in range(64):
        p = torch.exp(-b * squared)
        entropy = p.sum(1, keepdim=True).log() + b * (p * squared).sum(1, keepdim=True) / p.sum(1, keepdim=True)
        wide = entropy > math.log(perplexity)
        low, high = torch.where(wide, b, low), torch.where(wide, high, b)
        b = torch.where(high.isinf(), 2 * b, (low + high) / 2)
    p = p / p.sum(1, keepdim=True)
    starts = np.arange(n + 1) * count
    one_way = csr_array((p.flatten().numpy(), near.positions.flatten().numpy(), starts), shape=(n, n))
    both = csr_array((one_way + one_way.T) / (2 * n))
    return both.indptr.astype(np.int32), both.indices.astype(np.int32), both.data.astype(np.float32)


def principal_components(embeddings: Tensor) -> tuple[Array, tuple[float, float]]:
    """Coordinates `[N, 2]` on the two directions of largest variance, and the share of the variance of each.

    Signs are fixed: the largest entry of each direction is positive. A direction without variance (equal embeddings,
    one dimension) has coordinates and share 0.
    """
    n, d = embeddings.shape if embeddings.ndim == 2 else (0, 0)
    points, shares = torch.zeros(n, 2, dtype=torch.float64), [0.0, 0.0]
    if n == 0 or d == 0:
        return points.numpy(), (0.0, 0.0)
    values = embeddings.detach().cpu().double()
    centred = values - values.mean(dim=0)
    variances, directions = torch.linalg.eigh(centred.T @ centred / n)  # ascending
    total = float(variances.sum())
    # Equal embeddings may differ by rounding in float32; that is no variance.
    noise = d * (torch.finfo(torch.float32).eps * float(values.abs().max())) ** 2
    for axis in range(min(2, d)):
        direction = directions[:, -1 - axis]
        if float(variances[-1 - axis]) > max(noise, 1e-12 * total):
            direction = direction * direction[direction.abs().argmax()].sign()
            points[:, axis] = centred @ direction
            shares[axis] = float(variances[-1 - axis]) / total
    return points.numpy(), (shares[0], shares[1])


def place_pictures(points: Array, pictures: int = MAX_PICTURES) -> tuple[Grid, list[tuple[int, Array]]]:
    """The finest grid with at most `pictures` occupied cells; for each of these, the point nearest to its centre.

    The points are given as (position in `points`, centre of its cell). Pictures are placed at the centres, so they
    never overlap.
    """
    if not len(points):
        return Grid(np.zeros(2), 1.0, 4, 2), []
    # With a few outliers in the frame, all other points would be close together: it cuts off 0.5 % at each side.
    low, high = np.quantile(points, [0.005, 0.995], axis=0)
    span = float((high - low).max()) or 1.0
    extent = 1.02 * np.maximum(high - low, [0.6 * span, 0.3 * span])  # a thin cloud gets a wider frame
    for columns in range(min(MAX_COLUMNS, 4 + int(2 * len(points) ** 0.5)), 0, -1):
        side = float(extent[0]) / columns
        shape = np.array([columns, np.ceil(extent[1] / side)], dtype=np.int64)
        corner = (low + high) / 2 - side * shape / 2
        placements = _nearest_to_centres(points, corner, side, shape)
        if len(placements) <= pictures:
            break
    return Grid(corner, side, int(shape[0]), int(shape[1])), placements


def _nearest_to_centres(
    points: Array, corner: Array, side: float, shape: np.ndarray[Any, np.dtype[np.int64]]
) -> list[tuple[int, Array]]:
    cells = np.floor((points - corner) / side).astype(np.int64)
    inside = np.flatnonzero(((cells >= 0) & (cells < shape)).all(axis=1))
    centres = corner + (cells[inside] + 0.5) * side
    distances = np.square(points[inside] - centres).sum(axis=1)
    cell_ids = cells[inside, 0] + shape[0] * cells[inside, 1]
    order = np.lexsort((distances, cell_ids))
    _, first_in_cell = np.unique(cell_ids[order], return_index=True)
    return [(int(inside[i]), centres[i]) for i in order[first_in_cell]]
