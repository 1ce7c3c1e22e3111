"""The schema of a config."""

from __future__ import annotations

from contml.config import Option, Section
from contml.data import TRANSFORMS, Images
from contml.data.transforms import torchvision_transform
from contml.evaluation.metrics import Published
from contml.experiment.names import task_table
from contml.labels import BINARY_LABELS
from contml.losses import LOSSES
from contml.losses.memory import CrossBatchMemory
from contml.losses.pml import pml_loss
from contml.mining import MINERS
from contml.models import EmbeddingModel
from contml.sampling import SAMPLERS
from contml.training import OPTIMIZERS, SCHEDULES, STEPS, Training


def schema() -> dict[str, Section | Option]:
    """The sections and values of a config, in order."""
    return {
        "task": Section(task_table()),
        "binarize": Section(BINARY_LABELS, required=False),
        "model": Section(EmbeddingModel),
        "images": Section(Images),
        "transform": Section(TRANSFORMS, default="crop", others=torchvision_transform),
        "sampler": Section(SAMPLERS),
        "loss": Section(LOSSES, others=pml_loss),
        "miner": Section(MINERS, required=False),
        "memory": Section(CrossBatchMemory, required=False),
        "step": Section(STEPS, default="embedding"),
        "optimizer": Section(OPTIMIZERS, default="sgd"),
        "schedule": Section(SCHEDULES, default="inverse"),
        "training": Section(Training),
        "seed": Option("seed", int, 0, required=False, help="seed of the weights, the batches and the augmentation"),
        "published": Section(Published, required=False),
    }
