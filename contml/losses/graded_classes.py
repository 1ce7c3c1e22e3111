"""Multi-Similarity and instance cross entropy for graded labels; on labels of 0 and 1 they are the losses of classes.

Pairs are graded: positive to a degree psi in [0, 1], a function of label distance, and negative to 1 - psi:

    Multi-Similarity  1/m sum_i  1/alpha log(1 + sum_j psi_ij e^{-alpha (s_ij - base)})
                               + 1/beta  log(1 + sum_j (1 - psi_ij) e^{beta (s_ij - base)})
    ICE               1/m sum_i  sum_j psi_ij softplus( log sum_k (1 - psi_ik) e^{scale s_ik} - scale s_ij )

Multi-Similarity mines by the order of label distances: a pair counts as positive if one of its anchor at a larger label
distance is more similar, up to epsilon, and as negative if one at a smaller label distance is less similar.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from contml._support.validation import FiniteFloat, NonNegativeFloat, PositiveFloat, check_ranges
from contml.labels.base import LabelSpace
from contml.losses.driver import Block, Comparison
from contml.losses.graded_contrastive import GradedSimilarityLoss, Kernel
from contml.losses.ice import InstanceCrossEntropyLoss
from contml.losses.label_scale import LabelScale
from contml.losses.log_sum_exp import log_one_plus_sum_exp
from contml.losses.sorted_rows import sort_rows


class GradedMultiSimilarityLoss(GradedSimilarityLoss):
    """Multi-Similarity loss for graded labels: the same as `multi_similarity` on labels of 0 and 1.

    Args:
        alpha: scale of positives, above 0.
        beta: scale of negatives, above 0.
        base: the similarity that positives should be above and negatives below.
        epsilon: how far a pair may be from violating a triplet, at least 0.
        kernel: degree of a positive pair: "linear", `max(0, 1 - D / sigma)`, or "exponential", `e^(-D / sigma)`.
        sigma: width of the kernel in label distances, after `label_scale`.
        label_scale: divides the plain label distances: a number above 0, or "median", that of random training pairs.
    """

    @check_ranges
    def __init__(
        self,
        alpha: PositiveFloat = 2.0,
        beta: PositiveFloat = 50.0,
        base: FiniteFloat = 0.5,
        epsilon: NonNegativeFloat = 0.1,
        kernel: Kernel = "linear",
        sigma: PositiveFloat = 1.0,
        label_scale: LabelScale = "median",
        *,
        labels: LabelSpace | None = None,
    ) -> None:
        super().__init__(kernel, sigma, label_scale, labels)
        self.alpha, self.beta, self.base, self.epsilon = alpha, beta, base, epsilon

    def values(self, block: Block) -> tuple[Tensor, Tensor]:
        """Value of each anchor, and 1."""
        s, psi = block.scores, self.similarity(block.label_distances)  # [A,B]
        as_positive, as_negative = self._mined(s.detach(), block)
        pull = log_one_plus_sum_exp(self.alpha * (self.base - s), psi * as_positive) / self.alpha
        push = log_one_plus_sum_exp(self.beta * (s - self.base), (1 - psi) * as_negative) / self.beta
        return pull + push, torch.ones_like(pull)

    @torch.no_grad()
    def _mined(self, s: Tensor, block: Block) -> tuple[Tensor, Tensor]:
        """Whether a pair counts as positive, and whether as negative, `[A, B]`."""
        member = block.weights > 0
        rows = sort_rows(block.label_distances, member)
        x, inf = s.gather(1, rows.order), s.new_full((len(s), 1), torch.inf)
        valid = member.gather(1, rows.order)
        highest = torch.cat((-inf, x.masked_fill(~valid, -torch.inf).cummax(1).values), 1)  # [A,B+1] of the farthest
        lowest = torch.cat((x.masked_fill(~valid, torch.inf).flip(1).cummin(1).values.flip(1), inf), 1)
        positive = (x < highest.gather(1, rows.first) + self.epsilon) & valid
        negative = (x > lowest.gather(1, rows.last) - self.epsilon) & valid
        return rows.by_column(positive), rows.by_column(negative)


class GradedInstanceCrossEntropyLoss(GradedSimilarityLoss, InstanceCrossEntropyLoss):
    """Instance cross entropy for graded labels: the same as `instance_cross_entropy` on labels of 0 and 1.

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
        scale: PositiveFloat = 64.0,
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
