"""What a trainer is made of: the accelerator, and what of the model learns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from contml._support.errors import InputError
from contml.training.optimizers import ParameterGroups

if TYPE_CHECKING:
    from accelerate import Accelerator


def accelerator(precision: str) -> Accelerator:
    """The accelerator of a training in this precision.

    Raises:
        InputError: the device does not have it.
    """
    from accelerate import Accelerator  # here: it takes a while to import
    from accelerate.state import AcceleratorState

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
        raise InputError(f"precision {precision} does not work here ({error}); take float32") from None


def model_groups(model: nn.Module) -> ParameterGroups:
    """The parameters of a model that learn: "backbone", and "head", which the model lists in `head_parameters()`."""
    list_head: Any = getattr(model, "head_parameters", list)
    head = [p for p in list_head() if p.requires_grad]
    of_head = {id(p) for p in head}
    backbone = [p for p in model.parameters() if p.requires_grad and id(p) not in of_head]
    return [{"name": "backbone", "params": backbone}, {"name": "head", "params": head}]
