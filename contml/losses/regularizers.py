"""Regularizers, which are added to another loss: L = loss + regularizer.

RankSim: the items of an anchor have the same ranks by embedding similarity as by label distance.

    weight  sum_i mean_j ( rk(s_i)_j - rk(-D_i)_j )^2       rk: the ranks of a row, largest first, over their number

Gong, Mori, Tung: "RankSim: Ranking Similarity Regularization for Deep Imbalanced Regression", ICML 2022. Ranks are
constant almost everywhere, so their gradient is estimated by blackbox differentiation. With g the derivative of the
loss by rk(s), the derivative by s is set to

    - ( rk(s) - rk(s + lambda g) ) / lambda

The authors' code breaks ties by order; here tied items have their mean rank.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from contml._support.validation import PositiveFloat, check_ranges
from contml.contracts import Requirement
from contml.labels.base import LabelSpace
from contml.losses.driver import Block, PairLoss
from contml.losses.inputs import Loss, as_anchors, as_labels, check_embeddings, check_loss
from contml.losses.label_order import sort_rows


class RankSimLoss(PairLoss):
    """RankSim: the squared differences of ranks by cosine similarity and by label distance.

    The loss is the mean over the items of an anchor, then the sum over the anchors. Only the order of label distances
    is used. In the paper it is added to another loss, with the default weight. Similarities that are equal up to
    rounding may have either order. There the value in float32 may differ from float64 by over 2 %.

    Args:
        interpolation: lambda, the step at which the ranks are compared for the gradient, above 0.
        weight: multiplies the value, also before the ranks are compared for the gradient.
    """

    requires: Requirement = "any"

    @check_ranges
    def __init__(self, interpolation: PositiveFloat = 2.0, weight: PositiveFloat = 100.0) -> None:
        super().__init__()
        self.interpolation, self.weight = interpolation, weight

    def values(self, block: Block) -> tuple[Tensor, Tensor]:
        """Return the value of each anchor `[A]`, and counts of 0, so that the loss is a sum."""
        s, member = block.scores, block.weights > 0  # [A,B]
        with torch.no_grad():
            size = member.sum(1, keepdim=True).clamp(min=1)
            rank = _ranks(s, member)
            difference = (rank - _ranks(-block.label_distances, member)) / size
            value = self.weight * (difference.square() / size).sum(1)
            moved = s + self.interpolation * self.weight * 2 * difference / size
            slope = (_ranks(moved, member) - rank) / size / self.interpolation
        surrogate = (slope * s).sum(1)
        return value + surrogate - surrogate.detach(), torch.zeros_like(value)


def _ranks(x: Tensor, member: Tensor) -> Tensor:
    """Return the mean ranks 1, 2, ... of the members of each row, largest first, `[A, B]`. All other entries are 0."""
    rows = sort_rows(x, member)
    return rows.by_column((rows.first + rows.last + 1).to(x.dtype) / 2) * member


class RegularizedLoss(nn.Module):
    """The sum of a loss and a regularizer, which is another loss with a weight of its own.

    Args:
        loss: any loss. If it has a memory, the regularizer reads only the batch.
        regularizer: such as `RankSimLoss(weight=100)`.
    """

    def __init__(self, loss: Loss, regularizer: Loss) -> None:
        super().__init__()
        check_loss(loss)
        check_loss(regularizer)
        self.loss, self.regularizer = loss, regularizer
        self.requires: Requirement = loss.requires

    def forward(self, embeddings: Tensor, labels: LabelSpace | Tensor, *, anchors: Tensor | None = None) -> Tensor:
        """Compute the loss of a batch. The arguments are as the loss takes them."""
        check_embeddings(embeddings)
        if self.requires in ("binary", "classes"):  # integers are classes to the regularizer too
            name, positions = type(self.loss).__name__, as_anchors(anchors, embeddings)
            labels = as_labels(name, self.requires, labels, embeddings, positions)
        value: Tensor = self.loss(embeddings, labels, anchors=anchors)
        return value + self.regularizer(embeddings, labels, anchors=anchors)
