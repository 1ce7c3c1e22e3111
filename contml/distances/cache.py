"""Nearest neighbours cached on disk; the key is a hash of the inputs of the search.

    folder/KEY.safetensors                        distances [R,k], rows [R,k]
    folder/KEY.parts/000000000.safetensors        the same for some of the rows, during the search

Files are written to a temporary name and moved, so an interrupted search leaves complete files only. They have
checksums: the content of a damaged file is computed again.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from contml._support.errors import InputError
from contml._support.files import unwritable
from contml._support.tensors import load_tensors, save_tensors

#: Part of every key: increase it when the definition of a label distance changes.
_VERSION = 1
#: Rows of a part: an interrupted search loses at most this many.
_ROWS = 1024

_Found: TypeAlias = "tuple[Tensor, Tensor]"  # distances [R,k] and rows [R,k]
_Progress: TypeAlias = "Callable[[int], None] | None"


class NeighbourCache:
    """The k nearest neighbours of some rows of a label space, in a folder.

    Args:
        folder: the folder of the cache.
        labels: the fingerprint of the label space.
        k: the number of neighbours.
        rows: the rows `[R]` whose neighbours are wanted.
        among: the rows that may be neighbours.
    """

    def __init__(self, folder: Path, labels: str, k: int, rows: Tensor, among: Tensor) -> None:
        self.key = fingerprint(_VERSION, labels, k, rows, among)
        self.folder, self.rows, self.k, self.among = folder, rows, k, among

    def get(self, search: Callable[[Tensor, _Progress], _Found], progress: _Progress) -> _Found:
        """Distances and rows `[R, k]`: read from disk, or computed by `search` in parts and saved."""
        path, parts_folder = self.folder / f"{self.key}.safetensors", self.folder / f"{self.key}.parts"

        def search_all() -> _Found:
            try:
                parts_folder.mkdir(parents=True, exist_ok=True)  # before the search: it may take long
            except OSError as error:
                raise unwritable(self.folder, error) from None
            results = [get_part(start) for start in range(0, max(1, len(self.rows)), _ROWS)]
            return torch.cat([distances for distances, _ in results]), torch.cat([rows for _, rows in results])

        def get_part(start: int) -> _Found:
            rows = self.rows[start : start + _ROWS]
            report = None if progress is None else lambda finished: progress(start + finished)
            return self._load_or(
                lambda: search(rows, report), parts_folder / f"{start:09d}.safetensors", len(rows), report
            )

        result = self._load_or(search_all, path, len(self.rows), progress)
        shutil.rmtree(parts_folder, ignore_errors=True)
        return result

    def _load_or(self, compute: Callable[[], _Found], path: Path, count: int, progress: _Progress) -> _Found:
        result = self._load(path, count)
        if result is None:
            result = compute()
            # This makes the folder: another process with the same search may have removed the folder of parts.
            save_tensors(path, {"distances": result[0], "rows": result[1]}, search=[self.key, path.name])
        elif progress is not None:
            progress(count)
        return result

    def _load(self, path: Path, count: int) -> _Found | None:
        """What a file holds; None if there is no such file, it is damaged, or not the result of this search."""
        try:
            tensors, values = load_tensors(path)
        except (FileNotFoundError, InputError):
            return None
        layout = {name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()}
        shape = (count, self.k)
        expected = {"distances": (torch.float32, shape), "rows": (torch.int64, shape)}
        if layout != expected or values.get("search") != [self.key, path.name]:
            return None
        distances, rows = tensors["distances"].to(self.rows.device), tensors["rows"].to(self.rows.device)
        is_row = (rows >= self.among.min()) & (rows <= self.among.max())
        is_valid = (distances >= 0).all() and (is_row | ((rows == -1) & distances.isinf())).all()
        return (distances, rows) if is_valid else None


def fingerprint(*parts: object) -> str:
    """A hash of numbers, strings, tensors, arrays, classes and containers of them, the same on every device and run.

    Raises:
        InputError: a part is something else.
    """
    content = hashlib.sha256()
    for part in parts:
        _update_hash(content, part)
    return content.hexdigest()[:32]


def _update_hash(content: hashlib._Hash, value: object) -> None:
    # Types and lengths are hashed too, so that different lists of parts have different content.
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        content.update(f"{value.dtype}{list(value.shape)}:".encode())
        content.update(value.contiguous().flatten().view(torch.uint8).numpy().data)
    elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
        content.update(f"{value.dtype.str}{list(value.shape)}:".encode())
        content.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
    elif value is None or isinstance(value, bool | int | float | complex | str | bytes | Path | np.generic):
        text = repr(value).encode()
        content.update(f"{type(value).__name__} {len(text)}:".encode() + text)
    elif isinstance(value, type):
        _update_hash(content, f"{value.__module__}.{value.__qualname__}")
    elif isinstance(value, list | tuple):
        content.update(f"list {len(value)}:".encode())
        for item in value:
            _update_hash(content, item)
    elif isinstance(value, Mapping):
        content.update(f"mapping {len(value)}:".encode())
        for key, item in value.items():
            _update_hash(content, key)
            _update_hash(content, item)
    elif isinstance(value, set | frozenset):
        _update_hash(content, sorted(fingerprint(item) for item in value))
    else:
        raise InputError(
            "cache",
            f"no key for labels or options with a {type(value).__name__}",
            hint="omit cache, or give the label space its own fingerprint()",
        )
