"""What a trained model takes: images (files, folders, pictures, pixels, lists), and labels as NAME=VALUE."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, overload

import numpy as np
import torch
from PIL import Image

from contml._support.errors import InputError, did_you_mean
from contml._support.files import TABLES, read_bytes, table_suffix
from contml._support.packed_texts import Texts
from contml._support.progress import note
from contml.data.decode import IMAGE_SUFFIXES
from contml.data.sources import ImageFile, ImageFiles, ImageSource, Pixels, Vector
from contml.data.split import Split
from contml.data.text_files import images_below, parsed_json, read_lines, similar_name, spellings, written_path
from contml.data.values import read_image_map
from contml.labels.base import LabelSpace
from contml.labels.items import growing
from contml.labels.vectors import NumberLabels

if TYPE_CHECKING:
    from contml.data.tables import TableOptions

#: Changed files that a message names.
_MOST_NAMED = 8
#: What a model embeds: a file or a folder, a picture, pixels `[H, W]` or `[H, W, C]`, an image source, or several.
ImageInput: TypeAlias = "str | os.PathLike[str] | Image.Image | np.ndarray[Any, Any] | ImageSource | Iterable[Any]"

_ALLOWED = "must be files, folders, PIL images, uint8 arrays [H, W, 3], or several of these"


class SourceItem(NamedTuple):
    """An image and its name."""

    name: str
    source: ImageSource


def items_of(images: ImageInput, feature_dim: int | None = None, *, maps: bool = False) -> Iterator[SourceItem]:
    """Yields the images in order. A folder is read recursively, its images sorted by path.

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
            path = Path(value).expanduser()
            files = images_below(path) if os.path.isdir(path) else [path]  # noqa: PTH112  # False for a long name
            yield from (SourceItem(str(file), ImageFile(file)) for file in files)
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
    if isinstance(given, ImageFile):
        return "an image file"
    return f"a {type(given).__name__}{shape}"


def _vector(given: Any, number: int, feature_dim: int, places: tuple[int, ...] | None) -> Vector:
    """Features of an image, for a model of features; `places`: the other dimensions of a map, None: any number."""
    kind = (
        f"a vector of {feature_dim} numbers" if places == () else f"a map [{(places or ['places'])[0]}, {feature_dim}]"
    )
    allowed = f"must be {kind}: the model was trained on features, not on images"
    if not isinstance(given, np.ndarray) or given.dtype.kind not in "fiu":
        raise InputError(f"item {number}", _kind(given), allowed, "give vectors in Python: contml.load(...)")
    fits = given.ndim == 2 and len(given) > 0 if places is None else given.shape[:-1] == places
    if not given.ndim or given.shape[-1] != feature_dim or not fits:
        raise InputError(f"item {number}", f"{given.dtype} {list(given.shape)}", allowed)
    if not bool(np.isfinite(given).all()):
        raise InputError(f"item {number}", "not finite", "must be finite numbers")
    return Vector(given.astype(np.float32))


class NamedImage(NamedTuple):
    """An image file and its name: its id in an index."""

    name: str
    file: Path

    @property
    def source(self) -> ImageFile:
        """The image."""
        return ImageFile(self.file)


class NamedImages(Sequence[NamedImage]):
    """Many image files with a name each, in the memory of their names and paths.

    Args:
        names: the name of each image; no two are equal.
        files: the files.
    """

    def __init__(self, names: Texts, files: ImageFiles) -> None:
        self.names, self.files = names, files

    def __len__(self) -> int:
        return len(self.names)

    @overload
    def __getitem__(self, row: int) -> NamedImage: ...

    @overload
    def __getitem__(self, row: slice) -> NamedImages: ...

    def __getitem__(self, row: int | slice) -> NamedImage | NamedImages:
        if isinstance(row, slice):
            return NamedImages(self.names[row], self.files[row])
        return NamedImage(self.names[row], self.files[row].file)


