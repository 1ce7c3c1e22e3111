"""Global pooling of feature maps `[B, C, H, W]` and of the tokens `[B, T, C]` of a transformer.

average, max, average_max    of maps: the mean over the image, the maximum, or their sum
cls                          the class token
patches                      the mean of the tokens of patches, without class token and registers
cls_patches                  both, one after the other: features of twice the length
"""

from __future__ import annotations

from types import MethodType
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from contml._support.errors import InputError
from contml.models.backbones import dry_run, flat_features

Pooling: TypeAlias = Literal["average", "max", "average_max", "cls", "patches", "cls_patches"]
#: How the poolings of tokens are called in timm.
TOKENS = {"cls": ("token",), "patches": ("avg",), "cls_patches": ("token", "avg")}


def pool(maps: Tensor, pooling: Pooling) -> Tensor:
    """Returns features `[B, C]` of maps `[B, C, H, W]`."""
    if pooling == "average":
        return maps.mean((2, 3))
    return maps.amax((2, 3)) if pooling == "max" else maps.mean((2, 3)) + maps.amax((2, 3))


class GlobalPool(nn.Module):
    """Maps `[B, C, H, W]` to features `[B, C, 1, 1]`."""

    def __init__(self, pooling: Pooling) -> None:
        super().__init__()
        self.pooling = pooling

    def forward(self, maps: Tensor) -> Tensor:
        """Returns features `[B, C, 1, 1]` of maps `[B, C, H, W]`."""
        return pool(maps, self.pooling)[:, :, None, None]


def set_pooling(backbone: nn.Module, name: str, pooling: Pooling, width: int) -> int:
    """Replaces the pooling at the end of a backbone; returns the length of its features, which was `width`.

    Raises:
        InputError: the backbone has no such pooling.
    """
    if pooling in TOKENS:
        _pool_tokens(backbone, name, pooling)
        return width * len(TOKENS[pooling])
    outputs: dict[str, Tensor] = {}
    handles = [
        module.register_forward_hook(lambda _module, _given, output, key=key: outputs.update({key: output}))
        for key, module in backbone.named_modules()
        if isinstance(module, nn.AdaptiveAvgPool2d) and module.output_size in (1, (1, 1))
    ]
    features = dry_run(backbone, flat_features).data_ptr() if handles else 0
    for handle in handles:
        handle.remove()
    # The one whose output is the features, in the same memory: squeeze-and-excitation blocks have such pools too.
    last_pool = next((key for key, output in outputs.items() if output.data_ptr() == features), None)
    if last_pool is None:
        allowed = f"must be average, since {name} does not end in a module AdaptiveAvgPool2d(1)"
        hint = "or set model.levels to the module whose maps are pooled"
        raise InputError("pooling", pooling, allowed, hint)
    backbone.set_submodule(last_pool, GlobalPool(pooling))
    return width


def _pool_tokens(backbone: nn.Module, name: str, pooling: Pooling) -> None:
    network: Any = backbone
    if getattr(backbone, "num_prefix_tokens", None) is None or not hasattr(backbone, "fc_norm"):
        allowed = "must be average, max or average_max"
        raise InputError("pooling", pooling, f"{allowed}, since {name} is no vision transformer of timm")
    if "cls" in pooling and getattr(backbone, "cls_token", None) is None:
        raise InputError("pooling", pooling, f"must be patches or average, since {name} has no class token")
    network.reset_classifier(0, "avg")  # removes attention pooling, whose weights would not be trained
    parts = TOKENS[pooling]

    def forward(self: Any, images: Tensor) -> Tensor:
        from timm.layers.pool1d import global_pool_nlc

        tokens = self.forward_features(images)
        pooled = [self.fc_norm(global_pool_nlc(tokens, part, self.num_prefix_tokens)) for part in parts]
        return torch.cat(pooled, dim=1)

    network.forward = MethodType(forward, backbone)
