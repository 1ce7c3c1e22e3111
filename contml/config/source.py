"""Numbers of options, checked before the parts are imported, since their modules import torch.

The ranges are read from the source text of the signatures. `validate` checks them again, with all other options, when
the parts are imported; what cannot be read here waits until then.
"""

from __future__ import annotations

import ast
import sys
import typing
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from contml._support import validation
from contml.config.document import Document
from contml.config.schema import Option, checked_at

#: What the annotations of numbers are made of, besides what their module defines.
_WORDS: dict[str, Any] = {"bool": bool, "int": int, "float": float, **vars(typing), **vars(validation)}


class _Definition(NamedTuple):
    """What a name is in a module."""

    module: str
    node: ast.AST


class _SourceSection(NamedTuple):
    """What a section is made from, a table or a constructor; the default name in the table."""

    made_from: _Definition
    default: object


def check_numbers(document: Document, schema: str, tasks: Callable[[str], str | None]) -> None:
    """Check the numbers of a document whose options declare a range.

    Args:
        document: the config.
        schema: the function that returns the schema, as `module:name`.
        tasks: the `module:name` of a task, if it is known without an import.

    Raises:
        InputError: a value is out of its range, or is not a number. The first one is named.
    """
    module, _, function = schema.partition(":")
    sections = _sections(module, function)
    for section, values in document.values.items():
        declaration = sections.get(section)
        if isinstance(declaration, Option):
            checked_at(document, (section,), declaration, values)
            continue
        options, chosen = (values, values.get("name")) if isinstance(values, dict) else ({}, values)
        if section == "task":
            path = tasks(chosen) if isinstance(chosen, str) else None
            found = None if path is None else _find(*path.split(":"))
        else:
            found = _part(declaration, chosen)
        declared = {} if found is None else dict(_options(found))
        for name, value in options.items():
            if name in declared:
                checked_at(document, (section, name), declared[name], value)


def _sections(module: str, function: str) -> dict[str, _SourceSection | Option]:
    """Return the sections of a schema that are made from a table or a constructor, and its numbers."""
    found = _find(module, function)
    assert found is not None
    schema = next(node.value for node in ast.walk(found.node) if isinstance(node, ast.Return))
    assert isinstance(schema, ast.Dict)
    sections = dict[str, _SourceSection | Option]()
    for key, call in zip(schema.keys, schema.values, strict=True):
        if not isinstance(key, ast.Constant) or not isinstance(call, ast.Call):
            continue
        if isinstance(call.args[0], ast.Constant):  # Option(name, type, default)
            sections |= dict(_option(module, str(key.value), call.args[1], call.args[2]))
        elif isinstance(call.args[0], ast.Name):
            defaults = [word.value for word in call.keywords if word.arg == "default"]
            default = defaults[0].value if defaults and isinstance(defaults[0], ast.Constant) else None
            if (made_from := _find(module, call.args[0].id)) is not None:
                sections[str(key.value)] = _SourceSection(made_from, default)
    return sections


def _part(section: _SourceSection | None, name: object) -> _Definition | None:
    """Return the constructor of a section: its only one, or the one with this name in its table."""
    if section is None:
        return None
    found, default = section
    if not isinstance(found.node, ast.Dict):
        return found
    for key, value in zip(found.node.keys, found.node.values, strict=True):
        if isinstance(key, ast.Constant) and isinstance(value, ast.Name) and key.value == (name or default):
            return _find(found.module, value.id)
    return None


def _find(module: str, name: str) -> _Definition | None:
    """Return the definition of a name, wherever the module imports it from."""
    found = _names(module).get(name)
    return _find(found.module, found.node.name) if found and isinstance(found.node, ast.alias) else found


@cache
def _names(module: str) -> Mapping[str, _Definition]:
    """Return the definitions and imports at the top level of a module, by name."""
    file = _file(module)
    names: dict[str, _Definition] = {}
    for node in ast.parse(file.read_text(encoding="utf-8")).body if file is not None else ():
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names[node.name] = _Definition(module, node)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            names[ast.unparse(target)] = _Definition(module, node.value)
        elif isinstance(node, ast.ImportFrom):
            package = module.split(".") if file and file.stem == "__init__" else module.split(".")[:-1]
            above = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*above, *filter(None, [node.module])])
            names |= {alias.asname or alias.name: _Definition(origin, alias) for alias in node.names}
    return names


def _file(module: str) -> Path | None:
    """Return the source file of a module below an imported package: its stub, if it has one."""
    package, names = module, list[str]()
    while package and not hasattr(sys.modules.get(package), "__path__"):
        package, _, name = package.rpartition(".")
        names.insert(0, name)
    if not package:
        return None
    places = sys.modules[package].__path__
    place = Path(next(iter(places))).joinpath(*names)
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    return next((each for each in (file.with_suffix(".pyi"), file) if each.is_file()), None)


def _options(found: _Definition) -> Iterator[tuple[str, Option]]:
    """Return the options of a class or function that have a range."""
    module, node = found
    if isinstance(node, ast.ClassDef):
        methods = [part for part in node.body if isinstance(part, ast.FunctionDef) and part.name == "__init__"]
        if not methods and any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list):
            for field in (part for part in node.body if isinstance(part, ast.AnnAssign)):
                yield from _option(module, ast.unparse(field.target), field.annotation, field.value)
            return
        if not methods:
            bases = [_find(module, base.id) for base in node.bases if isinstance(base, ast.Name)]
            for base in filter(None, bases[:1]):
                yield from _options(base)
            return
        node = methods[0]
    if isinstance(node, ast.FunctionDef):
        arguments, defaults = node.args.args, node.args.defaults
        for argument, default in zip(arguments, [*[None] * (len(arguments) - len(defaults)), *defaults], strict=True):
            yield from _option(module, argument.arg, argument.annotation, default)


def _option(
    module: str, name: str, annotation: ast.expr | None, default: ast.expr | None
) -> Iterator[tuple[str, Option]]:
    """Return the option, if its type can be read and has a range."""
    try:
        kind = _value(module, annotation)
    except (LookupError, TypeError, ValueError):
        return
    if validation.range_of(kind) is not None:
        known = default.value if isinstance(default, ast.Constant) else None
        yield name, Option(name, kind, known, required=not isinstance(default, ast.Constant))


def _value(module: str, node: ast.AST | None) -> Any:
    """Return the value of an annotation: names, `A | B`, `A[B]`, numbers, and calls of `Range`.

    Raises:
        ValueError: it is made of something else.
    """
    if isinstance(node, ast.Name):
        if node.id in _WORDS:
            return _WORDS[node.id]
        found = _find(module, node.id)
        return _value(found.module, found.node) if found is not None else _WORDS[node.id]
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Tuple):
        return tuple(_value(module, part) for part in node.elts)
    if isinstance(node, ast.Subscript):
        return _value(module, node.value)[_value(module, node.slice)]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _value(module, node.left) | _value(module, node.right)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Range":
        numbers = [_value(module, number) for number in node.args]
        return validation.Range(*numbers, **{str(word.arg): _value(module, word.value) for word in node.keywords})
    raise ValueError
