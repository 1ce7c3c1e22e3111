"""Continuous labels against class-style training on a synthetic twin: every config on a few seeds, in one table.

What the programs `benchmarks/NAME_synthetic.py` share. Options of a baseline are chosen on the test split of the first
seed, which is in its favour; the budget, the backbone and the sampler are what the configs say.
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
#: The K of all figures.
_K = 10


class Method(NamedTuple):
    """One row of the table: a config, and the changes of which the first seed chooses one ("loss.margin=0.1")."""

    name: str
    config: str
    tried: tuple[str, ...] = ()


class Found(NamedTuple):
    """What one training found: mean label distance@10 as shares of a random ranking's, and other figures."""

    share: float
    untrained: float
    oracle: float
    normalized: float  # 0 for a random ranking, 1 for the oracle
    ndcg: float
    spearman: float
    seconds: float  # of training and evaluation, without drawing


def train(config: str, task: Task, *changes: str) -> Found:
    """One training of a config; its data are given, so that all methods share them."""
    trainer = load(config, ["training.evaluate_every=1000", *changes]).build_trainer(task, quiet=True)
    before = trainer.evaluate()[0].curves["label_distance"]
    start = time.perf_counter()
    trainer.fit()
    seconds = time.perf_counter() - start
    assert trainer.result is not None
    evaluation = trainer.result[0]
    curve, last = evaluation.curves["label_distance"], _K - 1
    return Found(
        share=curve.model[last] / curve.random[last],
        untrained=before.model[last] / before.random[last],
        oracle=curve.oracle[last] / curve.random[last],
        normalized=curve.at(_K).normalized(),
        ndcg=evaluation.curves["ndcg"].model[last],
        spearman=evaluation.spearman,
        seconds=seconds,
    )


class Kept:
    """Trainings already done, one small file each: a program that was broken off goes on, and two may share a folder.

    changes: changes to every config.
    """

    def __init__(self, task: Task, folder: Path | None, changes: list[str]) -> None:
        self.task, self.folder, self.changes = task, folder, changes

    def train(self, config: str, *changes: str) -> Found:
        """`train`, or what it found the last time."""
        every = [*self.changes, *changes]
        path = None
        if self.folder is not None:
            # By all that the config says: where it is changed, the training is another one.
            values = json.dumps(load(config, every).values, sort_keys=True, default=str)
            path = self.folder / f"{config.replace('/', '_')}_{hashlib.sha256(values.encode()).hexdigest()[:16]}.json"
        if path is not None and path.exists():
            return Found(**json.loads(path.read_text(encoding="utf-8")))
        found = train(config, self.task, *every)
        print(config, *every, f"{found.share:.3f} in {found.seconds:.0f} s", file=sys.stderr, flush=True)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(found._asdict()), encoding="utf-8")
        return found


def main(title: str, methods: list[Method], description: str | None) -> None:
    """The command line of a program: train, print the table, save it.

    The data are those of the first method's config.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("changes", nargs="*", metavar="KEY=VALUE", help="changes to every config")
    parser.add_argument("--only", nargs="*", metavar="CONFIG", help="these configs alone", default=None)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keeps each training; those in it are not repeated")
    parser.add_argument("--save", type=Path, metavar="FILE", help="where the table goes as well")
    given = parser.parse_args()
    chosen = [method for method in methods if given.only is None or method.config in given.only]
    if not chosen:
        parser.error(f"--only takes {', '.join(method.config for method in methods)}")
    of_task = [change for change in given.changes if change.startswith("task.")]
    kept = Kept(load(methods[0].config, of_task).build_task(), given.keep, given.changes)
    text = _report(title, chosen, kept)
    print(text)
    if given.save is not None:
        given.save.write_text(text + "\n", encoding="utf-8")


def _report(title: str, methods: list[Method], kept: Kept) -> str:
    head = ["method", "options", *(f"seed {seed}" for seed in SEEDS), "mean"]
    head += ["normalized score", f"nDCG@{_K}", "Spearman", "seconds a run"]
    rows, notes, every = [head], [], []
    for method in methods:
        options, note = _choose(method, kept)
        notes += [note] if note else []
        runs = [kept.train(method.config, f"seed={seed}", *options) for seed in SEEDS]
        every += runs
        rows.append(
            [
                method.name,
                " ".join(options) or "-",
                *(f"{run.share:.3f}" for run in runs),
                f"{statistics.mean(run.share for run in runs):.3f}",
                f"{statistics.mean(run.normalized for run in runs):.1%}",
                f"{statistics.mean(run.ndcg for run in runs):.3f}",
                f"{statistics.mean(run.spearman for run in runs):.3f}",
                f"{statistics.median(run.seconds for run in runs):.0f}",
            ]
        )
    untrained = [run.untrained for run in every[: len(SEEDS)]]
    rows.append(["untrained", "-", *(f"{u:.3f}" for u in untrained), f"{statistics.mean(untrained):.3f}", *["-"] * 4])
    told = f"Shares are of a random ranking's mean label distance@{_K}; the oracle's is {every[0].oracle:.3f}."
    if kept.changes:
        notes.append(f"all with {' '.join(kept.changes)}")
    lines = [heading(title), table(rows), "", told]
    return "\n".join([*lines, "", *(f"- {note}" for note in notes)] if notes else lines)


def _choose(method: Method, kept: Kept) -> tuple[list[str], str]:
    """The options of a method that are best on the first seed, and what each of those tried gave."""
    if not method.tried:
        return [], ""
    found = {options: kept.train(method.config, f"seed={SEEDS[0]}", *options.split()) for options in method.tried}
    best = min(found, key=lambda options: found[options].share)
    told = ", ".join(f"{options} {run.share:.3f}" for options, run in found.items())
    return best.split(), f"{method.name}, tried on seed {SEEDS[0]}: {told}"
