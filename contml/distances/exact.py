"""Squared distances of vectors that are the same to the last bit in every call and on every device: they define ties.

    D(x, y) = sum_i (x_i - y_i)^2   in float64, by subtraction, summed in an order that depends only on the dimension

Two items are tied if these numbers are equal. A matrix product is not suitable: the last bits of an entry depend on its
position in the matrix, so two copies of a vector could be at different distances.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from contml.distances._compiled import rows_in_threads

#: Bytes of differences at a time on a CUDA device.
_BYTES = 512 << 20
#: Rows compared with their neighbours at a time.
_ROWS = 1 << 14


def squared_norms(x: Tensor) -> Tensor:
    """Compute squared Euclidean norms over the last dimension of x `[..., d]`, float64. x is overwritten."""
    x.square_()
    n = x.shape[-1]
    if not n:
        return x.sum(-1)
    while n > 1:  # by halves: the order of torch's own sum depends on the shape and the device
        half = (n + 1) // 2
        x[..., : n - half] += x[..., half:n]
        n = half
    return x[..., 0].clone()


def squared_distances_of(x: Tensor, y: Tensor, rows: Tensor, cols: Tensor) -> Tensor:
    """Compute squared distances `[P]` in float64 of the pairs `x[rows[p]]`, `y[cols[p]]`.

    x is `[N, d]` and y `[M, d]`.
    """
    out = torch.empty(len(rows), dtype=torch.float64, device=x.device)
    if not x.is_cuda:
        _subtract(x, y, rows, cols, out)
        return out
    step = max(1, _BYTES // (16 * max(x.shape[1], 1)))
    for start in range(0, len(rows), step):
        chunk = slice(start, start + step)
        out[chunk] = squared_norms(x[rows[chunk]].double() - y[cols[chunk]].double())
    return out


def _subtract(x: Tensor, y: Tensor, rows: Tensor, cols: Tensor, out: Tensor) -> None:
    from contml.distances._nearest_loops import subtracted  # here: it imports numba

    a, b = (as_floats(vectors).numpy() for vectors in (x, y))
    i, j, squared = (tensor.contiguous().numpy() for tensor in (rows, cols, out))

    def work(part: slice) -> None:
        subtracted(a, b, i[part], j[part], squared[part])

    rows_in_threads(work, len(i), len(i) * max(x.shape[1], 1))


def as_floats(x: Tensor) -> Tensor:
    """Convert numbers to contiguous float32 or float64 without gradient, as compiled loops read them."""
    x = x.detach()
    is_half = x.dtype in (torch.float16, torch.bfloat16)
    x = x.float() if is_half else x if x.dtype in (torch.float32, torch.float64) else x.double()
    return x.contiguous()


def squared_distances_to(x: Tensor, y: Tensor, cols: Tensor) -> Tensor:
    """Compute squared distances `[N, C]` in float64 of each row of x `[N, d]` to rows `cols` `[N, C]` of y."""
    rows = torch.arange(len(x), device=x.device).repeat_interleave(cols.shape[1])
    return squared_distances_of(x, y, rows, cols.flatten()).view(cols.shape)


class Distinct(NamedTuple):
    """The distinct rows of a matrix, in an order that depends only on their values."""

    first_index: Tensor  # [U] the first row number of each
    inverse: Tensor  # [N] the number of the distinct row that each row equals
    counts: Tensor  # [U] how often each occurs


def distinct(x: Tensor) -> Distinct:
    """Find the distinct rows of x `[N, d]`. 0 and -0 are equal."""
    x = x.detach() if x.dtype in (torch.float32, torch.float64) else x.detach().double()
    values = np.ascontiguousarray(x.cpu().numpy())
    n = len(values)
    if bool(((values == 0) & np.signbit(values)).any()):
        values = values + 0.0
    # Rows are compared as bytes. numpy.unique would copy the matrix three times.
    packed = values.view(np.dtype((np.void, values.itemsize * values.shape[1])))[:, 0] if values.size else np.zeros(n)
    order = np.argsort(packed, kind="stable")
    is_first = np.ones(n, dtype=bool)
    for start in range(1, n, _ROWS):
        block = order[start - 1 : start + _ROWS]
        is_first[start : start + _ROWS] = packed[block[1:]] != packed[block[:-1]]
    inverse = np.empty(n, dtype=np.int64)
    inverse[order] = is_first.cumsum() - 1
    arrays = order[is_first], inverse, np.bincount(inverse)
    return Distinct(*(torch.from_numpy(array).to(x.device) for array in arrays))


class ExactDistances:
    """Squared distances from a query to a whole gallery `[G, d]`; copies of a vector are computed once."""

    def __init__(self, gallery: Tensor) -> None:
        self._gallery = gallery

    @cached_property
    def _distinct(self) -> tuple[Tensor, Tensor]:
        unique = distinct(self._gallery)
        return self._gallery[unique.first_index].double(), unique.inverse

    def of(self, query: Tensor) -> Tensor:
        """Return squared distances `[G]` in float64 of a query `[d]`."""
        vectors, inverse = self._distinct
        return squared_norms(vectors - query.double())[inverse]
