"""Distributionally robust pair loss: the pairs of a batch are weighed as the worst distribution over them would.

    max_p  sum_ij p_ij l_ij

Qi, Yan, Wang, Wu, Yan, Yang: "A Simple and Effective Framework for Pairwise Deep Metric Learning". Over all ordered
pairs, with the p of each uncertainty set in closed form from its KKT conditions:

    topk      p = 1/K on the K largest l                            mean of the top K
    topk_pn   the same on the K/2 largest l of each sign            mean of the selected
    kl        p = e^{l / gamma} / sum e^{l / gamma}                 gamma log mean e^{l / gamma}

    margin    l = [ margin + y (base - S) ]_+                       y: 1 for positives, -1 for negatives
    binomial  l = 2/alpha log(1 + e^{-alpha (S - base)})            for positives
              l = 2/beta  log(1 + e^{ beta (S - base)})             for negatives
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from contml._support.errors import InputError
from contml._support.validation import check_at_least, check_choice, check_positive
from contml.losses.driver import Block, PairLoss
from contml.mining import Miner


class DROLoss(PairLoss):
    """Distributionally robust pair loss (DRO): the worst distribution over all pairs of the batch weighs their losses.

    Args:
        pair: the loss of a pair, "margin" or "binomial".
        uncertainty: which distributions are allowed: "topk" takes the mean of the K largest losses, "topk_pn" that of
            the K/2 largest of the positives and the K/2 largest of the negatives, "kl" weighs each by e^{l / gamma}.
        k: how many ordered pairs "topk" and "topk_pn" take (the authors' code counts a quarter of that); of fewer,
            all.
        gamma: of "kl": the larger, the more evenly pairs are weighed.
        margin: of the pair loss "margin".
        base: the similarity that both pair losses are about.
        alpha: scale of the positives in the pair loss "binomial".
        beta: scale of the negatives in the pair loss "binomial".
    """

    whole: ClassVar[bool] = True

    def __init__(
        self,
        pair: Literal["margin", "binomial"] = "margin",
        uncertainty: Literal["topk", "topk_pn", "kl"] = "topk",
        k: int = 400,
        gamma: float = 0.1,
        margin: float = 0.2,
        base: float = 0.5,
        alpha: float = 2.0,
        beta: float = 40.0,
        *,
        miner: Miner | None = None,
    ) -> None:
        super().__init__(miner=miner)
        check_choice(("margin", "binomial"), pair=pair)
        check_choice(("topk", "topk_pn", "kl"), uncertainty=uncertainty)
        check_at_least(1, k=k)
        if uncertainty == "topk_pn" and k % 2:
            raise InputError(f"k is {k}; topk_pn takes half of it from each sign, so it must be even")
        check_positive(gamma=gamma, alpha=alpha, beta=beta)
        check_at_least(0, margin=margin)
        self.pair, self.uncertainty, self.k, self.gamma = pair, uncertainty, k, gamma
        self.margin, self.base, self.alpha, self.beta = margin, base, alpha, beta

    def pair_losses(self, block: Block) -> Tensor:
        """The loss of each pair by itself, `[A, B]`."""
        above, positive = block.scores - self.base, block.label_distances == 0
        if self.pair == "margin":
            return (self.margin + torch.where(positive, -above, above)).relu()
        pull = logsigmoid(self.alpha * above) * (-2 / self.alpha)
        return torch.where(positive, pull, logsigmoid(-self.beta * above) * (-2 / self.beta))

    def values(self, block: Block) -> tuple[Tensor, Tensor]:
        """The share of each anchor in the worst case; the block holds all anchors."""
        losses = self.pair_losses(block)
        if self.uncertainty == "kl":
            return self._kl(losses, block.weights)
        groups, k = (
            ([block.weights], self.k) if self.uncertainty == "topk" else ([block.positive, block.negative], self.k / 2)
        )
        with torch.no_grad():
            flat = losses.flatten()
            taken = torch.stack([top_weights(flat, group.flatten(), k) for group in groups]).sum(0).view_as(losses)
        return (taken * losses).sum(1), taken.sum(1)

    def _kl(self, losses: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """`kl_robust` of all pairs, spread over the anchors `[A]` by their shares of p, and counts of 0."""
        everything = torch.zeros_like(losses, dtype=torch.int64)
        total = kl_robust(losses, everything, self.gamma, weights=weights).sum()
        with torch.no_grad():
            p = (losses / self.gamma + weights.log()).flatten().softmax(0).view_as(losses)
            p = torch.where(weights > 0, p, 0)
        return total * p.sum(1), torch.zeros_like(losses[:, 0])


def kl_robust(
    losses: Tensor, groups: Tensor, gamma: float | Tensor, dummy: bool = False, *, weights: Tensor | None = None
) -> Tensor:
    """`gamma log mean e^{l / gamma}` over the losses of each group: the worst distribution, less gamma KL(p, uniform).

    Grouped by anchor and sign it is lifted structure and RAW, up to a constant: l = -S for positives and S for
    negatives, and gamma 1; or l = base - S and S - base, gamma 1/alpha and 1/beta, and a dummy.

    Args:
        losses: of the pairs, of any shape.
        groups: which group each belongs to, of the same shape: whole numbers from 0; below 0: to none.
        gamma: above 0; a number, or one for each group.
        dummy: with one more pair, of loss 0, in each group.
        weights: of the pairs in the mean, >= 0.

    Returns:
        One value for each group, `[groups.max() + 1]`; a group without pairs has 0.
    """
    losses, groups = losses.reshape(-1), groups.reshape(-1)
    weights = torch.ones_like(losses) if weights is None else weights.reshape(-1)
    size = int(groups.max()) + 1 if len(groups) else 0
    member = (groups >= 0) & (weights > 0)
    losses, groups, weights = losses[member], groups[member], weights[member]
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
    """How much of its weight each pair has among the K largest losses `[N]`; it sums to K, or to all there is.

    Losses that tie for the last places share them, so that the order of the pairs does not count.
    """
    present = weights[weights > 0]
    if float(present.sum()) <= k:
        return weights
    most = min(len(present), math.ceil(k / float(present.min())))  # so many pairs weigh K at least
    values, order = losses.masked_fill(weights == 0, -torch.inf).topk(most)
    last = values[(weights[order].cumsum(0) < k).sum().clamp(max=most - 1)]
    above, tied = weights * (losses > last), weights * (losses == last)
    return above + tied * ((k - above.sum()) / tied.sum())
