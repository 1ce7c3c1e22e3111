"""Slow references of the pair losses on class labels: loops over anchors, positives and negatives.

Written from the papers, independently of the library. Everything is float64 and built from scalars, so that autograd
gives the gradients to compare with. `classes` `[B]` are any integers; `anchors` are the positions of the anchors in the
batch (default all), and m is their number. An anchor is excluded from its own sets by its index, never by a value. s is
the cosine similarity, d the Euclidean distance, I_ij 1 for a positive and 0 for a negative pair.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from .reference import (
    _hinge,
    _positions,
    _sum,
    _zero,
    dot,
    euclidean,
    log_one_plus_sum_exp,
    log_sum_exp,
    squared_euclidean,
    unit,
)

Classes = Sequence[int] | Tensor
Anchors = Sequence[int] | Tensor | None
Pair = tuple[int, int]
Kept = tuple[list[Pair], list[Pair]] | None  # the pairs (anchor, positive) and (anchor, negative) that a miner kept


# ---------------------------------------------------------------------------------------------------------------------
# small parts


def positives(classes: Classes, i: int) -> list[int]:
    """P_i: the others of i's class."""
    return [j for j in range(len(classes)) if j != i and int(classes[j]) == int(classes[i])]


def negatives(classes: Classes, i: int) -> list[int]:
    """N_i: the items of other classes."""
    return [j for j in range(len(classes)) if int(classes[j]) != int(classes[i])]


def partners(classes: Classes, i: int, kept: Kept = None) -> tuple[list[int], list[int]]:
    """P_i and N_i; or those of the pairs that a miner kept, each as often as it is listed."""
    if kept is None:
        return positives(classes, i), negatives(classes, i)
    return [j for a, j in kept[0] if a == i], [j for a, j in kept[1] if a == i]


def cosines(embeddings: Tensor) -> list[list[Tensor]]:
    """s_ij of all pairs, each a scalar."""
    on_sphere = [unit(x) for x in embeddings.double()]
    return [[dot(x, y) for y in on_sphere] for x in on_sphere]


def _mean(terms: list[Tensor]) -> Tensor:
    return _sum(terms) / max(1, len(terms))


def mean_over_anchors(
    term: Callable[[int, list[int], list[int]], Tensor],
    embeddings: Tensor,
    classes: Classes,
    anchors: Anchors,
    kept: Kept,
) -> Tensor:
    """1/m sum_i term(i, P_i, N_i)."""
    rows = _positions(anchors, len(embeddings))
    return _zero(embeddings) + _mean([term(i, *partners(classes, i, kept)) for i in rows])


# ---------------------------------------------------------------------------------------------------------------------
# losses of pairs


def contrastive(
    embeddings: Tensor,
    classes: Classes,
    anchors: Anchors = None,
    margin: float | None = None,
    distance: str = "cosine",
    kept: Kept = None,
) -> Tensor:
    """1/m sum_i sum_{j != i} (1 - I_ij) [s_ij - lambda]_+ - I_ij s_ij, lambda 0.5 (unified view, Eq. 5).

    Euclidean: 1/m sum_i sum_{j != i} y_ij d_ij^2 + (1 - y_ij) [delta - d_ij]_+^2, delta 1, y_ij = I_ij.
    """
    x, s = embeddings.double(), cosines(embeddings)

    def term(i: int, p: list[int], n: list[int]) -> Tensor:
        if distance == "cosine":
            base = 0.5 if margin is None else margin
            return _sum([_hinge(s[i][j] - base) for j in n]) - _sum([s[i][j] for j in p])
        delta = 1.0 if margin is None else margin
        pull = _sum([squared_euclidean(x[i], x[j]) for j in p])
        return pull + _sum([_hinge(delta - euclidean(x[i], x[j])) ** 2 for j in n])

    return mean_over_anchors(term, embeddings, classes, anchors, kept)


def lifted_structure(
    embeddings: Tensor, classes: Classes, anchors: Anchors = None, margin: float = 1.0, kept: Kept = None
) -> Tensor:
    """1/m sum_i [ log sum_{j in P_i} e^{-s_ij} + log sum_{j in N_i} e^{s_ij} + lambda ]_+.

    Unified view, Eq. 9, with the sign of the negative term that its weights Eq. 11 have. An anchor without positives or
    without negatives adds 0.
    """
    s = cosines(embeddings)

    def term(i: int, p: list[int], n: list[int]) -> Tensor:
        if not p or not n:
            return _zero(embeddings)
        return _hinge(log_sum_exp([-s[i][j] for j in p]) + log_sum_exp([s[i][j] for j in n]) + margin)

    return mean_over_anchors(term, embeddings, classes, anchors, kept)


