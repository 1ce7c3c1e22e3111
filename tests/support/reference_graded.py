"""Slow references of the losses for continuous labels: the formulas as the papers print them, one pair at a time.

Written without sight of the library. embeddings `[B, d]`, label_distances `[A, B]` after division by their scale; row a
belongs to anchor `anchors[a]`, which is left out of its own sets by its index. An empty sum is 0 with a graph. A pair
whose label distance is not known has NaN: it is in no set, and an anchor without another pair is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from support.reference import _hinge, cosine, euclidean, squared_euclidean, unit


def rows_of(
    embeddings: Tensor, label_distances: Tensor, anchors: Tensor | None
) -> Iterator[tuple[int, list[int], list]]:
    """For each anchor: its position, the other items, and their label distances by position."""
    size = len(embeddings)
    for row, a in enumerate(range(size) if anchors is None else anchors.tolist()):
        others = [j for j in range(size) if j != a and not math.isnan(label_distances[row, j])]
        if others:
            yield a, others, [float(d) for d in label_distances[row]]


def zero(embeddings: Tensor) -> Tensor:
    return 0.0 * embeddings.sum()


def log_sum(terms: list[Tensor]) -> Tensor:
    return torch.logsumexp(torch.stack(terms), 0)


def rank_n_contrast(e: Tensor, d: Tensor, anchors: Tensor | None = None, temperature: float = 2.0) -> Tensor:
    """Mean over i, j of - log( e^{s_ij / t} / sum_{k: D_ik >= D_ij} e^{s_ik / t} ), s = -|f_i - f_j|."""
    total, pairs = zero(e), 0
    for i, others, y in rows_of(e, d, anchors):
        s = {k: -euclidean(e[i], e[k]) / temperature for k in others}
        for j in others:
            total = total + log_sum([s[k] for k in others if y[k] >= y[j]]) - s[j]
            pairs += 1
    return total / max(pairs, 1)


def soft_info_nce(
    e: Tensor,
    d: Tensor,
    anchors: Tensor | None = None,
    kernel: str = "gaussian",
    sigma: float = 1.0,
    similarity: str = "cosine",
    temperature: float | Tensor = 0.1,
    denominator: str = "all",
) -> Tensor:
    """- 1/n sum_i sum_j W_ij log ( e^{x_ij} / sum_k e^{x_ik} ), W = K / sum_k K, or with another denominator."""
    of_anchors = []
    for i, others, y in rows_of(e, d, anchors):
        if kernel == "gaussian":
            log_k = {j: -(y[j] ** 2) / (2 * sigma**2) for j in others}
        else:
            log_k = {j: -y[j] / sigma for j in others}
        top = max(log_k.values())
        norm = sum(math.exp(log_k[j] - top) for j in others)
        x = {}
        for j in others:
            if similarity == "cosine":
                x[j] = cosine(e[i], e[j]) / temperature
            else:
                x[j] = torch.log(1 / (1 + squared_euclidean(e[i], e[j]) / temperature))
        value = zero(e)
        for j in others:
            if denominator == "exp":
                terms = [x[k] * (1 - math.exp(log_k[k])) for k in others]
            elif denominator == "threshold":
                terms = [x[k] for k in others if y[k] > y[j]]  # K_ik < K_ij, where K does not underflow
            else:
                terms = [x[k] for k in others]
            if terms:
                value = value + math.exp(log_k[j] - top) / norm * (log_sum(terms) - x[j])
        of_anchors.append(value)
    return torch.stack(of_anchors).mean() if of_anchors else zero(e)


def cosent(
    e: Tensor, d: Tensor, anchors: Tensor | None = None, scale: float = 20.0, per_anchor: bool = False
) -> Tensor:
    """log(1 + sum_{D_p < D_q} e^{scale (s_q - s_p)}) over all ordered pairs; or over those of an anchor, the mean."""
    rows = [[(y[j], cosine(e[i], e[j])) for j in others] for i, others, y in rows_of(e, d, anchors)]
    groups = rows if per_anchor else [[pair for row in rows for pair in row]]
    values = []
    for pairs in groups:
        terms = [scale * (s_q - s_p) for y_p, s_p in pairs for y_q, s_q in pairs if y_p < y_q]
        values.append(log_sum([zero(e), *terms]))
    return torch.stack(values).mean()


def label_similarity(y: float, kernel: str, sigma: float) -> float:
    return max(0.0, 1 - y / sigma) if kernel == "linear" else math.exp(-y / sigma)


def generalized_contrastive(
    e: Tensor, d: Tensor, anchors: Tensor | None = None, margin: float = 0.5, kernel: str = "linear", sigma: float = 1.0
) -> Tensor:
    """Mean over pairs of psi d^2 / 2 + (1 - psi) [margin - d]_+^2 / 2, on unit vectors."""
    terms = [zero(e)]
    for i, others, y in rows_of(e, d, anchors):
        for j in others:
            psi, far = label_similarity(y[j], kernel, sigma), euclidean(unit(e[i]), unit(e[j]))
            terms.append(psi * far**2 / 2 + (1 - psi) * _hinge(margin - far) ** 2 / 2)
    return torch.stack(terms).sum() / max(1, len(terms) - 1)


def relaxed_contrastive(
    e: Tensor, d: Tensor, anchors: Tensor | None = None, margin: float = 1.0, sigma: float = 1.0
) -> Tensor:
    """1/n sum_ij w d_ij^2 + (1 - w) [margin - d_ij]_+^2, d_ij = |f_i - f_j| / mean_k, w = e^{-D^2 / sigma}."""
    of_anchors = []
    for i, others, y in rows_of(e, d, anchors):
        far = {k: euclidean(e[i], e[k]) for k in [i, *others]}
        mean = sum(far.values()) / len(far)
        value = zero(e)
        for j in others:
            w, ratio = math.exp(-(y[j] ** 2) / sigma), far[j] / mean if mean > 0 else far[j]
            value = value + w * ratio**2 + (1 - w) * _hinge(margin - ratio) ** 2
        of_anchors.append(value)
    return torch.stack(of_anchors).mean()


def smooth_rank(
    e: Tensor,
    d: Tensor,
    anchors: Tensor | None = None,
    metric: str = "ap",
    temperature: float = 0.01,
    k: int = 10,
    kernel: str = "linear",
    sigma: float = 1.0,
) -> Tensor:
    """1 - metric of rank_i = 1 + sum_{j != i} sigmoid((s_j - s_i) / t); the mean over anchors with a relevant item."""
    values = []
    for a, others, y in rows_of(e, d, anchors):
        s = {j: cosine(e[a], e[j]) for j in others}
        rel = {j: label_similarity(y[j], kernel, sigma) for j in others}
        best = sorted(rel.values(), reverse=True)
        if best[0] == 0:
            continue
        total = zero(e)
        for i in others:
            before = {j: torch.sigmoid((s[j] - s[i]) / temperature) for j in others if j != i}
            rank = 1 + sum(before.values(), zero(e))
            if metric == "ap":
                total = total + (rel[i] + sum(min(rel[i], rel[j]) * before[j] for j in before)) / rank
            elif metric == "recall":
                total = total + rel[i] * torch.sigmoid(k - rank)
            else:
                total = total + rel[i] / torch.log2(1 + rank)
        most = {
            "ap": sum(best),
            "recall": sum(best[:k]),
            "ndcg": sum(r / math.log2(1 + place) for place, r in enumerate(best, 1)),
        }
        values.append(1 - total / most[metric])
    return torch.stack(values).mean() if values else zero(e)


def mean_ranks(x: dict[int, float]) -> dict[int, float]:
    """Ranks from 1, largest first; equal values have their mean rank."""
    values = list(x.values())
    return {j: sum(v > x[j] for v in values) + (sum(v == x[j] for v in values) + 1) / 2 for j in x}


def rank_sim(
    e: Tensor, d: Tensor, anchors: Tensor | None = None, interpolation: float = 2.0, weight: float = 100.0
) -> Tensor:
    """weight sum_i mean_j (rk(s_i)_j - rk(-D_i)_j)^2, with the gradient -(rk(s) - rk(s + lambda g)) / lambda by s."""
    total = zero(e)
    for i, others, y in rows_of(e, d, anchors):
        m = len(others)
        cosines = {j: cosine(e[i], e[j]) for j in others}
        now = {j: cosines[j].item() for j in others}
        rank = {j: r / m for j, r in mean_ranks(now).items()}
        target = {j: r / m for j, r in mean_ranks({j: -y[j] for j in others}).items()}
        g = {j: weight * 2 * (rank[j] - target[j]) / m for j in others}
        moved = mean_ranks({j: now[j] + interpolation * g[j] for j in others})
        for j in others:
            slope = -(rank[j] - moved[j] / m) / interpolation
            total = total + weight * (rank[j] - target[j]) ** 2 / m + slope * (cosines[j] - cosines[j].item())
    return total


def graded_instance_cross_entropy(
    e: Tensor,
    d: Tensor,
    anchors: Tensor | None = None,
    scale: float = 4.0,
    reweight: bool = True,
    kernel: str = "linear",
    sigma: float = 1.0,
) -> Tensor:
    """sum_i psi_i log( (e^{s_i} + sum_k (1 - psi_k) e^{s_k}) / e^{s_i} ), the mean over anchors.

    reweight: with the gradient of 1/2 sum_j softmax_j(s + log(1 - psi)) s_j - 1/2 sum_i w_i s_i, where the weight of a
    positive is its share of psi (1 - p).
    """
    values = []
    for a, others, y in rows_of(e, d, anchors):
        psi = {j: label_similarity(y[j], kernel, sigma) for j in others}
        s = {j: scale * cosine(e[a], e[j]) for j in others}
        if not any(p > 0 for p in psi.values()) or not any(p < 1 for p in psi.values()):
            values.append(zero(e))
            continue
        rest = log_sum([s[k] + math.log(1 - psi[k]) for k in others if psi[k] < 1])
        value = sum(psi[i] * (log_sum([s[i], rest]) - s[i]) for i in others if psi[i] > 0)
        if reweight:
            missed = {i: math.log(psi[i]) + (rest - log_sum([s[i], rest])).detach() for i in others if psi[i] > 0}
            total = log_sum(list(missed.values()))
            moved = zero(e)
            for j in others:
                push = ((s[j] - rest).exp() * (1 - psi[j])).detach()
                pull = (missed[j] - total).exp() if j in missed else 0.0
                moved = moved + (push - pull) / 2 * s[j] / scale
            value = value.detach() + moved - moved.detach()
        values.append(value)
    return torch.stack(values).mean()
