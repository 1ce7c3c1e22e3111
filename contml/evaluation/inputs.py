"""Input of the evaluation functions: tensors, NumPy arrays or lists. Anything else raises an InputError."""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Integral

import torch
from torch import Tensor

from contml._support.conversion import Numbers, as_numbers
from contml._support.errors import InputError
from contml._support.validation import as_rows

#: Larger embeddings would have squared distances above the range of float64.
_LARGEST = 1e150


def as_embeddings(name: str, values: Numbers) -> Tensor:
    """Embeddings `[N, d]`, detached; whole numbers in float64.

    Raises:
        InputError: they have another shape, or are not real numbers.
    """
    x = as_numbers(name, values)
    if x.ndim != 2 or not x.shape[1]:
        raise InputError(name, f"shape {list(x.shape)}", "must be [items, dimensions]")
    return x if x.is_floating_point() else x.double()


def check_embeddings(name: str, x: Tensor) -> None:
    """Checks that embeddings `[N, d]` are finite, and that their squared distances are.

    Args:
        name: names one of them, with its number.
        x: the embeddings.

    Raises:
        InputError: one is not finite, or too large.
    """
    low, high = torch.aminmax(x, dim=1)
    largest = torch.maximum(-low, high).double()  # [N], NaN where a number is NaN
    invalid = (~(largest <= _LARGEST)).nonzero()[:, 0]
    if len(invalid):
        subject, value = f"{name} {int(invalid[0])}", float(largest[invalid[0]])
        if not math.isfinite(value):
            raise InputError(subject, "not finite", hint="check whether training diverged")
        raise InputError(subject, f"{value:g}", f"must be numbers up to {_LARGEST:g}", "scale the embeddings")


def as_class_ids(name: str, values: Numbers) -> Tensor:
    """Class ids `[N]` in int64 on the CPU, from whole numbers of any type.

    Raises:
        InputError: they have another shape, are not whole numbers, or one is below 0.
    """
    ids = as_numbers(name, values)
    if ids.ndim != 1 or (ids.is_floating_point() and ids.numel()):
        raise InputError(name, f"{ids.dtype} of shape {list(ids.shape)}", "must be one whole number per item")
    if ids.dtype.is_signed and bool((negative := ids < 0).any()):
        row = int(negative.nonzero()[0, 0])
        raise InputError(f"{name} of item {row}", str(int(ids[row])), "must be at least 0", "omit items that have none")
    return ids.cpu().long()  # torch cannot compare uint16, uint32 and uint64


def as_row_numbers(name: str, rows: Numbers, length: int) -> Tensor:
    """Row numbers `[R]` below `length`, in int64 on the CPU.

    Raises:
        InputError: a row does not exist, or they are not whole numbers.
    """
    try:
        return as_rows(as_numbers(name, rows), length)
    except InputError as error:
        raise InputError(name, error.got, error.allowed) from None


def as_ks(name: str, k: object, largest: int | None = None) -> list[int]:
    """The K of a metric: whole numbers from 1 on.

    Raises:
        InputError: there is none, or one is no whole number, below 1, or above `largest`.
    """
    ks = list(k) if isinstance(k, Iterable) else []
    if ks and all(isinstance(each, Integral) and 1 <= int(each) <= (largest or int(each)) for each in ks):
        return [int(each) for each in ks]
    allowed = "from 1 on" if largest is None else f"from 1 to {largest}, the number of items of a list"
    raise InputError(name, str(ks or k), f"must be a list of whole numbers {allowed}")
