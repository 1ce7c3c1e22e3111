"""Loops of the graded metrics, compiled by numba: one ranking at a time, ties as expectations; the order of items."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from contml.distances._compiled import Floats, Ints, compiled

#: Columns that are compared at once, and read one by one only if one of them counts.
_TOGETHER = 64
#: Columns that stay in the processor's first cache.
_CACHED = 2048


@compiled
def order_statistics(
    distances: Floats, nearest: Ints, keys: Floats, smallest: Ints, relevance: Floats, out: Floats
) -> None:
    """Hierarchical AP and Kendall's tau of complete rankings, in O(C log C) time for each.

    distances `[Q, C]`: infinite where an item does not count; nearest `[Q, C]`: the items in order of distance; keys
    `[Q, C]`: label distances; smallest `[Q, C]`: the items in order of the keys; relevance `[Q, C]` falls as keys grow.
    out `[4, Q]`: the sum of the precisions of H-AP, the same of a random ranking, the sum of relevance, and tau-b: NaN
    where the keys are all equal, 0 where the distances alone are.

    Two binary indexed trees over the ranks of the keys hold the number and the relevance of the items so far.
    """
    columns = distances.shape[1]
    rank = np.empty(columns, np.int64)  # of an item's key, from 1; equal keys have one rank
    item_counts, relevance_sums = np.empty(columns + 1), np.empty(columns + 1)  # the trees
    inverse_place = 1 / np.arange(1, columns + 1)
    for q in range(len(distances)):
        near, order, key, rel = distances[q], nearest[q], keys[q], relevance[q]
        n = columns
        while n and near[order[n - 1]] == np.inf:
            n -= 1
        # By key: ranks, ties, and the sum over pairs of min(rel_i, rel_j).
        ranks, run, num_seen = 0, 0, 0
        key_ties, common, last_key = 0.0, 0.0, key[smallest[q, 0]]
        for item in smallest[q]:
            if ranks == 0 or key[item] != last_key:
                ranks, run, last_key = ranks + 1, 0, key[item]
            rank[item] = ranks
            if near[item] != np.inf:
                key_ties += run
                common += 2 * num_seen * rel[item]
                run += 1
                num_seen += 1
        item_counts[: ranks + 1], relevance_sums[: ranks + 1] = 0, 0
        distance_ties, both_ties, violated = 0.0, 0.0, 0.0
        precision, relevance_before, start = 0.0, 0.0, 0
        while start < n:
            end = start + 1
            while end < n and near[order[end]] == near[order[start]]:
                end += 1
            size = end - start
            group = order[start:end]
            if size > 1:
                group = group[np.argsort(rank[group], kind="mergesort")]
                distance_ties += size * (size - 1) / 2
                run = 0
                for i in range(1, size):
                    run = run + 1 if rank[group[i]] == rank[group[i - 1]] else 0
                    both_ties += run
            inverse, inside = 0.0, 0.0  # sums of 1 / place, and of (items of the group before) / place
            for i in range(size):
                inverse += inverse_place[start + i]
                inside += i * inverse_place[start + i]
            relevance_after = 0.0
            for i in range(size - 1, -1, -1):
                item = group[i]
                nearer, nearer_total, node = 0.0, 0.0, rank[item]
                while node > 0:
                    nearer += item_counts[node]
                    nearer_total += relevance_sums[node]
                    node &= node - 1
                violated += start - nearer
                shared = rel[item] + nearer * rel[item] + relevance_before - nearer_total
                in_group = (i * rel[item] + relevance_after) / (size - 1) if size > 1 else 0.0
                precision += (shared * inverse + in_group * inside) / size
                relevance_after += rel[item]
            relevance_before += relevance_after
            for item in group:
                node = rank[item]
                while node <= ranks:
                    item_counts[node] += 1
                    relevance_sums[node] += rel[item]
                    node += node & -node
            start = end
        pairs = n * (n - 1) / 2
        inverse = inverse_place[:n].sum()
        out[0, q], out[2, q] = precision, relevance_before
        out[1, q] = (relevance_before * inverse + (common / (n - 1) * (n - inverse) if n > 1 else 0.0)) / n
        if key_ties == pairs:
            out[3, q] = np.nan
        elif distance_ties == pairs:
            out[3, q] = 0.0
        else:
            agreement = pairs - distance_ties - key_ties + both_ties - 2 * violated
            out[3, q] = agreement / np.sqrt(pairs - distance_ties) / np.sqrt(pairs - key_ties)


@compiled
def count_within(distances: Floats, own: Ints, groups: Ints, thresholds: Floats, counts: Ints) -> None:
    """Numbers of items of each row `[Q, C]` at most at each threshold `[T]`, and of all: counts `[Q, T + 1]`.

    An item of the row's own group does not count: own `[Q]`, groups `[C]`.
    """
    columns, num_thresholds = distances.shape[1], len(thresholds)
    counts[:] = 0
    for q in range(len(distances)):
        for start in range(0, columns, _CACHED):
            row = distances[q, start : start + _CACHED]
            for t in range(num_thresholds):
                limit, hits = thresholds[t], np.int32(0)
                for j in range(len(row)):
                    hits += np.int32(row[j] <= limit)
                counts[q, t] += hits
        counts[q, num_thresholds] = columns
        for start in range(0, columns, _TOGETHER):
            members, excluded = groups[start : start + _TOGETHER], np.int64(0)
            for j in range(len(members)):
                excluded += np.int64(members[j] == own[q])
            if not excluded:
                continue
            for j in range(start, start + len(members)):
                if groups[j] == own[q]:
                    counts[q, num_thresholds] -= 1
                    for t in range(num_thresholds):
                        counts[q, t] -= distances[q, j] <= thresholds[t]


@compiled
def add_misses(
    distances: Floats, labels: Floats, further: Floats, further_hits: Floats, thresholds: Floats, out: Floats
) -> None:
    """Add to out `[T, K]` the chances that none of the K nearest has a label distance within each threshold `[T]`.

    distances, labels `[Q, D]` of rankings, D at least K; further `[Q]`, further_hits `[Q, T]`: number of further items
    that tie with the last place, and of the items within each threshold.
    """
    places, depth = out.shape[1], distances.shape[1]
    for q in range(len(distances)):
        for t in range(len(thresholds)):
            chance, start = 1.0, 0
            while start < places and chance > 0:
                end = start
                hits = 0.0
                while end < depth and distances[q, end] == distances[q, start]:
                    hits += labels[q, end] <= thresholds[t]
                    end += 1
                size = float(end - start)
                if end == depth:
                    size, hits = size + further[q], hits + further_hits[q, t]
                for i in range(min(end, places) - start):
                    chance *= max(size - hits - i, 0.0) / (size - i)
                    out[t, start + i] += chance
                start = end


@compiled
def add_errors(
    distances: Floats, positions: Ints, vectors: Floats, own: Floats, further: Floats, further_sum: Floats, out: Floats
) -> None:
    """Add to out `[K]` the errors of predicting a query's label as the mean label of its K nearest items.

    distances, positions `[Q, D]` of rankings, D at least K; vectors `[C, n]`: the labels; own `[Q, n]`: labels of
    the queries; further `[Q]`, further_sum `[Q, n]`: number and label sum of further items that tie with the last
    place.
    """
    places, depth, dims = len(out), distances.shape[1], vectors.shape[1]
    total, mean = np.empty(dims), np.empty(dims)
    for q in range(len(distances)):
        total[:] = 0
        start = 0
        while start < places:
            end = start
            mean[:] = 0
            while end < depth and distances[q, end] == distances[q, start]:
                for n in range(dims):
                    mean[n] += vectors[positions[q, end], n]
                end += 1
            size = float(end - start)
            if end == depth:
                size += further[q]
                for n in range(dims):
                    mean[n] += further_sum[q, n]
            for i in range(start, min(end, places)):
                squared = 0.0
                for n in range(dims):
                    total[n] += mean[n] / size
                    squared += (total[n] / (i + 1) - own[q, n]) ** 2
                out[i] += np.sqrt(squared)
            start = end


@compiled
def label_ties(
    distances: Floats,
    own_group: Ints,
    groups: Ints,
    near: Floats,
    ids: Ints,
    vectors: Floats,
    own: Floats,
    further: Floats,
    sums: Floats,
    out: Floats,
) -> None:
    """Sum the vectors `[C, n]` of items of rows `[Q, C]` that tie with the last of the K smallest, but are not in them.

    near, ids `[Q, K]`: the K smallest; further `[Q]`, sums `[Q, n]`: number and sum of the further items. Add to out
    `[K]` the errors of predicting the vectors own `[Q, n]` as the mean of all items, without the row's own
    group: own_group `[Q]`, groups `[C]`.
    """
    columns, dims = distances.shape[1], vectors.shape[1]
    total, mean = np.zeros(dims), np.empty(dims)
    for j in range(columns):
        total += vectors[j]
    for q in range(len(distances)):
        kth_distance, count = near[q, -1], columns
        further[q], sums[q], mean[:] = 0, 0, total
        for start in range(0, columns, _TOGETHER):
            row, members = distances[q, start : start + _TOGETHER], groups[start : start + _TOGETHER]
            hits = np.int64(0)
            for j in range(len(row)):
                hits += np.int64((members[j] == own_group[q]) | (row[j] == kth_distance))
            if not hits:
                continue
            for j in range(start, start + len(row)):
                if groups[j] == own_group[q]:
                    count -= 1
                    for n in range(dims):
                        mean[n] -= vectors[j, n]
                elif distances[q, j] == kth_distance:
                    further[q] += 1
                    for n in range(dims):
                        sums[q, n] += vectors[j, n]
        for rank in range(near.shape[1]):
            if near[q, rank] == kth_distance:
                further[q] -= 1
                sums[q] -= vectors[ids[q, rank]]
        out += np.sqrt(((mean / count - own[q]) ** 2).sum())


Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"


@compiled
def order_by_distance(distances: Array, values: Array, nearest: Array, ordered: Array, beyond: Array) -> None:
    """Fill `ordered` `[Q, D]` with the values of the D nearest items; items at equal distance stay in order.

    distances `[Q, C]`; values `[Q, C]`: label distances of the same items; nearest `[Q, C]`: the distances, sorted;
    beyond `[3, Q]`: number, sum of label distances and sum of gains of further items that tie with the last place.
    """
    places, items = ordered.shape[1], distances.shape[1]
    num_placed, nearest_distances = np.empty(places, np.int64), np.empty(places, nearest.dtype)
    # Unsigned, so that numba need not handle negative indices and can vectorize the loops.
    candidates, first_place = np.empty(items, np.uint32), np.empty(items, np.uint32)
    distance_of = np.empty(items, distances.dtype)
    beyond[:] = 0
    for q in range(len(distances)):
        row = distances[q]
        nearest_distances[:] = nearest[q, :places]
        num_candidates = np.uint32(0)
        for j in range(items):
            candidates[num_candidates], distance_of[num_candidates] = j, row[j]
            num_candidates += np.uint32(row[j] <= nearest_distances[places - 1])
        first_place[:num_candidates] = 0
        size = np.uint32(places)
        while size > 1:  # bisection for the first place of each item's distance
            half = size // np.uint32(2)
            below = half - np.uint32(1)
            for i in range(num_candidates):
                first_place[i] += half if nearest_distances[first_place[i] + below] < distance_of[i] else np.uint32(0)
            size -= half
        num_placed[:] = 0
        for i in range(num_candidates):
            place, value = first_place[i] + num_placed[first_place[i]], values[q, candidates[i]]
            num_placed[first_place[i]] += 1
            if place < places:
                ordered[q, place] = value
            else:
                beyond[0, q] += 1
                beyond[1, q] += value
                beyond[2, q] += 1 / (1 + value)
