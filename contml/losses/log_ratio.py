"""Log-ratio loss: ratios of embedding distances follow the ratios of label distances.

    l(a, i, j) = ( log D(f_a, f_i) / D(f_a, f_j) - log D_y(a, i) / D_y(a, j) )^2

Kim, Seo, Laptev, Cho, Kwak: "Deep Metric Learning Beyond Binary Supervision", CVPR 2019, Eq. 3-4.
Let r_i = log D(f_a, f_i) - log D_y(a, i). Then l is (r_i - r_j)^2, and the mean of l over all pairs i < j of an
anchor's items is twice the unbiased variance of r. So no list of triplets is needed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from contml._support.validation import PositiveFloat, check_ranges
from contml.contracts import Requirement
from contml.losses.driver import Block, PairLoss, refuse_double_backward

#: Added to both distances inside the logarithm, as in the authors' code.
EPSILON = 1e-6


class LogRatioLoss(PairLoss):
    """Log-ratio loss over dense triplets, for graded labels.

    The loss is the mean over the triplets of an anchor, then over the anchors. An anchor needs at least two items at a
    label distance above 0. Items at label distance 0 are left out, so class labels are refused. Embeddings are not
    normalized, as in the paper.

    Args:
        squared: squared Euclidean embedding distance, as in the paper; False: plain Euclidean, as in the authors' code.
        label_power: the power of label distances, above 0. The default is 2 if `squared`, else 1: plain embedding
            distances then become proportional to plain label distances. The paper's form for 1 - mIoU and for Word
            Mover's Distance is `squared=True, label_power=1`. With the default power, `squared` multiplies the loss by
            4, apart from `EPSILON`: Adam and AdamW then train alike. A power that float32 cannot hold makes the loss
            infinite or NaN.
        strict: use only triplets with D_y(a, i) < D_y(a, j), exactly as in the paper. False keeps ties too: items at
            equal label distances are pulled to equal embedding distances.
    """

    requires: Requirement = "graded"

    @check_ranges
    def __init__(self, squared: bool = True, label_power: PositiveFloat | None = None, strict: bool = False) -> None:
        super().__init__()
        self.squared, self.label_power, self.strict = squared, label_power, strict
        self.distance = "squared_euclidean" if squared else "euclidean"

    def values(self, block: Block) -> tuple[Tensor, Tensor]:
        """Return the mean over the dense triplets of each anchor `[A]`, and 1 where the anchor has any."""
        # Items at label distance 0 are left out.
        member = (block.label_distances > 0).to(block.weights.dtype).mul_(block.weights)  # [A,B]
        power = self.label_power or (2 if self.squared else 1)
        return _LogRatio.apply(block.scores, block.label_distances, member, power, self.strict)


class _LogRatio(torch.autograd.Function):
    """The formula with its gradient in closed form, in a third of autograd's passes over `[A, B]`.

    With n members, r_i as above and c_i = r_i - mean(r): sum_{i<j} (r_i - r_j)^2 = n sum c_i^2, d/dr_i = 2 n c_i.
    """

    @staticmethod
    def forward(
        ctx: Any, s: Tensor, label_distances: Tensor, member: Tensor, power: float, strict: bool
    ) -> tuple[Tensor, Tensor]:
        inside = s + EPSILON  # [A,B]
        c = inside.log()
        powers = label_distances if power == 1 else label_distances**power
        c.sub_((powers + EPSILON).log_()).mul_(member)
        n = member.sum(1)  # [A]
        c.sub_((c.sum(1) / n.clamp(min=1))[:, None]).mul_(member)
        total, pairs = n * torch.linalg.vector_norm(c, dim=1).square_(), n * (n - 1) / 2
        half_gradient = c * n[:, None] if strict else c.mul_(n[:, None])  # half of d total / dr
        if strict:
            tied_total, tied_pairs, tied_half_gradient = _within_ties(c, member, label_distances)
            total, pairs = total - tied_total, pairs - tied_pairs
            half_gradient -= tied_half_gradient
        has_pairs = pairs > 0
        divisor = torch.where(has_pairs, pairs, 1)
        ctx.save_for_backward(half_gradient.div_(inside), has_pairs / divisor)
        counts = has_pairs.to(total.dtype)
        ctx.mark_non_differentiable(counts)
        return total / divisor * has_pairs, counts

    @staticmethod
    def backward(ctx: Any, values: Tensor, _counts: Tensor) -> tuple[Tensor | None, ...]:
        refuse_double_backward()
        half_gradient, share = ctx.saved_tensors
        return half_gradient * (2 * values * share)[:, None], None, None, None, None


def _within_ties(c: Tensor, member: Tensor, label_distances: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sum (r_i - r_j)^2 over the pairs of equal label distance `[A]`.

    Also return the number of these pairs `[A]`, and half the gradient of the sum `[A, B]`.
    """
    sorted_distances, order = label_distances.sort(1)
    group = torch.zeros_like(order)
    group[:, 1:] = (sorted_distances[:, 1:] != sorted_distances[:, :-1]).cumsum(1)
    group = torch.empty_like(group).scatter_(1, order, group)  # [A,B] the group of ties of an item

    def sums(values: Tensor) -> Tensor:  # [A,B] by item to [A,B] by group
        return torch.zeros_like(values).scatter_add_(1, group, values)

    n, sum_c, sum_c2 = sums(member), sums(c), sums(c * c)
    half_gradient = (n.gather(1, group) * c - sum_c.gather(1, group)) * member
    return (n * sum_c2 - sum_c * sum_c).sum(1), (n * (n - 1) / 2).sum(1), half_gradient
