"""Distances of sets: tags, several labels at once. Counts of common members are exact; the rest is float64."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from scipy.sparse import csr_array

#: Tags of a matrix product on a GPU: bounds the `[items, tags]` of zeros and ones.
_TAGS = 1 << 12


def jaccard_distance(x: Tensor, y: Tensor) -> Tensor:
    """Jaccard distances `[N, M]` in float32 of sets as 0 / 1, x `[N, L]` and y `[M, L]`: 1 - |A & B| / |A | B|.

    In [0, 1]; two empty sets are at 0. Sets have at most 2^24 members.
    """
    return _jaccard((x.float() @ y.float().T).double(), x.sum(1), y.sum(1))


def hamming_distance(x: Tensor, y: Tensor) -> Tensor:
    """The share of the L entries, 0 / 1, in which x `[N, L]` and y `[M, L]` differ: `[N, M]` in float32, in [0, 1]."""
    common = (x.float() @ y.float().T).double()
    return ((x.sum(1)[:, None] + y.sum(1) - 2 * common) / x.shape[1]).float()


def tag_distance(x: Tensor, y: Tensor) -> Tensor:
    """Jaccard distances `[N, M]` in float32 of sets as ids >= 0, x `[N, K]` and y `[M, L]`, each filled up with -1.

    In [0, 1]; two empty sets are at 0. An id stands once in a set. The cost grows with the tags that items have, not
    with those that there are.
    """
    common = _common_sparse(x, y) if x.device.type == "cpu" else _common_by_product(x, y)
    return _jaccard(common, (x >= 0).sum(1), (y >= 0).sum(1))


def _jaccard(common: Tensor, size_x: Tensor, size_y: Tensor) -> Tensor:
    either = size_x[:, None] + size_y - common
    # Two empty sets: common = either = 0, which must read as equal.
    return (1 - (common + (either == 0)) / either.clamp(min=1)).float()


def _common_sparse(x: Tensor, y: Tensor) -> Tensor:
    tags = 1 + max(int(ids.max()) if ids.numel() else 0 for ids in (x, y))
    a, b = (_sparse(ids, tags) for ids in (x, y))
    return torch.from_numpy((a @ b.T).toarray()).double()


def _sparse(ids: Tensor, tags: int) -> csr_array:
    from scipy.sparse import csr_array

    has = ids >= 0
    starts = torch.zeros(len(ids) + 1, dtype=torch.int64)
    torch.cumsum(has.sum(1), 0, out=starts[1:])
    ones = torch.ones(int(starts[-1]), dtype=torch.float32)
    return csr_array((ones.numpy(), ids[has].numpy(), starts.numpy()), shape=(len(ids), max(tags, 1)))


def _common_by_product(x: Tensor, y: Tensor) -> Tensor:
    """The same as zeros and ones, for the tags that the items have, some at a time."""
    present, ids = torch.unique(torch.cat((x.flatten(), y.flatten())), return_inverse=True)
    ids = torch.where(present[ids] >= 0, ids, -1)
    a, b = ids[: x.numel()].view(x.shape), ids[x.numel() :].view(y.shape)
    common = torch.zeros(len(x), len(y), dtype=torch.float64, device=x.device)
    for start in range(0, len(present), _TAGS):
        common += (_ones(a, start) @ _ones(b, start).T).double()
    return common


def _ones(ids: Tensor, start: int) -> Tensor:
    """`[N, tags]`: 1 where an item has the tag start, start + 1, ..."""
    inside = (ids >= start) & (ids < start + _TAGS)
    out = torch.zeros(len(ids), _TAGS + 1, device=ids.device)  # the last column takes all others
    out.scatter_(1, torch.where(inside, ids - start, _TAGS), 1.0)
    return out[:, :_TAGS]
