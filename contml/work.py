"""Items of work whose results are kept: a command that was interrupted does the items that have no result.

    items      a list. Each has a key, and can be pickled. Its result depends only on the item
    results    `Lines`: one file, a line of JSON per result. `Files`: a folder, a file per result
    run        does the items, in this process or by joblib: in processes of this machine, or of a Ray cluster

A result is complete or missing. The process of the command writes all results. A returned value is a result, even if it
describes a failure. An exception ends the command and records nothing. The other items are asked to stop as by SIGTERM,
so that a training saves its state.
"""

from __future__ import annotations

import json
import logging
import math
import os
import signal
import socket
import sys
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import BrokenExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from filelock import FileLock

from contml._support.errors import InputError, one_line
from contml._support.files import append_line, locked, read_bytes, refuse_links, remove_folder, unwritable
from contml._support.signals import StopRequest

#: Seconds between two checks of a worker: is its command alive, and does it ask to stop?
_POLL = 0.5
#: Seconds in which a cluster answers.
_ANSWER = 10.0

ResultT = TypeVar("ResultT")


class Item(Protocol):
    """A piece of work; `str` names it in messages."""

    @property
    def key(self) -> str:
        """A text that differs from the keys of all other items with the same results."""


ItemT = TypeVar("ItemT", bound=Item)


class OutOfTimeError(Exception):
    """The deadline has passed; what is finished is recorded."""


