"""Nearest neighbours on disk: a key of what they were computed from, parts while they are, one file when they are done.

    folder/KEY.safetensors                        distances [R,k], rows [R,k]
    folder/KEY.parts/000000000.safetensors        the same of some rows, until all are there

Files are written beside their place and moved there, so that a search that was interrupted left whole files only.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from contml._support.errors import InputError
from contml._support.files import write

#: Part of every key: count it up when a label distance comes to mean something else.
_VERSION = 1
#: Rows of a part; a search that was interrupted loses this many at the most.
_ROWS = 1024

_Pair: TypeAlias = "tuple[Tensor, Tensor]"
_Progress: TypeAlias = "Callable[[int], None] | None"


class Cache:
    """The k nearest neighbours of some rows of a label space, in a folder.

    Args:
        folder: where they are kept.
        labels: the fingerprint of the label space.
        k: how many.
        rows: whose neighbours, `[R]`.
        among: rows that may be neighbours.
    """

    def __init__(self, folder: Path, labels: str, k: int, rows: Tensor, among: Tensor) -> None:
        self.key = fingerprint(_VERSION, labels, k, rows, among)
        self.folder, self.rows, self.k = folder, rows, k

    def get(self, search: Callable[[Tensor, _Progress], _Pair], progress: _Progress) -> _Pair:
        """Distances and rows `[R, k]`: those on disk, or those that `search` finds, part by part, which are kept."""
        path = self.folder / f"{self.key}.safetensors"
        if (found := self._load(path, len(self.rows))) is not None:
            if progress is not None:
                progress(len(self.rows))
            return found
        try:
            self._folder_of_parts.mkdir(parents=True, exist_ok=True)  # told before the search, not after
        except OSError as error:
            raise InputError(f"cannot write the cache {self.folder}: {error}; give another folder") from None
        parts = [self._part(start, search, progress) for start in range(0, len(self.rows), _ROWS)]
        whole = (
            (torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts]))
            if parts
            else search(self.rows, None)
        )
        self._save(path, whole)
        shutil.rmtree(self._folder_of_parts, ignore_errors=True)
        return whole

    @property
    def _folder_of_parts(self) -> Path:
        return self.folder / f"{self.key}.parts"

    def _part(self, start: int, search: Callable[[Tensor, _Progress], _Pair], progress: _Progress) -> _Pair:
        rows = self.rows[start : start + _ROWS]
        path = self._folder_of_parts / f"{start:09d}.safetensors"
        found = self._load(path, len(rows))
        if found is None:
            found = search(rows, None if progress is None else lambda finished: progress(start + finished))
            self._save(path, found)
            return found
        if progress is not None:
            progress(start + len(rows))
        return found

    def _load(self, path: Path, count: int) -> _Pair | None:
        try:
            with safe_open(path, "pt", device=str(self.rows.device)) as file:
                found = file.get_tensor("distances"), file.get_tensor("rows")
        except FileNotFoundError:
            return None
        except (SafetensorError, OSError) as error:
            raise InputError(f"{path}: cut short or damaged ({error}); delete it, and it is computed again") from None
        if any(t.shape != (count, self.k) for t in found):
            raise InputError(f"{path}: not the neighbours that its name promises; delete it, and it is computed again")
        return found

    def _save(self, path: Path, found: _Pair) -> None:
        tensors = {"distances": found[0].cpu().contiguous(), "rows": found[1].cpu().contiguous()}
        try:
            # `write` makes the folder: another process that searches the same may have removed the folder of parts.
            write(path, lambda temporary: save_file(tensors, temporary))
        except (OSError, SafetensorError) as error:
            raise InputError(f"cannot write the cache {path}: {error}; give another folder") from None


def fingerprint(*parts: object) -> str:
    """A hash of numbers, strings, tensors, arrays, classes, and containers of them, the same on every device and run.

    Raises:
        InputError: something else is among them.
    """
    content = hashlib.sha256()
    for part in parts:
        _feed(content, part)
    return content.hexdigest()[:32]


def _feed(content: hashlib._Hash, value: object) -> None:
    # What is fed says its type and its length, so that no two lists of parts read the same.
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
        _feed(content, f"{value.__module__}.{value.__qualname__}")
    elif isinstance(value, list | tuple):
        content.update(f"list {len(value)}:".encode())
        for item in value:
            _feed(content, item)
    elif isinstance(value, Mapping):
        content.update(f"mapping {len(value)}:".encode())
        for key, item in value.items():
            _feed(content, key)
            _feed(content, item)
    elif isinstance(value, set | frozenset):
        _feed(content, sorted(fingerprint(item) for item in value))
    else:
        raise InputError(
            f"{type(value).__name__} among the labels or their options has no content to make a cache key of; "
            "leave cache out, or give the label space a fingerprint() of its own"
        )
