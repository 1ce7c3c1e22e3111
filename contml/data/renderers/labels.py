"""Draw labels: without an image, label maps on one, and the matched words of captions."""

from __future__ import annotations

import colorsys
from collections.abc import Hashable, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from PIL import Image, ImageDraw

from contml._support.pages import page_text
from contml._support.text import number as number_of
from contml.data.decode import contained
from contml.data.renderers.poses import draw_skeleton
from contml.data.renderers.text import font_for, load_font, shorten, wrapped
from contml.data.split import TitledPictures
from contml.labels.base import LabelSpace
from contml.labels.caption_words import split_words
from contml.labels.captions import CaptionLabels, NearestCaptions
from contml.labels.poses import PoseLabels
from contml.labels.segmentation import SegmentationLabels

_PAPER, _INK = "#f1f1f1", "#222222"
#: Margin of words, as a share of the side; their largest and their smallest size, as shares of the side.
_MARGIN, _LARGEST, _SMALLEST = 0.07, 0.2, 0.07


def label_drawing(labels: LabelSpace, row: int, size: int) -> Image.Image | None:
    """The pose or the label map of an item, `size` pixels square; of a sum, the first one. None for other labels."""
    for space, present in labels.terms:
        if present is not None and not bool(present[row]):
            continue
        if isinstance(space, PoseLabels):
            joints, visible = space.joints[row, :, :2].cpu().numpy(), space.visible[row].cpu().numpy()
            return draw_skeleton(joints, visible, space.skeleton, space.part_names, size, _PAPER)
        if isinstance(space, SegmentationLabels):
            label_map = LabelMapRenderer(space, *space.size).map(row)
            return Image.fromarray(map_colours(np.ascontiguousarray(shrink(label_map, size))))
    return None


def label_picture(labels: LabelSpace, row: int, size: int, words: str) -> Image.Image:
    """The label of an item, `size` pixels square: drawn, or in words as large as they fit.

    Args:
        labels: the labels.
        row: the item.
        size: the side in pixels.
        words: the words of a label that has none.
    """
    drawing = label_drawing(labels, row, size)
    return draw_text(labels.text(row) or words, size) if drawing is None else drawing


def draw_text(text: str, size: int) -> Image.Image:
    """A text on a square, in the largest size in which it fits; what does not fit in the smallest is cut."""
    canvas = Image.new("RGB", (size, size), _PAPER)
    room, texts = size - 2 * round(_MARGIN * size), [page_text(line) for line in text.split("\n")]
    smallest = max(6, round(_SMALLEST * size))
    for points in range(max(smallest, round(_LARGEST * size)), smallest - 1, -1):
        font, max_lines = font_for("".join(texts), points, bold=True)[0], max(1, int(room / (1.25 * points)))
        printable = [font_for(line, points, bold=True)[1] for line in texts]
        wrapped_texts = [wrapped(line, font, room, max_lines) for line in printable]
        lines = [line for each in wrapped_texts for line in each]
        if len(lines) <= max_lines and [" ".join(each) for each in wrapped_texts] == printable:
            break
    lines = lines[:max_lines]
    pen, top = ImageDraw.Draw(canvas), (size - 1.25 * points * len(lines)) / 2
    for number, line in enumerate(lines):
        pen.text((size / 2, top + number * 1.25 * points), line, fill=_INK, font=font, anchor="ma")
    return canvas


Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

#: Colours of the first class ids, distinct also for colour-blind readers. 1 to 5 are the surfaces of a room: frontal
#: wall, left wall, right wall, floor, ceiling.
_FIRST = (
    (106, 61, 154), (250, 214, 60), (0, 114, 200), (225, 87, 20), (0, 158, 115), (214, 110, 175), (120, 200, 240),
    (140, 90, 40), (190, 20, 60), (150, 200, 60), (60, 60, 70), (240, 240, 240),
)  # fmt: skip
#: Colours of ignored pixels and of the frame around the map.
_IGNORED, _FRAME = (225, 225, 225), "white"
#: Colours of pixels where two maps are equal, and where they differ.
_SAME, _DIFFERENT = (120, 130, 140), (224, 112, 0)
#: Side of the drawn map, as a share of the picture's side.
_SHARE = 0.4


def class_colours(classes: int) -> Array:
    """Colours `[classes, 3]` in 0..255, fixed by class id: the same in every picture and every data set."""
    generated = [colorsys.hsv_to_rgb(0.618 * c % 1, 0.5 + 0.4 * (c % 2), 0.95 - 0.2 * (c % 3)) for c in range(classes)]
    colours = np.array(generated) * 255
    colours[: len(_FIRST)] = _FIRST[:classes]
    return colours.round().astype(np.uint8)


