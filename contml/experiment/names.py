"""The installed configs and tasks, by name. This module does not import torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.metadata import entry_points
from importlib.resources import files
from pathlib import Path
from typing import Any

from contml._support.errors import InputError, did_you_mean


class TaskTable(Mapping[str, Callable[..., Any]]):
    """Every installed task by its name `folder/name`; a task is imported when it is looked up.

    Args:
        packages: the table of each task package, by folder.
    """

    def __init__(self, packages: Mapping[str, Mapping[str, Callable[..., Any]]]) -> None:
        self._packages = packages

    def __getitem__(self, name: str) -> Callable[..., Any]:
        folder, _, task = name.partition("/")
        return self._packages[folder][task]

    def __iter__(self) -> Iterator[str]:
        return (f"{folder}/{task}" for folder, tasks in self._packages.items() for task in tasks)

    def __len__(self) -> int:
        return sum(map(len, self._packages.values()))


@cache
def task_table() -> TaskTable:
    """Every installed task, from the entry-point group `contml.tasks`."""
    entries = sorted(entry_points(group="contml.tasks"), key=lambda entry: entry.name)
    return TaskTable({entry.name: entry.load() for entry in entries})


def data_task() -> str:
    """The task that reads your own table (`--data`): the name in the entry-point group `contml.data_task`.

    Raises:
        InputError: there is none, because the installed package is older than the code.
    """
    entries = entry_points(group="contml.data_task")
    if not entries:
        raise InputError("--data", "no installed task reads a table", hint="install contml again")
    return next(iter(entries)).name


def config_names() -> list[str]:
    """The configs that come with contml, as `folder/name`."""
    root = files("contml.configs")
    folders = sorted((f for f in root.iterdir() if f.is_dir()), key=lambda f: f.name)
    return [
        f"{folder.name}/{Path(file.name).stem}"
        for folder in folders
        for file in sorted(folder.iterdir(), key=lambda file: file.name)
        if file.name.endswith(".yaml")
    ]


def config_path(name: str) -> Path:
    """The file of a config that comes with contml.

    Raises:
        InputError: there is no config of this name.
    """
    names = config_names()
    if name not in names:
        others = "see 'contml list configs', or give the path of a YAML file"
        raise InputError(name, "no such config", hint=did_you_mean(name, names, others))
    return Path(str(files("contml.configs") / f"{name}.yaml"))


def config_text(name: str) -> str:
    """The text of a config that comes with contml.

    Raises:
        InputError: there is no config of this name.
    """
    return config_path(name).read_text(encoding="utf-8")
