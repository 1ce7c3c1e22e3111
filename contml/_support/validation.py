"""Checks of numbers, words and row numbers. Each raises an `InputError` that names the argument and the value.

A range is a part of an annotation, as in `PositiveInt`. The words of an argument are its `Literal`. `check_ranges`
refuses other values where the function is called. A config is compared with them when it is read. This module does not
import torch.
"""

from __future__ import annotations

import inspect
import math
import types
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache, wraps
from numbers import Integral, Real
from typing import TYPE_CHECKING, Annotated, Any, Literal, ParamSpec, TypeAlias, TypeVar, Union, get_args, get_origin

from contml._support.errors import InputError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from contml.contracts import Rows

P = ParamSpec("P")
R = TypeVar("R")

#: The allowed row numbers, for errors.
_ROWS = "row numbers [R], or a mask with one boolean per item"


@dataclass(frozen=True)
class Range:
    """The finite numbers that an argument may be.

    Args:
        least: the smallest number.
        above: a limit that is not reached.
        most: the largest number.
        below: a limit that is not reached.
        whole: whether they are whole numbers.
    """

    least: float = -math.inf
    above: float = -math.inf
    most: float = math.inf
    below: float = math.inf
    whole: bool = False

    def __str__(self) -> str:
        if math.isfinite(self.least) and math.isfinite(self.most):
            return f"{self.least} to {self.most}"
        limits = {"at least": self.least, "above": self.above, "at most": self.most, "below": self.below}
        text = " and ".join(f"{word} {limit}" for word, limit in limits.items() if not math.isinf(limit))
        if self.whole:
            return f"a whole number{' of' * text.startswith('at')} {text}".rstrip()
        return text or "a finite number"

    def check(self, name: str, value: object, words: Collection[str] = ()) -> None:
        """Check that the value of an argument is one of these numbers or words."""
        if value in words:
            return
        right_type = is_whole(value) if self.whole else is_finite(value)
        if not right_type or not (self.least <= value <= self.most and self.above < value < self.below):  # type: ignore[operator]
            is_said = self.whole or str(self) == "a finite number" or is_finite(value)
            article = "" if is_said else "finite and " if isinstance(value, Real) else "a number "
            raise InputError(name, str(value), ", or ".join([f"must be {article}{self}", *words]))


PositiveInt: TypeAlias = Annotated[int, Range(least=1, whole=True)]
NonNegativeInt: TypeAlias = Annotated[int, Range(least=0, whole=True)]
#: Items of a split: a query, and two others to rank; or a triplet.
SplitSize: TypeAlias = Annotated[int, Range(least=3, whole=True)]
PositiveFloat: TypeAlias = Annotated[float, Range(above=0)]
NonNegativeFloat: TypeAlias = Annotated[float, Range(least=0)]
FiniteFloat: TypeAlias = Annotated[float, Range()]


def range_of(annotation: Any) -> Range | None:
    """Return the range of an annotation such as `PositiveInt` or `PositiveInt | None`.

    Return None if it has no range.
    """
    if get_origin(annotation) in (Union, types.UnionType):
        return next(filter(None, map(range_of, get_args(annotation))), None)
    notes = annotation.__metadata__ if get_origin(annotation) is Annotated else ()
    return next((note for note in notes if isinstance(note, Range)), None)


def check_range(annotation: Any, name: str, value: object) -> None:
    """Check a value against the range and the words of an annotation. None and bool are allowed if it has them."""
    parts = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    if (value is None and type(None) in parts) or (isinstance(value, bool) and bool in parts):
        return
    allowed = range_of(annotation)
    words = [word for part in parts if get_origin(part) is Literal for word in get_args(part)]
    if allowed is not None:
        allowed.check(name, value, words)
    elif is_choice(annotation) and not (isinstance(value, str) and value in words):
        raise InputError(name, repr(value), f"must be one of {', '.join(words)}")


def is_choice(annotation: Any) -> bool:
    """Return True if an annotation allows only some words, or None."""
    if get_origin(annotation) in (Union, types.UnionType):
        parts = [part for part in get_args(annotation) if part is not type(None)]
        return len(parts) == 1 and is_choice(parts[0])
    return get_origin(annotation) is Literal and all(isinstance(word, str) for word in get_args(annotation))


def check_ranges(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function so that it checks its arguments at each call.

    It checks the arguments whose annotations have a range or words.
    """
    signature = inspect.signature(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            arguments = signature.bind(*args, **kwargs).arguments
        except TypeError:  # raised again, in the words of Python
            return function(*args, **kwargs)
        check_arguments(function, arguments)
        return function(*args, **kwargs)

    return call


def check_arguments(function: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """Check arguments against the ranges and words in the annotations of a function or class."""
    for name, annotation in _annotations(function).items():
        if name in arguments:
            check_range(annotation, name, arguments[name])


@cache
def _annotations(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations that have a range or words, by the name of the argument."""
    annotations = {name: p.annotation for name, p in inspect.signature(function, eval_str=True).parameters.items()}
    return {name: each for name, each in annotations.items() if range_of(each) is not None or is_choice(each)}


def is_whole(value: object) -> bool:
    """Return True if a value is a whole number of an integer type."""
    return isinstance(value, Integral)


def check_whole(least: int, **numbers: object) -> None:
    """Check that each number is a whole number of at least `least`."""
    for name, value in numbers.items():
        Range(least, whole=True).check(name, value)


def is_finite(value: object) -> bool:
    """Return True if a value is a real number other than NaN and infinity."""
    return isinstance(value, Real) and math.isfinite(value)


def as_rows(rows: Rows, length: int, device: torch.device | str = "cpu") -> Tensor:
    """Return row numbers `[R]` in int64 on `device`, checked against the length of the indexed data.

    A mask, bool `[length]`, means the rows where it is True. Negative rows are refused and not counted from the end: -1
    is the result of a search that found no row.

    Raises:
        InputError: a row is not an integer in [0, length), or a mask has another length.
    """
    import numpy as np
    import torch

    from contml._support.conversion import as_numbers

    if rows is None:
        return torch.arange(length, device=device)
    if isinstance(rows, slice):
        try:
            chosen = range(length)[rows]
        except (TypeError, ValueError):
            raise InputError("rows", str(rows), "must be a slice of integers, with a step other than 0") from None
        return torch.from_numpy(np.arange(chosen.start, chosen.stop, chosen.step)).to(device)
    index = as_numbers("rows", rows, _ROWS).to(device)
    if index.ndim == 0:
        raise InputError("rows", str(rows), f"must be {_ROWS}", "write [row] for one item")
    if index.dtype == torch.bool:
        if index.shape != (length,):
            raise InputError("rows", f"a mask of shape {list(index.shape)}", f"must be [{length}], one per item")
        return index.nonzero()[:, 0]
    if index.numel() == 0:
        return torch.empty(0, dtype=torch.int64, device=device)
    if index.ndim != 1 or index.is_floating_point():
        raise InputError("rows", f"{index.dtype} of shape {list(index.shape)}", f"must be {_ROWS}")
    index = index.long()  # torch.min does not support uint16, uint32 and uint64
    low, high = int(index.min()), int(index.max())
    if low < 0 or high >= length:
        raise InputError("rows", f"row {low if low < 0 else high}", f"must be 0 to {length - 1}")
    return index
