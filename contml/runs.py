"""The folder of a run: creates and opens it, logs metrics.

The folder contains:

- config.yaml
- data.safetensors: names, label hashes and splits of its items
- metrics.jsonl
- checkpoints/
- evaluation.json and calibration.json
- labels.safetensors: training items with their embeddings and labels
- about.json: device, time and versions of the training
- seconds.json: the time of the training until the saved state
- embeddings/, or captions/ for a captioner
- report.html and its pictures
- the log of a tracker
- queries/: the main metric of each query, for comparisons of runs

One process trains the run at a time, and holds the lock of the folder. Others may read the folder meanwhile. Every file
except metrics.jsonl is replaced as a whole. An incomplete last line of metrics.jsonl is ignored.
"""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from contml._support import files
from contml._support.errors import InputError
from contml._support.files import read_bytes, write

_OF_DATA = ("binarize.cache", "sampler.cache", "images.cache", "images.workers")
#: Keys of a config that change no result.
WITHOUT_EFFECT = frozenset({*_OF_DATA, "training.checkpoint_minutes", "training.metrics", "training.tracker"})
#: Keys with the places of files and the way they are read, not their content. A run may change these values.
PLACES = WITHOUT_EFFECT | {"task.root", "task.data", "model.weights", "captioner.weights"}
_SEPARATOR = re.compile(r"[/\\]")
#: The columns of the metrics that hold text, and the splits that are evaluated.
_TEXTS, _SPLITS = ("event", "split", "metric"), ("val", "test")
#: Largest metrics.jsonl in bytes; a row has about 300.
_METRICS_LIMIT = 1 << 26
#: Longest line of a head in bytes.
_LINE_LIMIT = 1 << 16
#: Start of the first line of a run's config; the name of the original config follows.
HEAD = "# contml run of "
#: Start of the second line, if the run was started by a command; the command follows.
COMMAND = "# command: "
#: Start of the next line, if a preset was chosen for the user's own data.
PRESET = "# preset: "


