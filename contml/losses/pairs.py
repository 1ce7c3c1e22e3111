"""Losses that weigh the positive and the negative pairs of an anchor.

    contrastive            1/m sum_i  sum_N [s_ij - margin]_+ - sum_P s_ij
    lifted structure       1/m sum_i  [ log sum_P e^{-s_ij} + log sum_N e^{s_ij} + margin ]_+
    binomial deviance      1/m sum_i  1/|P_i| sum_P log(1 + e^{alpha (base - s_ij)})
                                    + 1/|N_i| sum_N log(1 + e^{beta (s_ij - base)})
    RAW, Multi-Similarity  1/m sum_i  1/alpha log(1 + sum_P e^{-alpha (s_ij - base)})
                                    + 1/beta  log(1 + sum_N e^{beta (s_ij - base)})

"A Unified View of Deep Metric Learning via Gradient Analysis", Eq. 5, 9, 12, 17. The paper prints the negative term of
Eq. 9 with the other sign, which contradicts its weights, Eq. 10-11; the form here has these weights. It prints Eq. 12
without 1/m. With a miner, P_i and N_i are the pairs that it keeps, also in |P_i| and |N_i|, as in the published code.
For an anchor without positives (or negatives) the term of the positives (or negatives) is 0, for lifted structure its
whole value; the anchor counts in m.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor
from torch.nn import functional as F

from contml._support.errors import InputError
from contml._support.validation import (
    FiniteFloat,
    NonNegativeFloat,
    PositiveFloat,
    Range,
    check_ranges,
)
from contml.losses.driver import Block, PairLoss
from contml.losses.log_sum_exp import log_one_plus_sum_exp, log_sum_exp, shares
from contml.mining import VTHM, Miner

#: Above this x, softplus(x) is x: e^-40 is below the precision of float64, and e^40 within the range of float32.
_LINEAR = 40.0


class ContrastiveLoss(PairLoss):
    """Contrastive loss: pulls positives together and pushes negatives apart up to a margin.

    The sum over the pairs of an anchor, then the mean over anchors. With distance="cosine" the terms are
    [s_an - margin]_+ and -s_ap; with distance="euclidean", of unnormalized embeddings, [margin - d_an]_+^2 and d_ap^2
    (Hadsell, Chopra, LeCun: "Dimensionality Reduction by Learning an Invariant Mapping", CVPR 2006, Eq. 4, without its
    factor 1/2).

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
        """Sum over the pairs of each anchor, and 1."""
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
        """Hinge of each anchor, and 1."""
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
    """Binomial deviance: a soft hinge on each pair, the mean over an anchor's positives plus that over its negatives.

    With a miner, the means are over the pairs that it keeps, each counted with its weight.

    Args:
        alpha: scale of positives, above 0.
        beta: scale of negatives, above 0.
        base: the similarity that positives should be above and negatives below.
        scaled: multiply the mean over positives by 2/alpha and that over negatives by 2/beta, as the published code
            does with a miner: the slope of a violated pair is then 2, whatever its scale.
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
        """Mean over the positives of each anchor plus the mean over its negatives, and 1."""
        # A pair is positive or negative: one softplus serves both.
        slope = block.label_distances.sign() * (self.alpha + self.beta) - self.alpha  # [A,B] -alpha or beta
        pull, push = (2 / self.alpha, 2 / self.beta) if self.scaled else (1, 1)
        share = pull * shares(block.positive) + push * shares(block.negative)
        value = (share * F.softplus(slope * (block.scores - self.base), threshold=_LINEAR)).sum(1)
        return value, value.new_ones(len(value))


class RAWLoss(_ScaledLoss):
    """Relative and absolute weights: a pair weighs more the worse it is by itself, and compared with the other pairs.

    Args:
        alpha: scale of positives, above 0.
        beta: scale of negatives, above 0.
        base: the similarity that positives should be above and negatives below.
    """

    def values(self, block: Block) -> tuple[Tensor, Tensor]:
        """Value of each anchor, and 1."""
        pull = log_one_plus_sum_exp(self.alpha * (self.base - block.scores), block.positive) / self.alpha
        push = log_one_plus_sum_exp(self.beta * (block.scores - self.base), block.negative) / self.beta
        return pull + push, pull.new_ones(len(pull))


class MultiSimilarityLoss(RAWLoss):
    """Multi-Similarity loss: RAW on the pairs that violate a triplet, which the miner vthm keeps.

    Wang, Han, Huang, Dong, Scott: "Multi-Similarity Loss with General Pair Weighting for Deep Metric Learning", CVPR
    2019. The authors' code has beta 40.

    Args:
        alpha: scale of positives, above 0.
        beta: scale of negatives, above 0.
        base: the similarity that positives should be above and negatives below.
        epsilon: how far a pair may be from violating a triplet, at least 0.
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
