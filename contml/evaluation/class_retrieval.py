"""Retrieval where labels are classes: Recall@K, MAP@R and R-precision.

    Recall@K    = share of the queries with an item of their own class among the K nearest
    MAP@R       = mean over queries of 1/R sum_{i = 1..R} P(i),  P(i) = precision at i if the i-th is relevant, else 0
    R-precision = mean over queries of the share of relevant items among the R nearest

R is the number of items of the query's class in the gallery, without the query. A query that is the only item of its
class is a singleton. It counts as a miss, or is excluded on request. If items are at equal distance, a metric is the
expectation over their orders (`contml.evaluation.metrics`). Song, Xiang, Jegelka, Savarese: "Deep Metric Learning via
Lifted Structured Feature Embedding", CVPR 2016; Musgrave, Belongie, Lim: "A Metric Learning Reality Check", ECCV 2020.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from contml._support.conversion import Numbers
from contml._support.errors import InputError
from contml._support.ids import as_ids_together
from contml.distances import nearest_vectors, squared_distances_of
from contml.distances.nearest import Nearest
from contml.distances.ranks import count_nearer
from contml.evaluation.metrics import Ties
from contml.evaluation.query_gallery import Ks, QueryGallery, as_embeddings, at_each_k, search_device
from contml.evaluation.results import Curve, Score, curve_of, score_of

#: The embeddings `[G, d]` and classes `[G]` of a gallery.
Gallery: TypeAlias = tuple[Numbers, Numbers] | None
#: Rows of a `[rows, K]` table of probabilities at a time.
_ROWS = 1 << 9
#: Pairs of a query and an item of its class at a time.
_PAIRS = 1 << 20
#: In larger classes the nearest item is found by a search, in others by comparing all items.
_LARGE = 512


# ---------------------------------------------------------------------------------------------------------------------
# functions


def recall_at_k(
    embeddings: Numbers, classes: Numbers, *, k: Ks = 1, gallery: Gallery = None, per_query: bool = False
) -> Any:
    """Compute Recall@K: the share of queries with an item of their own class among the K nearest.

        recall_at_k(embeddings, classes, k=[1, 10, 100, 1000])      # {1: 0.79, 10: 0.91, ...}

    Any K costs the same: one pass of matrix products counts the items that are nearer than the nearest item of the
    class. There is no N x N matrix and no list of K neighbours. A query with no item of its class is a miss.

    Args:
        embeddings: of the queries `[Q, d]`.
        classes: whole numbers or names `[Q]`.
        k: one K, or several K. With several, the result is a dict.
        gallery: embeddings `[G, d]` and classes `[G]`. Default: each query searches all other queries.
        per_query: return the value of each query, a tensor `[Q]` in float64, in place of the mean.

    Raises:
        InputError: shapes that do not fit, an embedding that is not finite, or a K below 1.
    """

    def values(ks: list[int]) -> Sequence[Any]:
        data, *class_ids = _check(embeddings, classes, gallery)
        first_hits = nearest_of_class(data, None, *class_ids)
        if per_query:
            return first_hits.of_queries(ks).unbind(1)
        curve = first_hits.recall(min(max(ks), len(data.gallery))).tolist()
        return [curve[min(each, len(curve)) - 1] for each in ks]

    return at_each_k(k, values)


def mean_average_precision_at_r(
    embeddings: Numbers, classes: Numbers, *, gallery: Gallery = None, per_query: bool = False
) -> Any:
    """Compute MAP@R, where R is the number of items of a query's class in the gallery.

    The arguments are as in `recall_at_k`.
    """
    values = ClassRetrieval(*_check(embeddings, classes, gallery), k=1).average_precision()[0]
    return values if per_query else float(values.mean())


def r_precision(embeddings: Numbers, classes: Numbers, *, gallery: Gallery = None, per_query: bool = False) -> Any:
    """Compute R-precision: the mean share of the R nearest items that are of the query's class.

    The arguments are as in `recall_at_k`.
    """
    values = ClassRetrieval(*_check(embeddings, classes, gallery), k=1).precision()[0]
    return values if per_query else float(values.mean())


def _check(queries: Numbers, classes: Numbers, gallery: Gallery) -> tuple[QueryGallery, Tensor, Tensor]:
    """Return queries and gallery on the device that searches them, and their class numbers `[Q]` and `[G]`."""
    if gallery is not None and not (isinstance(gallery, tuple | list) and len(gallery) == 2):
        raise InputError("gallery", type(gallery).__name__, "must be a pair: embeddings and classes")
    given = [(queries, classes), *([] if gallery is None else [gallery])]
    vectors = [as_embeddings(name, x) for name, (x, _) in zip(("embeddings", "gallery"), given, strict=False)]
    class_ids = as_ids_together(dict(zip(("classes", "classes of the gallery"), [c for _, c in given], strict=False)))
    for name, x, ids in zip(("embeddings", "gallery"), vectors, class_ids, strict=False):
        if len(ids) != len(x):
            raise InputError(name, f"{len(x)} embeddings, {len(ids)} class ids", hint="give one per item")
        if x.shape[1] != vectors[0].shape[1]:
            got = f"{x.shape[1]} dimensions, the queries have {vectors[0].shape[1]}"
            raise InputError(name, got, "must be the same")
    device, count = search_device(vectors[0].device), len(vectors[0])
    numbers = torch.unique(torch.cat(class_ids), return_inverse=True)[1]
    self_index = torch.arange(count) if gallery is None else torch.full((count,), -1)
    data = QueryGallery(vectors[0].to(device), vectors[-1].to(device), self_index, device=device)
    return data, numbers[:count], numbers[len(numbers) - len(vectors[-1]) :]


# ---------------------------------------------------------------------------------------------------------------------
# rankings


#: A metric of each query `[Q]`: of the model, of a random ranking, of the oracle.
Values: TypeAlias = tuple[Tensor, Tensor, Tensor]


class ClassRetrieval:
    """The rankings of all queries and their metrics.

    A ranking has at least as many places as the largest class has items.

    Args:
        data: queries and gallery.
        query_class: class ids of all queries `[Q]`.
        gallery_class: class ids of the gallery `[G]`.
        k: the least number of places in a ranking.
        largest: the largest K of Recall@K.
    """

    def __init__(
        self, data: QueryGallery, query_class: Tensor, gallery_class: Tensor, k: int, largest: int = 1
    ) -> None:
        self.data, self.query_class, self.gallery_class, self.k = data, query_class, gallery_class, k
        self.relevant = relevant_items(query_class, gallery_class, data.self_index)
        self.irrelevant = len(gallery_class) - (data.self_index >= 0).long() - self.relevant
        #: The scores of the oracle `[Q]`: 1 for a query with an item of its class in the gallery, else 0.
        self.oracle = (self.relevant > 0).double()
        depth = max(k, int(self.relevant.max()))
        places = min(depth + 1, len(gallery_class))
        self.largest, nearest = largest, data.nearest(places)
        blocks = [self._block(part, nearest) for part in data.rounds(places)]
        *results, nearer, tied, relevant = (torch.cat(tensors) for tensors in zip(*blocks, strict=True))
        first_hits = FirstRelevant(nearer, tied, relevant)
        if largest > depth:  # beyond the last place of the rankings, nearer items are counted
            unranked = ((nearer >= depth) & (self.relevant > 0)).nonzero()[:, 0]
            counted = nearest_of_class(data, unranked, query_class[unranked], gallery_class)
            for values, new_values in zip(first_hits, counted, strict=True):
                values[unranked] = new_values
        #: The first k places as positions in the gallery, and their expected label distances, `[Q, k]`.
        self.positions, self.label_distances, self._precision, self._average_precision = results
        self._first = first_hits

    def _block(self, part: slice, found: Nearest) -> tuple[Tensor, ...]:
        """Compute the results for some queries, in the order in which `__init__` unpacks them."""
        nearest = Nearest(found.values[part], found.positions[part])
        relevant, query_class = self.relevant[part], self.query_class[part]
        same = (self.gallery_class[nearest.positions] == query_class[:, None]) & nearest.values.isfinite()
        beyond = torch.zeros(2, len(same), dtype=torch.float64)  # items and relevant items that tie with the last place
        rows, tied = self.data.tied_beyond(part, found)
        rows = rows - part.start
        beyond[0, rows] = tied.sum(1).double()
        beyond[1, rows] = (tied & (self.gallery_class == query_class[rows, None])).sum(1).double()
        ties = Ties(nearest.values, beyond[0])
        relevant_in_group = ties.sums(same, beyond[1])
        return (
            nearest.positions[:, : self.k],
            1 - (relevant_in_group / ties.size)[:, : self.k],
            *precision_at_r(same, relevant_in_group, relevant, ties),
            *first_relevant(relevant_in_group, relevant, ties),
        )

    def recall(self) -> Curve:
        """Compute Recall@K for K = 1 ... largest."""
        random = recall_by_chance(self.relevant, self.irrelevant, self.largest)
        return curve_of("recall", self._first.recall(self.largest), random, self.oracle.mean().expand_as(random))

    def query_scores(self) -> dict[str, Values]:
        """Return the metrics of `SCORES` for each query."""
        return {name: score(self) for name, score in SCORES.items()}

    def scores(self) -> dict[str, Score]:
        """Return the metrics of `SCORES`, as means over the queries."""
        found = self.query_scores().items()
        return {name: score_of(name, *(float(x.mean()) for x in values)) for name, values in found}

    def average_precision(self) -> Values:
        """Return the average precision at R of each query."""
        return self._average_precision, average_precision_at_r_by_chance(self.relevant, self.irrelevant), self.oracle

    def precision(self) -> Values:
        """Return the share of the R nearest items that are of the query's class, for each query."""
        return self._precision, self.relevant.double() / (self.relevant + self.irrelevant).clamp(min=1), self.oracle

    def oracle_positions(self) -> Tensor:
        """Return the positions `[Q, k]` of the oracle's ranking.

        The items of the query's class come first, in order of position. All other items follow, in order of position.
        """
        out = torch.empty(len(self.query_class), self.k, dtype=torch.int64)
        by_class = self.gallery_class.argsort(stable=True)
        class_ids, counts = torch.unique(self.query_class, return_counts=True)
        sorted_ids = self.gallery_class[by_class]
        starts, stops = (torch.searchsorted(sorted_ids, class_ids, right=right).tolist() for right in (False, True))
        places, num_candidates = torch.arange(self.k), self.k + 1  # one more: the query itself may be among them
        queries = torch.split(self.query_class.argsort(stable=True), counts.tolist())
        for class_id, rows, start, end in zip(class_ids.tolist(), queries, starts, stops, strict=True):
            # The first `num_candidates + size of the class` items include enough items of other classes.
            other_positions = (self.gallery_class[: end - start + num_candidates] != class_id).nonzero()[:, 0]
            order = torch.cat((by_class[start:end][:num_candidates], other_positions))[:num_candidates]
            after_query = (order == self.data.self_index[rows, None]).cummax(1).values[:, : self.k]
            out[rows] = order[(places + after_query.long()).clamp(max=len(order) - 1)]
        return out


