"""The metrics of an evaluation: titles, bounds, formulas for continuous labels, and the values that papers report.

    mean label distance@K = mean over queries of 1/K sum_{i = 1..K} D_y(query, i-th item)
    nDCG@K = mean over queries of DCG / (DCG of the best order),  DCG = sum_{i = 1..K} gain_i / log2(i + 1)
    gain   = 2^(-log2(D_y + 1)) = 1 / (1 + D_y)

Kim, Seo, Laptev, Cho, Kwak: "Deep Metric Learning Beyond Binary Supervision", CVPR 2019, Section 5.

If items of a ranking are at equal distance, a metric is its expectation over random orders of these items.

    places:     0    1    2    3    4    5 |        a ranking of 6 places of a larger gallery
    distances: 0.1  0.4  0.4  0.4  0.7  0.9 | 0.9   one more item ties with the last place: beyond = 1
    first:      0    1    1    1    4    5          first place of the group of each place
    size:       1    3    3    3    1    2          items of the group

A metric of one order of tied items, such as the order of files, would be arbitrary. The score of a collapsed embedding
would be arbitrary too. The expectation does not depend on this order. Without ties it is the usual metric. McSherry,
Najork: "Computing Information Retrieval Performance Measures Efficiently in the Presence of Tied Scores", ECIR 2008.
Items tie if their float64 distances are equal (`contml.distances.exact`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from contml._support.errors import InputError, closest, did_you_mean
from contml.contracts import Measure, OwnMetrics
from contml.distances.ranks import mean_ranks


class Metric(NamedTuple):
    """A row of the tables of metrics.

    Attributes:
        title: the title in tables and plots.
        meaning: the definition in one line.
        better: whether a "higher" or a "lower" value is better.
        low, high: the lowest and the highest value.
        ks: the K at which tables show the metric.
    """

    title: str
    meaning: str
    better: str = "higher"
    low: float = 0.0
    high: float = 1.0
    ks: tuple[int, ...] = (1, 5, 10, 20, 50, 100)

    def __str__(self) -> str:
        limits = f"{self.low:g} to {self.high:g}" if math.isfinite(self.high) else f"at least {self.low:g}"
        return f"{self.meaning}; {limits}, {self.better} is better"

    @property
    def is_label_distance(self) -> bool:
        """True if the metric is a mean of label distances. All other metrics have a highest value."""
        return math.isinf(self.high)


#: Metrics over K; the name of one value is "recall@1".
METRICS_AT_K = {
    "recall": Metric("Recall", "share of the queries with an item of their class among the K nearest"),
    "label_distance": Metric("mean label distance", "mean label distance of the K nearest", "lower", high=math.inf),
    "ndcg": Metric("nDCG",
        "sum of 1 / (1 + label distance) / log2(rank + 1) of the K nearest, divided by that of the best ranking"),
    "bleu": Metric("BLEU",
        "precision of n-grams of 1 to K words against the references, with a penalty for short captions",
        ks=(1, 2, 3, 4)),
}  # fmt: skip
#: Metrics without a K.
METRICS = {
    "map_at_r": Metric("MAP@R",
        "sum of the precisions at the relevant items among the R nearest, divided by R, the size of the class"),
    "r_precision": Metric("R-precision",
        "share of the R nearest that are of the query's class; R is the size of the class"),
    "nmi": Metric("NMI", "normalized mutual information of classes and k-means clusters"),
    "f1": Metric("F1", "'in one cluster' as a prediction of 'in one class', over pairs of items"),
    "label_distance_area": Metric("area under the label distance",
        "mean of label_distance@K over K = 1 ... 100", "lower", high=math.inf),
    "hap": Metric("H-AP",
        "hierarchical average precision: average precision for graded relevance, over the whole ranking"),
    "kendall": Metric("Kendall's tau",
        "Kendall's tau-b of embedding distance and label distance, mean over the queries", low=-1.0),
    "spearman": Metric("Spearman",
        "rank correlation of embedding distance and label distance over all pairs", low=-1.0),
    "cider_d": Metric("CIDEr-D", "CIDEr with clipped counts and a penalty for other lengths, times 10", high=10.0),
    "cider": Metric("CIDEr",
        "mean cosine of the tf-idf vectors of n-grams of a caption and its references, n = 1 to 4"),
    "rouge_l": Metric("ROUGE-L", "F score of the longest common subsequence with the references"),
    "judged_spearman": Metric("Spearman, judged pairs",
        "rank correlation of embedding distance and judged distance, over judged pairs", low=-1.0),
    "triplet_accuracy": Metric("triplet accuracy",
        "share of the judged triplets that the model answers as most judges do: 2AFC, or the odd one out of three"),
    "judge_agreement": Metric("agreement with a judge",
        "share of the judges who gave the model's answer to a triplet, mean over triplets"),
    "judged_ndcg": Metric("judged nDCG",
        "sum of gain / log2(rank + 1) over the judged items of a query, divided by that of the best ranking; the gain "
        "is the grade, or 1 / (1 + distance)"),
}  # fmt: skip


def metric_of(name: str) -> Metric:
    """Return the metric of a name such as "recall@1" or "map_at_r".

    Raises:
        InputError: there is no such metric.
    """
    base, separator, k = name.partition("@")
    if not separator and name in METRICS:
        return METRICS[name]
    if base in METRICS_AT_K:
        if k.isdecimal() and k.isascii() and int(k) > 0:
            return METRICS_AT_K[base]
        raise InputError(name, "a metric over K without its K", hint=f"write one such as {base}@10")
    suggestion = closest(base, METRICS_AT_K) if separator else None
    all_names = ", ".join([*(f"{each}@K" for each in METRICS_AT_K), *METRICS])
    hint = did_you_mean(name, [*METRICS_AT_K, *METRICS], f"there are {all_names}")
    raise InputError(name, "unknown metric", hint=f"did you mean '{suggestion}@{k}'?" if suggestion else hint)


def title_of(name: str) -> str:
    """Return the title of a metric by its name: "Recall@1", "BLEU-4", "CIDEr-D".

    Raises:
        InputError: there is no such metric.
    """
    k = name.partition("@")[2]
    title = metric_of(name).title
    return title if not k else f"{title}-{k}" if title == "BLEU" else f"{title}@{k}"


def check_metrics(metrics: OwnMetrics | dict[str, str]) -> None:
    """Check user-defined metrics by name. A metric is a function, or a text that names a function.

    Raises:
        InputError: a name is not a word, contml has a metric of this name, or a value is not a function.
    """
    for name, metric in metrics.items():
        if not str(name).isidentifier() or name in METRICS or name in METRICS_AT_K:
            raise InputError(f"metrics.{name}", "this name of a metric", "must be a word, no metric of contml")
        if not (callable(metric) or isinstance(metric, str)):
            raise InputError(f"metrics.{name}", type(metric).__name__, "must be a function")


def measure_of(metric: str, measure: Measure) -> Measure | None:
    """Return `measure`, which prints the values of a metric, if they are label distances. Otherwise return None."""
    base, _, form = metric.partition("/")
    definition = METRICS_AT_K.get(base.partition("@")[0]) or METRICS.get(base)
    return None if form or definition is None or not definition.is_label_distance else measure


class Published:
    """Metrics that a paper reports for this setup, for the reader of the config.

    Every other key is the name of a metric (`contml list metrics`). Its value is a fraction: 'recall@1: 0.697'. A
    label distance is in the unit of the task.

    Args:
        source: where the values are published: paper, table, and anything special about them.
    """

    def __init__(self, source: str, **metrics: float) -> None:
        if not source.strip():
            raise InputError("source", "empty", hint="name the paper and table, such as 'Kim et al. 2020, Table 2'")
        if not metrics:
            raise InputError("metrics", "none", hint="add some, such as 'recall@1: 0.697', or remove 'published'")
        for name, value in metrics.items():
            low, high = metric_of(name)[3:5]
            if not (math.isfinite(value) and low <= value <= high):
                percent = f"write {value / 100:g} for {value:g} %" if high == 1 < value <= 100 else ""
                allowed = f"{low:g} to {high:g}" if math.isfinite(high) else "at least 0"
                raise InputError(name, f"{value:g}", f"must be {allowed}", percent)
        self.source, self.metrics = source, metrics


def mean_label_distance_at(label_distances: Tensor) -> Tensor:
    """Compute the mean label distance@K, `[K]` for K = 1, 2, ..., of rankings `[Q, K]`, best first."""
    return (label_distances.double().cumsum(1) / torch.arange(1, label_distances.shape[1] + 1)).mean(0)


def gains(label_distances: Tensor) -> Tensor:
    """Compute the gains `1 / (1 + D_y)`. They depend on the unit of the label distance."""
    return 1 / (1 + label_distances.double())


def discounts(k: int) -> Tensor:
    """Return the discounts `1 / log2(rank + 1)` of the ranks 1 ... k, `[k]`."""
    return 1 / torch.arange(2, k + 2, dtype=torch.float64).log2()


def ndcg_at(gain: Tensor, ideal: Tensor) -> Tensor:
    """Compute nDCG@K, `[K]` for K = 1, 2, ..., given the gains `[Q, K]` of the rankings and of the best rankings."""
    discount = discounts(gain.shape[1])
    return ((gain * discount).cumsum(1) / (ideal * discount).cumsum(1)).mean(0)


def spearman(x: Tensor, y: Tensor) -> float:
    """Compute Spearman's rank correlation of x `[P]` and y `[P]`. Ties get their mean rank.

    It is NaN if x or y is constant.
    """
    if len(x) < 2 or bool((x == x[0]).all()) or bool((y == y[0]).all()):
        return float("nan")
    a, b = (ranks - ranks.mean() for ranks in (mean_ranks(x), mean_ranks(y)))
    return float(a.dot(b) / (a.dot(a).sqrt() * b.dot(b).sqrt()))


class Ties:
    """The groups of items at equal distance in rankings `[q, D]`. An item that ties with no other is a group of one.

    Args:
        distances: `[q, D]`, nearest first.
        beyond: number of items after the last place that tie with it, `[q]`.
    """

    def __init__(self, distances: Tensor, beyond: Tensor) -> None:
        begins = pad(distances[:, 1:] != distances[:, :-1], (1, 0), value=True)
        place = torch.arange(distances.shape[1]).expand_as(distances)
        self.first = torch.where(begins, place, 0).cummax(1).values  # [q,D] int64
        self._in_last_group = self.first == self.first[:, -1:]
        self.size = self.sums(torch.ones_like(begins), beyond)  # [q,D] float64

    def sums(self, values: Tensor, beyond: Tensor) -> Tensor:
        """Sum `values` `[q, D]` over the group of each place, `[q, D]`.

        `beyond` `[q]` is the sum of the values of items that tie with the last place, but come after it.
        """
        totals = torch.zeros(values.shape, dtype=torch.float64).scatter_add_(1, self.first, values.double())
        return totals.gather(1, self.first) + torch.where(self._in_last_group, beyond[:, None], 0)

    def expected(self, values: Tensor, beyond: Tensor) -> Tensor:
        """Compute the expected value at each place `[q, D]`, the mean over its group.

        The arguments are as in `sums`.
        """
        return self.sums(values, beyond) / self.size
