"""Similarities and distances of embeddings, and of label vectors and poses.

Squared Euclidean distances are one matrix product of *lifted* rows and columns,

    D(x, y) = [-2 x, |x|^2, 1] . [y, 1, |y|^2]

which needs no extra pass over the `[N, M]` block. Where |x - y|^2 is small compared with |x|^2 + |y|^2, the product
cancels. These entries are recomputed by subtraction, so the relative error stays below 1e-3 in float32 at every scale.
An offset that all rows share would make every entry cancel. If subtracting the offset is exact, it is subtracted first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

Distance: TypeAlias = Literal["cosine", "dot", "squared_euclidean", "euclidean"]

#: Entries below this share of |x|^2 + |y|^2 are recomputed. The error of the product is about sqrt(d) eps of that sum:
#: 3e-6 in float32 at d = 2,048, which is a relative error of at most 7e-4. In float64 it is 1e-8.
_CANCELS = {torch.float32: 2.0**-8, torch.float64: 2.0**-20}
#: Above this share of cancelled entries the whole block is subtracted: gathering single pairs would be slower.
_DENSE_SHARE = 1 / 16
#: Blocks of at most this many entries are never subtracted as a whole.
_SMALL = 1 << 14
#: The number of pairs subtracted at a time, and of pairs whose gradients are added at a time. They limit the memory of
#: the differences, `[pairs, d]`.
_RECOMPUTED, _PAIRS = 1 << 16, 1 << 18


def squared_euclidean(x: Tensor, y: Tensor) -> Tensor:
    """Compute squared Euclidean distances of the rows of x `[N, d]` to the rows of y `[M, d]`, as `[N, M]`.

    The result is float32 (float64 for float64 input), also under autocast. The relative error is under 1e-3 at every
    scale. The function is differentiable once, with finite gradients everywhere.
    """
    return pairs("squared_euclidean", x, y)


def euclidean(x: Tensor, y: Tensor) -> Tensor:
    """Compute Euclidean distances `[N, M]` of the rows of x `[N, d]` and y `[M, d]`.

    The gradient at distance 0 is 0.
    """
    return pairs("euclidean", x, y)


def cosine(x: Tensor, y: Tensor) -> Tensor:
    """Compute cosine similarities `[N, M]` of the rows of x `[N, d]` and y `[M, d]`.

    A zero row has similarity 0 and gradient 0.
    """
    return pairs("cosine", x, y)


def dot(x: Tensor, y: Tensor) -> Tensor:
    """Compute dot products `[N, M]` of the rows of x `[N, d]` and y `[M, d]`, in float32 or float64."""
    return pairs("dot", x, y)


def lift(distance: Distance, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Lift rows x `[N, d]` and columns y `[M, d]` to `[N, e]` and `[M, e]`; differentiable, O((N + M) d).

    Any block of their similarities or squared distances is then a matrix product.
    """
    with no_autocast(x):
        x, y = full_precision(x), full_precision(y)
        if distance == "dot":
            return x, y
        if distance == "cosine":
            rows = normalize(x)
            return rows, rows if y is x else normalize(y)
        same = x is y
        a = x.detach()
        offset = _common_offset(a, a if same else y.detach())
        x = x - offset
        x2 = (x * x).sum(1, keepdim=True)  # [N,1]
        if same:
            y, y2 = x, x2
        else:
            y = y - offset
            y2 = (y * y).sum(1, keepdim=True)  # [M,1]
        return torch.cat((-2 * x, x2, torch.ones_like(x2)), 1), torch.cat((y, torch.ones_like(y2), y2), 1)


class Values(NamedTuple):
    """A block `[R, M]` of squared distances or dots, and the pairs (i, j) that were subtracted."""

    s: Tensor
    i: Tensor
    j: Tensor


def block(distance: Distance, rows: Tensor, cols: Tensor) -> Tensor:
    """Compute similarities or distances `[R, M]` of lifted rows `[R, e]` to lifted columns `[M, e]`."""
    with no_autocast(rows):
        return root(distance, block_values(distance, rows, cols).s)


def block_values(distance: Distance, rows: Tensor, cols: Tensor) -> Values:
    """Return the block of lifted rows to lifted columns: dots, or squared distances with the subtracted pairs."""
    s = rows @ cols.T
    if distance in ("dot", "cosine"):
        empty = torch.empty(0, dtype=torch.int64, device=s.device)
        return Values(s, empty, empty)
    size = rows[:, -2:-1].detach() + cols[:, -1].detach()  # [R,M] |x|^2 + |y|^2
    i, j = (s.detach() < size.mul_(_CANCELS[s.dtype])).nonzero(as_tuple=True)
    if _mostly_cancelled(i, s):
        s = torch.cdist(rows[:, :-2] * -0.5, cols[:, :-2], compute_mode="donot_use_mm_for_euclid_dist").square()
    else:
        recompute(s, i, j, lambda a, b: (rows[a, :-2].mul(-0.5) - cols[b, :-2]).square().sum(1))
    return Values(s, i, j)


