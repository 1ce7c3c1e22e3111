"""Draw the class of an item: a frame in its colour, and its name."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

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
        """The picture in its frame, `size` pixels square."""
        number = int(self.class_ids[row])
        return draw_class(picture, self.class_names[number], class_colour(number), size)


def class_colour(number: int) -> tuple[int, int, int]:
    """A colour for a class; neighbouring numbers get colours far apart."""
    # Steps of the golden ratio stay far from recently used hues.
    red, green, blue = colorsys.hsv_to_rgb(0.618034 * number % 1, 0.85 - 0.3 * (number % 2), 0.95 - 0.25 * (number % 3))
    return round(255 * red), round(255 * green), round(255 * blue)


def draw_class(image: Image.Image, name: str, colour: tuple[int, int, int], size: int) -> Image.Image:
    """The image in RGB, `size` pixels square, in a coloured frame; where there is room, with a name at the bottom."""
    picture = image.convert("RGB").resize((size, size), Image.Resampling.BICUBIC)
    pen = ImageDraw.Draw(picture, "RGBA")
    width = max(2, size // 56)
    if size >= _READABLE:
        height = size // 8
        font, room = ImageFont.load_default(0.72 * height), size - 4 * width
        while len(name) > 2 and pen.textlength(name, font=font) > room:
            name = name[:-2] + "…"
        pen.rectangle((0, size - height - width, size, size), fill=(16, 16, 22, 200))
        pen.text((2 * width, size - width - height / 2), name, fill="white", font=font, anchor="lm")
    pen.rectangle((0, 0, size - 1, size - 1), outline=colour, width=width)
    return picture
