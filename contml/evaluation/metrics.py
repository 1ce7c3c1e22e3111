"""The metrics of an evaluation: titles, bounds, formulas for continuous labels, and the values that papers report.

    mean label distance@K = mean over queries of 1/K sum_{i = 1..K} D_y(query, i-th item)
    nDCG@K = mean over queries of DCG / (DCG of the best order),  DCG = sum_{i = 1..K} gain_i / log2(i + 1)
    gain   = 2^(-log2(D_y + 1)) = 1 / (1 + D_y)

Kim, Seo, Laptev, Cho, Kwak: "Deep Metric Learning Beyond Binary Supervision", CVPR 2019, Section 5.

Rankings in which items are at equal distance: expectations when the order of these items is drawn at random.

    places:     0    1    2    3    4    5 |        a ranking of 6 places of a larger gallery
    distances: 0.1  0.4  0.4  0.4  0.7  0.9 | 0.9   one more item ties with the last place: beyond = 1
    first:      0    1    1    1    4    5          first place of the group of each place
    size:       1    3    3    3    1    2          items of the group

A metric of one order of tied items, such as the order of files, would be arbitrary, and so would the score of a
collapsed embedding. The expectation does not depend on this order; without ties it is the usual metric.
McSherry, Najork: "Computing Information Retrieval Performance Measures Efficiently in the Presence of Tied Scores",
ECIR 2008. Items tie when their float64 distances are equal (`contml.distances.exact`).

The 95 % interval of a mean over queries, runs, or judgments that share items: Student's t, with few groups in mind.

    half the width = t_{0.975, df} sqrt(variance of the mean)

Queries of one group or class share an item: the group, or the class (`items_of_queries`).
`benchmarks/results/intervals.md` has the measured coverage.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from contml._support.conversion import Numbers, as_numbers
from contml._support.errors import InputError, closest, did_you_mean
from contml.contracts import Measure
from contml.distances.ranks import mean_ranks


class Metric(NamedTuple):
    """A row of the tables of metrics.

    Attributes:
        title: as tables and plots show it.
        meaning: what it is.
        better: whether a "higher" or a "lower" value is better.
        low, high: its lowest and highest value.
        ks: the K at which tables show it.
        folded: a report shows it below its first table.
        linear: it is a plain distance, also where label distances are squared.
    """

    title: str
    meaning: str
    better: str = "higher"
    low: float = 0.0
    high: float = 1.0
    ks: tuple[int, ...] = (1, 5, 10, 20, 50, 100)
    folded: bool = False
    linear: bool = False

    def __str__(self) -> str:
        limits = f"{self.low:g} to {self.high:g}" if math.isfinite(self.high) else f"at least {self.low:g}"
        return f"{self.meaning}; {limits}, {self.better} is better"

    @property
    def is_label_distance(self) -> bool:
        """Whether it is a mean of label distances; all other metrics have a highest value."""
        return math.isinf(self.high)


#: Metrics over K; the name of one value is "recall@1".
METRICS_AT_K = {
    "recall": Metric("Recall", "share of the queries with an item of their class among the K nearest"),
    "label_distance": Metric("mean label distance", "mean label distance of the K nearest", "lower", high=math.inf),
    "ndcg": Metric(
        "nDCG", "sum of 1 / (1 + label distance) / log2(rank + 1) of the K nearest, divided by that of the best ranking"
    ),
    "recall_area": Metric(
        "recall area",
        "share of the queries with an item within a label distance t among the K nearest, mean over ten t",
        folded=True,
    ),
    "knn_error": Metric(
        "k-NN regression error",
        "distance from the mean label of the K nearest to that of the query",
        "lower",
        high=math.inf,
        folded=True,
        linear=True,
    ),
    "bleu": Metric(
        "BLEU",
        "precision of n-grams of 1 to K words against the references, with a penalty for short captions",
        ks=(1, 2, 3, 4),
    ),
}
#: Metrics without a K.
METRICS = {
    "map_at_r": Metric(
        "MAP@R", "sum of the precisions at the relevant items among the R nearest, divided by R, the size of the class"
    ),
    "r_precision": Metric(
        "R-precision", "share of the R nearest that are of the query's class; R is the size of the class"
    ),
    "nmi": Metric("NMI", "normalized mutual information of classes and k-means clusters"),
    "f1": Metric("F1", "'in one cluster' as a prediction of 'in one class', over pairs of items"),
    "label_distance_area": Metric(
        "area under the label distance", "mean of label_distance@K over K = 1 ... 100", "lower", high=math.inf
    ),
    "hap": Metric(
        "H-AP", "hierarchical average precision: average precision for graded relevance, over the whole ranking"
    ),
    "kendall": Metric(
        "Kendall's tau", "Kendall's tau-b of embedding distance and label distance, mean over the queries", low=-1.0
    ),
    "spearman": Metric(
        "Spearman", "rank correlation of embedding distance and label distance over all pairs", low=-1.0
    ),
    "cider_d": Metric("CIDEr-D", "CIDEr with clipped counts and a penalty for other lengths, times 10", high=10.0),
    "cider": Metric(
        "CIDEr", "mean cosine of the tf-idf vectors of n-grams of a caption and its references, n = 1 to 4"
    ),
    "rouge_l": Metric("ROUGE-L", "F score of the longest common subsequence with the references"),
    "judged_spearman": Metric(
        "Spearman, judged pairs",
        "rank correlation of embedding distance and judged distance, over judged pairs",
        low=-1.0,
    ),
    "judged_kendall": Metric(
        "Kendall's tau, judged pairs",
        "Kendall's tau-b of embedding distance and judged distance, over judged pairs",
        low=-1.0,
    ),
    "triplet_accuracy": Metric(
        "triplet accuracy",
        "share of the judged triplets that the model answers as most judges do: 2AFC, or the odd one out of three",
    ),
    "judge_agreement": Metric(
        "agreement with a judge", "share of the judges who gave the model's answer to a triplet, mean over triplets"
    ),
    "judged_ndcg": Metric(
        "judged nDCG",
        "sum of gain / log2(rank + 1) over the judged items of a query, divided by that of the best ranking; the gain "
        "is the grade, or 1 / (1 + distance)",
    ),
}


def metric_of(name: str) -> Metric:
    """Returns the metric of a name such as "recall@1" or "map_at_r".

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
    """Returns the title of a metric by its name: "Recall@1", "BLEU-4", "CIDEr-D".

    Raises:
        InputError: there is no such metric.
    """
    k = name.partition("@")[2]
    title = metric_of(name).title
    return title if not k else f"{title}-{k}" if title == "BLEU" else f"{title}@{k}"


