"""Losses against proxies: learnable vectors that stand for the classes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from contml.contracts import LabelKind, LabelView
from contml.distances import class_distance
from contml.losses.class_index import ClassIndex
from contml.losses.rows import Block, RowLoss, Sides, log_one_plus_sum_exp


def proxy_anchor_rows(block: Block, alpha: float, delta: float) -> tuple[Tensor, Tensor]:
    """Terms of each proxy `[P, 2]`: of its positives, of its negatives; and what counts in their means.

        1/|P+| sum_{P+} log(1 + sum_{X_p+} e^{-alpha (s - delta)})
      + 1/|P|  sum_P    log(1 + sum_{X_p-} e^{alpha (s + delta)})

    Kim, Kim, Cho, Kwak: "Proxy Anchor Loss for Deep Metric Learning", CVPR 2020, Eq. 4. P+: the proxies with an item in
    the batch.
    """
    own = block.target == 0  # [P,B]
    pull = log_one_plus_sum_exp(-alpha * (block.s - delta), own)
    push = log_one_plus_sum_exp(alpha * (block.s + delta), ~own)
    present = own.any(1)
    return torch.stack((pull, push), 1), torch.stack((present, torch.ones_like(present)), 1).to(pull.dtype)


class ProxyAnchorLoss(RowLoss):
    """Proxy Anchor: each class's proxy is an anchor, pulled and pushed by all items of the batch.

    The anchors are the proxies: the argument `anchors` of a call says nothing here.

    Args:
        alpha: scale of the similarities.
        delta: margin.
        num_classes: how many classes there are.
        embedding_dim: the embedding dimension.
        class_ids: the ids of the classes `[num_classes]`; default 0 to num_classes - 1.
    """

    labels: LabelKind = "classes"

    def __init__(
        self,
        alpha: float = 32.0,
        delta: float = 0.1,
        *,
        num_classes: int,
        embedding_dim: int,
        class_ids: Tensor | Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        self.index = ClassIndex(num_classes, class_ids)
        self.alpha, self.delta = alpha, delta
        self.proxies = nn.Parameter(torch.empty(num_classes, embedding_dim))
        nn.init.kaiming_normal_(self.proxies, mode="fan_out")

    def rows(self, block: Block) -> tuple[Tensor, Tensor]:
        """The terms of each proxy."""
        return proxy_anchor_rows(block, self.alpha, self.delta)

    def sides(self, embeddings: Tensor, labels: LabelView, anchors: Tensor | None) -> Sides:  # noqa: ARG002
        """Proxies against the batch."""
        assert labels.classes is not None
        classes = self.index(labels.classes.to(embeddings.device))
        proxy_class = torch.arange(len(self.proxies), device=embeddings.device)

        def target(part: slice) -> Tensor:
            return class_distance(proxy_class[part], classes)

        proxies = self.proxies.to(full_dtype(embeddings))
        return Sides(proxies, embeddings, target, None, proxy_class, classes)


def full_dtype(embeddings: Tensor) -> torch.dtype:
    """The dtype that losses compute in: float64 for float64 embeddings, else float32."""
    return torch.float64 if embeddings.dtype == torch.float64 else torch.float32
