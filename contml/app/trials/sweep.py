"""`contml sweep`: trials, each judged on the validation split. The test split is not read.

trial n = f(space, sampler, seed, n)  ->  trainings of all seeds  ->  mean
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from contml._support.errors import InputError
from contml._support.files import check_new_folder
from contml.app.experiment import Experiment, OwnData, load, load_table, resume, train
from contml.app.trials.record import FinishedTrainings, Result, result_of, train_missing
from contml.app.trials.space import Choice, Params, Space, draw, overrides_of, parse_space
from contml.app.trials.sweep_result import Sweep, Trial, outcome, ranked
from contml.config import difference, read
from contml.data.identity import DataRecord
from contml.data.split import Task
from contml.evaluation.evaluated import Evaluated
from contml.runs import PLACES, Run

#: The keys of a result without an error, and their types.
_MEASURED = {"value": float, "metric": str, "queries": int, "epoch": int | float, "untrained": bool, "run": str}
#: The most combinations of values that are all checked before anything is trained.
_MOST_CHECKED = 200
#: The most differences between two specs that a message names.
_SHOWN = 3


def sweep(
    config: str | None,
    overrides: Sequence[str] = (),
    tries: Sequence[str] = (),
    *,
    trials: int | None = None,
    seeds: int = 1,
    processes: int | None = None,
    cluster: str = "",
    runs: Path = Path("runs"),
    name: str = "",
    own: OwnData | None = None,
    on_line: Callable[[str], None] = lambda _: None,
) -> Sweep:
    """Try values of options, and judge each trial on the validation split. The test split is not read.

    A call with the same arguments continues a sweep that was stopped, or adds more trials.

    Args:
        config: a config that comes with contml, or a YAML file. It may be None with `own`: one is chosen for the data.
        overrides: changes to the config, as `KEY=VALUE`.
        tries: the values to try: `KEY=A,B,C` is a choice, `KEY=LOW..HIGH` is a range.
        trials: number of trials, drawn at random. If all `tries` are choices, and the number suffices or is None, all
            combinations are tried.
        seeds: number of trainings of a trial, with consecutive seeds.
        processes: number of trainings at a time. Default: 1. With a cluster, it is the number of its processors (GPUs,
            if it has any).
        cluster: the address of a Ray cluster that trains, as in `contml.work.run`. Its machines need the current
            folder, the data and `runs`. If it is empty, this machine trains.
        runs: the folder of the sweep is `runs/CONFIG/sweep_NAME`.
        name: distinguishes sweeps of one config.
        own: your own data.
        on_line: called with a line about each finished training.

    Raises:
        InputError: an error in the arguments, in the data or of the machine, the folder belongs to another sweep, or
            another command works on it.
        KeyboardInterrupt: a signal stopped the sweep.
    """
    space = parse_space(tries, overrides, trials=trials, seeds=seeds, processes=processes)
    first = tuple(overrides_of({dimension.key: dimension.points[0] for dimension in space}))
    # Now, and not in each training: a file in the cache may come or go.
    source = _Source(config, tuple(overrides), None if own is None else own.decided(config, overrides), first)
    base = source.load(first)
    folder = runs / base.name / (f"sweep_{name}" if name else "sweep")
    file = folder / "trials.jsonl"
    sampler, count = _plan(space, trials)
    seed = base.config.values["seed"]
    seeds_of_trial = range(seed, seed + seeds)
    task = base.read_task()
    _check_points(source, space, _fixed(seeds_of_trial[-1]), task, base)
    config_values = {section: options for section, options in base.values.items() if section != "published"}
    for section, options in config_values.items():
        if isinstance(options, dict):  # without where files are
            config_values[section] = {k: value for k, value in options.items() if f"{section}.{k}" not in PLACES}
    spec: dict[str, Any] = {"config": config_values, "space": {dimension.key: str(dimension) for dimension in space}}
    spec |= {"sampler": sampler, "seeds": seeds, "data": _digest(task, base.root)}
    measure = task.train.labels.measure
    del task
    if not file.is_file():
        check_new_folder(folder, ("trials.jsonl", "trial_*"), hint="choose another --name")
    record = _SweepRecord(file, spec, {**spec, "config": base.document.values})
    tried = [draw(space, sampler, seed, n) for n in range(count)]
    all_trials = _Trials(tried, seeds_of_trial, folder, record)

    def on_done(item: _TrialTraining) -> None:
        _remove_weights(item.folder)
        values = " ".join(overrides_of(item.params))
        on_line(f"trial {item.trial} ({values}), seed {item.seed}: {outcome(record[item.key], measure)}")

    with record.command(str(folder)):
        if base.config.parts["training"].options["select"] == "none":
            on_line("training.select=none in the config: the trials use select=val, the final training uses none")
        how: Any = {"processes": processes, "cluster": cluster, "on_done": on_done}
        how["is_needed"] = lambda item: item in all_trials.trainings_of(item.trial)
        how["log"] = lambda item: item.folder.with_name(f"{item.folder.name}.log")
        train_missing(all_trials.plan, partial(_train, source), record, **how)
        for item in all_trials.plan():
            _remove_weights(item.folder)  # a kill may have come first
        best_first = tuple(ranked([all_trials.trial(n) for n in range(count)]))
        if best_first[0].error:
            raise InputError(str(folder), f"all {count} trials failed; the first: {best_first[0].error}")
        return Sweep(folder, space, best_first, tuple(source.arguments()), measure)


@dataclass(frozen=True)
class _Source:
    """The source of the trainings of a sweep: the arguments of `contml train`, and the first values that are tried."""

    config: str | None
    overrides: Sequence[str]
    own: OwnData | None
    first: Sequence[str]

    def load(self, changes: Sequence[str]) -> Experiment:
        """Load the experiment, with more overrides."""
        overrides = [*self.overrides, *changes]
        if self.own is not None:
            return load_table(self.own, self.config, overrides)
        if self.config is None:
            raise InputError("config", "missing", hint="name a config, or give data")
        return load(self.config, overrides)

    def arguments(self) -> list[str]:
        """Return the arguments of `contml train`."""
        data_arguments = [] if self.own is None else self.own.arguments()
        return [*([] if self.config is None else [self.config]), *data_arguments, *self.overrides]


@dataclass(frozen=True)
class _TrialTraining:
    """A training of a trial: an item of work.

    Attributes:
        trial: the number of the trial, from 0.
        params: the values that the trial tries.
        seed: the seed of the training.
        changes: all changes to the config.
        folder: the run folder.
    """

    trial: int
    params: Params
    seed: int
    changes: Sequence[str]
    folder: Path

    @property
    def key(self) -> str:
        """A key that distinguishes it from the other trainings of the sweep."""
        return json.dumps([" ".join(overrides_of(self.params)), self.seed])

    def __str__(self) -> str:
        return str(self.folder)


class _SweepRecord(FinishedTrainings):
    """The file of a sweep: its spec in the first line, then the finished trainings.

    Args:
        path: the file.
        spec: the definition of the sweep.
        written: the spec with the config as it was written, without defaults.
    """

    of = "a sweep"

    def __init__(self, path: Path, spec: Mapping[str, Any], written: Mapping[str, Any]) -> None:
        self.spec, self.written = spec, written
        super().__init__(path, spec)

    def parse(self, row: dict[str, Any]) -> tuple[str, Result]:
        """Return the training of a line. It has a finite value, or an error."""
        key, result = super().parse(row)
        types: dict[str, Any] = {"error": str} if "error" in result else _MEASURED
        are_typed = result.keys() == {*types, "seconds"} and all(
            isinstance(result[name], types[name]) for name in types
        )
        if not are_typed or not all(math.isfinite(result.get(name, 0.0)) for name in ("value", "epoch")):
            raise ValueError
        return key, result

    def check_head(self, stored: dict[str, Any]) -> None:
        """Compare the spec of the file with the spec of the command."""
        if changes := [change.removeprefix("config.") for change in difference(stored, self.spec, self.written)]:
            more = f"; and {len(changes) - _SHOWN} more" if len(changes) > _SHOWN else ""
            got = f"belongs to another sweep ({'; '.join(changes[:_SHOWN])}{more})"
            raise InputError(str(self.path), got, hint="repeat the command that began it, or choose another --name")

    def check(self, value: Result) -> None:
        """Refuse a training that is judged by another metric.

        Unreadable images make a smaller gallery, with another metric.
        """
        metrics = dict.fromkeys(each["metric"] for each in self.values() if "metric" in each)
        if "metric" in value and value["metric"] not in (metrics or [value["metric"]]):
            got = f"judged by {value['metric']}, the trainings before it by {next(iter(metrics))}"
            raise InputError(value["run"], got, hint="repair the images that could not be read, or use --name")


@dataclass(frozen=True)
class _Trials:
    """The trials of a sweep: the values that each tries, and its trainings.

    Attributes:
        tried: the values of each trial.
        seeds: the seeds of the trainings of a trial.
        folder: the folder of the sweep.
        record: the results.
    """

    tried: Sequence[Params]
    seeds: Sequence[int]
    folder: Path
    record: _SweepRecord

    def trainings_of(self, n: int) -> list[_TrialTraining]:
        """Return the trainings of a trial that are needed. No training follows one that failed."""
        found = []
        for seed in self.seeds:
            several = f"_seed_{seed}" if len(self.seeds) > 1 else ""
            changes = (*overrides_of(self.tried[n]), *_fixed(seed))
            found.append(_TrialTraining(n, self.tried[n], seed, changes, self.folder / f"trial_{n:03d}{several}"))
            if "error" in self.record.get(found[-1].key, {}):
                break
        return found

    def trial(self, n: int) -> Trial:
        """Return a trial with its results so far."""
        finished = [item for item in self.trainings_of(n) if item.key in self.record]
        return Trial.of(n, self.tried[n], {item.seed: self.record[item.key] for item in finished}, self.folder)

    def plan(self) -> list[_TrialTraining]:
        """Return the trainings of all trials."""
        return [item for n in range(len(self.tried)) for item in self.trainings_of(n)]


def _train(source: _Source, item: _TrialTraining) -> Result:
    """Train, and evaluate the best weights on the validation split. Resume a training that was interrupted.

    Raises:
        InputError: as in `result_of`, or another process trains in this folder.
    """
    if item.folder.is_dir():
        with Run(item.folder).lock():  # raises if a training of an earlier command has not ended yet
            pass
    result = result_of(lambda: _trained(source, item))
    if "error" in result:
        source.load(source.first).read_task()  # raises if the data are at fault, and not the options
    return result


def _trained(source: _Source, item: _TrialTraining) -> Result:
    experiment = source.load(item.changes)
    if not _resumed(experiment, item.folder):
        shutil.rmtree(item.folder, ignore_errors=True)
        train(experiment, item.folder.parent, split="val", folder=item.folder)
    evaluated = Evaluated.read(Run(item.folder).evaluation())
    metric, value = evaluated.evaluation.headline, evaluated.evaluation.main.model
    if not math.isfinite(value):
        raise InputError(metric, str(value), hint="no query of the validation split can be evaluated")
    about = {"queries": evaluated.evaluation.queries, "epoch": evaluated.epoch, "untrained": bool(evaluated.untrained)}
    return {"value": value, "metric": metric, **about, "run": item.folder.as_posix()}


def _resumed(experiment: Experiment, folder: Path) -> bool:
    """Resume an interrupted training of the same config. Return False if there is none, or if it cannot be resumed."""
    config = folder / "config.yaml"
    if not (config.exists() and (folder / "checkpoints" / "state.safetensors").exists()):
        return False
    if difference(read(config).values, experiment.values, experiment.document.values):  # left by another sweep
        return False
    try:
        resume(folder, trust=True, split="val")
    except InputError:
        return False
    return True


def _remove_weights(folder: Path) -> None:
    """Delete the weights and embeddings of a finished training. The files of many trials would fill the disk."""
    for name in ("checkpoints", "embeddings"):
        shutil.rmtree(folder / name, ignore_errors=True)


def _plan(space: Space, trials: int | None) -> tuple[str, int]:
    """Return the sampler and the number of trials."""
    is_range = any(not isinstance(dimension, Choice) for dimension in space)
    combinations = 0 if is_range else math.prod(len(dimension.points) for dimension in space)
    if combinations and (trials is None or trials >= combinations):
        return "grid", combinations
    if trials is None:
        raise InputError("--trials", "missing", hint="give the number of trials, which are drawn from the ranges")
    return "random", trials


def _fixed(seed: int) -> list[str]:
    """Return the overrides of a training that are not tried: seed, selection."""
    return [f"seed={seed}", "training.select=val"]


def _check_points(source: _Source, space: Space, fixed: Sequence[str], task: Task, base: Experiment) -> None:
    """Refuse values that a part does not accept, or that do not fit the data, before anything is trained.

    The config is loaded with the ends of ranges and all choices. With the first and the last values, the network and
    the training step are built.

    Args:
        source: the source of the trainings.
        space: the values to try.
        fixed: the overrides of a training that are not tried.
        task: the data of `base`.
        base: the config with the first values.
    """
    points = [dimension.points for dimension in space]
    if math.prod(map(len, points)) <= _MOST_CHECKED and source.own is None:
        combinations = list(itertools.product(*points))
    else:  # each value once; a table is read each time
        combinations = [tuple(values[n % len(values)] for values in points) for n in range(max(map(len, points)))]
    for values in combinations:
        params = {dimension.key: value for dimension, value in zip(space, values, strict=True)}
        experiment = source.load([*overrides_of(params), *fixed])
        if experiment.config.parts["training"].options["epochs"] == 0:
            raise InputError("training.epochs", "0", "must be at least 1 in a sweep")
        experiment.check_labels(task)
        if values in (combinations[0], combinations[-1]):
            has_data = experiment.task is not None or experiment.values["task"] != base.values["task"]
            built = (experiment if has_data else replace(experiment, task=task)).build_task()
            network = experiment.build_network(built, weights=False)
            if experiment.results.embeds:  # its words would be counted each time
                experiment.build_step(built, network, weights=False, quiet=True, search=False)


def _digest(task: Task, root: str) -> str:
    """Return a hash that identifies the data that train and judge the trials."""
    record, content = DataRecord.of(task, root), hashlib.sha256()
    for split in ("train", "val"):
        for text in itertools.chain(record.names.get(split, ()), ["\n"], record.labels.get(split, ()), ["\n"]):
            content.update(text.encode(errors="surrogateescape") + b"\0")
    return content.hexdigest()[:16]
