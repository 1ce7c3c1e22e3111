"""Instance cross entropy for graded labels; on labels of 0 and 1 it is the loss of classes.

Pairs are graded: positive to a degree psi in [0, 1], a function of label distance, and negative to 1 - psi:

    1/m sum_i  sum_j psi_ij softplus( log sum_k (1 - psi_ik) e^{scale s_ik} - scale s_ij )
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from contml._support.validation import PositiveFloat, check_ranges
from contml.labels.base import LabelSpace
from contml.losses.driver import Block, Comparison
from contml.losses.graded_contrastive import GradedSimilarityLoss, Kernel
from contml.losses.ice import InstanceCrossEntropyLoss
from contml.losses.label_scale import LabelScale


class GradedInstanceCrossEntropyLoss(GradedSimilarityLoss, InstanceCrossEntropyLoss):
    """Instance cross entropy for graded labels: the same as `instance_cross_entropy` on labels of 0 and 1.

    The default `scale` is for graded labels: 64, that of classes, was worse on all sets of `contml benchmark
    graded_features`.

    Args:
        scale: multiplies the similarities before the softmax.
        reweight: give the positives and the negatives of each anchor the same share of the gradient, as in the paper;
            False: use the gradient of the value.
        kernel: degree of a positive pair: "linear", `max(0, 1 - D / sigma)`, or "exponential", `e^(-D / sigma)`.
        sigma: width of the kernel in label distances, after `label_scale`.
        label_scale: divides the plain label distances: a number above 0, or "median", that of random training pairs.
    """

    @check_ranges
    def __init__(
        self,
        scale: PositiveFloat = 4.0,
        reweight: bool = True,
        kernel: Kernel = "linear",
        sigma: PositiveFloat = 1.0,
        label_scale: LabelScale = "median",
        *,
        labels: LabelSpace | None = None,
    ) -> None:
        super().__init__(kernel, sigma, label_scale, labels)
        self.scale, self.reweight = scale, reweight

    def block(self, comparison: Comparison, scores: Tensor, part: slice) -> Block:
        """The block of these anchors, with graded pairs."""
        block = super().block(comparison, scores, part)
        return replace(block, similarity=self.similarity(block.label_distances))
