"""The exact transport solver as one Triton kernel: a caption pair a program, on a square tile of registers.

The algorithm of `_transport.py` in the form that suits a warp, where a minimum over a whole tile costs little more than
one over a row: every row with supply left starts a path at once, paths grow by Bellman-Ford sweeps (all columns from
all rows, then all rows from all columns with flow between them), one path is served a search, the greedy start serves a
matching of rows and columns at a time, and words that two captions share are taken out first. Flow is whole, potentials
are float64: which float32 would round differently from the CPU, and a GPU that trains has float64 enough for problems
as small as these.

Imported only where there is a CUDA device.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

#: Sides of the tile: a caption pair takes the least that holds both captions' distinct words.
TILES = (8, 16, 32)
#: Words of a caption with repeats, at most: whole masses, products of two such numbers, then fit 31 bits.
MOST_WORDS = (1 << 15) - 1
#: Warps of a tile: more registers a thread than this leaves would spill.
_WARPS = {8: 1, 16: 1, 32: 4}


class Packed(NamedTuple):
    """The captions of both sides one after the other, and where the distances of their words are, on one device."""

    words: Tensor  # [E] int64, ascending within a caption
    counts: Tensor  # [E] int32
    places: Tensor  # [E] int64: the distance of a word of x and a word of y is costs[sum of their places]
    starts: Tensor  # [K+1] int64
    totals: Tensor  # [K] int32
    keys: Tensor  # [K] int64: which of two captions is the row side, whichever comes first
    costs: Tensor  # [any] float32


def movers(packed: Packed, rows: Tensor, cols: Tensor, offset: int, tile: int, same: bool, out: Tensor) -> None:
    """W of captions `rows` of x to captions `cols` of y into `out` `[A, B]` float64, all of at most `tile` words.

    Caption c of y is caption offset + c of `packed`. Where x and y are the same, pairs of a caption and a later one are
    solved, and written twice; the diagonal is left as it is.
    """
    if len(rows) and len(cols):
        with torch.cuda.device_of(out):  # type: ignore[no-untyped-call]
            _movers[(len(rows) * len(cols),)](
                *packed,
                rows,
                cols,
                out,
                len(cols),
                out.shape[1],
                offset,
                tile=tile,
                same=same,
                num_warps=_WARPS[tile],
                enable_fp_fusion=False,
            )


# Sizes as they come: a kernel for those that 16 divides would only be compiled once more.
@triton.jit(do_not_specialize=["width", "stride", "offset"])
def _movers(
    words: tl.tensor,
    counts: tl.tensor,
    places: tl.tensor,
    starts: tl.tensor,
    totals: tl.tensor,
    keys: tl.tensor,
    costs: tl.tensor,
    rows: tl.tensor,
    cols: tl.tensor,
    out: tl.tensor,
    width: tl.tensor,
    stride: tl.tensor,
    offset: tl.tensor,
    tile: tl.constexpr,
    same: tl.constexpr,
) -> None:
    pair = tl.program_id(0)
    row, col = tl.load(rows + pair // width), tl.load(cols + pair % width)
    if same:  # noqa: SIM102 - a constant, which Triton does not combine with a number on the device
        if row >= col:
            return
    i, j = tl.arange(0, tile)[:, None], tl.arange(0, tile)[None, :]
    # The problem is turned so that W(a, b) and W(b, a) are one computation.
    turned = tl.load(keys + row) > tl.load(keys + offset + col)
    a = tl.where(turned, offset + col, row)
    b = tl.where(turned, row, offset + col)
    at_a, at_b = tl.load(starts + a), tl.load(starts + b)
    in_a, in_b = i < tl.load(starts + a + 1) - at_a, j < tl.load(starts + b + 1) - at_b
    total_a, total_b = tl.load(totals + a), tl.load(totals + b)
    supply = tl.load(counts + at_a + i, mask=in_a, other=0) * total_b  # [T,1]
    demand = tl.load(counts + at_b + j, mask=in_b, other=0) * total_a  # [1,T]
    # Words that both have stay where they are, which is optimal for a metric.
    word_a = tl.load(words + at_a + i, mask=in_a, other=-1)
    word_b = tl.load(words + at_b + j, mask=in_b, other=-2)
    common = tl.where(word_a == word_b, tl.minimum(supply, demand), 0)
    supply -= tl.sum(common, 1, keep_dims=True)
    demand -= tl.sum(common, 0, keep_dims=True)
    takes_part = (supply > 0) & (demand > 0)
    place = tl.load(places + at_a + i, mask=in_a, other=0) + tl.load(places + at_b + j, mask=in_b, other=0)
    cost = tl.load(costs + place, mask=takes_part, other=0).to(tl.float64)
    distance = _solve(cost, supply, demand, takes_part, i, j, tile) / (total_a * total_b)
    tl.store(out + row * stride + col, distance)
    if same:
        tl.store(out + col * stride + row, distance)


@triton.jit
def _solve(
    cost: tl.tensor,
    supply: tl.tensor,
    demand: tl.tensor,
    takes_part: tl.tensor,
    i: tl.tensor,
    j: tl.tensor,
    tile: tl.constexpr,
) -> tl.tensor:
    """The least cost, NaN where no path of finite length is left; always ends: each turn sends at least one."""
    reduced = _start(cost, supply, demand, takes_part)
    left, need, flow = _send_on_tight_arcs(reduced, supply, demand, i, j, tile)
    remaining = tl.sum(left)
    lost = False
    while remaining > 0:
        height, via, dist, origin, rise = _search(reduced, flow, left, need)
        lost = (rise < float("inf")) == 0
        # Duals; rounding may leave -1e-17.
        reduced = tl.maximum(reduced - tl.maximum(rise - height, 0) + tl.maximum(rise - dist, 0), 0)
        # The path back from the nearest column with demand left: 1 where flow is added, -1 where it is taken back.
        end = tl.min(tl.where((need > 0) & (dist == rise), j, tile))
        row, col = end, end
        path = tl.zeros_like(flow)
        while col >= 0:
            row = tl.sum(tl.where(j == col, origin, 0))
            path += ((i == row) & (j == col)).to(tl.int32)
            col = tl.sum(tl.where(i == row, via, 0))
            path -= ((i == row) & (j == col)).to(tl.int32)
        ends = tl.where((i == row) & (j == end), tl.minimum(left, need), tl.where(path < 0, flow, 2147483647))
        amount = tl.where(lost, remaining, tl.min(tl.min(ends, 1)))
        flow += path * amount
        reduced = tl.where(flow > 0, 0, reduced)
        left -= tl.where(i == row, amount, 0)
        need -= tl.where(j == end, amount, 0)
        remaining -= amount
    least = tl.sum(tl.sum(tl.where(flow > 0, flow * cost, 0), 1))
    return tl.where(lost, float("nan"), least)


@triton.jit
def _start(cost: tl.tensor, supply: tl.tensor, demand: tl.tensor, takes_part: tl.tensor) -> tl.tensor:
    """Reduced costs from the better of two dual starts, rows first and columns first; infinite beyond the problem."""
    reach = tl.where(takes_part, cost, float("inf"))
    u = tl.where(supply > 0, tl.min(reach, 1, keep_dims=True), 0)
    v = tl.where(demand > 0, tl.min(reach - u, 0, keep_dims=True), 0)
    v2 = tl.where(demand > 0, tl.min(reach, 0, keep_dims=True), 0)
    u2 = tl.where(supply > 0, tl.min(reach - v2, 1, keep_dims=True), 0)
    rows_first = tl.sum(supply * u) + tl.sum(demand * v)
    cols_first = tl.sum(supply * u2) + tl.sum(demand * v2)
    # Subtracted in the order of the minima, which makes tight arcs exactly 0.
    return tl.where(rows_first >= cols_first, (reach - u) - v, (reach - v2) - u2)


@triton.jit
def _send_on_tight_arcs(
    reduced: tl.tensor, supply: tl.tensor, demand: tl.tensor, i: tl.tensor, j: tl.tensor, tile: tl.constexpr
) -> tl.tensor:
    """Greedy flow where the reduced cost is 0: each turn serves rows and columns that are one another's first."""
    left, need = supply, demand
    flow = tl.zeros_like(left + need)
    sending = 1
    while sending > 0:
        tight = (reduced <= 0) & (left > 0) & (need > 0)
        tight = tight & (i == tl.min(tl.where(tight, i, tile), 0, keep_dims=True))
        tight = tight & (j == tl.min(tl.where(tight, j, tile), 1, keep_dims=True))
        sent = tl.where(tight, tl.minimum(left, need), 0)
        flow += sent
        left -= tl.sum(sent, 1, keep_dims=True)
        need -= tl.sum(sent, 0, keep_dims=True)
        sending = tl.max(tl.max(sent, 1))
    return left, need, flow


