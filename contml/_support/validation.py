"""Checks of numbers and row numbers: each raises an `InputError` that names the argument and the value."""

from __future__ import annotations

import math
from collections.abc import Collection
from numbers import Integral, Real
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from contml._support.conversion import as_numbers
from contml._support.errors import InputError

if TYPE_CHECKING:
    from contml.contracts import Rows


#: What row numbers must be.
_ROWS = "row numbers [R], or a mask with one boolean per item"


def check_finite(**numbers: float) -> None:
    """Checks that no number is NaN or infinite."""
    for name, value in numbers.items():
        if not is_finite(value):
            raise InputError(name, str(value), "must be a finite number")


def check_positive(**numbers: float) -> None:
    """Checks that each number is above 0 and finite."""
    for name, value in numbers.items():
        if not is_finite(value) or not value > 0:
            raise InputError(name, str(value), f"must be {_finite(value)}above 0")


def check_at_least(least: float, **numbers: float) -> None:
    """Checks that each number is at least `least` and finite."""
    for name, value in numbers.items():
        if not is_finite(value) or not least <= value:
            raise InputError(name, str(value), f"must be {_finite(value)}at least {least}")


def is_whole(value: object) -> bool:
    """Whether a value is a whole number of an integer type."""
    return isinstance(value, Integral)


def check_whole(least: int, **numbers: object) -> None:
    """Checks that each number is a whole number of at least `least`."""
    for name, value in numbers.items():
        if not isinstance(value, Integral) or value < least:
            raise InputError(name, str(value), f"must be a whole number of at least {least}")


def is_finite(value: object) -> bool:
    """Whether a value is a real number other than NaN and infinity."""
    return isinstance(value, Real) and math.isfinite(value)


def _finite(value: object) -> str:
    return "" if is_finite(value) else "finite and " if isinstance(value, Real) else "a number "


def check_choice(choices: Collection[str], **words: str) -> None:
    """Checks that each word is one of `choices`."""
    for name, value in words.items():
        if value not in choices:
            raise InputError(name, repr(value), f"must be one of {', '.join(choices)}")


def as_rows(rows: Rows, length: int, device: torch.device | str = "cpu") -> Tensor:
    """Returns row numbers `[R]` in int64 on `device`, checked against the length of the indexed data.

    A mask, bool `[length]`, stands for the rows where it is True. Rows below 0 are not counted from the end: -1 is what
    searches return for no row.

    Raises:
        InputError: a row is not an integer in [0, length), or a mask has another length.
    """
    if rows is None:
        return torch.arange(length, device=device)
    if isinstance(rows, slice):
        try:
            chosen = range(length)[rows]
        except (TypeError, ValueError):
            raise InputError("rows", str(rows), "must be a slice of integers, with a step other than 0") from None
        return torch.from_numpy(np.arange(chosen.start, chosen.stop, chosen.step)).to(device)
    index = as_numbers("rows", rows, _ROWS).to(device)
    if index.ndim == 0:
        raise InputError("rows", str(rows), f"must be {_ROWS}", "write [row] for one item")
    if index.dtype == torch.bool:
        if index.shape != (length,):
            raise InputError("rows", f"a mask of shape {list(index.shape)}", f"must be [{length}], one per item")
        return index.nonzero()[:, 0]
    if index.numel() == 0:
        return torch.empty(0, dtype=torch.int64, device=device)
    if index.ndim != 1 or index.is_floating_point():
        raise InputError("rows", f"{index.dtype} of shape {list(index.shape)}", f"must be {_ROWS}")
    index = index.long()  # torch.min does not support uint16, uint32 and uint64
    low, high = int(index.min()), int(index.max())
    if low < 0 or high >= length:
        raise InputError("rows", f"row {low if low < 0 else high}", f"must be 0 to {length - 1}")
    return index
