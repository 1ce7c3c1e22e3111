"""Ranked list loss: positives within a hypersphere around the anchor, negatives outside it by a margin.

    1/2 mean_{P*} [ d_ap - (boundary - margin) ]_+  +  1/2 sum_{N*} w_an [ boundary - d_an ]_+ / sum_{N*} w_an

    w_an = e^{scale (boundary - d_an)}, not differentiated;   P*, N*: the pairs whose hinge is above 0

Wang, Hua, Kodirov, Hu, Garnier, Robertson: "Ranked List Loss for Deep Metric Learning", CVPR 2019. d is the Euclidean
distance of unit vectors; the mean over anchors.
"""

from __future__ import annotations

import torch
from torch import Tensor

from contml._support.validation import NonNegativeFloat, PositiveFloat, check_ranges
from contml.distances.euclidean import Distance
from contml.losses.driver import Block, PairLoss
from contml.losses.log_sum_exp import shares
from contml.mining import Miner

#: Weights below e^-80 of the largest do not change the sum, in float64 either.
_MAX_EXPONENT = 80.0


class RankedListLoss(PairLoss):
    """Ranked list loss on unit vectors: positives nearer than boundary - margin, negatives beyond the boundary.

    All violating positives of an anchor have the same weight; of its violating negatives, nearer ones have more.

    Args:
        boundary: negatives should be farther than this distance, above 0.
        margin: positives should be nearer than boundary - margin.
        scale: scale of the exponent; the larger, the more weight nearer negatives have; 0: equal weights.
    """

    distance: Distance = "euclidean"
    normalize = True

    @check_ranges
    def __init__(
        self,
        boundary: PositiveFloat = 1.2,
        margin: NonNegativeFloat = 0.4,
        scale: NonNegativeFloat = 10.0,
        *,
        miner: Miner | None = None,
    ) -> None:
        super().__init__(miner=miner)
        self.boundary, self.margin, self.scale = boundary, margin, scale

    def values(self, block: Block) -> tuple[Tensor, Tensor]:
        """Value of each anchor, and 1."""
        d = block.scores  # [A,B]
        near, far = (d - (self.boundary - self.margin)).relu(), (self.boundary - d).relu()
        with torch.no_grad():
            positive_shares = shares(block.positive * near.sign())
            largest = (far * block.negative.sign()).amax(1, keepdim=True)
            hardness = ((far - largest) * self.scale).clamp_(-_MAX_EXPONENT, 0).exp_()
            negative_shares = shares(hardness * block.negative * far.sign())
        value = (near * positive_shares + far * negative_shares).sum(1) / 2
        return value, value.new_ones(len(value))
