"""Training: the trainer, its steps, optimizers and schedules, checkpoints."""

from contml.training.checkpoint import load_weights as load_weights
from contml.training.hdml import HDML as HDML
from contml.training.judgments import RankingStep as RankingStep, TripletStep as TripletStep
from contml.training.optimizers import OPTIMIZERS as OPTIMIZERS, SCHEDULES as SCHEDULES
from contml.training.options import Training as Training
from contml.training.setup import stages_of as stages_of
from contml.training.step import EmbeddingStep as EmbeddingStep, TrainingStep as TrainingStep
from contml.training.trainer import Interrupted as Interrupted, Trainer as Trainer
