"""Rank-N-Contrast: each pair is contrasted with the pairs of its anchor that are at least as far apart by label.

    1 / (n (n - 1))  sum_i sum_{j != i}  - log ( e^{s_ij / t} / sum_{k: D_ik >= D_ij} e^{s_ik / t} )

Zha, Cao, Son, Yang, Katabi: "Rank-N-Contrast: Learning Continuous Representations for Regression", NeurIPS 2023; s
is minus the Euclidean distance of unnormalized embeddings, D the label distance. The authors' code takes O(n^3)
time and is NaN for embeddings of 64 numbers of standard deviation 30; sorting takes O(n^2 log n).
"""

from __future__ import annotations

import torch
from torch import Tensor

from contml._support.validation import PositiveFloat, check_ranges
from contml.contracts import Requirement
from contml.distances.euclidean import Distance
from contml.losses.driver import Block, PairLoss
from contml.losses.sorted_rows import ranked_cross_entropy


class RankNContrastLoss(PairLoss):
    """Rank-N-Contrast: embedding distances are in the order of label distances; only their order is used.

    The mean over all pairs of an anchor with another item. Items at equal label distances are in each other's
    denominators.

    Args:
        temperature: divides the Euclidean distances of the embeddings, which are not normalized; above 0.
    """

    requires: Requirement = "any"
    distance: Distance = "euclidean"

    @check_ranges
    def __init__(self, temperature: PositiveFloat = 2.0) -> None:
        super().__init__()
        self.temperature = temperature

    def values(self, block: Block) -> tuple[Tensor, Tensor]:
        """Sum over the pairs of each anchor, and their number."""
        x, member = block.scores / -self.temperature, block.weights > 0  # [A,B]
        value = ranked_cross_entropy(x, block.label_distances, torch.ones_like(x), member, strict=False)
        return value, block.weights.sum(1)
