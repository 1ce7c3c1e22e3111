"""Distributionally robust pair loss: the expected loss of a pair under the worst distribution over the pairs.

    max_p  sum_ij p_ij l_ij

Qi, Yan, Wu, Wang, Yang: "A Simple and Effective Framework for Pairwise Deep Metric Learning", ECCV 2020. The sum is
over all ordered pairs. By the KKT conditions, the p of each uncertainty set has a closed form:

    topk      p = 1/K on the K largest l                            mean of the top K
    topk_pn   the same on the K/2 largest l of each sign            mean of the selected
    kl        p = e^{l / gamma} / sum e^{l / gamma}                 gamma log mean e^{l / gamma}

    kl_grouped   "kl" in each group, the positives or the negatives of an anchor:
                 1/m sum_i  gamma log mean_{P_i} e^{l / gamma} + gamma log mean_{N_i} e^{l / gamma}

    margin       l = [ margin + y (base - S) ]_+                    y: 1 for positives, -1 for negatives
    binomial     l = 2/alpha log(1 + e^{-alpha (S - base)})         for positives
                 l = 2/beta  log(1 + e^{ beta (S - base)})          for negatives
    similarity   l = -y S

"kl_grouped" with the pair loss "similarity" is DRO-KL-G in the authors' poster. With gamma = 1 it is the lifted
structure loss without its hinge, up to log |P_i| and log |N_i|.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from contml._support.errors import InputError
from contml._support.validation import FiniteFloat, NonNegativeFloat, PositiveFloat, PositiveInt, check_ranges
from contml.losses.driver import Block, PairLoss
from contml.losses.log_sum_exp import log_sum_exp
from contml.mining import Miner


class DROLoss(PairLoss):
    """Distributionally robust optimization (DRO): weights the pairs of a batch by the worst distribution over them.

    Args:
        pair: the loss of a pair: "margin", "binomial", or "similarity", which is -S for positives and S for negatives.
        uncertainty: the distributions that are allowed. "topk" takes the mean of the K largest losses. "topk_pn" takes
            the mean of the K/2 largest of the positives and the K/2 largest of the negatives. "kl" weights each loss by
            e^{l / gamma}. "kl_grouped" does so among the positives of each anchor and among its negatives.
        k: the number of ordered pairs that "topk" and "topk_pn" take. They take all if there are fewer. This number is
            4 times the K of the authors' code.
        gamma: temperature of "kl" and "kl_grouped". A larger gamma makes the weights more even. The paper uses 1 to
            0.001.
        margin: margin of the pair loss "margin".
        base: the similarity that positives should be above and negatives below, for "margin" and "binomial".
        alpha: scale of the positives in the pair loss "binomial".
        beta: scale of the negatives in the pair loss "binomial".
    """

    needs_whole_batch = True

    @check_ranges
    def __init__(
        self,
        pair: Literal["margin", "binomial", "similarity"] = "margin",
        uncertainty: Literal["topk", "topk_pn", "kl", "kl_grouped"] = "topk",
        k: PositiveInt = 400,
        gamma: PositiveFloat = 0.1,
        margin: NonNegativeFloat = 0.2,
        base: FiniteFloat = 0.5,
        alpha: PositiveFloat = 2.0,
        beta: PositiveFloat = 40.0,
        *,
        miner: Miner | None = None,
    ) -> None:
        super().__init__(miner=miner)
        if uncertainty == "topk_pn" and k % 2:
            raise InputError("k", str(k), "must be even", "topk_pn takes half of it from each sign")
        self.pair, self.uncertainty, self.k, self.gamma = pair, uncertainty, k, gamma
        self.margin, self.base, self.alpha, self.beta = margin, base, alpha, beta
        self.needs_whole_batch = uncertainty != "kl_grouped"  # its groups are rows

    def pair_losses(self, block: Block) -> Tensor:
        """Return the loss of each pair, `[A, B]`."""
        positive = block.label_distances == 0
        if self.pair == "similarity":
            return torch.where(positive, -block.scores, block.scores)
        above = block.scores - self.base
        if self.pair == "margin":
            return (self.margin + torch.where(positive, -above, above)).relu()
        pull = logsigmoid(self.alpha * above) * (-2 / self.alpha)
        return torch.where(positive, pull, logsigmoid(-self.beta * above) * (-2 / self.beta))

    def values(self, block: Block) -> tuple[Tensor, Tensor]:
        """Return each anchor's share `[A]` of the loss under the worst distribution, and counts.

        "kl_grouped" has a distribution for each anchor, the other sets one for all pairs.
        """
        losses = self.pair_losses(block)
        if self.uncertainty == "kl_grouped":
            value = self._kl_of_rows(losses, block.positive) + self._kl_of_rows(losses, block.negative)
            return value, torch.ones_like(value)
        if self.uncertainty == "kl":
            return self._kl(losses, block.weights)
        groups = [block.weights] if self.uncertainty == "topk" else [block.positive, block.negative]
        with torch.no_grad():
            group_weights = [top_weights(losses.flatten(), group.flatten(), self.k / len(groups)) for group in groups]
            selected = torch.stack(group_weights).sum(0).view_as(losses)
        return (selected * losses).sum(1), selected.sum(1)

    def _kl_of_rows(self, losses: Tensor, weights: Tensor) -> Tensor:
        """Compute `kl_robust` with a group per row `[A]`.

        It needs no atomic adds: this is faster, and sums in the same order on a GPU.
        """
        log_sum, has_weight = log_sum_exp(losses / self.gamma, weights)
        return self.gamma * (log_sum - weights.sum(1).where(has_weight, 1).log())

    def _kl(self, losses: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Compute `kl_robust` of all pairs, and divide it among the anchors `[A]` by their shares of p.

        Return counts of 0 beside it.
        """
        one_group = torch.zeros_like(losses, dtype=torch.int64)
        total = kl_robust(losses, one_group, self.gamma, weights=weights).sum()
        with torch.no_grad():
            p = (losses / self.gamma + weights.log()).flatten().softmax(0).view_as(losses)
            p = torch.where(weights > 0, p, 0)
        return total * p.sum(1), torch.zeros_like(losses[:, 0])


