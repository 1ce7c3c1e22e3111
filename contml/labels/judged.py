"""Judgments between items in place of labels: of pairs, of triplets, and of the items of a query.

Judgments are used in place of labels (`Split.labels`, `labels[rows]`). But the label distance of two items is not
known, or is known only for judged pairs:

    PairLabels      the distance of two items: some pairs have a label distance, the others are not known
    TripletLabels   the nearer of two items to a third, or the odd one out of three; no label distance of two items is
                    known; the training step `TripletStep` trains on them
    RankingLabels   the relevance of items to a query: label distances are known only from a query to its items; the
                    training step `RankingStep` trains on them
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, NoReturn, Self, TypeAlias

import numpy as np
import torch
from torch import Tensor

from contml._support.conversion import Numbers, as_numbers
from contml._support.errors import InputError
from contml._support.fingerprints import fingerprint
from contml._support.packed import taken
from contml._support.text import MISSING
from contml._support.validation import PositiveInt, check_ranges, check_whole
from contml.contracts import JudgedTogether, Measure, Part
from contml.labels.base import JudgedPairs, LabelSpace
from contml.labels.items import ItemLabels

_Integers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
_Mask: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"
_Floats: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"


class JudgedItems(LabelSpace):
    """Base of the judgments: items without labels, and judgments of several items each.

    `labels[rows]` is a batch: it has the judgments of the root whose items are in the batch. `as_root()` of a batch, as
    in `Split.subset`, keeps only these judgments.

    Attributes:
        whole: True if a judgment counts only if all of its items are in a batch.
        members: the rows of the items of all judgments, one judgment after the other `[M]`.
        offsets: the position in `members` at which each judgment begins, and M `[J + 1]`.
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
    def judged(self) -> int:
        """The number of judged pairs, of triplets, or of pairs of a query and an item, of the root."""
        return self.count

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
        """Return the items of each judgment of the root. The anchor or the query is the first."""
        rows, starts = torch.from_numpy(self.members), torch.from_numpy(self.offsets)
        return JudgedTogether(rows, starts, whole=self.whole)

    @abstractmethod
    def keep(self, judgments: _Mask) -> Self:
        """Return the same items with some of the judgments, bool `[J]`, as a new root."""

    @abstractmethod
    def keep_items(self, items: _Mask) -> Self:
        """Return all items, with judgments only of the items where `items`, bool `[N]`, is True."""

    def _without_judgments(self, items: int) -> Self:
        """Return a space of this kind of so many items, whose judgments are set later."""
        made = type(self).__new__(type(self))
        JudgedItems.__init__(made, items)
        return made

    @abstractmethod
    def _renumbered(self, rows: _Integers, items: int) -> Self:
        """Return the judgments with new row numbers. `rows` `[N]` are the new numbers of the items, below `items`."""

    @abstractmethod
    def facts(self) -> str:
        """Return a description of the judgments, for `contml check`."""

    @abstractmethod
    def within(self) -> Sized:
        """Return the judgments whose items are in this batch."""

    def _places(self) -> _Integers:
        """Return the first position in this batch of each item of the root `[N]`.

        Return -1 for an item outside the batch.
        """
        rows = np.arange(len(self)) if self.rows is None else self.rows.cpu().numpy()
        places = np.full(len(self.root), -1)
        places[rows[::-1]] = np.arange(len(rows))[::-1]
        return places

    def _left_out(self) -> str:
        return f"; {self.left_out:,} left out, whose items are in two parts of the split" if self.left_out else ""

    def judgment_names(self, names: Sequence[str]) -> list[str]:
        """Return a name of each judgment `[J]`: the names of its items.

        A split assigns a judgment to the training, validation or test part by this name.
        """
        flat = [names[row] for row in self.members.tolist()]
        return ["\t".join(flat[a:b]) for a, b in zip(self.offsets[:-1], self.offsets[1:], strict=True)]

    def as_root(self) -> Self:
        """Return these items, as a new root, with the judgments among them."""
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
        """Refuse label distances: most pairs have no judgment.

        Raises:
            InputError: always.
        """
        hint = "use a training step and a sampler for judgments"
        raise InputError(type(self).__name__, "no label distances of items, only judgments", hint=hint)

    def fingerprint(self) -> str:
        """Return a hash of the judgments and of the items."""
        return fingerprint(type(self), self.members, self.offsets, self.positions, *self._answers())

    @abstractmethod
    def _answers(self) -> tuple[Any, ...]:
        """Return the answers of the judgments, for the fingerprint and the digests."""

    def _item_contents(self) -> list[bytes]:
        """Return the judgments of each item as bytes, by the rows of the root."""
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


