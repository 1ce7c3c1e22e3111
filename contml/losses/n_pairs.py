"""Losses on a pair of items of each class: N-pair and angular.

The first two items of a class in the batch are its pair (a, p); a class of one has none.

    N-pair   mean_i log(1 + sum_{j != i} e^{a_i . p_j - a_i . p_i})  +  l2 mean |f|^2
    angular  mean_{(a,p)} log(1 + sum_n e^{4 tan^2(alpha) (a + p) . n - 2 (1 + tan^2(alpha)) a . p})

Sohn: "Improved Deep Metric Learning with Multi-class N-pair Loss Objective", NIPS 2016. Wang, Zhou, Wen, Liu, Lin:
"Deep Metric Learning with Angular Loss", ICCV 2017, Eq. 8, over both orders of each pair; n are the items of all other
pairs. f are the items of all pairs; embeddings are taken as they come.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from contml.contracts import InputError, LabelKind, LabelView
from contml.distances import class_distance
from contml.distances.euclidean import Similarity, full_precision
from contml.losses.log_sum_exp import log_one_plus_sum_exp
from contml.losses.rows import Block, RowLoss, Sides
from contml.mining import Miner


def n_pairs_rows(block: Block) -> tuple[Tensor, Tensor]:
    """Value of each pair and 1, or the weight of its positive: `[A]` each.

    An anchor has one positive; its negatives are the other pairs' p.
    """
    weight, place = block.positive.max(1)
    own = block.s.gather(1, place[:, None])  # [A,1]
    return weight * log_one_plus_sum_exp(block.s - own, block.negative), weight


def angular_rows(block: Block, alpha: float) -> tuple[Tensor, Tensor]:
    """Value of each ordered pair and 1, or the weight of its positive: `[A]` each; alpha in degrees.

    An anchor has one positive, which is an anchor of the block too.
    """
    assert isinstance(block.itself, Tensor)
    tan2 = math.tan(math.radians(alpha)) ** 2
    weight, place = block.positive.max(1)
    row = place.new_zeros(block.s.shape[1])
    row[block.itself] = torch.arange(len(place), device=place.device)
    own = block.s.gather(1, place[:, None])  # [A,1]
    exponent = 4 * tan2 * (block.s + block.s[row[place]]) - 2 * (1 + tan2) * own
    return weight * log_one_plus_sum_exp(exponent, block.negative), weight


def class_pairs(classes: Tensor) -> Tensor:
    """The place `[B]` of each item's partner, where classes `[B]` have the item among their first two; else -1."""
    ordered, order = classes.sort(stable=True)
    same = ordered[1:] == ordered[:-1]
    first = same.clone()  # where a run begins that has a second item
    first[1:] &= ~same[:-1]
    a, p = order[:-1][first], order[1:][first]
    partner = torch.full_like(order, -1)
    partner[a], partner[p] = p, a
    return partner


def seeing(sides: Sides, seen: Tensor, chosen: Tensor) -> Sides:
    """The same sides where anchors see some items of the batch alone, seen `[B]`, and anchors to come see none.

    chosen `[C]`: which of the anchors of a call the first C anchors are, rising; those after them see nothing.
    """
    hidden, twin, total = ~seen, sides.twin, len(sides.x)

    def unseen(part: slice) -> Tensor:
        own = chosen[part]
        rows = hidden.expand(len(own), -1)
        if twin is not None and len(own):
            first = int(own[0])
            rows = rows | twin(slice(first, int(own[-1]) + 1))[own - first]
        idle = len(range(total)[part]) - len(own)
        return torch.cat((rows, rows.new_ones(idle, len(seen)))) if idle else rows

    return replace(sides, twin=unseen)


class _ClassPairsLoss(RowLoss):
    """Base of the losses on pairs of a class: which anchors they have, and what these see of the batch.

    The sides are anchors against the batch, so that a pair has its place there; sums are taken over what is seen.
    `mutual`: anchors are seen themselves.
    """

    labels: LabelKind = "classes"
    similarity: Similarity = "dot"
    mutual: ClassVar[bool] = False

    def seen(self, partner: Tensor) -> Tensor:
        """What the anchors see of the batch: bool `[B]`, given the partners `[B]`."""
        raise NotImplementedError(f"{type(self).__name__} has no seen(self, partner)")

    def _sums(self, sides: Sides) -> tuple[Tensor, Tensor]:
        if self.miner is None:
            assert sides.item_class is not None
            sides = _narrowed(sides, self.seen(class_pairs(sides.item_class)), self.mutual)
        return super()._sums(sides)


