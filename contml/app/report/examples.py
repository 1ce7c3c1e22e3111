"""The queries that a page shows with the retrieved items, and the reason why a pair is near or far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from PIL import Image, ImageDraw
from torch import Tensor

from contml._support.pages import page_text, unbroken
from contml._support.text import number
from contml.app.report.plots import Array
from contml.data.decode import contained
from contml.data.split import Split, TitledPictures
from contml.evaluation.results import KINDS, Evaluation, Ranking, kind_of
from contml.labels.base import LabelSpace

Indices: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

QUERIES, TOP = 6, 5  # queries shown, and neighbours of each ranking
#: Width in pixels of a picture that explains a pair, and side of one of its items.
WIDTH, _SIDE = 1524, 420
_EMPTY = "#f1f1f1"


def choose_queries(label_distances: Tensor, count: int) -> Indices:
    """Return positions of `count` queries at equal quantiles of the mean label distance of their top five, good to bad.

    Queries of equal quality, which are frequent with classes, are shuffled with a fixed seed.
    """
    quality = finite_mean(label_distances.detach().cpu().double().numpy()[:, :TOP])
    order = np.lexsort((np.random.default_rng(0).permutation(len(quality)), quality))  # NaN comes last
    count = min(count, len(order))
    return np.asarray(order[[int((index + 0.5) / count * len(order)) for index in range(count)]], dtype=np.int64)


def drawn(split: Split, row: int, size: int, broken: dict[int, str], *, label: bool = True) -> Image.Image:
    """Draw the picture of a row, at most `size` pixels wide and high, with its label or without.

    Drawing runs the code of the task on files of the user. One bad picture must not lose the report of a whole
    training. So any error is noted in `broken` instead of raised, and the picture is a cross.
    """
    try:
        picture = split.draw(row, size) if label else split.picture(row, 2 * size)
        if picture.mode not in ("RGB", "L"):
            picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture.convert("RGBA"))
        if picture.size != (size, size):
            picture = contained(picture, (size, size), Image.Resampling.LANCZOS)
        return picture.convert("RGB")
    except Exception as error:
        broken[row] = f"{type(error).__name__}: {error}"
        tile = Image.new("RGB", (size, size), _EMPTY)
        for start, end in ((0.3, 0.7), (0.7, 0.3)):
            ends = (0.3 * size, start * size, 0.7 * size, end * size)
            ImageDraw.Draw(tile).line(ends, fill="#b0b0b0", width=max(1, size // 50))
        return tile


def draw(split: Split, row: int, size: int, broken: dict[int, str]) -> Image.Image:
    """Draw the picture of a row as `drawn` does, in the middle of a square of `size` pixels."""
    picture, tile = drawn(split, row, size, broken), Image.new("RGB", (size, size), _EMPTY)
    tile.paste(picture, ((size - picture.width) // 2, (size - picture.height) // 2))
    return tile


class ShownItem(NamedTuple):
    """A retrieved item: its row, its label distance as number and text, and whether it is right (None: no classes)."""

    row: int
    distance: float
    text: str
    right: bool | None


class Line(NamedTuple):
    """Retrieved items of a query, best first. The heading names the ranking."""

    heading: str
    items: list[ShownItem]

    @property
    def distances(self) -> list[float]:
        """The label distances of the items."""
        return [item.distance for item in self.items]


def line_of(labels: LabelSpace, heading: str, rows: Tensor, label_distances: Tensor) -> Line:
    """Return the first of the retrieved rows, with their label distances as text."""
    kind, found = kind_of(labels), zip(rows[:TOP].tolist(), label_distances[:TOP].tolist(), strict=True)
    return Line(heading, [ShownItem(row, distance, *kind.item(distance, labels.measure)) for row, distance in found])


def ranking_lines(split: Split, ranking: Ranking, q: int) -> tuple[Line, Line]:
    """Return the items that the model and the oracle retrieved for the query at position `q`."""
    labels, best = split.labels, f"Best possible: {kind_of(split.labels).nearest}"
    model = line_of(labels, "Retrieved by the embedding", ranking.model[q], ranking.label_distances[q])
    return model, line_of(labels, best, ranking.oracle[q], ranking.oracle_label_distances[q])


def finite_mean(values: Array) -> Array:
    """Compute the mean of the finite entries of each row `[..., K] -> [...]`. NaN if a row has none."""
    finite = np.isfinite(values)
    total, count = np.where(finite, values, 0.0).sum(axis=-1), finite.sum(axis=-1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


class Explanation(NamedTuple):
    """The reason why two rows are near or far: their names, pictures with titles, and a table, its header first."""

    names: str
    pictures: TitledPictures
    table: Sequence[Sequence[str]]


def explain_first(split: Split, ranking: Ranking, broken: dict[int, str]) -> Explanation | None:
    """Explain the label distance of the first query and its nearest item.

    Return None if nothing was retrieved, or if the explainer of the split fails, which is noted in `broken`.
    """
    if not ranking.model.numel():
        return None
    first_query = choose_queries(ranking.label_distances, QUERIES)[0]
    query, row = int(ranking.queries[first_query]), int(ranking.model[first_query, 0])
    try:
        pictures, table = split.explain(query, row, WIDTH), pair_table(split.labels, query, row)
    except Exception as error:  # as in `draw`
        broken.setdefault(query, f"{type(error).__name__}: {error}")
        return None
    if pictures is None:
        pictures = [(title, draw(split, n, _SIDE, broken)) for title, n in (("query", query), ("item", row))]
    return Explanation(f"query {page_text(split.name(query))} and {page_text(split.name(row))}", pictures, table)


def pair_table(labels: LabelSpace, a: int, b: int) -> list[list[str]]:
    """Return a table of the parts of the label distance of two rows, as text.

    The header is first, and the label distance itself is last.
    """
    parts, total = labels.parts(a, b), float(labels.pairwise([a], [b]))
    header = ["label", "query", "item", "difference", "part of the sum"]
    if not any(part.contribution for part in parts):
        header.pop()
    known = labels.known([a], [b])
    if known is not None and not bool(known):
        words = "not known"
    else:
        words = number(total) if labels.class_ids is not None else labels.measure.text(total)
    rows = [list(part[: len(header)]) for part in parts]
    return [header, *rows, ["label distance", *[""] * (len(header) - 2), words]]


@dataclass(frozen=True)
class Example:
    """A query with the retrieved items, a line per ranking: its heading and its items."""

    title: str
    row: int
    details: str
    lines: Sequence[Line]


class Examples(NamedTuple):
    """The queries of a page: the best, the median and the worst one, and some from good to bad."""

    first: list[Example]
    spread: list[Example]


def examples(split: Split, evaluation: Evaluation, ranking: Ranking) -> Examples:
    """Return the queries that a page shows."""
    order, k = by_score(ranking, evaluation), len(ranking.queries)
    places = {k - 1: "Worst query", k // 2: "Median query", 0: "Best query"} if k else {}
    titles = {int(order[place]): title for place, title in places.items()}  # of few queries, one may be all of these
    show = partial(_example, split, evaluation, ranking)
    spread = choose_queries(ranking.label_distances, QUERIES).tolist()
    first = [show(q, titles[q]) for q in sorted(titles, key=order.tolist().index)]
    return Examples(first, [show(q, f"Query {rank}") for rank, q in enumerate(spread, start=1)])


def by_score(ranking: Ranking, evaluation: Evaluation) -> Indices:
    """Sort positions of the queries by their main metric, best first.

    Ties are sorted by the first five label distances.
    """
    values = ranking.values.double().numpy() * (-1 if evaluation.main.better == "higher" else 1)
    shuffled = np.random.default_rng(0).permutation(len(values))
    nearest = finite_mean(ranking.label_distances[:, :TOP].double().numpy())
    return np.asarray(np.lexsort((shuffled, nearest, values)), dtype=np.int64)


def _example(split: Split, evaluation: Evaluation, ranking: Ranking, q: int, title: str) -> Example:
    """Return the query at position `q` as an example."""
    model, best = ranking_lines(split, ranking, q)
    values = [float(values[q]) for values in (ranking.values, ranking.random_values, ranking.oracle_values)]
    details = unbroken(KINDS[evaluation.kind].details(evaluation, model.distances, values))
    return Example(title, int(ranking.queries[q]), details, [model, best])
