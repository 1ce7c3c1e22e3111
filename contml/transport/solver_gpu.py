"""Step 4. The exact transport problems of many caption pairs, solved on a GPU: one Triton program per pair.

The algorithm is as in solver_cpu.py, in the form that suits a warp. A program keeps its problem in registers, as a
square tile. A minimum over the whole tile costs little more than a minimum over a row. Words that both captions have
are taken out first. Each turn of the greedy start sends flow between matched rows and columns. A search starts from all
rows with supply left and grows by Bellman-Ford sweeps. A sweep updates all columns from all rows, then all rows from
the columns that they send to. One path is augmented per search. Flow is whole. Potentials are float64, since float32
would round differently from the CPU.

The module is imported only where there is a CUDA device.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

#: Sizes of the tile: a caption pair takes the smallest that holds the distinct words of both captions.
TILES = (8, 16, 32)
#: The largest number of words in a caption, with repeats: flow, at most the product of two such numbers, fits 31 bits.
MOST_WORDS = (1 << 15) - 1
#: Warps of a tile: with fewer, registers would spill.
_WARPS = {8: 1, 16: 1, 32: 4}


class PackedPairs(NamedTuple):
    """The captions of x, then the captions of y, and the places of the distances between their words, on one device."""

    words: Tensor  # [E] int64, ascending within a caption
    counts: Tensor  # [E] int32
    places: Tensor  # [E] int64: the distance of a word of x and a word of y is costs[sum of their places]
    starts: Tensor  # [K+1] int64
    totals: Tensor  # [K] int32
    keys: Tensor  # [K] int64: the caption with the smaller key becomes the rows, whether it is of x or of y
    costs: Tensor  # [any] float32


def solve_pairs(
    packed: PackedPairs, rows: Tensor, cols: Tensor, offset: int, tile: int, same: bool, out: Tensor
) -> None:
    """Write W of captions `rows` of x and `cols` of y, of at most `tile` words, into `out` `[A, B]` float64.

    Caption c of y is caption offset + c of `packed`. If x and y are the same, only pairs of a caption and a later one
    are solved. Each result is written to both entries. The diagonal is not written.
    """
    if len(rows) and len(cols):
        with torch.cuda.device_of(out):
            launch = _solve_pair[(len(rows) * len(cols),)]
            sizes = len(cols), out.shape[1], offset
            launch(*packed, rows, cols, out, *sizes, tile, same, num_warps=_WARPS[tile], enable_fp_fusion=False)


# Without specialization: it would compile a second kernel for sizes that 16 divides.
@triton.jit(do_not_specialize=["width", "stride", "offset"])
def _solve_pair(
    words,
    counts,
    places,
    starts,
    totals,
    keys,
    costs,
    rows,
    cols,
    out,
    width,
    stride,
    offset,
    tile: tl.constexpr,
    same: tl.constexpr,
):
    pair = tl.program_id(0)
    row, col = tl.load(rows + pair // width), tl.load(cols + pair % width)
    if same:  # noqa: SIM102 - Triton cannot combine a constant with a value on the device
        if row >= col:
            return
    i, j = tl.arange(0, tile)[:, None], tl.arange(0, tile)[None, :]
    # In a fixed order, so that W(a, b) and W(b, a) are one computation.
    swapped = tl.load(keys + row) > tl.load(keys + offset + col)
    a = tl.where(swapped, offset + col, row)
    b = tl.where(swapped, row, offset + col)
    start_a, start_b = tl.load(starts + a), tl.load(starts + b)
    in_a, in_b = i < tl.load(starts + a + 1) - start_a, j < tl.load(starts + b + 1) - start_b
    total_a, total_b = tl.load(totals + a), tl.load(totals + b)
    supply = tl.load(counts + start_a + i, mask=in_a, other=0) * total_b  # [T,1]
    demand = tl.load(counts + start_b + j, mask=in_b, other=0) * total_a  # [1,T]
    # The mass of words that both captions have stays, which is optimal for a metric.
    word_a = tl.load(words + start_a + i, mask=in_a, other=-1)
    word_b = tl.load(words + start_b + j, mask=in_b, other=-2)
    common = tl.where(word_a == word_b, tl.minimum(supply, demand), 0)
    supply -= tl.sum(common, 1, keep_dims=True)
    demand -= tl.sum(common, 0, keep_dims=True)
    takes_part = (supply > 0) & (demand > 0)
    place = tl.load(places + start_a + i, mask=in_a, other=0) + tl.load(places + start_b + j, mask=in_b, other=0)
    cost = tl.load(costs + place, mask=takes_part, other=0).to(tl.float64)
    distance = _solve(cost, supply, demand, takes_part, i, j, tile) / (total_a * total_b)
    tl.store(out + row * stride + col, distance)
    if same:
        tl.store(out + col * stride + row, distance)


@triton.jit
def _solve(cost, supply, demand, takes_part, i, j, tile: tl.constexpr):
    """Return the least cost. Return NaN if no path of finite length is left. Each turn sends at least one unit."""
    reduced = _start(cost, supply, demand, takes_part)
    unsent, unmet, flow = _send_on_tight_arcs(reduced, supply, demand, i, j, tile)
    remaining = tl.sum(unsent)
    infeasible = False
    while remaining > 0:
        row_distance, row_parent, col_distance, col_parent, rise = _search(reduced, flow, unsent, unmet)
        infeasible = (rise < float("inf")) == 0
        # Duals; rounding may leave -1e-17.
        reduced = tl.maximum(reduced - tl.maximum(rise - row_distance, 0) + tl.maximum(rise - col_distance, 0), 0)
        # The path back from the nearest column with unmet demand: 1 where flow is added, -1 where it is removed.
        end = tl.min(tl.where((unmet > 0) & (col_distance == rise), j, tile))
        row, col = end, end
        path = tl.zeros_like(flow)
        while col >= 0:
            row = tl.sum(tl.where(j == col, col_parent, 0))
            path += ((i == row) & (j == col)).to(tl.int32)
            col = tl.sum(tl.where(i == row, row_parent, 0))
            path -= ((i == row) & (j == col)).to(tl.int32)
        ends = tl.where((i == row) & (j == end), tl.minimum(unsent, unmet), tl.where(path < 0, flow, 2147483647))
        amount = tl.where(infeasible, remaining, tl.min(tl.min(ends, 1)))
        flow += path * amount
        reduced = tl.where(flow > 0, 0, reduced)
        unsent -= tl.where(i == row, amount, 0)
        unmet -= tl.where(j == end, amount, 0)
        remaining -= amount
    least = tl.sum(tl.sum(tl.where(flow > 0, flow * cost, 0), 1))
    return tl.where(infeasible, float("nan"), least)


@triton.jit
def _start(cost, supply, demand, takes_part):
    """Compute reduced costs by the better of two dual starts, rows first or columns first.

    Costs outside the problem are infinite.
    """
    reach = tl.where(takes_part, cost, float("inf"))
    u = tl.where(supply > 0, tl.min(reach, 1, keep_dims=True), 0)
    v = tl.where(demand > 0, tl.min(reach - u, 0, keep_dims=True), 0)
    v2 = tl.where(demand > 0, tl.min(reach, 0, keep_dims=True), 0)
    u2 = tl.where(supply > 0, tl.min(reach - v2, 1, keep_dims=True), 0)
    rows_first = tl.sum(supply * u) + tl.sum(demand * v)
    cols_first = tl.sum(supply * u2) + tl.sum(demand * v2)
    # Subtracting in the order of the minima makes the reduced costs of tight arcs exactly 0.
    return tl.where(rows_first >= cols_first, (reach - u) - v, (reach - v2) - u2)


@triton.jit
def _send_on_tight_arcs(reduced, supply, demand, i, j, tile: tl.constexpr):
    """Send flow greedily on arcs of reduced cost 0. Each turn serves rows and columns that are each other's first."""
    unsent, unmet = supply, demand
    flow = tl.zeros_like(unsent + unmet)
    sending = 1
    while sending > 0:
        tight = (reduced <= 0) & (unsent > 0) & (unmet > 0)
        tight = tight & (i == tl.min(tl.where(tight, i, tile), 0, keep_dims=True))
        tight = tight & (j == tl.min(tl.where(tight, j, tile), 1, keep_dims=True))
        sent = tl.where(tight, tl.minimum(unsent, unmet), 0)
        flow += sent
        unsent -= tl.sum(sent, 1, keep_dims=True)
        unmet -= tl.sum(sent, 0, keep_dims=True)
        sending = tl.max(tl.max(sent, 1))
    return unsent, unmet, flow


