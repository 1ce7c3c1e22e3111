"""Features of several levels of a backbone: intermediate feature maps, pooled over the image.

Wang et al., "Ranked List Loss for Deep Metric Learning" (CVPR 2019), and "Instance Cross Entropy for Deep Metric
Learning" (2020): L, M and H are the features after a low, a middle and a high block. Each has its own head and
loss, and the embeddings of the levels are concatenated. In BN-Inception the levels are inception 3c, 4e and 5b, as in
the second paper; in GoogLeNet 3b, 4e and 5b, the last block of each size of the feature map; in ResNets, stages 2 to 4.
A level of any network is also a module by its name. Every level is pooled and goes through one linear layer. In the
authors' code, low and middle have a convolution and a layer of 1,024 before it, like GoogLeNet's auxiliary classifiers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from contml._support.errors import InputError, did_you_mean, one_line
from contml.models.backbones import dry_run
from contml.models.pooling import Pooling, pool

_NAMES = ("low", "middle", "high")
#: The modules of a backbone whose outputs are its levels: pattern of names, then low, middle, high.
LEVELS: dict[str, tuple[str, str, str]] = {
    r"bn_inception": ("inception_3c_output", "inception_4e_output", "inception_5b_output"),
    r"googlenet": ("inception3b", "inception4e", "inception5b"),
    r"(timm:)?(resnet|resnext|wide_resnet)\d.*": ("layer2", "layer3", "layer4"),
    r"mobilenet_v2": ("features.6", "features.13", "features.18"),
    r"small_cnn": ("layers.9", "layers.16", "layers.24"),
}


def at_levels(backbone: nn.Module, name: str, levels: Sequence[str]) -> nn.Module:
    """Returns the backbone up to the last of these levels; its output is the features of each level by name.

    Raises:
        InputError: no level is given, one appears twice or is no module, or PyTorch cannot trace the backbone.
    """
    nodes = next((nodes for pattern, nodes in LEVELS.items() if re.fullmatch(pattern, name)), None)
    modules = {key: key for key, _ in backbone.named_modules() if key}
    allowed = "the name of a module of this backbone, see named_modules()"
    if nodes is not None:
        modules |= dict(zip(_NAMES, nodes, strict=True))
        allowed = f"{', '.join(_NAMES)}, or {allowed}"
    for level in levels:
        if level not in modules:
            raise InputError("levels", f"{level} of {name}", f"must be {allowed}", did_you_mean(level, [*modules]))
    module_of = {modules[level]: level for level in levels}
    if not levels or len(module_of) < len(levels):
        raise InputError("levels", str(list(levels)), f"must be one or more of {allowed}, each once")
    from torchvision.models.feature_extraction import create_feature_extractor  # here: it takes a second to import

    try:
        extractor: nn.Module = create_feature_extractor(backbone, module_of)
    except Exception as error:  # a user's own module may raise anything
        got = f"{list(levels)} of {name} cannot be extracted by torch.fx ({one_line(error)})"
        raise InputError("levels", got) from error
    return extractor


def pooled(features: dict[str, Tensor], levels: Sequence[str], pooling: Pooling = "average") -> list[Tensor]:
    """Returns the features of each level `[B, width]`, pooled from its maps `[B, width, H, W]`."""
    return [pool(f, pooling) if f.ndim == 4 else f for f in (features[level] for level in levels)]


def widths_of(backbone: nn.Module, levels: Sequence[str]) -> list[int]:
    """Returns the width of the features of each level.

    Raises:
        InputError: the output of a level is neither maps nor features.
    """

    def width(level: str, output: Any) -> int:
        shape = list(output.shape) if isinstance(output, Tensor) else type(output).__name__
        # The image is square, so that maps with the channels last have another shape.
        if not isinstance(output, Tensor) or output.ndim not in (2, 4) or output.shape[2:3] != output.shape[3:4]:
            allowed = "must be maps of shape [B, width, H, W] or features [B, width]"
            raise InputError("levels", f"{level} is {shape} for a square image", allowed)
        return int(output.shape[1])

    return dry_run(backbone, lambda outputs: [width(level, outputs[level]) for level in levels])
