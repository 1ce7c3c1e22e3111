"""Inputs of a trained model: images (files, folders, pictures, pixels, lists), and labels as NAME=VALUE."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import torch
from PIL import Image

from contml._support.errors import InputError, did_you_mean
from contml._support.files import TABLES, VECTORS, read_bytes, table_suffix
from contml._support.progress import note
from contml.data.decode import IMAGE_SUFFIXES
from contml.data.features import read_features
from contml.data.sources import Box, BoxCrop, ImageFile, ImageSource, Pixels, Vector, box_names, box_of
from contml.data.split import Split
from contml.data.text_files import images_below, parsed_json, read_lines, similar_name, spellings, written_path
from contml.data.values import read_image_map
from contml.labels.base import LabelSpace
from contml.labels.items import growing, typed_numbers
from contml.labels.vectors import NumberLabels
from contml.search.segments import Value, kind_of_column
from contml.search.where import condition

if TYPE_CHECKING:
    from contml.data.tables import Table, TableOptions

#: A cell of a table that is a number: no leading zeros, which codes have, and no more whole digits than a float holds.
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,14})(\.[0-9]{1,20})?(e-[0-9]{1,2})?")
#: The column of row numbers, whose name no table has.
_ROW = "\0row"
#: The most changed files that a message names.
_MOST_NAMED = 8
#: The input of a model: a file or a folder, a picture, pixels `[H, W]` or `[H, W, C]`, an image source, or several.
ImageInput: TypeAlias = "str | os.PathLike[str] | Image.Image | np.ndarray[Any, Any] | ImageSource | Iterable[Any]"

_ALLOWED = "must be files, folders, PIL images, uint8 arrays [H, W, 3], or several of these"


class SourceItem(NamedTuple):
    """An image and its name."""

    name: str
    source: ImageSource


def items_of(images: ImageInput, feature_dim: int | None = None, *, maps: bool = False) -> Iterator[SourceItem]:
    """Yield the images in order. A folder is read recursively, its images sorted by path.

    Args:
        images: the images that the user gave.
        feature_dim: for a model of features: the items are vectors of this length, or an array `[N, feature_dim]`.
        maps: for a model of feature maps: the items are maps `[P, feature_dim]`, at the same number of places P.

    Raises:
        InputError: something is not an image, or a folder has no image.
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
            path = Path(value).expanduser()
            files = images_below(path) if os.path.isdir(path) else [path]  # noqa: PTH112  # False for a long name
            yield from (SourceItem(str(file), ImageFile(file)) for file in files)
        elif isinstance(value, ImageSource):
            yield SourceItem(f"image {number}" if value.stamp is None else str(value.stamp), value)
        elif isinstance(value, Image.Image | np.ndarray):
            yield SourceItem(f"image {number}", Pixels(value))
        else:
            raise InputError(f"image {number}", _kind(value), _ALLOWED)


def _is_one(images: ImageInput, ndim: int) -> bool:
    """Return True if the input is one image, whose array has `ndim` dimensions, or one object that is not an image."""
    if isinstance(images, np.ndarray):
        return images.dtype.kind not in "OU" and images.ndim <= ndim
    return isinstance(images, str | bytes | torch.Tensor | Mapping) or not isinstance(images, Iterable)


def _kind(given: Any) -> str:
    shape = f" {given.dtype} {list(given.shape)}" if isinstance(given, torch.Tensor) else ""
    return "an image file" if isinstance(given, ImageFile) else f"a {type(given).__name__}{shape}"


