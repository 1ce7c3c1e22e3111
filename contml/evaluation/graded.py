"""Metrics of graded labels: hierarchical AP, Kendall's tau, recall within a label distance, regression by neighbours.

    H-AP = mean over queries of  sum_i H_i / rank_i / sum_i rel_i,   H_i = rel_i + sum_{j before i} min(rel_i, rel_j)

    tau  = mean over queries of  (agreeing - violated) / sqrt(pairs not tied by distance * pairs not tied by label)

    recall within t = share of the queries with an item at label distance at most t among the K nearest
    recall area@K   = its mean over the thresholds t: the 2^-10, 2^-9, ..., 1/2 quantiles of the label distances

    k-NN regression error@K = mean over queries of || mean label of the K nearest - label of the query ||

H-AP: Ramzi, Audebert, Thome, Rambour, Bitot: "Hierarchical Average Precision Training for Pertinent Image Retrieval",
ECCV 2022. Its relevance here is rel = max(0, 1 - D_y / m), m the median label distance above 0, as of the loss
`SmoothRankLoss`: it needs no unit, one far outlier does not change it, and on labels of 0 and 1 H-AP is average
precision. Quantiles and median are of a sample of queries and gallery, which depends on their numbers alone.

Items at equal embedding distance: the expectation over their orders; tau-b counts their pairs as neither agreeing nor
violated; the predicted label is the mean of the predictions of all orders.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from contml._support.conversion import Numbers, as_numbers
from contml._support.errors import InputError
from contml.distances._compiled import rows_in_threads
from contml.distances.ranks import Ranked, argsort_rows
from contml.evaluation.query_gallery import Baselines, QueryGallery, at_each_k
from contml.evaluation.results import Curve, RecallWithin, Score, curve_of, score_of
from contml.labels.base import LabelSpace

#: The thresholds of recall, as quantiles of the label distances.
QUANTILES = tuple(0.5**n for n in range(10, 0, -1))
#: Queries and gallery items of the sample of label distances.
_SAMPLE = 64, 512
#: H-AP and Kendall's tau sort the whole gallery: at most so many queries, fewer where so many pairs are exceeded, but
#: at least the last number.
_SORTED, _SORTED_PAIRS, _LEAST_SORTED = 500, 5_000_000, 100
#: Pairs of them that are ranked at a time, but at least so many queries: each time, the gallery is copied in float64.
_RANKED, _LEAST_RANKED = 1 << 20, 8
#: A threshold is larger by this share, so that the rounding of a label distance does not decide.
_ROUNDING = 2.0**-18


#: From label distances `[Q, C]` to relevance `[Q, C]`.
Relevance: TypeAlias = Callable[[Tensor], Tensor] | None


class NearestItems(NamedTuple):
    """The nearest items of some queries `[q, D]`: squared distances, positions, label distances."""

    distances: Tensor
    positions: Tensor
    label_distances: Tensor
    tied_rows: Tensor  # [n] of the queries with further items that tie with the last place
    tied: Tensor  # [n,G] bool: which ones


class GradedMetrics:
    """The metrics of all queries, given a part at a time; a round (`QueryGallery.rounds`) begins with `prepare`.

    Args:
        data: queries and gallery.
        labels: the label space.
        q: the rows of all queries in it.
        g: the rows of the gallery in it.
        k: the largest K.
        main_k: the K of the main metric.
    """

    def __init__(self, data: QueryGallery, labels: LabelSpace, q: Tensor, g: Tensor, k: int, main_k: int) -> None:
        self.data, self.k, self.main_k = data, k, main_k
        sample = _sampled_distances(data, labels, q, g)
        self.unit = median_above_0(sample)
        indices = [max(0, math.ceil(level * len(sample)) - 1) for level in QUANTILES] if len(sample) else []
        self.thresholds = sample[indices]  # [T]
        self._limits = (self.thresholds * (1 + _ROUNDING)).numpy()
        vectors = labels.vectors
        self._vectors = None if vectors is None else [x.cpu().double().contiguous() for x in (vectors[q], vectors[g])]
        # Sums over the queries for model, random ranking and oracle: the chance that none of the K nearest is within a
        # threshold, and the error of regression.
        self._misses = torch.zeros(3, len(indices), k, dtype=torch.float64)
        self._errors = torch.zeros(3, k, dtype=torch.float64)
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

    def add(self, part: slice, d: Tensor, nearest: NearestItems, oracle: Baselines) -> None:
        """Add some queries: their label distances to the gallery `[q, G]`, their nearest items, and the oracle's."""
        self._add_recall(part, d, nearest, oracle)
        if self._vectors is not None:
            self._add_errors(part, d, nearest, oracle)
        queries = self._sorted[(self._sorted >= part.start) & (self._sorted < part.stop)]
        if len(queries):
            rows = d[queries - part.start]
            near = Ranked(*map(torch.stack, zip(*(self._ranked.popleft() for _ in rows), strict=True)))
            self._statistics.append(order_statistics(near, rows, _relevance(rows, self.unit)).T)

    def _add_recall(self, part: slice, d: Tensor, nearest: NearestItems, oracle: Baselines) -> None:
        from contml.evaluation._graded_loops import add_misses, count_within  # here: it imports numba

        limits, num_queries = self._limits, len(d)
        counts = np.empty((num_queries, len(limits) + 1), np.int64)
        query_groups, groups, rows = self.data.query_group[part].numpy(), self.data.gallery_group.numpy(), d.numpy()

        def work(share: slice) -> None:
            count_within(rows[share], query_groups[share], groups, limits, counts[share])

        rows_in_threads(work, num_queries, d.numel())
        num_tied, tied_hits = np.zeros(num_queries), np.zeros((num_queries, len(limits)))
        rows_tied, tied = nearest.tied_rows, nearest.tied
        if len(rows_tied):
            num_tied[rows_tied] = tied.sum(1)
            tied_hits[rows_tied] = torch.stack([(tied & (d[rows_tied] <= limit)).sum(1) for limit in limits], 1)
        near, labels = nearest.distances.numpy(), nearest.label_distances.numpy()
        add_misses(near, labels, num_tied, tied_hits, limits, self._misses[0].numpy())
        # In a random ranking all items tie: k of them at any label distance, and the others.
        num_tied[:], tied_hits[:] = counts[:, -1] - self.k, counts[:, :-1]
        zeros, infinities = np.zeros((num_queries, self.k)), np.full((num_queries, self.k), np.inf, np.float32)
        add_misses(zeros, infinities, num_tied, tied_hits, limits, self._misses[1].numpy())
        self._misses[2] += (oracle.label_distances[:, :1] > torch.from_numpy(limits)).sum(0)[:, None]

    def _add_errors(self, part: slice, d: Tensor, nearest: NearestItems, oracle: Baselines) -> None:
        from contml.evaluation._graded_loops import add_errors, label_ties  # here: it imports numba

        assert self._vectors is not None
        query_vectors, vectors = self._vectors[0][part].numpy(), self._vectors[1].numpy()
        num_tied, tied_sums = np.zeros(len(d)), np.zeros(query_vectors.shape)
        rows_tied, tied = nearest.tied_rows, nearest.tied
        num_tied[rows_tied], tied_sums[rows_tied] = tied.sum(1), tied.double() @ self._vectors[1]
        near, positions = nearest.distances.numpy(), nearest.positions.numpy()
        add_errors(near, positions, vectors, query_vectors, num_tied, tied_sums, self._errors[0].numpy())
        near, positions = oracle.label_distances.numpy(), oracle.positions.numpy()
        groups = self.data.query_group[part].numpy(), self.data.gallery_group.numpy()
        label_ties(
            d.numpy(), *groups, near, positions, vectors, query_vectors, num_tied, tied_sums, self._errors[1].numpy()
        )
        add_errors(near, positions, vectors, query_vectors, num_tied, tied_sums, self._errors[2].numpy())

    def curves(self, queries: int) -> dict[str, Curve]:
        """Recall area and, where labels are vectors, the error of regression, at K = 1 ... k."""
        curves: dict[str, Curve] = {}
        if len(self.thresholds):
            model, random, oracle = 1 - self._misses.mean(1) / queries
            curves["recall_area"] = curve_of("recall_area", model, random, oracle)
        if self._vectors is not None:
            curves["knn_error"] = curve_of("knn_error", *(self._errors / queries))
        return curves

    def scores(self) -> dict[str, Score]:
        """H-AP and Kendall's tau; one that no query defines is omitted."""
        precision, random, relevance, tau = torch.cat(self._statistics).T
        scores: dict[str, Score] = {}
        relevant = relevance > 0
        if bool(relevant.any()):
            values = (float((x[relevant] / relevance[relevant]).mean()) for x in (precision, random))
            scores["hap"] = score_of("hap", *values)
        defined = tau.isfinite()
        if bool(defined.any()):
            scores["kendall"] = score_of("kendall", float(tau[defined].mean()), 0.0)
        return scores

    def recall_within(self, queries: int) -> RecallWithin | None:
        """Recall at the K of the main metric, as a curve over the thresholds."""
        if not len(self.thresholds):
            return None
        values = (1 - self._misses[:, :, self.main_k - 1] / queries).tolist()
        return RecallWithin(self.main_k, list(QUANTILES), self.thresholds.tolist(), *values)

    @property
    def sorted_queries(self) -> int:
        """The number of queries of H-AP and Kendall's tau."""
        return len(self._sorted)


