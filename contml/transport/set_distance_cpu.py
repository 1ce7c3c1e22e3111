"""Step 5. Distances of caption sets on the CPU: W is solved where it may be a minimum of D, else excluded by a bound.

The functions compiled by numba work on packed captions; the functions after them run these in threads.

A pair of captions has three lower bounds of W. Each is at least as large as the one before: the relaxed distance
(`bounds`), the dual start of the solver, and its running dual. A solve stops as soon as its bound shows that the pair
cannot be a minimum.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from contml.distances._compiled import Floats, Ints, compiled, in_threads, inlined
from contml.distances.nearest import Progress
from contml.transport.bags import Bags, CaptionPairs, WordCosts, most_words, split_sets, take
from contml.transport.bounds import (
    costs_of_set,
    nearest_words,
    one_sided_bounds,
    one_sided_set_bounds,
    sum_of_minima,
    two_sided_bounds,
)
from contml.transport.solver_cpu import Problem, Workspace, make_workspace, problem_in, solve
from contml.transport.vector_operations import pointer

#: Hash of vector_operations.py, solver_cpu.py and bounds.py; see `compiled`.
DIGEST = "981a04a22941"
#: Captions of queries whose bounds are computed together, and numbers of float32 in a vector register.
_GROUP, _LANES = 48, 16
#: State of a caption pair in the table of bounds: 0, the relaxed distance; _DUAL, the solver's dual start; _EXACT, W.
_DUAL, _EXACT = 1, 2


@compiled
def _bag_pointers(bags: Bags) -> Bags:
    words, counts, starts = pointer(bags.words, 0), pointer(bags.counts, 0), pointer(bags.starts, 0)
    return Bags(words, counts, starts, pointer(bags.totals, 0), pointer(bags.sets, 0))


@compiled
def _pointers(arrays: CaptionPairs) -> CaptionPairs:
    """Return the same pairs with a pointer for each array. The caller must keep the arrays alive."""
    cost, rows, cols = pointer(arrays.cost, 0), pointer(arrays.rows, 0), pointer(arrays.cols, 0)
    return CaptionPairs(cost, arrays.columns, _bag_pointers(arrays.x), rows, _bag_pointers(arrays.y), cols)


@inlined
def _word_movers(
    problem: Problem, pairs: CaptionPairs, a: int, b: int, start_limit: float, limit: float
) -> tuple[float, bool]:
    """Return (W, True) for caption a of x and caption b of y, or (a lower bound of W above a limit, False).

    The limits are as in `solve`. Both captions have words. Words that both captions have stay in the problem. Their
    cost is exactly 0, and removing them would take longer than solving with them. The captions are put into a fixed
    order first, so that W(a, b) and W(b, a) are one computation, equal to the last bit.
    """
    x, y = pairs.x, pairs.y
    p, m = x.starts[a], x.starts[a + 1] - x.starts[a]
    q, n = y.starts[b], y.starts[b + 1] - y.starts[b]
    total_a, total_b = x.totals[a], y.totals[b]
    scale = total_a * total_b
    swapped = m > n
    if m == n:
        k = 0
        while k < m - 1 and x.words[p + k] == y.words[q + k]:
            k += 1
        swapped = x.words[p + k] > y.words[q + k]
        if x.words[p + k] == y.words[q + k]:  # all words are the same
            k = 0
            while k < m - 1 and x.counts[p + k] * total_b == y.counts[q + k] * total_a:
                k += 1
            swapped = x.counts[p + k] * total_b > y.counts[q + k] * total_a
    supply, demand = (problem.demand, problem.supply) if swapped else (problem.supply, problem.demand)
    for i in range(m):
        supply[i] = x.counts[p + i] * total_b
    for j in range(n):
        demand[j] = y.counts[q + j] * total_a
    if swapped:
        for i in range(m):
            row = pairs.rows[p + i] * pairs.columns
            for j in range(n):
                problem.cost[j * problem.width + i] = pairs.cost[row + pairs.cols[q + j]]
        m, n = n, m
    else:
        for i in range(m):
            row = pairs.rows[p + i] * pairs.columns
            for j in range(n):
                problem.cost[i * problem.width + j] = pairs.cost[row + pairs.cols[q + j]]
    value, exact = solve(problem, m, n, start_limit * scale, limit * scale)
    return value / scale, exact


@compiled
def word_movers_rows(
    arrays: CaptionPairs, workspace: Workspace, same: bool, start: int, step: int, out: Floats
) -> None:
    """Write W of captions start, start + step, ... of x to all of y; only the upper half if x and y are the same."""
    pairs, problem = _pointers(arrays), problem_in(workspace)
    for a in range(start, len(arrays.x.totals), step):
        for b in range(a + 1 if same else 0, len(arrays.y.totals)):
            out[a, b] = _word_movers(problem, pairs, a, b, np.inf, np.inf)[0]


@inlined
def _solve_limit(bounds: Floats, known: Ints, pitch: int, height: int, width: int, r: int, c: int) -> float:
    # Above the best distances of both its row and its column, a pair is the minimum of neither.
    row_min, col_min = np.inf, np.inf
    for index in range(width):
        if known[r * pitch + index] == _EXACT:
            row_min = min(row_min, bounds[r * pitch + index])
    for index in range(height):
        if known[index * pitch + c] == _EXACT:
            col_min = min(col_min, bounds[index * pitch + c])
    return max(row_min, col_min)


@compiled
def _set_distance(
    problem: Problem, pairs: CaptionPairs, i: int, j: int, table: Floats, state: Ints, limit: float
) -> float:
    """Compute D of set i of x and set j of y, from the bounds `table` of its caption pairs.

    Return infinity as soon as D exceeds `limit`. D needs the minimum of each line (row or column) of the table. For
    each line, the function solves the pair with the smallest bound, until the smallest entry is an exact distance. A
    solve stops at its dual start if another pair of the line has a smaller bound. It stops later if the pair cannot be
    a minimum. With a limit, all dual starts are computed first: they exclude most sets. `state` is scratch memory of
    the size of `table`.
    """
    a, b = pairs.x.sets[i], pairs.y.sets[j]
    height, width, pitch = pairs.x.sets[i + 1] - a, pairs.y.sets[j + 1] - b, table.shape[1]
    bounds, known = pointer(table, 0), pointer(state, 0)
    for r in range(height):
        for c in range(width):
            known[r * pitch + c] = 0
    sum_of_rows, sum_of_cols = 0.0, 0.0
    for phase in range(_DUAL if limit < np.inf else _EXACT, _EXACT + 1):
        for line in range(height + width):  # rows, then columns
            begin, stride, count = (line * pitch, 1, width) if line < height else (line - height, pitch, height)
            least, settled = np.inf, False
            while not settled:
                least, second_least, least_index = np.inf, np.inf, begin
                for index in range(begin, begin + count * stride, stride):
                    bound = bounds[index]
                    if bound < least or (bound == least and known[index] == _EXACT):
                        least, second_least, least_index = bound, least, index
                    elif bound < second_least:
                        second_least = bound
                settled = known[least_index] >= phase
                if not settled:
                    r, c = least_index // pitch, least_index % pitch
                    start_limit, solve_limit = -1.0, np.inf  # the dual start alone
                    if phase == _EXACT:
                        start_limit = second_least if known[least_index] < _DUAL else np.inf
                        solve_limit = _solve_limit(bounds, known, pitch, height, width, r, c)
                    value, exact = _word_movers(problem, pairs, a + r, b + c, start_limit, solve_limit)
                    if np.isnan(value):
                        return value
                    known[least_index] = _EXACT if exact else _DUAL
                    bounds[least_index] = value if exact else max(value, least)
                    if limit < np.inf and sum_of_minima(table, height, width) > limit:
                        return np.inf
            if phase == _EXACT:
                if line < height:
                    sum_of_rows += least
                else:
                    sum_of_cols += least
    return float(sum_of_rows + sum_of_cols)


@compiled
def _most_captions(bags: Bags) -> int:
    """Return the number of captions of the largest set."""
    most = 1
    for s in range(len(bags.sets) - 1):
        most = max(most, bags.sets[s + 1] - bags.sets[s])
    return most


@compiled
def _most_entries(bags: Bags) -> int:
    """Return the number of entries of the largest set."""
    most = 1
    for s in range(len(bags.sets) - 1):
        most = max(most, bags.starts[bags.sets[s + 1]] - bags.starts[bags.sets[s]])
    return most


@compiled
def _set_distance_rows(
    arrays: CaptionPairs,
    workspace: Workspace,
    of_y: Floats,
    of_x: Floats,
    same: bool,
    start: int,
    step: int,
    out: Floats,
) -> None:
    """Write D of sets start, start + step, ... of x to all of y; only the upper half if x and y are the same.

    `of_y[a, b]` and `of_x[b, a]` are the one-sided bounds of the caption pairs.
    """
    pairs, problem = _pointers(arrays), problem_in(workspace)
    x, y = arrays.x, arrays.y
    bounds = np.empty((_most_captions(x), _most_captions(y)))
    known = np.empty(bounds.shape, np.int8)
    for i in range(start, len(x.sets) - 1, step):
        for j in range(i + 1 if same else 0, len(y.sets) - 1):
            for a in range(x.sets[i], x.sets[i + 1]):
                for b in range(y.sets[j], y.sets[j + 1]):
                    bounds[a - x.sets[i], b - y.sets[j]] = max(of_y[a, b], of_x[b, a])
            out[i, j] = _set_distance(problem, pairs, i, j, bounds, known, np.inf)


@compiled
def _insert(distances: Floats, ids: Ints, distance: float, row: int) -> None:
    """Insert (distance, row) into these ascending lists, unless it would come after their last entry."""
    k = len(ids)
    if distance > distances[k - 1] or (distance == distances[k - 1] and row >= ids[k - 1]):
        return
    slot = k - 1
    while slot > 0 and (distances[slot - 1] > distance or (distances[slot - 1] == distance and ids[slot - 1] > row)):
        distances[slot], ids[slot] = distances[slot - 1], ids[slot - 1]
        slot -= 1
    distances[slot], ids[slot] = distance, row


@compiled
def _nearest_rows(
    arrays: CaptionPairs, workspace: Workspace, own: Ints, ids: Ints, slack: float, distances: Floats, rows: Ints
) -> None:
    """Write the k nearest sets of y of each set of x into `distances` and `rows` `[X, k]`: exact, ties to the lower id.

    `own` `[X]` is the id that each set of x excludes, `ids` `[Y]` are the ids of the sets of y. First, one-sided bounds
    are computed for all sets of y. The sets with the least bounds are the seeds, which are solved. Then two-sided
    bounds are computed for the sets below the k-th best distance of the seeds. The rest is solved in order of these
    bounds until they exceed the k-th best distance. More seeds make the k-th best nearly the final one, so that fewer
    two-sided bounds are needed. `slack` covers the rounding of float32 sums over the longest caption.
    """
    pairs, problem = _pointers(arrays), problem_in(workspace)
    x, k = arrays.x, rows.shape[1]
    lanes = (len(x.totals) + _LANES - 1) // _LANES * _LANES
    nearest = np.empty((arrays.columns, lanes), np.float32)
    nearest_words(arrays, nearest)
    one_sided = np.empty((len(own), len(ids)), np.float32)
    one_sided_set_bounds(arrays, nearest, one_sided)
    bounds = np.empty((_most_captions(x), _most_captions(arrays.y)))
    known = np.empty(bounds.shape, np.int8)
    own_costs = np.empty((arrays.columns, _most_entries(x)), np.float32)
    least = np.empty(own_costs.shape[1], np.float32)
    candidates = np.empty(len(ids), np.int64)
    two_sided = np.empty(len(ids))
    num_seeds = min(len(ids), 2 * k + min(len(ids) // 128, 512))
    seeds, seed_bounds = np.empty(num_seeds, np.int64), np.empty(num_seeds)
    for i in range(len(own)):
        best, best_ids, bound_of = distances[i], rows[i], one_sided[i]
        costs_of_set(pairs, i, own_costs)
        best[:] = np.inf
        best_ids[:] = np.iinfo(np.int64).max
        seeds[:] = np.iinfo(np.int64).max
        seed_bounds[:] = np.inf
        for j in range(len(ids)):
            if ids[j] == own[i]:
                bound_of[j] = np.inf
            elif bound_of[j] < seed_bounds[-1]:
                _insert(seed_bounds, seeds, bound_of[j], j)
        for stage in range(2):  # the seeds, then all others
            count, limit = 0, best[k - 1] * (1 + 2e-7)  # float32 may round a distance down
            for index in range(len(ids) if stage else len(seeds)):
                j = index if stage else seeds[index]
                if j < len(ids) and bound_of[j] < np.inf and bound_of[j] * slack <= limit:
                    bound = two_sided_bounds(pairs, nearest, own_costs, i, j, bounds, least)
                    if bound <= limit:
                        candidates[count], two_sided[count] = j, bound
                        count += 1
            for index in np.argsort(two_sided[:count]):
                limit = best[k - 1] * (1 + 2e-7)
                if two_sided[index] > limit:
                    break
                j = candidates[index]
                two_sided_bounds(pairs, nearest, own_costs, i, j, bounds, least)
                distance = float(np.float32(_set_distance(problem, pairs, i, j, bounds, known, limit)))
                if distance < np.inf:
                    _insert(best, best_ids, distance, ids[j])
            if stage == 0:
                for j in seeds:
                    if j < len(ids):
                        bound_of[j] = np.inf


def word_movers_distances(x: Bags, y: Bags, costs: WordCosts, device: torch.device) -> Tensor:
    """Compute W `[A, B]` in float32 of the captions of x to the captions of y, and send it to `device`.

    If x is y, half the work is enough.
    """
    pairs, size, same = caption_pairs(x, y, costs), most_words(x, y), x is y
    out = np.zeros((len(x.totals), len(y.totals)), np.float32)
    in_threads(lambda start, step: word_movers_rows(pairs, make_workspace(size), same, start, step, out), len(out))
    return torch.from_numpy(out + out.T if same else out).to(device)


def set_distances(x: Bags, y: Bags, costs: WordCosts, device: torch.device) -> Tensor:
    """Compute D `[X, Y]` in float32 of packed caption sets, and send it to `device`.

    If x is y, half the work is enough.
    """
    same, size = x is y, most_words(x, y)
    pairs = caption_pairs(x, y, costs)
    bounds_of_y = bounds_of_x = _all_bounds(pairs.cost, x, pairs.rows, y, pairs.cols)
    if not same:
        bounds_of_x = _all_bounds(np.ascontiguousarray(pairs.cost.T), y, pairs.cols, x, pairs.rows)
    out = np.zeros((len(x.sets) - 1, len(y.sets) - 1), np.float32)

    def compute(start: int, step: int) -> None:
        _set_distance_rows(pairs, make_workspace(size), bounds_of_y, bounds_of_x, same, start, step, out)

    in_threads(compute, len(out))
    return torch.from_numpy(out + out.T if same else out).to(device)


def nearest_sets(
    x: Bags, own: Ints, y: Bags, ids: Ints, k: int, costs: WordCosts, memory: int, progress: Progress
) -> tuple[Floats, Ints]:
    """Find the k nearest sets of y by D for each set of x, and their ids, `[X, k]` each: nearest first.

    Ties go to the lower id. `own` `[X]` is the id that each set of x excludes, `ids` `[Y]` are the ids of the sets of
    y, all different. `memory` limits the number of threads.
    """
    distances, rows = np.empty((len(own), k), np.float32), np.empty((len(own), k), np.int64)
    size = most_words(x, y)
    slack = 1 - (size + 16) * 1.2e-7
    vocabulary, cols = np.unique(y.words, return_inverse=True)
    groups = split_sets(np.diff(x.sets), _GROUP)
    # Bytes of a thread: the costs of the words of a group and of a set, their minima, the bounds and candidates.
    bytes_per_thread = 4 * (len(vocabulary) * (10 * _GROUP + _most_entries(x)) + len(ids) * (2 * 4 + _GROUP))
    threads = max(1, min(torch.get_num_threads(), memory // bytes_per_thread))

    def search(group: Ints) -> int:
        queries = take(x, group)
        words, query_rows = np.unique(queries.words, return_inverse=True)
        pairs = CaptionPairs(costs.block(words, vocabulary), len(vocabulary), queries, query_rows, y, cols)
        best, best_ids = np.empty((len(group), k), np.float32), np.empty((len(group), k), np.int64)
        _nearest_rows(pairs, make_workspace(size), own[group], ids, slack, best, best_ids)
        distances[group], rows[group] = best, best_ids
        return len(group)

    with ThreadPoolExecutor(threads) as pool:
        num_done = 0
        for num_finished in pool.map(search, groups):
            num_done += num_finished
            if progress is not None:
                progress(num_done)
    return distances, rows


def _all_bounds(cost: Floats, x: Bags, rows: Ints, y: Bags, cols: Ints) -> Floats:
    out = np.empty((len(x.totals), len(y.totals)), np.float32)

    def compute(start: int, step: int) -> None:
        edges = np.linspace(0, len(out), step + 1).astype(int)
        one_sided_bounds(cost, x, rows, y, cols, edges[start], edges[start + 1], out)

    in_threads(compute, len(out))
    return out


def caption_pairs(x: Bags, y: Bags, costs: WordCosts) -> CaptionPairs:
    """Return all pairs of captions of x and y, with the costs between the words that occur in them."""
    row_words, rows = np.unique(x.words, return_inverse=True)
    col_words, cols = (row_words, rows) if x is y else np.unique(y.words, return_inverse=True)
    return CaptionPairs(costs.block(row_words, col_words), len(col_words), x, rows, y, cols)