def binomial_deviance(
    embeddings: Tensor,
    classes: Classes,
    anchors: Anchors = None,
    alpha: float = 2.0,
    beta: float = 50.0,
    base: float = 0.5,
    scaled: bool = False,
    kept: Kept = None,
) -> Tensor:
    """sum_i 1/|P_i| sum_{P_i} log(1 + e^{alpha (lambda - s_ij)}) + 1/|N_i| sum_{N_i} log(1 + e^{beta (s_ij - lambda)}).

    Unified view, Eq. 12, divided by m. scaled: 2/alpha and 2/beta before the two sums. With a miner, P_i and N_i are
    the pairs that it kept.
    """
    s = cosines(embeddings)

    def term(i: int, p: list[int], n: list[int]) -> Tensor:
        pull = _mean([log_one_plus_sum_exp([alpha * (base - s[i][j])]) for j in p])
        push = _mean([log_one_plus_sum_exp([beta * (s[i][j] - base)]) for j in n])
        return 2 / alpha * pull + 2 / beta * push if scaled else pull + push

    return mean_over_anchors(term, embeddings, classes, anchors, kept)


def raw(
    embeddings: Tensor,
    classes: Classes,
    anchors: Anchors = None,
    alpha: float = 2.0,
    beta: float = 50.0,
    base: float = 0.5,
    kept: Kept = None,
) -> Tensor:
    """1/m sum_i 1/alpha log(1 + sum_P e^{-alpha (s_ij - lambda)}) + 1/beta log(1 + sum_N e^{beta (s_ij - lambda)}).

    Unified view, Eq. 17.
    """
    s = cosines(embeddings)

    def term(i: int, p: list[int], n: list[int]) -> Tensor:
        pull = log_one_plus_sum_exp([-alpha * (s[i][j] - base) for j in p]) / alpha
        return pull + log_one_plus_sum_exp([beta * (s[i][j] - base) for j in n]) / beta

    return mean_over_anchors(term, embeddings, classes, anchors, kept)


def multi_similarity(
    embeddings: Tensor,
    classes: Classes,
    anchors: Anchors = None,
    alpha: float = 2.0,
    beta: float = 50.0,
    base: float = 0.5,
    epsilon: float = 0.1,
) -> Tensor:
    """RAW on the pairs that VTHM keeps (Wang et al., Multi-Similarity, CVPR 2019)."""
    return raw(
        embeddings, classes, anchors, alpha, beta, base, vthm(cosines(embeddings.detach()), classes, anchors, epsilon)
    )


def ranked_list(
    embeddings: Tensor,
    classes: Classes,
    anchors: Anchors = None,
    boundary: float = 1.2,
    margin: float = 0.4,
    scale: float = 10.0,
    kept: Kept = None,
) -> Tensor:
    """Mean over anchors of 1/2 L_P + 1/2 L_N, d Euclidean on unit vectors (Wang et al., ranked list loss, 2019).

    L_P = 1/|P*| sum_{P*} [d - (b - margin)]_+, L_N = sum_{N*} w [b - d]_+ / sum_{N*} w with w = e^{scale (b - d)}, not
    differentiated. P*, N*: the positives and negatives whose hinge is above 0.
    """
    x = [unit(row) for row in embeddings.double()]

    def term(a: int, p: list[int], n: list[int]) -> Tensor:
        pulls = [_hinge(euclidean(x[a], x[j]) - (boundary - margin)) for j in p]
        pushes = [_hinge(boundary - euclidean(x[a], x[j])) for j in n]
        pulls, pushes = [pull for pull in pulls if pull > 0], [push for push in pushes if push > 0]
        w = [math.exp(scale * push.item()) for push in pushes]  # push = b - d where it is above 0
        l_n = _sum([w_j * push for w_j, push in zip(w, pushes, strict=True)]) / (sum(w) or 1)
        return _mean(pulls) / 2 + l_n / 2

    return mean_over_anchors(term, embeddings, classes, anchors, kept)


# ---------------------------------------------------------------------------------------------------------------------
# losses of N-pairs


def first_pairs(classes: Classes) -> list[Pair]:
    """(a, p) of each class: its first two items in the batch; a class with a single item has none."""
    pairs = []
    for c in sorted({int(c) for c in classes}):
        items = [i for i in range(len(classes)) if int(classes[i]) == c]
        if len(items) >= 2:
            pairs.append((items[0], items[1]))
    return pairs


