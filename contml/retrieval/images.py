"""The images that a trained model embeds: files, folders, shards, pictures, pixels; lists on the command line."""

from __future__ import annotations

import glob
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, overload

import numpy as np
import torch
from PIL import Image

from contml._support.endings import TABLES, table_suffix
from contml._support.errors import InputError, did_you_mean
from contml._support.progress import note
from contml._support.texts import Texts
from contml.data.decode import IMAGE_SUFFIXES
from contml.data.shards import (
    DATASET_FILES,
    Address,
    file_state,
    find,
    is_shard,
    opened,
    refuse_compressed,
    shards_among,
)
from contml.data.sources import (
    ImageFile,
    ImageFiles,
    ImageSource,
    Pixels,
    Vector,
    images_among,
    images_below,
    skipped_text,
    walk,
)
from contml.data.split import Split
from contml.data.text_files import read_lines, similar_name, spellings, written_path
from contml.labels.vectors import VectorLabels

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
    """Yields the images in order. A folder is read recursively: its images sorted by path; without images, its shards.

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


def _files(path: Path) -> Iterator[SourceItem]:
    """The image of a file, or those of a folder or a shard; a file that does not exist is broken when it is read."""
    groups: Iterable[_Listed | NamedShard] = [_Listed([str(path)], [str(path)])]
    if os.path.isdir(path):  # noqa: PTH112
        groups = _in_folder(path, "")
    elif is_shard(path.name) and path.is_file():
        groups = [NamedShard("", Address(str(path)), path.name)]
    for group in groups:
        yield from (SourceItem(file, ImageFile(Path(file))) for file in _paths(group))


class NamedImage(NamedTuple):
    """An image file, which may be in a shard, and its name: its id in an index."""

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
        broken: name and cause of each shard that cannot be read: its images are missing.
    """

    def __init__(self, names: Texts, files: ImageFiles, broken: Mapping[str, str] | None = None) -> None:
        self.names, self.files, self.broken = names, files, dict(broken or {})

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


class NamedShard(NamedTuple):
    """A shard.

    Attributes:
        name: what the names of its images begin with.
        address: where it is.
        below: its path below the folder that the user gave, or its file name.
    """

    name: str
    address: Address
    below: str

    @property
    def state(self) -> str:
        """What is known of its images without reading it: its name, and size and time of change of the file.

        Raises:
            InputError: it is gone.
        """
        try:
            return f"{self.name} {file_state(self.address.file)}"
        except OSError as error:
            raise InputError(self.address.file, f"cannot be read ({error.strerror})") from None

    def images(self) -> NamedImages:
        """Its images.

        Raises:
            InputError: it is damaged, or has none.
        """
        return NamedImages(Texts(_names(self)), ImageFiles(_paths(self)))


def named_images(arguments: Sequence[str], options: TableOptions | None = None, out: Path | None = None) -> NamedImages:
    """The images that a command names: files, folders, shards, and lists of files.

    The images of a folder are named by their paths below it; all others by their paths as they are written. A folder
    without images may have shards (`contml.data.shards`); an image in a shard is named by the path of the shard, a
    slash, and its name in it. `'*.tar'` and `'{0000..0042}.tar'` are several files, and `FILE.tar:EXTENSION`,
    `FILE.parquet:COLUMN` and `FILE.parquet:COLUMN:COLUMN OF NAMES` choose images of shards. `@list.txt` is a list of
    paths, one per line; `@items.csv:image` the column "image" of a table. Paths in a list are relative to its folder. A
    shard that cannot be read is left out, if there are other images.

    Args:
        arguments: what the user typed.
        options: how tables are read.
        out: what the command writes.

    Raises:
        InputError: there is no such file or folder, a folder or a list has no image, two images have one name, or all
            shards are damaged; or the same arguments would name `out` too.
    """
    given: list[_Listed | NamedShard] = []
    skipped, broken = Counter[str](), dict[str, InputError]()
    for _, group in _given(arguments, options, out):
        if isinstance(group, NamedShard):
            try:
                skipped.update(opened(group.address).skipped)
            except InputError as error:
                broken[group.name] = error
                continue
        given.append(group)
    if skipped:
        note(f"skipped in the shards: {', '.join(f'{count:,} {ending}' for ending, count in skipped.most_common(6))}")
    names = Texts(name for group in given for name in _names(group))
    paths = Texts(path for group in given for path in _paths(group))
    if broken and not names:
        raise next(iter(broken.values()))
    _refuse_repeated(names, paths)
    causes = {name: shard_cause(each) for name, each in broken.items()}
    return NamedImages(names, ImageFiles(names if names == paths else paths), causes)


