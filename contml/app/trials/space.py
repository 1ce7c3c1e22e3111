"""The values that a sweep tries: `KEY=A,B,C` is a choice, `KEY=LOW..HIGH` is a range.

The values of trial n are a pure function of the space, the sampler, the seed and n.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from contml._support.errors import InputError
from contml._support.validation import check_whole
from contml.config import from_overrides
from contml.config.document import show

if TYPE_CHECKING:
    import numpy as np

#: The values of a trial by key: `{"loss.margin": 0.1}`.
Params: TypeAlias = "Mapping[str, Any]"

_FORMS = "must be KEY=A,B,C or KEY=LOW..HIGH, such as loss.margin=0.05,0.1"
#: The largest end of a range: whole numbers up to here are exact in float64.
_LARGEST = 1e15
#: Keys that would change how a trial is judged, and a hint for each.
_FIXED = {"seed": "use --seeds", "published": "it changes no training", "training.select": "the trials use select=val"}
_FIXED |= {"task": "it changes the data: make one sweep per value"}
_FIXED |= {"training.val_share": "it changes the validation split"}


@dataclass(frozen=True)
class Choice:
    """Two or more values, without an order."""

    key: str
    values: tuple[Any, ...]

    @property
    def points(self) -> tuple[Any, ...]:
        """The values with which the config is checked."""
        return self.values

    def draw(self, state: np.random.RandomState) -> int:
        """Return the index of a random value."""
        return int(state.uniform([0.0] * len(self.values), [1.0] * len(self.values)).argmax())

    def value(self, drawn: Any) -> Any:
        """Return the value of an index."""
        return self.values[drawn]

    def __str__(self) -> str:
        return ",".join(written_value(value) for value in self.values)


@dataclass(frozen=True)
class Interval:
    """Whole numbers or numbers from `low` to `high`, both included."""

    key: str
    low: float
    high: float

    @property
    def is_integer(self) -> bool:
        """True if the values are whole numbers."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def log(self) -> bool:
        """True if the values are drawn on a logarithmic scale."""
        return self.low > 0 and self.high / self.low >= 10

    @property
    def points(self) -> tuple[Any, ...]:
        """The values with which the config is checked: both ends and the middle."""
        middle = math.sqrt(self.low * self.high) if self.log else (self.low + self.high) / 2
        return self.low, self.value(middle), self.high

    def draw(self, state: np.random.RandomState) -> float:
        """Return a random number."""
        low, high = (self.low - 0.5, self.high + 0.5) if self.is_integer else (self.low, self.high)
        number = math.exp(state.uniform(math.log(low), math.log(high))) if self.log else state.uniform(low, high)
        return min(max(number, self.low), self.high)

    def value(self, value: float) -> float:
        """Return a value with few digits: four on a logarithmic scale, otherwise 1/10,000 of the range."""
        if self.is_integer:
            return round(value)
        digits = 4 - math.floor(math.log10(self.high - self.low))
        short = float(f"{value:.4g}") if self.log else round(value, digits)
        return float(min(max(short, self.low), self.high))

    def __str__(self) -> str:
        return f"{written_value(self.low)}..{written_value(self.high)}"


Space: TypeAlias = "Sequence[Choice | Interval]"


def parse_space(tries: Sequence[str], overrides: Sequence[str] = (), **numbers: int | None) -> list[Choice | Interval]:
    """Parse `KEY=A,B,C` and `KEY=LOW..HIGH`.

    Args:
        tries: the texts.
        overrides: changes to the config, which must not set these keys.
        numbers: numbers of trials, seeds, ..., each at least 1.

    Raises:
        InputError: a text has another form, a range is empty, a key appears twice or is not allowed, or a number is
            below 1.
    """
    if not tries:
        raise InputError("--try", "missing", hint="name a key and its values, such as --try loss.margin=0.05,0.1")
    for name, number in numbers.items():
        if number is not None:
            check_whole(1, **{f"--{name}": number})
    space = [_parse(text) for text in tries]
    keys = [dimension.key for dimension in space]
    if repeated := [key for key in keys if keys.count(key) > 1]:
        raise _refusal(repeated[0], "appears twice", hint="give each key once")
    for override in overrides:
        if (key := override.partition("=")[0]) in keys:
            raise _refusal(key, f"set by {override} as well", hint="omit one of them")
    return space


