"""Draw a label map over its image."""

from __future__ import annotations

import colorsys
from typing import Any, TypeAlias

import numpy as np
from PIL import Image

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

#: Colours of the first class ids: clear of each other also for colour-blind readers. 1 to 5 are a room's surfaces:
#: frontal wall, left wall, right wall, floor, ceiling.
_FIRST = (
    (106, 61, 154), (250, 214, 60), (0, 114, 200), (225, 87, 20), (0, 158, 115), (214, 110, 175), (120, 200, 240),
    (140, 90, 40), (190, 20, 60), (150, 200, 60), (60, 60, 70), (240, 240, 240),
)  # fmt: skip
_TINT, _LINE = 0.5, (20, 20, 24)


def class_colours(classes: int) -> Array:
    """Colours `[classes, 3]` in 0..255, fixed by class id: the same in every picture and every data set."""
    more = [colorsys.hsv_to_rgb(0.618 * c % 1, 0.5 + 0.4 * (c % 2), 0.95 - 0.2 * (c % 3)) for c in range(classes)]
    colours = np.array(more) * 255
    colours[: len(_FIRST)] = _FIRST[:classes]
    return colours.round().astype(np.uint8)


def draw_label_map(image: Image.Image, labels: Array, size: int) -> Image.Image:
    """The image in RGB, `size` pixels square, tinted by the class of each pixel, with a line where classes meet.

    labels `[H, W]`: class ids, of any size, over the whole image; -1 where ignored, which is left without a tint.
    """
    picture = np.asarray(image.convert("RGB").resize((size, size), Image.Resampling.BICUBIC), np.float32)
    rows, columns = ((2 * np.arange(size) + 1) * length // (2 * size) for length in labels.shape)
    shown = labels[rows[:, None], columns]
    colours = class_colours(int(labels.max()) + 1 if labels.size else 0)
    tint = np.concatenate((colours, np.zeros((1, 3), np.uint8)))[shown].astype(np.float32)
    # Colours over the grey of the picture: its own colours would change theirs.
    grey = picture @ np.array((0.3, 0.59, 0.11), np.float32)
    blended = (1 - _TINT) * (0.35 * picture + 0.65 * grey[:, :, None]) + _TINT * tint
    picture = np.where((shown >= 0)[:, :, None], blended, picture)
    picture[_borders(shown, max(1, round(size / 150)))] = _LINE
    return Image.fromarray(picture.round().clip(0, 255).astype(np.uint8))


def _borders(shown: Array, width: int) -> Array:
    """Pixels `[S, S]` within `width` of a pixel of another class, to the left of it or above it."""
    lines = np.zeros(shown.shape, bool)
    for step in range(1, width + 1):
        lines[:, :-step] |= shown[:, :-step] != shown[:, step:]
        lines[:-step] |= shown[:-step] != shown[step:]
    return lines
