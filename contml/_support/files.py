"""Files that are written completely or not at all, and read up to a limit.

A command that makes a new file or folder can be killed at any moment and called again. The same call finishes what is
there, or finds it complete. Files that anything else has made are refused, and never overwritten:

    check_new_file, check_new_folder   before the work: refuse files that cannot be the output of this command
    write_new, write_folder            after the work: refuse files with another content

Commands whose work takes long record in the file what it was made from (`contml.data.features`). They read this record
before the work.

The endings of tables, and of files that are written, are checked before torch is imported.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import socket
import sys
import time
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from functools import cache
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from filelock import FileLock, Timeout

from contml._support.door import opened
from contml._support.errors import InputError, one_line

if TYPE_CHECKING:
    from pydantic import BaseModel


Record = TypeVar("Record", bound="BaseModel")
#: Names of temporary files: 4 digits of the machine, 6 of the process, 6 random ones, and the suffix of the file.
_TEMPORARY = re.compile(r"\.contml-([0-9a-f]{4})([0-9a-f]{6})[0-9a-f]{6}(\.[^/]*)?")
#: Seconds without a change after which a process of another machine is assumed to have ended.
_STALE = 3600.0
#: Seconds between two attempts to take a lock, and attempts to make its folder while other processes remove it.
_POLL, _ATTEMPTS = 0.01, 100
#: The bytes that files of contml's commands have at a position, by suffix. Other files are from other programs.
_SIGNATURES = {
    ".png": (0, b"\x89PNG\r\n"),
    ".html": (0, b"<!DOCTYPE html>"),
    ".js": (0, b"const "),
    ".json": (0, b"{"),
    ".safetensors": (8, b"{"),
    ".npz": (0, b"PK"),
    ".npy": (0, b"\x93NUMPY"),
    ".parquet": (0, b"PAR1"),
    ".onnx": (0, b"\x08"),
}


def write(path: Path, save: Callable[[Path], Any]) -> Path:
    """Write a file completely or not at all. `save` writes a temporary file beside it, which is then renamed."""
    with atomic(path) as temporary:
        save(temporary)
    return path


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Yield a new empty file beside `path`. It is renamed to `path` if the block succeeds, and removed if it raises.

    Raises:
        InputError: the file cannot be written, as on a full disk. An older file stays as it is.
    """
    # A new file with a random name: no other process writes to it, and it is not a link to another file. Other users
    # can read it, unlike a file of `tempfile`. The suffix is kept, since some libraries choose the format by it.
    temporary = path.parent / _temporary_name(path.suffix)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _clean_once(path.parent.absolute())
        temporary.touch(exist_ok=False)
        mode = temporary.stat().st_mode
        yield temporary
        temporary.chmod(mode)  # safetensors makes a new file, which only its owner can read
        with temporary.open("r+b") as file:  # Windows syncs no file that is open for reading alone
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        if error.filename is not None and Path(error.filename) not in (temporary, *path.parents):
            raise  # the block read or wrote another file
        raise unwritable(path, error) from None
    finally:
        with suppress(OSError):
            temporary.unlink()


def write_json(path: Path, content: Any) -> None:
    """Write a file of JSON completely or not at all.

    Raises:
        InputError: it cannot be written.
    """
    write(path, methodcaller("write_text", json.dumps(content), encoding="utf-8"))


def check_new_file(path: Path, *, begins: bytes = b"", hint: str = "choose another file") -> None:
    """Check before the work that a file is absent, or may be the output of the same command.

    No command overwrites a file that it has not made.

    Args:
        path: the file.
        begins: the first bytes of the output, if its suffix does not determine them.
        hint: what to do about an existing file.

    Raises:
        InputError: another file has this name.
    """
    if os.path.lexists(path) and not _may_be_ours(path, begins):
        raise taken(path, hint)


def write_new(path: Path, content: bytes) -> None:
    """Write a file if it is missing. An existing file must have this content already.

    Raises:
        InputError: it has another content, or cannot be written.
    """
    if not os.path.lexists(path):
        write(path, methodcaller("write_bytes", content))
    elif not _has(path, content):
        raise taken(path)


def taken(path: Path, hint: str = "choose another file") -> InputError:
    """Return the error for a file name that another file has already."""
    return InputError(str(path), "exists already", hint=hint)


def _may_be_ours(path: Path, begins: bytes = b"") -> bool:
    position, signature = (0, begins) if begins else _SIGNATURES.get(path.suffix.lower(), (0, b""))
    with suppress(OSError):
        if path.is_file():  # not a folder, a pipe, a link to nothing
            with path.open("rb") as file:
                return file.read(position + len(signature))[position:] == signature
    return False


