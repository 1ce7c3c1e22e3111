"""Draw a row of a table: its image, label maps beside it, and other labels as text below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps

from contml._support.text import number as number_of
from contml.data.renderers.label_maps import class_colours

from .labels import Array, Label, MapLabel

#: Text in smaller pictures is not readable, so it is omitted and the picture fills the square.
_READABLE = 120
_PAPER, _INK, _SUBDUED, _RULE, _BAR = "#f4f3ef", "#222222", "#6a6a6a", "#d8d8d8", (0, 114, 178)
_IGNORED = (225, 225, 225)
_TEXT_SHARE = 0.42  # the largest share of the height for text


@dataclass(frozen=True, eq=False)
class TableRenderer:
    """Draws the labels of a row: label maps beside its picture, other labels as text below.

    Args:
        labels: the labels of the table.
        rows: the row of the table for each row of the split.
    """

    labels: Sequence[Label]
    rows: Array

    def __call__(self, picture: Image.Image, row: int, size: int) -> Image.Image:
        """The picture with its labels, `size` pixels square."""
        table_row = int(self.rows[row])
        shown = picture if size < _READABLE else _with_maps(picture, self.labels, table_row)
        return draw_lines(shown, [line for label in self.labels for line in label.lines(table_row)], size)


@dataclass(frozen=True, eq=False)
class TableExplainer:
    """Draws two rows and the terms of their label distance: the distance of each label, and its part of the sum.

    Args:
        labels: the labels of the table.
        weights: the factor of each label distance in the sum.
        rows: the row of the table for each row of the split.
    """

    labels: Sequence[Label]
    weights: Sequence[float]
    rows: Array

    def __call__(self, rows: tuple[int, int], pictures: tuple[Image.Image, Image.Image], size: int) -> Image.Image:
        """The two pictures and a line for each label, `size` pixels wide."""
        first, second = (int(self.rows[row]) for row in rows)
        parts = []
        for label, weight in zip(self.labels, self.weights, strict=True):
            distance = float(label.space(np.array((first, second))).pairwise([0], [1]))
            parts.append((label.name, (label.text(first), label.text(second)), distance, weight * distance))
        shown = (_with_maps(pictures[0], self.labels, first), _with_maps(pictures[1], self.labels, second))
        return draw_parts(shown, parts, size)


def _with_maps(picture: Image.Image, labels: Sequence[Label], row: int) -> Image.Image:
    return beside(picture, [label.map(row) for label in labels if isinstance(label, MapLabel)])


def beside(picture: Image.Image, maps: Sequence[Array]) -> Image.Image:
    """A picture with label maps of its size beside it: `[H, W]` class ids, -1 where ignored, drawn grey."""
    if not maps:
        return picture
    height = 240
    width = max(1, round(picture.width * height / picture.height))
    gap = height // 40
    canvas = Image.new("RGB", ((1 + len(maps)) * (width + gap) - gap, height), _PAPER)
    canvas.paste(picture.resize((width, height), Image.Resampling.BICUBIC), (0, 0))
    for place, ids in enumerate(maps, start=1):
        colours = np.concatenate((class_colours(int(ids.max(initial=-1)) + 1), np.array([_IGNORED], np.uint8)))
        part = Image.fromarray(colours[ids]).resize((width, height), Image.Resampling.NEAREST)
        canvas.paste(part, (place * (width + gap), 0))
    return canvas


def draw_lines(picture: Image.Image, texts: Sequence[str], size: int) -> Image.Image:
    """A picture with texts below, `size` pixels square; texts longer than two lines are cut."""
    if size < _READABLE:
        return ImageOps.fit(picture, (size, size), Image.Resampling.BICUBIC)
    points = round(9 + 0.03 * size)
    font, step, left = _font(points), round(1.3 * points), round(0.6 * points)
    room = int(_TEXT_SHARE * size) // step
    lines: list[str] = []
    for text in texts:
        wrapped = _wrapped(" ".join(text.split()), font, size - 2 * left, 2 if len(texts) <= room else 1)
        lines += wrapped[: max(room - len(lines), 0)]
    height = size - (len(lines) * step + left if lines else 0)
    canvas = Image.new("RGB", (size, size), _PAPER)
    fitted = ImageOps.contain(picture, (size, height), Image.Resampling.BICUBIC)
    canvas.paste(fitted, ((size - fitted.width) // 2, (height - fitted.height) // 2))
    pen = ImageDraw.Draw(canvas)
    for place, line in enumerate(lines):
        pen.text((left, height + left // 2 + place * step), line, fill=_INK, font=font)
    return canvas


def draw_parts(
    pictures: tuple[Image.Image, Image.Image], parts: Sequence[tuple[str, tuple[str, str], float, float]], width: int
) -> Image.Image:
    """Two pictures, and the terms of their label distance.

    parts: the name of each label, its values in both rows, its label distance, and its part of the sum.
    """
    unit = width / 1500
    side, gap, row = round(360 * unit), round(30 * unit), round(74 * unit)
    fitted = [ImageOps.contain(picture, (side, side), Image.Resampling.BICUBIC) for picture in pictures]
    height = max(fitted[0].height + gap + fitted[1].height, (len(parts) + 2) * row)
    canvas = Image.new("RGB", (width, height), "white")
    pen = ImageDraw.Draw(canvas)
    for picture, top in zip(fitted, (0, fitted[0].height + gap), strict=True):
        canvas.paste(picture, ((side - picture.width) // 2, top))
    left = side + 2 * gap
    edges = [left + round(x * unit) for x in (0, 200, 415, 630, 745)]
    font, bold = _font(round(21 * unit)), _font(round(21 * unit), bold=True)
    total, largest = sum(part for *_, part in parts), max(part for *_, part in parts)
    for x, title in zip(edges, ("label", "above", "below", "distance", "part of the sum"), strict=True):
        pen.text((x, row // 2), title, fill=_SUBDUED, font=font, anchor="lm")
    for place, (name, values, distance, part) in enumerate(parts, start=1):
        y = place * row
        pen.line((left, y, width, y), fill=_RULE, width=max(1, round(unit)))
        cells = (name, *values, number_of(distance))
        for column, (x, text) in enumerate(zip(edges, cells, strict=False)):
            face = font if column else bold
            pen.text((x, y + row // 2), _cut(text, face, edges[column + 1] - x - gap // 2), _INK, face, anchor="lm")
        length = round((width - edges[4] - 90 * unit) * (part / largest if largest else 0))
        pen.rectangle((edges[4], y + row // 2 - 9 * unit, edges[4] + max(1, length), y + row // 2 + 9 * unit), _BAR)
        pen.text((edges[4] + length + gap // 2, y + row // 2), number_of(part), _INK, font, anchor="lm")
    y = (len(parts) + 1) * row
    pen.line((left, y, width, y), fill=_SUBDUED, width=max(1, round(2 * unit)))
    pen.text((left, y + row // 2), f"Label distance {number_of(total)}", _INK, bold, anchor="lm")
    return canvas


def _wrapped(text: str, font: ImageFont.FreeTypeFont, width: float, most: int) -> list[str]:
    """The text in at most `most` lines, broken between words."""
    lines: list[str] = []
    words = text.split(" ")
    while words and len(lines) < most:
        count = len(words)
        if len(lines) < most - 1:
            while count > 1 and font.getlength(" ".join(words[:count])) > width:
                count -= 1
        lines.append(_cut(" ".join(words[:count]), font, width))
        words = words[count:]
    return lines


def _cut(text: str, font: ImageFont.FreeTypeFont, width: float) -> str:
    """The text, cut where it is too long."""
    shown = text
    while len(shown) > 2 and font.getlength(shown) > width:
        shown = shown[: max(1, min(len(shown) - 2, int(len(shown) * width / font.getlength(shown))))].rstrip() + "…"
    return shown


@cache
def _font(points: int, bold: bool = False) -> ImageFont.FreeTypeFont:
    import matplotlib

    # The font of matplotlib: the same on every machine, with most alphabets.
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name), points)
