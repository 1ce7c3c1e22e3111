"""Backbones by name: contml's own, torchvision's without their classifier, timm's, and the user's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from contml._support.errors import InputError, did_you_mean, one_line
from contml._support.imports import import_by_name
from contml.models.bn_inception import BNInception
from contml.models.network import PixelFormat

#: The ends of the names of files of weights.
FILES = (".safetensors", ".pth", ".pt")


Output = TypeVar("Output")


class SmallCNN(nn.Module):
    """A small network for 64-pixel images on a CPU: images `[B, 3, H, W]` to features `[B, 1024]`."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *_conv(3, 32, kernel=5, stride=2),
            nn.MaxPool2d(2),
            *_conv(32, 64),
            *_conv(64, 64),
            nn.MaxPool2d(2),
            *_conv(64, 128),
            *_conv(128, 128),
            *_conv(128, 256, stride=2),
            # A 4 x 4 map instead of one mean over the image, since a pose depends on positions. With 64 channels, the
            # features (and the embeddings of a new head) have about the same norm as in a ResNet.
            *_conv(256, 64, kernel=1),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return features `[B, 1024]` of normalised images `[B, 3, H, W]`."""
        # Channels last is faster on a CPU. The weights are not converted: safetensors would refuse them.
        return self.layers(x.contiguous(memory_format=torch.channels_last))


def _conv(channels_in: int, channels_out: int, kernel: int = 3, stride: int = 1) -> list[nn.Module]:
    conv = nn.Conv2d(channels_in, channels_out, kernel, stride, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    return [conv, nn.BatchNorm2d(channels_out), nn.ReLU(inplace=True)]


#: The backbone for data that are features already; it has no weights.
FEATURES = "features"
#: Backbones of this library: functions without arguments that return a module with features `[B, width]`.
BACKBONES: dict[str, Callable[[], nn.Module]] = {"small_cnn": SmallCNN, "bn_inception": BNInception}


def backbone_names() -> list[str]:
    """Return the names of contml's and torchvision's backbones. timm's are `timm:NAME`."""
    from torchvision import models  # here: it takes a second to import

    return [*BACKBONES, FEATURES, *models.list_models(module=models)]


class Built(NamedTuple):
    """A backbone, the width of its features, and the pixels that it expects."""

    backbone: nn.Module
    width: int
    pixel_format: PixelFormat = PixelFormat()


def name_of(backbone: str | nn.Module) -> str:
    """Return the name of a backbone in error messages."""
    return backbone if isinstance(backbone, str) else f"a {type(backbone).__name__}"


def build(backbone: str | nn.Module, weights: str, feature_dim: int | None = None, *, pretrained: bool = True) -> Built:
    """Build a backbone from its name or from a module.

    Args:
        backbone: its name in a config, or a module.
        weights: "none", or the name of published weights.
        feature_dim: length of the feature vectors; None if the data are images.
        pretrained: load the published weights. False takes only the pixels that the published weights expect, for other
            weights that are loaded later.

    Raises:
        InputError: the backbone or its weights are unknown, do not match the data, or cannot be downloaded.
    """
    name = name_of(backbone)
    if (name == FEATURES) != (feature_dim is not None):
        allowed = f"must be {FEATURES}, since the data are features" if feature_dim else "the data are images"
        hint = "" if feature_dim else "choose another backbone, or give features ('contml features' writes a file)"
        raise InputError("backbone", name, allowed, hint)
    if name.startswith("timm:"):
        return _timm(name.removeprefix("timm:"), weights, pretrained)
    if isinstance(backbone, str) and ":" not in name and name not in (FEATURES, *BACKBONES):
        return _torchvision(name, weights, pretrained)
    if weights != "none":
        files = "" if feature_dim else f" or a local file ({', '.join(FILES)})"
        raise InputError("weights", weights, f"must be none{files} for backbone {name}")
    if feature_dim is not None:
        return Built(nn.Identity(), feature_dim)
    if isinstance(backbone, str):
        backbone = BACKBONES[name]() if name in BACKBONES else _import_backbone(name)
    pixel_format = getattr(backbone, "pixel_format", None)
    return Built(backbone, width_of(backbone), pixel_format if isinstance(pixel_format, PixelFormat) else PixelFormat())


def _torchvision(name: str, weights: str, pretrained: bool) -> Built:
    from torchvision import models

    names = backbone_names()
    if name not in names:
        allowed = f"must be {', '.join(BACKBONES)}, a torchvision model, timm:NAME or package.module:callable"
        raise InputError("backbone", name, allowed, did_you_mean(name, names))
    registry = models.get_model_weights(name)
    available = [*registry.__members__]
    if weights not in ("none", *available):
        hint = "did you mean 'DEFAULT'?" if weights == "pretrained" else did_you_mean(weights, available)
        raise InputError("weights", weights, f"must be none, {', '.join(available)} or a local file for {name}", hint)
    entry = None if weights == "none" else registry[weights]
    loaded = entry if pretrained else None
    # Auxiliary classifiers of these two models only help to train a classifier, and make the output a tuple. Their
    # published weights were trained on inputs of other statistics, which transform_input restores.
    extra_options = {"transform_input": True} if name in ("googlenet", "inception_v3") else {}
    if extra_options and loaded is None:
        extra_options |= {"aux_logits": False, "init_weights": True}
    try:
        module = models.get_model(name, weights=loaded, **extra_options)
    except (OSError, RuntimeError) as error:  # URLError is an OSError; a broken download is a RuntimeError
        if loaded is None:
            raise
        raise _not_downloaded(f"{weights} of {name} from {loaded.url}", torch.hub.get_dir(), error) from error
    if extra_options:  # published weights include auxiliary classifiers, which torchvision removes from only one model
        module.aux_logits, module.AuxLogits = False, None
    if name == "mobilenet_v2":  # its `forward` averages the maps itself, but `set_pooling` replaces a module
        module.features.append(nn.AdaptiveAvgPool2d(1))
    preset = (entry or registry.DEFAULT).transforms()
    return Built(module, _cut_classifier(module), PixelFormat(tuple(preset.mean), tuple(preset.std)))


