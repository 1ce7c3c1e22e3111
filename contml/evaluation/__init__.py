"""Evaluation of embeddings: retrieval with class labels and with continuous labels, judgments, and clustering."""

from contml.evaluation.class_retrieval import mean_average_precision_at_r, r_precision, recall_at_k
from contml.evaluation.clustering import cluster, normalized_mutual_information, pairwise_f1
from contml.evaluation.evaluated import Evaluated, Selection
from contml.evaluation.graded import hierarchical_average_precision, kendall_tau, recall_within
from contml.evaluation.intervals import half_width, paired_interval, variance_of_mean
from contml.evaluation.judgments import Judged, JudgmentEvaluator, evaluate_judgments
from contml.evaluation.label_errors import LabelErrors, label_errors
from contml.evaluation.results import Curve, Evaluation, Ranking, Retrieval, Score
from contml.evaluation.retrieval import evaluate, mean_label_distance_at_k, ndcg_at_k

__all__ = [
    "Curve", "Evaluated", "Evaluation", "Judged", "JudgmentEvaluator", "LabelErrors", "Ranking", "Retrieval", "Score",
    "Selection", "cluster", "evaluate", "evaluate_judgments", "half_width", "hierarchical_average_precision",
    "kendall_tau", "label_errors", "mean_average_precision_at_r", "mean_label_distance_at_k", "ndcg_at_k",
    "normalized_mutual_information", "paired_interval", "pairwise_f1", "r_precision", "recall_at_k", "recall_within",
    "variance_of_mean",
]  # fmt: skip
