"""Equal trials for every method: the validation split chooses options, which are then measured on the test split.

    for each method, each of its options:   train with seed 0, measure on the validation split
    for seeds 1, 2, 3, for each method:     train its best option, measure on the test split

Every method has the same number of options to try; with one option there is nothing to choose, and only the second line
is trained. Options that were not chosen are never measured on the test split.
A finished training is a line of benchmarks/results/raw/NAME.jsonl; a later call goes on from there.
Intervals are 95 % t intervals over the seeds; differences to the first method are paired by seed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from benchmarks.measure import heading, table
from contml import InputError
from contml.app.experiment import load
from contml.app.trials.record import FinishedTrainings, Result, result_of, train_missing
from contml.evaluation import half_width
from contml.work import OutOfTimeError

TRIAL_SEED, SEEDS = 0, (1, 2, 3)
RAW = Path(__file__).parent / "results" / "raw"
#: Keys of a config that say where files are and how they are read: another value is the same training.
_PLACES = {("task", "root"), ("task", "data"), ("images", "features"), ("images", "workers"), ("model", "weights")}

INTERVAL = "±: 95 % t interval over the seeds; it does not include the choice of test items."

#: What a training is measured by. "value" chooses an option; "seconds" is how long it took.
Metrics: TypeAlias = dict[str, float]


@dataclass(frozen=True)
class Method:
    """A row of the table: a config, changes to it, and the options to choose from, each `"KEY=VALUE KEY=VALUE"`."""

    name: str
    config: str
    tried: tuple[str, ...]
    changes: tuple[str, ...] = ()


class Job(NamedTuple):
    """A training, and the split on which it is measured."""

    method: Method
    options: str
    seed: int
    split: Literal["val", "test"]
    changes: tuple[str, ...] = ()  # of all methods

    def __str__(self) -> str:
        return f"{self.split}: {self.method.name}, {self.options or 'as in the config'}, seed {self.seed}"

    @property
    def overrides(self) -> list[str]:
        """All changes to the config."""
        return [*self.changes, *self.method.changes, *self.options.split(), f"seed={self.seed}"]

    @property
    def key(self) -> str:
        """What identifies the training in the file: also the values of its config, so that an edited one is another."""
        return _key(self)


@cache
def _key(job: Job) -> str:
    values = load(job.method.config, job.overrides).document.values
    flat = {
        (section, key): value
        for section, entry in values.items()
        for key, value in (entry.items() if isinstance(entry, dict) else [("", entry)])
        if (section, key) not in _PLACES
    }
    content = json.dumps(sorted((*key, json.dumps(value, sort_keys=True)) for key, value in flat.items()))
    digest = hashlib.sha256(content.encode()).hexdigest()[:12]
    return json.dumps([job.method.name, job.options, job.seed, job.split, digest])


@dataclass
class Trials:
    """Trains what the record lacks.

    Args:
        methods: all with the same number of options to try.
        train: the metrics of a training; a function of a module, so that other processes can call it.
        record: the finished trainings.
        better: whether a lower or a higher "value" is better.
        trial_changes: changes to all configs where the validation split is measured.
        test_changes: changes to all configs where the test split is measured.
        workers: trainings at a time; each has a process of its own if there are several.
        deadline: no training is started after this `time.monotonic()`.
        seeds: of the trainings that are measured on the test split.
    """

    methods: Sequence[Method]
    train: Callable[[Job], Metrics]
    record: FinishedTrainings
    better: Literal["lower", "higher"]
    trial_changes: tuple[str, ...] = ()
    test_changes: tuple[str, ...] = ()
    workers: int = 1
    deadline: float = math.inf
    seeds: tuple[int, ...] = SEEDS

    def __post_init__(self) -> None:
        if len({len(method.tried) for method in self.methods}) != 1:
            raise ValueError(f"methods with different numbers of trials: {[len(m.tried) for m in self.methods]}")

    def run(self) -> None:
        """Train everything that the record lacks.

        Raises:
            OutOfTimeError: the time limit has passed; what is finished is in the record.
        """
        train_missing(
            self.known,
            partial(_measured, self.train),
            self.record,
            processes=self.workers,
            deadline=self.deadline,
            on_done=self._print,
        )

    def known(self) -> list[Job]:
        """The trainings that are known so far: the trials, and after them the trainings of the chosen options."""
        trials = self.trial_jobs()
        if any(job.key not in self.record for job in trials):
            return trials
        by_seed = zip(*(self.test_jobs(method) for method in self.methods), strict=True)  # comparable if it ends early
        return [*trials, *(job for jobs in by_seed for job in jobs)]

    @property
    def chooses(self) -> bool:
        """Whether a method has several options to choose from."""
        return len(self.methods[0].tried) > 1

    def trial_jobs(self) -> list[Job]:
        """The trainings that are measured on the validation split; none where there is nothing to choose."""
        if not self.chooses:
            return []
        return [
            Job(method, options, TRIAL_SEED, "val", self.trial_changes)
            for method in self.methods
            for options in method.tried
        ]

    def test_jobs(self, method: Method) -> list[Job]:
        """The trainings of a method's chosen options, measured on the test split."""
        return [Job(method, self.choice(method), seed, "test", self.test_changes) for seed in self.seeds]

    def choice(self, method: Method) -> str:
        """The options with the best validation result; of equal ones the first."""
        if not self.chooses:
            return method.tried[0]
        sign, results = 1 if self.better == "lower" else -1, self.tried(method)
        return min(method.tried, key=lambda options: sign * results[options])

    def tried(self, method: Method) -> dict[str, float]:
        """The validation result of each of the options; the worst possible one where training failed."""
        worst = math.inf if self.better == "lower" else -math.inf
        jobs = [job for job in self.trial_jobs() if job.method == method]
        return {job.options: self.record[job.key].get("value", worst) for job in jobs}

    def num_different(self, method: Method) -> int:
        """The number of options that give different numbers: an option may change nothing."""
        found = [self.record[job.key] for job in self.trial_jobs() if job.method == method]
        return len({json.dumps({**metrics, "seconds": 0}) for metrics in found})

    def tests(self, method: Method) -> list[Result]:
        """The metrics on the test split, one per seed."""
        return [self.record[job.key] for job in self.test_jobs(method)]

    @property
    def total(self) -> int:
        """The number of trainings in all."""
        return len(self.trial_jobs()) + len(self.seeds) * len(self.methods)

    @property
    def done(self) -> int:
        """The number of finished ones."""
        return sum(job.key in self.record for job in self.known())

    def _print(self, job: Job) -> None:
        metrics = self.record[job.key]
        text = f"{metrics['value']:.4g} in {metrics['seconds']:.0f} s" if "value" in metrics else "failed"
        print(f"{job}: {text}", file=sys.stderr, flush=True)


