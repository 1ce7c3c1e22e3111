"""Evaluation of retrieval: the model's ranking of a gallery, compared with a random ranking and the oracle's ranking.

All labels have metrics of label distances. If labels are classes, Recall@K, MAP@R, R-precision, NMI and F1 come
first. Neighbours are exact, ties are expectations (`contml.evaluation.metrics`).
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from contml._support.conversion import Numbers, as_numbers
from contml._support.errors import InputError
from contml._support.ids import as_group_ids
from contml._support.progress import progress_bar
from contml.contracts import OwnMetrics
from contml.distances.nearest import Nearest
from contml.distances.ranks import ranked_vectors
from contml.evaluation.class_retrieval import ClassRetrieval, relevant_items
from contml.evaluation.clustering import cluster_scores
from contml.evaluation.graded import GradedMetrics
from contml.evaluation.intervals import half_width, items_of_queries
from contml.evaluation.metrics import Ties, check_metrics, discounts, gains, mean_label_distance_at, ndcg_at, spearman
from contml.evaluation.query_gallery import Ks, QueryGallery, as_embeddings, as_ks, as_row_numbers, at_each_k
from contml.evaluation.results import RECALL_AT, Evaluation, Ranking, Retrieval, Score, curve_of, headline_k, score_of
from contml.labels.base import LabelSpace, check_label_space

#: The largest K of the curves, except Recall's.
LARGEST_K = 100
#: Label distances at a time: they and their temporaries in float64 stay in the processor's cache.
_LABEL_DISTANCES = 1 << 20
#: Query-gallery pairs in the correlation and the density plot.
_PAIRS = 1_000_000
#: Ranked lists at a time: their arrays fit in the processor's cache.
_LISTS = 512


def evaluate(
    embeddings: Numbers,
    labels: LabelSpace,
    queries: Numbers | None = None,
    gallery: Numbers | None = None,
    *,
    missing: Numbers | None = None,
    exclude_singletons: bool = False,
    recall_at: Sequence[int] | None = None,
    clusters: bool = True,
    groups: Numbers | None = None,
    exclude_group: bool = True,
    places: int | None = None,
    as_queries: Numbers | None = None,
    metrics: OwnMetrics | None = None,
) -> Retrieval:
    """Rank the gallery for each query by embedding distance, and compare the ranking with the label distances.

        found = evaluate(embeddings, labels)
        found.score, found.metrics["ndcg@10"], found.intervals, found.ranking

    Args:
        embeddings: `[N, d]`, one for each row of the label space. Embeddings and row numbers may be tensors, arrays or
            lists.
        labels: the label space.
        queries: rows of the queries, `[Q]`. If queries and gallery are None, each row searches all other rows.
        gallery: rows that are ranked, `[G]`.
        missing: rows without an embedding, whose images could not be read. They are neither queries nor ranked.
        exclude_singletons: exclude queries with no item of their class in the gallery, if labels are classes. By
            default they are misses.
        recall_at: the K of Recall@K, if labels are classes. K may be large: beyond the 100th place, items are counted,
            not ranked. Default 1, 2, 4, 8, 10, 20, 50, 100.
        clusters: compute NMI and F1, if labels are classes. K-means clusters queries and gallery, with one cluster per
            class.
        groups: the group of each row `[N]`, a number or a name, such as the house of a photograph. Queries of one group
            are not independent, which widens intervals.
        exclude_group: exclude a query's own group from its gallery, if there are groups. Give False if labels are
            classes, which are groups in any case.
        places: a tenth of this number, at most 10, is the K of the main metric. Galleries of several sizes then have
            one K. Default: the number of items that every query can find, at most 100.
        as_queries: `[N, d]`, the vectors with which the rows search, if not with their embeddings. Default
            `embeddings`.
        metrics: user-defined metrics by name. Each is a function of two tensors `[q, C]` that returns one number per
            query `[q]`. The first tensor holds the distances of some queries to the C items that they can find, nearest
            first. The second holds the label distances of the same pairs. The function is called for some queries at a
            time, for the model, for a random ranking and for the oracle.

    Raises:
        InputError: the numbers of embeddings and labels differ, an embedding is not finite, a row does not exist or
            appears twice, there are fewer than one query or two gallery items, a K is not a whole number from
            1 on, or a metric does not return one finite number per query.
    """
    check_label_space("labels", labels)
    x = as_embeddings("embeddings", embeddings).cpu()
    if len(x) != len(labels):
        raise InputError("embeddings", f"{len(x)} embeddings for {len(labels)} labels", hint="give one per label")
    absent = torch.zeros(len(x), dtype=torch.bool)
    absent[_rows("missing", missing, torch.arange(0), len(x))] = True
    of_classes = {"exclude_singletons": exclude_singletons or None, "recall_at": recall_at}
    if labels.class_ids is None and (given := [name for name, value in of_classes.items() if value is not None]):
        raise InputError(given[0], "given for graded labels", "is for classes", "omit it, or give ClassLabels")
    recall_ks = sorted(set(as_ks("recall_at", RECALL_AT if recall_at is None else recall_at)))
    classes = None if labels.class_ids is None else torch.unique(labels.class_ids.cpu(), return_inverse=True)[1]
    group_ids = None if groups is None else _group_ids(groups, labels, exclude_group)
    q, g = _asked(queries, gallery, absent, classes if exclude_singletons else None)
    excluded = None if group_ids is None or not exclude_group else (group_ids[q], group_ids[g])
    is_self_search = all(torch.equal(rows, torch.arange(len(x))) for rows in (q, g))
    embedded = (x, x) if is_self_search else (x[q], x[g])  # the same tensor is prepared for the search once
    if as_queries is not None:
        searching = as_embeddings("as_queries", as_queries).cpu()
        if searching.shape != x.shape:
            raise InputError("as_queries", f"shape {list(searching.shape)}", f"must be {list(x.shape)}")
        embedded = (searching[q], embedded[1])
    data = QueryGallery(*embedded, _positions(g, len(x))[q], groups=excluded, device=labels.device)
    k = min(LARGEST_K, data.available)
    if k < 1:
        raise InputError("groups", "a query's own group is its whole gallery", hint="give it a larger gallery")
    pairs, main_k = _sample_pairs(data), headline_k(min(places or k, k))
    if classes is None:
        graded = GradedMetrics(data, labels, q, g)
        rankings = _rank_graded(data, labels, q, g, k, graded, pairs)
        fields, query_scores = _graded_fields(rankings, graded), graded.query_scores()
    else:
        ranked = ClassRetrieval(data, classes[q], classes[g], k, min(max(k, recall_ks[-1]), data.available))
        rankings = _rank_classes(ranked, pairs)
        curves = {"recall": ranked.recall(), **_graded_curves(rankings)}
        fields = {"kind": "classes", "curves": curves, "scores": ranked.scores()}
        query_scores = {name: model for name, (model, _, _) in ranked.query_scores().items()}
        if clusters:
            members = torch.unique(torch.cat((q, g)))
            fields["scores"] |= cluster_scores(x[members], classes[members])
    items = items_of_queries(*(None if each is None else each[q] for each in (classes, group_ids)))
    ideal = (gains(rankings.oracle_label_distances[:, :main_k]) * discounts(main_k)).sum(1)
    query_scores[f"ndcg@{main_k}"] = (rankings.expected_gain[:, :main_k] * discounts(main_k)).sum(1) / ideal
    own = _own_values(data, labels, q, g, metrics or {})
    for name, values in own.items():
        model, random, oracle = values.mean(1).tolist()
        better = "lower" if oracle < random else "higher"
        fields["scores"][name], query_scores[name] = Score(name, better, model, random, oracle), values[0]
    ranking = _ranking(rankings, q, g, data.distances(*pairs).sqrt(), x, query_scores, main_k, items)
    fields |= {"measure": labels.measure, "skipped": int(absent.sum()), "recall_at": recall_ks, "k": main_k}
    fields["spearman"] = spearman(ranking.pairs[:, 1], ranking.pairs[:, 0])
    fields["random_margin"] = half_width(ranking.values - ranking.random_values, items)
    fields["intervals"] = {name: half_width(values[0], items) for name, values in own.items()}
    return Retrieval(Evaluation(labels.unit, len(q), len(g), **fields), ranking)


def _group_ids(groups: Numbers, labels: LabelSpace, exclude_group: bool) -> Tensor:
    """Return the group of each row `[N]`. Refuse groups whose number differs from the number of labels."""
    ids = as_group_ids("groups", groups)
    if len(ids) != len(labels):
        raise InputError("groups", f"{len(ids)} groups for {len(labels)} labels", hint="give one per label")
    if exclude_group and labels.class_ids is not None:
        raise InputError("exclude_group", "True, where labels are classes", "must be False")
    return ids


def _asked(
    queries: Numbers | None, gallery: Numbers | None, absent: Tensor, classes: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the rows of the queries and of the gallery, without missing rows.

    Args:
        queries: rows of the queries. Default: all rows.
        gallery: rows that are ranked. Default: all rows.
        absent: which rows of the label space have no embedding, bool `[N]`.
        classes: the class of each row `[N]`, to exclude queries with no item of their class. Default: no query is
            excluded.
    """
    count = len(absent)
    all_rows = torch.arange(count)
    requested_rows = [_rows(*each, all_rows, count) for each in (("queries", queries), ("gallery", gallery))]
    q, g = (rows[~absent[rows]] for rows in requested_rows)
    _positions(q, count, "queries")
    position = _positions(g, count)
    if classes is not None:
        q = q[relevant_items(classes[q], classes[g], position[q]) > 0]
    return q, g


