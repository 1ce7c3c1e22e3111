"""The config: the signature of a part's constructor is its schema. An error names the file and the line.

`read` returns a `Document`: plain values and the line of every key. `validate` checks them against a schema (top-level
key -> `Section` or `Option`) and returns a `Config`, whose parts are built when the data are known. The positional
arguments of a constructor are its options. Keyword-only arguments are filled from the data. A config cannot set them.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_origin

from contml._support.errors import InputError, closest, did_you_mean
from contml._support.imports import import_by_name
from contml.config.document import (
    COMMAND_LINE,
    Document as Document,
    Key,
    difference as difference,
    dump as dump,
    from_overrides as from_overrides,
    read as read,
    show,
)
from contml.config.schema import (
    Constructor,
    Fields as Fields,
    NamedParts as NamedParts,
    Option as Option,
    all_options as all_options,
    checked_at,
    data_arguments as data_arguments,
    details as details,
    fields_of as fields_of,
    further_option,
    named_parts as named_parts,
    options as options,
    plain,
    summary as summary,
    words,
)

#: PyTorch's messages if memory for an array cannot be allocated, with the bytes of the array.
_NO_MEMORY = re.compile(r"tried to allocate (\d+) bytes|Storage size calculation overflow|Overflow when unpacking long")


@dataclass(frozen=True)
class Section:
    """A section of a config: a part chosen by `name` from a table, or the options of one fixed constructor.

    Args:
        parts: the table, or the constructor.
        default: the name if the config gives no name.
        required: if False and there is no default, a config may omit the section (or set it to null).
        find_part: finds a part whose name is not in the table, and returns None for an unknown name.
        contract: the type that the user's own code must be or return, if a config may name it as `module:Name`.
    """

    parts: Mapping[str, Constructor] | Constructor
    default: str | None = None
    required: bool = True
    find_part: Callable[[str], Constructor | None] | None = None
    contract: type | None = None


@dataclass(frozen=True)
class ConfiguredPart:
    """A part that a config chose: constructor and all options, with defaults. `name` is "" in a fixed section."""

    section: str
    name: str
    constructor: Constructor
    options: dict[str, Any]
    origin: str = field(default="", compare=False)
    origins: Mapping[str, str] = field(default_factory=dict, compare=False)  # of single options

    def build(self, **data: Any) -> Any:
        """Call the constructor with the options and the entries of `data` that it accepts."""
        data_names = data_arguments(self.constructor)
        if missing := [name for name, required in data_names.items() if required and name not in data]:
            raise TypeError(f"{self.section} {self.name!r} needs {', '.join(missing)}: pass it to build()")
        with self.errors():
            return self.constructor(**self.options, **{name: data[name] for name in data_names if name in data})

    def _with_section(self, hint: str) -> str:
        """Add the section to the options in a hint, as on the command line.

        For example, "set missing=drop" becomes "set task.missing=drop".
        """
        if not self.options:
            return hint
        names = "|".join(map(re.escape, self.options))
        begins = r"(?<=\bset )|(?<=\bcheck )|(?<![\w.,{-])(?<!kind )(?<!label )(?=\w+=)"  # not in NAME=KIND of a label
        return re.sub(rf"(?:{begins})(?=(?:{names})\b)", f"{self.section}.", hint)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Add file and line to errors of this part, and its section to the names of its options."""
        try:
            yield
        except InputError as error:
            subject, origin = error.subject, self.origin
            if _is_key(subject, self.options):
                origin = next((o for key, o in self.origins.items() if f"{subject}.".startswith(f"{key}.")), origin)
                subject = f"{self.section}.{subject}"
            full_error = InputError(subject, error.got, error.allowed, self._with_section(error.hint), error.origin)
            raise (full_error.at(origin) if origin else full_error) from error
        except (RuntimeError, TypeError) as error:
            needed = _NO_MEMORY.search(str(error))
            if needed is None:
                raise
            numbers = {name: value for name, value in self.options.items() if type(value) is int}
            name = max(numbers, key=numbers.__getitem__, default="")  # the largest number is the likely cause
            size = f"{int(needed[1]) / 1e9:,.0f} GB of memory for one array" if needed[1] else "too much memory"
            subject, got = (f"{self.section}.{name}", f"{numbers[name]:,}, ") if name else (self.section, "")
            full_error = InputError(subject, f"{got}which needs {size}" if got else f"needs {size}")
            origin = self.origins.get(name, self.origin)
            raise (full_error.at(origin) if origin else full_error) from None