def _measured(train: Callable[[Job], Metrics], job: Job) -> Result:
    """The result of a training; an error of the chosen options ends the benchmark."""
    result = result_of(lambda: train(job))
    if job.split == "test" and "error" in result:
        raise InputError(str(job), result["error"])
    return result


def mean_text(values: Sequence[float], form: str = ".3f") -> str:
    """The mean and its interval; of one value, the value."""
    several = f" ± {half_width(values):.3f}" if len(values) > 1 else ""
    return format(statistics.mean(values), form) + several


def report(trials: Trials, columns: Mapping[str, tuple[str, str]]) -> str:
    """The table of the chosen options on the test split, and the validation results of all options.

    Where nothing was chosen, the methods keep their order.

    Args:
        trials: all of them are finished.
        columns: title of each further column: the name of a metric, and its format.
    """
    reference = [metrics["value"] for metrics in trials.tests(trials.methods[0])]
    first = trials.methods[0].name
    rows, notes = [], []
    for method in trials.methods:
        found = trials.tests(method)
        values = [metrics["value"] for metrics in found]
        pairs = [value - other for value, other in zip(values, reference, strict=True)]
        rows.append(
            [
                method.name,
                *([trials.choice(method) or "-"] if trials.chooses else []),
                mean_text(values),
                "-" if method.name == first else mean_text(pairs, "+.3f"),
                *(format(statistics.mean(m[name] for m in found), form) for name, form in columns.values()),
                f"{statistics.median(metrics['seconds'] for metrics in found):.0f}",
            ]
        )
        if trials.chooses:
            results = ", ".join(f"{options or '-'} {value:.4g}" for options, value in trials.tried(method).items())
            count, different = len(method.tried), trials.num_different(method)
            notes.append(f"- {method.name}: {results}" + f" ({different} of {count} differ)" * (different < count))
    chosen = ["chosen options"] if trials.chooses else []
    seeds = f"mean of {len(trials.seeds)} seeds" if len(trials.seeds) > 1 else f"seed {trials.seeds[0]}"
    head = ["method", *chosen, f"test, {seeds}", f"less {first}", *columns, "seconds"]
    if not trials.chooses:
        return "\n".join([table([head, *rows]), "", f"Seeds {', '.join(map(str, trials.seeds))}. {INTERVAL}"])
    rows.sort(key=lambda row: float(row[2].split()[0]), reverse=trials.better == "higher")
    number = len(trials.methods[0].tried)
    remark = f"Each method: {number} options tried on the validation split with seed {TRIAL_SEED}; the chosen one was"
    if len(trials.seeds) > 1:
        remark += f" trained with seeds {', '.join(map(str, trials.seeds))} and measured on the test split."
        remark += f" {INTERVAL}"
    else:
        remark += f" trained with seed {trials.seeds[0]} and measured on the test split."
    return "\n".join([table([head, *rows]), "", remark, "", "Validation results:", "", *notes])