def written_value(value: Any) -> str:
    """Return a value as YAML writes it, by itself or in a list.

    A text has no quotes if it can be read back without them.
    """
    with suppress(InputError):
        if isinstance(value, str) and _values("x", value) == [value] == [from_overrides([f"x={value}"]).values["x"]]:
            return value
    return json.dumps(value, ensure_ascii=False)


def overrides_of(params: Params) -> list[str]:
    """Return the overrides that set the values of a trial."""
    return [f"{key}={written_value(value)}" for key, value in params.items()]


def grid(space: Space) -> list[dict[str, Any]]:
    """Return all combinations of choices."""
    keys = [dimension.key for dimension in space]
    points = itertools.product(*(dimension.points for dimension in space))
    return [dict(zip(keys, values, strict=True)) for values in points]


def draw(space: Space, sampler: str, seed: int, number: int) -> dict[str, Any]:
    """Return the values of trial `number`.

    Args:
        space: the keys and their values.
        sampler: "grid" or "random".
        seed: the seed of the sweep.
        number: 0 for the first trial.
    """
    if sampler == "grid":
        return grid(space)[number]
    import numpy as np

    state = np.random.RandomState(int(np.random.SeedSequence([seed, number]).generate_state(1)[0]))
    return {dimension.key: dimension.value(dimension.draw(state)) for dimension in space}


def _parse(text: str) -> Choice | Interval:
    key, equals, raw_values = text.partition("=")
    if not (key and equals):
        raise InputError("--try", repr(text), _FORMS)
    fixed_hint = next((hint for name, hint in _FIXED.items() if key == name or key.startswith(f"{name}.")), None)
    if fixed_hint is not None:
        raise _refusal(key, "cannot be tried", hint=fixed_hint)
    if _is_range(key, raw_values):
        ends = _values(key, raw_values.replace("..", ",", 1))
        if not ends[0] < ends[1]:
            raise _refusal(key, raw_values, "the lower end of a range must be below the upper one")
        if max(map(abs, ends)) > _LARGEST:
            raise _refusal(key, raw_values, f"must be within {_LARGEST:g}")
        return Interval(key, *ends)
    values = _values(key, raw_values)
    texts = [written_value(value) for value in values]
    if range_texts := [text for text in texts if _is_range(key, text)]:
        raise _refusal(key, f"{range_texts[0]} among other values", "must be a range or values, not both")
    if len(values) < 2:
        got = f"one value, {show(values[0])}" if values else "no value"
        raise _refusal(key, got, _FORMS, "set a fixed value without --try" if values else "")
    if repeated := [text for text in texts if texts.count(text) > 1]:
        raise _refusal(key, f"{repeated[0]} appears twice", hint="give each value once")
    if not all(math.isfinite(value) for value in values if isinstance(value, float)):
        raise _refusal(key, raw_values, "must be finite")
    return Choice(key, tuple(values))


def _values(key: str, text: str) -> list[Any]:
    """Return the values of a list in YAML without its brackets."""
    values: Any = from_overrides([f"{key}=[{text}]"]).values
    for step in key.split("."):
        values = values[step]
    return values if isinstance(values, list) else [values]


def _is_range(key: str, text: str) -> bool:
    """Return True if a text is two numbers with two dots between them."""
    values = _values(key, text.replace("..", ",", 1)) if ".." in text and "," not in text else []
    return len(values) == 2 and all(type(value) in (int, float) and math.isfinite(value) for value in values)


def _refusal(key: str, got: str, allowed: str = "", hint: str = "") -> InputError:
    return InputError(f"--try {key}", got, allowed, hint)
