"""The label space: packed labels of some items, and the label distances between any of them."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from contml._support.errors import InputError
from contml._support.validation import as_rows
from contml.contracts import LabelKind, Rows
from contml.distances.cache import Cache, fingerprint
from contml.distances.search import MEMORY, Neighbours, checked, chunks, stream_nearest

#: Attributes that say nothing about label distances: they are no part of a fingerprint.
_NOT_CONTENT = ("unit", "rows", "_root")


class LabelSpace(ABC):
    """Packed labels of some items, one row for each, and the label distances between any of them.

    `labels[rows]` are some of the items: a batch or a subset, which is a label space too. Indexing again composes;
    `rows` says where the items are in the *root*, the space that was built from the labels of a data set. A new label
    space packs its labels in the constructor and writes one method, `distances`.

    Args:
        packed: the labels by name, one row for each item: tensors `[N, ...]`, or label spaces. They are attributes of
            these names, and are moved and indexed together.

    Attributes:
        kind: "graded": distances are numbers >= 0; "binary": only 0 and 1; "classes": 0 and 1 from `class_ids`.
        unit: in words, what a label distance of 1 is.
        class_ids: the class of each item `[N]`, where labels are classes.
        rows: row numbers in the root `[N]`; None where labels were made from a bare tensor, as a loss does.
    """

    kind: LabelKind = "graded"
    unit: str = "label distance"
    class_ids: Tensor | None = None
    rows: Tensor | None
    _root: Self | None = None

    def __init__(self, **packed: Tensor | LabelSpace) -> None:
        lengths = {name: len(part) for name, part in packed.items()}
        if len(set(lengths.values())) != 1:
            raise InputError(f"the packed labels have {lengths} items; give each the same number of rows")
        for name, part in packed.items():
            if isinstance(part, Tensor) and part.is_floating_point() and not bool(part.isfinite().all()):
                row = int((~part.isfinite()).flatten(1 if part.ndim > 1 else 0).nonzero()[0, 0])
                raise InputError(f"{name} of item {row} is not finite; labels are finite numbers")
        self._packed = tuple(packed)
        self.__dict__.update(packed)
        self.rows = torch.arange(len(self), device=self.device)

    @abstractmethod
    def distances(self, x: Self, y: Self) -> Tensor:
        """Exact label distances `[X, Y]` of the items of x to those of y: what a new label space writes.

        x and y are parts of one space; where both have the same items, y is x. The result may be of any float dtype.
        """

    def __len__(self) -> int:
        return len(self.__dict__[self._packed[0]])

    @property
    def device(self) -> torch.device:
        """Where the packed labels are."""
        device: torch.device = self.__dict__[self._packed[0]].device
        return device

    def to(self, device: torch.device | str) -> Self:
        """The same labels on another device."""
        moved = self._map(lambda part: part.to(device))
        moved.rows = None if self.rows is None else self.rows.to(device)
        return moved

    def __getitem__(self, rows: Rows) -> Self:
        """These items as a label space: a batch, or a subset. `rows` of the result count in the root."""
        return self._part(as_rows(rows, len(self), self.device))

    @property
    def root(self) -> Self:
        """The space that `rows` are row numbers of."""
        return self if self._root is None else self._root

    def as_root(self) -> Self:
        """The same items as a root of their own: `rows` start from 0. The labels of a split are a root."""
        root = copy.copy(self)
        root.rows, root._root = torch.arange(len(self), device=self.device), None
        return root

    def pairwise(self, rows: Rows = None, cols: Rows = None, *, memory: int = MEMORY) -> Tensor:
        """Label distances `[R, C]` of rows to columns (default all), in float32, computed in `memory` bytes at a time.

        Raises:
            InputError: a row does not exist, or a label distance is negative or not a number.
        """
        r = None if rows is None else as_rows(rows, len(self), self.device)
        c = None if cols is None else as_rows(cols, len(self), self.device)
        x = self if r is None else self._part(r)
        y = self if c is None else x if r is not None and torch.equal(r, c) else self._part(c)
        parts = list(chunks(len(x), len(y), memory))
        if len(parts) == 1:
            return checked(self.distances(x, y).float())
        out = torch.empty(len(x), len(y), device=self.device)
        for part in parts:
            out[part] = checked(self.distances(x[part], y).float())
        return out

    def nearest(
        self,
        k: int,
        rows: Rows = None,
        *,
        among: Rows = None,
        memory: int = MEMORY,
        progress: Callable[[int], None] | None = None,
        cache: Path | str | None = None,
    ) -> Neighbours:
        """The exact k nearest items by label distance of each of `rows`, among `among` (default all), never itself.

        Never an N x N matrix in memory. Ties of the float32 label distances go to the lower row.

        Args:
            k: how many.
            rows: whose neighbours are wanted.
            among: rows that may be neighbours.
            memory: bytes that a block of label distances may take with its temporaries.
            progress: called with the number of rows finished so far; `progress_bar` shows it.
            cache: a folder where the result is kept under a key of the labels' content and the options of their
                distance; an interrupted search goes on where it stopped.

        Raises:
            InputError: k is not in 1 ... number of candidates, a label distance is negative or not a number, or the
                cache cannot be used: a file of it is damaged, or the folder cannot be written.
        """
        r, c = as_rows(rows, len(self), self.device), torch.unique(as_rows(among, len(self), self.device))
        others = len(c) - int(torch.isin(r, c).any())
        if not 1 <= k <= others:
            raise InputError(
                f"k is {k}, but there are {others} items to choose neighbours from; k must be 1 to {others}"
            )

        def search(part: Tensor, report: Callable[[int], None] | None) -> Neighbours:
            found = Neighbours(*self._nearest(k, part, c, memory, report))
            checked(found.distances)
            return found

        if cache is None:
            return search(r, progress)
        return Neighbours(*Cache(Path(cache).expanduser(), self.fingerprint(), k, r, c).get(search, progress))

    def fingerprint(self) -> str:
        """A hash of the labels and of all options of the distance, the same on every device: the key of caches.

        Every attribute counts but `unit` and `rows`. A subclass whose distance depends on more than its attributes
        writes its own.

        Raises:
            InputError: an attribute is of a type that has no content to hash.
        """
        content = {name: value for name, value in vars(self).items() if name not in _NOT_CONTENT}
        parts = {name: value.fingerprint() for name, value in content.items() if isinstance(value, LabelSpace)}
        return fingerprint(type(self), content | parts)

    def __repr__(self) -> str:
        part = "" if self._root is None else f" of {len(self._root):,}"
        return f"{type(self).__name__}({len(self):,}{part} items; {self._contents()})"

    def _contents(self) -> str:
        """What the labels are, in a few words, for `repr`."""
        return f"unit: {self.unit}"

    def _part(self, index: Tensor) -> Self:
        part = self._select(index)
        part.rows = None if self.rows is None else self.rows[index]
        part._root = self if self._root is None else self._root
        return part

    def _select(self, index: Tensor) -> Self:
        """The packed labels of these rows `[R]`, which exist."""
        return self._map(lambda part: part[index])

    def _nearest(
        self, k: int, rows: Tensor, among: Tensor, memory: int, progress: Callable[[int], None] | None
    ) -> Neighbours:
        """What `nearest` finds, for rows that exist; a space that knows a faster way than blocks overrides it.

        rows `[R]`; among `[C]` ascending; a row is not its own neighbour.
        """
        return stream_nearest(self.pairwise, k, rows, among, memory, progress)

    def _map(self, change: Callable[[Any], Any]) -> Self:
        changed = copy.copy(self)
        changed.__dict__.update({name: change(self.__dict__[name]) for name in self._packed})
        return changed


#: `nearest(labels, k)`: the method as a function.
nearest = LabelSpace.nearest