def _cut_classifier(module: nn.Module) -> int:
    """Remove the last layer with 1000 outputs of a torchvision model, and return the width of its input."""
    # In squeezenet, it is a convolution.
    layers = [(name, layer) for name, layer in module.named_modules() if isinstance(layer, nn.Linear | nn.Conv2d)]
    name, layer = [each for each in layers if len(each[1].weight) == 1000][-1]
    parent, _, child = name.rpartition(".")
    setattr(module.get_submodule(parent), child, nn.Identity())
    return int(layer.weight.shape[1])


def _timm(name: str, weights: str, pretrained: bool) -> Built:
    try:
        import timm
    except ImportError as error:
        raise InputError("backbone", f"timm:{name} needs timm", hint='pip install "contml[timm]"') from error
    if weights not in ("none", "DEFAULT"):
        raise InputError("weights", weights, f"must be none, DEFAULT or a local file for timm:{name}")
    if not timm.is_model(name):
        names = [f"timm:{model_name}" for model_name in timm.list_models()]
        hint = did_you_mean(f"timm:{name}", names, "see timm.list_models()")
        raise InputError("backbone", f"timm:{name}", "no such model", hint)
    model_name, _, tag = name.partition(".")
    tags = [other.partition(".")[2] for other in timm.list_pretrained(f"{model_name}.*")]
    if tag and tag not in tags:
        hint = did_you_mean(tag, tags, f"its weights are {', '.join(tags)}" if tags else "omit it")
        raise InputError("backbone", f"timm:{name}", f"{model_name} has no weights {tag}", hint)
    options: dict[str, Any] = {"num_classes": 0, "pretrained": pretrained and weights != "none"}
    try:
        try:  # vision transformers take images of any size that patches divide
            module = timm.create_model(name, **options, dynamic_img_size=True)
        except TypeError:
            module = timm.create_model(name, **options)
    except Exception as error:  # timm downloads through several libraries, each with its own errors
        if not pretrained or weights == "none":
            raise
        from huggingface_hub import constants

        raise _not_downloaded(f"{weights} of timm:{name}", constants.HF_HUB_CACHE, error) from error
    config: Any = module.pretrained_cfg
    pixel_format = PixelFormat(tuple(config["mean"]), tuple(config["std"]))
    return Built(module, width_of(module, config["input_size"][-1]), pixel_format)


def _import_backbone(name: str) -> nn.Module:
    try:
        factory = import_by_name(name)
        module = factory() if callable(factory) else None
    except Exception as error:  # a user's own module may raise anything
        got = f"{name} cannot be imported ({type(error).__name__}: {one_line(error)})"
        raise InputError("backbone", got) from error
    if not isinstance(module, nn.Module):
        raise InputError("backbone", name, "must be a function that returns a torch.nn.Module")
    return module


def width_of(module: nn.Module, *sizes: int) -> int:
    """Return the width of a module's features."""
    return dry_run(module, lambda features: flat_features(features).shape[1], *sizes)


def dry_run(module: nn.Module, read: Callable[[Any], Output], *sizes: int) -> Output:
    """Return `read(output)` of a module for one image of the first size that it accepts.

    Raises:
        InputError: the module accepts none of the sizes, or its output is not features of a backbone.
    """
    parameter = next(module.parameters(), torch.empty(0))
    reason = ""
    module.eval()
    for size in sizes or (224, 64, 128, 256, 96, 32, 384, 512):
        try:
            with torch.inference_mode():
                return read(module(torch.ones(1, 3, size, size, dtype=parameter.dtype, device=parameter.device)))
        except InputError:
            raise
        except (RuntimeError, AssertionError, ValueError) as error:
            reason = reason or f"images of {size} x {size} pixels: {one_line(error)}"
    raise InputError("backbone", f"{type(module).__name__} cannot be used ({reason})")


def flat_features(features: Any) -> Tensor:
    """Return features `[B, width]`. A pooled map `[B, width, 1, 1]` is flattened."""
    got = f"a {type(features).__name__}"
    if isinstance(features, Tensor):
        rows: Tensor = features.flatten(1) if features.ndim == 4 and features.shape[2:] == (1, 1) else features
        if rows.ndim == 2:
            return rows
        got = f"features of shape {list(features.shape)}"
    raise InputError("backbone", got, "must return features of shape [B, width]")


def _not_downloaded(weights: str, cache: str, error: Exception) -> InputError:
    hint = f"without a network, set weights to a local file; a download is cached in {cache}"
    return InputError("weights", f"could not download {weights} ({one_line(error)})", hint=hint)
