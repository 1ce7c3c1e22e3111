"""People cut out of their images: square crops of one size, and joints in the pixels of the crop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from PIL import Image, ImageOps

from contml import InputError

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

#: A crop is at most so many times as large as its image: a joint at a million would take all memory.
_LARGEST = 20


class Square(NamedTuple):
    """A square in an image: left and top edge and side, in pixels; its first pixel covers 0 to 1."""

    left: float
    top: float
    side: float


@dataclass(frozen=True)
class Crop:
    """A person in an image file, cut out when asked for.

    Args:
        file: the image.
        square: what to cut; where it leaves the image, the edge is repeated.
        side: side of the crop in pixels.
        image_size: width and height that the image must have; None where they are not told.
    """

    file: Path
    square: Square
    side: int
    image_size: tuple[int, int] | None = None

    @property
    def how(self) -> str:
        """What is cut from the file, in words: two crops of one image are told apart by it."""
        return f"{self.side} x {self.side} of {', '.join(f'{number:.3f}' for number in self.square)}"

    def cut(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """The crop `[side, side, 3]`.

        Raises:
            OSError: the image cannot be decoded.
            InputError: the square lies outside the image, or the image has another size than its joints are told in.
        """
        left, top, size = self.square
        try:
            with Image.open(self.file) as opened:
                picture: Image.Image = opened
                # Joints are told in the file's own pixels as a rule, whatever its EXIF orientation.
                if self.image_size not in (None, picture.size):
                    picture = ImageOps.exif_transpose(picture)
                width, height = picture.size
                if self.image_size is not None and picture.size != self.image_size:
                    told_width, told_height = self.image_size
                    raise InputError(
                        f"{self.file}: is {width} x {height} pixels, but its joints are told in {told_width} x "
                        f"{told_height}; were the images resized without the annotations?"
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


def square_round(points: Array, margin: float) -> Square:
    """The square round points `[n, 2]` (pixel centres at integers): `margin` times their extent, at least 1 pixel."""
    low, high = points.min(0), points.max(0)
    side = margin * max(1.0, float((high - low).max()))
    left, top = ((low + high) / 2 + 0.5 - side / 2).tolist()
    return Square(left, top, side)


def in_crop(joints: Array, squares: Sequence[Square], side: int) -> Array:
    """Joints `[N, J, 2]` of images as those of their crops, `side` pixels square; pixel centres at integers."""
    left, top, size = np.asarray(squares, np.float64).T[:, :, None, None]  # [N,1,1] each
    corner = np.concatenate([left, top], 2)  # [N,1,2]
    return np.asarray((joints + 0.5 - corner) * (side / size) - 0.5)
