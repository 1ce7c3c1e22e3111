"""Miners: which pairs of an anchor count, and how much. Any pair loss whose maths permits takes one.

A miner reads the similarities of some anchors to all items and gives a weight to each pair: 0 is mined away. Nothing
here is differentiated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from contml.contracts import InputError


@dataclass(frozen=True)
class Candidates:
    """The pairs of some anchors that a miner chooses from.

    similarity `[A, B]`: larger is nearer; cosine where embeddings are on the unit sphere, else a dot product or a
    negated distance. positive, negative `[A, B]` bool: the valid pairs, an anchor with itself in neither. anchors
    `[A]`: the anchors' places in the batch. dim: the embedding dimension.
    """

    similarity: Tensor
    positive: Tensor
    negative: Tensor
    anchors: Tensor
    dim: int


class Miner(nn.Module):
    """Base of the miners: a subclass writes `weights`, row by row, so that blocks of anchors change nothing.

    `sphere`: it needs similarities that are cosines.
    """

    sphere: bool = False

    def begin(self) -> None:
        """A new call of the loss begins, before its first block."""

    def weights(self, candidates: Candidates) -> Tensor:
        """Weights `[A, B]` >= 0; those of pairs that are neither positive nor negative are not read."""
        raise NotImplementedError(f"{type(self).__name__} has no weights(self, candidates)")

    @torch.no_grad()
    def forward(self, candidates: Candidates) -> Tensor:
        """Weights `[A, B]` in the dtype of the similarities."""
        return self.weights(candidates).to(candidates.similarity.dtype)


class VTHM(Miner):
    """Violating triplet hard mining: pairs that a triplet would find too close to the other side, equal weights.

        negatives with s_an > min_P s - epsilon,   positives with s_ap < max_N s + epsilon

    An anchor without positives or without negatives keeps nothing: the least of no similarities is +inf, the largest
    -inf, and no pair passes.

    Args:
        epsilon: how far a pair may be from violating, at least 0.
    """

    def __init__(self, epsilon: float = 0.1) -> None:
        super().__init__()
        if not 0 <= epsilon < float("inf"):
            raise InputError(f"epsilon is {epsilon}; it must be at least 0")
        self.epsilon = epsilon

    def weights(self, candidates: Candidates) -> Tensor:
        """1 for the pairs that are kept."""
        s, positive, negative = candidates.similarity, candidates.positive, candidates.negative
        least = s.masked_fill(~positive, torch.inf).amin(1, keepdim=True)  # [A,1]
        most = s.masked_fill(~negative, -torch.inf).amax(1, keepdim=True)
        return ((s > least - self.epsilon) & negative) | ((s < most + self.epsilon) & positive)


#: Every miner by its name in a config.
MINERS: dict[str, Callable[..., Miner]] = {"vthm": VTHM}
