"""Values of data files, converted only if their meaning is certain. "0" is no visible joint, and 0.01 is an error."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from PIL import Image

from contml._support.errors import InputError
from contml.data.decode import cause, from_file

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

_YES, _NO = frozenset(("1", "true", "yes")), frozenset(("0", "false", "no"))
#: A joint may lie outside its image by this share of the image's size: annotators click beyond borders.
_SLACK = 0.05


def whole_number(value: object) -> int | None:
    """Return a whole number of up to 18 digits, 0 or more, given as a number or as text.

    Return None for another value.
    """
    if isinstance(value, float | np.floating):
        return int(value) if value.is_integer() and 0 <= value < 1e15 else None
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return int(value) if 0 <= value < 10**18 else None
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) <= 18 else None


def flag(value: object, where: str, hint: str = "") -> bool:
    """Return a value that is true or false: a bool, 0 or 1, or one of these as text.

    Raises:
        InputError: it is anything else, such as NaN, a confidence of 0.7, or 2.
    """
    if isinstance(value, str) and value.strip().lower() in _YES | _NO:
        return value.strip().lower() in _YES
    if isinstance(value, bool | np.bool_ | int | float | np.integer | np.floating) and value in (0, 1):
        return bool(value)
    raise InputError(where, _shown(value), "must be 0 or 1, or true or false", hint)


def points(values: Any, where: str) -> Array:
    """Return numbers as float64. null becomes NaN.

    Args:
        values: an array, or nested lists of one shape.
        where: their place, for errors.

    Raises:
        InputError: a value is not a number, or the lists have different lengths.
    """
    try:  # Without a dtype, numpy would turn [1, "0"] into texts.
        array: Array = values if isinstance(values, np.ndarray) else np.array(values, object)
    except ValueError:
        raise InputError(where, "lists of different lengths", "must all have one length") from None
    if array.dtype.kind in "iuf":
        return array.astype(np.float64)
    cells = array.ravel().tolist()
    for value in cells:
        if not (value is None or (isinstance(value, int | float) and not isinstance(value, bool))):
            raise InputError(where, _shown(value), "must be a number, or null where it is unknown")
    try:
        return np.array(cells, np.float64).reshape(array.shape)
    except OverflowError:
        raise InputError(where, "a number too large for 64 bits") from None


def pairs(values: object, count: int, first: int, where: str) -> tuple[tuple[int, int], ...]:
    """Return pairs of joints, such as limbs, counted from 0.

    Files of this format count joints from `first`. A file may count from the other number. This is detected if the file
    uses joint 0, or joint `count`.

    Args:
        values: the pairs.
        count: the number of joints.
        first: the number of the first joint in files of this format: 0 or 1.
        where: their place, for errors.

    Raises:
        InputError: something is not a pair of whole numbers, or names a joint that does not exist.
    """
    rows = values.tolist() if isinstance(values, np.ndarray) else values
    found: list[tuple[int, int]] = []
    for pair in rows if isinstance(rows, Iterable) and not isinstance(rows, str) else [rows]:
        numbers = [whole_number(n) for n in pair] if isinstance(pair, Sequence) and not isinstance(pair, str) else []
        if len(numbers) != 2 or None in numbers:
            raise InputError(where, _shown(pair), f"must be pairs of joints, {first} to {first + count - 1}")
        found.append((int(numbers[0] or 0), int(numbers[1] or 0)))
    named = {joint for pair in found for joint in pair}
    start = 1 if named and min(named) > 0 and max(named) == count else 0 if 0 in named else first
    if outside := [joint for joint in sorted(named) if not start <= joint < start + count]:
        problem = f"joint {outside[0]} of {count}"
        raise InputError(where, problem, f"joints are {start} to {start + count - 1}, counted from {start}")
    return tuple((a - start, b - start) for a, b in found)


def refuse_outside(
    joints: Array, marked: Array, size: tuple[float, float], names: Sequence[str], where: str, image: str
) -> None:
    """Refuse marked joints that cannot be in their image. A joint may lie a little outside of it.

    Args:
        joints: `[J, 2]` in pixels of the image.
        marked: whether a joint has coordinates, `[J]`.
        size: width and height of the image.
        names: names of the joints.
        where: their place, for errors.
        image: the name of the image.

    Raises:
        InputError: a joint is far outside or at (-1, -1), or several joints are at (0, 0). Some files write such values
            for joints that are not annotated.
    """
    extent, at_origin = np.asarray(size, np.float64), marked & (joints == 0).all(1)
    unmarked = (marked & (joints == -1).all(1)) | (at_origin if at_origin.sum() > 1 else False)
    wrong = unmarked | (marked & ((joints < -_SLACK * extent) | (joints > (1 + _SLACK) * extent)).any(1))
    if not wrong.any():
        return
    joint = int(wrong.argmax())
    problem = f"{names[joint]} is at {joints[joint, 0]:g}, {joints[joint, 1]:g}"
    if unmarked[joint]:
        problem, hint = f"{problem} ({unmarked.sum()} such joints)", "mark joints that are not annotated as not visible"
        raise InputError(where, problem, "must be a place in the image", hint)
    allowed = f"must be in its image {image} of {size[0]:g} x {size[1]:g} pixels"
    raise InputError(where, problem, allowed, "check whether the images were resized")


def _shown(value: object) -> str:
    text = "null" if value is None else "NaN" if isinstance(value, float) and math.isnan(value) else repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


#: The formats that keep every number, as Pillow names them.
_LOSSLESS = ("PNG", "TIFF", "BMP", "DIB", "GIF", "PPM")


def read_image_map(path: Path) -> Array:
    """Read the class numbers `[H, W]` of a label map in an image file: grey of 1 to 16 bits, or palette indices.

    It raises the same errors as `read_map`.
    """
    return read_map(path)[0]


def read_map(path: Path) -> tuple[Array, Sequence[int]]:
    """Read the class numbers of a label map, and its palette: red, green and blue of each class. It may be empty.

    Raises:
        InputError: no such file, not an image, lossy, or in colour.
    """
    try:
        values, mode, palette = from_file(path, lambda picture: _numbers(path, picture))
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
    return (values.astype(np.uint8) if values.dtype == bool else values), palette


def _numbers(path: Path, picture: Image.Image) -> tuple[Array, str, Sequence[int]]:
    """Return the numbers in a file, Pillow's mode, and the palette."""
    if picture.format not in _LOSSLESS or picture.info.get("compression") in ("jpeg", "tiff_jpeg"):
        got = f"{picture.format} is lossy, which changes class numbers"
        raise InputError(str(path), got, hint="save label maps as PNG")
    # Pillow scales grey of 2 and 4 bits to 0..255; class numbers are the values in the file.
    tiles = getattr(picture, "tile", ())
    raw_mode = str(tiles[0].args) if tiles and picture.mode == "L" else ""
    scale = 85 if raw_mode.endswith(";2") else 17 if raw_mode.endswith(";4") else 1
    palette = picture.getpalette() if picture.mode == "P" else None
    return (np.asarray(picture) // scale if scale > 1 else np.asarray(picture)), picture.mode, palette or ()
