"""The run folder: create, open, log a row, save atomically.

It holds config.yaml, metrics.jsonl, checkpoints/, evaluation.json, embeddings/, report.html and its pictures.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

from contml._support.errors import InputError
from contml._support.files import write

#: First line of a run's config, before the name of the config that it was made from.
HEAD = "# contml run of "


class Run:
    """The folder of one training."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def config(self) -> Path:
        """The resolved config."""
        return self.folder / "config.yaml"

    @property
    def name(self) -> str:
        """The name of the config that it was made from."""
        first = self.config.read_text(encoding="utf-8").partition("\n")[0]
        return first.removeprefix(HEAD) if first.startswith(HEAD) else self.folder.resolve().parent.name

    @property
    def metrics(self) -> Path:
        """One JSON object a line: training and evaluation rows."""
        return self.folder / "metrics.jsonl"

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""
        return self.folder / "checkpoints"

    def log(self, row: Mapping[str, Any]) -> None:
        """Append a row to the metrics."""
        with self.metrics.open("a+b") as file:
            _cut_fragment(file)
            # JSON knows no NaN: a figure that is none is null.
            plain = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
            file.write(json.dumps(plain).encode() + b"\n")

    def rows(self) -> list[dict[str, Any]]:
        """The rows of the metrics; a last line cut short by a crash is left out."""
        if not self.metrics.exists():
            return []
        rows = []
        lines = self.metrics.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, 1):
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError:
                if number < len(lines):
                    raise InputError(f"{self.metrics}:{number}: not a line of JSON; remove it") from None
        return rows

    def rewind(self, step: int, *, evaluated: bool = True) -> None:
        """Drop the rows of steps after `step`, and of the evaluation after it unless that is done."""

        def stays(row: Mapping[str, Any]) -> bool:
            return row["step"] < step or (row["step"] == step and (evaluated or row["event"] != "evaluation"))

        rows = [row for row in self.rows() if stays(row)]
        write(self.metrics, lambda path: path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8"))


def _cut_fragment(file: BinaryIO) -> None:
    """Cut off a last line that a crash left without its end."""
    end = file.seek(0, os.SEEK_END)
    if end == 0:
        return
    file.seek(end - 1)
    if file.read(1) != b"\n":
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)


def create(root: Path, name: str) -> Run:
    """A new run folder `root/name/date-time`, numbered where two start within a second."""
    stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")  # local time, as a person would look for it
    for number in range(1, 1000):
        folder = root / name / (stamp if number == 1 else f"{stamp}_{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            if not folder.is_dir():
                raise InputError(f"{folder} is in the way of a run folder") from None
            continue
        except OSError as error:
            raise InputError(f"cannot create the run folder {folder}: {error.strerror}") from None
        run = Run(folder)
        run.checkpoints.mkdir()
        return run
    raise InputError(f"cannot create a run folder under {root / name}")


def open_run(folder: Path) -> Run:
    """An existing run folder.

    Raises:
        InputError: it is not there, or holds no `config.yaml`.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such run folder; give a folder that 'contml train' made")
    run = Run(folder)
    if not run.config.is_file():
        raise InputError(f"{folder}: not a run folder, it has no config.yaml; give a folder that 'contml train' made")
    return run


def find_runs(folder: Path) -> list[Path]:
    """The run folders in a folder, by name; itself where it is one."""
    if (folder / "config.yaml").is_file():
        return [folder]
    inner = (path for path in sorted(folder.iterdir()) if path.is_dir() and not path.name.startswith("."))
    return [run for path in inner if not path.is_symlink() for run in find_runs(path)]
