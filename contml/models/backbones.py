"""Backbones by name: this library's own, torchvision's without their classifier, timm's, and a user's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from contml._support.errors import InputError, did_you_mean
from contml._support.imports import import_by_name
from contml.models.weights import FILES, line

Found = TypeVar("Found")

_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


class SmallCNN(nn.Module):
    """Convolutions made for 64-pixel images on a CPU: images `[B, 3, H, W]` to features `[B, 1024]`."""

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
            # A map of 4 x 4 and not one mean over the image: where things are is what a pose consists of. 64 channels
            # keep the features, and with them a new head's embeddings, about as long as a ResNet's.
            *_conv(256, 64, kernel=1),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Features `[B, 1024]` of normalised images `[B, 3, H, W]`."""
        # Channels last makes it quick on a CPU; the weights stay as they are, safetensors would refuse them otherwise.
        features: Tensor = self.layers(x.contiguous(memory_format=torch.channels_last))
        return features


def _conv(channels_in: int, channels_out: int, kernel: int = 3, stride: int = 1) -> list[nn.Module]:
    conv = nn.Conv2d(channels_in, channels_out, kernel, stride, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    return [conv, nn.BatchNorm2d(channels_out), nn.ReLU(inplace=True)]


#: The backbone of data that are features already: it has no weights.
FEATURES = "features"
#: Backbones of this library: functions without arguments that return a module with features `[B, width]`.
BACKBONES: dict[str, Callable[[], nn.Module]] = {
    "small_cnn": SmallCNN,
}


def backbone_names() -> list[str]:
    """Every backbone that goes by a plain name: this library's, then torchvision's. timm's are `timm:NAME`."""
    from torchvision import models  # here: it takes a second to import

    return [*BACKBONES, FEATURES, *models.list_models(module=models)]


class Built(NamedTuple):
    """A backbone, and what is known of it."""

    backbone: nn.Module
    width: int
    statistics: tuple[tuple[float, ...], tuple[float, ...]]  # mean, std of its input


def build(backbone: str | nn.Module, weights: str, feature_dim: int | None = None) -> Built:
    """A backbone by its name in a config, or a module as one; `feature_dim`: of data that are features, not images.

    Raises:
        InputError: there is none of that name, it has no such weights, or these cannot be downloaded.
    """
    if isinstance(backbone, nn.Module):
        _only_files(f"a {type(backbone).__name__}", weights)
        return Built(backbone, width_of(backbone), _IMAGENET)
    if backbone == FEATURES:
        if feature_dim is None:
            raise InputError(
                f"backbone '{FEATURES}' takes vectors in place of images, but these data have images; name a file of "
                "features ('contml features' writes one), or choose another backbone"
            )
        if weights != "none":
            raise InputError(f"backbone '{FEATURES}' has no weights; the head learns alone")
        return Built(nn.Identity(), feature_dim, _IMAGENET)
    if feature_dim is not None:
        raise InputError(f"backbone '{backbone}' takes images, but these data are features; set backbone '{FEATURES}'")
    if backbone in BACKBONES:
        _only_files(backbone, weights)
        module = BACKBONES[backbone]()
        return Built(module, width_of(module), _IMAGENET)
    if backbone.startswith("timm:"):
        return _timm(backbone.removeprefix("timm:"), weights)
    if ":" in backbone:
        _only_files(backbone, weights)
        module = _imported(backbone)
        return Built(module, width_of(module), _IMAGENET)
    if backbone not in backbone_names():
        others = "allowed: small_cnn, a torchvision model, timm:NAME or package.module:callable"
        raise InputError(f"unknown backbone '{backbone}'; {did_you_mean(backbone, backbone_names(), others)}")
    return _torchvision(backbone, weights)


def _only_files(backbone: str, weights: str) -> None:
    if weights != "none":
        raise InputError(f"{backbone} has no weights '{weights}'; allowed: none or a local file ({', '.join(FILES)})")


def _torchvision(name: str, weights: str) -> Built:
    from torchvision import models

    registry = models.get_model_weights(name)
    known = [*registry.__members__]
    if weights != "none" and weights not in known:
        hint = did_you_mean("DEFAULT" if weights == "pretrained" else weights, known)
        raise InputError(
            f"{name} has no weights '{weights}'; allowed: none, {', '.join(known)} or a local file"
            f"{'; ' if hint else ''}{hint}"
        )
    entry = None if weights == "none" else registry[weights]
    # Auxiliary classifiers only help to train a classifier, and make the output of these two a tuple. Their published
    # weights were trained on inputs of other statistics, which transform_input restores.
    special = {"transform_input": True} if name in ("googlenet", "inception_v3") else {}
    if special and entry is None:
        special |= {"aux_logits": False, "init_weights": True}
    try:
        module = models.get_model(name, weights=entry, **special)
    except (OSError, RuntimeError) as error:  # URLError is an OSError; a broken download is a RuntimeError
        if entry is None:
            raise
        raise _not_downloaded(f"weights {weights} of {name} from {entry.url}", torch.hub.get_dir(), error) from error
    if special:  # published weights come with auxiliary classifiers, and torchvision keeps one of the two models'
        module.aux_logits, module.AuxLogits = False, None
    preset = (entry or registry.DEFAULT).transforms()
    return Built(module, _cut_classifier(module), (tuple(preset.mean), tuple(preset.std)))


def _cut_classifier(module: nn.Module) -> int:
    """Take the last layer with 1000 outputs out of a torchvision model; returns the width of what went into it."""
    for name, layer in reversed([*module.named_modules()]):
        if isinstance(layer, nn.Linear) and layer.out_features == 1000:
            width = layer.in_features
        elif isinstance(layer, nn.Conv2d) and layer.out_channels == 1000:  # squeezenet
            width = layer.in_channels
        else:
            continue
        parent, _, child = name.rpartition(".")
        setattr(module.get_submodule(parent), child, nn.Identity())
        return width
    raise InputError(f"{type(module).__name__} has no layer with 1000 outputs that could be its classifier")


def _timm(name: str, weights: str) -> Built:
    try:
        import timm
    except ImportError as error:
        raise InputError(f'timm:{name} needs timm: pip install "contml[timm]"') from error
    if weights not in ("none", "DEFAULT"):
        raise InputError(f"timm:{name} has no weights '{weights}'; allowed: none, DEFAULT or a local file")
    if not timm.is_model(name):
        raise InputError(
            f"unknown backbone 'timm:{name}'; {did_you_mean(name, timm.list_models(), 'see timm.list_models()')}"
        )
    try:
        module = timm.create_model(name, pretrained=weights != "none", num_classes=0)
    except Exception as error:  # timm downloads through several libraries, each with errors of its own
        if weights == "none":
            raise
        from huggingface_hub import constants

        raise _not_downloaded(f"pretrained weights of timm:{name}", constants.HF_HUB_CACHE, error) from error
    config: Any = module.pretrained_cfg
    return Built(module, width_of(module, config["input_size"][-1]), (tuple(config["mean"]), tuple(config["std"])))


def _imported(spec: str) -> nn.Module:
    try:
        factory = import_by_name(spec)
        module = factory() if callable(factory) else None
    except Exception as error:  # whatever a user's own module raises
        raise InputError(f"backbone '{spec}' cannot be imported ({type(error).__name__}: {line(error)})") from error
    if not isinstance(module, nn.Module):
        raise InputError(f"backbone '{spec}' is no function that returns a torch.nn.Module")
    return module


def width_of(module: nn.Module, *sizes: int) -> int:
    """The width of a module's features."""
    return dry_run(module, lambda features: as_rows(features).shape[1], *sizes)


def dry_run(module: nn.Module, read: Callable[[Any], Found], *sizes: int) -> Found:
    """What `read` finds in a module's output for one image of the first size that it can read.

    Raises:
        InputError: it can read none of these, or its output is not what a backbone's should be.
    """
    first = next(module.parameters(), torch.empty(0))
    reason = ""
    module.eval()
    for size in sizes or (224, 64, 128, 256, 96, 32, 384, 512):
        try:
            with torch.inference_mode():
                return read(module(torch.zeros(1, 3, size, size, dtype=first.dtype, device=first.device)))
        except (RuntimeError, AssertionError, ValueError) as error:
            reason = reason or f"images of {size} x {size} pixels: {line(error)}"
            if isinstance(error, InputError):
                break
    raise InputError(f"backbone {type(module).__name__} cannot be used ({reason})")


def as_rows(features: Any) -> Tensor:
    """Features as `[B, width]`; a pooled map `[B, width, 1, 1]` is one."""
    if isinstance(features, Tensor):
        rows: Tensor = features
        if rows.ndim == 4 and rows.shape[2:] == (1, 1):
            rows = rows.flatten(1)
        if rows.ndim == 2:
            return rows
    got = list(features.shape) if isinstance(features, Tensor) else f"a {type(features).__name__}"
    raise InputError(f"a backbone returns features of shape [B, width]; this one returned {got}")


def _not_downloaded(what: str, cache: str, error: Exception) -> InputError:
    return InputError(
        f"could not download {what} ({line(error)}); it would be cached under {cache}; "
        "without a network, weights may be a local file"
    )
