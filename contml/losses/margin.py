"""Margin loss: positives within a learnable boundary, negatives beyond it.

    [ d_ap - b + margin ]_+  +  [ b - d_an + margin ]_+      over all valid triplets (a, p, n)

Wu, Manmatha, Smola, Kraehenbuehl: "Sampling Matters in Deep Embedding Learning", ICCV 2017, Eq. 7. In the sum over all
triplets a positive counts once per negative of its anchor, and a negative once per positive.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from contml._support.errors import InputError
from contml._support.validation import FiniteFloat, NonNegativeFloat, check_ranges
from contml.distances.euclidean import Distance
from contml.losses.class_index import ClassIndex
from contml.losses.driver import Block, PairLoss
from contml.mining import Miner

#: Added to the squared distance before the square root.
EPSILON = 1e-8


class MarginLoss(PairLoss):
    """Margin loss on unit vectors with a learnable boundary, one for all or one per class.

    Args:
        margin: half the width of the band around the boundary in which pairs are penalised.
        boundary: initial value of the boundary, a Euclidean distance of unit vectors.
        per_class: learn a boundary for each class, and use that of the anchor's class; needs labels that are classes.
        num_classes: the number of classes, for per_class.
        class_ids: their ids `[num_classes]`; default 0 to num_classes - 1.
        miner: which pairs count, and how much.
    """

    distance: Distance = "squared_euclidean"
    normalize = True

    @check_ranges
    def __init__(
        self,
        margin: NonNegativeFloat = 0.2,
        boundary: FiniteFloat = 1.2,
        per_class: bool = False,
        *,
        num_classes: int | None = None,
        class_ids: Tensor | Sequence[int] | None = None,
        miner: Miner | None = None,
    ) -> None:
        super().__init__(miner=miner)
        if per_class and num_classes is None:
            raise InputError("num_classes", "None", "must be given with per_class=True", "use labels that are classes")
        self.requires = "classes" if per_class else "binary"
        self.margin, self.per_class = margin, per_class
        self.index = ClassIndex(num_classes, class_ids) if per_class and num_classes is not None else None
        self.boundary = nn.Parameter(torch.full(() if self.index is None else (len(self.index),), float(boundary)))

    def values(self, block: Block) -> tuple[Tensor, Tensor]:
        """Sum over the valid triplets of each anchor, and the number of its non-zero terms."""
        d = (block.scores + EPSILON).sqrt()  # [A,B]
        boundary: Tensor = self.boundary if self.index is None else self.boundary[self.index(block.anchor_class)]
        b = boundary.to(d.dtype).reshape(-1, 1)  # [1,1] or [A,1]
        near, far = (d - b + self.margin).relu(), (b - d + self.margin).relu()
        positives, negatives = block.positive.sum(1), block.negative.sum(1)  # [A]
        value = (near * block.positive).sum(1) * negatives + (far * block.negative).sum(1) * positives
        active = ((near > 0) * block.positive).sum(1) * negatives + ((far > 0) * block.negative).sum(1) * positives
        return value, active
