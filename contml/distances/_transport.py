"""Exact transport between small bags, compiled by numba: the solver under the Word Mover's Distance.

    minimise sum_ij f_ij C_ij   over flows f >= 0 with   sum_j f_ij = supply_i,  sum_i f_ij = demand_j

Supplies and demands are whole numbers with one total, so flow stays whole and nothing needs a tolerance. Successive
shortest augmenting paths (Ahuja, Magnanti and Orlin, Network Flows, 1993, chapter 9.7) from a good dual start; the
reduced costs are kept in place, and those of arcs with flow are exactly 0, so that ties cannot make a path loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt
from numba.core import cgutils
from numba.extending import intrinsic

Floats = npt.NDArray[np.floating[Any]]
Ints = npt.NDArray[np.integer[Any]]
_F = TypeVar("_F", bound=Callable[..., Any])

#: A running dual has to pass a bound by this share before a solve stops: rounding must not drop an optimum.
_ROUNDING = 1 + 1e-12


#: Typed loosely: numba's own type does not tell that the first argument is left out in a call.
_intrinsic: Callable[[Callable[..., Any]], Callable[..., Any]] = intrinsic
_tools: Any = cgutils


def compiled(function: _F) -> _F:
    """The function as machine code that runs without the interpreter's lock, kept on disk between runs.

    The copy on disk (`__pycache__/*.nbc`) is renewed when the function's own file changes, not a file it calls: after
    an edit here, touch `_caption_sets.py`.
    """
    return cast(_F, numba.njit(cache=True, nogil=True)(function))


def inlined(function: _F) -> _F:
    """As `compiled`, but into the caller: handing over the work arrays would cost more than the work."""
    return cast(_F, numba.njit(cache=True, nogil=True, inline="always")(function))


@_intrinsic
def without_count(_: Any, array: Any) -> Any:
    """The same array without its count of references: whoever calls the machine code must hold the array.

    Its upkeep costs as much as a small problem, and threads wait for one another at it where they share an array.
    """

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        fields = _tools.create_struct_proxy(signature.args[0])(context, builder, value=arguments[0])
        fields.meminfo = _tools.get_null_value(fields.meminfo.type)
        fields.parent = _tools.get_null_value(fields.parent.type)
        return fields._getvalue()

    return array(array), code


class Work(NamedTuple):
    """The arrays one thread solves in, for bags of at most `size` distinct words."""

    cost: Floats  # [size,size] float64; rows i, columns j
    reduced: Floats  # [size,size] float64: C_ij - u_i - v_j >= 0, 0 where there is flow
    flow: Ints  # [size,size] int64
    supply: Ints  # [size]
    demand: Ints  # [size]
    left: Ints  # [size] supply not sent yet
    need: Ints  # [size] demand not met yet
    u: Floats  # [size] duals, rows first
    v: Floats  # [size]
    u2: Floats  # [size] duals, columns first
    v2: Floats  # [size]
    dist: Floats  # [size] of each column from the rows with supply left
    origin: Ints  # [size] the row that a column was reached from
    key: Floats  # [size] dist of columns that are not scanned, else infinity
    shift: Floats  # [size] what a scanned column's reduced costs go up by
    height: Floats  # [size] of each row
    via: Ints  # [size] the column that a row was reached through; -1 for a row with supply left
    words: Ints  # [2,size] scratch of whoever fills the arrays


@compiled
def workspace(size: int) -> Work:
    """Work arrays for problems of at most `size` rows and columns."""
    return Work(
        np.empty((size, size), np.float64),
        np.empty((size, size), np.float64),
        np.empty((size, size), np.int64),
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty(size, np.float64),
        np.empty(size, np.float64),
        np.empty(size, np.float64),
        np.empty(size, np.float64),
        np.empty(size, np.float64),
        np.empty(size, np.int64),
        np.empty(size, np.float64),
        np.empty(size, np.float64),
        np.empty(size, np.float64),
        np.empty(size, np.int64),
        np.empty((2, size), np.int64),
    )


@compiled
def lent(work: Work) -> Work:
    """The same arrays without counts of references; the caller holds them."""
    return Work(
        without_count(work.cost),
        without_count(work.reduced),
        without_count(work.flow),
        without_count(work.supply),
        without_count(work.demand),
        without_count(work.left),
        without_count(work.need),
        without_count(work.u),
        without_count(work.v),
        without_count(work.u2),
        without_count(work.v2),
        without_count(work.dist),
        without_count(work.origin),
        without_count(work.key),
        without_count(work.shift),
        without_count(work.height),
        without_count(work.via),
        without_count(work.words),
    )


@inlined
def solve(work: Work, m: int, n: int, soft: float, hard: float) -> tuple[float, bool]:
    """The least cost of the problem in `work` (m rows, n columns), or a lower bound of it and False.

    Stops with a lower bound when the dual start passes `soft`, or the running dual `hard`. It always ends: each
    augmentation sends at least one unit, and a search scans each column at most once. NaN where a cost is not finite.
    """
    cost, supply, demand = work.cost, work.supply, work.demand
    if m == 1 or n == 1:
        total = 0.0
        for i in range(m):
            for j in range(n):
                total += cost[i, j] * (demand[j] if m == 1 else supply[i])
        return total, True
    dual = _start(work, m, n)
    if dual > soft * _ROUNDING or dual > hard * _ROUNDING:
        return dual, False
    remaining = _send_on_tight_arcs(work, m, n)
    while remaining > 0:
        end = _search(work, m, n)
        if end < 0:
            return np.nan, False
        rise = work.dist[end]
        dual += rise * remaining
        if dual > hard * _ROUNDING:
            return dual, False
        if rise > 0:
            _raise_duals(work, m, n, rise)
        remaining -= _augment(work, end)
    total = 0.0
    for i in range(m):
        for j in range(n):
            if work.flow[i, j] > 0:
                total += work.flow[i, j] * cost[i, j]
    return total, True


@inlined
def _start(work: Work, m: int, n: int) -> float:
    # u_i = min_j C_ij, v_j = min_i (C_ij - u_i), and the same with columns first: the better of the two. Either is at
    # least the relaxed distance of its side. Subtracting in the order of the minima makes tight arcs exactly 0.
    cost, reduced, u, v, u2, v2 = work.cost, work.reduced, work.u, work.v, work.u2, work.v2
    for j in range(n):
        v[j] = np.inf
        v2[j] = np.inf
    rows_first, cols_first = 0.0, 0.0
    for i in range(m):
        low = np.inf
        for j in range(n):
            low = min(low, cost[i, j])
            v2[j] = min(v2[j], cost[i, j])
        u[i] = low
        rows_first += work.supply[i] * low
        for j in range(n):
            v[j] = min(v[j], cost[i, j] - low)
    for j in range(n):
        rows_first += work.demand[j] * v[j]
        cols_first += work.demand[j] * v2[j]
    for i in range(m):
        low = np.inf
        for j in range(n):
            low = min(low, cost[i, j] - v2[j])
        u2[i] = low
        cols_first += work.supply[i] * low
    for i in range(m):
        for j in range(n):
            reduced[i, j] = (cost[i, j] - u[i]) - v[j] if rows_first >= cols_first else (cost[i, j] - v2[j]) - u2[i]
    return max(rows_first, cols_first)


@inlined
def _send_on_tight_arcs(work: Work, m: int, n: int) -> int:
    """Greedy flow where the reduced cost is 0; returns the supply that is left."""
    reduced, flow, left, need = work.reduced, work.flow, work.left, work.need
    for j in range(n):
        need[j] = work.demand[j]
    remaining = 0
    for i in range(m):
        amount = work.supply[i]
        for j in range(n):
            sent = 0
            if reduced[i, j] <= 0:
                sent = min(amount, need[j])
                amount -= sent
                need[j] -= sent
            flow[i, j] = sent
        left[i] = amount
        remaining += amount
    return remaining


@inlined
def _relax(work: Work, n: int, i: int, height: float) -> None:
    """Row i, at this height, as the way to each column that is nearer through it."""
    reduced, dist, key, origin = work.reduced, work.dist, work.key, work.origin
    for j in range(n):
        length = height + reduced[i, j]
        if length < dist[j]:
            dist[j] = length
            key[j] = length
            origin[j] = i


@inlined
def _search(work: Work, m: int, n: int) -> int:
    """Dijkstra from all rows with supply left: the nearest column with demand left, or -1 where costs are NaN."""
    dist, key, shift, height, via, flow = work.dist, work.key, work.shift, work.height, work.via, work.flow
    for j in range(n):
        dist[j] = np.inf
        key[j] = np.inf
        shift[j] = 0.0
    for i in range(m):
        height[i] = np.inf
        if work.left[i] > 0:
            height[i] = 0.0
            via[i] = -1
            _relax(work, n, i, 0.0)
    for _ in range(n):
        low, at = np.inf, -1
        for j in range(n):
            if key[j] < low:
                low = key[j]
                at = j
        if at < 0:
            return -1
        if work.need[at] > 0:
            for j in range(n):  # scanned columns
                shift[j] = low - dist[j] if key[j] == np.inf and dist[j] < low else 0.0
            return at
        key[at] = np.inf
        for i in range(m):
            if flow[i, at] > 0 and height[i] == np.inf:
                height[i] = low
                via[i] = at
                _relax(work, n, i, low)
    return -1


@inlined
def _raise_duals(work: Work, m: int, n: int, rise: float) -> None:
    reduced, shift = work.reduced, work.shift
    for i in range(m):
        step = max(rise - work.height[i], 0.0)
        for j in range(n):
            value = reduced[i, j] - step + shift[j]
            reduced[i, j] = value if value > 0 else 0.0  # rounding may leave -1e-17


@inlined
def _augment(work: Work, end: int) -> int:
    """Send what fits along the path that the search found to column `end`; returns how much."""
    amount, i = work.need[end], work.origin[end]
    while work.via[i] >= 0:
        j = work.via[i]
        amount = min(amount, work.flow[i, j])
        i = work.origin[j]
    amount = min(amount, work.left[i])
    work.left[i] -= amount
    work.need[end] -= amount
    j, i = end, work.origin[end]
    work.flow[i, j] += amount
    work.reduced[i, j] = 0.0
    while work.via[i] >= 0:
        j = work.via[i]
        work.flow[i, j] -= amount
        i = work.origin[j]
        work.flow[i, j] += amount
        work.reduced[i, j] = 0.0
    return int(amount)


@compiled
def transport(costs: Floats, supplies: Ints, demands: Ints) -> Floats:
    """Least transport costs `[P]` in float64 of P problems: costs `[P, m, n]`, supplies `[P, m]`, demands `[P, n]`.

    Costs are >= 0; supplies and demands are whole numbers >= 0 with one total a problem; rows and columns of 0 do not
    take part. NaN where a cost is not finite or the totals differ.
    """
    problems, m, n = costs.shape
    work = workspace(max(m, n))
    out = np.empty(problems, np.float64)
    for p in range(problems):
        rows, cols, total = 0, 0, 0
        for j in range(n):
            if demands[p, j] > 0:
                work.words[1, cols] = j
                work.demand[cols] = demands[p, j]
                total -= demands[p, j]
                cols += 1
        for i in range(m):
            if supplies[p, i] > 0:
                for j in range(cols):
                    work.cost[rows, j] = costs[p, i, work.words[1, j]]
                work.supply[rows] = supplies[p, i]
                total += supplies[p, i]
                rows += 1
        if total != 0:
            out[p] = np.nan
        elif rows == 0:
            out[p] = 0.0
        else:
            out[p] = solve(work, rows, cols, np.inf, np.inf)[0]
    return out
