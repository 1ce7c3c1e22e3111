"""Machine code over packed captions: bounds of the Word Mover's Distance, minima over caption sets, nearest sets.

Captions are bags of words `(word, count)` in ascending order of word. A *cost block* holds the distances of some words,
its rows, to others, its columns; `rows` and `cols` say which row or column belongs to each entry of a bag.

Bounds of W, each at least the one before: the relaxed distance of either side (Kusner et al., ICML 2015, in the linear
form of Atasu and Mittelholzer, ICML 2019: each word goes to its nearest in the other caption), the dual start of the
solver, its running dual.
"""

from __future__ import annotations

import numpy as np

from contml.distances._bags import Bags, Floats, Ints, Sides
from contml.distances._lanes import pointer
from contml.distances._transport import Memory, Work, compiled, inlined, solve, work_in

#: Of `_lanes.py` and `_transport.py`; see `compiled`.
DIGEST = "b44d773e14c7"
#: What a bound may lose to rounding on its way through float32.
_SLACK = 1 - 1e-6
#: Captions of queries that are bounded at once: one vector register of float32.
GROUP = 16
#: How much is known of a caption pair: the relaxed distance, the dual start, its distance.
_DUAL, _EXACT = 1, 2


@compiled
def _pointers(bags: Bags) -> Bags:
    return Bags(
        pointer(bags.words, 0),
        pointer(bags.counts, 0),
        pointer(bags.starts, 0),
        pointer(bags.totals, 0),
        pointer(bags.sets, 0),
    )


@compiled
def _within(sides: Sides) -> Sides:
    """The same with pointers; the caller holds the arrays."""
    return Sides(
        pointer(sides.cost, 0),
        sides.columns,
        _pointers(sides.x),
        pointer(sides.rows, 0),
        _pointers(sides.y),
        pointer(sides.cols, 0),
    )


@inlined
def word_movers(work: Work, sides: Sides, a: int, b: int, soft: float, hard: float) -> tuple[float, bool]:
    """W of caption a of x and caption b of y, or a lower bound above `soft` or `hard` and False.

    Neither is empty. Words that both have stay in the problem: their cost is exactly 0, and to look for them would take
    longer than to solve with them. The problem is turned so that W(a, b) and W(b, a) are one computation, and equal to
    the last bit.
    """
    x, y = sides.x, sides.y
    p, m = x.starts[a], x.starts[a + 1] - x.starts[a]
    q, n = y.starts[b], y.starts[b + 1] - y.starts[b]
    na, nb = x.totals[a], y.totals[b]
    scale = na * nb
    turned = m > n
    if m == n:
        k = 0
        while k < m - 1 and x.words[p + k] == y.words[q + k]:
            k += 1
        turned = x.words[p + k] > y.words[q + k]
        if x.words[p + k] == y.words[q + k]:  # all words are the same
            k = 0
            while k < m - 1 and x.counts[p + k] * nb == y.counts[q + k] * na:
                k += 1
            turned = x.counts[p + k] * nb > y.counts[q + k] * na
    supply, demand = (work.demand, work.supply) if turned else (work.supply, work.demand)
    for i in range(m):
        supply[i] = x.counts[p + i] * nb
    for j in range(n):
        demand[j] = y.counts[q + j] * na
    if turned:
        for i in range(m):
            row = sides.rows[p + i] * sides.columns
            for j in range(n):
                work.cost[j * work.width + i] = sides.cost[row + sides.cols[q + j]]
        m, n = n, m
    else:
        for i in range(m):
            row = sides.rows[p + i] * sides.columns
            for j in range(n):
                work.cost[i * work.width + j] = sides.cost[row + sides.cols[q + j]]
    value, exact = solve(work, m, n, soft * scale, hard * scale)
    return value / scale, exact


