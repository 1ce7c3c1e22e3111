"""Label queries and answers with labels: a log-ratio head on MobileNetV2's features of real images, and drawn ages.

    python -m benchmarks.label_queries DATA --features FOLDER --weights FILE [--only NAME ...] [--save FILE]

DATA holds the packs `pose_lspet`, `rooms_nyuv2`, `labelmaps_camvid`, `flickr8k_1500` and `houses_535` (the maintainers'
`shared/data`).
FOLDER keeps the features: the first 512 principal components of MobileNetV2's 4 x 4 feature maps, of which test images
have no part. FILE of weights is torchvision's `mobilenet_v2-b0353104.pth`. The last set, drawn ages, is a table of 600
vectors of 16 numbers, which depend on an age and on five other numbers, with noise; it is trained as `contml train`
does by default.

A linear head is trained with three seeds, and the best epoch is chosen on the validation split. Each test query then
asks the test gallery in three ways: by its image; by its label, as the mean of the embeddings of the k training items
nearest by label, scaled to the mean of their lengths, with k chosen on the validation split; and by the image of the
one training item that is nearest by label. `label, cosine` is the label query by embeddings of length 1, with a k of
its own. The score is the normalized score@10 (0: random, 1: by the true label distance), a mean over seeds.

Answers: the mean label distance of the answer to the query's image and its own label, by the neighbours and the
distance that are chosen on the validation split, and by each distance alone; how often the interval of 90 % holds.
Intervals are of 95 %, over seeds and queries (houses for house prices), by `contml.app.trials.statistics`. Differences
are of the same seeds and queries.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
import time
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmarks.measure import FLICKR8K_PACK, heading, table
from contml._support.text import MISSING, number
from contml.app.experiment import extract_features, load
from contml.app.trials.measure import is_slow, with_matrices, write_components
from contml.app.trials.statistics import Estimate, estimate
from contml.data import Split, Task
from contml.evaluation.evaluators import RetrievalEvaluator
from contml.labels.items import growing
from contml.search.answers import ANSWER_KS, AnswerDistance, Errors, Known, _Truth, choose_label_k, label_query
from contml.search.labelled_items import LabelledItems

_MOBILENET = ("model.backbone=mobilenet_v2", "images.resize=128", "images.crop=128", "images.workers=0")
_COMPONENTS, _K, _SEEDS = 512, 10, (1, 2, 3)
_FEATURES = ("model.backbone=features", "model.weights=none", "transform=null", "images.workers=0")
_HEAD = (
    *_FEATURES,
    *("model.dim=128", "loss=log_ratio", "loss.squared=false", "optimizer=adamw", "optimizer.lr=0.003"),
    "schedule=cosine",
    *("sampler=dense", "sampler.batch_size=120", "sampler.anchors_per_batch=20", "sampler.neighbours=5"),
    *("sampler.all_anchors=true", "sampler.batches=40", "training.epochs=5", "training.val_share=0.25"),
)
_HOUSES = (
    "task.data={root}/houses.csv",
    "task.labels={price_usd: number:log}",
    "task.group=house",
    "task.exclude_group=true",
)
_STREETS = (
    *("task=benchmarks.streets:streets", "task.data={root}/pairs.csv"),
    "training.val_share=0.3",  # 8 of 17 chunks: a quarter are three of them, too few to choose by
)
#: The config of each data set, the folder of its pack, and what is changed in the config.
SETS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "poses": ("pose/lspet", "pose_lspet", ("task.data={root}/joints.npz",)),
    "rooms": ("layout/nyuv2", "rooms_nyuv2", ("task.data={root}/pairs.csv",)),
    "streets": ("layout/camvid", "labelmaps_camvid", _STREETS),
    "captions": ("captions/flickr8k", "flickr8k_1500", ("task.root={root}", *FLICKR8K_PACK)),
    "house prices": ("table/default", "houses_535", _HOUSES),
    "drawn ages": ("table/default", "", ("task.data={root}/ages.csv", "task.labels={age: number}")),
}
#: The ways to ask, in the order of the columns.
WAYS = ("image", "label", "label, cosine", "nearest training image")


class Found(NamedTuple):
    """What one head found.

    Attributes:
        scores: the score of each way; its mean over queries is the normalized score@10 `[Q, 4]`.
        errors: the label distance of each query's answer to its label, by Euclidean distance and by cosine `[Q, 2]`.
        units: the group of each query `[Q]`, else its row.
        labelled: the training items, with the errors of answers and the check of their interval.
    """

    scores: Tensor
    errors: Tensor
    units: Tensor
    labelled: LabelledItems


def features(name: str, given: argparse.Namespace, options: list[str]) -> Path:
    """The inputs of the head, made if they are not in the folder yet."""
    folder: Path = given.features
    maps, out = folder / f"{name} maps.npz", folder / f"{name}.npz"
    if name == "drawn ages":
        draw_ages(folder / "ages.csv", out)
    elif not out.exists():
        config = SETS[name][0]
        extract_features(load(config, [*_MOBILENET, *options, f"model.weights={given.weights}"]), maps, maps=True)
        write_components(maps, out, _COMPONENTS)
    return out


def draw_ages(table_file: Path, features_file: Path) -> None:
    """A table of 600 ages, and vectors that depend on them: tanh of a linear map, with noise."""
    random, count = np.random.default_rng(0), 600
    ages, others = random.uniform(18, 90, count), random.normal(size=(count, 5))
    inputs = np.column_stack(((ages - 54) / 20, others))
    vectors = np.tanh(0.5 * inputs @ random.normal(size=(6, 16))) + 0.1 * random.normal(size=(count, 16))
    names = [f"{n}.png" for n in range(count)]
    np.savez(features_file, names=names, features=vectors.astype(np.float32))
    with table_file.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["image", "age"], *zip(names, ages.round(1), strict=True)])


_tasks: dict[str, tuple[Task, Task]] = {}
_folder = tempfile.TemporaryDirectory()  # of matrices of label distances, until the process ends


def find(name: str, given: argparse.Namespace, seed: int, is_unit: bool) -> Found:
    """Train a head, and ask in each way."""
    config, pack, changes = SETS[name]
    root = given.data / pack if pack else given.features
    options = [change.replace("{root}", str(root)) for change in changes]
    inputs = f"images.features={features(name, given, options)}"
    head = _HEAD if pack else _FEATURES
    experiment = load(config, [*head, *options, inputs, f"seed={seed}", f"model.normalize={is_unit}".lower()])
    if name not in _tasks:
        task = experiment.build_task()
        folder = Path(_folder.name) / name
        folder.mkdir()
        for part, split in task.splits.items():
            if is_slow(split.labels):  # a batch of captions would cost more than its step
                np.save(folder / f"{part}.npy", split.labels.pairwise().numpy())
        _tasks[name] = task, with_matrices(task, folder)
    task, fast_task = _tasks[name]
    assert task.val is not None
    assert task.test is not None
    trainer = experiment.build_trainer(fast_task, quiet=True)
    trainer.fit()
    assert trainer.best is not None
    trainer.take_best()
    embeddings, test = trainer.outputs(task.train)[0], task.test
    val_outputs, test_outputs = (trainer.outputs(split)[0] for split in (task.val, test))
    missing = torch.empty(0, dtype=torch.int64)
    evaluator = RetrievalEvaluator()
    val, ranking = (
        evaluator.evaluate(outputs, missing, split)[1]
        for outputs, split in ((val_outputs, task.val), (test_outputs, test))
    )
    labelled = LabelledItems.make(
        (embeddings, task.train), "benchmark", len(task.train), (val, task.val), (ranking, test)
    )
    known = Known(embeddings, task.train.labels, task.train.groups)
    asked, tested = (
        _known(outputs, split, each.queries)
        for outputs, split, each in ((val_outputs, task.val, val), (test_outputs, test, ranking))
    )
    queries = ranking.queries
    gallery = torch.arange(len(test)) if test.gallery is None else test.gallery
    groups = torch.arange(len(test)) if test.groups is None else test.groups
    excluded = (groups[queries][:, None] == groups[gallery]) | (queries[:, None] == gallery)
    truth = test.labels.pairwise(queries, gallery).double().masked_fill(excluded, torch.inf)
    n, whole = len(task.train), growing(task.train.labels).joined(test.labels)
    label_distances = whole.pairwise(n + queries, range(n))
    unit, by_unit = (each.by("cosine") for each in (known, _known(test_outputs, test, gallery)))
    ways = [
        (test_outputs[queries], test_outputs[gallery]),
        (label_query(embeddings, label_distances, labelled.record.label_neighbours), test_outputs[gallery]),
        (
            label_query(unit.embeddings, label_distances, choose_label_k(unit, asked.by("cosine"))),
            by_unit.embeddings,
        ),
        (embeddings[label_distances.argmin(1)], test_outputs[gallery]),
    ]
    random = truth.masked_fill(excluded, 0).sum(1) / (~excluded).sum(1)
    oracle = truth.topk(_K, dim=1, largest=False).values.mean(1)
    columns = []
    for targets, items in ways:
        distances = torch.cdist(targets.double(), items.double()).masked_fill(excluded, torch.inf)
        nearest = distances.topk(_K, dim=1, largest=False).indices
        columns.append((random - truth.gather(1, nearest).mean(1)) / (random - oracle).mean())
    errors = [answer_errors(known, asked, tested, distance) for distance in ("euclidean", "cosine")]
    return Found(torch.stack(columns, 1), torch.stack(errors, 1), groups[queries], labelled)


def _known(outputs: Tensor, split: Split, rows: Tensor) -> Known:
    """Some items of a split."""
    groups = None if split.groups is None else split.groups[rows]
    return Known(outputs[rows], split.labels[rows].as_root(), groups)


def answer_errors(known: Known, asked: Known, tested: Known, distance: AnswerDistance) -> Tensor:
    """The label distances `[Q]` of answers to test queries, with the number of neighbours that validation chooses."""
    val, test = (_Truth.of(known, each) for each in (asked, tested))
    assert val is not None
    assert test is not None
    truth, tried = val.by(distance), [k for k in ANSWER_KS if k <= len(known.embeddings) - 2]
    k = min(tried, key=lambda each: float(truth.answered(each, tried[-1])[1].mean()))
    return test.by(distance).answered(k, k)[1]


def _over(values: list[Tensor], runs: list[Found]) -> Estimate:
    """The mean of values `[Q]` of each run, over seeds and groups of queries."""
    return estimate([torch.stack(values).numpy()], [runs[0].units.tolist()])


def row(name: str, runs: list[Found]) -> list[str]:
    """The scores of the ways with their intervals, and the differences of the label query and the other ways."""
    found = [_over([run.scores[:, way] for run in runs], runs) for way in range(len(WAYS))]
    differences = [_over([run.scores[:, 1] - run.scores[:, way] for run in runs], runs) for way in (0, 2, 3)]
    cells = [f"{each.mean:.3f} [{each.low:.3f}, {each.high:.3f}]" for each in found]
    cells += [f"{each.mean:+.3f} [{each.low:+.3f}, {each.high:+.3f}]" for each in differences]
    ks = "/".join(str(run.labelled.record.label_neighbours) for run in runs)
    return [name, str(len(runs[0].units)), ks, *cells]


def answer_row(name: str, runs: list[Found]) -> list[str]:
    """The errors of answers on the test split, and the coverage of their interval, means over seeds."""
    records = [run.labelled.record.answers[0] for run in runs]
    measure = runs[0].labelled.labels.measure

    def mean(values: list[Any]) -> str:
        return MISSING if None in values else measure.text(fmean(values))

    errors = [mean([getattr(each.test, field) for each in records]) for field in Errors._fields]
    alone = [mean([float(run.errors[:, way].mean()) for run in runs]) for way in (0, 1)]
    difference = _over([run.errors[:, 0] - run.errors[:, 1] for run in runs], runs)
    by_cosine = fmean([float(run.errors[:, 1].mean()) for run in runs])
    percents = [round(100 * each / by_cosine, 1) + 0.0 for each in (difference.mean, difference.low, difference.high)]
    alone.append("{:+.1f} [{:+.1f}, {:+.1f}]".format(*percents))
    checks = [each.calibration.check for each in records if each.calibration and each.calibration.check]
    shares = [
        f"{100 * check.observed:.1f} [{100 * check.interval[0]:.1f}, {100 * check.interval[1]:.1f}]"
        for check in checks
        if check.observed is not None and check.interval is not None
    ]
    ks, distances = ("/".join(str(getattr(each, field)) for each in records) for field in ("neighbours", "distance"))
    start = [name, ks, distances, *errors, *alone]
    if not checks:  # without a calibration: too few queries of the validation split
        return [*start, MISSING, MISSING]
    bound = f"{measure.before}{number(fmean([check.width or 0 for check in checks]))}{measure.after}"
    return [*start, "; ".join(shares), bound]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--only", nargs="*", default=list(SETS), choices=list(SETS))
    parser.add_argument("--save", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    others = [f"label less {each}" for each in ("image", "its cosine", "nearest training image")]
    queries = [["data", "queries", "k", *WAYS, *others]]
    head = ["data", "k", "distance", "neighbours", "ridge regression", "always the mean or medoid"]
    head += ["Euclidean alone", "cosine alone", "Euclidean less cosine, % of the label distance"]
    answers = [[*head, "90 % interval holds, % of test queries, by seed", "mean bound"]]
    start = time.perf_counter()
    for name in given.only:
        for is_unit in (True, False):
            title = f"{name}{'' if is_unit else ', unnormalized'}"
            runs = [find(name, given, seed, is_unit) for seed in _SEEDS]
            queries.append(row(title, runs))
            answers.append(answer_row(title, runs))
            print(
                " | ".join(queries[-1]),
                "||",
                " | ".join(answers[-1]),
                f"{time.perf_counter() - start:.0f} s",
                flush=True,
            )
    if given.save is not None:
        text = f"{heading('Asking by label and answering with labels')}\n{__doc__}\n"
        given.save.write_text(f"{text}\n## Normalized score@10\n\n{table(queries)}\n\n## Answers\n\n{table(answers)}\n")


if __name__ == "__main__":
    main()
