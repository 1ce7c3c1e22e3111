"""Processes that do items of work: this one, others of this machine, or processes of a Ray cluster."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import sys
import threading
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from contml._support.errors import InputError
from contml.cluster import Cluster
from contml.work.results import Item, Lease, Results

#: Seconds between two looks at items that other commands do.
POLL = 1.0
#: What became of an item: this process did it, its result was there, or another process does it.
Outcome: TypeAlias = Literal["done", "found", "held"]

ResultT = TypeVar("ResultT")
ItemT = TypeVar("ItemT", bound=Item)


class Workers(ABC, Generic[ItemT]):
    """Does items, several at a time."""

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of items at a time."""

    @property
    @abstractmethod
    def busy(self) -> int:
        """The number of items that have begun, and that `ended` has not returned."""

    @abstractmethod
    def begin(self, item: ItemT) -> None:
        """Begin an item, unless another command does it."""

    @abstractmethod
    def ended(self, seconds: float | None) -> Iterator[tuple[ItemT, Outcome]]:
        """The items that have ended; it waits up to so many seconds for the first one."""

    @abstractmethod
    def stop(self) -> None:
        """Ask all items to stop, and wait for that."""


def workers_of(
    function: Callable[[ItemT], ResultT],
    results: Results[ResultT],
    log: Callable[[ItemT], Path | None],
    processes: int | None,
    cluster: str,
    pure: bool,
) -> Workers[ItemT]:
    """What does the items; the arguments are those of `run`."""
    if cluster:
        return _Cluster(cluster, function, results, log, processes, pure)
    if processes in (None, 1):
        return _Here(function, results)
    return _Processes(function, results, log, processes)


def _attempt(function: Callable[[ItemT], ResultT], results: Results[ResultT], item: ItemT) -> Outcome:
    """Do an item, if no other process does it."""
    lease = results.lease(item.key)
    if not lease.acquire():
        return "held"
    try:
        results.refresh()
        if item.key in results:
            return "found"
        results.add(item.key, function(item))
        return "done"
    finally:
        lease.release()


class _Here(Workers[ItemT]):
    """Does one item after another in this process."""

    size = 1

    def __init__(self, function: Callable[[ItemT], ResultT], results: Results[ResultT]) -> None:
        self._attempt: Callable[[ItemT], Outcome] = partial(_attempt, function, results)
        self._ended: list[tuple[ItemT, Outcome]] = []

    @property
    def busy(self) -> int:
        return len(self._ended)

    def begin(self, item: ItemT) -> None:
        self._ended = [(item, self._attempt(item))]

    def ended(self, seconds: float | None) -> Iterator[tuple[ItemT, Outcome]]:  # noqa: ARG002
        ended, self._ended = self._ended, []
        yield from ended

    def stop(self) -> None:
        pass


class _Processes(Workers[ItemT]):
    """Does items in processes of this machine; each records its results itself.

    Args:
        function: the result of an item.
        results: the finished ones.
        log: the file for what a process prints about an item.
        count: the number of processes.
    """

    def __init__(
        self,
        function: Callable[[ItemT], ResultT],
        results: Results[ResultT],
        log: Callable[[ItemT], Path | None],
        count: int,
    ) -> None:
        self._processes = [_Process(function, results, log) for _ in range(count)]

    @property
    def size(self) -> int:
        return len(self._processes)

    @property
    def busy(self) -> int:
        return sum(process.item is not None for process in self._processes)

    def begin(self, item: ItemT) -> None:
        next(process for process in self._processes if process.item is None).begin(item)

    def ended(self, seconds: float | None) -> Iterator[tuple[ItemT, Outcome]]:
        busy = [process for process in self._processes if process.item is not None]
        ready = (
            wait([process.connection for process in busy if process.connection is not None], seconds) if busy else []
        )
        for process in busy:
            if process.connection in ready:
                yield process.end()

    def stop(self) -> None:
        for process in self._processes:
            process.stop()
        for process in self._processes:
            process.join()


class _Process(Generic[ItemT, ResultT]):
    """Does one item after another in a process of its own."""

    def __init__(
        self,
        function: Callable[[ItemT], ResultT],
        results: Results[ResultT],
        log: Callable[[ItemT], Path | None],
    ) -> None:
        self._function, self._results, self._log = function, results, log
        self._process: BaseProcess | None = None
        self.connection: Connection | None = None
        self.item: ItemT | None = None

    def begin(self, item: ItemT) -> None:
        """Begin an item."""
        self.item = item
        if self.connection is None:
            self.connection, other = multiprocessing.Pipe()
            self._process = _start(self._function, self._results, other)
        with suppress(OSError):  # it has died: `end` says so
            self.connection.send((item, self._log(item)))

    def end(self) -> tuple[ItemT, Outcome]:
        """What became of the item."""
        item, self.item = self.item, None
        assert item is not None
        assert self.connection is not None
        log = self._log(item)
        try:
            outcome = self.connection.recv()
        except (EOFError, OSError):
            assert self._process is not None
            self._process.join()
            got = f"its process died (exit status {self._process.exitcode})"
            see = f"see {log}; " if log is not None else ""
            hint = f"{see}the same command continues; fewer processes need less memory"
            raise InputError(str(item), got, hint=hint) from None
        if isinstance(outcome, InputError | KeyboardInterrupt):
            raise outcome
        if isinstance(outcome, _Failure):
            raise RuntimeError(f"{item} failed{'' if log is None else f', see {log}'}\n{outcome.text}")
        return item, outcome

    def stop(self) -> None:
        """End the process: SIGTERM lets a training save its state."""
        if self._process is not None and self.item is not None:
            self._process.terminate()
        if self.connection is not None:
            self.connection.close()  # it waits for the next item

    def join(self) -> None:
        """Wait for the end of the process."""
        if self._process is not None:
            self._process.join()


