"""A cache of resized images or features in a folder: a file of arrays and an index, both read as memory maps.

`resized-SIDE.pixels` holds resized images, SIDE x SIDE x 3 bytes per image. `features-KEY.vectors` holds the features
of a frozen backbone, a vector of float32 per image. `resized-SIDE.entries` is the index, 32 bytes per image:

    bytes   0 to 15    16 to 23            24 to 27
            digest     position in the     CRC-32 of
            of a file  file of arrays      the array

The digest is a hash of path, crop, size, mtime and ctime of an image file. A program cannot set the ctime. So the
digest changes even if a file is replaced by one of the same size and mtime.

Both files are only appended to. An entry is written after its array is on disk. So a crash loses only the images since
the last entry. An image whose file has changed is appended again, and no process overwrites what another process reads.
An image whose entry is damaged is made again. An image whose array is damaged is made each time it is read. Broken
images are not kept: they are tried again.
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
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from filelock import FileLock, Timeout

from contml._support.errors import InputError
from contml._support.files import check_new_folder, refuse_links
from contml._support.progress import progress_bar
from contml.data.split import Batch, Split

#: The files of the folder, and the files of `contml.labels.neighbours`, which may share it.
_FILES = ("resized-*", "features-*", "*.safetensors", "*.parts")
#: How many images are decoded at a time.
CHUNK = 64
#: Seconds between two updates of the index.
_INDEX_INTERVAL = 2.0
#: Values in place of a position: the image is not in the cache, and the image is broken.
_NOT_CACHED, _BROKEN = -1, -2
#: An entry of the index: digest, position and CRC-32 of the array.
_ENTRY = np.dtype([("digest", "S16"), ("position", "<i8"), ("content", "<u4"), ("unused", "<u4")])
#: Entries that are compared at a time.
_BLOCK = 1 << 18


class CacheKind(NamedTuple):
    """The kind of array that a cache holds of each image.

    Attributes:
        name: the start of its file names: "resized-224", "features-KEY".
        suffix: the suffix of the file of arrays: "pixels", "vectors".
        shape: the shape of the array of an image.
        dtype: the type of its numbers.
        title: the title of several images, after their number: "images of 224 x 224 pixels".
    """

    name: str
    suffix: str
    shape: tuple[int, ...]
    dtype: str
    title: str

    @classmethod
    def resized(cls, side: int) -> CacheKind:
        """Return the kind of pixels, uint8 `[side, side, 3]`."""
        return cls(f"resized-{side}", "pixels", (side, side, 3), "uint8", f"images of {side} x {side} pixels")

    @classmethod
    def features(cls, key: str, dim: int) -> CacheKind:
        """Return the kind of features, float32 `[dim]`, made by the backbone that `key` identifies."""
        return cls(f"features-{key}", "vectors", (dim,), "float32", f"images as features of {dim:,} numbers")


Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"


@dataclass(frozen=True)
class CacheReport:
    """The result of filling a cache.

    Args:
        images: number of images of the split.
        added: number of images decoded now. The other images were in the cache.
        broken: name and cause of each image that cannot be decoded.
        size: bytes of all pixels in the folder, including the images of other splits. It is 0 without a cache.
    """

    images: int
    added: int
    broken: list[tuple[str, str]] = field(default_factory=list)
    size: int = 0


class CachedImages:
    """The images of one split in a cache. Each process opens the file itself, and checks an image at its first read.

    Args:
        file: the file of arrays.
        kind: the kind of array.
        positions: the position of the array of each row in the file `[N]`, below 0 for a row without an array.
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
        """Return True if the image of a row cannot be decoded."""
        return bool(self.positions[row] == _BROKEN)

    def get(self, row: int) -> Array | None:
        """Return the array of a row, such as pixels `[side, side, 3]`.

        Return None if it is not in the cache, or damaged.
        """
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


def _digests(split: Split) -> tuple[Array, dict[int, str]]:
    """Compute the digest of the file of each image `[N]`, and the reason for each file that is not found, by row.

    The digest of a file that is not found is b"".
    """
    digests, causes = np.zeros(len(split), _ENTRY["digest"]), dict[int, str]()
    here = os.getcwd()  # noqa: PTH109
    for row in range(len(split)):
        stamp = split.stamp(row)
        if stamp is None:
            got = f"{split.name(row)} comes from no file, so that a change would not be noticed"
            raise InputError("cache", got, hint="omit the cache")
        try:
            stat = stamp.stat()
        except OSError as error:
            causes[row] = error.strerror or str(error)
        else:
            file = os.path.join(here, stamp.file)  # noqa: PTH118
            text = f"{file}\0{stamp.crop}\0{stat.st_size}\0{stat.st_mtime_ns}\0{stat.st_ctime_ns}"
            digests[row] = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    return digests, causes


