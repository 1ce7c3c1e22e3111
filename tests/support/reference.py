"""Slow and obvious references: the formulas as the papers print them, as loops over anchors, i and j.

Written without sight of the library. Everything is float64. The losses are built from tensor scalars, so autograd gives
the gradients to compare with; an empty batch gives a zero that still has a graph. `anchors` are the anchors' positions
in the batch, row r of a label matrix `[A,B]` belongs to anchor `anchors[r]`, and an anchor is left out of its own sets
by its index, never by a value. Where a square root or a norm has no derivative (identical points), the gradient is 0.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence

import torch
from torch import Tensor

EPS = 1e-6  # added to both distances inside the log of the log-ratio loss


# ---------------------------------------------------------------------------------------------------------------------
# distances, each for one pair


def dot(x: Tensor, y: Tensor) -> Tensor:
    """x.y of two vectors `[d]`."""
    return (x.double() * y.double()).sum()


def unit(x: Tensor) -> Tensor:
    """x / |x|; zeros stay zeros."""
    norm = _root(dot(x, x))
    return x.double() / norm if norm > 0 else x.double() * 0.0


def squared_euclidean(x: Tensor, y: Tensor) -> Tensor:
    """D(x, y) = sum_k (x_k - y_k)^2."""
    difference = x.double() - y.double()
    return dot(difference, difference)


def euclidean(x: Tensor, y: Tensor) -> Tensor:
    """d(x, y) = sqrt(sum_k (x_k - y_k)^2); 0 with gradient 0 at identical points."""
    return _root(squared_euclidean(x, y))


def cosine(x: Tensor, y: Tensor) -> Tensor:
    """s(x, y) = x.y / (|x| |y|)."""
    return dot(unit(x), unit(y))


def pose_distance(
    x: Tensor, y: Tensor, visible_x: Tensor, visible_y: Tensor, weights: Tensor, saturation: Tensor | None = None
) -> Tensor:
    """D_y(x, y)^2 = sum w / sum_{j in V} w_j * sum_{j in V} w_j ||x_j - y_j||^2, V the joints visible in both.

    With a saturation s: D_y(x, y) = sum_{j in V} w_j (1 - e^(-||x_j - y_j||^2 / (2 s_j^2))) / sum_{j in V} w_j.
    x, y: `[J, 2]`, visible: `[J]` of bool or 0 / 1. No joint in common is no distance: ValueError.
    """
    seen = total = torch.zeros((), dtype=torch.float64)
    for j in range(len(x)):
        if bool(visible_x[j]) and bool(visible_y[j]):
            seen = seen + weights[j]
            squares = squared_euclidean(x[j], y[j])
            part = squares if saturation is None else 1 - (-squares / (2 * saturation[j] ** 2)).exp()
            total = total + weights[j] * part
    if seen == 0:
        raise ValueError("no joint is visible in both poses: the reference has no distance for that")
    return _root(total * weights.sum() / seen) if saturation is None else total / seen


def nearest(label_distances: Tensor, k: int) -> Tensor:
    """The k nearest others of each row, `[N, k]`: self left out by index, nearest first, ties by lower index."""
    n = len(label_distances)
    rows = []
    for i in range(n):
        others = [j for j in range(n) if j != i]
        others.sort(key=lambda j: (label_distances[i, j].item(), j))
        rows.append(others[:k])
    return torch.tensor(rows, dtype=torch.int64).reshape(n, -1)


# ---------------------------------------------------------------------------------------------------------------------
# losses


def log_ratio(
    embeddings: Tensor,
    label_distances: Tensor,
    anchors: Sequence[int] | Tensor | None = None,
    squared: bool = True,
    strict: bool = False,
    label_power: float | None = None,
) -> Tensor:
    """l(a,i,j) = { log D(f_a,f_i) / D(f_a,f_j) - log D_y(a,i) / D_y(a,j) }^2.

    eps = 1e-6 is added to each of the four distances. Items with D_y(a,i) = 0 and the anchor itself are left out.
    Pairs: all i < j, ties included; strict: those with D_y(a,i) < D_y(a,j). Mean over the pairs of an anchor, then over
    the anchors that have a pair. embeddings `[B,d]`, label_distances `[A,B]`; squared=False: D is plain Euclidean.
    D_y is the label distance to the power `label_power`; None: 2 if squared, else 1.
    """
    embeddings = embeddings.double()
    power = label_power or (2 if squared else 1)
    label_distances = label_distances.double() ** power
    batch = len(embeddings)
    of_anchors = []
    for row, a in enumerate(_positions(anchors, batch)):
        items = [i for i in range(batch) if i != a and label_distances[row, i] > 0.0]  # NaN: not known
        losses = []
        for i in items:
            for j in items:
                if not (label_distances[row, i] < label_distances[row, j] if strict else i < j):
                    continue
                distance = squared_euclidean if squared else euclidean
                d_i, d_j = distance(embeddings[a], embeddings[i]), distance(embeddings[a], embeddings[j])
                ratio = torch.log((d_i + EPS) / (d_j + EPS))
                label_ratio = torch.log((label_distances[row, i] + EPS) / (label_distances[row, j] + EPS))
                losses.append((ratio - label_ratio) ** 2)
        of_anchors.append(losses)
    return _mean_of_means(of_anchors, embeddings)


def dense_triplet(
    embeddings: Tensor, label_distances: Tensor, anchors: Sequence[int] | Tensor | None = None, margin: float = 0.03
) -> Tensor:
    """l(a,i,j) = [ D(f_a,f_i) - D(f_a,f_j) + delta ]_+ for all (i, j) with D_y(a,i) < D_y(a,j).

    f on the unit sphere, D squared Euclidean. i and j are any items but the anchor itself: one with label distance 0
    takes part. Mean over the pairs of an anchor, then over the anchors that have a pair.
    """
    embeddings = embeddings.double()
    label_distances = label_distances.double()
    batch = len(embeddings)
    x, of_anchors = [unit(row) for row in embeddings], []
    for row, a in enumerate(_positions(anchors, batch)):
        losses = []
        for i, j in itertools.product(range(batch), repeat=2):
            if a not in (i, j) and label_distances[row, i] < label_distances[row, j]:
                losses.append(_hinge(squared_euclidean(x[a], x[i]) - squared_euclidean(x[a], x[j]) + margin))
        of_anchors.append(losses)
    return _mean_of_means(of_anchors, embeddings)


def triplet_margin(
    embeddings: Tensor,
    target: Tensor,
    anchors: Sequence[int] | Tensor | None = None,
    margin: float = 0.1,
    distance: str = "cosine",
    reduction: str = "mean",
) -> Tensor:
    """Cosine: [ s_an - s_ap + lambda ]_+; else [ d_ap - d_an + lambda ]_+ without normalization.

    All valid triplets: target `[A,B]` is 0 for a positive p (p != a), 1 for a negative n. reduction: "mean" over all
    valid triplets of the batch, "nonzero" over those with a loss > 0, "sum".
    """
    far = {"cosine": lambda x, y: -cosine(x, y), "euclidean": euclidean, "squared_euclidean": squared_euclidean}
    e, batch, losses = embeddings.double(), range(len(embeddings)), []
    for row, a in enumerate(_positions(anchors, len(batch))):
        for p in (p for p in batch if p != a and target[row, p] == 0.0):
            for n in (n for n in batch if n != a and target[row, n] == 1.0):
                losses.append(_hinge(far[distance](e[a], e[p]) - far[distance](e[a], e[n]) + margin))
    count = {"mean": len(losses), "nonzero": sum(bool(loss > 0.0) for loss in losses), "sum": 1}[reduction]
    return _zero(e) + _sum(losses) / max(count, 1)


def margin_loss(
    embeddings: Tensor,
    classes: Tensor,
    boundary: Tensor,
    anchors: Sequence[int] | Tensor | None = None,
    margin: float = 0.2,
    class_ids: Sequence[int] | None = None,
) -> Tensor:
    """Sum over all valid (a,p,n) of [ d_ap - b_a + margin ]_+ + [ b_a - d_an + margin ]_+, over the non-zero terms.

    d = sqrt(D + 1e-8) on the unit sphere. The divisor is the number of triplets whose positive term is > 0 plus the
    number whose negative term is > 0. boundary: a scalar, or `[C]`: b_a is that of the anchor's class, in the order of
    class_ids.
    """
    x, c, terms = [unit(row) for row in embeddings], classes.tolist(), []
    for a in _positions(anchors, len(x)):
        b = (boundary if boundary.dim() == 0 else boundary[class_ids.index(c[a]) if class_ids else c[a]]).double()
        d = [torch.sqrt(squared_euclidean(x[a], y) + 1e-8) for y in x]
        for p in (p for p in range(len(x)) if p != a and c[p] == c[a]):
            for n in (n for n in range(len(x)) if c[n] != c[a]):
                terms += [_hinge(d[p] - b + margin), _hinge(b - d[n] + margin)]
    return _zero(embeddings) + _zero(boundary) + _sum(terms) / max(1, sum(bool(term > 0.0) for term in terms))


def proxy_anchor(
    embeddings: Tensor,
    classes: Tensor,
    proxies: Tensor,
    anchors: Sequence[int] | None = None,
    alpha: float = 32.0,
    delta: float = 0.1,
    class_ids: Sequence[int] | None = None,
) -> Tensor:
    """1/|P+| sum_{p in P+} log(1 + sum_{x in X_p+} e^{-alpha (s(x,p) - delta)}).

    plus 1/|P| sum_{p in P} log(1 + sum_{x in X_p-} e^{alpha (s(x,p) + delta)}). P: all proxies `[C,d]`, one per class;
    P+: those with an item in the batch; X_p+: the items of p's class, X_p-: the rest.
    """
    pull, push = [], []
    for c, proxy in zip(class_ids or range(len(proxies)), proxies, strict=True):
        s = [cosine(x, proxy) for x in embeddings]
        if c in classes.tolist():
            pull.append(log_one_plus_sum_exp([-alpha * (s[i] - delta) for i in range(len(s)) if classes[i] == c]))
        push.append(log_one_plus_sum_exp([alpha * (s[i] + delta) for i in range(len(s)) if classes[i] != c]))
    return _zero(embeddings) + _zero(proxies) + _sum(pull) / len(pull) + _sum(push) / len(proxies)


# ---------------------------------------------------------------------------------------------------------------------
# metrics


def ranking(distances: Tensor) -> list[int]:
    """The gallery `[G]` of one query, nearest first, ties by lower index."""
    return sorted(range(len(distances)), key=lambda g: (distances[g].item(), g))


def average_ranks(x: Tensor) -> list[float]:
    """Ranks from 1; tied values share the mean of the ranks that they take up."""
    ranks = []
    for i in range(len(x)):
        below = len([j for j in range(len(x)) if x[j].item() < x[i].item()])
        equal = len([j for j in range(len(x)) if x[j].item() == x[i].item()])
        ranks.append(below + (equal + 1) / 2)  # mean of below + 1, ..., below + equal
    return ranks


def spearman(x: Tensor, y: Tensor) -> float:
    """The Pearson correlation of the average ranks; nan where one side is constant."""
    ranks = [average_ranks(x), average_ranks(y)]
    return statistics.correlation(*ranks) if all(len(set(each)) > 1 for each in ranks) else math.nan


# ---------------------------------------------------------------------------------------------------------------------
# small parts


def log_sum_exp(exponents: list[Tensor]) -> Tensor:
    """log sum_k e^{x_k} of a list that is not empty."""
    top = max(x.item() for x in exponents)  # taken out and put back: nothing overflows
    return top + torch.log(_sum([torch.exp(x - top) for x in exponents]))


def log_one_plus_sum_exp(exponents: list[Tensor]) -> Tensor:
    """log(1 + sum_k e^{x_k}), 0 for an empty list."""
    return log_sum_exp([torch.zeros((), dtype=torch.float64), *exponents])


def _positions(anchors: Sequence[int] | Tensor | None, batch: int) -> list[int]:
    return list(range(batch)) if anchors is None else [int(a) for a in anchors]


def _zero(x: Tensor) -> Tensor:
    return x.double().sum() * 0.0


def _mean_of_means(of_anchors: list[list[Tensor]], embeddings: Tensor) -> Tensor:
    """The mean over the losses of each anchor, then over the anchors that have any."""
    means = [_sum(losses) / len(losses) for losses in of_anchors if losses]
    return _sum(means) / len(means) if means else _zero(embeddings)


def _sum(terms: list[Tensor]) -> Tensor:
    total = torch.zeros((), dtype=torch.float64)
    for term in terms:
        total = total + term
    return total


def _root(x: Tensor) -> Tensor:
    return torch.sqrt(x) if x > 0.0 else x * 0.0


def _hinge(x: Tensor) -> Tensor:
    return x if x > 0.0 else x * 0.0
