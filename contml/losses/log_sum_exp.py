"""Weighted log-sum-exp of rows. The forward pass saves the gradient, which is the softmax of the row."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from contml.losses.driver import refuse_double_backward

#: Terms below e^-80 of the largest do not change the sum, in float64 either; e^80 is within the range of float32.
#: Without the limit, terms would be subnormal or come from -inf, for which a CPU takes ten times as long.
_MAX_EXPONENT = 80.0


def log_one_plus_sum_exp(x: Tensor, weights: Tensor) -> Tensor:
    """Compute `log(1 + sum w e^x)` over the last axis: `[A, B]` to `[A]`.

    Where all w are 0, the value and its gradient are 0. x `[A, B]` is finite, of any size. weights `[A, B]` are >= 0,
    or bool.
    """
    return _LogOnePlusSumExp.apply(x, weights.to(x.dtype))


def log_sum_exp(x: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Compute `log(sum w e^x)` over the last axis, `[A]`. Also return True where any w is above 0, bool `[A]`.

    Where all w are 0, the value and its gradient are 0. x `[A, B]` is finite, of any size. weights `[A, B]` are >= 0,
    or bool.
    """
    return _LogSumExp.apply(x, weights.to(x.dtype))


def shares(weights: Tensor) -> Tensor:
    """Return `w / sum w` over the last axis of `[A, B]`. Return 0 in a row where all w are 0."""
    total = weights.sum(1, keepdim=True)
    return weights / total.where(total > 0, 1)


def softmax_of_members(x: Tensor, member: Tensor) -> Tensor:
    """Return the softmax of the members (bool `[A, B]`) of each row. All other entries are 0."""
    x = x.masked_fill(~member, -torch.inf)
    return shares((x - x.amax(1, keepdim=True).clamp(min=torch.finfo(x.dtype).min)).exp())


class _LogSumExp(torch.autograd.Function):
    """Log-sum-exp with weights: three times as fast as a masked `logsumexp` with terms of -inf at weight 0."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        maximum = _maximum(x, weights)
        terms = _terms(x, weights, maximum)
        total = terms.sum(1, keepdim=True)
        has_weight = total != 0  # NaN is not 0: it stays
        safe_total = total.where(has_weight, 1)
        ctx.save_for_backward(terms, has_weight / safe_total)
        ctx.mark_non_differentiable(has_weight := has_weight.squeeze(1))
        return (maximum + safe_total.log()).squeeze(1).where(has_weight, 0), has_weight

    @staticmethod
    def backward(ctx: Any, value: Tensor, _positive: Tensor) -> tuple[Tensor | None, ...]:
        refuse_double_backward()
        terms, share = ctx.saved_tensors
        return terms * (value[:, None] * share), None


class _LogOnePlusSumExp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weights: Tensor) -> Tensor:
        maximum = _maximum(x, weights).clamp_(min=0)
        terms = _terms(x, weights, maximum)
        total = terms.sum(1, keepdim=True).add_((-maximum).exp_())  # above 0: the largest term is in it, or 1
        ctx.save_for_backward(terms, total)
        return (maximum + total.log()).squeeze(1)

    @staticmethod
    def backward(ctx: Any, value: Tensor) -> tuple[Tensor | None, ...]:
        refuse_double_backward()
        terms, total = ctx.saved_tensors
        return terms * (value[:, None] / total), None


def _maximum(x: Tensor, weights: Tensor) -> Tensor:
    """Return the largest x with a weight in each row `[A, 1]`. Return -inf if all weights of the row are 0."""
    return x.masked_fill(weights == 0, -torch.inf).amax(1, keepdim=True)


def _terms(x: Tensor, weights: Tensor, maximum: Tensor) -> Tensor:
    """Return `w e^(x - maximum)`, `[A, B]`."""
    return (x - maximum).clamp_(-_MAX_EXPONENT, _MAX_EXPONENT).exp_().mul_(weights)
