"""The search: trials in rounds, each training appended to a file that a later call goes on from.

    trial n = f(space, sampler, seed, n, results of the rounds before)  ->  trainings of all seeds and folds  ->  mean

For "grid" and "random" there is one round, since a trial sees no result. For "tpe" a round has as many trials as keep
all processes busy.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

from contml import work
from contml._support.errors import InputError
from contml._support.files import check_new_folder, write
from contml.contracts import PLAIN, Measure
from contml.data.identity import DataRecord
from contml.data.split import Task
from contml.evaluation.metrics import measure_of
from contml.experiment import Experiment, OwnData
from contml.runs import PLACES
from contml.sweep.results import Sweep
from contml.sweep.samplers import draw, optuna_version
from contml.sweep.space import Choice, Params, Space, grid, overrides_of, parse_space
from contml.sweep.training import Job, Source, run_job
from contml.sweep.trials import ROUND, TrainingResult, Trial, TrialsFile, better, key_of, ranked, stored_spec

Sampler: TypeAlias = Literal["grid", "random", "tpe"]

#: What the folder of a sweep has.
_FILES = ("trials.jsonl", "trial_*", "plot.png")
#: Up to so many combinations of values are all checked before anything is trained.
_MOST_CHECKED = 200
#: Names of items that are objects of Python at a time.
_CHUNK = 1 << 16


def sweep(
    config: str | None,
    overrides: Sequence[str] = (),
    tries: Sequence[str] = (),
    *,
    trials: int | None = None,
    sampler: Sampler | None = None,
    seeds: int = 1,
    folds: int = 1,
    processes: int | None = None,
    cluster: str = "",
    runs: Path = Path("runs"),
    name: str = "",
    file: Path | None = None,
    own: OwnData | None = None,
    on_line: Callable[[str], None] = lambda _: None,
) -> Sweep:
    """Try values of options, and judge each trial on the validation split; the test split is not read.

    A call with the same arguments continues a sweep that was stopped, or asks for more trials.

    Args:
        config: a config that comes with contml, or a YAML file; None with `own`: one that suits the data.
        overrides: changes to the config, as `KEY=VALUE`.
        tries: what to try: `KEY=A,B,C` is a choice, `KEY=LOW..HIGH` is a range.
        trials: number of trials; default for a grid: all combinations.
        sampler: default: "grid" if all `tries` are choices and `trials` suffices for all combinations, else "tpe".
        seeds: number of trainings of a trial, with consecutive seeds.
        folds: number of parts of the training split; each is the validation split of one training. 1: no folds.
        processes: number of trainings at a time; None: 1, or with a cluster as many as it has processors (GPUs, if it
            has any).
        cluster: the address of a Ray cluster that trains, as in `contml.work.run`: its machines share the data too.
        runs: the folder of the sweep is `runs/CONFIG/sweep_NAME`.
        name: distinguishes sweeps of one config.
        file: the file of the trainings; default `trials.jsonl` in the folder of the sweep.
        own: your own data.
        on_line: called with a line about each finished training.

    Raises:
        InputError: an error in the arguments, the file belongs to another sweep, or another process works on
            it. Nothing is trained then.
        KeyboardInterrupt: a signal stopped the sweep.
    """
    space = parse_space(tries, overrides, trials=trials, seeds=seeds, folds=folds, processes=processes)
    # Now, and not in each training: a file in the cache may come or go.
    source = Source(config, tuple(overrides), None if own is None else own.decided(config, overrides))
    base = source.load(overrides_of({dimension.key: dimension.points[0] for dimension in space}))
    folder = runs / base.name / (f"sweep_{name}" if name else "sweep")
    file = folder / "trials.jsonl" if file is None else file
    stored = stored_spec(file)
    stored_sampler = stored.get("sampler") if stored.get("sampler") in ("random", "tpe") else None
    sampler_name, num_trials = _plan(space, sampler or stored_sampler, trials)
    if sampler_name != "grid":
        optuna_version(sampler_name)  # before any training
    first_seed = base.config.values["seed"]
    runs_of_trial = [(first_seed + n, f if folds > 1 else None) for n in range(seeds) for f in range(folds)]
    points = _checked_points(source, space, _fixed(runs_of_trial[-1], folds))
    task = base.read_task()
    _check_on_data(points, task, base)
    if folds > 1 and task.val is not None:
        raise InputError("--folds", str(folds), hint="omit it: these data have a validation split of their own")
    if sampler_name == "tpe" and cluster and processes is None:
        hint = "give the number of trainings at a time, which the trials of sampler tpe depend on"
        raise InputError("--processes", "missing with --cluster", hint=hint)
    spec = _spec(base, task, space, sampler_name, seeds, folds, processes)
    measure = task.train.labels.measure
    del task
    notes = []
    if base.config.parts["training"].options["select"] == "none":
        notes.append("training.select=none in the config: the trials use select=val, the final training uses none")
    if not file.is_file():
        check_new_folder(folder, _FILES, hint="choose another --name")
    record = TrialsFile(file, spec, {**spec, "config": base.document.values})
    with record.command(str(folder)):
        if later_trials := [training.trial for training in record.values() if training.trial >= num_trials]:
            raise InputError(
                "--trials", str(num_trials), f"must be at least {max(later_trials) + 1}, as many as {file} has"
            )
        search = _Search(source, folder, record, runs_of_trial, folds, measure, on_line)
        for note in notes:
            on_line(note)
        round_size = record.round_size or num_trials
        for start in range(0, num_trials, round_size):
            numbers = range(start, min(start + round_size, num_trials))
            for n in numbers:
                search.params[n] = _params(search, space, sampler_name, first_seed, n, start)
            search.train(numbers, processes=processes, cluster=cluster)
        return _ranked_sweep(search, space, num_trials, file, notes)


def _spec(
    base: Experiment, task: Task, space: Space, sampler: str, seeds: int, folds: int, processes: int | None
) -> dict[str, Any]:
    """What the file of a sweep belongs to: its config, its data and its arguments, as of `sweep`."""
    return {
        "config": _comparable(base),
        "space": {dimension.key: str(dimension) for dimension in space},
        "sampler": sampler,
        "seeds": seeds,
        "folds": folds,
        ROUND: math.ceil((processes or 1) / (seeds * folds)) if sampler == "tpe" else None,
        "data": _digest(task, base.root),
        "optuna": None if sampler == "grid" else optuna_version(sampler),
    }


def _ranked_sweep(search: _Search, space: Space, trials: int, file: Path, notes: Sequence[str]) -> Sweep:
    """The result of a search whose trials are finished, and its plot.

    Raises:
        InputError: all trials failed.
    """
    ranked_trials = ranked([search.trial(n) for n in range(trials)])
    if ranked_trials[0].error:
        raise InputError(str(search.folder), f"all {trials} trials failed; the first: {ranked_trials[0].error}")
    arguments = tuple(search.source.arguments())
    result = Sweep(search.folder, file, space, tuple(ranked_trials), arguments, tuple(notes), search.measure)
    from contml.report.plots import png
    from contml.sweep.plot import sweep_plot

    write(search.folder / "plot.png", lambda path: path.write_bytes(png(sweep_plot(result))))
    return result


class _Search:
    """The state of a search: the values of each trial so far, and the file of the trainings.

    Args:
        source: what is trained.
        folder: the folder of the run folders.
        record: the file.
        runs: seed and fold of each training of a trial, in order.
        folds: number of folds.
        measure: how label distances are printed.
        on_line: called with a line about each finished training.
    """

    def __init__(
        self,
        source: Source,
        folder: Path,
        record: TrialsFile,
        runs: Sequence[tuple[int, int | None]],
        folds: int,
        measure: Measure,
        on_line: Callable[[str], None],
    ) -> None:
        self.source, self.folder, self.record, self.runs, self.folds = source, folder, record, runs, folds
        self.measure, self.on_line = measure, on_line
        self.params: dict[int, Params] = {}

    def trial(self, n: int) -> Trial:
        """A trial with its trainings so far, up to the first that failed."""
        trainings: list[TrainingResult] = []
        for run in self.runs:
            training = self.record.get(key_of(n, *run))
            if training is not None:
                trainings.append(training)
            if training is not None and training.error:
                break
        return Trial(n, self.params[n], tuple(trainings))

    def jobs(self, n: int) -> list[Job]:
        """The trainings of a trial."""
        changes = overrides_of(self.params[n])
        jobs = []
        for run in self.runs:
            seed = f"_seed_{run[0]}" if len({seed for seed, _ in self.runs}) > 1 else ""
            fold = "" if run[1] is None else f"_fold_{run[1]}"
            training = TrainingResult(n, self.params[n], *run)
            folder = self.folder / f"trial_{n:03d}{seed}{fold}"
            is_first = (n, run) == (0, self.runs[0])
            jobs.append(Job(training, folder, [*changes, *_fixed(run, self.folds)], is_first))
            if training.key in self.record:
                _remove_weights(folder)  # a kill may have come first
        return jobs

    def train(self, numbers: Sequence[int], *, processes: int | None, cluster: str) -> None:
        """The trainings of some trials, as far as they are missing; the others as of `sweep`."""
        work.run(
            [job for n in numbers for job in self.jobs(n)],
            partial(run_job, self.source),
            self.record,
            processes=processes,
            cluster=cluster,
            is_needed=self.is_needed,
            on_done=self.on_done,
            log=lambda job: job.log,
        )

    def is_needed(self, job: Job) -> bool:
        """Whether no earlier training of its trial failed."""
        n, position = job.training.trial, self.runs.index((job.training.seed, job.training.fold))
        earlier = [self.record.get(key_of(n, *run)) for run in self.runs[:position]]
        return not any(training is not None and training.error for training in earlier)

    def on_done(self, job: Job) -> None:
        """Remove the weights of a recorded training, and print its result."""
        training = self.record[job.key]
        _remove_weights(job.folder)
        overrides_text = " ".join(overrides_of(training.params))
        training_name = f"seed {training.seed}" + ("" if training.fold is None else f", fold {training.fold}")
        outcome = training.error
        if training.value is not None:
            outcome = f"{training.metric} {(measure_of(training.metric, self.measure) or PLAIN).text(training.value)}"
            outcome += ", untrained weights" if training.untrained else ""
        self.on_line(f"trial {training.trial} ({overrides_text}), {training_name}: {outcome}")


def _params(search: _Search, space: Space, sampler: str, seed: int, n: int, start: int) -> Params:
    """The values of trial `n` of the round that begins with trial `start`."""
    stored = next((training.params for training in search.record.values() if training.trial == n), None)
    if stored is not None:
        return stored
    if sampler == "grid":
        return grid(space)[n]
    finished = [search.trial(trial_number) for trial_number in range(start)] if sampler == "tpe" else []
    results = [(trial.params, None if trial.error else trial.mean) for trial in finished]
    running = [search.params[trial_number] for trial_number in range(start, n)] if sampler == "tpe" else []
    return draw(space, sampler, seed, n, results, running, better(finished))


def _plan(space: Space, sampler: str | None, trials: int | None) -> tuple[str, int]:
    """The sampler and the number of trials."""
    ranges = [dimension.key for dimension in space if not isinstance(dimension, Choice)]
    combinations = 0 if ranges else math.prod(len(dimension.points) for dimension in space)
    enough = trials is None or trials >= combinations
    if sampler is None:
        sampler = "grid" if combinations and enough else "tpe"
    if sampler == "grid":
        if ranges:
            raise InputError("--sampler", f"grid, but {ranges[0]} is a range", hint="list values, or omit --sampler")
        if not enough:
            raise InputError("--trials", str(trials), f"must be at least {combinations}: a grid tries all combinations")
        return sampler, combinations
    if trials is None:
        raise InputError("--trials", "missing", hint=f"give the number of trials of sampler {sampler}")
    return sampler, trials


def _fixed(run: tuple[int, int | None], folds: int) -> list[str]:
    """The overrides of a training that are not tried: seed, selection, fold."""
    seed, fold = run
    validation = [] if fold is None else [f"training.val_share={1 / folds}", f"training.val_fold={fold}"]
    return [f"seed={seed}", "training.select=val", *validation]


def _checked_points(source: Source, space: Space, fixed: Sequence[str]) -> list[Experiment]:
    """The config with the ends of ranges and all choices; values that a part does not accept are refused.

    Raises:
        InputError: the first error.
    """
    points = [dimension.points for dimension in space]
    if math.prod(map(len, points)) <= _MOST_CHECKED and source.own is None:
        combinations = list(itertools.product(*points))
    else:  # each value once; a table is read each time
        combinations = [tuple(values[n % len(values)] for values in points) for n in range(max(map(len, points)))]
    found = []
    for values in combinations:
        params = {dimension.key: value for dimension, value in zip(space, values, strict=True)}
        experiment = source.load([*overrides_of(params), *fixed])
        found.append(experiment)
        if experiment.config.parts["training"].options["epochs"] == 0:
            raise InputError("training.epochs", "0", "must be at least 1 in a sweep")
    return found


def _check_on_data(points: Sequence[Experiment], task: Task, base: Experiment) -> None:
    """Refuse options that do not fit the data, and networks that are not known, before anything is trained.

    Args:
        points: the config with all values that are tried.
        task: the data of `base`.
        base: the config with the first values.

    Raises:
        InputError: the first error.
    """
    groups: dict[str, list[Experiment]] = {}  # of the same data and the same network
    for experiment in points:
        experiment.check_labels(task)
        values = experiment.values
        of_data = [values["task"], values["images"], values["training"], values["model"]]
        groups.setdefault(json.dumps(of_data, default=str), []).append(experiment)
    for first, *others in groups.values():
        has_data = first.task is not None or first.values["task"] != base.values["task"]
        built = (first if has_data else replace(first, task=task)).build_task()
        network = first.build_network(built, weights=False)
        for experiment in () if first.is_captioning else (first, *others):  # its words would be counted each time
            experiment.build_step(built, network, weights=False, quiet=True, search=False)


def _comparable(experiment: Experiment) -> dict[str, Any]:
    """The config, without where files are."""
    values = experiment.values
    return {
        section: {key: value for key, value in options.items() if f"{section}.{key}" not in PLACES}
        if isinstance(options, dict)
        else options
        for section, options in values.items()
        if section != "published"
    }


def _digest(task: Task, root: str) -> str:
    """Identifies the data that train and judge the trials."""
    record, content = DataRecord.of(task, root), hashlib.sha256()
    for before, split in (("[", "train"), (", ", "val")):
        if split in record.names:
            names, labels = (_json_list(texts) for texts in (record.names[split], record.labels[split]))
            for text in itertools.chain((before, "["), names, (", ",), labels, ("]",)):
                content.update(text.encode())
    content.update(b"]")
    return content.hexdigest()[:16]


def _json_list(texts: Sequence[str]) -> Iterator[str]:
    """The text of a JSON list, part by part: a list of all texts would need ten times their memory."""
    yield "["
    for start in range(0, len(texts), _CHUNK):
        yield f"{', ' if start else ''}{json.dumps([*texts[start : start + _CHUNK]])[1:-1]}"
    yield "]"


def _remove_weights(folder: Path) -> None:
    """Delete the weights and embeddings of a finished training: those of many trials would fill the disk."""
    for name in ("checkpoints", "embeddings"):
        shutil.rmtree(folder / name, ignore_errors=True)
