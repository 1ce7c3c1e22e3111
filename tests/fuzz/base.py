"""What a kind of input is, and what several kinds share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from contml.app.report.examples import draw
from contml.data import Images, Task


@dataclass(frozen=True)
class Kind:
    """A kind of input.

    Args:
        build: writes valid files to a folder.
        read: reads them; the generator chooses among the options of a reader.
        files: patterns of the files that are changed.
        restore: whether reading changes the folder, so that each case needs a new copy.
    """

    build: Callable[[Path], Any]
    read: Callable[[Path, Random], Any]
    files: tuple[str, ...]
    restore: bool = False


def use(task: Task) -> None:
    """What training and a report ask of a task: label distances, names, an image and its picture."""
    for split in task.splits.values():
        rows = range(min(4, len(split)))
        split.labels.pairwise(list(rows), list(rows))
        split.labels[list(rows)].digests()
        list(split.names)
        list(Images(8, 8, broken="skip").test_batches(split, [0], 1))
        draw(split, 0, 16, {})


def task_kind(build: Callable[[Path], Any], make: Callable[..., Task], files: tuple[str, ...], **options) -> Kind:
    """A task that reads the files of a folder."""

    def read_task(folder: Path, random: Random) -> None:
        missing = (
            {"missing": random.choice(("drop", "drop", "drop", "refuse"))} if "missing" in make.__annotations__ else {}
        )
        chosen = {k: random.choice(v) if isinstance(v, list) else v for k, v in options.items()}
        use(make(str(folder), **missing, **chosen))

    return Kind(build, read_task, files)


def changed_file(folder: Path, names: tuple[str, ...]) -> str:
    """The file that was changed last."""
    return max(
        (name for name in names if (folder / name).exists()),
        key=lambda name: (folder / name).stat().st_mtime_ns,
        default=names[0],
    )
