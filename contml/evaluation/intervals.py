"""Intervals of a mean over queries, or over judgments that share items."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor


def half_width(values: Tensor, items: Tensor | None = None) -> float:
    """Half the width of the 95 % interval of a mean: 1.96 standard errors; NaN for fewer than two values.

    Args:
        values: `[J]`.
        items: as in `variance_of_mean`.
    """
    return 1.96 * math.sqrt(variance_of_mean(values, items))


def variance_of_mean(values: Tensor, items: Tensor | None = None) -> float:
    """The variance of a mean of values, of which those that share an item are not independent; NaN for fewer than two.

    It is n / (n - m) 1 / J^2 sum_{t, u share an item} e_t e_u; e: residuals, n: number of items. Cameron, Gelbach,
    Miller, "Robust inference with multiway clustering", 2011; of pairs, Aronow, Samii, Assenova, "Cluster-robust
    variance estimation for dyadic data", 2015. Where no values share an item, it is the usual variance; it is never
    below that. In simulations, intervals of it cover the truth in 90 % (60 to 80 items) instead of 95 %.

    Args:
        values: `[J]`.
        items: the different items of each value `[J, m]`; None: none are shared.
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
    shared, ordered = 0.0, items.sort(dim=1).values
    for size in range(1, items.shape[1] + 1):
        chosen = list(itertools.combinations(range(items.shape[1]), size))
        subsets = torch.cat([ordered[:, list(columns)] for columns in chosen])
        number = torch.unique(subsets, dim=0, return_inverse=True)[1]
        sums = torch.zeros(int(number.max()) + 1, dtype=torch.float64)
        sums.index_add_(0, number, residuals.repeat(len(chosen)))
        shared -= (-1) ** size * float(sums.square().sum())
    num_items = len(torch.unique(items))
    return max(independent, num_items / max(1, num_items - items.shape[1]) * shared / count**2)
