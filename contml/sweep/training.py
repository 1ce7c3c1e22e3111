"""The trainings of a sweep: in this process, or several at a time, each in a process of its own."""

from __future__ import annotations

import math
import multiprocessing
import os
import shutil
import signal
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from contml._support.errors import InputError
from contml.config import difference, read
from contml.evaluation.evaluated import Evaluated
from contml.experiment import Experiment, OwnData, load, load_table, resume, train
from contml.runs import Run
from contml.sweep.trials import Training


@dataclass(frozen=True)
class Source:
    """What a sweep trains: the arguments of `contml train`."""

    config: str | None
    overrides: Sequence[str] = ()
    own: OwnData | None = None

    def load(self, changes: Sequence[str] = ()) -> Experiment:
        """The experiment, with more overrides."""
        overrides = [*self.overrides, *changes]
        if self.own is not None:
            return load_table(self.own, self.config, overrides)
        if self.config is None:
            raise InputError("config", "missing", hint="name a config, or give data")
        return load(self.config, overrides)

    def arguments(self, changes: Sequence[str] = ()) -> list[str]:
        """The arguments of `contml train` that load the same experiment."""
        config = [] if self.config is None else [self.config]
        data_arguments = [] if self.own is None else self.own.arguments()
        return [*config, *data_arguments, *self.overrides, *changes]


@dataclass(frozen=True)
class Job:
    """A training to do: `training` without its result, the run folder, and the overrides."""

    training: Training
    folder: Path
    changes: Sequence[str]


@dataclass(frozen=True)
class Result:
    """A training with its result, and whether it began: options that do not fit the data are refused before."""

    training: Training
    began: bool


def run_job(source: Source, job: Job) -> Result:
    """Train, and evaluate the best weights on the validation split; resume a training that was interrupted.

    Raises:
        InputError: another process trains in this folder. Other errors are in the result.
    """
    start = time.monotonic()
    began: list[object] = []
    if job.folder.is_dir():
        with Run(job.folder).lock():  # raises if the training of another sweep has not ended yet
            pass
    try:
        experiment = source.load(job.changes)
        if _resumed(experiment, job.folder):
            began.append(job)
        else:
            shutil.rmtree(job.folder, ignore_errors=True)
            train(experiment, job.folder.parent, on_start=began.append, split="val", folder=job.folder)
        evaluated = Evaluated.read(Run(job.folder).evaluation())
        metric, value = evaluated.evaluation.headline, evaluated.evaluation.main.model
        if not math.isfinite(value):
            raise InputError(metric, str(value), hint="no query of the validation split can be evaluated")
    except InputError as error:
        return Result(replace(job.training, error=str(error), seconds=_since(start)), bool(began))
    training = replace(
        job.training,
        value=value,
        metric=metric,
        queries=evaluated.evaluation.queries,
        epoch=evaluated.epoch,
        untrained=bool(evaluated.untrained),
        run=job.folder.as_posix(),
        seconds=_since(start),
    )
    return Result(training, began=True)


def _since(start: float) -> float:
    return round(time.monotonic() - start, 1)


def _resumed(experiment: Experiment, folder: Path) -> bool:
    """Resume an interrupted training of the same config; False if there is none, or if it cannot be resumed."""
    config = folder / "config.yaml"
    if not (config.exists() and (folder / "checkpoints" / "state.safetensors").exists()):
        return False
    if difference(read(config).values, experiment.values):  # left by another sweep
        return False
    try:
        resume(folder, trust=True, split="val")
    except InputError:
        return False
    return True


def run_jobs(
    source: Source,
    jobs: Sequence[Job],
    processes: int,
    is_needed: Callable[[Job], bool],
    on_result: Callable[[Job, Result], None],
) -> None:
    """Run trainings in order.

    Args:
        source: what is trained.
        jobs: the trainings.
        processes: so many at a time, each in a new process; 1: in this process.
        is_needed: asked before a training begins.
        on_result: called in this process with each result.

    Raises:
        KeyboardInterrupt: a signal stopped a training. Its state is saved.
        InputError: a process died, or another process trains in one of the folders.
    """
    if processes == 1:
        for job in jobs:
            if is_needed(job):
                on_result(job, run_job(source, job))
        return
    pending = filter(is_needed, jobs)  # asked when a process is free: by then a training of the trial may have failed
    running: dict[Connection, tuple[BaseProcess, Job]] = {}
    try:
        while True:
            for job in islice(pending, processes - len(running)):
                process, connection = _start(source, job)
                running[connection] = process, job
            if not running:  # `wait` would never return
                return
            ready = wait(list(running))
            for connection in [connection for connection in running if connection in ready]:
                process, job = running[connection]
                result = _received(connection, process, job)
                del running[connection]
                on_result(job, result)
    finally:
        for process, _ in running.values():
            process.terminate()  # SIGTERM: the training saves its state
        for process, _ in running.values():
            process.join()


def _start(source: Source, job: Job) -> tuple[BaseProcess, Connection]:
    context = multiprocessing.get_context("spawn")  # a forked process cannot use CUDA
    receiver, sender = context.Pipe(duplex=False)
    job.folder.parent.mkdir(parents=True, exist_ok=True)
    process = context.Process(target=_child, args=(source, job, sender))
    process.start()
    sender.close()
    return process, receiver


def _received(connection: Connection, process: BaseProcess, job: Job) -> Result:
    log = _log(job)
    try:
        result: Result | InputError | str | None = connection.recv()
    except EOFError:
        process.join()
        got = f"its process died (exit status {process.exitcode})"
        hint = f"see {log}; the same command continues; fewer processes need less memory"
        raise InputError(str(job.folder), got, hint=hint) from None
    process.join()
    if result is None:
        raise KeyboardInterrupt
    if isinstance(result, InputError):
        raise result
    if isinstance(result, str):
        raise RuntimeError(f"{job.folder} failed, see {log}\n{result}")
    return result


def _log(job: Job) -> Path:
    return job.folder.with_name(f"{job.folder.name}.log")


def _child(source: Source, job: Job, sender: Connection) -> None:
    """One training in a process of its own; its messages go to a file."""
    os.setpgrp()  # Ctrl-C reaches the parent alone, which stops its children
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with _log(job).open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        sender.send(run_job(source, job))
    except KeyboardInterrupt:
        with suppress(OSError):  # the parent may be gone
            sender.send(None)
    except InputError as error:
        sender.send(error)
    except Exception:
        sender.send(traceback.format_exc())


def _end_with_parent() -> None:
    """Stop this process when its parent is gone; a training saves its state first."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
