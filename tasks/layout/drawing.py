"""Draw an image with its label map."""

from __future__ import annotations

import colorsys
from typing import Any, TypeAlias

import numpy as np
from PIL import Image

from .maps import shrink

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

#: Colours of the first class ids: clear of each other also for colour-blind readers. 1 to 5 are a room's surfaces:
#: frontal wall, left wall, right wall, floor, ceiling.
_FIRST = (
    (106, 61, 154), (250, 214, 60), (0, 114, 200), (225, 87, 20), (0, 158, 115), (214, 110, 175), (120, 200, 240),
    (140, 90, 40), (190, 20, 60), (150, 200, 60), (60, 60, 70), (240, 240, 240),
)  # fmt: skip
#: Pixels that are ignored, and the frame round the map.
_IGNORED, _FRAME = (225, 225, 225), "white"
#: Side of the map in sides of the picture.
_SHARE = 0.4


def class_colours(classes: int) -> Array:
    """Colours `[classes, 3]` in 0..255, fixed by class id: the same in every picture and every data set."""
    more = [colorsys.hsv_to_rgb(0.618 * c % 1, 0.5 + 0.4 * (c % 2), 0.95 - 0.2 * (c % 3)) for c in range(classes)]
    colours = np.array(more) * 255
    colours[: len(_FIRST)] = _FIRST[:classes]
    return colours.round().astype(np.uint8)


def draw_label_map(image: Image.Image, labels: Array, size: int) -> Image.Image:
    """The image in RGB, `size` pixels square, with the label map in colours of its classes in the lower right corner.

    labels `[H, W]`: class ids, of any size, over the whole image; -1 where ignored, which is light grey.
    """
    picture = image.convert("RGB").resize((size, size), Image.Resampling.BICUBIC)
    side, frame = round(_SHARE * size), max(1, round(size / 100))
    colours = np.concatenate((class_colours(int(labels.max(initial=-1)) + 1), np.array([_IGNORED], np.uint8)))
    corner = size - side
    picture.paste(_FRAME, (corner - frame, corner - frame, size, size))
    picture.paste(Image.fromarray(colours[shrink(labels, side)]), (corner, corner))
    return picture
