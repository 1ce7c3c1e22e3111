"""Files that are written completely or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def write(path: Path, save: Callable[[Path], Any]) -> Path:
    """Writes a file completely or not at all: `save` writes a temporary file beside it, which is then renamed."""
    with atomic(path) as temporary:
        save(temporary)
    return path


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Yields a temporary path; it is renamed to `path` if the block succeeds, and removed if it raises."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # The suffix stays, since some libraries choose the format by it.
    temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
