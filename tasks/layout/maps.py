"""Label maps in files: images of class numbers and MATLAB matrices, brought to one size."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from PIL import Image, UnidentifiedImageError

from contml import InputError

from .._readers.mat import read_variable

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

_LOSSY = (".jpg", ".jpeg", ".webp")
_ORIENTATION, _ROTATED = 0x0112, (5, 6, 7, 8)  # the EXIF tag, and its values that swap width and height
#: The aspect ratios of a map and its image may differ by this factor: sizes are rounded, borders are cropped.
_SLACK = 1.04


def read_image_map(path: Path) -> Array:
    """Class numbers `[H, W]` of a label map in an image file: grey of 1 to 16 bits, or palette indices.

    Raises:
        InputError: no such file, not an image, lossy, or in colour.
    """
    if path.suffix.lower() in _LOSSY:
        raise InputError(f"{path}: a lossy file changes class numbers; save label maps as PNG")
    try:
        with Image.open(path) as picture:
            # Pillow scales grey of 2 and 4 bits to 0..255; class numbers are the values in the file.
            packed = str(picture.tile[0].args) if picture.tile and picture.mode == "L" else ""
            values = np.asarray(picture)
    except FileNotFoundError:
        raise InputError(f"{path}: no such label map") from None
    except (OSError, SyntaxError, ValueError) as error:
        what = "not an image" if isinstance(error, UnidentifiedImageError) else str(error)
        raise InputError(f"{path}: a label map that cannot be read ({what})") from None
    if values.ndim == 3 and (values[..., : min(values.shape[2], 3)] == values[..., :1]).all():
        values = values[..., 0]  # grey, saved as colour
    if values.ndim == 3 and values.shape[2] == 2:
        values = values[..., 0]  # grey and transparency
    if values.ndim != 2 or values.dtype.kind not in "bui":
        raise InputError(
            f"{path}: has {picture.mode} pixels; a label map has one whole number per pixel; "
            "save class numbers as grey, 16-bit or palette PNG"
        )
    if packed.endswith((";2", ";4")):
        values = values // (85 if packed.endswith(";2") else 17)
    return values.astype(np.uint8) if values.dtype == bool else values


def read_matlab_map(path: Path, key: str) -> Array:
    """One matrix `[H, W]` of a MATLAB file, of any number type; `as_whole` turns it into class numbers.

    Raises:
        InputError: no such file, not a MATLAB file, no such matrix, or a matrix without numbers.
    """
    values = np.asarray(read_variable(path, key))
    if values.ndim != 2 or values.dtype.kind not in "buif" or not values.size:
        raise InputError(f"{path}: '{key}' is {values.dtype} {list(values.shape)}; a label map is a matrix of numbers")
    return values


def as_whole(path: Path, values: Array) -> Array:
    """Class numbers of a map that MATLAB may have saved as floats. NaN becomes 0.

    Raises:
        InputError: numbers that are not whole.
    """
    if values.dtype.kind != "f":
        return values.astype(np.int64)
    known = np.where(np.isnan(values), 0, values.astype(np.float64))
    if (known != np.rint(known)).any() or (np.abs(known) > np.iinfo(np.int32).max).any():
        raise InputError(f"{path}: has numbers that are not whole; a label map has one class number per pixel")
    return known.astype(np.int64)


def image_size(path: Path) -> tuple[int, int] | None:
    """Width and height of an upright image, EXIF orientation applied; None where its header cannot be read."""
    try:
        with Image.open(path) as picture:
            rotated = picture.getexif().get(_ORIENTATION) in _ROTATED
            return (picture.height, picture.width) if rotated else picture.size
    except Exception:  # images.broken decides what to do with broken images
        return None


def check_shape(path: Path, labels: Array, image: Path) -> None:
    """Refuse a map whose aspect ratio is not that of its image; another size is fine, both show the whole picture.

    Raises:
        InputError: the aspect ratios differ.
    """
    size = image_size(image)
    if size is not None:
        height, width = labels.shape
        ratio = width * size[1] / (height * size[0])
        if not 1 / _SLACK <= ratio <= _SLACK:
            raise InputError(
                f"{path}: is {width} x {height} pixels, but its image {image.name} is {size[0]} x {size[1]}; "
                "a map covers its whole image (is it transposed, or cropped?)"
            )
