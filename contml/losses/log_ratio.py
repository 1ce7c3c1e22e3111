"""Log-ratio loss: distances of embeddings follow the distances of labels, ratio by ratio.

    l(a, i, j) = ( log D(f_a, f_i) / D(f_a, f_j) - log D_y(a, i) / D_y(a, j) )^2

Kim, Seo, Laptev, Cho, Kwak: "Deep Metric Learning Beyond Binary Supervision", CVPR 2019, Eq. 3-4.
With r_i = log D(f_a, f_i) - log D_y(a, i) it is (r_i - r_j)^2, and the mean over all pairs i < j of an anchor's items
is twice the unbiased variance of r: no triplet is ever formed.
"""

from __future__ import annotations

import torch
from torch import Tensor

from contml.contracts import LabelKind, LabelView
from contml.losses.rows import Block, RowLoss

#: Added to both distances inside the logarithm, as in the authors' code.
EPSILON = 1e-6


def log_ratio_rows(block: Block, strict: bool = False) -> tuple[Tensor, Tensor]:
    """Mean log-ratio loss over the dense triplets of each anchor `[A]`, and 1 where it has any.

    Items at label distance 0 leave the anchor's set. Ties in label distance are kept; `strict` leaves them out.
    """
    member = block.without_self((block.target > 0).to(block.s.dtype))  # [A,B]
    r = (block.s + EPSILON).log() - (block.target + EPSILON).log()  # [A,B]
    n = member.sum(1)  # [A]
    mean = (r.detach() * member).sum(1) / n.clamp(min=1)
    # The mean is not differentiated: sum (r - mean) = 0, so the derivative through it is 0.
    centred = (r - mean[:, None]) * member
    total = n * centred.square().sum(1)  # sum_{i<j} (r_i - r_j)^2
    pairs = n * (n - 1) / 2
    if strict:
        tied_total, tied_pairs = _within_ties(centred, member, block.target)
        total, pairs = total - tied_total, pairs - tied_pairs
    counted = pairs > 0
    return torch.where(counted, total / torch.where(counted, pairs, 1), 0), counted.to(total.dtype)


def _within_ties(centred: Tensor, member: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Sum of (r_i - r_j)^2 over the pairs of equal label distance, and their number: `[A]` each."""
    ordered, order = target.sort(1)
    group = torch.zeros_like(order)
    group[:, 1:] = (ordered[:, 1:] != ordered[:, :-1]).cumsum(1)

    def sums(values: Tensor) -> Tensor:  # [A,B] by item to [A,B] by group
        return torch.zeros_like(values).scatter_add(1, group, values.gather(1, order))

    n = sums(member)
    total = n * sums(centred.square()) - sums(centred).square()
    return total.sum(1), (n * (n - 1) / 2).sum(1)


class LogRatioLoss(RowLoss):
    """Log-ratio loss over dense triplets, for labels that are a matter of degree.

    The mean over the triplets of an anchor, then over the anchors that have at least two items at a label distance
    above 0. Embeddings are taken as they come: no L2 normalisation in the paper.

    Args:
        squared: squared Euclidean embedding distance, as in the paper; False: plain Euclidean, as in the authors' code,
            to go with plain label distances.
        strict: only triplets with D_y(a, i) < D_y(a, j), exactly as in the paper; False keeps ties, which pull equal
            label distances to equal embedding distances.
    """

    labels: LabelKind = "distances"

    def __init__(self, squared: bool = True, strict: bool = False) -> None:
        super().__init__()
        self.squared, self.strict = squared, strict
        self.similarity = "squared_euclidean" if squared else "euclidean"

    def rows(self, block: Block) -> tuple[Tensor, Tensor]:
        """Mean over each anchor's dense triplets."""
        return log_ratio_rows(block, self.strict)


def log_ratio_loss(
    embeddings: Tensor,
    labels: Tensor | LabelView,
    *,
    anchors: Tensor | None = None,
    squared: bool = True,
    strict: bool = False,
) -> Tensor:
    """`LogRatioLoss` as a function."""
    loss: Tensor = LogRatioLoss(squared, strict)(embeddings, labels, anchors=anchors)
    return loss