def _own_values(data: QueryGallery, labels: LabelSpace, q: Tensor, g: Tensor, metrics: OwnMetrics) -> dict[str, Tensor]:
    """Compute the values of user-defined metrics `[3, Q]`, float64: of the model, a random ranking, and the oracle.

    The random ranking has the distances of the model and one random order per query, from a fixed seed. The oracle's
    distances are the label distances. Items at equal distance are in a random order.

    Args:
        data: queries and gallery.
        labels: the label space.
        q: the rows of all queries in the label space.
        g: the rows of the gallery in the label space.
        metrics: the functions by name.
    """
    check_metrics(metrics)
    random = torch.Generator().manual_seed(0)
    order = torch.randperm(len(g), generator=random)
    shuffled, gallery = data.gallery[order], labels[g[order]]
    values = {name: torch.empty(3, len(q), dtype=torch.float64) for name in metrics}
    for part in data.parts(len(g), _LABEL_DISTANCES) if metrics else ():
        squared, places = ranked_vectors(data.queries[part], shuffled, data.excluded(part)[:, order])
        # Sorted, excluded items at the end: at an infinite distance.
        near, d = squared.gather(1, places).sqrt(), labels.filled(labels[q[part]], gallery).cpu().gather(1, places)
        for count in torch.unique(near.isfinite().sum(1)).tolist():
            rows = (near.isfinite().sum(1) == count).nonzero()[:, 0]
            distances, of_model = near[rows, :count], d[rows, :count]
            at_random = of_model.gather(1, (torch.randperm(count, generator=random) + rows[:, None]) % count)
            oracle = torch.from_numpy(np.sort(of_model.numpy(), axis=1))
            for n, lists in enumerate(((distances, of_model), (distances, at_random), (oracle, oracle))):
                for name, metric in metrics.items():
                    found = as_numbers(f"metrics.{name}", metric(*(x.to(torch.float64, copy=True) for x in lists)))
                    fits = found.shape == (len(rows),)
                    if not (fits and bool(found.isfinite().all())):
                        got = "NaN, or infinite numbers" if fits else f"shape {list(found.shape)}"
                        raise InputError(f"metrics.{name}", got, f"must be one finite number per query, [{len(rows)}]")
                    values[name][n, part.start + rows] = found.cpu().double()
    return values


