"""The schema of a part is the signature of its constructor: names, types, defaults. The docstring has the help."""

from __future__ import annotations

import inspect
import json
import os
import re
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, Union, get_args, get_origin

from pydantic import ConfigDict, ValidationError, create_model
from pydantic_core import PydanticSerializationError, to_jsonable_python

from contml._support.errors import InputError, did_you_mean
from contml._support.validation import check_range, range_of
from contml.config.document import Document, Key, show

Constructor: TypeAlias = Callable[..., Any]
EMPTY = inspect.Parameter.empty
_Note = TypeVar("_Note")


@dataclass(frozen=True)
class Option:
    """An argument of a constructor that a config may set, or a top-level value such as `seed: 0`.

    `default` is None if it is `required`.
    """

    name: str
    type: Any
    default: Any = None
    required: bool = True
    help: str = ""


@dataclass(frozen=True)
class NamedParts:
    """The note that an option holds parts by name, each with a section of its own: `{room: {kind: map, classes: 11}}`.

    It is a note of the annotation: `labels: Annotated[dict[str, Any], NamedParts(...)]`.

    Args:
        parts: the table of the parts by their kind.
        default: the kind of a section without a kind.
        shorthand: converts a text to a section: `number:log` to `{kind: number, scale: log}`.
    """

    parts: Mapping[str, Constructor]
    default: str
    shorthand: Callable[[str], dict[str, Any]]

    @property
    def options(self) -> dict[str, list[str]]:
        """The kinds that have an option, by its name."""
        kinds: dict[str, list[str]] = {}
        for kind, part in self.parts.items():
            for option in options(part):
                kinds.setdefault(option.name, []).append(kind)
        return kinds


@dataclass(frozen=True)
class Fields:
    """The note that an option is a section of its own, with the options of a constructor: `table: {encoding: latin-1}`.

    It is a note of the annotation: `table: Annotated[dict[str, Any], Fields(TableOptions)]`.
    """

    constructor: Constructor


def _note(option: Option | None, kind: type[_Note]) -> _Note | None:
    notes = option.type.__metadata__ if option is not None and get_origin(option.type) is Annotated else ()
    return next((note for note in notes if isinstance(note, kind)), None)


def named_parts(option: Option | None) -> NamedParts | None:
    """Return the note about the parts that an option holds. Return None if it holds no parts."""
    return _note(option, NamedParts)


def fields_of(option: Option | None) -> Constructor | None:
    """Return the constructor whose options an option holds. Return None if it holds a value."""
    note = _note(option, Fields)
    return None if note is None else note.constructor


def all_options(part: Constructor) -> Iterator[Option]:
    """Yield the options of a part, each followed by the options that it holds: `table`, `table.delimiter`."""
    for option in options(part):
        yield option
        if (fields := fields_of(option)) is not None:
            yield from (replace(inner, name=f"{option.name}.{inner.name}") for inner in all_options(fields))


def options(part: Constructor) -> list[Option]:
    """Return the options of a part that a config may set.

    They are the positional arguments of its constructor, without a loss or a label space that the part wraps.
    """
    help_of, found = _help(part), []
    for name, p in inspect.signature(part, eval_str=True).parameters.items():
        if p.kind is p.POSITIONAL_OR_KEYWORD and not _from_data(p):
            kind, required = Any if p.annotation is EMPTY else p.annotation, p.default is EMPTY
            found.append(Option(name, kind, None if required else p.default, required, help_of.get(name, "")))
    return found


def _from_data(parameter: inspect.Parameter) -> bool:
    """Return True if an argument is filled from the data.

    It is keyword-only, or the loss or the label space that a part wraps.
    """
    annotation = getattr(parameter.annotation, "__name__", parameter.annotation)
    return parameter.kind is parameter.KEYWORD_ONLY or annotation in ("Loss", "LabelSpace")


def further_option(part: Constructor) -> Option | None:
    """Return the type of options with arbitrary names, as in `**metrics: float`.

    Return None if the constructor has none.
    """
    parameters = inspect.signature(part, eval_str=True).parameters.values()
    keyword_parameters = [p for p in parameters if p.kind is p.VAR_KEYWORD and p.annotation not in (EMPTY, Any)]
    return Option(keyword_parameters[0].name, keyword_parameters[0].annotation) if keyword_parameters else None


def data_arguments(part: Constructor) -> dict[str, bool]:
    """Return the arguments of a part that are filled from the data (`_from_data`), and whether each is required."""
    return {p.name: p.default is EMPTY for p in inspect.signature(part).parameters.values() if _from_data(p)}


def summary(part: Constructor) -> str:
    """Return the first line of a part's docstring."""
    return inspect.cleandoc(part.__doc__ or "").partition("\n")[0]


