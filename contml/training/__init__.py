"""Training: the trainer, its steps, optimisers and schedules, checkpoints."""

from contml.training.checkpoint import load_weights
from contml.training.hdml import HDML
from contml.training.optimizers import OPTIMIZERS, SCHEDULES
from contml.training.options import Training
from contml.training.setup import check_labels
from contml.training.trainer import EmbeddingStep, Interrupted, Trainer

#: Every step other than the default by its name in a config.
STEPS = {"hdml": HDML}

__all__ = [
    "HDML",
    "OPTIMIZERS",
    "SCHEDULES",
    "STEPS",
    "EmbeddingStep",
    "Interrupted",
    "Trainer",
    "Training",
    "check_labels",
    "load_weights",
]
