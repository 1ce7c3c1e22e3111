"""Machine code over packed captions: bounds of the Word Mover's Distance, minima over caption sets, nearest sets.

Captions are bags of words `(word, count)` in ascending order of word. A *cost block* holds the distances of some words,
its rows, to others, its columns; `rows` and `cols` say which row or column belongs to each entry of a bag.

Bounds of W, each at least the one before: the relaxed distance of either side (Kusner et al., ICML 2015, in the linear
form of Atasu and Mittelholzer, ICML 2019: each word goes to its nearest in the other caption), the dual start of the
solver, its running dual.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from contml.distances._transport import Floats, Ints, Work, compiled, lent, solve, without_count

#: What a bound may lose to rounding on its way through float32.
_SLACK = 1 - 1e-6
#: Captions of queries that are bounded at once: one vector register of float32.
LANES = 16
#: How much is known of a caption pair: the relaxed distance, the dual start, its distance.
_DUAL, _EXACT = 1, 2


class Bags(NamedTuple):
    """Packed caption sets: set s has the captions sets[s] to sets[s + 1], caption c the entries from starts[c]."""

    words: Ints  # [E] int64, ascending within a caption
    counts: Ints  # [E] int64
    starts: Ints  # [K+1] int64
    totals: Ints  # [K] int64: words of a caption, repeats included
    sets: Ints  # [S+1] int64


class Sides(NamedTuple):
    """Two packs of caption sets and the block of costs between their words."""

    cost: Floats  # [R,C] float32
    x: Bags
    rows: Ints  # [E of x]
    y: Bags
    cols: Ints  # [E of y]


@compiled
def _lent_bags(bags: Bags) -> Bags:
    return Bags(
        without_count(bags.words),
        without_count(bags.counts),
        without_count(bags.starts),
        without_count(bags.totals),
        without_count(bags.sets),
    )


@compiled
def _lent_sides(sides: Sides) -> Sides:
    return Sides(
        without_count(sides.cost),
        _lent_bags(sides.x),
        without_count(sides.rows),
        _lent_bags(sides.y),
        without_count(sides.cols),
    )


@compiled
def word_movers(work: Work, sides: Sides, a: int, b: int, soft: float, hard: float) -> tuple[float, bool]:
    """W of caption a of x and caption b of y, or a lower bound above `soft` or `hard` and False.

    Words that both have stay where they are, which is optimal for a metric. The problem is turned so that W(a, b) and
    W(b, a) are one computation, and equal to the last bit.
    """
    x, y, words = sides.x, sides.y, work.words
    p, p_end, q, q_end = x.starts[a], x.starts[a + 1], y.starts[b], y.starts[b + 1]
    na, nb = x.totals[a], y.totals[b]
    m, n, first_a, first_b = 0, 0, 0, 0
    while p < p_end or q < q_end:
        if q == q_end or (p < p_end and x.words[p] < y.words[q]):
            rest = x.counts[p] * nb
        elif p == p_end or y.words[q] < x.words[p]:
            rest = -y.counts[q] * na
        else:
            rest = x.counts[p] * nb - y.counts[q] * na
        moves_p = p < p_end and (q == q_end or x.words[p] <= y.words[q])
        moves_q = q < q_end and (p == p_end or y.words[q] <= x.words[p])
        if rest > 0:
            if m == 0:
                first_a = x.words[p]
            words[0, m] = sides.rows[p]
            work.supply[m] = rest
            m += 1
        elif rest < 0:
            if n == 0:
                first_b = y.words[q]
            words[1, n] = sides.cols[q]
            work.demand[n] = -rest
            n += 1
        p += moves_p
        q += moves_q
    if m == 0:
        return 0.0, True
    scale = na * nb
    if m > n or (m == n and first_a > first_b):
        for i in range(m):
            for j in range(n):
                work.cost[j, i] = sides.cost[words[0, i], words[1, j]]
        for i in range(max(m, n)):
            work.supply[i], work.demand[i] = work.demand[i], work.supply[i]
        m, n = n, m
    else:
        for i in range(m):
            for j in range(n):
                work.cost[i, j] = sides.cost[words[0, i], words[1, j]]
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
def movers_rows(held: Sides, scratch: Work, same: bool, start: int, step: int, out: Floats) -> None:
    """W of captions start, start + step, ... of x to all captions of y; only the upper half where they are the same."""
    sides, work = _lent_sides(held), lent(scratch)
    for a in range(start, len(sides.x.totals), step):
        for b in range(a + 1 if same else 0, len(sides.y.totals)):
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


@compiled
def _hard(bounds: Floats, known: Ints, height: int, width: int, r: int, c: int) -> float:
    # Beyond the best exact distances of both its row and its column, a pair is the minimum of neither.
    row, col = np.inf, np.inf
    for other in range(width):
        if known[r, other] == _EXACT:
            row = min(row, bounds[r, other])
    for other in range(height):
        if known[other, c] == _EXACT:
            col = min(col, bounds[other, c])
    return max(row, col)


@compiled
def set_distance(work: Work, sides: Sides, i: int, j: int, bounds: Floats, known: Ints, limit: float) -> float:
    """D of set i of x and set j of y from bounds `[height, width]` of its caption pairs; inf once D must pass `limit`.

    Line by line, the pair with the least bound is solved until the least is a distance. A solve stops at the dual start
    when another pair of the line has a smaller bound, and later when the pair cannot be a minimum at all. With a limit,
    dual starts come first: they are enough to turn most sets away.
    """
    a, b = sides.x.sets[i], sides.y.sets[j]
    height, width = sides.x.sets[i + 1] - a, sides.y.sets[j + 1] - b
    for r in range(height):
        for c in range(width):
            known[r, c] = 0
    sums = np.zeros(2)
    for phase in range(_DUAL if limit < np.inf else _EXACT, _EXACT + 1):
        for side in range(2):
            for line in range(width if side else height):
                low, settled = np.inf, False
                while not settled:
                    low, second, r, c = np.inf, np.inf, 0, 0
                    for other in range(height if side else width):
                        row, col = (other, line) if side else (line, other)
                        bound = bounds[row, col]
                        if bound < low or (bound == low and known[row, col] == _EXACT):
                            low, second, r, c = bound, low, row, col
                        elif bound < second:
                            second = bound
                    settled = known[r, c] >= phase
                    if not settled:
                        soft, hard = -1.0, np.inf  # the dual start alone
                        if phase == _EXACT:
                            soft = second if known[r, c] < _DUAL else np.inf
                            hard = _hard(bounds, known, height, width, r, c)
                        value, exact = word_movers(work, sides, a + r, b + c, soft, hard)
                        if np.isnan(value):
                            return value
                        known[r, c] = _EXACT if exact else _DUAL
                        bounds[r, c] = value if exact else max(value, low)
                        if limit < np.inf and _sum_of_minima(bounds, height, width) > limit:
                            return np.inf
                if phase == _EXACT:
                    sums[side] += low
    return float(sums[0] + sums[1])


@compiled
def most_captions(bags: Bags) -> int:
    """Captions of the largest set."""
    most = 1
    for s in range(len(bags.sets) - 1):
        most = max(most, bags.sets[s + 1] - bags.sets[s])
    return most


@compiled
def distance_rows(
    held: Sides, scratch: Work, forward: Floats, backward: Floats, same: bool, start: int, step: int, out: Floats
) -> None:
    """D of sets start, start + step, ... of x to all of y; only the upper half where they are the same.

    `forward[a, b]` and `backward[b, a]` are the one-sided bounds of the caption pairs, or empty: no pruning then.
    """
    sides, work = _lent_sides(held), lent(scratch)
    x, y = sides.x, sides.y
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
                row, least = cost[sides.rows[p]], np.float32(np.inf)
                for q in range(y.starts[b], y.starts[b + 1]):
                    least = min(least, row[sides.cols[q]])
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
def nearest_sets(held: Sides, scratch: Work, own: Ints, ids: Ints, slack: float, distances: Floats, rows: Ints) -> int:
    """The k nearest sets of y of each set of x, into distances and rows `[X, k]`, ties to the lower id; exact.

    `own` `[X]` are ids that do not count for that set, `ids` `[Y]` those of the sets of y. One-sided bounds for all,
    two-sided bounds for those below the k-th best of some seeds, then solved by increasing bound until it passes the
    k-th best. `slack` covers float32 sums of the longest caption. Returns how many set pairs were solved.
    """
    sides, work, solved = _lent_sides(held), lent(scratch), 0
    x, y, k = sides.x, sides.y, rows.shape[1]
    lanes = (len(x.totals) + LANES - 1) // LANES * LANES
    near = np.empty((sides.cost.shape[1], lanes), np.float32)
    _nearest_words(sides, near)
    first = np.empty((len(own), len(ids)), np.float32)
    _one_sided(sides, near, first)
    bounds = np.empty((most_captions(x), most_captions(y)))
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
