"""Ranking a gallery by embedding distance, exactly, through FAISS."""

from __future__ import annotations

import faiss
import numpy as np
import torch
from torch import Tensor

from contml.contracts import InputError

#: Candidates beyond k that are ranked again: FAISS's matrix product rounds, so near ties at k may come out swapped.
_SPARE = 32
#: Queries ranked at a time: bounds the `[queries, k, d]` differences.
_QUERIES = 256


def rank(queries: Tensor, gallery: Tensor, k: int, *, itself: Tensor | None = None) -> Tensor:
    """Positions `[Q, k]` of the k nearest of the gallery `[G, d]` to each query `[Q, d]`, nearest first.

    By Euclidean distance, computed again in float64 for the candidates that FAISS finds; ties go to the lower position.
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
    # The offset that all share would make FAISS's single-precision product cancel.
    center = g.mean(0)
    q, g = q - center, g - center
    index = faiss.IndexFlatL2(g.shape[1])
    index.add(g.astype(np.float32))
    candidates = min(len(g), k + _SPARE + (itself is not None))
    own = None if itself is None else itself.cpu().numpy()
    out = np.empty((len(q), k), dtype=np.int64)
    for start in range(0, len(q), _QUERIES):
        part = slice(start, start + _QUERIES)
        _, found = index.search(q[part].astype(np.float32), candidates)
        found.sort(axis=1)  # by position, so that the stable sort below breaks ties by it
        d = np.square(g[found] - q[part, None, :]).sum(2)
        if own is not None:
            d[found == own[part, None]] = np.inf
        order = np.argsort(d, axis=1, kind="stable")[:, :k]
        out[part] = np.take_along_axis(found, order, axis=1)
    return torch.from_numpy(out)
