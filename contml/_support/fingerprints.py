"""Hashes of contents, the same on every device and run. They are the keys of caches."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from contml._support.errors import InputError


def fingerprint(*parts: object) -> str:
    """Return a hash of numbers, strings, tensors, arrays, classes and containers of them.

    The hash is the same on every device and run.

    Raises:
        InputError: a part is something else.
    """
    content = hashlib.sha256()
    for part in parts:
        _update_hash(content, part)
    return content.hexdigest()[:32]


def _update_hash(content: hashlib._Hash, value: object) -> None:
    # Types and lengths are hashed too, so that different lists of parts have different content.
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        content.update(f"{value.dtype}{list(value.shape)}:".encode())
        content.update(value.contiguous().flatten().view(torch.uint8).numpy().data)
    elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
        content.update(f"{value.dtype.str}{list(value.shape)}:".encode())
        content.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
    elif value is None or isinstance(value, bool | int | float | complex | str | bytes | Path | np.generic):
        text = repr(value).encode()
        content.update(f"{type(value).__name__} {len(text)}:".encode() + text)
    elif isinstance(value, type):
        _update_hash(content, f"{value.__module__}.{value.__qualname__}")
    elif isinstance(value, list | tuple):
        content.update(f"list {len(value)}:".encode())
        for item in value:
            _update_hash(content, item)
    elif isinstance(value, Mapping):
        content.update(f"mapping {len(value)}:".encode())
        for key, item in value.items():
            _update_hash(content, key)
            _update_hash(content, item)
    elif isinstance(value, set | frozenset):
        _update_hash(content, sorted(fingerprint(item) for item in value))
    else:
        got = f"no key for labels or options with a {type(value).__name__}"
        raise InputError("cache", got, hint="omit cache, or give the label space its own fingerprint()")
