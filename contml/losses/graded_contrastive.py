"""Contrastive losses of graded pairs: label distance gives the degree psi in [0, 1] to which a pair is positive.

    generalized contrastive  mean over pairs  psi d^2 / 2 + (1 - psi) [margin - d]_+^2 / 2
    relaxed contrastive      1/n sum_ij       psi d^2 + (1 - psi) [margin - d]_+^2
                             d = |f_i - f_j| / mean_k |f_i - f_k|,    psi = e^{-D^2 / sigma}

Leyva-Vallina, Strisciuglio, Petkov: "Data-Efficient Large Scale Place Recognition with Graded Similarity Supervision",
CVPR 2023; psi is annotated there, and here a function of D. Kim, Kim, Cho, Kwak: "Embedding Transfer with Label
Relaxation for Improved Metric Learning", CVPR 2021; the mean over k includes i itself and is differentiated. D is the
plain label distance divided by `label_scale`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from contml._support.validation import NonNegativeFloat, PositiveFloat, check_ranges
from contml.distances.euclidean import Distance, full_precision
from contml.labels.base import LabelSpace
from contml.losses.driver import Block, Comparison
from contml.losses.label_scale import LabelScale, ScaledLabelLoss

#: Embeddings below this are 0 to a loss that reads ratios of distances, as they are to cosines; squares neither vanish
#: nor overflow in float32 for those from _SMALL to _LARGE.
_SMALLEST, _SMALL, _LARGE = 1e-34, 1e-9, 1e9

Kernel: TypeAlias = Literal["linear", "exponential"]


class GradedSimilarityLoss(ScaledLabelLoss):
    """Base of the losses that read a similarity of labels in [0, 1].

    Args:
        kernel: "linear", `max(0, 1 - D / sigma)`, or "exponential", `e^(-D / sigma)`.
        sigma: the label distance, after `label_scale`, at which a linear similarity is 0.
        label_scale: divides the plain label distances: a number above 0, or "median", that of random training pairs.
        labels: the labels of the training set, for "median".
    """

    @check_ranges
    def __init__(
        self, kernel: Kernel, sigma: PositiveFloat, label_scale: LabelScale, labels: LabelSpace | None
    ) -> None:
        super().__init__(label_scale, labels)
        self.kernel, self.sigma = kernel, sigma

    def similarity(self, label_distances: Tensor) -> Tensor:
        """The similarity of labels `[A, B]` at scaled label distances `[A, B]`."""
        ratio = label_distances / self.sigma
        return (1 - ratio).relu() if self.kernel == "linear" else (-ratio).exp()


class GeneralizedContrastiveLoss(GradedSimilarityLoss):
    """Generalized contrastive loss (GCL): contrastive loss of graded pairs.

    The mean over all pairs, on unit vectors. On labels of 0 and 1, with the linear kernel and `sigma` 1, it is half the
    Euclidean contrastive loss, a mean over pairs.

    Args:
        margin: negatives are pushed up to this Euclidean distance of unit vectors, at least 0.
        kernel: how similar labels are: "linear", `max(0, 1 - D / sigma)`, or "exponential", `e^(-D / sigma)`.
        sigma: width of the kernel in label distances, after `label_scale`.
        label_scale: divides the plain label distances: a number above 0, or "median", that of random training pairs.
    """

    distance: Distance = "euclidean"
    normalize = True

    @check_ranges
    def __init__(
        self,
        margin: NonNegativeFloat = 0.5,
        kernel: Kernel = "linear",
        sigma: PositiveFloat = 1.0,
        label_scale: LabelScale = "median",
        *,
        labels: LabelSpace | None = None,
    ) -> None:
        super().__init__(kernel, sigma, label_scale, labels)
        self.margin = margin

    def values(self, block: Block) -> tuple[Tensor, Tensor]:
        """Sum over the pairs of each anchor, and their number."""
        d, psi = block.scores, self.similarity(block.label_distances)  # [A,B]
        pair_losses = (psi * d.square() + (1 - psi) * (self.margin - d).relu().square()) / 2
        return (block.weights * pair_losses).sum(1), block.weights.sum(1)


class RelaxedContrastiveLoss(ScaledLabelLoss):
    """Relaxed contrastive loss: label distance says how much a pair is pulled, and how much pushed.

    The sum over the pairs of an anchor, then the mean over anchors. Distances are relative to the mean distance of the
    anchor to all items, so that the scale of the embeddings, which are not normalized, does not matter.

    Args:
        margin: pairs are pushed up to this relative distance, above 0.
        sigma: width of `e^(-D^2 / sigma)`, the weight of the pull; D is the plain label distance after `label_scale`.
        label_scale: divides the plain label distances: a number above 0, or "median", that of random training pairs.
    """

    distance: Distance = "euclidean"

    @check_ranges
    def __init__(
        self,
        margin: PositiveFloat = 1.0,
        sigma: PositiveFloat = 1.0,
        label_scale: LabelScale = "median",
        *,
        labels: LabelSpace | None = None,
    ) -> None:
        super().__init__(label_scale, labels)
        self.margin, self.sigma = margin, sigma

    def compare(self, embeddings: Tensor, labels: LabelSpace | Tensor, anchors: Tensor | None = None) -> Comparison:
        """Checks a batch and returns its comparison, in which very small and very large embeddings are scaled to 1."""
        comparison = super().compare(embeddings, labels, anchors)
        # Ratios of distances do not change, so the factor has no gradient.
        y = full_precision(comparison.y)
        size = y.detach().abs().max()
        factor = torch.where((size > _SMALL) & (size < _LARGE), 1, torch.where(size > _SMALLEST, 1 / size, 0))
        y = y * factor
        x = y if comparison.x is comparison.y else full_precision(comparison.x) * factor
        return replace(comparison, x=x, y=y)

    def values(self, block: Block) -> tuple[Tensor, Tensor]:
        """Sum over the pairs of each anchor, and 1."""
        mean = (block.weights * block.scores).sum(1, keepdim=True) / (block.weights.sum(1, keepdim=True) + 1)
        d = block.scores / mean.where(mean > 0, 1)  # [A,B]
        psi = (-block.label_distances.square() / self.sigma).exp()
        value = (block.weights * (psi * d.square() + (1 - psi) * (self.margin - d).relu().square())).sum(1)
        return value, value.new_ones(len(value))
