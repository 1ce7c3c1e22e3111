"""The protocol of continuous retrieval: the model's ranking beside a random one and the oracle's."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from contml.contracts import InputError, LabelSpace
from contml.distances import pairwise, smallest
from contml.evaluation.metrics import discounts, gains, mean_label_distance_at, ndcg_at, spearman
from contml.evaluation.ranking import rank
from contml.evaluation.result import Curve, Evaluation, Ranking

#: The largest K of the curves.
LARGEST_K = 100
#: Query-gallery pairs in the correlation and the density plot.
_PAIRS = 1_000_000
#: Pairs of embeddings in memory at a time.
_CHUNK = 1 << 15
#: Label distances in memory at a time.
_ENTRIES = 1 << 24


def evaluate(
    embeddings: Tensor,
    labels: LabelSpace,
    queries: Tensor | None = None,
    gallery: Tensor | None = None,
    *,
    missing: Tensor | None = None,
) -> tuple[Evaluation, Ranking]:
    """Rank the gallery for each query by embedding distance, and hold the ranking to the label distances.

    Args:
        embeddings: `[N, d]`, one for each row of the label space.
        labels: the label space.
        queries: rows that query, `[Q]`; None with gallery None: every row queries all the others.
        gallery: rows that are ranked, `[G]`.
        missing: rows without an embedding (images that could not be read): they neither query nor are ranked.

    Raises:
        InputError: fewer than one query or two gallery items, or an embedding that is not finite.
    """
    embeddings = embeddings.detach().cpu()
    everything = torch.arange(len(labels))
    q, g = (everything if rows is None else rows for rows in (queries, gallery))
    if missing is not None and len(missing):
        q, g = (rows[~torch.isin(rows, missing)] for rows in (q, g))
    if len(q) < 1 or len(g) < 2:
        raise InputError(f"there are {len(q)} queries and {len(g)} gallery items; an evaluation needs at least 1 and 2")
    place = torch.full((len(labels),), -1)
    place[g] = torch.arange(len(g))
    own = place[q]  # [Q] where a query stands in the gallery, or -1
    itself = own if bool((own >= 0).any()) else None
    k = min(LARGEST_K, len(g) - (itself is not None))
    model = rank(embeddings[q], embeddings[g], k, itself=itself, device=labels.device)  # [Q,K] positions in the gallery

    pair_query, pair_item = _sample_pairs(len(q), len(g), itself)
    found, best, pair_labels, mean_distance, mean_gain = [], [], [], [], []
    step = max(1, _ENTRIES // len(g))
    for start in range(0, len(q), step):
        part = slice(start, min(start + step, len(q)))
        d = pairwise(labels, q[part], g).cpu()  # [q,G]
        out = None if itself is None else own[part, None] == torch.arange(len(g))
        found.append(d.gather(1, model[part]))
        best.append(smallest(d, torch.arange(len(g)), k, out=out))
        inside = torch.ones_like(d, dtype=torch.float64) if out is None else (~out).double()
        mean_distance.append((d * inside).sum(1) / inside.sum(1))
        mean_gain.append((gains(d) * inside).sum(1) / inside.sum(1))
        low, high = torch.searchsorted(pair_query, torch.tensor([part.start, part.stop])).tolist()
        pair_labels.append(d[pair_query[low:high] - part.start, pair_item[low:high]])

    retrieved, oracle = torch.cat(found), torch.cat([b.distances for b in best])
    apart = [
        torch.linalg.vector_norm(embeddings[a].double() - embeddings[b].double(), dim=1)
        for a, b in zip(torch.split(q[pair_query], _CHUNK), torch.split(g[pair_item], _CHUNK), strict=True)
    ]
    pairs = torch.stack((torch.cat(pair_labels).double(), torch.cat(apart)), 1)
    by_chance = torch.cat(mean_distance).mean().expand(k)
    ideal = (gains(oracle) * discounts(k)).cumsum(1)  # [Q,K]
    ndcg_by_chance = (torch.cat(mean_gain)[:, None] * discounts(k).cumsum(0) / ideal).mean(0)
    curves = {
        "label_distance": Curve(
            "mean label distance",
            "lower",
            mean_label_distance_at(retrieved).tolist(),
            by_chance.tolist(),
            mean_label_distance_at(oracle).tolist(),
        ),
        "ndcg": Curve("nDCG", "higher", ndcg_at(retrieved, oracle).tolist(), ndcg_by_chance.tolist(), [1.0] * k),
    }
    skipped = 0 if missing is None else len(missing)
    evaluation = Evaluation(labels.unit, len(q), len(g), curves, spearman(pairs[:, 1], pairs[:, 0]), skipped)
    oracle_rows = g[torch.cat([b.rows for b in best])]
    return evaluation, Ranking(q, g[model], oracle_rows, retrieved, oracle, pairs, embeddings)


def _sample_pairs(queries: int, gallery: int, itself: Tensor | None) -> tuple[Tensor, Tensor]:
    """Positions of query-gallery pairs, in order of the query: all, or a uniform sample that is always the same."""
    total = queries * gallery
    if total <= _PAIRS:
        flat = torch.arange(total)
    else:
        flat = torch.from_numpy(np.unique(np.random.default_rng(0).integers(0, total, _PAIRS)))
    query, item = flat // gallery, flat % gallery
    if itself is not None:
        apart = itself[query] != item
        query, item = query[apart], item[apart]
    return query, item