def measure_of(metric: str, measure: Measure) -> Measure | None:
    """How values of a metric are printed if they are label distances, which `measure` prints; else None."""
    base, _, form = metric.partition("/")
    definition = METRICS_AT_K.get(base.partition("@")[0]) or METRICS.get(base)
    if form or definition is None or not definition.is_label_distance:
        return None
    return measure.linear if definition.linear else measure


class Published:
    """Metrics that a paper reports for this setup, for the reader of the config.

    Every other key is the name of a metric (`contml list metrics`); its value is a fraction: 'recall@1: 0.697'. A
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
    """Mean label distance@K, `[K]` for K = 1, 2, ..., of rankings `[Q, K]`, best first."""
    k = torch.arange(1, label_distances.shape[1] + 1)
    return (label_distances.double().cumsum(1) / k).mean(0)


def gains(label_distances: Tensor) -> Tensor:
    """`1 / (1 + D_y)`: it depends on the unit of the label distance."""
    return 1 / (1 + label_distances.double())


def discounts(k: int) -> Tensor:
    """`1 / log2(rank + 1)` of the ranks 1 ... k, `[k]`."""
    return 1 / torch.arange(2, k + 2, dtype=torch.float64).log2()


def ndcg_at(gain: Tensor, ideal: Tensor) -> Tensor:
    """nDCG@K, `[K]` for K = 1, 2, ..., given the gains `[Q, K]` of the rankings and of the best rankings."""
    discount = discounts(gain.shape[1])
    return ((gain * discount).cumsum(1) / (ideal * discount).cumsum(1)).mean(0)


def paired_interval(a: Numbers, b: Numbers, items: Tensor | None = None) -> tuple[float, float]:
    """Mean of a - b, and half the width of its 95 % interval, by Student's t (`half_width`).

    Args:
        a: values of a metric `[Q]`, one per query.
        b: values of the same queries in other rankings `[Q]`.
        items: the items of each query `[Q, m]`, where queries that share one are not independent; None: they are.

    Returns:
        The mean and the half width; NaN in place of the half width if there is only one query, or if all share
        an item.

    Raises:
        InputError: there is no value, or the numbers of values differ.
    """
    x, y = as_numbers("a", a).double(), as_numbers("b", b).double()
    if x.ndim != 1 or x.shape != y.shape or not len(x):
        raise InputError("b", f"{list(y.shape)} values, a has {list(x.shape)}", hint="give both for the same queries")
    difference = x - y
    return float(difference.mean()), half_width(difference, items)


def spearman(x: Tensor, y: Tensor) -> float:
    """Spearman's rank correlation of x `[P]` and y `[P]`, ties get their mean rank; NaN if x or y is constant."""
    if len(x) < 2 or bool((x == x[0]).all()) or bool((y == y[0]).all()):
        return float("nan")
    a, b = (ranks - ranks.mean() for ranks in (mean_ranks(x), mean_ranks(y)))
    return float(a.dot(b) / (a.dot(a).sqrt() * b.dot(b).sqrt()))