def details(part: Constructor) -> str:
    """Return the text of a part's docstring between its first line and its sections."""
    body = inspect.cleandoc(part.__doc__ or "").partition("\n")[2]
    return re.split(r"^(?:Args|Arguments|Raises|Returns):", body, maxsplit=1, flags=re.MULTILINE)[0].strip()


def _help(part: Constructor) -> dict[str, str]:
    """Return the help of each argument, from `Args:` in a docstring.

    The docstring is of a function, or of a class, its bases and their `__init__`.
    """
    texts: dict[str, str] = {}
    classes = reversed(part.__mro__) if isinstance(part, type) else ()
    sources = [source for c in classes for source in (c, vars(c).get("__init__"))] or [part]
    for source in sources:
        doc = inspect.cleandoc(getattr(source, "__doc__", None) or "")
        section = re.search(r"^(?:Args|Arguments):[ ]*\n((?:[ ]+.*(?:\n|$)|[ ]*\n)*)", doc, re.MULTILINE)
        lines = inspect.cleandoc("\n" + section[1]).splitlines() if section else []
        name = ""
        for line in lines:
            if match := re.match(r"\*{0,2}(\w+)(?: \([^)]*\))?:\s*(.*)", line):
                name, texts[match[1]] = match[1], match[2]
            elif name:
                texts[name] = f"{texts[name]} {line.strip()}".strip()
    return texts


def check(option: Option, value: Any) -> Any:
    """Return the value converted to the option's type.

    Raises:
        ValidationError: it has another type.
        InputError: it is not in the range of the type.
    """
    text = json.dumps(value, default=os.fspath)  # a path: the options of labels are read again by their task
    if not option.required and plain(option.default) == text:
        return option.default  # the default itself is accepted, even if it does not fit the annotation
    # Strict JSON fits YAML: a list may be a tuple and text a path, but "0.1" and true are not numbers.
    model_config = ConfigDict(strict=True, arbitrary_types_allowed=True)
    model = create_model("Value", __config__=model_config, value=(option.type, ...))
    converted = model.model_validate_json(f'{{"value": {text}}}').__dict__["value"]
    check_range(option.type, option.name, converted)
    return converted


def checked_at(document: Document, key: Key, option: Option, value: Any) -> Any:
    """Return the value of an option in a document, converted to its type.

    Raises:
        InputError: it has another type, or is not in the range of the type.
    """
    try:
        return check(option, value)
    except ValidationError:
        hint = did_you_mean(value, _choices(option.type)) if isinstance(value, str) else ""
        raise document.error(key, show(value), f"must be {words(option.type)}", hint) from None
    except InputError as error:
        raise document.error(key, show(value), error.allowed) from None


def _choices(kind: Any) -> list[str]:
    """Return the words that a type allows."""
    if get_origin(kind) is Literal:
        return [word for word in get_args(kind) if isinstance(word, str)]
    return [word for part in get_args(kind) for word in _choices(part)]


def words(kind: Any, many: bool = False) -> str:
    """Describe a type as text, for errors."""
    nouns = {int: "a whole number", float: "a number", str: "text", bool: "true or false", Path: "a path"}
    plurals = {int: "whole numbers", float: "numbers", str: "texts", Path: "paths"}
    origin, type_args = get_origin(kind), get_args(kind)
    if kind in (None, type(None)):
        return "null"
    if origin is Annotated:
        allowed = range_of(kind)
        text = "" if allowed is None or many else str(allowed)
        return text if text.startswith("a ") else f"{words(type_args[0], many)} {text}".rstrip()
    if isinstance(kind, type) and kind in nouns:
        return plurals.get(kind, nouns[kind]) if many else nouns[kind]
    if origin is Literal:
        return ("one of " if len(type_args) > 1 else "") + ", ".join(str(choice) for choice in type_args)
    if origin in (Union, types.UnionType):
        return " or ".join(words(choice) for choice in type_args)
    if origin is tuple and type_args and type_args[-1] is not Ellipsis:
        each = words(type_args[0], True) if len(set(type_args)) == 1 else f"({', '.join(map(words, type_args))})"
        return f"a list of {len(type_args)} {each}"
    if isinstance(origin or kind, type) and issubclass(origin or kind, Mapping):
        return "a mapping"
    if isinstance(origin or kind, type) and issubclass(origin or kind, Collection):
        return f"a list of {words(type_args[0], True)}" if type_args else "a list"
    return f"of type {getattr(kind, '__name__', kind)}"


def plain(value: Any) -> str | None:
    """Return a value as JSON. Return None if a config cannot hold it."""
    try:
        return json.dumps(to_jsonable_python(value))
    except (PydanticSerializationError, ValueError):
        return None
