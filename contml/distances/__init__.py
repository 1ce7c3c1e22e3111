"""The engine: distances of embeddings, label distances, and exact nearest neighbours of any label space."""

from contml.distances.euclidean import cosine, dot, euclidean, normalize, squared_euclidean
from contml.distances.labels import class_distance, pose_distance
from contml.distances.search import Neighbours, nearest, pairwise, smallest

__all__ = [
    "Neighbours",
    "class_distance",
    "cosine",
    "dot",
    "euclidean",
    "nearest",
    "normalize",
    "pairwise",
    "pose_distance",
    "smallest",
    "squared_euclidean",
]
