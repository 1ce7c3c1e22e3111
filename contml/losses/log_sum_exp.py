"""Weighted log-sum-exp of rows, whose gradient is kept from the forward pass: the softmax of the row."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

#: Beside the largest term, one of e^-80 is nothing, in float64 as well; e^80 is within the range of float32. Smaller
#: results would be subnormal, or come from -inf: a processor takes ten times as long for those.
_RANGE = 80.0


def log_one_plus_sum_exp(x: Tensor, weights: Tensor) -> Tensor:
    """`log(1 + sum w e^x)` over the last axis: `[A, B]` to `[A]`; where all w are 0 it is 0, with gradient 0.

    x `[A, B]`: finite; weights `[A, B]`: >= 0, or bool.
    """
    value: Tensor = _LogSumExp.apply(x, weights.to(x.dtype), True)[0]
    return value


def log_sum_exp(x: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """`log(sum w e^x)` over the last axis, and whether any w is above 0: `[A, B]` to `[A]` each.

    Where all w are 0 it is 0, with gradient 0. x `[A, B]`: finite; weights `[A, B]`: >= 0, or bool.
    """
    result: tuple[Tensor, Tensor] = _LogSumExp.apply(x, weights.to(x.dtype), False)
    return result


class _LogSumExp(torch.autograd.Function):
    """A third of the time that masks and `logsumexp` take, whose terms are -inf where the weight is 0."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weights: Tensor, one: bool) -> tuple[Tensor, Tensor]:
        low = x.amin(1, keepdim=True)  # [A,1]
        top = (x - low).mul_(weights.sign()).amax(1, keepdim=True).add_(low)  # of the terms that weigh something
        if one:
            top.clamp_(min=0)
        terms = (x - top).clamp_(-_RANGE, _RANGE).exp_().mul_(weights)  # [A,B]
        total = terms.sum(1, keepdim=True)
        if one:
            total += (-top).exp()
        some = total > 0
        safe = total.where(some, 1)
        ctx.save_for_backward(terms, some / safe)
        ctx.mark_non_differentiable(some := some.squeeze(1))
        return (top + safe.log()).squeeze(1) * some, some

    @staticmethod
    def backward(ctx: Any, value: Tensor, _some: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError("log-sum-exp has no double backward: leave out create_graph=True")
        terms, share = ctx.saved_tensors
        return terms * (value[:, None] * share), None, None