class ImageCache:
    """Arrays of one kind in a folder, for the images of any number of splits."""

    def __init__(self, folder: Path, kind: CacheKind) -> None:
        self.folder, self.kind = folder.expanduser(), kind
        self.arrays, self.index = (self.folder / f"{kind.name}.{ending}" for ending in (kind.suffix, "entries"))
        self._bytes = math.prod(kind.shape) * np.dtype(kind.dtype).itemsize  # per image

    def fill(
        self, split: Split, make: Callable[[Array], Iterable[Batch]], causes: dict[str, str]
    ) -> tuple[CachedImages, CacheReport]:
        """Add the missing images of a split.

        Args:
            split: where the images come from.
            make: yields rows in batches of `CHUNK`, without broken images: resized and not cropped, or features.
            causes: the reason for each image that cannot be decoded, by name. `make` fills it.

        Raises:
            InputError: the folder cannot be written or is damaged, or the images come from no files.
        """
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(f"cache {self.folder}", "is a file", hint="name a folder")
        refuse_links(self.folder)
        if not self.index.exists():
            check_new_folder(self.folder, _FILES)
        digests, unfound = _digests(split)
        positions, checksums, first, missing = self._search(digests)
        added = 0
        if len(missing):
            with self._write_lock():
                *_, missing = self._search(digests)  # another process may have added them meanwhile
                added = len(missing)
                needed, free = added * self._bytes, shutil.disk_usage(self.folder).free
                images = f"{added:,} {self.kind.title}"
                if needed > free:
                    got = f"{images} need {_gigabytes(needed)}, and {_gigabytes(free)} are free"
                    raise InputError(f"cache {self.folder}", got, hint="free some space, or name another folder")
                for path, size in ((self.index, _ENTRY.itemsize), (self.arrays, self._bytes)):
                    if path.exists():  # a crash may have left a part of an entry or of an array
                        os.truncate(path, path.stat().st_size // size * size)
                if added:
                    sys.stderr.write(f"decoding {images} into {self.folder} ({_gigabytes(needed)})\n")
                    self._add(missing, digests, make(missing))
            positions, checksums, first, _ = self._search(digests)
        for row in np.flatnonzero(positions == _NOT_CACHED).tolist():
            unfound.setdefault(row, causes.get(split.name(int(first[row])), ""))
        positions[[*unfound]] = _BROKEN
        size = self.arrays.stat().st_size if self.arrays.exists() else 0
        broken = [(split.name(row), cause) for row, cause in sorted(unfound.items())]
        return CachedImages(self.arrays, self.kind, positions, checksums), CacheReport(len(split), added, broken, size)

    def count_missing(self, split: Split) -> int:
        """Count the different images of a split that are not in the cache.

        Raises:
            InputError: the folder cannot be read, or the images come from no files.
        """
        return len(self._search(_digests(split)[0])[-1])

    def _search(self, digests: Array) -> tuple[Array, Array, Array, Array]:
        """Search the index for the images of a split. The last entry of an image counts.

        Returns:
            The position of the array of each row in the file `[N]`, `_NOT_CACHED` or `_BROKEN` without an array; the
            CRC-32 of each array `[N]`; the first row of the same image `[N]`; the rows that are not in the index, one
            per image.
        """
        entries = self._entries()
        num_arrays = (self.arrays.stat().st_size if self.arrays.is_file() else 0) // self._bytes
        keys, first, numbers = np.unique(digests, return_index=True, return_inverse=True)
        positions, checksums = np.full(len(keys), _NOT_CACHED), np.zeros(len(keys), np.uint32)
        for start in range(0, len(entries), _BLOCK):
            block = np.array(entries[start : start + _BLOCK])
            block = block[(block["position"] >= 0) & (block["position"] < num_arrays) & (block["digest"] != b"")]
            places = np.searchsorted(keys, block["digest"]).clip(max=len(keys) - 1)
            is_wanted = keys[places] == block["digest"]
            positions[places[is_wanted]] = block["position"][is_wanted]
            checksums[places[is_wanted]] = block["content"][is_wanted]
        missing = np.sort(first[(positions == _NOT_CACHED) & (keys != b"")])
        return positions[numbers], checksums[numbers], first[numbers], missing

    def _entries(self) -> Array:
        """Return the entries of the index, a memory map. A crash may have cut the last entry short."""
        for path in (self.index, self.arrays):
            if path.exists() and not path.is_file():
                raise InputError(str(path), "not a file", hint=f"remove it, and {self.folder} is filled again")
        try:
            count = self.index.stat().st_size // _ENTRY.itemsize
            return np.asarray(np.memmap(self.index, _ENTRY, "r", shape=(count,))) if count else np.empty(0, _ENTRY)
        except (FileNotFoundError, NotADirectoryError):
            return np.empty(0, _ENTRY)
        except OSError as error:
            got = f"cannot be read ({error.strerror})"
            raise InputError(str(self.index), got, hint="name another folder") from None

    @contextmanager
    def _write_lock(self) -> Iterator[None]:
        """Hold the lock of the folder, so that one process writes at a time. Disk errors become `InputError`s."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.folder / f"{self.kind.name}.lock")
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

    def _add(self, rows: Array, digests: Array, batches: Iterable[Batch]) -> None:
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
                        if batch_index is not None:
                            image = content[batch_index * self._bytes : (batch_index + 1) * self._bytes]
                            entry = (digests[row], end + batch_index, zlib.crc32(image), 0)
                            made.append(np.array(entry, _ENTRY).tobytes())
                    end += len(batch_indices)
                    progress(start + len(chunk))
                    if time.monotonic() - saved > _INDEX_INTERVAL:
                        self._save_entries(arrays, made)
                        saved = time.monotonic()
            finally:  # also after an interrupt
                self._save_entries(arrays, made)

    def _save_entries(self, arrays: RawIOBase, made: list[bytes]) -> None:
        """Append entries to the index, after their arrays are on disk."""
        os.fsync(arrays.fileno())
        with self.index.open("ab", buffering=0) as index:
            old_size = index.tell()
            try:
                _write(index, b"".join(made))
            except OSError:
                index.truncate(old_size)
                raise
        made.clear()


def _write(file: RawIOBase, content: bytes | memoryview) -> None:
    remaining = memoryview(content)
    while remaining:
        remaining = remaining[file.write(remaining) or 0 :]


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"