def rows_of(name: str, values: Numbers, items: int, shape: str, columns: int) -> _Integers:
    """Convert row numbers to int64 `[.., columns]`.

    Raises:
        InputError: the shape is another one, or an item does not exist.
    """
    rows = as_numbers(name, values, shape)
    is_whole = not rows.is_floating_point() and rows.dtype != torch.bool
    if rows.ndim != 2 or rows.shape[1] != columns or not is_whole or not len(rows):
        raise InputError(name, f"{rows.dtype} {list(rows.shape)}", f"must be {shape}, at least one")
    array: _Integers = rows.long().cpu().numpy()
    for n in np.flatnonzero(((array < 0) | (array >= items)).any(1)):
        raise InputError(f"{name}, row {n}", str(array[n].tolist()), f"must be items 0 to {items - 1}")
    return array


def refuse_repeated(name: str, rows: _Integers) -> None:
    """Refuse a judgment that has an item twice."""
    ordered = np.sort(rows, axis=1)
    for n in np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(1)):
        raise InputError(f"{name}, row {n}", str(rows[n].tolist()), "must be different items")


def judged_numbers(name: str, values: Numbers, rows: _Integers, hint: str = "") -> _Floats:
    """Return the number of each judgment `[A]` in float64.

    Args:
        name: the subject of errors.
        values: the numbers.
        rows: the items of each judgment `[A, m]`.
        hint: the hint of the error if a number is below 0.

    Raises:
        InputError: the shape is another one, or a number is negative or not finite.
    """
    numbers: _Floats = as_numbers(name, values, "numbers [judgments]").double().cpu().numpy()
    if numbers.shape != (len(rows),):
        raise InputError(name, str(list(numbers.shape)), f"must be [{len(rows)}], one for each judgment")
    for n in np.flatnonzero(~(np.isfinite(numbers) & (numbers >= 0))):
        allowed = "must be a finite number, at least 0"
        raise InputError(f"{name}, row {n}", f"{numbers[n]:g}", allowed, hint if numbers[n] < 0 else "")
    return numbers