def _ranking(
    found: _Rankings, q: Tensor, g: Tensor, gaps: Tensor, x: Tensor, scores: dict[str, Tensor], k: int, items: Any
) -> Ranking:
    """Return the rankings as rows of a split, and the metrics of each query.

    Args:
        found: the rankings.
        q: the rows of the queries.
        g: the rows of the gallery.
        gaps: embedding distances of the sampled pairs `[P]`.
        x: the embeddings of all rows.
        scores: metrics of each query.
        k: the K of the main metric of graded labels.
        items: the items that queries share `[Q, m]`, or None.
    """
    values = at_k = _mean_over_places(found, k)
    if "map_at_r" in scores:  # of classes; of the first place, Recall is the precision: 1 - label distance
        values = [1 - distance for distance in _mean_over_places(found, 1)]
    retrieved = g[found.positions], g[found.oracle_positions], found.label_distances, found.oracle_label_distances
    pairs, at_main_k = torch.stack((found.pair_labels.double(), gaps), 1), torch.stack((at_k[0], at_k[2]), 1)
    scores = {f"label_distance@{k}": at_k[0], **scores}
    return Ranking(q, *retrieved, pairs, x, values[0], values[1], values[2], at_main_k, scores, items, k)


def _rows(name: str, rows: Numbers | None, default: Tensor, count: int) -> Tensor:
    return default if rows is None else as_row_numbers(name, rows, count)


