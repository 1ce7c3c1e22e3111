"""Checkpoints: the whole state of a training run in one safetensors file, written atomically. Loading runs no code.

Tensors are named `model.*`, `step.*`, `optimizer.<parameter>.*`; numbers are JSON in the file's metadata.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from contml._support.errors import InputError
from contml._support.files import write


def save_weights(path: Path, state: Mapping[str, Tensor]) -> None:
    """Write the weights of a model."""
    write(path, lambda temporary: save_file(_cpu_copies(state), temporary))


def load_weights(path: Path) -> dict[str, Tensor]:
    """Read the weights that `save_weights` wrote."""
    return _read(path)[0]


def save_state(
    path: Path, tensors: Mapping[str, Mapping[str, Tensor]], optimizer: Mapping[str, Any], numbers: Any
) -> None:
    """Write tensors by part ("model", "step"), the `state_dict()` of an optimizer, and JSON values."""
    flat = {f"{part}.{name}": tensor for part, state in tensors.items() for name, tensor in state.items()}
    rest: dict[str, dict[str, Any]] = {}
    for parameter, state in optimizer["state"].items():
        for name, value in state.items():
            if isinstance(value, Tensor):
                flat[f"optimizer.{parameter}.{name}"] = value
            else:
                rest.setdefault(str(parameter), {})[name] = value
    metadata = {"optimizer": {"state": rest, "param_groups": optimizer["param_groups"]}, "numbers": numbers}
    write(path, lambda temporary: save_file(_cpu_copies(flat), temporary, metadata={"contml": json.dumps(metadata)}))


def load_state(path: Path) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any], Any]:
    """Read what `save_state` wrote: tensors by part, the optimizer's `state_dict()`, the numbers.

    Raises:
        InputError: the file is incomplete or not a checkpoint.
    """
    flat, metadata = _read(path)
    if "contml" not in metadata:
        raise InputError(str(path), "holds weights", "must be the state of a training run")
    saved = json.loads(metadata["contml"])
    tensors: dict[str, dict[str, Tensor]] = {}
    state: dict[int, dict[str, Any]] = {int(p): dict(v) for p, v in saved["optimizer"]["state"].items()}
    for name, tensor in flat.items():
        part, rest = name.split(".", 1)
        if part == "optimizer":
            parameter, key = rest.split(".", 1)
            state.setdefault(int(parameter), {})[key] = tensor
        else:
            tensors.setdefault(part, {})[rest] = tensor
    return tensors, {"state": state, "param_groups": saved["optimizer"]["param_groups"]}, saved["numbers"]


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except FileNotFoundError:
        raise InputError(str(path), "no such checkpoint") from None
    except (SafetensorError, OSError) as error:
        raise InputError(str(path), f"not a readable checkpoint ({error})", hint="it may be incomplete") from None


def _cpu_copies(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    # Copies, because the format refuses weights that share memory (tied layers).
    return {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in state.items()}
