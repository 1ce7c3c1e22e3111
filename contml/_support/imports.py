"""Objects that are imported on first use, and the versions of packages."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any


def import_by_name(name: str) -> Any:
    """Return the object named `module:Name` or `module:Name.attribute`. Errors of the import are not caught."""
    module, _, attributes = name.partition(":")
    target: Any = importlib.import_module(module)
    for attribute in attributes.split("."):
        target = getattr(target, attribute)
    return target


def names_in_stub(file: str) -> dict[str, list[str]]:
    """Return the names that the stub (`.pyi`) beside a module imports, by the module that defines them."""
    tree = ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = (node for node in tree.body if isinstance(node, ast.ImportFrom))
    return {str(node.module): [alias.name for alias in node.names] for node in imports}


def lazy_names(
    package: str, modules: Mapping[str, Collection[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package whose names are imported on first use.

    Args:
        package: the package's `__name__`.
        modules: the names that the package exports, by the module that defines them.
    """
    module_of = {name: module for module, names in modules.items() for name in names}

    def get(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        is_module = module_of[name] == package  # a module of the package itself
        module = importlib.import_module(f"{package}.{name}" if is_module else module_of[name])
        value = module if is_module else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *module_of})

    return get, names


class LazyTable(Mapping[str, Callable[..., Any]]):
    """A table of classes and functions by name, each loaded when it is looked up.

    Args:
        parts: for each name its `module:Name`, or a function that returns its class or function.
    """

    def __init__(self, parts: Mapping[str, str | Callable[[], Callable[..., Any]]]) -> None:
        self._parts = parts

    def __getitem__(self, name: str) -> Callable[..., Any]:
        part = self._parts[name]
        return import_by_name(part) if isinstance(part, str) else part()

    def path(self, name: str) -> str | None:
        """Return the `module:Name` of a part, if it is known without an import."""
        part = self._parts.get(name)
        return part if isinstance(part, str) else None

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def __contains__(self, name: object) -> bool:
        return name in self._parts


def lazy_table(package: str, parts: Mapping[str, str]) -> LazyTable:
    """Return a table of parts that are imported when they are looked up.

    Args:
        package: the package that contains the modules.
        parts: `{name: "module:Name"}`, modules relative to the package.
    """
    return LazyTable({name: f"{package}.{part}" for name, part in parts.items()})


@cache
def versions() -> dict[str, str]:
    """Return the version of each package that is installed."""
    installed = {}
    for name in ("contml", "torch", "torchvision", "timm", "pillow", "numpy"):
        with suppress(PackageNotFoundError):  # timm is optional
            installed[name] = version(name)
    return installed
