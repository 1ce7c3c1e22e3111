"""Draw a row of a table: its image, label maps beside it, and other labels as text below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps

from contml._support.text import MISSING, number as number_of
from contml.data.renderers.label_maps import class_colours
from contml.data.renderers.text import font_for
from contml.data.split import Explanation

from .labels import Array, Label, MapLabel

#: Text in smaller pictures is not readable, so it is omitted and the picture fills the square.
_READABLE = 120
_PAPER, _INK = "#f4f3ef", "#222222"
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
        image = picture if size < _READABLE else _with_maps(picture, self.labels, table_row)
        present_labels = [label for label in self.labels if label.present[table_row]]
        return draw_lines(image, [line for label in present_labels for line in label.lines(table_row)], size)

    def text(self, row: int) -> str:
        """The labels of a row that are no maps, one per line: a describer."""
        table_row = int(self.rows[row])
        present_labels = [label for label in self.labels if label.present[table_row]]
        return "\n".join(line for label in present_labels for line in label.lines(table_row))


@dataclass(frozen=True, eq=False)
class TableExplainer:
    """Draws two rows, and lists their labels: both values, the difference in the unit of the column, its part of a sum.

    Args:
        labels: the labels of the table.
        weights: the factor of each label distance in the sum.
        rows: the row of the table for each row of the split.
    """

    labels: Sequence[Label]
    weights: Sequence[float]
    rows: Array

    def __call__(self, rows: tuple[int, int], pictures: tuple[Image.Image, Image.Image], size: int) -> Explanation:
        """The two pictures and a line for each label."""
        query_row, item_row = (int(self.rows[row]) for row in rows)
        both_present = [bool(label.present[query_row] and label.present[item_row]) for label in self.labels]
        shared_weight = sum(weight for weight, present in zip(self.weights, both_present, strict=True) if present)
        is_sum, table, total = len(self.labels) > 1, [], 0.0
        for label, weight, present in zip(self.labels, self.weights, both_present, strict=True):
            texts = [label.text(row) if label.present[row] else "missing" for row in (query_row, item_row)]
            words, contribution = MISSING, 0.0
            if present:
                space = label.space(np.array((query_row, item_row)))
                distance = float(space.pairwise([0], [1]))
                contribution = weight * distance * sum(self.weights) / shared_weight
                words = space.measure.text(distance)
                if space.class_ids is not None:
                    words = "different" if distance else "same"
            total += contribution
            table.append([label.name, *texts, words, *([number_of(contribution)] if is_sum else [])])
        if is_sum:
            table.append(["label distance", "", "", "", number_of(total if shared_weight else sum(self.weights))])
        header = ("label", "query", "item", "difference", *(["part of the sum"] if is_sum else []))
        titled_pictures = [
            (title, ImageOps.contain(_with_maps(picture, self.labels, row), (size // 3, size // 3)))
            for title, picture, row in zip(("query", "item"), pictures, (query_row, item_row), strict=True)
        ]
        return Explanation(titled_pictures, header, table)


def _with_maps(picture: Image.Image, labels: Sequence[Label], row: int) -> Image.Image:
    return beside(picture, [label.map(row) for label in labels if isinstance(label, MapLabel) and label.present[row]])


def beside(picture: Image.Image, maps: Sequence[Array]) -> Image.Image:
    """A picture with label maps of its size beside it: `[H, W]` class ids, -1 where ignored, drawn grey."""
    if not maps:
        return picture
    height = 240
    width = max(1, round(picture.width * height / picture.height))
    gap = height // 40
    canvas = Image.new("RGB", ((1 + len(maps)) * (width + gap) - gap, height), _PAPER)
    canvas.paste(picture.resize((width, height), Image.Resampling.BICUBIC), (0, 0))
    for index, ids in enumerate(maps, start=1):
        colours = np.concatenate((class_colours(int(ids.max(initial=-1)) + 1), np.array([_IGNORED], np.uint8)))
        map_image = Image.fromarray(colours[ids]).resize((width, height), Image.Resampling.NEAREST)
        canvas.paste(map_image, (index * (width + gap), 0))
    return canvas


def draw_lines(picture: Image.Image, texts: Sequence[str], size: int) -> Image.Image:
    """A picture with texts below, `size` pixels square; texts longer than two lines are cut."""
    if size < _READABLE:
        return ImageOps.fit(picture, (size, size), Image.Resampling.BICUBIC)
    font_size = round(9 + 0.03 * size)
    line_height, margin = round(1.3 * font_size), round(0.6 * font_size)
    font, _ = font_for("".join(texts), font_size)
    max_lines = int(_TEXT_SHARE * size) // line_height
    lines: list[str] = []
    for text in texts:
        printable = " ".join(font_for(text, font_size)[1].split())
        wrapped = _wrapped(printable, font, size - 2 * margin, 2 if len(texts) <= max_lines else 1)
        lines += wrapped[: max(max_lines - len(lines), 0)]
    height = size - (len(lines) * line_height + margin if lines else 0)
    canvas = Image.new("RGB", (size, size), _PAPER)
    fitted = ImageOps.contain(picture, (size, height), Image.Resampling.BICUBIC)
    canvas.paste(fitted, ((size - fitted.width) // 2, (height - fitted.height) // 2))
    pen = ImageDraw.Draw(canvas)
    for index, line in enumerate(lines):
        pen.text((margin, height + margin // 2 + index * line_height), line, fill=_INK, font=font)
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
    cut = text
    while len(cut) > 2 and font.getlength(cut) > width:
        cut = cut[: max(1, min(len(cut) - 2, int(len(cut) * width / font.getlength(cut))))].rstrip() + "…"
    return cut
