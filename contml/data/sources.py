"""Where the image of an item comes from: a file, a crop of a file, pixels; or a vector of features in its place.

Sources are small frozen dataclasses: a split holds one for each item and sends them to worker processes. `read` gives
what `contml.data.decode` takes; `stamp` says which file an image is made of, and how, so that a cache can tell images
apart without decoding them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
from PIL import Image, ImageOps

from contml._support.errors import InputError

#: What a source reads: a file to decode, a decoded picture, its pixels `[H, W, 3]` in uint8, or features `[F]`.
ImageItem: TypeAlias = "Path | Image.Image | np.ndarray[Any, np.dtype[Any]]"
#: Left, top, right, bottom in pixels, counted from the edges of the file's image.
Box: TypeAlias = "tuple[float, float, float, float]"

#: A square crop is at most so many times as large as its image: a joint at a million would take all memory.
_LARGEST = 20


class Stamp(NamedTuple):
    """The file that an image is made of, and how; "" where it is the whole file."""

    file: Path
    how: str


@runtime_checkable
class ImageSource(Protocol):
    """Where the image of an item comes from."""

    @property
    def stamp(self) -> Stamp | None:
        """The file and how the image is made of it; None where the image comes from no file."""
        ...

    def read(self) -> ImageItem:
        """The image.

        Raises:
            OSError: it cannot be read.
        """
        ...


@dataclass(frozen=True)
class ImageFile:
    """An image file."""

    file: Path

    @property
    def stamp(self) -> Stamp:
        """The whole file."""
        return Stamp(self.file, "")

    def read(self) -> ImageItem:
        """The file, to be decoded."""
        return self.file


@dataclass(frozen=True, eq=False)
class Pixels:
    """An image in memory: uint8 `[H, W, 3]`, or a picture."""

    pixels: Image.Image | np.ndarray[Any, np.dtype[np.uint8]]

    @property
    def stamp(self) -> None:
        """It comes from no file."""
        return None

    def read(self) -> ImageItem:
        """The pixels."""
        return self.pixels


@dataclass(frozen=True, eq=False)
class Vector:
    """Features of an image in place of its pixels: a head on them trains in seconds, with `model.backbone=features`.

    Args:
        values: float32 `[F]`.
        picture: where the image itself comes from, for galleries.
    """

    values: np.ndarray[Any, np.dtype[np.float32]]
    picture: ImageSource | None = None

    @property
    def stamp(self) -> None:
        """There is nothing to decode, and so nothing to cache."""
        return None

    def read(self) -> ImageItem:
        """The features."""
        return self.values


@dataclass(frozen=True)
class BoxCrop:
    """What lies in a box of an image file; the box is rounded to whole pixels, and ends where the image does."""

    file: Path
    box: Box

    @property
    def stamp(self) -> Stamp:
        """The file and the box."""
        return Stamp(self.file, f"box {self.box}")

    def read(self) -> ImageItem:
        """The crop.

        Raises:
            OSError: the image cannot be decoded, or the box lies outside of it.
        """
        box = self.box
        try:
            with Image.open(self.file) as file:
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


class Square(NamedTuple):
    """A square in an image: left and top edge and side, in pixels; its first pixel covers 0 to 1."""

    left: float
    top: float
    side: float


@dataclass(frozen=True)
class SquareCrop:
    """A square of an image file, brought to one size: a person, as a rule.

    Args:
        file: the image.
        square: what to cut; where it leaves the image, the edge is repeated.
        side: side of the crop in pixels.
        image_size: width and height that the image must have; None where they are not known.
    """

    file: Path
    square: Square
    side: int
    image_size: tuple[int, int] | None = None

    @property
    def stamp(self) -> Stamp:
        """The file and the square."""
        return Stamp(self.file, f"{self.side} x {self.side} of {', '.join(f'{number:.3f}' for number in self.square)}")

    def read(self) -> ImageItem:
        """The crop `[side, side, 3]`.

        Raises:
            OSError: the image cannot be decoded.
            InputError: the square lies outside the image, or the image has another size than its labels say.
        """
        left, top, size = self.square
        try:
            with Image.open(self.file) as opened:
                picture: Image.Image = opened
                # Joints are given in the file's own pixels as a rule, whatever its EXIF orientation.
                if self.image_size not in (None, picture.size):
                    picture = ImageOps.exif_transpose(picture)
                width, height = picture.size
                if self.image_size is not None and picture.size != self.image_size:
                    given_width, given_height = self.image_size
                    raise InputError(
                        f"{self.file}: is {width} x {height} pixels, but its joints are given in {given_width} x "
                        f"{given_height}; were the images resized without the annotations?"
                    )
                inside = 0 <= left + size / 2 <= width and 0 <= top + size / 2 <= height
                if not inside or size > _LARGEST * max(width, height):
                    raise InputError(
                        f"{self.file}: is {width} x {height} pixels, and a person of {size:.0f} is marked at "
                        f"{left + size / 2:.0f}, {top + size / 2:.0f}; are these the images that the joints belong to?"
                    )
                x0, y0 = max(0, int(left)), max(0, int(top))
                x1, y1 = min(width, int(left + size) + 2), min(height, int(top + size) + 2)
                part = np.asarray(picture.convert("RGB").crop((x0, y0, x1, y1)))
        except (InputError, MemoryError):
            raise
        except FileNotFoundError:
            raise OSError("no such file") from None
        except Exception as error:  # on bytes that are not what they seem, Pillow's decoders raise nearly anything
            raise OSError(" ".join(str(error).split())[:200] or type(error).__name__) from error
        over = [int(np.ceil(max(0.0, d))) for d in (x0 - left, y0 - top, left + size - x1, top + size - y1)]
        wide = Image.fromarray(np.pad(part, ((over[1], over[3]), (over[0], over[2]), (0, 0)), mode="edge"))
        corner = (left - x0 + over[0], top - y0 + over[1])
        box = (*corner, min(corner[0] + size, wide.width), min(corner[1] + size, wide.height))
        return np.asarray(wide.resize((self.side, self.side), Image.Resampling.BICUBIC, box))