def _vector(given: Any, number: int, dim: int, places: tuple[int, ...] | None) -> Vector:
    """Return features of an image, for a model of features.

    `places` are the other dimensions of a map. If it is None, any number of places is allowed.
    """
    kind = f"a vector of {dim} numbers" if places == () else f"a map [{(places or ['places'])[0]}, {dim}]"
    allowed = f"must be {kind}: the model was trained on features, not on images"
    given = given.values if isinstance(given, Vector) else given
    if not isinstance(given, np.ndarray) or given.dtype.kind not in "fiu":
        raise InputError(f"item {number}", _kind(given), allowed, f"give a file of vectors: {', '.join(VECTORS)}")
    fits = given.ndim == 2 and len(given) > 0 if places is None else given.shape[:-1] == places
    if not given.ndim or given.shape[-1] != dim or not fits:
        raise InputError(f"item {number}", f"{given.dtype} {list(given.shape)}", allowed)
    if not bool(np.isfinite(given).all()):
        raise InputError(f"item {number}", "not finite", "must be finite numbers")
    return Vector(given.astype(np.float32))


class NamedImage(NamedTuple):
    """An image file, a box in an image file, or a vector of a file of vectors. Its name is its id in an index."""

    name: str
    file: Path
    vector: np.ndarray[Any, np.dtype[np.float32]] | None = None
    box: Box | None = None

    @property
    def source(self) -> ImageFile | BoxCrop | Vector:
        """The image, the crop or the vector."""
        if self.vector is not None:
            return Vector(self.vector)
        return ImageFile(self.file) if self.box is None else BoxCrop(self.file, self.box)


def named_images(
    arguments: Sequence[str],
    options: TableOptions | None = None,
    out: Path | None = None,
    where: str | None = None,
    box: str | None = None,
) -> list[NamedImage]:
    """Return the images that a command names: files, folders, and lists of files; and the vectors of files of vectors.

    The images of a folder are named by their paths below it. All others are named by their paths as they are written.
    `@list.txt` is a list of paths, one per line. `@items.csv:image` is the column "image" of a table. Paths in a list
    are relative to its folder. If several arguments are wrong, the first raises the error, and the others are printed.

    Args:
        arguments: the arguments that the user typed.
        options: how tables are read.
        out: the file that the command writes.
        where: use only rows of tables that meet this condition (`contml.search.where`).
        box: the part of the image that belongs to each row of a table. It names the columns "x,y,w,h", or one column of
            lists, in pixels. Names have the number of the box in its image: photo.jpg#2.

    Raises:
        InputError: there is no such file or folder, a folder or a list has no image, two images have one name; the
            same arguments would name `out` too; or the condition is wrong.
    """
    images: list[NamedImage] = []
    refused: list[InputError] = []
    for argument in arguments:
        try:
            images += _named(argument, options, out, where, box)
        except InputError as error:
            refused.append(error)
    for other in refused[1:]:
        note(str(other))
    if refused:
        raise refused[0]
    refuse_repeated(images)
    return images


def refuse_repeated(images: Sequence[NamedImage]) -> None:
    """Refuse images if two of them have the same name.

    Raises:
        InputError: there are such images.
    """
    files: dict[str, Path] = {}
    for name, file, *_ in images:
        other = files.get(name)
        files[name] = file
        if other is not None:
            two = f"the name of two images, {other} and {file}"
            hint = "give it once" if other == file else "give the folder that holds both"
            raise InputError(name, "appears twice" if other == file else two, hint=hint)


def _named(
    argument: str, options: TableOptions | None, out: Path | None, where: str | None, box: str | None
) -> list[NamedImage]:
    """Return the images or vectors that an argument names."""
    if argument.startswith("@"):
        return _listed(argument, options, where, box)
    _refuse_without_table(argument, where, box)
    path = Path(argument).expanduser()
    if os.path.isdir(path):  # noqa: PTH112  # False for a name that is too long
        if out is not None and out.suffix.lower() in IMAGE_SUFFIXES and out.resolve().is_relative_to(path.resolve()):
            raise InputError(str(out), f"in the folder of images that is read, {path}", hint="write it elsewhere")
        return [NamedImage(file.relative_to(path).as_posix(), file) for file in images_below(path)]
    if not os.path.exists(path):  # noqa: PTH110
        raise InputError(argument, "no such file or folder", hint=similar_name(path, IMAGE_SUFFIXES))
    return named_vectors(path) if path.suffix.lower() in VECTORS else [NamedImage(argument, path)]