def _positions(gallery: Tensor, count: int, name: str = "gallery") -> Tensor:
    """Return the position of each of `count` rows in the gallery, or -1."""
    position, indices = torch.full((count,), -1), torch.arange(len(gallery))
    position[gallery] = indices
    repeated = gallery[position[gallery] != indices]
    if len(repeated):
        raise InputError(name, f"row {int(repeated[0])} appears twice", hint="give each row once")
    return position


class _Pairs(NamedTuple):
    """Pairs of a query and a gallery item, in order of the query: all, or a sample."""

    queries: Tensor  # [P] positions among all queries
    items: Tensor  # [P] positions in the gallery


class _Rankings(NamedTuple):
    """The rankings of the model and of the oracle, and their label distances."""

    positions: Tensor  # [Q,k] in the gallery, ties to the lower one
    label_distances: Tensor  # [Q,k] of these
    expected_distance: Tensor  # [Q,k] label distance expected at each place, over the orders of ties
    expected_gain: Tensor  # [Q,k]
    oracle_positions: Tensor  # [Q,k]
    oracle_label_distances: Tensor  # [Q,k]
    random_distance: Tensor  # [Q] label distance of a random item
    random_gain: Tensor  # [Q]
    pair_labels: Tensor  # [P] label distances of the sampled pairs


def _graded_fields(rankings: _Rankings, graded: GradedMetrics) -> dict[str, Any]:
    """Return the fields of an `Evaluation` of graded labels."""
    curves = _graded_curves(rankings)
    curve = curves["label_distance"]
    area = score_of("label_distance_area", *(fmean(values) for values in (curve.model, curve.random, curve.oracle)))
    scores = {"label_distance_area": area, **graded.scores()}
    return {"curves": curves, "scores": scores, "sorted_queries": graded.sorted_queries}


def _mean_over_places(found: _Rankings, k: int) -> list[Tensor]:
    """Compute the label distance@k of each query `[Q]`, float64: of the model, of a random ranking, of the oracle."""
    at_random = found.random_distance[:, None].expand(-1, k)
    by_place = found.expected_distance, at_random, found.oracle_label_distances
    return [x[:, :k].double().mean(1) for x in by_place]


