"""Items of work, each done once, by one process or by several that share a folder.

    items      a list. Each has a key, and can be pickled. Its result depends on the item alone.
    results    `Lines`: one file, a line of JSON per result. `Files`: a folder, a file per result.
    run        does the items that have no result; it returns when all of them have one. They are done in this process,
               in several processes of this machine, or of a Ray cluster
    Shard      one of N shares of a list, which a command does without waiting for the other N - 1

A result is there as a whole or not at all. The first result of an item counts; a later one is ignored. A returned
value is recorded, even if it describes a failure. An exception ends the command and records nothing.

A process that does an item holds its lease, a file that it touches again and again. The lease of a process that was
killed is free at once on the same machine. Elsewhere it is free when the file has not changed for `LEASE` seconds,
which the waiting process measures with its own clock: clocks of machines may differ. A process that was suspended for
longer may do an item that another one does too.
"""

from __future__ import annotations

import hashlib
import json
import math
import multiprocessing
import os
import re
import secrets
import signal
import socket
import sys
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from filelock import SoftFileLease, Timeout

from contml._support.errors import InputError
from contml._support.files import append_line, locked, remove_folder, unwritable
from contml.cluster import Cluster

#: Seconds without a sign of its holder after which a lease is free. All processes that share a folder need the same.
LEASE = 120.0
#: Seconds between two looks at items that other commands do.
_POLL = 1.0

#: The file in the folder of leases which says that the output is written, and the parts are not needed any more.
_WRITTEN = "written"

#: What became of an item: this process did it, its result was there, or another process does it.
Outcome: TypeAlias = Literal["done", "found", "held"]


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:24]


class Item(Protocol):
    """A piece of work; `str` names it in messages."""

    @property
    def key(self) -> str:
        """What distinguishes it from all other items with the same results."""


ResultT = TypeVar("ResultT")
ItemT = TypeVar("ItemT", bound=Item)
ShareT = TypeVar("ShareT")


class OutOfTimeError(Exception):
    """The deadline has passed; what is finished is recorded."""


@dataclass(frozen=True)
class Shard:
    """One of several shares of a list of items: every `count`-th item, from the `number`-th on.

    Args:
        number: which share; the first is 1.
        count: number of shares.

    Raises:
        InputError: there is no such share.
    """

    number: int
    count: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.count:
            allowed = (
                f"must be 1/{self.count} to {self.count}/{self.count}"
                if self.count > 0
                else "must be I/N with an N of at least 1"
            )
            raise InputError("--shard", str(self), allowed)

    @classmethod
    def parse(cls, text: str) -> Shard:
        """The share that is written as `3/8`.

        Raises:
            InputError: it is none.
        """
        found = re.fullmatch("([0-9]{1,9})/([0-9]{1,9})", text)
        if found is None:
            raise InputError("--shard", repr(text), _SHARD)
        return cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


_SHARD = "must be I/N, such as 3/8 for the third of 8 shards"
#: Whether other commands may do items of the same list at the same time. With a `Shard`, a command does the items of
#: this share alone, and ends when they are finished.
Join: TypeAlias = bool | Shard


def share(items: Sequence[ShareT], join: Join) -> Sequence[ShareT]:
    """The items of a list that a command does: those of its shard, or all."""
    return items[join.number - 1 :: join.count] if isinstance(join, Shard) else items


class ItemsLeftError(Exception):
    """The items of a shard are finished, and items of other shards are not.

    Args:
        shard: the shard.
        own: number of its items.
        left: number of items of other shards without a result.
        total: number of all items.
    """

    def __init__(self, shard: Shard, own: int, left: int, total: int) -> None:
        super().__init__(shard, own, left, total)
        self.shard, self.own, self.left, self.total = shard, own, left, total

    def __str__(self) -> str:
        return (
            f"shard {self.shard}: its items of work are finished ({self.own:,} of {self.total:,}), and {self.left:,} "
            f"{'is' if self.left == 1 else 'are'} left for other shards of the same command; the last shard to finish "
            "completes the output, or the same command without --shard"
        )

    def as_data(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"shard": str(self.shard), "items": self.own, "left": self.left, "total": self.total}