#: The metrics of a ranking by class that have no K.
SCORES: dict[str, Callable[[ClassRetrieval], Values]] = {
    "map_at_r": ClassRetrieval.average_precision,
    "r_precision": ClassRetrieval.precision,
}


def relevant_items(query_class: Tensor, gallery_class: Tensor, self_index: Tensor) -> Tensor:
    """Count the gallery items of each query's class, without the query itself, `[Q]`."""
    largest = max((int(ids.max()) for ids in (query_class, gallery_class) if len(ids)), default=0)
    class_sizes = torch.bincount(gallery_class, minlength=largest + 1)
    return class_sizes[query_class] - (self_index >= 0).long()


def precision_at_r(same: Tensor, relevant_in_group: Tensor, relevant: Tensor, ties: Ties) -> tuple[Tensor, Tensor]:
    """Compute R-precision and average precision at R `[q]` of rankings, as expectations over the orders of ties.

    Both are 0 if R is 0. Within a group of t items, p of them relevant, a place holds a relevant item with probability
    p/t. If it does, the j places of the group before it hold j (p - 1)/(t - 1) relevant items on average.

    Args:
        same: which items are of the query's class, bool `[q, D]`, D at least the largest R.
        relevant_in_group: number of relevant items in the group of each place `[q, D]`.
        relevant: R, `[q]`.
        ties: of these rankings.
    """
    place = torch.arange(same.shape[1])
    chance = relevant_in_group / ties.size
    conditional_chance = (relevant_in_group - 1).clamp(min=0) / (ties.size - 1).clamp(min=1)
    before_group = torch.nn.functional.pad(same.double().cumsum(1), (1, 0)).gather(1, ties.first)
    relevant_before = before_group + (place - ties.first) * conditional_chance
    within_r, r = place < relevant[:, None], relevant.clamp(min=1)
    average = chance * (relevant_before + 1) / (place + 1)
    return (chance * within_r).sum(1) / r, (average * within_r).sum(1) / r


