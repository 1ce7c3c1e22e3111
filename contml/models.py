"""An embedding model: a backbone by name, and one linear layer on its features.

Backbones are the library's own (`BACKBONES`), torchvision's classification models without their classifier, timm's
(`timm:NAME`), or any module of the user's (`package.module:callable`; from Python also the module itself).
"""

from __future__ import annotations

import difflib
import importlib
import pickle
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torchvision import models as torchvision_models

from contml.contracts import InputError

# A config can only name a backbone, so this option is a str at run time; Python code may pass the module itself.
if TYPE_CHECKING:
    Backbone: TypeAlias = "str | nn.Module"
else:
    Backbone = str

_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_FILES = (".safetensors", ".pth", ".pt")
# What checkpoints call the classifier (and auxiliary classifiers) that a backbone no longer has.
_CLASSIFIERS = ("fc.", "classifier.", "head.", "heads.", "head_dist.", "last_linear.", "aux1.", "aux2.", "AuxLogits.")


class EmbeddingModel(nn.Module):
    """Images `[B, 3, H, W]` to embeddings `[B, dim]`: a backbone, then the linear layer `head`.

    Images are uint8, or floats in 0..1; the model normalises them itself, with the mean and std that its backbone was
    published with (ImageNet's for nearly all). Raises `InputError` where a name or a file does not fit.

    Args:
        backbone: "small_cnn" (for 64-pixel quick starts), a torchvision classification model ("resnet18"), "timm:NAME",
            or an import string "package.module:callable" of your own: a function that returns a module whose output has
            the shape `[B, width]`.
        dim: Length of an embedding; null leaves the linear layer away: the backbone's features are the embedding, as
            they come (with training.epochs=0, an evaluation of published features).
        weights: "none"; a name of torchvision's registry ("DEFAULT", "IMAGENET1K_V1"; for timm only "DEFAULT"), which
            is downloaded once; or a local file (.safetensors, .pth, .pt): the backbone's state dict, or a checkpoint of
            this model, whose head is taken over where its shape fits.
        normalize: Scale embeddings to length 1.
        freeze_batch_norm: Keep the running statistics of batch norm as loaded, in training as well; scales and shifts
            still learn.
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
    ) -> None:
        super().__init__()
        if dim is not None and dim < 1:
            raise InputError(f"model.dim={dim}: an embedding has at least 1 number")
        self.normalize = normalize
        self.freeze_batch_norm = freeze_batch_norm
        file = Path(weights).expanduser() if _names_a_file(weights) else None
        state = None if file is None else _read(file)  # before anything is built: a typo should cost nothing
        self.backbone, self.feature_dim, (mean, std) = _build(backbone, "none" if file else weights)
        self.embedding_dim = dim or self.feature_dim
        self.head = _head(self.feature_dim, dim) if dim else nn.Identity()
        self.register_buffer("mean", torch.tensor(mean).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(1, 3, 1, 1), persistent=False)
        if file is not None and state is not None:
            _load_backbone(self.backbone, state, file)
            if isinstance(self.head, nn.Linear):
                _load_head(self.head, state)
        self.train()

    def features(self, images: Tensor) -> Tensor:
        """Backbone features `[B, width]` of images `[B, 3, H, W]`: uint8, or floats in 0..1."""
        x = images.to(self.mean.dtype)
        if images.dtype == torch.uint8:
            x = x / 255
        return _as_rows(self.backbone((x - self.mean) / self.std))

    def embed(self, features: Tensor) -> Tensor:
        """Embeddings `[B, dim]` of backbone features `[B, width]`, real or made."""
        embeddings: Tensor = self.head(features)
        return F.normalize(embeddings, dim=1) if self.normalize else embeddings

    def forward(self, images: Tensor, with_features: bool = False) -> Tensor | tuple[Tensor, Tensor]:
        """Embeddings `[B, dim]` of images `[B, 3, H, W]`: uint8, or floats in 0..1; with_features: the features too."""
        # Both from one call: data parallelism sees only what goes through forward.
        features = self.features(images)
        embeddings = self.embed(features)
        return (embeddings, features) if with_features else embeddings

    def backbone_parameters(self) -> Iterator[nn.Parameter]:
        """The parameters of the backbone, for a learning rate of their own."""
        return self.backbone.parameters()

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
            raise InputError(f"the backbone cannot read images of {size} x {size} pixels ({_line(error)})") from error
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


def _head(width: int, dim: int) -> nn.Linear:
    head = nn.Linear(width, dim)
    nn.init.kaiming_normal_(head.weight, mode="fan_out")
    nn.init.zeros_(head.bias)
    return head


# -- backbones ---------------------------------------------------------------------------------------------------------


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


#: Backbones of this library: functions without arguments that return a module with features `[B, width]`.
BACKBONES: dict[str, Callable[[], nn.Module]] = {
    "small_cnn": SmallCNN,
}


def backbone_names() -> list[str]:
    """Every backbone that goes by a plain name: this library's, then torchvision's. timm's are `timm:NAME`."""
    return [*BACKBONES, *torchvision_models.list_models(module=torchvision_models)]


