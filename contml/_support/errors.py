"""The error of bad input, and suggestions for mistyped names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Bad input, in one line: what was given, what is allowed, what to do."""


def closest(name: str, names: Iterable[str]) -> str | None:
    """The one of `names` that is spelt most like `name`; None where none is close."""
    return next(iter(difflib.get_close_matches(name, list(names), 1)), None)


def did_you_mean(name: str, names: Iterable[str], otherwise: str = "") -> str:
    """A question that suggests the closest of `names`, or `otherwise` where none is close."""
    found = closest(name, names)
    return otherwise if found is None else f"did you mean '{found}'?"
