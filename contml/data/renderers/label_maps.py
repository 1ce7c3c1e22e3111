"""Draw an image with its label map."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from PIL import Image

from contml.data.split import TitledPictures
from contml.labels.segmentation import SegmentationLabels

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
