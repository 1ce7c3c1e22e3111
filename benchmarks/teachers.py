"""A small network learns the distances of MobileNetV2 on photographs without labels: overlap of nearest neighbours.

    python -m benchmarks.teachers data=FOLDER weights=FILE [--steps 100]

FOLDER holds the data packs of the maintainers, FILE is `mobilenet_v2-b0353104.pth` of torchvision. The photographs show
houses (pack `houses_535`); their prices are not used. The student is the small network of `table/default`, at 64
pixels, in batches of 60, trained on `TeacherLabels` of the training images. Overlap@10 is the share of the 10 nearest
test images by the teacher that are among the 10 nearest by the student, before and after the training. A finished
training is a line of `benchmarks/results/raw/teachers.jsonl`; the same command goes on. Intervals are over seeds and
houses (`contml.app.trials.statistics`). The page is `benchmarks/results/teachers.md`.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.measure import heading, table
from benchmarks.presets import MEAN, SEEDS, SETS, every_query, experiment_of
from contml.app.experiment import load
from contml.app.trials.statistics import estimate
from contml.data import Task
from contml.distances.nearest import nearest_vectors
from contml.evaluation.results import Ranking
from contml.labels import TeacherLabels
from contml.models import EmbeddingModel
from contml.training import Trainer

K, BATCH, BATCHES = 10, 60, 20
LOSSES = {"log_ratio": ["loss.squared=false"], "smooth_rank": []}
RAW = Path(__file__).parent / "results" / "raw" / "teachers.jsonl"
PAGE = RAW.parents[1] / "teachers.md"


def embeddings(trainer: Trainer, task: Task, split: str, model: Any = None) -> Tensor:
    """The embeddings of all images of a split."""
    found = trainer.evaluate(every_query(task.splits[split]), model)[1]
    assert isinstance(found, Ranking)
    return found.embeddings.cpu()


def taught(data: str, weights: str) -> Task:
    """The photographs with the teacher's features as labels."""
    experiment = experiment_of("houses", data, weights, 0, [MEAN])
    task = experiment.build_task()
    trainer = experiment.build_trainer(task, quiet=True)
    assert isinstance(trainer.bare_model, EmbeddingModel)
    teacher = trainer.bare_model.bare_backbone()
    labels = {name: TeacherLabels(embeddings(trainer, task, name, teacher)) for name in task.splits}
    return task.with_splits({name: replace(split, labels=labels[name]) for name, split in task.splits.items()})


def overlap(trainer: Trainer, task: Task) -> list[float]:
    """The overlap@10 of each test image."""
    labels = task.splits["test"].labels
    assert isinstance(labels, TeacherLabels)
    student, teacher = embeddings(trainer, task, "test").double(), labels.values.cpu()
    rows = torch.arange(len(teacher))
    both = [nearest_vectors(x, x, K, self_index=rows).positions.tolist() for x in (student, teacher)]
    return [len({*a} & {*b}) / K for a, b in zip(*both, strict=True)]


def train(task: Task, loss: str, seed: int, steps: int, data: str) -> dict[str, Any]:
    """One training."""
    config, changes = SETS["houses"]
    more = [f"loss={loss}", *LOSSES[loss], "images.workers=0", "training.select=none", f"seed={seed}"]
    more += [
        f"sampler.batch_size={BATCH}",
        "sampler.anchors_per_batch=10",
        f"sampler.batches={BATCHES}",
        f"training.epochs={steps // BATCHES}",
    ]
    experiment = load(config, [*(change.replace("$", data) for change in changes), *more])
    trainer = experiment.build_trainer(task, quiet=True)
    before = overlap(trainer, task)
    trainer.fit()
    groups = task.splits["test"].groups
    assert groups is not None
    after = overlap(trainer, task)
    return {"loss": loss, "seed": seed, "steps": steps, "before": before, "after": after, "groups": groups.tolist()}


def read(steps: int) -> list[dict[str, Any]]:
    """The finished trainings of so many steps."""
    lines = RAW.read_text(encoding="utf-8").splitlines() if RAW.exists() else []
    return [row for row in map(json.loads, lines) if row["steps"] == steps]


def page(steps: int) -> str:
    """The table of the losses whose trainings are finished."""
    lines = [["loss", "seeds", "before", "after", "gain"]]
    for loss in LOSSES:
        rows = [row for row in read(steps) if row["loss"] == loss]
        if len(rows) < len(SEEDS):
            continue
        before, after = (np.array([row[key] for row in rows]) for key in ("before", "after"))
        found = estimate([after - before], [rows[0]["groups"]])
        gain = f"{found.mean:+.3f} ({found.low:+.3f} to {found.high:+.3f})"
        lines.append([loss, str(len(rows)), f"{before.mean():.3f}", f"{after.mean():.3f}", gain])
    return (
        f"{heading('A small network learns the distances of MobileNetV2')}\n`python -m benchmarks.teachers data=FOLDER "
        f"weights=FILE --steps {steps}`. Overlap@{K} with the teacher's nearest neighbours on test images; in brackets "
        f"the 95 % interval over seeds and houses. {steps} steps of {BATCH} images.\n\n{table(lines)}\n"
    )


def main() -> None:
    """Train what is missing, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs=2, metavar="NAME=PATH", help="data=FOLDER weights=FILE")
    parser.add_argument("--steps", type=int, default=100)
    given = parser.parse_args()
    places = dict(word.split("=", 1) for word in given.places)
    done = {(row["loss"], row["seed"]) for row in read(given.steps)}
    task = taught(places["data"], places["weights"])
    for seed in SEEDS:
        for loss in LOSSES:
            if (loss, seed) in done:
                continue
            row = train(task, loss, seed, given.steps, places["data"])
            with RAW.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            means = " ".join(f"{key} {np.mean(row[key]):.3f}" for key in ("before", "after"))
            sys.stderr.write(f"{loss}, seed {seed}: {means}\n")
    text = page(given.steps)
    PAGE.write_text(text, encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
