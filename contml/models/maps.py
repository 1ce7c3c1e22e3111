"""The last feature maps of a backbone."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from contml._support.errors import InputError
from contml.models.backbones import dry_run


def last_maps(backbone: nn.Module) -> tuple[str, int]:
    """Returns the module whose output is the last maps `[B, C, H, W]` of more than one place: its name, and C.

    Raises:
        InputError: no module has such an output.
    """
    map_modules: list[tuple[str, int]] = []

    def note(name: str, output: Any) -> None:
        if isinstance(output, Tensor) and output.ndim == 4 and output.shape[2] * output.shape[3] > 1:
            map_modules.append((name, output.shape[1]))

    handles = [
        module.register_forward_hook(lambda _module, _inputs, output, name=name: note(name, output))
        for name, module in backbone.named_modules()
        if name
    ]
    was_training = backbone.training
    try:
        dry_run(backbone, lambda _: None)
    finally:
        backbone.train(was_training)
        for handle in handles:
            handle.remove()
    if not map_modules:
        got, hint = f"{type(backbone).__name__} has no feature maps", "choose a convolutional network"
        raise InputError("backbone", got, hint=hint)
    return map_modules[-1]
