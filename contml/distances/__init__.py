"""The engine: distances of embeddings, label distances, and exact nearest neighbours of any label space."""

from contml.distances.captions import caption_distance, word_movers_distance, word_movers_plan
from contml.distances.euclidean import cosine, dot, euclidean, normalize, squared_euclidean
from contml.distances.labels import class_distance, pose_distance
from contml.distances.regions import region_distance
from contml.distances.search import Neighbours, nearest, pairwise, smallest

__all__ = [
    "Neighbours",
    "caption_distance",
    "class_distance",
    "cosine",
    "dot",
    "euclidean",
    "nearest",
    "normalize",
    "pairwise",
    "pose_distance",
    "region_distance",
    "smallest",
    "squared_euclidean",
    "word_movers_distance",
    "word_movers_plan",
]
