"""The last stages and the whole network against a head on frozen features: `benchmarks/results/finetuning.md`.

    python -m benchmarks.finetuning data=FOLDER weights=FILE [--plan] [--minutes M]

Sets and weights are as in `benchmarks/presets.py`: houses and poses, MobileNetV2 at 128 pixels. Each method
has two learning rates with seed 0; the better one on the validation split is trained with two more seeds. The head is
the preset `features`; the others have the images of the preset `finetune`, and 5,000 images in place of 50,000, since
each passes the network. A finished training is a line of `benchmarks/results/raw/finetuning.jsonl`; the same command
goes on. Intervals are over seeds and groups of queries.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.presets import MEAN, SEEDS, every_query, experiment_of, per_query, with_matrices
from contml.app.trials.statistics import estimate
from contml.data import Task
from contml.models import EmbeddingModel

SETS = ("houses", "poses")
_SHORT = ("training.epochs=5", "sampler.batches=20", "sampler.batch_size=50")
_IMAGES = ("images.resize=146", "images.flip=batch", "transform={name: crop, scale_jitter: 6, shift: 4}")
_TRAINED = (*_SHORT, *_IMAGES, "sampler.anchors_per_batch=8", "optimizer.head_lr=1e-3")


class Method(NamedTuple):
    """What is trained: changes to the preset `features`, learning rates to try, and processor seconds of a training.

    The seconds are estimated from 24 ms per image that passes the network and back, and 8 ms for one that only passes.
    """

    changes: tuple[str, ...]
    rates: tuple[float, float]
    seconds: float


METHODS = {
    "head": Method((), (1e-3, 3e-3), 20),
    "last stages": Method((*_TRAINED, "model.frozen=14"), (1e-4, 1e-3), 80),
    "whole network": Method((*_TRAINED, "model.frozen=false"), (1e-4, 1e-3), 140),
}
RAW = Path(__file__).parent / "results" / "raw" / "finetuning.jsonl"


def read() -> list[dict[str, Any]]:
    """The finished trainings."""
    return [json.loads(line) for line in RAW.read_text(encoding="utf-8").splitlines()] if RAW.exists() else []


def missing() -> Iterator[tuple[str, str, float, int]]:
    """The trainings that have no line yet: set, method, learning rate, seed; seeds beside 0 only of the better rate."""
    rows = read()
    done = {(row["set"], row["method"], row["rate"], row["seed"]) for row in rows}
    for method, name in ((method, name) for method in METHODS for name in SETS):
        for rate in METHODS[method].rates:
            if (name, method, rate, 0) not in done:
                yield name, method, rate, 0
    for seed in SEEDS[1:]:
        for method, name in ((method, name) for method in METHODS for name in SETS):
            rate = chosen(rows, name, method) or METHODS[method].rates[0]  # not known yet: another takes as long
            if (name, method, rate, seed) not in done:
                yield name, method, rate, seed


def chosen(rows: list[dict[str, Any]], name: str, method: str) -> float | None:
    """The rate with the lower label distance on the validation split; None if it is not known yet."""
    tried = {row["rate"]: row["val"] for row in rows if (row["set"], row["method"], row["seed"]) == (name, method, 0)}
    return min(tried, key=lambda rate: float(tried[rate])) if len(tried) == len(METHODS[method].rates) else None


def train(name: str, method: str, rate: float, seed: int, data: str, weights: str, tasks: dict[str, Task]) -> Any:
    """One training: the score of each query of the test split, and the result on the validation split."""
    changes = [MEAN, *METHODS[method].changes, f"optimizer.lr={rate}"]
    experiment = experiment_of(name, data, weights, seed, changes)
    if name not in tasks:
        tasks[name] = with_matrices(experiment.build_task())
    start = time.process_time()
    trainer = experiment.build_trainer(tasks[name], quiet=True)
    assert isinstance(trainer.bare_model, EmbeddingModel)
    trained = sum(p.numel() for p in trainer.bare_model.parameters() if p.requires_grad)
    trainer.fit()
    seconds = time.process_time() - start
    assert trainer.best is not None
    trainer.take_best()
    split = every_query(tasks[name].evaluated)
    return {
        "set": name,
        "method": method,
        "rate": rate,
        "seed": seed,
        "val": trainer.best.value,
        "model": per_query(*trainer.evaluate(split)[:2]),
        "groups": list(range(len(split))) if split.groups is None else split.groups.tolist(),
        "trained": trained,
        "epoch": trainer.best.epoch,
        "seconds": round(seconds, 1),
    }


def table() -> str:
    """The table of the page: methods with all seeds, against the head."""
    heads = ("set", "what is trained", "trained weights", "learning rate", "score", "minus the head", "time (s)")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    rows = read()
    for name in SETS:
        scores: dict[str, Any] = {}
        for method in METHODS:
            rate = chosen(rows, name, method)
            own = [row for row in rows if (row["set"], row["method"], row["rate"]) == (name, method, rate)]
            own = sorted(own, key=lambda row: int(row["seed"]))
            if [row["seed"] for row in own] != [*SEEDS]:
                continue
            scores[method] = np.array([row["model"] for row in own])
            difference = ""
            if method != "head" and "head" in scores:
                deltas = scores[method] - scores["head"]
                found = estimate([deltas], [own[0]["groups"]])
                difference = f"{found.mean:+.3f} ({found.low:+.3f} to {found.high:+.3f})"
            seconds = f"{np.mean([row['seconds'] for row in own]):.0f}"
            cells = (name, method, f"{own[0]['trained']:,}", f"{rate:g}", f"{scores[method].mean():.3f}", difference)
            lines.append(f"| {' | '.join((*cells, seconds))} |")
    return "\n".join(lines)


def main() -> None:
    """Train what is missing, and print the table; with --plan only how long it takes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs=2, metavar="NAME=PATH", help="data=FOLDER weights=FILE")
    parser.add_argument("--plan", action="store_true", help="only print how long it will take")
    parser.add_argument("--minutes", type=float, default=math.inf, help="start no training after so many minutes")
    given = parser.parse_args()
    if given.plan:
        left = [*missing()]
        print(f"{len(left)} trainings left, about {sum(METHODS[m].seconds for _, m, *_ in left) / 60:.0f} core-minutes")
        return
    places = dict(word.split("=", 1) for word in given.places)
    end, tasks = time.monotonic() + 60 * given.minutes, dict[str, Task]()
    while (next_one := next(missing(), None)) is not None and time.monotonic() < end:
        row = train(*next_one, places["data"], places["weights"], tasks)
        with RAW.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        sys.stderr.write(f"{next_one}: validation {row['val']:.4f}, test score {np.mean(row['model']):.4f}\n")
    sys.stdout.write(table() + "\n")


if __name__ == "__main__":
    main()