def named_images(arguments: Sequence[str], options: TableOptions | None = None, out: Path | None = None) -> NamedImages:
    """The images that a command names: files, folders, and lists of files.

    The images of a folder are named by their paths below it; all others by their paths as they are written.
    `@list.txt` is a list of paths, one per line; `@items.csv:image` the column "image" of a table. Paths in a list are
    relative to its folder. Of several wrong arguments, all are printed but the first.

    Args:
        arguments: what the user typed.
        options: how tables are read.
        out: what the command writes.

    Raises:
        InputError: there is no such file or folder, a folder or a list has no image, two images have one name; or the
            same arguments would name `out` too.
    """
    given: list[_Listed] = []
    refused: list[InputError] = []
    for argument in arguments:
        try:
            given.append(_named(argument, options, out))
        except InputError as error:
            refused.append(error)
    for other in refused[1:]:
        note(str(other))
    if refused:
        raise refused[0]
    names = Texts(name for group in given for name in group.names)
    paths = Texts(path for group in given for path in group.paths)
    _refuse_repeated(names, paths)
    return NamedImages(names, ImageFiles(names if names == paths else paths))


class _Listed(NamedTuple):
    """Image files by name."""

    names: list[str]
    paths: list[str]


def _refuse_repeated(names: Texts, paths: Texts) -> None:
    hashes = np.fromiter(map(hash, names), np.int64, len(names))
    _, first_rows, counts = np.unique(hashes, return_index=True, return_counts=True)
    for row in np.sort(first_rows[counts > 1]).tolist():
        for other in np.flatnonzero(hashes == hashes[row]).tolist():
            if other != row and names[other] == names[row]:
                is_repeated = paths[other] == paths[row]
                two = f"the name of two images, {paths[row]} and {paths[other]}"
                hint = "give it once" if is_repeated else "give the folder that holds both"
                raise InputError(names[row], "appears twice" if is_repeated else two, hint=hint)


def _named(argument: str, options: TableOptions | None, out: Path | None) -> _Listed:
    """What an argument names."""
    if argument.startswith("@"):
        folder, names = _listed(argument, options)
        paths = []
        for name in names:
            candidates = [folder / spelling for spelling in spellings(written_path(name))]
            paths.append(str(next(filter(os.path.exists, candidates), candidates[0])))
        return _Listed(names, paths)
    path = Path(argument).expanduser()
    if os.path.isdir(path):  # noqa: PTH112  # False for a name that is too long
        if out is not None and out.suffix.lower() in IMAGE_SUFFIXES and out.resolve().is_relative_to(path.resolve()):
            got = f"in the folder of images that is read, {path}"
            raise InputError(str(out), got, hint="write it elsewhere")
        files = images_below(path)
        return _Listed([file.relative_to(path).as_posix() for file in files], [*map(str, files)])
    if not os.path.exists(path):  # noqa: PTH110
        raise InputError(argument, "no such file or folder", hint=similar_name(path, IMAGE_SUFFIXES))
    return _Listed([argument], [str(path)])


def changed(files: Mapping[str, str], made: str | Path, remedy: str) -> InputError:
    """Return the error of image files that changed since they were embedded.

    Args:
        files: what removes the embeddings of each, by its path.
        made: where the embeddings are.
        remedy: how embeddings are removed, before the former.
    """
    first, *others = files
    and_others = f" (as have {len(others):,} other files)" if others else ""
    names = " ".join([*files.values()][:_MOST_NAMED]) + (" ..." if len(files) > _MOST_NAMED else "")
    hint = f"{remedy} {names}; the same command then embeds them again"
    return InputError(first, f"changed since it was embedded in {made}{and_others}", hint=hint)


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


def split_of(items: NamedImages | Sequence[SourceItem | NamedImage]) -> Split:
    """The images as a split, which has no labels."""
    labels = NumberLabels(torch.zeros(len(items)))
    if isinstance(items, NamedImages):
        return Split(items.files, items.names, labels)
    return Split([item.source for item in items], [item.name for item in items], labels)


#: Largest file of a label in bytes.
_LIMIT = 1 << 24


def typed_label(labels: LabelSpace, texts: Sequence[str]) -> Any:
    """The label that NAME=VALUE says, as `LabelSpace.item` takes it; of a sum of labels, several may be given.

    NAME is the title of a label; upper and lower case, and an s at its end, do not count. VALUE is a text that the
    label space parses; of a pose the name of a JSON file, and of a label map that of a picture.

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
    """The title of a label, and the value."""
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
            content = read_bytes(Path(text).expanduser(), _LIMIT)
            return parsed_json(text, content.decode())
        except FileNotFoundError:
            raise InputError("--label", f"no such file {text}", f"a {space.title} is the name of a JSON file") from None
        except UnicodeDecodeError:
            raise InputError(text, "not text in UTF-8", f"a {space.title} is a JSON file") from None
    return parsed_json("--label", text) if space.typed_as == "json" else text
