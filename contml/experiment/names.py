"""The configs and tasks that are installed, by name; nothing here imports torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.metadata import entry_points
from importlib.resources import files
from pathlib import Path
from typing import Any

from contml._support.errors import InputError, did_you_mean


class TaskTable(Mapping[str, Callable[..., Any]]):
    """Every installed task by its name `folder/name`, imported when it is looked up.

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
    """The task that reads a table of one's own (`--data`): the name in the entry-point group `contml.data_task`.

    Raises:
        InputError: there is none, since the installed package is older than the code.
    """
    entries = entry_points(group="contml.data_task")
    if not entries:
        raise InputError("no installed task reads a table; install contml again: pip install contml (or -e .)")
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
        InputError: there is none of that name.
    """
    names = config_names()
    if name not in names:
        hint = did_you_mean(name, names)
        raise InputError(
            f"no config '{name}'; {hint}{' ' if hint else ''}'contml list configs' shows them, and a path to a YAML "
            "file works as well"
        )
    return Path(str(files("contml.configs") / f"{name}.yaml"))


def config_text(name: str) -> str:
    """The text of a config that comes with contml.

    Raises:
        InputError: there is none of that name.
    """
    return config_path(name).read_text(encoding="utf-8")