def n_pairs(
    embeddings: Tensor, classes: Classes, anchors: Anchors = None, l2: float = 0.0015, distance: str = "dot"
) -> Tensor:
    """Mean over pairs i of log(1 + sum_{j != i} e^{a_i.p_j - a_i.p_i}) (Sohn, NeurIPS 2016), plus the l2.

    l2 times the mean squared norm of the pairs' items. Dot products of embeddings that are not normalized; for
    squared_euclidean log(1 + sum_{j != i} e^{D(a_i, p_i) - D(a_i, p_j)}). With anchors given, the pairs are those whose
    a is one; the negatives stay.
    """
    x = embeddings.double()
    rows = _positions(anchors, len(x))
    pairs = first_pairs(classes)
    losses, norms = [], []
    for i, (a, p) in enumerate(pairs):
        if a not in rows:
            continue
        negative = [p_j for j, (_, p_j) in enumerate(pairs) if j != i]
        if distance == "dot":
            exponents = [dot(x[a], x[n]) - dot(x[a], x[p]) for n in negative]
        else:
            exponents = [squared_euclidean(x[a], x[p]) - squared_euclidean(x[a], x[n]) for n in negative]
        losses.append(log_one_plus_sum_exp(exponents))
        norms += [dot(x[a], x[a]), dot(x[p], x[p])]
    return _zero(x) + _mean(losses) + l2 * _mean(norms)


def angular(embeddings: Tensor, classes: Classes, anchors: Anchors = None, alpha: float = 40.0) -> Tensor:
    """1/m sum_(a,p) log(1 + sum_n e^{4 tan^2(alpha) (a + p).n - 2 (1 + tan^2(alpha)) a.p}) (Wang et al. 2017, Eq. 8).

    (a, p): the pairs of `n_pairs`, in both orders; m: their number, of those whose a is an anchor. n: both items of
    every pair of another class. Dot products of embeddings that are not normalized; alpha in degrees.
    """
    x = embeddings.double()
    rows = _positions(anchors, len(x))
    tan2 = math.tan(math.radians(alpha)) ** 2
    pairs = first_pairs(classes)
    losses = []
    for i, (one, other) in enumerate(pairs):
        negative = [n for j, pair in enumerate(pairs) if j != i for n in pair]
        for a, p in ((one, other), (other, one)):
            if a not in rows:
                continue
            exponents = []
            for n in negative:
                exponents.append(4 * tan2 * dot(x[a] + x[p], x[n]) - 2 * (1 + tan2) * dot(x[a], x[p]))
            losses.append(log_one_plus_sum_exp(exponents))
    return _zero(x) + _mean(losses)


# ---------------------------------------------------------------------------------------------------------------------
# mining by similarities: the pairs that are kept, as lists of (anchor, positive) and of (anchor, negative)

Similarities = Sequence[Sequence[Tensor]] | Tensor


def vthm(
    s: Similarities, classes: Classes, anchors: Anchors = None, epsilon: float = 0.1
) -> tuple[list[Pair], list[Pair]]:
    """Negatives with s_in > min_{P_i} s - eps, positives with s_ip < max_{N_i} s + eps.

    Without positives the minimum is inf, without negatives the maximum -inf: then no pair is kept.
    """
    kept_positives, kept_negatives = [], []
    for i in _positions(anchors, len(s)):
        hardest_positive = min([s[i][p].item() for p in positives(classes, i)], default=math.inf)
        hardest_negative = max([s[i][n].item() for n in negatives(classes, i)], default=-math.inf)
        kept_negatives += [(i, n) for n in negatives(classes, i) if s[i][n].item() > hardest_positive - epsilon]
        kept_positives += [(i, p) for p in positives(classes, i) if s[i][p].item() < hardest_negative + epsilon]
    return kept_positives, kept_negatives


def semi_hard(s: Similarities, classes: Classes) -> tuple[list[Pair], list[Pair]]:
    """Every (a, p), and for it the hardest negative that is still farther than p (Schroff et al., FaceNet, 2015).

    A pair (a, p) with every negative nearer than p has none.
    """
    kept_positives = [(a, p) for a in range(len(s)) for p in positives(classes, a)]
    kept_negatives = []
    for a, p in kept_positives:
        farther = [n for n in negatives(classes, a) if s[a][n].item() < s[a][p].item()]
        kept_negatives += [(a, _largest(s[a], farther))] if farther else []
    return kept_positives, kept_negatives


def hardest(s: Similarities, classes: Classes) -> tuple[list[Pair], list[Pair]]:
    """The farthest positive and the nearest negative of each anchor (Hermans et al. 2017)."""
    pairs = [partners(classes, a) for a in range(len(s))]
    kept_positives = [(a, min(p, key=lambda j, a=a: s[a][j].item())) for a, (p, _) in enumerate(pairs) if p]
    return kept_positives, [(a, _largest(s[a], n)) for a, (_, n) in enumerate(pairs) if n]


def _largest(values: Sequence[Tensor] | Tensor, items: list[int]) -> int:
    return max(items, key=lambda j: values[j].item())  # max: the first of equals


# ---------------------------------------------------------------------------------------------------------------------
# weights: w_ij = (1 - 2 I_ij) dH / ds_ij in closed form, H the loss times its common divisor; 0 on the diagonal


