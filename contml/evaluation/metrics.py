"""Metrics of rankings by continuous labels, of "Deep Metric Learning Beyond Binary Supervision", Section 5."""

from __future__ import annotations

import torch
from torch import Tensor


def mean_label_distance_at(label_distances: Tensor) -> Tensor:
    """Mean label distance of the K best, `[K]` for K = 1, 2, ...: mean over queries of `[Q, K]`, best first."""
    k = torch.arange(1, label_distances.shape[1] + 1)
    return (label_distances.double().cumsum(1) / k).mean(0)


def gains(label_distances: Tensor) -> Tensor:
    """`2^(-log2(D_y + 1)) = 1 / (1 + D_y)`: depends on the unit of the label distance."""
    return 1 / (1 + label_distances.double())


def discounts(k: int) -> Tensor:
    """`1 / log2(rank + 1)` of the ranks 1 ... k, `[k]`."""
    return 1 / torch.arange(2, k + 2, dtype=torch.float64).log2()


def ndcg_at(gain: Tensor, ideal: Tensor) -> Tensor:
    """Normalised discounted cumulative gain `[K]` for K = 1, 2, ...: mean over queries.

    gain `[Q, K]`: of the ranking, best first; ideal `[Q, K]`: of the best ranking of the same gallery.
    """
    discount = discounts(gain.shape[1])
    return ((gain * discount).cumsum(1) / (ideal * discount).cumsum(1)).mean(0)


def spearman(x: Tensor, y: Tensor) -> float:
    """Spearman's rank correlation of x `[P]` and y `[P]`, ties by mean rank; NaN where one of them is constant."""
    if len(x) < 2 or bool((x == x[0]).all()) or bool((y == y[0]).all()):
        return float("nan")
    from scipy.stats import spearmanr  # here: it takes a while to import

    return float(spearmanr(x.numpy(), y.numpy()).statistic)
