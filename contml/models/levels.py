"""Features of several levels of a backbone: its feature maps part of the way, averaged over the image.

Wang et al., "Ranked List Loss for Deep Metric Learning" (CVPR 2019), and "Instance Cross Entropy for Deep Metric
Learning" (2020): L, M and H are the features after a low, a middle and a high block. Each has a head and a loss of its
own, and the embeddings of the levels are concatenated. In GoogLeNet these are inception 3b, 4e and 5b, the last of each
size of the feature map, in ResNets the stages 2 to 4. Every level is averaged and goes through one linear layer; in the
authors' code low and middle have a convolution and a layer of 1,024 before it, as GoogLeNet's auxiliary classifiers.
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

#: After which module of a backbone its levels are taken: names of backbones, then low, middle, high.
LEVELS: dict[str, tuple[str, str, str]] = {
    r"googlenet": ("inception3b", "inception4e", "inception5b"),
    r"(timm:)?(resnet|resnext|wide_resnet)\d.*": ("layer2", "layer3", "layer4"),
    r"mobilenet_v2": ("features.6", "features.13", "features.18"),
    r"small_cnn": ("layers.9", "layers.16", "layers.24"),
}


def at_levels(backbone: nn.Module, name: str, levels: Sequence[Level]) -> nn.Module:
    """The backbone up to the last of these levels, giving the features of each by its name.

    Raises:
        InputError: there are none, one is named twice, or this backbone is known by no levels.
    """
    if not levels or len({*levels}) < len(levels):
        raise InputError(f"levels are {list(levels)}; name one or more of low, middle, high, each once")
    nodes = next((nodes for names, nodes in LEVELS.items() if re.fullmatch(names, name)), None)
    if nodes is None:
        raise InputError(
            f"levels are {list(levels)}, but those of {name} are not known; those of googlenet, mobilenet_v2, "
            "small_cnn, and of ResNets of torchvision and timm are"
        )
    after = dict(zip(("low", "middle", "high"), nodes, strict=True))
    from torchvision.models.feature_extraction import create_feature_extractor  # here: it takes a second to import

    cut: nn.Module = create_feature_extractor(backbone, {after[level]: level for level in levels})
    return cut


def pooled(features: dict[str, Tensor], levels: Sequence[Level]) -> list[Tensor]:
    """Features of each level `[B, width]`: means of their maps `[B, width, H, W]`."""
    return [f.mean((2, 3)) if f.ndim == 4 else f for f in (features[level] for level in levels)]


def widths_of(backbone: nn.Module, levels: Sequence[Level]) -> list[int]:
    """The widths of the levels' features."""
    return dry_run(backbone, lambda features: [part.shape[1] for part in pooled(features, levels)])


class LevelHeads(nn.ModuleDict):
    """A linear layer on the features of each level, their outputs concatenated."""

    def __init__(self, heads: dict[str, nn.Module], widths: list[int]) -> None:
        super().__init__(heads)
        self.widths = widths

    def forward(self, features: Tensor) -> Tensor:
        """Embeddings `[B, dims]` of concatenated features `[B, widths]`."""
        parts = torch.split(features, self.widths, dim=1)
        return torch.cat([head(part) for head, part in zip(self.values(), parts, strict=True)], dim=1)
