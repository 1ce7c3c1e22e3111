"""Slow and obvious references of ICE, DRO, the losses with a vector per class, and HDML's augmentor.

Written without sight of the library, next to the papers. Everything is float64 and built from scalars, so autograd
gives the gradients to compare with. `classes` `[B]` are any whole numbers; where classes have proxies or centers, class
c has row c, or the row r with class_ids[r] = c. `anchors` are the anchors' positions in the batch (default all) and m
is their number. s and S are the cosine similarity, D the squared Euclidean distance.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from .reference import _hinge, _positions, _sum, _zero
from .reference_pairs import (
    Anchors,
    Classes,
    Kept,
    cosines,
    dot,
    euclidean,
    log_one_plus_sum_exp,
    log_sum_exp,
    partners,
    squared_euclidean,
    unit,
)

Weighed = tuple[int, int, float]


# ---------------------------------------------------------------------------------------------------------------------
# ICE


def instance_cross_entropy(
    embeddings: Tensor, classes: Classes, anchors: Anchors = None, scale: float = 64.0, kept: Kept = None
) -> Tensor:
    """- 1/m sum_a sum_{i in P_a} log p(i|a), p(i|a) = e^{s S_ai} / (e^{s S_ai} + sum_{j in N_a} e^{s S_aj}) (Eq. 5).

    Differentiated as it stands this is ICE without its reweighting.
    """
    similarity = cosines(embeddings)
    rows = _positions(anchors, len(embeddings))
    log_p = []
    for a in rows:
        p, n = partners(classes, a, kept)
        others = [scale * similarity[a][j] for j in n]
        log_p += [scale * similarity[a][i] - log_sum_exp([scale * similarity[a][i], *others]) for i in p]
    return _zero(embeddings) - _sum(log_p) / len(rows)


def instance_cross_entropy_weights(
    embeddings: Tensor, classes: Classes, anchors: Anchors = None, scale: float = 64.0, kept: Kept = None
) -> tuple[list[Weighed], list[Weighed]]:
    """(a, i, w_ai) of the positives and (a, j, w_aj) of the negatives (Eq. 11-15): 1/(2m) in total on either side.

    w_ai = (1 - p(i|a)) / sum_{k in P_a} (1 - p(k|a)) / 2m, w_aj = e^{s S_aj} / sum_{k in N_a} e^{s S_ak} / 2m. In
    logarithms, for 1 - p underflows. An anchor that lacks positives or negatives has no p to learn from: no weights.
    """
    similarity = cosines(embeddings.detach())
    rows = _positions(anchors, len(embeddings))
    of_positives, of_negatives = [], []
    for a in rows:
        p, n = partners(classes, a, kept)
        if not p or not n:
            continue
        others = log_sum_exp([scale * similarity[a][j] for j in n])
        # 1 - p = sum_j e^{s S_aj} / (e^{s S_ai} + sum_j e^{s S_aj})
        log_one_minus_p = [others - log_sum_exp([scale * similarity[a][i], others]) for i in p]
        total = log_sum_exp(log_one_minus_p)
        for i, logarithm in zip(p, log_one_minus_p, strict=True):
            of_positives.append((a, i, math.exp(logarithm - total) / (2 * len(rows))))
        for j in n:
            of_negatives.append((a, j, math.exp(scale * similarity[a][j] - others) / (2 * len(rows))))
    return of_positives, of_negatives


def instance_cross_entropy_surrogate(
    embeddings: Tensor, classes: Classes, anchors: Anchors = None, scale: float = 64.0, kept: Kept = None
) -> Tensor:
    """sum_a [ sum_{j in N_a} w_aj S_aj - sum_{i in P_a} w_ai S_ai ], w constants: its gradient is ICE's (Eq. 15)."""
    of_positives, of_negatives = instance_cross_entropy_weights(embeddings, classes, anchors, scale, kept)
    similarity = cosines(embeddings)
    pull = _sum([w * similarity[a][i] for a, i, w in of_positives])
    return _zero(embeddings) + _sum([w * similarity[a][j] for a, j, w in of_negatives]) - pull


# ---------------------------------------------------------------------------------------------------------------------
# DRO


