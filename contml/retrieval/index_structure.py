"""The search of an index: exact, or through a search structure of FAISS for its first rows.

    rows    0 ............ m ............ n
            | structure    | compared     |      m = n after `build`; flat: m = 0
              candidates     all of them

    candidates of both ---> distances by subtraction in float64 ---> the k nearest, ties by position

A search structure proposes candidates, and may miss some of the nearest. Rows that it does not cover yet are compared
exactly, and so is the whole index for a query for which the structure finds fewer than k items.

The exact search is certified, as `contml.distances.nearest_vectors` is: FAISS finds some more than k candidates by
matrix products in float32, whose rounding errors have a bound. If rounding could hide a nearer item (tight clusters,
ties), the query is compared with all rows by subtraction.
"""

from __future__ import annotations

import importlib
import math
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch

from contml._support.errors import InputError, one_line
from contml._support.files import write
from contml.distances import squared_distances_of
from contml.retrieval.index_store import Flags, Floats, Kind, StructureFile

Positions: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Squares: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"

#: Items up to which "auto" compares all: a query of 128 dimensions takes a millisecond, and nothing is missed.
FLAT_ITEMS = 100_000
#: Items up to which "auto" takes HNSW; beyond, IVF-PQ, whose memory per item is a tenth.
HNSW_ITEMS = 2_000_000
#: Rows below which no structure is built: IVF-PQ trains on 10,000 or more, and comparing them all is as fast.
FEWEST = 10_000
#: HNSW: neighbours per item, and candidates kept while it is built and searched.
HNSW_NEIGHBOURS, HNSW_BUILD, HNSW_SEARCH = 16, 100, 64
#: IVF-PQ: numbers per byte of a code, lists searched; candidates per result that are compared exactly, and at least.
PQ_NUMBERS, IVF_PROBES, RERANKED, LEAST_RERANKED = 4, 32, 5, 50
#: IVF-PQ: rows per list on which the quantizers are trained. They are trained again when there are twice as many rows.
IVF_TRAINING, IVF_GROWTH = 64, 2
#: Rows that are added to a structure at a time; after each part it is saved, so that a kill loses at most one.
PART = 1 << 17
#: Candidates beyond k of the exact search, and at most so many more for removed items.
_SPARE, _SPARE_REMOVED = 32, 1024
#: Queries at a time, and candidates of all of them.
_QUERIES, _CANDIDATES = 4096, 1 << 22
#: Rows that are compared with one query at a time by subtraction.
_SCANNED = 1 << 18


def _faiss() -> Any:
    """FAISS, imported on first use; its type stubs lack most of what is used here."""
    return importlib.import_module("faiss")


def kind_for(kind: Kind, items: int) -> Kind:
    """The kind of structure for so many items, never "auto"."""
    if kind == "auto":
        kind = "flat" if items <= FLAT_ITEMS else "hnsw" if items <= HNSW_ITEMS else "ivf_pq"
    return kind


class Structure(NamedTuple):
    """A search structure in memory."""

    file: StructureFile
    index: Any
    storage: Any  # the vectors of HNSW, which FAISS does not keep alive


# -- building ----------------------------------------------------------------------------------------------------------


def grow(
    kind: Kind, vectors: Floats, before: Structure | None, path: Callable[[int], Path], number: int
) -> Iterator[StructureFile]:
    """Extends a structure to all rows of vectors `[N, d]`, part by part; yields its file after each.

    With one thread, the files are the same to the last bit if it is stopped and called again.

    Args:
        kind: "hnsw" or "ivf_pq".
        vectors: the vectors.
        before: a structure of the first rows of these vectors, which is changed, or None.
        path: the file of a structure by its number.
        number: the number of the first file; each part has the next one.
    """
    faiss = _faiss()
    total = len(vectors)
    if before is not None and before.file.kind == kind and (kind == "hnsw" or total < IVF_GROWTH * before.file.trained):
        index, trained = before.index, before.file.trained
    else:
        index, trained = (_new_hnsw if kind == "hnsw" else _new_ivf_pq)(vectors)
    while index.ntotal < total:
        if kind == "hnsw":
            index.hnsw.rng = faiss.RandomGenerator(index.ntotal)  # its state is not in the file
        index.add(_padded(kind, vectors[index.ntotal : index.ntotal + PART]))
        flags = faiss.IO_FLAG_SKIP_STORAGE if kind == "hnsw" else 0  # the vectors have a file of their own
        write(path(number), partial(_save, index, flags))
        crc, size = _checksum(path(number))
        yield StructureFile(number, kind, index.ntotal, trained, size, crc)
        number += 1


