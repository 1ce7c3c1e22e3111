"""Judgments of three items: which of x and y is nearer to an anchor, or which of three items is the odd one out.

No label distance of two items is known. The training step `TripletStep` trains on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self, TypeAlias

import numpy as np
import torch
from torch import Tensor

from contml._support.conversion import Numbers, as_numbers
from contml._support.errors import InputError
from contml._support.validation import PositiveInt, check_ranges
from contml.labels.judged_items import JudgedItems, position_in, refuse_repeated, rows_of, unique_rows

_Integers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
_Floats: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"
_Mask: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"

#: The pair of items that is more alike by each answer. Two answers: x or y is nearer to the anchor. Three answers: the
#: first, second or third item is the odd one out.
ANSWER_PAIRS: dict[int, tuple[tuple[int, int], ...]] = {2: ((0, 1), (0, 2)), 3: ((1, 2), (0, 2), (0, 1))}


@dataclass(frozen=True)
class Triplets:
    """The triplets whose three items are all in a batch.

    Attributes:
        positions: of the items in the batch `[T, 3]`.
        shares: share of the judges who gave each answer, `[T, 2]` or `[T, 3]`.
    """

    positions: Tensor
    shares: Tensor

    def __len__(self) -> int:
        return len(self.positions)


class TripletLabels(JudgedItems):
    """Judgments of three items: which of x and y is nearer to an anchor, or which of three items is the odd one out.

    Rows of the same three items (and the same anchor) are one triplet, with the number of judges who gave each answer.

    Args:
        triplets: rows of the items `[A, 3]`: anchor, x and y; or three items in any order.
        answers: of each row `[A]`, 0 for x and 1 for y; or 0, 1 or 2, the position of the odd one out. Or how many
            judges gave each answer: `[A, 2]` or `[A, 3]`.
        items: number of items.
        odd_one_out: whether an answer names the odd one out, where `answers` are `[A]`.

    Attributes:
        triplets: the items of each triplet `[T, 3]`.
        counts: number of judges who gave each answer `[T, 2]` or `[T, 3]`; the pairs of items that an answer says to be
            more alike are `ANSWER_PAIRS`.

    Raises:
        InputError: an item does not exist or is twice in a triplet, or an answer is none of these.
    """

    kind = "triplets"
    whole = True
    triplets: _Integers
    counts: _Floats

    @check_ranges
    def __init__(self, triplets: Numbers, answers: Numbers, items: PositiveInt, odd_one_out: bool = False) -> None:
        super().__init__(items)
        rows = rows_of("triplets", triplets, items, "rows of items [judgments, 3]", 3)
        refuse_repeated("triplets", rows)
        counts = _counts(as_numbers("answers", answers, "answers [judgments], or counts [judgments, 2 or 3]"), rows)
        if counts.ndim == 1:
            number = 3 if odd_one_out else 2
            wrong = np.flatnonzero((counts < 0) | (counts >= number) | (counts != np.floor(counts)))
            if len(wrong):
                allowed = f"must be one of {', '.join(map(str, range(number)))}"
                raise InputError(f"answers, row {wrong[0]}", f"{counts[wrong[0]]:g}", allowed)
            counts = np.eye(number)[counts.astype(np.int64)]
        # In one order of the items, so that repeats are found: x before y, or all three ascending.
        moved = 0 if counts.shape[1] == 3 else 1
        order = np.argsort(rows[:, moved:], axis=1)
        rows = np.concatenate((rows[:, :moved], np.take_along_axis(rows[:, moved:], order, axis=1)), axis=1)
        counts = np.take_along_axis(counts, order, axis=1)
        self.triplets, place = unique_rows(rows)
        summed = [np.bincount(place, column, len(self.triplets)) for column in counts.T]
        self._set(self.triplets, np.stack(summed, axis=1))

    def _set(self, triplets: _Integers, counts: _Floats) -> None:
        self.triplets, self.counts = triplets, counts
        self.members, self.offsets = triplets.ravel(), 3 * np.arange(len(triplets) + 1)
        self.__dict__.pop("_index", None)  # of other triplets

    @property
    def judged(self) -> int:
        """The number of triplets."""
        return self.count

    @property
    def contradictions(self) -> int:
        """The number of triplets whose judges do not all give one answer."""
        return int(((self.counts > 0).sum(1) > 1).sum())

    @property
    def shares(self) -> _Floats:
        """Share of the judges who gave each answer `[T, 2]` or `[T, 3]`."""
        shares: _Floats = self.counts / self.counts.sum(1, keepdims=True)
        return shares

    def facts(self) -> str:
        """Number of triplets, form, judges."""
        form = "an anchor, and which of two is nearer" if self.counts.shape[1] == 2 else "the odd one out of three"
        judges, repeated = self.counts.sum(), int((self.counts.sum(1) > 1).sum())
        answers = f"{judges:,.0f} answers; {repeated:,} with several answers, which differ in {self.contradictions:,}"
        return f"{self.count:,} triplets ({form}), {answers if repeated else 'one answer each'}{self._left_out()}"

    def keep(self, judgments: _Mask) -> Self:
        """The same items with some of the triplets."""
        root = super(JudgedItems, self).as_root()
        root._set(self.triplets[judgments], self.counts[judgments])
        return root

    def keep_items(self, items: _Mask) -> Self:
        """All items, with the triplets of which all three items are among these."""
        whole: _Mask = np.all(items[self.root.triplets], axis=1)
        return self.root.keep(whole)

    def within(self) -> Triplets:
        """The triplets of the root whose three items are in this batch."""
        rows = np.arange(len(self)) if self.rows is None else self.rows.cpu().numpy()
        root = self.root
        by_item, starts = root._index
        candidates = by_item[_slices(starts, np.unique(rows))[0]]
        positions = position_in(rows, root.triplets[candidates])
        whole = (positions >= 0).all(1)
        shares = root.counts[candidates[whole]]
        shares = shares / shares.sum(1, keepdims=True)
        return Triplets(*(torch.from_numpy(each).to(self.device) for each in (positions[whole], shares)))

    @cached_property
    def _index(self) -> tuple[_Integers, _Integers]:
        """The triplets by the item of each that is in the fewest: their numbers, and where those of an item begin."""
        degree = np.bincount(self.members, minlength=len(self))
        rarest = np.take_along_axis(self.triplets, degree[self.triplets].argmin(1)[:, None], axis=1)[:, 0]
        return np.argsort(rarest, kind="stable"), _starts(rarest, len(self))

    def _renumbered(self, rows: _Integers, items: int) -> Self:
        renumbered = type(self).__new__(type(self))
        JudgedItems.__init__(renumbered, items)
        renumbered._set(rows[self.triplets], self.counts)
        return renumbered

    def _answers(self) -> tuple[Any, ...]:
        return (self.counts,)


def _slices(starts: _Integers, rows: _Integers) -> tuple[_Integers, _Integers]:
    """The entries `starts[row]` to `starts[row + 1]` of some rows, one after the other, and how many each has."""
    counts = starts[rows + 1] - starts[rows]
    begin = np.concatenate(([0], counts.cumsum()[:-1])) if len(rows) else counts
    return np.repeat(starts[rows] - begin, counts) + np.arange(counts.sum()), counts


def _starts(owners: _Integers, count: int) -> _Integers:
    """Where the entries of each of `count` owners begin, of sorted owners, and their number `[count + 1]`."""
    return np.concatenate(([0], np.bincount(owners, minlength=count).cumsum()))


def _counts(answers: Tensor, rows: _Integers) -> _Floats:
    """Answers `[A]`, or counts of answers `[A, 2]` or `[A, 3]`, in float64."""
    values: _Floats = answers.double().cpu().numpy()
    if len(values) != len(rows) or values.ndim > 2 or (values.ndim == 2 and values.shape[1] not in ANSWER_PAIRS):
        allowed = f"must be [{len(rows)}], or counts [{len(rows)}, 2] or [{len(rows)}, 3]"
        raise InputError("answers", str(list(values.shape)), allowed)
    if values.ndim == 2:
        wrong = np.flatnonzero(~(np.isfinite(values).all(1) & (values >= 0).all(1) & (values.sum(1) > 0)))
        if len(wrong):
            got = str(values[wrong[0]].tolist())
            raise InputError(f"answers, row {wrong[0]}", got, "must be numbers of judges, at least one")
    return values
