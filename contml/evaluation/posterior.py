"""The label of an embedding, as weights over training items; and distances between such labels.

    w_j = softmax over the k nearest training embeddings x_j of -|x - x_j| / s      the posterior of the label of x
    u_j                     coordinates of the label of training item j: |u_i - u_j| follows the label distance
    m = sum_j w_j u_j       v = sum_j w_j |u_j - m|^2
    |m - m'|^2 + v + v'     the mean squared distance of two labels, each drawn from its posterior

Classical scaling gives the coordinates: eigenvectors of the doubly centred squared label distances between landmarks,
which are drawn training items (Torgerson 1952). Any other label gets its coordinates from its label distances to the
landmarks (Gower 1968). De Silva and Tenenbaum, "Sparse multidimensional scaling using landmark points", 2004.

`k` and `s` have the least energy score, the mean over validation items of

    sum_j w_j |u - u_j| - 1/2 sum_ij w_i w_j |u_i - u_j|

The score is least if the posterior is the distribution of the labels (Gneiting and Raftery, "Strictly proper scoring
rules, prediction, and estimation", JASA 2007). For classes, |u_i - u_j| is 0 or 1, and the score is Brier's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Self

import torch
from torch import Tensor

from contml._support.conversion import Numbers
from contml.distances import nearest_vectors
from contml.distances.exact import squared_distances_to
from contml.evaluation.query_gallery import as_embeddings
from contml.labels.base import LabelSpace

#: Values to choose from: numbers of neighbours, and s as shares of the spread of the training embeddings.
KS, SCALES = (5, 10, 20, 50, 100, 200), (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
#: Landmarks and coordinates, at most.
LANDMARKS, COORDINATES = 500, 64
#: An eigenvalue that is a smaller share of the largest one is rounding of label distances in float32.
_LEAST = 1e-5
#: The most items that choose k and s: validation items, or training items that are left out in turn.
CHOOSING = 300
#: Numbers of a block, at most.
_ENTRIES = 1 << 23


class Weights(NamedTuple):
    """Weights over training items, for each of N items.

    Attributes:
        rows: the nearest training items `[N, k]`, nearest first.
        weights: `[N, k]` in float64, with sum 1 in each row.
        distances: `[N, k]` in float64, Euclidean distances of the embeddings.
    """

    rows: Tensor
    weights: Tensor
    distances: Tensor


class Coordinates(NamedTuple):
    """Coordinates of labels by their label distances to landmarks.

    Attributes:
        landmarks: rows of the training items that are landmarks `[L]`.
        offsets: the mean squared label distance of each landmark to all landmarks `[L]`, in float64.
        projection: `[L, r]`, in float64.
    """

    landmarks: Tensor
    offsets: Tensor
    projection: Tensor

    @classmethod
    def fit(cls, labels: LabelSpace) -> Self:
        """Fit coordinates to training labels."""
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
        landmarks = order[:LANDMARKS].sort().values
        squared = labels.filled(landmarks, landmarks).cpu().double().square()
        offsets = squared.mean(0)
        centred = -(squared - offsets - squared.mean(1, keepdim=True) + squared.mean()) / 2
        values, vectors = torch.linalg.eigh((centred + centred.T) / 2)
        kept = values[-COORDINATES:] > _LEAST * values.abs().max().clamp(min=1e-300)
        return cls(landmarks, offsets, vectors[:, -COORDINATES:][:, kept] / values[-COORDINATES:][kept].sqrt())

    def of(self, distances: Tensor) -> Tensor:
        """Compute the coordinates `[N, r]` of labels from their label distances to the landmarks `[N, L]`."""
        return -(distances.double().square() - self.offsets) @ self.projection / 2


class Posterior:
    """The posterior of labels: weights over training items for any embedding, and label vectors.

    Args:
        embeddings: of the training items `[T, d]`.
        labels: labels of the training items, as coordinates `[T, r]`, or as class ids `[T]`.
        k: number of neighbours, less than T.
        scale: s, in the unit of the embedding distance.

    Attributes:
        embeddings: `[T, d]` in float64.
        labels: the labels.
        k: number of neighbours.
        scale: s.
    """

    def __init__(self, embeddings: Numbers, labels: Tensor, k: int, scale: float) -> None:
        self.embeddings = as_embeddings("embeddings", embeddings).cpu().double()
        self.labels, self.k, self.scale = labels, k, scale

    @classmethod
    def fit(
        cls, embeddings: Numbers, labels: Tensor, val: tuple[Tensor, Tensor] | None, groups: Tensor | None = None
    ) -> Self:
        """Choose k and s by the energy score of validation items.

        Without validation items, each training item of a sample is left out in turn and scored.

        Args:
            embeddings: of the training items `[T, d]`, at least three.
            labels: of the training items, as in the class.
            val: embeddings `[V, d]` and labels of validation items.
            groups: of the training items `[T]`. An item is left out with its group.
        """
        made = cls(embeddings, labels, 1, 1.0)
        x, count = made.embeddings, len(made.embeddings)
        spread = float((x - x.mean(0)).square().sum(1).mean().sqrt()) or 1.0
        if val is None:
            rows = torch.randperm(count, generator=torch.Generator().manual_seed(0))[:CHOOSING]
            group = torch.arange(count) if groups is None else groups
            asked, truth, excluded = x[rows], labels[rows], group[rows][:, None] == group
            most = max(1, int((~excluded).sum(1).min()))
        else:
            rows = torch.randperm(len(val[0]), generator=torch.Generator().manual_seed(0))[:CHOOSING]
            asked, truth, excluded, most = val[0][rows].double(), val[1][rows], None, count
        ks = [k for k in KS if k <= most] or [most]
        made.k = ks[-1]
        found = made.weights(asked, excluded)
        options = [(k, share * spread) for k in ks for share in SCALES]
        totals = torch.zeros(len(options), dtype=torch.float64)
        for part in _blocks(len(asked), made.k**2):
            near = found.rows[part]
            own = _gaps(labels[near], truth[part, None])[:, :, 0]
            between = _gaps(labels[near], labels[near])
            for n, (k, scale) in enumerate(options):
                w = softmax_of(found.distances[part, :k], scale)
                inside = ((w[:, None] @ between[:, :k, :k])[:, 0] * w).sum()
                totals[n] += (w * own[:, :k]).sum() - inside / 2
        made.k, made.scale = options[int(totals.argmin())]
        return made

    def weights(self, queries: Tensor, excluded: Tensor | None = None) -> Weights:
        """Compute the weights of Q embeddings `[Q, d]`. Of equal distances, the lower row comes first.

        Args:
            queries: the embeddings.
            excluded: training items that do not count, bool `[Q, T]`.
        """
        k, count, queries = min(self.k, len(self.embeddings)), len(self.embeddings), queries.cpu().double()
        if excluded is None:
            squared, rows = nearest_vectors(queries, self.embeddings, k)
        else:
            every_row = torch.arange(count).expand(len(queries), -1)
            distances = squared_distances_to(queries, self.embeddings, every_row).masked_fill(excluded, torch.inf)
            squared, rows = (each[:, :k] for each in distances.sort(dim=1, stable=True))
        return Weights(rows, softmax_of(squared.sqrt(), self.scale), squared.sqrt())

    def label_vectors(self, queries: Tensor) -> Tensor:
        """Compute the label vectors of embeddings `[Q, d]`: m and the square root of v, `[Q, r + 1]` in float32.

        m and v are the mean and the variance of the posterior of the label, as at the top of this file. Compare a label
        vector with the `as_query` form of another label vector, the query. Their squared Euclidean distance, plus v of
        the query, is the mean squared distance of the two labels. Labels must be coordinates.
        """
        vectors = torch.empty(len(queries), self.labels.shape[1] + 1)
        for part in _blocks(len(queries), self.k * self.labels.shape[1]):
            found = self.weights(queries[part])
            near = self.labels[found.rows]  # [Q,k,r]
            mean = (near * found.weights[:, :, None]).sum(1)
            variance = ((near - mean[:, None]).square().sum(2) * found.weights).sum(1)
            vectors[part] = torch.cat((mean, variance.sqrt()[:, None]), 1).float()
        return vectors


def as_query(label_vectors: Tensor) -> Tensor:
    """Turn label vectors `[N, r + 1]` into queries, by setting the root of v to 0.

    The v of a query adds the same number to its distance to every item, so it does not change a ranking.
    """
    return torch.cat((label_vectors[:, :-1], torch.zeros_like(label_vectors[:, -1:])), 1)


def softmax_of(distances: Tensor, scale: float) -> Tensor:
    """Compute the weights `[Q, k]` of neighbours at these distances, nearest first.

    The weight at an infinite distance is 0.
    """
    return torch.softmax(-(distances - distances[:, :1].nan_to_num(posinf=0.0)) / scale, 1).nan_to_num(0.0)


def _gaps(first: Tensor, second: Tensor) -> Tensor:
    """Compute distances `[B, n, m]` of coordinates `[B, n, r]` and `[B, m, r]`.

    For class ids `[B, n]` and `[B, m]`, distances are 0 or 1.
    """
    if first.ndim == 2:
        return (first[:, :, None] != second[:, None]).double()
    return torch.cdist(first, second)


def _blocks(count: int, numbers: int) -> Iterator[slice]:
    """Yield slices of items, such that a block with `numbers` numbers per item fits the memory budget."""
    step = max(1, _ENTRIES // max(1, numbers))
    return (slice(start, start + step) for start in range(0, count, step))
