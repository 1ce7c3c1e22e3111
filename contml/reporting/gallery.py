"""Retrievals to look at: queries over the whole range of quality, each with the model's and the oracle's nearest."""

from __future__ import annotations

import io
import math
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps
from torch import Tensor

from contml._support.text import MISSING, number
from contml.data.split import Split
from contml.evaluation.results import Ranking
from contml.reporting.figures import BLUE, INK, VERMILION

Indices: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

QUERIES, TOP = 6, 5  # queries shown, and neighbours of each ranking
THUMB, QUERY = 200, 420  # pixels; the page shows them at 0.7 of that
GAP, BETWEEN = 14, 48
HEADING, CAPTION = 40, 38  # heights of the lines of text over and under a picture
SUBDUED, EMPTY, FRAME = "#666666", "#f1f1f1", "#cfcfcf"


class Strip(NamedTuple):
    """One query of the gallery: its picture with the retrievals, and what it shows in words."""

    picture: Image.Image
    words: str


def gallery_strips(split: Split, ranking: Ranking, broken: dict[int, str], count: int = QUERIES) -> list[Strip]:
    """One strip for each chosen query, from good to bad; rows that could not be drawn are noted in `broken`."""
    positions = choose_queries(ranking.label_distances, count)
    return [_strip(split, ranking, int(q), number_of, broken) for number_of, q in enumerate(positions, start=1)]


def stack(strips: list[Strip]) -> Image.Image:
    """All strips under each other: `gallery.png`."""
    if not strips:
        blank = Image.new("RGB", (_width(), THUMB), "white")
        _write(ImageDraw.Draw(blank), (0, GAP), "no queries recorded", 22, SUBDUED, _width())
        return blank
    step = strips[0].picture.height + BETWEEN
    canvas = Image.new("RGB", (_width(), step * len(strips) - BETWEEN), "white")
    for place, strip in enumerate(strips):
        canvas.paste(strip.picture, (0, place * step))
        if place:
            y = place * step - BETWEEN // 2
            ImageDraw.Draw(canvas).line((0, y, _width(), y), fill=FRAME, width=2)
    return canvas


def choose_queries(label_distances: Tensor, count: int) -> Indices:
    """Positions of `count` queries at even quantiles of the mean label distance of their top five, good to bad.

    Equal queries (classes have many) are taken in an order that is shuffled with a fixed seed.
    """
    quality = _finite_mean(label_distances.detach().cpu().double().numpy()[:, :TOP])
    shuffled = np.random.default_rng(0).permutation(len(quality))
    order = np.lexsort((shuffled, quality))  # NaN comes last
    count = min(count, len(order))
    return np.asarray(order[[int((place + 0.5) / count * len(order)) for place in range(count)]], dtype=np.int64)


