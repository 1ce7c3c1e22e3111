"""Tensors and JSON values in a safetensors file with checksums: a damaged file is refused. Reading runs no code."""

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

from contml._support.errors import InputError, one_line
from contml._support.files import write

#: The keys of a file's metadata: the values as JSON, their checksum, and the checksum of the tensors.
_VALUES, _CHECKSUM_OF_VALUES, _CHECKSUM = "contml", "crc32 of values", "crc32 of tensors"


def save_tensors(path: Path, tensors: Mapping[str, Tensor], **values: Any) -> None:
    """Writes tensors and JSON values about them.

    Raises:
        InputError: the file cannot be written.
    """
    # Copies, because the format refuses weights that share memory (tied layers).
    copies = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}
    text = json.dumps(values)
    checksums = {_CHECKSUM_OF_VALUES: _crc32_of_values(text), _CHECKSUM: _crc32(copies)}

    def save(temporary: Path) -> None:
        try:
            save_file(copies, temporary, metadata={_VALUES: text, **checksums})
        except SafetensorError as error:
            raise OSError(one_line(error)) from None

    write(path, save)


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Reads the tensors and the values that `save_tensors` wrote.

    Raises:
        FileNotFoundError: there is no such file.
        InputError: it is damaged, or was not written by `save_tensors`.
    """
    with _opened(path) as file:
        metadata = file.metadata() or {}
        values = _checked_values(metadata)
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if _crc32(tensors) != metadata.get(_CHECKSUM):
            raise ValueError("the checksum of its tensors differs")
        return tensors, values


def load_values(path: Path) -> dict[str, Any]:
    """Reads the values alone; raises the errors of `load_tensors`."""
    with _opened(path) as file:
        return _checked_values(file.metadata() or {})


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        if path.exists() and not path.is_file():
            raise OSError("not a regular file")
        with safe_open(path, framework="pt") as file:
            yield file
    except FileNotFoundError:
        raise
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise InputError(str(path), f"damaged or cut short ({one_line(error)})") from None


def _checked_values(metadata: Mapping[str, str]) -> dict[str, Any]:
    if _VALUES not in metadata:
        raise ValueError("not written by contml")
    text = metadata[_VALUES]
    if metadata.get(_CHECKSUM_OF_VALUES) != _crc32_of_values(text):
        raise ValueError("the checksum of its values differs")
    values = json.loads(text)
    if not isinstance(values, dict):
        raise ValueError("its values are not a mapping")
    return values


def _crc32_of_values(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"


def _crc32(tensors: Mapping[str, Tensor]) -> str:
    """The checksum of names, types, shapes and contents."""
    found = 0
    for name in sorted(tensors):
        tensor = tensors[name]
        found = zlib.crc32(f"{name} {tensor.dtype} {list(tensor.shape)}".encode(), found)
        found = zlib.crc32(tensor.flatten().view(torch.uint8).numpy().data, found)
    return f"{found:08x}"
