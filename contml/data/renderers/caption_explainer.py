"""Draw the matched words of the captions of two images."""

from __future__ import annotations

from collections.abc import Hashable, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from PIL import Image, ImageDraw

from contml._support.text import number as number_of
from contml.data.decode import contained
from contml.data.renderers.text import load_font, shorten
from contml.data.split import TitledPictures
from contml.labels.caption_words import split_words
from contml.labels.captions import CaptionLabels, NearestCaptions

Colour: TypeAlias = "tuple[int, int, int]"
Pen: TypeAlias = ImageDraw.ImageDraw

_PAPER, _INK, _SUBDUED, _RULE = "#f4f3ef", "#222222", "#8a8a8a", "#d8d8d8"
_SAME, _FAR = (0, 114, 178), (213, 94, 0)  # blue and vermilion: distinct for colour-blind readers
_SHOWN = 3  # pairs of captions in a picture of two images
_SUPERSAMPLING = 2  # drawn this many times as large and averaged down: Pillow's lines have ragged edges
_LEGEND = "Lines: matched words. Width: share of the caption's weight. Blue: the same word; orange: a distant one."


@dataclass(frozen=True, eq=False)
class CaptionExplainer:
    """Draws the nearest captions of two rows, and their matched words.

    Args:
        labels: the captions of each row.
        names: the name of each row, usually a path; the file name is shown.
    """

    labels: CaptionLabels
    names: Sequence[str]

    def __call__(self, rows: tuple[int, int], pictures: tuple[Image.Image, Image.Image], size: int) -> TitledPictures:
        """A picture of both, one above the other, and beside them their nearest captions with lines between the words.

        A line connects two matched words. Its width is the weight that is moved between them; its colour goes from blue
        (the same word) to orange (the largest distance). Words that count are bold; others (stop words, words without a
        vector) are pale. `size` is the width in pixels.
        """
        pairs = self.labels.nearest_captions(*rows, most=_SHOWN)
        farthest = max(match.distance for pair in pairs for match in pair.plan)
        unit = _SUPERSAMPLING * size / 1500
        width, side, gap, title = (round(unit * length) for length in (1500, 330, 26, 40))
        left, font = side + 2 * gap, load_font(20 * unit)
        canvas = Image.new("RGB", (width, 2 * (side + title) + gap), "white")
        pen = ImageDraw.Draw(canvas)

        def write(x: float, y: float, text: str, room: float, fill: str) -> None:
            pen.text((x, y), shorten(text, font, room), fill=fill, font=font, anchor="lm")

        for number, (row, image) in enumerate(zip(rows, pictures, strict=True)):
            top = number * (side + title + gap)
            write(0, top + title // 2, Path(self.names[row]).name, side, _SUBDUED)
            canvas.paste(_PAPER, (0, top + title, side, top + title + side))
            picture = contained(image, (side, side), Image.Resampling.BICUBIC)
            canvas.paste(picture, ((side - picture.width) // 2, top + title + (side - picture.height) // 2))
        total = number_of(float(self.labels.pairwise([rows[0]], [rows[1]])))
        headline = f"Label distance {total}: sum over all captions of the distance to the nearest of the other image"
        write(left, title // 2, headline, width - left, _INK)
        write(left, canvas.height - title // 2, _LEGEND, width - left, _SUBDUED)
        block = (canvas.height - 2 * title) // _SHOWN
        for index, pair in enumerate(pairs):
            top = title + index * block
            pen.line((left, top, width, top), fill=_RULE, width=round(1.5 * unit))
            write(left, top + 0.13 * block, f"Word Mover's Distance {number_of(pair.distance)}", width - left, _INK)
            _draw_pair(pen, (left, top, width, top + block), pair, farthest)
        return [("matched words", canvas.resize((size, round(canvas.height / _SUPERSAMPLING)), Image.Resampling.BOX))]


def _draw_pair(pen: Pen, frame: tuple[int, int, int, int], pair: NearestCaptions, farthest: float) -> None:
    left, top, right, bottom = frame
    height = bottom - top
    points = 0.125 * height
    texts = [" ".join(text.split()) for text in (pair.first, pair.second)]
    longest = max(load_font(points, bold=True).getlength(text) for text in texts)
    points = min(points, points * (right - left) / max(longest, 1.0))
    upper, lower = top + 0.37 * height, top + 0.88 * height
    upper_xs = _write_words(pen, (left, upper), texts[0], {match.source for match in pair.plan}, points)
    lower_xs = _write_words(pen, (left, lower), texts[1], {match.target for match in pair.plan}, points)
    for match in sorted(pair.plan, key=lambda match: match.share):
        ratio = match.distance / farthest if farthest > 0 else 0.0
        ends = (upper_xs[str(match.source)], upper + 0.75 * points, lower_xs[str(match.target)], lower - 0.8 * points)
        red, green, blue = (round(same + ratio * (distant - same)) for same, distant in zip(_SAME, _FAR, strict=True))
        _draw_curve(pen, ends, (red, green, blue), max(2, round(0.16 * height * match.share)))


def _write_words(pen: Pen, at: tuple[float, float], text: str, words: Set[Hashable], points: float) -> dict[str, float]:
    """Draws one line of text, centred on the y of `at`; returns the middle (x) of each of these words."""
    x, y = at
    middles: dict[str, float] = {}
    for chunk in text.split(" "):
        counting = [word for word in split_words(chunk) if word in words]
        font = load_font(points, bold=bool(counting))
        pen.text((x, y), chunk, fill=_INK if counting else _SUBDUED, font=font, anchor="lm")
        length = pen.textlength(chunk, font=font)
        for word in counting:
            middles.setdefault(word, x + length / 2)
        x += length + pen.textlength(" ", font=font)
    return middles


def _draw_curve(pen: Pen, ends: tuple[float, float, float, float], colour: Colour, width: int) -> None:
    """From (x0, y0) down to (x1, y1), vertical at both ends."""
    x0, y0, x1, y1 = ends
    along = np.linspace(0, 1, 25)
    eased = along * along * (3 - 2 * along)
    points = [(float(x0 + e * (x1 - x0)), float(y0 + t * (y1 - y0))) for t, e in zip(along, eased, strict=True)]
    pen.line(points, fill=colour, width=width, joint="curve")