def average_precision_at_r_by_chance(relevant: Tensor, irrelevant: Tensor) -> Tensor:
    """Compute the expected average precision at R of a random ranking, `[Q]`.

    With n items to rank, the i-th item is relevant with probability R/n. In that case each item before it is relevant
    with probability (R - 1)/(n - 1).
    """
    r, n = relevant.double(), (relevant + irrelevant).double().clamp(min=1)
    inverse = 1 / torch.arange(1, int(relevant.max()) + 1, dtype=torch.float64)
    harmonic = torch.nn.functional.pad(inverse.cumsum(0), (1, 0))[relevant]  # [Q] sum of 1/i for i = 1 ... R
    conditional_chance = (r - 1) / (n - 1).clamp(min=1)
    return torch.where(relevant > 0, (harmonic * (1 - conditional_chance) + r * conditional_chance) / n, 0.0)


# ---------------------------------------------------------------------------------------------------------------------
# Recall@K


class FirstRelevant(NamedTuple):
    """The place of the nearest item of the same class in the ranking of each query. It determines Recall@K."""

    nearer: Tensor  # [Q] number of items that are nearer
    tied: Tensor  # [Q] number of items at the same distance, with the item itself
    relevant: Tensor  # [Q] number of these of the query's class; 0: the gallery has no item of this class

    def recall(self, k: int) -> Tensor:
        """Compute Recall@K `[k]` for K = 1 ... k."""
        # Counts above k are equivalent and most queries have no ties, so few different cases remain.
        nearer = torch.where(self.relevant > 0, self.nearer.clamp(max=k), k)
        cases, count = torch.unique(torch.stack((nearer, self.tied, self.relevant), 1), dim=0, return_counts=True)
        total = torch.zeros(k, dtype=torch.float64)
        for rows, weight in zip(torch.split(cases, _ROWS), torch.split(count, _ROWS), strict=True):
            total += weight.double() @ _chance_of_a_hit(rows[:, 0], rows[:, 1], rows[:, 2], k)
        return total / len(self.nearer)

    def of_queries(self, ks: Sequence[int]) -> Tensor:
        """Compute Recall@K of each query `[Q, K]`, for each K of `ks`."""
        k, columns = max(ks), [each - 1 for each in ks]
        parts = (torch.split(each, _ROWS) for each in (self.nearer.clamp(max=k), self.tied, self.relevant))
        return torch.cat([_chance_of_a_hit(a, b, c, k)[:, columns] for a, b, c in zip(*parts, strict=True)])


