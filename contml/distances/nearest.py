"""The k nearest rows of a label space and the k nearest vectors, exactly and within a memory budget.

The search in a label space goes through blocks of label distances. Neighbours at equal distance are in order of rows.
Label distances are the same numbers on every device, to float32 rounding.

The search for vectors by Euclidean distance finds candidates in float32 and ranks them in float64. Candidates come from
matrix products. Every other vector is at least as far as the last candidate, except for float32 rounding, which has a
bound. Where rounding could hide a nearer vector (tight clusters, ties), the query is compared with the whole gallery.

Vectors of one dimension are sorted instead: the candidates of a query are the numbers next to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from contml._support.errors import InputError
from contml.distances._compiled import rows_in_threads
from contml.distances.exact import ExactDistances, as_floats, squared_distances_to

#: Called with the number of rows or queries finished so far.
Progress: TypeAlias = Callable[[int], None] | None
#: A non-decreasing function of squared distances.
Order: TypeAlias = Callable[[Tensor], Tensor]
#: A function of rows and columns that returns a matrix, or None.
Compare: TypeAlias = Callable[[Tensor, Tensor], Any]

#: Bytes that a block of label distances may take, with temporaries.
MEMORY = 256 << 20
#: Bytes per entry of a block of label distances while it is computed: float64 arithmetic with temporaries.
_PER_ENTRY = 64
#: Rows that are centred and scaled in float64 at a time.
_CHUNK = 4096
#: Candidates beyond k: rounding may have swapped near ties at k.
_SPARE = 32
#: Queries ranked at a time, and the bytes of one of their candidates.
_QUERIES, _PER_CANDIDATE = 512, 96
#: Gallery rows of a matrix product. They limit the block `[queries, rows]`, which stays in the processor's cache.
_COLUMNS, _CPU_COLUMNS = 1 << 16, 1 << 11
#: Entries of a block of neighbouring numbers, for vectors of one dimension.
_ENTRIES = 1 << 18


class Neighbours(NamedTuple):
    """The k nearest rows of each row by label distance, nearest first, ties by lower row.

    If fewer than k rows have a label distance to the row, the other places have row -1 and distance infinity.
    """

    distances: Tensor  # [R,k] float32
    rows: Tensor  # [R,k] int64


def stream_nearest(
    pairwise: Compare, known: Compare, k: int, rows: Tensor, among: Tensor, memory: int, progress: Progress
) -> Neighbours:
    """Find the k nearest of `among` `[C]` to each of `rows` `[R]`, without the row itself, by blocks of `pairwise`.

    `known` returns the pairs of a block that have a label distance. It returns None if all pairs have one.
    """
    keys = torch.empty(len(rows), k, dtype=torch.int64, device=rows.device)
    width = min(len(among), 1 << 14)
    for chunk in chunks(len(rows), width, memory):
        best: Tensor | None = None
        for start in range(0, len(among), width):
            cols = among[start : start + width]
            key = _keys(pairwise(rows[chunk], cols).float(), cols)
            key.masked_fill_(rows[chunk, None] == cols, _LAST)
            if (has_distance := known(rows[chunk], cols)) is not None:
                key.masked_fill_(~has_distance, _LAST)
            key = key if best is None else torch.cat((best, key), 1)
            best = key.topk(min(k, key.shape[1]), dim=1, largest=False).values
        assert best is not None
        keys[chunk] = best
        if progress is not None:
            progress(chunk.stop)
    none = keys == _LAST
    distances, found = (keys >> 32).int().view(torch.float32), keys & 0xFFFFFFFF
    return Neighbours(distances.masked_fill_(none, torch.inf), found.masked_fill_(none, -1))


def checked(distances: Tensor) -> Tensor:
    """Check that label distances `[R, C]` are finite numbers >= 0, and return them.

    Raises:
        InputError: a label distance is negative or not finite.
    """
    if distances.numel() and not all(0 <= float(edge) < float("inf") for edge in torch.aminmax(distances)):
        row, col = (~((distances >= 0) & distances.isfinite())).nonzero()[0].tolist()
        value = f"{distances[row, col].item()} in row {row}, column {col} of a block"
        is_negative = bool(distances[row, col] < 0)
        hint = "similarities? give 1 - similarity" if is_negative else "look for NaN in the labels"
        raise InputError("label distance", value, "must be a finite number >= 0", hint)
    return distances


def chunks(rows: int, cols: int, memory: int) -> Iterator[slice]:
    """Yield slices of the rows such that a block of a slice and all columns fits in `memory` bytes."""
    step = max(1, memory // (_PER_ENTRY * max(cols, 1)))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


#: The key of an entry that does not count. It sorts after all others.
_LAST = torch.iinfo(torch.int64).max


def _keys(distances: Tensor, cols: Tensor) -> Tensor:
    # Floats >= 0 have the order of their bits, so (distance, row) packs into one integer for a plain top-k: ties go to
    # the lower row, on every device. Adding 0 turns -0.0, whose bits are negative, into 0.0.
    return (distances.add(0.0).view(torch.int32).long() << 32) | cols


class Nearest(NamedTuple):
    """The k nearest of a gallery to each query, nearest first, ties by lower position."""

    values: Tensor  # [Q,k] float64: squared distances, or their values by `order`
    positions: Tensor  # [Q,k] int64


def nearest_vectors(
    queries: Tensor,
    gallery: Tensor,
    k: int,
    *,
    self_index: Tensor | None = None,
    order: Order | None = None,
    memory: int = MEMORY,
    progress: Progress = None,
) -> Nearest:
    """Find the exact k nearest of the gallery `[G, d]` to each query `[Q, d]` by squared Euclidean distance in float64.

    Args:
        queries: finite numbers, on the gallery's device.
        gallery: finite numbers; at least k rows that are not the query itself.
        k: the number of neighbours.
        self_index: `[Q]`, the position of each query in the gallery, which is excluded, or -1.
        order: a non-decreasing function of squared distances in float64; its values are ranked, and decide ties.
        memory: bytes for the candidates.
        progress: called with the number of finished queries.
    """
    order = (lambda squared: squared) if order is None else order
    q, g = as_floats(queries), as_floats(gallery)  # once: a part of the queries at a time reads the whole gallery
    own_index = torch.full((len(q),), -1, device=q.device) if self_index is None else self_index.to(q.device)
    if g.shape[1] == 1:
        return _nearest_numbers(q[:, 0].double(), g[:, 0].double(), k, own_index, order, memory, progress)
    frame = Frame(q, g)
    scaled_gallery = frame.transform(g)
    rounding = _Rounding(frame, scaled_gallery)
    search = (_search_by_products if g.is_cuda else _search_on_cpu)(scaled_gallery)
    exact_distances = ExactDistances(g)
    count = min(len(g), k + _SPARE + 1)
    step = max(1, min(_QUERIES, memory // (_PER_CANDIDATE * count)))
    out = _empty(len(q), k, q.device)
    for start in range(0, len(q), step):
        chunk = slice(start, min(start + step, len(q)))
        q32 = frame.transform(q[chunk])
        approximate, candidates = search(q32, count)
        candidates = candidates.sort(dim=1).values
        d = order(squared_distances_to(q[chunk], g, candidates))
        out.values[chunk], out.positions[chunk] = _first(d, candidates, own_index[chunk], k)
        if count < len(g):
            last_distance = approximate.max(dim=1).values.double()
            bound = order((last_distance - rounding.of(q32, last_distance)).clamp(min=0) * frame.scale**2)
            for row in (start + (~(out.values[chunk, -1] < bound)).nonzero()[:, 0]).tolist():
                values = order(exact_distances.of(q[row]))
                out.values[row], out.positions[row] = _nearest_in_gallery(values, int(own_index[row]), k)
        if progress is not None:
            progress(chunk.stop)
    return out


def neighbours_by_value(
    values: Tensor, k: int, rows: Tensor, among: Tensor, order: Order, memory: int, progress: Progress
) -> Neighbours:
    """Find the k nearest of the rows `among` `[C]`, ascending, to each of `rows` `[R]`, without the row itself.

    The label distances are `order` of the squared distances of values `[N, D]`, rounded to float32.
    """
    position = torch.searchsorted(among, rows).clamp_(max=len(among) - 1)
    own_index = torch.where(among[position] == rows, position, -1)

    def rounded(squared: Tensor) -> Tensor:
        return order(squared).float().double()  # the same ties as of `pairwise`

    x, y = values[rows], values[among]
    nearest = nearest_vectors(x, y, k, self_index=own_index, order=rounded, memory=memory, progress=progress)
    return Neighbours(nearest.values.float(), among[nearest.positions])


def _nearest_numbers(
    q: Tensor, g: Tensor, k: int, own: Tensor, order: Order, memory: int, progress: Progress
) -> Nearest:
    """Return the result of `nearest_vectors` for numbers q `[Q]` and g `[G]` in float64, by sorting."""
    values, indices = g.sort(stable=True)
    # Of equal numbers the first k + 1 are enough: one of them may be the query itself.
    keep_mask = torch.arange(len(g), device=g.device) - torch.searchsorted(values, values) <= k
    values, indices = values[keep_mask], indices[keep_mask]
    # Each side has up to k - 1 nearer numbers, the query itself, k + 1 ties at the last place, and one beyond.
    half_width = 2 * k + 2
    width = min(2 * half_width, len(values))
    offsets = torch.arange(width, device=g.device)
    sorted_indices, index_order = indices.sort()
    out = _empty(len(q), k, q.device)
    step = max(1, min(_ENTRIES, memory // _PER_CANDIDATE) // width)
    for start in range(0, len(q), step):
        chunk = slice(start, min(start + step, len(q)))
        x = q[chunk, None]
        window = (torch.searchsorted(values, x) - half_width).clamp(0, len(values) - width) + offsets
        d = order((x - values[window]).square())
        positions, by_position = indices[window].sort(dim=1)
        out.values[chunk], out.positions[chunk] = _first(d.gather(1, by_position), positions, own[chunk], k)
        kth_value = out.values[chunk, -1]
        # Different numbers may tie after rounding, even beyond the window.
        unsure = (d[:, 0] <= kth_value) & (window[:, 0] > 0)
        unsure |= (d[:, -1] <= kth_value) & (window[:, -1] < len(values) - 1)
        for row in (start + unsure.nonzero()[:, 0]).tolist():
            d = order((q[row] - values[index_order]).square())
            nearest = _first(d[None], sorted_indices[None], own[row : row + 1], k)
            out.values[row], out.positions[row] = nearest.values[0], nearest.positions[0]
        if progress is not None:
            progress(chunk.stop)
    return out


def _empty(queries: int, k: int, device: torch.device) -> Nearest:
    values = torch.empty(queries, k, dtype=torch.float64, device=device)
    return Nearest(values, torch.empty(queries, k, dtype=torch.int64, device=device))


def _first(d: Tensor, positions: Tensor, own: Tensor, k: int) -> Nearest:
    """Return the k nearest candidates by their values d `[Q, C]`, without own `[Q]`.

    The candidates are at positions `[Q, C]`, ascending.
    """
    values, order = d.masked_fill_(positions == own[..., None], torch.inf).sort(dim=1, stable=True)
    return Nearest(values[:, :k], positions.gather(1, order[:, :k]))


class Frame:
    """Coordinates in which float32 is precise: centred at the mean of the gallery `[G, d]`, scaled to at most 1.

    Without it, a large offset or scale of all vectors would cause rounding errors or overflow.
    """

    def __init__(self, queries: Tensor, gallery: Tensor) -> None:
        self.center = gallery.mean(0, dtype=torch.float64)
        edges = [edge.double() for x in (queries, gallery) if x.numel() for edge in x.aminmax(dim=0)]
        self.scale = max((float((edge - self.center).abs().max()) for edge in edges), default=0.0) or 1.0
        largest = max((float(edge.abs().max()) for edge in edges), default=0.0)
        #: The largest rounding error of centring a vector, in scaled units: relative to the original numbers.
        self.shift = 4 * torch.finfo(torch.float64).eps * largest / self.scale * gallery.shape[1] ** 0.5

    def transform(self, x: Tensor) -> Tensor:
        """Transform vectors x `[N, d]` to the frame, in float32."""
        out = torch.empty(x.shape, device=x.device)
        for start in range(0, len(x), _CHUNK):
            chunk = slice(start, start + _CHUNK)
            out[chunk] = (x[chunk].double() - self.center) / self.scale
        return out


def squared_lengths(x: Tensor) -> Tensor:
    """Return the squared norms `[N]` in float64 of x `[N, d]`."""
    return torch.cat([chunk.double().square().sum(1) for chunk in torch.split(x, _CHUNK)])


def rounded_inputs(device: torch.device) -> float:
    """Return the relative error of a product if float32 matrix products may round their inputs.

    CUDA rounds to TF32 (ten bits), the CPU to bfloat16 (seven). Return 0 if inputs are not rounded.
    """
    if device.type == "cuda":
        return 2.0**-9 if torch.backends.cuda.matmul.allow_tf32 else 0.0
    products = getattr(torch.backends.mkldnn, "matmul", None)  # torch >= 2.9
    precision = getattr(products, "fp32_precision", "none")
    return 0.0 if torch.get_float32_matmul_precision() == "highest" and precision in ("none", "ieee") else 2.0**-7


class _Rounding:
    """A bound on the rounding error of squared distances of scaled float32 vectors."""

    def __init__(self, frame: Frame, gallery: Tensor) -> None:
        self.dim, self.shift = gallery.shape[1], frame.shift
        self.longest = float(squared_lengths(gallery).max())
        self.eps = max(2.0**-23, rounded_inputs(gallery.device) / 2)

    def of(self, q32: Tensor, last: Tensor) -> Tensor:
        """Return the bound `[Q]` for these queries and all vectors that may be nearer than `last` `[Q]`."""
        length = q32.square().sum(1).double()
        # A much longer vector is far away despite rounding, so an outlier does not raise the bound of every query.
        size = length + torch.maximum(16 * length, 4 * last).clamp(max=self.longest)
        shift = 2 * (2 * size).sqrt() * self.shift + self.shift**2
        return 2 * (self.dim + 4) * self.eps * size + shift + torch.finfo(torch.float32).tiny


def _search_on_cpu(gallery: Tensor) -> Callable[[Tensor, int], tuple[Tensor, Tensor]]:
    from contml.distances._nearest_loops import keep_nearest, keep_smallest  # here: it imports numba

    size = gallery.square().sum(1)  # [G]

    def search(queries: Tensor, count: int) -> tuple[Tensor, Tensor]:
        rows, columns = len(queries), min(_CPU_COLUMNS, len(gallery))
        near = np.empty((rows, 2 * count), np.float32)
        ids = np.empty((rows, 2 * count), np.int64)
        used, limit = np.zeros(rows, np.int64), np.full(rows, np.inf, np.float32)
        buffer = torch.empty(rows * columns)

        def work(part: slice) -> None:
            keep_nearest(block[part], sizes, start, count, near[part], ids[part], used[part], limit[part])

        for start in range(0, len(gallery), columns):
            items = gallery[start : start + columns]
            products = torch.mm(queries, items.T, out=buffer[: rows * len(items)].view(rows, -1))
            block, sizes = products.numpy(), size[start : start + columns].numpy()
            rows_in_threads(work, rows, products.numel())
        for row, filled in enumerate(used.tolist()):
            keep_smallest(near[row, :filled], ids[row, :filled], count)
        squared_norms = queries.square().sum(1, keepdim=True)
        return squared_norms + torch.from_numpy(near[:, :count]), torch.from_numpy(ids[:, :count])

    return search


def _search_by_products(gallery: Tensor) -> Callable[[Tensor, int], tuple[Tensor, Tensor]]:
    size = gallery.square().sum(1)  # [G]

    def search(queries: Tensor, count: int) -> tuple[Tensor, Tensor]:
        squared_norms = queries.square().sum(1, keepdim=True)
        best = queries.new_empty(len(queries), 0)
        positions = best.new_empty(best.shape, dtype=torch.int64)
        for start in range(0, len(gallery), _COLUMNS):
            chunk = slice(start, start + _COLUMNS)
            d = (squared_norms + size[chunk]).addmm_(queries, gallery[chunk].T, alpha=-2)
            near, columns = d.topk(min(count, d.shape[1]), dim=1, largest=False)
            best, order = torch.cat((best, near), 1).topk(min(count, best.shape[1] + near.shape[1]), 1, largest=False)
            positions = torch.cat((positions, columns + start), 1).gather(1, order)
        return best, positions

    return search


def _nearest_in_gallery(d: Tensor, own: int, k: int) -> tuple[Tensor, Tensor]:
    """Return values and positions `[k]` of the nearest of one query, given its values `[G]` to the whole gallery."""
    if own >= 0:
        d[own] = torch.inf
    kth_value = d.kthvalue(k).values
    nearer, tied = (d < kth_value).nonzero()[:, 0], (d == kth_value).nonzero()[:, 0]
    positions = torch.cat((nearer, tied[: k - len(nearer)]))
    values, order = d[positions].sort(stable=True)
    return values, positions[order]
