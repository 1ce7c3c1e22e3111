"""`contml features`: the backbone features of all images of an experiment, in a file."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from contml._support.errors import InputError
from contml._support.tensors import load_tensors, save_tensors
from contml.data.features import Floats, check_format, write_features
from contml.data.split import Split
from contml.evaluation.embed import embed
from contml.experiment.building import Experiment

#: Images per part; an interrupted run loses at most this many.
_PART = 512


class Extracted(NamedTuple):
    """The number and dimension of the features that were written."""

    items: int
    dim: int
    resumed: int  # images whose features were on disk from an interrupted run


def extract_features(experiment: Experiment, out: Path, progress: Callable[[int], None] = lambda _: None) -> Extracted:
    """Write the backbone features of every image of an experiment's splits: centre crops, no head.

    Parts are kept beside the file until all are written, so that an interrupted run continues where it stopped.
    `progress` is called with the number of images finished so far.

    Raises:
        InputError: the file cannot be written there, or an image cannot be read.
    """
    check_format(out)
    if out.exists():
        raise InputError(str(out), "exists already", hint="choose another file")
    task = experiment.read_task()
    splits = task.splits
    if task.train.feature_dim is not None:
        raise InputError("images.features", "the data are features already", hint="omit it")
    model = experiment.build_model(task)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    images = experiment.build_images()
    model.check_size(images.crop)
    model.head, model.normalize = torch.nn.Identity(), False  # its output is now the features
    model = model.to(device)
    parts = out.with_name(f".{out.name}.parts") / _key(experiment, splits)
    finished = resumed = 0
    values: list[Floats] = []
    try:
        for name, split in splits.items():
            for start in range(0, len(split), _PART):
                rows = range(start, min(start + _PART, len(split)))
                path = parts / f"{name}-{start:09d}.safetensors"
                kept = _kept(path, len(rows))
                if kept is not None:
                    values.append(kept)
                    resumed += len(rows)
                else:
                    features, missing = embed(model, split, images, rows, device=device)
                    if len(missing):
                        got = f"cannot be decoded ({len(missing)} such images)"
                        raise InputError(split.name(int(missing[0])), got, hint="replace or remove it")
                    values.append(features[list(rows)].numpy())
                    save_tensors(path, {"features": features[list(rows)]})
                finished += len(rows)
                progress(finished)
    finally:
        images.close()
    names = [name for split in splits.values() for name in split.names]
    of_split = [name for name, split in splits.items() for _ in range(len(split))]
    found = np.concatenate(values)
    write_features(out, names, of_split, found)
    shutil.rmtree(parts.parent, ignore_errors=True)
    return Extracted(len(found), found.shape[1], resumed)


def _kept(path: Path, count: int) -> Floats | None:
    """The features of a part on disk; None if there is none, or it is damaged."""
    try:
        features = load_tensors(path)[0].get("features")
    except (FileNotFoundError, InputError):
        return None
    if features is None or features.dtype != torch.float32 or features.ndim != 2 or len(features) != count:
        return None
    return features.numpy()


def _key(experiment: Experiment, splits: Mapping[str, Split]) -> str:
    """A hash of all that the features depend on: parts from different settings are not mixed."""
    values = experiment.values
    content = [values["task"], values["model"], values["seed"], {name: list(s.names) for name, s in splits.items()}]
    content.append({key: values["images"][key] for key in ("resize", "crop")})
    return hashlib.sha256(json.dumps(content, default=str).encode()).hexdigest()[:16]
