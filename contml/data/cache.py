"""Images decoded and resized once, in a folder: a file of pixels that is read as a memory map, and an index.

`resized-SIDE.pixels` holds SIDE x SIDE x 3 bytes an image and is only ever appended to. A line of `resized-SIDE.index`
says where an image is, and of which file: its path, size and time of change. Lines are written after their pixels are
on disk. So a crash costs the images since the last line, an image whose file has changed gets a new place, and what one
process reads is never written by another.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import RawIOBase
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from filelock import FileLock, Timeout
from rich.console import Console

from contml._support.errors import InputError
from contml._support.progress import progress_bar
from contml.data.batch import Batch
from contml.data.kept import NONE, Kept
from contml.data.split import Split

#: Images are decoded this many at a time.
CHUNK = 64
#: The index is brought up to date after so many seconds.
_SECONDS = 2.0


class Stamp(NamedTuple):
    """The file of an image, how the image is cut from it ("" the whole), the file's size and time of change (ns)."""

    file: str
    how: str
    size: int
    changed: int


class Entry(NamedTuple):
    """A line of the index: an image, its place in the file of pixels, and why it has none."""

    stamp: Stamp
    place: int
    cause: str


@dataclass(frozen=True)
class CacheReport:
    """What filling a cache found.

    Args:
        images: images of the split.
        added: how many were decoded now; the others were kept already.
        broken: name and cause of those that cannot be decoded.
        size: bytes of all pixels in the folder, of other splits too; 0 where there is no cache.
    """

    images: int
    added: int
    broken: list[tuple[str, str]] = field(default_factory=list)
    size: int = 0


