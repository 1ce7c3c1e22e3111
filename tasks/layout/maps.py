"""Label maps in files: images of class numbers and MATLAB matrices, brought to one size."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from PIL import Image, UnidentifiedImageError

from contml import InputError

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

_LOSSY = (".jpg", ".jpeg", ".webp")
_ORIENTATION, _LYING = 0x0112, (5, 6, 7, 8)  # the EXIF tag, and its values that swap width and height
#: Shapes of a map and its image may differ by this factor: sizes are whole pixels, borders are cut.
_SLACK = 1.04


def read_image_map(path: Path) -> Array:
    """Class numbers `[H, W]` of a label map in an image file: grey of 1 to 16 bits, or palette indices.

    Raises:
        InputError: no such file, not an image, lossy, or coloured.
    """
    if path.suffix.lower() in _LOSSY:
        raise InputError(f"{path}: a lossy file changes class numbers; save label maps as PNG")
    try:
        with Image.open(path) as picture:
            # Pillow spreads grey of 2 and 4 bits over 0..255; a class number is what the file says.
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
            f"{path}: has {picture.mode} pixels; a label map has one whole number a pixel: "
            "save class numbers as grey, 16-bit or palette PNG"
        )
    if packed.endswith((";2", ";4")):
        values = values // (85 if packed.endswith(";2") else 17)
    return values.astype(np.uint8) if values.dtype == bool else values


def read_matlab_map(path: Path, key: str) -> Array:
    """One matrix `[H, W]` in a MATLAB file, of any number type: `as_whole` makes class numbers of it.

    Raises:
        InputError: no such file, not a MATLAB file, no such matrix, or one that holds no numbers.
    """
    found = load_matlab(path, [key])
    if key not in found:
        from scipy.io import whosmat

        raise InputError(f"{path}: has no '{key}' (it has {', '.join(name for name, *_ in whosmat(str(path)))})")
    values = np.asarray(found[key])
    if values.ndim != 2 or values.dtype.kind not in "buif" or not values.size:
        raise InputError(f"{path}: '{key}' is {values.dtype} {list(values.shape)}; a label map is a matrix of numbers")
    return values


def as_whole(path: Path, values: Array) -> Array:
    """Class numbers of a map that MATLAB may have saved as floats; NaN becomes 0.

    Raises:
        InputError: numbers that are not whole.
    """
    if values.dtype.kind != "f":
        return values.astype(np.int64)
    known = np.where(np.isnan(values), 0, values.astype(np.float64))
    if (known != np.rint(known)).any() or (np.abs(known) > np.iinfo(np.int32).max).any():
        raise InputError(f"{path}: holds numbers that are not whole; a label map is one class number a pixel")
    return known.astype(np.int64)


def load_matlab(path: Path, keys: list[str] | None = None) -> dict[str, Any]:
    """The variables of a MATLAB file, all or some.

    Raises:
        InputError: no such file, or none that scipy can read.
    """
    try:
        from scipy.io import loadmat

        found: dict[str, Any] = loadmat(str(path), variable_names=keys, appendmat=False)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except NotImplementedError:
        raise InputError(f"{path}: a MATLAB 7.3 (HDF5) file; save it with '-v7'") from None
    except Exception as error:  # on bytes that are not what they seem, scipy raises nearly anything
        raise InputError(f"{path}: not a readable MATLAB file ({' '.join(str(error).split())[:120]})") from None
    return {name: value for name, value in found.items() if not name.startswith("__")}


def shrink(labels: Array, side: int | None) -> Array:
    """A label map brought to `side` x `side` pixels by nearest neighbour, as `RegionLabels` does it; None: as it is."""
    if side is None:
        return labels
    rows, columns = ((2 * np.arange(side) + 1) * length // (2 * side) for length in labels.shape)
    return np.asarray(labels[rows[:, None], columns])


def image_size(path: Path) -> tuple[int, int] | None:
    """Width and height of an image as it is seen, EXIF orientation included; None where its head cannot be read."""
    try:
        with Image.open(path) as picture:
            lying = picture.getexif().get(_ORIENTATION) in _LYING
            return (picture.height, picture.width) if lying else picture.size
    except Exception:  # what to do with broken images is said by images.broken
        return None


def check_shape(path: Path, labels: Array, image: Path) -> None:
    """Refuse a map that is not of its image's shape; another size is fine, both cover the whole picture.

    Raises:
        InputError: the aspects differ.
    """
    size = image_size(image)
    if size is not None:
        height, width = labels.shape
        ratio = width * size[1] / (height * size[0])
        if not 1 / _SLACK <= ratio <= _SLACK:
            raise InputError(
                f"{path}: is {width} x {height} pixels, but its image {image.name} is {size[0]} x {size[1]}; "
                "a map covers its whole image (transposed, or cut?)"
            )
