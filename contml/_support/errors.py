"""The error of bad input, and suggestions for mistyped names."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Self

from contml._support.text import plain_text

#: The longest field of an error that is printed whole; a hostile file may hold a name of megabytes.
_LONGEST = 2000


class InputError(ValueError):
    """Bad input, printed on one line as `origin: subject: got; allowed; hint`, without the empty fields.

    Args:
        subject: the wrong thing: an option, an argument, a file.
        got: the value or the state that was found.
        allowed: the values that are allowed.
        hint: a way to correct it.
        origin: where the input was written: a file and a line.
    """

    def __init__(self, subject: str, got: str = "", allowed: str = "", hint: str = "", origin: str = "") -> None:
        super().__init__(subject, got, allowed, hint, origin)  # all fields, so that the error can be pickled
        self.subject, self.got, self.allowed, self.hint, self.origin = subject, got, allowed, hint, origin

    def __str__(self) -> str:
        origin, subject, *details = map(_printable, (self.origin, self.subject, self.got, self.allowed, self.hint))
        return ": ".join(part for part in (origin, subject, "; ".join(filter(None, details))) if part)

    def at(self, origin: str) -> Self:
        """Return the same error with `origin` before its own origin."""
        origin = f"{origin}: {self.origin}" if self.origin else origin
        return type(self)(self.subject, self.got, self.allowed, self.hint, origin)


class DivergedError(InputError):
    """A training whose loss or weights are no longer finite."""


def _printable(text: str) -> str:
    """Return a text on one line, shortened."""
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 2 :]}"
    return plain_text(" ".join(text.splitlines()))


def lost_worker(error: RuntimeError) -> InputError | None:
    """Return the error to raise if PyTorch reports a worker process that was killed. Return None for other errors."""
    if not str(error).startswith("DataLoader worker"):
        return None
    got, hint = "ended before its work was done", "is there too little memory? try fewer workers"
    return InputError("a worker process", got, hint=hint)


def one_line(error: Exception) -> str:
    """Return the message of an error on one line, at most 200 characters. Return its type if it has no message.

    For an error of pydantic, return the first problem: `dim: Input should be greater than 0`. An object that the
    message names by its address in memory is left out, since a reader cannot know it.
    """
    from pydantic_core import ValidationError  # here: most errors are none

    message = str(error)
    if isinstance(error, ValidationError):
        details = error.errors(include_url=False, include_input=False)[0]
        message = ": ".join(filter(None, (".".join(map(str, details["loc"])), details["msg"])))
    message = re.sub(r"\s*<[^<>]* at 0x[0-9a-fA-F]+>", "", message)
    return " ".join(message.split())[:200] or type(error).__name__


def closest(name: str, names: Iterable[str]) -> str | None:
    """Return the entry of `names` with the spelling most similar to `name`. Return None if no entry is close."""
    return next(iter(difflib.get_close_matches(name, list(names), 1)), None)


def did_you_mean(name: str, names: Iterable[str], otherwise: str = "") -> str:
    """Return a question that suggests the closest of `names`.

    Return `otherwise` if none is close, or `name` is right.
    """
    suggestion = closest(name, names)
    return otherwise if suggestion in (None, name) else f"did you mean '{suggestion}'?"