def _leases(folder: Path) -> AbstractContextManager[None]:
    """No other process takes, gives back or removes a lease of the folder: else two could take one that has expired."""
    return locked(folder, name="leases")


class Lease:
    """The right to do an item: a file that the process that holds it touches again and again.

    Args:
        folder: the folder of the leases.
        key: the item.
    """

    def __init__(self, folder: Path, key: str) -> None:
        self._folder = folder
        self._lease = SoftFileLease(folder / f"{_digest(key)}.lease", lease_duration=LEASE)

    @property
    def path(self) -> Path:
        """The file."""
        return Path(self._lease.lock_file)

    def acquire(self) -> bool:
        """Take it, unless another process holds it.

        Raises:
            InputError: the folder cannot be written.
        """
        path = self.path
        with _leases(self._folder):
            try:
                # Files of a process that was killed while it acquired the lease; filelock would count them as a holder.
                empty = [path] if path.exists() and not path.stat().st_size else []
                for left in [*empty, *self._folder.glob(f"{path.name}.*")]:
                    left.unlink()
                self._lease.acquire(blocking=False)
            except Timeout:
                return False
            except OSError as error:
                raise unwritable(self._folder, error) from None
        return True

    def release(self) -> None:
        """Give it back; nothing, if another process has taken it."""
        with _leases(self._folder):
            self._lease.release()


