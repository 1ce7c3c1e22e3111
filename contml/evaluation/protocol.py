"""The protocol of retrieval: the model's ranking beside a random one and the oracle's.

Metrics of label distances are for labels of any degree; where labels are classes, Recall@K, MAP@R, R-precision, NMI
and F1 come first. Items at equal distance share their places: figures are expectations over the orders of equals
(`contml.evaluation.ties`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from contml._support.errors import InputError
from contml.distances import ExactDistances, smallest, squared_distances_of
from contml.distances.vectors import Nearest
from contml.evaluation.class_figures import ClassFigures, cluster_scores
from contml.evaluation.class_metrics import relevant_items
from contml.evaluation.class_ranks import own_class_first
from contml.evaluation.metrics import discounts, gains, mean_label_distance_at, ndcg_at, spearman
from contml.evaluation.ranking import check_finite, rank, search_device
from contml.evaluation.result import RECALL_AT, Curve, Evaluation, Ranking, Score
from contml.evaluation.ties import cut_off, find_ties, members_beyond
from contml.labels.base import LabelSpace

#: The largest K of the curves, save Recall's.
LARGEST_K = 100
#: Query-gallery pairs in the correlation and the density plot.
_PAIRS = 1_000_000
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
    recall_at: Sequence[int] | None = None,
    clusters: bool = True,
    groups: Tensor | None = None,
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
        recall_at: the K of Recall@K, where labels are classes; of any size: items beyond the 100th place
            are counted, not ranked. Default 1, 2, 4, 8, 10, 20, 50, 100.
        clusters: where labels are classes, cluster queries and gallery for NMI and F1: k-means with as many clusters as
            they have classes.
        groups: the group of each row `[N]`, such as the house of a photograph: the other items of a query's own group
            are left out of its gallery. For graded labels.

    Raises:
        InputError: another number of embeddings than of labels, one that is not finite, fewer than one query or two
            gallery items, or a K below 1.
    """
    recall_ks = sorted(set(RECALL_AT if recall_at is None else recall_at))
    if not recall_ks or recall_ks[0] < 1:
        raise InputError(f"recall_at is {list(recall_at or [])}; give whole numbers from 1 on, such as [1, 10, 100]")
    classes = None if labels.class_ids is None else labels.class_ids.cpu()
    embeddings = embeddings.detach().cpu()
    if len(embeddings) != len(labels):
        raise InputError(f"there are {len(embeddings)} embeddings for {len(labels)} labels; give one for each")
    if groups is not None:
        if classes is not None:
            raise InputError("groups are left out of the gallery for graded labels, but these labels are classes")
        if len(groups) != len(labels):
            raise InputError(f"there are {len(groups)} groups for {len(labels)} labels; give one for each")
    sides = _who_queries_whom(embeddings, queries, gallery, missing, classes if exclude_singletons else None, groups)
    check_finite(sides.queries, sides.gallery)
    k = min(LARGEST_K, sides.available)
    if k < 1:
        raise InputError("a query has nothing to find outside of its own group; give it a larger gallery")
    pair_query, pair_item = _sample_pairs(sides)
    curves: dict[str, Curve] = {}
    scores: dict[str, Score] = {}
    if classes is None:
        found = _by_degree(sides, labels, k, pair_query, pair_item)
    else:
        found, figures = _by_class(sides, classes, k, pair_query, pair_item, labels.device)
        largest = min(max(k, recall_ks[-1]), sides.available)
        curves["recall"], scores = figures.recall(largest), figures.scores()
        if clusters:
            members = torch.unique(torch.cat((sides.q, sides.g)))
            scores |= cluster_scores(embeddings[members].to(search_device(labels.device)), classes[members])

    curves |= _curves_of_degree(found, k)
    apart = squared_distances_of(sides.queries, sides.gallery, pair_query, pair_item).sqrt()
    pairs = torch.stack((found.pair_labels.double(), apart), 1)
    skipped = 0 if missing is None else len(missing)
    correlation = spearman(pairs[:, 1], pairs[:, 0])
    evaluation = Evaluation(labels.unit, len(sides.q), len(sides.g), curves, correlation, skipped, scores, recall_ks)
    ranking = Ranking(
        sides.q, sides.g[found.model], sides.g[found.best], found.retrieved, found.oracle, pairs, embeddings
    )
    return evaluation, ranking


