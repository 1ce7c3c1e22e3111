"""Expect an `InputError` and read its fields."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from contml import InputError


@contextmanager
def refuses(subject: str, got: str = "", allowed: str = "", hint: str = "", origin: str = "") -> Iterator[None]:
    """The block raises an `InputError` of one line about `subject`, and each field holds the text given for it.

    A test names the values that a user needs (a path, a row, a number, an option), not the words around them:
    `tests/messages.txt` holds those.
    """
    with pytest.raises(InputError) as caught:
        yield
    error = caught.value
    assert "\n" not in str(error)
    for name, text in {"subject": subject, "got": got, "allowed": allowed, "hint": hint, "origin": origin}.items():
        assert text in getattr(error, name), f"{name} is {getattr(error, name)!r}, without {text!r}"


def refused(call: Callable[[], object], *fields: str, **named: str) -> None:
    """The call raises an `InputError`. The texts are as in `refuses`."""
    with refuses(*fields, **named):
        call()
