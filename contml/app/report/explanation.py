"""Why a pair of items is near or far: pictures, and the parts of their label distance in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from PIL import Image, ImageDraw

from contml._support.pages import page_text
from contml._support.text import number
from contml.app.report.gallery import GAP, QUERIES, WIDTH, choose_queries, draw
from contml.app.report.plots import INK
from contml.data.renderers.text import font_for, shorten
from contml.data.split import Split, TitledPictures
from contml.evaluation.results import Ranking
from contml.labels.base import LabelSpace

#: Side of a picture, and height of a line of text in `match.png`.
_SIDE, _LINE = 420, 40


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


def explanation_picture(found: Explanation) -> Image.Image:
    """`match.png`: the pictures in lines, and the table below."""
    columns = 1 if len(found.pictures) == 1 else 3
    side = (WIDTH - (columns - 1) * GAP) // columns
    pictures = [picture.convert("RGB") for _, picture in found.pictures]
    pictures = [
        picture if columns == 1 else picture.resize((side, round(picture.height * side / picture.width)))
        for picture in pictures
    ]
    lines = [pictures[n : n + columns] for n in range(0, len(pictures), columns)]
    heights = [max(picture.height for picture in line) + GAP for line in lines]
    canvas = Image.new("RGB", (WIDTH, sum(heights) + _LINE * len(found.table)), "white")
    top = 0
    for line, height in zip(lines, heights, strict=True):
        for column, picture in enumerate(line):
            canvas.paste(picture, (column * (side + GAP), top))
        top += height
    pen = ImageDraw.Draw(canvas)
    for row, cells in enumerate(found.table):
        _write_row(pen, top + row * _LINE, cells, bold=row == 0)
    return canvas


def _write_row(pen: ImageDraw.ImageDraw, top: int, cells: Sequence[str], *, bold: bool) -> None:
    width = WIDTH // max(len(cells), 1)
    for column, cell in enumerate(cells):
        font, text = font_for(page_text(" ".join(cell.split())), 22, bold)
        pen.text((column * width, top + 6), shorten(text, font, width - GAP), fill=INK, font=font)