def _relevance(label_distances: Tensor, unit: float | None = None) -> Tensor:
    """The relevance of H-AP, float64; `unit`: the median label distance above 0, by default that of these."""
    unit = median_above_0(label_distances) if unit is None else unit
    return (1 - label_distances.double() / unit).clamp(min=0)


def median_above_0(label_distances: Tensor) -> float:
    """Return the median of the label distances above 0; 1 where there are none."""
    positive = label_distances[label_distances > 0]
    return float(positive.median()) if len(positive) else 1.0


def _sampled_distances(data: QueryGallery, labels: LabelSpace, q: Tensor, g: Tensor) -> Tensor:
    """Label distances of a sample of queries and gallery items, sorted `[P]`, float32 on the CPU."""
    random = np.random.default_rng(0)
    rows, cols = (
        torch.from_numpy(np.sort(random.permutation(len(x))[:size])) for x, size in zip((q, g), _SAMPLE, strict=True)
    )
    d = labels.filled(q[rows], g[cols]).cpu()
    return d[data.query_group[rows, None] != data.gallery_group[cols]].sort().values


def order_statistics(near: Ranked, keys: Tensor, relevance: Tensor) -> Tensor:
    """The statistics `[4, Q]` of rankings `[Q, C]`, in float64 on the CPU: see `contml.evaluation._graded_loops`."""
    from contml.evaluation._graded_loops import order_statistics  # here: it imports numba

    arrays = (x.contiguous().numpy() for x in (*near, keys, argsort_rows(keys), relevance))
    distances, order, key, by_key, rel = arrays
    out = np.empty((4, len(keys)))

    def work(share: slice) -> None:
        rows = (distances[share], order[share], key[share], by_key[share], rel[share])
        order_statistics(*rows, out[:, share])

    rows_in_threads(work, len(keys), keys.numel())
    return torch.from_numpy(out)


