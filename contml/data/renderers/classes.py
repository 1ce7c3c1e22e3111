"""Draw the class of an item: a frame in the colour of the class, and its name."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from contml.data.renderers.text import shorten

#: The smallest side of a picture that has room for the name of the class.
_READABLE = 190


@dataclass(frozen=True, eq=False)
class ClassRenderer:
    """Frames the picture of a row in the colour of its class, with the name of the class.

    Args:
        class_ids: the class of each row `[N]`.
        class_names: the name of each class by its id.
    """

    class_ids: Tensor
    class_names: Sequence[str]

    def __call__(self, picture: Image.Image, row: int, size: int) -> Image.Image:
        """The picture in RGB in its frame, `size` pixels square; where there is room, with the name at the bottom."""
        number, drawn = int(self.class_ids[row]), picture.convert("RGB").resize((size, size), Image.Resampling.BICUBIC)
        pen = ImageDraw.Draw(drawn, "RGBA")
        width = max(2, size // 56)
        if size >= _READABLE:
            height = size // 8
            font = ImageFont.load_default(0.72 * height)
            assert isinstance(font, ImageFont.FreeTypeFont)
            pen.rectangle((0, size - height - width, size, size), fill=(16, 16, 22, 200))
            text = shorten(self.class_names[number], font, size - 4 * width)
            pen.text((2 * width, size - width - height / 2), text, fill="white", font=font, anchor="lm")
        pen.rectangle((0, 0, size - 1, size - 1), outline=class_colour(number), width=width)
        return drawn

    def text(self, row: int) -> str:
        """The name of the class of a row: a describer."""
        return self.class_names[int(self.class_ids[row])]


def class_colour(number: int) -> tuple[int, int, int]:
    """A colour for a class; classes with similar numbers get different colours."""
    # Golden-ratio steps give each number a hue far from the hues of the previous numbers.
    red, green, blue = colorsys.hsv_to_rgb(0.618034 * number % 1, 0.85 - 0.3 * (number % 2), 0.95 - 0.25 * (number % 3))
    return round(255 * red), round(255 * green), round(255 * blue)
