"""The identity of a model: a hash of everything that decides its embeddings, and of nothing else.

    identity = SHA-256 of | weights: names, types, shapes, contents, sorted by name
                          | backbone, levels, pooling, whether embeddings are normalized
                          | for images: resize, crop; mean, std, range and order of the channels
                          | for features: their length

The identity does not depend on files, devices, or the order of the weights. It does not contain settings that only the
training uses: the loss, the number of epochs, counters of batch norm.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _NormBase

from contml.models.backbones import FEATURES
from contml.models.embedding import EmbeddingModel


def identity(model: EmbeddingModel, resize: int, crop: int) -> str:
    """Return the identity of a model, 64 hexadecimal digits.

    Args:
        model: the network.
        resize: images are resized to this many pixels square; unused for a model of features.
        crop: the centre of this many pixels square is the input.
    """
    facts: dict[str, Any] = {"backbone": model.backbone_name, "levels": model.levels}
    facts |= {"pooling": model.pooling, "normalize": model.normalize}
    tensors = model.state_dict()
    for name, module in model.named_modules():
        if isinstance(module, _NormBase):
            tensors.pop(f"{name}.num_batches_tracked", None)
    if model.backbone_name == FEATURES:
        facts["feature_dim"] = model.feature_dim
    else:
        facts |= {"resize": resize, "crop": crop}
        facts |= {"maximum": model.pixel_format.maximum, "order": model.pixel_format.order}
        tensors |= {"mean": model.mean, "std": model.std}
    content = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        content.update(f"\n{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        content.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return content.hexdigest()


class FeatureExtractor:
    """The features of a frozen backbone: images uint8 `[b, 3, H, W]` to float32 `[b, width]` on the CPU.

    Args:
        network: the embedding; its head is not used.
        resize: images were resized to this many pixels square.
        crop: the centre of this many pixels square is the input.
    """

    def __init__(self, network: EmbeddingModel, resize: int, crop: int) -> None:
        self.network, self.resize, self.crop = network, resize, crop

    @property
    def key(self) -> str:
        """A hash of everything that decides the features of an image: the backbone, its weights, the image size."""
        return identity(self.network.bare_backbone(), self.resize, self.crop)

    @property
    def dim(self) -> int:
        """The length of features."""
        return self.network.feature_dim

    def __call__(self, images: Tensor) -> Tensor:
        """Return the features, in float32 whatever the precision of the training."""
        with torch.no_grad():
            return self.network.features(images.to(self.network.mean.device)).float().cpu()