def contrastive_weights(embeddings: Tensor, classes: Classes, margin: float = 0.5) -> Tensor:
    """Positives 1, negatives 1 where s_ij > lambda (Eq. 6)."""
    s = cosines(embeddings.detach())
    return _weights(classes, lambda i, j: 1.0, lambda i, j: 1.0 if s[i][j].item() > margin else 0.0)


def triplet_weights(embeddings: Tensor, classes: Classes, margin: float = 0.1) -> Tensor:
    """The number of triplets with anchor i and s_an - s_ap + lambda > 0 that the pair is in (Eq. 8)."""
    s = cosines(embeddings.detach())

    def violated(i: int, p: int, n: int) -> bool:
        return s[i][n].item() - s[i][p].item() + margin > 0

    def positive_weight(i: int, j: int) -> float:
        return len([n for n in negatives(classes, i) if violated(i, j, n)])

    def negative_weight(i: int, j: int) -> float:
        return len([p for p in positives(classes, i) if violated(i, p, j)])

    return _weights(classes, positive_weight, negative_weight)


def lifted_structure_weights(embeddings: Tensor, classes: Classes, margin: float = 1.0) -> Tensor:
    """e^{-s_ij} / sum_{k in P_i} e^{-s_ik}, e^{s_ij} / sum_{k in N_i} e^{s_ik} where the hinge is active.

    Eq. 10-11.
    """
    s = [[x.item() for x in row] for row in cosines(embeddings.detach())]

    def active(i: int) -> bool:
        p, n = positives(classes, i), negatives(classes, i)
        if not p or not n:
            return False
        return math.log(sum(math.exp(-s[i][k]) for k in p)) + math.log(sum(math.exp(s[i][k]) for k in n)) + margin > 0

    def positive_weight(i: int, j: int) -> float:
        return math.exp(-s[i][j]) / sum(math.exp(-s[i][k]) for k in positives(classes, i)) if active(i) else 0.0

    def negative_weight(i: int, j: int) -> float:
        return math.exp(s[i][j]) / sum(math.exp(s[i][k]) for k in negatives(classes, i)) if active(i) else 0.0

    return _weights(classes, positive_weight, negative_weight)


def binomial_deviance_weights(
    embeddings: Tensor,
    classes: Classes,
    alpha: float = 2.0,
    beta: float = 50.0,
    base: float = 0.5,
    scaled: bool = False,
) -> Tensor:
    """alpha/|P_i| e^{alpha (lambda - s)} / (1 + e^{alpha (lambda - s)}), beta/|N_i| the same of beta (s - lambda).

    Eq. 13-14. scaled: 2 for alpha and beta before |P_i| and |N_i|.
    """
    factors = (2.0, 2.0) if scaled else (alpha, beta)
    s = [[x.item() for x in row] for row in cosines(embeddings.detach())]

    def positive_weight(i: int, j: int) -> float:
        e = math.exp(alpha * (base - s[i][j]))
        return factors[0] / len(positives(classes, i)) * e / (1 + e)

    def negative_weight(i: int, j: int) -> float:
        e = math.exp(beta * (s[i][j] - base))
        return factors[1] / len(negatives(classes, i)) * e / (1 + e)

    return _weights(classes, positive_weight, negative_weight)


def raw_weights(
    embeddings: Tensor, classes: Classes, alpha: float = 2.0, beta: float = 50.0, base: float = 0.5
) -> Tensor:
    """1 / (e^{alpha (s_ij - lambda)} + sum_{k in P_i} e^{alpha (s_ij - s_ik)}) (Eq. 15).

    Negatives: 1 / (e^{beta (lambda - s_ij)} + sum_{k in N_i} e^{beta (s_ik - s_ij)}) (Eq. 16).
    """
    s = [[x.item() for x in row] for row in cosines(embeddings.detach())]

    def positive_weight(i: int, j: int) -> float:
        others = sum(math.exp(alpha * (s[i][j] - s[i][k])) for k in positives(classes, i))
        return 1 / (math.exp(alpha * (s[i][j] - base)) + others)

    def negative_weight(i: int, j: int) -> float:
        others = sum(math.exp(beta * (s[i][k] - s[i][j])) for k in negatives(classes, i))
        return 1 / (math.exp(beta * (base - s[i][j])) + others)

    return _weights(classes, positive_weight, negative_weight)


def _weights(
    classes: Classes, positive_weight: Callable[[int, int], float], negative_weight: Callable[[int, int], float]
) -> Tensor:
    w = torch.zeros(len(classes), len(classes), dtype=torch.float64)
    for i in range(len(classes)):
        for j in positives(classes, i):
            w[i, j] = positive_weight(i, j)
        for j in negatives(classes, i):
            w[i, j] = negative_weight(i, j)
    return w