def shard_cause(error: InputError) -> str:
    """Why a shard cannot be read, for a line that begins with its name."""
    return "; ".join(filter(None, (error.got, error.allowed, error.hint)))


def named_shards(
    arguments: Sequence[str], options: TableOptions | None = None, out: Path | None = None
) -> list[NamedShard]:
    """The shards that a command names, as `named_images` finds them; they are not opened.

    Raises:
        InputError: something is not a shard, there is no such file, or the same arguments would name `out` too.
    """
    shards = []
    for argument, group in _given(arguments, options, out):
        if isinstance(group, NamedShard):
            shards.append(group)
        elif group.names:
            allowed = "must be shards: .tar, Parquet, or a data set of Hugging Face"
            raise InputError(argument, "images", allowed, "or write one file: --out FILE.parquet")
    return shards


class _Listed(NamedTuple):
    """Image files by name."""

    names: list[str]
    paths: list[str]


def _names(group: _Listed | NamedShard) -> Iterable[str]:
    if isinstance(group, NamedShard):
        return (f"{group.name}/{name}" for name in opened(group.address).names)
    return group.names


def _paths(group: _Listed | NamedShard) -> Iterable[str]:
    return map(group.address.path, opened(group.address).names) if isinstance(group, NamedShard) else group.paths


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


def _given(
    arguments: Sequence[str], options: TableOptions | None, out: Path | None
) -> list[tuple[str, _Listed | NamedShard]]:
    """What the arguments name, each with its argument. Of several wrong ones, all are printed but the first.

    Raises:
        InputError: that of the first wrong one.
    """
    given: list[tuple[str, _Listed | NamedShard]] = []
    refused: list[InputError] = []
    for argument in arguments:
        try:
            given += ((argument, group) for group in _named(argument, options, out))
        except InputError as error:
            refused.append(error)
    for other in refused[1:]:
        note(str(other))
    if refused:
        raise refused[0]
    return given


def _named(argument: str, options: TableOptions | None, out: Path | None) -> Iterator[_Listed | NamedShard]:
    """What an argument names."""
    if argument.startswith("@"):
        folder, names = _listed(argument, options)
        listed = _Listed([], [])
        for name in names:
            candidates = [folder / spelling for spelling in spellings(written_path(name))]
            path = next(filter(os.path.exists, candidates), candidates[0])
            if is_shard(path.name) and path.is_file():
                yield listed
                yield NamedShard(name, Address(str(path)), path.name)
                listed = _Listed([], [])
            else:
                listed.names.append(name)
                listed.paths.append(str(path))
        yield listed
        return
    found, part = _expanded(argument)
    if out is not None and found != [argument] and out.absolute().match(str(Path(argument).expanduser().absolute())):
        raise InputError(str(out), f"one of {argument}, which are read", hint="write it elsewhere")
    for name in found:
        path = Path(name).expanduser()
        if os.path.isdir(path):  # noqa: PTH112  # False for a name that is too long
            yield from _in_folder(path, part, out)
        elif not os.path.exists(path):  # noqa: PTH110
            yield _in_shard(name, path)
        elif is_shard(path.name):  # of `a.tar/` too
            yield NamedShard(f"{name.rstrip('/')}{part}", Address(str(path), part), path.name)
        else:
            refuse_compressed(path)
            if part:
                raise InputError(argument, f"{name} is not a shard", hint=f"omit '{part}'")
            yield _Listed([name], [str(path)])