def _is_key(subject: str, options: Mapping[str, Any]) -> bool:
    """Return True if the subject of an error is an option, or a key in an option: `labels.price.scale`."""
    inner = ((subject.removeprefix(f"{name}."), value) for name, value in options.items() if isinstance(value, Mapping))
    return subject in options or any(_is_key(rest, value) for rest, value in inner if rest != subject)


@dataclass(frozen=True)
class Config:
    """A validated config: its parts and its top-level values, in the order of the schema."""

    parts: dict[str, ConfiguredPart]
    values: dict[str, Any]


def validate(document: Document, schema: Mapping[str, Section | Option]) -> Config:
    """Check a document against a schema. The first error in file order is raised, then an error for a missing key."""
    parts: dict[str, ConfiguredPart] = {}
    values: dict[str, Any] = {}
    for key in [*document.values, *(key for key in schema if key not in document.values)]:
        entry = schema.get(key)
        if entry is None:
            raise _unknown_key(document, key, schema)
        if isinstance(entry, Section):
            part = _part(document, key, entry)
            if part is not None:
                parts[key] = part
        elif key in document.values:
            values[key] = checked_at(document, (key,), entry, document.values[key])
        elif entry.required:
            raise document.error((key,), "missing", f"must be {words(entry.type)}")
        else:
            values[key] = entry.default
    return Config({k: parts[k] for k in schema if k in parts}, {k: values[k] for k in schema if k in values})


def _part(document: Document, key: str, section: Section) -> ConfiguredPart | None:
    section_values = document.values.get(key)
    table = section.parts if isinstance(section.parts, Mapping) else None
    if section_values is None and section.default is None and not section.required:
        return None
    if isinstance(section_values, str) and table is not None:
        section_values = {"name": section_values}
    if not isinstance(section_values, dict | None):
        expected = "a mapping of its options" if table is None else f"the name of a {key}, or a mapping with 'name'"
        raise document.error((key,), show(section_values), f"must be {expected}")
    section_values, name, constructor = dict(section_values or {}), "", section.parts
    if table is not None:
        name, constructor = _choose(document, key, section, table, section_values.pop("name", None))
        file_section, lines = document.file.get(key), document.lines
        old_name = (file_section.get("name") if isinstance(file_section, dict) else file_section) or section.default
        if lines.get((key, "name")) == COMMAND_LINE and name != old_name:  # its options in the file do not fit
            section_values = {o: v for o, v in section_values.items() if lines.get((key, o)) == COMMAND_LINE}
    assert callable(constructor)
    try:
        option_names = [option.name for option in options(constructor)]
    except (NameError, TypeError, ValueError) as error:
        raise document.error((key, "name"), f"the signature of {name} cannot be read ({error})") from None
    if table is not None and "name" in option_names:
        got = f"{name} has an argument 'name', which a config cannot set"
        raise document.error((key, "name"), got, hint="rename it")
    values = _options(document, (key,), constructor, section_values)
    # The longest keys first, as an error names them: task.labels.price.scale before task.labels.
    line_keys = sorted((each for each in document.lines if each[0] == key), key=len, reverse=True)
    origins = {".".join(each[1:]): document.origin(each) for each in line_keys if len(each) > 1}
    return ConfiguredPart(key, name, constructor, values, document.section_origin(key), origins)