class Ties:
    """The groups of items at equal distance in rankings `[q, D]`; an item that ties with no other is a group of one.

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
        """Sums over the group of each place `[q, D]` of values `[q, D]`, and of `beyond` `[q]` after the last place."""
        totals = torch.zeros(values.shape, dtype=torch.float64).scatter_add_(1, self.first, values.double())
        return totals.gather(1, self.first) + torch.where(self._in_last_group, beyond[:, None], 0)

    def expected(self, values: Tensor, beyond: Tensor) -> Tensor:
        """The expected value at each place `[q, D]`: the mean over its group, arguments as of `sums`."""
        return self.sums(values, beyond) / self.size


def items_of_queries(classes: Tensor | None, groups: Tensor | None) -> Tensor | None:
    """The items that queries share, for `variance_of_mean`: their classes, their groups, or both.

    A result should hold for new classes and new groups, and the queries of a class find the same items. Where each
    group is in one class, the classes are the items; where each class is in one group, the groups are; else both.

    Args:
        classes: the class of each query `[Q]`; None: labels are not classes.
        groups: the group of each query `[Q]`; None: there are none.

    Returns:
        `[Q, m]`; None: no queries share an item.
    """
    if classes is None or groups is None:
        known = groups if classes is None else classes
        return None if known is None else known[:, None]
    by_class, by_group = (torch.unique(each, return_inverse=True)[1] for each in (classes, groups))
    num_classes, num_groups = (len(torch.unique(each)) for each in (classes, groups))
    together = len(torch.unique(torch.stack((by_class, by_group), 1), dim=0))
    if together == num_groups:
        return classes[:, None]
    if together == num_classes:
        return groups[:, None]
    return torch.stack((by_class, num_classes + by_group), 1)


def half_width(values: Numbers, items: Tensor | None = None) -> float:
    """Half the width of the 95 % interval of a mean; NaN for fewer than two values, or if all share an item.

    Args:
        values: `[J]`.
        items: as in `variance_of_mean`.

    Raises:
        InputError: the values are not numbers.
    """
    x = as_numbers("values", values).double()
    return half_width_of_sum([(variance_of_mean(x, items), degrees_of_freedom(len(x), items))])


def half_width_of_share(hits: Numbers, items: Tensor | None = None) -> float:
    """Half the width of the 95 % interval of a share, to be cut at 0 and 1; NaN as for `half_width`.

    Of values that are all 0, or all 1, no variance is seen. It is then that of Clopper and Pearson (1934) for n
    independent values, `1 - 0.025^(1 / n)`, where n - 1 are the degrees of freedom of the items.

    Args:
        hits: `[J]`, each from 0 to 1.
        items: as in `variance_of_mean`.

    Raises:
        InputError: the values are not numbers.
    """
    x = as_numbers("hits", hits).double()
    half = half_width(x, items)
    if half == 0 and float(x[0]) in (0, 1):
        half = 1 - 0.025 ** (1 / (1 + degrees_of_freedom(len(x), items)))
    return half


def half_width_of_sum(estimates: Sequence[tuple[float, float]]) -> float:
    """Half the width of the 95 % interval of a sum of independent estimates (Welch); NaN if a variance is.

    Args:
        estimates: the variance of each, and the degrees of freedom of this variance.
    """
    from scipy.special import stdtrit  # here: it takes a while to import

    total, degrees = variance_of_sum(estimates)
    return float(stdtrit(degrees, 0.975)) * math.sqrt(total) if total else 0.0


def p_value(value: float, estimates: Sequence[tuple[float, float]]) -> float:
    """The two-sided p-value of the hypothesis that a sum of independent estimates is 0; 1 if a variance is NaN.

    Args:
        value: the sum.
        estimates: as in `half_width_of_sum`.
    """
    from scipy.special import stdtr  # here: it takes a while to import

    total, degrees = variance_of_sum(estimates)
    if math.isnan(total):
        return 1.0
    if not total:
        return float(value == 0)
    return 2 * float(stdtr(degrees, -abs(value) / math.sqrt(total)))


def variance_of_sum(estimates: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The variance of a sum of independent estimates, and its degrees of freedom, by Welch and Satterthwaite.

    Args:
        estimates: as in `half_width_of_sum`.
    """
    total = float(sum(variance for variance, _ in estimates))
    if not total or math.isnan(total):
        return total, math.inf
    return total, 1 / sum((variance / total) ** 2 / degrees for variance, degrees in estimates)


