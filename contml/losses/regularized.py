"""A loss and a regularizer of the same batch, such as RankSim.

L = loss + regularizer
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from contml.contracts import Requirement
from contml.labels.base import LabelSpace
from contml.losses.inputs import as_anchors, as_labels, check_embeddings, check_loss


class RegularizedLoss(nn.Module):
    """The sum of a loss and a regularizer, which is another loss with a weight of its own.

    Args:
        loss: any loss; if it has a memory, the regularizer reads the batch alone.
        regularizer: such as `RankSimLoss(weight=100)`.
    """

    def __init__(self, loss: Any, regularizer: Any) -> None:
        super().__init__()
        check_loss(loss)
        check_loss(regularizer)
        self.loss, self.regularizer = loss, regularizer
        self.requires: Requirement = loss.requires

    def forward(self, embeddings: Tensor, labels: LabelSpace | Tensor, *, anchors: Tensor | None = None) -> Tensor:
        """The loss of a batch; the arguments as the loss takes them."""
        check_embeddings(embeddings)
        if self.requires in ("binary", "classes"):  # integers are classes to the regularizer too
            name, positions = type(self.loss).__name__, as_anchors(anchors, embeddings)
            labels = as_labels(name, self.requires, labels, embeddings, positions)
        value: Tensor = self.loss(embeddings, labels, anchors=anchors)
        regularizer: Tensor = self.regularizer(embeddings, labels, anchors=anchors)
        return value + regularizer
