"""How many of the nearest items are found by codes of embeddings, and by shorter embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from contml.distances import nearest_vectors, normalize, squared_distances_of
from contml.retrieval.index_structure import CODE_KINDS, RECALL_K, RECALL_QUERIES, code_bytes, nearest_codes

#: Candidates per result whose exact distances are computed; 1: the ranking by the codes themselves.
CANDIDATES = (1, 5, 20)


class CodeRecall(NamedTuple):
    """The share of the true nearest items that a code finds.

    Attributes:
        code: "int8", "binary", or "first 16 numbers" of a model with `nested_dims`.
        item_bytes: memory of an item.
        found: the share of the k nearest that are found, for each of `CANDIDATES`; None where all items are candidates.
    """

    code: str
    item_bytes: int
    found: list[float | None]


def code_recall(
    embeddings: Tensor, queries: Tensor, gallery: Tensor, nested_dims: Sequence[int] = ()
) -> list[CodeRecall]:
    """The share of the 10 nearest items by exact distance that codes find, for at most 200 of the queries.

    Embeddings that are not finite are left out. Without a query and two items there is nothing to measure.

    Args:
        embeddings: `[N, d]`.
        queries: rows of the queries; one that is in the gallery does not find itself.
        gallery: rows of the items that are searched.
        nested_dims: shorter lengths that the model was trained for. Where all embeddings have length 1, the shorter
            ones are scaled to it too, as the model does.
    """
    x = embeddings.cpu().float()
    queries, gallery = (rows.cpu()[x[rows.cpu()].isfinite().all(1)] for rows in (queries, gallery))
    if not len(queries) or len(gallery) < 2:
        return []
    chosen = np.random.default_rng(0).choice(len(queries), min(RECALL_QUERIES, len(queries)), replace=False)
    query_rows = queries[np.sort(chosen)]
    position = torch.full((len(x),), -1)
    position[gallery] = torch.arange(len(gallery))
    own, items, q = position[query_rows], x[gallery], x[query_rows]
    available = len(items) - int(bool((own >= 0).any()))
    k = min(RECALL_K, available)
    most = min(k * max(CANDIDATES), available)
    limit = nearest_vectors(q, items, k, self_index=own).values[:, -1:]

    def found(candidates: Tensor) -> list[float | None]:
        """The shares for candidates `[Q, most]`, best first."""
        row = torch.arange(len(q)).repeat_interleave(most)
        near = squared_distances_of(q, items, row, candidates.reshape(-1)).reshape(len(q), most) <= limit
        shares = [near[:, : k * each].sum(1).clamp(max=k).double().mean().item() / k for each in CANDIDATES]
        return [share if k * each < available else None for each, share in zip(CANDIDATES, shares, strict=True)]

    is_unit = bool(((x.norm(dim=1) - 1).abs() < 1e-4)[gallery].all())
    results = []
    for kind in CODE_KINDS:
        nearest = nearest_codes(kind, items.numpy(), q.numpy(), min(most + 1, len(items)))
        candidates = torch.from_numpy(nearest).clamp(min=0)  # -1 stands for a distance beyond float32
        others_first = (candidates == own[:, None]).int().argsort(dim=1, stable=True)
        candidates = candidates.gather(1, others_first)[:, :most]
        results.append(CodeRecall(kind, code_bytes(kind, x.shape[1]), found(candidates)))
    for dim in nested_dims:
        short = normalize(x[:, :dim]) if is_unit else x[:, :dim]
        candidates = nearest_vectors(short[query_rows], short[gallery], most, self_index=own).positions
        results.append(CodeRecall(f"first {dim} numbers", 4 * dim, found(candidates)))
    return results