def map_colours(labels: Array) -> Array:
    """A label map `[H, W]` in colours of its classes `[H, W, 3]`; -1, ignored, is light grey."""
    return np.concatenate((class_colours(int(labels.max(initial=-1)) + 1), np.array([_IGNORED], np.uint8)))[labels]


def map_legend(names: Sequence[str], ignore: int | None = None) -> list[tuple[str, str]]:
    """The legend of label maps of classes 0, 1, ...: colours and names. Pixels of class `ignore` do not count."""
    colours = {
        name: colour
        for number, (name, colour) in enumerate(zip(names, class_colours(len(names)), strict=True))
        if number != ignore
    }
    return [(f"#{red:02x}{green:02x}{blue:02x}", name) for name, (red, green, blue) in colours.items()]


@dataclass(frozen=True, eq=False)
class LabelMapRenderer:
    """Draws the label map of a row in a corner of its picture.

    Args:
        labels: the packed maps.
        height: height of the maps in pixels.
        width: width of the maps in pixels.
    """

    labels: SegmentationLabels
    height: int
    width: int

    def map(self, row: int) -> Array:
        """The label map of a row `[H, W]` as it is compared: class ids, -1 where ignored."""
        masks = self.labels.masks[row].cpu().numpy().view(np.uint8)  # [C,bytes]
        count = self.height * self.width
        bits = np.unpackbits(masks, axis=1, count=count, bitorder="little").reshape(-1, self.height, self.width)
        return np.where(bits.any(0), bits.argmax(0), -1)

    def __call__(self, picture: Image.Image, row: int, size: int) -> Image.Image:
        """The picture with its label map, `size` pixels square."""
        return draw_label_map(picture, self.map(row), size)


@dataclass(frozen=True, eq=False)
class LabelMapExplainer:
    """Draws two label maps and where they differ.

    Args:
        renderer: has the maps.
    """

    renderer: LabelMapRenderer

    def __call__(self, rows: tuple[int, int], pictures: tuple[Image.Image, Image.Image], size: int) -> TitledPictures:
        """The label maps of both pictures, and where they differ."""
        side = size // 3
        x, y = (self.renderer.map(row) for row in rows)
        states = np.where((x >= 0) & (y >= 0), np.where(x == y, 0, 1), 2)
        difference = np.array([_SAME, _DIFFERENT, _IGNORED], np.uint8)[states]
        return [
            *(
                (title, draw_label_map(picture, label_map, side, share=0.6))
                for title, picture, label_map in zip(("query", "item"), pictures, (x, y), strict=True)
            ),
            (
                "orange: where the maps differ",
                Image.fromarray(difference).resize((side, side), Image.Resampling.NEAREST),
            ),
        ]


def draw_label_map(image: Image.Image, labels: Array, size: int, share: float = _SHARE) -> Image.Image:
    """The image in RGB, `size` pixels square, with the label map in colours of its classes in the lower right corner.

    labels `[H, W]`: class ids, of any size, over the whole image; -1 where ignored, which is light grey. The map's side
    is this `share` of the picture's.
    """
    picture = image.convert("RGB").resize((size, size), Image.Resampling.BICUBIC)
    side, frame = round(share * size), max(1, round(size / 100))
    corner = size - side
    picture.paste(_FRAME, (corner - frame, corner - frame, size, size))
    picture.paste(Image.fromarray(map_colours(shrink(labels, side))), (corner, corner))
    return picture


def shrink(labels: Array, side: int | None) -> Array:
    """A label map resized to `side` x `side` by nearest neighbour, as `SegmentationLabels` does; None: unchanged."""
    if side is None:
        return labels
    rows, columns = ((2 * np.arange(side) + 1) * length // (2 * side) for length in labels.shape)
    return np.asarray(labels[rows[:, None], columns])


Colour: TypeAlias = "tuple[int, int, int]"
Pen: TypeAlias = ImageDraw.ImageDraw

_PAGE, _SUBDUED, _RULE = "#f4f3ef", "#8a8a8a", "#d8d8d8"
_NEAR, _FAR = (0, 114, 178), (213, 94, 0)  # blue and vermilion: distinct for colour-blind readers
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
            canvas.paste(_PAGE, (0, top + title, side, top + title + side))
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
        red, green, blue = (round(same + ratio * (distant - same)) for same, distant in zip(_NEAR, _FAR, strict=True))
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
