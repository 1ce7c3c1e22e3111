"""Drawings of labels: without an image, and label maps on an image."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw

from contml._support.pages import page_text
from contml.data.renderers.poses import Array, draw_skeleton
from contml.data.renderers.text import font_for, wrapped
from contml.data.split import TitledPictures
from contml.labels.base import LabelSpace
from contml.labels.poses import PoseLabels
from contml.labels.segmentation import SegmentationLabels

_PAPER, _INK = "#f1f1f1", "#222222"
#: Margin, largest and smallest size of text, as shares of the side.
_MARGIN, _LARGEST, _SMALLEST = 0.07, 0.2, 0.07


def label_drawing(labels: LabelSpace, row: int, size: int) -> Image.Image | None:
    """Draw the pose or the label map of an item, `size` pixels square. Return None for other labels.

    For a sum of labels, draw the first pose or label map.
    """
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
    """Draw the label of an item, `size` pixels square, or write its text as large as it fits.

    Args:
        labels: the labels.
        row: the item.
        size: the side in pixels.
        words: the text for a label without text.
    """
    drawing = label_drawing(labels, row, size)
    return draw_text(labels.text(row) or words, size) if drawing is None else drawing


def draw_text(text: str, size: int) -> Image.Image:
    """Write a text on a square, in the largest size in which it fits.

    In the smallest size, text that does not fit is cut.
    """
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
    """Return colours `[classes, 3]` in 0..255, fixed by class id: the same in every picture and every data set."""
    generated = [colorsys.hsv_to_rgb(0.618 * c % 1, 0.5 + 0.4 * (c % 2), 0.95 - 0.2 * (c % 3)) for c in range(classes)]
    colours = np.array(generated) * 255
    colours[: len(_FIRST)] = _FIRST[:classes]
    return colours.round().astype(np.uint8)


def map_colours(labels: Array) -> Array:
    """Return a label map `[H, W]` in colours of its classes `[H, W, 3]`. -1, ignored, is light grey."""
    return np.concatenate((class_colours(int(labels.max(initial=-1)) + 1), np.array([_IGNORED], np.uint8)))[labels]


def map_legend(names: Sequence[str], ignore: int | None = None) -> list[tuple[str, str]]:
    """Return the legend of label maps of classes 0, 1, ...: colours and names. Class `ignore` is left out."""
    numbered = enumerate(zip(names, class_colours(len(names)), strict=True))
    colours = {name: colour for number, (name, colour) in numbered if number != ignore}
    return [(f"#{red:02x}{green:02x}{blue:02x}", name) for name, (red, green, blue) in colours.items()]


@dataclass(frozen=True, eq=False)
class LabelMapRenderer:
    """A renderer that draws the label map of a row in a corner of its picture.

    Args:
        labels: the packed maps.
        height: height of the maps in pixels.
        width: width of the maps in pixels.
    """

    labels: SegmentationLabels
    height: int
    width: int

    def map(self, row: int) -> Array:
        """Return the label map of a row `[H, W]` as it is compared: class ids, -1 where ignored."""
        masks = self.labels.masks[row].cpu().numpy().view(np.uint8)  # [C,bytes]
        count = self.height * self.width
        bits = np.unpackbits(masks, axis=1, count=count, bitorder="little").reshape(-1, self.height, self.width)
        return np.where(bits.any(0), bits.argmax(0), -1)

    def __call__(self, picture: Image.Image, row: int, size: int) -> Image.Image:
        """Return the picture with its label map, `size` pixels square."""
        return draw_label_map(picture, self.map(row), size)


@dataclass(frozen=True, eq=False)
class LabelMapExplainer:
    """An explainer that draws two label maps and where they differ.

    Args:
        renderer: has the maps.
    """

    renderer: LabelMapRenderer

    def __call__(self, rows: tuple[int, int], pictures: tuple[Image.Image, Image.Image], size: int) -> TitledPictures:
        """Return the label maps of both pictures, and a picture of where they differ."""
        side = size // 3
        x, y = (self.renderer.map(row) for row in rows)
        states = np.where((x >= 0) & (y >= 0), np.where(x == y, 0, 1), 2)
        difference = Image.fromarray(np.array([_SAME, _DIFFERENT, _IGNORED], np.uint8)[states])
        drawn = [draw_label_map(*each, side, share=0.6) for each in zip(pictures, (x, y), strict=True)]
        differing = difference.resize((side, side), Image.Resampling.NEAREST)
        return [("query", drawn[0]), ("item", drawn[1]), ("orange: where the maps differ", differing)]


def draw_label_map(image: Image.Image, labels: Array, size: int, share: float = _SHARE) -> Image.Image:
    """Draw a label map in colours of its classes in the lower right corner of an image.

    Args:
        image: the image.
        labels: class ids `[H, W]` of any size, over the whole image. -1 is ignored, and is light grey.
        size: side of the result in pixels, RGB.
        share: the map's side as a share of the picture's side.
    """
    picture = image.convert("RGB").resize((size, size), Image.Resampling.BICUBIC)
    side, frame = round(share * size), max(1, round(size / 100))
    corner = size - side
    picture.paste(_FRAME, (corner - frame, corner - frame, size, size))
    picture.paste(Image.fromarray(map_colours(shrink(labels, side))), (corner, corner))
    return picture


def shrink(labels: Array, side: int | None) -> Array:
    """Resize a label map to `side` x `side` by nearest neighbour, as `SegmentationLabels` does.

    None leaves it unchanged.
    """
    if side is None:
        return labels
    rows, columns = ((2 * np.arange(side) + 1) * length // (2 * side) for length in labels.shape)
    return np.asarray(labels[rows[:, None], columns])
