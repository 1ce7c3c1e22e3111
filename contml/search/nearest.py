"""The nearest rows of vectors by Euclidean distance, exactly: all rows are compared with a query.

FAISS finds some more than k candidates by matrix products in float32, whose rounding errors have a bound. Distances of
candidates are computed by subtraction in float64. If rounding could hide a nearer row (tight clusters, ties), the query
is compared with all rows by subtraction.
"""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch

from contml.distances.exact import squared_distances_of

Floats: TypeAlias = "np.ndarray[Any, np.dtype[np.float32]]"
Positions: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Squares: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"

#: Candidates beyond k.
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

    N is at least k. `norm` is at least the largest norm of a vector.
    """
    faiss: Any = importlib.import_module("faiss")  # its type stubs lack most functions that are used here
    out = NearestRows(np.empty((len(queries), k)), np.empty((len(queries), k), np.int64))
    count = min(len(vectors), k + _SPARE)
    step = max(1, min(_QUERIES, _CANDIDATES // max(1, count)))
    for start in range(0, len(queries) if k else 0, step):
        part = queries[start : start + step]
        approximate, rows = faiss.knn(part, vectors, count)
        nearest = _first(_distances(part, vectors, rows), rows, k)
        if count < len(vectors):
            # A product of float32 vectors x, y has an error of at most (d + 8) eps (|x| + |y|)^2, and may underflow.
            norms = np.linalg.norm(part.astype(np.float64), axis=1) + norm
            slack = part.shape[1] * 2.0**-120 + (part.shape[1] + 8) * 2.0**-23 * norms**2
            for query in np.flatnonzero(~(nearest.squared[:, -1] < approximate[:, -1] - slack)):
                nearest.squared[query], nearest.rows[query] = _scan(part[query], vectors, k)
        out.squared[start : start + step], out.rows[start : start + step] = nearest
    return out


def _scan(query: Floats, vectors: Floats, k: int) -> NearestRows:
    """Find the k nearest rows to one query `[d]`, by subtraction: `[k]` and `[k]`."""
    parts = (vectors[start : start + _SCANNED] for start in range(0, len(vectors), _SCANNED))
    squared = np.concatenate([_distances(query[None], part, np.arange(len(part))[None])[0] for part in parts])
    nearest = np.flatnonzero(squared <= np.partition(squared, k - 1)[k - 1])
    nearest = nearest[np.argsort(squared[nearest], kind="stable")[:k]]
    return NearestRows(squared[nearest], nearest)


def _distances(queries: Floats, vectors: Floats, rows: Positions) -> Squares:
    """Compute squared distances `[Q, C]` in float64 of each query `[Q, d]` to the vectors of rows `[Q, C]`."""
    numbers = np.repeat(np.arange(len(queries)), rows.shape[1])
    x, y, i, j = map(torch.from_numpy, (queries, vectors, numbers, rows.reshape(-1)))
    return squared_distances_of(x, y, i, j).numpy().reshape(rows.shape)


def _first(squared: Squares, rows: Positions, k: int) -> NearestRows:
    """Return the k nearest of candidates `[Q, C]`, ties by row."""
    order = np.argsort(squared, axis=1)  # in any order at ties: far faster than numpy's stable sorts
    values = np.take_along_axis(squared, order, 1)
    tied = (values[:, 1 : k + 1] == values[:, :-1][:, :k]).any(axis=1)
    order[tied] = np.lexsort((rows[tied], squared[tied]))
    order = order[:, :k]
    return NearestRows(np.take_along_axis(squared, order, 1), np.take_along_axis(rows, order, 1))