class _Sides(NamedTuple):
    """Who queries whom."""

    q: Tensor  # [Q] rows of the label space
    g: Tensor  # [G]
    own: Tensor  # [Q] where a query stands in the gallery, or -1
    queries: Tensor  # [Q,d] embeddings
    gallery: Tensor  # [G,d]
    query_group: Tensor | None = None  # [Q]
    gallery_group: Tensor | None = None  # [G]

    @property
    def most_excluded(self) -> int:
        """The most gallery items that a query does not look for."""
        if self.query_group is None or self.gallery_group is None:
            return int(bool((self.own >= 0).any()))
        ids, counts = torch.unique(self.gallery_group, return_counts=True)
        return int(torch.where(torch.isin(ids, self.query_group), counts, 0).max())

    @property
    def available(self) -> int:
        """Items that every query can find."""
        return len(self.g) - self.most_excluded

    def excluded(self, part: slice) -> Tensor:
        """The gallery items that some queries do not look for: themselves, or their own group; bool `[q, G]`."""
        if self.query_group is None or self.gallery_group is None:
            return self.own[part, None] == torch.arange(len(self.g))
        return self.query_group[part, None] == self.gallery_group

    def rank(self, part: slice, places: int, device: torch.device) -> Nearest:
        """The nearest of the gallery to some queries; where all are asked a query itself comes last, infinitely far."""
        if self.query_group is None or self.gallery_group is None:
            own = self.own[part] if bool((self.own >= 0).any()) else None
            return rank(self.queries[part], self.gallery, places, itself=own, device=device)
        # As many more as can be left out: all that is not among them is at least as far as the last.
        more = min(places + self.most_excluded, len(self.g))
        values, positions = rank(self.queries[part], self.gallery, more, device=device)
        values = values.masked_fill(self.query_group[part, None] == self.gallery_group[positions], torch.inf)
        values, order = values.sort(dim=1, stable=True)
        return Nearest(values[:, :places], positions.gather(1, order)[:, :places])


class _Found(NamedTuple):
    """The rankings and their label distances."""

    model: Tensor  # [Q,k] positions in the gallery, ties to the lower one
    retrieved: Tensor  # [Q,k] label distances of these
    expected: Tensor  # [Q,k] label distance expected at each place, over the orders of equals
    gain: Tensor  # [Q,k] gain expected
    best: Tensor  # [Q,k] positions of the oracle's ranking
    oracle: Tensor  # [Q,k] label distances of these
    random_distance: Tensor  # [Q] of a random item
    random_gain: Tensor  # [Q]
    pair_labels: Tensor  # [P]


def _who_queries_whom(
    embeddings: Tensor,
    queries: Tensor | None,
    gallery: Tensor | None,
    missing: Tensor | None,
    classes: Tensor | None,
    groups: Tensor | None,
) -> _Sides:
    """The sides of an evaluation; with `classes`, without the queries that are alone in theirs."""
    everything = torch.arange(len(embeddings))
    q, g = (everything if rows is None else rows for rows in (queries, gallery))
    if missing is not None and len(missing):
        q, g = (rows[~torch.isin(rows, missing)] for rows in (q, g))
    place = torch.full((len(everything),), -1)
    place[g] = torch.arange(len(g))
    if classes is not None:
        q = q[relevant_items(classes[q], classes[g], place[q]) > 0]
    if len(q) < 1 or len(g) < 2:
        raise InputError(f"there are {len(q)} queries and {len(g)} gallery items; an evaluation needs at least 1 and 2")
    whole = torch.equal(q, everything) and torch.equal(g, everything)
    sides = _Sides(q, g, place[q], *((embeddings, embeddings) if whole else (embeddings[q], embeddings[g])))
    return sides if groups is None else sides._replace(query_group=groups[q], gallery_group=groups[g])


def _by_class(
    sides: _Sides, classes: Tensor, k: int, pair_query: Tensor, pair_item: Tensor, device: torch.device
) -> tuple[_Found, ClassFigures]:
    q, g = sides.q, sides.g
    of_query, of_gallery = classes[q], classes[g]
    figures = ClassFigures(sides.queries, sides.gallery, of_query, of_gallery, sides.own, k, device)
    places = min(figures.depth + 1, len(g))
    model = torch.empty(len(q), k, dtype=torch.int64)
    for part in _parts(len(q), places):
        ranked = sides.rank(part, places, device)
        model[part] = ranked.positions[:, :k]
        figures.add(part, ranked)
    found = _Found(
        model,
        (of_gallery[model] != of_query[:, None]).float(),
        figures.label_distances,
        1 - figures.label_distances / 2,  # a gain is 1 within a class, 1/2 between classes
        own_class_first(of_query, of_gallery, sides.own, k),
        figures.oracle(),
        *figures.by_chance(),
        (of_query[pair_query] != of_gallery[pair_item]).float(),
    )
    return found, figures