def _chance_of_a_hit(nearer: Tensor, tied: Tensor, relevant: Tensor, k: int) -> Tensor:
    """Compute the chance `[n, k]` that the first K = 1 ... k places hold a relevant item."""
    place = torch.arange(k) - nearer[:, None]  # [n,K] among the tied, from 0
    misses = (tied - relevant)[:, None] - place
    chance = misses.clamp(min=0).double() / (tied[:, None] - place).clamp(min=1)
    return 1 - torch.where((place >= 0) & (relevant > 0)[:, None], chance, 1.0).cumprod(1)


def first_relevant(relevant_in_group: Tensor, relevant: Tensor, ties: Ties) -> FirstRelevant:
    """Find the first relevant item of rankings `[q, D]`. The arguments are as in `precision_at_r`.

    `nearer` is D for a ranking without a relevant item.
    """
    has_relevant, first_index = (relevant_in_group > 0).any(1), (relevant_in_group > 0).int().argmax(1, keepdim=True)
    found = (x.gather(1, first_index)[:, 0] for x in (ties.first, ties.size.long(), relevant_in_group.long()))
    others: list[Any] = [relevant_in_group.shape[1], 1, relevant.clamp(max=1)]
    return FirstRelevant(*(torch.where(has_relevant, x, other) for x, other in zip(found, others, strict=True)))


