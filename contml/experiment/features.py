"""`contml features`: the backbone features of all images of an experiment, in a file."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from contml._support.errors import InputError
from contml._support.files import write
from contml.data.features import Floats, check_format, write_features
from contml.data.split import Split
from contml.evaluation.embed import embed
from contml.experiment.building import Experiment

#: Images of a part; a run that was stopped loses at most so many.
_PART = 512


class Extracted(NamedTuple):
    """What was written."""

    items: int
    dim: int
    resumed: int  # images whose features were on disk from a run that was stopped


def extract_features(experiment: Experiment, out: Path, progress: Callable[[int], None] = lambda _: None) -> Extracted:
    """Write the features of the backbone for every image of an experiment's splits: centre crops, no head.

    Parts are kept beside the file until all are there, so that a run that was stopped goes on where it was. `progress`
    gets the number of images finished so far.

    Raises:
        InputError: the file cannot be written there, or an image cannot be read.
    """
    check_format(out)
    if out.exists():
        raise InputError(f"{out} exists already; name another file")
    task = experiment.build_task()
    splits = {"train": task.train, "test": task.test} | ({"val": task.val} if task.val is not None else {})
    if task.train.feature_dim is not None:
        raise InputError("these data are features already; leave out images.features")
    model = experiment.build_model(task)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    images = experiment.build_images()
    model.check_size(images.crop)
    backbone = _Backbone(model).to(device)
    parts = out.with_name(f".{out.name}.parts") / _key(experiment, splits)
    finished = resumed = 0
    values: list[Floats] = []
    try:
        for name, split in splits.items():
            for start in range(0, len(split), _PART):
                rows = range(start, min(start + _PART, len(split)))
                path = parts / f"{name}-{start:09d}.npy"
                if path.is_file():
                    values.append(np.load(path))
                    resumed += len(rows)
                else:
                    values.append(_features(backbone, split, images, rows, device))
                    write(path, lambda temporary, part=values[-1]: np.save(temporary, part))  # type: ignore[misc]
                finished += len(rows)
                progress(finished)
    finally:
        images.close()
    names = [name for split in splits.values() for name in split.names]
    of_split = [name for name, split in splits.items() for _ in range(len(split))]
    whole = np.concatenate(values)
    write_features(out, names, of_split, whole)
    shutil.rmtree(parts.parent, ignore_errors=True)
    return Extracted(len(whole), whole.shape[1], resumed)


class _Backbone(torch.nn.Module):
    """The features of a model, without its head."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.model.features(images)
        return features


def _features(backbone: torch.nn.Module, split: Split, images: Any, rows: range, device: torch.device) -> Floats:
    found, missing = embed(backbone, split, images, rows, device=device)
    if len(missing):
        name = split.name(int(missing[0]))
        raise InputError(f"{name}: cannot be decoded ({len(missing)} such images); fix or remove it, then go on")
    values: Floats = found[list(rows)].numpy()
    return values


def _key(experiment: Experiment, splits: dict[str, Split]) -> str:
    """A hash of the images and of all that their features depend on: parts of another run are not mixed in."""
    values = experiment.values
    content = [values["task"], values["model"], values["seed"], {name: list(s.names) for name, s in splits.items()}]
    content.append({key: values["images"][key] for key in ("resize", "crop")})
    return hashlib.sha256(json.dumps(content, default=str).encode()).hexdigest()[:16]