def named_vectors(path: Path) -> list[NamedImage]:
    """Return the vectors of a file with their names. Vectors without names are named by their row numbers.

    Raises:
        InputError: it is not such a file, or has two vectors of one name.
    """
    names, values = read_features(path)
    if values.ndim != 2:
        raise InputError(str(path), f"vectors of shape {list(values.shape)}", "must be [items, numbers]")
    if names is None:
        note(f"{path} has no names: its vectors are named 0 to {len(values) - 1:,}")
    all_names = names or map(str, range(len(values)))
    return [NamedImage(name, path, value) for name, value in zip(all_names, values, strict=True)]


def changed(files: Mapping[str, str], made: str | Path, remedy: str) -> InputError:
    """Return the error of image files that changed since they were embedded.

    Args:
        files: the command options that remove the embeddings of each file, by its path.
        made: where the embeddings are.
        remedy: the beginning of the command that removes embeddings, before these options.
    """
    first, *others = files
    and_others = f" (as have {len(others):,} other files)" if others else ""
    names = " ".join([*files.values()][:_MOST_NAMED]) + (" ..." if len(files) > _MOST_NAMED else "")
    hint = f"{remedy} {names}; the same command then embeds them again"
    return InputError(first, f"changed since it was embedded in {made}{and_others}", hint=hint)


def _refuse_without_table(argument: str, where: str | None, box: str | None) -> None:
    for name, value in (("--where", where), ("--box", box)):
        if value is not None:
            raise InputError(name, f"used with {argument}", "needs a table of images, @FILE:COLUMN")


def _listed(argument: str, options: TableOptions | None, where: str | None, box: str | None) -> list[NamedImage]:
    """Return the images of a list."""
    path, column = Path(argument[1:]).expanduser(), None
    if not os.path.exists(path) and ":" in path.name:  # noqa: PTH110
        path_text, _, column = argument[1:].rpartition(":")
        path = Path(path_text).expanduser()
    if not os.path.exists(path):  # noqa: PTH110
        raise InputError(argument, "no such list", hint="write @FILE, or @FILE:COLUMN for a table")
    boxes: list[Box] = []
    if column is None and (path.suffix.lower() == ".txt" or table_suffix(path) not in TABLES):
        _refuse_without_table(argument, where, box)
        names = paths = [line for _, line in read_lines(path, encoding=None if options is None else options.encoding)]
    else:
        from contml.data.tables import read_table  # here: it imports pyarrow

        table = read_table(path, options)
        if column is None or column not in table:
            problem = f"no column {column!r}" if column else "a table"
            otherwise = f"write @{path}:COLUMN, with one of {', '.join(table.columns)}"
            raise InputError(str(path), problem, hint=did_you_mean(column or "", table.columns, otherwise))
        names = paths = table.texts(column, "images")
        if "" in paths:
            raise InputError(table.where(paths.index("")), f"no path in column {column}", hint="remove the row")
        if box is not None:
            names, boxes = box_names(paths), _boxes(table, box)
        if where is not None:
            rows = _meeting(where, table)
            if not rows:
                raise InputError("--where", f"no row of {path} meets it")
            names, paths = [names[row] for row in rows], [paths[row] for row in rows]
            boxes = [boxes[row] for row in rows] if boxes else []
    if not names:
        raise InputError(str(path), "no images in the list")
    images = []
    for name, each, its_box in zip(names, paths, boxes or repeat(None, len(names)), strict=True):
        candidates = [path.parent / spelling for spelling in spellings(written_path(each))]
        images.append(NamedImage(name, next(filter(os.path.exists, candidates), candidates[0]), box=its_box))
    return images


