"""Load an experiment from the name of a config, a file, your own table, or a run folder.

Mistyped names are found before torch is imported.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contml._support.errors import InputError
from contml.config import Document, check_name, read
from contml.experiment.names import config_path, data_task, task_table
from contml.runs import Run, open_run

if TYPE_CHECKING:
    from contml.experiment.building import Experiment

#: The config of your own table if none is named; the task comes from an entry point.
_TABLE = "table/default"


def load(config: str, overrides: Sequence[str] = ()) -> Experiment:
    """Load the experiment of a config that comes with contml, by name, or of a YAML file, by path.

    Raises:
        InputError: there is no such config, or it has an error.
    """
    path = Path(config)
    if path.suffix in (".yaml", ".yml") or path.is_file():
        return _experiment(read(path, overrides), path.stem)
    return _experiment(read(config_path(config), overrides, f"config {config}", bundled=True), config)


def load_table(
    data: Path,
    labels: Sequence[str] = (),
    image: str | None = None,
    config: str | None = None,
    overrides: Sequence[str] = (),
) -> Experiment:
    """Load the experiment of your own table. If no config is named, one that suits its labels and size is chosen.

    Args:
        data: a CSV or Parquet file.
        labels: its labels, as `NAME=KIND`, `NAME=KIND:WEIGHT`, or `NAME` (the kind is guessed).
        image: the column of images.
        config: a config of the task that reads tables.
        overrides: changes to the config; they override the arguments above.

    Raises:
        InputError: an error in the table, in the labels or in the config.
    """
    given = [f"task.data={_quoted(str(data))}"]
    if labels:
        named = [(label if "=" in label else f"{label}=auto").rpartition("=") for label in labels]
        names = [name.strip() for name, *_ in named]
        if repeated := [name for name in names if names.count(name) > 1]:
            raise InputError("--label", f"{repeated[0]} appears twice", hint="give each label once")
        given.append(f"task.labels={_quoted({name.strip(): kind for name, _, kind in named})}")
    if image is not None:
        given.append(f"task.image={_quoted(image)}")
    if config is not None:
        experiment = load(config, [*given, *overrides])
        return replace(experiment, task=experiment.read_task())

    def chosen(name: str, changes: Sequence[str]) -> Experiment:
        """The experiment of a config that the user did not name, and that errors do not name either."""
        return _experiment(read(config_path(name), overrides, "", bundled=True, changes=changes), name)

    given.insert(0, f"task.name={data_task()}")
    first = chosen(_TABLE, given)
    task = first.read_task()
    assert task.suggested is not None  # of a table
    suggested, changes = task.suggested(replace(first, task=task).build_task().train)
    if any(override.startswith(("sampler=", "sampler.name=")) for override in overrides):
        changes = [change for change in changes if not change.startswith("sampler")]
    return replace(chosen(suggested, [*given, *changes]), task=task)


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def load_run(folder: Path, *, trust: bool = False) -> tuple[Experiment, Run]:
    """Load the experiment of a run folder; its config may import code only with `trust`."""
    run = open_run(folder)
    return _experiment(read(run.config, trusted=trust), run.name), run


def _experiment(document: Document, name: str) -> Experiment:
    check_name(document, "task", task_table())
    from contml.experiment.building import experiment  # here: it imports torch

    return experiment(document, name)
