"""The schema of a config as JSON Schema, by which an editor completes keys, shows their help and marks mistakes.

It refuses only what a config cannot say. The command line may add an option, so none is required, and the options of
your own code (`module:Name`) may be any.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Annotated, Any, get_args, get_origin

from pydantic import ConfigDict, create_model
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError

from contml._support.validation import Range, range_of
from contml.config import Section
from contml.config.schema import Constructor, NamedParts, Option, further_option, named_parts, options, plain, summary

#: Names of parts that are not in a table: `module:Name`, `timm:NAME`, `pml:NAME`.
_ELSEWHERE = {"type": "string", "pattern": "^[^:]+:.+$"}


def json_schema(schema: Mapping[str, Section | Option]) -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of the configs that `validate` accepts, perhaps with further options."""
    properties = {
        key: _section(entry) if isinstance(entry, Section) else _option(entry) for key, entry in schema.items()
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A config of contml",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }


def _section(section: Section) -> dict[str, Any]:
    if not isinstance(section.parts, Mapping):
        return {"description": summary(section.parts), "anyOf": [_part(section.parts), {"type": "null"}]}
    own_code = section.find_part is not None or section.contract is not None
    named = [{"const": name, "description": summary(part)} for name, part in section.parts.items()]
    names: dict[str, Any] = {"anyOf": [*named, _ELSEWHERE] if own_code else named}
    sections = [names, _chosen("name", names, section.parts, section.default)]
    return {"anyOf": sections if section.required and section.default is None else [*sections, {"type": "null"}]}


def _chosen(key: str, names: Any, parts: Mapping[str, Constructor], default: str | None) -> dict[str, Any]:
    """A mapping whose entry `key` names a part, and whose other entries are the options of this part."""
    cases = []
    for name, part in parts.items():
        is_named = {"properties": {key: {"const": name}}, **({} if name == default else {"required": [key]})}
        cases.append({"if": is_named, "then": _part(part, {key: True})})
    return {"type": "object", "properties": {key: names}, "allOf": cases}


def _part(part: Constructor, further: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A mapping of the options of a part."""
    extra = further_option(part)
    return {
        "type": "object",
        "properties": {**(further or {}), **{option.name: _option(option) for option in options(part)}},
        "additionalProperties": False if extra is None else _type(extra.type),
    }


def _option(option: Option) -> dict[str, Any]:
    parts = named_parts(option)
    allowed = _type(option.type) if parts is None else _by_name(parts)
    default = None if option.required else plain(option.default)
    is_nullable = parts is None and '"null"' in json.dumps(allowed)
    if default == "null" and not is_nullable:  # allowed also where the type does not have it
        allowed = {"anyOf": [allowed, {"type": "null"}]}
    if default is not None:
        allowed = {**allowed, "default": json.loads(default)}
    return {**allowed, **({"description": option.help} if option.help else {})}


def _by_name(parts: NamedParts) -> dict[str, Any]:
    kinds = {"type": "string"}  # with the options of the short form: "number:log"
    section = _chosen("kind", kinds, parts.parts, parts.default)
    return {"type": "object", "additionalProperties": {"anyOf": [kinds, section]}}


def _type(kind: Any) -> dict[str, Any]:
    """The values of a type, without the conversions of a config."""
    members = [kind]
    if get_origin(kind) is not Annotated and range_of(kind) is not None:  # a union: the range is that of its number
        members = list(get_args(kind))
    found = [_limited(_plain_type(member), range_of(member)) for member in members]
    return found[0] if len(found) == 1 else {"anyOf": found}


def _plain_type(kind: Any) -> dict[str, Any]:
    model_config = ConfigDict(arbitrary_types_allowed=True)
    try:
        model = create_model("Value", __config__=model_config, value=(kind, ...))
        found: dict[str, Any] = dict(model.model_json_schema()["properties"]["value"])
    except (PydanticInvalidForJsonSchema, PydanticSchemaGenerationError, NameError):
        return {}
    found.pop("title", None)
    return {} if "$ref" in json.dumps(found) else found


def _limited(values: dict[str, Any], allowed: Range | None) -> dict[str, Any]:
    """Numbers of a type that are in its range."""
    if allowed is None:
        return values
    limits = {"minimum": allowed.least, "exclusiveMinimum": allowed.above, "maximum": allowed.most}
    limits["exclusiveMaximum"] = allowed.below
    return values | {name: limit for name, limit in limits.items() if math.isfinite(limit)}
