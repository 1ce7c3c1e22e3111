"""The schema of a config, and the experiment that a config describes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from contml._support.errors import InputError
from contml._support.validation import Range
from contml.app.experiment.building import Experiment, Results
from contml.app.experiment.captioner_run import CaptionResults
from contml.app.experiment.names import task_table
from contml.app.experiment.run_results import JudgmentResults, RetrievalResults
from contml.captioning.captioner import Captioner
from contml.captioning.decoders import DECODERS, Decoder
from contml.captioning.step import CaptioningStep
from contml.config import Config, Document, Option, Section, data_arguments, validate
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
from contml.training import HDML, OPTIMIZERS, SCHEDULES, EmbeddingStep, RankingStep, Training, TrainingStep, TripletStep

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
    """Return the sections and values of a config, in order."""
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


#: The kinds of results, the first that a config belongs to.
RESULT_KINDS: Sequence[type[Results]] = (CaptionResults, JudgmentResults, RetrievalResults)


def experiment(document: Document, name: str) -> Experiment:
    """Return the experiment of a document.

    Raises:
        InputError: an error in the config, with file and line.
    """
    config = validate(document, schema())
    for kind in RESULT_KINDS:
        kind.check_config(config, document)
    _check_several_losses(config, document)
    if "loss" in config.parts:
        _check_loss(config, document)
    elif "regularizer" in config.parts:
        raise document.error(("regularizer",), "there is no loss", hint="remove it, or add the section 'loss'")
    _check_options(config)
    kind = next(kind for kind in RESULT_KINDS if kind.belongs_to(config))
    return Experiment(name, config, document, kind)


def _check_options(config: Config) -> None:
    """Build the parts that need no data, so that they check their options before data are read."""
    for section, part in config.parts.items():
        if section in ("task", "model") or ":" in part.name:  # these read data, or load weights; the user's own code
            continue
        data = config.parts["images"].options if section == "transform" else {}
        if all(name in data for name, required in data_arguments(part.constructor).items() if required):
            try:
                part.build(**data)
            except InputError as error:
                if section == "published" or error.subject.startswith(f"{section}."):  # not one of what the data add
                    raise


def _check_several_losses(config: Config, document: Document) -> None:
    """Refuse levels or nested lengths for another step than the default one.

    Only the default step computes several losses.
    """
    model, step = config.parts["model"].options, config.parts["step"].name
    for option, each in (("levels", "level"), ("nested_dims", "length")):
        # Without a loss, levels are trained as one embedding.
        if model[option] is not None and step != "embedding" and (option != "levels" or "loss" in config.parts):
            got = f"one loss per {each}, but step {step} takes one loss for the whole embedding"
            raise document.error(("model", option), got, hint="omit one of them")


def _check_loss(config: Config, document: Document) -> None:
    loss = config.parts["loss"]
    if "miner" in config.parts and "miner" not in data_arguments(loss.constructor):
        names = ", ".join(name for name, constructor in LOSSES.items() if "miner" in data_arguments(constructor))
        got, hint = f"loss {loss.name} takes no miner", f"omit miner, or choose one of the losses {names}"
        raise document.error(("miner",), got, hint=hint)
    if "regularizer" in config.parts and config.parts["step"].name == "hdml":
        got = "step hdml takes triplet_margin or n_pairs alone"
        raise document.error(("regularizer",), got, hint="omit one of them")
    sampler = config.parts["sampler"].name
    draws_triplets = sampler == "triplets" or ":" in sampler  # the user's own sampler may draw triplets too
    if loss.name == "triplet_margin" and loss.options["triplets"] == "batch" and not draws_triplets:
        got, hint = f"batch, but the sampler is {sampler}", "use 'sampler: {name: triplets}', or omit triplets"
        raise document.error(("loss", "triplets"), got, hint=hint)
