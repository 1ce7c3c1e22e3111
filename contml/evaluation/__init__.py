"""Ranking a gallery, and how good the ranking is, by class and where labels are a matter of degree."""

from contml.evaluation.clustering import cluster, normalized_mutual_information, pairwise_f1
from contml.evaluation.functional import (
    label_distance_metrics,
    mean_average_precision_at_r,
    mean_label_distance_at_k,
    ndcg_at_k,
    r_precision,
    recall_at_k,
)
from contml.evaluation.protocol import evaluate
from contml.evaluation.result import Curve, Evaluation, Ranking, Score

__all__ = [
    "Curve",
    "Evaluation",
    "Ranking",
    "Score",
    "cluster",
    "evaluate",
    "label_distance_metrics",
    "mean_average_precision_at_r",
    "mean_label_distance_at_k",
    "ndcg_at_k",
    "normalized_mutual_information",
    "pairwise_f1",
    "r_precision",
    "recall_at_k",
]
