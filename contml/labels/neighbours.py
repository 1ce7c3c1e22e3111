"""Nearest neighbours cached on disk; the key is a hash of the inputs of the search.

    folder/KEY/000000000-000001024.safetensors        distances [r,k], rows [r,k] of these rows

A file is an item of work (`contml.work`): an interrupted search continues. If several processes search the same at the
same time, one searches and the others wait. Files are written as a whole or not at all. They have checksums: the
content of a damaged file is computed again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from contml._support.errors import InputError
from contml._support.files import locked
from contml._support.fingerprints import fingerprint
from contml._support.progress import progress_bar
from contml._support.tensors import load_tensors, save_tensors
from contml.contracts import Rows
from contml.distances.nearest import MEMORY, Neighbours
from contml.labels.base import LabelSpace
from contml.work import Files, run

#: Part of every key: increase it when the definition of a label distance changes.
_VERSION = 1
#: Rows of a part: an interrupted search loses at most this many.
_ROWS = 1024


def nearest(
    labels: LabelSpace,
    k: int,
    rows: Rows = None,
    *,
    among: Rows = None,
    memory: int = MEMORY,
    progress: Callable[[int], None] | None = None,
    cache: Path | str | None = None,
    cluster: str = "",
) -> Neighbours:
    """Find the exact k nearest items of each row, as `labels.nearest(k, rows)` does. A folder may keep the result.

    Args:
        labels: the label space.
        k: the number of neighbours.
        rows: the rows to find neighbours of; default all.
        among: the rows that may be neighbours; default all.
        memory: maximum bytes of a block of label distances and its temporaries.
        progress: called with the number of rows finished so far; `progress_bar` shows it. With a cache, about every
            thousand rows.
        cache: a folder for the result, found again by a hash of the labels and the options of their distance;
            an interrupted search continues where it stopped. None: the result is not kept.
        cluster: a Ray cluster that searches, by an address as in `contml.work.run`; it needs a `cache`.
            Empty: this process searches.

    Raises:
        InputError: as in `LabelSpace.nearest`, the folder of the cache cannot be written, or the cluster does not
            answer.
    """
    if cache is None:
        if cluster:
            raise InputError("cluster", repr(cluster), "needs a cache", hint="cache='neighbours', a folder")
        return labels.nearest(k, rows, among=among, memory=memory, progress=progress)
    wanted, candidates = labels._searched(k, rows, among)
    key, total = fingerprint(_VERSION, labels.fingerprint(), k, wanted, candidates), len(wanted)
    found = _SearchParts(Path(cache).expanduser() / key, k, candidates)
    parts = [_SearchPart(start, min(start + _ROWS, total)) for start in range(0, max(1, total), _ROWS)]
    done = count(sum(part.key in found for part in parts))

    def search(part: _SearchPart) -> Neighbours:
        return labels.nearest(k, wanted[part.start : part.end], among=candidates, memory=memory)

    def report(_: object = None) -> None:
        if progress is not None:
            progress(min(next(done) * _ROWS, total))

    report()
    if not all(part.key in found for part in parts):
        with locked(found.folder, subject=str(cache)):  # another process may search the same
            run(parts, search, found, cluster=cluster, on_done=report)
    return Neighbours(*map(torch.cat, zip(*(found[part.key] for part in parts), strict=True)))


def search_neighbours(space: LabelSpace, k: int, cache: Path | None, quiet: bool) -> Tensor:
    """Return the rows of the k nearest items of each item, `[N, k]`.

    Args:
        space: the labels.
        k: the number of neighbours.
        cache: a folder that keeps the neighbours.
        quiet: show no progress.
    """
    with nullcontext() if quiet else progress_bar(len(space)) as progress:
        return nearest(space, k, progress=progress, cache=cache).rows


class _SearchPart(NamedTuple):
    """Consecutive rows of a search."""

    start: int
    end: int

    @property
    def key(self) -> str:
        """The name of the rows, and so of the file of the part."""
        return f"{self.start:09d}-{self.end:09d}"

    def __str__(self) -> str:
        return f"neighbours of rows {self.start} to {self.end - 1}"


class _SearchParts(Files[Neighbours]):
    """The parts of a search, in a folder of its own.

    Args:
        folder: the folder; its name is the key of the search.
        k: the number of neighbours.
        among: the rows that may be neighbours.
    """

    suffix = ".safetensors"

    def __init__(self, folder: Path, k: int, among: Tensor) -> None:
        super().__init__(folder)
        self.k, self.among = k, among

    def load(self, key: str, path: Path) -> Neighbours | None:
        """Return a part from disk. Return None if it does not exist, is damaged, or belongs to another search."""
        start, end = map(int, key.split("-"))
        try:
            tensors, values = load_tensors(path)
        except (FileNotFoundError, InputError):
            return None
        layout, shape = {name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()}, (end - start, self.k)
        expected = {"distances": (torch.float32, shape), "rows": (torch.int64, shape)}
        if layout != expected or values.get("search") != [path.parent.name, path.name]:
            return None
        distances, rows = tensors["distances"].to(self.among.device), tensors["rows"].to(self.among.device)
        is_row = (rows >= self.among.min()) & (rows <= self.among.max())
        is_valid = (distances >= 0).all() and (is_row | ((rows == -1) & distances.isinf())).all()
        return Neighbours(distances, rows) if is_valid else None

    def save(self, value: Neighbours, path: Path) -> None:
        """Write a part."""
        save_tensors(path, value._asdict(), search=[path.parent.name, path.name])
