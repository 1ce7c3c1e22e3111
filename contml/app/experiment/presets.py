"""Presets of your own data: which network is trained, and how. One is chosen where the user names none.

features    a head on the features of a pretrained network, which is frozen: minutes for thousands of photographs
finetune    all weights of the pretrained network: slow without a GPU
quick       a small network from scratch, at 64 pixels: for drawings and small images
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from contml._support.errors import InputError

if TYPE_CHECKING:
    from contml.models.weights import Architecture

PRESETS = ("features", "finetune", "quick")
#: Overrides that name the network, or what is trained on: then no preset is chosen.
_FEATURES = "images.features="
_NETWORK = ("backbone=", "model=", "model.backbone=", "model.weights=", _FEATURES)


class Preset(NamedTuple):
    """What was chosen.

    Attributes:
        name: one of `PRESETS`; "" where the config or an override names the network.
        changes: to the config of your own data.
        reason: in words, for the user.
    """

    name: str = ""
    changes: tuple[str, ...] = ()
    reason: str = ""


def choose(name: str | None, weights: Path | None, config: str | None, overrides: Sequence[str]) -> Preset:
    """The preset of your own data.

    Args:
        name: the one that the user named, if any.
        weights: the file that the user named, if any.
        config: the config that the user named, if any.
        overrides: changes to the config, which may name the network.

    Raises:
        InputError: the file cannot be read, or fits no network; or the preset takes no file.
    """
    if name == "quick" and weights is not None:
        hint = "omit one of them, or use --preset features"
        raise InputError("--weights", "used with --preset quick, which trains a small network from scratch", hint=hint)
    naming = [o for o in overrides if o.startswith(_NETWORK)]
    if name is None and weights is None and (config is not None or naming):
        is_features = (
            config is None and all(o.startswith(_FEATURES) for o in naming) and naming[-1] != f"{_FEATURES}null"
        )
        return Preset(changes=("model.backbone=features",) if is_features else ())
    if name == "quick":
        return Preset("quick", (), "a small network from scratch")
    from contml.models.weights import (  # here: it imports torch
        DEFAULT_BACKBONE,
        DEFAULT_WEIGHTS,
        Architecture,
        architecture_of,
        default_file,
        is_whole,
        side_of,
    )

    network, source = Architecture(DEFAULT_BACKBONE, 224), DEFAULT_WEIGHTS
    named = [o.removeprefix("model.backbone=") for o in overrides if o.startswith("model.backbone=")]
    if named:
        network, source = Architecture(named[-1], side_of(named[-1])), "DEFAULT"
    if weights is not None:
        network = network if named else architecture_of(weights.expanduser())
        source = str(weights)
    elif name is None:
        file, address = default_file()
        if not file.is_file() or not is_whole(file):
            damaged = f"; {file} is damaged, remove it" if file.is_file() else ""
            hint = f"for photographs give a pretrained network, such as --weights {file.name} (from {address})"
            return Preset("quick", (), f"a small network from scratch; {hint}{damaged}")
    if name == "finetune":
        return Preset(name, _finetune(network, source), f"all of {network.backbone} is trained, from {source}")
    return Preset("features", _features(network, source), f"a head on {network.backbone}, frozen, with {source}")


def _features(network: Architecture, weights: str) -> tuple[str, ...]:
    size = (f"images.resize={network.side}", f"images.crop={network.side}")
    images = (*size, "images.flip=none", "transform=null")  # the same in every epoch: features are kept
    # Of normalized features more can be found: benchmarks/results/graded_features.md.
    head = ("model.frozen=true", "model.dim=128", "model.normalize=true", "training.evaluate_every=2")
    return (*_network(network, weights), *head, *images)


def _finetune(network: Architecture, weights: str) -> tuple[str, ...]:
    """A network that knows photographs learns slowly, its new head fast."""
    size = (f"images.resize={network.side * 8 // 7}", f"images.crop={network.side}")
    images = (*size, "transform.scale_jitter=12", "transform.shift=8")
    return (*_network(network, weights), *images, "optimizer.lr=1e-4", "optimizer.head_lr=1e-3")


def _network(network: Architecture, weights: str) -> tuple[str, ...]:
    return f"model.backbone={network.backbone}", f"model.weights={json.dumps(weights)}", "model.head_start=pca"
