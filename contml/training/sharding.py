"""FSDP2: each process keeps a part of each weight of the network, of its gradient and of its state in the optimizer.

`accelerate launch` says with environment variables how to shard; `fully_shard` of PyTorch does it. Parameters of the
loss and other networks of the training step stay whole: each process computes their whole gradient.

Zhao et al.: "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel", VLDB 2023.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn, optim
from torch.nn.utils import get_total_norm

from contml._support.errors import InputError
from contml.processes import share, world
from contml.training.optimizers import ParameterGroups

if TYPE_CHECKING:
    from accelerate import Accelerator

_USE_FSDP = "ACCELERATE_USE_FSDP"
#: What else `accelerate launch` can ask for, by its environment variable.
_OTHERS = {
    "ACCELERATE_USE_DEEPSPEED": "DeepSpeed",
    "ACCELERATE_USE_MEGATRON_LM": "Megatron-LM",
    "ACCELERATE_USE_PARALLELISM_CONFIG": "tensor or context parallelism",
}
#: Options of FSDP that are not followed, by their environment variable.
_FSDP_OTHERS = {
    "FSDP_OFFLOAD_PARAMS": "fsdp_offload_params",
    "FSDP_ACTIVATION_CHECKPOINTING": "fsdp_activation_checkpointing",
    "FSDP_IGNORED_MODULES": "fsdp_ignored_modules",
}


@dataclass(frozen=True)
class Sharding:
    """How a network is sharded.

    Attributes:
        least: modules with more parameters are units of their own; None: none by their size.
        classes: modules of these classes are units of their own.
        reshard: a unit frees its whole weights after the forward pass, and gathers them again in the backward pass.
    """

    least: int | None
    classes: tuple[str, ...]
    reshard: bool


def launched_sharding(mixed_precision: str) -> Sharding | None:
    """How `accelerate launch` asks to shard the network; None: not at all.

    Args:
        mixed_precision: "no", "bf16" or "fp16".

    Raises:
        InputError: it asks for something that a training would not follow.
    """
    subject, set_ = "accelerate launch", {key: value for key, value in os.environ.items() if value.lower() == "true"}
    for key, name in _OTHERS.items():
        if key in set_:
            raise InputError(subject, name, "must be DDP or FSDP2", "see docs/scale.md for config files")
    steps = os.environ.get("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "1")
    if steps != "1":
        hint = "a batch that does not fit in memory is trained with step.chunk_size"
        raise InputError(subject, f"gradient_accumulation_steps {steps}", "must be 1", hint)
    if (backend := os.environ.get("ACCELERATE_DYNAMO_BACKEND", "no")).lower() not in ("", "no"):
        raise InputError(subject, f"dynamo_backend {backend}", "must be no", "set training.compile=true")
    if (precision := os.environ.get("ACCELERATE_MIXED_PRECISION", "no")) not in ("no", mixed_precision):
        got = f"mixed_precision {precision}, but the training has {mixed_precision}"
        raise InputError(subject, got, hint="omit it: training.precision is the precision of a training")
    if _USE_FSDP not in set_:
        return None
    if (version := os.environ.get("FSDP_VERSION", "1")) != "2":
        raise InputError(subject, f"fsdp_version {version}", "must be 2", "set fsdp_version: 2 in the config file")
    for key, name in _FSDP_OTHERS.items():
        if (value := os.environ.get(key, "false")).lower() not in ("", "false", "none"):
            raise InputError(subject, f"{name} {value}", "must be false", "omit it")
    if mixed_precision == "fp16":
        raise InputError("precision", "float16, with FSDP2", "must be bfloat16 or float32")
    policy = os.environ.get("FSDP_AUTO_WRAP_POLICY", "NO_WRAP").upper()
    classes = os.environ.get("FSDP_TRANSFORMER_CLS_TO_WRAP", "") if policy == "TRANSFORMER_BASED_WRAP" else ""
    return Sharding(
        int(os.environ.get("FSDP_MIN_NUM_PARAMS", "0")) if policy == "SIZE_BASED_WRAP" else None,
        tuple(name.strip() for name in classes.split(",") if name.strip()),
        os.environ.get("FSDP_RESHARD_AFTER_FORWARD", "true").lower() != "false",
    )


@contextmanager
def hidden_from_accelerate() -> Iterator[None]:
    """Within this block, Accelerate does not shard: it would not on a CPU, nor with parameters of a loss."""
    value = os.environ.pop(_USE_FSDP, None)
    try:
        yield
    finally:
        if value is not None:
            os.environ[_USE_FSDP] = value


class ShardedModel:
    """A network that is sharded in place, and a copy on the CPU that has its layers.

    Args:
        model: the network, on its device.
        sharding: how.
        accelerator: prepares its precision.
        equal_calls: whether each process calls each layer equally often in a step.

    Raises:
        InputError: a class of the sharding is not in the model, or it has several units, but calls may differ.
    """

    def __init__(self, model: nn.Module, sharding: Sharding, accelerator: Accelerator, equal_calls: bool) -> None:
        try:
            from torch.distributed.fsdp import fully_shard
        except ImportError:
            raise InputError("FSDP2", f"PyTorch {torch.__version__}", "needs PyTorch 2.6 or newer") from None
        from torch.distributed.device_mesh import init_device_mesh

        self.device = accelerator.device
        self.model = accelerator.prepare_model(model, evaluation_mode=True)  # neither DDP nor Accelerate's FSDP
        share([*self.model.parameters(), *self.model.buffers()])  # as DDP does
        self._layers = copy.deepcopy(self.model).cpu()
        units = _units(self.model, sharding)
        if units and not equal_calls:
            got = f"{len(units) + 1} units, but processes may call a layer of one unequally often"
            raise InputError("FSDP2", got, hint="set fsdp_auto_wrap_policy: NO_WRAP in the config file of accelerate")
        mesh = init_device_mesh(self.device.type, (world()[1],))
        for unit in units:
            fully_shard(unit, mesh=mesh, reshard_after_forward=sharding.reshard)
        fully_shard(self.model, mesh=mesh)

    def parameters(self) -> dict[str, nn.Parameter]:
        """The parameters by name, each process with its part."""
        for module in self.model.modules():
            if hasattr(module, "reshard"):
                module.reshard()
        return dict(self.model.named_parameters())

    @torch.no_grad()
    def weights(self) -> Any:
        """The whole weights and the buffers of the first process, as `parameters()` and `buffers()`; on all processes.

        All processes call it.
        """
        share(self.model.buffers())
        whole = [_whole(parameter.detach()) for parameter in self.parameters().values()]
        return SimpleNamespace(parameters=lambda: whole, buffers=self.model.buffers)

    @torch.no_grad()
    def whole(self) -> nn.Module:
        """A copy of the network with its whole weights, on each process. All processes call it."""
        found = self.weights()
        layers: nn.Module = copy.deepcopy(self._layers).to(self.device)
        for own, other in ((layers.parameters(), found.parameters()), (layers.buffers(), found.buffers())):
            for copied, value in zip(own, other, strict=True):
                copied.copy_(value)
        return layers.train(self.model.training)

    @torch.no_grad()
    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take the weights of a `state_dict` of the network. All processes call it."""
        self._layers.load_state_dict(state)
        for (_, parameter), value in zip(self.parameters().items(), self._layers.parameters(), strict=True):
            parameter.copy_(_part_of(value.to(self.device), parameter))
        for buffer, value in zip(self.model.buffers(), self._layers.buffers(), strict=True):
            buffer.copy_(value)

    def move(self, optimizer: optim.Optimizer, groups: ParameterGroups, old: Mapping[str, nn.Parameter]) -> None:
        """Give an optimizer and the groups that it was made of the sharded parameters in place of the old ones."""
        new = self.parameters()
        sharded = {id(parameter): new[name] for name, parameter in old.items()}
        state = optimizer.state_dict()
        for group in [*optimizer.param_groups, *groups]:
            group["params"] = [sharded.get(id(parameter), parameter) for parameter in group["params"]]
        optimizer.state.clear()
        load_optimizer(optimizer, state)


