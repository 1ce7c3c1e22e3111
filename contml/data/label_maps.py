"""Label maps in image files, read without a change of any number."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from PIL import Image

from contml._support.errors import InputError
from contml.data.decode import cause, from_file

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

#: The formats that keep every number, as Pillow names them.
_LOSSLESS = ("PNG", "TIFF", "BMP", "DIB", "GIF", "PPM")


def read_image_map(path: Path) -> Array:
    """Class numbers `[H, W]` of a label map in an image file: grey of 1 to 16 bits, or palette indices.

    Raises:
        InputError: no such file, not an image, lossy, or in colour.
    """
    try:
        values, mode = from_file(path, lambda picture: _numbers(path, picture))
    except FileNotFoundError:
        raise InputError(str(path), "no such label map") from None
    except OSError as error:
        raise InputError(str(path), f"cannot be read ({cause(error)})", "must be a label map") from None
    # Grey saved as colour, or grey with transparency.
    if values.ndim == 3 and (values.shape[2] == 2 or (values[..., :3] == values[..., :1]).all()):
        values = values[..., 0]
    if values.ndim != 2 or values.dtype.kind not in "bui":
        hint = "save class numbers as grey, 16-bit or palette PNG"
        raise InputError(str(path), f"{mode} pixels", "must be one whole number per pixel", hint)
    return values.astype(np.uint8) if values.dtype == bool else values


def _numbers(path: Path, picture: Image.Image) -> tuple[Array, str]:
    """The numbers in a file, and Pillow's mode."""
    if picture.format not in _LOSSLESS or picture.info.get("compression") in ("jpeg", "tiff_jpeg"):
        raise InputError(
            str(path), f"{picture.format} is lossy, which changes class numbers", hint="save label maps as PNG"
        )
    # Pillow scales grey of 2 and 4 bits to 0..255; class numbers are the values in the file.
    tiles = getattr(picture, "tile", ())
    raw_mode = str(tiles[0].args) if tiles and picture.mode == "L" else ""
    scale = 85 if raw_mode.endswith(";2") else 17 if raw_mode.endswith(";4") else 1
    return (np.asarray(picture) // scale if scale > 1 else np.asarray(picture)), picture.mode