@compiled
def relaxed(cost: Floats, x: Bags, rows: Ints, y: Bags, cols: Ints, start: int, stop: int, out: Floats) -> None:
    """One-sided bounds `out[a, b]`: the words of b each go to their nearest in a, for captions start:stop of x."""
    near = np.empty(cost.shape[1], np.float32)
    for a in range(start, stop):
        near[:] = np.inf
        for p in range(x.starts[a], x.starts[a + 1]):
            row = cost[rows[p]]
            for w in range(len(near)):
                near[w] = min(near[w], row[w])
        for b in range(len(y.totals)):
            total = 0.0
            for q in range(y.starts[b], y.starts[b + 1]):
                total += y.counts[q] * near[cols[q]]
            out[a, b] = total / y.totals[b] * _SLACK


@compiled
def movers_rows(held: Sides, memory: Memory, same: bool, start: int, step: int, out: Floats) -> None:
    """W of captions start, start + step, ... of x to all captions of y; only the upper half where they are the same."""
    sides, work = _within(held), work_in(memory)
    for a in range(start, len(held.x.totals), step):
        for b in range(a + 1 if same else 0, len(held.y.totals)):
            out[a, b] = word_movers(work, sides, a, b, np.inf, np.inf)[0]


@compiled
def _sum_of_minima(bounds: Floats, height: int, width: int) -> float:
    total = 0.0
    for r in range(height):
        low = np.inf
        for c in range(width):
            low = min(low, bounds[r, c])
        total += low
    for c in range(width):
        low = np.inf
        for r in range(height):
            low = min(low, bounds[r, c])
        total += low
    return total


@inlined
def _hard(bounds: Floats, known: Ints, pitch: int, height: int, width: int, r: int, c: int) -> float:
    # Beyond the best exact distances of both its row and its column, a pair is the minimum of neither.
    row, col = np.inf, np.inf
    for other in range(width):
        if known[r * pitch + other] == _EXACT:
            row = min(row, bounds[r * pitch + other])
    for other in range(height):
        if known[other * pitch + c] == _EXACT:
            col = min(col, bounds[other * pitch + c])
    return max(row, col)


@compiled
def set_distance(work: Work, sides: Sides, i: int, j: int, table: Floats, state: Ints, limit: float) -> float:
    """D of set i of x and set j of y from bounds `table` of its caption pairs; infinite once it must pass `limit`.

    Line by line, the pair with the least bound is solved until the least is a distance. A solve stops at the dual start
    when another pair of the line has a smaller bound, and later when the pair cannot be a minimum at all. With a limit,
    dual starts come first: they are enough to turn most sets away. `state` is scratch, and as large as `table`.
    """
    a, b = sides.x.sets[i], sides.y.sets[j]
    height, width, pitch = sides.x.sets[i + 1] - a, sides.y.sets[j + 1] - b, table.shape[1]
    bounds, known = pointer(table, 0), pointer(state, 0)
    for r in range(height):
        for c in range(width):
            known[r * pitch + c] = 0
    forth, back = 0.0, 0.0
    for phase in range(_DUAL if limit < np.inf else _EXACT, _EXACT + 1):
        for line in range(height + width):
            # where the line begins, how far apart its pairs are, and how many they are: rows, then columns
            begin, apart, pairs = (line * pitch, 1, width) if line < height else (line - height, pitch, height)
            low, settled = np.inf, False
            while not settled:
                low, second, at = np.inf, np.inf, begin
                for other in range(begin, begin + pairs * apart, apart):
                    bound = bounds[other]
                    if bound < low or (bound == low and known[other] == _EXACT):
                        low, second, at = bound, low, other
                    elif bound < second:
                        second = bound
                settled = known[at] >= phase
                if not settled:
                    r, c = at // pitch, at % pitch
                    soft, hard = -1.0, np.inf  # the dual start alone
                    if phase == _EXACT:
                        soft = second if known[at] < _DUAL else np.inf
                        hard = _hard(bounds, known, pitch, height, width, r, c)
                    value, exact = word_movers(work, sides, a + r, b + c, soft, hard)
                    if np.isnan(value):
                        return value
                    known[at] = _EXACT if exact else _DUAL
                    bounds[at] = value if exact else max(value, low)
                    if limit < np.inf and _sum_of_minima(table, height, width) > limit:
                        return np.inf
            if phase == _EXACT:
                forth, back = (forth + low, back) if line < height else (forth, back + low)
    return float(forth + back)


