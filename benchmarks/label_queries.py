"""Label queries and answers with labels on real images: a log-ratio head on MobileNetV2's features.

    python -m benchmarks.label_queries DATA --features FOLDER --weights FILE [--only NAME ...] [--save FILE]

DATA holds the packs `pose_lspet`, `rooms_nyuv2`, `labelmaps_camvid`, `flickr8k_1500` and `houses_535` (the maintainers'
`shared/data`).
FOLDER keeps the features: the first 512 principal components of MobileNetV2's 4 x 4 feature maps, of which test images
have no part. FILE of weights is torchvision's `mobilenet_v2-b0353104.pth`.

A linear head is trained with three seeds, and the best epoch is chosen on the validation split. Each test query then
asks the test gallery in three ways: by its image; by its label, as the mean of the unit embeddings of the k training
items nearest by label, with k chosen on the validation split; and by the image of the one training item that is
nearest by label. The score is the normalized score@10 (0: random, 1: by the true label distance), with the 95 %
bootstrap interval over queries (over houses for houses) of its mean over seeds. Answers: the error of the answer to the
query's image, and how often the interval of 90 % holds.
"""

from __future__ import annotations

import argparse
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
from contml.benchmark.inputs import with_matrices, write_components
from contml.data import Task
from contml.distances.unit_vectors import normalize
from contml.evaluation.evaluators import RetrievalEvaluator
from contml.experiment import extract_features, load
from contml.retrieval.answers import label_query
from contml.retrieval.labelled_items import LabelledItems

_MOBILENET = ("model.backbone=mobilenet_v2", "images.resize=128", "images.crop=128", "images.workers=0")
_COMPONENTS, _K, _SEEDS, _RESAMPLES = 512, 10, (1, 2, 3), 1000
_HEAD = (
    *("model.backbone=features", "model.weights=none", "model.dim=128", "transform=null", "images.workers=0"),
    *("loss=log_ratio", "loss.squared=false", "optimizer=adamw", "optimizer.lr=0.003", "schedule=cosine"),
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
    *("task.root={root}", "task.group=sequence", "task.chunk=20", "task.gap=5", "task.exclude_group=true"),
    "training.val_share=0.3",  # 8 of 17 chunks: a quarter are three of them, too few to choose by
)
#: The config of each data set, the folder of its pack, and what is changed in the config.
SETS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "poses": ("pose/lspet", "pose_lspet", ("task.root={root}",)),
    "rooms": ("layout/nyuv2", "rooms_nyuv2", ("task.root={root}",)),
    "streets": ("layout/camvid", "labelmaps_camvid", _STREETS),
    "captions": ("captions/flickr8k", "flickr8k_1500", ("task.root={root}", *FLICKR8K_PACK)),
    "house prices": ("table/default", "houses_535", _HOUSES),
}
#: The ways to ask, in the order of the columns.
WAYS = ("image", "label", "label, float32", "nearest training image")


class Found(NamedTuple):
    """What one head found.

    Attributes:
        label_distances: the label distance@10 of each query by each way, at random and of the oracle `[Q, 6]`.
        units: the group of each query `[Q]`, else its row.
        labelled: the training items, with the errors of answers and the check of their interval.
    """

    label_distances: Tensor
    units: Tensor
    labelled: LabelledItems


def features(name: str, given: argparse.Namespace) -> Path:
    """The inputs of the head, made if they are not in the folder yet."""
    config, pack, changes = SETS[name]
    folder: Path = given.features
    maps, out = folder / f"{name} maps.npz", folder / f"{name}.npz"
    if not out.exists():
        options = [change.replace("{root}", str(given.data / pack)) for change in changes]
        extract_features(load(config, [*_MOBILENET, *options, f"model.weights={given.weights}"]), maps, maps=True)
        write_components(maps, out, _COMPONENTS)
    return out


_tasks: dict[str, tuple[Task, Task]] = {}
_folder = tempfile.TemporaryDirectory()  # of matrices of label distances, until the process ends


