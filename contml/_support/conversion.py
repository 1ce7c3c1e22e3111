"""Numbers or items from a caller: tensors, NumPy arrays, columns of pandas, lists. Other values are refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set, Sized
from datetime import date, timedelta
from decimal import Decimal
from numbers import Real
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from contml._support.errors import InputError, one_line

#: Numbers as a caller has them.
Numbers: TypeAlias = Tensor | np.ndarray[Any, Any] | Sequence[Any]
#: Python's types of a real number. NumPy's are registered with `Real`, except its booleans.
_REAL = (Real, Decimal, np.bool_)


@runtime_checkable
class ArrayLike(Protocol):
    """A value that NumPy converts by itself: its own arrays, and the columns and tables of pandas and polars."""

    def __array__(self, *args: Any, **options: Any) -> np.ndarray[Any, Any]:
        """Return the values as a NumPy array."""


@runtime_checkable
class _PandasFrame(ArrayLike, Protocol):
    """A table of pandas."""

    @property
    def index(self) -> Iterable[Any]:
        """The names of the rows."""

    @property
    def columns(self) -> Iterable[Any]:
        """The names of the columns."""


def names_of(values: object) -> tuple[list[Any], list[Any]]:
    """Return the names of the rows and columns of a table of pandas. Return empty lists for other values."""
    return ([*values.index], [*values.columns]) if isinstance(values, _PandasFrame) else ([], [])


def as_numbers(name: str, values: object, allowed: str = "real numbers in a tensor, a NumPy array or lists") -> Tensor:
    """Convert real numbers to a tensor of any shape, in their own dtype and without gradient.

    The tensor may share memory with `values`. NaN and infinite numbers are numbers.

    Args:
        name: the name of the numbers, the subject of errors.
        values: a tensor, a NumPy array, a column or table of pandas, nested lists, an iterator.
        allowed: a text for errors, such as "numbers [items, 2]".

    Raises:
        InputError: they are not real numbers in an array: texts, dates, complex numbers, lists of several lengths,
            sets, mappings, sparse or masked arrays, missing values.
    """
    if isinstance(values, list | tuple) and any(isinstance(value, Tensor) for value in values):
        values = [_dense(name, value, allowed).tolist() if isinstance(value, Tensor) else value for value in values]
    if isinstance(values, Tensor):
        return _dense(name, values, allowed).detach()
    array = _array(name, values, allowed)
    if array.dtype.kind == "O":
        array = _numbers_of_objects(name, array, allowed)
    if array.dtype.kind not in "biuf":
        raise _not_numbers(name, array, allowed)
    if array.dtype.itemsize > 8:  # torch has no longer floats
        array = array.astype(np.float64)
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    return torch.from_numpy(np.require(native, requirements=["C", "W"]))


def as_items(name: str, values: object, allowed: str, *, as_rows: bool = False) -> list[Any]:
    """Return the items of a sequence in order. Numbers and texts become Python's own objects.

    Items may be missing: `is_missing` recognizes them.

    Args:
        name: the name of the items, the subject of errors.
        values: a list, a tensor, a NumPy array, a column or table of pandas, an iterator.
        allowed: a text for errors, such as "a class for each item".
        as_rows: for an array of several axes, return its rows, not lists.

    Raises:
        InputError: there is no order or there are no items: a text, a set, a mapping, a single value, a masked or a
            sparse array.
    """
    if not isinstance(values, Tensor | ArrayLike):
        return [_plain(value) for value in _sequence(name, values, allowed)]
    array = _dense(name, values, allowed) if isinstance(values, Tensor) else _array(name, values, allowed)
    if array.ndim == 0:
        raise InputError(name, f"one value, {array}", f"must be {allowed}")
    # tolist() would make integers of some dates.
    if (as_rows and array.ndim > 1) or (isinstance(array, np.ndarray) and array.dtype.kind in "mM"):
        return list(array)
    return list(array.tolist())


def _plain(value: Any) -> Any:
    """Convert a number or text of NumPy or torch to Python's own. Other values, and dates, stay as they are."""
    if isinstance(value, np.generic):
        return value if value.dtype.kind in "mM" else value.item()
    return value.item() if isinstance(value, Tensor) and value.ndim == 0 else value


def is_missing(value: object) -> bool:
    """Return True if a value is missing: None, NaN, NaT, or the NA of pandas."""
    if value is None or isinstance(value, Sized):
        return value is None
    try:
        return bool(value != value)
    except TypeError:  # of the NA of pandas
        return True


