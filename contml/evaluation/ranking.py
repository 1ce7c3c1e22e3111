"""Ranking a gallery by embedding distance, exactly."""

from __future__ import annotations

from torch import Tensor

from contml.contracts import InputError
from contml.distances import nearest_vectors


def rank(queries: Tensor, gallery: Tensor, k: int, *, itself: Tensor | None = None) -> Tensor:
    """Positions `[Q, k]` of the k nearest of the gallery `[G, d]` to each query `[Q, d]`, nearest first.

    By Euclidean distance in float64; ties go to the lower position. FAISS finds candidates on the CPU, torch on a GPU.
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
    return nearest_vectors(queries, gallery, k, itself=itself).positions