class PairLabels(JudgedItems, ItemLabels):
    """Judged pairs: a label distance for some pairs of items, such as ratings of how alike two pictures are.

    `pairwise` is 0 for a pair that was not judged, and `known(rows, cols)` marks the judged pairs. A loss leaves out
    the pairs that were not judged. An anchor without a judged pair in the batch does not count. A pair may be judged
    several times, in either order: its label distance is the mean. Judgments do not extend to new items, so labels of
    other items cannot be added.

    Args:
        pairs: the two items of each judgment `[J, 2]`, as numbers 0 to `items` - 1.
        distances: the judged distance `[J]`, at least 0; for similarities, use `from_similarities`.
        items: the number of items; some may be in no pair.
        unit: the unit of the judgments, such as "points".
    """

    title = "judged distance"
    unit = "judged distance"
    whole = False
    item_arguments: ClassVar[Mapping[str, Any]] = {"pairs": Tensor, "distances": Tensor}
    option_arguments: ClassVar[Mapping[str, Any]] = {"items": int, "unit": str}
    positions: Tensor

    def __init__(self, pairs: Numbers, distances: Numbers, items: int, unit: str = "") -> None:
        check_whole(2, items=items)
        super().__init__(items)
        rows = rows_of("pairs", pairs, items, "item numbers [judgments, 2]", 2)
        refuse_repeated("pairs", rows)
        judged = judged_numbers("distances", distances, rows, "of similarities, use PairLabels.from_similarities")
        self._set(torch.from_numpy(rows).sort(dim=1).values, torch.from_numpy(judged))
        # An item is identified by its judged distances, also in a part of the items. Row numbers of others may change.
        judged_of: list[list[float]] = [[0.0] for _ in range(items)]
        for pair, distance in zip(self._means.rows.tolist(), self._means.distances.tolist(), strict=True):
            for row in pair:
                judged_of[row].append(distance)
        self._identity = [str(sorted(each)) for each in judged_of]
        if unit:
            self.measure, self.unit = Measure(unit), f"1 {unit} of judged distance"

    @classmethod
    def from_similarities(
        cls, pairs: Numbers, similarities: Numbers, items: int, unit: str = "", *, largest: float | None = None
    ) -> Self:
        """Make labels from judged similarities: the distance of a pair is the largest similarity minus its similarity.

        Args:
            pairs: as in the constructor.
            similarities: the judged similarity `[J]`, in any range.
            items: as in the constructor.
            unit: as in the constructor.
            largest: the similarity of equal items, such as 10 on a scale from 0 to 10; default the largest one of the
                judgments.

        Raises:
            InputError: as in the constructor, or a similarity is above `largest`.
        """
        values = as_numbers("similarities", similarities, "numbers [judgments]").double()
        top = float(values.max()) if largest is None and values.numel() else float(largest or 0)
        if values.numel() and not float(values.max()) <= top:
            allowed = f"must be at most {top:g}, that of equal items"
            raise InputError("similarities", f"{float(values.max()):g}", allowed)
        return cls(pairs, top - values, items, unit)

    def _set(self, pairs: Tensor, judged: Tensor) -> None:
        """Pack the judgments of all items: the lower item of each pair first `[J, 2]`, and the distances `[J]`."""
        self._pairs, self._judged, self._items = pairs, judged, len(self.positions)
        self._means = _averaged(pairs, judged, self._items)
        rows = self._means.rows
        self._keys = torch.cat((rows[:, 0] * self._items + rows[:, 1], torch.tensor([self._items**2])))  # ascending
        self.members, self.offsets = rows.flatten().numpy(), 2 * np.arange(len(rows) + 1)

    @property
    def contradictions(self) -> int:
        """The number of pairs with judgments that differ."""
        return int((self.root.judged_pairs.spreads > 0).sum())

    def facts(self) -> str:
        """Return the number of pairs and of their judgments, and the range of the distances, as text."""
        pairs, text = self.judged_pairs, self.measure.text
        if not len(pairs.rows):
            return f"no judged pair{self._left_out()}"
        counts = "each judged once"
        if several := int((pairs.counts > 1).sum()):
            total, differing = int(pairs.counts.sum()), int((pairs.spreads > 0).sum())
            counts = f"{total:,} judgments; {several:,} with several, which differ in {differing:,}"
        low, high = text(float(pairs.distances.min()), unit=False), text(float(pairs.distances.max()))
        return f"{len(pairs.rows):,} judged pairs, {counts}; distances {low} to {high}{self._left_out()}"

    def within(self) -> Tensor:
        """Return the judged pairs in this batch, as positions `[P, 2]`."""
        return self.judged_pairs.rows

    def as_root(self) -> Self:
        """Return these items, as a new root, with the judgments among them.

        An item that appears in two rows becomes two items.
        """
        if self.rows is not None and len(torch.unique(self.rows)) < len(self.rows):
            return LabelSpace.as_root(self)  # the two are at distance 0
        return super().as_root()

    def keep(self, judgments: _Mask) -> Self:
        """Return the same items with some of the judged pairs."""
        items = self._items
        rows = self.root.judged_pairs.rows[torch.from_numpy(judgments)]
        kept = torch.isin(self._pairs[:, 0] * items + self._pairs[:, 1], rows[:, 0] * items + rows[:, 1])
        return self._of(self._pairs[kept], self._judged[kept], items)

    def keep_items(self, items: _Mask) -> Self:
        """Return all items, with the pairs whose two items are among `items`."""
        kept = torch.from_numpy(items)[self._pairs].all(1)
        return self._of(self._pairs[kept], self._judged[kept], self._items)

    def _renumbered(self, rows: _Integers, items: int) -> Self:
        return self._of(torch.from_numpy(rows)[self._pairs].sort(dim=1).values, self._judged, items)

    def _of(self, pairs: Tensor, judged: Tensor, items: int) -> Self:
        """Return these judgments as a new root, with the unit and title of this one."""
        made = self._without_judgments(items)
        made._set(pairs, judged)
        made.unit, made.measure, made.title = self.unit, self.measure, self.title
        if items == len(self.root):
            made._texts, made._identity = self.root._texts, self.root._identity
        return made

    def _answers(self) -> tuple[Any, ...]:
        return (self._pairs, self._judged)

    @property
    def is_partial(self) -> bool:
        """True: only judged pairs have a label distance."""
        return True

    @property
    def judged_pairs(self) -> JudgedPairs:
        """The judged pairs of these items, each once."""
        pairs, distances = self._own_judgments()
        return _averaged(pairs, distances, len(self))

    @property
    def given(self) -> tuple[_Floats, _Integers]:
        """The distance of each judgment of the root `[A]`, and the number of its judged pair."""
        keys = (self._pairs[:, 0] * self._items + self._pairs[:, 1]).cpu()
        return self._judged.cpu().numpy(), torch.unique(keys, return_inverse=True)[1].numpy()

    def judged_together(self) -> JudgedTogether:
        """Return each judged item with all others that it was judged with. Every pair is in two groups."""
        rows = self.judged_pairs.rows
        own = torch.unique(rows)
        head, other = (torch.cat(each) for each in ((own, rows[:, 0], rows[:, 1]), (own, rows[:, 1], rows[:, 0])))
        order = (head * 2 + (head != other)).argsort(stable=True)
        starts = torch.searchsorted(head[order].contiguous(), torch.cat((own, own.new_full((1,), len(self)))))
        return JudgedTogether(other[order], starts, whole=False)

    def distances(self, x: Self, y: Self) -> Tensor:
        """Return mean judged distances `[X, Y]` in float64. Pairs that were not judged have 0."""
        place, is_judged = self._lookup(x, y)
        means = self._means.distances
        return torch.cat((means, means.new_zeros(1)))[place] * is_judged

    def _known(self, x: Self, y: Self) -> Tensor:
        return self._lookup(x, y)[1] | (x.positions[:, None] == y.positions)

    def _lookup(self, x: Self, y: Self) -> tuple[Tensor, Tensor]:
        """Return the place of each pair `[X, Y]` among the judged pairs, and True if it is one of them."""
        a, b = x.positions[:, None], y.positions
        keys = torch.minimum(a, b) * self._items + torch.maximum(a, b)
        place = torch.searchsorted(self._keys, keys)
        return place, self._keys[place] == keys

    def to(self, device: torch.device | str) -> Self:
        """Return the same labels on another device."""
        moved = super().to(device)
        moved._pairs, moved._judged, moved._keys = (each.to(device) for each in (self._pairs, self._judged, self._keys))
        moved._means = JudgedPairs(*(each.to(device) for each in self._means))
        return moved

    def parts(self, a: int, b: int) -> list[Part]:
        """Return the judged distance of two items, and the number of judgments."""
        low, high = sorted(self.positions[[a, b]].tolist())
        judged = self._judged[(self._pairs == torch.tensor([low, high], device=self.device)).all(1)]
        if not len(judged):
            return [Part(self.title, "", "", "not judged" if a != b else MISSING)]
        count = "1 judgment" if len(judged) == 1 else f"{len(judged)} judgments"
        return [Part(self.title, "", "", f"{self.measure.text(float(judged.mean()))}, {count}")]

    def arguments(self) -> dict[str, Any]:
        """Return the judgments of these items, the number of items and the unit."""
        pairs, distances = self._own_judgments()
        return {"pairs": pairs, "distances": distances, "items": len(self), "unit": self.measure.unit}

    def joined(self, other: LabelSpace) -> NoReturn:  # noqa: ARG002
        """Refuse to join: no pair of an item of this space and an item of the other was judged."""
        raise InputError("labels", "two sets of judged pairs", "must be one of all items")

    def item(self, label: Any) -> NoReturn:
        """Refuse a new label: a new item has no judged pair."""
        raise InputError(self.title, f"{label!r:.60}", "a judged pair is no label of one item and cannot be typed")

    def _own_judgments(self) -> tuple[Tensor, Tensor]:
        """Return the judgments of two items of this space: rows `[J, 2]` and distances `[J]`."""
        row_of = torch.full((self._items,), -1, device=self.device)
        row_of[self.positions] = torch.arange(len(self), device=self.device)
        pairs = row_of[self._pairs]
        own = (pairs >= 0).all(1)
        return pairs[own].sort(dim=1).values, self._judged[own]

    def _contents(self) -> str:
        return f"{len(self.judged_pairs.rows):,} judged pairs; unit: {self.unit}"


