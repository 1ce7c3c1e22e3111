"""The options of an object in words, for `repr`."""

from __future__ import annotations

import inspect


def options_of(part: object) -> str:
    """The arguments of the constructor that the object keeps under their own names: `margin=0.1, distance='cosine'`."""
    held = vars(part)
    names = inspect.signature(type(part)).parameters
    return ", ".join(f"{name}={held[name]!r}" for name in names if isinstance(held.get(name), bool | int | float | str))
