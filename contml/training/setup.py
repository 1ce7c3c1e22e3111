"""The accelerator of a trainer, synchronized batch norm, and the parameter groups of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from contml._support.errors import InputError, one_line
from contml._support.imports import import_by_name
from contml._support.validation import check_range
from contml.models import EmbeddingModel
from contml.models.stages import stage_of
from contml.processes import close_at_exit, restartable, world
from contml.training.optimizers import ParameterGroups
from contml.training.sharding import Sharding, hidden_from_accelerate, launched_sharding

if TYPE_CHECKING:
    from accelerate import Accelerator
    from accelerate.utils import KwargsHandler


def accelerator(
    precision: str, every_parameter: bool = True, device: str = "auto"
) -> tuple[Accelerator, Sharding | None]:
    """The accelerator for a precision, and how several processes shard the network.

    Args:
        precision: as in `Training`.
        every_parameter: each step trains all parameters.
        device: "cpu", "cuda", or "auto": CUDA if there is such a device.

    Raises:
        InputError: the device does not support it, or `accelerate launch` asks for more.
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
    # One process may train several times, in other precisions and on other devices. The user's own accelerator is not
    # changed.
    state = AcceleratorState._shared_state
    other_device = "device" in state and state["device"].type != ("cuda" if use_cuda else "cpu")
    if other_device or state.get("_mixed_precision", mixed_precision) != mixed_precision:
        AcceleratorState._reset_state(reset_partial_state=other_device)
    close_at_exit()
    handlers: list[KwargsHandler] = [DistributedDataParallelKwargs(find_unused_parameters=not every_parameter)]
    if dist.is_available() and dist.is_torchelastic_launched():
        handlers.append(InitProcessGroupKwargs(init_method=restartable()))
    sharding = launched_sharding(mixed_precision)
    try:
        with hidden_from_accelerate():
            # Label distances need float64, which Apple GPUs do not support: CUDA or CPU.
            made = Accelerator(
                mixed_precision=mixed_precision,
                cpu=not use_cuda,
                step_scheduler_with_optimizer=False,
                kwargs_handlers=handlers,
            )
    except ValueError as error:
        raise InputError("precision", f"{precision} is not supported here ({error})", hint="use float32") from None
    if (kind := made.distributed_type.value) not in ("NO", "MULTI_CPU", "MULTI_GPU"):
        hint = "make no Accelerator of your own before the trainer"
        raise InputError("accelerator", kind, "must be one process or DDP", hint)
    return made, sharding if world()[1] > 1 else None


def synchronize_batch_norm(model: nn.Module, device: torch.device, chunk_size: int | None = None) -> None:
    """Replace the batch norm of a model, in place, by one that normalizes by the images of all processes.

    Parameters, statistics and the keys of the state stay the same: one process reads the weights as they are.

    Args:
        model: its layers are replaced.
        device: where it is trained.
        chunk_size: that of the training step.

    Raises:
        InputError: the device has no synchronized batch norm, the model has no batch norm that is trained, a layer is
            of a kind that cannot be replaced, or each process normalizes chunks of its batch.
    """
    name = "sync_batch_norm"
    if device.type != "cuda":
        raise InputError(name, "true, on a CPU", "PyTorch's synchronized batch norm needs GPUs", "omit it")
    if chunk_size is not None:
        got = f"true, with chunk_size={chunk_size}"
        raise InputError(name, got, "processes may have different numbers of chunks", "omit one of them")
    was_training = model.training
    layers = [module for module in model.train().modules() if isinstance(module, _BatchNorm) and module.training]
    model.train(was_training)
    if not layers:
        raise InputError(name, "true, but the model has no batch norm that is trained", hint="omit it")
    kinds = {type(layer) for layer in layers} - {nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm}
    of_timm = {kind for kind in kinds if kind.__module__.startswith("timm.")}
    for kind in kinds - of_timm:  # PyTorch would replace it by a layer that does less
        raise InputError(name, f"true, but the model has {kind.__name__}", "must be PyTorch's batch norm", "omit it")
    if of_timm:
        import_by_name("timm.layers:convert_sync_batchnorm")(model)
    else:
        nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]


def model_groups(model: nn.Module) -> ParameterGroups:
    """The trainable parameters of a model: "backbone", and "head", which the model lists in `head_parameters()`."""
    list_head: Any = getattr(model, "head_parameters", list)
    head = [p for p in list_head() if p.requires_grad]
    head_ids = {id(p) for p in head}
    backbone = [p for p in model.parameters() if p.requires_grad and id(p) not in head_ids]
    return [{"name": "backbone", "params": backbone}, {"name": "head", "params": head}]


def why_not_compiled(model: nn.Module, device: torch.device) -> str:
    """Why `torch.compile` cannot compile the backbone of a model, in words; "" where it can."""
    if not isinstance(model, EmbeddingModel):
        return "the model is no EmbeddingModel"
    try:
        torch.compile(lambda x: x + 1)(torch.zeros(2, device=device))
    except Exception as error:  # of many types: no compiler, no Triton, a version of Python
        return one_line(error)
    return ""


def stages_of(model: nn.Module) -> dict[nn.Parameter, int]:
    """The stage of each parameter of the backbone of a model: 0 is the one next to the images.

    The backbone of a network of your own is all of it.
    """
    embedding = next((module for module in model.modules() if isinstance(module, EmbeddingModel)), None)
    backbone = model if embedding is None else embedding.backbone
    stages = stage_of(backbone)
    return {parameter: stages[name] for name, parameter in backbone.named_parameters()}
