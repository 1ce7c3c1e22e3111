"""Experiments by the name of a config, by a file, by a table of one's own, by a run folder.

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

#: The config of a table of one's own where none is named; the task comes from an entry point.
_TABLE = "table/default"


def load(config: str, overrides: Sequence[str] = ()) -> Experiment:
    """The experiment of a config that comes with contml, by name, or of a YAML file, by path.

    Raises:
        InputError: there is no such config, or something in it is wrong: one line that points at it.
    """
    path = Path(config)
    if path.suffix in (".yaml", ".yml") or path.is_file():
        return _experiment(read(path, overrides), path.stem)
    return _experiment(read(config_path(config), overrides, name=f"{config}.yaml"), config)


def load_table(
    data: Path,
    labels: Sequence[str] = (),
    image: str | None = None,
    config: str | None = None,
    overrides: Sequence[str] = (),
) -> Experiment:
    """The experiment of a table of one's own: where no config is named, that which suits its labels and its size.

    Args:
        data: a CSV or Parquet file.
        labels: its labels, as `NAME=KIND`, `NAME=KIND:WEIGHT`, or `NAME` whose kind is guessed.
        image: the column of images.
        config: a config of the task that reads tables.
        overrides: changes to the config, which come after all these.

    Raises:
        InputError: something is wrong in the table or in what is said of it: one line that points at it.
    """
    given = [f"task.data={_quoted(str(data))}"]
    if labels:
        named = [label.rpartition("=") if "=" in label else (label, "", "auto") for label in labels]
        kinds = {name.strip(): kind for name, _, kind in named}
        if len(kinds) < len(named):
            twice = [name.strip() for name, *_ in named]
            raise InputError(f"--label names '{next(n for n in twice if twice.count(n) > 1)}' twice; give each once")
        given.append(f"task.labels={_quoted(kinds)}")
    if image is not None:
        given.append(f"task.image={_quoted(image)}")
    if config is None:
        given.insert(0, f"task.name={data_task()}")
    experiment = load(config or _TABLE, [*given, *overrides])
    task = experiment.build_task()
    if config is None:
        assert task.suggested is not None  # of a table
        suited, changes = task.suggested[0], list(task.suggested[1])
        if any(override.startswith(("sampler=", "sampler.name=")) for override in overrides):
            changes = [change for change in changes if not change.startswith("sampler")]
        experiment = load(suited, [*given, *changes, *overrides])
    return replace(experiment, task=task)


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def load_run(folder: Path, *, trust: bool = False) -> tuple[Experiment, Run]:
    """The experiment of a run folder; names of code to import are honoured only with trust."""
    run = open_run(folder)
    return _experiment(read(run.config, trusted=trust), run.name), run


def _experiment(document: Document, name: str) -> Experiment:
    check_name(document, "task", task_table())
    from contml.experiment.building import experiment  # here: it imports torch

    return experiment(document, name)
