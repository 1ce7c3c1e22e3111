"""The preset `features` against the untrained features, on four data sets: `benchmarks/results/presets.md`.

    python -m benchmarks.presets data=FOLDER weights=FILE

FOLDER holds the data packs of the maintainers, FILE is `mobilenet_v2-b0353104.pth` of torchvision. A finished training
a line of `benchmarks/results/raw/presets.jsonl`; the same command goes on. Every item of the test split is a query
against all others, without those of its own group. The untrained features are normalized or not, as is better on
the validation split. Intervals draw seeds and groups of queries (`contml.benchmark.statistics`).
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from contml.benchmark.statistics import draw, estimate
from contml.data import Split, Task
from contml.evaluation.evaluators import Found
from contml.evaluation.results import Evaluation, Ranking
from contml.experiment import Experiment, load
from contml.experiment.presets import choose
from contml.labels import MatrixLabels
from contml.models import EmbeddingModel

#: The images of the packs are of about this side: larger ones would only be blurred.
SIDE = 128
SEEDS = (0, 1, 2)
#: The sets: a config, and changes to it.
SETS = {
    "houses": (
        "table/default",
        ("task.data=$/houses_535/houses.csv", "task.labels={price_usd: number:log}", "task.group=house"),
    ),
    "captions": (
        "captions/flickr8k",
        (
            *("task.root=$/flickr8k_1500", "task.images=images", "task.missing=drop"),
            *(
                f"task.{split}=official_lists/Flickr_8k.{name}Images.txt"
                for split, name in (("train", "train"), ("val", "dev"), ("test", "test"))
            ),
            "task.vectors=word_vectors/glove.6B.50d.flickr8k.txt.gz",
        ),
    ),
    "rooms": ("layout/nyuv2", ("task.root=$/rooms_nyuv2", "task.frame=nyu_index", "task.exclude_group=true")),
    "poses": ("pose/lspet", ("task.root=$/pose_lspet",)),
}
#: Own data are trained by `table/default`: its sampler, optimizer and length, for every set.
TABLE = ("sampler", "optimizer", "schedule", "training")
RAW = Path(__file__).parent / "results" / "raw" / "presets.jsonl"


def experiment_of(name: str, data: str, weights: str, seed: int, more: Sequence[str] = ()) -> Experiment:
    """The experiment of a set with the preset, as `contml train --data` makes it; `more`: further changes."""
    config, changes = SETS[name]
    table = load("table/default").values
    same = [f"{section}={json.dumps(table[section])}" for section in TABLE]
    preset = choose("features", Path(weights), None, [])
    model = ["model.freeze_batch_norm=false", f"images.resize={SIDE}", f"images.crop={SIDE}"]
    return load(
        config, [*(c.replace("$", data) for c in changes), *same, *preset.changes, *model, *more, f"seed={seed}"]
    )


def trainings(data: str, weights: str) -> Iterator[dict[str, Any]]:
    """Trains each set with each seed that has no line yet."""
    done = {(row["set"], row["seed"]) for row in read()}
    tasks: dict[str, Task] = {}
    for seed, name in itertools.product(SEEDS, SETS):
        if (name, seed) not in done:
            experiment = experiment_of(name, data, weights, seed)
            if name not in tasks:
                tasks[name] = with_matrices(experiment.build_task())
            yield {"set": name, "seed": seed, **train(experiment, tasks[name])}


def with_matrices(task: Task) -> Task:
    """The task with label distances that are computed once, where each batch would take long."""
    splits = {
        name: replace(split, labels=MatrixLabels(split.labels.pairwise())) if split.labels.exponent is None else split
        for name, split in task.splits.items()
    }
    return task.with_splits(splits)


def train(experiment: Experiment, task: Task) -> dict[str, Any]:
    """One training: the score of each query of the test split by the model, and by the untrained features."""
    start = time.process_time()
    trainer = experiment.build_trainer(task, quiet=True)
    assert isinstance(trainer.bare_model, EmbeddingModel)
    features = trainer.bare_model.without_head()
    trainer.fit()
    seconds = time.process_time() - start
    trainer.take_best()
    assert task.val is not None
    distances = {}
    for normalized in (False, True):
        features.normalize = normalized
        distances[normalized] = trainer.evaluate(task.val, features)[0].main.model
    features.normalize = distances[True] < distances[False]
    split = every_query(task.evaluated)
    assert trainer.best is not None
    return {
        "model": per_query(*trainer.evaluate(split)[:2]),
        "features": per_query(*trainer.evaluate(split, features)[:2]),
        "normalized": features.normalize,
        "epoch": trainer.best.epoch,
        "chosen": trainer.best.features is not None and trainer.best.features.chosen,
        "groups": list(range(len(split))) if split.groups is None else split.groups.tolist(),
        "seconds": round(seconds, 1),
    }


def every_query(split: Split) -> Split:
    """The split, in which every item is a query."""
    return replace(split, queries=None, gallery=None)


def per_query(evaluation: Evaluation, ranking: Found) -> list[float]:
    """The normalized score of each query, whose mean is that of the split."""
    assert isinstance(ranking, Ranking)
    span = float((ranking.random_values - ranking.oracle_values).mean())
    assert evaluation.queries == len(ranking.values)
    return [round(value, 4) for value in ((ranking.random_values - ranking.values) / span).tolist()]


def read() -> list[dict[str, Any]]:
    """The finished trainings."""
    return [json.loads(line) for line in RAW.read_text(encoding="utf-8").splitlines()] if RAW.exists() else []


def table() -> str:
    """The table of the page."""
    heads = ("set", "queries", "untrained features", "preset `features`", "difference", "seconds")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name in SETS:
        rows = [row for row in read() if row["set"] == name]
        if len(rows) < len(SEEDS):
            continue
        model, features = (np.array([row[key] for row in rows]) for key in ("model", "features"))
        draws = draw(len(rows), rows[0]["groups"], 0)
        found = estimate(float((model - features).mean()), draws.means(model - features))
        difference = f"{found.mean:+.3f} ({found.low:+.3f} to {found.high:+.3f})"
        seconds = f"{np.mean([row['seconds'] for row in rows]):.0f}"
        cells = (name, f"{model.shape[1]:,}", f"{features.mean():.3f}", f"{model.mean():.3f}", difference, seconds)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Train what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs=2, metavar="NAME=PATH", help="data=FOLDER weights=FILE")
    places = dict(word.split("=", 1) for word in parser.parse_args().places)
    for row in trainings(places["data"], places["weights"]):
        with RAW.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        means = " ".join(f"{np.mean(row[key]):.4f}" for key in ("features", "model"))
        sys.stderr.write(f"{row['set']}, seed {row['seed']}: {means}\n")
    sys.stdout.write(table() + "\n")


if __name__ == "__main__":
    main()
