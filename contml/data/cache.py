"""A cache of what is made of images, in a folder: a file of arrays and an index, both read as memory maps.

What is made are resized pixels, or the features of a frozen backbone. `resized-SIDE.pixels` holds SIDE x SIDE x 3 bytes
per image, `features-KEY.vectors` a vector of float32. `resized-SIDE.entries` is the index, 32 bytes per image:

    bytes   0 to 15    16 to 23            24 to 27    28 to 31
            digest     position in the     CRC-32 of   checksum of
            of a file  file of arrays      the array   this entry

The digest is that of the file of an image: path, crop, size, and times of change. The second time cannot be set: it
differs if a file was replaced by one of the same size and first time. The entry of a broken image has a position below
0 and is followed by the cause as text, in `-1 - position` times 32 bytes.

Both files are only appended to. An entry is written after its array is on disk. So a crash loses only the images since
the last entry, an image whose file has changed is appended again, and no process overwrites what another reads. An
image whose entry is damaged is made again; one whose array is damaged is made each time it is read.
"""

from __future__ import annotations

import hashlib
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
from contml._support.files import check_new_folder, refuse_links
from contml._support.progress import progress_bar
from contml.data.sources import PackedFiles
from contml.data.split import Split

if TYPE_CHECKING:
    from contml.data.split import Batch

#: What the folder has, and the files of `contml.labels.neighbours`, which may share it.
_FILES = ("resized-*", "features-*", "*.safetensors", "*.parts")
#: How many images are decoded at a time.
CHUNK = 64
#: Seconds between two updates of the index.
_INDEX_INTERVAL = 2.0
#: In place of a position: the image is not in the cache; it is broken.
_NOT_CACHED, _BROKEN = -1, -2
#: An entry of the index; digest, position and CRC-32 of the array or of the cause.
_ENTRY = np.dtype([("digest", "<u8", (2,)), ("position", "<i8"), ("content", "<u4"), ("check", "<u4")])
#: An odd number for their checksums: 2^64 divided by the golden ratio.
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
#: The most bytes of the cause why an image is broken.
_MOST_CAUSE = 4096
#: Entries that are compared at a time.
_BLOCK = 1 << 18


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


Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"


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
    """The images of one split in a cache. Each process opens the file itself, and checks an image at its first read.

    Args:
        file: the file of arrays.
        kind: what it holds.
        positions: of the array of each row in the file `[N]`; below 0 without one.
        checksums: the CRC-32 of each array `[N]`.
    """

    def __init__(self, file: Path, kind: CacheKind, positions: Array, checksums: Array) -> None:
        self.file, self.kind, self.positions, self._checksums = file, kind, positions, checksums
        self._is_checked = np.zeros(len(positions), bool)
        self._map: Array | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Pickling would copy the whole memory map.
        return {**self.__dict__, "_map": None, "_is_checked": np.zeros_like(self._is_checked)}

    def is_broken(self, row: int) -> bool:
        """Whether the image of a row cannot be decoded."""
        return bool(self.positions[row] == _BROKEN)

    def get(self, row: int) -> Array | None:
        """Returns the array of a row, such as pixels `[side, side, 3]`; None if it is not in the cache, or damaged."""
        position = int(self.positions[row])
        if position < 0:
            return None
        if self._map is None:
            shape = (int(self.positions.max()) + 1, *self.kind.shape)
            # Copy on write, since torch needs a writable array; nothing is written.
            self._map = np.asarray(np.memmap(self.file, self.kind.dtype, "c", shape=shape))
        array: Array = np.asarray(self._map[position])
        if not self._is_checked[row]:
            if zlib.crc32(array.data) != self._checksums[row]:
                return None
            self._is_checked[row] = True
        return array


