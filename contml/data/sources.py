"""Image sources: a file, a crop of a file, pixels in memory, or a vector of features in place of an image.

Image sources are small frozen dataclasses. A split holds one per item and sends them to worker processes. `read`
returns a value that `contml.data.decode` accepts. `stamp` identifies the file and the crop, so that a cache can
distinguish images without decoding them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self, TypeAlias, runtime_checkable

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils import data

from contml._support.conversion import ArrayLike
from contml._support.errors import InputError
from contml._support.packed import Integers, Packed, row_numbers, taken
from contml._support.packed_texts import as_texts
from contml.data.decode import ImageItem, PixelArray, decode

#: Left, top, right, bottom in pixels of the image file.
Box: TypeAlias = "tuple[float, float, float, float]"
_Floats: TypeAlias = "np.ndarray[Any, np.dtype[np.float32]]"
#: The class of a path. A path of another class, such as a virtual file system, is kept as it is.
_PATH = type(Path())

#: The largest side of a square crop, relative to its image: a joint at x = 1,000,000 would fill the memory.
_MAX_RELATIVE_SIDE = 20


class Stamp(NamedTuple):
    """The file of an image, and how the image is cut from it. "" means the whole file."""

    file: Path
    crop: str

    def __str__(self) -> str:
        return f"{self.file}, {self.crop}" if self.crop else str(self.file)

    def stat(self) -> os.stat_result:
        """Return the status of the file.

        Raises:
            OSError: there is no such file.
        """
        return os.stat(self.file)  # noqa: PTH116


@runtime_checkable
class ImageSource(Protocol):
    """The source of the image of an item."""

    @property
    def stamp(self) -> Stamp | None:
        """The file and the crop. None if the image comes from no file."""

    def read(self) -> ImageItem:
        """Return the image.

        Raises:
            OSError: it cannot be read.
        """


@dataclass(frozen=True)
class ImageFile:
    """An image file."""

    file: Path

    @property
    def stamp(self) -> Stamp:
        """The whole file."""
        return Stamp(self.file, "")

    def read(self) -> ImageItem:
        """Return the path of the file, which is decoded later."""
        return self.file


class ImageFiles(Packed[ImageFile]):
    """Many image files, in one array. A list would need 800 bytes more per file.

    Args:
        paths: the path of each file.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self.paths = as_texts(paths)

    def __len__(self) -> int:
        return len(self.paths)

    def _item(self, row: int) -> ImageFile:
        return ImageFile(Path(self.paths[row]))

    def taken(self, rows: Iterable[int]) -> Self:
        """Return the files of some rows, in this order."""
        return type(self)(self.paths.taken(rows))


@dataclass(frozen=True, eq=False)
class Pixels:
    """An image in memory: a picture, or its pixels `[H, W]` or `[H, W, C]`, as in `contml.data.decode`."""

    pixels: Image.Image | np.ndarray[Any, np.dtype[Any]]
    stamp = None

    def read(self) -> ImageItem:
        """Return the pixels."""
        return self.pixels


@dataclass(frozen=True, eq=False)
class Vector:
    """Features of an image in place of its pixels. A head on features trains in seconds (`model.backbone=features`).

    Args:
        values: float32 `[F]`, or feature maps `[P, F]` at P places.
        picture: the source of the image itself, for galleries.
    """

    values: _Floats
    picture: ImageSource | None = None
    stamp = None

    def read(self) -> ImageItem:
        """Return the features."""
        return self.values


class Vectors(Packed[Vector]):
    """The features of many images, in one array, which may be a file that is not read into memory.

    Args:
        values: float32 `[M, F]` or `[M, P, F]`.
        pictures: the sources of the images themselves `[N]`.
        rows: the row of `values` of each item `[N]`.
    """

    def __init__(self, values: _Floats, pictures: Sequence[ImageSource], rows: Integers) -> None:
        self.values, self.pictures, self.rows = values, pictures, rows

    def __len__(self) -> int:
        return len(self.pictures)

    def _item(self, row: int) -> Vector:
        return Vector(self.values[self.rows[row]], self.pictures[row])

    def taken(self, rows: Iterable[int]) -> Self:
        """Return the features of some rows, in this order."""
        index = row_numbers(rows)
        return type(self)(self.values, taken(self.pictures, index), self.rows[index])


