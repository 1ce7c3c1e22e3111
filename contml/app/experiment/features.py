"""Files of the backbone features of all images of an experiment (`contml features`)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from contml._support.errors import InputError
from contml._support.files import FEATURES, check_suffix
from contml.app.experiment.building import Experiment
from contml.data.features import Floats, Made, finished_file, write_features
from contml.evaluation.embed_parts import device_here, embed_to


class Extracted(NamedTuple):
    """The number and dimension of the features that were written."""

    items: int
    dim: int
    resumed: int  # images whose features come from an earlier run


def extract_features(
    experiment: Experiment,
    out: Path,
    progress: Callable[[int], None] = lambda _: None,
    *,
    maps: bool = False,
    cluster: str = "",
) -> Extracted:
    """Write the backbone features of every image of an experiment's splits: centre crops, no head.

    Parts are kept beside the file until all are written, so that an interrupted run continues where it stopped. A
    complete file with these features stays as it is.

    Args:
        experiment: the experiment.
        out: the file.
        progress: called with the number of images finished so far.
        maps: write the last feature maps of the backbone, for a captioner that attends to places.
        cluster: the address of a Ray cluster (`contml.work.run`) whose machines extract the features. They need the
            images too.

    Raises:
        InputError: the file cannot be written there, an image cannot be read, or another command writes the file.
    """
    check_suffix(out, FEATURES)
    finished_file(out)  # before the data are read
    if experiment.config.parts["images"].options["features"] is not None:
        raise InputError("images.features", "used with 'contml features', which writes such a file", hint="omit it")
    task = experiment.read_task()
    if task.train.feature_dim is not None:
        raise InputError("images.features", "the data are features already", hint="omit it")
    model, device, images = experiment.build_network(task), device_here(), experiment.build_images()
    model.check_size(images.crop)
    model.head, model.normalize = torch.nn.Identity(), False  # its output is now the features
    model = model.to(device)
    content = [maps, experiment.values["task"], experiment.identity_of(model)]
    key = hashlib.sha256(json.dumps(content, default=str).encode()).hexdigest()[:16]
    split_names = [name for name, split in task.splits.items() for _ in range(len(split))]

    def write(names: list[str], values: Floats, made: Made) -> None:
        write_features(out, names, split_names, values, made)

    options: Any = {"device": device, "maps": maps, "refuse_broken": True, "cluster": cluster, "progress": progress}
    made, resumed = embed_to(out, {"network, task or options": key}, task.splits, model, images, write, **options)
    return Extracted(made.items, made.dim, resumed)
