"""The start of a training: the accelerator, checks, and the parameter groups of the model."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from contml._support.errors import InputError, one_line
from contml._support.validation import check_range
from contml.contracts import Sampler
from contml.data.split import SPLIT_TITLES, Split, check_split
from contml.labels.base import LabelSpace
from contml.processes import CONNECTED_WITHIN, close_at_exit, wait_longer
from contml.training.optimizers import ParameterGroups
from contml.training.step import TrainingStep

if TYPE_CHECKING:
    from accelerate import Accelerator

#: The options of `accelerate launch` other than DDP, by environment variable.
_OTHERS = {
    "ACCELERATE_USE_FSDP": "FSDP",
    "ACCELERATE_USE_DEEPSPEED": "DeepSpeed",
    "ACCELERATE_USE_MEGATRON_LM": "Megatron-LM",
    "ACCELERATE_USE_PARALLELISM_CONFIG": "tensor or context parallelism",
}

#: The number of training images whose features give a head its start.
_MOST_IMAGES = 4096


def accelerator(precision: str, every_parameter: bool = True, device: str = "auto") -> Accelerator:
    """Return the accelerator for a precision.

    Args:
        precision: as in `Training`.
        every_parameter: True if each step trains all parameters.
        device: "cpu", "cuda", or "auto": CUDA if there is such a device.

    Raises:
        InputError: the device does not support the precision, or `accelerate launch` asks for more.
    """
    from accelerate import Accelerator, DistributedDataParallelKwargs, InitProcessGroupKwargs  # here: slow to import
    from accelerate.state import AcceleratorState

    check_range(Literal["auto", "cpu", "cuda"], "device", device)
    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("device", "cuda", "torch finds no CUDA device", 'use "auto" or "cpu"')
    use_cuda = device != "cpu" and torch.cuda.is_available()
    if precision == "auto":
        precision = "bfloat16" if use_cuda and torch.cuda.is_bf16_supported() else "float32"
    mixed_precision = {"float32": "no", "bfloat16": "bf16", "float16": "fp16"}[precision]
    # One process may train several times, in different precisions and on different devices. The user's accelerator is
    # not changed.
    state = AcceleratorState._shared_state
    other_device = "device" in state and state["device"].type != ("cuda" if use_cuda else "cpu")
    if other_device or state.get("_mixed_precision", mixed_precision) != mixed_precision:
        AcceleratorState._reset_state(reset_partial_state=other_device)
    close_at_exit()
    _check_launch(mixed_precision)
    ddp = DistributedDataParallelKwargs(find_unused_parameters=not every_parameter)
    parts = [ddp, InitProcessGroupKwargs(timeout=CONNECTED_WITHIN)]
    try:
        # Label distances need float64, which Apple GPUs do not support: CUDA or CPU.
        made = Accelerator(
            mixed_precision=mixed_precision,
            cpu=not use_cuda,
            step_scheduler_with_optimizer=False,
            kwargs_handlers=parts,
        )
        wait_longer()
    except ValueError as error:
        raise InputError("precision", f"{precision} is not supported here ({error})", hint="use float32") from None
    except RuntimeError as error:
        if int(os.environ.get("WORLD_SIZE", "1")) < 2:
            raise
        got = f"its processes are not connected after {CONNECTED_WITHIN} ({one_line(error):.120})"
        raise InputError("training", got, hint="did another one end? start all of them again") from None
    if (kind := made.distributed_type.value) not in ("NO", "MULTI_CPU", "MULTI_GPU"):
        hint = "make no Accelerator of your own before the trainer"
        raise InputError("accelerator", kind, "must be one process or DDP", hint)
    return made


def _check_launch(mixed_precision: str) -> None:
    """Check that `accelerate launch` asks for nothing that a training would not follow.

    Args:
        mixed_precision: "no", "bf16" or "fp16".

    Raises:
        InputError: `accelerate launch` asks for something else.
    """
    subject, asked = "accelerate launch", {key for key, value in os.environ.items() if value.lower() == "true"}
    for key, name in _OTHERS.items():
        if key in asked:
            raise InputError(subject, name, "must be DDP", "see docs/scale.md")
    steps = os.environ.get("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "1")
    if steps != "1":
        hint = "a batch that does not fit in memory is trained with step.chunk_size"
        raise InputError(subject, f"gradient_accumulation_steps {steps}", "must be 1", hint)
    if (backend := os.environ.get("ACCELERATE_DYNAMO_BACKEND", "no")).lower() not in ("", "no"):
        raise InputError(subject, f"dynamo_backend {backend}", "must be no", "omit it")
    if (precision := os.environ.get("ACCELERATE_MIXED_PRECISION", "no")) not in ("no", mixed_precision):
        got = f"mixed_precision {precision}, but the training has {mixed_precision}"
        raise InputError(subject, got, hint="omit it: training.precision is the precision of a training")


def check_items(split: Split, labels: LabelSpace | None, sampler: Sampler) -> None:
    """Check that labels and sampler have the items of a split. A sampler of your own may not know its number of items.

    Raises:
        InputError: their numbers of items differ.
    """
    check_split(split)
    counts = {"labels": len(split if labels is None else labels), "sampler": getattr(sampler, "items", len(split))}
    for name, items in counts.items():
        if items != len(split):
            raise InputError(name, f"{items} items", f"must be of the {len(split)} items of the split")


def check_flip(flip: str, labels: LabelSpace, step: nn.Module) -> None:
    """Refuse mirrored images if mirroring would change their label distances to other images of a comparison.

    Args:
        flip: `Images.flip`.
        labels: the labels of the images.
        step: the training step.

    Raises:
        InputError: images are mirrored one by one, or batches are compared with a memory.
    """
    has_memory = any(getattr(module, "compares_batches", False) for module in step.modules())
    if not labels.mirrored and (flip == "image" or (flip == "batch" and has_memory)):
        got = f"{flip}, with {type(labels.root).__name__}, whose distances change if one of two images is mirrored"
        allowed = "none where a memory compares batches" if has_memory else "batch or none"
        raise InputError("flip", got, f"must be {allowed}", "set images.flip=none" if has_memory else "")


def model_groups(model: nn.Module) -> ParameterGroups:
    """Return the trainable parameters of a model in two groups: "backbone" and "head".

    The method `head_parameters()` of the model lists the head.
    """
    list_head: Any = getattr(model, "head_parameters", list)
    head = [p for p in list_head() if p.requires_grad]
    head_ids = {id(p) for p in head}
    backbone = [p for p in model.parameters() if p.requires_grad and id(p) not in head_ids]
    return [{"name": "backbone", "params": backbone}, {"name": "head", "params": head}]


def parameter_groups(model: nn.Module, step: TrainingStep, *, head_alone: bool) -> ParameterGroups:
    """Return the parameter groups of the model and of the step.

    Raises:
        InputError: `head_alone` is True, and there is only a backbone.
    """
    groups = [*model_groups(model), *step.parameter_groups()]
    for group in groups:
        group["params"] = [p for p in group["params"] if p.requires_grad]
    if head_alone and not any(group["params"] for group in groups[1:]):
        got = "neither a head nor a loss has parameters to train"
        raise InputError("head_only_epochs", got, hint="set model.dim, or training.head_only_epochs=0")
    return groups


def what_is_trained(splits: Mapping[str, Split], model: nn.Module) -> Iterator[str]:
    """Yield sentences on the items that were left out, and on the share of the weights that is trained."""
    for name, split in splits.items():
        if split.excluded:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in split.excluded.items())
            yield f"{SPLIT_TITLES[name]} items excluded: {reasons}; {len(split):,} remain"
    sizes = {parameter: parameter.numel() for parameter in model.parameters()}
    trained = sum(size for parameter, size in sizes.items() if parameter.requires_grad)
    if trained < (total := sum(sizes.values())):
        yield f"trained weights: {trained:,} of {total:,} ({trained / total:.1%})"


def sample_rows(items: int) -> Tensor:
    """Return the rows of the training images that give a head its start: all rows, or a sample of them, in order."""
    return torch.randperm(items, generator=torch.Generator().manual_seed(0))[:_MOST_IMAGES].sort().values
