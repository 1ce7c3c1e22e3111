"""The rank of the nearest item of a query's own class, counted: no ranking is made, so that any K costs the same."""

from __future__ import annotations

import torch
from torch import Tensor

from contml.distances import nearest_vectors, squared_distances_of
from contml.distances.counts import count_nearer
from contml.evaluation.class_metrics import FirstRelevant

#: Pairs of a query and an item of its class at a time.
_PAIRS = 1 << 20
#: Classes of more items are searched, smaller ones compared item by item.
_LARGE = 512


def nearest_of_class(
    queries: Tensor, gallery: Tensor, query_class: Tensor, gallery_class: Tensor, own: Tensor
) -> FirstRelevant:
    """Where the nearest item of each query's class stands among the gallery, exactly; a query itself is left out.

    Args:
        queries: embeddings `[Q, d]`, finite.
        gallery: embeddings `[G, d]`, finite, on the same device.
        query_class: class ids `[Q]`.
        gallery_class: class ids `[G]`.
        own: where each query stands in the gallery, or -1, `[Q]`.
    """
    device = queries.device
    query_class, gallery_class, own = (x.to(device) for x in (query_class, gallery_class, own))
    distance, relevant = _nearest(queries, gallery, query_class, gallery_class, own)
    counts = count_nearer(queries, gallery, torch.where(relevant > 0, distance, 0.0), itself=own)
    return FirstRelevant(counts.nearer.cpu(), counts.tied.clamp(min=1).cpu(), relevant.cpu())


def _nearest(q: Tensor, g: Tensor, query_class: Tensor, gallery_class: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """Squared distance `[Q]` to the nearest of its class, and how many are there; infinite and 0: there is none."""
    best = torch.full((len(q),), torch.inf, dtype=torch.float64, device=q.device)
    relevant = torch.zeros(len(q), dtype=torch.int64, device=q.device)
    order = gallery_class.argsort(stable=True)
    ids = gallery_class[order]
    first, stop = torch.searchsorted(ids, query_class), torch.searchsorted(ids, query_class, right=True)
    size = stop - first
    few = ((size > 0) & (size <= _LARGE)).nonzero()[:, 0]
    for part in torch.split(few, _PAIRS // _LARGE):
        rows = part.repeat_interleave(size[part])
        begin = (size[part].cumsum(0) - size[part]).repeat_interleave(size[part])
        cols = order[first[rows] + torch.arange(len(rows), device=q.device) - begin]
        d = squared_distances_of(q, g, rows, cols).masked_fill_(cols == own[rows], torch.inf)
        best.scatter_reduce_(0, rows, d, "amin")
        relevant.index_add_(0, rows, ((d == best[rows]) & d.isfinite()).long())
    for number in torch.unique(query_class[size > _LARGE]).tolist():
        rows = (query_class == number).nonzero()[:, 0]
        cols = order[int(first[rows[0]]) : int(stop[rows[0]])]
        place = torch.full((len(g),), -1, device=q.device)
        place[cols] = torch.arange(len(cols), device=q.device)
        itself = torch.where(own[rows] >= 0, place[own[rows].clamp(min=0)], -1)
        best[rows] = nearest_vectors(q[rows], g[cols], 1, itself=itself).values[:, 0]
        relevant[rows] = count_nearer(q[rows], g[cols], best[rows], itself=itself).tied
    return best, relevant


def own_class_first(query_class: Tensor, gallery_class: Tensor, own: Tensor, k: int) -> Tensor:
    """Positions `[Q, k]` of the oracle's ranking: the gallery's items of the query's class, then others, as they come.

    A query itself is left out; the gallery has k items besides.
    """
    out = torch.empty(len(query_class), k, dtype=torch.int64)
    by_class, asking = gallery_class.argsort(stable=True), query_class.argsort(stable=True)
    numbers, counts = torch.unique(query_class, return_counts=True)
    ids = gallery_class[by_class]
    first, stop = torch.searchsorted(ids, numbers).tolist(), torch.searchsorted(ids, numbers, right=True).tolist()
    place = torch.arange(k)
    for number, rows, start, end in zip(
        numbers.tolist(), torch.split(asking, counts.tolist()), first, stop, strict=True
    ):
        # As many from the front hold enough of other classes, however many of this one are among them.
        others = (gallery_class[: end - start + k + 1] != number).nonzero()[:, 0]
        order = torch.cat((by_class[start:end][: k + 1], others))[: k + 1]
        passed = (order[: k + 1] == own[rows, None]).cummax(1).values[:, :k]
        out[rows] = order[(place + passed.long()).clamp(max=len(order) - 1)]
    return out
