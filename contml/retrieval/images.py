"""The images that a trained model embeds: files, folders, pictures, pixels; lists of files on the command line."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import torch
from PIL import Image

from contml._support.endings import TABLES, table_suffix
from contml._support.errors import InputError, did_you_mean
from contml.data.decode import IMAGE_SUFFIXES
from contml.data.sources import ImageFile, ImageSource, Pixels, Vector, images_below
from contml.data.split import Split
from contml.data.text_files import read_lines, similar_name, spellings, written_path
from contml.labels.vectors import VectorLabels

if TYPE_CHECKING:
    from contml.data.tables import TableOptions

#: What a model embeds: a file or a folder, a picture, pixels `[H, W]` or `[H, W, C]`, an image source, or several.
ImageInput: TypeAlias = "str | os.PathLike[str] | Image.Image | np.ndarray[Any, Any] | ImageSource | Iterable[Any]"

_ALLOWED = "must be files, folders, PIL images, uint8 arrays [H, W, 3], or several of these"


class SourceItem(NamedTuple):
    """An image and its name."""

    name: str
    source: ImageSource


def items_of(images: ImageInput, feature_dim: int | None = None, *, maps: bool = False) -> Iterator[SourceItem]:
    """Yields the images in order. A folder is read recursively: its images sorted by path.

    Args:
        images: what the user gave.
        feature_dim: for a model of features: the items are vectors of this length, or an array `[N, feature_dim]`.
        maps: for a model of feature maps: the items are maps `[P, feature_dim]`, at the same number of places P.

    Raises:
        InputError: something is no image, or a folder has none.
    """
    ndim = 3 if feature_dim is None else 1 + maps
    inputs: Iterable[Any] = [images] if _is_one(images, ndim) else images  # type: ignore[assignment]
    places: tuple[int, ...] | None = None if maps else ()
    for number, value in enumerate(inputs):
        if feature_dim is not None:
            vector = _vector(value, number, feature_dim, places)
            places = vector.values.shape[:-1]
            yield SourceItem(f"item {number}", vector)
        elif isinstance(value, str | os.PathLike):
            yield from _files(Path(value).expanduser())
        elif isinstance(value, ImageSource):
            yield SourceItem(f"image {number}" if value.stamp is None else str(value.stamp.file), value)
        elif isinstance(value, Image.Image | np.ndarray):
            yield SourceItem(f"image {number}", Pixels(value))
        else:
            raise InputError(f"image {number}", _kind(value), _ALLOWED)


def _is_one(images: ImageInput, ndim: int) -> bool:
    """Whether this is one image, whose array has `ndim` dimensions, or something that is none, and not several."""
    if isinstance(images, np.ndarray):
        return images.dtype.kind not in "OU" and images.ndim <= ndim
    return isinstance(images, str | bytes | torch.Tensor | Mapping) or not isinstance(images, Iterable)


def _kind(given: Any) -> str:
    shape = f" {given.dtype} {list(given.shape)}" if isinstance(given, torch.Tensor) else ""
    return f"a {type(given).__name__}{shape}"


def _vector(given: Any, number: int, feature_dim: int, places: tuple[int, ...] | None) -> Vector:
    """Features of an image, for a model of features; `places`: the other dimensions of a map, None: any number."""
    kind = (
        f"a vector of {feature_dim} numbers" if places == () else f"a map [{(places or ['places'])[0]}, {feature_dim}]"
    )
    allowed = f"must be {kind}: the model was trained on features, not on images"
    if not isinstance(given, np.ndarray) or given.dtype.kind not in "fiu":
        raise InputError(f"item {number}", _kind(given), allowed, "'contml features' writes them")
    fits = given.ndim == 2 and len(given) > 0 if places is None else given.shape[:-1] == places
    if not given.ndim or given.shape[-1] != feature_dim or not fits:
        raise InputError(f"item {number}", f"{given.dtype} {list(given.shape)}", allowed)
    if not bool(np.isfinite(given).all()):
        raise InputError(f"item {number}", "not finite", "must be finite numbers")
    return Vector(given.astype(np.float32))


def _files(path: Path) -> Iterator[SourceItem]:
    """The image of a file, or those of a folder; a file that does not exist is broken, and named when it is read."""
    if os.path.isdir(path):  # noqa: PTH112
        yield from (SourceItem(str(file), ImageFile(file)) for file in images_below(path))
    else:
        yield SourceItem(str(path), ImageFile(path))


def named_images(arguments: Sequence[str], options: TableOptions | None = None) -> list[SourceItem]:
    """The images that a command names: files, folders, and lists of files; `options`: how tables are read.

    The images of a folder are named by their paths below it; all others by their paths as they are written.
    `@list.txt` is a list of paths, one per line; `@items.csv:image` the column "image" of a table. Paths in a list are
    relative to its folder.

    Raises:
        InputError: there is no such file or folder, a folder or a list has no image, or two images have one name.
    """
    items = [item for argument in arguments for item in _named(argument, options)]
    file_by_name: dict[str, Path] = {}
    for name, source in items:
        assert isinstance(source, ImageFile)
        if (other_file := file_by_name.setdefault(name, source.file)) is not source.file:
            is_repeated = other_file == source.file
            problem = "appears twice" if is_repeated else f"the name of two images, {other_file} and {source.file}"
            raise InputError(name, problem, hint="give it once" if is_repeated else "give the folder that holds both")
    return items


def _named(argument: str, options: TableOptions | None) -> Iterator[SourceItem]:
    if argument.startswith("@"):
        folder, names = _listed(argument, options)
        for name in names:
            paths = [folder / spelling for spelling in spellings(written_path(name))]
            yield SourceItem(name, ImageFile(next(filter(os.path.exists, paths), paths[0])))
        return
    path = Path(argument).expanduser()
    if os.path.isdir(path):  # noqa: PTH112  # False for a name that is too long
        yield from (SourceItem(file.relative_to(path).as_posix(), ImageFile(file)) for file in images_below(path))
    elif os.path.exists(path):  # noqa: PTH110
        yield SourceItem(argument, ImageFile(path))
    else:
        raise InputError(argument, "no such file or folder", hint=similar_name(path, IMAGE_SUFFIXES))


def _listed(argument: str, options: TableOptions | None) -> tuple[Path, list[str]]:
    """The folder of a list, and the paths in it."""
    path, column = Path(argument[1:]).expanduser(), None
    if not os.path.exists(path) and ":" in path.name:  # noqa: PTH110
        path_text, _, column = argument[1:].rpartition(":")
        path = Path(path_text).expanduser()
    if not os.path.exists(path):  # noqa: PTH110
        raise InputError(argument, "no such list", hint="write @FILE, or @FILE:COLUMN for a table")
    if column is None and (path.suffix.lower() == ".txt" or table_suffix(path) not in TABLES):
        names = [line for _, line in read_lines(path, encoding=None if options is None else options.encoding)]
    else:
        from contml.data.tables import read_table  # here: it imports pyarrow

        table = read_table(path, options)
        if column is None or column not in table:
            problem = f"no column {column!r}" if column else "a table"
            otherwise = f"write @{path}:COLUMN, with one of {', '.join(table.columns)}"
            raise InputError(str(path), problem, hint=did_you_mean(column or "", table.columns, otherwise))
        names = table.texts(column, "images")
        if "" in names:
            hint = "remove the row"
            raise InputError(table.where(names.index("")), f"no path in column {column}", hint=hint)
    if not names:
        raise InputError(str(path), "no images in the list")
    return path.parent, names


def split_of(items: Sequence[SourceItem]) -> Split:
    """The images as a split, which has no labels."""
    names = [item.name for item in items]
    return Split([item.source for item in items], names, VectorLabels(torch.zeros(len(items))))