def _has(path: Path, content: bytes) -> bool:
    with suppress(OSError):
        return path.is_file() and path.read_bytes() == content
    return False


def user_cache(name: str) -> Path:
    """Return a folder of contml's cache of this user, by the XDG base directory specification. It may be absent.

    All of its content can be made again, so it may be removed at any time.
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or f"{os.environ.get('HOME', '')}/.cache") / "contml" / name


def check_new_folder(folder: Path, own: Collection[str] = (), *, hint: str = "choose another folder") -> None:
    """Check that a folder can be made or filled. Every command that makes a folder refuses one with other files.

    Args:
        folder: it may be absent, empty, or hold hidden files, as a folder of git does.
        own: patterns of the names that the command writes. It may have been killed, or be complete.
        hint: what to do about a folder with other files.

    Raises:
        InputError: it has other files, or is a file.
    """
    if not os.path.lexists(folder):
        return
    visible = [path for path in folder.iterdir() if path.name[0] != "."] if folder.is_dir() else [folder]
    for path in visible:
        is_own = any(fnmatchcase(path.name, pattern) for pattern in own)
        if path == folder or not is_own or not (path.is_dir() or _may_be_ours(path)):
            raise InputError(str(folder), "exists already and is not empty", hint=hint)


def write_folder(
    folder: Path, build: Callable[[Path], Any], *, own: Collection[str], kept: Collection[str] = (), last: str
) -> None:
    """Make a folder completely or not at all, like `write`. An existing complete folder must have this content.

    Args:
        folder: new, empty, or made by the same command.
        build: writes its files in the folder that it is given.
        own: as in `check_new_folder`.
        kept: names that may exist with any content, and stay.
        last: the file that marks a complete folder. If the folder exists, this file is moved to it last.

    Raises:
        InputError: it has other files, or cannot be written, as on a full disk. Nothing is left of it then.
    """
    check_new_folder(folder, own)
    # Inside, if it is there: the folder above may be another disk.
    with temporary_folder(folder if folder.is_dir() else folder.parent, folder) as temporary:
        build(temporary)
        made = {path.relative_to(temporary): path for path in _files(temporary)}
        found = {path.relative_to(folder): path for path in _files(folder) if path.name not in kept}
        for name, path in found.items():
            if name not in made or not _has(path, made[name].read_bytes()):
                raise taken(path, "choose another folder")
        if temporary.parent != folder:
            temporary.rename(folder)
            return
        for name in sorted(made.keys() - found.keys(), key=lambda name: (name == Path(last), name)):
            (folder / name).parent.mkdir(exist_ok=True)
            made[name].rename(folder / name)


@contextmanager
def temporary_folder(folder: Path, path: Path) -> Iterator[Path]:
    """Yield a new folder inside `folder`, in which `path` is prepared. It is removed in the end.

    Raises:
        InputError: `path` cannot be written, as on a full disk.
    """
    temporary = folder / _temporary_name()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _clean_once(folder.absolute())
        temporary.mkdir()
        yield temporary
    except OSError as error:
        if error.filename is not None and not Path(error.filename).is_relative_to(folder):
            raise  # the block read another file
        raise unwritable(path, error) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _files(folder: Path) -> Iterator[Path]:
    """Yield all files below a folder, without hidden files at its top."""
    for top in folder.glob("[!.]*"):
        yield from (path for path in (top, *top.rglob("*")) if not path.is_dir())


def shared_folder(folders: Collection[str]) -> str:
    """Return the deepest folder that contains all of these.

    Return "" if there is none, such as on two drives of Windows.
    """
    try:
        return os.path.commonpath(folders)
    except ValueError:
        return ""


def unwritable(path: Path, error: OSError) -> InputError:
    """Return the error of a file that cannot be written."""
    return InputError(str(path), f"cannot be written ({error.strerror or one_line(error)})")


@cache
def _clean_once(folder: Path) -> None:
    remove_temporaries(folder, _STALE)


def _temporary_name(suffix: str = "") -> str:
    return f".contml-{_machine()}{os.getpid() & 0xFFFFFF:06x}{secrets.token_hex(3)}{suffix}"


@cache
def _machine() -> str:
    """Return four digits that identify this machine, or the container in which this process runs."""
    name = socket.gethostname()
    with suppress(OSError):
        name += str(Path("/proc/self/ns/pid").readlink())
    return f"{zlib.crc32(name.encode()) & 0xFFFF:04x}"


def _has_ended(machine: str, process: str) -> bool:
    """Return True if the process that made a temporary file is known to have ended."""
    if machine == _machine() and sys.platform != "win32":
        try:
            os.kill(int(process, 16), 0)
        except OSError as error:
            return isinstance(error, ProcessLookupError)  # otherwise it belongs to another user
    return False


def remove_temporaries(folder: Path, age: float = 0.0) -> None:
    """Remove the temporary files of killed processes from a folder.

    Temporary files of other machines are removed if they have not changed for `age` seconds.
    """
    for entry in os.scandir(folder):
        if match := _TEMPORARY.fullmatch(entry.name):
            path = Path(entry.path)
            with suppress(OSError):  # another process removed it, or it belongs to another user
                is_folder = entry.is_dir(follow_symlinks=False)
                changed = [entry.stat(follow_symlinks=False).st_mtime]
                if is_folder:
                    changed += [each.stat().st_mtime for each in path.iterdir()]
                if time.time() - max(changed) < age and not _has_ended(match[1], match[2]):
                    continue
                if is_folder:
                    shutil.rmtree(path)
                elif entry.is_file(follow_symlinks=False):
                    path.unlink()


def append_line(path: Path, line: bytes) -> None:
    """Append a line to a file of lines. A last line that a crash cut short is removed first.

    Raises:
        InputError: it cannot be written, as on a full disk. The lines before it stay.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a+b", opener=_no_link) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
            if file.read(1) not in (b"", b"\n"):
                file.seek(0)
                file.truncate(file.read().rfind(b"\n") + 1)
            file.write(line + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise unwritable(path, error) from None


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0))


