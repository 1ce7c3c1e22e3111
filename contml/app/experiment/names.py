"""The installed configs and tasks, by name. This module does not import torch."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from importlib.metadata import EntryPoint, entry_points
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from contml._support.errors import InputError, did_you_mean
from contml._support.imports import LazyTable, import_by_name


class Preset(NamedTuple):
    """The preset that was chosen.

    Attributes:
        name: one of `PRESETS` of loading.py. It is "" if the config or an override names the network.
        changes: the changes to the config of your own data.
        reason: the reason as text, for the user.
    """

    name: str = ""
    changes: tuple[str, ...] = ()
    reason: str = ""


@cache
def task_table() -> LazyTable:
    """Return every installed task by its name `folder/name`, from the entry-point group `contml.tasks`."""
    entries = sorted(entry_points(group="contml.tasks"), key=lambda entry: entry.name)
    packages = {entry.name: entry.load() for entry in entries}
    parts: dict[str, str | Callable[[], Callable[..., Any]]] = {}
    for folder, tasks in packages.items():
        for name in tasks:
            path = tasks.path(name) if isinstance(tasks, LazyTable) else None
            parts[f"{folder}/{name}"] = path or partial(tasks.__getitem__, name)
    return LazyTable(parts)


def data_task() -> str:
    """Return the name of the task that reads your own table (`--data`), from the entry-point group `contml.data_task`.

    Raises:
        InputError: there is none, because the installed package is older than the code.
    """
    return _data_entry().name


def refuse_data(*given: Any, **options: Any) -> None:
    """Refuse your own data for obvious errors, with the function `refuse` of the package of the task."""
    import_by_name(f"{_data_entry().module.rpartition('.')[0]}.kinds:refuse")(*given, **options)


def _data_entry() -> EntryPoint:
    entries = entry_points(group="contml.data_task")
    if not entries:
        raise InputError("--data", "no installed task reads a table", hint="install contml again")
    return next(iter(entries))


def config_names() -> list[str]:
    """Return the names of the configs that come with contml, as `folder/name`."""
    return sorted(f"{file.parent.name}/{file.stem}" for file in Path(str(files("contml.configs"))).glob("*/*.yaml"))


def config_path(name: str) -> Path:
    """Return the file of a config that comes with contml.

    Raises:
        InputError: there is no config of this name.
    """
    names = config_names()
    if name not in names:
        default_hint = "see 'contml list configs', or give the path of a YAML file"
        raise InputError(name, "no such config", hint=did_you_mean(name, names, default_hint))
    return Path(str(files("contml.configs") / f"{name}.yaml"))


def config_text(name: str) -> str:
    """Return the text of a config that comes with contml.

    Raises:
        InputError: there is no config of this name.
    """
    return config_path(name).read_text(encoding="utf-8")
