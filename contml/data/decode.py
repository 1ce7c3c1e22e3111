"""Decodes one image of a split: RGB pixels, upright, whatever the format of its file."""

from __future__ import annotations

import warnings

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from contml._support.errors import InputError, one_line
from contml.data.sources import ImageItem, PixelArray

_ORIENTATION = 0x0112  # the EXIF tag


class BrokenError(Exception):
    """An image cannot be decoded; the message is the cause."""


def resized(item: ImageItem, name: str, side: int) -> PixelArray:
    """Returns an image as uint8 `[side, side, 3]`; its aspect ratio is not kept.

    Raises:
        BrokenError: it cannot be decoded.
        InputError: it is an array of another dtype or shape.
    """
    # JPEGs are decoded at no less than twice this size, so that resizing still averages pixels.
    picture = decode(item, name, 2 * side)
    if picture.size != (side, side):
        picture = picture.resize((side, side), Image.Resampling.BILINEAR)
    return np.array(picture)  # a copy: torch needs a writable array


def decode(item: ImageItem, name: str, min_size: int) -> Image.Image:
    """Returns an image in RGB, upright; a JPEG may be decoded at a fraction of its size, but not below `min_size`."""
    if isinstance(item, np.ndarray):
        if item.dtype != np.uint8 or item.ndim != 3 or item.shape[2] != 3 or not item.size:
            raise InputError(name, f"{item.dtype} {list(item.shape)}", "an image as an array must be uint8 [H, W, 3]")
        return Image.fromarray(np.ascontiguousarray(item))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns about unusual metadata
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            if isinstance(item, Image.Image):
                return _to_rgb(item)
            if item.is_file() and item.stat().st_size == 0:
                raise BrokenError("empty file")
            with Image.open(item) as picture:
                # Decoding a JPEG at a half, a quarter or an eighth of its size is faster.
                picture.draft(None, (min_size, min_size))
                return _to_rgb(picture)
    except (MemoryError, BrokenError):
        raise
    except Exception as error:  # on broken files, Pillow's decoders raise nearly any exception
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
    if picture.mode == "F":  # floats in 0..1, or in 0..255 if any is above 1
        floats = np.nan_to_num(np.asarray(picture))
        floats = floats * 255 if floats.max() <= 1 else floats
        return Image.fromarray(floats.round().clip(0, 255).astype(np.uint8)).convert("RGB")
    if picture.has_transparency_data:
        picture = picture.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture).convert("RGB")
    return picture.convert("RGB")


def cause(error: Exception) -> str:
    """Returns on one line why an image cannot be decoded."""
    if isinstance(error, UnidentifiedImageError):
        return "not an image, or of a format that Pillow does not know"
    return error.strerror if isinstance(error, OSError) and error.strerror else one_line(error)
