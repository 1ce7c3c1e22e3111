"""A loss for each part of an embedding: its levels, or its first numbers.

    levels       L = sum_l L_l(embeddings of level l)
    matryoshka   L = 1/K sum_k L_k(first d_k numbers of the embeddings),   d_1 < ... < d_K

Wang et al., "Ranked List Loss for Deep Metric Learning" (CVPR 2019) and "Instance Cross Entropy for Deep Metric
Learning" (2020), models L, M, H: each level is trained with its own loss, and their concatenation is the embedding.

Kusupati et al., "Matryoshka Representation Learning" (NeurIPS 2022), Eq. 1 with equal weights, divided by K: the first
numbers of an embedding are an embedding too.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from contml._support.errors import InputError
from contml.contracts import Requirement
from contml.distances.euclidean import normalize as normalized
from contml.labels.base import LabelSpace
from contml.losses.inputs import Loss, check_dim, check_embeddings, check_loss


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
        """Compute the loss of a batch, a scalar.

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


class MatryoshkaLoss(nn.Module):
    """The mean of a loss for each of several lengths of an embedding, each with its own parameters and memory.

    Args:
        loss: one loss, which is copied for each length. Or a list with one loss for each length, for losses with
            proxies.
        dims: the lengths, shortest first; the last is the length of the whole embedding.
        normalize: scale each shorter embedding to length 1, for a model that normalizes its embeddings.
    """

    def __init__(self, loss: Loss | Sequence[Loss], dims: Sequence[int], normalize: bool = False) -> None:
        super().__init__()
        losses: Sequence[Any] = loss if isinstance(loss, Sequence) else [copy.deepcopy(loss) for _ in dims]
        if not dims or len(losses) != len(dims):
            raise InputError("losses", f"{len(losses)} losses for {len(dims)} dims", hint="give one loss per length")
        if dims[0] < 1 or any(a >= b for a, b in itertools.pairwise(dims)):
            raise InputError("dims", str(list(dims)), "must be lengths of at least 1, shortest first")
        for each in losses:
            check_loss(each)
        if len({id(each) for each in losses}) < len(losses) and any(each.state_dict() for each in losses):
            raise InputError("losses", "one loss with parameters or a memory appears twice", hint="make one per length")
        self.losses, self.dims, self.normalize = nn.ModuleList(losses), list(dims), normalize
        self.requires: Requirement = losses[0].requires

    def extra_repr(self) -> str:
        """Return the lengths, for `repr`."""
        return f"dims={self.dims}, normalize={self.normalize}"

    def forward(self, embeddings: Tensor, labels: LabelSpace | Tensor, *, anchors: Tensor | None = None) -> Tensor:
        """Compute the loss of a batch, a scalar.

        Args:
            embeddings: `[B, d]`, where d is the last of the lengths.
            labels: as the losses take them.
            anchors: positions `[A]` of the anchors in the batch; default all items.

        Raises:
            InputError: the embedding dimension is not the last length, or a loss refuses its input.
        """
        check_embeddings(embeddings)
        check_dim(embeddings, self.dims[-1], f"the last of the lengths {self.dims}")
        values = []
        for loss, dim in zip(self.losses, self.dims, strict=True):
            part = embeddings if dim == self.dims[-1] else embeddings[:, :dim]
            part = normalized(part) if self.normalize and dim < self.dims[-1] else part
            values.append(loss(part, labels, anchors=anchors))
        return torch.stack(values).mean()
