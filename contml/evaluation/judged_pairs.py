"""Rank correlations of judged pairs: the share of each pair in them, and the most that judges allow.

    Spearman's rho   mean over pairs of z_p w_p             z, w: standardized ranks of embedding and judged distances
    Kendall's tau-b  (agreeing - violated) / sqrt(...)      over pairs of judged pairs

A correlation is no mean over pairs, but its influence function is: the values of pairs here have the correlation as
their mean and, to first order, its variance, also where pairs share an item (`variance_of_mean`):

    rho              rho + z_p w_p - rho / 2 (z_p^2 + w_p^2)
    tau              tau + 2 (h_p - mean h),                h_p: the mean of p's comparisons with other pairs

The ceiling is the correlation of true distances with the means of as many judges as each pair has. Both are drawn with
a fixed seed: the judged means, moved towards their mean so that their variance is that of the true distances, and these
with the noise of judges, whose variance is that of repeated judgments of a pair.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np

from contml.labels.base import JudgedPairs

Floats: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"

#: Draws of noise for the ceiling.
_DRAWS = 20
#: A pair is compared with at most so many others, evenly spaced, for its share in tau.
_COMPARED = 1000
#: Pairs in a block of comparisons.
_BLOCK = 1 << 11


def spearman_values(x: Floats, y: Floats) -> Floats:
    """Values of pairs `[P]` whose mean is Spearman's correlation of x and y `[P]`; NaN if x or y is constant."""
    from scipy.stats import rankdata  # here: it takes a while to import

    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return np.full(len(x), math.nan)
    z, w = (_standardized(rankdata(values)) for values in (x, y))
    product = z * w
    values: Floats = product.mean() + product - product.mean() / 2 * (z**2 + w**2)
    return values


def kendall_values(x: Floats, y: Floats) -> Floats:
    """Values of pairs `[P]` whose mean is Kendall's tau-b of x and y `[P]`; NaN if x or y is constant."""
    from scipy.stats import kendalltau  # here: it takes a while to import

    tau, count = float(kendalltau(x, y).statistic) if len(x) > 1 else math.nan, len(x)
    if math.isnan(tau):
        return np.full(count, math.nan)
    others = np.unique(np.linspace(0, count - 1, min(count, _COMPARED)).astype(np.int64))
    mean, untied = np.zeros(count), np.zeros(2)
    for start in range(0, count, _BLOCK):
        part = slice(start, start + _BLOCK)
        signs = [np.sign(values[part, None] - values[others]) for values in (x, y)]
        mean[part] = (signs[0] * signs[1]).mean(1)
        untied += [(sign != 0).sum() for sign in signs]
    mean *= count * len(others) / math.sqrt(untied[0] * untied[1])
    values: Floats = tau + 2 * (mean - mean.mean())
    return values


def ceilings(pairs: JudgedPairs) -> tuple[float, float]:
    """Spearman's and Kendall's correlation of true distances with the judged means; NaN without a repeated judgment."""
    from scipy.stats import kendalltau, spearmanr  # here: it takes a while to import

    means, counts, spreads = (tensor.cpu().double().numpy() for tensor in pairs[1:])
    several = counts > 1
    if not several.any() or len(means) < 3:
        return math.nan, math.nan
    noise = float(((counts - 1) * spreads**2)[several].sum() / (counts - 1)[several].sum())  # variance of one judge
    total = float(means.var(ddof=1))
    true = total - noise * float((1 / counts).mean())
    if true <= 0:
        return 0.0, 0.0
    distances = means.mean() + math.sqrt(true / total) * (means - means.mean())
    random, found = np.random.default_rng(0), []
    for _ in range(_DRAWS):
        judged = distances + random.normal(0, np.sqrt(noise / counts))
        found.append([float(each(distances, judged).statistic) for each in (spearmanr, kendalltau)])
    rho, tau = np.mean(found, axis=0).tolist()
    return rho, tau


def _standardized(values: Floats) -> Floats:
    result: Floats = (values - values.mean()) / values.std()
    return result
