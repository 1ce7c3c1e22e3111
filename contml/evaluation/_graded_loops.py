"""Loops of the graded metrics, compiled by numba: one ranking at a time, ties as expectations."""

from __future__ import annotations

import numpy as np

from contml.distances._compiled import Floats, Ints, compiled


@compiled
def order_statistics(
    distances: Floats, nearest: Ints, keys: Floats, smallest: Ints, relevance: Floats, out: Floats
) -> None:
    """Compute hierarchical AP and Kendall's tau of complete rankings, in O(C log C) time for each ranking.

    Two binary indexed trees over the ranks of the keys hold the number and the relevance of the items so far.

    Args:
        distances: embedding distances `[Q, C]`, infinite where an item does not count.
        nearest: the items in order of distance `[Q, C]`.
        keys: label distances `[Q, C]`.
        smallest: the items in order of the keys `[Q, C]`.
        relevance: the relevance `[Q, C]`, which falls as keys grow.
        out: the result `[4, Q]`. Rows 0 and 1 are the sums of the precisions of H-AP, of the model and of a random
            ranking. Row 2 is the sum of relevance. Row 3 is tau-b. Tau-b is NaN if all keys are equal, and 0 if only
            the distances are all equal.
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
