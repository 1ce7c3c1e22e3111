"""Step 3. Blocks of word costs, and lower bounds of W and D read from them. Compiled by numba.

A *cost block* holds the distances from some words (its rows) to others (its columns); `rows` and `cols` give the row
and the column of each entry of a bag.

The bounds of W are relaxed distances: each word of one caption goes to its nearest word in the other one (Kusner et
al., ICML 2015, in the linear form of Atasu and Mittelholzer, ICML 2019). The bound of D is the sum of their minima.
"""

from __future__ import annotations

import numpy as np

from contml.distances._compiled import Floats, Ints, compiled
from contml.transport.bags import Bags, CaptionPairs

#: Bounds are lowered by this factor, which is more than float32 rounding can raise them by.
_SLACK = 1 - 1e-6


@compiled
def gather_costs(whole: Floats, rows: Ints, cols: Ints, out: Floats) -> None:
    """Copy the entries `[R, C]` of these rows and columns of a matrix of word distances."""
    for i in range(len(rows)):
        line = whole[rows[i]]
        for j in range(len(cols)):
            out[i, j] = line[cols[j]]


@compiled
def one_sided_bounds(
    cost: Floats, x: Bags, rows: Ints, y: Bags, cols: Ints, start: int, stop: int, out: Floats
) -> None:
    """Write to out[a, b] the bound of W of captions start:stop of x to all of y.

    The words of b go to their nearest words in a.
    """
    nearest = np.empty(cost.shape[1], np.float32)
    for a in range(start, stop):
        nearest[:] = np.inf
        for p in range(x.starts[a], x.starts[a + 1]):
            row = cost[rows[p]]
            for w in range(len(nearest)):
                nearest[w] = min(nearest[w], row[w])
        for b in range(len(y.totals)):
            total = 0.0
            for q in range(y.starts[b], y.starts[b + 1]):
                total += y.counts[q] * nearest[cols[q]]
            out[a, b] = total / y.totals[b] * _SLACK


@compiled
def nearest_words(pairs: CaptionPairs, nearest: Floats) -> None:
    """Write to nearest[w, a] the distance of column w to the nearest word of caption a of x; 0 beyond the captions."""
    line = np.empty(nearest.shape[0], np.float32)
    nearest[:] = 0
    for a in range(len(pairs.x.totals)):
        line[:] = np.inf
        for p in range(pairs.x.starts[a], pairs.x.starts[a + 1]):
            row = pairs.cost[pairs.rows[p]]
            for w in range(len(line)):
                line[w] = min(line[w], row[w])
        nearest[:, a] = line


@compiled
def one_sided_set_bounds(pairs: CaptionPairs, nearest: Floats, out: Floats) -> None:
    """Write to out[i, j] the bound of D of every set of x to every set of y.

    The words of y go to their nearest words in x.
    """
    x, y, lanes = pairs.x, pairs.y, nearest.shape[1]
    total, lowest = np.empty(lanes, np.float32), np.empty(lanes, np.float32)
    for j in range(len(y.sets) - 1):
        lowest[:] = np.inf
        out[:, j] = 0
        for b in range(y.sets[j], y.sets[j + 1]):
            total[:] = 0
            for q in range(y.starts[b], y.starts[b + 1]):
                count, word = np.float32(y.counts[q]), nearest[pairs.cols[q]]
                for lane in range(lanes):
                    total[lane] += count * word[lane]
            share = np.float32(1 / y.totals[b])
            for lane in range(lanes):
                total[lane] *= share
                lowest[lane] = min(lowest[lane], total[lane])
            for i in range(len(x.sets) - 1):
                least = np.float32(np.inf)
                for a in range(x.sets[i], x.sets[i + 1]):
                    least = min(least, total[a])
                out[i, j] += least
        for i in range(len(x.sets) - 1):
            for a in range(x.sets[i], x.sets[i + 1]):
                out[i, j] += lowest[a]


@compiled
def costs_of_set(pairs: CaptionPairs, i: int, out: Floats) -> None:
    """Write to out[w, p] the distance of column w to word p of set i of x.

    The words of its captions follow each other.
    """
    first = pairs.x.starts[pairs.x.sets[i]]
    for w in range(pairs.columns):
        for p in range(first, pairs.x.starts[pairs.x.sets[i + 1]]):
            out[w, p - first] = pairs.cost[pairs.rows[p] * pairs.columns + w]


@compiled
def two_sided_bounds(
    pairs: CaptionPairs, nearest: Floats, own_costs: Floats, i: int, j: int, bounds: Floats, least: Floats
) -> float:
    """Fill `bounds` with the bounds of the caption pairs of sets i and j, and return the bound of D that follows.

    `own_costs` comes from `costs_of_set`, so that one word of y is compared with all words of set i at once. `least` is
    scratch memory for as many numbers as set i has words.
    """
    x, y = pairs.x, pairs.y
    a0, a1, b0, b1 = x.sets[i], x.sets[i + 1], y.sets[j], y.sets[j + 1]
    first, last = x.starts[a0], x.starts[a1]
    for b in range(b0, b1):
        for a in range(a1 - a0):
            bounds[a, b - b0] = 0.0
        least[: last - first] = np.inf
        for q in range(y.starts[b], y.starts[b + 1]):
            word, count = pairs.cols[q], y.counts[q]
            for p in range(last - first):
                least[p] = min(least[p], own_costs[word, p])
            for a in range(a0, a1):
                bounds[a - a0, b - b0] += count * nearest[word, a]
        for a in range(a0, a1):
            of_x = 0.0
            for p in range(x.starts[a], x.starts[a + 1]):
                of_x += x.counts[p] * least[p - first]
            bounds[a - a0, b - b0] = max(of_x / x.totals[a], bounds[a - a0, b - b0] / y.totals[b]) * _SLACK
    return sum_of_minima(bounds, a1 - a0, b1 - b0)


@compiled
def sum_of_minima(bounds: Floats, height: int, width: int) -> float:
    """Sum the least entry of each row and of each column of the first `height` rows and `width` columns."""
    total = 0.0
    for r in range(height):
        least = np.inf
        for c in range(width):
            least = min(least, bounds[r, c])
        total += least
    for c in range(width):
        least = np.inf
        for r in range(height):
            least = min(least, bounds[r, c])
        total += least
    return total