@dataclass(frozen=True)
class BoxCrop:
    """The part of an image file inside a box. The box is rounded to whole pixels and clipped to the image."""

    file: Path
    box: Box

    @property
    def stamp(self) -> Stamp:
        """The file and the box."""
        return Stamp(self.file, f"box {self.box}")

    def read(self) -> ImageItem:
        """Return the crop.

        Raises:
            OSError: the image cannot be decoded, or the box lies outside of it.
        """
        return decode(self.file, str(self.file), crop=self._cut)

    def _cut(self, picture: Image.Image) -> Image.Image:
        left, top = (max(0, round(edge)) for edge in self.box[:2])
        right, bottom = (min(length, round(edge)) for edge, length in zip(self.box[2:], picture.size, strict=True))
        if right <= left or bottom <= top:
            size = " x ".join(map(str, picture.size))
            raise OSError(f"its box {tuple(map(round, self.box))} shows nothing of {size} pixels")
        return picture.crop((left, top, right, bottom))


def box_of(numbers: Sequence[float]) -> Box:
    """Return the box (left, top, right, bottom) of x, y, width and height."""
    x, y, width, height = numbers
    return x, y, x + width, y + height


def counted(names: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Yield each name, and how often it was yielded up to here."""
    counts = dict[str, int]()
    for name in names:
        counts[name] = counts.get(name, 0) + 1
        yield name, counts[name]


def box_names(names: Iterable[str]) -> list[str]:
    """Return the names of images with the number of each box in its image, from 1: photo.jpg#2."""
    return [f"{name}#{number}" for name, number in counted(names)]


@runtime_checkable
class MapStyle(Protocol):
    """A data set whose items have numbers: a data set of torch, of Hugging Face `datasets`, or your own."""

    def __len__(self) -> int: ...

    def __getitem__(self, row: Any, /) -> Any: ...


@dataclass(frozen=True, eq=False)
class DatasetImage:
    """The image of an item of a map-style data set.

    Args:
        dataset: gives images, dictionaries with an "image" (as Hugging Face does), or tuples with an image first.
            An image is a picture, or uint8 `[3, H, W]` or `[H, W, 3]`. The data set needs no transform, since contml
            resizes and augments images itself.
        row: the number of the item.
    """

    dataset: MapStyle
    row: int
    stamp = None

    def read(self) -> ImageItem:
        """Return the picture or the pixels.

        Raises:
            InputError: the data set gives something else.
        """
        item, name = self.dataset[self.row], f"item {self.row} of the data set"
        if isinstance(item, Mapping):
            if "image" not in item:
                hint = "rename the column of its images to image"
                raise InputError(name, f"a dictionary with {', '.join(map(str, item))}", "must have an image", hint)
            item = item["image"]
        return _pixels(name, item[0] if isinstance(item, tuple | list) and item else item)


def as_sources(images: Any) -> Sequence[ImageSource]:
    """Return the image source of each item.

    Args:
        images: image sources, files, pictures or pixels, uint8 `[H, W, 3]` or `[3, H, W]`, or a map-style data set
            (`DatasetImage`).

    Raises:
        InputError: there is something else among them.
    """
    if isinstance(images, Packed):
        return images
    if isinstance(images, str | bytes | Mapping | data.IterableDataset) or not isinstance(images, MapStyle):
        allowed = "must be a list of images, or a map-style data set"
        raise InputError("images", f"a {type(images).__name__}", allowed, "it needs __getitem__ and __len__")
    if not isinstance(images, Sequence | ArrayLike):
        made = [DatasetImage(images, row) for row in range(len(images))]
        if made:
            made[0].read()  # now, not in a worker process
        return made
    items: Any = images
    examples: dict[type, Any] = {type(image): image for image in items}
    if not all(isinstance(example, ImageSource) for example in examples.values()):
        items = [_as_source(row, image) for row, image in enumerate(items)]
    if len(items) and all(type(source) is ImageFile and type(source.file) is _PATH for source in items):
        return ImageFiles(str(source.file) for source in items)
    return items


def _as_source(row: int, image: Any) -> ImageSource:
    if isinstance(image, ImageSource):
        return image
    if isinstance(image, str | Path):
        return ImageFile(Path(image))
    return Pixels(_pixels(f"image {row}", image))


def _pixels(name: str, image: Any) -> Image.Image | PixelArray:
    """Return a picture as it is. Return pixels as an array `[H, W, 3]`."""
    if isinstance(image, Image.Image):
        return image
    if isinstance(image, Tensor | np.ndarray) and image.ndim == 3 and image.dtype in (torch.uint8, np.uint8):
        pixels: PixelArray = image.cpu().numpy() if isinstance(image, Tensor) else image
        if pixels.shape[2] == 3:
            return pixels
        if pixels.shape[0] in (1, 3):
            return np.repeat(pixels.transpose(1, 2, 0), 3 // pixels.shape[0], axis=2)
    is_array = isinstance(image, Tensor | np.ndarray)
    got = f"{image.dtype} {list(image.shape)}" if is_array else f"a {type(image).__name__}"
    allowed = "must be a picture, or uint8 [H, W, 3] or [3, H, W]"
    raise InputError(name, got, allowed, "omit the transform of the data set" if is_array else "")


class Square(NamedTuple):
    """A square in an image: left edge, top edge and side in pixels. The first pixel covers 0 to 1."""

    left: float
    top: float
    side: float


@dataclass(frozen=True)
class SquareCrop:
    """A square of an image file, resized to one size. It usually shows a person.

    Args:
        file: the image.
        square: the square to cut. Outside the image, its edge is repeated.
        side: side of the crop in pixels.
        image_size: width and height that the image must have. None if they are not known.
    """

    file: Path
    square: Square
    side: int
    image_size: tuple[int, int] | None = None

    @property
    def stamp(self) -> Stamp:
        """The file and the square."""
        square = ", ".join(f"{number:.3f}" for number in self.square)
        return Stamp(self.file, f"{self.side} x {self.side} of {square}")

    def read(self) -> ImageItem:
        """Return the crop `[side, side, 3]`.

        Raises:
            OSError: the image cannot be decoded.
            InputError: the square lies outside the image, or the image does not have the annotated size.
        """
        left, top, size = self.square
        # Joints are usually given in the file's own pixels, whatever its EXIF orientation.
        picture = decode(self.file, str(self.file), upright=False)
        if self.image_size not in (None, picture.size):
            picture = decode(self.file, str(self.file))
        width, height = picture.size
        size_text = f"{width} x {height} pixels"
        if self.image_size not in (None, picture.size):
            allowed = "must be {} x {}, the size that its annotation gives".format(*self.image_size)
            raise InputError(str(self.file), size_text, allowed, "were the images resized without the annotations?")
        x, y = left + size / 2, top + size / 2
        if not (0 <= x <= width and 0 <= y <= height) or size > _MAX_RELATIVE_SIDE * max(width, height):
            got = f"{size_text}, and a person of {size:.0f} is marked at {x:.0f}, {y:.0f}"
            raise InputError(str(self.file), got, hint="check that the annotations belong to these images")
        x0, y0 = max(0, int(left)), max(0, int(top))
        x1, y1 = min(width, int(left + size) + 2), min(height, int(top + size) + 2)
        crop = np.asarray(picture.crop((x0, y0, x1, y1)))
        missing = (x0 - left, y0 - top, left + size - x1, top + size - y1)
        before_x, before_y, after_x, after_y = (int(np.ceil(max(0.0, d))) for d in missing)
        padded = Image.fromarray(np.pad(crop, ((before_y, after_y), (before_x, after_x), (0, 0)), mode="edge"))
        corner = (left - x0 + before_x, top - y0 + before_y)
        box = (*corner, min(corner[0] + size, padded.width), min(corner[1] + size, padded.height))
        return np.asarray(padded.resize((self.side, self.side), Image.Resampling.BICUBIC, box))