@compiled
def most_captions(bags: Bags) -> int:
    """Captions of the largest set."""
    most = 1
    for s in range(len(bags.sets) - 1):
        most = max(most, bags.sets[s + 1] - bags.sets[s])
    return most


@compiled
def distance_rows(
    held: Sides, memory: Memory, forward: Floats, backward: Floats, same: bool, start: int, step: int, out: Floats
) -> None:
    """D of sets start, start + step, ... of x to all of y; only the upper half where they are the same.

    `forward[a, b]` and `backward[b, a]` are the one-sided bounds of the caption pairs, or empty: no pruning then.
    """
    sides, work = _within(held), work_in(memory)
    x, y = held.x, held.y
    bounds = np.empty((most_captions(x), most_captions(y)))
    known = np.empty(bounds.shape, np.int8)
    for i in range(start, len(x.sets) - 1, step):
        for j in range(i + 1 if same else 0, len(y.sets) - 1):
            for a in range(x.sets[i], x.sets[i + 1]):
                for b in range(y.sets[j], y.sets[j + 1]):
                    bound = 0.0
                    if forward.size > 0:
                        bound = max(forward[a, b], backward[b, a])
                    bounds[a - x.sets[i], b - y.sets[j]] = bound
            out[i, j] = set_distance(work, sides, i, j, bounds, known, np.inf)


@compiled
def _nearest_words(sides: Sides, near: Floats) -> None:
    """near[w, lane]: the distance of column w to the nearest word of query caption `lane`; 0 beyond the captions."""
    line = np.empty(near.shape[0], np.float32)
    near[:] = 0
    for a in range(len(sides.x.totals)):
        line[:] = np.inf
        for p in range(sides.x.starts[a], sides.x.starts[a + 1]):
            row = sides.cost[sides.rows[p]]
            for w in range(len(line)):
                line[w] = min(line[w], row[w])
        near[:, a] = line


@compiled
def _one_sided(sides: Sides, near: Floats, out: Floats) -> None:
    """out[i, j]: bound of D of every set of x to every set of y, from the words of y to their nearest in x."""
    x, y, lanes = sides.x, sides.y, near.shape[1]
    total, low = np.empty(lanes, np.float32), np.empty(lanes, np.float32)
    for j in range(len(y.sets) - 1):
        low[:] = np.inf
        out[:, j] = 0
        for b in range(y.sets[j], y.sets[j + 1]):
            total[:] = 0
            for q in range(y.starts[b], y.starts[b + 1]):
                count, word = np.float32(y.counts[q]), near[sides.cols[q]]
                for lane in range(lanes):
                    total[lane] += count * word[lane]
            share = np.float32(1 / y.totals[b])
            for lane in range(lanes):
                total[lane] *= share
                low[lane] = min(low[lane], total[lane])
            for i in range(len(x.sets) - 1):
                least = np.float32(np.inf)
                for a in range(x.sets[i], x.sets[i + 1]):
                    least = min(least, total[a])
                out[i, j] += least
        for i in range(len(x.sets) - 1):
            for a in range(x.sets[i], x.sets[i + 1]):
                out[i, j] += low[a]


@compiled
def _two_sided(sides: Sides, near: Floats, i: int, j: int, bounds: Floats) -> float:
    """Fill the bounds of the caption pairs of sets i and j; returns the bound of D that they make."""
    x, y, cost = sides.x, sides.y, sides.cost
    a0, a1, b0, b1 = x.sets[i], x.sets[i + 1], y.sets[j], y.sets[j + 1]
    for b in range(b0, b1):
        for a in range(a0, a1):
            forth, back = 0.0, 0.0
            for p in range(x.starts[a], x.starts[a + 1]):
                row, least = sides.rows[p] * sides.columns, np.float32(np.inf)
                for q in range(y.starts[b], y.starts[b + 1]):
                    least = min(least, cost[row + sides.cols[q]])
                forth += x.counts[p] * least
            for q in range(y.starts[b], y.starts[b + 1]):
                back += y.counts[q] * near[sides.cols[q], a]
            bounds[a - a0, b - b0] = max(forth / x.totals[a], back / y.totals[b]) * _SLACK
    return _sum_of_minima(bounds, a1 - a0, b1 - b0)


