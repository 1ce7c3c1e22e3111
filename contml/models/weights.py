"""Weights from local files: read without executing code, fitted to a backbone or a head; and the network that they fit.

A file of torchvision is recognized by its name and the hash in its name, another one by its keys.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import re
from collections.abc import Mapping, Set
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from contml._support.errors import InputError, one_line
from contml.models.backbones import BACKBONES, FILES, build

#: The addresses of files of weights that configs name.
_ADDRESSES = {"bn_inception-52deb4733.pth": "http://data.lip6.fr/cadene/pretrainedmodels/bn_inception-52deb4733.pth"}
# Names of the classifiers in checkpoints, which a backbone no longer has.
_CLASSIFIERS = ("fc.", "classifier.", "head.", "heads.", "head_dist.", "last_linear.", "aux1.", "aux2.", "AuxLogits.")


def names_a_file(weights: str) -> bool:
    """Return True if `weights` is a file, False if it is the name of published weights."""
    return weights.endswith(FILES) or "/" in weights or "\\" in weights


def read(file: Path) -> dict[str, Tensor]:
    """Return the state dict in a file. No code in the file is executed."""
    subject = f"weights {file}"
    if file.is_dir():
        raise InputError(subject, "a folder", f"must be a file that ends in {', '.join(FILES)}")
    if not file.is_file():
        address = _ADDRESSES.get(file.name)
        hint = f"download it from {address}, or set weights=none" if address else ""
        raise InputError(subject, "no such file", hint=hint)
    if file.suffix not in FILES:
        raise InputError(subject, f"suffix {file.suffix!r}", f"must end in {', '.join(FILES)}")
    try:
        if file.suffix == ".safetensors":
            return load_file(file)
        state = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:  # its text advises to load the file without this check
        hint = "save the state dict of the network alone, or download the file again"
        got = "cannot be read as weights (no file of PyTorch, or one that holds more than tensors)"
        raise InputError(subject, got, hint=hint) from error
    except (OSError, RuntimeError, EOFError, ValueError, SafetensorError) as error:
        hint = "if it was cut short, download or copy it again"
        raise InputError(subject, f"cannot be read as weights ({one_line(error)})", hint=hint) from error
    for key in ("state_dict", "model"):  # the keys that training scripts use
        if isinstance(state, Mapping) and isinstance(state.get(key), Mapping):
            state = state[key]
    if not isinstance(state, Mapping) or not any(isinstance(value, Tensor) for value in state.values()):
        raise InputError(subject, "holds no state dict")
    return {str(key): value for key, value in state.items() if isinstance(value, Tensor)}


def is_captioner(state: Mapping[str, Tensor]) -> bool:
    """Return True if these are the weights of a captioner."""
    return "words" in state and any(key.startswith("decoder.") for key in state)


def network_of(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of the visual network if these are the weights of a captioner; else return all of them."""
    if not is_captioner(state):
        return state
    return {key.removeprefix("network."): value for key, value in state.items() if key.startswith("network.")}


def trained_options(file: Path) -> dict[str, Any]:
    """Return the options of the model whose weights a run saved in a file. Return an empty dict for other files."""
    if file.suffix != ".safetensors":
        return {}
    with safe_open(file, framework="pt") as reader:
        metadata = reader.metadata() or {}
    try:
        options = json.loads(metadata.get("contml", "{}"))["config"]["model"]
    except (ValueError, KeyError, TypeError):
        return {}
    return options if isinstance(options, dict) else {}


def check_options(file: Path, state: Mapping[str, Tensor], layers: nn.Module, **options: Any) -> None:
    """Refuse the weights of an embedding model with other options: its head would keep its random weights.

    Args:
        file: the file of the weights.
        state: the weights.
        layers: the head of this model.
        options: `dim`, `levels`, `pooling` and `normalize` of this model.

    Raises:
        InputError: the file is a checkpoint of an embedding model, and an option or the shape of the head differs.
    """
    trained = trained_options(file)
    for name, value in options.items():
        if name in trained and trained[name] != value:
            got = f"trained with {name}={_yaml(trained[name])}, but {name}={_yaml(value)} here"
            raise InputError(f"weights {file}", got, hint=f"set model.{name}={_yaml(trained[name])}")
    if not all(key.startswith(("backbone.", "head.")) for key in state):
        return
    shapes = {f"head.{key}": list(value.shape) for key, value in layers.state_dict().items()}
    saved = {key: list(value.shape) for key, value in state.items() if key.startswith("head.")}
    if shapes != saved and saved and shapes:
        hint = "set model.dim and model.levels"
        raise InputError(f"weights {file}", f"the head is {saved}", f"must be {shapes}", hint)


