"""Losses of graded pairs: the base that divides label distances by a scale, and contrastive losses.

The scale brings label distances to about 1. A pair is positive to the degree psi in [0, 1], a function of its label
distance.

    generalized contrastive  mean over pairs  psi d^2 / 2 + (1 - psi) [margin - d]_+^2 / 2
    relaxed contrastive      1/n sum_ij       psi d^2 + (1 - psi) [margin - d]_+^2
                             d = |f_i - f_j| / mean_k |f_i - f_k|,    psi = e^{-D^2 / sigma}

Leyva-Vallina, Strisciuglio, Petkov: "Data-Efficient Large Scale Place Recognition with Graded Similarity Supervision",
CVPR 2023; psi is annotated there, and here a function of D. Kim, Kim, Cho, Kwak: "Embedding Transfer with Label
Relaxation for Improved Metric Learning", CVPR 2021; the mean over k includes i itself and is differentiated. D is the
plain label distance divided by `label_scale`.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from contml._support.errors import InputError
from contml._support.validation import NonNegativeFloat, PositiveFloat, check_ranges
from contml.contracts import Requirement
from contml.distances.euclidean import Distance, full_precision
from contml.labels.base import LabelSpace, check_label_space
from contml.losses.driver import Block, Comparison, PairLoss

LabelScale: TypeAlias = PositiveFloat | Literal["median"]

#: Random pairs for the median: blocks of rows by columns.
_BLOCKS, _SIDE = 100, 10
#: A batch whose median label distance differs from the scale by more than this factor is in another unit.
_LARGEST_RATIO = 5
#: The least number of pairs whose median is compared with the scale, and the approximate number of pairs that are read.
_LEAST_PAIRS, _READ_PAIRS = 20, 2000


class ScaledLabelLoss(PairLoss):
    """Base of the losses that divide plain label distances by a scale first; checkpoints hold the scale.

    Args:
        label_scale: divides label distances: a number above 0, or "median", the median of random training pairs.
        train_labels: the labels of the training set, for "median". Without them, labels of 0 and 1 have the scale 1,
            and graded labels are refused.
    """

    requires: Requirement = "any"
    label_unit: Tensor

    @check_ranges
    def __init__(self, label_scale: LabelScale, train_labels: LabelSpace | None) -> None:
        super().__init__()
        if train_labels is not None:
            check_label_space("train_labels", train_labels)
        self.label_scale = label_scale
        if not isinstance(label_scale, str):
            label_unit = label_scale
        else:
            label_unit = 0.0 if train_labels is None else median_distance(train_labels)
        self.register_buffer("label_unit", torch.tensor(label_unit, dtype=torch.float64))  # 0: not known
        self._known = label_unit > 0
        self._checked: int | None = None  # the identity of the last label space that was compared with the scale
        self._to_check = False

    def comparison(self, embeddings: Tensor, labels: LabelSpace, anchors: Tensor | None) -> Comparison:
        """Compare all pairs of the anchors.

        Raises:
            InputError: the scale of graded label distances is not known.
        """
        if not self._known:
            self._known = bool(self.label_unit > 0)  # from a checkpoint
        if not self._known and labels.kind == "graded":
            example = f"{type(self).__name__}(train_labels=labels)"
            hint = f"give the labels of the training set, {example}, or a number, label_scale=1.0"
            raise InputError("label_scale", "median, but of which labels?", hint=hint)
        # The unit of a label space does not change; tensors are new labels in each batch.
        identity = None if labels.rows is None else labels.identity
        self._to_check = self.label_scale == "median" and (identity is None or identity != self._checked)
        self._checked = identity
        return super().comparison(embeddings, labels, anchors)

    def block(self, comparison: Comparison, scores: Tensor, part: slice) -> Block:
        """Return the block of these anchors, with label distances divided by the scale.

        Raises:
            InputError: the label distances of the batch are far above the scale.
        """
        block = super().block(comparison, scores, part)
        if not self._known:
            return block
        if self._to_check:
            self._to_check = False
            self._check_scale(block.label_distances.detach())
        return replace(block, label_distances=block.label_distances / self.label_unit)

    def _check_scale(self, distances: Tensor) -> None:
        """Compare the median of a batch with the scale, which is the median of the training labels.

        Warn if the median of the batch is far below the scale. A batch of near items has a small median, so this is not
        an error.

        Raises:
            InputError: the median of the batch is far above the scale.
        """
        distances = distances.flatten()[:: 1 + distances.numel() // _READ_PAIRS]
        distances = distances[distances > 0]
        if len(distances) < _LEAST_PAIRS:
            return
        median, scale = float(distances.median()), float(self.label_unit)
        got = f"a median of {median:g} in a batch"
        allowed = f"must be like the training labels, whose median is {scale:g}"
        if median > _LARGEST_RATIO * scale:
            hint = "in another unit, or squared? give plain distances in the unit of the training labels"
            raise InputError("label distances", got, allowed, hint)
        if median * _LARGEST_RATIO < scale:
            hint = "in another unit, or a batch of near items?"
            warnings.warn(f"label distances: {got}; {allowed}; {hint}", stacklevel=2)


def median_distance(labels: LabelSpace) -> float:
    """Return the median of the label distances above 0 of 10,000 random pairs, always the same ones.

    Return 1 if all distances are 0. Labels that are lists of judged pairs know few random pairs. For them, return the
    median of all judged pairs.
    """
    n, num_pairs = len(labels), _BLOCKS * _SIDE**2
    if (judged := labels.judged_pairs) is not None:
        distances = judged.distances
    elif n * n <= num_pairs:
        distances = labels.pairwise()
    else:
        rows = torch.randint(n, (_BLOCKS, 2, _SIDE), generator=torch.Generator().manual_seed(0))
        distances = torch.cat([labels.pairwise(r, c) for r, c in rows])
    distances = distances[distances > 0]  # pairs without a label distance are at 0
    return float(distances.median()) if len(distances) else 1.0


#: A loss on ratios of distances treats embeddings below _SMALLEST as 0, as cosines do. From _SMALL to _LARGE, squares
#: of embeddings neither vanish nor overflow in float32.
_SMALLEST, _SMALL, _LARGE = 1e-34, 1e-9, 1e9

Kernel: TypeAlias = Literal["linear", "exponential"]


class GradedSimilarityLoss(ScaledLabelLoss):
    """Base of the losses that read a similarity of labels in [0, 1].

    Args:
        kernel: "linear", `max(0, 1 - D / sigma)`, or "exponential", `e^(-D / sigma)`.
        sigma: the label distance, after `label_scale`, at which a linear similarity is 0.
        label_scale: divides label distances: a number above 0, or "median", the median of random training pairs.
        train_labels: the labels of the training set, for "median".
    """

    @check_ranges
    def __init__(
        self, kernel: Kernel, sigma: PositiveFloat, label_scale: LabelScale, train_labels: LabelSpace | None
    ) -> None:
        super().__init__(label_scale, train_labels)
        self.kernel, self.sigma = kernel, sigma

    def similarity(self, label_distances: Tensor) -> Tensor:
        """Return the similarity of labels `[A, B]` at scaled label distances `[A, B]`, in [0, 1]."""
        ratio = label_distances / self.sigma
        return (1 - ratio).relu() if self.kernel == "linear" else (-ratio).exp()


class GeneralizedContrastiveLoss(GradedSimilarityLoss):
    """Generalized contrastive loss (GCL): contrastive loss of graded pairs.

    The loss is the mean over all pairs of unit vectors. On labels of 0 and 1, with the linear kernel and `sigma` 1, it
    is half the Euclidean contrastive loss as a mean over pairs.

    Args:
        margin: negatives are pushed up to this Euclidean distance of unit vectors, at least 0.
        kernel: similarity of labels: "linear", `max(0, 1 - D / sigma)`, or "exponential", `e^(-D / sigma)`.
        sigma: width of the kernel in label distances, after `label_scale`.
        label_scale: divides label distances: a number above 0, or "median", the median of random training pairs.
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
        train_labels: LabelSpace | None = None,
    ) -> None:
        super().__init__(kernel, sigma, label_scale, train_labels)
        self.margin = margin

    def values(self, block: Block) -> tuple[Tensor, Tensor]:
        """Return the sum over the pairs of each anchor, and the number of pairs, `[A]` each."""
        d, psi = block.scores, self.similarity(block.label_distances)  # [A,B]
        pair_losses = (psi * d.square() + (1 - psi) * (self.margin - d).relu().square()) / 2
        return (block.weights * pair_losses).sum(1), block.weights.sum(1)


