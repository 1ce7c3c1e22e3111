"""Weights from local files: read without executing anything, and fitted to a backbone or a head."""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping, Set
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from contml._support.errors import InputError

FILES = (".safetensors", ".pth", ".pt")
# What checkpoints call the classifier (and auxiliary classifiers) that a backbone no longer has.
_CLASSIFIERS = ("fc.", "classifier.", "head.", "heads.", "head_dist.", "last_linear.", "aux1.", "aux2.", "AuxLogits.")


def names_a_file(weights: str) -> bool:
    """Whether `model.weights` is a file, and not a name of a registry."""
    return weights.endswith(FILES) or "/" in weights or "\\" in weights


def read(file: Path) -> dict[str, Tensor]:
    """The state dict in a file; nothing in the file is executed."""
    if not file.is_file():
        raise InputError(f"weights {file}: no such file")
    if file.suffix not in FILES:
        raise InputError(f"weights {file}: a weights file ends in {', '.join(FILES)}")
    try:
        if file.suffix == ".safetensors":
            return load_file(file)
        state = torch.load(file, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, ValueError, pickle.UnpicklingError, SafetensorError) as error:
        raise InputError(f"weights {file}: cannot be read as weights ({line(error)})") from error
    for key in ("state_dict", "model"):  # where training scripts keep it
        if isinstance(state, Mapping) and isinstance(state.get(key), Mapping):
            state = state[key]
    if not isinstance(state, Mapping) or not any(isinstance(value, Tensor) for value in state.values()):
        raise InputError(f"weights {file}: holds no state dict")
    return {str(key): value for key, value in state.items() if isinstance(value, Tensor)}


def load_backbone(
    backbone: nn.Module, state: dict[str, Tensor], file: Path, name: str, gone: Set[str] = frozenset()
) -> None:
    """Load a state dict whose keys may carry a prefix, and may hold the classifier that the backbone has no more.

    `name` is what to call the backbone in an error, `gone` are keys of other parts that it has no more.
    """
    # torchvision's DenseNet files have the names of an older version: norm.1 for norm1.
    state = {re.sub(r"(denselayer\d+\.(?:norm|conv))\.([12])\.", r"\1\2.", key): value for key, value in state.items()}
    own = backbone.state_dict()
    prefix = max(_prefixes(state), key=lambda p: sum(p + key in state for key in own))
    found = {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}
    counters = "num_batches_tracked"  # absent from old files, and of no consequence
    missing = [key for key in own if key not in found and not key.endswith(counters)]
    unexpected = [key for key in found if key not in own and key not in gone and not key.startswith(_CLASSIFIERS)]
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
        raise InputError(f"weights {file}: does not fit the backbone {name}: {'; '.join(problems)}")
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


def load_head(head: nn.Module, state: dict[str, Tensor]) -> None:
    """Take over the head of an embedding model's own checkpoint, where its shape fits; else the new one stays."""
    own = head.state_dict()
    found = {key: state[f"head.{key}"] for key in own if f"head.{key}" in state}
    # A file without such a prefix is not of this model: its head is a classifier.
    if any(key.startswith("backbone.") for key in state) and all(
        key in found and found[key].shape == value.shape for key, value in own.items()
    ):
        head.load_state_dict(found)


def line(error: Exception) -> str:
    """An error in one line."""
    return " ".join(str(error).split())[:200] or type(error).__name__
