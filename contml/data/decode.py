"""Decoding of images. A file, a picture and an array with the same pixels give the same RGB pixels.

This is the only module that opens image files. Grey, palette, CMYK, YCbCr, LAB and HSV become RGB, without colour
profiles. Transparent pixels are laid on white. Integers of more than 8 bits keep their highest 8 bits: the range that
their format declares becomes 0 to 255. Floats must be 0 (black) to 1 (white). 32-bit integers declare no range, and are
refused. If a file has several pictures, the first is read.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, TypeVar

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError
from PIL.TiffImagePlugin import TiffImageFile

from contml._support.door import opened
from contml._support.errors import InputError, one_line

T = TypeVar("T")
#: An RGB image: uint8 `[H, W, 3]`.
PixelArray: TypeAlias = "np.ndarray[Any, np.dtype[np.uint8]]"
#: The result of reading an image source: a file, its content, a picture, pixels `[H, W]` or `[H, W, C]`, or features
#: `[F]`.
ImageItem: TypeAlias = "Path | BinaryIO | Image.Image | np.ndarray[Any, np.dtype[Any]]"

#: Cuts a part from a picture.
Cut: TypeAlias = Callable[[Image.Image], Image.Image]

#: Endings of image names by format, in lower case.
_ENDINGS = {
    "JPEG": (".jpg", ".jpeg", ".jpe", ".jfif", ".mpo"),
    "PNG": (".png", ".apng"),
    "GIF": (".gif",),
    "BMP": (".bmp",),
    "PPM": (".ppm", ".pgm", ".pbm", ".pnm", ".pfm"),
    "TIFF": (".tif", ".tiff"),
    "WEBP": (".webp",),
    "JPEG2000": (".jp2", ".j2k", ".jpx", ".jpf", ".jpc", ".j2c"),
    "AVIF": (".avif", ".avifs"),
    "HEIF": (".heic", ".heif", ".hif", ".heics", ".heifs"),
}
#: The module that a format needs, and what installs it.
_NEEDED = {
    "WEBP": ("PIL._webp", "pillow"),
    "AVIF": ("PIL._avif", '"pillow>=11.3"'),
    "HEIF": ("pillow_heif", '"contml[heif]"'),
}
_MISSING = {name: package for name, (module, package) in _NEEDED.items() if find_spec(module) is None}
_FORMATS = tuple(name for name in _ENDINGS if name not in _MISSING)
#: Endings of image names that are read, in lower case.
IMAGE_SUFFIXES = tuple(suffix for name in _FORMATS for suffix in _ENDINGS[name])
#: The package to install for each image ending that is not read now.
READ_BY = {suffix: package for name, package in _MISSING.items() for suffix in _ENDINGS[name]}

#: The names of the formats that are read, as text.
FORMAT_NAMES = ", ".join({"WEBP": "WebP", "JPEG2000": "JPEG 2000"}.get(name, name) for name in _FORMATS)

#: JPEG formats, with one picture or several, can be decoded at a fraction of their size.
_JPEGS = ("JPEG", "MPO")
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_BITS_PER_SAMPLE, _PHOTOMETRIC = 258, 262  # TIFF tags
_ARRAYS = "an image as an array must be [H, W] or [H, W, 1 to 4], of uint8, uint16, bool, or floats from 0 to 1"


def names_image(name: str) -> bool:
    """Return True if a name has the ending of an image, including formats that no installed package reads."""
    return name.lower().endswith((*IMAGE_SUFFIXES, *READ_BY))


def resized(item: ImageItem, name: str, side: int) -> PixelArray:
    """Return an image as uint8 `[side, side, 3]`. Its aspect ratio is not kept.

    Raises:
        OSError: it cannot be decoded.
        InputError: it is an array of another dtype or shape.
    """
    # JPEGs are decoded at no less than twice this size, so that resizing still averages pixels.
    picture = decode(item, name, 2 * side)
    return np.array(picture.resize((side, side), Image.Resampling.BILINEAR))  # a copy: torch needs a writable array


def decode(
    item: ImageItem,
    name: str,
    min_size: int | None = None,
    *,
    crop: Cut = lambda picture: picture,
    upright: bool = True,
) -> Image.Image:
    """Return an image in RGB.

    Args:
        item: a file, its content, a picture, or pixels.
        name: the name of the image, for errors.
        min_size: a JPEG may be decoded at a fraction of its size, but not below this number of pixels. Default: at its
            size.
        crop: cuts a part from the pixels of the file, before the image is turned upright.
        upright: turn the image by its EXIF orientation.

    Raises:
        OSError: it cannot be decoded. The message is the cause.
        InputError: it is an array of another dtype or shape.
    """
    if isinstance(item, np.ndarray):
        return crop(_from_array(item, name))
    if isinstance(item, Image.Image):
        with _one_kind_of_error():
            return _to_rgb(item, crop, upright)

    def rgb(picture: Image.Image) -> Image.Image:
        if min_size is not None and picture.format in _JPEGS:
            # Decoding a JPEG at a half, a quarter or an eighth of its size is faster.
            picture.draft(None, (min_size, min_size))
        return _to_rgb(picture, crop, upright)

    return from_file(item, rgb)


def from_file(file: Path | BinaryIO, function: Callable[[Image.Image], T]) -> T:
    """Return `function(picture)` for the picture in an image file, or in its content.

    Raises:
        OSError: it cannot be opened or decoded; its format is not read, it is not a regular file, or it has more
            pixels than Pillow's limit of 89 million (`PIL.Image.MAX_IMAGE_PIXELS`). The message is the cause.
    """
    if isinstance(file, Path):
        with _file(file) as stream:
            return from_file(stream, function)
    with _one_kind_of_error():
        try:
            picture = Image.open(file, formats=_formats())
        except UnidentifiedImageError:
            raise OSError(_unknown_format(file)) from None
        with picture:
            return function(picture)


def _file(path: Path) -> BinaryIO:
    with _one_kind_of_error():
        try:
            file = opened(path)
        except InputError as error:
            raise OSError(error.got) from None
        if os.fstat(file.fileno()).st_size == 0:
            file.close()
            raise OSError("empty file")
        return file


@contextmanager
def _one_kind_of_error() -> Iterator[None]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns about unusual metadata
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            yield
    except FileNotFoundError:
        raise FileNotFoundError("no such file") from None
    except (InputError, MemoryError, OSError):
        raise
    except Exception as error:  # on broken files, Pillow's decoders raise nearly any exception
        raise OSError(one_line(error)) from error


@cache
def _formats() -> tuple[str, ...]:
    """Return the formats that are read.

    Pillow is limited to them, since it starts other programs for some other formats.
    """
    Image.preinit()  # otherwise it would import all of them to read one
    if "HEIF" in _FORMATS:
        import pillow_heif

        pillow_heif.register_heif_opener()
    return _FORMATS


def _unknown_format(file: BinaryIO) -> str:
    """Return the reason why Pillow cannot identify a file."""
    file.seek(0)
    head = file.read(16)
    if "HEIF" in _MISSING and head[4:8] == b"ftyp" and head[8:12] in (b"heic", b"heix", b"mif1", b"msf1", b"hevc"):
        return f"HEIF; pip install {_MISSING['HEIF']} reads it"
    return f"not an image, damaged, or of a format that is not read: must be {FORMAT_NAMES}"


def contained(picture: Image.Image, size: tuple[int, int], method: Image.Resampling) -> Image.Image:
    """Fit a picture into a size, as `ImageOps.contain` does. A narrow picture keeps at least one pixel."""
    fitted = ImageOps.contain(picture, size, method)
    return fitted if all(fitted.size) else picture.resize((max(fitted.width, 1), max(fitted.height, 1)), method)


def cause(error: OSError) -> str:
    """Return the reason why an image cannot be decoded, on one line."""
    return error.strerror or one_line(error)


# -- colours -----------------------------------------------------------------------------------------------------------


def _to_rgb(picture: Image.Image, crop: Cut, upright: bool) -> Image.Image:
    picture.load()
    rgb = crop(_colours(picture))
    how = _UPRIGHT.get(orientation(picture)) if upright else None  # after loading: Pillow turns a TIFF itself
    if how is None:
        return rgb
    turned = rgb.transpose(how)
    turned.info.clear()  # its EXIF block, by which it would be turned again
    return turned


def orientation(picture: Image.Image) -> int:
    """Return the EXIF orientation of a picture, 1 to 8. Return 1 if it has none, or if its EXIF block is damaged."""
    try:
        value = picture.getexif().get(0x0112, 1)  # the EXIF tag
        return value if value in _UPRIGHT else 1
    except Exception:  # damaged metadata are not damaged pixels
        return 1


def _colours(picture: Image.Image) -> Image.Image:
    if picture.mode == "F" or picture.mode.startswith("I"):
        picture = _in_8_bits(picture)
    if not picture.has_transparency_data:
        return picture if picture.mode == "RGB" else picture.convert("RGB")
    key = picture.info.get("transparency")
    if isinstance(key, tuple) and max(key) > 255:  # of 16 bits, of which Pillow reads the highest 8
        picture = picture.copy()
        picture.info["transparency"] = tuple(value >> 8 for value in key)
    return _on_white(picture.convert("LA") if picture.mode == "La" else picture)


def _on_white(picture: Image.Image) -> Image.Image:
    picture = picture.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture).convert("RGB")


def _in_8_bits(picture: Image.Image) -> Image.Image:
    """Convert a picture of mode F, I or I;16 to 8-bit grey, perhaps with transparency."""
    tags = picture.tag_v2 if isinstance(picture, TiffImageFile) else {}
    values = np.asarray(picture)
    if picture.mode == "I" and picture.format not in ("PNG", "PPM"):  # these have 16 bits
        raise OSError("32-bit or signed integers, which declare no range; save 8 or 16 bits")
    if picture.mode.startswith("I") and tags.get(_PHOTOMETRIC) == 0:  # white is 0
        values = np.iinfo(np.uint16).max - values
    grey = Image.fromarray(_to_uint8(values, 12 if tags.get(_BITS_PER_SAMPLE) == (12,) else 16))
    key = picture.info.get("transparency")
    if isinstance(key, int):
        grey.putalpha(Image.fromarray(np.where(values == key, 0, 255).astype(np.uint8)))
    return grey


def _to_uint8(values: np.ndarray[Any, Any], bits: int = 16) -> PixelArray:
    """Convert integers of up to `bits` bits, booleans or floats to pixels of 8 bits."""
    if values.dtype == np.uint8:
        return np.ascontiguousarray(values)
    if values.dtype == bool:
        return values.astype(np.uint8) * 255
    if values.dtype.kind == "f":
        low, high = float(values.min()), float(values.max())
        if not (low >= 0 and high <= 1):  # NaN is in neither
            raise OSError(f"floats from {low:g} to {high:g}, which declare no range; must be 0 to 1")
        return (values.astype(np.float32) * 255).round().astype(np.uint8)
    return np.asarray(values >> (bits - 8), dtype=np.uint8)


def _from_array(values: np.ndarray[Any, Any], name: str) -> Image.Image:
    channels = values.shape[2] if values.ndim == 3 else 1
    known = values.dtype.kind in "bf" or (values.dtype.kind == "u" and values.dtype.itemsize <= 2)
    if values.ndim not in (2, 3) or not 1 <= channels <= 4 or not values.size or not known:
        raise InputError(name, f"{values.dtype} {list(values.shape)}", _ARRAYS)
    pixels = _to_uint8(values)
    picture = Image.fromarray(pixels[..., 0] if values.ndim == 3 and channels == 1 else pixels)
    return _on_white(picture) if channels in (2, 4) else picture.convert("RGB")