def _rank_classes(ranked: ClassRetrieval, pairs: _Pairs) -> _Rankings:
    """Return the rankings for classes, without computing label distances.

    Within a class the label distance is 0 and the gain 1. Between classes they are 1 and 1/2.
    """
    query_class, gallery_class, positions = ranked.query_class, ranked.gallery_class, ranked.positions
    retrieved, expected = (gallery_class[positions] != query_class[:, None]).float(), ranked.label_distances
    oracle = ranked.oracle_positions(), (torch.arange(ranked.k) >= ranked.relevant[:, None]).float()
    random = ranked.irrelevant / (ranked.relevant + ranked.irrelevant).double()
    of_pairs = (query_class[pairs.queries] != gallery_class[pairs.items]).float()
    return _Rankings(positions, retrieved, expected, 1 - expected / 2, *oracle, random, 1 - random / 2, of_pairs)


def _rank_graded(
    data: QueryGallery, labels: LabelSpace, q: Tensor, g: Tensor, k: int, graded: GradedMetrics, pairs: _Pairs
) -> _Rankings:
    """Rank the gallery for all queries, with graded labels."""
    places = min(k + 1, len(g))
    nearest = data.nearest(places)
    # Results are written in place: small tensors kept between the blocks would fragment memory.
    types = (torch.float32, torch.float64, torch.float64, torch.int64, torch.float32, torch.float64, torch.float64)
    by_query = [torch.empty(len(q), *([k] if n < 5 else []), dtype=dtype) for n, dtype in enumerate(types)]
    pair_rows, pair_items = pairs
    pair_labels = torch.empty(len(pair_rows))
    gallery = labels[g]
    with progress_bar(len(q), "ranking") as progress:
        for together in data.rounds(places):
            tied_rows, tied = data.tied_beyond(together, nearest)
            graded.prepare(together)
            for part in data.parts(len(g), _LABEL_DISTANCES, together):
                d = labels.filled(labels[q[part]], gallery).cpu()  # [q,G]
                neighbours, baselines = Nearest(*(x[part] for x in nearest)), data.baselines(part, d, k)
                first, last = torch.searchsorted(tied_rows, torch.tensor([part.start, part.stop])).tolist()
                rows, further = tied_rows[first:last] - part.start, tied[first:last]
                beyond = torch.zeros(3, len(d), dtype=torch.float64)  # as of order_by_distance
                if len(rows):
                    sums = further, d[rows] * further, gains(d[rows]) * further
                    beyond[:, rows] = torch.stack([values.double().sum(1) for values in sums])
                ties = Ties(neighbours.values, beyond[0])
                retrieved = d.gather(1, neighbours.positions)
                graded.add(part, d)
                by_place = zip((retrieved, gains(retrieved)), beyond[1:], strict=True)
                expected = [ties.expected(values, rest)[:, :k] for values, rest in by_place]
                low, high = torch.searchsorted(pair_rows, torch.tensor([part.start, part.stop])).tolist()
                pair_labels[low:high] = d[pair_rows[low:high] - part.start, pair_items[low:high]]
                block = (retrieved[:, :k], *expected, *baselines)
                for out, values in zip(by_query, block, strict=True):
                    out[part] = values
                progress(part.stop)
    return _Rankings._make([nearest.positions[:, :k], *by_query, pair_labels])


def _graded_curves(found: _Rankings) -> dict[str, Any]:
    """Compute mean label distance and nDCG at K = 1 ... k."""
    k, ideal = found.positions.shape[1], gains(found.oracle_label_distances)
    random_ndcg = found.random_gain[:, None] * discounts(k).cumsum(0) / (ideal * discounts(k)).cumsum(1)
    model, oracle = (mean_label_distance_at(x) for x in (found.expected_distance, found.oracle_label_distances))
    return {
        "label_distance": curve_of("label_distance", model, found.random_distance.mean().expand(k), oracle),
        "ndcg": curve_of("ndcg", ndcg_at(found.expected_gain, ideal), random_ndcg.mean(0), torch.ones(k)),
    }


def _sample_pairs(data: QueryGallery) -> _Pairs:
    """Return query-gallery pairs, in order of the query: all, or a uniform sample that is always the same."""
    total = len(data.query_group) * data.items
    if total <= _PAIRS:
        flat = torch.arange(total)
    else:
        drawn = torch.from_numpy(np.sort(np.random.default_rng(0).integers(0, total, _PAIRS)))
        flat = torch.unique_consecutive(drawn)
    query, item = flat // data.items, flat % data.items
    valid = data.query_group[query] != data.gallery_group[item]
    return _Pairs(query[valid], item[valid])


