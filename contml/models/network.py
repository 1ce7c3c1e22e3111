"""What the trainer asks of a model beyond `forward`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Self

from torch import Tensor, nn


class Network(nn.Module, ABC):
    """A backbone and a head that take part in their training. The trainer trains any other module as it is.

    Attributes:
        backbone: it can be compiled, and its stages have learning rates of their own.
        has_new_head: the backbone is pretrained and the head is new: the features may be better without it.
    """

    backbone: nn.Module
    has_new_head: bool

    @property
    @abstractmethod
    def starts_from_features(self) -> bool:
        """Whether the head starts from features of training images."""

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
        """Return the model for some weights: without the head if they have none, since the features were better."""

    @abstractmethod
    def add_adapter(self, seed: int) -> None:
        """Add the adapters to the backbone, if it trains some and has none yet."""

    @abstractmethod
    def merge_adapter(self) -> None:
        """Merge the adapters into the weights of the backbone, which then has its own layers again."""


def add_adapters(model: nn.Module, seed: int) -> None:
    """Add the adapters of all networks in a model."""
    for module in [*model.modules()]:
        if isinstance(module, Network):
            module.add_adapter(seed)


def merge_adapters(model: nn.Module) -> None:
    """Merge the adapters of all networks in a model into its weights."""
    for module in [*model.modules()]:
        if isinstance(module, Network):
            module.merge_adapter()