@compiled
def _insert(distances: Floats, ids: Ints, distance: float, row: int) -> None:
    """Put (distance, row) into its place in ascending order, if it is before the last."""
    k = len(ids)
    if distance > distances[k - 1] or (distance == distances[k - 1] and row >= ids[k - 1]):
        return
    at = k - 1
    while at > 0 and (distances[at - 1] > distance or (distances[at - 1] == distance and ids[at - 1] > row)):
        distances[at], ids[at] = distances[at - 1], ids[at - 1]
        at -= 1
    distances[at], ids[at] = distance, row


@compiled
def nearest_sets(held: Sides, memory: Memory, own: Ints, ids: Ints, slack: float, distances: Floats, rows: Ints) -> int:
    """The k nearest sets of y of each set of x, into distances and rows `[X, k]`, ties to the lower id; exact.

    `own` `[X]` are ids that do not count for that set, `ids` `[Y]` those of the sets of y. One-sided bounds for all,
    two-sided bounds for those below the k-th best of some seeds, then solved by increasing bound until it passes the
    k-th best. `slack` covers float32 sums of the longest caption. Returns how many set pairs were solved.
    """
    sides, work, solved = _within(held), work_in(memory), 0
    x, k = held.x, rows.shape[1]
    lanes = (len(x.totals) + GROUP - 1) // GROUP * GROUP
    near = np.empty((held.columns, lanes), np.float32)
    _nearest_words(held, near)
    first = np.empty((len(own), len(ids)), np.float32)
    _one_sided(held, near, first)
    bounds = np.empty((most_captions(x), most_captions(held.y)))
    known = np.empty(bounds.shape, np.int8)
    chosen = np.empty(len(ids), np.int64)
    below = np.empty(len(ids))
    seeds, seed_bounds = np.empty(min(len(ids), 2 * k + 16), np.int64), np.empty(min(len(ids), 2 * k + 16))
    for i in range(len(own)):
        best, best_ids, bound_of = distances[i], rows[i], first[i]
        best[:] = np.inf
        best_ids[:] = np.iinfo(np.int64).max
        seeds[:] = np.iinfo(np.int64).max
        seed_bounds[:] = np.inf
        for j in range(len(ids)):
            if ids[j] == own[i]:
                bound_of[j] = np.inf
            elif bound_of[j] < seed_bounds[-1]:
                _insert(seed_bounds, seeds, bound_of[j], j)
        for turn in range(2):
            count, limit = 0, best[k - 1] * (1 + 2e-7)  # float32 may round a distance down
            for at in range(len(ids) if turn else len(seeds)):
                j = at if turn else seeds[at]
                if j < len(ids) and bound_of[j] < np.inf and bound_of[j] * slack <= limit:
                    bound = _two_sided(sides, near, i, j, bounds)
                    if bound <= limit:
                        chosen[count], below[count] = j, bound
                        count += 1
            for at in np.argsort(below[:count]):
                limit = best[k - 1] * (1 + 2e-7)
                if below[at] > limit:
                    break
                j = chosen[at]
                _two_sided(sides, near, i, j, bounds)
                solved += 1
                distance = float(np.float32(set_distance(work, sides, i, j, bounds, known, limit)))
                if distance < np.inf:
                    _insert(best, best_ids, distance, ids[j])
            if turn == 0:
                for j in seeds:
                    if j < len(ids):
                        bound_of[j] = np.inf
    return solved


@compiled
def gather_costs(whole: Floats, rows: Ints, cols: Ints, out: Floats) -> None:
    """Copy the entries `[R, C]` of these rows and columns of a matrix of word distances."""
    for i in range(len(rows)):
        line = whole[rows[i]]
        for j in range(len(cols)):
            out[i, j] = line[cols[j]]
