"""Metrics of graded labels: hierarchical AP, Kendall's tau, recall within a label distance.

    H-AP = mean over queries of  sum_i H_i / rank_i / sum_i rel_i,   H_i = rel_i + sum_{j before i} min(rel_i, rel_j)

    tau  = mean over queries of  (agreeing - violated) / sqrt(pairs not tied by distance * pairs not tied by label)

    recall within t = share of the queries with an item at label distance at most t among the K nearest

H-AP: Ramzi, Audebert, Thome, Rambour, Bitot: "Hierarchical Average Precision Training for Pertinent Image Retrieval",
ECCV 2022. Its relevance here is rel = max(0, 1 - D_y / m), as in the loss `SmoothRankLoss`. m is the median of the
label distances above 0. This relevance needs no unit, and one far outlier does not change it. On labels of 0 and 1,
H-AP is average precision. The median is taken over a sample of queries and gallery. The sample depends only on the
numbers of queries and gallery items.

Items at equal embedding distance have the expectation over their orders. Tau-b counts their pairs as neither agreeing
nor violated.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from contml._support.conversion import Numbers, as_numbers
from contml._support.errors import InputError
from contml.distances._compiled import rows_in_threads
from contml.distances.ranks import Ranked, argsort_rows
from contml.evaluation.class_retrieval import first_relevant
from contml.evaluation.metrics import Ties
from contml.evaluation.query_gallery import QueryGallery, at_each_k
from contml.evaluation.results import Score, score_of
from contml.labels.base import LabelSpace

#: Queries and gallery items of the sample of label distances.
_SAMPLE = 64, 512
#: H-AP and Kendall's tau sort the whole gallery, so the number of queries is limited. The numbers are the most queries,
#: the most query-gallery pairs, and the least queries, which may exceed the most pairs.
_SORTED, _SORTED_PAIRS, _LEAST_SORTED = 1000, 5_000_000, 100
#: Query-gallery pairs and least queries that are ranked at a time. Each time, the gallery is copied in float64.
_RANKED, _LEAST_RANKED = 1 << 20, 8


#: From label distances `[Q, C]` to relevance `[Q, C]`.
Relevance: TypeAlias = Callable[[Tensor], Tensor] | None


class GradedMetrics:
    """The metrics of all queries, computed part by part.

    Call `prepare` at the start of a round (`QueryGallery.rounds`), and `add` for each part.

    Args:
        data: queries and gallery.
        labels: the label space.
        q: the rows of all queries in the label space.
        g: the rows of the gallery in the label space.
    """

    def __init__(self, data: QueryGallery, labels: LabelSpace, q: Tensor, g: Tensor) -> None:
        self.data = data
        self.unit = median_above_0(_sampled_distances(data, labels, q, g))
        count = min(_SORTED, max(_LEAST_SORTED, _SORTED_PAIRS // len(g)), len(q))
        self._sorted = torch.from_numpy(np.sort(np.random.default_rng(0).permutation(len(q))[:count]))
        self._ranked: deque[Ranked] = deque()  # of the next of these queries
        self._num_ranked = 0
        self._statistics: list[Tensor] = []  # each [n,4], of `order_statistics`

    def prepare(self, part: slice) -> None:
        """Rank the gallery for the queries of H-AP and Kendall's tau that are in a part."""
        data = self.data
        needed, step = int((self._sorted < part.stop).sum()), max(_LEAST_RANKED, _RANKED // data.items)
        while self._num_ranked < needed:
            rows = self._sorted[self._num_ranked : self._num_ranked + step]
            self._ranked.extend(map(Ranked, *data.ranked(rows)))
            self._num_ranked += len(rows)

    def add(self, part: slice, d: Tensor) -> None:
        """Add some queries, given their label distances `d` to the gallery `[q, G]`."""
        queries = self._sorted[(self._sorted >= part.start) & (self._sorted < part.stop)]
        if len(queries):
            rows = d[queries - part.start]
            near = Ranked(*map(torch.stack, zip(*(self._ranked.popleft() for _ in rows), strict=True)))
            self._statistics.append(order_statistics(near, rows, _relevance(rows, self.unit)).T)

    def scores(self) -> dict[str, Score]:
        """Return H-AP and Kendall's tau. A metric that no query defines is omitted."""
        precision, random, relevance, tau = torch.cat(self._statistics).T
        scores: dict[str, Score] = {}
        if bool((relevant := relevance > 0).any()):
            values = (float((x[relevant] / relevance[relevant]).mean()) for x in (precision, random))
            scores["hap"] = score_of("hap", *values)
        if bool((defined := tau.isfinite()).any()):
            scores["kendall"] = score_of("kendall", float(tau[defined].mean()), 0.0)
        return scores

    def query_scores(self) -> dict[str, Tensor]:
        """Return Kendall's tau of each query `[Q]`, if all queries were sorted and have a tau."""
        tau = torch.cat(self._statistics)[:, 3]
        return {"kendall": tau} if len(tau) == len(self.data.queries) and bool(tau.isfinite().all()) else {}

    @property
    def sorted_queries(self) -> int:
        """The number of queries of H-AP and Kendall's tau."""
        return len(self._sorted)


def _relevance(label_distances: Tensor, unit: float | None = None) -> Tensor:
    """Compute the relevance of H-AP `[Q, C]`, float64.

    `unit` is the median label distance above 0. Default: the median of `label_distances`.
    """
    unit = median_above_0(label_distances) if unit is None else unit
    return (1 - label_distances.double() / unit).clamp(min=0)


def median_above_0(label_distances: Tensor) -> float:
    """Return the median of the label distances above 0. Return 1 if there are none."""
    positive = label_distances[label_distances > 0]
    return float(positive.median()) if len(positive) else 1.0


def _sampled_distances(data: QueryGallery, labels: LabelSpace, q: Tensor, g: Tensor) -> Tensor:
    """Compute label distances of a sample of queries and gallery items `[P]`, float32 on the CPU."""
    random, sizes = np.random.default_rng(0), zip((len(q), len(g)), _SAMPLE, strict=True)
    rows, cols = (torch.from_numpy(np.sort(random.permutation(count)[:size])) for count, size in sizes)
    return labels.filled(q[rows], g[cols]).cpu()[data.query_group[rows, None] != data.gallery_group[cols]]


def order_statistics(near: Ranked, keys: Tensor, relevance: Tensor) -> Tensor:
    """Compute the statistics `[4, Q]` of rankings `[Q, C]`, in float64 on the CPU.

    `contml.evaluation._graded_loops` describes the rows of the result.
    """
    import contml.evaluation._graded_loops as _graded_loops  # here: it imports numba

    compute: Any = _graded_loops.order_statistics
    arrays = [x.contiguous().numpy() for x in (*near, keys, argsort_rows(keys), relevance)]
    out = np.empty((4, len(keys)))

    def work(share: slice) -> None:
        compute(*(array[share] for array in arrays), out[:, share])

    rows_in_threads(work, len(keys), keys.numel())
    return torch.from_numpy(out)


# ---------------------------------------------------------------------------------------------------------------------
# functions


def hierarchical_average_precision(
    distances: Numbers, label_distances: Numbers, *, relevance: Relevance = None, per_query: bool = False
) -> Any:
    """Compute the hierarchical AP of ranked lists: the mean over the queries with a relevant item.

    Args:
        distances: of each query to the items of its list `[Q, C]`. Only their order is used.
        label_distances: of the same pairs `[Q, C]`, at least 0.
        relevance: a function from label distances `[Q, C]` to relevance `[Q, C]`, at least 0. If relevance is 0 or 1,
            H-AP is average precision. Default `max(0, 1 - label_distances / m)`, where m is the median of the label
            distances above 0.
        per_query: return the value of each query, a tensor `[Q]` in float64, NaN where it has none.

    Returns:
        The mean, 0 to 1. NaN if no query has a relevant item.

    Raises:
        InputError: shapes that do not fit, a number that is not finite, or a negative label distance or relevance.
    """
    near, labels = _lists("label_distances", distances, label_distances)
    near, rel = _lists("relevance", near, (relevance or _relevance)(labels))
    precision, _, total, _ = order_statistics(Ranked(near, argsort_rows(near)), -rel, rel)
    return _mean((precision / total).where(total > 0, math.nan), per_query)


def kendall_tau(distances: Numbers, label_distances: Numbers, *, per_query: bool = False) -> Any:
    """Compute Kendall's tau-b of the distances and the label distances of each ranked list, as a mean over the queries.

    A query whose label distances are all equal is left out. If only the distances are all equal, tau is 0.

    Args:
        distances: of each query to the items of its list `[Q, C]`.
        label_distances: of the same pairs `[Q, C]`, at least 0.
        per_query: return the value of each query, a tensor `[Q]` in float64, NaN where it has none.

    Returns:
        The mean, -1 to 1. NaN if no query has different label distances.

    Raises:
        InputError: shapes that do not fit, a number that is not finite or a negative label distance.
    """
    near, labels = _lists("label_distances", distances, label_distances)
    return _mean(order_statistics(Ranked(near, argsort_rows(near)), labels, torch.zeros_like(labels))[3], per_query)


def _mean(values: Tensor, per_query: bool) -> Any:
    """Return the values `[Q]`, or the mean of the finite values."""
    return values if per_query else float(values[values.isfinite()].mean())


def recall_within(
    distances: Numbers,
    label_distances: Numbers,
    *,
    thresholds: Numbers,
    k: int | Sequence[int],
    per_query: bool = False,
) -> Any:
    """Compute the share of the queries with an item within each label distance among the K nearest.

    At a label distance of 0, the share is Recall@K.

    Args:
        distances: of each query to the items of its list `[Q, C]`.
        label_distances: of the same pairs `[Q, C]`, at least 0.
        thresholds: label distances `[T]`.
        k: one K from 1 to C, or several K. With several, the result is a dict.
        per_query: return the values of each query, a tensor `[Q, T]` in float64.

    Returns:
        The share for each threshold, a list.

    Raises:
        InputError: shapes that do not fit, a number that is not finite, a negative label distance, or K out of range.
    """
    near, labels = _lists("label_distances", distances, label_distances)
    limits = as_numbers("thresholds", thresholds).cpu().double()
    if limits.ndim != 1 or not bool(limits.isfinite().all()):
        raise InputError("thresholds", f"shape {list(limits.shape)}", "must be a list of finite numbers")
    sorted_distances, order = near.sort(dim=1)
    ordered, nothing = labels.gather(1, order), torch.zeros(len(near), dtype=torch.float64)
    ties = Ties(sorted_distances, nothing)
    first = [first_relevant(ties.sums(ordered <= limit, nothing), nothing, ties) for limit in limits]

    def values(ks: list[int]) -> Sequence[Any]:
        shares = torch.stack([each.of_queries(ks) for each in first], 1)  # [Q,T,K]
        return shares.unbind(2) if per_query else shares.mean(0).T.tolist()

    return at_each_k(k, values, near.shape[1])


def _lists(name: str, distances: Numbers, values: Numbers) -> tuple[Tensor, Tensor]:
    """Check ranked lists, and return their distances and values `[Q, C]` in float64 on the CPU."""
    x, y = as_numbers("distances", distances), as_numbers(name, values)
    if x.ndim != 2 or x.shape != y.shape or not x.numel():
        got = f"{list(x.shape)} and {name} {list(y.shape)}"
        raise InputError("distances", got, hint="give both as [queries, items]")
    for argument, numbers in (("distances", x), (name, y)):
        if not bool(numbers.isfinite().all()):
            raise InputError(argument, "some are not finite", hint="look for NaN in them")
    if float(y.min()) < 0:
        raise InputError(name, f"{float(y.min())}", "must be at least 0")
    return x.cpu().double(), y.cpu().double()
