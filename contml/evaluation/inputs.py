"""Input of the evaluation functions: tensors, NumPy arrays or lists. Anything else raises an InputError."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from contml._support.errors import InputError
from contml._support.validation import as_rows
from contml.labels.base import LabelSpace

#: Numbers as a caller has them.
Numbers: TypeAlias = "Tensor | np.ndarray[Any, Any] | Sequence[Any]"


def as_embeddings(name: str, values: Numbers) -> Tensor:
    """Embeddings `[N, d]`, detached; whole numbers in float64.

    Raises:
        InputError: they have another shape, or are not real numbers.
    """
    x = as_numbers(name, values)
    if x.ndim != 2 or not x.shape[1]:
        raise InputError(name, f"shape {list(x.shape)}", "must be [items, dimensions]")
    return x if x.is_floating_point() else x.double()


def as_class_ids(name: str, values: Numbers) -> Tensor:
    """Class ids `[N]` in int64 on the CPU, from whole numbers of any type.

    Raises:
        InputError: they have another shape, or are not whole numbers.
    """
    ids = as_numbers(name, values)
    if ids.ndim != 1 or (ids.is_floating_point() and ids.numel()):
        raise InputError(name, f"{ids.dtype} of shape {list(ids.shape)}", "must be one whole number per item")
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


def as_numbers(name: str, values: Numbers) -> Tensor:
    """Real numbers as a tensor without gradient.

    Raises:
        InputError: they are not numbers in an array.
    """
    if not isinstance(values, Tensor):
        if isinstance(values, list | tuple) and any(isinstance(value, Tensor) for value in values):
            values = [value.tolist() if isinstance(value, Tensor) else value for value in values]
        try:
            array = np.asarray(values)
            native = array.astype(array.dtype.newbyteorder("="), copy=False)
            values = torch.from_numpy(np.require(native, requirements=["C", "W"]))
        except (RuntimeError, TypeError, ValueError):
            allowed = "must be a tensor, a NumPy array or lists of numbers"
            raise InputError(name, f"a {type(values).__name__}, not an array of numbers", allowed) from None
    if values.is_complex():
        raise InputError(name, str(values.dtype), "must be real numbers")
    return values.detach()


def check_label_space(labels: object) -> None:
    """Checks that labels are a label space: numbers alone could be classes or continuous labels."""
    if not isinstance(labels, LabelSpace):
        hint = "give ClassLabels(classes) or VectorLabels(numbers)"
        raise InputError("labels", f"a {type(labels).__name__}", "must be a label space", hint)
