"""Heads: the layers from features of a backbone to embeddings, and their initial weights.

A head is a linear layer. Its initial weights are random, or the first principal components of the features of training
images (Jolliffe, "Principal Component Analysis", 2002).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from copy import deepcopy
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from contml._support.errors import InputError

HeadStart: TypeAlias = Literal["random", "pca"]


class LevelHeads(nn.ModuleDict):
    """A head on the features of each level, their outputs concatenated."""

    def __init__(self, heads: dict[str, nn.Module], widths: list[int]) -> None:
        super().__init__(heads)
        self.widths = widths

    def forward(self, features: Tensor) -> Tensor:
        """Return embeddings `[B, dims]` of concatenated features `[B, widths]`."""
        parts = torch.split(features, self.widths, dim=1)
        return torch.cat([head(part) for head, part in zip(self.values(), parts, strict=True)], dim=1)


def build_head(start: HeadStart, widths: list[int], dim: int, levels: list[str] | None) -> nn.Module:
    """Build the head of features, or of the features of each level.

    Args:
        start: the initial weights of its linear layers. `start_heads` sets them for "pca".
        widths: length of the features of each level.
        dim: length of an embedding, or of the part of each level.
        levels: names of the levels; None: there is one, without a name.

    Raises:
        InputError: there are fewer principal components than `dim`.
    """
    if start == "pca" and dim > min(widths):
        hint = f"set model.dim={min(widths)} or model.head_start=random"
        raise InputError("dim", str(dim), f"must be at most {min(widths)}, the length of the features", hint)
    heads = [nn.Linear(width, dim) for width in widths]
    for layer in heads:
        nn.init.kaiming_normal_(layer.weight, mode="fan_out")
        nn.init.zeros_(layer.bias)
    if levels is None:
        return heads[0]
    names = [level.replace(".", "_") for level in levels]  # a module's name has no dot
    return LevelHeads(dict(zip(names, heads, strict=True)), widths)


def check_nested(nested_dims: Sequence[int], dim: int | None, levels: Sequence[str] | None) -> None:
    """Check the lengths of nested embeddings.

    Raises:
        InputError: the lengths do not rise up to `dim`, there is no head, or there are levels.
    """
    if dim is None or levels is not None:
        got = "without a head (dim: null)" if dim is None else "with levels, whose embeddings are concatenated"
        raise InputError("nested_dims", got, hint="set dim" if dim is None else "omit one of them")
    if not nested_dims or any(a >= b for a, b in itertools.pairwise([0, *nested_dims, dim])):
        allowed = f"must be one or more lengths below {dim}, which is dim, shortest first"
        raise InputError("nested_dims", str(list(nested_dims)), allowed)


def cut_head(head: nn.Module, dim: int) -> nn.Module:
    """Return the head that gives the first `dim` numbers of the embeddings of `head`."""
    cut = deepcopy(head)
    assert isinstance(cut, nn.Linear)
    cut.out_features = dim
    cut.weight = nn.Parameter(cut.weight.detach()[:dim].clone(), cut.weight.requires_grad)
    cut.bias = nn.Parameter(cut.bias.detach()[:dim].clone(), cut.bias.requires_grad)
    return cut


@torch.no_grad()
def start_heads(head: nn.Module, features: Sequence[Tensor]) -> None:
    """Set the linear layers of a head from features of training images: `[N, width]` for each level."""
    layers = list(head.values()) if isinstance(head, LevelHeads) else [head]
    for layer, level_features in zip(layers, features, strict=True):
        assert isinstance(layer, nn.Linear)
        weight, bias = principal_components(level_features, layer.out_features)
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)


def principal_components(features: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Return weight `[dim, width]` and bias `[dim]` that project features `[N, width]` on their principal components.

    Args:
        features: features of at least one image.
        dim: the number of components, at most `width`. Components beyond the rank of the features are orthonormal too.
    """
    x = features.double().cpu()
    mean = x.mean(0)
    x = x - mean
    # If there are fewer images than numbers, the products of images are the smaller matrix, with the same components.
    by_images = dim <= len(x) < x.shape[1]
    _, vectors = torch.linalg.eigh(x @ x.T if by_images else x.T @ x)
    weight = vectors.T.flip(0)[:dim]  # the largest variance first
    weight = torch.linalg.qr((weight @ x).T).Q.T if by_images else weight
    # The sign of a direction is arbitrary: its largest number becomes positive.
    weight = weight * weight.gather(1, weight.abs().argmax(1, keepdim=True)).sign()
    return weight.to(features.dtype), -(weight @ mean).to(features.dtype)
