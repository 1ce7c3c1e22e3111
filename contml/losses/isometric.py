"""Isometric loss: embedding distances equal label distances, on the pairs where they differ most.

    w_ij |d_ij - D_ij|  over the pairs where it is above its running mean         w = e^{-(D / sigma)^2 / 2} + 0.1

"RM-Loss", MICCAI 2022: d is the Euclidean distance of unnormalized embeddings, D the plain label distance divided by
`label_scale`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from contml._support.validation import PositiveFloat, check_ranges
from contml.distances.euclidean import Distance
from contml.labels.base import LabelSpace
from contml.losses.driver import Block, Comparison
from contml.losses.label_scale import LabelScale, ScaledLabelLoss

#: The weight of a pair at a large label distance, and how much of the running mean each batch keeps.
_LEAST, _MOMENTUM = 0.1, 0.9


class IsometricLoss(ScaledLabelLoss):
    """Isometric loss (RM-Loss): the weighted difference of embedding and label distance, the mean over hard pairs.

    Pairs are hard where it is at least the running mean over the pairs of earlier training batches; in the first batch
    all are. Near pairs weigh most.

    Args:
        sigma: width of the weight of near pairs, in label distances after `label_scale`.
        label_scale: divides the plain label distances: a number above 0, or "median", that of random training pairs.
    """

    distance: Distance = "euclidean"
    running_mean: Tensor

    @check_ranges
    def __init__(
        self, sigma: PositiveFloat = 0.5, label_scale: LabelScale = "median", *, labels: LabelSpace | None = None
    ) -> None:
        super().__init__(label_scale, labels)
        self.sigma = sigma
        self.register_buffer("running_mean", torch.zeros((), dtype=torch.float64))
        self._sums: list[Tensor] = []  # of each block: the sum over its pairs, and their number

    def values(self, block: Block) -> tuple[Tensor, Tensor]:
        """Sum over the hard pairs of each anchor, and their number."""
        d, target = block.scores, block.label_distances  # [A,B]
        weight = block.weights * ((-(target / self.sigma).square() / 2).exp() + _LEAST)
        pair_losses = weight * (d - target).abs()
        hard_weights = block.weights * (pair_losses.detach() >= self.running_mean)
        self._sums.append(torch.stack((pair_losses.detach().sum(), block.weights.sum())))
        return (hard_weights * pair_losses).sum(1), hard_weights.sum(1)

    def value(self, comparison: Comparison) -> Tensor:
        """The loss of a comparison; in training, its pairs then change the running mean."""
        self._sums = []
        value = super().value(comparison)
        if self.training:
            total, num_pairs = torch.stack(self._sums).double().sum(0)
            mean, old_mean = total / num_pairs.clamp(min=1), self.running_mean
            new_mean = torch.where(old_mean > 0, _MOMENTUM * old_mean + (1 - _MOMENTUM) * mean, mean)
            self.running_mean = torch.where((num_pairs > 0) & new_mean.isfinite(), new_mean, old_mean)
        return value
