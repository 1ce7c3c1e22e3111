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
from contml.losses.inputs import check_dim, check_embeddings


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
        check_embeddings(embeddings)
        check_dim(embeddings, sum(self.parts), f"the sum of the parts {self.parts}")
        parts = torch.split(embeddings, self.parts, dim=1)
        values = [loss(part, labels, anchors=anchors) for loss, part in zip(self.losses, parts, strict=True)]
        return torch.stack(values).sum()