def _narrowed(sides: Sides, seen: Tensor, mutual: bool) -> Sides:
    """The same sides without the items that are not seen; mutual: the anchors are seen, else none of them is."""
    assert sides.anchor_class is not None
    assert sides.item_class is not None
    assert isinstance(sides.itself, Tensor)
    columns, anchor_class, twin = seen.nonzero().squeeze(1), sides.anchor_class, sides.twin
    item_class = sides.item_class[columns]
    if not len(columns):
        return sides  # there are no anchors either, and reductions want columns
    return replace(
        sides,
        y=sides.y[columns],
        target=lambda part: class_distance(anchor_class[part], item_class),
        itself=(seen.cumsum(0) - 1)[sides.itself] if mutual else None,
        item_class=item_class,
        twin=None if twin is None else lambda part: twin(part)[:, columns],
    )


class NPairsLoss(_ClassPairsLoss):
    """N-pair loss: the first two items of a class in the batch are its anchor and positive; dot products.

    Negatives are the positives of the other classes. Of given anchors, those that are the first of their class count.

    Args:
        l2: weight of the mean squared norm of the pairs' items. TensorFlow's loss, and that of the authors of HDML,
            takes half of that mean.
    """

    def __init__(self, l2: float = 0.003, *, miner: Miner | None = None) -> None:
        super().__init__(miner=miner)
        if not 0 <= l2 < math.inf:
            raise InputError(f"l2 is {l2}; it must be at least 0")
        self.l2 = l2

    def rows(self, block: Block) -> tuple[Tensor, Tensor]:
        """Value of each pair."""
        return n_pairs_rows(block)

    def sides(self, embeddings: Tensor, labels: LabelView, anchors: Tensor | None) -> Sides:
        """The first of each pair against the batch, of which it sees the second of each pair."""
        listed, partner = _listed(embeddings, labels, anchors)
        chosen = (partner[listed] > listed).nonzero().squeeze(1)
        return seeing(super().sides(embeddings, labels, listed[chosen]), self.seen(partner), chosen)

    def seen(self, partner: Tensor) -> Tensor:
        """The second of each pair."""
        return (partner >= 0) & (partner < torch.arange(len(partner), device=partner.device))

    def penalty(self, sides: Sides) -> Tensor | None:
        """L2 on the items of the pairs."""
        assert sides.item_class is not None
        x, y = full_precision(sides.x), full_precision(sides.y[class_pairs(sides.item_class)[sides.itself]])
        return self.l2 * (x.square().sum() + y.square().sum()) / (2 * max(len(x), 1))


class AngularLoss(_ClassPairsLoss):
    """Angular loss: the angle at a negative under which it sees an anchor and its positive is kept small.

    The first two items of a class in the batch are its pair, in both orders; negatives are the items of all other
    pairs. Of given anchors, those in a pair count.

    Args:
        alpha: the angle in degrees, above 0 and below 90.
    """

    mutual = True
    whole = True  # the row of a pair's other item is read too

    def __init__(self, alpha: float = 40.0, *, miner: Miner | None = None) -> None:
        super().__init__(miner=miner)
        if not 0 < alpha < 90:
            raise InputError(f"alpha is {alpha}; it must be above 0 and below 90 degrees")
        self.alpha = alpha

    def rows(self, block: Block) -> tuple[Tensor, Tensor]:
        """Value of each ordered pair."""
        return angular_rows(block, self.alpha)

    def sides(self, embeddings: Tensor, labels: LabelView, anchors: Tensor | None) -> Sides:
        """The items of the pairs against the batch, of which they see each other; then what their partners lack."""
        listed, partner = _listed(embeddings, labels, anchors)
        chosen = (partner[listed] >= 0).nonzero().squeeze(1)
        paired = listed[chosen]
        missing = torch.zeros_like(partner, dtype=torch.bool)
        missing[partner[paired]] = True
        missing[paired] = False
        sides = super().sides(embeddings, labels, torch.cat((paired, missing.nonzero().squeeze(1))))
        return seeing(sides, self.seen(partner), chosen)

    def seen(self, partner: Tensor) -> Tensor:
        """Both items of each pair."""
        return partner >= 0


def _listed(embeddings: Tensor, labels: LabelView, anchors: Tensor | None) -> tuple[Tensor, Tensor]:
    """The anchors of a call `[A]`, and the partners `[B]`."""
    assert labels.classes is not None
    partner = class_pairs(labels.classes.to(embeddings.device))
    return torch.arange(len(partner), device=partner.device) if anchors is None else anchors, partner
