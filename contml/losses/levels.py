"""A loss for each level of a multi-level embedding, added up.

    L = sum_l L_l(embeddings of level l)

Wang et al., "Ranked List Loss for Deep Metric Learning" (CVPR 2019) and "Instance Cross Entropy for Deep Metric
Learning" (2020), models L, M, H: every level learns by itself what the concatenation is then used for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from contml._support.errors import InputError
from contml.contracts import Requirement
from contml.labels.base import LabelSpace


class LevelLosses(nn.Module):
    """Each part of an embedding with a loss of its own, its parameters and memory too.

    Args:
        losses: a loss for each part.
        parts: how many numbers of an embedding belong to each part.
    """

    def __init__(self, losses: Sequence[Any], parts: Sequence[int]) -> None:
        super().__init__()
        if not parts or len(losses) != len(parts):
            raise InputError(f"{len(losses)} losses for {len(parts)} parts of an embedding; give one for each")
        self.losses, self.parts = nn.ModuleList(losses), list(parts)
        self.requires: Requirement = losses[0].requires

    def forward(self, embeddings: Tensor, labels: LabelSpace | Tensor, *, anchors: Tensor | None = None) -> Tensor:
        """The loss of a batch.

        Args:
            embeddings: `[B, d]`, the parts one after the other.
            labels: as the losses take them.
            anchors: positions `[A]` of the anchors in the batch; default all items.

        Raises:
            InputError: the embeddings are not as long as the parts together, and whatever the losses refuse.
        """
        if embeddings.ndim != 2 or embeddings.shape[1] != sum(self.parts):
            raise InputError(
                f"embeddings are {list(embeddings.shape)}, but the losses are for parts of {self.parts} numbers: give "
                f"[items, {sum(self.parts)}]"
            )
        parts = torch.split(embeddings, self.parts, dim=1)
        values = [loss(part, labels, anchors=anchors) for loss, part in zip(self.losses, parts, strict=True)]
        return torch.stack(values).sum()