class RelaxedContrastiveLoss(ScaledLabelLoss):
    """Relaxed contrastive loss: the label distance of a pair weighs its pull against its push.

    The loss is the sum over the pairs of an anchor, then the mean over anchors. Distances are divided by the mean
    distance of the anchor to all items. So the scale of the embeddings, which are not normalized, does not matter.

    Args:
        margin: pairs are pushed up to this relative distance, above 0.
        sigma: width of `e^(-D^2 / sigma)`, the weight of the pull; D is the plain label distance after `label_scale`.
        label_scale: divides label distances: a number above 0, or "median", the median of random training pairs.
    """

    distance: Distance = "euclidean"

    @check_ranges
    def __init__(
        self,
        margin: PositiveFloat = 1.0,
        sigma: PositiveFloat = 1.0,
        label_scale: LabelScale = "median",
        *,
        train_labels: LabelSpace | None = None,
    ) -> None:
        super().__init__(label_scale, train_labels)
        self.margin, self.sigma = margin, sigma

    def compare(self, embeddings: Tensor, labels: LabelSpace | Tensor, anchors: Tensor | None = None) -> Comparison:
        """Check a batch and return its comparison. Very small and very large embeddings are scaled to about 1."""
        comparison = super().compare(embeddings, labels, anchors)
        # Ratios of distances do not change, so the factor has no gradient.
        y = full_precision(comparison.y)
        size = y.detach().abs().max()
        factor = torch.where((size > _SMALL) & (size < _LARGE), 1, torch.where(size > _SMALLEST, 1 / size, 0))
        y = y * factor
        x = y if comparison.x is comparison.y else full_precision(comparison.x) * factor
        return replace(comparison, x=x, y=y)

    def values(self, block: Block) -> tuple[Tensor, Tensor]:
        """Return the sum over the pairs of each anchor `[A]`, and counts of 1."""
        mean = (block.weights * block.scores).sum(1, keepdim=True) / (block.weights.sum(1, keepdim=True) + 1)
        d = block.scores / mean.where(mean > 0, 1)  # [A,B]
        psi = (-block.label_distances.square() / self.sigma).exp()
        value = (block.weights * (psi * d.square() + (1 - psi) * (self.margin - d).relu().square())).sum(1)
        return value, value.new_ones(len(value))