def _boxes(table: Table, box: str) -> list[Box]:
    """Return the box of each row."""
    names = [box] if box in table.columns else [name.strip() for name in box.split(",")]
    columns = [table.texts(name, "the box", "box") for name in names]
    found = []
    for row, cells in enumerate(zip(*columns, strict=True)):
        numbers = typed_numbers(f"{table.where(row)}: {box}", " ".join(cells), 4)
        if min(numbers[2:]) <= 0:
            raise InputError(f"{table.where(row)}: {box}", " ".join(cells), "must have a width and a height above 0")
        found.append(numbers)
    if found and max(map(max, found)) <= 1:
        raise InputError("--box", f"all numbers of {box} are at most 1", "must be pixels, not shares of the image")
    if len(found) >= 10 and all(w > x and h > y for x, y, w, h in found):
        note(f"--box: if the last two numbers of {box} are the right and the bottom edge, subtract x and y from them")
    return [box_of(numbers) for numbers in found]


def _meeting(where: str, table: Table) -> list[int]:
    """Return the rows of a table that meet a condition."""
    import pyarrow as pa

    cells = {name: pa.array(typed_cells(column.texts())) for name, column in table.columns.items()}
    columns = {name: each.cast("string") if each.null_count == len(each) else each for name, each in cells.items()}
    expression = condition(where, {name: kind_of_column(each) for name, each in columns.items()}, "--where")
    return pa.table({**columns, _ROW: range(len(table))}).filter(expression)[_ROW].to_pylist()


def typed_cells(texts: Sequence[str]) -> list[Value]:
    """Return the cells of a column as numbers, if all are numbers. Empty cells are missing."""
    if not all(not text or _NUMBER.fullmatch(text) for text in texts):
        return [text or None for text in texts]
    number = float if any("." in text or "e" in text for text in texts) else int
    return [number(text) if text else None for text in texts]


def split_of(items: Sequence[SourceItem | NamedImage]) -> Split:
    """Return the images as a split, which has no labels."""
    return Split([item.source for item in items], [item.name for item in items], NumberLabels(torch.zeros(len(items))))


#: Largest file of a label in bytes.
_LIMIT = 1 << 24


def typed_label(labels: LabelSpace, texts: Sequence[str]) -> Any:
    """Return the label in NAME=VALUE, as `LabelSpace.item` accepts it. For a sum of labels, several may be given.

    NAME is the title of a label. Upper and lower case, and an s at its end, do not count. VALUE is a text that the
    label space parses. For a pose, VALUE is the name of a JSON file. For a label map, it is the name of a picture.

    Raises:
        InputError: there is no such label, one appears twice, or its file cannot be read.
    """
    spaces = {space.title: space for space, _ in labels.terms}
    given: dict[str, Any] = {}
    for text in texts:
        name, value = _divided(text, list(spaces))
        if name in given:
            raise InputError("--label", f"{name} appears twice", hint="give each label once")
        given[name] = _value(spaces[name], value)
    return given if len(spaces) > 1 or labels.title not in given else given[labels.title]


def _divided(text: str, titles: Sequence[str]) -> tuple[str, str]:
    """Return the title of a label, and the value."""
    names = f"must be NAME=VALUE, with the name {' or '.join(titles)}"
    exact = next((title for title in titles if text.startswith(f"{title}=")), None)
    if exact is not None:
        return exact, text.removeprefix(f"{exact}=")
    name, equals, value = text.partition("=")
    if not equals:
        raise InputError("--label", repr(text), names)
    alike = [title for title in titles if _simple(title) == _simple(name)]
    if len(alike) != 1:
        raise InputError("--label", f"no label {name!r}", names, did_you_mean(name, titles))
    return alike[0], value


def _simple(name: str) -> str:
    return name.strip().casefold().removesuffix("s")


def _value(labels: LabelSpace, text: str) -> Any:
    space = growing(labels)
    if space.typed_as == "picture":
        return read_image_map(Path(text).expanduser())
    if space.typed_as == "json" and not text.lstrip().startswith(("[", "{")):
        try:
            return parsed_json(text, read_bytes(Path(text).expanduser(), _LIMIT).decode())
        except FileNotFoundError:
            raise InputError("--label", f"no such file {text}", f"a {space.title} is the name of a JSON file") from None
        except UnicodeDecodeError:
            raise InputError(text, "not text in UTF-8", f"a {space.title} is a JSON file") from None
    return parsed_json("--label", text) if space.typed_as == "json" else text
