"""Why a pair of items is near or far: pictures, and the parts of their label distance, for every kind of label."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch

import torch
from PIL import Image, ImageDraw

from contml._support.text import MISSING, number
from contml.contracts import Measure
from contml.data.renderers.text import font_for, shorten
from contml.data.split import Explanation, Split
from contml.distances.labels import great_circle, heading_difference
from contml.evaluation.results import Ranking
from contml.evaluation.table import measured_words
from contml.labels.base import LabelSpace
from contml.labels.classes import ClassLabels
from contml.labels.poses import PoseLabels
from contml.labels.scales import GeoLabels, OrdinalLabels
from contml.labels.sequences import SequenceLabels
from contml.labels.sets import MultiHotLabels, TagLabels
from contml.labels.vectors import VectorLabels
from contml.labels.weighted import WeightedLabels
from contml.report.gallery import GAP, QUERIES, WIDTH, choose_queries, draw, printable
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
        first = choose_queries(ranking.label_distances, QUERIES)[0]
        pair = int(ranking.queries[first]), int(ranking.model[first, 0])
    query, row = pair
    try:
        found = split.explain(query, row, WIDTH)
    except Exception as error:  # as in `draw`
        broken.setdefault(query, f"{type(error).__name__}: {error}")
        return None
    if found is None:
        pictures = [(title, draw(split, n, _SIDE, broken)) for title, n in (("query", query), ("item", row))]
        found = Explanation(pictures, _HEADER, pair_rows(split.labels, query, row))
    return f"query {printable(split.name(query))} and {printable(split.name(row))}", found


def pair_rows(labels: LabelSpace, a: int, b: int) -> list[list[str]]:
    """The parts of the label distance of two rows in words, and the label distance itself."""
    total = float(labels.pairwise([a], [b]))
    classes = labels.class_ids is not None
    words = number(total) if classes else measured_words(total, labels.measure)
    return [*parts(labels, a, b), ["label distance", "", "", words]]


@singledispatch
def parts(labels: LabelSpace, a: int, b: int) -> list[list[str]]:  # noqa: ARG001
    """Rows of the label, its value for both items, and their difference; none for labels that have no values."""
    return []


@parts.register
def _(labels: VectorLabels, a: int, b: int) -> list[list[str]]:
    x, y = labels.values[a], labels.values[b]
    apart = (x - y).abs()
    if len(x) == 1:
        return [["number", number(float(x)), number(float(y)), number(float(apart))]]
    order = apart.argsort(descending=True, stable=True)[:_LISTED].tolist()
    return [[f"number {n + 1}", number(float(x[n])), number(float(y[n])), number(float(apart[n]))] for n in order]


@parts.register
def _(labels: ClassLabels, a: int, b: int) -> list[list[str]]:
    names = dict(enumerate(labels.names))
    x, y = (int(labels.class_ids[row]) for row in (a, b))
    return [["class", str(names.get(x, x)), str(names.get(y, y)), "same" if x == y else "different"]]


@parts.register
def _(labels: OrdinalLabels, a: int, b: int) -> list[list[str]]:
    x, y = int(labels.ranks[a]), int(labels.ranks[b])
    apart = f"{abs(x - y)} level{'s' * (abs(x - y) != 1)}"
    return [["level", str(labels.levels[x]), str(labels.levels[y]), apart]]


@parts.register
def _(labels: GeoLabels, a: int, b: int) -> list[list[str]]:
    places = labels.places[[a, b]]
    metres = 1000 * float(great_circle(places[:1], places[1:]))
    texts = [f"{float(latitude):.5f}, {float(longitude):.5f}" for latitude, longitude in places]
    rows = [["place", *texts, measured_words(metres, Measure("m") if metres < 1000 else Measure("km", 1e-3))]]
    if labels.headings is not None:
        headings = labels.headings[[a, b]]
        apart = float(heading_difference(headings[:1], headings[1:]))
        rows.append(["heading", *(f"{float(turn):.0f}°" for turn in headings), f"{apart:.0f}°"])
    return rows


@parts.register
def _(labels: TagLabels, a: int, b: int) -> list[list[str]]:
    x, y = labels.tags(a), labels.tags(b)
    shared = f"{len(set(x) & set(y))} of {len(set(x) | set(y))} shared"
    return [["tags", ", ".join(map(str, x)) or MISSING, ", ".join(map(str, y)) or MISSING, shared]]


@parts.register
def _(labels: MultiHotLabels, a: int, b: int) -> list[list[str]]:
    x, y = labels.labels[a].bool(), labels.labels[b].bool()
    texts = [", ".join(str(n + 1) for n in each.nonzero()[:, 0].tolist()) or MISSING for each in (x, y)]
    return [["labels", *texts, f"{int((x != y).sum())} of {len(x)} differ"]]


@parts.register
def _(labels: SequenceLabels, a: int, b: int) -> list[list[str]]:
    texts = [" ".join(map(str, labels.tokens(row))) or MISSING for row in (a, b)]
    return [["sequence", *texts, number(float(labels.pairwise([a], [b])))]]


@parts.register
def _(labels: PoseLabels, a: int, b: int) -> list[list[str]]:
    x, y, both = labels.joints[a], labels.joints[b], labels.visible[a] & labels.visible[b]
    apart = torch.where(both, (x - y).norm(dim=1), -1)
    order = [n for n in apart.argsort(descending=True, stable=True)[:_LISTED].tolist() if both[n]]
    texts = [[", ".join(number(float(value)) for value in joint) for joint in each] for each in (x, y)]
    return [[f"joint {n + 1}", texts[0][n], texts[1][n], number(float(apart[n]))] for n in order]


@parts.register
def _(labels: WeightedLabels, a: int, b: int) -> list[list[str]]:
    rows = []
    for n, space in enumerate(labels.spaces):
        known = labels.present is None or bool(labels.present[a, n] and labels.present[b, n])
        rows += parts(space, a, b) if known else []
        words = measured_words(float(space.pairwise([a], [b])), space.measure) if known else "missing"
        rows.append([space.unit, "", "", words])
    return rows


def explanation_picture(found: Explanation) -> Image.Image:
    """`match.png`: the pictures in lines, and the table below."""
    most = 1 if len(found.pictures) == 1 else 3
    side = (WIDTH - (most - 1) * GAP) // most
    shown = [picture.convert("RGB") for _, picture in found.pictures]
    shown = [each if most == 1 else each.resize((side, round(each.height * side / each.width))) for each in shown]
    lines = [shown[n : n + most] for n in range(0, len(shown), most)]
    heights = [max(each.height for each in line) + GAP for line in lines]
    table = [found.header, *found.rows] if found.rows else []
    canvas = Image.new("RGB", (WIDTH, sum(heights) + _LINE * len(table)), "white")
    top = 0
    for line, height in zip(lines, heights, strict=True):
        for place, each in enumerate(line):
            canvas.paste(each, (place * (side + GAP), top))
        top += height
    pen = ImageDraw.Draw(canvas)
    for number_of_row, cells in enumerate(table):
        _write_row(pen, top + number_of_row * _LINE, cells, bold=number_of_row == 0)
    return canvas


def _write_row(pen: ImageDraw.ImageDraw, top: int, cells: Sequence[str], *, bold: bool) -> None:
    width = WIDTH // max(len(cells), 1)
    for place, cell in enumerate(cells):
        font, text = font_for(printable(" ".join(cell.split())), 22, bold)
        pen.text((place * width, top + 6), shorten(text, font, width - GAP), fill=INK, font=font)
