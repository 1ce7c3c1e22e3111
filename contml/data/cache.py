"""A cache of what is made of images, in a folder: a file of arrays, read as a memory map, and an index.

What is made are resized pixels, or the features of a frozen backbone. `resized-SIDE.pixels` holds SIDE x SIDE x 3 bytes
per image, `features-KEY.vectors` a vector of float32; both are only appended to. A line of `resized-SIDE.index` has
the file of an image (path, crop, size, modification time), its position in the arrays, the error if it is broken, and
a checksum of all this and the array. A line is written after its array is on disk. So a crash loses only the images
since the last line, an image whose file has changed is appended again, and no process overwrites what another reads.
An image whose line or array is damaged is made again.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import RawIOBase
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import torch
from filelock import FileLock, Timeout

from contml._support.errors import InputError
from contml._support.files import check_new_folder
from contml._support.progress import progress_bar
from contml.data.split import Split

if TYPE_CHECKING:
    from contml.data.batch import Batch

#: What the folder has, and the files of `contml.distances.cache`, which may share it.
_FILES = ("resized-*", "features-*", "*.safetensors", "*.parts")
#: How many images are decoded at a time.
CHUNK = 64
#: Seconds between two updates of the index.
_INDEX_INTERVAL = 2.0
#: The position of an image that is broken, or not in the cache.
_NO_POSITION = -1


class FileState(NamedTuple):
    """The file of an image, how the image is cut from it ("" for all of it), and the file's size and mtime in ns."""

    file: str
    crop: str
    size: int
    changed: int


class CacheKind(NamedTuple):
    """What a cache holds of each image.

    Attributes:
        name: of its files: "resized-224", "features-KEY".
        suffix: of the file of arrays: "pixels", "vectors".
        shape: of the array of an image.
        dtype: of its numbers.
        title: of many of them, after their number: "images of 224 x 224 pixels".
    """

    name: str
    suffix: str
    shape: tuple[int, ...]
    dtype: str
    title: str

    @classmethod
    def resized(cls, side: int) -> CacheKind:
        """Pixels, uint8 `[side, side, 3]`."""
        return cls(f"resized-{side}", "pixels", (side, side, 3), "uint8", f"images of {side} x {side} pixels")

    @classmethod
    def features(cls, key: str, dim: int) -> CacheKind:
        """Features, float32 `[dim]`, of what the key names."""
        return cls(f"features-{key}", "vectors", (dim,), "float32", f"images as features of {dim:,} numbers")


class CachedImage(NamedTuple):
    """Where the array of an image is, and why it cannot be decoded.

    `line_checksum` is that of the line up to here, `checksum` that of the line and the array.
    """

    position: int
    cause: str
    line_checksum: int = 0
    checksum: int = 0


Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
#: The file state of each row, or why its file cannot be found.
States: TypeAlias = "list[FileState | str]"
Index: TypeAlias = dict[FileState, CachedImage]


@dataclass(frozen=True)
class CacheReport:
    """The result of filling a cache.

    Args:
        images: number of images of the split.
        added: number of images decoded now; the others were in the cache.
        broken: name and cause of each image that cannot be decoded.
        size: bytes of all pixels in the folder, including the images of other splits; 0 without a cache.
    """

    images: int
    added: int
    broken: list[tuple[str, str]] = field(default_factory=list)
    size: int = 0


class CachedImages:
    """The images of one split in a cache. Each process opens the file itself, and checks an image at its first read."""

    def __init__(self, file: Path, kind: CacheKind, entries: list[CachedImage]) -> None:
        self.file, self.kind = file, kind
        self.positions = np.array([entry.position for entry in entries], np.int64)
        self._checksums = np.array([entry[2:] for entry in entries], np.uint32).reshape(-1, 2)
        self._is_checked = np.zeros(len(entries), bool)
        self._map: Array | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Pickling would copy the whole memory map.
        return {**self.__dict__, "_map": None, "_is_checked": np.zeros_like(self._is_checked)}

    def is_broken(self, row: int) -> bool:
        """Whether the image of a row cannot be decoded."""
        return bool(self.positions[row] == _NO_POSITION)

    def get(self, row: int) -> Array | None:
        """Returns the array of a row, such as pixels `[side, side, 3]`; None if it is not in the cache, or damaged."""
        position = int(self.positions[row])
        if position == _NO_POSITION:
            return None
        if self._map is None:
            shape = (int(self.positions.max()) + 1, *self.kind.shape)
            # Copy on write, since torch needs a writable array; nothing is written.
            self._map = np.asarray(np.memmap(self.file, self.kind.dtype, "c", shape=shape))
        array: Array = np.asarray(self._map[position])
        if not self._is_checked[row]:
            start, expected = self._checksums[row].tolist()
            if zlib.crc32(array.data, start) != expected:
                return None
            self._is_checked[row] = True
        return array


