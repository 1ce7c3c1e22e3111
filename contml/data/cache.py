"""A cache of decoded and resized images in a folder: a file of pixels, read as a memory map, and an index.

`resized-SIDE.pixels` holds SIDE x SIDE x 3 bytes per image and is only appended to. A line of `resized-SIDE.index` has
the file of an image (path, crop, size, modification time), its position in the pixels, the error if it is broken, and
a checksum of all this and the pixels. A line is written after its pixels are on disk. So a crash loses only the images
since the last line, an image whose file has changed is appended again, and no process overwrites what another reads.
An image whose line or pixels are damaged is decoded again.
"""

from __future__ import annotations

import json
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
from filelock import FileLock, Timeout

from contml._support.errors import InputError
from contml._support.files import check_new_folder
from contml._support.progress import progress_bar
from contml.data.decode import PixelArray
from contml.data.split import Split

if TYPE_CHECKING:
    from contml.data.batch import Batch

#: What the folder has, and the files of `contml.distances.cache`, which may share it.
_FILES = ("resized-*", "*.safetensors", "*.parts")
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


class CachedImage(NamedTuple):
    """Where the pixels of an image are, and why it cannot be decoded.

    `line_checksum` is that of the line up to here, `checksum` that of the line and the pixels.
    """

    position: int
    cause: str
    line_checksum: int = 0
    checksum: int = 0


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
    """The images of one split in a cache. Each process opens the file itself."""

    def __init__(self, pixels: Path, side: int, entries: list[CachedImage]) -> None:
        self.pixels, self.side = pixels, side
        self.positions = np.array([entry.position for entry in entries], np.int64)
        self._checksums = np.array([entry[2:] for entry in entries], np.uint32).reshape(-1, 2)
        self._map: PixelArray | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_map": None}  # pickling would copy the whole memory map

    def get(self, row: int) -> PixelArray | None:
        """Returns the image of a row, uint8 `[side, side, 3]`; None if it is not in the cache, or damaged."""
        position = int(self.positions[row])
        if position == _NO_POSITION:
            return None
        if self._map is None:
            shape = (int(self.positions.max()) + 1, self.side, self.side, 3)
            # Copy on write, since torch needs a writable array; nothing is written.
            self._map = np.asarray(np.memmap(self.pixels, np.uint8, "c", shape=shape))
        image = np.asarray(self._map[position])
        start, expected = self._checksums[row].tolist()
        return image if zlib.crc32(image.data, start) == expected else None


class ImageCache:
    """Images of one size in a folder, from any number of splits."""

    def __init__(self, folder: Path, side: int) -> None:
        self.folder, self.side = folder.expanduser(), side
        self.pixels, self.index, self._lock = (
            self.folder / f"resized-{side}.{ending}" for ending in ("pixels", "index", "lock")
        )
        self._bytes = side * side * 3  # per image

    def fill(
        self, split: Split, decode: Callable[[list[int]], Iterable[Batch]], causes: dict[str, str]
    ) -> tuple[CachedImages, CacheReport]:
        """Adds the missing images of a split.

        Args:
            split: where the images come from.
            decode: yields rows in batches of `CHUNK`, resized and not cropped, without broken images.
            causes: the reason for each image that cannot be decoded, by name; filled by `decode`.

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
                    self._add(split, rows, states, decode(rows), causes)
            index, _ = self._load()
        entries = [CachedImage(_NO_POSITION, state) if isinstance(state, str) else index[state] for state in states]
        size = self.pixels.stat().st_size if self.pixels.exists() else 0
        broken = [(split.name(row), entry.cause) for row, entry in enumerate(entries) if entry.cause]
        return CachedImages(self.pixels, self.side, entries), CacheReport(len(split), added, broken, size)

    def _load(self) -> tuple[Index, int]:
        """Returns the index, and the number of images in the file of pixels, including replaced ones.

        Omits damaged lines, and lines whose pixels are missing from the file.
        """
        for path in (self.index, self.pixels):
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
        num_images = (self.pixels.stat().st_size if self.pixels.is_file() else 0) // self._bytes
        parsed_lines = [_parse(line) for line in lines]
        index = {state: entry for state, entry in filter(None, parsed_lines) if entry.position < num_images}
        if None in parsed_lines:  # which pixels belong to a damaged line is not known
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
        images = f"{count:,} images of {self.side} x {self.side} pixels"
        if needed > free:
            got = f"{images} need {_gigabytes(needed)}, and {_gigabytes(free)} are free"
            raise InputError(f"cache {self.folder}", got, hint="free some space, or name another folder")
        if count:
            sys.stderr.write(f"decoding {images} into {self.folder} ({_gigabytes(needed)})\n")

    def _cut_unfinished(self, count: int) -> None:
        """Removes what a crash left: part of a line, and pixels without a line."""
        if self.index.exists():
            os.truncate(self.index, self.index.read_bytes().rfind(b"\n") + 1)
        if self.pixels.exists():
            os.truncate(self.pixels, self._bytes * count)

    def _add(
        self, split: Split, rows: list[int], states: States, batches: Iterable[Batch], causes: dict[str, str]
    ) -> None:
        with self.pixels.open("ab", buffering=0) as pixels, progress_bar(len(rows), "decoding images") as progress:
            end, lines, saved = pixels.tell() // self._bytes, [], time.monotonic()
            try:
                for start, batch in zip(range(0, len(rows), CHUNK), batches, strict=True):
                    content = batch.images.permute(0, 2, 3, 1).flatten().numpy().data
                    _write(pixels, content)
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
                        self._save_lines(pixels, lines)
                        saved = time.monotonic()
            finally:  # also after an interrupt
                self._save_lines(pixels, lines)

    def _save_lines(self, pixels: RawIOBase, lines: list[str]) -> None:
        """Appends lines to the index, after their pixels are on disk."""
        os.fsync(pixels.fileno())
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
    """The image and the entry of a line of the index; None if it is damaged. Pixels are checked when they are read."""
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
            stat = stamp.file.stat()
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
