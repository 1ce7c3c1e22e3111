"""The schema of a config."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from contml._support.validation import Range
from contml.app.experiment.names import task_table
from contml.captioning.captioner import Captioner
from contml.captioning.decoders import DECODERS, Decoder
from contml.captioning.step import CaptioningStep
from contml.config import Option, Section
from contml.contracts import Sampler
from contml.data import TRANSFORMS, Images, Task
from contml.data.batch import torchvision_transform
from contml.evaluation.metrics import Published
from contml.labels import BINARY_LABELS, LabelSpace
from contml.losses import LOSSES, REGULARIZERS
from contml.losses.memory import CrossBatchMemory
from contml.losses.pml import pml_loss
from contml.mining import MINERS, Miner
from contml.models import EmbeddingModel
from contml.sampling import SAMPLERS
from contml.training import (
    HDML,
    OPTIMIZERS,
    SCHEDULES,
    EmbeddingStep,
    RankingStep,
    Training,
    TrainingStep,
    TripletStep,
)

#: Every training step by its name in a config.
STEPS = {
    "embedding": EmbeddingStep,
    "hdml": HDML,
    "captioning": CaptioningStep,
    "triplets": TripletStep,
    "rankings": RankingStep,
}

#: A transform is anything that can be called with an image and a generator.
_CALLABLE: Any = Callable


def schema() -> dict[str, Section | Option]:
    """The sections and values of a config, in order."""
    return {
        "task": Section(task_table(), contract=Task),
        "binarize": Section(BINARY_LABELS, required=False, contract=LabelSpace),
        "model": Section(EmbeddingModel),
        "captioner": Section(Captioner, required=False),
        "decoder": Section(DECODERS, required=False, contract=Decoder),
        "images": Section(Images),
        "transform": Section(TRANSFORMS, default="crop", find_part=torchvision_transform, contract=_CALLABLE),
        "sampler": Section(SAMPLERS, contract=Sampler),
        "loss": Section(LOSSES, required=False, find_part=pml_loss, contract=nn.Module),
        "miner": Section(MINERS, required=False, contract=Miner),
        "memory": Section(CrossBatchMemory, required=False),
        "regularizer": Section(REGULARIZERS, required=False, contract=nn.Module),
        "step": Section(STEPS, default="embedding", contract=TrainingStep),
        "optimizer": Section(OPTIMIZERS, default="sgd", contract=Optimizer),
        "schedule": Section(SCHEDULES, default="inverse", contract=LRScheduler),
        "training": Section(Training),
        "seed": Option(
            "seed",
            Annotated[int, Range(0, most=4294967295, whole=True)],
            0,
            required=False,
            help="seed of the weights, the batches and the augmentation",
        ),
        "published": Section(Published, required=False),
    }
