"""One image of a split as RGB pixels, upright, whatever its file holds."""

from __future__ import annotations

import warnings
from typing import Any, TypeAlias

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from contml._support.errors import InputError
from contml.data.sources import ImageItem

Pixels: TypeAlias = "np.ndarray[Any, np.dtype[np.uint8]]"

_ORIENTATION = 0x0112  # the EXIF tag


class BrokenError(Exception):
    """An image that cannot be decoded, and why."""


def resized(item: ImageItem, name: str, side: int) -> Pixels:
    """An item as uint8 `[side, side, 3]`; its aspect is not kept.

    Raises:
        BrokenError: it cannot be decoded.
        InputError: it is an array of another kind.
    """
    # At least twice the size that is needed is decoded, so that resampling still has something to average.
    picture = decode(item, name, 2 * side)
    if picture.size != (side, side):
        picture = picture.resize((side, side), Image.Resampling.BILINEAR)
    return np.array(picture)  # a copy: torch takes no array that cannot be written


def decode(item: ImageItem, name: str, enough: int) -> Image.Image:
    """An item as an RGB image, upright. `enough`: a JPEG may be decoded at a fraction of its size, down to this."""
    if isinstance(item, np.ndarray):
        if item.dtype != np.uint8 or item.ndim != 3 or item.shape[2] != 3 or not item.size:
            raise InputError(
                f"{name}: an image as an array is uint8 [H, W, 3]; this is {item.dtype} {list(item.shape)}"
            )
        return Image.fromarray(np.ascontiguousarray(item))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow's remarks on odd metadata
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            if isinstance(item, Image.Image):
                return _to_rgb(item)
            if item.is_file() and item.stat().st_size == 0:
                raise BrokenError("empty file")
            with Image.open(item) as picture:
                # A JPEG decodes to a half, a quarter, an eighth of its size for less.
                picture.draft(None, (enough, enough))
                return _to_rgb(picture)
    except (MemoryError, BrokenError):
        raise
    except Exception as error:  # on bytes that are not what they seem, Pillow's decoders raise nearly anything
        raise BrokenError(cause(error)) from error


def _to_rgb(picture: Image.Image) -> Image.Image:
    if picture.getexif().get(_ORIENTATION, 1) != 1:
        picture = ImageOps.exif_transpose(picture)
    if picture.mode == "RGB" and "transparency" not in picture.info:
        picture.load()
        return picture
    if picture.mode.startswith("I"):  # 16 bits; Pillow would clip at 255
        values = np.clip(np.asarray(picture).astype(np.int64), 0, 65535)
        return Image.fromarray((values >> 8).astype(np.uint8)).convert("RGB")
    if picture.mode == "F":  # floats: 0..1, or 0..255 where any is above 1
        floats = np.nan_to_num(np.asarray(picture))
        floats = floats * 255 if floats.max() <= 1 else floats
        return Image.fromarray(floats.round().clip(0, 255).astype(np.uint8)).convert("RGB")
    if picture.has_transparency_data:
        picture = picture.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture).convert("RGB")
    return picture.convert("RGB")


def cause(error: Exception) -> str:
    """Why an image cannot be decoded, in a line."""
    if isinstance(error, UnidentifiedImageError):
        return "not an image, or of a format that Pillow does not know"
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split())[:200] or type(error).__name__
