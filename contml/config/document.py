"""YAML in and out: a file and its overrides become plain values and the line of every key."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import yaml
from pydantic_core import to_jsonable_python

from contml._support.errors import InputError

#: Where a value stands: ("loss", "margin").
Key: TypeAlias = tuple[str, ...]

COMMAND_LINE = 0  # the "line" of what was given as an override
TAG = "tag:yaml.org,2002:"

# Plain scalars as in the core schema of YAML 1.2, not 1.1: 1e-3 is a number, 010 is ten, no / on / 1:30 are text.
SCALARS = {
    "null": (r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    "bool": (r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    "int": (r"[-+]?[0-9]{1,400}|0o[0-7]{1,99}|0x[0-9a-fA-F]{1,99}", list("-+0123456789")),
    "float": (
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
}


class _Loader(yaml.SafeLoader):
    """Used to compose nodes only: values are made of them in `_value`."""


_Loader.yaml_implicit_resolvers = {}


class _Dumper(yaml.SafeDumper):
    """Keeps the resolvers of YAML 1.1 too: text that either version would take for something else is quoted."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True

    def represent_str(self, data: str) -> yaml.ScalarNode:
        # Outside double quotes PyYAML takes some unprintable characters (U+0085) for line breaks.
        return self.represent_scalar(TAG + "str", data, style=None if data.isprintable() else '"')

    def represent_sequence(self, tag: str, sequence: Any, flow_style: bool | None = None) -> yaml.SequenceNode:
        return super().represent_sequence(tag, sequence, flow_style=True if flow_style is None else flow_style)


_Dumper.add_representer(str, _Dumper.represent_str)
for _tag, (_pattern, _first) in SCALARS.items():
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(TAG + _tag, re.compile(f"(?:{_pattern})$"), _first)


@dataclass(frozen=True)
class Document:
    """A config as it was written, overrides laid over it.

    Args:
        name: what errors call the file.
        values: plain values, file and overrides together.
        lines: the line of every key; `COMMAND_LINE` for overrides.
        file: the values of the file alone.
        trusted: whether names in the file may import code.
    """

    name: str
    values: dict[str, Any]
    lines: Mapping[Key, int] = field(default_factory=dict)
    file: Mapping[str, Any] = field(default_factory=dict)
    trusted: bool = True

    def line(self, key: Key) -> int | None:
        """The line of a key, or of the nearest key above it; None where the document has neither."""
        return next((self.lines[key[:n]] for n in range(len(key), 0, -1) if key[:n] in self.lines), None)

    def where(self, key: Key = ()) -> str:
        """The origin of a key, as errors begin with it."""
        line = self.line(key)
        return self.name if line is None else "command line" if line == COMMAND_LINE else f"{self.name}:{line}"


def read(path: Path, overrides: Sequence[str] = (), name: str | None = None, trusted: bool = True) -> Document:
    """A YAML file and overrides such as `loss.margin=0.1`; nothing is validated but the writing.

    `loss=triplet_margin` replaces the whole section; of two overrides of one key the last holds, and an override of a
    section comes before those of its options, whatever their order.

    Args:
        path: the file.
        overrides: `KEY=VALUE`, the value in YAML.
        name: what errors call the file; default its path.
        trusted: False for somebody else's config: its names may not import code.
    """
    name = str(path) if name is None else name
    try:
        raw = path.read_bytes()
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise wrong(f"{name}:{raw[: error.start].count(10) + 1}", "not UTF-8 text; save the file as UTF-8") from None
    except FileNotFoundError:
        raise wrong(name, "there is no such file") from None
    except OSError as error:
        raise wrong(name, f"the file cannot be read: {error.strerror}") from None
    lines: dict[Key, int] = {}
    values = _parse(text, lambda line: f"{name}:{line}", (), lines)
    if values is None:
        raise wrong(f"{name}:1", "the file is empty; a config is a mapping such as 'seed: 0'")
    if not isinstance(values, dict):
        raise wrong(f"{name}:1", f"the file holds {show(values)}; a config is a mapping such as 'seed: 0'")
    merged = copy.deepcopy(values)
    for override in sorted(map(_split, overrides), key=lambda override: len(override.key)):
        _lay(merged, lines, override)
    return Document(name, merged, lines, values, trusted)


def from_overrides(overrides: Sequence[str]) -> Document:
    """Overrides such as `loss.margin=0.1` by themselves, without a file."""
    values: dict[str, Any] = {}
    lines: dict[Key, int] = {}
    for override in sorted(map(_split, overrides), key=lambda override: len(override.key)):
        _lay(values, lines, override)
    return Document("command line", values, lines)


