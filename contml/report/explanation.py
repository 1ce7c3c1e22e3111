"""Why a pair of items is near or far: pictures, and the parts of their label distance, for every kind of label."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch

import torch
from PIL import Image, ImageDraw

from contml._support.text import MISSING, number, page_text
from contml.data.renderers.text import font_for, shorten
from contml.data.split import Explanation, Split
from contml.distances.labels import great_circle, heading_difference
from contml.evaluation.results import Ranking
from contml.labels.base import LabelSpace
from contml.labels.classes import ClassLabels
from contml.labels.poses import PoseLabels
from contml.labels.scales import GeoLabels, OrdinalLabels
from contml.labels.sequences import SequenceLabels
from contml.labels.sets import MultiHotLabels, TagLabels
from contml.labels.vectors import VectorLabels
from contml.labels.weighted import WeightedLabels
from contml.report.gallery import GAP, QUERIES, WIDTH, choose_queries, draw
from contml.report.plots import INK

#: Largest parts of a label of many numbers that are listed.
_LISTED = 8
#: Side of a picture, and height of a line of text in `match.png`.
_SIDE, _LINE = 420, 40
_HEADER = ("label", "query", "item", "difference")


def explain_pair(
    split: Split, ranking: Ranking, broken: dict[int, str], pair: tuple[int, int] | None = None
) -> tuple[str, Explanation] | None:
    """The names of two rows, and how their label distance is made up: by the split's explainer, or by its labels.

    The default pair is the first query and its nearest item. None where nothing was retrieved, or where the explainer
    fails, which is noted in `broken`.
    """
    if pair is None:
        if not ranking.model.numel():
            return None
        first_query = choose_queries(ranking.label_distances, QUERIES)[0]
        pair = int(ranking.queries[first_query]), int(ranking.model[first_query, 0])
    query, row = pair
    try:
        explanation = split.explain(query, row, WIDTH)
    except Exception as error:  # as in `draw`
        broken.setdefault(query, f"{type(error).__name__}: {error}")
        return None
    if explanation is None:
        pictures = [(title, draw(split, n, _SIDE, broken)) for title, n in (("query", query), ("item", row))]
        explanation = Explanation(pictures, _HEADER, pair_rows(split.labels, query, row))
    return f"query {page_text(split.name(query))} and {page_text(split.name(row))}", explanation


def pair_rows(labels: LabelSpace, a: int, b: int) -> list[list[str]]:
    """The parts of the label distance of two rows in words, and the label distance itself."""
    total = float(labels.pairwise([a], [b]))
    classes = labels.class_ids is not None
    words = number(total) if classes else labels.measure.text(total)
    return [*parts(labels, a, b), ["label distance", "", "", words]]


@singledispatch
def parts(labels: LabelSpace, a: int, b: int) -> list[list[str]]:  # noqa: ARG001
    """Rows of the label, its value for both items, and their difference; none for labels that have no values."""
    return []


@parts.register
def _(labels: VectorLabels, a: int, b: int) -> list[list[str]]:
    x, y = labels.values[a], labels.values[b]
    difference, measure = (x - y).abs(), labels.measure.linear
    if len(x) == 1:
        return [["number", number(float(x)), number(float(y)), measure.text(float(difference))]]
    order = difference.argsort(descending=True, stable=True)[:_LISTED].tolist()
    numbers = [(n, float(x[n]), float(y[n]), float(difference[n])) for n in order]
    return [[f"number {n + 1}", number(a), number(b), measure.text(each)] for n, a, b, each in numbers]


@parts.register
def _(labels: ClassLabels, a: int, b: int) -> list[list[str]]:
    names = dict(enumerate(labels.names))
    x, y = (int(labels.class_ids[row]) for row in (a, b))
    return [["class", str(names.get(x, x)), str(names.get(y, y)), "same" if x == y else "different"]]


@parts.register
def _(labels: OrdinalLabels, a: int, b: int) -> list[list[str]]:
    x, y = int(labels.ranks[a]), int(labels.ranks[b])
    difference = f"{abs(x - y)} level{'s' * (abs(x - y) != 1)}"
    return [["level", str(labels.levels[x]), str(labels.levels[y]), difference]]


@parts.register
def _(labels: GeoLabels, a: int, b: int) -> list[list[str]]:
    places = labels.places[[a, b]]
    distance = 1000 / labels.metres_per_unit * float(great_circle(places[:1], places[1:]))
    texts = [f"{float(latitude):.5f}, {float(longitude):.5f}" for latitude, longitude in places]
    rows = [["place", *texts, labels.measure.text(distance)]]
    if labels.headings is not None:
        headings = labels.headings[[a, b]]
        difference = float(heading_difference(headings[:1], headings[1:]))
        rows.append(["heading", *(f"{float(heading):.0f}°" for heading in headings), f"{difference:.0f}°"])
    return rows


@parts.register
def _(labels: TagLabels, a: int, b: int) -> list[list[str]]:
    x, y = labels.tags(a), labels.tags(b)
    shared = f"{len(set(x) & set(y))} of {len(set(x) | set(y))} shared"
    return [["tags", ", ".join(map(str, x)) or MISSING, ", ".join(map(str, y)) or MISSING, shared]]


@parts.register
def _(labels: MultiHotLabels, a: int, b: int) -> list[list[str]]:
    x, y = labels.labels[a].bool(), labels.labels[b].bool()
    texts = [", ".join(str(n + 1) for n in vector.nonzero()[:, 0].tolist()) or MISSING for vector in (x, y)]
    return [["labels", *texts, f"{int((x != y).sum())} of {len(x)} differ"]]


@parts.register
def _(labels: SequenceLabels, a: int, b: int) -> list[list[str]]:
    texts = [" ".join(map(str, labels.tokens(row))) or MISSING for row in (a, b)]
    return [["sequence", *texts, number(float(labels.pairwise([a], [b])))]]


@parts.register
def _(labels: PoseLabels, a: int, b: int) -> list[list[str]]:
    x, y, visible = labels.joints[a], labels.joints[b], labels.visible[a] & labels.visible[b]
    distances = torch.where(visible, (x - y).norm(dim=1), -1)
    order = [n for n in distances.argsort(descending=True, stable=True)[:_LISTED].tolist() if visible[n]]
    texts = [[", ".join(number(float(value)) for value in joint) for joint in pose] for pose in (x, y)]
    return [[f"joint {n + 1}", texts[0][n], texts[1][n], number(float(distances[n]))] for n in order]


@parts.register
def _(labels: WeightedLabels, a: int, b: int) -> list[list[str]]:
    rows = []
    for n, space in enumerate(labels.spaces):
        present = labels.present is None or bool(labels.present[a, n] and labels.present[b, n])
        rows += parts(space, a, b) if present else []
        words = space.measure.text(float(space.pairwise([a], [b]))) if present else "missing"
        rows.append([space.unit, "", "", words])
    return rows


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
    table = [found.header, *found.rows] if found.rows else []
    canvas = Image.new("RGB", (WIDTH, sum(heights) + _LINE * len(table)), "white")
    top = 0
    for line, height in zip(lines, heights, strict=True):
        for column, picture in enumerate(line):
            canvas.paste(picture, (column * (side + GAP), top))
        top += height
    pen = ImageDraw.Draw(canvas)
    for row, cells in enumerate(table):
        _write_row(pen, top + row * _LINE, cells, bold=row == 0)
    return canvas


def _write_row(pen: ImageDraw.ImageDraw, top: int, cells: Sequence[str], *, bold: bool) -> None:
    width = WIDTH // max(len(cells), 1)
    for column, cell in enumerate(cells):
        font, text = font_for(page_text(" ".join(cell.split())), 22, bold)
        pen.text((column * width, top + 6), shorten(text, font, width - GAP), fill=INK, font=font)
