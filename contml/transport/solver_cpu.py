"""Step 4. The exact transport problem of one caption pair, solved on the CPU. Compiled by numba.

    minimise sum_ij f_ij C_ij   over flows f >= 0 with   sum_j f_ij = supply_i,  sum_i f_ij = demand_j

Supplies and demands are whole numbers with the same total, so the flow stays whole and no tolerance is needed. The
method is successive shortest augmenting paths (Ahuja, Magnanti and Orlin, Network Flows, 1993, chapter 9.7) from a
good dual start. Each search augments along all paths that it found. Reduced costs are updated in place. The reduced
costs of arcs with flow are exactly 0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from contml.distances._compiled import Floats, compiled, inlined
from contml.transport.vector_operations import (
    LANES,
    broadcast,
    equal,
    less,
    load,
    lowest_bit,
    minimum,
    pointer,
    reduce_min,
    reduce_sum,
    select,
    store,
)

#: Hash of vector_operations.py; see `compiled`.
DIGEST = "fa9ade5405dd"
#: A lower bound must exceed a limit by this factor before a solve stops: rounding must not drop an optimum.
_ROUNDING = 1 + 1e-12


class Workspace(NamedTuple):
    """The memory in which one thread solves problems of at most `width` rows and columns."""

    width: int  # a multiple of LANES
    floats: Floats


class Problem(NamedTuple):
    """One problem and the state of its solver: pointers into a `Workspace`, which the caller must keep alive."""

    width: int
    cost: Floats  # [width,width] float64; rows i, columns j
    reduced: Floats  # [width,width] float64: C_ij - u_i - v_j >= 0, 0 where flow is; inf or NaN beyond the columns
    flow: Floats  # [width,width] float64: whole numbers; rows j, columns i
    supply: Floats  # [width] float64: whole numbers
    demand: Floats  # [width]
    unsent: Floats  # [width] supply not sent yet
    unmet: Floats  # [width] demand not met yet
    u: Floats  # [width] duals of rows; the start that sets the columns first
    v: Floats  # [width] duals of columns; the start that sets the rows first
    v2: Floats  # [width] duals of columns; the start that sets the columns first
    col_distance: Floats  # [width] from the nearest row with unsent supply to each column
    col_parent: Floats  # [width] the row that a column was reached from
    row_distance: Floats  # [width] the same to each row
    row_parent: Floats  # [width] the column that a row was reached through; -1 for a row with unsent supply


@compiled
def make_workspace(size: int) -> Workspace:
    """Allocate the memory for problems of at most `size` rows and columns."""
    width = (size + LANES - 1) // LANES * LANES
    floats = np.zeros(3 * width * width + 11 * width + LANES, np.float64)
    aligned = -(floats.ctypes.data // 8) % LANES  # each vector then lies in one cache line
    return Workspace(width, floats[aligned:])


@compiled
def problem_in(workspace: Workspace) -> Problem:
    """Return the parts of a workspace as a problem."""
    width, floats = workspace.width, workspace.floats
    square = width * width
    first = 3 * square  # the first vector, after three matrices
    return Problem(width, pointer(floats, 0), pointer(floats, square), pointer(floats, 2 * square),
        pointer(floats, first), pointer(floats, first + width), pointer(floats, first + 2 * width),
        pointer(floats, first + 3 * width), pointer(floats, first + 4 * width), pointer(floats, first + 5 * width),
        pointer(floats, first + 6 * width), pointer(floats, first + 7 * width), pointer(floats, first + 8 * width),
        pointer(floats, first + 9 * width), pointer(floats, first + 10 * width))  # fmt: skip


@inlined
def solve(problem: Problem, m: int, n: int, start_limit: float, limit: float) -> tuple[float, bool]:
    """Solve the m x n problem: return its least cost and True, or a lower bound of it and False.

    The function stops with a lower bound when the dual start exceeds `start_limit`, or the running dual `limit`.
    Supplies and demands must have the same total. Costs that are not finite are avoided. If no solution has finite
    costs, the cost is NaN. The loop always ends: each search sends at least one unit, and within a search distances
    only fall.
    """
    cost, supply, demand, flow, width = problem.cost, problem.supply, problem.demand, problem.flow, problem.width
    if m == 1 or n == 1:
        least_cost = 0.0
        for i in range(m):
            for j in range(n):
                least_cost += cost[i * width + j] * (demand[j] if m == 1 else supply[i])
        return (least_cost if least_cost < np.inf else np.nan), True
    dual = _start(problem, m, n)
    if not dual < np.inf:
        return np.nan, False
    if dual > start_limit * _ROUNDING or dual > limit * _ROUNDING:
        return dual, False
    remaining = _send_on_tight_arcs(problem, m, n)
    while remaining > 0:
        rise = _search(problem, m, n)
        dual += rise
        if not dual < np.inf:
            return np.nan, False
        if dual > limit * _ROUNDING:
            return dual, False
        if rise > 0:
            _raise_duals(problem, m, n)
        for base in range(0, n, LANES):
            open_columns = less(broadcast(0.0), load(problem.unmet, base))
            while open_columns:
                end = base + lowest_bit(open_columns)
                open_columns &= open_columns - 1
                remaining -= _augment(problem, end)
    least_cost = 0.0
    for j in range(n):
        for base in range(0, m, LANES):
            used = less(broadcast(0.0), load(flow, j * width + base))
            while used:
                i = base + lowest_bit(used)
                used &= used - 1
                least_cost += flow[j * width + i] * cost[i * width + j]
    return least_cost, True


@inlined
def _start(problem: Problem, m: int, n: int) -> float:
    # u_i = min_j C_ij, v_j = min_i (C_ij - u_i), and the same with columns first: the better of the two, which is at
    # least the relaxed distance. Subtracting in the order of the minima leaves exact zeros on tight arcs.
    cost, reduced, u, v, v2 = problem.cost, problem.reduced, problem.u, problem.v, problem.v2
    width, infinite = problem.width, broadcast(np.inf)
    for base in range(0, n, LANES):
        store(v, base, infinite)
        store(v2, base, infinite)
    rows_first, cols_first = 0.0, 0.0
    for i in range(m):
        lowest = np.inf
        for base in range(0, n, LANES):
            row = load(cost, i * width + base)
            # NaN becomes infinite: reduce_min is undefined for it.
            row = select(_columns_inside(n - base) & equal(row, row), row, infinite)
            store(cost, i * width + base, row)
            store(v2, base, minimum(row, load(v2, base)))
            lowest = min(lowest, reduce_min(row))
        rows_first += problem.supply[i] * lowest
        for base in range(0, n, LANES):
            row = load(cost, i * width + base) - broadcast(lowest)
            store(reduced, i * width + base, row)
            store(v, base, minimum(row, load(v, base)))
    for base in range(0, n, LANES):
        inside, demand = _columns_inside(n - base), load(problem.demand, base)
        store(v, base, select(inside, load(v, base), broadcast(0.0)))
        store(v2, base, select(inside, load(v2, base), broadcast(0.0)))
        rows_first += reduce_sum(demand * load(v, base))
        cols_first += reduce_sum(demand * load(v2, base))
    for i in range(m):
        lowest = np.inf
        for base in range(0, n, LANES):
            lowest = min(lowest, reduce_min(load(cost, i * width + base) - load(v2, base)))
        u[i] = lowest
        cols_first += problem.supply[i] * lowest
    for i in range(m):
        for base in range(0, n, LANES):
            at = i * width + base
            if rows_first >= cols_first:
                store(reduced, at, load(reduced, at) - load(v, base))
            else:
                store(reduced, at, (load(cost, at) - load(v2, base)) - broadcast(u[i]))
    return max(rows_first, cols_first)


@inlined
def _columns_inside(columns: int) -> int:
    """Return a bit for each lane that holds a column."""
    return (1 << min(columns, LANES)) - 1


@inlined
def _send_on_tight_arcs(problem: Problem, m: int, n: int) -> float:
    """Send flow greedily along arcs of reduced cost 0, and return the total of unsent supply."""
    reduced, flow, unsent, unmet, width = problem.reduced, problem.flow, problem.unsent, problem.unmet, problem.width
    store(unmet, (n - 1) // LANES * LANES, broadcast(0.0))  # also beyond the columns
    for j in range(n):
        unmet[j] = problem.demand[j]
        for base in range(0, m, LANES):
            store(flow, j * width + base, broadcast(0.0))
    store(unsent, (m - 1) // LANES * LANES, broadcast(0.0))  # also beyond the rows
    remaining = 0.0
    for i in range(m):
        amount = problem.supply[i]
        for base in range(0, n, LANES):
            tight = equal(load(reduced, i * width + base), broadcast(0.0))
            while tight:
                j = base + lowest_bit(tight)
                tight &= tight - 1
                sent = min(amount, unmet[j])
                if sent > 0:
                    amount -= sent
                    unmet[j] -= sent
                    flow[j * width + i] = sent
        unsent[i] = amount
        remaining += amount
    return remaining


@inlined
def _relax_columns(problem: Problem, n: int, i: int, row_distance: float) -> None:
    """Update the columns that are nearer through row i, which is at this distance."""
    for base in range(0, n, LANES):
        length = broadcast(row_distance) + load(problem.reduced, i * problem.width + base)
        col_distance = load(problem.col_distance, base)
        nearer = less(length, col_distance)
        store(problem.col_distance, base, select(nearer, length, col_distance))
        store(problem.col_parent, base, select(nearer, broadcast(float(i)), load(problem.col_parent, base)))


@inlined
def _search(problem: Problem, m: int, n: int) -> float:
    """Find shortest paths from the rows with unsent supply to all others, and return the increase of the dual value.

    The method is Bellman-Ford. In turn, columns update the rows that they receive flow from, and rows that came nearer
    update the columns. Between captions this takes few rounds (up to n where costs form a long chain). No round has to
    search for a minimum first, as Dijkstra's algorithm would. A path is replaced only by a strictly shorter one, so
    ties cannot close a loop. The increase is infinite if no path has finite costs.
    """
    col_distance, row_distance, row_parent = problem.col_distance, problem.row_distance, problem.row_parent
    flow, width = problem.flow, problem.width
    infinite = broadcast(np.inf)
    for base in range(0, n, LANES):
        store(col_distance, base, infinite)
    for base in range(0, m, LANES):
        nearer = less(broadcast(0.0), load(problem.unsent, base))
        store(row_distance, base, select(nearer, broadcast(0.0), infinite))
        store(row_parent, base, broadcast(-1.0))
        while nearer:
            i = base + lowest_bit(nearer)
            nearer &= nearer - 1
            _relax_columns(problem, n, i, 0.0)
    moved = True
    while moved:
        moved = False
        for base in range(0, m, LANES):
            before, through = load(row_distance, base), load(row_parent, base)
            after = before
            for j in range(n):
                reach = select(less(broadcast(0.0), load(flow, j * width + base)), broadcast(col_distance[j]), infinite)
                through = select(less(reach, after), broadcast(float(j)), through)
                after = minimum(reach, after)
            store(row_distance, base, after)
            store(row_parent, base, through)
            nearer = less(after, before)
            while nearer:
                i = base + lowest_bit(nearer)
                nearer &= nearer - 1
                _relax_columns(problem, n, i, row_distance[i])
                moved = True
    rise = 0.0
    for base in range(0, n, LANES):
        unmet = load(problem.unmet, base)
        rise += reduce_sum(unmet * select(less(broadcast(0.0), unmet), load(col_distance, base), broadcast(0.0)))
    return rise


@inlined
def _raise_duals(problem: Problem, m: int, n: int) -> None:
    # All paths found become tight: col_distance is the minimum of row_distance + reduced, which leaves exact zeros.
    for i in range(m):
        for base in range(0, n, LANES):
            at = i * problem.width + base
            length = broadcast(problem.row_distance[i]) + load(problem.reduced, at)
            store(problem.reduced, at, length - load(problem.col_distance, base))


@inlined
def _augment(problem: Problem, end: int) -> float:
    """Send as much as still fits along the path found to column `end`, and return the amount."""
    flow, width = problem.flow, problem.width
    amount, i = problem.unmet[end], int(problem.col_parent[end])
    while problem.row_parent[i] >= 0:
        j = int(problem.row_parent[i])
        amount = min(amount, flow[j * width + i])
        i = int(problem.col_parent[j])
    amount = min(amount, problem.unsent[i])
    problem.unsent[i] -= amount
    problem.unmet[end] -= amount
    i = int(problem.col_parent[end])
    flow[end * width + i] += amount
    while problem.row_parent[i] >= 0:
        j = int(problem.row_parent[i])
        flow[j * width + i] -= amount
        i = int(problem.col_parent[j])
        flow[j * width + i] += amount
    return float(amount)