class _DigestedFiles:
    """The files of the images of a split, as digests, to find the images in an index.

    Attributes:
        digests: of each row, uint64 `[N, 2]`; 0 where there is no such file.
        causes: why a file cannot be found, by row.
        order: the rows in the order of their digests.
        first: the place in this order of the first row of the same image `[N]`. N of an image whose digest only begins
            as that of another: it is not cached.
    """

    def __init__(self, split: Split) -> None:
        self.digests, self.causes = np.zeros((len(split), 2), "<u8"), dict[int, str]()
        here = os.getcwd()  # noqa: PTH109
        for row, stamp in enumerate(_stamps(split)):
            if stamp is None:
                got = f"{split.name(row)} comes from no file, so that a change would not be noticed"
                raise InputError("cache", got, hint="omit the cache")
            path, crop = stamp
            try:
                stat = os.stat(path)  # noqa: PTH116
            except OSError as error:
                self.causes[row] = error.strerror or str(error)
            else:
                text = f"{os.path.join(here, path)}\0{crop}\0{stat.st_size}\0{stat.st_mtime_ns}\0{stat.st_ctime_ns}"  # noqa: PTH118
                content = text.encode("utf-8", "surrogatepass")
                self.digests[row] = np.frombuffer(hashlib.blake2b(content, digest_size=16).digest(), "<u8")
        self.order = np.argsort(self.digests[:, 0], kind="stable")
        self._keys = self.digests[self.order, 0]
        self.first = np.searchsorted(self._keys, self._keys)
        repeated = np.flatnonzero(self.first != np.arange(len(self.first)))
        is_same = (self.digests[self.order[repeated]] == self.digests[self.order[self.first[repeated]]]).all(1)
        self.first[repeated[~is_same]] = len(self.first)

    def places(self, digests: Array) -> tuple[Array, Array]:
        """Which of these digests `[D, 2]` are among the files, bool `[D]`, and their first places in the order."""
        places = np.searchsorted(self._keys, digests[:, 0])
        is_wanted = places < len(self._keys)
        is_wanted[is_wanted] = (self.digests[self.order[places[is_wanted]]] == digests[is_wanted]).all(1)
        return is_wanted, places[is_wanted]


def _stamps(split: Split) -> Iterator[tuple[str, str] | None]:
    """The path and the crop of each image; None: it comes from no file."""
    if isinstance(split.images, PackedFiles):  # without an object for each
        yield from zip(split.images.paths, split.images.crops(), strict=True)
        return
    for row in range(len(split)):
        stamp = split.stamp(row)
        yield None if stamp is None else (str(stamp.file), stamp.crop)


class _FoundInIndex(NamedTuple):
    """What an index has of some images.

    Attributes:
        positions: of the array of each row in the file `[N]`; `_NOT_CACHED` or `_BROKEN` without one.
        checksums: the CRC-32 of each array `[N]`.
        causes: why an image is broken, by row.
        missing: the rows that are not in the index, one per image.
        end: the number of arrays that are in use, or may be.
    """

    positions: Array
    checksums: Array
    causes: dict[int, str]
    missing: Array
    end: int


