"""Images with a class each: what every source of class data hands out."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps
from torch import Tensor

from contml.contracts import ImageItem, InputError
from contml.labels import ClassLabels

#: From this side on a drawn label has room for the class's name.
_READABLE = 190


class ClassSplit:
    """One split of a data set of classes: every item queries all the others.

    Args:
        images: one an item, files or pixels.
        names: one an item.
        classes: the number of its class, one an item.
        class_names: the name of each class by its number.
    """

    queries: Tensor | None = None
    gallery: Tensor | None = None

    def __init__(
        self, images: Sequence[ImageItem], names: Sequence[str], classes: Sequence[int], class_names: Sequence[str]
    ) -> None:
        if not len(images) == len(names) == len(classes):
            raise InputError(
                f"there are {len(images)} images, {len(names)} names and {len(classes)} classes; "
                "give one of each for every item"
            )
        self.images, self.names = images, names
        self.labels = ClassLabels(list(classes))
        self.class_names = [class_names[number] for number in self.labels.names]

    def __len__(self) -> int:
        return len(self.names)

    def image(self, row: int) -> ImageItem:
        """The image of a row."""
        return self.images[row]

    def name(self, row: int) -> str:
        """The file of a row, or its number in the synthetic data."""
        return self.names[row]

    def draw(self, row: int, size: int) -> Image.Image:
        """The image of a row, `size` pixels square, in a frame of its class's colour, with the class's name."""
        number = int(self.labels.classes[row])
        return draw_class(_picture(self.images[row]), self.class_names[number], class_colour(number), size)


def class_colour(number: int) -> tuple[int, int, int]:
    """A colour for a class; neighbouring numbers get colours far apart."""
    # Steps of the golden ratio never come near a hue that was taken lately.
    red, green, blue = colorsys.hsv_to_rgb(0.618034 * number % 1, 0.85 - 0.3 * (number % 2), 0.95 - 0.25 * (number % 3))
    return round(255 * red), round(255 * green), round(255 * blue)


def draw_class(image: Image.Image, name: str, colour: tuple[int, int, int], size: int) -> Image.Image:
    """The image in RGB, `size` pixels square, framed in a colour; where there is room, with a name at its foot."""
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


def _picture(item: ImageItem) -> Image.Image:
    if isinstance(item, Path):
        with Image.open(item) as file:
            return ImageOps.exif_transpose(file).convert("RGB")
    return Image.fromarray(item) if isinstance(item, np.ndarray) else item
