"""Ranked list loss: positives within a hypersphere round the anchor, negatives beyond a margin round that.

    1/2 mean_{P*} [ d_ap - (boundary - margin) ]_+  +  1/2 sum_{N*} w_an [ boundary - d_an ]_+ / sum_{N*} w_an

    w_an = e^{scale (boundary - d_an)}, not differentiated;   P*, N*: the pairs whose hinge is above 0

Wang, Hua, Kodirov, Hu, Garnier, Robertson: "Ranked List Loss for Deep Metric Learning", CVPR 2019. d is the Euclidean
distance of unit vectors; the mean over anchors.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from contml.contracts import InputError, LabelKind
from contml.distances.euclidean import Similarity
from contml.losses.rows import Block, RowLoss
from contml.losses.triplet import check_margin
from contml.mining import Miner

#: A weight below e^-80 of the largest is nothing, in float64 as well.
_RANGE = 80.0


def ranked_list_rows(block: Block, boundary: float, margin: float, scale: float) -> tuple[Tensor, Tensor]:
    """Value of each anchor, and 1: `[A]` each. block.s are Euclidean distances."""
    near, far = (block.s - (boundary - margin)).relu(), (boundary - block.s).relu()  # [A,B]
    with torch.no_grad():
        of_positives = _shares(block.positive * near.sign())
        worst = (far * block.negative.sign()).amax(1, keepdim=True)
        hardness = ((far - worst) * scale).clamp_(-_RANGE, 0).exp_()
        of_negatives = _shares(hardness * block.negative * far.sign())
    value = (near * of_positives + far * of_negatives).sum(1) / 2
    return value, value.new_ones(len(value))


def _shares(weights: Tensor) -> Tensor:
    total = weights.sum(1, keepdim=True)
    return weights / total.where(total > 0, 1)


class RankedListLoss(RowLoss):
    """Ranked list loss on unit vectors: positives nearer than boundary - margin, negatives beyond the boundary.

    The violating positives of an anchor weigh the same, its violating negatives the more the nearer they are.

    Args:
        boundary: the distance that negatives should be beyond, above 0.
        margin: how much nearer positives should be.
        scale: how much more the nearer negatives weigh; 0: all the same.
    """

    labels: LabelKind = "binary"
    similarity: Similarity = "euclidean"
    unit = True

    def __init__(
        self, boundary: float = 1.2, margin: float = 0.4, scale: float = 10.0, *, miner: Miner | None = None
    ) -> None:
        super().__init__(miner=miner)
        if not 0 < boundary < math.inf:
            raise InputError(f"boundary is {boundary}; it must be above 0")
        check_margin(margin)
        if not 0 <= scale < math.inf:
            raise InputError(f"scale is {scale}; it must be at least 0")
        self.boundary, self.margin, self.scale = boundary, margin, scale

    def rows(self, block: Block) -> tuple[Tensor, Tensor]:
        """Value of each anchor."""
        return ranked_list_rows(block, self.boundary, self.margin, self.scale)
