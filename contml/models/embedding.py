"""An embedding model: a backbone, and a head on its features or on the features of each level.

Backbones are contml's own (`BACKBONES`), torchvision's classification models without their classifier, timm's
(`timm:NAME`), or a module of the user (`package.module:callable`; from Python also the module itself).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from contml._support.errors import InputError, one_line
from contml._support.validation import PositiveInt, check_ranges
from contml.distances.euclidean import normalize
from contml.models.backbones import build, flat_features, name_of, width_of
from contml.models.heads import HeadStart, build_head, check_nested, cut_head, start_heads
from contml.models.maps import Pooling, at_levels, last_maps, pooled, set_pooling, widths_of
from contml.models.network import Network, stage_of
from contml.models.weights import check_options, load_backbone, load_head, names_a_file, network_of, read

# A config can only name a backbone, so this option is a str at run time; Python code may pass the module itself.
if TYPE_CHECKING:
    Backbone: TypeAlias = "str | nn.Module"
else:
    Backbone = str


class EmbeddingModel(Network):
    """Images `[B, 3, H, W]` to embeddings `[B, dim]`: a backbone, then the layers of `head`.

    Images are RGB, uint8 or floats in 0..1. The model normalises them itself, with the mean, std, range and order of
    channels that its backbone was published with (ImageNet's mean and std for nearly all). The constructor raises
    `InputError` if a name or a file does not fit.

    Args:
        backbone: "small_cnn" (for 64-pixel quick starts), "bn_inception", a torchvision classification model
            ("resnet18"), "timm:NAME", "features" (the data are features of a frozen backbone already), or
            "package.module:callable" of your own: a function that returns a module whose output has the shape
            `[B, width]`. Its attribute `pixel_format` (`contml.models.PixelFormat`), if it has one, replaces ImageNet's
            mean and std.
        dim: Length of an embedding, or of each level's part of it. null: no head, the backbone's features are the
            embedding (with 0 epochs, an evaluation of published features).
        weights: "none"; a name of torchvision's registry ("DEFAULT", "IMAGENET1K_V1"; for timm only "DEFAULT"), which
            is downloaded once; or a local file (.safetensors, .pth, .pt): the backbone's state dict, or a checkpoint of
            this model, whose head is loaded too if its shape fits.
        normalize: Scale embeddings to length 1; with levels, each level's part.
        freeze_batch_norm: Do not update the running statistics of batch norm in training; scales and shifts still
            learn.
        levels: Features of several depths, one or more of [low, middle, high]. Each level has its own linear layer and,
            in training, its own loss; their embeddings are concatenated. For bn_inception, googlenet, mobilenet_v2,
            small_cnn, and ResNets of torchvision and timm. In any backbone that torch.fx can trace, a level is also
            the name of a module whose output is maps `[B, width, H, W]`. null: the backbone's last features.
        pooling: The pooling of maps to features: their mean over the image ("average"), their maximum ("max"), the sum
            of both ("average_max", as in the code of Proxy Anchor), or the means of 4 or 16 parts of the image
            ("average_2x2", "average_4x4"), for labels of positions. For levels, and for backbones whose last module is
            a global average pool. With "average", transformers have the pooling that they were published with.
        frozen: true: the backbone keeps its weights and its statistics, and only the head is trained. If nothing
            changes the images from epoch to epoch (no transform, no flip), each image passes the backbone once, and its
            features are kept in a cache. A number N: the first N stages are frozen. In networks of timm, stages are the
            stem, then the blocks of a transformer or the stages of a convolutional network; else the top-level modules.
        head_start: The initial weights of the head, a linear layer: "random", or "pca": the first principal components
            of the features of training images.
        nested_dims: Matryoshka: lengths below `dim`, shortest first. The first numbers of an embedding, up to each of
            these lengths, are an embedding too, scaled to unit length if the whole one is. In training, each length and
            the whole embedding have their own loss, with its own proxies, miner and memory; their mean is minimized.
        feature_dim: Length of the feature vectors of the data; None for images.
        pretrained: Load the published weights. False takes only the pixels that they expect, for other weights that are
            loaded later.
    """

    mean: Tensor
    std: Tensor

    @check_ranges
    def __init__(
        self,
        backbone: Backbone = "resnet18",
        dim: PositiveInt | None = 128,
        weights: str = "none",
        normalize: bool = False,
        freeze_batch_norm: bool = False,
        levels: list[str] | None = None,
        pooling: Pooling = "average",
        frozen: bool | PositiveInt = False,
        head_start: HeadStart = "random",
        nested_dims: list[PositiveInt] | None = None,
        *,
        feature_dim: int | None = None,
        pretrained: bool = True,
    ) -> None:
        super().__init__()
        self.normalize, self.freeze_batch_norm = normalize, freeze_batch_norm
        self.levels, self.pooling = levels, pooling
        if nested_dims is not None:
            check_nested(nested_dims, dim, levels)
        #: The lengths of embeddings that are trained, if there are nested ones. The last one is the whole length.
        self.nested_dims = [] if nested_dims is None else [*nested_dims, int(dim or 0)]
        #: True if the whole backbone is frozen.
        self.frozen = frozen is True
        self._frozen_stages = 0 if isinstance(frozen, bool) else frozen
        file = Path(weights).expanduser() if names_a_file(weights) else None
        if file is not None and not pretrained:
            weights, file = "none", None
        state = None if file is None else network_of(read(file))  # before the backbone is built, which is slow
        built = build(backbone, "none" if file else weights, feature_dim, pretrained=pretrained)
        self.backbone, width, self.pixel_format = built
        #: The name of the backbone in a config. For a module that was passed, the name of its class.
        self.backbone_name = name = name_of(backbone)
        backbone_keys, widths = self.backbone.state_dict().keys(), [width]
        if levels is not None:
            self.backbone = at_levels(self.backbone, name, levels)
            widths = widths_of(self.backbone, levels, pooling)
        elif pooling != "average":
            set_pooling(self.backbone, name, pooling)
            widths = [width_of(self.backbone)]
        self.feature_dim, self._widths = sum(widths), widths
        #: Length of each level's part of an embedding.
        self.parts = [dim or width for width in widths]
        self.head = nn.Identity() if dim is None else build_head(head_start, widths, dim, levels)
        #: The start of the head. "pca" needs features of training images (`start_head`), "random" needs none.
        self.head_start: HeadStart = "random" if dim is None else head_start
        #: True if the backbone is pretrained and the head is new: the features may be better without the head.
        self.has_new_head = dim is not None and (feature_dim is not None or weights != "none")
        self.register_buffer("mean", torch.tensor(self.pixel_format.mean).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(self.pixel_format.std).view(1, 3, 1, 1), persistent=False)
        if file is not None and state is not None:
            options = {"dim": dim, "levels": levels, "normalize": normalize, "pooling": pooling}
            check_options(file, state, self.head, **options)
            load_backbone(self.backbone, state, file, name, backbone_keys)
            if load_head(self.head, state):
                self.has_new_head, self.head_start = False, "random"
        stages = max(stage_of(self.backbone).values(), default=-1) + 1 if self._frozen_stages else 1
        if self._frozen_stages >= stages:
            allowed = f"must be at most {stages - 1}, since {name} has {stages} stages" if stages > 1 else ""
            raise InputError("frozen", str(self._frozen_stages), allowed, "true freezes all of them")
        self._keep_frozen()
        self.train()

    @property
    def embedding_dim(self) -> int:
        """Length of an embedding."""
        return sum(self.parts)

    @property
    def starts_from_features(self) -> bool:
        """True if the head starts from features of training images."""
        return self.head_start == "pca"

    def start_head(self, features: Tensor) -> None:
        """Start the head from features `[N, width]` of training images."""
        start_heads(self.head, torch.split(features, self._widths, dim=1))

    def without_head(self) -> Self:
        """Return a model with the same backbone whose embeddings are the features."""
        model = copy(self)
        model.__dict__.pop("forward", None)  # with mixed precision, accelerate sets one that calls `self`
        model._modules = {**self._modules, "head": nn.Identity()}
        model.parts, model.head_start, model.has_new_head, model.nested_dims = self._widths, "random", False, []
        return model

    def with_dim(self, dim: int) -> EmbeddingModel:
        """Return the model whose embeddings are the first `dim` numbers of this model's embeddings.

        Args:
            dim: one of the `nested_dims`.

        Raises:
            InputError: the model was not trained with this length.
        """
        if dim not in self.nested_dims:
            if not self.nested_dims:
                got = f"{dim}, but the model was trained for {self.embedding_dim} numbers alone"
                raise InputError("dim", got, hint="'contml train ... model.nested_dims=[16,32]' trains several lengths")
            allowed = f"must be one of {', '.join(map(str, self.nested_dims))}, which the model was trained for"
            raise InputError("dim", str(dim), allowed)
        model = copy(self)
        model.__dict__.pop("forward", None)
        model._modules = {**self._modules, "head": cut_head(self.head, dim)}
        model.parts, model.nested_dims = [dim], [each for each in self.nested_dims if each <= dim]
        return model

    def bare_backbone(self) -> Self:
        """Return a model with the same backbone whose embeddings are the features, not normalized."""
        model = self.without_head()
        model.normalize = False
        return model

    def fitted_to(self, weights: Mapping[str, Tensor]) -> Self:
        """Return the model that some weights fit.

        If the weights have no head, it is the model without the head: the features were better.
        """
        has_head = any(key.startswith("head.") for key in weights)
        return self if has_head or not self.head.state_dict() else self.without_head()

    def features(self, images: Tensor) -> Tensor:
        """Return backbone features `[B, width]` of images `[B, 3, H, W]`: uint8, or floats in 0..1."""
        if images.ndim < 4:  # features already, or maps [B, P, width]
            features = images.to(self.mean.dtype)
            return features.mean(1) if features.ndim == 3 else features
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            features = self.backbone(self._normalized(images))
            if self.levels is None:
                return flat_features(features)
            return torch.cat(pooled(features, self.levels, self.pooling), dim=1)

    def maps(self, images: Tensor) -> Tensor:
        """Return the last feature maps of the backbone `[B, P, C]`, at P places, for images `[B, 3, H, W]`.

        Raises:
            InputError: the backbone has no feature maps.
        """
        if images.ndim == 3:  # maps already
            return images.to(self.mean.dtype)
        if images.ndim == 2:
            got, hint = "features without maps", "write maps with 'contml features ... --maps'"
            raise InputError("images.features", got, hint=hint)
        outputs: list[Tensor] = []
        module = self.backbone.get_submodule(self._last_maps[0])
        handle = module.register_forward_hook(lambda _module, _inputs, output: outputs.append(output))
        try:
            self.backbone(self._normalized(images))
        finally:
            handle.remove()
        return outputs[0].flatten(2).transpose(1, 2)

    @property
    def map_dim(self) -> int:
        """The number of channels of the last feature maps.

        Raises:
            InputError: the backbone has no feature maps.
        """
        return self.feature_dim if isinstance(self.backbone, nn.Identity) else self._last_maps[1]

    @cached_property
    def _last_maps(self) -> tuple[str, int]:
        return last_maps(self.backbone)

    def _normalized(self, images: Tensor) -> Tensor:
        x = images.to(self.mean.dtype)
        maximum = 255 if images.dtype == torch.uint8 else 1
        if maximum != self.pixel_format.maximum:
            x = x * self.pixel_format.maximum / maximum
        if self.pixel_format.order == "BGR":
            x = x.flip(1)
        return (x - self.mean) / self.std

    def embed(self, features: Tensor) -> Tensor:
        """Return embeddings `[B, dim]` of backbone features `[B, width]`, from images or from a generator."""
        embeddings: Tensor = self.head(features)
        if not self.normalize:
            return embeddings
        return torch.cat([normalize(part) for part in torch.split(embeddings, self.parts, dim=1)], dim=1)

    def forward(self, images: Tensor, with_features: bool = False) -> Tensor | tuple[Tensor, Tensor]:
        """Return embeddings `[B, dim]` of images `[B, 3, H, W]`, uint8 or floats in 0..1.

        With `with_features`, also return the features.
        """
        # Both in one call, since data parallelism only handles forward.
        features = self.features(images)
        embeddings = self.embed(features)
        return (embeddings, features) if with_features else embeddings

    def head_parameters(self) -> Iterator[nn.Parameter]:
        """Return the parameters of the head. The iterator is empty without a head."""
        return self.head.parameters()

    def check_size(self, size: int) -> None:
        """Raise `InputError` if the backbone cannot read `size` x `size` images.

        Transformers often read only one size.
        """
        was_training = self.training
        try:
            with torch.inference_mode():
                self.eval().features(torch.zeros(1, 3, size, size, dtype=torch.uint8, device=self.mean.device))
        except (RuntimeError, AssertionError, ValueError) as error:
            raise InputError("backbone", f"cannot read images of {size} x {size} pixels ({one_line(error)})") from error
        finally:
            self.train(was_training)

    def train(self, mode: bool = True) -> EmbeddingModel:
        """Set training mode. Frozen parts stay in evaluation mode."""
        super().train(mode)
        if self.frozen:
            self.backbone.eval()
            return self
        frozen = {id(parameter) for parameter in self._frozen_parameters()}
        for module in self.backbone.modules():
            own = [id(parameter) for parameter in module.parameters()]
            if (own and frozen.issuperset(own)) or (self.freeze_batch_norm and isinstance(module, _BatchNorm)):
                module.eval()
        return self

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Enable or disable gradients. Frozen weights never get gradients."""
        super().requires_grad_(requires_grad)
        self._keep_frozen()
        return self

    def _keep_frozen(self) -> None:
        for parameter in self._frozen_parameters():
            parameter.requires_grad_(False)

    def _frozen_parameters(self) -> Iterator[nn.Parameter]:
        """Yield the weights of the backbone that are not trained."""
        stages = stage_of(self.backbone) if self._frozen_stages else {}
        for name, parameter in self.backbone.named_parameters():
            if self.frozen or stages.get(name, 0) < self._frozen_stages:
                yield parameter
