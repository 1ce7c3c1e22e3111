"""Ranking a gallery by embedding distance, exactly, through FAISS."""

from __future__ import annotations

from typing import Any, TypeAlias

import faiss
import numpy as np
import torch
from torch import Tensor

from contml.contracts import InputError

Array: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"
Positions: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

#: Candidates beyond k that are ranked again: FAISS rounds, so near ties at k may come out swapped.
_SPARE = 32
#: Queries ranked at a time: bounds the `[queries, candidates, d]` differences.
_QUERIES = 256


def rank(queries: Tensor, gallery: Tensor, k: int, *, itself: Tensor | None = None) -> Tensor:
    """Positions `[Q, k]` of the k nearest of the gallery `[G, d]` to each query `[Q, d]`, nearest first.

    By Euclidean distance in float64; ties go to the lower position. FAISS finds candidates in float32; a query
    for which its rounding could hide a nearer item (tight clusters, ties) is ranked against the whole gallery.
    itself `[Q]`: a query's own position in the gallery, which is left out, or -1.

    Raises:
        InputError: an embedding is not finite.
    """
    for name, embeddings in (("query", queries), ("gallery item", gallery)):
        finite = embeddings.isfinite().all(1)
        if not bool(finite.all()):
            raise InputError(
                f"the embedding of {name} {int((~finite).nonzero()[0])} is not finite; did training diverge?"
            )
    q, g = (x.detach().cpu().double().numpy() for x in (queries, gallery))
    own = np.full(len(q), -1) if itself is None else itself.cpu().numpy()
    # An offset that all share would only make sums round.
    center = g.mean(0)
    q32, g32 = ((x - center).astype(np.float32) for x in (q, g))
    index = faiss.IndexFlatL2(g.shape[1])
    index.add(g32)
    count = min(len(g), k + _SPARE + 1)
    longest = float(np.square(g32).sum(1).max())
    out = np.empty((len(q), k), dtype=np.int64)
    for start in range(0, len(q), _QUERIES):
        part = slice(start, start + _QUERIES)
        approximate, found = index.search(q32[part], count)
        found.sort(axis=1)
        nearest, distances = _again(q[part], g, found, own[part], k)
        out[part] = nearest
        if count < len(g):
            # All that FAISS left out is at least as far as its last candidate, save for its rounding.
            # A much longer vector is far away whatever the rounding, so that no outlier makes all queries unsure.
            length = np.square(q32[part]).sum(1)
            size = length + np.minimum(longest, np.maximum(16 * length, 4 * approximate[:, -1]))
            rounding = 2 * (g.shape[1] + 4) * np.finfo(np.float32).eps * size
            unsure = np.flatnonzero(distances[:, -1] >= approximate[:, -1] - rounding)
            for row in start + unsure:
                out[row] = _whole(q[row], g, own[row], k)
    return torch.from_numpy(out)


def _again(q: Array, g: Array, found: Positions, own: Positions, k: int) -> tuple[Positions, Array]:
    """The k nearest `[q, k]` of candidates `[q, c]`, which are in order of position, and their squared distances."""
    d = np.square(g[found] - q[:, None, :]).sum(2)
    d[found == own[:, None]] = np.inf
    order = np.argsort(d, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(found, order, axis=1), np.take_along_axis(d, order, axis=1)


def _whole(q: Array, g: Array, own: int, k: int) -> Positions:
    """The k nearest `[k]` of the whole gallery to one query `[d]`."""
    d = np.square(g - q).sum(1)
    if own >= 0:
        d[own] = np.inf
    return np.argsort(d, kind="stable")[:k]
