"""Ranking a gallery by embedding distance, exactly."""

from __future__ import annotations

import torch
from torch import Tensor

from contml._support.errors import InputError
from contml.distances import nearest_vectors
from contml.distances.vectors import Nearest


def rank(
    queries: Tensor,
    gallery: Tensor,
    k: int,
    *,
    itself: Tensor | None = None,
    device: torch.device | str = "cpu",
) -> Nearest:
    """The k nearest of the gallery `[G, d]` to each query `[Q, d]`: squared distances and positions `[Q, k]`.

    By Euclidean distance in float64, nearest first; ties go to the lower position. The result is on the CPU.

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
    where = search_device(device)
    found = nearest_vectors(queries.to(where), gallery.to(where), k, itself=itself)
    return Nearest(found.values.cpu(), found.positions.cpu())


def search_device(device: torch.device | str) -> torch.device:
    """Where to search for those whose labels are there: CUDA devices themselves, else the CPU."""
    return torch.device(device if torch.device(device).type == "cuda" else "cpu")


def check_finite(queries: Tensor, gallery: Tensor) -> None:
    """Refuse embeddings that are not finite, naming the first."""
    for name, embeddings in (("query", queries), ("gallery item", gallery)):
        finite = embeddings.isfinite().all(1)
        if not bool(finite.all()):
            raise InputError(
                f"the embedding of {name} {int((~finite).nonzero()[0])} is not finite; did training diverge?"
            )
