"""The folder of a run: creates and opens it, logs metrics.

It contains config.yaml, data.json.gz (the names, label hashes and splits of its items), metrics.jsonl, checkpoints/,
evaluation.json, embeddings/, report.html and its pictures.
"""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from contml._support.errors import InputError
from contml._support.files import write

#: Keys of a config that say where files are and how they are read, not what they hold: another value is the same run.
PLACES = frozenset(
    {
        *("task.root", "task.data", "model.weights", "binarize.cache", "sampler.cache", "images.cache"),
        *("images.workers", "training.checkpoint_minutes"),
    }
)
#: Start of the first line of a run's config; the name of the original config follows.
HEAD = "# contml run of "


class Run:
    """The folder of one training run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def config(self) -> Path:
        """The resolved config."""
        return self.folder / "config.yaml"

    @property
    def name(self) -> str:
        """The name of the original config."""
        first = self.config.read_text(encoding="utf-8").partition("\n")[0]
        return first.removeprefix(HEAD) if first.startswith(HEAD) else self.folder.resolve().parent.name

    @property
    def data(self) -> Path:
        """The record of the data: names, label hashes and splits of all items."""
        return self.folder / "data.json.gz"

    def evaluation(self, checkpoint: str | None = None) -> Path:
        """The file of the evaluation: of the selected weights, or of others by name ("last", "best")."""
        return self.folder / f"evaluation{f'-{checkpoint}' if checkpoint else ''}.json"

    def embeddings(self, split: str, checkpoint: str | None = None) -> Path:
        """The file of the embeddings of a split, by the selected weights or by others."""
        return self.folder / "embeddings" / f"{split}{f'-{checkpoint}' if checkpoint else ''}.safetensors"

    @property
    def metrics(self) -> Path:
        """The file of the metrics: one JSON object per line, from training and evaluation."""
        return self.folder / "metrics.jsonl"

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""
        return self.folder / "checkpoints"

    def log(self, row: Mapping[str, Any]) -> None:
        """Appends a row to the metrics."""
        with self.metrics.open("a+b") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
            if file.read(1) not in (b"", b"\n"):  # a crash cut the last line short
                file.seek(0)
                file.truncate(file.read().rfind(b"\n") + 1)
            # JSON has no NaN and no infinity: they become null.
            plain = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
            file.write(json.dumps(plain).encode() + b"\n")

    def rows(self) -> list[dict[str, Any]]:
        """Returns the rows of the metrics, without a last line that a crash cut short."""
        if not self.metrics.exists():
            return []
        rows = []
        lines = self.metrics.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, 1):
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError:
                if number < len(lines):
                    raise InputError(f"{self.metrics}:{number}", "not a line of JSON", hint="remove it") from None
        return rows

    def rewind(self, step: int, *, evaluated: bool = True) -> None:
        """Drops the rows after `step`; also those of the evaluation at `step`, unless `evaluated`."""

        def is_kept(row: Mapping[str, Any]) -> bool:
            return row["step"] < step or (row["step"] == step and (evaluated or row["event"] == "train"))

        rows = [row for row in self.rows() if is_kept(row)]
        write(self.metrics, lambda path: path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8"))


def create(root: Path, name: str, folder: Path | None = None) -> Run:
    """Creates the run folder `root/name/date-time`, with a number if two runs start in the same second; or `folder`."""
    stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")  # local time
    for number in itertools.count(1):
        path = folder or root / name / (stamp if number == 1 else f"{stamp}_{number}")
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            if not path.is_dir():
                raise InputError(str(path), "is a file", hint="remove it: a run folder needs this name") from None
            if folder is not None:
                raise InputError(str(path), "exists already", hint="choose another folder") from None
            continue
        except OSError as error:
            raise InputError(str(path), f"the run folder cannot be created ({error.strerror})") from None
        break
    run = Run(path)
    run.checkpoints.mkdir()
    return run


def open_run(folder: Path) -> Run:
    """Opens an existing run folder.

    Raises:
        InputError: there is no such folder, or it has no `config.yaml`.
    """
    run = Run(folder)
    if not run.config.is_file():
        got = "not a run folder, it has no config.yaml" if folder.is_dir() else "no such run folder"
        raise InputError(str(folder), got, hint="give a folder that 'contml train' made")
    return run


def find_runs(folder: Path) -> list[Path]:
    """Returns the run folders in a folder, sorted by name; the folder itself if it is a run folder."""
    if (folder / "config.yaml").is_file():
        return [folder]
    subfolders = (path for path in sorted(folder.iterdir()) if path.is_dir() and not path.name.startswith("."))
    return [run for path in subfolders if not path.is_symlink() for run in find_runs(path)]
