"""Ranked list loss: positives within a hypersphere round the anchor, negatives beyond a margin round that.

    1/2 mean_{P*} [ d_ap - (boundary - margin) ]_+  +  1/2 sum_{N*} w_an [ boundary - d_an ]_+ / sum_{N*} w_an

    w_an = e^{scale (boundary - d_an)}, not differentiated;   P*, N*: the pairs whose hinge is above 0

Wang, Hua, Kodirov, Hu, Garnier, Robertson: "Ranked List Loss for Deep Metric Learning", CVPR 2019. d is the Euclidean
distance of unit vectors; the mean over anchors.
"""

from __future__ import annotations

import torch
from torch import Tensor

from contml._support.validation import check_at_least, check_positive
from contml.distances.euclidean import Distance
from contml.losses.driver import Block, PairLoss
from contml.mining import Miner

#: A weight below e^-80 of the largest is nothing, in float64 as well.
_RANGE = 80.0


class RankedListLoss(PairLoss):
    """Ranked list loss on unit vectors: positives nearer than boundary - margin, negatives beyond the boundary.

    The violating positives of an anchor weigh the same, its violating negatives the more the nearer they are.

    Args:
        boundary: the distance that negatives should be beyond, above 0.
        margin: how much nearer positives should be.
        scale: how much more the nearer negatives weigh; 0: all the same.
    """

    distance: Distance = "euclidean"
    normalize = True

    def __init__(
        self, boundary: float = 1.2, margin: float = 0.4, scale: float = 10.0, *, miner: Miner | None = None
    ) -> None:
        super().__init__(miner=miner)
        check_positive(boundary=boundary)
        check_at_least(0, margin=margin, scale=scale)
        self.boundary, self.margin, self.scale = boundary, margin, scale

    def values(self, block: Block) -> tuple[Tensor, Tensor]:
        """Value of each anchor, and 1."""
        d = block.scores  # [A,B]
        near, far = (d - (self.boundary - self.margin)).relu(), (self.boundary - d).relu()
        with torch.no_grad():
            of_positives = _shares(block.positive * near.sign())
            worst = (far * block.negative.sign()).amax(1, keepdim=True)
            hardness = ((far - worst) * self.scale).clamp_(-_RANGE, 0).exp_()
            of_negatives = _shares(hardness * block.negative * far.sign())
        value = (near * of_positives + far * of_negatives).sum(1) / 2
        return value, value.new_ones(len(value))


def _shares(weights: Tensor) -> Tensor:
    total = weights.sum(1, keepdim=True)
    return weights / total.where(total > 0, 1)
