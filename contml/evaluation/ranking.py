"""Ranking a gallery by embedding distance, exactly."""

from __future__ import annotations

import torch
from torch import Tensor

from contml.contracts import InputError
from contml.distances import nearest_vectors


def rank(
    queries: Tensor,
    gallery: Tensor,
    k: int,
    *,
    itself: Tensor | None = None,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Positions `[Q, k]` of the k nearest of the gallery `[G, d]` to each query `[Q, d]`, nearest first.

    By Euclidean distance in float64; ties go to the lower position. The result is on the CPU.

    Args:
        queries: embeddings, on any device.
        gallery: embeddings, on any device.
        k: how many.
        itself: `[Q]`, a query's own position in the gallery, which is left out, or -1.
        device: where to search: FAISS on the CPU, torch on a CUDA device; any other has no float64 and is not used.

    Raises:
        InputError: an embedding is not finite.
    """
    check_finite(queries, gallery)
    where = device if torch.device(device).type == "cuda" else "cpu"
    return nearest_vectors(queries.to(where), gallery.to(where), k, itself=itself).positions.cpu()


def check_finite(queries: Tensor, gallery: Tensor) -> None:
    """Refuse embeddings that are not finite, naming the first."""
    for name, embeddings in (("query", queries), ("gallery item", gallery)):
        finite = embeddings.isfinite().all(1)
        if not bool(finite.all()):
            raise InputError(
                f"the embedding of {name} {int((~finite).nonzero()[0])} is not finite; did training diverge?"
            )
