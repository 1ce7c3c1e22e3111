"""Distances of embeddings, label distances of tensors, and exact nearest neighbours."""

from contml.distances.euclidean import cosine, dot, euclidean, normalize, squared_euclidean
from contml.distances.exact import ExactDistances, distinct, squared_distances_of
from contml.distances.labels import (
    class_distance,
    edit_distance,
    hamming_distance,
    haversine,
    jaccard_distance,
    pose_distance,
    tag_distance,
)
from contml.distances.nearest import Neighbours, nearest_vectors
from contml.distances.segmentation import segmentation_distance

__all__ = [
    "ExactDistances", "Neighbours", "class_distance", "cosine", "distinct", "dot", "edit_distance", "euclidean",
    "hamming_distance", "haversine", "jaccard_distance", "nearest_vectors", "normalize", "pose_distance",
    "segmentation_distance", "squared_distances_of", "squared_euclidean", "tag_distance",
]  # fmt: skip