def _yaml(value: Any) -> str:
    return json.dumps(value).replace('"', "")


def load_backbone(
    backbone: nn.Module, state: dict[str, Tensor], file: Path, name: str, removed: Set[str] = frozenset()
) -> None:
    """Load a state dict whose keys may have a prefix, and which may contain the classifier.

    Args:
        backbone: the module that gets the weights.
        state: the weights.
        file: the file of the weights, for errors.
        name: the name of the backbone, for errors.
        removed: keys of other parts that the backbone no longer has.
    """
    own = backbone.state_dict()
    problems = misfits(own, state, removed)
    if problems:
        found = fitting(state)
        hint = "" if found is None else f"they fit {found.backbone}: set model.backbone={found.backbone}"
        raise InputError(f"weights {file}", "; ".join(problems), f"must fit the backbone {name}", hint)
    saved = _renamed(own, state)
    kept = type(own)((key, saved[key]) for key in own if key in saved)
    kept._metadata = own._metadata  # type: ignore[attr-defined]  # some models ask for the version of their state dict
    backbone.load_state_dict(kept, strict=False)


def misfits(own: Mapping[str, Tensor], state: dict[str, Tensor], removed: Set[str] = frozenset()) -> list[str]:
    """Return the keys and shapes of a state dict that do not fit a backbone, by kind. Return an empty list if it fits.

    Args:
        own: the state dict of the backbone.
        state: the weights, whose keys may have a prefix, and which may contain the classifier.
        removed: keys of other parts that the backbone no longer has.
    """
    saved = _renamed(own, state)
    counters = "num_batches_tracked"  # absent from old files, and not needed
    missing = [key for key in own if key not in saved and not key.endswith(counters)]
    unexpected = [key for key in saved if key not in own and key not in removed and not key.startswith(_CLASSIFIERS)]
    differing = [key for key in own if key in saved and saved[key].shape != own[key].shape]
    shapes = [f"{key} {list(saved[key].shape)} for {list(own[key].shape)}" for key in differing]
    kinds = {"missing": missing, "unexpected": unexpected, "of another shape": shapes}
    names = {kind: ", ".join([*keys[:3], *["..."] * (len(keys) > 3)]) for kind, keys in kinds.items() if keys}
    return [f"{len(kinds[kind])} {kind} ({examples})" for kind, examples in names.items()]


