"""The protocol of retrieval: the model's ranking beside a random one and the oracle's.

Metrics of label distances are for labels of any degree; where labels are classes, Recall@K and MAP@R come first.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from contml.contracts import InputError, LabelSpace
from contml.distances import pairwise, smallest
from contml.evaluation.class_metrics import ClassFigures, relevant_items
from contml.evaluation.metrics import discounts, gains, mean_label_distance_at, ndcg_at, spearman
from contml.evaluation.ranking import check_finite, rank
from contml.evaluation.result import Curve, Evaluation, Ranking, Score

#: The largest K of the curves.
LARGEST_K = 100
#: Query-gallery pairs in the correlation and the density plot.
_PAIRS = 1_000_000
#: Pairs of embeddings in memory at a time.
_CHUNK = 1 << 15
#: Label distances, or places of a ranking, in memory at a time.
_ENTRIES = 1 << 24


def evaluate(
    embeddings: Tensor,
    labels: LabelSpace,
    queries: Tensor | None = None,
    gallery: Tensor | None = None,
    *,
    missing: Tensor | None = None,
    exclude_singletons: bool = False,
) -> tuple[Evaluation, Ranking]:
    """Rank the gallery for each query by embedding distance, and hold the ranking to the label distances.

    Args:
        embeddings: `[N, d]`, one for each row of the label space.
        labels: the label space.
        queries: rows that query, `[Q]`; None with gallery None: every row queries all the others.
        gallery: rows that are ranked, `[G]`.
        missing: rows without an embedding (images that could not be read): they neither query nor are ranked.
        exclude_singletons: where labels are classes, leave out the queries that are alone in theirs: no embedding can
            find anything for them, and they count as misses.

    Raises:
        InputError: fewer than one query or two gallery items, or an embedding that is not finite.
    """
    embeddings = embeddings.detach().cpu()
    everything = torch.arange(len(labels))
    q, g = (everything if rows is None else rows for rows in (queries, gallery))
    if missing is not None and len(missing):
        q, g = (rows[~torch.isin(rows, missing)] for rows in (q, g))
    place = torch.full((len(labels),), -1)
    place[g] = torch.arange(len(g))
    classes: Tensor | None = getattr(labels, "classes", None)
    classes = None if classes is None else classes.cpu()
    if exclude_singletons and classes is not None:
        q = q[relevant_items(classes[q], classes[g], place[q]) > 0]
    if len(q) < 1 or len(g) < 2:
        raise InputError(f"there are {len(q)} queries and {len(g)} gallery items; an evaluation needs at least 1 and 2")
    own = place[q]  # [Q] where a query stands in the gallery, or -1
    itself = own if bool((own >= 0).any()) else None
    k = min(LARGEST_K, len(g) - (itself is not None))
    check_finite(embeddings[q], embeddings[g])
    by_class = None if classes is None else ClassFigures(classes[q], classes[g], own)
    depth = k if by_class is None else max(k, by_class.depth)
    model = torch.empty(len(q), k, dtype=torch.int64)  # positions in the gallery
    for part in _parts(len(q), depth):
        left_out = None if itself is None else itself[part]
        positions = rank(embeddings[q[part]], embeddings[g], depth, itself=left_out, device=labels.device)
        model[part] = positions[:, :k]
        if by_class is not None:
            by_class.add(part, positions)

    pair_query, pair_item = _sample_pairs(len(q), len(g), itself)
    found, best, pair_labels, mean_distance, mean_gain = [], [], [], [], []
    for part in _parts(len(q), len(g)):
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
    curves: dict[str, Curve] = {}
    scores: dict[str, Score] = {}
    if by_class is not None:
        curves["recall"], scores["map_at_r"] = by_class.recall(model), by_class.map_at_r()
    curves |= {
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
    correlation = spearman(pairs[:, 1], pairs[:, 0])
    evaluation = Evaluation(labels.unit, len(q), len(g), curves, correlation, skipped, scores)
    oracle_rows = g[torch.cat([b.rows for b in best])]
    return evaluation, Ranking(q, g[model], oracle_rows, retrieved, oracle, pairs, embeddings)


def _parts(queries: int, width: int) -> Iterator[slice]:
    """Parts of the queries whose blocks `[part, width]` fit in memory."""
    step = max(1, _ENTRIES // width)
    for start in range(0, queries, step):
        yield slice(start, min(start + step, queries))


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
