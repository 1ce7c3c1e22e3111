"""Runs one case: a file of a kind is changed by a seed and read, with a limit of time and of memory."""

from __future__ import annotations

import io
import resource
import shutil
import signal
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from contml import InputError

from .kinds import KINDS
from .mutations import mutated

SECONDS, BYTES = 10, 1 << 30
CORPUS = Path(__file__).with_name("corpus")


class TooLongError(BaseException):
    """A case took too long; not an Exception, so that no reader catches it."""


@dataclass(frozen=True)
class Outcome:
    """`result` is "accepted", "refused" or "failed"; `words` is the message, or what went wrong; `memory` in bytes."""

    result: str
    words: str = ""
    details: str = ""
    memory: int = 0


class Miniatures:
    """A folder of valid files of each kind, written once."""

    def __init__(self) -> None:
        self._root = tempfile.TemporaryDirectory(prefix="contml-fuzz-")
        self._valid: dict[str, Path] = {}

    def close(self) -> None:
        """Remove all files."""
        self._root.cleanup()

    def valid(self, kind: str) -> Path:
        """The folder of valid files."""
        if kind not in self._valid:
            folder = Path(self._root.name) / kind.replace("/", "_")
            folder.mkdir()
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                KINDS[kind].build(folder)
                self._valid[kind] = folder
                with self.changed(kind, {}) as valid:
                    KINDS[kind].read(valid, Random(1))  # once without limits: compiled functions are compiled
        return self._valid[kind]

    @contextmanager
    def changed(self, kind: str, files: dict[str, bytes]) -> Iterator[Path]:
        """The folder with other content of some files, for the time of the block."""
        folder = self.valid(kind)
        if KINDS[kind].restore:
            copy = Path(self._root.name) / "copy"
            shutil.copytree(folder, copy)
            folder = copy
        before = {name: (folder / name).read_bytes() for name in files if (folder / name).exists()}
        try:
            for name, content in files.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(content)
            yield folder
        finally:
            if KINDS[kind].restore:
                shutil.rmtree(folder)
            else:
                for name in files:
                    (folder / name).unlink()
                for name, content in before.items():
                    (folder / name).write_bytes(content)

    def case(self, kind: str, seed: int) -> dict[str, bytes]:
        """The changed file of a case."""
        random, folder = Random(f"{kind} {seed}"), self.valid(kind)
        path = random.choice(sorted(path for path in folder.glob(random.choice(KINDS[kind].files)) if path.is_file()))
        return {str(path.relative_to(folder)): mutated(path.read_bytes(), path.name, random)}

    def run(self, kind: str, files: dict[str, bytes], seed: int = 0) -> Outcome:
        """Read the folder with these files, as a command does."""
        with self.changed(kind, files) as folder:
            return outcome(lambda: KINDS[kind].read(folder, Random(seed)))


def outcome(read: Any) -> Outcome:
    """What reading does: it is accepted, refused by one line, or it failed."""
    try:
        with limited(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            before = _memory("VmRSS")
            Path("/proc/self/clear_refs").write_text("5")  # the peak of memory starts anew
            try:
                read()
                found = Outcome("accepted")
            except InputError as error:
                found = Outcome("refused", str(error))
            used = _memory("VmHWM") - before
    except TooLongError:
        return Outcome("failed", f"more than {SECONDS} s", traceback.format_exc())
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in place if "/contml/" in frame.filename or "/tasks/" in frame.filename] or place
        where = f"{Path(own[-1].filename).name}:{own[-1].lineno} {own[-1].name}"
        return Outcome("failed", f"{type(error).__name__} in {where}: {str(error)[:100]!r}", traceback.format_exc())
    if used > BYTES:
        return Outcome("failed", f"{used / 2**20:,.0f} MB of memory ({found.result})", memory=used)
    return replace(found, memory=used)


@contextmanager
def limited() -> Iterator[None]:
    """A limit of time, and of memory that can be allocated."""

    def stop(*_: object) -> None:
        raise TooLongError

    handler = signal.signal(signal.SIGPROF, stop)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)  # time of the processor: others may use the machine
    try:
        resource.setrlimit(resource.RLIMIT_AS, (_memory("VmSize") + 4 * BYTES, limits[1]))
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, limits)
        signal.signal(signal.SIGPROF, handler)


def _memory(name: str) -> int:
    """A line of /proc/self/status in bytes."""
    text = Path("/proc/self/status").read_text()
    return 1024 * int(next(line for line in text.splitlines() if line.startswith(f"{name}:")).split()[1])
