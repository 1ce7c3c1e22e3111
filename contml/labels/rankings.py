"""Judgments of queries: how relevant items are to each.

Label distances are known from a query to its items alone. The training step `RankingStep` trains on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple, Self, TypeAlias

import numpy as np
import torch
from torch import Tensor

from contml._support.conversion import Numbers, as_numbers
from contml._support.errors import InputError
from contml._support.validation import PositiveInt, check_ranges
from contml.labels.base import JudgedPairs
from contml.labels.judged_items import JudgedItems, position_in, refuse_repeated, rows_of, unique_rows

_Integers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
_Floats: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"
_Mask: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"


class RankedList(NamedTuple):
    """The items of one query that are in a batch.

    Attributes:
        positions: of the query and then of its items in the batch `[1 + I]`.
        distances: label distances from the query to these, 0 to itself `[1 + I]`.
    """

    positions: Tensor
    distances: Tensor


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
        rows = rows_of("pairs", pairs, items, "rows of a query and an item [judgments, 2]", 2)
        refuse_repeated("pairs", rows)
        numbers: _Floats = as_numbers("values", values, "numbers [judgments]").double().cpu().numpy()
        if numbers.shape != (len(rows),):
            raise InputError("values", str(list(numbers.shape)), f"must be [{len(rows)}]")
        wrong = np.flatnonzero(~(np.isfinite(numbers) & (numbers >= 0)))
        if len(wrong):
            raise InputError(f"values, row {wrong[0]}", f"{numbers[wrong[0]]:g}", "must be at least 0")
        unique, place = unique_rows(rows)
        mean = np.bincount(place, numbers, len(unique)) / np.bincount(place)
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
            positions, values = position_in(rows, root.members[start:end]), distances[start:end]
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
