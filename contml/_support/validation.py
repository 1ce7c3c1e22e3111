"""Checks of numbers and row numbers: each raises an `InputError` that names the argument and the value."""

from __future__ import annotations

import math
from collections.abc import Collection
from numbers import Integral
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from contml._support.errors import InputError

if TYPE_CHECKING:
    from contml.contracts import Rows


def check_finite(**numbers: float) -> None:
    """Checks that no number is NaN or infinite."""
    for name, value in numbers.items():
        if not math.isfinite(value):
            raise InputError(name, str(value), "must be a finite number")


def check_positive(**numbers: float) -> None:
    """Checks that each number is above 0 and finite."""
    for name, value in numbers.items():
        if not 0 < value < math.inf:
            raise InputError(name, str(value), f"must be {_finite(value)}above 0")


def check_at_least(least: float, **numbers: float) -> None:
    """Checks that each number is at least `least` and finite."""
    for name, value in numbers.items():
        if not least <= value < math.inf:
            raise InputError(name, str(value), f"must be {_finite(value)}at least {least}")


def check_whole(least: int, **numbers: object) -> None:
    """Checks that each number is a whole number of at least `least`."""
    for name, value in numbers.items():
        if not isinstance(value, Integral) or value < least:
            raise InputError(name, str(value), f"must be a whole number of at least {least}")


def _finite(value: float) -> str:
    return "" if math.isfinite(value) else "finite and "


def check_choice(choices: Collection[str], **words: str) -> None:
    """Checks that each word is one of `choices`."""
    for name, value in words.items():
        if value not in choices:
            raise InputError(name, repr(value), f"must be one of {', '.join(choices)}")


def as_rows(rows: Rows, length: int, device: torch.device | str = "cpu") -> Tensor:
    """Returns row numbers `[R]` in int64 on `device`, checked against the length of the indexed data.

    Raises:
        InputError: a row is not an integer in [0, length).
    """
    if rows is None or isinstance(rows, slice):
        return torch.arange(length, device=device)[rows or slice(None)]
    index = torch.as_tensor(list(rows) if isinstance(rows, range) else rows, device=device)
    if index.numel() == 0:
        return index.reshape(0).long()
    if index.ndim != 1 or index.is_floating_point() or index.dtype == torch.bool:
        raise InputError("rows", f"{index.dtype} of shape {list(index.shape)}", "must be a list of integers")
    index = index.long()  # torch.min does not support uint16, uint32 and uint64
    low, high = int(index.min()), int(index.max())
    if low < 0 or high >= length:
        raise InputError("rows", f"row {low if low < 0 else high}", f"must be 0 to {length - 1}")
    return index
