"""Objects named as `module:Name`, imported when they are used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any


def import_by_name(name: str) -> Any:
    """The object that `module:Name` or `module:Name.attribute` names; whatever the import raises goes through."""
    module, _, attributes = name.partition(":")
    found: Any = importlib.import_module(module)
    for attribute in attributes.split("."):
        found = getattr(found, attribute)
    return found


def lazy_names(
    package: str, modules: Mapping[str, Collection[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package whose names are imported when they are first used.

    Args:
        package: the package's `__name__`.
        modules: the names that each module gives to the package.
    """
    module_of = {name: module for module, names in modules.items() for name in names}

    def get(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        value = getattr(importlib.import_module(module_of[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *module_of})

    return get, names


class LazyTable(Mapping[str, Callable[..., Any]]):
    """A table of classes and functions by name, each imported when it is looked up.

    Args:
        package: the package that the modules belong to.
        parts: `{name: "module:Name"}`, modules relative to the package.
    """

    def __init__(self, package: str, parts: Mapping[str, str]) -> None:
        self._parts = {name: f"{package}.{part}" for name, part in parts.items()}

    def __getitem__(self, name: str) -> Callable[..., Any]:
        found: Callable[..., Any] = import_by_name(self._parts[name])
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def __contains__(self, name: object) -> bool:
        return name in self._parts
