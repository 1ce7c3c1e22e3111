"""Exact transport between small bags, compiled by numba: the solver under the Word Mover's Distance.

    minimise sum_ij f_ij C_ij   over flows f >= 0 with   sum_j f_ij = supply_i,  sum_i f_ij = demand_j

Supplies and demands are whole numbers with one total, so flow stays whole and nothing needs a tolerance. Shortest
augmenting paths (Ahuja, Magnanti and Orlin, Network Flows, 1993, chapter 9.7) from a good dual start, as many as one
search finds; the reduced costs are kept in place, and those of arcs with flow are exactly 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

from contml.distances._lanes import (
    LANES,
    equal,
    every,
    first,
    least,
    less,
    load,
    lower,
    pointer,
    store,
    total,
    where,
)

Floats = npt.NDArray[np.floating[Any]]
Ints = npt.NDArray[np.integer[Any]]
_F = TypeVar("_F", bound=Callable[..., Any])

#: Of `_lanes.py`; see `compiled`.
DIGEST = "96e82b0a678c"
#: A running dual has to pass a bound by this share before a solve stops: rounding must not drop an optimum.
_ROUNDING = 1 + 1e-12


def compiled(function: _F) -> _F:
    """The function as machine code that runs without the interpreter's lock, kept on disk between runs.

    The copy on disk is renewed when the text of the function's own file changes, not that of a file it calls. So a file
    whose functions call another's holds a digest of that one, and a test that they are up to date.
    """
    return cast(_F, numba.njit(cache=True, nogil=True)(function))


def inlined(function: _F) -> _F:
    """As `compiled`, but into the caller: handing over the work arrays would cost more than the work."""
    return cast(_F, numba.njit(cache=True, nogil=True, inline="always")(function))


class Memory(NamedTuple):
    """What one thread solves in, for bags of at most `width` distinct words."""

    width: int  # whole vectors
    floats: Floats


class Work(NamedTuple):
    """The parts of a `Memory`, as pointers; the caller holds it. A matrix has `width` numbers a row."""

    width: int
    cost: Floats  # [width,width] float64; rows i, columns j
    reduced: Floats  # [width,width] float64: C_ij - u_i - v_j >= 0, 0 where there is flow; inf or NaN beyond columns
    flow: Floats  # [width,width] float64: whole numbers; rows j, columns i
    supply: Floats  # [width] float64: whole numbers
    demand: Floats  # [width]
    left: Floats  # [width] supply not sent yet
    need: Floats  # [width] demand not met yet
    u: Floats  # [width] duals of rows, columns first
    v: Floats  # [width] duals of columns, rows first
    v2: Floats  # [width] duals of columns, columns first
    dist: Floats  # [width] of each column from the rows with supply left
    origin: Floats  # [width] the row that a column was reached from
    height: Floats  # [width] of each row
    via: Floats  # [width] the column that a row was reached through; -1 for a row with supply left


@compiled
def workspace(size: int) -> Memory:
    """Memory for problems of at most `size` rows and columns."""
    width = (size + LANES - 1) // LANES * LANES
    floats = np.zeros(3 * width * width + 11 * width + LANES, np.float64)
    aligned = -(floats.ctypes.data // 8) % LANES  # a vector then lies in one line of the cache
    return Memory(width, floats[aligned:])


@compiled
def work_in(memory: Memory) -> Work:
    """The parts of this memory."""
    width, floats = memory.width, memory.floats
    square = width * width
    return Work(
        width,
        pointer(floats, 0),
        pointer(floats, square),
        pointer(floats, 2 * square),
        pointer(floats, 3 * square),
        pointer(floats, 3 * square + width),
        pointer(floats, 3 * square + 2 * width),
        pointer(floats, 3 * square + 3 * width),
        pointer(floats, 3 * square + 4 * width),
        pointer(floats, 3 * square + 5 * width),
        pointer(floats, 3 * square + 6 * width),
        pointer(floats, 3 * square + 7 * width),
        pointer(floats, 3 * square + 8 * width),
        pointer(floats, 3 * square + 9 * width),
        pointer(floats, 3 * square + 10 * width),
    )


@inlined
def solve(work: Work, m: int, n: int, soft: float, hard: float) -> tuple[float, bool]:
    """The least cost of the problem in `work` (m rows, n columns), or a lower bound of it and False.

    Stops with a lower bound when the dual start passes `soft`, or the running dual `hard`. It always ends: after each
    search at least one unit is sent, and in a search distances only fall. The totals of supply and demand must be one.
    Costs that are not finite are gone round; NaN where they cannot be.
    """
    cost, supply, demand, flow, width = work.cost, work.supply, work.demand, work.flow, work.width
    if m == 1 or n == 1:
        least_cost = 0.0
        for i in range(m):
            for j in range(n):
                least_cost += cost[i * width + j] * (demand[j] if m == 1 else supply[i])
        return (least_cost if least_cost < np.inf else np.nan), True
    dual = _start(work, m, n)
    if not dual < np.inf:
        return np.nan, False
    if dual > soft * _ROUNDING or dual > hard * _ROUNDING:
        return dual, False
    remaining = _send_on_tight_arcs(work, m, n)
    while remaining > 0:
        rise = _search(work, m, n)
        dual += rise
        if not dual < np.inf:
            return np.nan, False
        if dual > hard * _ROUNDING:
            return dual, False
        if rise > 0:
            _raise_duals(work, m, n)
        for base in range(0, n, LANES):
            needy = less(every(0.0), load(work.need, base))
            while needy:
                end = base + first(needy)
                needy &= needy - 1
                remaining -= _augment(work, end)
    least_cost = 0.0
    for j in range(n):
        for base in range(0, m, LANES):
            used = less(every(0.0), load(flow, j * width + base))
            while used:
                i = base + first(used)
                used &= used - 1
                least_cost += flow[j * width + i] * cost[i * width + j]
    return least_cost, True


@inlined
def _start(work: Work, m: int, n: int) -> float:
    # u_i = min_j C_ij, v_j = min_i (C_ij - u_i), and the same with columns first: the better of the two. Either is at
    # least the relaxed distance of its side. Subtracting in the order of the minima makes tight arcs exactly 0.
    cost, reduced, u, v, v2 = work.cost, work.reduced, work.u, work.v, work.v2
    width, beyond = work.width, every(np.inf)
    for base in range(0, n, LANES):
        store(v, base, beyond)
        store(v2, base, beyond)
    rows_first, cols_first = 0.0, 0.0
    for i in range(m):
        low = np.inf
        for base in range(0, n, LANES):
            row = load(cost, i * width + base)
            row = where(_inside(n - base) & equal(row, row), row, beyond)  # NaN would leave any lane as the least
            store(cost, i * width + base, row)
            store(v2, base, lower(row, load(v2, base)))
            low = min(low, least(row))
        rows_first += work.supply[i] * low
        for base in range(0, n, LANES):
            row = load(cost, i * width + base) - every(low)
            store(reduced, i * width + base, row)
            store(v, base, lower(row, load(v, base)))
    for base in range(0, n, LANES):
        inside, demand = _inside(n - base), load(work.demand, base)
        store(v, base, where(inside, load(v, base), every(0.0)))
        store(v2, base, where(inside, load(v2, base), every(0.0)))
        rows_first += total(demand * load(v, base))
        cols_first += total(demand * load(v2, base))
    for i in range(m):
        low = np.inf
        for base in range(0, n, LANES):
            low = min(low, least(load(cost, i * width + base) - load(v2, base)))
        u[i] = low
        cols_first += work.supply[i] * low
    for i in range(m):
        for base in range(0, n, LANES):
            at = i * width + base
            if rows_first >= cols_first:
                store(reduced, at, load(reduced, at) - load(v, base))
            else:
                store(reduced, at, (load(cost, at) - load(v2, base)) - every(u[i]))
    return max(rows_first, cols_first)


@inlined
def _inside(columns: int) -> int:
    """Bits of the lanes that are columns."""
    return (1 << min(columns, LANES)) - 1


@inlined
def _send_on_tight_arcs(work: Work, m: int, n: int) -> float:
    """Greedy flow where the reduced cost is 0; returns the supply that is left."""
    reduced, flow, left, need, width = work.reduced, work.flow, work.left, work.need, work.width
    store(need, (n - 1) // LANES * LANES, every(0.0))  # beyond the columns
    for j in range(n):
        need[j] = work.demand[j]
        for base in range(0, m, LANES):
            store(flow, j * width + base, every(0.0))
    store(left, (m - 1) // LANES * LANES, every(0.0))  # beyond the rows
    remaining = 0.0
    for i in range(m):
        amount = work.supply[i]
        for base in range(0, n, LANES):
            tight = equal(load(reduced, i * width + base), every(0.0))
            while tight:
                j = base + first(tight)
                tight &= tight - 1
                sent = min(amount, need[j])
                if sent > 0:
                    amount -= sent
                    need[j] -= sent
                    flow[j * width + i] = sent
        left[i] = amount
        remaining += amount
    return remaining


@inlined
def _relax(work: Work, n: int, i: int, height: float) -> None:
    """Row i, at this height, as the way to each column that is nearer through it."""
    for base in range(0, n, LANES):
        length, dist = every(height) + load(work.reduced, i * work.width + base), load(work.dist, base)
        nearer = less(length, dist)
        store(work.dist, base, where(nearer, length, dist))
        store(work.origin, base, where(nearer, every(float(i)), load(work.origin, base)))


@inlined
def _search(work: Work, m: int, n: int) -> float:
    """Distances from the rows with supply left to all others, and what the dual rises by: infinite where costs are.

    In turns, columns hand theirs to the rows that send to them, and rows that came nearer hand on to the columns
    (Bellman and Ford). Between captions there are few turns (up to n where costs make a long chain), and none has to
    find a minimum first, as each of Dijkstra's would. Only what is strictly nearer is taken: ties make no loop.
    """
    dist, height, via, flow, width = work.dist, work.height, work.via, work.flow, work.width
    beyond = every(np.inf)
    for base in range(0, n, LANES):
        store(dist, base, beyond)
    for base in range(0, m, LANES):
        nearer = less(every(0.0), load(work.left, base))
        store(height, base, where(nearer, every(0.0), beyond))
        store(via, base, every(-1.0))
        while nearer:
            i = base + first(nearer)
            nearer &= nearer - 1
            _relax(work, n, i, 0.0)
    moved = True
    while moved:
        moved = False
        for base in range(0, m, LANES):
            before, through = load(height, base), load(via, base)
            after = before
            for j in range(n):
                reach = where(less(every(0.0), load(flow, j * width + base)), every(dist[j]), beyond)
                through = where(less(reach, after), every(float(j)), through)
                after = lower(reach, after)
            store(height, base, after)
            store(via, base, through)
            nearer = less(after, before)
            while nearer:
                i = base + first(nearer)
                nearer &= nearer - 1
                _relax(work, n, i, height[i])
                moved = True
    rise = 0.0
    for base in range(0, n, LANES):
        need = load(work.need, base)
        rise += total(need * where(less(every(0.0), need), load(dist, base), every(0.0)))
    return rise


@inlined
def _raise_duals(work: Work, m: int, n: int) -> None:
    # Every path that the search found becomes tight: dist is the least of height + reduced, so it leaves exact zeros.
    for i in range(m):
        for base in range(0, n, LANES):
            at = i * work.width + base
            store(work.reduced, at, (every(work.height[i]) + load(work.reduced, at)) - load(work.dist, base))


@inlined
def _augment(work: Work, end: int) -> float:
    """Send what still fits along the path that the search found to column `end`; returns how much."""
    flow, width = work.flow, work.width
    amount, i = work.need[end], int(work.origin[end])
    while work.via[i] >= 0:
        j = int(work.via[i])
        amount = min(amount, flow[j * width + i])
        i = int(work.origin[j])
    amount = min(amount, work.left[i])
    work.left[i] -= amount
    work.need[end] -= amount
    i = int(work.origin[end])
    flow[end * width + i] += amount
    while work.via[i] >= 0:
        j = int(work.via[i])
        flow[j * width + i] -= amount
        i = int(work.origin[j])
        flow[j * width + i] += amount
    return float(amount)


def transport(costs: Floats, supplies: Ints, demands: Ints) -> Floats:
    """Least transport costs `[P]` in float64 of P problems: costs `[P, m, n]`, supplies `[P, m]`, demands `[P, n]`.

    Costs are >= 0; supplies and demands are whole numbers >= 0 with one total a problem, below 2^53; rows and columns
    of 0 do not take part. NaN where the totals differ, or no plan is of finite costs alone.
    """
    out = np.empty(len(costs), np.float64)
    _transport(workspace(max(costs.shape[1:])), costs, supplies, demands, out)
    return out


@compiled
def _transport(memory: Memory, costs: Floats, supplies: Ints, demands: Ints, out: Floats) -> None:
    problems, m, n = costs.shape
    work, chosen = work_in(memory), np.empty(n, np.int64)
    for p in range(problems):
        rows, cols, rest = 0, 0, 0
        for j in range(n):
            if demands[p, j] > 0:
                chosen[cols] = j
                work.demand[cols] = demands[p, j]
                rest -= demands[p, j]
                cols += 1
        for i in range(m):
            if supplies[p, i] > 0:
                for j in range(cols):
                    work.cost[rows * work.width + j] = costs[p, i, chosen[j]]
                work.supply[rows] = supplies[p, i]
                rest += supplies[p, i]
                rows += 1
        if rest != 0:
            out[p] = np.nan
        elif rows == 0:
            out[p] = 0.0
        else:
            out[p] = solve(work, rows, cols, np.inf, np.inf)[0]