def arguments(description: str | None) -> argparse.ArgumentParser:
    """The arguments that every benchmark of trials has."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=math.inf, help="start no training after so many minutes")
    parser.add_argument("--workers", type=int, default=1, help="trainings at a time, of one thread each")
    parser.add_argument("--plan", action="store_true", help="only print how long it will take")
    parser.add_argument("--raw", type=Path, metavar="FOLDER", default=RAW, help="where finished trainings are kept")
    parser.add_argument("--save", type=Path, metavar="FILE", help="also write the table to this file")
    return parser


def main(
    title: str,
    parts: Mapping[str, tuple[Trials, float]],
    columns: Mapping[str, tuple[str, str]],
    given: argparse.Namespace,
    remark: Callable[[Trials], str] = lambda _: "",
    overview: Callable[[dict[str, Trials]], str] | None = None,
) -> None:
    """Train what is missing, and print the tables; with --plan only how long it takes.

    Args:
        title: of the page.
        parts: the trials of each table by its title ("" for the only one), and the seconds of one of its trainings.
        columns: as in `report`.
        given: the arguments of the command line.
        remark: a line below a table.
        overview: what stands before the tables.
    """
    start = time.monotonic()
    for name, (trials, seconds) in parts.items():
        trials.workers, trials.deadline = given.workers, start + 60 * given.minutes
        known = [metrics["seconds"] for job in trials.trial_jobs() if (metrics := trials.record.get(job.key))]
        each = statistics.median(known) if known else seconds
        left = trials.total - trials.done
        minutes = left * each / 60 / given.workers
        print(f"{name or title}: {trials.total} trainings, {trials.done} done; about {minutes:.0f} minutes more "
              f"({left} x {each:.0f} s, {given.workers} at a time)", file=sys.stderr)  # fmt: skip
    if given.plan:
        return
    try:
        with ExitStack() as stack:
            for record in {trials.record.path: trials.record for trials, _ in parts.values()}.values():
                stack.enter_context(record.command(str(record.path)))
            for trials, _ in parts.values():
                trials.run()
    except OutOfTimeError:
        done, total = (sum(getattr(trials, name) for trials, _ in parts.values()) for name in ("done", "total"))
        print(
            f"stopped after {given.minutes:g} minutes: {done} of {total} trainings are done; the same command goes on"
        )
        return
    sections = [overview({name: trials for name, (trials, _) in parts.items()})] if overview is not None else []
    for name, (trials, _) in parts.items():
        lines = [f"## {name}\n"] if name else []
        sections.append(
            "\n".join([*lines, report(trials, columns), *([f"\n{line}"] if (line := remark(trials)) else [])])
        )
    text = f"{heading(title)}\n" + "\n\n".join(sections) + "\n"
    print(text)
    if given.save is not None:
        given.save.write_text(text, encoding="utf-8")