def kl_robust(
    losses: Tensor, groups: Tensor, gamma: float | Tensor, dummy: bool = False, *, weights: Tensor | None = None
) -> Tensor:
    """Compute `gamma log mean e^{l / gamma}` over each group.

    This is the maximum over p of the expected loss minus gamma KL(p, uniform). Grouped by anchor and sign, two losses
    are special cases, up to a constant. Lifted structure has l = -S for positives, l = S for negatives, and gamma 1.
    RAW has l = base - S and S - base, gamma 1/alpha and 1/beta, and dummy=True.

    Args:
        losses: the losses of the pairs, of any shape.
        groups: the group of each pair, of the same shape: whole numbers from 0. A pair below 0 is in no group.
        gamma: above 0; a number, or one for each group.
        dummy: add a pair of loss 0 to each group.
        weights: the weights of the pairs in the mean, >= 0; default 1.

    Returns:
        One value for each group, `[groups.max() + 1]`. A group without pairs has 0.
    """
    losses, groups = losses.reshape(-1), groups.reshape(-1)
    weights = torch.ones_like(losses) if weights is None else weights.reshape(-1)
    size = int(groups.max()) + 1 if len(groups) else 0
    grouped = (groups >= 0) & (weights > 0)
    losses, groups, weights = losses[grouped], groups[grouped], weights[grouped]
    gamma = torch.as_tensor(gamma, dtype=losses.dtype, device=losses.device).expand(size)
    scaled = losses / gamma[groups]
    start = losses.new_full((size,), 0 if dummy else -torch.inf)
    highest = start.scatter_reduce(0, groups, scaled.detach(), "amax").clamp(min=torch.finfo(losses.dtype).min)
    total = torch.exp(-highest) if dummy else torch.zeros_like(highest)
    total = total.index_add(0, groups, weights * (scaled - highest[groups]).exp())
    count = torch.full_like(highest, float(dummy)).index_add(0, groups, weights)
    empty = count == 0
    log_mean = torch.where(empty, 1, total).log() - torch.where(empty, 1, count).log() + torch.where(empty, 0, highest)
    return gamma * log_mean


def top_weights(losses: Tensor, weights: Tensor, k: float) -> Tensor:
    """Return the part of each pair's weight that belongs to the K largest losses `[N]`.

    The parts sum to K, or to all weights if their sum is less. Losses that tie for the last places share them, so the
    order of the pairs does not matter.
    """
    nonzero = weights[weights > 0]
    if float(nonzero.sum()) <= k:
        return weights
    max_pairs = min(len(nonzero), math.ceil(k / float(nonzero.min())))  # this many pairs weigh at least K
    values, order = losses.masked_fill(weights == 0, -torch.inf).topk(max_pairs)
    threshold = values[(weights[order].cumsum(0) < k).sum().clamp(max=max_pairs - 1)]
    above, tied = weights * (losses > threshold), weights * (losses == threshold)
    return above + tied * ((k - above.sum()) / tied.sum())
