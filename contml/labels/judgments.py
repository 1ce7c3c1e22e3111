"""Judgments between items in place of labels: which of two items is nearer, and how relevant items are to a query.

They are used where labels are (`Split.labels`, `labels[rows]`), but no label distance of two items is known. A training
step of their own trains on them: `TripletStep`, `RankingStep`.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Sequence, Sized
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeAlias

import numpy as np
import torch
from torch import Tensor

from contml._support.conversion import Numbers, as_numbers
from contml._support.errors import InputError
from contml._support.validation import PositiveInt, check_ranges
from contml.contracts import JudgedTogether
from contml.distances.cache import fingerprint
from contml.labels.base import JudgedPairs, LabelSpace

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


class RankedList(NamedTuple):
    """The items of one query that are in a batch.

    Attributes:
        positions: of the query and then of its items in the batch `[1 + I]`.
        distances: label distances from the query to these, 0 to itself `[1 + I]`.
    """

    positions: Tensor
    distances: Tensor


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
            root._identity = [self.root._identity[row] for row in rows.tolist()]
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


def _position_in(rows: _Integers, wanted: _Integers) -> _Integers:
    """The first position of each wanted row in `rows`, -1 where it is not there; same shape as `wanted`."""
    order = np.argsort(rows, kind="stable")
    ordered = rows[order]
    place = np.searchsorted(ordered, wanted)
    found = ordered[np.minimum(place, len(rows) - 1)] == wanted
    return np.where(found, order[np.minimum(place, len(rows) - 1)], -1)


def _slices(starts: _Integers, rows: _Integers) -> tuple[_Integers, _Integers]:
    """The entries `starts[row]` to `starts[row + 1]` of some rows, one after the other, and how many each has."""
    counts = starts[rows + 1] - starts[rows]
    begin = np.concatenate(([0], counts.cumsum()[:-1])) if len(rows) else counts
    return np.repeat(starts[rows] - begin, counts) + np.arange(counts.sum()), counts


def _starts(owners: _Integers, count: int) -> _Integers:
    """Where the entries of each of `count` owners begin, of sorted owners, and their number `[count + 1]`."""
    return np.concatenate(([0], np.bincount(owners, minlength=count).cumsum()))


def _rows_of(name: str, values: Numbers, items: int, shape: str, columns: int) -> _Integers:
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


def _refuse_repeated(name: str, rows: _Integers) -> None:
    """Refuse a judgment that has an item twice."""
    ordered = np.sort(rows, axis=1)
    wrong = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(1))
    if len(wrong):
        raise InputError(f"{name}, row {wrong[0]}", str(rows[wrong[0]].tolist()), "must be different items")


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
        rows = _rows_of("triplets", triplets, items, "rows of items [judgments, 3]", 3)
        _refuse_repeated("triplets", rows)
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
        self.triplets, place = np.unique(rows, axis=0, return_inverse=True)
        place = place.reshape(-1)
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
        positions = _position_in(rows, root.triplets[candidates])
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


class RankingLabels(JudgedItems):
    """Queries with the items that were judged for each: how relevant they are to it.

    Rows of the same query and item are one, with the mean of their values. A query needs two items with different
    values.

    Args:
        pairs: rows of a query and of an item `[A, 2]`.
        values: of each row `[A]`: a grade of at least 0, higher is more relevant; or a distance.
        items: number of items; queries are items too.
        of: what the values are.
        missing: what to do with queries without two items of different values: "refuse", or "drop" and count them.

    Attributes:
        dropped: number of queries that `missing` dropped.
        values: of each of the `members`; 0 of a query itself `[M]`. A judgment is a query and then its items.
        highest: the largest value: the label distance of a grade is `(highest - grade) / highest`.
        given: the value of each judgment `[A]`, and the position in `members` that it is of.

    Raises:
        InputError: an item does not exist or is its own query, a value is below 0 or not finite, or a query has not
            two items with different values.
    """

    kind = "rankings"
    whole = False
    values: _Floats
    given: tuple[_Floats, _Integers]
    of: Literal["grade", "distance"]
    dropped: int

    @check_ranges
    def __init__(
        self,
        pairs: Numbers,
        values: Numbers,
        items: PositiveInt,
        of: Literal["grade", "distance"] = "grade",
        missing: Literal["refuse", "drop"] = "refuse",
    ) -> None:
        super().__init__(items)
        rows = _rows_of("pairs", pairs, items, "rows of a query and an item [judgments, 2]", 2)
        _refuse_repeated("pairs", rows)
        numbers: _Floats = as_numbers("values", values, "numbers [judgments]").double().cpu().numpy()
        if numbers.shape != (len(rows),):
            raise InputError("values", str(list(numbers.shape)), f"must be [{len(rows)}]")
        wrong = np.flatnonzero(~(np.isfinite(numbers) & (numbers >= 0)))
        if len(wrong):
            raise InputError(f"values, row {wrong[0]}", f"{numbers[wrong[0]]:g}", "must be at least 0")
        unique, place, repeats = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
        place = place.reshape(-1)
        mean = np.bincount(place, numbers, len(unique)) / repeats
        low, high = np.full(len(unique), np.inf), np.full(len(unique), -np.inf)
        np.minimum.at(low, place, numbers)
        np.maximum.at(high, place, numbers)
        mean = np.where(low == high, low, mean)  # without rounding
        self.of = of
        self.highest = float(mean.max())
        queries, starts = np.unique(unique[:, 0], return_index=True)
        offsets = np.append(starts, len(unique)) + np.arange(len(queries) + 1)
        members = np.zeros(len(unique) + len(queries), np.int64)
        all_values = np.zeros(len(members))
        is_query = np.zeros(len(members), dtype=bool)
        is_query[offsets[:-1]] = True
        members[is_query], members[~is_query], all_values[~is_query] = queries, unique[:, 1], mean
        self._set(members, offsets, all_values, (numbers, np.flatnonzero(~is_query)[place]))
        whole = self._informative()
        self.dropped = 0
        if missing == "drop" and whole.any():
            self.dropped = int((~whole).sum())
            self._choose(whole[self.judgment_of])
        elif not whole.all():
            query = int(queries[np.flatnonzero(~whole)[0]])
            allowed = "must have two items with different values"
            raise InputError(f"query {query}", f"one item or one value ({(~whole).sum():,} such queries)", allowed)

    def _set(self, members: _Integers, offsets: _Integers, values: _Floats, given: tuple[_Floats, _Integers]) -> None:
        self.members, self.offsets, self.values, self.given = members, offsets, values, given
        for cached in ("_list_of", "label_distances"):  # of other lists
            self.__dict__.pop(cached, None)

    @property
    def judged(self) -> int:
        """The number of pairs of a query and an item."""
        return len(self.members) - self.count

    @property
    def contradictions(self) -> int:
        """The number of pairs of a query and an item with values that differ."""
        numbers, position = self.given
        return len(np.unique(position[numbers != self.values[position]]))

    @property
    def queries(self) -> _Integers:
        """The row of each query `[J]`."""
        return self.members[self.offsets[:-1]]

    def judgment_names(self, names: Sequence[str]) -> list[str]:
        """The name of each query `[J]`: a list that gets an item stays in its part of a split."""
        return [names[row] for row in self.queries.tolist()]

    @cached_property
    def label_distances(self) -> _Floats:
        """From the query of each of the `members` `[M]`: `(highest - grade) / highest`, or the distances as given."""
        distances = self.values if self.of == "distance" else (self.highest - self.values) / (self.highest or 1.0)
        distances = distances.copy()
        distances[self.offsets[:-1]] = 0
        return distances

    @property
    def gains(self) -> _Floats:
        """The gain of each of the `members` in nDCG `[M]`: the grade, or `1 / (1 + distance)`."""
        return self.values if self.of == "grade" else 1 / (1 + self.values)

    @property
    def judged_pairs(self) -> JudgedPairs:
        """Each query of the root and each of its items, with their label distance."""
        items = np.delete(np.arange(len(self.members)), self.offsets[:-1])
        rows = np.sort(np.stack((self.queries[self.judgment_of[items]], self.members[items]), axis=1), axis=1)
        distances = torch.from_numpy(self.label_distances[items])
        once = torch.ones(len(items))
        return JudgedPairs(torch.from_numpy(rows), distances, once, torch.full_like(once, torch.nan))

    def facts(self) -> str:
        """Number of queries and of their items, and the range of the values."""
        sizes = np.diff(self.offsets) - 1
        items = np.ones(len(self.members), dtype=bool)
        items[self.offsets[:-1]] = False
        low, high = self.values[items].min(), self.values[items].max()
        fewest, most = sizes.min(), sizes.max()
        each = f"{most:,} items each" if fewest == most else f"{fewest:,} to {most:,} items"
        lists = f"{self.count:,} {'query' if self.count == 1 else 'queries'} with {each}, {sizes.sum():,} in all"
        values = f"{self.of}s {low:g} to {high:g}"
        values += f"; {self.contradictions:,} pairs have values that differ" if self.contradictions else ""
        dropped = (
            f"; {self.dropped:,} queries dropped, without two items of different {self.of}s" if self.dropped else ""
        )
        return f"{lists}; {values}{dropped}{self._left_out()}"

    def keep(self, judgments: _Mask) -> Self:
        """The same items with the lists of some of the queries."""
        return self._with_members(judgments[self.judgment_of])

    def keep_items(self, items: _Mask) -> Self:
        """All items, with the lists of the queries among these, of the items among these."""
        root = self.root
        inside = items[root.members]
        has_query = inside[root.offsets[:-1]]
        return root._with_members(inside & has_query[root.judgment_of])

    def _with_members(self, kept: _Mask) -> Self:
        """The lists with some of their members; those without two items of different values are omitted."""
        root = super(JudgedItems, self).as_root()
        root._choose(kept)
        whole = root._informative()
        if not whole.all():
            root._choose(whole[root.judgment_of])
        return root

    def _choose(self, kept: _Mask) -> None:
        """Keep some of the members, with the queries of all that are kept."""
        sizes = np.unique(self.judgment_of[kept], return_counts=True)[1]
        offsets, (numbers, position) = np.concatenate(([0], sizes.cumsum())), self.given
        given = numbers[kept[position]], (kept.cumsum() - 1)[position[kept[position]]]
        self._set(self.members[kept], offsets, self.values[kept], given)

    def _informative(self) -> _Mask:
        """The queries that have two items with different values, bool `[J]`."""
        if not self.count:
            return np.zeros(0, dtype=bool)
        starts = self.offsets[:-1]
        high = np.maximum.reduceat(self.values, starts)
        low_values = self.values.copy()
        low_values[starts] = np.inf  # the query itself
        return np.minimum.reduceat(low_values, starts) < high

    def within(self) -> list[RankedList]:
        """The lists of the queries in this batch: their items that are in it, where two of them differ."""
        rows = np.arange(len(self)) if self.rows is None else self.rows.cpu().numpy()
        root = self.root
        found = root._list_of[np.unique(rows)]
        lists, distances = [], root.label_distances
        for judgment in found[found >= 0].tolist():
            start, end = root.offsets[judgment], root.offsets[judgment + 1]
            positions, values = _position_in(rows, root.members[start:end]), distances[start:end]
            present = positions >= 0
            if len(np.unique(values[present][1:])) > 1:
                parts = (torch.from_numpy(each[present]).to(self.device) for each in (positions, values))
                lists.append(RankedList(*parts))
        return lists

    @cached_property
    def _list_of(self) -> _Integers:
        """The judgment of each item that is a query; -1 for others `[N]`."""
        lists = np.full(len(self), -1)
        lists[self.queries] = np.arange(self.count)
        return lists

    def _renumbered(self, rows: _Integers, items: int) -> Self:
        renumbered = type(self).__new__(type(self))
        JudgedItems.__init__(renumbered, items)
        renumbered.of, renumbered.highest, renumbered.dropped = self.of, self.highest, self.dropped
        renumbered._set(rows[self.members], self.offsets, self.values, self.given)
        return renumbered

    def _answers(self) -> tuple[Any, ...]:
        return (self.values, self.of, self.highest)