class _Cluster(Workers[ItemT]):
    """Does items in processes of a cluster. This process holds their leases, and records the results.

    Args:
        address: of the cluster.
        function: the result of an item.
        results: the finished ones.
        log: the file for what a process prints about an item.
        most: the largest number of items at a time; None: as many as the cluster can do.
        pure: as in `run`.
    """

    def __init__(
        self,
        address: str,
        function: Callable[[ItemT], ResultT],
        results: Results[ResultT],
        log: Callable[[ItemT], Path | None],
        most: int | None,
        pure: bool,
    ) -> None:
        self._connect = partial(Cluster, address, partial(_do_there, function), gpus=not pure)
        self._connected: Cluster | None = None  # not before there is something to do
        self._results, self._log, self._most = results, log, most
        self._folder = None if pure else Path.cwd()
        self._running: dict[Any, tuple[ItemT, Lease]] = {}
        self._others: list[tuple[ItemT, Outcome]] = []  # items that this command does not do

    @property
    def size(self) -> int:
        size = 1 if self._connected is None else self._connected.size
        return size if self._most is None else min(self._most, size)

    @property
    def busy(self) -> int:
        return len(self._running) + len(self._others)

    def begin(self, item: ItemT) -> None:
        lease = self._results.lease(item.key)
        if not lease.acquire():
            self._others.append((item, "held"))
            return
        self._results.refresh()
        if item.key in self._results:
            lease.release()
            self._others.append((item, "found"))
            return
        if self._connected is None:
            try:
                self._connected = self._connect()
            except BaseException:
                lease.release()
                raise
        call = self._connected.begin(item, self._log(item), self._folder, lease.path.absolute())
        self._running[call] = item, lease

    def ended(self, seconds: float | None) -> Iterator[tuple[ItemT, Outcome]]:
        others, self._others = self._others, []
        yield from others
        if self._connected is None or not self._running:
            return
        # A machine may join meanwhile.
        for call in self._connected.ended(self._running, 0 if others else POLL if seconds is None else seconds):
            item, lease = self._running[call]
            self._results.add(item.key, self._connected.result(call, str(item)))
            del self._running[call]
            lease.release()
            yield item, "done"

    def stop(self) -> None:
        try:
            if self._connected is not None:
                self._connected.stop(self._running)
        finally:
            for _, lease in self._running.values():
                lease.release()


def _do_there(
    function: Callable[[ItemT], ResultT], item: ItemT, log: Path | None, folder: Path | None, lease: Path
) -> ResultT:
    """The result of an item in a process of a cluster; with `folder`, in that folder, which its machine must share."""
    if folder is not None:
        if not (folder.is_dir() and lease.exists()):
            raise InputError(
                f"machine {socket.gethostname()}",
                f"does not share {folder if not folder.is_dir() else lease.parent}",
                hint="call the command in a folder that all machines of the cluster share, and write its results there",
            )
        os.chdir(folder)
    if log is not None:
        _print_to(log)
    return function(item)


class _Failure(NamedTuple):
    """An error that is none of the input: the traceback of another process."""

    text: str


def _start(function: Callable[[ItemT], ResultT], results: Results[ResultT], connection: Connection) -> BaseProcess:
    context = multiprocessing.get_context("spawn")  # a forked process cannot use CUDA
    process = context.Process(target=_child, args=(function, results, connection))
    process.start()
    connection.close()
    return process


def _child(function: Callable[[ItemT], ResultT], results: Results[ResultT], connection: Connection) -> None:
    if hasattr(os, "setpgrp"):  # not on Windows
        os.setpgrp()  # Ctrl-C reaches the parent alone, which stops its children
    threading.Thread(target=_end_with_parent, daemon=True).start()
    serve(function, results, connection)


def serve(function: Callable[[ItemT], ResultT], results: Results[ResultT], connection: Connection) -> None:
    """Do the items that come through a connection; what it prints goes to the file that comes with each."""
    with suppress(EOFError, OSError):  # the parent may be gone
        while True:
            item, log = connection.recv()
            if log is not None:
                _print_to(log)
            try:
                connection.send(_attempt(function, results, item))
            except KeyboardInterrupt:
                connection.send(KeyboardInterrupt())
            except InputError as error:
                connection.send(error)
            except Exception:
                connection.send(_Failure(traceback.format_exc()))


def _print_to(log: Path) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)


def _end_with_parent() -> None:
    """Stop this process when its parent is gone; a training saves its state first."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