def _parse(text: str, where: Callable[[int], str], key: Key, lines: dict[Key, int], line: int | None = None) -> Any:
    try:
        node = yaml.compose(text, Loader=_Loader)
        return None if node is None else _value(node, where, key, lines, line, set())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = where(mark.line + 1 if mark else 1)
        if "'\\t'" in str(error.problem):
            raise wrong(at, "a tab where YAML wants spaces; indent with spaces") from None
        problem = ", ".join(part for part in (error.context, error.problem) if part)
        raise wrong(at, f"not valid YAML: {problem}") from None
    except yaml.reader.ReaderError as error:
        raise wrong(where(text.count("\n", 0, error.position) + 1), f"not valid YAML: {error.reason}") from None
    except RecursionError:
        raise wrong(where(1), "not a config: nested too deeply") from None


def _value(
    node: yaml.Node, where: Callable[[int], str], key: Key, lines: dict[Key, int], line: int | None, seen: set[int]
) -> Any:
    """The value of a node: made here, not by a Constructor, so that nothing but plain values can come of it."""
    at = where(node.start_mark.line + 1)
    if id(node) in seen:
        raise wrong(at, f"an alias (*) stands for '{'.'.join(key)}'; write the value out")
    seen.add(id(node))
    kind = node.tag.removeprefix(TAG)
    if isinstance(node, yaml.MappingNode) and kind == "map":
        mapping: dict[str, Any] = {}
        first: dict[str, int] = {}
        for name, value in node.value:
            here = name.start_mark.line + 1
            if not isinstance(name, yaml.ScalarNode):
                raise wrong(where(here), "a key must be text")
            inner = (*key, name.value)
            if name.value in mapping:
                raise wrong(where(here), f"'{'.'.join(inner)}' is given twice, first in line {first[name.value]}")
            first[name.value] = here
            lines[inner] = here if line is None else line
            mapping[name.value] = _value(value, where, inner, lines, line, seen)
        return mapping
    if isinstance(node, yaml.SequenceNode) and kind == "seq":
        return [_value(item, where, (*key, str(i)), lines, line, seen) for i, item in enumerate(node.value)]
    if isinstance(node, yaml.ScalarNode) and kind in ("str", *SCALARS):
        text: str = node.value
        if kind == "str":
            return text
        if not re.fullmatch(SCALARS[kind][0], text):  # an explicit tag, such as !!int many
            raise wrong(at, f"{text!r} is not of the kind its tag says ({kind})")
        if kind == "float":
            return float(re.sub(r"\.(?=[a-z])", "", text.lower()))
        if kind == "int":
            return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
        return None if kind == "null" else text.lower() == "true"
    raise wrong(
        at, f"the tag {node.tag!r} is not allowed; a config holds numbers, text, true, false, null, lists, mappings"
    )


class _Override(NamedTuple):
    text: str
    key: Key
    value: Any
    lines: dict[Key, int]


def _split(text: str) -> _Override:
    match = re.fullmatch(r"([^\s.=]+(?:\.[^\s.=]+)*)=(.*)", text, re.DOTALL)
    if match is None:
        raise wrong("command line", f"{text!r} is no override; write KEY=VALUE, such as loss.margin=0.1")
    key = tuple(match[1].split("."))
    lines = {key: COMMAND_LINE}
    value = _parse(match[2], lambda _: f"command line: {text!r}", key, lines, COMMAND_LINE)
    return _Override(text, key, value, lines)


def _lay(values: dict[str, Any], lines: dict[Key, int], override: _Override) -> None:
    """Lays an override over the values and lines of a file."""
    text, key, value, new = override
    place = values
    for n, step in enumerate(key[:-1], start=1):
        inner = place.get(step)
        if isinstance(inner, str) and n == 1:  # `loss: log_ratio` in short
            inner = {"name": inner}
            lines[(step, "name")] = lines[(step,)]
        if inner is None:
            inner = {}
            lines.setdefault(key[:n], COMMAND_LINE)
        if not isinstance(inner, dict):
            raise wrong("command line", f"{text!r} sets an option of '{'.'.join(key[:n])}', which is {show(inner)}")
        place[step] = inner
        place = inner
    for old in [old for old in lines if old[: len(key)] == key]:
        del lines[old]
    place[key[-1]] = value
    lines.update(new)


def show(value: Any) -> str:
    """A value as errors quote it."""
    text = repr(value) if isinstance(value, str) else _text(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def wrong(at: str, message: str) -> InputError:
    """The error of this room: origin and message in one line."""
    return InputError(" ".join(f"{at}: {message}".splitlines()))


def dump(values: Mapping[str, Any]) -> str:
    """YAML text that reads back to equal values."""
    return yaml.dump(to_jsonable_python(values), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


def difference(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """What differs from config `a` to config `b`, one line a key: `loss.margin: 0.1 -> 0.2`."""
    old, new = _flat(a), _flat(b)
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    return [f"{key}: {old.get(key, 'absent')} -> {new.get(key, 'absent')}" for key in keys]


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in values.items():
        inner = _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) and value else None
        flat |= {f"{prefix}{key}": _text(to_jsonable_python(value))} if inner is None else inner
    return flat