class _Built(NamedTuple):
    backbone: nn.Module
    width: int
    statistics: tuple[tuple[float, ...], tuple[float, ...]]  # mean, std of its input


def _build(backbone: str | nn.Module, weights: str) -> _Built:
    if isinstance(backbone, nn.Module):
        _only_files(f"a {type(backbone).__name__}", weights)
        return _Built(backbone, _width(backbone), _IMAGENET)
    if backbone in BACKBONES:
        _only_files(backbone, weights)
        module = BACKBONES[backbone]()
        return _Built(module, _width(module), _IMAGENET)
    if backbone.startswith("timm:"):
        return _timm(backbone.removeprefix("timm:"), weights)
    if ":" in backbone:
        _only_files(backbone, weights)
        module = _imported(backbone)
        return _Built(module, _width(module), _IMAGENET)
    if backbone not in backbone_names():
        hint = _did_you_mean(backbone, backbone_names()) or (
            "; allowed: small_cnn, a torchvision model, timm:NAME or package.module:callable"
        )
        raise InputError(f"unknown backbone '{backbone}'{hint}")
    return _torchvision(backbone, weights)


def _torchvision(name: str, weights: str) -> _Built:
    registry = torchvision_models.get_model_weights(name)
    known = [*registry.__members__]
    if weights != "none" and weights not in known:
        hint = _did_you_mean("DEFAULT" if weights == "pretrained" else weights, known)
        raise InputError(f"{name} has no weights '{weights}'; allowed: none, {', '.join(known)} or a local file{hint}")
    entry = None if weights == "none" else registry[weights]
    # Auxiliary classifiers only help to train a classifier, and make the output of these two a tuple. Their published
    # weights were trained on inputs of other statistics, which transform_input restores.
    special = {"transform_input": True} if name in ("googlenet", "inception_v3") else {}
    if special and entry is None:
        special |= {"aux_logits": False, "init_weights": True}
    try:
        module = torchvision_models.get_model(name, weights=entry, **special)
    except (OSError, RuntimeError) as error:  # URLError is an OSError; a broken download is a RuntimeError
        if entry is None:
            raise
        raise _not_downloaded(f"weights {weights} of {name} from {entry.url}", torch.hub.get_dir(), error) from error
    if special:  # published weights come with auxiliary classifiers, and torchvision keeps one of the two models'
        module.aux_logits, module.AuxLogits = False, None
    preset = (entry or registry.DEFAULT).transforms()
    return _Built(module, _cut_classifier(module), (tuple(preset.mean), tuple(preset.std)))


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


def _timm(name: str, weights: str) -> _Built:
    try:
        import timm
    except ImportError as error:
        raise InputError(f'timm:{name} needs timm: pip install "contml[timm]"') from error
    if weights not in ("none", "DEFAULT"):
        raise InputError(f"timm:{name} has no weights '{weights}'; allowed: none, DEFAULT or a local file")
    if not timm.is_model(name):
        raise InputError(f"unknown backbone 'timm:{name}'{_did_you_mean(name, timm.list_models(), 'timm:')}")
    try:
        module = timm.create_model(name, pretrained=weights != "none", num_classes=0)
    except Exception as error:  # timm downloads through several libraries, each with errors of its own
        if weights == "none":
            raise
        from huggingface_hub import constants

        raise _not_downloaded(f"pretrained weights of timm:{name}", constants.HF_HUB_CACHE, error) from error
    config: Any = module.pretrained_cfg
    return _Built(module, _width(module, config["input_size"][-1]), (tuple(config["mean"]), tuple(config["std"])))


def _imported(spec: str) -> nn.Module:
    path, _, attribute = spec.partition(":")
    try:
        factory = getattr(importlib.import_module(path), attribute)
        module = factory() if callable(factory) else None
    except Exception as error:  # whatever a user's own module raises
        raise InputError(f"backbone '{spec}' cannot be imported ({type(error).__name__}: {_line(error)})") from error
    if not isinstance(module, nn.Module):
        raise InputError(f"backbone '{spec}' is no function that returns a torch.nn.Module")
    return module


def _width(module: nn.Module, *sizes: int) -> int:
    """The width of a module's features, by a dry run on one image of the first size that it can read."""
    first = next(module.parameters(), torch.empty(0))
    reason = ""
    module.eval()
    for size in sizes or (224, 64, 128, 256, 96, 32, 384, 512):
        try:
            with torch.inference_mode():
                return _as_rows(module(torch.zeros(1, 3, size, size, dtype=first.dtype, device=first.device))).shape[1]
        except (RuntimeError, AssertionError, ValueError) as error:
            reason = reason or f"images of {size} x {size} pixels: {_line(error)}"
            if isinstance(error, InputError):
                break
    raise InputError(f"backbone {type(module).__name__} cannot be used ({reason})")


