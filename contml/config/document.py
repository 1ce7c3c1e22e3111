"""Reading and writing of YAML. A file and its overrides become plain values and the line of every key."""

from __future__ import annotations

import copy
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import yaml
from pydantic_core import to_jsonable_python

from contml._support.errors import InputError
from contml._support.files import read_bytes
from contml._support.text import flat

#: The path of a value: ("loss", "margin"), and the origin of each line of a text.
Key: TypeAlias = tuple[str, ...]
Origins: TypeAlias = Callable[[int], str]

#: The largest config in bytes (PyYAML takes seconds for it), and the deepest nesting of its sections and lists.
_LARGEST, _DEEPEST = 1 << 18, 20
_TOO_DEEP = "nested too deeply", f"must have at most {_DEEPEST} levels"

#: The key that a plain text sets, by its level: `loss: log_ratio`, `task: {labels: {age: number}}`.
_SHORT_FORMS = {1: "name", 3: "kind"}
COMMAND_LINE = 0  # the line number of overrides
BUNDLED = -1  # the line number of a config that comes with contml, and of changes to it: the user wrote neither
COMMAND_LINE_NAME = "command line"
TAG = "tag:yaml.org,2002:"

_FLOAT = r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
# Plain scalars as in the core schema of YAML 1.2, not 1.1: 1e-3 is a number, 010 is ten, no / on / 1:30 are text.
SCALARS = {
    "null": (r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    "bool": (r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    "int": (r"[-+]?[0-9]{1,400}|0o[0-7]{1,99}|0x[0-9a-fA-F]{1,99}", list("-+0123456789")),
    "float": (_FLOAT, list("-+.0123456789")),
}


class _NodeLoader(yaml.SafeLoader):
    """A loader that only composes nodes. `_value` turns them into values."""


_NodeLoader.yaml_implicit_resolvers = {}


class _Dumper(yaml.SafeDumper):
    """A dumper that also has the resolvers of YAML 1.1. Text that YAML 1.1 or 1.2 would not read as text is quoted."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True

    def represent_str(self, data: str) -> yaml.ScalarNode:
        # Outside double quotes PyYAML reads some unprintable characters (U+0085) as line breaks.
        return self.represent_scalar(TAG + "str", data, style=None if data.isprintable() else '"')

    def represent_sequence(self, tag: str, sequence: Any, flow_style: bool | None = None) -> yaml.SequenceNode:
        return super().represent_sequence(tag, sequence, flow_style=True if flow_style is None else flow_style)


_Dumper.add_representer(str, _Dumper.represent_str)
for _tag, (_pattern, _first) in SCALARS.items():
    for _class in (_NodeLoader, _Dumper):
        _class.add_implicit_resolver(TAG + _tag, re.compile(f"(?:{_pattern})$"), _first)


@dataclass(frozen=True)
class Document:
    """A config as it was written, with its overrides applied.

    Args:
        name: the name of the file in errors. With "", errors name no file.
        values: plain values of file and overrides together.
        lines: the line of every key. It is `COMMAND_LINE` for overrides, and `BUNDLED` for a config that comes with
            contml.
        file: the values of the file alone.
        trusted: whether names in the file may import code.
    """

    name: str
    values: dict[str, Any]
    lines: Mapping[Key, int] = field(default_factory=dict)
    file: Mapping[str, Any] = field(default_factory=dict)
    trusted: bool = True

    def with_overrides(self, overrides: Sequence[str]) -> Document:
        """Return the document with more overrides of options."""
        lines = dict(self.lines)
        return replace(self, values=_with_overrides(self.values, lines, overrides), lines=lines)

    def line(self, key: Key) -> int | None:
        """Return the line of a key, or of the nearest key above it. Return None if the document has neither."""
        return next((self.lines[key[:n]] for n in range(len(key), 0, -1) if key[:n] in self.lines), None)

    def origin(self, key: Key = ()) -> str:
        """Return the origin of a key for errors: the user's file and line, the command line, or a bundled config."""
        line = self.line(key)
        if line == COMMAND_LINE:
            return COMMAND_LINE_NAME
        return self.name if line in (None, BUNDLED) else f"{self.name}:{line}"

    def section_origin(self, key: str) -> str:
        """Return the origin of a whole section, which may be written in the file and on the command line."""
        line, origin = self.line((key,)), self.origin((key,))
        if not line or COMMAND_LINE not in [each for other, each in self.lines.items() if other[0] == key]:
            return origin
        return COMMAND_LINE_NAME if line == BUNDLED else f"{origin} and {COMMAND_LINE_NAME}"

    def error(self, key: Key, got: str = "", allowed: str = "", hint: str = "") -> InputError:
        """Return the error of a key, with its origin."""
        return InputError(" ".join(".".join(key).splitlines()), got, allowed, hint, self.origin(key))


def read(
    path: Path,
    overrides: Sequence[str] = (),
    name: str | None = None,
    trusted: bool = True,
    *,
    bundled: bool = False,
    changes: Sequence[str] = (),
) -> Document:
    """Read a YAML file and overrides such as `loss.margin=0.1`. Only the syntax is checked.

    `loss=triplet_margin` replaces the whole section. Of two overrides of a key, the last is used. An override of a
    section is applied before the overrides of its options, in any order.

    Args:
        path: the file.
        overrides: `KEY=VALUE`, the value in YAML.
        name: the name of the file in errors. Default: its path.
        trusted: False for a config from somebody else. Its names may not import code.
        bundled: the file comes with contml, so errors do not name its lines.
        changes: changes to a bundled file, written as overrides, that are not from the command line.
    """
    name = str(path) if name is None else name
    try:
        raw = read_bytes(path, _LARGEST)
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(10) + 1
        raise InputError("config", "not UTF-8 text", hint="save the file as UTF-8", origin=f"{name}:{line}") from None
    except FileNotFoundError as error:
        raise InputError(name, f"cannot be read ({error.strerror})") from None
    lines: dict[Key, int] = {}
    values = _parse(text, lambda line: f"{name}:{line}", (), lines, BUNDLED if bundled else None)
    if not isinstance(values, dict):
        got = "empty" if values is None else show(values)
        raise InputError("config", got, "must be a mapping such as 'seed: 0'", origin=f"{name}:1")
    values = _with_overrides(values, lines, changes, BUNDLED)
    return Document(name, _with_overrides(values, lines, overrides), lines, values, trusted)


def from_overrides(overrides: Sequence[str]) -> Document:
    """Return a document of overrides such as `loss.margin=0.1`, without a file."""
    lines: dict[Key, int] = {}
    return Document(COMMAND_LINE_NAME, _with_overrides({}, lines, overrides), lines)


def _parse(text: str, origin_of_line: Origins, key: Key, lines: dict[Key, int], line: int | None = None) -> Any:
    if key and (text in ("|", ">") or text.startswith("%")):  # of YAML the beginning of a block, or of a directive
        text = "'" + text.replace("'", "''") + "'"
    try:
        node = yaml.compose(text, Loader=_NodeLoader)
        return None if node is None else _value(node, origin_of_line, key, lines, line, set())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        origin = origin_of_line(mark.line + 1 if mark else 1)
        if "'\\t'" in str(error.problem):
            raise InputError("indentation", "a tab", hint="indent with spaces", origin=origin) from None
        problem = ", ".join(part for part in (error.context, error.problem) if part)
        raise InputError("YAML syntax", problem, origin=origin) from None
    except yaml.reader.ReaderError as error:
        origin = origin_of_line(text.count("\n", 0, error.position) + 1)
        raise InputError("YAML syntax", str(error.reason), origin=origin) from None
    except RecursionError:
        raise InputError("config", *_TOO_DEEP, origin=origin_of_line(1)) from None


def _value(
    node: yaml.Node, origin_of_line: Origins, key: Key, lines: dict[Key, int], line: int | None, seen: set[int]
) -> Any:
    """Return the value of a node. It is built here, not by a YAML constructor, so that only plain values can result."""
    subject, origin = ".".join(key), origin_of_line(node.start_mark.line + 1)
    if len(key) > _DEEPEST:
        raise InputError("config", *_TOO_DEEP, origin=origin)
    if id(node) in seen:
        raise InputError(subject, "an alias (*)", hint="write the value out", origin=origin)
    seen.add(id(node))
    kind = node.tag.removeprefix(TAG)
    if isinstance(node, yaml.MappingNode) and kind == "map":
        mapping: dict[str, Any] = {}
        first_lines: dict[str, int] = {}
        for name, value in node.value:
            key_line = name.start_mark.line + 1
            if not isinstance(name, yaml.ScalarNode):
                raise InputError("key", f"a {name.id}", "must be text", origin=origin_of_line(key_line))
            inner_key = (*key, name.value)
            if name.value in mapping:
                got = f"appears twice, first in line {first_lines[name.value]}"
                raise InputError(".".join(inner_key), got, hint="remove one", origin=origin_of_line(key_line))
            first_lines[name.value] = key_line
            lines[inner_key] = key_line if line is None else line
            mapping[name.value] = _value(value, origin_of_line, inner_key, lines, line, seen)
        return mapping
    if isinstance(node, yaml.SequenceNode) and kind == "seq":
        return [_value(item, origin_of_line, (*key, str(i)), lines, line, seen) for i, item in enumerate(node.value)]
    if isinstance(node, yaml.ScalarNode) and kind in ("str", *SCALARS):
        text: str = node.value
        if kind == "str":
            return text
        if not re.fullmatch(SCALARS[kind][0], text):  # an explicit tag, such as !!int many
            raise InputError(subject, repr(text), f"must be of type {kind}, as its tag says", origin=origin)
        if kind == "float":
            return float(re.sub(r"\.(?=[a-z])", "", text.lower()))
        if kind == "int":
            return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
        return None if kind == "null" else text.lower() == "true"
    allowed = "must be a number, text, true, false, null, a list or a mapping"
    raise InputError(subject, f"tag {node.tag!r}", allowed, origin=origin)


def _with_overrides(
    values: Mapping[str, Any], lines: dict[Key, int], overrides: Sequence[str], line: int = COMMAND_LINE
) -> dict[str, Any]:
    """Return the values of a file with overrides applied, and update `lines`."""
    merged = copy.deepcopy(dict(values))
    for key, text in sorted(map(_split, overrides), key=lambda override: len(override[0])):
        _override(merged, lines, key, text, line)
    return merged


def _split(override: str) -> tuple[Key, str]:
    match = re.fullmatch(r"([^\s.=]+(?:\.[^\s.=]+)*)=(.*)", override, re.DOTALL)
    if match is None:
        raise InputError(repr(override), allowed="must be KEY=VALUE, such as loss.margin=0.1", origin=COMMAND_LINE_NAME)
    return tuple(match[1].split(".")), match[2]


def _override(values: dict[str, Any], lines: dict[Key, int], key: Key, text: str, line: int) -> None:
    new_lines = {key: line}
    value = _parse(text, lambda _: f"{COMMAND_LINE_NAME}: {'.'.join(key)}={text}", key, new_lines, line)
    section = values
    for n, step in enumerate(key[:-1], start=1):
        subsection = section.get(step)
        if isinstance(subsection, str) and (name := _SHORT_FORMS.get(n)):
            subsection = {name: subsection}
            lines[(*key[:n], name)] = lines[key[:n]]
        if subsection is None:
            subsection = {}
            lines.setdefault(key[:n], line)
        if not isinstance(subsection, dict):
            got = f"{'.'.join(key[:n])} is {show(subsection)}, which has no options"
            raise InputError(".".join(key), got, origin=COMMAND_LINE_NAME)
        section[step] = subsection
        section = subsection
    for old_key in [old_key for old_key in lines if old_key[: len(key)] == key]:
        del lines[old_key]
    section[key[-1]] = value
    lines.update(new_lines)


def show(value: Any) -> str:
    """Format a value for errors."""
    text = repr(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=os.fspath)
    return text if len(text) <= 80 else text[:77] + "..."


def dump(values: Mapping[str, Any]) -> str:
    """Return YAML text that reads back to equal values."""
    return yaml.dump(to_jsonable_python(values), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


def difference(saved: Mapping[str, Any], values: Mapping[str, Any], written: Mapping[str, Any]) -> list[str]:
    """Return the differences from a saved config to another, one line per key: `loss.margin: 0.1 -> 0.2`.

    An option that neither the saved config nor `written` names is newer than the saved config. Older versions behaved
    as its default, so it is not a difference.

    Args:
        saved: the resolved config of an earlier command.
        values: the resolved config of this command.
        written: the config of this command as it was written, without defaults.
    """

    def texts(config: Mapping[str, Any]) -> dict[str, str]:
        return {k: json.dumps(to_jsonable_python(value), ensure_ascii=False) for k, value in flat(config).items()}

    old, new, named = texts(saved), texts(values), flat(saved).keys() | flat(written).keys()
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key) and key in named]
    return [f"{key}: {old.get(key, 'absent')} -> {new.get(key, 'absent')}" for key in keys]
