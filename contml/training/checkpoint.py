"""Checkpoints: the whole state of a training run in one safetensors file, written atomically. Loading runs no code.

In a state, tensors are named `model.*`, `step.*`, `optimizer.<parameter>.*`, and numbers are among the JSON values. A
file of weights holds only weights. Its JSON values hold the config that the weights were trained with.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from contml._support.errors import InputError, one_line
from contml._support.tensors import load_tensors, load_values, save_tensors


def load_weights(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read the tensors and the values of a checkpoint.

    Raises:
        InputError: there is no such file, or it is damaged.
    """
    try:
        return load_tensors(path)
    except FileNotFoundError:
        hint = f"'contml train --resume {path.parent.parent}' trains to the end"
        raise InputError(str(path), "no such checkpoint", hint=hint) from None


def load_numbers(path: Path) -> Any:
    """Read the numbers of a state, without its tensors.

    Raises:
        InputError: there is no such file, it is damaged, or it is not a state.
    """
    try:
        return load_values(path)["numbers"]
    except FileNotFoundError:
        raise InputError(str(path), "no such checkpoint") from None
    except KeyError:
        raise _not_a_state(path, "it holds weights") from None


def save_state(
    path: Path, tensors: Mapping[str, Mapping[str, Tensor]], optimizer: Mapping[str, Any], numbers: Any
) -> None:
    """Write tensors by part ("model", "step"), the `state_dict()` of an optimizer, and JSON values."""
    flat = {f"{part}.{name}": tensor for part, state in tensors.items() for name, tensor in state.items()}
    plain_values: dict[str, dict[str, Any]] = {}
    for parameter, state in optimizer["state"].items():
        for name, value in state.items():
            if isinstance(value, Tensor):
                flat[f"optimizer.{parameter}.{name}"] = value
            else:
                plain_values.setdefault(str(parameter), {})[name] = value
    values = {"optimizer": {"state": plain_values, "param_groups": optimizer["param_groups"]}, "numbers": numbers}
    save_tensors(path, flat, **values)


def load_state(path: Path) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any], Any]:
    """Read the parts that `save_state` wrote: tensors by part, the optimizer's `state_dict()`, the numbers.

    Raises:
        InputError: the file is damaged, or not the state of a training.
    """
    flat, values = load_weights(path)
    if "optimizer" not in values:
        raise _not_a_state(path, "it holds weights")
    tensors: dict[str, dict[str, Tensor]] = {}
    try:
        state: dict[int, dict[str, Any]] = {int(p): dict(v) for p, v in values["optimizer"]["state"].items()}
        for name, tensor in flat.items():
            part, tensor_name = name.split(".", 1)
            if part == "optimizer":
                parameter, key = tensor_name.split(".", 1)
                state.setdefault(int(parameter), {})[key] = tensor
            else:
                tensors.setdefault(part, {})[tensor_name] = tensor
        return tensors, {"state": state, "param_groups": values["optimizer"]["param_groups"]}, values["numbers"]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _not_a_state(path, one_line(error)) from None


def _not_a_state(path: Path, reason: str) -> InputError:
    return InputError(str(path), f"not the state of a training ({reason})", hint="restore it, or start a new run")
