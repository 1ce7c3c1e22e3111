"""An embedding model: a backbone by name, and a linear layer on its features, or on those of each of its levels.

Backbones are the library's own (`BACKBONES`), torchvision's classification models without their classifier, timm's
(`timm:NAME`), or any module of the user's (`package.module:callable`; from Python also the module itself).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from contml._support.errors import InputError
from contml.models.backbones import as_rows, build
from contml.models.levels import Level, LevelHeads, at_levels, pooled, widths_of
from contml.models.weights import line, load_backbone, load_head, names_a_file, read

# A config can only name a backbone, so this option is a str at run time; Python code may pass the module itself.
if TYPE_CHECKING:
    Backbone: TypeAlias = "str | nn.Module"
else:
    Backbone = str


class EmbeddingModel(nn.Module):
    """Images `[B, 3, H, W]` to embeddings `[B, dim]`: a backbone, then the linear layer `head`.

    Images are uint8, or floats in 0..1; the model normalises them itself, with the mean and std that its backbone was
    published with (ImageNet's for nearly all). Raises `InputError` where a name or a file does not fit.

    Args:
        backbone: "small_cnn" (for 64-pixel quick starts), a torchvision classification model ("resnet18"), "timm:NAME",
            "features" (the data are features of a frozen backbone already), or an import string
            "package.module:callable" of your own: a function that returns a module whose output has the shape
            `[B, width]`.
        dim: Length of an embedding, with levels of the part that each gives; null leaves out the linear layer: the
            backbone's features are the embedding (with 0 epochs, an evaluation of published
            features).
        weights: "none"; a name of torchvision's registry ("DEFAULT", "IMAGENET1K_V1"; for timm only "DEFAULT"), which
            is downloaded once; or a local file (.safetensors, .pth, .pt): the backbone's state dict, or a checkpoint of
            this model, whose head is taken over where its shape fits.
        normalize: Scale embeddings to length 1, with levels each level's part.
        freeze_batch_norm: Keep the running statistics of batch norm as loaded, in training as well; scales and shifts
            still learn.
        levels: Features of several depths, [low, middle, high] or some of these: each level has a linear layer, and in
            training a loss, of its own, and the embedding is their parts one after the other. For googlenet,
            mobilenet_v2, small_cnn, and ResNets of torchvision and timm. null: the backbone's last features.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        backbone: Backbone = "resnet18",
        dim: int | None = 128,
        weights: str = "none",
        normalize: bool = False,
        freeze_batch_norm: bool = False,
        levels: list[Level] | None = None,
        *,
        feature_dim: int | None = None,
    ) -> None:
        super().__init__()
        if dim is not None and dim < 1:
            raise InputError(f"dim is {dim}; an embedding has at least 1 number")
        self.normalize = normalize
        self.freeze_batch_norm = freeze_batch_norm
        self.levels = levels
        file = Path(weights).expanduser() if names_a_file(weights) else None
        state = None if file is None else read(file)  # before anything is built: a typo should cost nothing
        self.backbone, width, (mean, std) = build(backbone, "none" if file else weights, feature_dim)
        name = backbone if isinstance(backbone, str) else f"a {type(backbone).__name__}"
        whole, widths = self.backbone.state_dict().keys(), [width]
        if levels is not None:
            self.backbone = at_levels(self.backbone, name, levels)
            widths = widths_of(self.backbone, levels)
        self.feature_dim = sum(widths)
        #: How long the parts of an embedding are, one for each level.
        self.parts = [dim or width for width in widths]
        self.embedding_dim = sum(self.parts)
        self.head = nn.Identity() if dim is None else _head(widths, dim, levels)
        self.register_buffer("mean", torch.tensor(mean).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(1, 3, 1, 1), persistent=False)
        if file is not None and state is not None:
            load_backbone(self.backbone, state, file, name, whole)
            load_head(self.head, state)
        self.train()

    def features(self, images: Tensor) -> Tensor:
        """Backbone features `[B, width]` of images `[B, 3, H, W]`: uint8, or floats in 0..1; features stay."""
        if images.ndim == 2:
            return images.to(self.mean.dtype)
        x = images.to(self.mean.dtype)
        if images.dtype == torch.uint8:
            x = x / 255
        features = self.backbone((x - self.mean) / self.std)
        return as_rows(features) if self.levels is None else torch.cat(pooled(features, self.levels), dim=1)

    def embed(self, features: Tensor) -> Tensor:
        """Embeddings `[B, dim]` of backbone features `[B, width]`, real or made."""
        embeddings: Tensor = self.head(features)
        if not self.normalize:
            return embeddings
        return torch.cat([F.normalize(part, dim=1) for part in torch.split(embeddings, self.parts, dim=1)], dim=1)

    def forward(self, images: Tensor, with_features: bool = False) -> Tensor | tuple[Tensor, Tensor]:
        """Embeddings `[B, dim]` of images `[B, 3, H, W]`: uint8, or floats in 0..1; with_features: the features too."""
        # Both from one call: data parallelism sees only what goes through forward.
        features = self.features(images)
        embeddings = self.embed(features)
        return (embeddings, features) if with_features else embeddings

    def head_parameters(self) -> Iterator[nn.Parameter]:
        """The parameters of the linear layer, where there is one."""
        return self.head.parameters()

    def check_size(self, size: int) -> None:
        """Raise `InputError` if the backbone cannot read `size` x `size` images; transformers often read one size."""
        was_training = self.training
        try:
            with torch.inference_mode():
                self.eval().features(torch.zeros(1, 3, size, size, dtype=torch.uint8, device=self.mean.device))
        except (RuntimeError, AssertionError, ValueError) as error:
            raise InputError(f"the backbone cannot read images of {size} x {size} pixels ({line(error)})") from error
        finally:
            self.train(was_training)

    def train(self, mode: bool = True) -> EmbeddingModel:
        """Training mode; frozen batch norm stays as in evaluation."""
        super().train(mode)
        if self.freeze_batch_norm:
            for module in self.backbone.modules():
                if isinstance(module, _BatchNorm):
                    module.eval()
        return self


def _head(widths: list[int], dim: int, levels: list[Level] | None) -> nn.Module:
    heads = [nn.Linear(width, dim) for width in widths]
    for head in heads:
        nn.init.kaiming_normal_(head.weight, mode="fan_out")
        nn.init.zeros_(head.bias)
    return heads[0] if levels is None else LevelHeads(dict(zip(levels, heads, strict=True)), widths)