# ---------------------------------------------------------------------------------------------------------------------
# functions


def mean_label_distance_at_k(distances: Numbers, label_distances: Numbers, *, k: Ks, per_query: bool = False) -> Any:
    """Compute the mean label distance@K of ranked lists, lower is better.

    Args:
        distances: of each query to the items of its list `[Q, C]`. Only their order is used.
        label_distances: of the same pairs `[Q, C]`, at least 0.
        k: one K from 1 to C, or several K. With several, the result is a dict.
        per_query: return the value of each query, a tensor `[Q]` in float64, in place of the mean.

    Raises:
        InputError: shapes that do not fit, a K out of range, a number that is not finite or a negative label distance.
    """
    return _at_k(distances, label_distances, k, per_query, 0)


def ndcg_at_k(distances: Numbers, label_distances: Numbers, *, k: Ks, per_query: bool = False) -> Any:
    """Compute nDCG@K of ranked lists, with gains 1 / (1 + label distance).

    The arguments are as in `mean_label_distance_at_k`. The result equals torchmetrics' `retrieval_normalized_dcg` with
    scores `-distances` and these gains, ties included.
    """
    return _at_k(distances, label_distances, k, per_query, 1)


def _at_k(distances: Numbers, label_distances: Numbers, k: Ks, per_query: bool, metric: int) -> Any:
    """Compute a metric of `_of_lists`: 0 is the mean label distance, 1 is nDCG."""
    distances, label_distances = as_numbers("distances", distances), as_numbers("label_distances", label_distances)
    shape = list(distances.shape)
    if distances.ndim != 2 or distances.shape != label_distances.shape or not len(distances):
        got = f"{shape} and label distances {list(label_distances.shape)}"
        raise InputError("distances", got, hint="give both as [queries, items]")
    blocks = [*zip(torch.split(distances, _LISTS), torch.split(label_distances, _LISTS), strict=True)]

    def values(ks: list[int]) -> Sequence[Any]:
        found = torch.cat([_of_lists(*block, ks)[:, :, metric] for block in blocks])  # [Q,K]
        return found.unbind(1) if per_query else found.mean(0).tolist()

    return at_each_k(k, values, shape[1])


def _of_lists(distances: Tensor, label_distances: Tensor, k: Sequence[int]) -> Tensor:
    """Compute mean label distance@K and nDCG@K of each list, `[q, K, 2]`."""
    near, labels = (x.cpu().double().numpy() for x in (distances, label_distances))
    order = np.argsort(near, axis=1)
    near, ordered, best = np.take_along_axis(near, order, 1), np.take_along_axis(labels, order, 1), np.sort(labels)
    for name, values in (("distances", near), ("label_distances", best)):
        if not np.isfinite(values[:, [0, -1]]).all():  # NaN comes last
            raise InputError(name, "some are not finite", hint="look for NaN in them")
    if best[:, 0].min() < 0:
        raise InputError("label_distances", f"{best[:, 0].min()}", "must be at least 0")
    distance, ideal = torch.from_numpy(ordered), gains(torch.from_numpy(best[:, : max(k)]))
    gain = gains(distance)
    tied = torch.from_numpy((near[:, 1:] == near[:, :-1]).any(1)).nonzero()[:, 0]
    if len(tied):
        nothing = torch.zeros(len(tied), dtype=torch.float64)
        ties = Ties(torch.from_numpy(near)[tied], nothing)
        distance[tied], gain[tied] = ties.expected(distance[tied], nothing), ties.expected(gain[tied], nothing)
    means = [distance[:, :each].mean(1) for each in k]
    ndcg = [(gain[:, :each] @ discounts(each)) / (ideal[:, :each] @ discounts(each)) for each in k]
    return torch.stack((torch.stack(means, 1), torch.stack(ndcg, 1)), 2)