# ---------------------------------------------------------------------------------------------------------------------
# functions


def hierarchical_average_precision(
    distances: Numbers, label_distances: Numbers, *, relevance: Relevance = None, per_query: bool = False
) -> Any:
    """Hierarchical AP of ranked lists: the mean over the queries with a relevant item.

    Args:
        distances: of each query to the items of its list `[Q, C]`: they, or any increasing function of them, rank it.
        label_distances: of the same pairs `[Q, C]`, at least 0.
        relevance: the relevance `[Q, C]` of label distances `[Q, C]`, at least 0; of 0 and 1, H-AP is average
            precision. Default `max(0, 1 - label_distances / m)`, with m the median of those above 0.
        per_query: return the value of each query, a tensor `[Q]` in float64, NaN where it has none.

    Returns:
        The mean, 0 to 1; NaN if no query has a relevant item.

    Raises:
        InputError: shapes that do not fit, a number that is not finite, or a negative label distance or relevance.
    """
    near, labels = _lists("label_distances", distances, label_distances)
    near, rel = _lists("relevance", near, (relevance or _relevance)(labels))
    precision, _, total, _ = order_statistics(Ranked(near, argsort_rows(near)), -rel, rel)
    return _mean((precision / total).where(total > 0, math.nan), per_query)


def kendall_tau(distances: Numbers, label_distances: Numbers, *, per_query: bool = False) -> Any:
    """Kendall's tau-b of the distances and the label distances of each ranked list; the mean over the queries.

    A query whose label distances are all equal is left out; equal distances alone count as 0.

    Args:
        distances: of each query to the items of its list `[Q, C]`.
        label_distances: of the same pairs `[Q, C]`, at least 0.
        per_query: return the value of each query, a tensor `[Q]` in float64, NaN where it has none.

    Returns:
        The mean, -1 to 1; NaN if no query has different label distances.

    Raises:
        InputError: shapes that do not fit, a number that is not finite or a negative label distance.
    """
    near, labels = _lists("label_distances", distances, label_distances)
    tau = order_statistics(Ranked(near, argsort_rows(near)), labels, torch.zeros_like(labels))[3]
    return _mean(tau, per_query)


