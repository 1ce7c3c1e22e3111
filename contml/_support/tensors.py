"""Tensors and JSON values in a safetensors file with checksums. A damaged file is refused. Reading runs no code."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from contml._support.door import opened
from contml._support.errors import InputError, one_line
from contml._support.files import write

#: The key of the JSON in a file's metadata (safetensors orders several keys at random), and of the checksums in it.
_METADATA, _CHECKSUMS = "contml", "crc32"


def save_tensors(path: Path, tensors: Mapping[str, Tensor], **values: Any) -> None:
    """Write tensors and JSON values about them.

    Raises:
        InputError: the file cannot be written.
    """
    contents: dict[str, Tensor] = {}
    storages: set[int] = set()
    for name, tensor in tensors.items():
        content = tensor.detach().cpu().contiguous()
        if content.untyped_storage().data_ptr() in storages:
            content = content.clone()  # the format refuses weights that share memory (tied layers)
        storages.add(content.untyped_storage().data_ptr())
        contents[name] = content
    text = json.dumps({**values, _CHECKSUMS: {"values": _crc32_of_values(values), "tensors": _crc32(contents)}})

    def save(temporary: Path) -> None:
        try:
            save_file(contents, temporary, metadata={_METADATA: text})
        except SafetensorError as error:
            raise OSError(one_line(error)) from None

    write(path, save)


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read the tensors and the values that `save_tensors` wrote.

    Raises:
        FileNotFoundError: there is no such file.
        InputError: it is damaged, or was not written by `save_tensors`.
    """
    with _opened(path) as file:
        values, checksum = _checked_values(file.metadata() or {})
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if _crc32(tensors) != checksum:
            raise ValueError("the checksum of its tensors differs")
        return tensors, values


def check_weights(weights: Mapping[str, Tensor], expected: Mapping[str, Tensor], path: Path | str) -> None:
    """Check the weights in a file before PyTorch converts them: floats must stay floats, and all must be finite.

    Raises:
        InputError: a tensor is not of the kind of the one with its name in `expected`, or has a number that is not
            finite.
    """
    for name, tensor in weights.items():
        same_name = expected.get(name, tensor)
        if tensor.is_complex() or tensor.is_floating_point() != same_name.is_floating_point():
            kind = str(tensor.dtype).removeprefix("torch.")
            raise InputError(str(path), f"{name} is {kind}", f"must be {same_name.dtype}".replace("torch.", ""))
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise InputError(str(path), f"{name} has numbers that are not finite", hint="train the model again")


def load_values(path: Path) -> dict[str, Any]:
    """Read only the values. The errors are the same as in `load_tensors`."""
    with _opened(path) as file:
        return _checked_values(file.metadata() or {})[0]


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        opened(path).close()
        with safe_open(path, framework="pt") as file:
            yield file
    except (FileNotFoundError, InputError):
        raise
    except OSError as error:
        raise InputError(str(path), f"cannot be read ({error.strerror or one_line(error)})") from None
    except (SafetensorError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise InputError(str(path), f"damaged or cut short ({one_line(error)})") from None


def _checked_values(metadata: Mapping[str, str]) -> tuple[dict[str, Any], int]:
    """Return the values, and the checksum of the tensors."""
    values = json.loads(metadata.get(_METADATA, "{}"))
    checksums = values.pop(_CHECKSUMS, None) if isinstance(values, dict) else None
    if not isinstance(checksums, dict):
        raise ValueError("it has no checksum of contml")
    if _crc32_of_values(values) != checksums["values"]:
        raise ValueError("the checksum of its values differs")
    return values, checksums["tensors"]


def _crc32_of_values(values: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(values).encode())


def _crc32(tensors: Mapping[str, Tensor]) -> int:
    """Compute the checksum of names, types, shapes and contents."""
    checksum = 0
    for name in sorted(tensors):
        tensor = tensors[name]
        checksum = zlib.crc32(f"{name} {tensor.dtype} {list(tensor.shape)}".encode(), checksum)
        checksum = zlib.crc32(tensor.flatten().view(torch.uint8).numpy().data, checksum)
    return checksum
