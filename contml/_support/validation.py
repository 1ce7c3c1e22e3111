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
            raise InputError(f"{name} is {value}; it must be above 0")


def check_at_least(least: float, **numbers: float) -> None:
    """Refuse a number that is below `least`, or not finite."""
    for name, value in numbers.items():
        if not least <= value < math.inf:
            raise InputError(f"{name} is {value}; it must be at least {least}")


def check_choice(choices: Collection[str], **words: str) -> None:
    """Refuse a word that is not one of `choices`."""
    for name, value in words.items():
        if value not in choices:
            *others, last = choices
            raise InputError(f"{name} is {value!r}; it must be {', '.join(others)} or {last}")


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
        raise InputError(f"rows are {index.dtype} of shape {list(index.shape)}; give a list of whole numbers")
    low, high = int(index.min()), int(index.max())
    if low < 0 or high >= length:
        raise InputError(f"row {low if low < 0 else high} does not exist; rows are 0 to {length - 1}")
    return index.long()