def _options(document: Document, key: Key, constructor: Constructor, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return all options of a part at a key.

    The options in the config are checked and converted. The other options have their defaults.
    """
    known_options = {option.name: option for option in options(constructor)}
    data_names, extra_option = data_arguments(constructor), further_option(constructor)
    values = {option.name: option.default for option in known_options.values()}
    for name, value in given.items():
        option_key, option = (*key, name), known_options.get(name, extra_option)
        if name in data_names:
            raise document.error(option_key, "filled from the data", hint="remove it")
        if option is None:
            raise _unknown_option(document, key, name, given, known_options)
        parts, fields = named_parts(option), fields_of(option)
        if fields is not None and value is not None:
            if not isinstance(value, dict):
                raise document.error(option_key, show(value), "must be a mapping of its options")
            values[name] = _options(document, option_key, fields, value)
        elif parts is None or value is None:
            values[name] = checked_at(document, option_key, option, value)
        else:
            found = parts_by_name(document, option_key, parts, value)
            values[name] = {part: {"kind": section.name, **section.options} for part, section in found.items()}
    for option in known_options.values():
        if option.required and option.name not in given:
            raise document.error((*key, option.name), "missing", f"must be {words(option.type)}")
    return values


def _unknown_option(
    document: Document, key: Key, name: str, given: Mapping[str, Any], known: Mapping[str, Option]
) -> InputError:
    """Return the error for an unknown option of a part.

    It may be an option of parts that another option holds by name.
    """
    for option in known.values():
        kinds = parts.options if (parts := named_parts(option)) is not None else {}
        if name in kinds:
            others = [other for other in given if other in kinds and other not in (*known, name)]
            also = f", and {', '.join(others)}," if others else ""
            section = f"{option.name}: {{NAME: {{kind: {kinds[name][0]}, {name}: {show(given[name])}}}}}"
            return document.error((*key, name), "unknown key", hint=f"write it{also} in {section}")
    return _unknown(document, (*key, name), known)


def parts_by_name(document: Document, key: Key, named: NamedParts, value: object) -> dict[str, ConfiguredPart]:
    """Return the parts that an option holds by name, as in `{room: {kind: map}}`.

    Raises:
        InputError: an unknown kind or option, or a value of another type.
    """
    if not isinstance(value, dict):
        allowed = f"must be a mapping, such as {{NAME: {{kind: {next(iter(named.parts))}}}}}"
        raise document.error(key, show(value), allowed)
    return {name: _named_part(document, (*key, name), named, section) for name, section in value.items()}


def section(name: str, constructor: Constructor, values: Mapping[str, Any] | None) -> Any:
    """Call a constructor with the options of a section, and return the result. None means the defaults.

    Raises:
        InputError: an unknown option, or a value of another type.
    """
    return validate(Document("", {name: dict(values or {})}), {name: Section(constructor)}).parts[name].build()


def _named_part(document: Document, key: Key, named: NamedParts, section: Any) -> ConfiguredPart:
    """Return a part of an option that holds parts by name. `section` is a mapping, or a text as its short form."""
    kind_key, values = ((*key, "kind"), section) if isinstance(section, dict) else (key, {"kind": section})
    text = values.get("kind", named.default)
    if not isinstance(text, str):
        raise document.error(kind_key, show(text), _one_of(named.parts))
    try:
        values = named.shorthand(text) | {name: value for name, value in values.items() if name != "kind"}
    except InputError as error:
        raise document.error(kind_key, error.got, error.allowed, error.hint) from None
    kind = values.pop("kind")
    if kind not in named.parts:
        hint = did_you_mean(kind.lower(), named.parts)
        raise document.error(kind_key, f"unknown kind '{kind}'", _one_of(named.parts), hint)
    kinds = named.options
    for name in values:
        closest_name = name if name in kinds else closest(name, kinds)
        if closest_name is not None and kind not in kinds[closest_name]:
            others = f"kind{'s' * (len(kinds[closest_name]) > 1)} {', '.join(kinds[closest_name])}"
            hint = f"an option of the {others}" if name in kinds else f"did you mean '{closest_name}', of the {others}?"
            own = [option for option, having in kinds.items() if kind in having]
            raise document.error((*key, name), f"the kind {kind} has no such option", _one_of(own), hint)
    return ConfiguredPart(".".join(key), kind, named.parts[kind], _options(document, key, named.parts[kind], values))


def _choose(
    document: Document, key: str, section: Section, table: Mapping[str, Constructor], name: Any
) -> tuple[str, Constructor]:
    name_key = _name_key(document, key)
    name = section.default if name is None else name
    if name is None:
        raise document.error(name_key, "missing", _one_of(table))
    if not isinstance(name, str):
        raise document.error(name_key, show(name), _one_of(table))
    if name in table:
        return name, table[name]
    try:
        constructor = section.find_part(name) if section.find_part else None
    except InputError as error:
        raise error.at(document.origin(name_key)) from error
    if constructor is not None:
        return name, constructor
    if section.contract is not None and re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*", name):
        return name, import_user_code(document, name_key, name, section.contract)
    raise _unknown(document, name_key, table, name)


def _name_key(document: Document, key: str) -> Key:
    """Return the key of the name of a part: `loss.name`, or `loss` in the short form."""
    return (key, "name") if isinstance(document.values.get(key), dict) else (key,)


def _one_of(names: Collection[str]) -> str:
    return f"must be one of {', '.join(names)}" if names else "takes no options"


def _options_of_sections(document: Document, schema: Mapping[str, Section | Option]) -> list[tuple[str, str]]:
    """Return the options of the parts that a config has: (section, option)."""
    section_options = []
    for key, section in schema.items():
        constructor = section.parts if isinstance(section, Section) else None
        if isinstance(section, Section) and isinstance(section.parts, Mapping):
            value = document.values.get(key)
            name = value.get("name", section.default) if isinstance(value, dict) else value or section.default
            constructor = section.parts.get(name) if isinstance(name, str) else None
        if callable(constructor):
            section_options += [(key, option.name) for option in options(constructor)]
    return section_options


def _unknown_key(document: Document, key: str, schema: Mapping[str, Section | Option]) -> InputError:
    """Return the error for an unknown top-level key.

    It may be an option without section: `epochs` for `training.epochs`.
    """
    section_options = _options_of_sections(document, schema)
    if closest(key, schema) is None and (closest_option := closest(key, {option for _, option in section_options})):
        suggestions = [f"{section}.{option}" for section, option in section_options if option == closest_option]
        return document.error((key,), "unknown key", hint=f"did you mean '{' or '.join(suggestions)}'?")
    return _unknown(document, (key,), schema)


def _unknown(document: Document, key: Key, names: Collection[str], name: str = "") -> InputError:
    """Return the error for an unknown key, or an unknown name of a part.

    It suggests the closest of `names`, or lists them.
    """
    got = f"unknown name {show(name)}" if name else "unknown key"
    return document.error(key, got, hint=did_you_mean(name or key[-1], names, _one_of(names)))


def check_name(document: Document, key: str, table: Collection[str]) -> None:
    """Refuse an unknown part before the modules of the parts are imported.

    Raises:
        InputError: the name is neither in the table nor code to import.
    """
    value = document.values.get(key)
    name = value.get("name") if isinstance(value, dict) else value
    if isinstance(name, str) and name not in table and ":" not in name:
        raise _unknown(document, _name_key(document, key), table, name)


def import_user_code(document: Document, key: Key, name: str, contract: type) -> Constructor:
    """Import the user's own code `module:Name` that a config names at `key`. The code is not called.

    The working directory is searched last, so that it hides no other module.

    Raises:
        InputError: the config may not import code, the import fails, or the object does not fit the contract: it must
            be a class of that kind, or a function annotated to return one.
    """
    if not document.trusted and document.line(key) != COMMAND_LINE:
        raise document.error(key, f"names code to import ({name})", hint="pass --trust to allow it")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.append(folder)
    try:
        constructor: Constructor = import_by_name(name)
        fits = _fits(constructor, contract)
    except (Exception, SystemExit) as error:  # whatever the user's module raises when it is imported
        raise document.error(key, f"{name} cannot be imported ({type(error).__name__}: {error})") from None
    if not fits:
        contract_name = contract.__name__
        allowed = f"must be a {contract_name} class, or a function annotated '-> {contract_name}'"
        raise document.error(key, f"{name} is of type {type(constructor).__name__}", allowed)
    return constructor


def _fits(found: object, contract: type) -> bool:
    """Return True if this is a class that fits the contract, or a function annotated to return such a class."""
    kind = inspect.signature(found, eval_str=True).return_annotation if inspect.isfunction(found) else found
    kind = get_origin(kind) or kind
    if not isinstance(kind, type) or kind is contract:
        return kind is contract
    if not getattr(contract, "_is_protocol", False):
        return issubclass(kind, contract)
    # `issubclass` refuses protocols that have attributes, so the methods are compared.
    methods = {name for name, value in vars(contract).items() if inspect.isfunction(value)}
    return all(callable(getattr(kind, name, None)) for name in methods - {"__init__", "__subclasshook__"})


def resolved(config: Config) -> dict[str, Any]:
    """Return the whole config with its defaults as plain values: paths are text, tuples are lists.

    A default that YAML cannot hold (an object) is omitted. A command that reads the config gets the same default.
    """
    sections = {}
    for key, part in config.parts.items():
        sections[key] = ({"name": part.name} if part.name else {}) | _plain_values(part.options)
    return sections | _plain_values(config.values)


def _plain_values(values: Mapping[str, Any]) -> dict[str, Any]:
    texts = {name: plain(value) for name, value in values.items()}
    return {name: json.loads(text) for name, text in texts.items() if text is not None}
