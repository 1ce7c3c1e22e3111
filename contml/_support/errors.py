"""The error of bad input, and suggestions for mistyped names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Self


class InputError(ValueError):
    """Bad input, reported in one line: `origin: subject: got; allowed; hint`, without the empty fields.

    Args:
        subject: what is wrong: an option, an argument, a file.
        got: what it is now.
        allowed: what it may be.
        hint: what to do.
        origin: where it is written: a file and a line.
    """

    def __init__(self, subject: str, got: str = "", allowed: str = "", hint: str = "", origin: str = "") -> None:
        super().__init__(subject, got, allowed, hint, origin)  # all of them, so that the error can be pickled
        self.subject, self.got, self.allowed, self.hint, self.origin = subject, got, allowed, hint, origin

    def __str__(self) -> str:
        details = "; ".join(field for field in (self.got, self.allowed, self.hint) if field)
        return ": ".join(part for part in (self.origin, self.subject, details) if part)

    def at(self, origin: str) -> Self:
        """The same error, with `origin` before what its origin was."""
        origin = f"{origin}: {self.origin}" if self.origin else origin
        return type(self)(self.subject, self.got, self.allowed, self.hint, origin)


def closest(name: str, names: Iterable[str]) -> str | None:
    """The one of `names` that is spelt most like `name`; None where none is close."""
    return next(iter(difflib.get_close_matches(name, list(names), 1)), None)


def did_you_mean(name: str, names: Iterable[str], otherwise: str = "") -> str:
    """A question that suggests the closest of `names`, or `otherwise` where none is close."""
    found = closest(name, names)
    return otherwise if found is None else f"did you mean '{found}'?"
