"""The 95 % interval of a mean, by Student's t, for values that may share items.

    half the width = t_{0.975, df} sqrt(variance of the mean)

The values are of queries, runs, or judgments. Queries of one group or class share an item: the group, or the class
(`items_of_queries`). `benchmarks/results/intervals.md` has the measured coverage.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from contml._support.conversion import Numbers, as_numbers
from contml._support.errors import InputError


def items_of_queries(classes: Tensor | None, groups: Tensor | None) -> Tensor | None:
    """Return the items that queries share, for `variance_of_mean`: their classes, their groups, or both.

    A result should hold for new classes and new groups, and the queries of a class find the same items. If each group
    is in one class, the items are the classes. If each class is in one group, the items are the groups. Otherwise they
    are both.

    Args:
        classes: the class of each query `[Q]`. It is None if labels are not classes.
        groups: the group of each query `[Q]`. It is None if there are no groups.

    Returns:
        The items `[Q, m]`. None if no queries share an item.
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
    """Return half the width of the 95 % interval of a mean.

    It is NaN for fewer than two values, or if all values share an item.

    Args:
        values: `[J]`.
        items: as in `variance_of_mean`.

    Raises:
        InputError: the values are not numbers.
    """
    x = as_numbers("values", values).double()
    return half_width_of_sum([(variance_of_mean(x, items), degrees_of_freedom(len(x), items))])


def half_width_of_share(hits: Numbers, items: Tensor | None = None) -> float:
    """Return half the width of the 95 % interval of a share, to be cut at 0 and 1. It is NaN as for `half_width`.

    Values that are all 0, or all 1, have no variance. The interval is then the interval of Clopper and Pearson (1934)
    for n independent values, `1 - 0.025^(1 / n)`. Here n - 1 is the number of degrees of freedom of the items.

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
    """Return half the width of the 95 % interval of a sum of independent estimates (Welch).

    It is NaN if a variance is NaN.

    Args:
        estimates: the variance of each estimate, and the degrees of freedom of this variance.
    """
    from scipy.special import stdtrit  # here: it takes a while to import

    total, degrees = variance_of_sum(estimates)
    return float(stdtrit(degrees, 0.975)) * math.sqrt(total) if total else 0.0


def p_value(value: float, estimates: Sequence[tuple[float, float]]) -> float:
    """Compute the two-sided p-value of the hypothesis that a sum of independent estimates is 0.

    It is 1 if a variance is NaN.

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
    """Return the variance of a sum of independent estimates and its degrees of freedom, by Welch and Satterthwaite.

    Args:
        estimates: as in `half_width_of_sum`.
    """
    total = float(sum(variance for variance, _ in estimates))
    if not total or math.isnan(total):
        return total, math.inf
    return total, 1 / sum((variance / total) ** 2 / degrees for variance, degrees in estimates)


def variance_of_mean(values: Tensor, items: Tensor | None = None) -> float:
    """Compute the variance of a mean of values. Values that share an item are not independent.

    The variance is the sum of e_t e_u over values t, u that share an item, divided by J^2, where e are residuals.
    Residuals are smaller than the errors. So each sum of residuals over the values of an item is divided by
    (1 - share of these values)^(m / 2). With one item per value (m = 1), this is CR2: Bell, McCaffrey, "Bias reduction
    in standard errors for linear regression with multi-stage samples", 2002. With several items it follows Cameron,
    Gelbach, Miller, "Robust inference with multiway clustering", 2011. For pairs it follows Aronow, Samii, Assenova,
    "Cluster-robust variance estimation for dyadic data", 2015. If no values share an item, it is the usual variance. It
    is never below the usual variance.

    Args:
        values: `[J]`.
        items: the different items of each value `[J, m]`, such as its group or its class (m = 1). None if values share
            no items.

    Returns:
        The variance. NaN for fewer than two values, or if all share an item.
    """
    count = len(values)
    if count < 2:
        return math.nan
    residuals = values.double() - values.double().mean()
    independent = float(residuals.square().sum()) / (count - 1) / count
    if items is None:
        return independent
    # Two values that share s items are in s sums over one item, in s (s - 1) / 2 sums over two items, and so on. With
    # alternating signs, the two values count once.
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
    """Compute the degrees of freedom of `variance_of_mean`, by Bell and McCaffrey, from the share of each item.

    G groups of equal size have G - 1 degrees of freedom. Groups of unequal size have fewer. For items of pairs or
    triplets, the number depends on how often each item is judged. It is never more than J - 1.

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


def paired_interval(a: Numbers, b: Numbers, items: Tensor | None = None) -> tuple[float, float]:
    """Return the mean of a - b, and half the width of its 95 % interval, by Student's t (`half_width`).

    Args:
        a: values of a metric `[Q]`, one per query.
        b: values of the same queries in other rankings `[Q]`.
        items: the items of each query `[Q, m]`. Queries that share an item are not independent. None if all queries are
            independent.

    Returns:
        The mean and the half width. The half width is NaN if there is only one query, or if all queries share an item.

    Raises:
        InputError: there is no value, or the numbers of values differ.
    """
    x, y = as_numbers("a", a).double(), as_numbers("b", b).double()
    if x.ndim != 1 or x.shape != y.shape or not len(x):
        raise InputError("b", f"{list(y.shape)} values, a has {list(x.shape)}", hint="give both for the same queries")
    difference = x - y
    return float(difference.mean()), half_width(difference, items)
