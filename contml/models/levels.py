"""Features of several levels of a backbone: intermediate feature maps, averaged over the image.

Wang et al., "Ranked List Loss for Deep Metric Learning" (CVPR 2019), and "Instance Cross Entropy for Deep Metric
Learning" (2020): L, M and H are the features after a low, a middle and a high block. Each has its own head and
loss, and the embeddings of the levels are concatenated. In GoogLeNet the levels are inception 3b, 4e and 5b, the last
block of each size of the feature map; in ResNets, stages 2 to 4. Every level is averaged and goes through one linear
layer. In the authors' code, low and middle have a convolution and a layer of 1,024 before it, as in GoogLeNet's
auxiliary classifiers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from contml._support.errors import InputError
from contml.models.backbones import dry_run

Level: TypeAlias = Literal["low", "middle", "high"]

#: The modules of a backbone whose outputs are its levels: pattern of names, then low, middle, high.
LEVELS: dict[str, tuple[str, str, str]] = {
    r"googlenet": ("inception3b", "inception4e", "inception5b"),
    r"(timm:)?(resnet|resnext|wide_resnet)\d.*": ("layer2", "layer3", "layer4"),
    r"mobilenet_v2": ("features.6", "features.13", "features.18"),
    r"small_cnn": ("layers.9", "layers.16", "layers.24"),
}


def at_levels(backbone: nn.Module, name: str, levels: Sequence[Level]) -> nn.Module:
    """Returns the backbone up to the last of these levels; its output is the features of each level by name.

    Raises:
        InputError: no level is given, one appears twice, or the levels of this backbone are not known.
    """
    if not levels or len({*levels}) < len(levels):
        raise InputError("levels", str(list(levels)), "must be one or more of low, middle, high, each once")
    nodes = next((nodes for names, nodes in LEVELS.items() if re.fullmatch(names, name)), None)
    if nodes is None:
        allowed = "the backbone must be googlenet, mobilenet_v2, small_cnn, or a ResNet of torchvision or timm"
        raise InputError("levels", f"{list(levels)} of {name} are not known", allowed)
    module_of = dict(zip(("low", "middle", "high"), nodes, strict=True))
    from torchvision.models.feature_extraction import create_feature_extractor  # here: it takes a second to import

    extractor: nn.Module = create_feature_extractor(backbone, {module_of[level]: level for level in levels})
    return extractor


def pooled(features: dict[str, Tensor], levels: Sequence[Level]) -> list[Tensor]:
    """Returns the features of each level `[B, width]`: means of its maps `[B, width, H, W]`."""
    return [f.mean((2, 3)) if f.ndim == 4 else f for f in (features[level] for level in levels)]


def widths_of(backbone: nn.Module, levels: Sequence[Level]) -> list[int]:
    """Returns the width of the features of each level."""
    return dry_run(backbone, lambda features: [part.shape[1] for part in pooled(features, levels)])


class LevelHeads(nn.ModuleDict):
    """A linear layer on the features of each level, their outputs concatenated."""

    def __init__(self, heads: dict[str, nn.Module], widths: list[int]) -> None:
        super().__init__(heads)
        self.widths = widths

    def forward(self, features: Tensor) -> Tensor:
        """Returns embeddings `[B, dims]` of concatenated features `[B, widths]`."""
        parts = torch.split(features, self.widths, dim=1)
        return torch.cat([head(part) for head, part in zip(self.values(), parts, strict=True)], dim=1)
