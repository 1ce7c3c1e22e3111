"""Hardness-aware deep metric learning: negatives pulled towards their anchor, as hard as the metric can bear.

    z^ = z + [d+ + (d(z, z-) - d+) e^{-alpha / J_avg}] (z- - z) / d(z, z-)   if d+ < d(z, z-),   else z-
    J_gen = sum ||y - y'||^2 + lambda sum CE(W y~ + b, label)
    J_metric = e^{-beta / J_gen} J_m + (1 - e^{-beta / J_gen}) J_syn

Zheng, Chen, Lu, Zhou: "Hardness-Aware Deep Metric Learning", CVPR 2019. z, z+, z-: embeddings of anchor, positive and
negative, d+ = d(z, z+) in plain Euclidean distance; a generator maps z and z^ back to features y', y~, the model's head
maps y~ to embeddings again, and J_syn is the metric loss J_m on those. The exponents' J_avg and J_gen are means over
the last epoch. Both terms of J_gen are sums over what they compare; the authors' code takes half the first, and 5,000
times the mean of the second.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from contml.contracts import InputError
from contml.distances.euclidean import full_precision, normalize
from contml.losses.n_pairs import NPairsLoss, class_pairs
from contml.losses.rows import Block, RowLoss
from contml.losses.triplet import TripletMarginLoss


class Tuples(NamedTuple):
    """Which items of a batch are compared: positions of T anchors, and of K items for each.

    anchors `[T]`; positives `[T]`; items `[T, K]`: the positive and its negatives; target `[T, K]`: 0 for the positive,
    1 for a negative.
    """

    anchors: Tensor
    positives: Tensor
    items: Tensor
    target: Tensor


def pull(anchor: Tensor, positive: Tensor, negative: Tensor, alpha: float, average: Tensor) -> Tensor:
    """z^ `[..., d]`: negatives moved towards their anchors, the nearer the lower the average loss.

    anchor, positive, negative `[..., d]`; average: the mean of the metric loss, a scalar from 0 (z^ is as near as the
    positive) to infinity (z^ is the negative).
    """
    near, far = _distance(anchor, positive), _distance(anchor, negative)  # [...,1]
    length = near + (far - near) * torch.exp(-alpha / average.to(far.dtype))
    pulled = anchor + length / torch.where(far > 0, far, 1) * (negative - anchor)
    return torch.where(near < far, pulled, negative)


def _distance(x: Tensor, y: Tensor) -> Tensor:
    squared = (x - y).square().sum(-1, keepdim=True)
    # The root of 0 has an infinite slope.
    return torch.where(squared > 0, squared, 1).sqrt() * (squared > 0)


def triplets(classes: Tensor) -> Tuples:
    """A batch of classes `[B]` as triplets in which few items come twice: K = 2, the positive and one negative.

    The items of each class make pairs, anchor and positive, two by two in the order of the batch. A pair's negative is
    an item of another class that is in no pair, by turns; without such an item, the next pair's positive. The paper's
    batch of 120, 40 anchors, their 40 positives and 40 negatives of other classes, gives the paper's 40 triplets, and
    so does one of 40 classes of 3. A pair without an item of another class makes no triplet.
    """
    anchors, positives = _two_by_two(classes)
    pairs, items = len(anchors), len(classes)
    place = torch.arange(items, device=classes.device)
    free = torch.ones_like(classes, dtype=torch.bool)
    free[anchors] = free[positives] = False
    turn = torch.full_like(place, -1)  # [B] -1: an anchor, which is nobody's negative
    turn[positives], turn[free] = place[:pairs], place[: items - 2 * pairs]
    turns = torch.where(free, items - 2 * pairs, pairs)
    wait = (turn - place[:pairs, None]) % turns + items * ~free  # [T,B]
    wait = wait.masked_fill((turn < 0) | (classes == classes[anchors][:, None]), 3 * items)
    least, negatives = wait.min(1)
    found = least < 3 * items
    anchors, positives = anchors[found], positives[found]
    target = torch.tensor([0.0, 1.0], device=classes.device).expand(len(anchors), 2)
    return Tuples(anchors, positives, torch.stack((positives, negatives[found]), 1), target)


def n_pairs(classes: Tensor) -> Tuples:
    """A batch of classes `[B]` as the N-pair loss has it: K = T, the positives of all pairs.

    The first two items of each class are a pair; classes of one are left out.
    """
    partners = class_pairs(classes)
    anchors = (partners > torch.arange(len(classes), device=classes.device)).nonzero()[:, 0]
    positives, pairs = partners[anchors], len(anchors)
    return Tuples(anchors, positives, positives.expand(pairs, pairs), 1 - torch.eye(pairs, device=classes.device))


def tuple_loss(loss: RowLoss, anchors: Tensor, items: Tensor, target: Tensor) -> Tensor:
    """A pair loss of anchors `[T, d]`, each against K items of its own `[T, K, d]`; target `[T, K]`: 0 or 1."""
    if len(anchors) == 0:
        return 0 * (full_precision(anchors).sum() + full_precision(items).sum())
    x, y = full_precision(anchors), full_precision(items)
    if loss.sphere:
        x, y = normalize(x), normalize(y)
    if loss.similarity in ("cosine", "dot"):
        s = torch.einsum("td,tkd->tk", x, y)
    elif loss.similarity == "squared_euclidean":
        s = (x[:, None] - y).square().sum(2)
    else:
        s = _distance(x[:, None], y)[..., 0]
    block = Block(s, target.to(s.dtype), itself=None, anchor_class=None, item_class=None, dim=x.shape[1])
    values, counts = (part.sum(0) for part in loss.rows(block))
    total = (values / torch.where(counts > 0, counts, 1)).sum()
    if isinstance(loss, NPairsLoss):
        total = total + loss.l2 * (x.square().sum(1).mean() + y.square().sum(2).mean()) / 2
    return total


def tuples_of(loss: RowLoss, classes: Tensor, anchors: Tensor | None = None) -> Tuples:
    """How a metric loss compares a batch of classes `[B]`; anchors `[A]`: the only positions that may be anchors."""
    found = n_pairs(classes) if isinstance(loss, NPairsLoss) else triplets(classes)
    if anchors is None:
        return found
    kept = torch.isin(found.anchors, anchors)
    return Tuples(*(part[kept] for part in found))


def check_metric_loss(loss: object) -> None:
    """Refuse a metric loss whose tuples the paper does not say how to make harder."""
    if not isinstance(loss, TripletMarginLoss | NPairsLoss):
        name = type(loss).__name__
        raise InputError(f"HDML makes harder triplets and N-pairs, not those of {name}; take triplet_margin or n_pairs")
    if loss.miner is not None:
        raise InputError(f"HDML forms its own tuples; take the miner {type(loss.miner).__name__} away from the loss")


class Generator(nn.Sequential):
    """Embeddings `[N, embedding_dim]` back to features `[N, feature_dim]`, by the statistics of the batch at hand.

    Args:
        embedding_dim: what goes in.
        hidden: width in between.
        feature_dim: what comes out.
    """

    def __init__(self, embedding_dim: int, hidden: int, feature_dim: int) -> None:
        super().__init__(
            nn.Linear(embedding_dim, hidden),
            nn.ReLU(),
            # It only ever generates in training: there is no use for running statistics.
            nn.BatchNorm1d(hidden, track_running_stats=False),
            nn.Linear(hidden, feature_dim),
        )


def _two_by_two(classes: Tensor) -> tuple[Tensor, Tensor]:
    """Positions `[P]`, `[P]` of pairs of one class: the items of each class two by two, in order of the first."""
    ordered, order = classes.sort(stable=True)
    first = torch.searchsorted(ordered, ordered)
    place = torch.arange(len(ordered), device=classes.device) - first  # within its class
    left = torch.searchsorted(ordered, ordered, right=True) - first - place
    at = ((place % 2 == 0) & (left > 1)).nonzero()[:, 0]
    anchors, positives = order[at], order[at + 1]
    by_anchor = anchors.argsort()
    return anchors[by_anchor], positives[by_anchor]
