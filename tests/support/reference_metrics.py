"""Slow metrics of retrieval and clustering, written from their definitions: the mean over all orders of ties.

Distances are fractions, so ties are exact. A query is excluded from its own gallery by its row.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from statistics import fmean

Vectors = Sequence[Sequence[float]]


def squared_distance(x: Sequence[float], y: Sequence[float]) -> Fraction:
    return sum((Fraction(a) - Fraction(b)) ** 2 for a, b in zip(x, y, strict=True)) + Fraction(0)


def groups(embeddings: Vectors, query: int, gallery: Sequence[int]) -> list[list[int]]:
    """The gallery without the query, nearest first, in groups at equal distance."""
    distances = {row: squared_distance(embeddings[query], embeddings[row]) for row in gallery if row != query}
    return [[row for row in distances if distances[row] == level] for level in sorted(set(distances.values()))]


def orders(ranked: list[list[int]]) -> Iterator[list[int]]:
    """Every ranking in which nearer items come first."""
    for choice in itertools.product(*(itertools.permutations(group) for group in ranked)):
        yield [row for group in choice for row in group]


def patterns(ranked: list[list[bool]]) -> Iterator[list[bool]]:
    """Which places are relevant, for each distinct order of the groups; all are equally likely."""
    patterns_of_groups = []
    for group in ranked:
        chosen = itertools.combinations(range(len(group)), sum(group))
        patterns_of_groups.append([[place in places for place in range(len(group))] for places in chosen])
    for choice in itertools.product(*patterns_of_groups):
        yield [flag for group in choice for flag in group]


def _over_queries(embeddings, classes, queries, gallery, of_ranking):
    total = 0.0
    for query in queries:
        ranked = [[classes[row] == classes[query] for row in group] for group in groups(embeddings, query, gallery)]
        total += fmean(of_ranking(relevant) for relevant in patterns(ranked))
    return total / len(queries)


def recall_at_k(embeddings, classes, queries, gallery, k):
    """Share of the queries with an item of their class among the k nearest."""
    return _over_queries(embeddings, classes, queries, gallery, lambda relevant: float(any(relevant[:k])))


def precision_at_1(embeddings, classes, queries, gallery):
    return _over_queries(embeddings, classes, queries, gallery, lambda relevant: float(relevant[0]))


def r_precision(embeddings, classes, queries, gallery):
    """Share of the R nearest that are relevant, R = number of relevant items; 0 where there are none."""

    def of_ranking(relevant):
        r = sum(relevant)
        return sum(relevant[:r]) / r if r else 0.0

    return _over_queries(embeddings, classes, queries, gallery, of_ranking)


def map_at_r(embeddings, classes, queries, gallery):
    """Mean of 1/R sum over ranks i <= R that hold a relevant item of the precision at i; 0 where R is 0."""

    def of_ranking(relevant):
        r = sum(relevant)
        return sum(sum(relevant[:i]) / i for i in range(1, r + 1) if relevant[i - 1]) / r if r else 0.0

    return _over_queries(embeddings, classes, queries, gallery, of_ranking)


def ndcg_at_k(embeddings, labels, queries, gallery, k):
    """Mean over queries of DCG / the best DCG, DCG = sum over ranks i <= k of 1/(1 + label distance) / log2(i + 1)."""

    def dcg(distances):
        return sum(1 / (1 + d) / math.log2(i + 1) for i, d in enumerate(distances[:k], start=1))

    total = 0.0
    for query in queries:
        ranked = groups(embeddings, query, gallery)
        best = dcg(sorted(labels[query][row] for group in ranked for row in group))
        total += fmean(dcg([labels[query][row] for row in order]) for order in orders(ranked)) / best
    return total / len(queries)


def shared_places(distances: Sequence[float], values: Sequence[float]) -> list[float]:
    """The expected value at each place of one query's ranking: the mean over the items at equal distance."""
    out: list[float] = []
    for level in sorted(set(distances)):
        group = [value for distance, value in zip(distances, values, strict=True) if distance == level]
        out += [fmean(group)] * len(group)
    return out


# ---------------------------------------------------------------------------------------------------------------------
# graded metrics of one query: distances and values of its list, the mean over all orders of ties


def list_orders(distances: Sequence[float]) -> Iterator[list[int]]:
    """Every ranking of a list in which nearer items come first."""
    levels = sorted(set(distances))
    yield from orders([[i for i, d in enumerate(distances) if d == level] for level in levels])


def hierarchical_ap(distances, relevance):
    """sum_i H_i / rank_i / sum_i rel_i, H_i = rel_i + sum over the items before i of min(rel_i, rel_j)."""

    def of_ranking(rel):
        shared = [rel[i] + sum(min(rel[i], rel[j]) for j in range(i)) for i in range(len(rel))]
        return sum(h / rank for rank, h in enumerate(shared, start=1)) / sum(rel)

    return fmean(of_ranking([relevance[i] for i in order]) for order in list_orders(distances))


def recall_within(distances, labels, threshold, k):
    """1 if one of the k nearest is within the threshold."""
    return fmean(float(any(labels[i] <= threshold for i in order[:k])) for order in list_orders(distances))


# ---------------------------------------------------------------------------------------------------------------------
# clusters


def normalized_mutual_information(classes, clusters):
    """2 I / (H + H), natural logarithms; 1 where both are one group."""
    n = len(classes)

    def entropy(ids):
        return -sum(ids.count(x) / n * math.log(ids.count(x) / n) for x in set(ids))

    information = 0.0
    for a in set(classes):
        for b in set(clusters):
            both = sum(x == a and y == b for x, y in zip(classes, clusters, strict=True)) / n
            if both:
                information += both * math.log(both / (classes.count(a) / n * clusters.count(b) / n))
    h = entropy(classes) + entropy(clusters)
    return 2 * information / h if h else 1.0


def pairwise_f1(classes, clusters):
    """F1 of "in one cluster" as a prediction of "in one class", over all pairs of items; 1 if no pair is either."""
    true_positive = false_positive = false_negative = 0
    for i, j in itertools.combinations(range(len(classes)), 2):
        same_class, same_cluster = classes[i] == classes[j], clusters[i] == clusters[j]
        true_positive += same_class and same_cluster
        false_positive += same_cluster and not same_class
        false_negative += same_class and not same_cluster
    if true_positive + false_positive + false_negative == 0:
        return 1.0
    if true_positive == 0:
        return 0.0
    precision = true_positive / (true_positive + false_positive)
    recall = true_positive / (true_positive + false_negative)
    return 2 * precision * recall / (precision + recall)
