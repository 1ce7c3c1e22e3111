"""Losses that weigh the positive and the negative pairs of an anchor.

    contrastive            1/m sum_i  sum_N [s_ij - margin]_+ - sum_P s_ij
    lifted structure       1/m sum_i  [ log sum_P e^{-s_ij} + log sum_N e^{s_ij} + margin ]_+
    binomial deviance      1/m sum_i  1/|P_i| sum_P log(1 + e^{alpha (base - s_ij)})
                                    + 1/|N_i| sum_N log(1 + e^{beta (s_ij - base)})
    RAW, Multi-Similarity  1/m sum_i  1/alpha log(1 + sum_P e^{-alpha (s_ij - base)})
                                    + 1/beta  log(1 + sum_N e^{beta (s_ij - base)})

"A Unified View of Deep Metric Learning via Gradient Analysis", Eq. 5, 9, 12, 17. The negative term of Eq. 9 is printed
with another sign, which contradicts its own weights, Eq. 10-11; this form has them. Eq. 12 is printed without 1/m. An
anchor without positives or negatives adds 0 on that side (lifted structure: 0 in all) and counts in m.
"""

from __future__ import annotations

import math
from typing import Literal

from torch import Tensor
from torch.nn import functional as F

from contml.contracts import InputError, LabelKind
from contml.losses.log_sum_exp import log_one_plus_sum_exp, log_sum_exp
from contml.losses.rows import Block, RowLoss
from contml.losses.triplet import check_margin
from contml.mining import VTHM, Miner

#: Where softplus(x) is taken to be x: e^-40 is below the precision of float64, e^40 within the range of float32.
_LINEAR = 40.0


def contrastive_rows(block: Block, margin: float) -> tuple[Tensor, Tensor]:
    """Sum of the pairs' terms of each anchor, and 1: `[A]` each. block.s are similarities."""
    value = (block.negative * (block.s - margin).relu() - block.positive * block.s).sum(1)
    return value, value.new_ones(len(value))


def euclidean_contrastive_rows(block: Block, margin: float) -> tuple[Tensor, Tensor]:
    """Sum of d^2 over the positives and [margin - d]_+^2 over the negatives of each anchor, and 1: `[A]` each.

    block.s are Euclidean distances. Hadsell, Chopra, LeCun: "Dimensionality Reduction by Learning an Invariant
    Mapping", CVPR 2006, Eq. 4, without its factor 1/2.
    """
    value = (block.positive * block.s.square() + block.negative * (margin - block.s).relu().square()).sum(1)
    return value, value.new_ones(len(value))


def lifted_structure_rows(block: Block, margin: float) -> tuple[Tensor, Tensor]:
    """Hinge of each anchor, and 1: `[A]` each."""
    pull, has_positive = log_sum_exp(-block.s, block.positive)
    push, has_negative = log_sum_exp(block.s, block.negative)
    value = (pull + push + margin).relu() * (has_positive & has_negative)
    return value, value.new_ones(len(value))


def binomial_deviance_rows(block: Block, alpha: float, beta: float, base: float) -> tuple[Tensor, Tensor]:
    """Mean deviance of each anchor's positives plus that of its negatives, and 1: `[A]` each."""
    # A pair is on one side alone: one softplus serves both.
    slope = block.target.sign() * (alpha + beta) - alpha  # [A,B] -alpha for positives, beta for negatives
    share = block.positive / _or_one(block.positive) + block.negative / _or_one(block.negative)
    value = (share * F.softplus(slope * (block.s - base), threshold=_LINEAR)).sum(1)
    return value, value.new_ones(len(value))


def raw_rows(block: Block, alpha: float, beta: float, base: float) -> tuple[Tensor, Tensor]:
    """Value of each anchor, and 1: `[A]` each."""
    pull = log_one_plus_sum_exp(alpha * (base - block.s), block.positive) / alpha
    push = log_one_plus_sum_exp(beta * (block.s - base), block.negative) / beta
    return pull + push, pull.new_ones(len(pull))


def _or_one(weights: Tensor) -> Tensor:
    total = weights.sum(1, keepdim=True)
    return total.where(total > 0, 1)