@triton.jit
def _search(reduced: tl.tensor, flow: tl.tensor, left: tl.tensor, need: tl.tensor) -> tl.tensor:
    """Shortest paths from all rows with supply left to the nearest column with demand left.

    Heights [T,1] of rows and the columns they were reached through (-1: supply left), distances [1,T] of columns and
    the rows they were reached from, and the nearest distance; beyond that one the others are only upper bounds. Only a
    strictly shorter way replaces another, which is why ties cannot close a path into a loop.
    """
    height = tl.where(left > 0, 0.0, float("inf")).to(tl.float64)
    via = tl.where(left > 0, -1, -1)
    dist, origin = tl.min(height + reduced, 0, return_indices=True, keep_dims=True)
    nearer, near, at, rise = _back(flow, need, height, dist)
    while tl.max(nearer) > 0:
        height, via = tl.where(nearer > 0, near, height), tl.where(nearer > 0, at, via)
        length, row = tl.min(height + reduced, 0, return_indices=True, keep_dims=True)
        dist, origin = tl.where(length < dist, length, dist), tl.where(length < dist, row, origin)
        nearer, near, at, rise = _back(flow, need, height, dist)
    return height, via, dist, origin, rise


@triton.jit
def _back(flow: tl.tensor, need: tl.tensor, height: tl.tensor, dist: tl.tensor) -> tl.tensor:
    """Which rows come nearer through a column that they send to, their new heights, those columns; the nearest end."""
    rise = tl.min(tl.where(need > 0, dist, float("inf")))
    near, at = tl.min(tl.where(flow > 0, dist, float("inf")), 1, return_indices=True, keep_dims=True)
    return ((near < height) & (near < rise)).to(tl.int32), near, at, rise
