"""The label space of items that a function compares."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from itertools import pairwise
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from contml._support.conversion import as_items
from contml._support.errors import InputError
from contml._support.fingerprints import fingerprint
from contml.distances.nearest import MEMORY
from contml.labels.items import ItemLabels

#: Items whose distances to themselves and to each other in both directions are checked.
_SAMPLE = 8
#: Up to this share of the largest distance of the sample, differences and negative numbers are rounding.
_ROUNDING = 1e-5
#: Label distances are float32.
_LARGEST = float(np.finfo(np.float32).max)


class FunctionLabels(ItemLabels):
    """Items of any kind, with a function that returns the label distance of two items.

    The function is called in Python, once per pair. Its values are kept in memory, up to 256 MB, which hold all pairs
    of 8,192 items. If there are more items, no value is kept. An item and itself have the distance 0, without a call. A
    function that compares whole arrays at once is faster as a label space of your own, with one method `distances`.

    A space can be pickled if the function can: a function of a module, but no lambda. The kept values are not pickled.

    Args:
        items: N items of any type, in a list or an array. The items of an array with several axes are its rows.
        function: `function(a, b)` returns a number >= 0, the same as `function(b, a)`, and 0 for equal items. Some
            items are checked.
        unit: the meaning of a label distance of 1.
        name: a name of the function and its version. Only with a name can `nearest` cache its result on disk; give
            another name when the function changes.

    Raises:
        InputError: the function does not take two items, its values are not symmetric or not 0 from an item to itself;
            later, a value is negative or not a finite number.
    """

    item_arguments: ClassVar[Mapping[str, Any]] = {"items": list}
    option_arguments: ClassVar[Mapping[str, Any]] = {"function": Callable, "unit": str, "name": str}
    positions: Tensor

    def __init__(
        self,
        items: Sequence[Any] | np.ndarray[Any, Any] | Tensor,
        function: Callable[[Any, Any], float],
        unit: str = "label distance",
        name: str = "",
    ) -> None:
        self._items = as_items("items", items, "a list or an array of items", as_rows=True)
        if not self._items:
            raise InputError("items", "no items", "must be a list or an array of items")
        if not callable(function):
            raise InputError("function", f"{function!r:.60}", "must be a function of two items")
        try:
            inspect.signature(function).bind(None, None)
        except TypeError as error:
            raise InputError("function", str(error), "must take two items") from None
        except ValueError:
            pass  # some functions written in C have no signature
        super().__init__(positions=torch.arange(len(self._items)))
        self.function, self.unit, self.name = function, unit, name
        self._kept = _KeptDistances(len(self._items))
        self._rounding = self._check()

    def distances(self, x: Self, y: Self) -> Tensor:
        """Return values of the function `[X, Y]` in float32."""
        rows, cols = (labels.positions.cpu().numpy() for labels in (x, y))
        low, high = np.minimum.outer(rows, cols), np.maximum.outer(rows, cols)
        block = self._kept.values[low, high] if self._kept.is_used else np.full(low.shape, np.nan, np.float32)
        block[low == high] = 0
        found: dict[tuple[int, int], float] = {}
        for place in zip(*np.nonzero(np.isnan(block)), strict=True):
            pair = int(low[place]), int(high[place])
            if pair not in found:
                found[pair] = self._distance(*pair)
            block[place] = found[pair]
        return torch.from_numpy(block).to(self.device)

    def arguments(self) -> dict[str, Any]:
        """Return the items, the function and its name."""
        items = [self._items[position] for position in self.positions.tolist()]
        return {"items": items, "function": self.function, "unit": self.unit, "name": self.name}

    def fingerprint(self) -> str:
        """Return a hash of the items and of the name of the function: the key of caches.

        Raises:
            InputError: the function has no name, or an item cannot be hashed by content.
        """
        if not self.name:
            hint = "give FunctionLabels(name=...) a name of the function and its version, or omit cache"
            raise InputError("cache", "no key for a function without a name", hint=hint)
        return fingerprint(type(self), self.name, [self._items[position] for position in self.positions.tolist()])

    def _item_contents(self) -> list[bytes]:
        try:
            return [fingerprint(self._items[position]).encode() for position in self.positions.tolist()]
        except InputError as error:
            hint = "give labels.with_texts(identity=...), texts that identify the labels of a run"
            raise InputError("items", error.got, "must be numbers, strings, arrays or lists of them", hint) from None

    def _distance(self, a: int, b: int) -> float:
        distance = _distance(self._value(a, b), a, b, self._rounding)
        self._kept.keep(a, b, distance)
        return distance

    def _value(self, a: int, b: int) -> float:
        """Return the number that the function returns for two items."""
        try:
            value: Any = self.function(self._items[a], self._items[b])
        except Exception as error:
            error.add_note(f"in the label distance of items {a} and {b}")
            raise
        if isinstance(value, np.ndarray | np.generic | Tensor) and value.ndim == 0:
            value = value.item()
        if not isinstance(value, Real | Decimal):
            raise InputError(f"label distance of items {a} and {b}", f"{value!r:.60}", "must be a finite number >= 0")
        return float(value)

    def _check(self) -> float:
        """Check that some values are symmetric, and 0 from an item to itself.

        Return the largest difference due to rounding.

        Raises:
            InputError: a value breaks one of these rules.
        """
        sample = np.unique(np.linspace(0, len(self) - 1, _SAMPLE).astype(np.int64)).tolist()
        pairs = [*pairwise(sample), *zip(sample[:-2], sample[2:], strict=True)]
        values = {pair: self._value(*pair) for a, b in pairs for pair in ((a, b), (b, a))}
        rounding = _ROUNDING * max(map(abs, values.values()), default=0.0)
        values = {pair: _distance(value, *pair, rounding) for pair, value in values.items()}
        for a, b in pairs:
            forth, back = values[a, b], values[b, a]
            if abs(forth - back) > rounding:
                got, hint = f"{forth:g}, and {back:g} in the other order", "return the mean of both orders"
                raise InputError(f"label distance of items {a} and {b}", got, "must be symmetric", hint)
        for a in sample:
            value = self._value(a, a)
            if not abs(value) <= rounding:
                hint = "similarities? return 1 - similarity"
                raise InputError(f"label distance of item {a} to itself", f"{value:g}", "must be 0", hint)
        for a, b in pairs:
            self._kept.keep(a, b, values[a, b])
        return rounding


def _distance(value: float, a: int, b: int, rounding: float) -> float:
    """Return the value of a function for items a and b, which must be a label distance.

    A negative value may be rounding.
    """
    if -rounding <= value < 0:
        return 0.0
    if not 0 <= value <= _LARGEST:
        hint = "similarities? return 1 - similarity" if value < 0 else ""
        raise InputError(f"label distance of items {a} and {b}", f"{value:g}", "must be a finite number >= 0", hint)
    return value


class _KeptDistances:
    """Distances of pairs of items `[N, N]`, the lower item first, NaN where not yet known. Unused if too large."""

    def __init__(self, items: int) -> None:
        self.items, self.is_used = items, 4 * items**2 <= MEMORY
        self.values = np.full((items, items) if self.is_used else (0, 0), np.nan, dtype=np.float32)

    def keep(self, a: int, b: int, distance: float) -> None:
        """Keep the distance of two items."""
        if self.is_used:
            self.values[a, b] = distance

    def __reduce__(self) -> tuple[type[_KeptDistances], tuple[int]]:
        return _KeptDistances, (self.items,)  # other processes start with none
