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
        subject: what is wrong: an option, an argument, a file.
        got: the value or the state that was found.
        allowed: what it must be.
        hint: what to do.
        origin: where the input was written: a file and a line.
    """

    def __init__(self, subject: str, got: str = "", allowed: str = "", hint: str = "", origin: str = "") -> None:
        super().__init__(subject, got, allowed, hint, origin)  # all fields, so that the error can be pickled
        self.subject, self.got, self.allowed, self.hint, self.origin = subject, got, allowed, hint, origin

    def __str__(self) -> str:
        origin, subject, *details = map(_printable, (self.origin, self.subject, self.got, self.allowed, self.hint))
        return ": ".join(part for part in (origin, subject, "; ".join(filter(None, details))) if part)

    def at(self, origin: str) -> Self:
        """Returns the same error with `origin` before its own origin."""
        origin = f"{origin}: {self.origin}" if self.origin else origin
        return type(self)(self.subject, self.got, self.allowed, self.hint, origin)


class DivergedError(InputError):
    """A training whose loss or weights are not finite any more."""


def _printable(text: str) -> str:
    """A text on one line, shortened."""
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 2 :]}"
    return plain_text(" ".join(text.splitlines()))


def lost_worker(error: RuntimeError) -> InputError | None:
    """What to raise in place of PyTorch's error about a process that decodes and was killed; None for other errors."""
    if not str(error).startswith("DataLoader worker"):
        return None
    got, hint = "ended before its work was done", "is there too little memory? try fewer workers"
    return InputError("a worker process", got, hint=hint)


def one_line(error: Exception) -> str:
    """Returns the message of an error on one line, at most 200 characters; its type if it has no message.

    Of an error of pydantic, the first problem: `dim: Input should be greater than 0`. An object that the message names
    by its address in memory is left out: a reader cannot know it.
    """
    from pydantic_core import ValidationError  # here: most errors are none

    message = str(error)
    if isinstance(error, ValidationError):
        details = error.errors(include_url=False, include_input=False)[0]
        message = ": ".join(filter(None, (".".join(map(str, details["loc"])), details["msg"])))
    message = re.sub(r"\s*<[^<>]* at 0x[0-9a-fA-F]+>", "", message)
    return " ".join(message.split())[:200] or type(error).__name__


def closest(name: str, names: Iterable[str]) -> str | None:
    """Returns the entry of `names` with the spelling most similar to `name`; None if none is close."""
    return next(iter(difflib.get_close_matches(name, list(names), 1)), None)


def did_you_mean(name: str, names: Iterable[str], otherwise: str = "") -> str:
    """Returns a question that suggests the closest of `names`, or `otherwise` if none is close, or `name` is right."""
    suggestion = closest(name, names)
    return otherwise if suggestion in (None, name) else f"did you mean '{suggestion}'?"