def _mean(values: Tensor, per_query: bool) -> Any:
    """The values `[Q]`, or the mean of the finite ones."""
    return values if per_query else float(values[values.isfinite()].mean())


def recall_within(
    distances: Numbers,
    label_distances: Numbers,
    *,
    thresholds: Numbers,
    k: int | Sequence[int],
    per_query: bool = False,
) -> Any:
    """Share of the queries with an item at most at each label distance among the K nearest; at 0, it is Recall@K.

    Args:
        distances: of each query to the items of its list `[Q, C]`.
        label_distances: of the same pairs `[Q, C]`, at least 0.
        thresholds: label distances `[T]`.
        k: one K from 1 to C, or several: then the result is a dict.
        per_query: return the values of each query, a tensor `[Q, T]` in float64.

    Returns:
        The share for each threshold, a list.

    Raises:
        InputError: shapes that do not fit, a number that is not finite, a negative label distance, or K out of range.
    """
    from contml.evaluation._graded_loops import add_misses  # here: it imports numba

    near, labels = _lists("label_distances", distances, label_distances)
    limits = as_numbers("thresholds", thresholds).cpu().double()
    if limits.ndim != 1 or not bool(limits.isfinite().all()):
        raise InputError("thresholds", f"shape {list(limits.shape)}", "must be a list of finite numbers")
    sorted_distances, order = near.sort(dim=1)
    ordered = labels.gather(1, order).numpy()

    def values(ks: list[int]) -> Sequence[Any]:
        shares = []  # each [T,K]
        for part in np.array_split(np.arange(len(near)), len(near) if per_query else 1):
            misses = np.zeros((len(limits), max(ks)))
            no_ties = np.zeros(len(part)), np.zeros((len(part), len(limits)))
            add_misses(sorted_distances.numpy()[part], ordered[part], *no_ties, limits.numpy(), misses)
            shares.append(torch.from_numpy(1 - misses / len(part))[:, [each - 1 for each in ks]])
        return torch.stack(shares).unbind(2) if per_query else shares[0].T.tolist()

    return at_each_k(k, values, near.shape[1])


def _lists(name: str, distances: Numbers, values: Numbers) -> tuple[Tensor, Tensor]:
    """Distances and values of ranked lists `[Q, C]` in float64 on the CPU."""
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