def variance_of_mean(values: Tensor, items: Tensor | None = None) -> float:
    """The variance of a mean of values, of which those that share an item are not independent.

    It is the sum of e_t e_u over values t, u that share an item, divided by J^2; e: residuals. They are smaller than
    the errors, so each sum of residuals over the values of an item is divided by (1 - share of these values)^(m / 2).
    With one item per value (m = 1), this is CR2: Bell, McCaffrey, "Bias reduction in standard errors for linear
    regression with multi-stage samples", 2002. With several items: Cameron, Gelbach, Miller, "Robust inference with
    multiway clustering", 2011; of pairs, Aronow, Samii, Assenova, "Cluster-robust variance estimation for dyadic
    data", 2015. Where no values share an item, it is the usual variance; it is never below that.

    Args:
        values: `[J]`.
        items: the different items of each value `[J, m]`, such as its group or its class (m = 1); None: none are
            shared.

    Returns:
        The variance; NaN for fewer than two values, or if all share an item.
    """
    count = len(values)
    if count < 2:
        return math.nan
    residuals = values.double() - values.double().mean()
    independent = float(residuals.square().sum()) / (count - 1) / count
    if items is None:
        return independent
    # Two values that share s items are in s sums over one item, in s (s - 1) / 2 over two items, ...: with alternating
    # signs, they count once.
    shared, width, ordered = 0.0, items.shape[1], items.sort(dim=1).values
    for size in range(1, width + 1):
        chosen = list(itertools.combinations(range(width), size))
        subsets = torch.cat([ordered[:, list(columns)] for columns in chosen])
        subsets, dim = (subsets[:, 0], None) if size == 1 else (subsets, 0)  # by rows takes 30 times longer
        _, number, counts = torch.unique(subsets, dim=dim, return_inverse=True, return_counts=True)
        if int(counts.max()) == count:
            return math.nan
        sums = torch.zeros(len(counts), dtype=torch.float64)
        sums.index_add_(0, number, residuals.repeat(len(chosen)))
        shared -= (-1) ** size * float((sums.square() / (1 - counts / count) ** width).sum())
    return max(independent, shared / count**2)


def degrees_of_freedom(count: int, items: Tensor | None = None) -> float:
    """The degrees of freedom of `variance_of_mean`: those of Bell and McCaffrey, by the share of each item.

    Of G groups of equal size it is G - 1, of unequal ones fewer; of items of pairs or triplets, by how often each is
    judged. They are never more than J - 1.

    Args:
        count: the number of values J.
        items: as in `variance_of_mean`.
    """
    if items is None:
        return count - 1
    shares = torch.unique(items, return_counts=True)[1].double() / items.numel()
    squares = shares.square()
    ratios = squares / (1 - shares)
    return min(count - 1, 1 / float(squares.sum() + ratios.sum().square() - ratios.square().sum()))