class ImageCache:
    """Arrays of one kind in a folder, of the images of any number of splits."""

    def __init__(self, folder: Path, kind: CacheKind) -> None:
        self.folder, self.kind = folder.expanduser(), kind
        self.arrays, self.index, self._lock = (
            self.folder / f"{kind.name}.{ending}" for ending in (kind.suffix, "index", "lock")
        )
        self._bytes = math.prod(kind.shape) * np.dtype(kind.dtype).itemsize  # per image

    def fill(
        self, split: Split, make: Callable[[list[int]], Iterable[Batch]], causes: dict[str, str]
    ) -> tuple[CachedImages, CacheReport]:
        """Adds the missing images of a split.

        Args:
            split: where the images come from.
            make: yields rows in batches of `CHUNK`, without broken images: resized and not cropped, or features.
            causes: the reason for each image that cannot be decoded, by name; filled by `make`.

        Raises:
            InputError: the folder cannot be written or is damaged, or the images come from no files.
        """
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(f"cache {self.folder}", "is a file", hint="name a folder")
        if not self.index.exists():
            check_new_folder(self.folder, _FILES)
        states = _file_states(split)
        index, _ = self._load()
        added = 0
        if _missing(states, index):
            with self._write_lock():
                index, count = self._load()  # another process may have added them meanwhile
                rows = _missing(states, index)
                added = len(rows)
                self._check_space(added)
                self._cut_unfinished(count)
                if rows:
                    self._add(split, rows, states, make(rows), causes)
            index, _ = self._load()
        entries = [CachedImage(_NO_POSITION, state) if isinstance(state, str) else index[state] for state in states]
        size = self.arrays.stat().st_size if self.arrays.exists() else 0
        broken = [(split.name(row), entry.cause) for row, entry in enumerate(entries) if entry.cause]
        return CachedImages(self.arrays, self.kind, entries), CacheReport(len(split), added, broken, size)

    def _load(self) -> tuple[Index, int]:
        """Returns the index, and the number of images in the file of arrays, including replaced ones.

        Omits damaged lines, and lines whose array is missing from the file.
        """
        for path in (self.index, self.arrays):
            if path.exists() and not path.is_file():
                raise InputError(str(path), "not a file", hint=f"remove it, and {self.folder} is filled again")
        try:
            lines = self.index.read_bytes().split(b"\n")[:-1]  # a crash may have cut a last line short
        except (FileNotFoundError, NotADirectoryError):
            return {}, 0
        except OSError as error:
            raise InputError(
                str(self.index), f"cannot be read ({error.strerror})", hint="name another folder"
            ) from None
        num_images = (self.arrays.stat().st_size if self.arrays.is_file() else 0) // self._bytes
        parsed_lines = [_parse(line) for line in lines]
        index = {state: entry for state, entry in filter(None, parsed_lines) if entry.position < num_images}
        if None in parsed_lines:  # which array belongs to a damaged line is not known
            return index, num_images
        return index, 1 + max((entry.position for entry in index.values()), default=_NO_POSITION)

    @contextmanager
    def _write_lock(self) -> Iterator[None]:
        """Holds the lock of the folder, so that one process writes at a time; disk errors become InputErrors."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self._lock)
            try:
                acquired = lock.acquire(timeout=0)
            except Timeout:
                sys.stderr.write(f"waiting for another process that adds images to {self.folder}\n")
                acquired = lock.acquire()
            with acquired:
                yield
        except (OSError, NotImplementedError) as error:
            cause = (error.strerror if isinstance(error, OSError) else None) or str(error)
            hint = "free some space, or name another folder"
            raise InputError(f"cache {self.folder}", f"cannot be written ({cause})", hint=hint) from None

    def _check_space(self, count: int) -> None:
        needed, free = count * self._bytes, shutil.disk_usage(self.folder).free
        images = f"{count:,} {self.kind.title}"
        if needed > free:
            got = f"{images} need {_gigabytes(needed)}, and {_gigabytes(free)} are free"
            raise InputError(f"cache {self.folder}", got, hint="free some space, or name another folder")
        if count:
            sys.stderr.write(f"decoding {images} into {self.folder} ({_gigabytes(needed)})\n")

    def _cut_unfinished(self, count: int) -> None:
        """Removes what a crash left: part of a line, and arrays without a line."""
        if self.index.exists():
            os.truncate(self.index, self.index.read_bytes().rfind(b"\n") + 1)
        if self.arrays.exists():
            os.truncate(self.arrays, self._bytes * count)

    def _add(
        self, split: Split, rows: list[int], states: States, batches: Iterable[Batch], causes: dict[str, str]
    ) -> None:
        with self.arrays.open("ab", buffering=0) as arrays, progress_bar(len(rows), "decoding images") as progress:
            end, lines, saved = arrays.tell() // self._bytes, [], time.monotonic()
            try:
                for start, batch in zip(range(0, len(rows), CHUNK), batches, strict=True):
                    values = batch.images if batch.images.ndim == 2 else batch.images.permute(0, 2, 3, 1)
                    content = values.contiguous().flatten().view(torch.uint8).numpy().data
                    _write(arrays, content)
                    batch_indices = {int(row): batch_index for batch_index, row in enumerate(batch.rows)}
                    chunk = rows[start : start + CHUNK]
                    for row in chunk:
                        batch_index = batch_indices.get(row)
                        if batch_index is None:
                            lines.append(_line(states[row], _NO_POSITION, causes[split.name(row)], b""))
                        else:
                            image = content[batch_index * self._bytes : (batch_index + 1) * self._bytes]
                            lines.append(_line(states[row], end + batch_index, "", image))
                    end += len(batch_indices)
                    progress(start + len(chunk))
                    if time.monotonic() - saved > _INDEX_INTERVAL:
                        self._save_lines(arrays, lines)
                        saved = time.monotonic()
            finally:  # also after an interrupt
                self._save_lines(arrays, lines)

    def _save_lines(self, arrays: RawIOBase, lines: list[str]) -> None:
        """Appends lines to the index, after their arrays are on disk."""
        os.fsync(arrays.fileno())
        with self.index.open("ab", buffering=0) as index:
            old_size = index.tell()
            try:
                _write(index, "".join(lines).encode())
            except OSError:
                index.truncate(old_size)
                raise
        lines.clear()


def _line(state: FileState | str, position: int, cause: str, image: bytes | memoryview) -> str:
    """A line of the index, with its checksum."""
    values = [*state, position, cause]
    return json.dumps([*values, zlib.crc32(image, zlib.crc32(json.dumps(values).encode()))]) + "\n"


def _parse(line: bytes) -> tuple[FileState, CachedImage] | None:
    """The image and the entry of a line of the index; None if it is damaged. Arrays are checked when they are read."""
    try:
        *values, checksum = json.loads(line)
        file, how, size, changed, position, cause = values
    except (TypeError, ValueError, RecursionError):
        return None
    texts, numbers = (file, how, cause), (size, changed, position, checksum)
    if not all(isinstance(text, str) for text in texts) or not all(type(number) is int for number in numbers):
        return None
    start = zlib.crc32(json.dumps(values).encode())
    if position < _NO_POSITION or not 0 <= checksum < 1 << 32 or (position == _NO_POSITION and start != checksum):
        return None
    return FileState(file, how, size, changed), CachedImage(position, cause, start, checksum)


def _file_states(split: Split) -> States:
    """Returns the file state of every row, or why its file cannot be found."""
    states: States = []
    for row in range(len(split)):
        stamp = split.stamp(row)
        if stamp is None:
            got = f"{split.name(row)} comes from no file, so that a change would not be noticed"
            raise InputError("cache", got, hint="omit the cache")
        try:
            stat = stamp.stat()
            states.append(FileState(str(stamp.file.absolute()), stamp.crop, stat.st_size, stat.st_mtime_ns))
        except OSError as error:
            states.append(error.strerror or str(error))
    return states


def _missing(states: States, index: Index) -> list[int]:
    """Returns the rows that are not in the index with their present file state; one row per image."""
    rows = {state: row for row, state in enumerate(states) if not isinstance(state, str) and state not in index}
    return sorted(rows.values())


def _write(file: RawIOBase, content: bytes | memoryview) -> None:
    remaining = memoryview(content)
    while remaining:
        remaining = remaining[file.write(remaining) or 0 :]


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"
