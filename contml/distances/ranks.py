"""Exact ranks: the number of gallery items nearer than a given distance, without sorting; and whole rankings.

    nearer(q) = #{g : D(q, g) < r(q)},  tied(q) = #{g : D(q, g) = r(q)},  D as in `exact`

A block of float32 products decides almost every pair, because its rounding has a bound: n u / (1 - n u) times the norms
(Higham, "Accuracy and Stability of Numerical Algorithms", 2nd ed., 3.5). Undecided pairs are recomputed in float64. So
neither the shape nor the order of the blocks changes a count.

Rankings of whole galleries work in the same way. Products in float64 give the order. Entries that rounding could have
put out of order are subtracted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from contml.distances._compiled import rows_in_threads
from contml.distances.exact import as_floats, distinct, squared_distances_of
from contml.distances.nearest import _CHUNK, Frame, rounded_inputs, squared_lengths

#: Queries and gallery rows of a matrix product: a block stays in the processor's cache.
_ROWS, _COLUMNS = 512, 2048
#: The same on a CUDA device, where large blocks are faster.
_CUDA_ROWS, _CUDA_COLUMNS = 4096, 1 << 15
#: A gallery with a smaller share of distinct vectors is searched without its copies.
_DISTINCT = 0.9


class Counts(NamedTuple):
    """Numbers of gallery items for each query, without the query itself."""

    nearer: Tensor  # [Q] int64: nearer than the radius
    tied: Tensor  # [Q] int64: at exactly the radius


def count_nearer(queries: Tensor, gallery: Tensor, radii: Tensor, *, self_index: Tensor | None = None) -> Counts:
    """Count the gallery items `[G, d]` that are nearer to each query `[Q, d]` than the radius of the query, exactly.

    One pass of matrix products: no Q x G matrix in memory, no sorting.

    Args:
        queries: finite numbers, on the gallery's device.
        gallery: finite numbers.
        radii: squared Euclidean distances `[Q]` in float64, such as `nearest_vectors` returns.
        self_index: `[Q]`, the position of each query in the gallery, which is excluded, or -1.
    """
    q = as_floats(queries)
    g = q if _same_tensor(queries, gallery) else as_floats(gallery)
    nearer = torch.zeros(len(q), dtype=torch.int64, device=q.device)
    counts = Counts(nearer, torch.zeros_like(nearer))
    if not len(q) or not len(g):
        return counts
    full_gallery, unique = g, distinct(g)
    # A few copies count as separate items. With many, too many pairs would tie and have to be recomputed.
    copies = unique.counts if len(unique.counts) < _DISTINCT * len(g) else unique.counts[:0]  # [U] or [0]
    g = g if not len(copies) else g[unique.first_index]
    scores = _Scores(q, g, radii)
    rows, columns = (_CUDA_ROWS, _CUDA_COLUMNS) if g.is_cuda else (_ROWS, _COLUMNS)
    # If queries and gallery are the same, the product is symmetric: half of it is enough.
    mutual = _same_tensor(q, g) and not g.is_cuda
    buffer = torch.empty(min(rows, len(q)) * max(min(columns, len(g)), min(rows, len(g))), device=g.device)
    for start in range(0, len(q), rows):
        part = slice(start, min(start + rows, len(q)))
        for block_columns in _column_parts(part, len(g), columns, mutual):
            block = buffer[: (part.stop - start) * (block_columns.stop - block_columns.start)].view(
                part.stop - start, -1
            )
            torch.mm(scores.queries[part], scores.gallery[block_columns].T, out=block)
            query_rows, gallery_rows = _count_rows(
                block, scores, part, block_columns, copies[block_columns], counts.nearer
            )
            undecided = [(query_rows + start, gallery_rows + block_columns.start)]
            if mutual and block_columns.start > start:
                gallery_rows, query_rows = _count_columns(block, scores, part, block_columns, counts.nearer)
                undecided.append((query_rows + block_columns.start, gallery_rows + start))
            for query_rows, gallery_rows in undecided:
                _decide(counts, q, g, radii, query_rows, gallery_rows, copies)
    if self_index is not None:
        self_rows = (self_index >= 0).nonzero()[:, 0]
        d = squared_distances_of(q, full_gallery, self_rows, self_index[self_rows])
        counts.nearer[self_rows] -= (d < radii[self_rows]).long()
        counts.tied[self_rows] -= (d == radii[self_rows]).long()
    return counts


def _same_tensor(x: Tensor, y: Tensor) -> bool:
    return x.data_ptr() == y.data_ptr() and x.shape == y.shape and x.stride() == y.stride() and x.dtype == y.dtype


def _column_parts(part: slice, items: int, columns: int, mutual: bool) -> Iterator[slice]:
    """Yield parts of the gallery for a part of the queries. If `mutual`, yield this part and the rows after it."""
    if mutual:
        yield part
    for start in range(part.stop if mutual else 0, items, columns):
        yield slice(start, min(start + columns, items))


def _decide(
    counts: Counts, q: Tensor, g: Tensor, radii: Tensor, query_rows: Tensor, gallery_rows: Tensor, copies: Tensor
) -> None:
    """Count the pairs that float32 did not decide, by their distance in float64."""
    if not len(query_rows):
        return
    d, weight = squared_distances_of(q, g, query_rows, gallery_rows), copies[gallery_rows] if len(copies) else None
    for count, inside in zip(counts, (d < radii[query_rows], d == radii[query_rows]), strict=True):
        count.index_add_(0, query_rows, inside.long() if weight is None else inside * weight)


class _Scores:
    """Scores that grow as the distance falls, by one matrix product, and the thresholds that decide.

    With vectors centred and scaled: s = q.g + c(g), c(g) = m - |g|^2 / 2; D < r iff s > m + (|q|^2 - r) / 2. Scores
    below `low` `[Q]` or above `high` `[Q]` decide despite rounding.
    """

    def __init__(self, queries: Tensor, gallery: Tensor, radii: Tensor) -> None:
        frame, d = Frame(queries, gallery), gallery.shape[1]
        self.gallery = frame.transform(gallery)  # [G,d]
        self.queries = self.gallery if _same_tensor(queries, gallery) else frame.transform(queries)  # [Q,d]
        half = squared_lengths(self.gallery) / 2
        # The median: one vector far away must not make the numbers of all others large.
        shift = float(half.median())
        self.offset = (shift - half).float()  # [G]
        longest, furthest = float(half.max().mul(2).sqrt()), float((shift - half).abs().max())
        terms = (d + 3) * 2.0**-24
        gamma = terms / (1 - terms) + rounded_inputs(gallery.device)

        squared, radius = squared_lengths(self.queries), radii / frame.scale**2
        level = shift + (squared - radius) / 2
        length = squared.sqrt()
        # A gallery vector longer than 4 |q| and longer than twice the radius is farther, whatever the rounding.
        reach = torch.maximum(4 * length, 2 * radius.sqrt()).clamp(max=longest)
        within = (reach.square() / 2 - shift).abs().clamp(min=abs(shift))
        rounding = gamma * (length * reach + torch.where(reach < longest, within, furthest))
        # The rounding errors of conversion to float32 (relative to the length) and of centring.
        moved = 2.0**-23 * (length + reach) + frame.shift + d**0.5 * 1e-37
        margin = rounding + (length + reach) * moved + moved.square() + 1e-14 * (squared + radius + abs(shift))
        infinite = torch.full_like(level, torch.inf).float()
        self.low = torch.nextafter((level - margin).float(), -infinite)  # [Q]
        self.high = torch.nextafter((level + margin).float(), infinite)  # [Q]


def _count_rows(
    block: Tensor, scores: _Scores, part: slice, block_columns: slice, weights: Tensor, nearer: Tensor
) -> tuple[Tensor, Tensor]:
    """Add the items that are certainly nearer to `nearer`, and return rows and columns of the undecided entries."""
    offset, low, high, above = scores.offset[block_columns], scores.low[part], scores.high[part], nearer[part]
    if block.is_cuda:
        block += offset
        sure = block > high[:, None]
        above += (sure * weights).sum(1) if len(weights) else sure.sum(1)
        rows, cols = ((block >= low[:, None]) & ~sure).nonzero(as_tuple=True)
        return rows, cols
    from contml.distances._rank_loops import count_above, unsure_entries  # here: it imports numba

    products, offsets, lowest, highest, weight, sums = (x.numpy() for x in (block, offset, low, high, weights, above))
    unsure = np.zeros(len(products), dtype=np.int64)

    def work(share: slice) -> None:
        count_above(products[share], offsets, lowest[share], highest[share], weight, sums[share], unsure[share])

    rows_in_threads(work, len(products), products.size)
    entries = np.empty((2, int(unsure.sum())), dtype=np.int64)
    if entries.size:
        unsure_entries(products, offsets, lowest, highest, unsure, entries[0], entries[1])
    return torch.from_numpy(entries[0]), torch.from_numpy(entries[1])


def _count_columns(
    block: Tensor, scores: _Scores, part: slice, block_columns: slice, nearer: Tensor
) -> tuple[Tensor, Tensor]:
    """Count as `_count_rows` does, with the columns as queries and the rows as gallery."""
    from contml.distances._rank_loops import count_columns, unsure_entries

    levels = scores.offset[part], scores.low[block_columns], scores.high[block_columns]
    products, offsets, lowest, highest = (x.numpy() for x in (block, *levels))
    counted: list[np.ndarray[Any, np.dtype[np.int32]]] = []

    def work(share: slice) -> None:
        sums = np.zeros((2, products.shape[1]), dtype=np.int32)
        count_columns(products[share], offsets[share], lowest, highest, sums[0], sums[1])
        counted.append(sums)

    rows_in_threads(work, len(products), products.size)
    sure, maybe = sum(counted[1:], counted[0])
    nearer[block_columns] += torch.from_numpy(sure)
    unsure = (maybe - sure).astype(np.int64)
    entries = np.empty((2, int(unsure.sum())), dtype=np.int64)
    if entries.size:
        unsure_entries(products.T, offsets, lowest, highest, unsure, entries[1], entries[0])
    return torch.from_numpy(entries[0]), torch.from_numpy(entries[1])


class Ranked(NamedTuple):
    """Whole rankings of a gallery."""

    values: Tensor  # [Q,G] float64: infinite where an item is excluded
    order: Tensor  # [Q,G] int64: the items, nearest first, ties by lower position


def ranked_vectors(queries: Tensor, gallery: Tensor, excluded: Tensor) -> Ranked:
    """Compute all squared distances on the CPU, with the order and the ties of `squared_distances_of`.

    A value is a matrix product, which may be off by rounding. Values of a row that are so near to each other that
    rounding could swap them are subtracted.

    Args:
        queries: finite numbers `[Q, d]`.
        gallery: finite numbers `[G, d]`.
        excluded: the gallery items that a query does not find, bool `[Q, G]`.
    """
    x, y = as_floats(queries), as_floats(gallery)
    values = torch.empty(excluded.shape, dtype=torch.float64)
    center = y.mean(0, dtype=torch.float64)
    rows = x.double() - center
    size, longest = rows.square().sum(1), 0.0
    for start in range(0, len(y), _CHUNK):
        columns = y[start : start + _CHUNK].double() - center
        squared = columns.square().sum(1)
        longest = max(longest, float(squared.max()))
        values[:, start : start + _CHUNK] = (size[:, None] + squared).addmm_(rows, columns.T, alpha=-2)
    # Higham, "Accuracy and Stability of Numerical Algorithms", 2nd ed., 3.5: of a product and of a subtracted
    # distance, with a factor of 2 to spare.
    terms = 4 * (x.shape[1] + 8)
    rounding = terms * (2.0**-53 * (size.sqrt() + longest**0.5).square() + torch.finfo(torch.float64).tiny)  # [Q]
    values.masked_fill_(excluded, torch.inf)
    order = argsort_rows(values)
    in_order = values.gather(1, order)
    close = in_order.diff(dim=1) <= 2 * rounding[:, None]  # of infinite ones the difference is NaN
    again = close.any(1).nonzero()[:, 0]
    unsure = torch.zeros(len(again), values.shape[1], dtype=torch.bool)
    unsure[:, 1:] |= close[again]
    unsure[:, :-1] |= close[again]
    unsure_rows, unsure_places = unsure.nonzero(as_tuple=True)
    unsure_rows = again[unsure_rows]
    items = order[unsure_rows, unsure_places]
    values[unsure_rows, items] = squared_distances_of(x, y, unsure_rows, items)
    order[again] = argsort_rows(values[again])
    return Ranked(values, order)


def argsort_rows(values: Tensor) -> Tensor:
    """Return the columns of each row of values `[Q, C]` in ascending order, ties by lower column.

    Values are on the CPU and not NaN.
    """
    import contml.distances._rank_loops as loops  # here: it imports numba

    order = torch.empty(values.shape, dtype=torch.int64)
    numbers, columns = as_floats(values).numpy(), order.numpy()
    rows_in_threads(lambda part: loops.argsort_rows(numbers[part], columns[part]), len(values), values.numel())
    return order


def mean_ranks(x: Tensor) -> Tensor:
    """Return the rank of each number of x `[P]` in float64, from 0. Equal numbers get their mean rank.

    Numbers are on the CPU and not NaN.
    """
    import contml.distances._rank_loops as loops  # here: it imports numba

    ranks = torch.empty(len(x), dtype=torch.float64)
    loops.mean_ranks(as_floats(x).numpy(), argsort_rows(x[None])[0].numpy(), ranks.numpy())
    return ranks