class ImageCache:
    """Arrays of one kind in a folder, of the images of any number of splits."""

    def __init__(self, folder: Path, kind: CacheKind) -> None:
        self.folder, self.kind = folder.expanduser(), kind
        self.arrays, self.index, self._lock = (
            self.folder / f"{kind.name}.{ending}" for ending in (kind.suffix, "entries", "lock")
        )
        self._bytes = math.prod(kind.shape) * np.dtype(kind.dtype).itemsize  # per image

    def fill(
        self, split: Split, make: Callable[[Array], Iterable[Batch]], causes: dict[str, str]
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
        refuse_links(self.folder)
        if not self.index.exists():
            check_new_folder(self.folder, _FILES)
        files = _DigestedFiles(split)
        found = self._search(files)
        added = 0
        if len(found.missing):
            with self._write_lock():
                found = self._search(files)  # another process may have added them meanwhile
                added = len(found.missing)
                self._check_space(added)
                # Remove what a crash left: part of an entry, and arrays without an entry.
                if self.index.exists():
                    os.truncate(self.index, self.index.stat().st_size // _ENTRY.itemsize * _ENTRY.itemsize)
                if self.arrays.exists():
                    os.truncate(self.arrays, self._bytes * found.end)
                if added:
                    self._add(split, found.missing, files.digests, make(found.missing), causes)
            found = self._search(files)
        size = self.arrays.stat().st_size if self.arrays.exists() else 0
        broken = [(split.name(row), cause) for row, cause in sorted(found.causes.items())]
        report = CacheReport(len(split), added, broken, size)
        return CachedImages(self.arrays, self.kind, found.positions, found.checksums), report

    def count_missing(self, split: Split) -> int:
        """The number of different images of a split that are not in the cache.

        Raises:
            InputError: the folder cannot be read, or the images come from no files.
        """
        return len(self._search(_DigestedFiles(split)).missing)

    def _search(self, files: _DigestedFiles) -> _FoundInIndex:
        """Searches the index for the images of a split. The last entry of an image counts.

        Omits damaged entries, and entries whose array is missing from the file.
        """
        entries = self._entries()
        num_arrays = (self.arrays.stat().st_size if self.arrays.is_file() else 0) // self._bytes
        end, is_damaged = 0, False
        slots = np.full(len(files.order) + 1, -1)  # the number of the entry of each image, in the order of the digests
        for start, block, is_valid, is_text in _blocks(entries):
            is_damaged |= not (is_valid | is_text).all()
            rows = np.flatnonzero(is_valid & (block["position"] < num_arrays))
            end = max(end, 1 + int(block["position"][rows].max(initial=-1)))
            rows = rows[np.argsort(block["digest"][rows, 0], kind="stable")]  # for the memory cache of the processor
            is_wanted, places = files.places(block["digest"][rows])
            slots[places] = start + rows[is_wanted]
        slots = slots[files.first]
        positions, checksums = np.full(len(slots), _NOT_CACHED), np.zeros(len(slots), np.uint32)
        is_found, causes = slots >= 0, {**files.causes}
        rows, slots = files.order[is_found], slots[is_found]
        positions[rows], checksums[rows] = entries["position"][slots], entries["content"][slots]
        for place in np.flatnonzero(positions[rows] < 0).tolist():
            causes[int(rows[place])] = _cause(entries, int(slots[place])) or ""
        positions[list(causes)] = _BROKEN
        missing = files.order[~is_found & (files.first == np.arange(len(is_found)))]
        missing = np.sort(missing[files.digests[missing].any(1)])
        return _FoundInIndex(positions, checksums, causes, missing, num_arrays if is_damaged else end)

    def _entries(self) -> Array:
        """The entries of the index, a memory map; a crash may have cut a last one short."""
        for path in (self.index, self.arrays):
            if path.exists() and not path.is_file():
                raise InputError(str(path), "not a file", hint=f"remove it, and {self.folder} is filled again")
        try:
            count = self.index.stat().st_size // _ENTRY.itemsize
            return np.asarray(np.memmap(self.index, _ENTRY, "r", shape=(count,))) if count else np.empty(0, _ENTRY)
        except (FileNotFoundError, NotADirectoryError):
            return np.empty(0, _ENTRY)
        except OSError as error:
            raise InputError(
                str(self.index), f"cannot be read ({error.strerror})", hint="name another folder"
            ) from None

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

    def _add(self, split: Split, rows: Array, digests: Array, batches: Iterable[Batch], causes: dict[str, str]) -> None:
        with self.arrays.open("ab", buffering=0) as arrays, progress_bar(len(rows), "decoding images") as progress:
            end, saved = arrays.tell() // self._bytes, time.monotonic()
            made: list[bytes] = []
            try:
                for start, batch in zip(range(0, len(rows), CHUNK), batches, strict=True):
                    values = batch.images if batch.images.ndim == 2 else batch.images.permute(0, 2, 3, 1)
                    content = values.contiguous().flatten().view(torch.uint8).numpy().data
                    _write(arrays, content)
                    batch_indices = {int(row): batch_index for batch_index, row in enumerate(batch.rows)}
                    chunk = rows[start : start + CHUNK].tolist()
                    for row in chunk:
                        batch_index = batch_indices.get(row)
                        if batch_index is None:
                            made.append(_broken_entry(digests[row], causes[split.name(row)]))
                        else:
                            image = content[batch_index * self._bytes : (batch_index + 1) * self._bytes]
                            made.append(_entry(digests[row], end + batch_index, image))
                    end += len(batch_indices)
                    progress(start + len(chunk))
                    if time.monotonic() - saved > _INDEX_INTERVAL:
                        self._save_entries(arrays, made)
                        saved = time.monotonic()
            finally:  # also after an interrupt
                self._save_entries(arrays, made)

    def _save_entries(self, arrays: RawIOBase, made: list[bytes]) -> None:
        """Appends entries to the index, after their arrays are on disk."""
        os.fsync(arrays.fileno())
        with self.index.open("ab", buffering=0) as index:
            old_size = index.tell()
            try:
                _write(index, b"".join(made))
            except OSError:
                index.truncate(old_size)
                raise
        made.clear()


def _entry(digest: Array, position: int, content: bytes | memoryview) -> bytes:
    """An entry of the index, of an image or of the cause why it is broken."""
    entry = np.array([(digest, position, zlib.crc32(content), 0)], _ENTRY)
    entry["check"] = _checks(entry)
    return entry.tobytes()


def _broken_entry(digest: Array, cause: str) -> bytes:
    """The entry of a broken image, and the cause after it."""
    text = cause.encode("utf-8", "surrogatepass")[:_MOST_CAUSE]
    length = -(-len(text) // _ENTRY.itemsize)  # in entries
    text = text.ljust(length * _ENTRY.itemsize, b"\0")
    return _entry(digest, -1 - length, text) + text


def _cause(entries: Array, slot: int) -> str | None:
    """The cause after the entry of a broken image; None if it is damaged."""
    length = -1 - int(entries["position"][slot])
    content = entries[slot + 1 : slot + 1 + length].tobytes()
    if len(content) != length * _ENTRY.itemsize or zlib.crc32(content) != entries["content"][slot]:
        return None
    return content.rstrip(b"\0").decode("utf-8", "replace")


def _blocks(entries: Array) -> Iterator[tuple[int, Array, Array, Array]]:
    """Yields blocks of entries: the number of the first one, the block, which entries are valid, and which are text."""
    text_end = 0
    for start in range(0, len(entries), _BLOCK):
        block = np.array(entries[start : start + _BLOCK])
        is_valid = _checks(block) == block["check"]
        is_text = np.arange(start, start + len(block)) < text_end
        for row in np.flatnonzero(is_valid & (block["position"] < 0)).tolist():
            if is_text[row]:
                continue
            if _cause(entries, start + row) is None:
                is_valid[row] = False
            else:
                text_end = start + row - int(block["position"][row])
                is_text[row + 1 : text_end - start] = True
        yield start, block, is_valid & ~is_text, is_text


def _checks(entries: Array) -> Array:
    """The checksum of each entry, uint32 `[E]`: a hash of its other numbers."""
    numbers = (*entries["digest"].T, entries["position"].view(np.uint64), entries["content"].astype(np.uint64))
    checks = np.full(len(entries), _FACTOR)
    for each in numbers:  # as in MurmurHash
        checks = (checks ^ each) * _FACTOR
        checks ^= checks >> np.uint64(32)
    return (checks >> np.uint64(32)).astype(np.uint32)


def _write(file: RawIOBase, content: bytes | memoryview) -> None:
    remaining = memoryview(content)
    while remaining:
        remaining = remaining[file.write(remaining) or 0 :]


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"
