"""Images with a class each: what every source of class data hands out."""

from __future__ import annotations

import colorsys
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont, ImageOps
from torch import Tensor

from contml import InputError
from contml.contracts import ImageItem
from contml.labels import ClassLabels

#: Left, top, right, bottom in pixels, counted from the edges of the file's image.
Box: TypeAlias = "tuple[float, float, float, float]"

#: From this side on a drawn label has room for the class's name.
_READABLE = 190


class ClassSplit:
    """One split of a data set of classes.

    Args:
        images: one an item, files or pixels.
        names: one an item.
        classes: the number (or name) of its class, one an item.
        class_names: the name of each class by its number.
        boxes: what to see of each file: images are cut to their boxes. Only where images are files.
        queries: rows that query all the others; None: every item queries all others.
        missing: how many items were left out, since their files are not there.
    """

    def __init__(
        self,
        images: Sequence[ImageItem],
        names: Sequence[str],
        classes: Sequence[Hashable],
        class_names: Sequence[str] | Mapping[Any, str],
        *,
        boxes: Sequence[Box | None] | None = None,
        queries: Sequence[int] | None = None,
        missing: int = 0,
    ) -> None:
        if not len(images) == len(names) == len(classes):
            raise InputError(
                f"there are {len(images)} images, {len(names)} names and {len(classes)} classes; "
                "give one of each for every item"
            )
        self.images, self.names = images, names
        self.labels = ClassLabels(list(classes))
        self.class_names = [class_names[number] for number in self.labels.names]
        self.boxes, self.missing = boxes, missing
        #: The K at which papers on the data tell Recall@K, where they have their own.
        self.recall_at: Sequence[int] | None = None
        self.queries: Tensor | None = None
        self.gallery: Tensor | None = None
        if queries is not None:
            querying = torch.zeros(len(names), dtype=torch.bool)
            querying[list(queries)] = True
            self.queries, self.gallery = querying.nonzero()[:, 0], (~querying).nonzero()[:, 0]

    def __len__(self) -> int:
        return len(self.names)

    def image(self, row: int) -> ImageItem:
        """The image of a row: its file, or what its box shows of it."""
        item, box = self.images[row], self.boxes[row] if self.boxes else None
        return item if box is None or not isinstance(item, Path) else cut_to_box(item, box)

    def source(self, row: int) -> tuple[ImageItem, str]:
        """Where the image of a row is from, and how it is cut from there ("" the whole), without the work."""
        box = self.boxes[row] if self.boxes else None
        return self.images[row], "" if box is None else f"box {box}"

    def name(self, row: int) -> str:
        """The file of a row, or its number in the synthetic data."""
        return self.names[row]

    def draw(self, row: int, size: int) -> Image.Image:
        """The image of a row, `size` pixels square, in a frame of its class's colour, with the class's name."""
        number = int(self.labels.class_ids[row])
        return draw_class(_picture(self.image(row)), self.class_names[number], class_colour(number), size)


def cut_to_box(path: Path, box: Box) -> Image.Image:
    """What lies in a box of an image; the box is rounded to whole pixels, and ends where the image does.

    Raises:
        OSError: the image cannot be decoded, or the box lies outside of it.
    """
    try:
        with Image.open(path) as file:
            left, top = (max(0, round(edge)) for edge in box[:2])
            right, bottom = (min(length, round(edge)) for edge, length in zip(box[2:], file.size, strict=True))
            if right <= left or bottom <= top:
                size = " x ".join(map(str, file.size))
                raise OSError(f"its box {tuple(map(round, box))} shows nothing of {size} pixels")
            return file.crop((left, top, right, bottom))
    except OSError:
        raise
    except Exception as error:  # on bytes that are not what they seem, Pillow's decoders raise nearly anything
        raise OSError(str(error) or type(error).__name__) from error


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
