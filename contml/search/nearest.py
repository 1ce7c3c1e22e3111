"""The nearest rows of vectors by Euclidean distance: exactly, or through a graph of their distinct vectors.

    rows    0 ............ m ............ n
            | graph        | compared     |      without a graph: m = 0
              candidates     all of them

    candidates of both ---> distances by subtraction in float64 ---> the k nearest, ties by row

The exact search is certified. FAISS finds some more than k candidates by matrix products in float32, whose rounding
errors have a bound. Where rounding could hide a nearer row (tight clusters, ties), the query is compared with all rows
by subtraction.

A graph (HNSW) has a node per distinct vector, since copies cut a graph apart. It proposes nodes, and may miss some of
the nearest. How widely it is searched is measured with distinct vectors as queries. Graphs are in the cache of the
user, under a hash of the vectors: a graph that comes with an index would be followed by FAISS without a check.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch

from contml._support.errors import InputError
from contml._support.files import user_cache
from contml._support.tensors import load_tensors, save_tensors
from contml.distances.exact import distinct, squared_distances_of

Floats: TypeAlias = "np.ndarray[Any, np.dtype[np.float32]]"
Flags: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"
Positions: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Squares: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"

#: Rows up to which all are compared, and the share of newer rows from which a graph is built again.
EXACT_ROWS, NEW = 200_000, 0.1
#: Neighbours per node, and candidates kept while a graph is built.
NEIGHBOURS, BUILD = 16, 100
#: The share of the true nearest that a search is to find, of how many, and the distinct vectors that are queries.
RECALL, RECALL_K, QUERIES = 0.95, 10, 200
#: Candidates that a search of a graph keeps: the first number that finds enough is used.
EFFORTS = (64, 128, 256, 512)
#: Nodes that are added to a graph at a time.
_PART = 1 << 16
#: Candidates beyond k of the exact search.
_SPARE = 32
#: Queries at a time, and candidates of all of them.
_QUERIES, _CANDIDATES = 4096, 1 << 22
#: Rows that are compared with one query at a time by subtraction.
_SCANNED = 1 << 18


class NearestRows(NamedTuple):
    """The k nearest rows of each query, nearest first, ties by row."""

    squared: Squares  # [Q,k] squared Euclidean distances
    rows: Positions  # [Q,k]


def nearest_rows(queries: Floats, vectors: Floats, k: int, norm: float) -> NearestRows:
    """Return the k nearest of vectors `[N, d]` to each query `[Q, d]`, exactly.

    N is at least k, and `norm` at least the largest norm of a vector.
    """
    if not k:
        return NearestRows(np.empty((len(queries), 0)), np.empty((len(queries), 0), np.int64))
    count = min(len(vectors), k + _SPARE)
    approximate, rows = _faiss().knn(queries, vectors, count)
    nearest = _first(_distances(queries, vectors, rows), rows, k)
    if count < len(vectors):
        # A product of float32 vectors x, y has an error of at most (d + 8) eps (|x| + |y|)^2, and may underflow.
        norms = np.linalg.norm(queries.astype(np.float64), axis=1) + norm
        slack = queries.shape[1] * 2.0**-120 + (queries.shape[1] + 8) * 2.0**-23 * norms**2
        for query in np.flatnonzero(~(nearest.squared[:, -1] < approximate[:, -1] - slack)):
            nearest.squared[query], nearest.rows[query] = _scan(queries[query], vectors, k)
    return nearest


def _parts(vectors: Floats) -> Iterable[Floats]:
    return (vectors[start : start + _SCANNED] for start in range(0, len(vectors), _SCANNED))


def _scan(query: Floats, vectors: Floats, k: int) -> NearestRows:
    """The k nearest rows to one query `[d]`, by subtraction: `[k]` and `[k]`."""
    parts = [_distances(query[None], part, np.arange(len(part))[None])[0] for part in _parts(vectors)]
    squared = np.concatenate(parts)
    nearest = np.flatnonzero(squared <= np.partition(squared, k - 1)[k - 1])
    nearest = nearest[np.argsort(squared[nearest], kind="stable")[:k]]
    return NearestRows(squared[nearest], nearest)


def _distances(queries: Floats, vectors: Floats, rows: Positions) -> Squares:
    """Squared distances `[Q, C]` in float64 of each query `[Q, d]` to the vectors of rows `[Q, C]`."""
    numbers = np.repeat(np.arange(len(queries)), rows.shape[1])
    x, y, i, j = map(torch.from_numpy, (queries, vectors, numbers, rows.reshape(-1)))
    return squared_distances_of(x, y, i, j).numpy().reshape(rows.shape)


def _first(squared: Squares, rows: Positions, k: int) -> NearestRows:
    """The k nearest of candidates `[Q, C]`, ties by row."""
    order = np.argsort(squared, axis=1)  # in any order at ties: far faster than numpy's stable sorts
    values = np.take_along_axis(squared, order, 1)
    tied = (values[:, 1 : k + 1] == values[:, :-1][:, :k]).any(axis=1)
    order[tied] = np.lexsort((rows[tied], squared[tied]))
    order = order[:, :k]
    return NearestRows(np.take_along_axis(squared, order, 1), np.take_along_axis(rows, order, 1))


class Searcher:
    """Searches the live rows of vectors `[N, d]`.

    Args:
        vectors: finite numbers.
        live: `[N]`, False for rows that are never returned.
        norm: at least the largest norm of a vector.
        ends: numbers of rows for which a graph may be in the cache, ascending; the last one is N.
        progress: called with the number of nodes of a graph that is built.
    """

    def __init__(
        self, vectors: Floats, live: Flags, norm: float, ends: Iterable[int], progress: Callable[[int], None]
    ) -> None:
        self.vectors, self._norm = vectors, norm
        self._graph = Graph.of(vectors, norm, ends, progress) if live.sum() > EXACT_ROWS else None
        self._covered = 0 if self._graph is None else self._graph.count
        self._rest = self._covered + np.flatnonzero(live[self._covered :])
        whole = len(self._rest) == len(vectors) - self._covered
        self._compared = vectors[self._covered :] if whole else vectors[self._rest]
        self._live_rows = np.flatnonzero(live)
        if self._graph is not None:
            nodes = self._graph.nodes
            covered = np.flatnonzero(live[: self._covered])
            self._rows = covered[np.argsort(nodes[covered], kind="stable")]  # by node, then by row
            counts = np.bincount(nodes[covered], minlength=len(self._graph.first))
            self._starts, self._copies = np.concatenate(([0], np.cumsum(counts))), int(counts.max())
            bits = np.packbits(counts > 0, bitorder="little")
            self._selector = _faiss().IDSelectorBitmap(bits) if not counts.all() else None

    @property
    def text(self) -> str:
        """How it searches, in words, and what share of the true nearest it finds."""
        if self._graph is None:
            few = len(self._live_rows) <= EXACT_ROWS
            return f"exact, compares all items{'' if few else f': a graph finds less than {RECALL:.0%} of the nearest'}"
        found = f"finds {self._graph.recall:.1%} of the true {RECALL_K} nearest of {QUERIES} distinct items"
        return f"a graph of {len(self._graph.first):,} distinct vectors, {self._graph.effort} candidates; {found}"

    def nearest(self, queries: Floats, k: int) -> NearestRows:
        """Return the k nearest live rows to each query `[Q, d]`; there are at least k."""
        out = NearestRows(np.empty((len(queries), k)), np.empty((len(queries), k), np.int64))
        copies = 1 if self._graph is None else min(k, self._copies)
        step = max(1, min(_QUERIES, _CANDIDATES // (k * copies + _SPARE)))
        for start in range(0, len(queries), step):
            part = queries[start : start + step]
            found = nearest_rows(part, self._compared, min(k, len(self._rest)), self._norm)
            nearest = NearestRows(found.squared, self._rest[found.rows])
            if self._graph is not None:
                nearest = self._joined(part, k, copies, self._graph, nearest)
            out.squared[start : start + step], out.rows[start : start + step] = nearest
        return out

    def _joined(self, queries: Floats, k: int, copies: int, graph: Graph, rest: NearestRows) -> NearestRows:
        """The k nearest of the rows of the graph and of the rest."""
        nodes = graph.search(queries, min(k, len(graph.first)), graph.effort, self._selector)
        squared = _distances(queries, self.vectors, graph.first[np.maximum(nodes, 0)])
        squared[nodes < 0] = np.inf
        places = self._starts[nodes][..., None] + np.arange(copies)  # [Q,k,copies]: the first rows of each node
        is_row = (places < self._starts[nodes + 1][..., None]) & (nodes >= 0)[..., None]
        rows = self._rows[np.where(is_row, places, 0)].reshape(len(queries), -1)
        spread = np.where(is_row, squared[..., None], np.inf).reshape(len(queries), -1)
        nearest = _first(np.hstack((spread, rest.squared)), np.hstack((rows, rest.rows)), k)
        for query in np.flatnonzero(np.isinf(nearest.squared[:, -1])):  # the graph found fewer than k
            found = _scan(queries[query], self.vectors[self._live_rows], k)
            nearest.squared[query], nearest.rows[query] = found.squared, self._live_rows[found.rows]
        return nearest


class Graph:
    """A graph of the distinct vectors of the first rows.

    Attributes:
        nodes: the node of each row, `[count]`.
        first: the first row of each node, `[U]`.
        effort: candidates that a search keeps.
        recall: the share of the true nearest that it finds.
    """

    def __init__(self, index: Any, storage: Any, nodes: Positions, effort: int, recall: float) -> None:
        self._index, self._storage, self.nodes = index, storage, nodes  # FAISS does not keep the storage alive
        self.first = np.unique(nodes, return_index=True)[1]
        self.effort, self.recall = effort, recall

    @property
    def count(self) -> int:
        """The number of rows."""
        return len(self.nodes)

    @classmethod
    def of(cls, vectors: Floats, norm: float, ends: Iterable[int], progress: Callable[[int], None]) -> Graph | None:
        """Return the graph of vectors, or of nearly all of them, from the cache; it is built if there is none.

        Return None if a graph would find too few of the nearest.
        """
        content, keys, start = hashlib.sha256(str(vectors.shape[1]).encode()), {}, 0
        for end in ends:
            content.update(np.ascontiguousarray(vectors[start:end]).data)
            keys[end], start = content.hexdigest()[:32], end
        for end in sorted((end for end in keys if len(vectors) <= (1 + NEW) * end), reverse=True):
            with suppress(InputError, FileNotFoundError):
                return cls._load(keys[end], vectors[:end])
        graph = cls._build(vectors, norm, progress)
        with suppress(InputError):  # a home that cannot be written
            graph._save(keys[len(vectors)])
        return graph if graph.recall >= RECALL else None

    @classmethod
    def _build(cls, vectors: Floats, norm: float, progress: Callable[[int], None]) -> Graph:
        faiss = _faiss()
        nodes = distinct(torch.from_numpy(vectors)).inverse.numpy()
        first = np.unique(nodes, return_index=True)[1]
        index = faiss.IndexHNSWFlat(vectors.shape[1], NEIGHBOURS)
        index.hnsw.efConstruction = BUILD
        for start in range(0, len(first), _PART):
            index.add(vectors[first[start : start + _PART]])
            progress(min(start + _PART, len(first)))
        graph = cls(index, None, nodes, EFFORTS[0], 0.0)
        queries = np.random.default_rng(0).choice(len(first), min(QUERIES, len(first)), replace=False)
        k, x, known = min(RECALL_K, len(first) - 1), vectors[first[queries]], vectors[first]
        limits = nearest_rows(x, known, k + 1, norm).squared[:, -1:]  # of the k-th other node
        best = EFFORTS[0], 0.0
        for effort in EFFORTS:
            found = graph.search(x, k + 1, effort)
            others = (found >= 0) & (found != queries[:, None])
            near = others & (_distances(x, known, np.maximum(found, 0)) <= limits)
            best = effort, float(np.minimum(near.sum(1), k).mean() / k)
            if best[1] >= RECALL:
                break
        graph.effort, graph.recall = best
        return graph

    def search(self, queries: Floats, k: int, effort: int, selector: Any = None) -> Positions:
        """Return nodes near to queries `[Q, k]`, -1 where there are fewer."""
        parameters = _faiss().SearchParametersHNSW(sel=selector, efSearch=max(effort, k))
        # faiss.contrib.torch_utils, which pytorch-metric-learning imports, has a search without parameters.
        search = getattr(self._index, "search_numpy", self._index.search)
        nodes: Positions = search(queries, k, params=parameters)[1]
        return nodes

    def _save(self, key: str) -> None:
        faiss = _faiss()
        content = np.empty(0, np.uint8)
        if self.recall >= RECALL:
            content = faiss.serialize_index(self._index, faiss.IO_FLAG_SKIP_STORAGE)
        tensors = {"graph": torch.from_numpy(content), "nodes": torch.from_numpy(self.nodes.astype(np.int32))}
        save_tensors(user_cache("graphs") / f"{key}.safetensors", tensors, effort=self.effort, recall=self.recall)

    @classmethod
    def _load(cls, key: str, vectors: Floats) -> Graph | None:
        """The graph in the cache; None if it was found to miss too many.

        Raises:
            FileNotFoundError: there is none.
            InputError: it is damaged.
        """
        faiss = _faiss()
        tensors, values = load_tensors(user_cache("graphs") / f"{key}.safetensors")
        if values["recall"] < RECALL:
            return None
        index, storage = faiss.deserialize_index(tensors["graph"].numpy()), faiss.IndexFlatL2(vectors.shape[1])
        graph = cls(index, storage, tensors["nodes"].long().numpy(), values["effort"], values["recall"])
        storage.add(vectors if len(graph.first) == len(vectors) else vectors[graph.first])
        index.storage, index.own_fields = storage, False
        return graph


def _faiss() -> Any:
    """FAISS, imported on first use; its type stubs lack most of what is used here."""
    return importlib.import_module("faiss")
