"""Cross entropy: plain classification on the embeddings, the baseline of all that compares pairs.

    - log ( e^{w_y . x + b_y} / sum_c e^{w_c . x + b_c} ),   the mean over the anchors

The classifier W x + b is trained with the embedding and left out of retrieval.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contml.contracts import LabelKind, LabelView
from contml.distances.euclidean import Similarity
from contml.losses.class_index import ClassIndex
from contml.losses.proxies import items_against
from contml.losses.rows import Block, RowLoss, Sides


def cross_entropy_rows(block: Block, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Loss of each anchor `[A]`, and 1; block.s `[A, C]` are dot products with the classes' weights, bias `[C]`."""
    assert block.anchor_class is not None
    value = F.cross_entropy(block.s + bias.to(block.s.dtype), block.anchor_class, reduction="none")
    return value, torch.ones_like(value)


class CrossEntropyLoss(RowLoss):
    """Cross entropy of a linear classifier on the embeddings: what metric learning is compared with.

    Embeddings are taken as they come. On the unit sphere logits are small until the weights have grown:
    normalized_softmax has a temperature for that.

    Args:
        num_classes: how many classes there are.
        embedding_dim: the embedding dimension.
        class_ids: the ids of the classes `[num_classes]`; default 0 to num_classes - 1.
    """

    labels: LabelKind = "classes"
    similarity: Similarity = "dot"

    def __init__(
        self, *, num_classes: int, embedding_dim: int, class_ids: Tensor | Sequence[int] | None = None
    ) -> None:
        super().__init__()
        self.index = ClassIndex(num_classes, class_ids)
        classifier = nn.Linear(embedding_dim, num_classes)
        self.weight, self.bias = classifier.weight, classifier.bias

    def rows(self, block: Block) -> tuple[Tensor, Tensor]:
        """The loss of each anchor."""
        return cross_entropy_rows(block, self.bias)

    def sides(self, embeddings: Tensor, labels: LabelView, anchors: Tensor | None) -> Sides:
        """Items against the weights of the classes."""
        return items_against(self.weight, self.index, embeddings, labels, anchors)