def _units(model: nn.Module, sharding: Sharding) -> list[nn.Module]:
    """The modules below a network that are units of their own, inner ones first."""
    if sharding.least is None and not sharding.classes:
        return []
    inside = [f"{name}." for name, module in model.named_modules() if isinstance(module, nn.MultiheadAttention)]
    units, kinds = [], set()
    for name, module in reversed([*model.named_modules()][1:]):
        size, kind = sum(parameter.numel() for parameter in module.parameters()), type(module).__name__
        kinds.add(kind)
        is_unit = kind in sharding.classes if sharding.least is None else size > sharding.least
        # A list of layers has no forward pass, and attention reads the weights of its layers without calling them.
        is_called = not isinstance(module, nn.ModuleList | nn.ModuleDict) and not name.startswith(tuple(inside) or "\n")
        if is_unit and is_called:
            units.append(module)
    for name in sharding.classes:
        if name not in kinds:
            got, allowed = f"fsdp_transformer_layer_cls_to_wrap {name}", "must be the class of a layer of the network"
            raise InputError("accelerate launch", got, allowed, f"it has {', '.join(sorted(kinds))}")
    return units


def is_sharded(tensor: Tensor) -> bool:
    """Whether each process has a part of a tensor."""
    return hasattr(tensor, "full_tensor")


