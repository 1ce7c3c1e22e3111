"""Clusters of embeddings compared with classes: k-means, normalized mutual information and pairwise F1.

    NMI = 2 I(clusters; classes) / (H(clusters) + H(classes))
    F1  = 2 P R / (P + R) over pairs of items: P = share of the pairs in one cluster that are of one class, R = share of
          the pairs of one class that are in one cluster

with k = the number of classes. Song, Xiang, Jegelka, Savarese: "Deep Metric Learning via Lifted Structured Feature
Embedding", CVPR 2016, Section 5; Manning, Raghavan, Schuetze: "Introduction to Information Retrieval", 16.3.

Copies of an embedding are one point with a weight, so they always share a cluster. The points are sorted by value, so
the result does not depend on the order of the items.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from contml._support.conversion import Numbers
from contml._support.errors import InputError
from contml._support.ids import as_class_ids
from contml._support.validation import check_whole
from contml.distances import distinct
from contml.distances.nearest import Frame
from contml.evaluation.query_gallery import as_embeddings
from contml.evaluation.results import Score, score_of

#: Iterations of k-means, the default of FAISS.
ITERATIONS = 25
#: Initial centres are drawn in this many rounds, or one by one where k is smaller.
_ROUNDS = 64
#: Entries of a `[points, centres]` block.
_ENTRIES = 1 << 24
#: The most restarts of k-means; fewer if that takes more than _DISTANCES distances per iteration. The clusters of one
#: run may all change when an embedding is rounded differently; means over many runs change little.
_RESTARTS, _DISTANCES = 100, 10**7


def cluster(embeddings: Numbers, k: int, *, seed: int = 0) -> Tensor:
    """Clusters `[N]`, 0 ... k - 1, of embeddings `[N, d]` by k-means; fewer than k if fewer points are distinct.

    The initial centres are drawn as in k-means++ (Arthur, Vassilvitskii, SODA 2007), k/64 at a time if k is large.
    FAISS runs on the CPU, torch on a CUDA device. The same seed gives the same clusters on the same machine, for any
    order of the items.

    Raises:
        InputError: k is below 1, or there is no embedding or one that is not finite.
    """
    check_whole(1, k=k)
    x = as_embeddings("embeddings", embeddings)
    if not len(x) or not bool(x.isfinite().all()):
        raise InputError("embeddings", "some are not finite" if len(x) else "none", "must be finite numbers")
    unique = distinct(x)
    if k >= len(unique.first_index):
        return unique.inverse
    points = x[unique.first_index]
    points = Frame(points, points).transform(points)
    centres = _first_centres(points, unique.counts, k, np.random.default_rng(seed))
    run = _kmeans_torch if points.is_cuda else _kmeans_faiss
    return run(points, unique.counts, centres)[unique.inverse]


def _first_centres(points: Tensor, weights: Tensor, k: int, random: np.random.Generator) -> Tensor:
    """Points `[k, d]`, drawn with probability proportional to the squared distance to the nearest centre so far."""
    chance = weights.double()
    nearest = torch.full((len(points),), torch.inf, device=points.device)
    centre_indices: list[int] = []
    per_round = max(1, k // _ROUNDS)
    while len(centre_indices) < k:
        p = (chance / chance.sum()).cpu().numpy()
        to_draw = min(per_round, k - len(centre_indices), int(np.count_nonzero(p)))
        drawn = random.choice(len(points), to_draw, replace=False, p=p)
        centre_indices += drawn.tolist()
        new_centres = points[torch.from_numpy(drawn).to(points.device)]
        nearest = torch.minimum(nearest, _assign(points, new_centres)[1])
        nearest[torch.tensor(centre_indices, device=points.device)] = 0
        chance = weights * nearest.double()
        if not bool(chance.sum() > 0):  # in float32 all other points are at distance 0
            chance = weights.double()
            chance[torch.tensor(centre_indices, device=points.device)] = 0
    return points[torch.tensor(centre_indices, device=points.device)]


def _assign(points: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the nearest centre of each point `[N]` and its squared distance, without an N x k matrix."""
    squared = centres.square().sum(1)
    nearest = torch.empty(len(points), dtype=torch.int64, device=points.device)
    distance = torch.empty(len(points), device=points.device)
    step = max(1, _ENTRIES // len(centres))
    for start in range(0, len(points), step):
        chunk = slice(start, start + step)
        score = torch.addmm(squared, points[chunk], centres.T, alpha=-2)
        distance[chunk], nearest[chunk] = score.min(1)
        distance[chunk] += points[chunk].square().sum(1)
    return nearest, distance.clamp_(min=0)


def _kmeans_faiss(points: Tensor, weights: Tensor, centres: Tensor) -> Tensor:
    import faiss

    x = points.numpy()
    kmeans = faiss.Kmeans(
        x.shape[1], len(centres), niter=ITERATIONS, seed=0, min_points_per_centroid=1, max_points_per_centroid=len(x)
    )
    kmeans.train(x, weights=weights.float().numpy(), init_centroids=centres.numpy())
    return torch.from_numpy(kmeans.index.search(x, 1)[1][:, 0])


def _kmeans_torch(points: Tensor, weights: Tensor, centres: Tensor) -> Tensor:
    weight = weights.double()
    for _ in range(ITERATIONS):
        assigned = _assign(points, centres)[0]
        # Sorted by cluster, sums are differences of running sums: deterministic, unlike atomic adds.
        order = assigned.argsort(stable=True)
        ends = torch.searchsorted(assigned[order], torch.arange(len(centres), device=points.device), right=True)
        running = torch.nn.functional.pad((points[order].double() * weight[order, None]).cumsum(0), (0, 0, 1, 0))
        mass = torch.nn.functional.pad(weight[order].cumsum(0), (1, 0))
        sums = running[ends].diff(dim=0, prepend=running[:1])
        size = mass[ends].diff(prepend=mass[:1])
        # An empty cluster keeps its centre.
        new_centres = (sums / size.clamp(min=1)[:, None]).float()
        centres = torch.where(size[:, None] > 0, new_centres, centres)
    return _assign(points, centres)[0]


def cluster_scores(embeddings: Tensor, classes: Tensor) -> dict[str, Score]:
    """NMI and pairwise F1 of k-means clusters, as many as there are classes: means over restarts with other seeds."""
    k = len(torch.unique(classes))
    restarts = min(_RESTARTS, max(1, _DISTANCES // (k * len(classes))))
    runs = [(classes.cpu(), cluster(embeddings, k, seed=seed).cpu()) for seed in range(restarts)]

    def mean(metric: Callable[[Tensor, Tensor], float]) -> float:
        return math.fsum(metric(*run) for run in runs) / restarts

    return {
        "nmi": score_of("nmi", mean(normalized_mutual_information), mean(nmi_by_chance)),
        "f1": score_of("f1", mean(pairwise_f1), mean(f1_by_chance)),
    }


def contingency(classes: Numbers, clusters: Numbers) -> tuple[Tensor, Tensor, Tensor]:
    """Sizes of the classes `[N]`, of the clusters `[N]`, and of the intersections that are not empty, in float64.

    Raises:
        InputError: they are not whole numbers, there are none, or not as many of one as of the other.
    """
    ids = as_class_ids("classes", classes), as_class_ids("clusters", clusters)
    if len(ids[0]) != len(ids[1]) or not len(ids[0]):
        got = f"{len(ids[1])} cluster ids, {len(ids[0])} class ids"
        raise InputError("clusters", got, hint="give one of each per item")
    x, y = (torch.unique(each, return_inverse=True)[1] for each in ids)
    intersections = torch.unique(x * (int(y.max()) + 1) + y, return_counts=True)[1]
    return x.bincount().double(), y.bincount().double(), intersections.double()


def normalized_mutual_information(classes: Numbers, clusters: Numbers) -> float:
    """NMI of two integer labellings `[N]`, normalized by the mean of the entropies; 1 if each has only one group.

    It is the arithmetic mean, as in scikit-learn's `normalized_mutual_info_score` and pytorch-metric-learning's "NMI".
    """
    a, b, intersections = contingency(classes, clusters)
    h = _entropy(a) + _entropy(b)
    return 2 * (h - _entropy(intersections)) / h if h > 0 else 1.0


def pairwise_f1(classes: Numbers, clusters: Numbers) -> float:
    """F1 of "in one cluster" as a prediction of "in one class", over all pairs of items; 1 if there is no such pair."""
    a, b, intersections = contingency(classes, clusters)
    total = _pairs(a) + _pairs(b)
    return 2 * _pairs(intersections) / total if total > 0 else 1.0


def nmi_by_chance(classes: Numbers, clusters: Numbers) -> float:
    """The expected NMI of random clusters of the same sizes.

    (NMI - this) / (1 - this) is the adjusted mutual information of Vinh, Epps, Bailey: "Information Theoretic Measures
    for Clusterings Comparison", JMLR 2010, whose equation 24a gives the sum.
    """
    a, b, _ = contingency(classes, clusters)
    h = _entropy(a) + _entropy(b)
    return 2 * _expected_information(a, b) / h if h > 0 else 1.0


def f1_by_chance(classes: Numbers, clusters: Numbers) -> float:
    """The expected pairwise F1 of random clusters of the same sizes."""
    a, b, _ = contingency(classes, clusters)
    n = float(a.sum())
    total = _pairs(a) + _pairs(b)
    return 2 * _pairs(a) * _pairs(b) / (n * (n - 1) / 2) / total if total > 0 else 1.0


def _entropy(sizes: Tensor) -> float:
    share = sizes / sizes.sum()
    return float(-(share * share.log()).sum())


def _pairs(sizes: Tensor) -> float:
    return float((sizes * (sizes - 1) / 2).sum())


def _expected_information(a: Tensor, b: Tensor) -> float:
    n = a.sum()
    log_factorial = torch.arange(int(n) + 1, dtype=torch.float64).add(1).lgamma()
    total = 0.0
    sizes_b, count_b = torch.unique(b, return_counts=True)
    for size, count in zip(*torch.unique(a, return_counts=True), strict=True):
        # The intersection of a group of `size` with groups of sizes_b is hypergeometric.
        m = torch.arange(1, int(torch.minimum(size, sizes_b.max())) + 1, dtype=torch.float64)  # [m]
        s, num_outside = sizes_b[:, None], n - size
        possible = (m <= s) & (s - m <= num_outside)
        i, j, rest = m.long(), (s - m).clamp(min=0).long(), (num_outside - (s - m)).clamp(min=0).long()
        log_chance = (
            _log_binomial(log_factorial, size.long(), i)
            + (log_factorial[num_outside.long()] - log_factorial[j] - log_factorial[rest])
            - _log_binomial(log_factorial, n.long(), s.long())
        )
        chance = torch.where(possible, log_chance, -torch.inf).exp()
        information = (chance * (m / n) * (n * m / (size * s)).log()).sum(1)
        total += float(count * (count_b * information).sum())
    return total


def _log_binomial(log_factorial: Tensor, n: Tensor, k: Tensor) -> Tensor:
    return log_factorial[n] - log_factorial[k] - log_factorial[(n - k).clamp(min=0)]