def without_paths(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config without paths, for weights and embeddings: users share them, and a path names machine and user.

    Paths at `PLACES` become None. Any other absolute path, or a path from the home folder, becomes the name of its
    file. A path without a suffix becomes None.
    """

    def kept(value: Any, key: str) -> Any:
        if isinstance(value, Mapping):
            return {name: kept(item, f"{key}.{name}" if key else name) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [kept(item, key) for item in value]
        if not isinstance(value, str) or not (_is_path(value) or (key in PLACES and _SEPARATOR.search(value))):
            return value
        name = PureWindowsPath(value)  # it splits at both separators
        return name.name if name.suffix and key not in PLACES else None

    return {key: kept(value, key) for key, value in config.items()}


def _is_path(text: str) -> bool:
    """Return True if a text is an absolute path, or one that starts in the home folder or above the current one."""
    windows, posix = PureWindowsPath(text), PurePosixPath(text)
    from_root = windows.is_absolute() or (posix.is_absolute() and len(posix.parts) > 1)  # "/" is a separator
    return from_root or text.startswith(("~", "../", "..\\", "file:"))


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
        return self._head(HEAD) or self.folder.resolve().parent.name

    @property
    def command(self) -> str:
        """The command that the user typed. It is empty if the run was started from Python."""
        return self._head(COMMAND)

    @property
    def preset(self) -> str:
        """The preset that was chosen for the user's own data. It is empty without a preset."""
        return self._head(PRESET)

    def _head(self, start: str) -> str:
        """Return the rest of the one of the first three lines of the config that begins with a text, or ""."""
        with self.config.open("rb") as file:
            lines = [file.readline(_LINE_LIMIT).decode("utf-8", errors="replace").rstrip("\r\n") for _ in range(3)]
        return next((line.removeprefix(start) for line in lines if line.startswith(start)), "")

    @property
    def data(self) -> Path:
        """The record of the data: names, label hashes and splits of all items."""
        return self.folder / "data.safetensors"

    def evaluation(self, checkpoint: str | None = None) -> Path:
        """Return the path of the evaluation.

        It is the evaluation of the selected weights, of other weights ("last", "best"), or through "labels".
        """
        return self.folder / f"evaluation{f'-{checkpoint}' if checkpoint else ''}.json"

    @property
    def calibration(self) -> Path:
        """The calibration file, which converts embedding distances to label distances (`contml.search.Calibration`)."""
        return self.folder / "calibration.json"

    @property
    def labels(self) -> Path:
        """The file of training items with embeddings and labels (`contml.search.labelled_items`)."""
        return self.folder / "labels.safetensors"

    @property
    def about(self) -> Path:
        """The file about the training of the weights: device, time, versions, number of parameters."""
        return self.folder / "about.json"

    def embeddings(self, split: str, checkpoint: str | None = None) -> Path:
        """Return the path of the embeddings of a split, by the selected weights or by others."""
        return self.folder / "embeddings" / f"{split}{f'-{checkpoint}' if checkpoint else ''}.safetensors"

    def query_values(self, split: str, checkpoint: str | None = None) -> Path:
        """Return the path of the main metric of each query of a split, by the selected weights or by others."""
        return self.folder / "queries" / f"{split}{f'-{checkpoint}' if checkpoint else ''}.json"

    def captions(self, split: str, checkpoint: str | None = None) -> Path:
        """Return the path of the captions of a split, by the selected weights of a captioner or by others."""
        return self.folder / "captions" / f"{split}{f'-{checkpoint}' if checkpoint else ''}.json"

    @property
    def metrics(self) -> Path:
        """The file of the metrics: one JSON object per line, from training and evaluation."""
        return self.folder / "metrics.jsonl"

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""
        return self.folder / "checkpoints"

    @property
    def _seconds(self) -> Path:
        """The file of the time of the training.

        The time is not in the state, which is the same for the same training.
        """
        return self.folder / "seconds.json"

    def save_seconds(self, seconds: float | None) -> None:
        """Save the time of the training until the saved state."""
        write(self._seconds, lambda path: path.write_text(json.dumps(seconds), encoding="utf-8"))

    def read_seconds(self) -> float | None:
        """Return the saved time of the training in seconds. Return None if it is not known."""
        try:
            seconds = json.loads(read_bytes(self._seconds, 100))
        except (OSError, ValueError):
            return None
        return float(seconds) if isinstance(seconds, int | float) and seconds >= 0 else None

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder, so that no other process trains this run.

        The lock ends when this process ends, even if killed.

        Raises:
            InputError: another process trains the run, or the folder cannot be written.
        """
        with files.locked(self.folder, "another process is training this run", "wait for it, or stop it"):
            if self.checkpoints.is_dir():
                files.remove_temporaries(self.checkpoints)  # only the process that holds the lock writes there
            yield

    def log(self, row: Mapping[str, Any]) -> None:
        """Append a row to the metrics.

        Raises:
            InputError: a value is not a number, or the file cannot be written, for example on a full disk. The earlier
                rows stay.
        """
        # JSON has no NaN and no infinity: they become null.
        plain = {k: None if isinstance(v, float) and not _fits(k, v) else v for k, v in row.items()}
        if invalid := [key for key, value in plain.items() if not _fits(key, value)]:
            raise InputError(f"metric {invalid[0]}", repr(plain[invalid[0]]), "must be a number")
        files.append_line(self.metrics, json.dumps(plain).encode())

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of the metrics, without an incomplete last line after a crash.

        Raises:
            InputError: a line is damaged.
        """
        try:
            lines = read_bytes(self.metrics, _METRICS_LIMIT).split(b"\n")
        except FileNotFoundError:
            return []
        rows = [_parse(line) for line in lines if line]
        if rows and rows[-1] is None and lines[-1]:
            rows.pop()
        if None in rows:
            line_number = [_parse(line) for line in lines].index(None) + 1
            raise InputError(f"{self.metrics}:{line_number}", "not a row of metrics", hint="remove this line")
        return [row for row in rows if row is not None]

    def rewind(self, step: int, *, evaluated: bool = True) -> None:
        """Drop the rows after `step`. Also drop the rows of the evaluation at `step`, unless `evaluated`."""

        def is_kept(row: Mapping[str, Any]) -> bool:
            return row["step"] < step or (row["step"] == step and (evaluated or row.get("event") == "train"))

        rows = [row for row in self.rows() if is_kept(row)]
        write(self.metrics, lambda path: path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8"))


def _parse(line: bytes) -> dict[str, Any] | None:
    """Parse a row of metrics: a JSON object of numbers and nulls, and of some texts. Return None for anything else."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict) or type(row.get("step")) is not int:
        return None
    if row.get("event") == "evaluation" and row.get("split") not in _SPLITS:
        return None
    return row if all(_fits(key, value) for key, value in row.items()) else None


def _fits(key: str, value: object) -> bool:
    if isinstance(value, int | float):
        return abs(value) < 1e300  # neither NaN nor infinite
    return value is None or (isinstance(value, str) and key in _TEXTS)


def create(root: Path, name: str, folder: Path | None = None) -> Run:
    """Create the run folder `root/name/date-time`, or `folder`.

    If two runs start in the same second, the name of the second gets a number.
    """
    stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")  # local time
    for number in itertools.count(1):
        path = folder or root / name / (stamp if number == 1 else f"{stamp}_{number}")
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            if not path.is_dir():
                raise InputError(str(path), "is a file", hint="remove it: a run folder needs this name") from None
            if folder is None:
                continue
            if begun(folder):
                raise InputError(str(path), "exists already", hint="choose another folder") from None
        except OSError as error:
            raise InputError(str(path), f"the run folder cannot be created ({error.strerror})") from None
        break
    run = Run(path)
    run.checkpoints.mkdir(exist_ok=True)
    return run


def begun(folder: Path, config: str = "") -> bool:
    """Return True if a folder is the folder of a run with this config.

    Return False if the folder does not exist, or if the run was killed before it began.

    Args:
        folder: the folder.
        config: the resolved config as YAML; "" accepts any config.

    Raises:
        InputError: the folder is in use for something else.
    """
    run = Run(folder)
    if not os.path.lexists(run.config):
        files.check_new_folder(folder, [run.data.name, run.checkpoints.name])
        if run.checkpoints.is_dir():
            files.check_new_folder(run.checkpoints)
        return False
    if config:
        text = run.config.read_text(encoding="utf-8", errors="replace")
        if re.sub(rf"\A{HEAD}.*\n(?:{COMMAND}.*\n)?(?:{PRESET}.*\n)?", "", text) != config:
            raise files.taken(folder, "choose another name")
    return True


def recorded_preset(folder: Path) -> str:
    """Return the preset that was chosen for the user's own data in a run folder.

    Return "" if the run has no preset, or the folder holds no run.
    """
    run = Run(folder)
    return run.preset if run.config.is_file() else ""


def open_run(folder: Path) -> Run:
    """Open an existing run folder.

    Raises:
        InputError: there is no such folder, it has no `config.yaml`, or a link leads out of it.
    """
    run = Run(folder)
    if not run.config.is_file():
        got = "not a run folder, it has no config.yaml" if folder.is_dir() else "no such run folder"
        raise InputError(str(folder), got, hint="give a folder that 'contml train' made")
    files.refuse_links(folder)
    return run


def find_runs(folder: Path) -> list[Path]:
    """Return the run folders in a folder, sorted by name. Return the folder itself if it is a run folder."""
    if (folder / "config.yaml").is_file():
        return [folder]
    subfolders = (path for path in sorted(folder.iterdir()) if path.is_dir() and not path.name.startswith("."))
    return [run for path in subfolders if not path.is_symlink() for run in find_runs(path)]