@contextmanager
def locked(folder: Path, busy: str = "", hint: str = "", *, name: str = ".lock", subject: str = "") -> Iterator[None]:
    """Hold a lock of a folder. It is also freed if this process is killed.

    Args:
        folder: it is made if it does not exist.
        busy: a description of the process that holds the lock, for the error. If it is empty, wait for the lock.
        hint: what to do about it.
        name: the name of the lock.
        subject: the locked thing, for the message. Default: the folder.

    Raises:
        InputError: another process holds it, or the folder cannot be written.
    """
    if (folder / name).is_symlink():  # the file that it leads to would be cut
        raise InputError(subject or str(folder), f"cannot be locked ({name} is a link)", hint="remove it")
    lock = None
    for _ in range(_ATTEMPTS):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # filelock closes it in forked worker processes: they would keep it after this process is killed.
            lock = FileLock(folder / name, timeout=0 if busy else -1, poll_interval=_POLL).acquire()
            break
        except Timeout:
            raise InputError(subject or str(folder), busy, hint=hint) from None
        except (OSError, NotImplementedError) as error:
            problem = error
            # Another process may have removed the folder, since its work is done.
            is_removed = folder.is_dir() or not os.path.lexists(folder)
            if not is_removed or not isinstance(error, FileNotFoundError | FileExistsError):
                break
            time.sleep(_POLL)
    if lock is None:
        if isinstance(problem, OSError) and not folder.is_dir():
            raise unwritable(Path(subject or folder), problem)
        cause = f"cannot be locked ({problem.strerror if isinstance(problem, OSError) else problem})"
        raise InputError(subject or str(folder), cause, hint="copy it to a folder that can be written")
    with lock:
        yield


def remove_folder(folder: Path) -> None:
    """Remove a folder with all its content. Other processes see all of it or nothing, since it is renamed first."""
    temporary = folder.with_name(_temporary_name())
    with suppress(OSError):
        folder.rename(temporary)
    shutil.rmtree(temporary, ignore_errors=True)


def read_bytes(path: Path, limit: int, too_large: Callable[[Path, str], InputError] | None = None) -> bytes:
    """Read the content of a file.

    Args:
        path: the file.
        limit: the most bytes that the file may have.
        too_large: makes the error for a larger file, from its path and a text with its size.

    Raises:
        FileNotFoundError: there is no such file.
        InputError: it is not a regular file, too large, or cannot be read.
    """
    try:
        with opened(path) as file:
            size = os.fstat(file.fileno()).st_size
            content = b"" if size > limit else file.read(max(size, 1 << 16) + 1) or b""
    except FileNotFoundError:
        raise
    except OSError as error:
        raise InputError(str(path), f"cannot be read ({error.strerror or one_line(error)})") from None
    if (size := max(size, len(content))) > limit:
        if too_large is not None:
            raise too_large(path, f"{size:,} bytes")
        raise InputError(str(path), f"{size:,} bytes", f"must be at most {limit:,} bytes")
    return content