def local(tensors: Iterable[Tensor]) -> list[Tensor]:
    """The parts of this process, of tensors that may be sharded."""
    return [tensor.to_local() if is_sharded(tensor) else tensor for tensor in tensors]  # type: ignore[attr-defined]


def _whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]


def _part_of(value: Tensor, like: Any) -> Tensor:
    """A whole tensor, sharded as another one of its shape; as it is if that one is not sharded."""
    if not is_sharded(like) or value.shape != like.shape:
        return value
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(value.to(like.device), like.device_mesh, like.placements)


def optimizer_state(optimizer: optim.Optimizer) -> dict[str, Any]:
    """The `state_dict` of an optimizer with whole tensors. All processes call it."""
    state: dict[str, Any] = optimizer.state_dict()
    whole = {
        key: {name: _whole(value) if isinstance(value, Tensor) else value for name, value in values.items()}
        for key, values in state["state"].items()
    }
    return {**state, "state": whole}


def load_optimizer(optimizer: optim.Optimizer, state: Mapping[str, Any]) -> None:
    """Load what `optimizer_state` returned. All processes call it."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    parts = {
        key: {
            name: _part_of(value, parameters[key]) if isinstance(value, Tensor) and key < len(parameters) else value
            for name, value in values.items()
        }
        for key, values in state["state"].items()
    }
    optimizer.load_state_dict({**state, "state": parts})


def clip_norm(parameters: Iterable[nn.Parameter], maximum: float) -> None:
    """Scale gradients, some of them sharded, so that the norm of all together is at most `maximum`."""
    parameters = [parameter for parameter in parameters if parameter.grad is not None]
    kinds = [[p for p in parameters if is_sharded(p) == sharded] for sharded in (True, False)]
    sharded, whole = (get_total_norm(local(p.grad for p in kind if p.grad is not None)) for kind in kinds)
    square = sharded.square()
    dist.all_reduce(square)
    total = (square + whole.to(square).square()).sqrt()
    scale = (maximum / (total + 1e-6)).clamp(max=1.0)  # as in `torch.nn.utils.clip_grads_with_norm_`
    for parameter in parameters:
        local([parameter.grad])[0].mul_(scale.to(parameter.device))  # type: ignore[list-item]