def find(name: str, given: argparse.Namespace, seed: int, is_unit: bool) -> Found:
    """Train a head, and ask in each way."""
    config, pack, changes = SETS[name]
    options = [change.replace("{root}", str(given.data / pack)) for change in changes]
    inputs = f"images.features={features(name, given)}"
    experiment = load(config, [*_HEAD, *options, inputs, f"seed={seed}", f"model.normalize={is_unit}".lower()])
    if name not in _tasks:
        task = experiment.build_task()
        folder = Path(_folder.name) / name
        folder.mkdir()
        for part, split in task.splits.items():
            if split.labels.exponent is None:  # a batch of captions would cost more than its step
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
    found = (val, task.val), (ranking, test)
    labelled = LabelledItems.make((embeddings, task.train), "benchmark", len(task.train), *found)
    queries = ranking.queries
    gallery = torch.arange(len(test)) if test.gallery is None else test.gallery
    groups = torch.arange(len(test)) if test.groups is None else test.groups
    excluded = (groups[queries][:, None] == groups[gallery]) | (queries[:, None] == gallery)
    truth = test.labels.pairwise(queries, gallery).double().masked_fill(excluded, torch.inf)
    n, whole = len(task.train), task.train.labels.joined(test.labels)
    known = whole.pairwise(n + queries, range(n))
    unit, k = normalize(test_outputs), labelled.record.label_neighbours
    ways = [
        None,
        label_query(labelled.embeddings, known, k),
        label_query(normalize(embeddings), known, k),
        labelled.embeddings[known.argmin(1)],
    ]
    columns = []
    for way in ways:
        if way is None:  # as a search ranks: by Euclidean distance
            distances = torch.cdist(test_outputs[queries].double(), test_outputs[gallery].double())
        else:
            distances = -(way.double() @ unit[gallery].double().T)
        nearest = distances.masked_fill(excluded, torch.inf).topk(_K, dim=1, largest=False).indices
        columns.append(truth.gather(1, nearest).mean(1))
    finite = truth.masked_fill(excluded, 0)
    columns.append(finite.sum(1) / (~excluded).sum(1))
    columns.append(truth.topk(_K, dim=1, largest=False).values.mean(1))
    return Found(torch.stack(columns, 1), groups[queries], labelled)


def scores(distances: Tensor) -> Tensor:
    """The normalized score of each way, by label distances `[..., 6]` that are summed over the queries."""
    *ways, random, oracle = distances.unbind(-1)
    return torch.stack([(random - way) / (random - oracle) for way in ways], -1)


def row(name: str, runs: list[Found]) -> list[str]:
    """The scores of the ways with their intervals, and the differences of label and image."""
    means = torch.stack([run.label_distances.mean(0) for run in runs])
    found = scores(means).mean(0)
    units, codes = torch.unique(runs[0].units, return_inverse=True)
    sums = torch.stack(
        [torch.zeros(len(units), 6, dtype=torch.float64).index_add_(0, codes, run.label_distances) for run in runs]
    )  # [S,U,6]
    generator = np.random.default_rng(0)
    drawn = torch.stack(
        [scores(sums[:, generator.integers(0, len(units), len(units))].sum(1)).mean(0) for _ in range(_RESAMPLES)]
    )
    low, high = drawn.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64), 0)
    cells = [f"{value:.3f} [{a:.3f}, {b:.3f}]" for value, a, b in zip(found, low, high, strict=True)]
    pairs = []
    for other in (0, 3):
        difference = drawn[:, 1] - drawn[:, other]
        a, b = difference.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
        pairs.append(f"{found[1] - found[other]:+.3f} [{a:+.3f}, {b:+.3f}]")
    ks = "/".join(str(run.labelled.record.label_neighbours) for run in runs)
    return [name, str(len(runs[0].units)), ks, *cells, *pairs]


def answer_row(name: str, runs: list[Found]) -> list[str]:
    """The errors of answers on the test split, and the coverage of their interval, means over seeds."""
    records = [run.labelled.record.answers[0] for run in runs]
    measure = runs[0].labelled.labels.measure

    def mean(values: list[Any]) -> str:
        return MISSING if None in values else measure.text(fmean(values))

    errors = [
        mean([getattr(each.test, field) for each in records]) for field in ("neighbours", "regression", "constant")
    ]
    checks = [each.calibration.check for each in records if each.calibration and each.calibration.check]
    shares = [
        f"{100 * check.observed:.1f} [{100 * check.interval[0]:.1f}, {100 * check.interval[1]:.1f}]"
        for check in checks
        if check.observed is not None and check.interval is not None
    ]
    ks = "/".join(str(each.neighbours) for each in records)
    if not checks:  # without a calibration: too few queries of the validation split
        return [name, ks, *errors, MISSING, MISSING]
    bound = f"{measure.before}{number(fmean([check.width or 0 for check in checks]))}{measure.after}"
    return [name, ks, *errors, "; ".join(shares), bound]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--only", nargs="*", default=list(SETS), choices=list(SETS))
    parser.add_argument("--save", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    queries = [["data", "queries", "k", *WAYS, "label less image", "label less nearest training image"]]
    head = ["data", "k", "neighbours", "ridge regression", "always the mean or medoid"]
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
