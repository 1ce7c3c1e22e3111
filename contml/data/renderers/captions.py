"""Draw captions under their image, and the matched words of the captions of two images."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps

from contml._support.text import MISSING, number as number_of, percent
from contml.data.renderers.text import font_for, load_font, shorten
from contml.data.split import Explanation
from contml.labels.words import split_words
from contml.transport.captions import Match, word_movers_distance, word_movers_plan

Vectors: TypeAlias = "Mapping[str, np.ndarray[Any, np.dtype[Any]]]"
Colour: TypeAlias = "tuple[int, int, int]"
Pen: TypeAlias = ImageDraw.ImageDraw

#: In pictures smaller than this, captions would be too small to read: the image fills the square.
_MIN_SIZE = 120
_PAPER, _INK, _SUBDUED, _RULE = "#f4f3ef", "#222222", "#8a8a8a", "#d8d8d8"
_SAME, _FAR = (0, 114, 178), (213, 94, 0)  # blue and vermilion: distinct for colour-blind readers
_SHOWN = 3  # pairs of captions in a picture of two images
_SUPERSAMPLING = 2  # drawn this many times as large and averaged down: Pillow's lines have ragged edges
#: Token files have a space before punctuation; a full stop could be alone on a line.
_SPACED = re.compile(r" (?=[.,;:!?]|'s\b)")
_LEGEND = "Lines: matched words. Width: share of the caption's weight. Blue: the same word; orange: a distant one."


@dataclass(frozen=True, eq=False)
class CaptionRenderer:
    """Writes the captions of a row under its picture.

    Args:
        captions: the captions of each row.
    """

    captions: Sequence[Sequence[str]]

    def __call__(self, picture: Image.Image, row: int, size: int) -> Image.Image:
        """The picture with its captions, `size` pixels square; as many as fit, the last one cut short."""
        if size < _MIN_SIZE:
            return ImageOps.fit(picture, (size, size), Image.Resampling.BICUBIC)
        canvas = Image.new("RGB", (size, size), _PAPER)
        height = round(0.6 * size)
        thumbnail = ImageOps.contain(picture, (size, height), Image.Resampling.BICUBIC)
        canvas.paste(thumbnail, ((size - thumbnail.width) // 2, (height - thumbnail.height) // 2))
        points = round(8.6 + 0.021 * size)
        line, left = round(1.2 * points), round(0.55 * points)
        pen, y = ImageDraw.Draw(canvas), height + round(0.35 * points)
        for caption in self.captions[row]:
            max_lines = (size - y) // line
            if max_lines < 1:
                break
            font, caption = font_for(_SPACED.sub("", " ".join(caption.split())), points)
            lines = wrapped(caption, font, size - 2.2 * left, max_lines)
            pen.line((left // 3, y + 2, left // 3, y + len(lines) * line - 2), fill=_SAME, width=max(1, size // 130))
            for text in lines:
                pen.text((left, y), text, fill=_INK, font=font)
                y += line
            y += round(0.3 * points)
        return canvas

    def text(self, row: int) -> str:
        """The captions of a row, one per line: a describer."""
        return "\n".join(_SPACED.sub("", " ".join(caption.split())) for caption in self.captions[row])


@dataclass(frozen=True, eq=False)
class CaptionExplainer:
    """The nearest captions of two rows, and their matched words.

    Args:
        captions: the captions of each row.
        names: the name of each row, usually a path; the file name is shown.
        vectors: word vectors.
        normalize: scale word vectors to unit length first.
        weights: the weight of each word; None: every word weighs 1.
    """

    captions: Sequence[Sequence[str]]
    names: Sequence[str]
    vectors: Vectors
    normalize: bool = False
    weights: Mapping[str, float] | None = None

    def __call__(self, rows: tuple[int, int], pictures: tuple[Image.Image, Image.Image], size: int) -> Explanation:
        """A picture of both, one above the other, and beside them their nearest captions with lines between the words.

        A line connects two matched words. Its width is the weight that is moved between them; its colour goes from blue
        (the same word) to orange (the largest distance). Words that count are bold; others (stop words, words without a
        vector) are pale. `size` is the width in pixels. The same as text: the pairs of captions, and the moved words.
        """
        words = {
            word for row in rows for text in self.captions[row] for word in split_words(text) if word in self.vectors
        }
        vectors = {word: np.asarray(self.vectors[word], np.float64) for word in words}
        if self.normalize:
            vectors = {word: vector / (np.linalg.norm(vector) or 1.0) for word, vector in vectors.items()}
        bags = [_bags(self.captions[row], vectors) for row in rows]
        first_words, second_words = ([bag.words for bag in row_bags] for row_bags in bags)
        distances = word_movers_distance(first_words, second_words, vectors, weights=self.weights).numpy()
        pairs = _nearest_pairs(distances)
        plans = [word_movers_plan(first_words[a], second_words[b], vectors, self.weights) for a, b in pairs]
        farthest = max(match.distance for plan in plans for match in plan)

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
            picture = ImageOps.contain(image, (side, side), Image.Resampling.BICUBIC)
            canvas.paste(picture, ((side - picture.width) // 2, top + title + (side - picture.height) // 2))
        total = number_of(float(distances.min(axis=1).sum() + distances.min(axis=0).sum()))
        counts = f"{len(bags[0])} + {len(bags[1])} captions"
        headline = f"Label distance {total}: sum over {counts} of the distance to the nearest of the other image"
        write(left, title // 2, headline, width - left, _INK)
        write(left, canvas.height - title // 2, _LEGEND, width - left, _SUBDUED)
        block = (canvas.height - 2 * title) // _SHOWN
        for index, ((a, b), plan) in enumerate(zip(pairs, plans, strict=True)):
            top = title + index * block
            pen.line((left, top, width, top), fill=_RULE, width=round(1.5 * unit))
            distance = number_of(float(distances[a, b]))
            write(left, top + 0.13 * block, f"Word Mover's Distance {distance}", width - left, _INK)
            _draw_pair(pen, (left, top, width, top + block), (bags[0][a], bags[1][b]), plan, farthest)
        drawn = canvas.resize((size, round(canvas.height / _SUPERSAMPLING)), Image.Resampling.BOX)
        table = [
            [bags[0][a].text, bags[1][b].text, number_of(float(distances[a, b])), _moves(plan)]
            for (a, b), plan in zip(pairs, plans, strict=True)
        ]
        header = ("caption of the query", "nearest caption of the item", "Word Mover's Distance", "words that move")
        return Explanation([("matched words", drawn)], header, [*table, ["label distance", "", total, ""]])


class _Bag(NamedTuple):
    text: str
    words: list[str]  # the words that have a vector


def _bags(captions: Sequence[str], vectors: Vectors) -> list[_Bag]:
    bags = [_Bag(" ".join(text.split()), [word for word in split_words(text) if word in vectors]) for text in captions]
    return [bag for bag in bags if bag.words]


def _nearest_pairs(moved: np.ndarray[Any, np.dtype[Any]]) -> list[tuple[int, int]]:
    """Pairs of captions, the nearest first; each caption is in at most one pair."""
    pairs: list[tuple[int, int]] = []
    for flat_index in np.argsort(moved, axis=None, kind="stable"):
        a, b = divmod(int(flat_index), moved.shape[1])
        if all(a != x and b != y for x, y in pairs):
            pairs.append((a, b))
        if len(pairs) == _SHOWN:
            break
    return pairs


def _moves(plan: Sequence[Match]) -> str:
    """The words that move to other words, the largest part of the distance first: "dog to cat (33 %)"."""
    moves = sorted((match for match in plan if match.distance > 0), key=lambda match: -match.share * match.distance)
    return ", ".join(f"{match.source} to {match.target} ({percent(match.share)})" for match in moves) or MISSING


def _draw_pair(
    pen: Pen, frame: tuple[int, int, int, int], bags: tuple[_Bag, _Bag], plan: Sequence[Match], farthest: float
) -> None:
    left, top, right, bottom = frame
    height = bottom - top
    points = 0.125 * height
    longest = max(load_font(points, bold=True).getlength(bag.text) for bag in bags)
    points = min(points, points * (right - left) / max(longest, 1.0))
    upper, lower = top + 0.37 * height, top + 0.88 * height
    upper_xs = _write_words(pen, (left, upper), bags[0], points)
    lower_xs = _write_words(pen, (left, lower), bags[1], points)
    for match in sorted(plan, key=lambda match: match.share):
        ratio = match.distance / farthest if farthest > 0 else 0.0
        ends = (upper_xs[str(match.source)], upper + 0.75 * points, lower_xs[str(match.target)], lower - 0.8 * points)
        red, green, blue = (round(same + ratio * (distant - same)) for same, distant in zip(_SAME, _FAR, strict=True))
        _draw_curve(pen, ends, (red, green, blue), max(2, round(0.16 * height * match.share)))


def _write_words(pen: Pen, at: tuple[float, float], bag: _Bag, points: float) -> dict[str, float]:
    """Draws one line of text, centred on the y of `at`; returns the middle (x) of each word that counts."""
    x, y = at
    middles: dict[str, float] = {}
    for chunk in bag.text.split(" "):
        counting = [word for word in split_words(chunk) if word in bag.words]
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


def wrapped(text: str, font: ImageFont.FreeTypeFont, width: float, max_lines: int) -> list[str]:
    """The text in at most `max_lines` lines, broken between words; what does not fit is cut and ends in "…"."""
    lines: list[str] = []
    words = text.split(" ")
    while words and len(lines) < max_lines:
        count = 1
        while count < len(words) and font.getlength(" ".join(words[: count + 1])) <= width:
            count += 1
        is_last = len(lines) == max_lines - 1 and count < len(words)
        lines.append(shorten(" ".join(words if is_last else words[:count]), font, width))
        words = words[count:]
    return lines
