"""Losses that weigh the positive and the negative pairs of an anchor; margin and ranked list loss are at the end.

    contrastive            1/m sum_i  sum_N [s_ij - margin]_+ - sum_P s_ij
    lifted structure       1/m sum_i  [ log sum_P e^{-s_ij} + log sum_N e^{s_ij} + margin ]_+
    binomial deviance      1/m sum_i  1/|P_i| sum_P log(1 + e^{alpha (base - s_ij)})
                                    + 1/|N_i| sum_N log(1 + e^{beta (s_ij - base)})
    RAW, Multi-Similarity  1/m sum_i  1/alpha log(1 + sum_P e^{-alpha (s_ij - base)})
                                    + 1/beta  log(1 + sum_N e^{beta (s_ij - base)})

"A Unified View of Deep Metric Learning via Gradient Analysis", Eq. 5, 9, 12, 17. The paper prints the negative term of
Eq. 9 with the other sign, which contradicts its weights, Eq. 10-11; the form here has these weights. It prints Eq. 12
without 1/m. With a miner, P_i and N_i are the pairs that it keeps, also in |P_i| and |N_i|, as in the published code.
For an anchor without positives (or negatives) the term of the positives (or negatives) is 0. The whole lifted structure
loss of such an anchor is 0. The anchor counts in m.

Margin loss: positives within a learnable boundary, negatives beyond it.

    [ d_ap - b + margin ]_+  +  [ b - d_an + margin ]_+      over all valid triplets (a, p, n)

Wu, Manmatha, Smola, Kraehenbuehl: "Sampling Matters in Deep Embedding Learning", ICCV 2017, Eq. 7. In the sum over all
triplets a positive counts once per negative of its anchor, and a negative once per positive.

Ranked list loss: positives within a hypersphere around the anchor, negatives outside it by a margin.

    1/2 mean_{P*} [ d_ap - (boundary - margin) ]_+  +  1/2 sum_{N*} w_an [ boundary - d_an ]_+ / sum_{N*} w_an

    w_an = e^{scale (boundary - d_an)}, not differentiated;   P*, N*: the pairs whose hinge is above 0

Wang, Hua, Kodirov, Hu, Garnier, Robertson: "Ranked List Loss for Deep Metric Learning", CVPR 2019. d is the Euclidean
distance of unit vectors. The loss is the mean over anchors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from contml._support.errors import InputError
from contml._support.validation import FiniteFloat, NonNegativeFloat, PositiveFloat, Range, check_ranges
from contml.distances.euclidean import Distance
from contml.labels.base import LabelSpace
from contml.losses.driver import Block, Comparison, PairLoss
from contml.losses.log_sum_exp import log_one_plus_sum_exp, log_sum_exp, shares
from contml.losses.proxies import ClassIndex
from contml.mining import VTHM, Miner

#: Above this x, softplus(x) is x: e^-40 is below the precision of float64, and e^40 within the range of float32.
_LINEAR = 40.0


class ContrastiveLoss(PairLoss):
    """Contrastive loss: pulls positives together and pushes negatives apart up to a margin.

    The loss is the sum over the pairs of an anchor, then the mean over anchors:

        cosine       [s_an - margin]_+      and  -s_ap
        euclidean    [margin - d_an]_+^2    and  d_ap^2      on embeddings that are not normalized

    Hadsell, Chopra, LeCun: "Dimensionality Reduction by Learning an Invariant Mapping", CVPR 2006, Eq. 4, without its
    factor 1/2, is the form of "euclidean".

    Args:
        margin: negatives below this similarity, or beyond this distance, add nothing; null is 0.5 for cosine and 1 for
            euclidean.
        distance: "cosine" or "euclidean".
    """

    @check_ranges
    def __init__(
        self,
        margin: FiniteFloat | None = None,
        distance: Literal["cosine", "euclidean"] = "cosine",
        *,
        miner: Miner | None = None,
    ) -> None:
        super().__init__(miner=miner)
        if margin is None:
            margin = 0.5 if distance == "cosine" else 1.0
        if distance == "cosine" and not -1 <= margin <= 1:
            raise InputError("margin", str(margin), "must be -1 to 1, as a cosine is")
        if distance == "euclidean":
            Range(0).check("margin", margin)
        self.margin, self.distance = margin, distance

    def values(self, block: Block) -> tuple[Tensor, Tensor]:
        """Return the sum over the pairs of each anchor `[A]`, and counts of 1."""
        s = block.scores  # [A,B]
        if self.distance == "cosine":
            value = (block.negative * (s - self.margin).relu() - block.positive * s).sum(1)
        else:
            value = (block.positive * s.square() + block.negative * (self.margin - s).relu().square()).sum(1)
        return value, value.new_ones(len(value))


class LiftedStructureLoss(PairLoss):
    """Generalised lifted structure loss: a hinge on the soft maxima of the positives and of the negatives.

    An anchor without positives or without negatives adds 0.

    Args:
        margin: added inside the hinge.
    """

    @check_ranges
    def __init__(self, margin: NonNegativeFloat = 1.0, *, miner: Miner | None = None) -> None:
        super().__init__(miner=miner)
        self.margin = margin

    def values(self, block: Block) -> tuple[Tensor, Tensor]:
        """Return the hinge of each anchor `[A]`, and counts of 1."""
        pull, has_positive = log_sum_exp(-block.scores, block.positive)
        push, has_negative = log_sum_exp(block.scores, block.negative)
        value = (pull + push + self.margin).relu() * (has_positive & has_negative)
        return value, value.new_ones(len(value))


class _ScaledLoss(PairLoss):
    """Base of the losses with a scale for positives, one for negatives, and a base similarity."""

    @check_ranges
    def __init__(
        self,
        alpha: PositiveFloat = 2.0,
        beta: PositiveFloat = 50.0,
        base: FiniteFloat = 0.5,
        *,
        miner: Miner | None = None,
    ) -> None:
        super().__init__(miner=miner)
        self.alpha, self.beta, self.base = alpha, beta, base


class BinomialDevianceLoss(_ScaledLoss):
    """Binomial deviance: a soft hinge on each pair, averaged over an anchor's positives and over its negatives.

    The value of an anchor is the sum of the two means. With a miner, the means are over the pairs that it keeps, each
    counted with its weight.

    Args:
        alpha: scale of positives, above 0.
        beta: scale of negatives, above 0.
        base: the similarity that positives should be above and negatives below.
        scaled: multiply the mean over positives by 2/alpha and the mean over negatives by 2/beta, as the published code
            does with a miner. The slope of a violated pair is then 2, whatever its scale.
    """

    @check_ranges
    def __init__(
        self,
        alpha: PositiveFloat = 2.0,
        beta: PositiveFloat = 50.0,
        base: FiniteFloat = 0.5,
        scaled: bool = False,
        *,
        miner: Miner | None = None,
    ) -> None:
        super().__init__(alpha, beta, base, miner=miner)
        self.scaled = scaled

    def values(self, block: Block) -> tuple[Tensor, Tensor]:
        """Return the mean over the positives of each anchor plus the mean over its negatives `[A]`, and counts of 1."""
        # A pair is positive or negative: one softplus serves both.
        slope = block.label_distances.sign() * (self.alpha + self.beta) - self.alpha  # [A,B] -alpha or beta
        pull, push = (2 / self.alpha, 2 / self.beta) if self.scaled else (1, 1)
        share = pull * shares(block.positive) + push * shares(block.negative)
        value = (share * F.softplus(slope * (block.scores - self.base), threshold=_LINEAR)).sum(1)
        return value, value.new_ones(len(value))


class RAWLoss(_ScaledLoss):
    """Relative and absolute weights: a pair weighs more if its similarity is wrong, or worse than in other pairs.

    Args:
        alpha: scale of positives, above 0.
        beta: scale of negatives, above 0.
        base: the similarity that positives should be above and negatives below.
    """

    def values(self, block: Block) -> tuple[Tensor, Tensor]:
        """Return the value of each anchor `[A]`, and counts of 1."""
        pull = log_one_plus_sum_exp(self.alpha * (self.base - block.scores), block.positive) / self.alpha
        push = log_one_plus_sum_exp(self.beta * (block.scores - self.base), block.negative) / self.beta
        return pull + push, pull.new_ones(len(pull))


class MultiSimilarityLoss(RAWLoss):
    """Multi-Similarity loss: RAW on the pairs that violate a triplet, which the miner `vthm` keeps.

    Wang, Han, Huang, Dong, Scott: "Multi-Similarity Loss with General Pair Weighting for Deep Metric Learning", CVPR
    2019. The authors' code has beta 40.

    Args:
        alpha: scale of positives, above 0.
        beta: scale of negatives, above 0.
        base: the similarity that positives should be above and negatives below.
        epsilon: keep pairs that miss violating a triplet by less than this similarity, at least 0.
    """

    @check_ranges
    def __init__(
        self,
        alpha: PositiveFloat = 2.0,
        beta: PositiveFloat = 50.0,
        base: FiniteFloat = 0.5,
        epsilon: NonNegativeFloat = 0.1,
    ) -> None:
        super().__init__(alpha, beta, base, miner=VTHM(epsilon))
        self.epsilon = epsilon


#: Added to the squared distance before the square root.
EPSILON = 1e-8


class MarginLoss(PairLoss):
    """Margin loss on unit vectors with a learnable boundary, one for all or one per class.

    Args:
        margin: half the width of the band around the boundary in which pairs are penalised.
        boundary: initial value of the boundary, a Euclidean distance of unit vectors.
        per_class: learn a boundary for each class, and use the boundary of the anchor's class; needs labels that are
            classes.
        num_classes: the number of classes, for per_class.
        class_ids: the ids of the classes `[num_classes]`; default 0 to num_classes - 1.
        miner: weights the pairs before the loss.
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

    def comparison(self, embeddings: Tensor, labels: LabelSpace, anchors: Tensor | None) -> Comparison:
        """Compare the anchors of a batch with its items, and check that the boundaries belong to its classes."""
        if self.index is not None:
            self.index.recognize(labels)
        return super().comparison(embeddings, labels, anchors)

    def values(self, block: Block) -> tuple[Tensor, Tensor]:
        """Return the sum over the valid triplets of each anchor, and the number of its non-zero terms, `[A]` each."""
        d = (block.scores + EPSILON).sqrt()  # [A,B]
        boundary: Tensor = self.boundary if self.index is None else self.boundary[self.index(block.anchor_class)]
        b = boundary.to(d.dtype).reshape(-1, 1)  # [1,1] or [A,1]
        near, far = (d - b + self.margin).relu(), (b - d + self.margin).relu()
        positives, negatives = block.positive.sum(1), block.negative.sum(1)  # [A]
        value = (near * block.positive).sum(1) * negatives + (far * block.negative).sum(1) * positives
        active = ((near > 0) * block.positive).sum(1) * negatives + ((far > 0) * block.negative).sum(1) * positives
        return value, active


#: Weights below e^-80 of the largest do not change the sum, in float64 either.
_MAX_EXPONENT = 80.0


class RankedListLoss(PairLoss):
    """Ranked list loss on unit vectors: positives nearer than boundary - margin, negatives beyond the boundary.

    All violating positives of an anchor have the same weight. Of its violating negatives, nearer ones have more.

    Args:
        boundary: negatives should be farther than this distance, above 0.
        margin: positives should be nearer than boundary - margin.
        scale: multiplies the exponent. A larger scale gives nearer negatives more weight; 0 gives equal weights.
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
        """Return the value of each anchor `[A]`, and counts of 1."""
        d = block.scores  # [A,B]
        near, far = (d - (self.boundary - self.margin)).relu(), (self.boundary - d).relu()
        with torch.no_grad():
            positive_shares = shares(block.positive * near.sign())
            largest = (far * block.negative.sign()).amax(1, keepdim=True)
            hardness = ((far - largest) * self.scale).clamp_(-_MAX_EXPONENT, 0).exp_()
            negative_shares = shares(hardness * block.negative * far.sign())
        value = (near * positive_shares + far * negative_shares).sum(1) / 2
        return value, value.new_ones(len(value))
