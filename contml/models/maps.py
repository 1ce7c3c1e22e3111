"""Feature maps of a backbone: the last ones, pooled over the image, and the maps of several levels."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from torch import Tensor, nn

from contml._support.errors import InputError, did_you_mean, one_line
from contml.models.backbones import dry_run, flat_features


def last_maps(backbone: nn.Module) -> tuple[str, int]:
    """Return a module's name and its number of channels C: the last module with maps `[B, C, H, W]` of several places.

    Raises:
        InputError: no module has such an output.
    """
    outputs = [(name, x) for name, x in _outputs(backbone) if name and isinstance(x, Tensor) and x.ndim == 4]
    widths = [(name, maps.shape[1]) for name, maps in outputs if maps.shape[2] * maps.shape[3] > 1]
    if not widths:
        got, hint = f"{type(backbone).__name__} has no feature maps", "choose a convolutional network"
        raise InputError("backbone", got, hint=hint)
    return widths[-1]


def _outputs(backbone: nn.Module) -> list[tuple[str, Any]]:
    """Return the name and the output of each module for one image, in the order in which the modules end.

    The last one is the backbone itself. Its name is "".
    """
    outputs: list[tuple[str, Any]] = []
    handles = [
        module.register_forward_hook(lambda _module, _inputs, output, name=name: outputs.append((name, output)))
        for name, module in backbone.named_modules()
    ]
    was_training = backbone.training
    try:
        dry_run(backbone, lambda _: None)
    finally:
        backbone.train(was_training)
        for handle in handles:
            handle.remove()
    return outputs


#: Pooling of maps `[B, C, H, W]`: their mean over the image, their maximum, the sum of both, or means of parts.
Pooling: TypeAlias = Literal["average", "max", "average_max", "average_2x2", "average_4x4"]
_SIDES = {"average_2x2": 2, "average_4x4": 4}


def pool(maps: Tensor, pooling: Pooling) -> Tensor:
    """Return features `[B, C]` of maps `[B, C, H, W]`; `[B, n n C]` for the means of n x n parts.

    Raises:
        ValueError: the maps have fewer than n x n places.
    """
    if pooling == "max":
        return maps.amax((2, 3))
    side = _SIDES.get(pooling, 1)
    if min(maps.shape[2:]) < side:  # parts would be copies of each other
        raise ValueError(f"{pooling} needs larger maps than {[*maps.shape[2:]]}; set images.crop or model.pooling")
    means = nn.functional.adaptive_avg_pool2d(maps, side).flatten(1)
    return means + maps.amax((2, 3)) if pooling == "average_max" else means


class GlobalPool(nn.Module):
    """Maps `[B, C, H, W]` to features `[B, F, 1, 1]`."""

    def __init__(self, pooling: Pooling) -> None:
        super().__init__()
        self.pooling = pooling

    def forward(self, maps: Tensor) -> Tensor:
        """Return features `[B, F, 1, 1]` of maps `[B, C, H, W]`."""
        return pool(maps, self.pooling)[:, :, None, None]


def set_pooling(backbone: nn.Module, name: str, pooling: Pooling) -> None:
    """Replace the pooling at the end of a backbone.

    Raises:
        InputError: the backbone has no such pooling.
    """
    modules = [(key, each) for key, each in backbone.named_modules() if isinstance(each, nn.AdaptiveAvgPool2d)]
    pools = {key for key, each in modules if each.output_size in (1, (1, 1))}
    *outputs, (_, output) = _outputs(backbone)
    # The output of the right pool is equal to the features. Squeeze-and-excitation blocks have pools too.
    ends = (key for key, x in outputs[::-1] if key in pools and flat_features(x).equal(flat_features(output)))
    if (last_pool := next(ends, None)) is None:
        allowed = f"must be average, since {name} does not end in a module AdaptiveAvgPool2d(1)"
        raise InputError("pooling", pooling, allowed, "or set model.levels to the module whose maps are pooled")
    backbone.set_submodule(last_pool, GlobalPool(pooling))


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
    """Return the backbone up to the last of these levels. Its output is the features of each level by name.

    Wang et al., "Ranked List Loss for Deep Metric Learning" (CVPR 2019), and "Instance Cross Entropy for Deep Metric
    Learning" (2020): L, M and H are the features after a low, a middle and a high block. Each has its own head and
    loss, and the embeddings of the levels are concatenated. In BN-Inception the levels are inception 3c, 4e and 5b, as
    in the second paper. In GoogLeNet they are 3b, 4e and 5b, the last block of each size of the feature map. In ResNets
    they are stages 2 to 4. In any network, a level is also a module by its name. Every level is pooled and goes through
    one linear layer. In the authors' code, low and middle have a convolution and a layer of 1,024 before the linear
    layer, like GoogLeNet's auxiliary classifiers.

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
    """Return the features of each level `[B, width]`, pooled from its maps `[B, width, H, W]`."""
    return [pool(f, pooling) if f.ndim == 4 else f for f in (features[level] for level in levels)]


def widths_of(backbone: nn.Module, levels: Sequence[str], pooling: Pooling) -> list[int]:
    """Return the width of the features of each level.

    Raises:
        InputError: the output of a level is neither maps nor features.
    """

    def width(level: str, output: Any) -> int:
        shape = list(output.shape) if isinstance(output, Tensor) else type(output).__name__
        # The image is square, so that maps with the channels last have another shape.
        if not isinstance(output, Tensor) or output.ndim not in (2, 4) or output.shape[2:3] != output.shape[3:4]:
            allowed = "must be maps of shape [B, width, H, W] or features [B, width]"
            raise InputError("levels", f"{level} is {shape} for a square image", allowed)
        return int(pooled({level: output}, [level], pooling)[0].shape[1])

    return dry_run(backbone, lambda outputs: [width(level, outputs[level]) for level in levels])