class Results(ABC, Generic[ResultT]):
    """The results of finished items by key.

    Args:
        folder: a hidden folder for locks and leases.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def refresh(self) -> None:
        """Find the results that other processes have added."""

    @abstractmethod
    def __contains__(self, key: object) -> bool: ...

    @abstractmethod
    def __getitem__(self, key: str) -> ResultT: ...

    @abstractmethod
    def add(self, key: str, value: ResultT) -> None:
        """Record a result, unless the item has one. When this returns, it is on disk.

        Raises:
            InputError: it cannot be written, as on a full disk; the others stay.
        """

    @contextmanager
    def command(self, join: Join, subject: str) -> Iterator[None]:
        """The block of a command that does the items.

        Args:
            join: other commands may do items at the same time.
            subject: what the command works on, for the message.

        Raises:
            InputError: another command works on it, and this one does not `join`.
        """
        hint = "wait for it, or share the work: the same command with --join"
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(self.folder, "another command works on it", hint, subject=subject))
            except InputError:
                if not join:
                    raise
            yield

    def lease(self, key: str) -> Lease:
        """The lease of an item, not held yet."""
        return Lease(self.folder, key)

    def clean(self, keys: Iterable[str]) -> None:
        """Remove the leases of finished items that killed processes have left."""
        if left := [*self.folder.glob("*.lease*")]:
            finished = {_digest(key) for key in keys}
            with _leases(self.folder):
                for path in left:
                    if path.name.partition(".")[0] in finished:
                        path.unlink(missing_ok=True)


class Lines(Mapping[str, ResultT], Results[ResultT]):
    """Small results: a file of lines, each a JSON object, appended as a whole.

    A last line that is cut short is ignored, and removed before the next one is appended.

    Args:
        path: the file.
        head: what the results are of, the first line of the file; None: the file has no such line.

    Raises:
        InputError: a line is damaged, or the file has another head.
    """

    #: What the file is, for messages.
    of = "results"

    def __init__(self, path: Path, head: Mapping[str, Any] | None = None) -> None:
        super().__init__(path.with_name(f".{path.name}.work"))
        self.path, self.head = path, head
        self._values: dict[str, ResultT] = {}
        self._bytes = self._lines = 0  # that were read
        self.refresh()
        if head is not None and not self._lines:
            with self._appending():  # another command may have been first
                if not self._lines:
                    append_line(self.path, json.dumps(head).encode())
                    self.refresh()

    @abstractmethod
    def parse(self, row: dict[str, Any]) -> tuple[str, ResultT]:
        """The key and the result of a line.

        Raises:
            ValueError: it is none.
        """

    @abstractmethod
    def row(self, key: str, value: ResultT) -> Mapping[str, Any]:
        """The line of a result."""

    def check_head(self, stored: dict[str, Any]) -> None:
        """Compare the first line of the file with `head`.

        Raises:
            InputError: the results are of something else.
        """
        if stored != self.head:
            raise InputError(str(self.path), "holds results of something else", hint="choose another file")

    def check(self, value: ResultT) -> None:
        """Raise an InputError if a result contradicts the recorded ones; it is then not added."""

    def refresh(self) -> None:
        """Read the lines that other processes have added."""
        content, size = b"", 0
        with suppress(FileNotFoundError), self.path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(min(size, self._bytes))
            content = file.read()
        if size < self._bytes:
            raise InputError(
                str(self.path), "was removed or cut while it was in use", hint="call the same command again"
            )
        for line in content[: content.rfind(b"\n") + 1].splitlines(keepends=True):
            try:
                row = json.loads(line)
                if not isinstance(row, dict):
                    raise ValueError
                if self.head is not None and not self._lines:
                    self.check_head(row)
                else:
                    self._values.setdefault(*self.parse(row))
            except InputError:
                raise
            except (ValueError, TypeError, KeyError, RecursionError):
                raise InputError(
                    f"{self.path}:{self._lines + 1}", f"not a line of {self.of}", hint="remove it"
                ) from None
            self._lines += 1
            self._bytes += len(line)

    def __getitem__(self, key: str) -> ResultT:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def add(self, key: str, value: ResultT) -> None:
        """Append a result, unless the item has one."""
        with self._appending():
            if key not in self._values:
                self.check(value)
                append_line(self.path, json.dumps(self.row(key, value)).encode())
                self.refresh()

    @contextmanager
    def _appending(self) -> Iterator[None]:
        """Lets one process append, which knows all lines."""
        with locked(self.folder, name="append", subject=str(self.path)):
            self.refresh()
            yield


class Files(Results[ResultT]):
    """Large results: a file each, most often in a folder that is there until the output is made of them.

    Args:
        root: a folder that `remove` removes when no process uses it any more; locks and leases are in it.
        place: the folder of the files; default: `root`.
    """

    #: The ending of the files.
    suffix = ""

    def __init__(self, root: Path, place: Path | None = None) -> None:
        super().__init__(root / ".work")
        self._root, self._place = root, place or root
        self._found: set[str] = set()

    @contextmanager
    def used(self, subject: str) -> Iterator[None]:
        """The block of a process that uses `root`: no other one removes it meanwhile.

        Args:
            subject: what it works on, for the message.

        Raises:
            InputError: the folder cannot be written.
        """
        name, written = f"{secrets.token_hex(8)}.user", self.folder / _WRITTEN
        try:
            with ExitStack() as stack:
                with locked(self.folder, name="users", subject=subject):
                    stack.enter_context(locked(self.folder, name=name, subject=subject))
                    written.unlink(missing_ok=True)  # of the work before
                try:
                    yield
                finally:
                    with suppress(OSError):
                        (self.folder / name).unlink()
        finally:
            if written.exists():  # meanwhile, by a process that could not remove the folder
                self.remove()

    @contextmanager
    def command(self, join: Join, subject: str) -> Iterator[None]:
        """The block of a command, which uses `root`."""
        with self.used(subject), super().command(join, subject):
            yield

    def remove(self) -> None:
        """Remove `root`: the output is written. If other processes use it, the last of them removes it."""
        if self._root.is_dir():
            with suppress(InputError), locked(self.folder, name="users"):
                with suppress(OSError):
                    (self.folder / _WRITTEN).touch()
                for path in self.folder.glob("*.user"):
                    with locked(self.folder, "another process uses it", name=path.name):
                        pass  # it was left by a process that was killed
                remove_folder(self._root)

    @abstractmethod
    def load(self, key: str, path: Path) -> ResultT | None:
        """The result in a file; None if there is none, or it is damaged."""

    @abstractmethod
    def save(self, value: ResultT, path: Path) -> None:
        """Write a result as a whole or not at all."""

    def refresh(self) -> None:
        """Nothing: the folder is asked for each item."""

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
        """Write the file of a result, unless the item has one."""
        if key not in self:
            self.save(value, self._path(key))
            self._found.add(key)

    def _path(self, key: str) -> Path:
        return self._place / f"{key}{self.suffix}"


def run(
    items: Iterable[ItemT],
    function: Callable[[ItemT], ResultT],
    results: Results[ResultT],
    *,
    join: Join = False,
    processes: int | None = None,
    cluster: str = "",
    pure: bool = False,
    deadline: float = math.inf,
    is_needed: Callable[[ItemT], bool] = lambda _: True,
    on_done: Callable[[ItemT], object] = lambda _: None,
    on_wait: Callable[[int], object] = lambda _: None,
    log: Callable[[ItemT], Path | None] = lambda _: None,
) -> None:
    """Do the items that have no result, in order; wait for the items that other commands do.

    Args:
        items: all of them, also those that have a result.
        function: the result of an item. Processes of this machine import it by name; a cluster also takes a closure.
        results: the finished ones; they have all results of items that are needed when this returns.
        join: a `Shard`: its items alone are done.
        processes: so many items at a time, each in a process of its own. None or 1: in this process; None with a
            cluster: as many as it has processors.
        cluster: the address of a Ray cluster that does the items, as in `contml.cluster.Cluster`. Empty: this machine.
        pure: an item reads and writes no file, and needs no GPU: the machines of a cluster share no folder.
        deadline: no item is begun after this `time.monotonic()`.
        is_needed: asked before an item is begun.
        on_done: called in this process after an item of this call is recorded.
        on_wait: called with the number of items that other commands do, when nothing else is left.
        log: the file for what another process prints about an item; None: where this process prints.

    Raises:
        ItemsLeftError: the items of the shard are finished, and others are not.
        OutOfTimeError: items are left after the deadline.
        KeyboardInterrupt: a signal stopped an item. The others are asked to stop.
        InputError: the function raised it, a process died, or no cluster answers.
    """
    items = [*items]
    waiting, held = deque(own := share(items, join)), deque[ItemT]()
    leases: dict[str, Lease] = {}  # of held items: one object sees for how long a file has not changed
    workers: _Workers[ItemT] = _Here(function, results)
    if cluster:
        workers = _Cluster(cluster, function, results, log, processes, pure)
    elif processes not in (None, 1):
        workers = _Processes(function, results, log, processes)

    def next_item() -> ItemT | None:
        results.refresh()
        while waiting:
            item = waiting.popleft()
            if not is_needed(item) or item.key in results:
                continue
            if time.monotonic() >= deadline:
                waiting.appendleft(item)
                return None
            lease = leases.get(item.key)
            if lease is None:
                return item
            if lease.acquire():
                lease.release()
                del leases[item.key]
                return item
            held.append(item)
        return None

    is_waiting = False
    try:
        while True:
            while workers.busy < workers.size and (item := next_item()) is not None:
                workers.begin(item)
            if not workers.busy and (waiting or (held and time.monotonic() >= deadline)):
                raise OutOfTimeError
            if not workers.busy and not held:
                break
            if not workers.busy:
                if not is_waiting:
                    on_wait(len(held))
                is_waiting = True
                time.sleep(_POLL)
            for item, outcome in workers.ended(_POLL if held and not waiting else None):
                if outcome == "held":
                    held.append(item)
                    leases[item.key] = results.lease(item.key)
                elif outcome == "done":
                    results.refresh()
                    on_done(item)
            if not waiting:
                waiting, held = held, waiting
    finally:
        workers.stop()
    if isinstance(join, Shard):
        results.refresh()
        if left := sum(is_needed(item) and item.key not in results for item in items):
            raise ItemsLeftError(join, len(own), left, len(items))
    results.clean(item.key for item in items)


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


class _Workers(ABC, Generic[ItemT]):
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


class _Here(_Workers[ItemT]):
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


class _Processes(_Workers[ItemT]):
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


class _Cluster(_Workers[ItemT]):
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
        for call in self._connected.ended(self._running, 0 if others else _POLL if seconds is None else seconds):
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
