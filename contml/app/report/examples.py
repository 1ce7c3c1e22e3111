"""The queries that a page shows with the retrieved items, pairs that surprise, and why a pair is near or far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from PIL import Image, ImageDraw
from torch import Tensor

from contml._support.pages import csv_bytes, page_text, unbroken
from contml._support.text import number
from contml.app.report.plots import Array
from contml.data.decode import contained
from contml.data.split import Split, TitledPictures
from contml.distances import squared_distances_of
from contml.evaluation.results import KINDS, Evaluation, Ranking, kind_of
from contml.labels.base import LabelSpace

Indices: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

QUERIES, TOP = 6, 5  # queries shown, and neighbours of each ranking
#: Width in pixels of a picture that explains a pair, and side of one of its items.
WIDTH, _SIDE = 1524, 420
_EMPTY = "#f1f1f1"


def choose_queries(label_distances: Tensor, count: int) -> Indices:
    """Positions of `count` queries at equal quantiles of the mean label distance of their top five, good to bad.

    Queries of equal quality, which are frequent with classes, are shuffled with a fixed seed.
    """
    quality = finite_mean(label_distances.detach().cpu().double().numpy()[:, :TOP])
    shuffled = np.random.default_rng(0).permutation(len(quality))
    order = np.lexsort((shuffled, quality))  # NaN comes last
    count = min(count, len(order))
    return np.asarray(order[[int((index + 0.5) / count * len(order)) for index in range(count)]], dtype=np.int64)


def drawn(split: Split, row: int, size: int, broken: dict[int, str], *, label: bool = True) -> Image.Image:
    """The picture of a row, at most `size` pixels wide and high, with its label or without.

    Drawing runs the code of the task on files of the user. One bad picture must not lose the report of a whole
    training, so any error is noted in `broken` instead of raised, and the picture is a cross.
    """
    try:
        picture = split.draw(row, size) if label else split.picture(row)
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
    """What `drawn` returns, in the middle of a square of `size` pixels."""
    picture, tile = drawn(split, row, size, broken), Image.new("RGB", (size, size), _EMPTY)
    tile.paste(picture, ((size - picture.width) // 2, (size - picture.height) // 2))
    return tile


class ShownItem(NamedTuple):
    """A retrieved item: its row, its label distance, also in words, and whether it is right (None: no classes)."""

    row: int
    distance: float
    text: str
    right: bool | None


class Line(NamedTuple):
    """Retrieved items of a query, best first; the heading says who ranked them."""

    heading: str
    items: list[ShownItem]

    @property
    def distances(self) -> list[float]:
        """The label distances of the items."""
        return [item.distance for item in self.items]


def line_of(labels: LabelSpace, heading: str, rows: Tensor, label_distances: Tensor) -> Line:
    """The first of the retrieved rows, by their label distances in words."""
    kind, found = kind_of(labels), zip(rows[:TOP].tolist(), label_distances[:TOP].tolist(), strict=True)
    return Line(heading, [ShownItem(row, distance, *kind.item(distance, labels.measure)) for row, distance in found])


def ranking_lines(split: Split, ranking: Ranking, q: int) -> tuple[Line, Line]:
    """What the model and the oracle retrieved for the query at position `q`."""
    labels, best = split.labels, f"Best possible: {kind_of(split.labels).nearest}"
    model = line_of(labels, "Retrieved by the embedding", ranking.model[q], ranking.label_distances[q])
    return model, line_of(labels, best, ranking.oracle[q], ranking.oracle_label_distances[q])


def finite_mean(values: Array) -> Array:
    """Mean of the finite entries of each row `[..., K] -> [...]`; NaN where there is none."""
    finite = np.isfinite(values)
    total, count = np.where(finite, values, 0.0).sum(axis=-1), finite.sum(axis=-1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


class Explanation(NamedTuple):
    """Why two rows are near or far: their names, pictures with titles, and a table, its header first."""

    names: str
    pictures: TitledPictures
    table: Sequence[Sequence[str]]


def explain_pair(
    split: Split, ranking: Ranking, broken: dict[int, str], pair: tuple[int, int] | None = None
) -> Explanation | None:
    """How the label distance of two rows is made up; default the first query and its nearest item.

    None where nothing was retrieved, or where the explainer of the split fails, which is noted in `broken`.
    """
    if pair is None:
        if not ranking.model.numel():
            return None
        first_query = choose_queries(ranking.label_distances, QUERIES)[0]
        pair = int(ranking.queries[first_query]), int(ranking.model[first_query, 0])
    query, row = pair
    try:
        pictures, table = split.explain(query, row, WIDTH), pair_table(split.labels, query, row)
    except Exception as error:  # as in `draw`
        broken.setdefault(query, f"{type(error).__name__}: {error}")
        return None
    if pictures is None:
        pictures = [(title, draw(split, n, _SIDE, broken)) for title, n in (("query", query), ("item", row))]
    return Explanation(f"query {page_text(split.name(query))} and {page_text(split.name(row))}", pictures, table)


def pair_table(labels: LabelSpace, a: int, b: int) -> list[list[str]]:
    """The parts of the label distance of two rows in words, after a header, and the label distance itself."""
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


#: Queries of a kind, and pairs, that a page shows.
SHOWN = 3
#: Retrieved items in the table of queries.
LISTED = 10


@dataclass(frozen=True)
class Example:
    """A query with the retrieved items, a line per ranking: its heading and its items."""

    title: str
    row: int
    details: str
    lines: Sequence[Line]


@dataclass(frozen=True)
class Examples:
    """All queries of a page, and the pairs of a query and its nearest item that surprise."""

    first: list[Example]
    spread: list[Example]
    worst: list[Example]
    surprises: list[Example]


def examples(split: Split, evaluation: Evaluation, ranking: Ranking) -> Examples:
    """The queries that a page shows."""
    order, k = by_score(ranking, evaluation), len(ranking.queries)
    places = {k - 1: "Worst query", k // 2: "Median query", 0: "Best query"} if k else {}
    titles = {int(order[place]): title for place, title in places.items()}  # of few queries, one may be all of these
    show = partial(_example, split, evaluation, ranking)
    spread = choose_queries(ranking.label_distances, QUERIES).tolist()
    return Examples(
        first=[show(q, titles[q]) for q in sorted(titles, key=order.tolist().index)],
        spread=[show(q, f"Query {rank}") for rank, q in enumerate(spread, start=1)],
        worst=[show(q, f"Worst query {rank}") for rank, q in enumerate(worst(ranking), start=1)],
        surprises=[_pair(split, ranking, q) for q in surprises(ranking)],
    )


def by_score(ranking: Ranking, evaluation: Evaluation) -> Indices:
    """Positions of the queries by their main metric, best first; ties by the label distances of the first five."""
    values = ranking.values.double().numpy() * (-1 if evaluation.main.better == "higher" else 1)
    shuffled = np.random.default_rng(0).permutation(len(values))
    nearest = finite_mean(ranking.label_distances[:, :TOP].double().numpy())
    return np.asarray(np.lexsort((shuffled, nearest, values)), dtype=np.int64)


def worst(ranking: Ranking) -> list[int]:
    """Positions of the queries whose main metric is the farthest from that of the oracle, the farthest first."""
    gap = (ranking.values - ranking.oracle_values).abs().double().numpy()
    shuffled = np.random.default_rng(0).permutation(len(gap))
    order = np.lexsort((shuffled, -np.nan_to_num(gap)))
    return [int(q) for q in order[:SHOWN] if gap[q] > 0]


def surprises(ranking: Ranking) -> list[int]:
    """Positions of queries with a near first item of a far label.

    Of the half of the queries with the nearest first items, those with the largest label distance to it. A pair whose
    items are each other's nearest counts once.
    """
    if not ranking.model.numel():
        return []
    rows, x = ranking.model[:, 0], ranking.embeddings
    distances = squared_distances_of(x, x, ranking.queries, rows).sqrt().double().numpy()
    label_distances = np.nan_to_num(ranking.label_distances[:, 0].double().numpy())
    near_positions = np.flatnonzero(distances <= np.median(distances))
    order = near_positions[np.lexsort((distances[near_positions], -label_distances[near_positions]))]
    pairs = {frozenset((int(ranking.queries[q]), int(rows[q]))): int(q) for q in order[::-1] if label_distances[q] > 0}
    return list(pairs.values())[::-1][:SHOWN]


def _example(split: Split, evaluation: Evaluation, ranking: Ranking, q: int, title: str) -> Example:
    """The query at position `q`."""
    model, best = ranking_lines(split, ranking, q)
    values = [float(values[q]) for values in (ranking.values, ranking.random_values, ranking.oracle_values)]
    details = unbroken(KINDS[evaluation.kind].details(evaluation, model.distances, values))
    return Example(title, int(ranking.queries[q]), details, [model, best])


def _pair(split: Split, ranking: Ranking, q: int) -> Example:
    """The query at position `q` and its nearest item, without words."""
    item = line_of(split.labels, "", ranking.model[q, :1], ranking.label_distances[q, :1])
    return Example("", int(ranking.queries[q]), "", [item])


def queries_csv(split: Split, evaluation: Evaluation, ranking: Ranking) -> bytes:
    """The main metric of each query, of a random ranking and of the oracle, and the names of the nearest items."""
    k = min(LISTED, ranking.model.shape[1])
    lines = [["query", evaluation.headline, "random", "oracle", *(f"nearest_{n}" for n in range(1, k + 1))]]
    values = (ranking.values, ranking.random_values, ranking.oracle_values)
    columns = zip(*(value.double().tolist() for value in values), strict=True)
    for query, numbers, rows in zip(ranking.queries.tolist(), columns, ranking.model[:, :k].tolist(), strict=True):
        lines.append([split.name(query), *numbers, *map(split.name, rows)])
    return csv_bytes(lines)
