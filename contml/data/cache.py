"""A cache of decoded and resized images in a folder: a file of pixels, read as a memory map, and an index.

`resized-SIDE.pixels` holds SIDE x SIDE x 3 bytes per image and is only appended to. A line of `resized-SIDE.index` has
the file of an image (path, crop, size, modification time), its position in the pixels, and the error if it is broken.
A line is written after its pixels are on disk. So a crash loses only the images since the last line, an image whose
file has changed is appended again, and no process overwrites what another one reads.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import RawIOBase
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from filelock import FileLock, Timeout

from contml._support.errors import InputError
from contml._support.progress import progress_bar
from contml.data.sources import PixelArray
from contml.data.split import Split

if TYPE_CHECKING:
    from contml.data.batch import Batch

#: How many images are decoded at a time.
CHUNK = 64
#: Seconds between two updates of the index.
_INDEX_INTERVAL = 2.0
#: The position of an image that is broken, or not in the cache.
_NO_POSITION = -1


class FileState(NamedTuple):
    """The file of an image, how the image is cut from it ("" for all of it), and the file's size and mtime in ns."""

    file: str
    how: str
    size: int
    changed: int


class Entry(NamedTuple):
    """Where the pixels of an image are, and why it cannot be decoded."""

    position: int
    cause: str


#: The file state of each row, or why its file cannot be found.
States: TypeAlias = "list[FileState | str]"
Index: TypeAlias = dict[FileState, Entry]


@dataclass(frozen=True)
class CacheReport:
    """The result of filling a cache.

    Args:
        images: number of images of the split.
        added: number of images decoded now; the others were in the cache.
        broken: name and cause of each image that cannot be decoded.
        size: bytes of all pixels in the folder, including those of other splits; 0 without a cache.
    """

    images: int
    added: int
    broken: list[tuple[str, str]] = field(default_factory=list)
    size: int = 0


class CachedImages:
    """The images of one split in a cache. Each process opens the file itself."""

    def __init__(self, pixels: Path, side: int, positions: np.ndarray[Any, np.dtype[np.int64]]) -> None:
        self.pixels, self.side, self.positions = pixels, side, positions
        self._map: PixelArray | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_map": None}  # pickling would copy the whole memory map

    def get(self, row: int) -> PixelArray | None:
        """Returns the image of a row, uint8 `[side, side, 3]`; None if it is not in the cache."""
        position = int(self.positions[row])
        if position == _NO_POSITION:
            return None
        if self._map is None:
            shape = (int(self.positions.max()) + 1, self.side, self.side, 3)
            # Copy on write, since torch needs a writable array; nothing is written.
            self._map = np.asarray(np.memmap(self.pixels, np.uint8, "c", shape=shape))
        return np.asarray(self._map[position])


class Cache:
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
        entries = [Entry(_NO_POSITION, state) if isinstance(state, str) else index[state] for state in states]
        positions = np.array([entry.position for entry in entries], np.int64)
        size = self.pixels.stat().st_size if self.pixels.exists() else 0
        broken = [(split.name(row), entry.cause) for row, entry in enumerate(entries) if entry.cause]
        return CachedImages(self.pixels, self.side, positions), CacheReport(len(split), added, broken, size)

    def _load(self) -> tuple[Index, int]:
        """Returns the index, and the number of images in the file of pixels, including replaced ones."""
        try:
            lines = self.index.read_bytes().split(b"\n")[:-1]  # a crash may have cut a last line short
        except (FileNotFoundError, NotADirectoryError):
            return {}, 0
        except OSError as error:
            raise InputError(
                str(self.index), f"cannot be read ({error.strerror})", hint="name another folder"
            ) from None
        index: Index = {}
        count = 0
        hint = f"delete {self.folder}, and it is filled again"
        for number, line in enumerate(lines, 1):
            try:
                *state, position, cause = json.loads(line)
                index[FileState(*state)] = Entry(int(position), str(cause))
            except (TypeError, ValueError):
                raise InputError(f"{self.index}:{number}", "not the entry of an image", hint=hint) from None
            count = max(count, int(position) + 1)
        needed = self._bytes * count
        size = self.pixels.stat().st_size if self.pixels.is_file() else 0
        if size < needed:
            raise InputError(str(self.pixels), f"{size:,} bytes", f"its index needs {needed:,}", hint)
        return index, count

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
                    _write(pixels, batch.images.permute(0, 2, 3, 1).flatten().numpy().data)
                    positions = {int(row): end + number for number, row in enumerate(batch.rows)}
                    end += len(positions)
                    chunk = rows[start : start + CHUNK]
                    for row in chunk:
                        cause = "" if row in positions else causes[split.name(row)]
                        lines.append((*states[row], positions.get(row, _NO_POSITION), cause))
                    progress(start + len(chunk))
                    if time.monotonic() - saved > _INDEX_INTERVAL:
                        self._save_lines(pixels, lines)
                        saved = time.monotonic()
            finally:  # also after an interrupt
                self._save_lines(pixels, lines)

    def _save_lines(self, pixels: RawIOBase, lines: list[Any]) -> None:
        """Appends lines to the index, after their pixels are on disk."""
        os.fsync(pixels.fileno())
        with self.index.open("ab", buffering=0) as index:
            before = index.tell()
            try:
                _write(index, "".join(json.dumps(line) + "\n" for line in lines).encode())
            except OSError:
                index.truncate(before)
                raise
        lines.clear()


def _file_states(split: Split) -> States:
    """Returns the file state of every row, or why its file cannot be found."""
    states: States = []
    for row in range(len(split)):
        stamp = split.stamp(row)
        if stamp is None:
            got = f"{split.name(row)} comes from no file, so that a change would not be noticed"
            raise InputError("cache", got, hint="omit the cache")
        try:
            found = stamp.file.stat()
            states.append(FileState(str(stamp.file.absolute()), stamp.how, found.st_size, found.st_mtime_ns))
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
