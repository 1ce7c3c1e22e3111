"""Low-rank adapters of a backbone: its weights stay, and small matrices beside them are trained.

    y = W x + 2 B A x,   A [rank, in], B [out, rank],   B = 0 at the start

Hu et al.: "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022. The layers come from `peft`. Weights that
are saved or exported are merged, W + 2 B A: they need neither adapters nor `peft`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from importlib.util import find_spec
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from contml._support.errors import InputError, did_you_mean
from contml._support.imports import import_by_name

AdapterKind: TypeAlias = Literal["lora"]
#: In the names of the weights of adapters, and the module with the weights of the backbone, as peft names them.
_OWN, _BASE = ".lora_", ".base_layer."


def check_peft() -> None:
    """Raises `InputError` if `peft` is not installed."""
    if find_spec("peft") is None:
        raise InputError("adapter", "lora needs peft", hint='pip install "contml[finetune]"')


def add_lora(
    backbone: nn.Module,
    name: str,
    *,
    rank: int,
    targets: Collection[str] | None,
    frozen: Collection[str],
    seed: int,
) -> None:
    """Adds adapters to layers of a backbone.

    Args:
        backbone: changed in place.
        name: its name, for errors.
        rank: the rank of an adapter.
        targets: the last parts of the names of the layers; None: all that can have one.
        frozen: names of weights whose layers get no adapter.
        seed: of the matrices A.

    Raises:
        InputError: `peft` is not installed, or there is no such layer.
    """
    check_peft()
    layers = [key for key in _layers(backbone) if f"{key}.weight" not in frozen]
    chosen = [key for key in layers if targets is None or any(f".{key}".endswith(f".{target}") for target in targets)]
    for target in targets or ():
        if not any(f".{key}".endswith(f".{target}") for key in layers):
            last = [*dict.fromkeys(key.rpartition(".")[2] for key in layers)]
            allowed = "must be the end of the name of a linear layer, or of a convolution without groups"
            raise InputError("adapter_targets", f"{target} of {name}", allowed, did_you_mean(target, last))
    if not chosen:
        got = f"lora, but {name} has no linear layer and no convolution without groups that is trained"
        raise InputError("adapter", got, hint="omit it")
    config = import_by_name("peft:LoraConfig")(
        r=rank, lora_alpha=2 * rank, target_modules="|".join(map(re.escape, chosen))
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        import_by_name("peft:inject_adapter_in_model")(config, backbone)


def _layers(backbone: nn.Module) -> Iterator[str]:
    """The names of the linear layers, and of the convolutions without groups but not of pixels."""
    attention = tuple(
        f"{key}." for key, module in backbone.named_modules() if isinstance(module, nn.MultiheadAttention)
    )  # it reads the weights of its layers, and does not call them
    for key, module in backbone.named_modules():
        linear = isinstance(module, nn.Linear)
        convolution = isinstance(module, nn.Conv2d) and module.groups == 1 and module.in_channels != 3
        if (linear or convolution) and not key.startswith(attention or "\n"):
            yield key


def is_adapter(name: str) -> bool:
    """Whether a weight is one of an adapter, by its name."""
    return _OWN in name


def _adapted(model: nn.Module) -> dict[str, Any]:
    """The layers of a model that have an adapter, by name."""
    return {key: module for key, module in model.named_modules() if hasattr(module, "lora_A")}


@torch.no_grad()
def plain_weights(model: nn.Module) -> dict[str, Tensor]:
    """Returns the `state_dict` of a model as it is without adapters, which are merged into its weights."""
    layers, weights = _adapted(model), model.state_dict()
    if not layers:
        return weights
    merged: dict[str, Tensor] = {}
    for key, value in weights.items():
        if is_adapter(key):
            continue
        layer, _, leaf = key.rpartition(_BASE)
        if layer and leaf == "weight":
            merged[f"{layer}.weight"] = value + layers[layer].get_delta_weight("default")
        else:
            merged[f"{layer}.{leaf}" if layer else key] = value
    return merged


def merge(model: nn.Module) -> None:
    """Merges adapters into the weights of a model, in place: it has the layers that it had before them."""
    weights = plain_weights(model)
    for key, module in _adapted(model).items():
        model.set_submodule(key, module.base_layer)
    model.load_state_dict(weights)