def _common_offset(x: Tensor, y: Tensor) -> Tensor:
    """Return the offset `[d]` that all of x and y share.

    In each coordinate, it is the middle m of the range, if all values differ from m by at most half of m. Otherwise it
    is 0. All values are then within a factor of 2 of m, so subtracting m is exact (Sterbenz): no distance changes.
    """
    if len(x) == 0 or len(y) == 0:
        return x.new_zeros(x.shape[1])
    low, high = torch.aminmax(y, dim=0)
    if x is not y:
        low, high = torch.minimum(low, x.amin(0)), torch.maximum(high, x.amax(0))
    middle = (low + high) / 2
    return torch.where((high - low <= middle.abs()) & middle.isfinite(), middle, 0)


@torch.no_grad()
def add_gradient(
    gradient: Tensor, values: Values, rows: Tensor, cols: Tensor, of_rows: Tensor, of_cols: Tensor
) -> None:
    """Add the gradients of lifted rows `[R, e]` and columns `[M, e]`, given the gradient of the block `[R, M]`.

    The function adds in place: all blocks share one gradient `[M, e]`.
    """
    d = rows.shape[1] - 2
    for i, j in _split_pairs(values.i, values.j):
        # The derivatives of |x - y|^2 are 2 (x - y) and -2 (x - y); lifted rows hold -2 x.
        pull = gradient[i, j][:, None] * (rows[i, :d].mul(-0.5) - cols[j, :d])
        of_rows[:, :d].index_add_(0, i, pull, alpha=-1)
        of_cols[:, :d].index_add_(0, j, pull, alpha=-2)
    if len(values.i):
        gradient = gradient.index_put((values.i, values.j), gradient.new_zeros(()))
    of_rows.addmm_(gradient, cols)
    of_cols.addmm_(gradient.T, rows)


def root(distance: Distance, s: Tensor) -> Tensor:
    """Convert the result of `block_values` to distances: take the square root for "euclidean"."""
    return _sqrt(s) if distance == "euclidean" else s


def recompute(d: Any, i: Any, j: Any, subtract: Callable[[Any, Any], Any]) -> None:
    """Replace the cancelled entries d[i, j] of a matrix of squared distances by `subtract(i, j)`, in place, in parts.

    All code that corrects cancellation calls this function, with tensors or with numpy arrays.
    """
    for start in range(0, len(i), _RECOMPUTED):
        a, b = i[start : start + _RECOMPUTED], j[start : start + _RECOMPUTED]
        d[a, b] = subtract(a, b)


def _split_pairs(i: Tensor, j: Tensor) -> list[tuple[Tensor, Tensor]]:
    return list(zip(torch.split(i, _PAIRS), torch.split(j, _PAIRS), strict=True)) if len(i) else []


def _mostly_cancelled(i: Tensor, s: Tensor) -> bool:
    return len(i) > _DENSE_SHARE * s.numel() and s.numel() > _SMALL


class _SquareRoot(torch.autograd.Function):
    """Square root with gradient 0 at 0: two identical embeddings have no direction to move in."""

    @staticmethod
    def forward(ctx: Any, d: Tensor) -> Tensor:
        ctx.save_for_backward(d)
        return d.sqrt()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (d,) = ctx.saved_tensors
        positive = d > 0
        return gradient * torch.where(positive, 0.5 * torch.where(positive, d, 1).rsqrt(), 0)


_sqrt: Callable[[Tensor], Tensor] = _SquareRoot.apply


def pairs(distance: Distance, x: Tensor, y: Tensor) -> Tensor:
    """Compute similarities or distances `[N, M]` of all rows of x `[N, d]` to all rows of y `[M, d]`, at once."""
    if distance in ("cosine", "dot"):
        return block(distance, *lift(distance, x, y))
    with no_autocast(x):
        try:
            d = _squared(full_precision(x), None if y is x else full_precision(y))
        except _CancelsEverywhereError:  # tight clusters: subtracting the whole block is faster
            return block(distance, *lift(distance, x, y))
        return d if distance == "squared_euclidean" else _sqrt(d)


class _CancelsEverywhereError(Exception):
    pass