def _renamed(own: Mapping[str, Tensor], state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return a state dict with the names of a backbone."""
    # torchvision's DenseNet files use the names of an older version: norm.1 instead of norm1.
    state = {re.sub(r"(denselayer\d+\.(?:norm|conv))\.([12])\.", r"\1\2.", key): value for key, value in state.items()}
    prefixes = {"": None}  # a dict as an ordered set; in a tie, no prefix wins
    for key in state:  # "module.", "module.encoder.", "model._orig_mod.module."
        parts = key.split(".")
        prefixes.update({".".join(parts[:n]) + ".": None for n in range(1, min(len(parts), 6))})
    prefix = max(prefixes, key=lambda p: sum(p + key in state for key in own))
    saved = {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}
    # Files converted from Caffe may hold the vectors of batch norm as [1, C].
    return saved | {key: saved[key][0] for key in own if key in saved and saved[key].shape == (1, *own[key].shape)}


def load_head(head: nn.Module, state: dict[str, Tensor]) -> bool:
    """Load the head of an embedding model's own checkpoint, and return True.

    For the file of another model, keep the new head and return False.
    """
    expected = head.state_dict()
    saved = {key: state[f"head.{key}"] for key in expected if f"head.{key}" in state}
    # Without the prefix, the file is not of this model: its head is a classifier.
    is_own = any(key.startswith("backbone.") for key in state)
    if fits := is_own and all(key in saved and saved[key].shape == each.shape for key, each in expected.items()):
        head.load_state_dict(saved)
    return fits


#: The network if the user names no file: small, and good at images of many kinds. These are its first weights. Later
#: weights were trained longer with label smoothing, and their features are worse without fine-tuning.
DEFAULT_BACKBONE, DEFAULT_WEIGHTS = "mobilenet_v2", "IMAGENET1K_V1"
#: The hash in the name of a file of torchvision.
_HASHED = re.compile(r"-([0-9a-f]{8,})\.pth$")
#: The side of images in pixels if torchvision names none.
_SIDE = 224


class Architecture(NamedTuple):
    """A backbone by its name in a config, and the side of its images in pixels."""

    backbone: str
    side: int


def default_file() -> tuple[Path, str]:
    """Return the place where torchvision keeps the weights of the default network, and their address."""
    from torchvision import models  # here: it takes a second to import

    url = models.get_model_weights(DEFAULT_BACKBONE)[DEFAULT_WEIGHTS].url
    return Path(torch.hub.get_dir(), "checkpoints", url.rpartition("/")[2]), url


def side_of(backbone: str) -> int:
    """Return the side in pixels of the images that a network was published with, by its name in a config."""
    if backbone.startswith("timm:") and find_spec("timm") is not None:
        from timm.models import get_pretrained_cfg, is_model

        name = backbone.removeprefix("timm:")
        config = get_pretrained_cfg(name) if is_model(name) else None
        return _SIDE if config is None else int(config.input_size[-1])
    return next((side for name, side in _published().values() if name == backbone), _SIDE)


def is_whole(file: Path) -> bool:
    """Return True if a file has the hash in its name. Return True if the name has no hash."""
    hashed = _HASHED.search(file.name)
    if hashed is None:
        return True
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest().startswith(hashed[1])


def architecture_of(file: Path) -> Architecture:
    """Return the network whose weights a file holds.

    Raises:
        InputError: the file cannot be read, is damaged, is a checkpoint of contml, fits no network, or fits another one
            than its name.
    """
    subject, published = f"weights {file}", _published()
    if file.is_file() and not is_whole(file):
        got = "damaged, or other weights than its name says: its content has not the hash in its name"
        raise InputError(subject, got, hint="download it again, or rename it")
    state = network_of(read(file))
    if trained_options(file):
        got, hint = "a checkpoint of contml", "take the network of a run with backbone=RUN in place of --weights"
        raise InputError(subject, got, hint=hint)
    if file.name in published:
        return Architecture(*published[file.name])
    found = fitting(state)
    if found is not None:
        return found
    got = f"fits no network of torchvision ({len(state)} tensors, the first is {next(iter(state))})"
    raise InputError(subject, got, hint="name its network: model.backbone=timm:NAME or package.module:callable")


def fitting(state: dict[str, Tensor]) -> Architecture | None:
    """Return the first network, of contml or torchvision, that weights fit. Return None if none fits."""
    side_by_name: dict[str, int] = {}
    for name, side in _published().values():
        side_by_name.setdefault(name, side)
    for name in [*BACKBONES, *side_by_name]:
        if name.startswith("regnet") and not any("trunk_output" in key for key in state):
            continue
        if not misfits(_shapes(name), state):
            return Architecture(name, side_by_name.get(name, _SIDE))
    return None


def _shapes(name: str) -> dict[str, Tensor]:
    """Return the state dict of a network without its values."""
    # The constructor of RegNets computes with values. The device "meta" has only shapes, without memory.
    with torch.device("cpu" if name.startswith("regnet") else "meta"):
        return build(name, "none").backbone.state_dict()


def _published() -> dict[str, tuple[str, int]]:
    """Return the network and the side of its images for each file of torchvision's registry."""
    from torchvision import models

    found: dict[str, tuple[str, int]] = {}
    for name in models.list_models(module=models):
        for entry in models.get_model_weights(name):
            crop: Any = entry.transforms.keywords["crop_size"]
            found[entry.url.rpartition("/")[2]] = name, int(crop[0] if isinstance(crop, list) else crop)
    return found
