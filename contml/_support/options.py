"""The options of an object as text, for `repr`."""

from __future__ import annotations

import inspect


def options_of(part: object) -> str:
    """Returns the constructor arguments that the object keeps as attributes: `margin=0.1, distance='cosine'`."""
    attributes = vars(part)
    names = inspect.signature(type(part)).parameters
    option_names = (name for name in names if isinstance(attributes.get(name), bool | int | float | str))
    return ", ".join(f"{name}={attributes[name]!r}" for name in option_names)