class ContrastiveLoss(RowLoss):
    """Contrastive loss: positives together, negatives apart up to a margin.

    Sums over the pairs of an anchor, the mean over anchors. On the unit sphere [s_an - margin]_+ - s_ap; with
    distance="euclidean", of embeddings as they come, d_ap^2 + [margin - d_an]_+^2.

    Args:
        margin: where negatives are left alone: below this similarity, or beyond this distance; null is 0.5 for cosine
            and 1 for euclidean.
        distance: "cosine" or "euclidean".
    """

    labels: LabelKind = "binary"

    def __init__(
        self,
        margin: float | None = None,
        distance: Literal["cosine", "euclidean"] = "cosine",
        *,
        miner: Miner | None = None,
    ) -> None:
        super().__init__(miner=miner)
        if distance not in ("cosine", "euclidean"):
            raise InputError(f"distance is {distance!r}; it must be cosine or euclidean")
        if margin is None:
            margin = 0.5 if distance == "cosine" else 1.0
        if distance == "cosine" and not -1 <= margin <= 1:
            raise InputError(f"margin is {margin}; as a cosine it must be -1 to 1")
        if distance == "euclidean":
            check_margin(margin)
        self.margin, self.distance = margin, distance
        self.similarity = distance

    def rows(self, block: Block) -> tuple[Tensor, Tensor]:
        """Sum over each anchor's pairs."""
        rows = contrastive_rows if self.similarity == "cosine" else euclidean_contrastive_rows
        return rows(block, self.margin)


class LiftedStructureLoss(RowLoss):
    """Lifted structure loss, generalised: a hinge between the soft maximum of positives and that of negatives.

    An anchor without positives or without negatives adds 0.

    Args:
        margin: added inside the hinge.
    """

    labels: LabelKind = "binary"

    def __init__(self, margin: float = 1.0, *, miner: Miner | None = None) -> None:
        super().__init__(miner=miner)
        check_margin(margin)
        self.margin = margin

    def rows(self, block: Block) -> tuple[Tensor, Tensor]:
        """Hinge of each anchor."""
        return lifted_structure_rows(block, self.margin)


class BinomialDevianceLoss(RowLoss):
    """Binomial deviance: a soft hinge on each pair, the mean over an anchor's positives plus that over its negatives.

    Args:
        alpha: scale of positives, above 0.
        beta: scale of negatives, above 0.
        base: the similarity that positives should be above and negatives below.
    """

    labels: LabelKind = "binary"

    def __init__(
        self, alpha: float = 2.0, beta: float = 50.0, base: float = 0.5, *, miner: Miner | None = None
    ) -> None:
        super().__init__(miner=miner)
        _check_scales(alpha, beta, base)
        self.alpha, self.beta, self.base = alpha, beta, base

    def rows(self, block: Block) -> tuple[Tensor, Tensor]:
        """Means over each anchor's positives and negatives, added up."""
        return binomial_deviance_rows(block, self.alpha, self.beta, self.base)


class RAWLoss(RowLoss):
    """Relative and absolute weights: a pair weighs more the worse it is, and the worse it is beside the others.

    Args:
        alpha: scale of positives, above 0.
        beta: scale of negatives, above 0.
        base: the similarity that positives should be above and negatives below.
    """

    labels: LabelKind = "binary"

    def __init__(
        self, alpha: float = 2.0, beta: float = 50.0, base: float = 0.5, *, miner: Miner | None = None
    ) -> None:
        super().__init__(miner=miner)
        _check_scales(alpha, beta, base)
        self.alpha, self.beta, self.base = alpha, beta, base

    def rows(self, block: Block) -> tuple[Tensor, Tensor]:
        """Value of each anchor."""
        return raw_rows(block, self.alpha, self.beta, self.base)


class MultiSimilarityLoss(RAWLoss):
    """Multi-Similarity loss: RAW on the pairs that violate a triplet, kept by the miner vthm.

    Wang, Han, Huang, Dong, Scott: "Multi-Similarity Loss with General Pair Weighting for Deep Metric Learning", CVPR
    2019. The authors' code has beta 40.

    Args:
        alpha: scale of positives, above 0.
        beta: scale of negatives, above 0.
        base: the similarity that positives should be above and negatives below.
        epsilon: how far a pair may be from violating a triplet, at least 0.
    """

    def __init__(self, alpha: float = 2.0, beta: float = 50.0, base: float = 0.5, epsilon: float = 0.1) -> None:
        super().__init__(alpha, beta, base, miner=VTHM(epsilon))
        self.epsilon = epsilon


def _check_scales(alpha: float, beta: float, base: float) -> None:
    for name, scale in (("alpha", alpha), ("beta", beta)):
        if not 0 < scale < math.inf:
            raise InputError(f"{name} is {scale}; it must be above 0")
    if not math.isfinite(base):
        raise InputError(f"base is {base}; it must be a finite number")
