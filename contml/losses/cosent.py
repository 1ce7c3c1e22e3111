"""CoSENT: of any two pairs of items, the one with the smaller label distance is the more similar.

    log ( 1 + sum_{p, q: D_p < D_q} e^{scale (s_q - s_p)} )      over all ordered pairs p, q of an anchor and an item

Su: "CoSENT", 2022. A pair p = (a, i) is compared with the pairs of all anchors, so label distances of different anchors
must be comparable. Per anchor, p and q have the same anchor, and the loss is the mean of one logarithm per anchor: the
smooth form of the dense triplet loss.

Sorting the P pairs by label distance takes O(P log P); the matrix of P x P comparisons is never formed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from contml._support.validation import PositiveFloat, check_ranges
from contml.contracts import Requirement
from contml.losses.driver import Block, PairLoss
from contml.losses.log_sum_exp import refuse_double_backward
from contml.losses.sorted_rows import sort_rows


class CoSENTLoss(PairLoss):
    """CoSENT: pairs with a smaller label distance have a larger cosine similarity, over all pairs of a batch.

    Only the order of label distances is used. A pair of two anchors counts in both directions.

    Args:
        scale: multiplies the differences of similarities, above 0.
        per_anchor: compare only pairs of the same anchor, and take the mean over the anchors.
    """

    requires: Requirement = "any"
    needs_whole_batch = True

    @check_ranges
    def __init__(self, scale: PositiveFloat = 20.0, per_anchor: bool = False) -> None:
        super().__init__()
        self.scale, self.per_anchor = scale, per_anchor
        self.needs_whole_batch = not per_anchor

    def values(self, block: Block) -> tuple[Tensor, Tensor]:
        """The logarithm of each anchor, or that of all pairs `[1]`, and 1."""
        matrices = (self.scale * block.scores, block.label_distances, block.weights > 0)  # [A,B]
        rows = matrices if self.per_anchor else [matrix.reshape(1, -1) for matrix in matrices]
        value: Tensor = _CoSENT.apply(*rows)
        return value, torch.ones_like(value)


class _CoSENT(torch.autograd.Function):
    """`log(1 + sum_{D_p < D_q} e^{x_q - x_p})` over the members of each row, `[A]`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, label_distances: Tensor, member: Tensor) -> Tensor:
        rows = sort_rows(label_distances, member)  # farthest first
        x, member = x.gather(1, rows.order), member.gather(1, rows.order)
        farther, nearer = x.masked_fill(~member, -torch.inf), (-x).masked_fill_(~member, -torch.inf)
        terms = rows.before(farther, strict=True).add_(nearer)  # [A,B] log sum_q e^{x_q - x_p} for each p
        total = terms.logsumexp(1).logaddexp(terms.new_zeros(()))
        as_nearer = (terms - total[:, None]).exp_()
        as_farther = rows.after(nearer - total[:, None], strict=True).add_(farther).exp_()
        ctx.save_for_backward(rows.by_column(as_farther - as_nearer))
        return total

    @staticmethod
    def backward(ctx: Any, value: Tensor) -> tuple[Tensor | None, ...]:
        refuse_double_backward()
        (gradient,) = ctx.saved_tensors
        return gradient * value[:, None], None, None
