"""Files that are written completely or not at all, and read up to a limit."""

from __future__ import annotations

import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from contml._support.errors import InputError, one_line

#: Names of temporary files: 16 random digits, and the suffix of the file.
_TEMPORARY = re.compile(r"\.contml-[0-9a-f]{16}(\.[^/]*)?")
#: Seconds without a change after which the process that wrote a temporary file is assumed to have ended.
_STALE = 3600.0


def write(path: Path, save: Callable[[Path], Any]) -> Path:
    """Writes a file completely or not at all: `save` writes a temporary file beside it, which is then renamed."""
    with atomic(path) as temporary:
        save(temporary)
    return path


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Yields a new empty file beside `path`; it is renamed to `path` if the block succeeds, and removed if it raises.

    Raises:
        InputError: the file cannot be written, as on a full disk; an older file stays as it is.
    """
    # A new file with a random name: no other process writes to it, and it is not a link to another file. Other users
    # can read it, unlike a file of `tempfile`. The suffix is kept, since some libraries choose the format by it.
    temporary = path.with_name(f".contml-{secrets.token_hex(8)}{path.suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _clean_once(path.parent.absolute())
        temporary.touch(exist_ok=False)
        mode = temporary.stat().st_mode
        yield temporary
        temporary.chmod(mode)  # safetensors makes a new file, which only its owner can read
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        if error.filename is not None and Path(error.filename) not in (temporary, *path.parents):
            raise  # the block read or wrote another file
        raise unwritable(path, error) from None
    finally:
        with suppress(OSError):
            temporary.unlink()


def check_new_file(*paths: Path, hint: str = "choose another file") -> None:
    """Checks that files can be made: no command overwrites a file, except those of its own run or index.

    Raises:
        InputError: something has one of these names.
    """
    for path in paths:
        if os.path.lexists(path):
            raise InputError(str(path), "exists already", hint=hint)


def check_new_folder(folder: Path, kept: Collection[str] = ()) -> None:
    """Checks that a folder can be filled: it is new, or has nothing but hidden files and the files `kept`.

    Raises:
        InputError: it has other files, or is a file.
    """
    if not os.path.lexists(folder):
        return
    if not folder.is_dir() or any(path.name not in kept and path.name[0] != "." for path in folder.iterdir()):
        raise InputError(str(folder), "exists already and is not empty", hint="choose another folder")


def unwritable(path: Path, error: OSError) -> InputError:
    """The error of a file that cannot be written."""
    return InputError(str(path), f"cannot be written ({error.strerror or one_line(error)})")


@cache
def _clean_once(folder: Path) -> None:
    remove_temporaries(folder, _STALE)


def remove_temporaries(folder: Path, age: float = 0.0) -> None:
    """Removes the temporary files of killed processes from a folder if they have not changed for `age` seconds."""
    for entry in os.scandir(folder):
        if _TEMPORARY.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
            with suppress(OSError):  # another process removed it, or it belongs to another user
                if time.time() - entry.stat(follow_symlinks=False).st_mtime >= age:
                    Path(entry.path).unlink()


def append_line(path: Path, line: bytes) -> None:
    """Appends a line to a file of lines, after it removed a last line that a crash cut short.

    Raises:
        InputError: it cannot be written, as on a full disk; the lines before it stay.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+b") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
            if file.read(1) not in (b"", b"\n"):
                file.seek(0)
                file.truncate(file.read().rfind(b"\n") + 1)
            file.write(line + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise unwritable(path, error) from None


@contextmanager
def locked(folder: Path, busy: str, hint: str) -> Iterator[None]:
    """Holds the lock of a folder; it is also freed if this process is killed.

    Raises:
        InputError: another process holds it, which `busy` says, with `hint`; or the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # filelock closes it in forked worker processes: they would keep it after this process is killed.
        lock = FileLock(folder / ".lock", timeout=0).acquire()
    except Timeout:
        raise InputError(str(folder), busy, hint=hint) from None
    except (OSError, NotImplementedError) as error:
        got = f"cannot be locked ({error.strerror if isinstance(error, OSError) else error})"
        raise InputError(str(folder), got, hint="copy it to a folder that can be written") from None
    with lock:
        yield


def read_bytes(path: Path, limit: int) -> bytes:
    """Returns the content of a file.

    Raises:
        FileNotFoundError: there is no such file.
        InputError: it is not a regular file (a pipe may never end), larger than `limit` bytes, or cannot be read.
    """
    try:
        file_status = path.stat()
        if not stat.S_ISREG(file_status.st_mode):
            raise InputError(str(path), "a folder" if path.is_dir() else "not a regular file", "must be a file")
        if file_status.st_size > limit:
            raise InputError(str(path), f"{file_status.st_size:,} bytes", f"must be at most {limit:,} bytes")
        return path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise InputError(str(path), f"cannot be read ({error.strerror or one_line(error)})") from None
