"""Checks of numbers and row numbers: each raises an `InputError` that names the argument and the value."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from contml._support.errors import InputError

if TYPE_CHECKING:
    from contml.contracts import Rows


def check_positive(**numbers: float) -> None:
    """Refuse a number that is not above 0, or not finite."""
    for name, value in numbers.items():
        if not 0 < value < math.inf:
            raise InputError(name, str(value), "must be above 0")


def check_at_least(least: float, **numbers: float) -> None:
    """Refuse a number that is below `least`, or not finite."""
    for name, value in numbers.items():
        if not least <= value < math.inf:
            raise InputError(name, str(value), f"must be at least {least}")


def check_choice(choices: Collection[str], **words: str) -> None:
    """Refuse a word that is not one of `choices`."""
    for name, value in words.items():
        if value not in choices:
            raise InputError(name, str(value), f"must be one of {', '.join(choices)}")


def as_rows(rows: Rows, length: int, device: torch.device | str = "cpu") -> Tensor:
    """Row numbers `[R]` in int64 on `device`, checked against the length of what they index.

    Raises:
        InputError: a row is not a whole number in [0, length).
    """
    if rows is None:
        return torch.arange(length, device=device)
    if isinstance(rows, slice):
        return torch.arange(length, device=device)[rows]
    if isinstance(rows, range):
        rows = list(rows)
    index = torch.as_tensor(rows, device=device)
    if index.numel() == 0:
        return index.reshape(0).long()
    if index.ndim != 1 or index.is_floating_point() or index.dtype == torch.bool:
        raise InputError("rows", f"{index.dtype} {list(index.shape)}", "must be a list of whole numbers")
    low, high = int(index.min()), int(index.max())
    if low < 0 or high >= length:
        raise InputError("row", str(low if low < 0 else high), f"must be 0 to {length - 1}")
    return index.long()
