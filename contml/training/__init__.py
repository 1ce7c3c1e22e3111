"""Training: the trainer, its steps, optimizers and schedules, checkpoints."""

from contml.training.checkpoint import load_weights
from contml.training.hdml import HDML
from contml.training.judgments import RankingStep, TripletStep
from contml.training.optimizers import OPTIMIZERS, SCHEDULES
from contml.training.options import Training
from contml.training.step import EmbeddingStep, TrainingStep
from contml.training.trainer import Interrupted, Trainer

__all__ = ["HDML", "OPTIMIZERS", "SCHEDULES", "EmbeddingStep", "Interrupted", "RankingStep", "Trainer", "Training"]
__all__ += ["TrainingStep", "TripletStep", "load_weights"]
