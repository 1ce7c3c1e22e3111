"""Rows of vectors on the unit sphere, for every norm that their dtype can hold."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor


def full_precision(x: Tensor) -> Tensor:
    """Convert to float32, except float64, which stays: half precision never enters a distance."""
    return x if x.dtype == torch.float64 else x.float()


def normalize(x: Tensor) -> Tensor:
    """Rows of x `[N, d]` on the unit sphere, in float32 (float64 for float64); gradients are right at every norm.

    A zero row stays zero and gets no gradient. A row with a norm below 1e-34 (1e-270 in float64) becomes zero and gets
    no gradient either: the gradient is divided by the norm and could overflow.
    """
    x = full_precision(x)
    # The squares of very large or small rows would overflow or underflow: these rows are multiplied by a power of 2
    # first, which is exact. The factor of all other rows is 1.
    _, exponent = math.frexp(torch.finfo(x.dtype).max)  # 128 or 1024
    limit = 2.0 ** (exponent * 3 // 8)
    norm = torch.linalg.vector_norm(x.detach(), dim=-1, keepdim=True)  # [N,1]
    # On a GPU, the test of the norms would wait for it; a graph has no place for it.
    tested = x.requires_grad and x.device.type == "cpu" and x.numel() > 0 and not torch.compiler.is_compiling()
    if tested and _all_within(norm, 1 / limit, limit):
        in_range: Tensor = _Unit.apply(x, norm)
        return in_range
    scale = torch.ones_like(norm).masked_fill_(norm > limit, 2.0 ** -(exponent * 5 // 8))
    x = x * scale.masked_fill_(norm < 1 / limit, 2.0 ** (exponent // 2))
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    positive = norm >= 0.5 / limit
    unit: Tensor = x * (positive / torch.where(positive, norm, 1))
    return unit


def _all_within(norm: Tensor, low: float, high: float) -> bool:
    """Whether all norms are between these two; not if one is NaN."""
    least, largest = torch.aminmax(norm)
    return float(least) >= low and float(largest) <= high


class _Unit(torch.autograd.Function):
    """`x / |x|` where the norms `[N, 1]` need no care, with the gradient in closed form: (g - u (g . u)) / |x|."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, norm: Tensor) -> Tensor:
        inverse = norm.reciprocal()
        unit = x * inverse
        ctx.save_for_backward(x, unit, inverse)
        return unit

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        x, unit, inverse = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a double backward
            inverse = torch.linalg.vector_norm(x, dim=-1, keepdim=True).reciprocal()
            unit = x * inverse
        along = (gradient * unit).sum(-1, keepdim=True)
        return torch.addcmul(gradient, unit, along, value=-1) * inverse, None
