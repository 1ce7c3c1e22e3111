"""Options: of an object, and of a config, in one line each."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any


def options_of(part: object) -> str:
    """Returns the constructor arguments that the object keeps as attributes: `margin=0.1, distance='cosine'`."""
    attributes = vars(part)
    names = inspect.signature(type(part)).parameters
    option_names = (name for name in names if isinstance(attributes.get(name), bool | int | float | str))
    return ", ".join(f"{name}={attributes[name]!r}" for name in option_names)


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested sections as flat keys: `{"loss.margin": 0.1}`."""
    flattened: dict[str, Any] = {}
    for key, value in values.items():
        nested = isinstance(value, Mapping) and value
        flattened |= flat(value, f"{prefix}{key}.") if nested else {f"{prefix}{key}": value}
    return flattened
