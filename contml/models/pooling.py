"""Global pooling of feature maps `[B, C, H, W]`: the mean over the image, the maximum, or their sum."""

from __future__ import annotations

from typing import Literal, TypeAlias

from torch import Tensor, nn

from contml._support.errors import InputError
from contml.models.backbones import dry_run, flat_features

Pooling: TypeAlias = Literal["average", "max", "average_max"]


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


def set_pooling(backbone: nn.Module, name: str, pooling: Pooling) -> None:
    """Replaces the global average pool at the end of a backbone.

    Raises:
        InputError: the features of this backbone are not the output of such a module.
    """
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