class Cache:
    """Images of one size in a folder, of any number of splits."""

    def __init__(self, folder: Path, side: int) -> None:
        self.folder, self.side = folder.expanduser(), side
        self.pixels = self.folder / f"resized-{side}.pixels"
        self.index = self.folder / f"resized-{side}.index"
        self._lock = self.folder / f"resized-{side}.lock"

    def fill(
        self, split: Split, decode: Callable[[list[int]], Iterable[Batch]], causes: dict[str, str]
    ) -> tuple[Kept, CacheReport]:
        """Add what is missing of a split.

        Args:
            split: where the images are from.
            decode: gives rows in batches of `CHUNK`, resized and not cropped, without those that cannot be decoded.
            causes: why these cannot, by name; filled by `decode`.

        Raises:
            InputError: the folder cannot be written or holds something else, or the images come from no files.
        """
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(f"cache {self.folder}: is a file; name a folder")
        stamps, absent = _stamps(split)
        (entries, _), added = self._load(), 0
        if _missing(stamps, entries):
            with self._writing():
                entries, count = self._load()  # another process may have added them meanwhile
                rows = _missing(stamps, entries)
                self._check_space(len(rows))
                self._cut_unfinished(count)
                added = self._add(split, rows, stamps, decode, causes) if rows else 0
            entries, _ = self._load()
        found = [None if stamp is None else _current(stamp, entries) for stamp in stamps]
        broken = absent | {row: entry.cause for row, entry in enumerate(found) if entry is not None and entry.cause}
        places = np.array([NONE if entry is None else entry.place for entry in found], np.int64)
        size = self.pixels.stat().st_size if self.pixels.exists() else 0
        named = [(split.name(row), cause) for row, cause in sorted(broken.items())]
        return Kept(self.pixels, self.side, places), CacheReport(len(split), added, named, size)

    @property
    def _bytes(self) -> int:
        return self.side * self.side * 3

    def _load(self) -> tuple[dict[tuple[str, str], Entry], int]:
        """What the index says of each image, and how many images the file of pixels holds, replaced ones too."""
        try:
            lines = self.index.read_bytes().split(b"\n")[:-1]  # what follows the last line's end was cut by a crash
        except (FileNotFoundError, NotADirectoryError):
            return {}, 0
        except OSError as error:
            raise InputError(f"{self.index}: cannot be read ({error.strerror}); name another folder") from None
        entries, count = {}, 0
        for number, line in enumerate(lines, 1):
            try:
                *stamp, place, cause = json.loads(line)
                entry = Entry(Stamp(*stamp), int(place), str(cause))
            except (TypeError, ValueError):
                raise InputError(
                    f"{self.index}:{number}: not an image's line; delete {self.folder}, and it is filled anew"
                ) from None
            entries[entry.stamp[:2]] = entry  # a later line holds
            count = max(count, entry.place + 1)
        needed = self._bytes * count
        there = self.pixels.stat().st_size if self.pixels.is_file() else 0
        if there < needed:
            raise InputError(
                f"{self.pixels}: has {there:,} bytes where its index names {needed:,}; delete {self.folder}, and it is "
                "filled anew"
            )
        return entries, count

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One process writes at a time; whatever the disk says against it is one line."""
        console = Console(stderr=True, highlight=False)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self._lock)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                console.print(f"waiting for another process that adds images to {self.folder}", soft_wrap=True)
                lock.acquire()
            try:
                yield
            finally:
                lock.release()
        except (OSError, NotImplementedError) as error:
            what = (error.strerror if isinstance(error, OSError) else None) or str(error)
            raise InputError(
                f"cache {self.folder}: cannot be written ({what}); make room there, or name another folder"
            ) from None

    def _check_space(self, count: int) -> None:
        needed, free = count * self._bytes, shutil.disk_usage(self.folder).free
        what = f"{count:,} images of {self.side} x {self.side} pixels"
        if needed > free:
            raise InputError(
                f"cache {self.folder}: {what} take {_gigabytes(needed)}, and {_gigabytes(free)} are free there; "
                "make room, or name another folder"
            )
        if count:
            console = Console(stderr=True, highlight=False)
            console.print(f"decoding {what} into {self.folder} ({_gigabytes(needed)})", soft_wrap=True)

    def _cut_unfinished(self, count: int) -> None:
        """Cut off what a crash left: half a line, and pixels that no line names."""
        if self.index.exists():
            whole = self.index.read_bytes().rfind(b"\n") + 1
            os.truncate(self.index, whole)
        if self.pixels.exists():
            os.truncate(self.pixels, self._bytes * count)

    def _add(
        self,
        split: Split,
        rows: list[int],
        stamps: Sequence[Stamp | None],
        decode: Callable[[list[int]], Iterable[Batch]],
        causes: dict[str, str],
    ) -> int:
        with self.pixels.open("ab", buffering=0) as pixels, progress_bar(len(rows), "decoding images") as progress:
            place, lines, saved = pixels.tell() // self._bytes, [], time.monotonic()
            try:
                for number, batch in enumerate(decode(rows)):
                    _write(pixels, batch.images.permute(0, 2, 3, 1).flatten().numpy().data)
                    good = {int(row): place + at for at, row in enumerate(batch.rows)}
                    place += len(good)
                    for row in rows[number * CHUNK : (number + 1) * CHUNK]:
                        cause = "" if row in good else causes[split.name(row)]
                        lines.append((*(stamps[row] or ()), good.get(row, NONE), cause))
                    progress(min(len(rows), (number + 1) * CHUNK))
                    if time.monotonic() - saved > _SECONDS:
                        self._name(pixels, lines)
                        saved = time.monotonic()
            finally:  # also what was done when something stopped it
                self._name(pixels, lines)
        return len(rows)

    def _name(self, pixels: RawIOBase, lines: list[Any]) -> None:
        """Write the lines of pixels that are written, once they are on disk."""
        os.fsync(pixels.fileno())
        with self.index.open("ab", buffering=0) as index:
            before = index.tell()
            try:
                _write(index, "".join(json.dumps(line) + "\n" for line in lines).encode())
            except OSError:
                index.truncate(before)
                raise
        lines.clear()


def _stamps(split: Split) -> tuple[list[Stamp | None], dict[int, str]]:
    """The stamp of every row, None where there is no such file, and why not by row."""
    stamps: list[Stamp | None] = []
    absent: dict[int, str] = {}
    for row in range(len(split)):
        made_of = split.stamp(row)
        if made_of is None:
            raise InputError(
                f"cache: {split.name(row)} comes from no file, but is made by the data set, so that a change would not "
                "be seen; leave out the cache"
            )
        try:
            state = made_of.file.stat()
            stamps.append(Stamp(str(made_of.file.absolute()), made_of.how, state.st_size, state.st_mtime_ns))
        except OSError as error:
            stamps.append(None)
            absent[row] = error.strerror or str(error)
    return stamps, absent


def _missing(stamps: Sequence[Stamp | None], entries: dict[tuple[str, str], Entry]) -> list[int]:
    """Rows whose images are not in the index as their files are now; one of several that share an image."""
    new = {stamp[:2]: row for row, stamp in enumerate(stamps) if stamp and _current(stamp, entries) is None}
    return sorted(new.values())


def _current(stamp: Stamp, entries: dict[tuple[str, str], Entry]) -> Entry | None:
    entry = entries.get(stamp[:2])
    return entry if entry is not None and entry.stamp == stamp else None


def _write(file: RawIOBase, content: bytes | memoryview) -> None:
    left = memoryview(content)
    while left:
        left = left[file.write(left) or 0 :]


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"