def changed(files: Mapping[str, str], made: str | Path, remedy: str) -> InputError:
    """The error of image files, or of shards, that are not those that were embedded.

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


def _in_shard(name: str, path: Path) -> _Listed:
    """A single image in a shard."""
    found = find(path)
    if found is None:
        raise InputError(name, "no such file or folder", hint=similar_name(path, IMAGE_SUFFIXES))
    shard = opened(found[0])
    if shard.row(found[1]) is None:
        raise InputError(name, f"no such image in {found[0]}", hint=f"its first one is {shard.names[0]}")
    return _Listed([name], [str(path)])


def _in_folder(folder: Path, part: str, out: Path | None = None) -> Iterator[_Listed | NamedShard]:
    """The images of a folder; if it has none, or a part of shards is chosen, its shards.

    Embeddings and indexes may be written in a folder of images, which a later command skips there, but not in one of
    shards: they may be Parquet files too.
    """
    walked = list(walk(folder))
    has_images = not part and any(images_among(names) for _, names in walked)
    shards = [] if has_images else shards_among(walked)
    is_read = bool(shards) or (out is not None and out.suffix.lower() in IMAGE_SUFFIXES)
    if is_read and out is not None and out.resolve().is_relative_to(folder.resolve()):
        got = f"in the folder of {'shards' if shards else 'images'} that is read, {folder}"
        raise InputError(str(out), got, hint="write it elsewhere")
    if not has_images:
        for path in sorted(shards, key=lambda path: path.relative_to(folder).as_posix()):
            below = path.relative_to(folder).as_posix()
            yield NamedShard(f"{below}{part}", Address(str(path), part), below)
        if shards:
            others = [name for place, names in walked for name in names if place / name not in {*shards}]
            if skipped := skipped_text([name for name in others if name not in DATASET_FILES]):
                note(f"{folder}: skipped {skipped}")
            return
        if part:
            raise InputError(str(folder), "a folder without shards", hint=f"omit '{part}'")
    files = images_below(folder)
    yield _Listed([file.relative_to(folder).as_posix() for file in files], [*map(str, files)])


def _expanded(argument: str) -> tuple[list[str], str]:
    """The paths that an argument stands for, and what it chooses in shards: ":image"."""
    chosen = re.fullmatch(r"(.+?)((?::[^:/\\]*){1,2})", argument)
    for pattern, part in ((argument, ""), *([] if chosen is None else [(chosen[1], chosen[2])])):
        if os.path.exists(os.path.expanduser(pattern)):  # noqa: PTH110, PTH111
            return [pattern], part
        if _RANGE.search(pattern):
            return _numbered(pattern), part
        if any(character in pattern for character in "*?[") and find(pattern) is None:
            matches = glob.glob(os.path.expanduser(pattern), recursive=True)  # noqa: PTH111, PTH207
            if matches:
                return sorted(matches), part
    return [argument], ""


def _numbered(pattern: str) -> list[str]:
    """The names that `{0000..0042}` stands for, as a shell writes them."""
    match = _RANGE.search(pattern)
    if match is None:
        return [pattern]
    first, last = int(match[1]), int(match[2])
    if not 0 <= last - first < _MOST_NUMBERED:
        raise InputError(pattern, match[0], f"must ascend, and have at most {_MOST_NUMBERED:,} numbers")
    begin, end = pattern[: match.start()], pattern[match.end() :]
    width = len(match[1]) if match[1].startswith("0") else 0
    return [name for number in range(first, last + 1) for name in _numbered(f"{begin}{number:0{width}d}{end}")]


#: Numbers in braces, and how many they may be.
_RANGE, _MOST_NUMBERED = re.compile(r"\{(\d{1,9})\.\.(\d{1,9})\}"), 1_000_000


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
    labels = VectorLabels(torch.zeros(len(items)))
    if isinstance(items, NamedImages):
        return Split(items.files, items.names, labels)
    return Split([item.source for item in items], [item.name for item in items], labels)
