"""Training: the trainer, its optimisers and schedules, checkpoints."""

from contml.training.checkpoint import load_weights
from contml.training.optimizers import OPTIMIZERS, SCHEDULES
from contml.training.trainer import EmbeddingStep, Interrupted, Trainer, Training, check_labels

__all__ = [
    "OPTIMIZERS",
    "SCHEDULES",
    "EmbeddingStep",
    "Interrupted",
    "Trainer",
    "Training",
    "check_labels",
    "load_weights",
]
