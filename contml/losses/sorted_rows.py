"""Log-sum-exps over the items beyond each item of a row: O(B log B) per row, by sorting and cumulative sums.

    beyond(j) = { k : key_k >= key_j }     with ties;     { k : key_k > key_j }     strictly

A row is sorted by key, largest first; `logcumsumexp` then has the sums of all prefixes, and a run of equal keys is read
at its last (strictly: before its first) entry.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from contml.losses.log_sum_exp import refuse_double_backward


class SortedRows(NamedTuple):
    """The order of the rows of a matrix, largest key first.

    order `[A, B]`: the columns in this order, non-members last; first, last `[A, B]`: the first position and that after
    the last of the run of equal keys that a position is in.
    """

    order: Tensor
    first: Tensor
    last: Tensor

    def before(self, x: Tensor, strict: bool) -> Tensor:
        """`log sum e^x` over the entries with a larger key, or also an equal one if not strict, `[A, B]` by position.

        x `[A, B]`, by position, -inf for non-members; -inf where there is no entry.
        """
        sums = torch.cat((x.new_full((len(x), 1), -torch.inf), x.logcumsumexp(1)), 1)  # [A,B+1]
        return sums.gather(1, self.first if strict else self.last)

    def after(self, x: Tensor, strict: bool) -> Tensor:
        """`log sum e^x` over the entries with a smaller key, or also an equal one if not strict, `[A, B]`."""
        sums = torch.cat((x.flip(1).logcumsumexp(1).flip(1), x.new_full((len(x), 1), -torch.inf)), 1)  # [A,B+1]
        return sums.gather(1, self.last if strict else self.first)

    def by_column(self, x: Tensor) -> Tensor:
        """Entries by position, in the order of the columns, `[A, B]`."""
        return torch.empty_like(x).scatter_(1, self.order, x)


def sort_rows(key: Tensor, member: Tensor) -> SortedRows:
    """The order of the members (bool `[A, B]`) of each row by key `[A, B]`, finite."""
    keys, order = (-key).masked_fill_(~member, torch.inf).sort(1)
    return SortedRows(order, torch.searchsorted(keys, keys), torch.searchsorted(keys, keys, right=True))


def ranked_cross_entropy(x: Tensor, key: Tensor, share: Tensor, member: Tensor, *, strict: bool) -> Tensor:
    """`sum_j share_j ( log sum_{k beyond j} e^{x_k} - x_j )` over the members of each row, `[A]`.

    A member with nothing beyond it adds 0. x, key, share `[A, B]`: share >= 0 and not differentiated; member `[A, B]`:
    bool.
    """
    value: Tensor = _RankedCrossEntropy.apply(x, key, share, member, strict)
    return value


class _RankedCrossEntropy(torch.autograd.Function):
    """The gradient `e^{x_k} sum_{j: k beyond j} share_j / sum_j` needs the same sums from the other end."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, key: Tensor, share: Tensor, member: Tensor, strict: bool) -> Tensor:
        rows = sort_rows(key, member)
        sorted_x = x.masked_fill(~member, -torch.inf).gather(1, rows.order)
        sums = rows.before(sorted_x, strict)  # [A,B] log sum of each item's denominator
        counted = member.gather(1, rows.order)
        if strict:
            counted &= rows.first > 0
        share = share.gather(1, rows.order) * counted
        gradient = rows.after((share.log() - sums).masked_fill_(share == 0, -torch.inf), strict)
        gradient = gradient.add_(sorted_x).exp_().sub_(share)
        ctx.save_for_backward(rows.by_column(gradient))
        return (share * (sums - sorted_x).masked_fill_(~counted, 0)).sum(1)

    @staticmethod
    def backward(ctx: Any, value: Tensor) -> tuple[Tensor | None, ...]:
        refuse_double_backward()
        (gradient,) = ctx.saved_tensors
        return gradient * value[:, None], None, None, None, None
