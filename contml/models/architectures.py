"""Which network a file of weights is of: by the name and the hash of a file of torchvision, or by its keys."""

from __future__ import annotations

import hashlib
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from contml._support.errors import InputError
from contml.models.backbones import BACKBONES, build
from contml.models.weights import misfits, network_of, read, trained_options

#: The network where the user names no file: small, and good at images of many kinds. Its first weights: features of
#: later ones, which were trained longer with label smoothing, are worse without fine-tuning.
DEFAULT_BACKBONE, DEFAULT_WEIGHTS = "mobilenet_v2", "IMAGENET1K_V1"
#: The hash in the name of a file of torchvision.
_HASHED = re.compile(r"-([0-9a-f]{8,})\.pth$")
#: Sides of images in pixels where torchvision names none.
_SIDE = 224
_DAMAGED = "damaged: its content has not the hash in its name"


class Architecture(NamedTuple):
    """A backbone by its name in a config, and the side of its images in pixels."""

    backbone: str
    side: int


def default_file() -> tuple[Path, str]:
    """Returns where torchvision keeps the weights of the default network, and their address."""
    from torchvision import models  # here: it takes a second to import

    url = models.get_model_weights(DEFAULT_BACKBONE)[DEFAULT_WEIGHTS].url
    return Path(torch.hub.get_dir(), "checkpoints", url.rpartition("/")[2]), url


def side_of(backbone: str) -> int:
    """Returns the side of the images in pixels that a network was published with, by its name in a config."""
    if backbone.startswith("timm:") and find_spec("timm") is not None:
        from timm.models import get_pretrained_cfg, is_model

        name = backbone.removeprefix("timm:")
        config = get_pretrained_cfg(name) if is_model(name) else None
        return _SIDE if config is None else int(config.input_size[-1])
    return next((side for name, side in _published().values() if name == backbone), _SIDE)


def is_whole(file: Path) -> bool:
    """Returns whether a file has the hash that its name says; True where it says none."""
    hashed = _HASHED.search(file.name)
    if hashed is None:
        return True
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest().startswith(hashed[1])


def architecture_of(file: Path) -> Architecture:
    """Returns the network whose weights a file holds.

    Raises:
        InputError: it cannot be read, is damaged, is a checkpoint of contml, fits no network, or another than its name
            says.
    """
    subject, published = f"weights {file}", _published()
    if file.is_file() and not is_whole(file):
        named, _ = published.get(file.name, ("", 0))
        raise InputError(subject, _not_whole(file, named), hint="download it again, or rename it")
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


def _not_whole(file: Path, named: str) -> str:
    """What is wrong with a file whose content has not the hash in its name, which may be that of a network."""
    try:
        state = network_of(read(file))
    except InputError:
        return _DAMAGED
    problems = misfits(_shapes(named), state) if named else []
    if not problems:
        return _DAMAGED
    found = fitting(state)
    other = "; ".join(problems) if found is None else f"they fit {found.backbone}"
    return f"not the weights of {named}, of which it has the name: {other}"


def fitting(state: dict[str, Tensor]) -> Architecture | None:
    """Returns the first network, of contml or torchvision, that weights fit; None: there is none."""
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
    """The state dict of a network without its values."""
    # The constructor of RegNets computes with values, which "meta" has not: shapes alone, without memory.
    with torch.device("cpu" if name.startswith("regnet") else "meta"):
        return build(name, "none").backbone.state_dict()


def _published() -> dict[str, tuple[str, int]]:
    """The network and the side of its images for each file of torchvision's registry."""
    from torchvision import models

    found: dict[str, tuple[str, int]] = {}
    for name in models.list_models(module=models):
        for entry in models.get_model_weights(name):
            crop: Any = entry.transforms.keywords["crop_size"]
            found[entry.url.rpartition("/")[2]] = name, int(crop[0] if isinstance(crop, list) else crop)
    return found
