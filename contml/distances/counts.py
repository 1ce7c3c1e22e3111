"""How many of a gallery are nearer than a given distance: ranks without a ranking, exactly, in one matrix product.

    nearer(q) = #{g : D(q, g) < r(q)},  tied(q) = #{g : D(q, g) = r(q)},  D as in `exact`

A block of float32 products tells almost every pair apart from its radius: rounding has a bound (n u / (1 - n u) times
the norms, Higham, "Accuracy and Stability of Numerical Algorithms", 2nd ed., 3.5). The pairs that it leaves open are
computed again in float64, and only those numbers decide: neither the shape nor the order of blocks changes a count.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from contml.distances._compiled import in_threads
from contml.distances.exact import distinct, squared_distances_of
from contml.distances.vectors import Frame, squared_lengths

#: Queries and gallery rows of a matrix product: a block stays in the processor's cache.
_ROWS, _COLUMNS = 512, 2048
#: The same on a CUDA device, which wants large ones.
_CUDA_ROWS, _CUDA_COLUMNS = 4096, 1 << 15
#: A gallery with a smaller share of different vectors is searched without its copies.
_DISTINCT = 0.9
#: Entries of a block that are worth a thread of their own.
_THREAD = 1 << 18


class Counts(NamedTuple):
    """Of the gallery, for each query, itself left out."""

    nearer: Tensor  # [Q] int64: nearer than the radius
    tied: Tensor  # [Q] int64: at exactly the radius


def count_nearer(queries: Tensor, gallery: Tensor, radii: Tensor, *, itself: Tensor | None = None) -> Counts:
    """How many of the gallery `[G, d]` are nearer to each query `[Q, d]` than a squared distance of its own, exactly.

    Never a Q x G matrix in memory, and no sorting: one pass of matrix products.

    Args:
        queries: finite numbers, on the gallery's device.
        gallery: finite numbers.
        radii: squared Euclidean distances `[Q]` in float64, such as `nearest_vectors` returns.
        itself: `[Q]`, a query's own position in the gallery, which is left out, or -1.
    """
    q, g = queries.detach(), gallery.detach()
    nearer = torch.zeros(len(q), dtype=torch.int64, device=q.device)
    counts = Counts(nearer, torch.zeros_like(nearer))
    if not len(q) or not len(g):
        return counts
    found = distinct(g)
    # A few copies are items like others; of many, all pairs would be ties to be computed again.
    copies = found.counts if len(found.counts) < _DISTINCT * len(g) else found.counts[:0]  # [U] or [0]
    g = g if not len(copies) else g[found.at]
    scores = _Scores(q, g, radii)
    rows, columns = (_CUDA_ROWS, _CUDA_COLUMNS) if g.is_cuda else (_ROWS, _COLUMNS)
    # Where queries and gallery are the same, a product of two items serves both: half of them will do.
    mutual = _one(q, g) and not g.is_cuda
    one_block = torch.empty(min(rows, len(q)) * max(min(columns, len(g)), min(rows, len(g))), device=g.device)
    for start in range(0, len(q), rows):
        part = slice(start, min(start + rows, len(q)))
        for block_columns in _columns(part, len(g), columns, mutual):
            block = one_block[: (part.stop - start) * (block_columns.stop - block_columns.start)].view(
                part.stop - start, -1
            )
            torch.mm(scores.queries[part], scores.gallery[block_columns].T, out=block)
            at, which = _count(block, scores, part, block_columns, copies[block_columns], counts.nearer)
            found_pairs = [(at + start, which + block_columns.start)]
            if mutual and block_columns.start > start:
                which, at = _count_columns(block, scores, part, block_columns, counts.nearer)
                found_pairs.append((at + block_columns.start, which + start))
            for at, which in found_pairs:
                _decide(counts, q, g, radii, at, which, copies)
    if itself is not None:
        own = (itself >= 0).nonzero()[:, 0]
        d = squared_distances_of(q, gallery.detach(), own, itself[own])
        counts.nearer[own] -= (d < radii[own]).long()
        counts.tied[own] -= (d == radii[own]).long()
    return counts


def _one(x: Tensor, y: Tensor) -> bool:
    return x.data_ptr() == y.data_ptr() and x.shape == y.shape and x.stride() == y.stride() and x.dtype == y.dtype


def _columns(part: slice, items: int, columns: int, mutual: bool) -> Iterator[slice]:
    """Parts of the gallery for some queries; where they are mutual, the queries themselves and what comes after."""
    if mutual:
        yield part
    for first in range(part.stop if mutual else 0, items, columns):
        yield slice(first, min(first + columns, items))


def _decide(counts: Counts, q: Tensor, g: Tensor, radii: Tensor, at: Tensor, which: Tensor, copies: Tensor) -> None:
    """Count pairs that float32 left open, by their distance in float64."""
    if not len(at):
        return
    d, weight = squared_distances_of(q, g, at, which), copies[which] if len(copies) else None
    for side, inside in zip(counts, (d < radii[at], d == radii[at]), strict=True):
        side.index_add_(0, at, inside.long() if weight is None else inside * weight)


class _Scores:
    """Numbers that grow as the distance falls, as one matrix product, and the levels at which they decide.

    With everything centred and scaled: s = q.g + c(g), c(g) = m - |g|^2 / 2; D < r iff s > m + (|q|^2 - r) / 2. Scores
    `[Q]` below `low` and above `high` are sure.
    """

    def __init__(self, queries: Tensor, gallery: Tensor, radii: Tensor) -> None:
        frame, d = Frame(queries, gallery), gallery.shape[1]
        self.gallery = frame.place(gallery)  # [G,d]
        self.queries = self.gallery if _one(queries, gallery) else frame.place(queries)  # [Q,d]
        half = squared_lengths(self.gallery) / 2
        # The median, since one vector far away must not make the others' numbers large.
        shift = float(half.median())
        self.offset = (shift - half).float()  # [G]
        longest, furthest = float(half.max().mul(2).sqrt()), float((shift - half).abs().max())
        terms = (d + 3) * 2.0**-24
        gamma = terms / (1 - terms) + _rounded_inputs(gallery.device)

        squared, radius = squared_lengths(self.queries), radii / frame.scale**2
        level = shift + (squared - radius) / 2
        length = squared.sqrt()
        # A gallery vector four times as long, and twice the radius, is further whatever the rounding of its own part.
        reach = torch.maximum(4 * length, 2 * radius.sqrt()).clamp(max=longest)
        within = (reach.square() / 2 - shift).abs().clamp(min=abs(shift))
        rounding = gamma * (length * reach + torch.where(reach < longest, within, furthest))
        # What rounding to float32 moves a vector of length 1, and centring any vector.
        moved = 2.0**-23 * (length + reach) + frame.shift + d**0.5 * 1e-37
        margin = rounding + (length + reach) * moved + moved.square() + 1e-14 * (squared + radius + abs(shift))
        infinite = torch.full_like(level, torch.inf).float()
        self.low = torch.nextafter((level - margin).float(), -infinite)  # [Q]
        self.high = torch.nextafter((level + margin).float(), infinite)  # [Q]


def _rounded_inputs(device: torch.device) -> float:
    """What a product loses, relative to its size, where somebody allowed float32 matrix products to round what goes in.

    On CUDA that is TF32 (ten bits), on the CPU bfloat16 (seven).
    """
    if device.type == "cuda":
        return 2.0**-9 if torch.backends.cuda.matmul.allow_tf32 else 0.0
    products = getattr(torch.backends.mkldnn, "matmul", None)  # torch >= 2.9
    own = getattr(products, "fp32_precision", "none")
    return 0.0 if torch.get_float32_matmul_precision() == "highest" and own in ("none", "ieee") else 2.0**-7


def _count(
    block: Tensor, scores: _Scores, part: slice, block_columns: slice, weights: Tensor, nearer: Tensor
) -> tuple[Tensor, Tensor]:
    """Add what is surely nearer to `nearer` of these queries; rows and columns of the block that are unsure."""
    offset, low, high, above = scores.offset[block_columns], scores.low[part], scores.high[part], nearer[part]
    if block.is_cuda:
        block += offset
        sure = block > high[:, None]
        above += (sure * weights).sum(1) if len(weights) else sure.sum(1)
        rows, cols = ((block >= low[:, None]) & ~sure).nonzero(as_tuple=True)
        return rows, cols
    from contml.distances._block_counts import count_above, unsure_entries  # here: it imports numba

    products, own, lowest, highest, heavy, sums = (x.numpy() for x in (block, offset, low, high, weights, above))
    unsure = np.zeros(len(products), dtype=np.int64)

    def work(start: int, step: int) -> None:
        some = _share(len(products), start, step)
        count_above(products[some], own, lowest[some], highest[some], heavy, sums[some], unsure[some])

    in_threads(work, -(-products.size // _THREAD))
    found = np.empty((2, int(unsure.sum())), dtype=np.int64)
    if found.size:
        unsure_entries(products, own, lowest, highest, unsure, found[0], found[1])
    return torch.from_numpy(found[0]), torch.from_numpy(found[1])


def _count_columns(
    block: Tensor, scores: _Scores, part: slice, block_columns: slice, nearer: Tensor
) -> tuple[Tensor, Tensor]:
    """The same for the columns as queries and the rows as gallery."""
    from contml.distances._block_counts import count_columns, unsure_of_columns

    levels = scores.offset[part], scores.low[block_columns], scores.high[block_columns]
    products, own, lowest, highest = (x.numpy() for x in (block, *levels))
    counted: list[np.ndarray[Any, np.dtype[np.int32]]] = []

    def work(start: int, step: int) -> None:
        some, sums = _share(len(products), start, step), np.zeros((2, products.shape[1]), dtype=np.int32)
        count_columns(products[some], own[some], lowest, highest, sums[0], sums[1])
        counted.append(sums)

    in_threads(work, -(-products.size // _THREAD))
    sure, maybe = sum(counted[1:], counted[0])
    nearer[block_columns] += torch.from_numpy(sure)
    total = int((maybe - sure).sum())
    found = np.empty((2, total), dtype=np.int64)
    if total:
        unsure_of_columns(products, own, lowest, highest, total, found[0], found[1])
    return torch.from_numpy(found[0]), torch.from_numpy(found[1])


def _share(rows: int, start: int, step: int) -> slice:
    return slice(rows * start // step, rows * (start + 1) // step)
