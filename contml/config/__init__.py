"""The config: the signature of a part's constructor is its schema; YAML in, errors of one line that point at theirs.

`read` gives a `Document`: plain values and the line of every key. `validate` checks them against a schema (top-level
key -> `Section` or `Scalar`) and gives a `Config`, whose parts are built when the data are known. Positional arguments
of a constructor are its options; keyword-only ones are what only the data can tell, and no config may set them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from contml._support.errors import InputError, did_you_mean
from contml._support.imports import import_by_name
from contml.config.document import COMMAND_LINE, Document, difference, dump, from_overrides, read, show, wrong
from contml.config.schema import (
    EMPTY,
    Constructor,
    Option,
    check,
    data_arguments,
    details,
    further_option,
    options,
    plain,
    summary,
    words,
)

__all__ = [
    "Config",
    "Document",
    "Option",
    "Part",
    "Scalar",
    "Section",
    "check_name",
    "data_arguments",
    "details",
    "difference",
    "dump",
    "from_overrides",
    "options",
    "read",
    "resolved",
    "summary",
    "validate",
]


@dataclass(frozen=True)
class Section:
    """A section of a config: a part chosen by `name` from a table, or the options of one fixed constructor.

    Args:
        parts: the table, or the constructor.
        default: the name where the config gives none.
        required: False: without a default, a config may leave the section out (or write null), and has no such part.
        others: finds a part whose name is not in the table; None where it knows no such name.
    """

    parts: Mapping[str, Constructor] | Constructor
    default: str | None = None
    required: bool = True
    others: Callable[[str], Constructor | None] | None = None


@dataclass(frozen=True)
class Scalar:
    """A top-level value such as `seed: 0`; required where it has no default."""

    type: Any
    default: Any = EMPTY
    help: str = ""


@dataclass(frozen=True)
class Part:
    """A part that a config chose: constructor and all options, defaults filled in. `name` is "" in a fixed section."""

    section: str
    name: str
    constructor: Constructor
    options: dict[str, Any]
    origin: str = field(default="", compare=False)

    def build(self, **data: Any) -> Any:
        """Calls the constructor with the options and with those of `data` that it takes keyword-only."""
        takes = data_arguments(self.constructor)
        if missing := [name for name, required in takes.items() if required and name not in data]:
            raise TypeError(f"{self.section} {self.name!r} needs {', '.join(missing)}: pass it to build()")
        try:
            return self.constructor(**self.options, **{name: data[name] for name in takes if name in data})
        except InputError as error:
            raise InputError(f"{self.origin}: {self.section}: {error}" if self.origin else str(error)) from error


@dataclass(frozen=True)
class Config:
    """A validated config: its parts and its top-level values, in the order of the schema."""

    parts: dict[str, Part]
    values: dict[str, Any]


def validate(document: Document, schema: Mapping[str, Section | Scalar]) -> Config:
    """Checks a document against a schema: the first error in file order is raised, what is missing comes last."""
    parts: dict[str, Part] = {}
    values: dict[str, Any] = {}
    for key in [*document.values, *(key for key in schema if key not in document.values)]:
        entry = schema.get(key)
        if entry is None:
            hint = did_you_mean(key, schema, f"a config takes {', '.join(schema)}")
            raise wrong(document.where((key,)), f"unknown key '{key}'; {hint}")
        if isinstance(entry, Section):
            part = _part(document, key, entry)
            if part is not None:
                parts[key] = part
        elif key in document.values:
            option = Option(key, entry.type, entry.default, entry.default is EMPTY, entry.help)
            values[key] = _checked(document, (key,), option, document.values[key])
        elif entry.default is EMPTY:
            raise wrong(document.where(), f"'{key}' is missing; it must be {words(entry.type)}")
        else:
            values[key] = entry.default
    return Config({k: parts[k] for k in schema if k in parts}, {k: values[k] for k in schema if k in values})


def _part(document: Document, key: str, section: Section) -> Part | None:
    given = document.values.get(key)
    table = section.parts if isinstance(section.parts, Mapping) else None
    if given is None and section.default is None and not section.required:
        return None
    if isinstance(given, str) and table is not None:
        given = {"name": given}
    if not isinstance(given, dict | None):
        form = "a mapping of its options" if table is None else f"the name of a {key}, or a mapping with 'name'"
        raise wrong(document.where((key,)), f"'{key}' is {show(given)}; it must be {form}")
    given, name, constructor = dict(given or {}), "", section.parts
    if table is not None:
        name, constructor = _choose(document, key, section, table, given.pop("name", None))
        if _renamed(document, key, section, name):  # the options of the file were another part's
            given = {option: v for option, v in given.items() if document.lines.get((key, option)) == COMMAND_LINE}
    assert callable(constructor)
    try:
        takes, data = options(constructor), data_arguments(constructor)
        further = further_option(constructor)
    except (NameError, TypeError, ValueError) as error:
        raise wrong(document.where((key, "name")), f"the signature of {key} '{name}' cannot be read: {error}") from None
    names = [option.name for option in takes]
    if table is not None and "name" in names:
        at = document.where((key, "name"))
        raise wrong(at, f"{key} '{name}' has an argument called 'name', which chooses the part; rename it")
    for option in given:
        if option in data:
            raise wrong(document.where((key, option)), f"'{key}.{option}' is filled from the data; remove it")
        if option not in names and further is None:
            hint = did_you_mean(option, names, f"'{name or key}' takes {', '.join(names) or 'no options'}")
            raise wrong(document.where((key, option)), f"unknown key '{key}.{option}'; {hint}")
        kind = takes[names.index(option)] if option in names else further
        assert kind is not None
        given[option] = _checked(document, (key, option), kind, given[option])
    for o in takes:
        if o.required and o.name not in given:
            raise wrong(document.where((key,)), f"'{key}.{o.name}' is missing; '{name or key}' needs it")
    mixed = document.line((key,)) and any(document.line((key, option)) == COMMAND_LINE for option in given)
    origin = document.where((key,)) + (" and command line" if mixed else "")
    return Part(key, name, constructor, {o.name: o.default for o in takes} | given, origin)


def _renamed(document: Document, key: str, section: Section, name: str) -> bool:
    """Whether the command line chose another part than the file."""
    written = document.file.get(key)
    before = written.get("name") if isinstance(written, dict) else written
    return document.lines.get((key, "name")) == COMMAND_LINE and name != (before or section.default)


def _choose(
    document: Document, key: str, section: Section, table: Mapping[str, Constructor], name: Any
) -> tuple[str, Constructor]:
    at = document.where((key, "name"))
    name = section.default if name is None else name
    if name is None:
        missing = f"{key}.name" if isinstance(document.values.get(key), dict) else key
        raise wrong(at, f"'{missing}' is missing; choose one of {', '.join(table)}")
    if not isinstance(name, str):
        raise wrong(at, f"'{key}.name' is {show(name)}; it must be one of {', '.join(table)}")
    if name in table:
        return name, table[name]
    try:
        found = section.others(name) if section.others else None
    except InputError as error:
        raise InputError(f"{at}: {error}") from error
    if found is not None:
        return name, found
    if re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*", name):
        if not document.trusted and document.line((key, "name")) != COMMAND_LINE:
            raise wrong(at, f"'{key}.name' names code to import ({name}); pass --trust to allow it")
        return name, _import(at, key, name)
    raise _unknown(at, key, name, table)


def _unknown(at: str, key: str, name: str, table: Collection[str]) -> InputError:
    return wrong(at, f"unknown {key} '{name}'; {did_you_mean(name, table, 'choose one of ' + ', '.join(table))}")


def check_name(document: Document, key: str, table: Collection[str]) -> None:
    """Refuse a part whose name is not in its table, before the parts themselves are imported.

    Raises:
        InputError: it names neither a part of the table nor code to import.
    """
    given = document.values.get(key)
    name = given.get("name") if isinstance(given, dict) else given
    if isinstance(name, str) and name not in table and ":" not in name:
        raise _unknown(document.where((key, "name")), key, name, table)


def _import(at: str, key: str, name: str) -> Constructor:
    path, _, attribute = name.partition(":")
    said = f"'{key}.name' is '{name}'"
    try:
        found = import_by_name(name)
    except ModuleNotFoundError as error:
        raise wrong(at, f"{said}; there is no module '{error.name}'") from None
    except AttributeError as error:
        raise wrong(at, f"{said}; {error}") from None
    except Exception as error:  # whatever the user's module does when it is imported
        raise wrong(at, f"{said}; importing '{path}' failed: {type(error).__name__}: {error}") from None
    if not callable(found):
        raise wrong(at, f"{said}; it must name something to call, and '{attribute}' is a {type(found).__name__}")
    constructor: Constructor = found
    return constructor


def _checked(document: Document, key: tuple[str, ...], option: Option, value: Any) -> Any:
    try:
        return check(option, value)
    except ValidationError:
        at = document.where(key)
        raise wrong(at, f"'{'.'.join(key)}' is {show(value)}; it must be {words(option.type)}") from None


def resolved(config: Config) -> dict[str, Any]:
    """The whole config, defaults filled in, as plain values: paths are text and tuples lists.

    A default that YAML cannot say (an object) is left out: whoever reads the config back gets the same default.
    """
    values: dict[str, Any] = {}
    for key, part in config.parts.items():
        values[key] = {"name": part.name} if part.name else {}
        values[key] |= _said(part.options)
    return values | _said(config.values)


def _said(values: Mapping[str, Any]) -> dict[str, Any]:
    texts = {name: plain(value) for name, value in values.items()}
    return {name: json.loads(text) for name, text in texts.items() if text is not None}
