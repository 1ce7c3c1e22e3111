"""Checkpoints: the whole state of a training run in one safetensors file, written atomically. Loading runs no code.

Tensors are named `model.*`, `step.*`, `optimizer.<parameter>.*`; numbers are JSON in the file's metadata. Weights alone
are a file of their own, whose metadata hold the config that they were trained with.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from contml._support.errors import InputError
from contml._support.files import write

#: The key of the JSON values in the metadata of a file.
_METADATA = "contml"


def save_weights(path: Path, state: Mapping[str, Tensor], **values: Any) -> None:
    """Write tensors, such as the weights of a model, and JSON values about them."""
    metadata = {_METADATA: json.dumps(values)}
    write(path, lambda temporary: save_file(_cpu_copies(state), temporary, metadata=metadata))


def load_weights(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read the tensors and the values that `save_weights` wrote."""
    tensors, metadata = _read(path)
    return tensors, _values(path, metadata)


def load_numbers(path: Path) -> Any:
    """Read the numbers of a state, without its tensors."""
    with _opened(path) as file:
        return _values(path, file.metadata() or {})["numbers"]


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
    values = {"optimizer": {"state": rest, "param_groups": optimizer["param_groups"]}, "numbers": numbers}
    save_weights(path, flat, **values)


def load_state(path: Path) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any], Any]:
    """Read what `save_state` wrote: tensors by part, the optimizer's `state_dict()`, the numbers.

    Raises:
        InputError: the file is incomplete or not a checkpoint.
    """
    flat, saved = load_weights(path)
    if "optimizer" not in saved:
        raise InputError(str(path), "holds weights", "must be the state of a training run")
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


def _values(path: Path, metadata: Mapping[str, str]) -> dict[str, Any]:
    if _METADATA not in metadata:
        raise InputError(str(path), "not written by contml", "must be a checkpoint of a run")
    values: dict[str, Any] = json.loads(metadata[_METADATA])
    return values


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    with _opened(path) as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except FileNotFoundError:
        raise InputError(str(path), "no such checkpoint") from None
    except (SafetensorError, OSError) as error:
        raise InputError(str(path), f"not a readable checkpoint ({error})", hint="it may be incomplete") from None


def _cpu_copies(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    # Copies, because the format refuses weights that share memory (tied layers).
    return {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in state.items()}