def _by_degree(sides: _Sides, labels: LabelSpace, k: int, pair_query: Tensor, pair_item: Tensor) -> _Found:
    q, g = sides.q, sides.g
    places = min(k + 1, len(g))
    whole = ExactDistances(sides.gallery)
    ranked = [sides.rank(part, places, labels.device) for part in _parts(len(q), places)]
    distances, positions = (torch.cat(parts) for parts in zip(*ranked, strict=True))
    blocks: list[tuple[Tensor, ...]] = []
    for part in _parts(len(q), len(g)):
        d = labels.pairwise(q[part], g).cpu()  # [q,G]
        out = sides.excluded(part)
        retrieved = d.gather(1, positions[part])
        expected, gain = retrieved.double(), gains(retrieved)
        ties = find_ties(distances[part])
        cut = cut_off(distances[part], ties)
        rows = ties.rows[cut]
        beyond = torch.zeros(2, len(ties.rows), dtype=torch.float64)
        vectors = sides.queries[part][rows]
        tied = distances[part][rows], positions[part][rows], out[rows].__getitem__
        for cut_positions, equal in members_beyond(vectors, whole, *tied, len(g)):
            ties.beyond[cut[cut_positions]] = equal.sum(1)
            beyond[0, cut[cut_positions]] = (d[rows[cut_positions]] * equal).double().sum(1)
            beyond[1, cut[cut_positions]] = (gains(d[rows[cut_positions]]) * equal).sum(1)
        for values, past in zip((expected, gain), beyond, strict=True):
            values[ties.rows] = ties.sums(values[ties.rows], past) / ties.size
        best = smallest(d, torch.arange(len(g)), k, excluded=out)
        inside = (~out).double()
        low, high = torch.searchsorted(pair_query, torch.tensor([part.start, part.stop])).tolist()
        blocks.append(
            (
                retrieved[:, :k],
                expected[:, :k],
                gain[:, :k],
                best.rows,
                best.distances,
                (d * inside).sum(1) / inside.sum(1),
                (gains(d) * inside).sum(1) / inside.sum(1),
                d[pair_query[low:high] - part.start, pair_item[low:high]],
            )
        )
    return _Found(positions[:, :k], *(torch.cat(parts) for parts in zip(*blocks, strict=True)))


def _curves_of_degree(found: _Found, k: int) -> dict[str, Curve]:
    """Mean label distance and nDCG at 1 to k."""
    ideal = gains(found.oracle)
    ndcg_by_chance = (found.random_gain[:, None] * discounts(k).cumsum(0) / (ideal * discounts(k)).cumsum(1)).mean(0)
    return {
        "label_distance": Curve(
            "mean label distance",
            "lower",
            mean_label_distance_at(found.expected).tolist(),
            found.random_distance.mean().expand(k).tolist(),
            mean_label_distance_at(found.oracle).tolist(),
        ),
        "ndcg": Curve("nDCG", "higher", ndcg_at(found.gain, ideal).tolist(), ndcg_by_chance.tolist(), [1.0] * k),
    }


def _parts(queries: int, width: int) -> Iterator[slice]:
    """Parts of the queries whose blocks `[part, width]` fit in memory."""
    step = max(1, _ENTRIES // width)
    for start in range(0, queries, step):
        yield slice(start, min(start + step, queries))


def _sample_pairs(sides: _Sides) -> tuple[Tensor, Tensor]:
    """Positions of query-gallery pairs, in order of the query: all, or a uniform sample that is always the same."""
    queries, gallery = len(sides.q), len(sides.g)
    total = queries * gallery
    if total <= _PAIRS:
        flat = torch.arange(total)
    else:
        flat = torch.from_numpy(np.unique(np.random.default_rng(0).integers(0, total, _PAIRS)))
    query, item = flat // gallery, flat % gallery
    if sides.query_group is None or sides.gallery_group is None:
        apart = sides.own[query] != item
    else:
        apart = sides.query_group[query] != sides.gallery_group[item]
    return query[apart], item[apart]