def dro_pair_losses(
    embeddings: Tensor,
    classes: Classes,
    anchors: Anchors = None,
    pair: str = "margin",
    margin: float = 0.2,
    base: float = 0.5,
    alpha: float = 2.0,
    beta: float = 40.0,
    kept: Kept = None,
) -> tuple[list[Tensor], list[Tensor]]:
    """l of the positive and of the negative ordered pairs (i, j), i an anchor, j any other item; lambda is `base`.

    margin: [margin + y (lambda - S)]_+, y = 1 for a positive, -1 for a negative.
    binomial: 2/alpha log(1 + e^{-alpha (S - lambda)}) for a positive, 2/beta log(1 + e^{beta (S - lambda)}) for a
    negative. similarity: -S for a positive, S for a negative.
    """
    of_positive, of_negative = {
        "margin": (lambda x: _hinge(margin + (base - x)), lambda x: _hinge(margin - (base - x))),
        "binomial": (
            lambda x: 2 / alpha * log_one_plus_sum_exp([-alpha * (x - base)]),
            lambda x: 2 / beta * log_one_plus_sum_exp([beta * (x - base)]),
        ),
        "similarity": (lambda x: -x, lambda x: x),
    }[pair]
    s, of_positives, of_negatives = cosines(embeddings), [], []
    for i in _positions(anchors, len(embeddings)):
        p, n = partners(classes, i, kept)
        of_positives += [of_positive(s[i][j]) for j in p]
        of_negatives += [of_negative(s[i][j]) for j in n]
    return of_positives, of_negatives