class Results(ABC, Generic[ResultT]):
    """The results of finished items by key.

    Args:
        folder: a hidden folder for locks.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def __contains__(self, key: object) -> bool: ...

    @abstractmethod
    def __getitem__(self, key: str) -> ResultT: ...

    @abstractmethod
    def add(self, key: str, value: ResultT) -> None:
        """Record a result. When this method returns, the result is on disk.

        Raises:
            InputError: the result cannot be written, for example on a full disk. Earlier results stay.
        """

    def command(self, subject: str) -> AbstractContextManager[None]:
        """Return the context of a command that does the items. No other command does them meanwhile.

        Args:
            subject: the object that the command works on, for the message.

        Raises:
            InputError: another command works on it.
        """
        return locked(self.folder, "another command works on it", "wait for it", subject=subject)


class Lines(Mapping[str, ResultT], Results[ResultT]):
    """Small results: a file of lines, each a JSON object, appended as a whole.

    An incomplete last line is ignored, and removed before the next line is appended.

    Args:
        path: the file.
        head: a description of the results, the first line of the file; None: the file has no such line.

    Raises:
        InputError: a line is damaged, or the file has another head.
    """

    #: What the file is, for messages.
    of = "results"

    def __init__(self, path: Path, head: Mapping[str, Any] | None = None) -> None:
        super().__init__(path.with_name(f".{path.name}.work"))
        self.path, self.head = path, head
        self._values: dict[str, ResultT] = {}
        content = read_bytes(path, sys.maxsize) if path.exists() else b""
        lines = content[: content.rfind(b"\n") + 1].splitlines(keepends=True)
        self._bytes = sum(map(len, lines))
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
                if not isinstance(row, dict):
                    raise ValueError
                if head is not None and number == 1:
                    self.check_head(row)
                else:
                    self._values.setdefault(*self.parse(row))
            except InputError:
                raise
            except (ValueError, TypeError, KeyError, RecursionError):
                raise InputError(f"{path}:{number}", f"not a line of {self.of}", hint="remove it") from None

    @abstractmethod
    def parse(self, row: dict[str, Any]) -> tuple[str, ResultT]:
        """Return the key and the result of a line.

        Raises:
            ValueError: the line is not a result.
        """

    @abstractmethod
    def row(self, key: str, value: ResultT) -> Mapping[str, Any]:
        """Return the line of a result."""

    def check_head(self, stored: dict[str, Any]) -> None:
        """Compare the first line of the file with `head`.

        Raises:
            InputError: the results are of something else.
        """
        if stored != self.head:
            raise InputError(str(self.path), "holds results of something else", hint="choose another file")

    def check(self, value: ResultT) -> None:
        """Raise an InputError if a result contradicts the recorded ones. The result is then not added."""

    def __getitem__(self, key: str) -> ResultT:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def add(self, key: str, value: ResultT) -> None:
        """Append a result."""
        self.check(value)
        if not self._bytes and self.head is not None:
            self._append(self.head)
        self._append(self.row(key, value))
        self._values[key] = value

    def _append(self, row: Mapping[str, Any]) -> None:
        line = json.dumps(row).encode()
        size = self.path.stat().st_size if self.path.exists() else 0
        if size < self._bytes:
            raise InputError(str(self.path), "was removed or cut while in use", hint="call the same command again")
        append_line(self.path, line)
        self._bytes += len(line) + 1


class Files(Results[ResultT]):
    """Large results: a file for each, usually in a folder that is removed when the output is made from them.

    Args:
        root: a folder that `remove` removes; the lock is in it.
        place: the folder of the files; default: `root`.
    """

    #: The ending of the files.
    suffix = ""

    def __init__(self, root: Path, place: Path | None = None) -> None:
        if root.is_symlink():
            raise InputError(str(root), "a link", hint="remove it")
        refuse_links(root)
        super().__init__(root / ".work")
        self._root, self._place = root, place or root
        self._found: set[str] = set()

    def remove(self) -> None:
        """Remove `root`, after the output was written."""
        remove_folder(self._root)

    @abstractmethod
    def load(self, key: str, path: Path) -> ResultT | None:
        """Return the result in a file. Return None if the file does not exist or is damaged."""

    @abstractmethod
    def save(self, value: ResultT, path: Path) -> None:
        """Write a result as a whole or not at all."""

    def __contains__(self, key: object) -> bool:
        if key not in self._found and self.load(str(key), self._path(str(key))) is not None:
            self._found.add(str(key))
        return key in self._found

    def __getitem__(self, key: str) -> ResultT:
        value = self.load(key, self._path(key))
        if value is None:
            raise InputError(str(self._path(key)), "damaged or removed", hint="call the same command again")
        return value

    def add(self, key: str, value: ResultT) -> None:
        """Write the file of a result."""
        self.save(value, self._path(key))
        self._found.add(key)

    def _path(self, key: str) -> Path:
        return self._place / f"{key}{self.suffix}"


def run(
    items: Iterable[ItemT],
    function: Callable[[ItemT], ResultT],
    results: Results[ResultT],
    *,
    processes: int | None = None,
    cluster: str = "",
    deadline: float = math.inf,
    is_needed: Callable[[ItemT], bool] = lambda _: True,
    on_done: Callable[[ItemT], object] = lambda _: None,
    log: Callable[[ItemT], Path | None] = lambda _: None,
) -> None:
    """Do the items that have no result, in order.

    Args:
        items: all items, also the items that have a result.
        function: returns the result of an item. Another process gets the function once.
        results: the finished results. When this function returns, they contain all items that are needed.
        processes: number of items at a time, each in a process of its own. None or 1: in this process. None with a
            cluster: as many as the cluster has processors, or GPUs if it has any.
        cluster: the address of a Ray cluster that does the items: "auto" for the cluster that this machine belongs to,
            HOST:PORT of its first machine, or "local" for the processors of this machine. Ignored if this process is
            connected to a cluster. Its machines share the current folder and the folder of the results. Empty: this
            machine.
        deadline: no item is begun after this `time.monotonic()`.
        is_needed: asked before an item is begun.
        on_done: called in this process after an item is recorded.
        log: returns the file for the output of another process about an item. None: the output of this process.

    Raises:
        OutOfTimeError: items are left after the deadline.
        KeyboardInterrupt: a signal stopped an item. The others are asked to stop.
        InputError: the function raised it, a process died, or no cluster answers.
    """
    is_late = False

    def left() -> Iterator[ItemT]:
        nonlocal is_late
        for item in items:
            if item.key not in results and is_needed(item):
                if is_late := time.monotonic() >= deadline:
                    return
                yield item

    def done(item: ItemT, result: ResultT) -> None:
        results.add(item.key, result)
        on_done(item)

    for path in results.folder.glob("worker-*"):  # of a command that was killed: they save their state
        with locked(results.folder, name=path.name):
            path.unlink(missing_ok=True)
    if cluster or processes not in (None, 1):
        _run_by_joblib(left(), function, results.folder, processes, cluster, done, log)
    else:
        for item in left():
            done(item, function(item))
    if is_late:
        raise OutOfTimeError


def _run_by_joblib(
    items: Iterator[Any], function: Any, folder: Path, processes: int | None, cluster: str, done: Any, log: Any
) -> None:
    """Do the items as `run` does, in other processes. `done` is called with each item and its result."""
    if (first := next(items, None)) is None:
        return
    from joblib import delayed

    stop, running, errors = folder.absolute() / "stop", dict[str, Any](), list[BaseException]()

    def fail(error: BaseException) -> None:
        """End the run with an error, when the items that have begun are done or have saved their states."""
        errors.append(error)
        stop.touch()

    def calls() -> Iterator[Any]:
        try:
            for item in chain([first], items):
                if stop.exists():
                    return
                call = delayed(_do)(item, log(item))
                running[item.key] = item
                yield call
        except Exception as error:
            fail(error)

    try:
        folder.mkdir(parents=True, exist_ok=True)
        stop.unlink(missing_ok=True)
    except OSError as error:
        raise unwritable(folder, error) from None
    request = StopRequest(on_request=stop.touch)
    begin = (function, stop, 0 if cluster else os.getpid(), Path.cwd())
    try:
        with request.listening(), _pool(processes, cluster, initializer=_begin, initargs=begin) as pool:
            for key, outcome in pool(calls()):
                item = running.pop(key)
                try:
                    if isinstance(outcome, BaseException):
                        raise outcome
                    done(item, outcome)
                except (Exception, KeyboardInterrupt) as error:
                    fail(error)
    except BrokenExecutor as error:
        got = f"a process died ({one_line(error).partition('. ')[0]:.120})"
        logs = ", ".join(dict.fromkeys(str(path) for item in running.values() if (path := log(item)) is not None))
        hint = f"see {logs}; " if logs else ""
        hint += "the same command continues; fewer processes need less memory"
        raise InputError(", ".join(map(str, running.values())), got, hint=hint) from None
    finally:
        for path in (stop, *folder.glob("worker-*")):
            path.unlink(missing_ok=True)
    errors.sort(key=lambda error: isinstance(error, KeyboardInterrupt))  # the cause first: the others were stopped
    if errors or request:
        raise errors[0] if errors else KeyboardInterrupt


@contextmanager
def _pool(processes: int | None, cluster: str, **begin: Any) -> Iterator[Any]:
    """Yield a function that runs calls of joblib in other processes.

    It yields the results in the order in which they end. The processes of this machine divide its threads equally, or
    each has `OMP_NUM_THREADS` threads if that is less.
    """
    from joblib import Parallel, cpu_count, parallel_config
    from joblib.externals.loky import get_reusable_executor

    options: dict[str, Any] = {"pre_dispatch": "n_jobs", "batch_size": 1, "return_as": "generator_unordered", **begin}
    if not cluster:
        given, equal = os.environ.get("OMP_NUM_THREADS", ""), max(1, cpu_count() // (processes or 1))
        try:
            with parallel_config("loky", inner_max_num_threads=min(int(given), equal) if given.isdecimal() else equal):
                yield Parallel(processes, **options)
        finally:
            get_reusable_executor(processes).shutdown()  # waits: otherwise processes keep their memory for minutes
        return
    ray = _connected(cluster)
    from joblib import register_parallel_backend
    from ray.util.joblib.ray_backend import RayBackend

    RayBackend.supports_return_generator = True  # its pool calls back, but the class does not declare it
    register_parallel_backend("ray", RayBackend)
    found = ray.cluster_resources()
    unit = "GPU" if found.get("GPU", 0) >= 1 else "CPU"
    count = min(processes or math.inf, int(found.get(unit, 1)))
    if count < 2:  # joblib would do the items here
        raise InputError("cluster", f"{count} item at a time", "must have 2 processors or GPUs, and --processes 2")
    try:
        yield Parallel(count, backend="ray", ray_remote_args={f"num_{unit.lower()}s": 1}, **options)
    except ray.exceptions.RayError as error:
        hint = "the same command continues; see the logs of Ray"
        raise InputError("cluster", f"a process or a machine was lost ({one_line(error):.80})", hint=hint) from None


def _connected(address: str) -> Any:
    """Return Ray, connected to a cluster until this process ends."""
    if find_spec("ray") is None:
        raise InputError("cluster", "Ray is not installed", hint="pip install 'contml[cluster]'")
    import ray

    if ray.is_initialized():
        return ray
    try:
        if address not in ("local", "auto"):
            host, colon, port = address.rpartition(":")
            if not (host and colon and port.isdecimal()):
                raise InputError("cluster", repr(address), "must be local, auto or HOST:PORT")
            socket.create_connection((host, int(port)), timeout=_ANSWER).close()  # Ray would try for minutes
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
    except (OSError, OverflowError, ray.exceptions.RayError) as error:
        hint = "start it with 'ray start --head', or see 'ray status'"
        raise InputError("cluster", f"{address!r}, no cluster answers ({one_line(error):.80})", hint=hint) from None
    return ray


#: The start values of a process that does items: the function, and a path that exists when the process must stop.
_work: tuple[Callable[[Any], Any], Path] | None = None
_held: list[object] = []
_is_busy = threading.Event()


def _begin(function: Callable[[Any], Any], stop: Path, parent: int, folder: Path) -> None:
    """Prepare a process that does items. `parent` is the process of the command, 0 on a cluster."""
    global _work
    if parent:
        _held.append(FileLock(stop.with_name(f"worker-{os.getpid()}")).acquire())  # until this process ends
        if sys.platform != "win32":
            os.setpgrp()  # Ctrl-C reaches only the parent, which stops its children
    if folder.is_dir():  # on each machine of a cluster
        os.chdir(folder)
    _work = function, stop
    threading.Thread(target=_watch, args=(stop, parent), daemon=True).start()


def _watch(stop: Path, parent: int) -> None:
    """Stop the item of this process when the command asks for it, and this process when the command has ended."""
    while True:
        time.sleep(_POLL)
        is_orphan = parent not in (0, os.getppid())
        if _is_busy.is_set() and (is_orphan or stop.exists()):
            os.kill(os.getpid(), signal.SIGTERM)  # a training that saves its state ignores all but the first
        elif is_orphan:
            os._exit(1)


def _do(item: Any, log: Path | None) -> tuple[str, Any]:
    """Return the key of an item, and its result or its error, in a process that `_begin` prepared."""
    assert _work is not None
    function, stop = _work
    if not stop.parent.is_dir():
        hint = "call the command in a folder that all machines of the cluster share, and write its results there"
        return item.key, InputError(f"machine {socket.gethostname()}", f"does not share {stop.parent}", hint=hint)
    if log is not None:
        _print_to(log)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    _is_busy.set()
    try:
        return item.key, function(item)
    except (InputError, KeyboardInterrupt) as error:
        return item.key, error
    except Exception:
        see = "" if log is None else f", see {log}"
        return item.key, RuntimeError(f"{item} failed{see}\n{traceback.format_exc()}")
    finally:
        _is_busy.clear()
        signal.signal(signal.SIGTERM, before)


def _print_to(log: Path) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    with suppress(ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
