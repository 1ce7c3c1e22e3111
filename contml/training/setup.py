"""The accelerator of a trainer, and the parameter groups of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from contml._support.errors import InputError
from contml.training.optimizers import ParameterGroups

if TYPE_CHECKING:
    from accelerate import Accelerator


def accelerator(precision: str) -> Accelerator:
    """The accelerator for a precision.

    Raises:
        InputError: the device does not support it.
    """
    from accelerate import Accelerator  # here: the import is slow
    from accelerate.state import AcceleratorState

    cuda = torch.cuda.is_available()
    if precision == "auto":
        precision = "bfloat16" if cuda and torch.cuda.is_bf16_supported() else "float32"
    mixed = {"float32": "no", "bfloat16": "bf16", "float16": "fp16"}[precision]
    # One process may train several times in different precisions. The user's own accelerator is not changed.
    if AcceleratorState._shared_state.get("_mixed_precision", mixed) != mixed:
        AcceleratorState._reset_state()
    try:
        # Label distances need float64, which Apple GPUs do not support: CUDA or CPU.
        return Accelerator(mixed_precision=mixed, cpu=not cuda, step_scheduler_with_optimizer=False)
    except ValueError as error:
        raise InputError("precision", f"{precision} is not supported here ({error})", hint="use float32") from None


def model_groups(model: nn.Module) -> ParameterGroups:
    """The trainable parameters of a model: "backbone", and "head", which the model lists in `head_parameters()`."""
    list_head: Any = getattr(model, "head_parameters", list)
    head = [p for p in list_head() if p.requires_grad]
    head_ids = {id(p) for p in head}
    backbone = [p for p in model.parameters() if p.requires_grad and id(p) not in head_ids]
    return [{"name": "backbone", "params": backbone}, {"name": "head", "params": head}]
