"""Nearest neighbours cached on disk; the key is a hash of the inputs of the search.

    folder/KEY.safetensors                        distances [R,k], rows [R,k]
    folder/KEY.parts/000000000.safetensors        the same for some of the rows, during the search

A part is an item of work (`contml.work`): an interrupted search continues. Of processes that search the same at the
same time, one searches, and the others wait. Files are written as a whole or not at all. They have checksums: the
content of a damaged file is computed again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext, suppress
from itertools import count, takewhile
from pathlib import Path
from typing import NamedTuple, TypeAlias

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

_Found: TypeAlias = "tuple[Tensor, Tensor]"  # distances [R,k] and rows [R,k]
_Progress: TypeAlias = "Callable[[int], None] | None"


def nearest(
    labels: LabelSpace,
    k: int,
    rows: Rows = None,
    *,
    among: Rows = None,
    memory: int = MEMORY,
    progress: _Progress = None,
    cache: Path | str | None = None,
    cluster: str = "",
) -> Neighbours:
    """The exact k nearest items of each row, as `labels.nearest(k, rows)`, which a folder may keep.

    Args:
        labels: the label space.
        k: the number of neighbours.
        rows: the rows to find neighbours of; default all.
        among: the rows that may be neighbours; default all.
        memory: maximum bytes of a block of label distances and its temporaries.
        progress: called with the number of rows finished so far; `progress_bar` shows it.
        cache: a folder for the result, found again by a hash of the labels and the options of their distance;
            an interrupted search continues where it stopped. None: the result is not kept.
        cluster: a Ray cluster that searches, by an address as in `contml.work.run`; it needs a `cache`.
            Empty: this process searches.

    Raises:
        InputError: as of `LabelSpace.nearest`, the folder of the cache cannot be written, or the cluster does not
            answer.
    """
    if cache is None:
        if cluster:
            raise InputError("cluster", repr(cluster), "needs a cache", hint="cache='neighbours', a folder")
        return labels.nearest(k, rows, among=among, memory=memory, progress=progress)
    wanted, candidates = labels._searched(k, rows, among)

    def search(part: Tensor, report: _Progress) -> Neighbours:
        return labels.nearest(k, part, among=candidates, memory=memory, progress=report)

    found = NeighbourCache(Path(cache).expanduser(), labels.fingerprint(), k, wanted, candidates)
    return Neighbours(*found.get(search, progress, cluster))


def search_neighbours(space: LabelSpace, k: int, cache: Path | None, quiet: bool) -> Tensor:
    """Return the rows of the k nearest items of each item, `[N, k]`.

    Args:
        space: the labels.
        k: the number of neighbours.
        cache: a folder that keeps them.
        quiet: show no progress.
    """
    with nullcontext() if quiet else progress_bar(len(space)) as progress:
        return nearest(space, k, progress=progress, cache=cache).rows


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

    def get(self, search: Callable[[Tensor, _Progress], _Found], progress: _Progress, address: str = "") -> _Found:
        """Distances and rows `[R, k]`: read from disk, or computed by `search` in parts.

        Args:
            search: the neighbours of some rows.
            progress: called with the number of rows finished so far.
            address: of a cluster that computes the parts, as in `contml.work.run`; empty: this process.

        Raises:
            InputError: the folder cannot be written, or the cluster does not answer.
        """
        path, total, furthest = self.folder / f"{self.key}.safetensors", len(self.rows), 0

        def report(finished: int) -> None:
            nonlocal furthest
            if progress is not None and finished > furthest:
                progress(furthest := finished)

        def search_part(part: _SearchPart) -> _Found:
            return search(self.rows[part.start : part.end], lambda finished: report(part.start + finished))

        def search_elsewhere(part: _SearchPart, rows: Tensor = self.rows) -> _Found:
            return search(rows[part.start : part.end], None)

        result, found = self.load(path, total), _SearchParts(self)
        if result is None:
            with locked(found.folder, subject=str(self.folder)):  # another process may search the same
                result = self.load(path, total)
                if result is None:
                    with suppress(OSError):
                        path.unlink()  # it is damaged
                    result = self._search(found, search_elsewhere if address else search_part, report, address)
                    save_tensors(path, {"distances": result[0], "rows": result[1]}, search=[self.key, path.name])
                found.remove()
        found.remove()  # a process that was killed may have left them
        report(total)
        return result

    def _search(
        self, found: _SearchParts, search: Callable[[_SearchPart], _Found], report: Callable[[int], None], address: str
    ) -> _Found:
        """The result, from parts of the rows; arguments as in `get`."""
        total, done = len(self.rows), count(1)
        parts = [_SearchPart(start, min(start + _ROWS, total)) for start in range(0, max(1, total), _ROWS)]
        for part in takewhile(lambda part: part.key in found, parts):
            report(part.end)
        run(parts, search, found, cluster=address, on_done=lambda _: report(min(next(done) * _ROWS, total)))
        blocks = [found[part.key] for part in parts]
        return torch.cat([block[0] for block in blocks]), torch.cat([block[1] for block in blocks])

    def load(self, path: Path, length: int) -> _Found | None:
        """What a file holds; None if there is no such file, it is damaged, or not the result of this search."""
        try:
            tensors, values = load_tensors(path)
        except (FileNotFoundError, InputError):
            return None
        layout = {name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()}
        shape = (length, self.k)
        expected = {"distances": (torch.float32, shape), "rows": (torch.int64, shape)}
        if layout != expected or values.get("search") != [self.key, path.name]:
            return None
        distances, rows = tensors["distances"].to(self.rows.device), tensors["rows"].to(self.rows.device)
        is_row = (rows >= self.among.min()) & (rows <= self.among.max())
        is_valid = (distances >= 0).all() and (is_row | ((rows == -1) & distances.isinf())).all()
        return (distances, rows) if is_valid else None


class _SearchPart(NamedTuple):
    """Consecutive rows of a search."""

    start: int
    end: int

    @property
    def key(self) -> str:
        """Names the rows, and so the file of the part."""
        return f"{self.start:09d}-{self.end:09d}"

    def __str__(self) -> str:
        return f"neighbours of rows {self.start} to {self.end - 1}"


class _SearchParts(Files["_Found"]):
    """The finished parts of a search, in a folder beside its result."""

    suffix = ".safetensors"

    def __init__(self, cache: NeighbourCache) -> None:
        self._cache = cache
        super().__init__(cache.folder / f"{cache.key}.parts")

    def load(self, key: str, path: Path) -> _Found | None:
        """A part on disk; None if there is none, or it is damaged."""
        start, end = map(int, key.split("-"))
        return self._cache.load(path, end - start)

    def save(self, value: _Found, path: Path) -> None:
        """Write a part."""
        save_tensors(path, {"distances": value[0], "rows": value[1]}, search=[self._cache.key, path.name])
