"""Compares methods on a synthetic data set: each config is trained with three seeds; the metrics are one table.

The programs `benchmarks/NAME_synthetic.py` share this module. Options of a baseline are chosen on the test split of the
first seed, which favours the baseline. Budget, backbone and sampler are as in the configs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import sys
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.measure import heading, table
from contml.data import Task
from contml.experiment import load

SEEDS = (0, 1, 2)
#: The K of all metrics.
_K = 10


class Method(NamedTuple):
    """One row of the table: a config, and changes ("loss.margin=0.1") of which the best on the first seed is used."""

    name: str
    config: str
    candidates: tuple[str, ...] = ()


def log_ratio_and_triplets(config: str) -> list[Method]:
    """Log-ratio loss with dense sampling, and triplets of a thresholded label distance with one of three margins."""
    margins = ("loss.margin=0.05", "loss.margin=0.1", "loss.margin=0.2")
    return [Method("log-ratio, dense", config), Method("triplet, threshold", f"{config}_threshold", margins)]


class Metrics(NamedTuple):
    """The metrics of one training; mean label distance@10 is relative to that of a random ranking."""

    share: float
    untrained: float
    oracle: float
    normalized_score: float  # 0 = random ranking, 1 = oracle
    ndcg: float
    spearman: float
    seconds: float  # of training and evaluation, without drawing


def train(config: str, task: Task, *changes: str) -> Metrics:
    """The metrics of one training of a config on the data that all methods share."""
    trainer = load(config, ["training.evaluate_every=1000", *changes]).build_trainer(task, quiet=True)
    before = trainer.evaluate()[0].curves["label_distance"]
    start = time.perf_counter()
    trainer.fit()
    seconds = time.perf_counter() - start
    assert trainer.result is not None
    evaluation = trainer.result[0]
    curve, last = evaluation.curves["label_distance"], _K - 1
    return Metrics(
        share=curve.model[last] / curve.random[last],
        untrained=before.model[last] / before.random[last],
        oracle=curve.oracle[last] / curve.random[last],
        normalized_score=curve.at(_K).normalized(),
        ndcg=evaluation.curves["ndcg"].model[last],
        spearman=evaluation.spearman,
        seconds=seconds,
    )


class Trainings:
    """Trains configs, and keeps the metrics in one small file per training, so that none is repeated.

    An interrupted program continues where it stopped, and two programs can share a folder.

    Args:
        task: the data of all trainings.
        folder: where the files are; None: no files.
        changes: changes to every config.
    """

    def __init__(self, task: Task, folder: Path | None, changes: list[str]) -> None:
        self.task, self.folder, self.changes = task, folder, changes

    def train(self, config: str, *changes: str) -> Metrics:
        """The metrics of a training, from its file if there is one."""
        every = [*self.changes, *changes]
        path = None
        if self.folder is not None:
            # Named by all values of the config: a changed config is another training.
            values = json.dumps(load(config, every).values, sort_keys=True, default=str)
            path = self.folder / f"{config.replace('/', '_')}_{hashlib.sha256(values.encode()).hexdigest()[:16]}.json"
        if path is not None and path.exists():
            return Metrics(**json.loads(path.read_text(encoding="utf-8")))
        metrics = train(config, self.task, *every)
        print(config, *every, f"{metrics.share:.3f} in {metrics.seconds:.0f} s", file=sys.stderr, flush=True)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(metrics._asdict()), encoding="utf-8")
        return metrics


def main(title: str, methods: list[Method], description: str | None) -> None:
    """The command line of a program: train, print the table, save it. The first config gives the data."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("changes", nargs="*", metavar="KEY=VALUE", help="changes to every config")
    parser.add_argument("--only", nargs="*", metavar="CONFIG", help="only these configs", default=None)
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="FOLDER",
        help="keeps the metrics of each training; trainings that it holds are not repeated",
    )
    parser.add_argument("--save", type=Path, metavar="FILE", help="also write the table to this file")
    arguments = parser.parse_args()
    chosen = [method for method in methods if arguments.only is None or method.config in arguments.only]
    if not chosen:
        parser.error(f"--only takes {', '.join(method.config for method in methods)}")
    of_task = [change for change in arguments.changes if change.startswith("task.")]
    trainings = Trainings(load(methods[0].config, of_task).build_task(), arguments.keep, arguments.changes)
    text = _report(title, chosen, trainings)
    print(text)
    if arguments.save is not None:
        arguments.save.write_text(text + "\n", encoding="utf-8")


def _report(title: str, methods: list[Method], trainings: Trainings) -> str:
    head = ["method", "options", *(f"seed {seed}" for seed in SEEDS), "mean"]
    head += ["normalized score", f"nDCG@{_K}", "Spearman", "seconds a run"]
    rows, notes, every = [head], [], []
    for method in methods:
        options, note = _choose(method, trainings)
        notes += [note] if note else []
        runs = [trainings.train(method.config, f"seed={seed}", *options) for seed in SEEDS]
        every += runs
        rows.append(
            [
                method.name,
                " ".join(options) or "-",
                *(f"{run.share:.3f}" for run in runs),
                f"{statistics.mean(run.share for run in runs):.3f}",
                f"{statistics.mean(run.normalized_score for run in runs):.1%}",
                f"{statistics.mean(run.ndcg for run in runs):.3f}",
                f"{statistics.mean(run.spearman for run in runs):.3f}",
                f"{statistics.median(run.seconds for run in runs):.0f}",
            ]
        )
    untrained = [run.untrained for run in every[: len(SEEDS)]]
    rows.append(["untrained", "-", *(f"{u:.3f}" for u in untrained), f"{statistics.mean(untrained):.3f}", *["-"] * 4])
    unit = f"Mean label distance@{_K} is relative to that of a random ranking; the oracle has {every[0].oracle:.3f}."
    if trainings.changes:
        notes.append(f"all with {' '.join(trainings.changes)}")
    lines = [heading(title), table(rows), "", unit]
    return "\n".join([*lines, "", *(f"- {note}" for note in notes)] if notes else lines)


def _choose(method: Method, trainings: Trainings) -> tuple[list[str], str]:
    """The options of a method that are best on the first seed, and a note with the results of all candidates."""
    if not method.candidates:
        return [], ""
    seed = f"seed={SEEDS[0]}"
    runs = {options: trainings.train(method.config, seed, *options.split()) for options in method.candidates}
    best = min(runs, key=lambda options: runs[options].share)
    results = ", ".join(f"{options} {run.share:.3f}" for options, run in runs.items())
    return best.split(), f"{method.name}, candidates on seed {SEEDS[0]}: {results}"
