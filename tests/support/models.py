"""Images and comparisons of models."""

from __future__ import annotations

import torch
from torch import nn


def images(count: int = 2, size: int = 64) -> torch.Tensor:
    return torch.randint(0, 256, (count, 3, size, size), generator=torch.Generator().manual_seed(0)).to(torch.uint8)


def four_corners() -> nn.Module:
    """A backbone without weights: the mean of each quarter of the image, `[B, 12]`."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten())


def same(a: nn.Module, b: nn.Module) -> bool:
    left, right = a.state_dict(), b.state_dict()
    return left.keys() == right.keys() and all(torch.equal(left[key], right[key]) for key in left)
