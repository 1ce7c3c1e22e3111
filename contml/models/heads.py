"""Heads: what turns features of a backbone into embeddings, and how it starts.

    linear   W x + b
    mlp      W x + b + V relu(U x + a),   V = 0 at the start

W starts at random, or where the features are: as a random orthonormal projection, as the first principal components of
the features of training images (Jolliffe, "Principal Component Analysis", 2002), or as these divided by their standard
deviations (whitening: Jegou and Chum, "Negative evidences and co-occurrences in image retrieval", ECCV 2012).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from copy import deepcopy
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from contml._support.errors import InputError

HeadKind: TypeAlias = Literal["linear", "mlp"]
HeadStart: TypeAlias = Literal["random", "orthogonal", "pca", "whitening"]

#: The starts that need features of training images.
FROM_FEATURES: tuple[HeadStart, ...] = ("pca", "whitening")
#: Units of the hidden layer of an MLP.
_HIDDEN = 512
#: Smallest standard deviation that whitening divides by, as a share of the largest: smaller ones are noise.
_LEAST_STD = 0.01


class MLP(nn.Module):
    """A linear layer, plus a hidden layer whose output is 0 at the start: features `[B, width]` to `[B, dim]`."""

    def __init__(self, width: int, dim: int) -> None:
        super().__init__()
        self.linear, self.hidden, self.output = (
            nn.Linear(width, dim),
            nn.Linear(width, _HIDDEN),
            nn.Linear(_HIDDEN, dim),
        )
        nn.init.zeros_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(self, features: Tensor) -> Tensor:
        """Returns embeddings `[B, dim]`."""
        embeddings: Tensor = self.linear(features) + self.output(self.hidden(features).relu())
        return embeddings


class LevelHeads(nn.ModuleDict):
    """A head on the features of each level, their outputs concatenated."""

    def __init__(self, heads: dict[str, nn.Module], widths: list[int]) -> None:
        super().__init__(heads)
        self.widths = widths

    def forward(self, features: Tensor) -> Tensor:
        """Returns embeddings `[B, dims]` of concatenated features `[B, widths]`."""
        parts = torch.split(features, self.widths, dim=1)
        return torch.cat([head(part) for head, part in zip(self.values(), parts, strict=True)], dim=1)


def build_head(kind: HeadKind, start: HeadStart, widths: list[int], dim: int, levels: list[str] | None) -> nn.Module:
    """Build the head of features, or of the features of each level.

    Args:
        kind: which one.
        start: how its linear layers start; "pca" and "whitening" only in `start_heads`.
        widths: length of the features of each level.
        dim: length of an embedding, or of the part of each level.
        levels: names of the levels; None: there is one, without a name.

    Raises:
        InputError: there are fewer principal components than `dim`.
    """
    if start in FROM_FEATURES and dim > min(widths):
        hint = f"set model.dim={min(widths)} or model.head_start=orthogonal"
        raise InputError("dim", str(dim), f"must be at most {min(widths)}, the length of the features", hint)
    heads = [MLP(width, dim) if kind == "mlp" else nn.Linear(width, dim) for width in widths]
    for head in heads:
        layer = _linear(head)
        if start == "orthogonal":
            nn.init.orthogonal_(layer.weight)
        else:
            nn.init.kaiming_normal_(layer.weight, mode="fan_out")
        nn.init.zeros_(layer.bias)
    if levels is None:
        return heads[0]
    names = [level.replace(".", "_") for level in levels]  # a module's name has no dot
    return LevelHeads(dict(zip(names, heads, strict=True)), widths)


def check_nested(nested_dims: Sequence[int], dim: int | None, levels: Sequence[str] | None) -> None:
    """Checks the lengths of nested embeddings.

    Raises:
        InputError: they do not rise up to `dim`, there is no head, or there are levels.
    """
    if dim is None or levels is not None:
        got = "without a head (dim: null)" if dim is None else "with levels, whose embeddings are concatenated"
        raise InputError("nested_dims", got, hint="set dim" if dim is None else "omit one of them")
    if not nested_dims or any(a >= b for a, b in itertools.pairwise([0, *nested_dims, dim])):
        allowed = f"must be one or more lengths below {dim}, which is dim, shortest first"
        raise InputError("nested_dims", str(list(nested_dims)), allowed)


def cut_head(head: nn.Module, dim: int) -> nn.Module:
    """Returns the head that gives the first `dim` numbers of this one's embeddings."""
    cut = deepcopy(head)
    for layer in [cut.linear, cut.output] if isinstance(cut, MLP) else [cut]:
        assert isinstance(layer, nn.Linear)
        layer.out_features = dim
        layer.weight = nn.Parameter(layer.weight.detach()[:dim].clone(), layer.weight.requires_grad)
        layer.bias = nn.Parameter(layer.bias.detach()[:dim].clone(), layer.bias.requires_grad)
    return cut


@torch.no_grad()
def start_heads(head: nn.Module, start: HeadStart, features: Sequence[Tensor]) -> None:
    """Starts the linear layers of a head from features of training images: `[N, width]` of each level."""
    heads = list(head.values()) if isinstance(head, LevelHeads) else [head]
    for level_head, level_features in zip(heads, features, strict=True):
        layer = _linear(level_head)
        weight, bias = principal_components(level_features, layer.out_features, whiten=start == "whitening")
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)


def principal_components(features: Tensor, dim: int, *, whiten: bool = False) -> tuple[Tensor, Tensor]:
    """Returns weight `[dim, width]` and bias `[dim]` of the projection of features `[N, width]` on their components.

    Args:
        features: of at least one image.
        dim: the number of components, at most `width`. Components beyond the rank of the features are orthonormal too.
        whiten: divide each component by its standard deviation.
    """
    x = features.double().cpu()
    mean = x.mean(0)
    variances, directions = torch.linalg.eigh((x - mean).T @ (x - mean) / len(x))
    order = torch.arange(len(variances) - 1, len(variances) - 1 - dim, -1)  # the largest first
    weight, std = directions.T[order], variances[order].clamp(min=0).sqrt()
    largest = weight.gather(1, weight.abs().argmax(1, keepdim=True))
    weight = weight * largest.sign()  # the sign of a direction is arbitrary
    if whiten and float(std[0]) > 0:
        weight = weight / std.clamp(min=_LEAST_STD * float(std[0]))[:, None]
    return weight.to(features.dtype), -(weight @ mean).to(features.dtype)


def _linear(head: nn.Module) -> nn.Linear:
    layer = head.linear if isinstance(head, MLP) else head
    assert isinstance(layer, nn.Linear)
    return layer