@triton.jit
def _search(reduced, flow, unsent, unmet):
    """Find shortest paths from all rows with unsent supply to the nearest column with unmet demand.

    Return the distances of rows [T,1] and the columns before them on the path (-1: unsent supply), the distances of
    columns [1,T] and the rows before them, and the nearest distance. Distances beyond the nearest are only upper
    bounds. A path is replaced only by a strictly shorter one, so ties cannot close a loop.
    """
    row_distance = tl.where(unsent > 0, 0.0, float("inf")).to(tl.float64)
    row_parent = tl.where(unsent > 0, -1, -1)
    col_distance, col_parent = tl.min(row_distance + reduced, 0, return_indices=True, keep_dims=True)
    nearer, near, at, rise = _nearer_rows(flow, unmet, row_distance, col_distance)
    while tl.max(nearer) > 0:
        row_distance, row_parent = tl.where(nearer > 0, near, row_distance), tl.where(nearer > 0, at, row_parent)
        length, row = tl.min(row_distance + reduced, 0, return_indices=True, keep_dims=True)
        col_parent = tl.where(length < col_distance, row, col_parent)
        col_distance = tl.where(length < col_distance, length, col_distance)
        nearer, near, at, rise = _nearer_rows(flow, unmet, row_distance, col_distance)
    return row_distance, row_parent, col_distance, col_parent, rise


@triton.jit
def _nearer_rows(flow, unmet, row_distance, col_distance):
    """Find the rows that are nearer through a column they send to.

    Return these rows, their distances, the columns, and the distance of the nearest column with unmet demand.
    """
    rise = tl.min(tl.where(unmet > 0, col_distance, float("inf")))
    near, at = tl.min(tl.where(flow > 0, col_distance, float("inf")), 1, return_indices=True, keep_dims=True)
    return ((near < row_distance) & (near < rise)).to(tl.int32), near, at, rise