def recall_by_chance(relevant: Tensor, irrelevant: Tensor, k: int) -> Tensor:
    """Compute the expected Recall@K `[K]` of a random ranking, K = 1 ... k. In a random ranking all items tie.

    Args:
        relevant: number of gallery items of each query's class, without the query itself, `[Q]`.
        irrelevant: number of all other gallery items `[Q]`.
        k: the largest K.
    """
    return FirstRelevant(torch.zeros_like(relevant), relevant + irrelevant, relevant).recall(k)


def nearest_of_class(
    data: QueryGallery, rows: Tensor | None, query_class: Tensor, gallery_class: Tensor
) -> FirstRelevant:
    """Find the place of the nearest item of each query's class in its ranking of the gallery, by counting.

    Args:
        data: queries and gallery.
        rows: the queries to rank `[n]`. None means all queries.
        query_class: the class ids of these queries `[n]`.
        gallery_class: class ids `[G]`.
    """
    device = data.device
    # All queries are the same tensor as a gallery that is searched for itself: its products are then computed once.
    queries = (data.queries if rows is None else data.queries[rows]).to(device)
    self_index = (data.self_index if rows is None else data.self_index[rows]).to(device)
    query_class, gallery = query_class.to(device), data.gallery.to(device)
    best, relevant = _nearest_of_class(queries, gallery, self_index, query_class, gallery_class.to(device))
    counts = count_nearer(queries, gallery, torch.where(relevant > 0, best, 0.0), self_index=self_index)
    return FirstRelevant(counts.nearer.cpu(), counts.tied.clamp(min=1).cpu(), relevant.cpu())


def _nearest_of_class(
    q: Tensor, g: Tensor, self_index: Tensor, query_class: Tensor, gallery_class: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the squared distance `[Q]` to the nearest item of the query's class, and the number of items that tie.

    They are inf and 0 if the gallery has no other item of the class.
    """
    best = torch.full((len(q),), torch.inf, dtype=torch.float64, device=q.device)
    relevant = torch.zeros(len(q), dtype=torch.int64, device=q.device)
    order = gallery_class.argsort(stable=True)
    sorted_ids = gallery_class[order]
    starts, stops = torch.searchsorted(sorted_ids, query_class), torch.searchsorted(sorted_ids, query_class, right=True)
    size = stops - starts
    small_class_rows = ((size > 0) & (size <= _LARGE)).nonzero()[:, 0]
    for chunk in torch.split(small_class_rows, _PAIRS // _LARGE):
        rows = chunk.repeat_interleave(size[chunk])
        begin = (size[chunk].cumsum(0) - size[chunk]).repeat_interleave(size[chunk])
        cols = order[starts[rows] + torch.arange(len(rows), device=q.device) - begin]
        d = squared_distances_of(q, g, rows, cols).masked_fill_(cols == self_index[rows], torch.inf)
        best.scatter_reduce_(0, rows, d, "amin")
        relevant.index_add_(0, rows, ((d == best[rows]) & d.isfinite()).long())
    for class_id in torch.unique(query_class[size > _LARGE]).tolist():
        rows = (query_class == class_id).nonzero()[:, 0]
        cols = order[int(starts[rows[0]]) : int(stops[rows[0]])]
        position = torch.full((len(g) + 1,), -1, device=q.device)  # the last entry is read by index -1
        position[cols] = torch.arange(len(cols), device=q.device)
        excluded = position[self_index[rows]]
        best[rows] = nearest_vectors(q[rows], g[cols], 1, self_index=excluded).values[:, 0]
        relevant[rows] = count_nearer(q[rows], g[cols], best[rows], self_index=excluded).tied
    return best, relevant
