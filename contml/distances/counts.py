"""How many of a gallery are nearer than a given distance: ranks without a ranking, exactly, in one matrix product.

    nearer(q) = #{g : D(q, g) < r(q)},  tied(q) = #{g : D(q, g) = r(q)},  D as in `exact`

A block of float32 products tells almost every pair apart from its radius: rounding has a bound (n u / (1 - n u) times
the norms, Higham, "Accuracy and Stability of Numerical Algorithms", 2nd ed., 3.5). The pairs that it leaves open are
computed again in float64, and only those numbers decide: neither the shape nor the order of blocks changes a count.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from contml.distances._block_counts import count_above, unsure_entries
from contml.distances._frame import Frame, squared_lengths
from contml.distances._threads import in_threads
from contml.distances.exact import distinct, squared_distances_of

#: Queries and gallery rows of a matrix product: a block stays in the processor's cache.
_ROWS, _COLUMNS = 512, 2048
#: The same on a CUDA device, which wants large ones.
_CUDA_ROWS, _CUDA_COLUMNS = 4096, 1 << 15
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
    copies = found.counts if len(found.counts) < len(g) else found.counts[:0]  # [U], or [0] where there are none
    g = g if not len(copies) else g[found.at]
    scores = _Scores(q, g, radii)
    rows, columns = (_CUDA_ROWS, _CUDA_COLUMNS) if g.is_cuda else (_ROWS, _COLUMNS)
    one_block = torch.empty(min(rows, len(q)), min(columns, len(g)), device=g.device)
    for start in range(0, len(q), rows):
        part = slice(start, min(start + rows, len(q)))
        left, low, high = scores.rows(part)
        for first in range(0, len(g), columns):
            those = slice(first, min(first + columns, len(g)))
            block = one_block.view(-1)[: len(left) * (those.stop - first)].view(len(left), -1)
            torch.mm(left, scores.gallery[those].T, out=block)
            weights = copies[those]
            at, which = _count(block, low, high, weights, counts.nearer[part])
            if len(at):
                at, which = at + start, which + first
                d, weight = squared_distances_of(q, g, at, which), copies[which] if len(copies) else None
                for side, inside in zip(counts, (d < radii[at], d == radii[at]), strict=True):
                    side.index_add_(0, at, inside.long() if weight is None else inside * weight)
    if itself is not None:
        own = (itself >= 0).nonzero()[:, 0]
        d = squared_distances_of(q, gallery.detach(), own, itself[own])
        counts.nearer[own] -= (d < radii[own]).long()
        counts.tied[own] -= (d == radii[own]).long()
    return counts


class _Scores:
    """Numbers that grow as the distance falls, as one matrix product, and the levels at which they decide.

    With everything centred and scaled: s = q.g + c(g), c(g) = m - |g|^2 / 2; D < r iff s > m + (|q|^2 - r) / 2.
    """

    def __init__(self, queries: Tensor, gallery: Tensor, radii: Tensor) -> None:
        self.radii, self.frame = radii, Frame(queries, gallery)
        d = gallery.shape[1]
        self.queries = self.frame.place(queries, 1)  # [Q,d+1]
        self.queries[:, d] = 1
        self.gallery = self.frame.place(gallery, 1)  # [G,d+1]
        half = squared_lengths(self.gallery[:, :d]) / 2
        # The median, since one vector far away must not make the others' numbers large.
        self.shift = float(half.median())
        self.gallery[:, d] = self.shift - half
        self.longest = float(half.max().mul(2).sqrt())
        self.offset = float((self.shift - half).abs().max())
        terms = (d + 3) * 2.0**-24
        self.gamma = terms / (1 - terms) + _rounded_inputs(gallery.device)
        # What rounding to float32 moves a vector of length 1, and any vector.
        self.moved = 2.0**-23
        self.shifted = self.frame.shift + d**0.5 * 1e-37

    def rows(self, part: slice) -> tuple[Tensor, Tensor, Tensor]:
        """The left side `[q, d + 1]` of the product, and the scores `[q]` below and above which all is sure."""
        left = self.queries[part]
        squared, radius = squared_lengths(left[:, :-1]), self.radii[part] / self.frame.scale**2
        level = self.shift + (squared - radius) / 2
        length = squared.sqrt()
        # A gallery vector four times as long, and twice the radius, is further whatever the rounding of its own part.
        reach = torch.maximum(4 * length, 2 * radius.sqrt()).clamp(max=self.longest)
        within = (reach.square() / 2 - self.shift).abs().clamp(min=abs(self.shift))
        offset = torch.where(reach < self.longest, within, self.offset)
        rounding = self.gamma * (length * reach + offset)
        moved = self.moved * (length + reach) + self.shifted
        margin = rounding + (length + reach) * moved + moved.square() + 1e-14 * (squared + radius + abs(self.shift))
        low, high = (level - margin).float(), (level + margin).float()
        infinite = torch.full_like(low, torch.inf)
        return left, torch.nextafter(low, -infinite), torch.nextafter(high, infinite)


def _rounded_inputs(device: torch.device) -> float:
    """What a product loses, relative to its size, where somebody allowed float32 matrix products to round what goes in.

    On CUDA that is TF32 (ten bits), on the CPU bfloat16 (seven).
    """
    if device.type == "cuda":
        return 2.0**-9 if torch.backends.cuda.matmul.allow_tf32 else 0.0
    own = getattr(torch.backends.mkldnn.matmul, "fp32_precision", "none")  # torch >= 2.9
    return 0.0 if torch.get_float32_matmul_precision() == "highest" and own in ("none", "ieee") else 2.0**-7


def _count(block: Tensor, low: Tensor, high: Tensor, weights: Tensor, above: Tensor) -> tuple[Tensor, Tensor]:
    """Add what is surely above to `above` `[q]`; rows and columns of what is unsure."""
    if block.is_cuda:
        sure = block > high[:, None]
        above += (sure * weights).sum(1) if len(weights) else sure.sum(1)
        rows, cols = ((block >= low[:, None]) & ~sure).nonzero(as_tuple=True)
        return rows, cols
    scores, lowest, highest, heavy, sums = (x.numpy() for x in (block, low, high, weights, above))
    unsure = np.zeros(len(scores), dtype=np.int64)

    def work(start: int, step: int) -> None:
        part = slice(len(scores) * start // step, len(scores) * (start + 1) // step)
        count_above(scores[part], lowest[part], highest[part], heavy, sums[part], unsure[part])

    in_threads(work, -(-scores.size // _THREAD))
    found = np.empty((2, int(unsure.sum())), dtype=np.int64)
    if found.size:
        unsure_entries(scores, lowest, highest, unsure, *found)
    return torch.from_numpy(found[0]), torch.from_numpy(found[1])