def is_hashable(value: object) -> bool:
    """Return True if a value can be looked up in a set. A tuple that holds a list cannot."""
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _sequence(name: str, values: object, allowed: str) -> Iterable[Any]:
    """Return `values` if it has an order and is not a text."""
    if type(values).__module__.startswith("scipy.sparse"):
        raise InputError(name, f"a {type(values).__name__}", f"must be {allowed}", "give its toarray()")
    if not isinstance(values, Iterable) or isinstance(values, str | bytes | Mapping | Set):
        is_short = values is None or isinstance(values, Real | str | bytes)
        got = f"{values!r:.60}" if is_short else f"a {type(values).__name__}"
        hint = "give a list, in the order of the items" if isinstance(values, Mapping | Set) else ""
        raise InputError(name, got, f"must be {allowed}", hint)
    return values


def _dense(name: str, tensor: Tensor, allowed: str) -> Tensor:
    """Return `tensor` if it is a dense tensor of real numbers."""
    if tensor.layout != torch.strided:
        raise InputError(name, "a sparse tensor", f"must be {allowed}", "give its to_dense()")
    if tensor.is_complex() or tensor.is_quantized:
        raise InputError(name, str(tensor.dtype), f"must be {allowed}")
    return tensor


def _array(name: str, values: object, allowed: str) -> np.ndarray[Any, Any]:
    """Return `values` as a NumPy array of any dtype."""
    if isinstance(values, np.ma.MaskedArray):
        if np.ma.is_masked(values):
            raise InputError(name, "masked values", f"must be {allowed}", "omit these items")
        values = values.data
    if not isinstance(values, list | tuple | range | Real) and not isinstance(values, ArrayLike):
        values = _sequence(name, values, allowed)
        values = values if isinstance(values, Sequence) else list(values)
    try:
        array = np.asarray(values)
    except ValueError:
        raise _not_one_length(name, values, allowed) from None
    except (TypeError, RuntimeError) as error:
        raise InputError(name, f"not an array ({one_line(error)})", f"must be {allowed}") from None
    if array.ndim == 0 and array.dtype.kind == "O":  # NumPy could not look inside
        raise InputError(name, f"a {type(values).__name__}", f"must be {allowed}")
    return array


def _numbers_of_objects(name: str, array: np.ndarray[Any, Any], allowed: str) -> np.ndarray[Any, Any]:
    """Return the numbers in an array of Python objects."""
    if array.size and all(isinstance(value, list | tuple | np.ndarray) for value in array.flat):  # a column of vectors
        try:
            return np.array(array.tolist())
        except ValueError:
            raise _not_one_length(name, array.tolist(), allowed) from None
    for index, value in np.ndenumerate(array):
        if is_missing(value):
            raise InputError(f"{name} of item {index[0]}", f"missing ({value})", hint="give a value, or omit the item")
        if not isinstance(value, _REAL):
            raise _not_numbers(name, array, allowed)
    converted = np.array(array.tolist())  # integers stay integers
    try:
        return array.astype(np.float64) if converted.dtype.kind == "O" else converted
    except OverflowError:
        raise InputError(name, "a number that float64 cannot hold", f"must be {allowed}") from None


def _not_numbers(name: str, array: np.ndarray[Any, Any], allowed: str) -> InputError:
    """Return the error of an array that does not hold real numbers."""
    kind, got = array.dtype.kind, str(array.dtype)
    if kind in "UST":
        got = f"text ({next((text for text in array.flat if not _is_number(text)), array.flat[0])!s:.40})"
    elif kind == "O":
        value = next((value for value in array.flat if not isinstance(value, _REAL)), None)
        got = f"a {type(value).__name__} ({value!s:.40})"
        kind = "M" if isinstance(value, date) else "m" if isinstance(value, timedelta) else kind
    hints = {"M": "dates are labels of DateLabels", "m": "divide durations by one, such as numpy.timedelta64(1, 'h')"}
    return InputError(name, got, f"must be {allowed}", hints.get(kind, ""))


def _is_number(text: Any) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _not_one_length(name: str, values: Any, allowed: str) -> InputError:
    """Return the error of nested lists that do not form an array."""
    lengths = [len(each) if isinstance(each, Sized) and not isinstance(each, str | bytes) else -1 for each in values]
    for row, length in enumerate(lengths):
        if length != lengths[0]:
            found, first = ("a single value" if n < 0 else f"a list of {n}" for n in (length, lengths[0]))
            return InputError(f"{name} of item {row}", found, f"must be {first}, as of item 0")
    return InputError(name, "nested lists of several lengths", f"must be {allowed}")
