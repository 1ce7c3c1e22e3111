"""The k nearest vectors by Euclidean distance, exactly: candidates are found in float32 and ranked in float64.

On the CPU candidates come from FAISS, on a GPU from matrix products. Every other vector is at least as far as the last
candidate, except for float32 rounding, which has a bound. Where rounding could hide a nearer vector (tight clusters,
ties), the query is compared with the whole gallery.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from contml.distances.exact import ExactDistances, squared_distances_to

#: Rows that are centred and scaled in float64 at a time.
_CHUNK = 4096
#: Candidates beyond k: rounding may have swapped near ties at k.
_SPARE = 32
#: Queries ranked at a time, and the bytes that their `[queries, candidates, d]` differences may take.
_QUERIES = 256
_BYTES = 256 << 20
#: Gallery rows of a matrix product: bounds the `[queries, rows]` block.
_COLUMNS = 1 << 16


class Nearest(NamedTuple):
    """The k nearest of a gallery to each query, nearest first, ties by lower position."""

    values: Tensor  # [Q,k] float64: squared distances, or what `order` returned for them
    positions: Tensor  # [Q,k] int64


def nearest_vectors(
    queries: Tensor,
    gallery: Tensor,
    k: int,
    *,
    self_index: Tensor | None = None,
    order: Callable[[Tensor], Tensor] | None = None,
    memory: int = _BYTES,
    progress: Callable[[int], None] | None = None,
) -> Nearest:
    """The k nearest of the gallery `[G, d]` to each query `[Q, d]` by squared Euclidean distance in float64, exactly.

    Args:
        queries: finite numbers, on the gallery's device.
        gallery: finite numbers; at least k rows that are not the query itself.
        k: how many.
        self_index: `[Q]`, the position of each query in the gallery, which is excluded, or -1.
        order: a non-decreasing function of squared distances in float64; its values are ranked, and decide ties.
        memory: bytes for the differences to candidates.
        progress: called with the number of finished queries.
    """
    order = (lambda squared: squared) if order is None else order
    q, g = queries.detach(), gallery.detach()
    own = torch.full((len(q),), -1, device=q.device) if self_index is None else self_index.to(q.device)
    frame = Frame(q, g)
    placed = frame.place(g)
    rounding = _Rounding(frame, placed)
    search = _search_by_faiss(placed) if g.device.type == "cpu" else _search_by_products(placed)
    del placed  # FAISS has its own copy
    exact_distances = ExactDistances(g)
    count = min(len(g), k + _SPARE + 1)
    step = max(1, min(_QUERIES, memory // (24 * count * max(g.shape[1], 1))))
    out = Nearest(
        q.new_empty(len(q), k, dtype=torch.float64), torch.empty(len(q), k, dtype=torch.int64, device=q.device)
    )
    for start in range(0, len(q), step):
        part = slice(start, min(start + step, len(q)))
        q32 = frame.place(q[part])
        approximate, found = search(q32, count)
        found = found.sort(dim=1).values
        d = order(squared_distances_to(q[part], g, found))
        d.masked_fill_(found == own[part, None], torch.inf)
        values, at = d.sort(dim=1, stable=True)
        out.values[part], out.positions[part] = values[:, :k], found.gather(1, at[:, :k])
        if count < len(g):
            last = approximate.max(dim=1).values.double()
            beyond = order((last - rounding.of(q32, last)).clamp(min=0) * frame.scale**2)
            for row in (start + (~(out.values[part, -1] < beyond)).nonzero()[:, 0]).tolist():
                values = order(exact_distances.of(q[row]))
                out.values[row], out.positions[row] = _nearest_in_gallery(values, int(own[row]), k)
        if progress is not None:
            progress(part.stop)
    return out


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

    def place(self, x: Tensor) -> Tensor:
        """Vectors x `[N, d]` in the frame, in float32."""
        out = torch.empty(x.shape, device=x.device)
        for start in range(0, len(x), _CHUNK):
            part = slice(start, start + _CHUNK)
            out[part] = (x[part].double() - self.center) / self.scale
        return out


def squared_lengths(x: Tensor) -> Tensor:
    """Squared norms `[N]` in float64 of x `[N, d]`."""
    return torch.cat([part.double().square().sum(1) for part in torch.split(x, _CHUNK)])


class _Rounding:
    """A bound on the rounding error of squared distances of scaled float32 vectors."""

    def __init__(self, frame: Frame, gallery: Tensor) -> None:
        self.dim, self.shift = gallery.shape[1], frame.shift
        self.longest = float(squared_lengths(gallery).max())
        # In TF32, if it is allowed, products keep ten bits.
        tf32 = gallery.device.type == "cuda" and torch.backends.cuda.matmul.allow_tf32
        self.eps = 2.0**-10 if tf32 else 2.0**-23

    def of(self, q32: Tensor, last: Tensor) -> Tensor:
        """The bound `[Q]` for these queries and all vectors that may be nearer than `last` `[Q]`."""
        length = q32.square().sum(1).double()
        # A much longer vector is far away despite rounding, so an outlier does not raise the bound of every query.
        size = length + torch.maximum(16 * length, 4 * last).clamp(max=self.longest)
        shift = 2 * (2 * size).sqrt() * self.shift + self.shift**2
        bound: Tensor = 2 * (self.dim + 4) * self.eps * size + shift + torch.finfo(torch.float32).tiny
        return bound


def _search_by_faiss(gallery: Tensor) -> Callable[[Tensor, int], tuple[Tensor, Tensor]]:
    import faiss

    index: Any = faiss.IndexFlatL2(gallery.shape[1])
    index.add(gallery.numpy())

    def search(queries: Tensor, count: int) -> tuple[Tensor, Tensor]:
        distances, found = index.search(queries.numpy(), count)
        return torch.from_numpy(distances), torch.from_numpy(found)

    return search


def _search_by_products(gallery: Tensor) -> Callable[[Tensor, int], tuple[Tensor, Tensor]]:
    size = gallery.square().sum(1)  # [G]

    def search(queries: Tensor, count: int) -> tuple[Tensor, Tensor]:
        own = queries.square().sum(1, keepdim=True)
        best, found = queries.new_empty(len(queries), 0), own.new_empty(len(queries), 0, dtype=torch.int64)
        for start in range(0, len(gallery), _COLUMNS):
            part = slice(start, start + _COLUMNS)
            d = (own + size[part]).addmm_(queries, gallery[part].T, alpha=-2)
            near, at = d.topk(min(count, d.shape[1]), dim=1, largest=False)
            best, kept = torch.cat((best, near), 1).topk(min(count, best.shape[1] + near.shape[1]), 1, largest=False)
            found = torch.cat((found, at + start), 1).gather(1, kept)
        return best, found

    return search


def _nearest_in_gallery(d: Tensor, own: int, k: int) -> tuple[Tensor, Tensor]:
    """Values and positions `[k]` of the nearest of one query, given its values `[G]` to the whole gallery."""
    if own >= 0:
        d[own] = torch.inf
    last = d.kthvalue(k).values
    nearer, tied = (d < last).nonzero()[:, 0], (d == last).nonzero()[:, 0]
    at = torch.cat((nearer, tied[: k - len(nearer)]))
    values, by_value = d[at].sort(stable=True)
    return values, at[by_value]
