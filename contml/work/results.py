"""Finished items of work in files, and the leases of the items that are being done."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from filelock import SoftFileLease, Timeout

from contml._support.errors import InputError
from contml._support.files import append_line, locked, remove_folder, unwritable
from contml.work.shards import Join

#: Seconds without a sign of its holder after which a lease is free. All processes that share a folder need the same.
LEASE = 120.0
#: The file in the folder of leases which says that the output is written, and the parts are not needed any more.
_WRITTEN = "written"

ResultT = TypeVar("ResultT")


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:24]


class Item(Protocol):
    """A piece of work; `str` names it in messages."""

    @property
    def key(self) -> str:
        """What distinguishes it from all other items with the same results."""


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
