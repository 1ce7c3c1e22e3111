"""Files that are written completely or not at all, and read up to a limit."""

from __future__ import annotations

import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from contml._support.errors import InputError, one_line

#: Names of temporary files: 16 random digits, and the suffix of the file.
_TEMPORARY = re.compile(r"\.contml-[0-9a-f]{16}(\.[^/]*)?")
#: A temporary file that did not change for so many seconds is taken for one of a process that has ended.
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
    # can read it, unlike those of `tempfile`. The suffix is kept, since some libraries choose the format by it.
    temporary = path.with_name(f".contml-{secrets.token_hex(8)}{path.suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _clean_once(path.parent.absolute())
        temporary.touch(exist_ok=False)
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise unwritable(path, error) from None
    finally:
        with suppress(OSError):
            temporary.unlink()


def unwritable(path: Path, error: OSError) -> InputError:
    """The error of a file that cannot be written."""
    return InputError(str(path), f"cannot be written ({error.strerror or one_line(error)})")


@cache
def _clean_once(folder: Path) -> None:
    remove_temporaries(folder, _STALE)


def remove_temporaries(folder: Path, age: float = 0.0) -> None:
    """Removes the temporary files of killed processes from a folder: those that did not change for `age` seconds."""
    for entry in os.scandir(folder):
        if _TEMPORARY.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
            with suppress(OSError):  # another process removed it, or it belongs to another user
                if time.time() - entry.stat(follow_symlinks=False).st_mtime >= age:
                    Path(entry.path).unlink()


def read_bytes(path: Path, limit: int) -> bytes:
    """Returns the content of a file.

    Raises:
        FileNotFoundError: there is no such file.
        InputError: it is not a regular file (a pipe may never end), larger than `limit` bytes, or cannot be read.
    """
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise InputError(str(path), "a folder" if path.is_dir() else "not a regular file", "must be a file")
        if found.st_size > limit:
            raise InputError(str(path), f"{found.st_size:,} bytes", f"must be at most {limit:,} bytes")
        return path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise InputError(str(path), f"cannot be read ({error.strerror or one_line(error)})") from None