def most_unpacked(size: int) -> int:
    """Return the number of bytes to which a packed file of this size may unpack.

    Tables and arrays do not reach this limit.
    """
    return (1 << 24) + 100 * size


def refuse_links(folder: Path) -> None:
    """Check that no link in a folder leads out of it. A stranger's folder could otherwise name files of the user.

    The cache of the Hugging Face hub keeps files in `blobs`, two folders above. A lock is checked when it is taken.

    Raises:
        InputError: a link leads out of the folder.
    """
    real, blobs = folder.resolve(), (folder / "../../blobs").resolve()
    for place, folders, files in os.walk(folder):
        for path in (Path(place, name) for name in (*folders, *files) if name != ".lock"):
            target = Path(os.path.realpath(path)) if path.is_symlink() else real  # also of a link to itself
            if not target.is_relative_to(real) and target.parent != blobs:
                raise InputError(str(path), "a link that leads out of the folder", hint="copy the file itself there")


def read_record(path: Path, model: type[Record], *, hint: str, limit: int) -> Record | None:
    """Read the content of a JSON file, as a model of pydantic. Return None if there is no such file.

    Raises:
        InputError: it does not fit the model, or as in `read_bytes`.
    """
    try:
        return model.model_validate_json(read_bytes(path, limit))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise unreadable(path, error, hint) from None


def unreadable(path: Path, error: Exception, hint: str) -> InputError:
    """Return the error of a file with unexpected content. It names the first problem."""
    if isinstance(error, InputError):
        return error
    return InputError(str(path), f"cannot be read ({one_line(error)})", hint=hint)


#: Endings of tables, in lower case; .gz may follow the ending of a text file.
TABLES = (".csv", ".tsv", ".txt", ".jsonl", ".ndjson", ".json", ".parquet", ".pq", ".xlsx")
#: The ending of a file of arrays of joints, which the table task also reads.
JOINTS = ".npz"

#: Endings of files of features, of embeddings, of galleries, and of graphs.
FEATURES, EMBEDDINGS, GALLERIES = (".npz", ".npy", ".parquet"), (".parquet", ".npz"), (".html",)
#: Endings of files of vectors that are read; `contml features` writes `FEATURES`.
VECTORS = (*FEATURES, ".safetensors")
GRAPHS, PREDICTIONS = (".onnx",), (".csv", ".parquet")

#: Hints for files of other formats.
_OTHERS = {
    **dict.fromkeys((".xls", ".xlsm", ".xlsb", ".ods", ".numbers"), "save the sheet as CSV or .xlsx"),
    **dict.fromkeys((".yaml", ".yml"), "give a config without --data"),
    **dict.fromkeys((".zip", ".7z", ".tar"), "unpack it, and give the folder or the table in it"),
    **dict.fromkeys((".pkl", ".pickle", ".feather", ".arrow", ".h5", ".hdf5"), "save it as Parquet or CSV"),
    **dict.fromkeys((".doc", ".docx", ".pdf"), "save the table as CSV"),
}


def check_suffix(path: Path, endings: Collection[str]) -> str:
    """Check the ending of a file name, in upper or lower case, and return the ending in lower case.

    Raises:
        InputError: it has another ending.
    """
    suffix = path.suffix.lower()
    if suffix not in endings:
        allowed = " or ".join(filter(None, (", ".join([*endings][:-1]), [*endings][-1])))
        if path.is_dir():
            raise InputError(str(path), "a folder", f"must be a file that ends in {allowed}")
        raise InputError(str(path), f"suffix {path.suffix!r}", f"must end in {allowed}")
    return suffix


def table_suffix(path: Path) -> str:
    """Return the ending of a file in lower case, before .gz."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def check_table_suffix(path: Path, *more: str) -> None:
    """Check that a file has the ending of a table, or an ending in `more`. With `more`, the data may also be a folder.

    Raises:
        InputError: it has another ending.
    """
    suffix = table_suffix(path)
    packed = path.name.lower().endswith(".gz") and suffix in (".parquet", ".pq", ".xlsx")
    if suffix not in (*TABLES, *more) or packed:
        allowed = f"must {'be a folder, or ' if more else ''}end in {', '.join(TABLES)} (of text also .gz)"
        got = f"ends in '{suffix}.gz'" if packed else f"ends in '{suffix}'"
        raise InputError(str(path), got, allowed, "unpack it" if packed else _OTHERS.get(suffix, ""))
