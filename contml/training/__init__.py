"""Training: the trainer, its steps, optimizers and schedules, checkpoints."""

from contml.training.checkpoint import load_weights
from contml.training.hdml import HDML
from contml.training.optimizers import OPTIMIZERS, SCHEDULES
from contml.training.options import Training
from contml.training.step import EmbeddingStep, TrainingStep
from contml.training.trainer import Interrupted, Trainer

#: Every training step by its name in a config.
STEPS = {"embedding": EmbeddingStep, "hdml": HDML}

__all__ = [
    "HDML",
    "OPTIMIZERS",
    "SCHEDULES",
    "STEPS",
    "EmbeddingStep",
    "Interrupted",
    "Trainer",
    "Training",
    "TrainingStep",
    "load_weights",
]
