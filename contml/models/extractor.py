"""A frozen backbone as what makes features of images, which are then read from a cache in every epoch."""

from __future__ import annotations

import torch
from torch import Tensor

from contml.models.embedding import EmbeddingModel
from contml.models.identity import identity


class FeatureExtractor:
    """The features of a frozen backbone: images uint8 `[b, 3, H, W]` to float32 `[b, width]` on the CPU.

    Args:
        network: the embedding; its head is not used.
        resize: images were resized to this many pixels square.
        crop: the centre of so many pixels square is the input.
    """

    def __init__(self, network: EmbeddingModel, resize: int, crop: int) -> None:
        self.network, self.resize, self.crop = network, resize, crop

    @property
    def key(self) -> str:
        """A hash of all that features depend on but the image: the backbone with its weights, the size of images."""
        return identity(self.network.bare_backbone(), self.resize, self.crop)

    @property
    def dim(self) -> int:
        """The length of features."""
        return self.network.feature_dim

    def __call__(self, images: Tensor) -> Tensor:
        """Returns the features, in float32 whatever the precision of the training."""
        with torch.no_grad():
            return self.network.features(images.to(self.network.mean.device)).float().cpu()