def dro(
    embeddings: Tensor,
    classes: Classes,
    anchors: Anchors = None,
    pair: str = "margin",
    uncertainty: str = "topk",
    k: int = 400,
    gamma: float = 0.1,
    margin: float = 0.2,
    base: float = 0.5,
    alpha: float = 2.0,
    beta: float = 40.0,
    kept: Kept = None,
) -> Tensor:
    """max_{p in U} sum_ij p_ij l_ij (Qi et al., DRO) with the p that reaches the maximum written out.

    topk: 1/K on the K largest. topk_pn: 1/(number selected) on the K/2 largest positives and the K/2 largest negatives.
    A set smaller than that gives all it has. kl: gamma log 1/n sum e^{l/gamma}, n the number of pairs. kl_grouped: the
    sum of that over the positives and over the negatives of each anchor, divided by m; a group without pairs adds 0.
    """
    if uncertainty == "kl_grouped":
        rows, value = _positions(anchors, len(embeddings)), _zero(embeddings)
        for i in rows:
            for group in dro_pair_losses(embeddings, classes, [i], pair, margin, base, alpha, beta, kept):
                if group:
                    value = value + kl_robust(group, gamma)
        return value / len(rows)
    of_positives, of_negatives = dro_pair_losses(embeddings, classes, anchors, pair, margin, base, alpha, beta, kept)
    if uncertainty == "kl":
        return kl_robust(of_positives + of_negatives, gamma)
    if uncertainty == "topk":
        selected = _largest(of_positives + of_negatives, k)
    else:
        selected = _largest(of_positives, k // 2) + _largest(of_negatives, k // 2)
    return _sum(selected) / len(selected)


def kl_robust(losses: list[Tensor], gamma: float) -> Tensor:
    """max_p sum p_i l_i - gamma KL(p || 1/n) = gamma log 1/n sum_i e^{l_i / gamma}."""
    return gamma * (log_sum_exp([loss / gamma for loss in losses]) - math.log(len(losses)))


def _largest(losses: list[Tensor], k: int) -> list[Tensor]:
    return sorted(losses, key=lambda loss: -loss.item())[:k]


# ---------------------------------------------------------------------------------------------------------------------
# proxies, one per class


def cross_entropy(
    embeddings: Tensor,
    classes: Classes,
    weight: Tensor,
    bias: Tensor,
    anchors: Anchors = None,
    class_ids: Sequence[int] | None = None,
) -> Tensor:
    """Mean of - log e^{W_y.x + b_y} / sum_c e^{W_c.x + b_c}."""
    x = embeddings.double()
    rows = _positions(anchors, len(x))
    losses = []
    for i in rows:
        logits = [dot(w_c, x[i]) + b_c for w_c, b_c in zip(weight.double(), bias.double(), strict=True)]
        losses.append(log_sum_exp(logits) - logits[_row_of(classes[i], class_ids)])
    return _sum(losses) / len(rows)


def normalized_softmax(
    embeddings: Tensor,
    classes: Classes,
    proxies: Tensor,
    anchors: Anchors = None,
    temperature: float = 0.05,
    class_ids: Sequence[int] | None = None,
) -> Tensor:
    """Mean of - log e^{W_y.x / t} / sum_c e^{W_c.x / t}, W_c and x unit vectors (Zhai and Wu, BMVC 2019)."""
    w = [unit(proxy) for proxy in proxies.double()]
    rows = _positions(anchors, len(embeddings))
    losses = []
    for i in rows:
        x = unit(embeddings[i].double())
        logits = [dot(w_c, x) / temperature for w_c in w]
        losses.append(log_sum_exp(logits) - logits[_row_of(classes[i], class_ids)])
    return _sum(losses) / len(rows)


def proxy_nca(
    embeddings: Tensor,
    classes: Classes,
    proxies: Tensor,
    anchors: Anchors = None,
    norm: float = 1.0,
    temperature: float = 1.0,
    positive_in_denominator: bool = False,
    label_smoothing: float = 0.0,
    class_ids: Sequence[int] | None = None,
) -> Tensor:
    """Mean of - log e^{-D(x, p+)} / sum_{p-} e^{-D(x, p-)} (Movshovitz-Attias et al., ICCV 2017).

    x and p of norm `norm`, D divided by the temperature. positive_in_denominator: the sum runs over all proxies
    (Teh et al., Proxy-NCA++, ECCV 2020). label_smoothing e: sum_c q_c of that with p_c for p+, q_c = 1 - e for the
    item's class and e / (C - 1) for each other.
    """
    w = [unit(proxy) for proxy in proxies.double()]
    rows = _positions(anchors, len(embeddings))
    losses = []
    for i in rows:
        x = unit(embeddings[i].double())
        y = _row_of(classes[i], class_ids)
        exponents = [-squared_euclidean(norm * x, norm * w_c) / temperature for w_c in w]
        denominator = log_sum_exp([e for c, e in enumerate(exponents) if c != y or positive_in_denominator])
        for c, exponent in enumerate(exponents):
            q = 1 - label_smoothing if c == y else label_smoothing / (len(w) - 1)
            losses.append(q * (denominator - exponent))
    return _sum(losses) / len(rows)


def soft_triple(
    embeddings: Tensor,
    classes: Classes,
    centers: Tensor,
    anchors: Anchors = None,
    la: float = 20.0,
    gamma: float = 0.1,
    tau: float = 0.2,
    margin: float = 0.01,
    class_ids: Sequence[int] | None = None,
) -> Tensor:
    """Mean of - log e^{la (S_y - margin)} / (e^{la (S_y - margin)} + sum_{c != y} e^{la S_c}), centers `[C, K, d]`.

    S_c = sum_k e^{x.w_ck / gamma} / sum_l e^{x.w_cl / gamma} x.w_ck on unit vectors (Qian et al., ICCV 2019).
    Plus tau sum_c sum_{s < t} sqrt(2 + 1e-5 - 2 w_cs.w_ct) / (C K (K - 1)).
    """
    w = [[unit(center) for center in of_class] for of_class in centers.double()]
    number, per_class = centers.shape[:2]
    rows = _positions(anchors, len(embeddings))
    losses = []
    for i in rows:
        x = unit(embeddings[i].double())
        y = _row_of(classes[i], class_ids)
        logits = []
        for c in range(number):
            similar = [dot(x, w_ck) for w_ck in w[c]]
            total = log_sum_exp([s / gamma for s in similar])
            relaxed = _sum([torch.exp(s / gamma - total) * s for s in similar])
            logits.append(la * (relaxed - margin) if c == y else la * relaxed)
        losses.append(log_sum_exp(logits) - logits[y])
    pairs = [pair for of_class in w for pair in itertools.combinations(of_class, 2)]
    apart = _sum([torch.sqrt(2 + 1e-5 - 2 * dot(w_s, w_t)) for w_s, w_t in pairs])
    return _sum(losses) / len(rows) + _zero(centers) + tau * apart / max(1, number * per_class * (per_class - 1))


def _row_of(c: int | Tensor, class_ids: Sequence[int] | None) -> int:
    return int(c) if class_ids is None else [int(k) for k in class_ids].index(int(c))


# ---------------------------------------------------------------------------------------------------------------------
# HDML


def augmented(anchor: Tensor, positive: Tensor, negative: Tensor, alpha: float, average: float) -> Tensor:
    """z^ = z + [d+ + (d(z, z-) - d+) e^{-alpha / J_avg}] (z- - z) / d(z, z-) if d+ < d(z, z-), else z-; each `[d]`.

    d plain Euclidean, d+ = d(z, z+) (Zheng et al., HDML, CVPR 2019).
    """
    near, far = euclidean(anchor, positive), euclidean(anchor, negative)
    if not near < far:
        return negative.double()
    length = near + (far - near) * math.exp(-alpha / average)
    return anchor.double() + length * (negative.double() - anchor.double()) / far
