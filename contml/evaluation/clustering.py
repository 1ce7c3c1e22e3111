"""Clusters of embeddings compared with classes: k-means, normalized mutual information and pairwise F1.

    NMI = 2 I(clusters; classes) / (H(clusters) + H(classes))
    F1  = 2 P R / (P + R) over pairs of items: P = share of the pairs in one cluster that are of one class, R = share of
          the pairs of one class that are in one cluster

k is the number of classes. Song, Xiang, Jegelka, Savarese: "Deep Metric Learning via Lifted Structured Feature
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
#: Initial centres are drawn in this many rounds, or one by one if k is smaller.
_ROUNDS = 64
#: Entries of a `[points, centres]` block.
_ENTRIES = 1 << 24
#: The most restarts of k-means. There are fewer if they would compute more than _DISTANCES distances per iteration.
#: A tiny change of an embedding may change all clusters of one run. The mean over many runs changes little.
_RESTARTS, _DISTANCES = 100, 10**7


def cluster(embeddings: Numbers, k: int, *, seed: int = 0) -> Tensor:
    """Compute the clusters `[N]`, 0 ... k - 1, of embeddings `[N, d]` by k-means.

    There are fewer than k clusters if fewer than k embeddings are distinct. The initial centres are drawn as in
    k-means++ (Arthur, Vassilvitskii, SODA 2007), k/64 at a time if k is large. FAISS runs on the CPU. The same seed
    gives the same clusters on the same machine, for any order of the items.

    Raises:
        InputError: k is below 1, there is no embedding, or an embedding is not finite.
    """
    check_whole(1, k=k)
    x = as_embeddings("embeddings", embeddings).cpu()
    if not len(x) or not bool(x.isfinite().all()):
        raise InputError("embeddings", "some are not finite" if len(x) else "none", "must be finite numbers")
    unique = distinct(x)
    if k >= len(unique.first_index):
        return unique.inverse
    import faiss  # here: the import is slow

    points = x[unique.first_index]
    points = Frame(points, points).transform(points)
    centres = _first_centres(points, unique.counts, k, np.random.default_rng(seed))
    sizes = {"min_points_per_centroid": 1, "max_points_per_centroid": len(points)}
    kmeans = faiss.Kmeans(points.shape[1], len(centres), niter=ITERATIONS, seed=0, **sizes)
    kmeans.train(points.numpy(), weights=unique.counts.float().numpy(), init_centroids=centres.numpy())
    return torch.from_numpy(kmeans.index.search(points.numpy(), 1)[1][:, 0])[unique.inverse]


def _first_centres(points: Tensor, weights: Tensor, k: int, random: np.random.Generator) -> Tensor:
    """Draw points `[k, d]` with probability proportional to the squared distance to the nearest centre so far."""
    chance, nearest = weights.double(), torch.full((len(points),), torch.inf)
    centre_indices: list[int] = []
    while len(centre_indices) < k:
        p = (chance / chance.sum()).numpy()
        to_draw = min(max(1, k // _ROUNDS), k - len(centre_indices), int(np.count_nonzero(p)))
        drawn = random.choice(len(points), to_draw, replace=False, p=p)
        centre_indices += drawn.tolist()
        nearest = torch.minimum(nearest, _nearest(points, points[torch.from_numpy(drawn)]))
        nearest[centre_indices] = 0
        chance = weights * nearest.double()
        if not bool(chance.sum() > 0):  # in float32 all other points are at distance 0
            chance = weights.double()
            chance[centre_indices] = 0
    return points[centre_indices]


def _nearest(points: Tensor, centres: Tensor) -> Tensor:
    """Return the squared distance of each point to its nearest centre `[N]`, without an N x k matrix."""
    squared, distances = centres.square().sum(1), []
    for chunk in torch.split(points, max(1, _ENTRIES // len(centres))):
        score = torch.addmm(squared, chunk, centres.T, alpha=-2)
        distances.append(score.min(1).values + chunk.square().sum(1))
    return torch.cat(distances).clamp_(min=0)


def cluster_scores(embeddings: Tensor, classes: Tensor) -> dict[str, Score]:
    """Compute NMI and pairwise F1 of k-means clusters, where k is the number of classes.

    The results are means over restarts with different seeds.
    """
    k = len(torch.unique(classes))
    restarts = min(_RESTARTS, max(1, _DISTANCES // (k * len(classes))))
    runs = [(classes, cluster(embeddings, k, seed=seed)) for seed in range(restarts)]

    def mean(metric: Callable[[Tensor, Tensor], float]) -> float:
        return math.fsum(metric(*run) for run in runs) / restarts

    return {
        "nmi": score_of("nmi", mean(normalized_mutual_information), mean(nmi_by_chance)),
        "f1": score_of("f1", mean(pairwise_f1), mean(f1_by_chance)),
    }


def contingency(classes: Numbers, clusters: Numbers) -> tuple[Tensor, Tensor, Tensor]:
    """Return the sizes of the classes, of the clusters, and of their intersections that are not empty, in float64.

    Raises:
        InputError: the ids are not whole numbers, there are none, or the numbers of class ids and cluster ids differ.
    """
    ids = as_class_ids("classes", classes), as_class_ids("clusters", clusters)
    if len(ids[0]) != len(ids[1]) or not len(ids[0]):
        raise InputError("clusters", f"{len(ids[1])} cluster ids, {len(ids[0])} class ids", hint="give one per item")
    x, y = (torch.unique(each, return_inverse=True)[1] for each in ids)
    intersections = torch.unique(x * (int(y.max()) + 1) + y, return_counts=True)[1]
    return x.bincount().double(), y.bincount().double(), intersections.double()


def normalized_mutual_information(classes: Numbers, clusters: Numbers) -> float:
    """Compute the NMI of two integer labellings `[N]`, normalized by the mean of the entropies.

    It is 1 if each labelling has only one group. The mean is arithmetic, as in scikit-learn's
    `normalized_mutual_info_score` and pytorch-metric-learning's "NMI".
    """
    a, b, intersections = contingency(classes, clusters)
    h = _entropy(a) + _entropy(b)
    return 2 * (h - _entropy(intersections)) / h if h > 0 else 1.0


def pairwise_f1(classes: Numbers, clusters: Numbers) -> float:
    """Compute the F1 of "in one cluster" as a prediction of "in one class", over all pairs of items.

    It is 1 if no pair is in one cluster or in one class.
    """
    a, b, intersections = contingency(classes, clusters)
    total = _pairs(a) + _pairs(b)
    return 2 * _pairs(intersections) / total if total > 0 else 1.0


def nmi_by_chance(classes: Numbers, clusters: Numbers) -> float:
    """Compute the expected NMI of random clusters of the same sizes.

    (NMI - this) / (1 - this) is the adjusted mutual information of Vinh, Epps, Bailey: "Information Theoretic Measures
    for Clusterings Comparison", JMLR 2010, whose equation 24a gives the sum.
    """
    from sklearn.metrics.cluster import contingency_matrix, expected_mutual_information  # here: the import is slow

    a, b, _ = contingency(classes, clusters)
    h = _entropy(a) + _entropy(b)
    matrix = contingency_matrix(as_class_ids("classes", classes), as_class_ids("clusters", clusters), sparse=True)
    return 2 * float(expected_mutual_information(matrix, int(a.sum()))) / h if h > 0 else 1.0


def f1_by_chance(classes: Numbers, clusters: Numbers) -> float:
    """Compute the expected pairwise F1 of random clusters of the same sizes."""
    a, b, _ = contingency(classes, clusters)
    n = float(a.sum())
    total = _pairs(a) + _pairs(b)
    return 2 * _pairs(a) * _pairs(b) / (n * (n - 1) / 2) / total if total > 0 else 1.0


def _entropy(sizes: Tensor) -> float:
    share = sizes / sizes.sum()
    return float(-(share * share.log()).sum())


def _pairs(sizes: Tensor) -> float:
    return float((sizes * (sizes - 1) / 2).sum())