def _new_hnsw(vectors: Floats) -> tuple[Any, int]:
    faiss = _faiss()
    index = faiss.IndexHNSWFlat(vectors.shape[1], HNSW_NEIGHBOURS)
    index.hnsw.efConstruction = HNSW_BUILD
    return index, 0


def _new_ivf_pq(vectors: Floats) -> tuple[Any, int]:
    faiss = _faiss()
    num_rows = len(vectors)
    num_lists = ivf_lists(num_rows)
    training_rows = np.sort(
        np.random.default_rng(0).choice(num_rows, min(num_rows, max(IVF_TRAINING * num_lists, FEWEST)), replace=False)
    )
    sample = _padded("ivf_pq", vectors[training_rows])
    dim = sample.shape[1]
    index = faiss.IndexIVFPQ(faiss.IndexFlatL2(dim), dim, num_lists, dim // PQ_NUMBERS, 8)
    index.train(sample)
    return index, num_rows


def ivf_lists(rows: int) -> int:
    """The number of lists of IVF-PQ for so many rows."""
    return max(1, min(int(4 * math.sqrt(rows)), rows // IVF_TRAINING))


def _padded(kind: str, vectors: Floats) -> Floats:
    """The vectors; for IVF-PQ with zeros, which change no distance, up to a dimension that `PQ_NUMBERS` divides."""
    padding = -vectors.shape[1] % PQ_NUMBERS if kind == "ivf_pq" else 0
    return np.pad(vectors, ((0, 0), (0, padding))) if padding else np.ascontiguousarray(vectors)


def _save(index: Any, flags: int, path: Path) -> None:
    faiss = _faiss()
    try:
        faiss.write_index(index, str(path), flags)
    except RuntimeError as error:
        raise OSError(one_line(error)) from None


def _checksum(path: Path) -> tuple[int, int]:
    """CRC-32 and size of a file."""
    crc = size = 0
    with path.open("rb") as file:
        while block := file.read(1 << 24):
            crc, size = zlib.crc32(block, crc), size + len(block)
    return crc, size


def load(path: Path, file: StructureFile, vectors: Floats) -> Structure | None:
    """Reads a structure of the first rows of vectors `[N, d]`; None if the file is missing: all rows are then compared.

    Raises:
        InputError: it is damaged.
    """
    faiss = _faiss()
    hint = "delete it, and build the index again; until then all items are compared"
    try:
        if _checksum(path) != (file.crc, file.size):
            raise InputError(str(path), "damaged: its checksum differs", hint=hint)
        index = faiss.read_index(str(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(str(path), f"cannot be read ({error.strerror or one_line(error)})", hint=hint) from None
    except RuntimeError as error:
        raise InputError(
            str(path), f"FAISS {faiss.__version__} cannot read it ({one_line(error)})", hint=hint
        ) from None
    storage = None
    if file.kind == "hnsw":
        storage = faiss.IndexFlatL2(vectors.shape[1])
        storage.add(np.ascontiguousarray(vectors[: file.count]))
        index.storage, index.own_fields = storage, False
    return Structure(file, index, storage)


# -- searching ---------------------------------------------------------------------------------------------------------


class Nearest(NamedTuple):
    """The k nearest items of each query, nearest first, ties by position."""

    squared: Squares  # [Q,k] squared Euclidean distances
    positions: Positions  # [Q,k]


class Searcher:
    """Searches the live rows of vectors `[N, d]`.

    Args:
        vectors: finite numbers.
        live: `[N]`, False for rows that are never returned.
        norm: at least the largest norm of a vector.
        structure: proposes candidates among the first rows; None compares all rows.
    """

    def __init__(self, vectors: Floats, live: Flags, norm: float, structure: Structure | None = None) -> None:
        self.vectors, self.live, self.norm, self.structure = vectors, live, norm, structure
        self._covered = 0 if structure is None else structure.file.count
        rest = live[self._covered :]
        self._rest_live = int(rest.sum())
        self._rest_removed = len(rest) - self._rest_live
        self._selector = None
        if not live[: self._covered].all():
            faiss = _faiss()
            self._selector = faiss.IDSelectorBitmap(np.packbits(live[: self._covered], bitorder="little"))

    def nearest(self, queries: Floats, k: int) -> Nearest:
        """The k nearest rows to each query `[Q, d]`; at least k are live."""
        out = Nearest(np.empty((len(queries), k)), np.empty((len(queries), k), np.int64))
        step = max(1, min(_QUERIES, _CANDIDATES // (k * RERANKED + _SPARE + _SPARE_REMOVED)))
        for start in range(0, len(queries), step):
            q = queries[start : start + step]
            nearest = self._compare_rest(q, min(k, self._rest_live))
            if self.structure is not None:
                nearest = self._join(q, k, self._propose(self.structure, q, k), nearest)
            out.squared[start : start + step], out.positions[start : start + step] = nearest
        return out

    def _propose(self, structure: Structure, queries: Floats, k: int) -> Positions:
        """Positions of candidates `[Q, at least k]`, -1 where there are fewer."""
        faiss = _faiss()
        kind, options = structure.file.kind, {"sel": self._selector}
        if kind == "hnsw":
            parameters: Any = faiss.SearchParametersHNSW(**options, efSearch=max(HNSW_SEARCH, k))
        else:
            parameters, k = faiss.SearchParametersIVF(**options, nprobe=IVF_PROBES), max(k * RERANKED, LEAST_RERANKED)
        # faiss.contrib.torch_utils, which pytorch-metric-learning imports, has a search without parameters.
        search = getattr(structure.index, "search_numpy", structure.index.search)
        candidates: Positions = search(_padded(kind, queries), k, params=parameters)[1]
        return candidates

    def _join(self, queries: Floats, k: int, proposed: Positions, rest: Nearest) -> Nearest:
        """The k nearest of the proposed rows and those of the rest."""
        squared = self._distances(queries, np.maximum(proposed, 0))
        squared[proposed < 0] = np.inf
        if rest.positions.size:
            squared, proposed = np.hstack((squared, rest.squared)), np.hstack((proposed, rest.positions))
        nearest = _first(squared, proposed, k)
        for row in np.flatnonzero(np.isinf(nearest.squared[:, -1])):
            nearest.squared[row], nearest.positions[row] = self._scan(queries[row], 0, k)
        return nearest

    def _compare_rest(self, queries: Floats, k: int) -> Nearest:
        """The k nearest of the rows that the structure does not cover, exactly."""
        if not k:
            return Nearest(np.empty((len(queries), 0)), np.empty((len(queries), 0), np.int64))
        faiss = _faiss()
        vectors = self.vectors[self._covered :]
        count = min(len(vectors), k + _SPARE + min(self._rest_removed, _SPARE_REMOVED))
        approximate, positions = faiss.knn(queries, vectors, count)
        positions += self._covered
        squared = self._distances(queries, positions)
        if self._rest_removed:
            squared[~self.live[positions]] = np.inf
        nearest = _first(squared, positions, k)
        if count < len(vectors):
            # A product of float32 vectors x, y has an error of at most (d + 8) eps (|x| + |y|)^2, and may underflow.
            norm_sum = np.linalg.norm(queries.astype(np.float64), axis=1) + self.norm
            slack = queries.shape[1] * 2.0**-120 + (queries.shape[1] + 8) * 2.0**-23 * norm_sum**2
            for row in np.flatnonzero(~(nearest.squared[:, -1] < approximate[:, -1] - slack)):
                nearest.squared[row], nearest.positions[row] = self._scan(queries[row], self._covered, k)
        return nearest

    def _scan(self, query: Floats, first: int, k: int) -> Nearest:
        """The k nearest of the rows from `first` on to one query `[d]`, by subtraction: `[k]` and `[k]`."""
        rows = np.arange(first, len(self.vectors))
        chunks = [rows[None, start : start + _SCANNED] for start in range(0, len(rows), _SCANNED)]
        squared = np.concatenate([self._distances(query[None], chunk)[0] for chunk in chunks])
        squared[~self.live[first:]] = np.inf
        nearest = np.flatnonzero(squared <= np.partition(squared, k - 1)[k - 1])
        nearest = nearest[np.argsort(squared[nearest], kind="stable")[:k]]
        return Nearest(squared[nearest], rows[nearest])

    def _distances(self, queries: Floats, positions: Positions) -> Squares:
        """Squared distances `[Q, C]` in float64 of each query `[Q, d]` to the rows at positions `[Q, C]`."""
        rows = np.repeat(np.arange(len(queries)), positions.shape[1])
        x, y, i, j = map(torch.from_numpy, (queries, self.vectors, rows, positions.reshape(-1)))
        return squared_distances_of(x, y, i, j).numpy().reshape(positions.shape)


def _first(squared: Squares, positions: Positions, k: int) -> Nearest:
    """The k nearest of candidates `[Q, C]`, ties by position."""
    order = np.argsort(squared, axis=1)  # in any order at ties: far faster than numpy's stable sorts
    values = np.take_along_axis(squared, order, 1)
    tied = (values[:, 1 : k + 1] == values[:, :-1][:, :k]).any(axis=1)
    order[tied] = np.lexsort((positions[tied], squared[tied]))
    order = order[:, :k]
    return Nearest(np.take_along_axis(squared, order, 1), np.take_along_axis(positions, order, 1))
