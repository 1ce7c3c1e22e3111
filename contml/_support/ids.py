"""Ids of classes and groups: whole numbers, or names that are numbered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from contml._support.conversion import Numbers, as_numbers
from contml._support.errors import InputError


def as_class_ids(name: str, values: Numbers) -> Tensor:
    """Convert class ids `[N]` from whole numbers of any type to int64 on the CPU.

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


def as_group_ids(name: str, values: Numbers | Sequence[str]) -> Tensor:
    """Convert groups `[N]` as `as_class_ids` does. Names of groups are numbered.

    Raises:
        InputError: as in `as_class_ids`.
    """
    return as_ids_together({name: values})[0]


def as_ids_together(columns: Mapping[str, Numbers | Sequence[str]]) -> list[Tensor]:
    """Convert the ids `[N]` of each column as `as_class_ids` does.

    Names are numbered, equal names with the same number.

    Raises:
        InputError: as in `as_class_ids`.
    """
    arrays = [np.asarray(each) if isinstance(each, list | tuple | np.ndarray) else None for each in columns.values()]
    if not all(x is not None and x.dtype.kind in "UTO" and all(isinstance(each, str) for each in x) for x in arrays):
        return [as_class_ids(name, values) for name, values in columns.items()]
    names = [np.asarray(each, str).reshape(-1) for each in arrays]
    numbers = torch.from_numpy(np.unique(np.concatenate(names), return_inverse=True)[1].reshape(-1))
    return [*torch.split(numbers, [len(each) for each in names])]