class _SquaredEuclidean(torch.autograd.Function):
    """All squared distances, with the gradient in closed form.

    y = None means y = x: one product in each direction.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor | None) -> Tensor:
        a, b, offset = x, x if y is None else y, None
        b2, mean = b.square().sum(1), b.mean(0)
        if bool(mean.dot(mean) > b2.mean() / 2):  # a cheap test: mostly, there is no common offset
            offset = _common_offset(a, b)
            a = a - offset
            b = a if y is None else b - offset
            b2 = b.square().sum(1)
        size = (b2 if y is None else a.square().sum(1))[:, None] + b2  # [N,M]
        d = torch.addmm(size, a, b.T, alpha=-2)
        cancelled = d < size.mul_(_CANCELS[d.dtype])
        if y is None:
            cancelled.diagonal().zero_()
            d.diagonal().zero_()
        i, j = cancelled.nonzero(as_tuple=True)
        if _mostly_cancelled(i, d):
            raise _CancelsEverywhereError
        recompute(d, i, j, lambda k, m: (a[k] - b[m]).square().sum(1))
        ctx.save_for_backward(x, y, i, j, offset)
        return d

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None]:
        with no_autocast(gradient):  # backward may be called inside autocast
            return _SquaredEuclidean._gradients(gradient, *ctx.saved_tensors)

    @staticmethod
    def _gradients(
        gradient: Tensor, x: Tensor, y: Tensor | None, i: Tensor, j: Tensor, offset: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        if offset is not None:
            x, y = x - offset, None if y is None else y - offset
        # sum_j 2 g_ij (x_i - y_j); cancelled pairs are subtracted here too.
        g = gradient if len(i) == 0 else gradient.index_put((i, j), torch.zeros_like(gradient[0, 0]))
        if y is None:
            g = g + g.T
            g.diagonal().zero_()
            grad_x, grad_y = torch.addmm(g.sum(1, keepdim=True) * x, g, x, beta=2, alpha=-2), None
        else:
            grad_x = torch.addmm(g.sum(1, keepdim=True) * x, g, y, beta=2, alpha=-2)
            grad_y = torch.addmm(g.sum(0)[:, None] * y, g.T, x, beta=2, alpha=-2)
        for k, m in _split_pairs(i, j):
            pull = 2 * gradient[k, m][:, None] * (x[k] - (x if y is None else y)[m])
            grad_x = grad_x.index_add(0, k, pull)
            if grad_y is None:
                grad_x = grad_x.index_add(0, m, -pull)
            else:
                grad_y = grad_y.index_add(0, m, -pull)
        return grad_x, grad_y


_squared: Callable[[Tensor, Tensor | None], Tensor] = _SquaredEuclidean.apply


def no_autocast(x: Tensor) -> AbstractContextManager[Any]:
    """Return a context of full precision on the device of x: autocast would compute in half precision.

    Entering the context of autocast costs time, so it is entered only where autocast is on.
    """
    kind = x.device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()


def full_precision(x: Tensor) -> Tensor:
    """Convert to float32, except float64, which stays: half precision never enters a distance."""
    return x if x.dtype == torch.float64 else x.float()


def normalize(x: Tensor) -> Tensor:
    """Scale the rows of x `[N, d]` to length 1, in float32 (float64 for float64); gradients are right at every norm.

    A zero row stays zero and gets no gradient. A row with a norm below 1e-34 (1e-270 in float64) becomes zero and gets
    no gradient either: the gradient is divided by the norm and could overflow.
    """
    x = full_precision(x)
    # The squares of very large or small rows would overflow or underflow: these rows are multiplied by a power of 2
    # first, which is exact. The factor of all other rows is 1.
    _, exponent = math.frexp(torch.finfo(x.dtype).max)  # 128 or 1024
    limit = 2.0 ** (exponent * 3 // 8)
    norm = torch.linalg.vector_norm(x.detach(), dim=-1, keepdim=True)  # [N,1]
    # On a GPU, the test of the norms would wait for the device. A graph cannot contain the test.
    tested = x.requires_grad and x.device.type == "cpu" and x.numel() > 0 and not torch.compiler.is_compiling()
    if tested and _all_within(norm, 1 / limit, limit):
        return _Unit.apply(x, norm)
    scale = torch.ones_like(norm).masked_fill_(norm > limit, 2.0 ** -(exponent * 5 // 8))
    x = x * scale.masked_fill_(norm < 1 / limit, 2.0 ** (exponent // 2))
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    positive = norm >= 0.5 / limit
    return x * (positive / torch.where(positive, norm, 1))


def _all_within(norm: Tensor, low: float, high: float) -> bool:
    """Return True if all norms are between `low` and `high`. Return False if one is NaN."""
    least, largest = torch.aminmax(norm)
    return float(least) >= low and float(largest) <= high


class _Unit(torch.autograd.Function):
    """`x / |x|` for norms `[N, 1]` that neither overflow nor underflow.

    Its gradient has a closed form: (g - u (g . u)) / |x|.
    """

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
