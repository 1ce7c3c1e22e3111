"""The methods of a model that the trainer calls beside `forward`; pixels of a network, and stages of its backbone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, Self

from torch import Tensor, nn


class PixelFormat(NamedTuple):
    """Range, order of channels, mean and std of the pixels that a network was trained with; by default ImageNet's.

    A network of your own that needs other pixels has an attribute `pixel_format` of this class.
    """

    mean: tuple[float, ...] = (0.485, 0.456, 0.406)  # of each channel, in this range and order
    std: tuple[float, ...] = (0.229, 0.224, 0.225)
    maximum: int = 1  # black is 0, white is this
    order: Literal["RGB", "BGR"] = "RGB"


class Network(nn.Module, ABC):
    """A backbone and a head that take part in their training.

    The trainer trains any other module without these methods.

    Attributes:
        backbone: its stages can be frozen.
        has_new_head: the backbone is pretrained and the head is new: the features may be better without the head.
    """

    backbone: nn.Module
    has_new_head: bool

    @property
    @abstractmethod
    def starts_from_features(self) -> bool:
        """True if the head starts from features of training images."""

    @abstractmethod
    def start_head(self, features: Tensor) -> None:
        """Start the head from features `[N, width]` of training images."""

    @abstractmethod
    def bare_backbone(self) -> Self:
        """Return a model with the same backbone whose embeddings are the features, not normalized."""

    @abstractmethod
    def without_head(self) -> Self:
        """Return a model with the same backbone whose embeddings are the features."""

    @abstractmethod
    def fitted_to(self, weights: Mapping[str, Tensor]) -> Self:
        """Return the model that some weights fit.

        If the weights have no head, it is the model without the head: the features were better.
        """


#: A module with more than this share of all weights at its level is the network itself: its own modules are listed.
_NEARLY_ALL = 0.9


def stage_of(backbone: nn.Module) -> dict[str, int]:
    """Return the stage of each parameter of a backbone by its name: 0 is the stage next to the images.

    Stages can be frozen. A network of timm names its stages (`group_matcher`): the stem, then the blocks of a
    transformer or the stages of a convolutional network. In other networks, stages are the modules at the top level,
    inside the module that has nearly all of the weights: `conv1`, `layer1` ... `layer4` of a ResNet, `features.0` ...
    `features.18` of MobileNetV2. A normalization belongs to the layer before it.
    """
    matcher: Any = getattr(backbone, "group_matcher", None)
    groups = list(_modules(backbone))
    if matcher is not None:
        from timm.models import group_parameters

        by_number: dict[int, list[str]] = group_parameters(backbone, matcher(coarse=True))
        groups = [by_number[number] for number in sorted(by_number)]
    parameters = dict(backbone.named_parameters())
    found: dict[str, int] = {}
    stage = -1
    for names in groups:
        if stage < 0 or any(parameters[name].ndim > 1 for name in names):
            stage += 1
        found |= dict.fromkeys(names, stage)
    # Parameters at the top level, such as the class token and the positions of a transformer, meet the image first.
    return {name: found.get(name, 0) for name in parameters}


def _modules(module: nn.Module, prefix: str = "") -> Iterator[list[str]]:
    """Yield the names of the parameters of each module at the top level, in order."""
    children = [(name, child, sum(map(Tensor.numel, child.parameters()))) for name, child in module.named_children()]
    total = sum(count for *_, count in children)
    for name, child, count in children:
        if count > _NEARLY_ALL * total and next(child.children(), None) is not None:
            yield from _modules(child, f"{prefix}{name}.")
        elif count:
            yield [f"{prefix}{name}.{parameter}" for parameter, _ in child.named_parameters()]