def _as_rows(features: Any) -> Tensor:
    """Features as `[B, width]`; a pooled map `[B, width, 1, 1]` is one."""
    if isinstance(features, Tensor):
        rows: Tensor = features
        if rows.ndim == 4 and rows.shape[2:] == (1, 1):
            rows = rows.flatten(1)
        if rows.ndim == 2:
            return rows
    got = list(features.shape) if isinstance(features, Tensor) else f"a {type(features).__name__}"
    raise InputError(f"a backbone returns features of shape [B, width]; this one returned {got}")


# -- weights -----------------------------------------------------------------------------------------------------------


def _names_a_file(weights: str) -> bool:
    return weights.endswith(_FILES) or "/" in weights or "\\" in weights


def _only_files(backbone: str, weights: str) -> None:
    if weights != "none":
        raise InputError(f"{backbone} has no weights '{weights}'; allowed: none or a local file ({', '.join(_FILES)})")


def _read(file: Path) -> dict[str, Tensor]:
    """The state dict in a file; nothing in the file is executed."""
    if not file.is_file():
        raise InputError(f"model.weights={file}: no such file")
    if file.suffix not in _FILES:
        raise InputError(f"model.weights={file}: a weights file ends in {', '.join(_FILES)}")
    try:
        if file.suffix == ".safetensors":
            return load_file(file)
        state = torch.load(file, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, ValueError, pickle.UnpicklingError, SafetensorError) as error:
        raise InputError(f"model.weights={file}: cannot be read as weights ({_line(error)})") from error
    for key in ("state_dict", "model"):  # where training scripts keep it
        if isinstance(state, Mapping) and isinstance(state.get(key), Mapping):
            state = state[key]
    if not isinstance(state, Mapping) or not any(isinstance(value, Tensor) for value in state.values()):
        raise InputError(f"model.weights={file}: holds no state dict")
    return {str(key): value for key, value in state.items() if isinstance(value, Tensor)}


def _load_backbone(backbone: nn.Module, state: dict[str, Tensor], file: Path) -> None:
    """Load a state dict whose keys may carry a prefix, and may hold the classifier that the backbone has no more."""
    # torchvision's DenseNet files have the names of an older version: norm.1 for norm1.
    state = {re.sub(r"(denselayer\d+\.(?:norm|conv))\.([12])\.", r"\1\2.", key): value for key, value in state.items()}
    own = backbone.state_dict()
    prefix = max(_prefixes(state), key=lambda p: sum(p + key in state for key in own))
    found = {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}
    counters = "num_batches_tracked"  # absent from old files, and of no consequence
    missing = [key for key in own if key not in found and not key.endswith(counters)]
    unexpected = [key for key in found if key not in own and not key.startswith(_CLASSIFIERS)]
    shapes = [
        f"{key} {list(found[key].shape)} for {list(own[key].shape)}"
        for key in own
        if key in found and found[key].shape != own[key].shape
    ]
    kinds = {"missing": missing, "unexpected": unexpected, "of another shape": shapes}
    problems = [
        f"{len(keys)} {kind} ({', '.join(keys[:3])}{', ...' if len(keys) > 3 else ''})"
        for kind, keys in kinds.items()
        if keys
    ]
    if problems:
        raise InputError(
            f"model.weights={file} does not fit the backbone {type(backbone).__name__}: {'; '.join(problems)}"
        )
    kept = type(own)((key, found[key]) for key in own if key in found)
    kept._metadata = own._metadata  # type: ignore[attr-defined]  # some models ask for the version of their state dict
    backbone.load_state_dict(kept, strict=False)


def _prefixes(state: dict[str, Tensor]) -> list[str]:
    """No prefix, or the first one or two parts of any key: "module.", "backbone.", "module.encoder."."""
    heads = {"": None}  # a dict as an ordered set: no prefix wins a draw
    for key in state:
        parts = key.split(".")
        heads.update({".".join(parts[:n]) + ".": None for n in (1, 2) if n < len(parts)})
    return [*heads]


def _load_head(head: nn.Linear, state: dict[str, Tensor]) -> None:
    """Take over the head of an embedding model's own checkpoint, where its shape fits; else the new one stays."""
    weight, bias = state.get("head.weight"), state.get("head.bias")
    own = any(key.startswith("backbone.") for key in state)
    if own and weight is not None and bias is not None and weight.shape == head.weight.shape:
        head.load_state_dict({"weight": weight, "bias": bias})


def _not_downloaded(what: str, cache: str, error: Exception) -> InputError:
    return InputError(
        f"could not download {what} ({_line(error)}); it would be cached under {cache}; "
        "without a network, model.weights may be a local file"
    )


def _did_you_mean(name: str, names: list[str], prefix: str = "") -> str:
    close = difflib.get_close_matches(name, names, n=3)
    return f"; did you mean {' or '.join(prefix + near for near in close)}?" if close else ""


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
