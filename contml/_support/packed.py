"""Many items in arrays, in place of a list of objects."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence, Sized
from typing import Any, Self, TypeAlias, TypeVar

import numpy as np

Integers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
T = TypeVar("T")


class Packed(Sequence[T]):
    """Many items in arrays. A list would need an object for each item. `packed[row]` is a new object."""

    def __getitem__(self, row: Any) -> Any:
        return self.taken(np.arange(len(self))[row]) if isinstance(row, slice) else self._item(range(len(self))[row])

    @abstractmethod
    def _item(self, row: int) -> T:
        """Return the item of a row, which is not below 0."""

    @abstractmethod
    def taken(self, rows: Iterable[int]) -> Self:
        """Return the items of some rows, in this order."""

    def numbered(self) -> tuple[Sequence[T], Integers]:
        """Return the different items and the number of each row's item `[N]`.

        In this base class every row counts as different.
        """
        return self, np.arange(len(self))


def taken(items: Sequence[T], rows: Iterable[int]) -> Sequence[T]:
    """Return the items of some rows, in this order."""
    if isinstance(items, Packed):
        return items.taken(rows)
    return [items[row] for row in row_numbers(rows).tolist()]


def row_numbers(rows: Iterable[int]) -> Integers:
    """Return the rows as an array `[R]`."""
    return np.asarray(rows if isinstance(rows, Sized) else list(rows), np.int64)
