"""The sum of a loss for each level of a multi-level embedding.

    L = sum_l L_l(embeddings of level l)

Wang et al., "Ranked List Loss for Deep Metric Learning" (CVPR 2019) and "Instance Cross Entropy for Deep Metric
Learning" (2020), models L, M, H: each level is trained with its own loss, and their concatenation is the embedding.
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
    """A loss for each part of an embedding, each with its own parameters and memory.

    Args:
        losses: a loss for each part.
        parts: the number of dimensions of each part.
    """

    def __init__(self, losses: Sequence[Any], parts: Sequence[int]) -> None:
        super().__init__()
        if not parts or len(losses) != len(parts):
            raise InputError("losses", f"{len(losses)} losses for {len(parts)} parts", hint="give one loss per part")
        self.losses, self.parts = nn.ModuleList(losses), list(parts)
        self.requires: Requirement = losses[0].requires

    def forward(self, embeddings: Tensor, labels: LabelSpace | Tensor, *, anchors: Tensor | None = None) -> Tensor:
        """The loss of a batch.

        Args:
            embeddings: `[B, d]`, the concatenated parts.
            labels: as the losses take them.
            anchors: positions `[A]` of the anchors in the batch; default all items.

        Raises:
            InputError: the embedding dimension is not the sum of the parts, or a loss refuses its input.
        """
        if embeddings.ndim != 2 or embeddings.shape[1] != sum(self.parts):
            allowed = f"must be [items, {sum(self.parts)}], since the losses are for parts of {self.parts}"
            raise InputError("embeddings", str(list(embeddings.shape)), allowed)
        parts = torch.split(embeddings, self.parts, dim=1)
        values = [loss(part, labels, anchors=anchors) for loss, part in zip(self.losses, parts, strict=True)]
        return torch.stack(values).sum()