def draw(split: Split, row: int, size: int, broken: dict[int, str]) -> Image.Image:
    """`split.draw`, fitted into a square of `size` pixels whatever came; an empty square where nothing did.

    Drawing is the task's own code on files of the user: one bad picture must not cost the report of a whole training,
    so any error leaves a blank and a note.
    """
    tile = Image.new("RGB", (size, size), EMPTY)
    try:
        picture = split.draw(row, size)
        if picture.mode not in ("RGB", "L"):
            picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture.convert("RGBA"))
        if picture.size != (size, size):
            picture = ImageOps.contain(picture, (size, size), Image.Resampling.LANCZOS)
        tile.paste(picture.convert("RGB"), ((size - picture.width) // 2, (size - picture.height) // 2))
    except Exception as error:
        broken[row] = f"{type(error).__name__}: {error}"
        pen = ImageDraw.Draw(tile)
        pen.line((0.3 * size, 0.3 * size, 0.7 * size, 0.7 * size), fill="#b0b0b0", width=max(1, size // 50))
        pen.line((0.3 * size, 0.7 * size, 0.7 * size, 0.3 * size), fill="#b0b0b0", width=max(1, size // 50))
    return tile


def explain_pair(
    split: Split, ranking: Ranking, broken: dict[int, str], pair: tuple[int, int] | None = None
) -> Strip | None:
    """Two rows as the split's explainer draws them: by default the first query and its best.

    It shows what a label distance is made of: a picture of the two rows. None where there is no explainer, where
    nothing was retrieved, or where drawing fails, which is noted in `broken`.
    """
    if split.explainer is None or not (pair or ranking.model.numel()):
        return None
    if pair is None:
        first = choose_queries(ranking.label_distances, QUERIES)[0]
        pair = int(ranking.queries[first]), int(ranking.model[first, 0])
    query, row = pair
    try:
        found = split.explain(query, row, _width())
        assert found is not None
        picture = found.convert("RGB")
    except Exception as error:  # the task's own code on files of the user, as in `draw`
        broken.setdefault(query, f"{type(error).__name__}: {error}")
        return None
    return Strip(picture, f"query {printable(split.name(query))} and {printable(split.name(row))}, explained")


def printable(text: str) -> str:
    """The text with whatever is no printable character escaped: file names may hold line breaks and broken UTF-8."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def encode(picture: Image.Image) -> bytes:
    """The picture as a PNG file."""
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return buffer.getvalue()


def _strip(split: Split, ranking: Ranking, q: int, place: int, broken: dict[int, str]) -> Strip:
    query = int(ranking.queries[q])
    model, oracle = ranking.label_distances[q, :TOP].tolist(), ranking.oracle_label_distances[q, :TOP].tolist()
    line = HEADING + THUMB + CAPTION
    canvas = Image.new("RGB", (_width(), 2 * line), "white")
    pen = ImageDraw.Draw(canvas)

    _write(pen, (0, 4), f"Query {place}", 24, INK, QUERY, bold=True)
    canvas.paste(draw(split, query, QUERY, broken), (0, HEADING))
    _frame(pen, 0, HEADING, QUERY)
    name, classes = printable(split.name(query)), split.labels.kind == "classes"
    _write(pen, (0, HEADING + QUERY + 10), name, 20, SUBDUED, QUERY)
    for row, text in enumerate(_quality(model, oracle, classes)):
        _write(pen, (0, HEADING + QUERY + 40 + 30 * row), text, 22, INK, QUERY)

    by_label = "Oracle: items of its class" if classes else "Oracle: nearest by label"
    for top, heading, rows, distances in (
        (0, "Retrieved by the embedding", ranking.model[q, :TOP].tolist(), model),
        (line, by_label, ranking.oracle[q, :TOP].tolist(), oracle),
    ):
        left = QUERY + BETWEEN
        _write(pen, (left, top + 4), heading, 24, INK, _width() - left, bold=True)
        for row, distance in zip(rows, distances, strict=True):
            canvas.paste(draw(split, row, THUMB, broken), (left, top + HEADING))
            _frame(pen, left, top + HEADING, THUMB)
            text, color = _told(distance, classes)
            _write(pen, (left + THUMB // 2, top + HEADING + THUMB + 4), text, 22, color, THUMB, centre=True)
            left += THUMB + GAP
    words = f"query {name}: label distances of the retrieved {_list(model)}; of the oracle {_list(oracle)}"
    return Strip(canvas, words)


def _quality(model: list[float], oracle: list[float], classes: bool) -> list[str]:
    """How good the retrieval of a query is, in lines of text."""
    if classes:
        return [f"{model.count(0.0)} of the nearest {len(model)} are of its class"]
    return [f"mean label distance {number(_mean(model))}", f"of the oracle {number(_mean(oracle))}"]


def _told(distance: float, classes: bool) -> tuple[str, str]:
    """What to write under a retrieved picture, and in which colour."""
    if not classes or not math.isfinite(distance):
        return number(distance), INK
    return ("same class", BLUE) if distance == 0 else ("another class", VERMILION)


def _width() -> int:
    return QUERY + BETWEEN + TOP * THUMB + (TOP - 1) * GAP


def _frame(pen: ImageDraw.ImageDraw, left: int, top: int, size: int) -> None:
    pen.rectangle((left, top, left + size - 1, top + size - 1), outline=FRAME)


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
    """One line of text, its middle left out where it is longer than its room: the end of a path tells most."""
    font, shown, kept = _font(size, bold), text, len(text)
    while kept > 2 and pen.textlength(shown, font=font) > room:
        kept = min(kept - 1, int(kept * room / pen.textlength(shown, font=font)) + 1)
        shown = text[: kept // 3] + "…" + text[-(kept - kept // 3) :]
    pen.text(at, shown, fill=color, font=font, anchor="ma" if centre else "la")


@cache
def _font(size: int, bold: bool) -> ImageFont.FreeTypeFont:
    # The font that matplotlib brings: the same on every machine, with most alphabets.
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name), size)


def _finite_mean(values: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Mean of the finite entries of each row `[Q, K] -> [Q]`; NaN where there is none."""
    finite = np.isfinite(values)
    total, count = np.where(finite, values, 0.0).sum(axis=1), finite.sum(axis=1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _mean(values: list[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else math.nan


def _list(values: list[float]) -> str:
    return ", ".join(number(value) for value in values) or MISSING
