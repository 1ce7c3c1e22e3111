"""Losses of the table for a few classes, and their values and gradients to compare."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from contml.config import data_arguments
from contml.labels import NumberLabels
from contml.losses import LOSSES


def made(name: str, **given: Any) -> Any:
    """The loss of this name, with options; of the data it gets what it takes, for 4 classes and 6 dimensions."""
    data = {"num_classes": 4, "embedding_dim": 6, "class_ids": None, "train_labels": NumberLabels([0.0, 1.0])}
    of_data = {key: given.pop(key, value) for key, value in data.items()}
    torch.manual_seed(1)
    return LOSSES[name](**{key: of_data[key] for key in data_arguments(LOSSES[name]) if key in of_data}, **given)


def value_and_gradients(value: Tensor, *leaves: Tensor) -> list[Tensor]:
    """A loss and its gradients; zeros by what it does not depend on."""
    gradients = torch.autograd.grad(value, leaves, allow_unused=True)
    zeros = [torch.zeros_like(t) if g is None else g for t, g in zip(leaves, gradients, strict=True)]
    return [value.detach(), *zeros]


def assert_same(ours: Iterable[Tensor], theirs: Iterable[Tensor], gradients: bool = True) -> None:
    """A value and gradients are finite, and equal those of a loop to 1e-10; or the value alone."""
    for position, (a, b) in enumerate(zip(ours, (each.detach() for each in theirs), strict=True)):
        assert torch.isfinite(a).all()
        if position == 0 or gradients:
            torch.testing.assert_close(
                a, b.to(a.dtype), rtol=1e-10, atol=1e-10 * max(1.0, float(b.detach().abs().max()))
            )
