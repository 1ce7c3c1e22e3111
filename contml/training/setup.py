"""What a trainer is made of: the accelerator, what learns at which rate, whether loss and labels go together."""

from __future__ import annotations

from collections.abc import Callable

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch import nn

from contml.contracts import InputError, LabelKind, LearningStep, Loss
from contml.training.optimizers import ParameterGroups


def accelerator(precision: str) -> Accelerator:
    """The accelerator of a training in this precision.

    Raises:
        InputError: the device does not have it.
    """
    cuda = torch.cuda.is_available()
    if precision == "auto":
        precision = "bfloat16" if cuda and torch.cuda.is_bf16_supported() else "float32"
    mixed = {"float32": "no", "bfloat16": "bf16", "float16": "fp16"}[precision]
    # One process may train several times, each in its own precision; a user's own accelerator is left alone.
    if AcceleratorState._shared_state.get("_mixed_precision", mixed) != mixed:
        AcceleratorState._reset_state()
    try:
        # Label distances are computed in float64, which Apple's GPUs lack: CUDA or the CPU.
        return Accelerator(mixed_precision=mixed, cpu=not cuda, step_scheduler_with_optimizer=False)
    except ValueError as error:
        raise InputError(f"training.precision={precision} does not work here ({error}); take float32") from None


def parameter_groups(model: nn.Module, loss: Loss) -> ParameterGroups:
    """Parameters that learn, by group: "backbone", "head" (what the model calls so), "loss"."""
    head = [p for p in getattr(model, "head_parameters", list)() if p.requires_grad]
    of_head = {id(p) for p in head}
    backbone = [p for p in model.parameters() if p.requires_grad and id(p) not in of_head]
    of_loss = [p for p in loss.parameters() if p.requires_grad] if isinstance(loss, nn.Module) else []
    return {"backbone": backbone, "head": head, "loss": of_loss}


def check_labels(loss: Loss | LearningStep | Callable[..., Loss | LearningStep], kind: LabelKind) -> None:
    """Refuse a loss or step, or a class of them, that needs another kind of label, before the first step.

    Raises:
        InputError: the pairing is wrong.
    """
    name = loss.__name__ if isinstance(loss, type) else type(loss).__name__
    needs = getattr(loss, "labels", "distances")
    if needs == "classes" and kind != "classes":
        raise InputError(f"{name} needs class labels, but the labels of this data are not classes; choose another loss")
    if needs == "binary" and kind == "distances":
        raise InputError(
            f"{name} needs label distances of 0 and 1, but the labels of this data are a matter of degree; "
            "set a threshold with 'labels: {name: threshold, threshold: ...}' or 'labels: {name: nearest, k: ...}'"
        )
