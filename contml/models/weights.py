"""Weights from local files: read without executing code, and fitted to a backbone or a head."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from contml._support.errors import InputError, one_line

FILES = (".safetensors", ".pth", ".pt")
#: Where to get files of weights that configs name.
_ADDRESSES = {"bn_inception-52deb4733.pth": "http://data.lip6.fr/cadene/pretrainedmodels/bn_inception-52deb4733.pth"}
# Names of the classifiers in checkpoints, which a backbone no longer has.
_CLASSIFIERS = ("fc.", "classifier.", "head.", "heads.", "head_dist.", "last_linear.", "aux1.", "aux2.", "AuxLogits.")


def names_a_file(weights: str) -> bool:
    """Returns whether `weights` is a file and not the name of published weights."""
    return weights.endswith(FILES) or "/" in weights or "\\" in weights


def read(file: Path) -> dict[str, Tensor]:
    """Returns the state dict in a file; no code in the file is executed."""
    subject = f"weights {file}"
    if file.is_dir():
        raise InputError(subject, "a folder", f"must be a file that ends in {', '.join(FILES)}")
    if not file.is_file():
        address = _ADDRESSES.get(file.name)
        raise InputError(
            subject, "no such file", hint=f"download it from {address}, or set weights=none" if address else ""
        )
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
    """Whether these are the weights of a captioner."""
    return "words" in state and any(key.startswith("decoder.") for key in state)


def network_of(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights of the visual network if these are the weights of a captioner; else all of them."""
    if not is_captioner(state):
        return state
    return {key.removeprefix("network."): value for key, value in state.items() if key.startswith("network.")}


def trained_options(file: Path) -> dict[str, Any]:
    """The options of the model whose weights a run saved in a file; empty for other files."""
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
        options: `dim`, `levels`, `head` and `normalize` of this model.

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
        raise InputError(
            f"weights {file}", f"the head is {saved}", f"must be {shapes}", "set model.dim and model.levels"
        )


def _yaml(value: Any) -> str:
    return json.dumps(value).replace('"', "")


def load_backbone(
    backbone: nn.Module, state: dict[str, Tensor], file: Path, name: str, removed: Set[str] = frozenset()
) -> None:
    """Loads a state dict whose keys may have a prefix, and which may contain the classifier.

    Args:
        backbone: where the weights go.
        state: the weights.
        file: the file of the weights, for errors.
        name: the name of the backbone, for errors.
        removed: keys of other parts that the backbone no longer has.
    """
    own = backbone.state_dict()
    problems = misfits(own, state, removed)
    if problems:
        from contml.models.architectures import fitting  # here: it imports this module

        found = fitting(state)
        hint = "" if found is None else f"they fit {found.backbone}: set model.backbone={found.backbone}"
        raise InputError(f"weights {file}", "; ".join(problems), f"must fit the backbone {name}", hint)
    saved = _renamed(own, state)
    kept = type(own)((key, saved[key]) for key in own if key in saved)
    kept._metadata = own._metadata  # type: ignore[attr-defined]  # some models ask for the version of their state dict
    backbone.load_state_dict(kept, strict=False)


def misfits(own: Mapping[str, Tensor], state: dict[str, Tensor], removed: Set[str] = frozenset()) -> list[str]:
    """Returns how a state dict does not fit a backbone, by kind; empty if it fits.

    Args:
        own: the state dict of the backbone.
        state: the weights, whose keys may have a prefix, and which may contain the classifier.
        removed: keys of other parts that the backbone no longer has.
    """
    saved = _renamed(own, state)
    counters = "num_batches_tracked"  # absent from old files, and not needed
    missing = [key for key in own if key not in saved and not key.endswith(counters)]
    unexpected = [key for key in saved if key not in own and key not in removed and not key.startswith(_CLASSIFIERS)]
    shapes = [
        f"{key} {list(saved[key].shape)} for {list(own[key].shape)}"
        for key in own
        if key in saved and saved[key].shape != own[key].shape
    ]
    kinds = {"missing": missing, "unexpected": unexpected, "of another shape": shapes}
    return [
        f"{len(keys)} {kind} ({', '.join(keys[:3])}{', ...' if len(keys) > 3 else ''})"
        for kind, keys in kinds.items()
        if keys
    ]


def _renamed(own: Mapping[str, Tensor], state: dict[str, Tensor]) -> dict[str, Tensor]:
    """A state dict with the names of a backbone."""
    # torchvision's DenseNet files use the names of an older version: norm.1 instead of norm1.
    state = {re.sub(r"(denselayer\d+\.(?:norm|conv))\.([12])\.", r"\1\2.", key): value for key, value in state.items()}
    prefix = max(_prefixes(state), key=lambda p: sum(p + key in state for key in own))
    saved = {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}
    # Files converted from Caffe may hold the vectors of batch norm as [1, C].
    return saved | {key: saved[key][0] for key in own if key in saved and saved[key].shape == (1, *own[key].shape)}


def _prefixes(state: dict[str, Tensor]) -> list[str]:
    """Returns "" and the first one or two parts of any key: "module.", "backbone.", "module.encoder."."""
    prefixes = {"": None}  # a dict as an ordered set; in a tie, no prefix wins
    for key in state:
        parts = key.split(".")
        prefixes.update({".".join(parts[:n]) + ".": None for n in (1, 2) if n < len(parts)})
    return [*prefixes]


def load_head(head: nn.Module, state: dict[str, Tensor]) -> bool:
    """Loads the head of an embedding model's own checkpoint; for another model's file the new head is kept.

    Returns whether it was loaded.
    """
    expected = head.state_dict()
    saved = {key: state[f"head.{key}"] for key in expected if f"head.{key}" in state}
    # Without the prefix, the file is not of this model: its head is a classifier.
    fits = any(key.startswith("backbone.") for key in state) and all(
        key in saved and saved[key].shape == value.shape for key, value in expected.items()
    )
    if fits:
        head.load_state_dict(saved)
    return fits
