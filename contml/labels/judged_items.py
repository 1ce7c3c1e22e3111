"""Judgments between items in place of labels: what all kinds of them have in common.

They are used where labels are (`Split.labels`, `labels[rows]`), but a label distance of two items is not known, or only
of judged pairs:

    PairLabels      pairs.py       how far two items are apart
    TripletLabels   triplets.py    which of two items is nearer to a third, or which of three is the odd one out
    RankingLabels   rankings.py    how relevant items are to a query
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Sequence, Sized
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
import torch
from torch import Tensor

from contml._support.conversion import Numbers, as_numbers, taken
from contml._support.errors import InputError
from contml._support.fingerprints import fingerprint
from contml.contracts import JudgedTogether
from contml.labels.base import LabelSpace

_Integers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
_Mask: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"


class JudgedItems(LabelSpace):
    """Base of the judgments: items without labels, and judgments of several items each.

    `labels[rows]` is a batch: it has the judgments of the root whose items are in the batch. `as_root()` of it, as in
    `Split.subset`, keeps these judgments alone.

    Attributes:
        whole: whether a judgment counts only if all of its items are in a batch.
        members: the rows of the items of all judgments, one judgment after the other `[M]`.
        offsets: where each judgment begins in `members`, and M `[J + 1]`.
        left_out: number of judgments that a split left out, since their items are in two parts.
    """

    title = "judgments"
    whole: ClassVar[bool]
    positions: Tensor
    members: _Integers
    offsets: _Integers
    left_out: int = 0

    def __init__(self, items: int) -> None:
        super().__init__(positions=torch.arange(items))

    @property
    def count(self) -> int:
        """The number of judgments of the root."""
        return len(self.offsets) - 1

    @property
    @abstractmethod
    def judged(self) -> int:
        """The number of triplets, or of pairs of a query and an item, of the root."""

    @property
    def used(self) -> _Mask:
        """The items of the root that have a judgment, bool `[N]`."""
        mask = np.zeros(len(self.root), dtype=bool)
        mask[self.members] = True
        return mask

    @property
    def judgment_of(self) -> _Integers:
        """The judgment of each of the `members` `[M]`."""
        return np.repeat(np.arange(self.count), np.diff(self.offsets))

    def judged_together(self) -> JudgedTogether:
        """The items of each judgment of the root; the anchor or the query is the first."""
        rows, starts = torch.from_numpy(self.members), torch.from_numpy(self.offsets)
        return JudgedTogether(rows, starts, whole=self.whole)

    @abstractmethod
    def keep(self, judgments: _Mask) -> Self:
        """The same items with some of the judgments, bool `[J]`, as a new root."""

    @abstractmethod
    def keep_items(self, items: _Mask) -> Self:
        """All items, with the judgments that remain where only some items, bool `[N]`, may be in one."""

    @abstractmethod
    def _renumbered(self, rows: _Integers, items: int) -> Self:
        """The judgments with other row numbers `[N]` of the items, of which there are `items`."""

    @abstractmethod
    def facts(self) -> str:
        """What the judgments are, in words, for `contml check`."""

    @abstractmethod
    def within(self) -> Sized:
        """The judgments whose items are in this batch."""

    def _left_out(self) -> str:
        return f"; {self.left_out:,} left out, whose items are in two parts of the split" if self.left_out else ""

    def judgment_names(self, names: Sequence[str]) -> list[str]:
        """A name of each judgment `[J]`, which draws its part of a split: the names of its items."""
        flat = [names[row] for row in self.members.tolist()]
        return ["\t".join(flat[a:b]) for a, b in zip(self.offsets[:-1], self.offsets[1:], strict=True)]

    def as_root(self) -> Self:
        """These items, as a new root, with the judgments among them."""
        rows = np.arange(len(self)) if self.rows is None else self.rows.cpu().numpy()
        if np.array_equal(rows, np.arange(len(self.root))):
            return super().as_root()
        inside = np.zeros(len(self.root), dtype=bool)
        inside[rows] = True
        new_rows = np.full(len(self.root), -1)
        new_rows[rows] = np.arange(len(rows))
        root = self.keep_items(inside)._renumbered(new_rows, len(rows))
        if self.root._identity:
            root._identity = taken(self.root._identity, rows)
        root.left_out = self.left_out
        return root

    def distances(self, x: Self, y: Self) -> Tensor:  # noqa: ARG002
        """Refused: judgments say nothing of most pairs.

        Raises:
            InputError: always.
        """
        hint = "use a training step and a sampler for judgments"
        raise InputError(type(self).__name__, "no label distances of items, only judgments", hint=hint)

    def fingerprint(self) -> str:
        """A hash of the judgments and of the items."""
        return fingerprint(type(self), self.members, self.offsets, self.positions, *self._answers())

    @abstractmethod
    def _answers(self) -> tuple[Any, ...]:
        """What the judgments say, for the fingerprint and the digests."""

    def _item_contents(self) -> list[bytes]:
        """The judgments of each item as bytes, by the rows of the root."""
        contents = [hashlib.blake2b() for _ in range(len(self.root))]
        answers = [np.asarray(part) for part in self._answers() if np.ndim(part)]
        per_judgment = [len(part) == self.count for part in answers]
        for judgment, (start, end) in enumerate(zip(self.offsets[:-1], self.offsets[1:], strict=True)):
            parts = [p[judgment] if whole else p[start:end] for p, whole in zip(answers, per_judgment, strict=True)]
            content = self.members[start:end].tobytes() + b"".join(np.asarray(part).tobytes() for part in parts)
            for row in self.members[start:end].tolist():
                contents[row].update(content)
        rows = range(len(self)) if self.rows is None else self.rows.tolist()
        return [contents[row].digest() for row in rows]

    def _contents(self) -> str:
        return f"{self.count:,} judgments"


def position_in(rows: _Integers, wanted: _Integers) -> _Integers:
    """The first position of each wanted row in `rows`, -1 where it is not there; same shape as `wanted`."""
    order = np.argsort(rows, kind="stable")
    ordered = rows[order]
    place = np.searchsorted(ordered, wanted)
    found = ordered[np.minimum(place, len(rows) - 1)] == wanted
    return np.where(found, order[np.minimum(place, len(rows) - 1)], -1)


def rows_of(name: str, values: Numbers, items: int, shape: str, columns: int) -> _Integers:
    """Row numbers `[.., columns]` in int64.

    Raises:
        InputError: another shape, or an item that does not exist.
    """
    rows = as_numbers(name, values, shape)
    if rows.ndim != 2 or rows.shape[1] != columns or rows.is_floating_point() or not len(rows):
        raise InputError(name, f"{rows.dtype} {list(rows.shape)}", f"must be {shape}, at least one")
    array: _Integers = rows.long().cpu().numpy()
    wrong = np.flatnonzero(((array < 0) | (array >= items)).any(1))
    if len(wrong):
        raise InputError(f"{name}, row {wrong[0]}", str(array[wrong[0]].tolist()), f"must be items 0 to {items - 1}")
    return array


def refuse_repeated(name: str, rows: _Integers) -> None:
    """Refuse a judgment that has an item twice."""
    ordered = np.sort(rows, axis=1)
    wrong = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(1))
    if len(wrong):
        raise InputError(f"{name}, row {wrong[0]}", str(rows[wrong[0]].tolist()), "must be different items")


def unique_rows(rows: _Integers) -> tuple[_Integers, _Integers]:
    """The different rows of a matrix `[A, m]`, in order, and the number of each row `[A]`.

    `numpy.unique` with an axis does the same, but takes several times as long.
    """
    order = np.lexsort(rows.T[::-1])
    is_first = np.ones(len(rows), dtype=bool)
    is_first[1:] = (rows[order[1:]] != rows[order[:-1]]).any(1)
    numbers = np.empty(len(rows), np.int64)
    numbers[order] = is_first.cumsum() - 1
    return rows[order[is_first]], numbers
