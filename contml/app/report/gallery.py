"""Examples of retrieval: queries from good to bad, each with the items nearest by embedding and by label distance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from PIL import Image, ImageDraw
from torch import Tensor

from contml._support.pages import page_text
from contml._support.text import MISSING
from contml.app.report.plots import BLUE, INK, VERMILION, Array
from contml.data.decode import contained
from contml.data.renderers.text import font_for
from contml.data.split import Split
from contml.evaluation.kinds import kind_of
from contml.evaluation.results import Ranking
from contml.labels.base import LabelSpace

Indices: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

QUERIES, TOP = 6, 5  # queries shown, and neighbours of each ranking
THUMB, QUERY = 200, 420  # pixels; the page shows them at 0.7 of that
GAP, BETWEEN = 14, 48
WIDTH = QUERY + BETWEEN + TOP * THUMB + (TOP - 1) * GAP
HEADING, CAPTION = 40, 38  # heights of the lines of text over and under a picture
SUBDUED, EMPTY, FRAME = "#666666", "#f1f1f1", "#cfcfcf"
_COLOURS = {None: INK, True: BLUE, False: VERMILION}  # of the words under an item that is right or wrong


class Strip(NamedTuple):
    """A picture of one query with the retrieved items, and its description in words."""

    picture: Image.Image
    description: str


def gallery_strips(split: Split, ranking: Ranking, broken: dict[int, str], count: int = QUERIES) -> list[Strip]:
    """One strip per chosen query, from good to bad; rows that could not be drawn are noted in `broken`."""
    return [
        query_strip(split, int(ranking.queries[q]), ranking_lines(split, ranking, int(q)), f"Query {rank}", broken)
        for rank, q in enumerate(choose_queries(ranking.label_distances, count), start=1)
    ]


def stack(strips: list[Strip]) -> Image.Image:
    """All strips, one below the other: `gallery.png`."""
    if not strips:
        blank = Image.new("RGB", (WIDTH, THUMB), "white")
        _write(ImageDraw.Draw(blank), (0, GAP), "no queries recorded", 22, SUBDUED, WIDTH)
        return blank
    step = strips[0].picture.height + BETWEEN
    canvas = Image.new("RGB", (WIDTH, step * len(strips) - BETWEEN), "white")
    for index, strip in enumerate(strips):
        canvas.paste(strip.picture, (0, index * step))
        if index:
            y = index * step - BETWEEN // 2
            ImageDraw.Draw(canvas).line((0, y, WIDTH, y), fill=FRAME, width=2)
    return canvas


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
        tile = Image.new("RGB", (size, size), EMPTY)
        for start, end in ((0.3, 0.7), (0.7, 0.3)):
            ends = (0.3 * size, start * size, 0.7 * size, end * size)
            ImageDraw.Draw(tile).line(ends, fill="#b0b0b0", width=max(1, size // 50))
        return tile


def draw(split: Split, row: int, size: int, broken: dict[int, str]) -> Image.Image:
    """What `drawn` returns, in the middle of a square of `size` pixels."""
    picture, tile = drawn(split, row, size, broken), Image.new("RGB", (size, size), EMPTY)
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


def ranking_lines(
    split: Split, ranking: Ranking, q: int, heading: str = "Retrieved by the embedding"
) -> tuple[Line, Line]:
    """What the model and the oracle retrieved for the query at position `q`."""
    labels, best = split.labels, f"Best possible: {kind_of(split.labels).nearest}"
    model = line_of(labels, heading, ranking.model[q], ranking.label_distances[q])
    return model, line_of(labels, best, ranking.oracle[q], ranking.oracle_label_distances[q])


def query_strip(split: Split, query: int, lines: Sequence[Line], title: str, broken: dict[int, str]) -> Strip:
    """The picture of a query on the left with its name below it, and on the right each line of retrieved items."""
    height = HEADING + THUMB + CAPTION
    canvas = Image.new("RGB", (WIDTH, max(2, len(lines)) * height), "white")
    pen = ImageDraw.Draw(canvas)

    def paste(row: int, left: int, top: int, size: int) -> None:
        canvas.paste(draw(split, row, size, broken), (left, top))
        pen.rectangle((left, top, left + size - 1, top + size - 1), outline=FRAME)

    _write(pen, (0, 4), title, 24, INK, QUERY, bold=True)
    paste(query, 0, HEADING, QUERY)
    name, measure, kind = page_text(split.name(query)), split.labels.measure, kind_of(split.labels)
    _write(pen, (0, HEADING + QUERY + 10), name, 20, SUBDUED, QUERY)
    for index, line in enumerate(lines):
        left, top = QUERY + BETWEEN, index * height
        heading = f"{page_text(line.heading)} ({kind.quality(line.distances, measure)})"
        _write(pen, (left, top + 4), heading, 24, INK, WIDTH - left, bold=True)
        for item in line.items:
            paste(item.row, left, top + HEADING, THUMB)
            at = left + THUMB // 2, top + HEADING + THUMB + 4
            _write(pen, at, item.text, 22, _COLOURS[item.right], THUMB, centre=True)
            left += THUMB + GAP
    texts = [", ".join(map(measure.text, line.distances)) or MISSING for line in lines]
    description = f"label distances of the retrieved items {'; '.join(texts[:-1])}; of the oracle's {texts[-1]}"
    return Strip(canvas, f"query {name}: {description}")


def _write(
    pen: ImageDraw.ImageDraw,
    at: tuple[int, int],
    text: str,
    size: int,
    color: str,
    room: int,
    *,
    bold: bool = False,
    centre: bool = False,
) -> None:
    """One line of text. If it is wider than `room` pixels, its middle is omitted: the end of a path matters most."""
    font, text = font_for(text, size, bold)
    short_text, length = text, len(text)
    while length > 2 and pen.textlength(short_text, font=font) > room:
        length = min(length - 1, int(length * room / pen.textlength(short_text, font=font)) + 1)
        short_text = text[: length // 3] + "…" + text[-(length - length // 3) :]
    pen.text(at, short_text, fill=color, font=font, anchor="ma" if centre else "la")


def finite_mean(values: Array) -> Array:
    """Mean of the finite entries of each row `[..., K] -> [...]`; NaN where there is none."""
    finite = np.isfinite(values)
    total, count = np.where(finite, values, 0.0).sum(axis=-1), finite.sum(axis=-1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