def _averaged(pairs: Tensor, distances: Tensor, items: int) -> JudgedPairs:
    """Average the judgments of each pair. Pairs are `[J, 2]`, the lower item first."""
    keys, pair_of = torch.unique(pairs[:, 0] * items + pairs[:, 1], return_inverse=True)
    zeros = distances.new_zeros(len(keys))
    counts = zeros.index_add(0, pair_of, torch.ones_like(distances))
    means = zeros.index_add(0, pair_of, distances) / counts
    squares = zeros.index_add(0, pair_of, (distances - means[pair_of]).square())
    rows = torch.stack((keys // items, keys % items), 1)
    return JudgedPairs(rows, means, counts.long(), (squares / (counts - 1)).sqrt())


#: The pair of items that is more alike by each answer. Two answers: x or y is nearer to the anchor. Three answers: the
#: first, second or third item is the odd one out.
ANSWER_PAIRS: dict[int, tuple[tuple[int, int], ...]] = {2: ((0, 1), (0, 2)), 3: ((1, 2), (0, 2), (0, 1))}


@dataclass(frozen=True)
class BatchTriplets:
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
    """Judgments of three items: the one of x and y that is nearer to an anchor, or the odd one out of three items.

    Rows of the same three items (and the same anchor) are one triplet, with the number of judges who gave each answer.

    Args:
        triplets: rows of the items `[A, 3]`: anchor, x and y; or three items in any order.
        answers: the answer of each row `[A]`: 0 for x and 1 for y; or 0, 1 or 2, the position of the odd one out. Or
            the number of judges who gave each answer: `[A, 2]` or `[A, 3]`.
        items: number of items.
        odd_one_out: True if an answer `[A]` is the position of the odd one out.

    Attributes:
        triplets: the items of each triplet `[T, 3]`.
        counts: number of judges who gave each answer `[T, 2]` or `[T, 3]`. `ANSWER_PAIRS` holds the pair of items that
            each answer makes more alike.

    Raises:
        InputError: an item does not exist or is twice in a triplet, or an answer has another value.
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
        # Items are sorted, so that repeats are found: x before y, or all three ascending.
        moved = 0 if counts.shape[1] == 3 else 1
        order = np.argsort(rows[:, moved:], axis=1)
        rows = np.concatenate((rows[:, :moved], np.take_along_axis(rows[:, moved:], order, axis=1)), axis=1)
        counts = np.take_along_axis(counts, order, axis=1)
        self.triplets, place = np.unique(rows, axis=0, return_inverse=True)
        place = place.reshape(-1)  # numpy 2.0 gives it another shape
        summed = [np.bincount(place, column, len(self.triplets)) for column in counts.T]
        self._set(self.triplets, np.stack(summed, axis=1))

    def _set(self, triplets: _Integers, counts: _Floats) -> None:
        self.triplets, self.counts = triplets, counts
        self.members, self.offsets = triplets.ravel(), 3 * np.arange(len(triplets) + 1)
        self.__dict__.pop("_index", None)  # of other triplets

    @property
    def contradictions(self) -> int:
        """The number of triplets whose judges do not all give one answer."""
        return int(((self.counts > 0).sum(1) > 1).sum())

    @property
    def shares(self) -> _Floats:
        """Share of the judges who gave each answer `[T, 2]` or `[T, 3]`."""
        return self.counts / self.counts.sum(1, keepdims=True)

    def facts(self) -> str:
        """Return the number of triplets, their form, and the judges, as text."""
        form = "an anchor, and which of two is nearer" if self.counts.shape[1] == 2 else "the odd one out of three"
        judges, repeated = self.counts.sum(), int((self.counts.sum(1) > 1).sum())
        answers = f"{judges:,.0f} answers; {repeated:,} with several answers, which differ in {self.contradictions:,}"
        return f"{self.count:,} triplets ({form}), {answers if repeated else 'one answer each'}{self._left_out()}"

    def keep(self, judgments: _Mask) -> Self:
        """Return the same items with some of the triplets."""
        root = super(JudgedItems, self).as_root()
        root._set(self.triplets[judgments], self.counts[judgments])
        return root

    def keep_items(self, items: _Mask) -> Self:
        """Return all items, with the triplets whose three items are among `items`."""
        return self.root.keep(np.all(items[self.root.triplets], axis=1))

    def within(self) -> BatchTriplets:
        """Return the triplets of the root whose three items are in this batch."""
        root, places = self.root, self._places()
        by_item, starts = root._index
        candidates = by_item[_slices(starts, np.flatnonzero(places >= 0))]
        positions = places[root.triplets[candidates]]
        whole = (positions >= 0).all(1)
        shares = root.counts[candidates[whole]]
        shares = shares / shares.sum(1, keepdims=True)
        return BatchTriplets(*(torch.from_numpy(each).to(self.device) for each in (positions[whole], shares)))

    @cached_property
    def _index(self) -> tuple[_Integers, _Integers]:
        """The triplets sorted by their rarest item: their numbers, and the position at which each item begins."""
        degree = np.bincount(self.members, minlength=len(self))
        rarest = np.take_along_axis(self.triplets, degree[self.triplets].argmin(1)[:, None], axis=1)[:, 0]
        starts = np.concatenate(([0], np.bincount(rarest, minlength=len(self)).cumsum()))
        return np.argsort(rarest, kind="stable"), starts

    def _renumbered(self, rows: _Integers, items: int) -> Self:
        renumbered = self._without_judgments(items)
        renumbered._set(rows[self.triplets], self.counts)
        return renumbered

    def _answers(self) -> tuple[Any, ...]:
        return (self.counts,)


def _slices(starts: _Integers, rows: _Integers) -> _Integers:
    """Return the entries `starts[row]` to `starts[row + 1]` of some rows, one after the other."""
    counts = starts[rows + 1] - starts[rows]
    return np.repeat(starts[rows] - counts.cumsum() + counts, counts) + np.arange(counts.sum())


def _counts(answers: Tensor, rows: _Integers) -> _Floats:
    """Return answers `[A]`, or counts of answers `[A, 2]` or `[A, 3]`, in float64."""
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


class RankedList(NamedTuple):
    """The items of one query that are in a batch.

    Attributes:
        positions: positions of the query and then of its items in the batch `[1 + I]`.
        distances: label distances from the query to these items, 0 to itself `[1 + I]`.
    """

    positions: Tensor
    distances: Tensor


class RankingLabels(JudgedItems):
    """Queries with the items that were judged for each, and their relevance to the query.

    Rows of the same query and item become one row with the mean of their values. A query needs two items with different
    values.

    Args:
        pairs: rows of a query and of an item `[A, 2]`.
        values: the value of each row `[A]`: a grade of at least 0, higher is more relevant; or a distance.
        items: number of items; queries are items too.
        of: the type of the values: "grade" or "distance".
        missing: what to do with queries without two items of different values: "refuse", or "drop" and count them.

    Attributes:
        dropped: number of queries that `missing` dropped.
        values: the values of the `members` `[M]`, 0 for a query itself. A judgment is a query and then its items.
        highest: the largest value: the label distance of a grade is `(highest - grade) / highest`.
        given: the value of each judgment `[A]`, and its position in `members`.

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
        numbers = judged_numbers("values", values, rows)
        unique, place = np.unique(rows, axis=0, return_inverse=True)
        place = place.reshape(-1)
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
        """Return the name of each query `[J]`: a list that gets an item stays in its part of a split."""
        return [names[row] for row in self.queries.tolist()]

    @cached_property
    def label_distances(self) -> _Floats:
        """The label distances from the query to each of the `members`, `[M]`.

        They are `(highest - grade) / highest`, or the given distances.
        """
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
        """Return the number of queries and of their items, and the range of the values, as text."""
        sizes = np.diff(self.offsets) - 1
        items = np.ones(len(self.members), dtype=bool)
        items[self.offsets[:-1]] = False
        low, high = self.values[items].min(), self.values[items].max()
        fewest, most = sizes.min(), sizes.max()
        each = f"{most:,} items each" if fewest == most else f"{fewest:,} to {most:,} items"
        lists = f"{self.count:,} {'query' if self.count == 1 else 'queries'} with {each}, {sizes.sum():,} in all"
        values = f"{self.of}s {low:g} to {high:g}"
        values += f"; {self.contradictions:,} pairs have values that differ" if self.contradictions else ""
        if self.dropped:
            values += f"; {self.dropped:,} queries dropped, without two items of different {self.of}s"
        return f"{lists}; {values}{self._left_out()}"

    def keep(self, judgments: _Mask) -> Self:
        """Return the same items with the lists of some of the queries."""
        return self._with_members(judgments[self.judgment_of])

    def keep_items(self, items: _Mask) -> Self:
        """Return all items, with the lists of the queries among `items`, without the other items."""
        root = self.root
        inside = items[root.members]
        has_query = inside[root.offsets[:-1]]
        return root._with_members(inside & has_query[root.judgment_of])

    def _with_members(self, kept: _Mask) -> Self:
        """Return the lists with some of their members. Lists without two different values are omitted."""
        root = super(JudgedItems, self).as_root()
        root._choose(kept)
        whole = root._informative()
        if not whole.all():
            root._choose(whole[root.judgment_of])
        return root

    def _choose(self, kept: _Mask) -> None:
        """Keep the members where `kept` is True, and the queries with such members."""
        sizes = np.unique(self.judgment_of[kept], return_counts=True)[1]
        offsets, (numbers, position) = np.concatenate(([0], sizes.cumsum())), self.given
        given = numbers[kept[position]], (kept.cumsum() - 1)[position[kept[position]]]
        self._set(self.members[kept], offsets, self.values[kept], given)

    def _informative(self) -> _Mask:
        """Return True for queries that have two items with different values, bool `[J]`."""
        if not self.count:
            return np.zeros(0, dtype=bool)
        starts = self.offsets[:-1]
        high = np.maximum.reduceat(self.values, starts)
        low_values = self.values.copy()
        low_values[starts] = np.inf  # the query itself
        return np.minimum.reduceat(low_values, starts) < high

    def within(self) -> list[RankedList]:
        """Return the lists of the queries in this batch: their items in the batch, if two of them differ."""
        root, places = self.root, self._places()
        found = root._list_of[places >= 0]
        lists, distances = [], root.label_distances
        for judgment in found[found >= 0].tolist():
            start, end = root.offsets[judgment], root.offsets[judgment + 1]
            positions, values = places[root.members[start:end]], distances[start:end]
            present = positions >= 0
            if len(np.unique(values[present][1:])) > 1:
                parts = (torch.from_numpy(each[present]).to(self.device) for each in (positions, values))
                lists.append(RankedList(*parts))
        return lists

    @cached_property
    def _list_of(self) -> _Integers:
        """The judgment of each item that is a query, and -1 for other items, `[N]`."""
        lists = np.full(len(self), -1)
        lists[self.queries] = np.arange(self.count)
        return lists

    def _renumbered(self, rows: _Integers, items: int) -> Self:
        renumbered = self._without_judgments(items)
        renumbered.of, renumbered.highest, renumbered.dropped = self.of, self.highest, self.dropped
        renumbered._set(rows[self.members], self.offsets, self.values, self.given)
        return renumbered

    def _answers(self) -> tuple[Any, ...]:
        return (self.values, self.of, self.highest)
