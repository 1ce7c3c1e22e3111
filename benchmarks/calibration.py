"""Coverage and width of the intervals of label distances, on drawn poses and on real rooms, captions and houses.

    python -m benchmarks.calibration --weights mobilenet_v2-b0353104.pth --save benchmarks/results/calibration.md

Poses: a small network, trained for 30 steps. The others: the features of a frozen MobileNetV2 with ImageNet weights
(`--weights FILE`, or downloaded). The interval of 90 % comes from the validation split, for the nearest items of each
query; its coverage is that on the test split. Its 95 % intervals, by query (by house for houses): of the test queries
alone, for this calibration; and a bootstrap of both splits, each drawn anew and calibrated anew, which also holds how
much a calibration from so few queries varies. "Without": the mean width of the interval that ignores the embedding
distance. "Halves": 100 times, calibrated on a random half of the test queries and measured on the others: mean and
standard deviation of the coverage. The real packs are read from CONTML_DATA, or from shared/data beside the checkout.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.measure import FLICKR8K_PACK, heading, table
from contml.app.experiment import Experiment, OwnData, load, load_table
from contml.evaluation.embed import embed
from contml.evaluation.evaluators import RetrievalEvaluator
from contml.search.calibration import LEVEL, Check, Pairs, calibrate

DATA_ROOT = Path(os.environ.get("CONTML_DATA", Path(__file__).parents[2] / "shared" / "data"))
RESAMPLES, HALVES = 200, 100
POSE = ["model.dim=32", "images.resize=52", "images.crop=48", "training.epochs=3", "sampler.batches=10"]
FROZEN = ["model.backbone=mobilenet_v2", "model.dim=null", "model.normalize=true"]
FROZEN += ["images.resize=120", "images.crop=112", "images.workers=0"]


def experiments(weights: str) -> Iterator[tuple[str, Experiment]]:
    """Each data set by its name, with the model that embeds it."""
    frozen = [*FROZEN, f"model.weights={weights}"]
    for seed in range(2):
        yield f"pose, seed {seed}", load("pose/synthetic", [*POSE, f"task.seed={seed}", f"seed={seed}"])
    for draw in range(5):
        table = DATA_ROOT / "rooms_nyuv2/pairs.csv"
        changes = [f"task.data={table}", "training.val_share=0.2", f"task.seed={draw}"]
        yield f"rooms, draw {draw}", load("layout/nyuv2", [*changes, *frozen])
    yield "captions", load("captions/flickr8k", [f"task.root={DATA_ROOT / 'flickr8k_1500'}", *FLICKR8K_PACK, *frozen])
    groups, data = ["task.group=house", "task.exclude_group=true"], DATA_ROOT / "houses_535" / "houses.csv"
    for label in ("price_usd", "area_sqft"):
        yield (
            f"houses, {label}",
            load_table(OwnData(data, [f"{label}=number:log"]), "table/default", [*groups, *frozen]),
        )


def pairs_of(experiment: Experiment) -> tuple[Pairs, Pairs]:
    """The nearest items of the queries of the validation and of the test split."""
    task = experiment.build_task()
    assert task.val is not None
    assert task.test is not None
    if experiment.config.parts["task"].name.startswith("pose/"):
        trainer = experiment.build_trainer(task, quiet=True)
        trainer.fit()
        assert trainer.best is not None
        model = trainer.bare_model
        model.load_state_dict(trainer.best.weights or {})
    else:
        model = experiment.build_model(task)
    images = experiment.build_images()
    rankings = [
        RetrievalEvaluator().evaluate(*embed(model, split, images), split)[1] for split in (task.val, task.test)
    ]
    val = Pairs.of(task.val, rankings[0])
    return val, Pairs.of(task.test, rankings[1], val.embedding_distances.shape[1])


def check(val: Pairs, test: Pairs) -> Check:
    """The calibration of one split, on another."""
    found = calibrate(val, "graded")
    assert found is not None
    checked = found.checked(test).check
    assert checked is not None
    return checked


def row(name: str, val: Pairs, test: Pairs) -> list[str]:
    """A row of the table."""
    found, random = check(val, test), np.random.default_rng(0)
    drawn = [share(check(_resample(val, random), _resample(test, random))) for _ in range(RESAMPLES)]
    flat = [pairs._replace(embedding_distances=np.zeros_like(pairs.embedding_distances)) for pairs in (val, test)]
    halves, e, y = [], test.embedding_distances, test.label_distances
    for _ in range(HALVES):
        units = random.permutation(np.unique(test.units))
        first = np.isin(test.units, units[: len(units) // 2])
        halves.append(share(check(*(Pairs(e[own], y[own], test.units[own]) for own in (first, ~first)))))
    counts = [f"{len(np.unique(pairs.units))}" for pairs in (val, test)]
    observed, intervals = f"{100 * share(found):.1f}", (found.interval or (0, 0), np.percentile(drawn, [2.5, 97.5]))
    shown = [f"{100 * lo:.1f} to {100 * hi:.1f}{'' if lo <= LEVEL <= hi else ' *'}" for lo, hi in intervals]
    widths = [f"{found.width:.3g}", f"{check(*flat).width:.3g}"]
    return [name, *counts, observed, *shown, *widths, f"{100 * np.mean(halves):.1f} ± {100 * np.std(halves):.1f}"]


def share(checked: Check) -> float:
    """The share of the pairs with an interval that are inside of it; NaN where there are none."""
    return math.nan if checked.observed is None else checked.observed


def _resample(pairs: Pairs, random: np.random.Generator) -> Pairs:
    """Units drawn with replacement; copies of a unit are units of their own."""
    units, of = np.unique(pairs.units, return_inverse=True)
    rows = [np.flatnonzero(of == unit) for unit in random.integers(0, len(units), len(units))]
    index = np.concatenate(rows)
    number = np.repeat(np.arange(len(rows)), [len(part) for part in rows])
    return Pairs(pairs.embedding_distances[index], pairs.label_distances[index], number)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", default="IMAGENET1K_V1")
    parser.add_argument("--save", type=Path)
    given = parser.parse_args()
    header = ["data", "validation queries or houses", "test", "coverage, %", "of test", "of both"]
    rows = [[*header, "mean width", "without", "halves, %"]]
    for name, experiment in experiments(given.weights):
        rows.append(row(name, *pairs_of(experiment)))
        print(" | ".join(rows[-1]), flush=True)
    if given.save is not None:
        text = f"{heading('Coverage of the 90 % interval of label distances')}\n{__doc__}\n{table(rows)}\n"
        given.save.write_text(text + "\n\\* does not hold 90.\n")


if __name__ == "__main__":
    main()
