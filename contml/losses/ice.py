"""Instance cross entropy, for classes and for graded labels: each positive of an anchor against all its negatives.

    p(i | a) = e^{s S_ai} / ( e^{s S_ai} + sum_{j in N_a} e^{s S_aj} )
    L = - sum_a sum_{i in P_a} log p(i | a)

Wang, Kodirov, Hua, Robertson: "Instance Cross Entropy for Deep Metric Learning", Eq. 5: one matching distribution per
anchor and positive, with no other positive in its denominator. The reweighting of Eq. 11-15 gives the positives and the
negatives of each of the m anchors the same share of the gradient,

    w_aj = softmax_{j in N_a}( s S_aj ) / 2m         w_ai = softmax_{i in P_a}( log(1 - p(i | a)) ) / 2m

which is the gradient of the surrogate  sum_a ( sum_j w_aj S_aj - sum_i w_ai S_ai )  whose weights are held fixed.

With graded labels, a pair is positive to the degree psi in [0, 1], a function of label distance, and negative to the
degree 1 - psi:

    1/m sum_i  sum_j psi_ij softplus( log sum_k (1 - psi_ik) e^{scale s_ik} - scale s_ij )

On labels of 0 and 1 the two losses are equal.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from contml._support.validation import PositiveFloat, check_ranges
from contml.labels.base import LabelSpace
from contml.losses.driver import Block, Comparison, PairLoss
from contml.losses.graded_pairs import GradedSimilarityLoss, Kernel, LabelScale
from contml.losses.log_sum_exp import log_sum_exp
from contml.mining import Miner


class InstanceCrossEntropyLoss(PairLoss):
    """Instance cross entropy (ICE): each positive of an anchor is matched against all the anchor's negatives.

    The value is the sum of the cross entropies divided by the number of anchors. An anchor without positives or without
    negatives has no matching distribution and adds 0. A miner's weight of a positive multiplies its cross entropy. A
    miner's weight of a negative multiplies its term in the denominators.

    Args:
        scale: multiplies the similarities before the softmax.
        reweight: give the positives and the negatives of each anchor the same share of the gradient, as in the paper;
            False: use the gradient of the value.
    """

    @check_ranges
    def __init__(self, scale: PositiveFloat = 64.0, reweight: bool = True, *, miner: Miner | None = None) -> None:
        super().__init__(miner=miner)
        self.scale, self.reweight = scale, reweight

    def values(self, block: Block) -> tuple[Tensor, Tensor]:
        """Return `- sum log p(i | a)` over the positives of each anchor `[A]`, and counts of 1."""
        logits = self.scale * block.scores  # [A,B]
        negatives, has_negative = log_sum_exp(logits, block.negative)  # [A]
        match = logits - negatives[:, None]  # [A,B] log p - log(1 - p)
        positive = block.positive * has_negative[:, None]
        value = -(logsigmoid(match) * positive).sum(1)
        counts = torch.ones_like(value)
        if not self.reweight:
            return value, counts
        with torch.no_grad():
            negative = block.negative * (positive > 0).any(1, keepdim=True)
            # In logarithms, since 1 - p underflows.
            weights = (_softmax(logits, negative) - _softmax(logsigmoid(-match), positive)) / 2
        surrogate = (weights * block.scores).sum(1)
        return value.detach() + surrogate - surrogate.detach(), counts


def _softmax(x: Tensor, weights: Tensor) -> Tensor:
    """Return `w e^x / sum w e^x` over the last axis of `[A, B]`. Return 0 in a row where all w are 0."""
    return torch.where(weights > 0, (x + weights.log()).softmax(1), 0)


class GradedInstanceCrossEntropyLoss(GradedSimilarityLoss, InstanceCrossEntropyLoss):
    """Instance cross entropy for graded labels: the same as `instance_cross_entropy` on labels of 0 and 1.

    The default `scale` is for graded labels. The default for classes, 64, was worse on all sets of
    `contml benchmark graded_features`.

    Args:
        scale: multiplies the similarities before the softmax.
        reweight: give the positives and the negatives of each anchor the same share of the gradient, as in the paper;
            False: use the gradient of the value.
        kernel: degree of a positive pair: "linear", `max(0, 1 - D / sigma)`, or "exponential", `e^(-D / sigma)`.
        sigma: width of the kernel in label distances, after `label_scale`.
        label_scale: divides label distances: a number above 0, or "median", the median of random training pairs.
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
        train_labels: LabelSpace | None = None,
    ) -> None:
        super().__init__(kernel, sigma, label_scale, train_labels)
        self.scale, self.reweight = scale, reweight

    def block(self, comparison: Comparison, scores: Tensor, part: slice) -> Block:
        """Return the block of these anchors, with graded pairs."""
        block = super().block(comparison, scores, part)
        return replace(block, similarity=self.similarity(block.label_distances))
