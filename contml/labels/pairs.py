"""The label space of judged pairs: some pairs of items have a label distance, the others are not known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, Self, TypeAlias

import numpy as np
import torch
from torch import Tensor

from contml._support.conversion import Numbers, as_numbers
from contml._support.errors import InputError
from contml._support.text import MISSING
from contml._support.validation import check_whole
from contml.contracts import JudgedTogether, Measure, Part
from contml.labels.base import JudgedPairs, LabelSpace
from contml.labels.judged_items import JudgedItems

_Mask: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"
_Integers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
_Floats: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"


@dataclass(frozen=True)
class _Graph:
    """The judgments of the root, and the label distances of each of its N items to the others, one item after another.

    Attributes:
        pairs: the items of each judgment `[J, 2]`, the lower one first.
        judged: the distance of each judgment `[J]`, float64.
        starts: where the entries of each item start `[N + 1]`.
        partners: the other item of each entry, ascending for each item `[E]`; an item is its own partner too.
        distances: the mean distance of their judgments `[E]`, float64; 0 to the item itself.
    """

    pairs: Tensor
    judged: Tensor
    starts: Tensor
    partners: Tensor
    distances: Tensor

    def to(self, device: torch.device | str) -> _Graph:
        tensors = (self.pairs, self.judged, self.starts, self.partners, self.distances)
        return _Graph(*(tensor.to(device) for tensor in tensors))

    def entries(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The known entries of the block of the items x `[X]` and y `[Y]`: rows, columns and distances `[K]` each."""
        row, entry = _runs(self.starts[x], self.starts[x + 1])
        ordered, order = y.sort(stable=True)  # an item may be in y twice
        partner = self.partners[entry]
        first, last = torch.searchsorted(ordered, partner), torch.searchsorted(ordered, partner, right=True)
        number, position = _runs(first, last)
        return row[number], order[position], self.distances[entry[number]]


class PairLabels(JudgedItems):
    """Judged pairs: a label distance for some pairs of items, such as ratings of how alike two pictures are.

    `pairwise` is 0 where a pair was not judged, and `known(rows, cols)` says which pairs were. A loss leaves out the
    pairs that were not judged; an anchor without a judged pair in the batch does not count. A pair may be judged
    several times, in either order: its label distance is the mean. What is judged about an item says nothing about new
    items, so labels of other items cannot be added.

    Args:
        pairs: the two items of each judgment `[J, 2]`, as numbers 0 to `items` - 1.
        distances: the judged distance `[J]`, at least 0; of similarities, use `from_similarities`.
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
        self._set(*_checked(pairs, distances, items))
        # What identifies an item, also in a part of the items: its judged distances, without the numbers of the others.
        graph = self._graph
        ends = zip(graph.starts[:-1].tolist(), graph.starts[1:].tolist(), strict=True)
        self._identity = [str(sorted(graph.distances[start:end].tolist())) for start, end in ends]
        if unit:
            self.measure, self.unit = Measure(unit), f"1 {unit} of judged distance"

    @classmethod
    def from_similarities(
        cls, pairs: Numbers, similarities: Numbers, items: int, unit: str = "", *, largest: float | None = None
    ) -> Self:
        """Labels of judged similarities: the distance is the largest similarity minus that of the pair.

        Args:
            pairs: as in the constructor.
            similarities: the judged similarity `[J]`, in any range.
            items: as in the constructor.
            unit: as in the constructor.
            largest: the similarity of equal items, such as 10 on a scale from 0 to 10; default the largest one of the
                judgments.

        Raises:
            InputError: as of the constructor, or a similarity is above `largest`.
        """
        values = as_numbers("similarities", similarities, "numbers [judgments]").double()
        top = float(values.max()) if largest is None and values.numel() else float(largest or 0)
        if values.numel() and not float(values.max()) <= top:
            raise InputError(
                "similarities", f"{float(values.max()):g}", f"must be at most {top:g}, that of equal items"
            )
        return cls(pairs, top - values, items, unit)

    def _set(self, pairs: Tensor, judged: Tensor) -> None:
        """Pack the judgments: the lower item of each pair first `[J, 2]`, and the distances `[J]`."""
        self._graph, found = _graph(pairs, judged, len(self.positions))
        self.members, self.offsets = found.rows.flatten().numpy(), 2 * np.arange(len(found.rows) + 1)

    @property
    def judged(self) -> int:
        """The number of judged pairs of the root."""
        return self.count

    @property
    def contradictions(self) -> int:
        """The number of pairs with judgments that differ."""
        return int((self.root.judged_pairs.spreads > 0).sum())

    def facts(self) -> str:
        """Number of pairs and of their judgments, and the range of the distances."""
        pairs, text = self.judged_pairs, self.measure.text
        if not len(pairs.rows):
            return f"no judged pair{self._left_out()}"
        several = int((pairs.counts > 1).sum())
        counts = "each judged once"
        if several:
            total, differing = int(pairs.counts.sum()), int((pairs.spreads > 0).sum())
            counts = f"{total:,} judgments; {several:,} with several, which differ in {differing:,}"
        low, high = text(float(pairs.distances.min()), unit=False), text(float(pairs.distances.max()))
        return f"{len(pairs.rows):,} judged pairs, {counts}; distances {low} to {high}{self._left_out()}"

    def within(self) -> Tensor:
        """The judged pairs in this batch, as positions `[P, 2]`."""
        return self.judged_pairs.rows

    def as_root(self) -> Self:
        """These items, as a new root, with the judgments among them; an item that is there twice is two items."""
        if self.rows is not None and len(torch.unique(self.rows)) < len(self.rows):
            return LabelSpace.as_root(self)  # the two are at distance 0
        return super().as_root()

    def keep(self, judgments: _Mask) -> Self:
        """The same items with some of the judged pairs."""
        graph, items = self.root._graph, len(self.root)
        rows = self.root.judged_pairs.rows[torch.from_numpy(judgments)]
        kept = torch.isin(graph.pairs[:, 0] * items + graph.pairs[:, 1], rows[:, 0] * items + rows[:, 1])
        return self._of(graph.pairs[kept], graph.judged[kept], items)

    def keep_items(self, items: _Mask) -> Self:
        """All items, with the pairs of which both are among these."""
        graph = self.root._graph
        kept = torch.from_numpy(items)[graph.pairs].all(1)
        return self._of(graph.pairs[kept], graph.judged[kept], len(self.root))

    def _renumbered(self, rows: _Integers, items: int) -> Self:
        pairs = torch.from_numpy(rows)[self._graph.pairs].sort(dim=1).values
        return self._of(pairs, self._graph.judged, items)

    def _of(self, pairs: Tensor, judged: Tensor, items: int) -> Self:
        """These judgments as a new root, with the words of this one."""
        made = type(self).__new__(type(self))
        JudgedItems.__init__(made, items)
        made._set(pairs, judged)
        made.unit, made.measure, made.title = self.unit, self.measure, self.title
        if items == len(self.root):
            made._texts, made._identity = self.root._texts, self.root._identity
        return made

    def _answers(self) -> tuple[Any, ...]:
        return (self._graph.pairs, self._graph.judged)

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
        graph, items = self.root._graph, len(self.root)
        keys = (graph.pairs[:, 0] * items + graph.pairs[:, 1]).cpu()
        return graph.judged.cpu().numpy(), torch.unique(keys, return_inverse=True)[1].numpy()

    def judged_together(self) -> JudgedTogether:
        """Each judged item with all others that it was judged with: every pair is in two groups."""
        rows = self.judged_pairs.rows
        own = torch.unique(rows)
        head, other = (torch.cat(each) for each in ((own, rows[:, 0], rows[:, 1]), (own, rows[:, 1], rows[:, 0])))
        order = (head * 2 + (head != other)).argsort(stable=True)
        starts = torch.searchsorted(head[order].contiguous(), torch.cat((own, own.new_full((1,), len(self)))))
        return JudgedTogether(other[order], starts, whole=False)

    def distances(self, x: Self, y: Self) -> Tensor:
        """Mean judged distances `[X, Y]` in float64; 0 for pairs that were not judged."""
        out = torch.zeros(len(x), len(y), dtype=torch.float64, device=self.device)
        rows, cols, distances = self._graph.entries(x.positions, y.positions)
        out[rows, cols] = distances
        return out

    def _known(self, x: Self, y: Self) -> Tensor:
        out = torch.zeros(len(x), len(y), dtype=torch.bool, device=self.device)
        rows, cols, _ = self._graph.entries(x.positions, y.positions)
        out[rows, cols] = True
        return out

    def to(self, device: torch.device | str) -> Self:
        """The same labels on another device."""
        moved = super().to(device)
        moved._graph = self._graph.to(device)
        return moved

    def parts(self, a: int, b: int) -> list[Part]:
        """The judged distance of two items, and how often they were judged."""
        low, high = sorted(self.positions[[a, b]].tolist())
        judged = self._graph.judged[(self._graph.pairs == torch.tensor([low, high], device=self.device)).all(1)]
        if not len(judged):
            return [Part(self.title, "", "", "not judged" if a != b else MISSING)]
        count = "1 judgment" if len(judged) == 1 else f"{len(judged)} judgments"
        return [Part(self.title, "", "", f"{self.measure.text(float(judged.mean()))}, {count}")]

    def arguments(self) -> dict[str, Any]:
        """The judgments of these items, their number and the unit."""
        pairs, distances = self._own_judgments()
        return {"pairs": pairs, "distances": distances, "items": len(self), "unit": self.measure.unit}

    def joined(self, other: LabelSpace) -> NoReturn:  # noqa: ARG002
        """Refused: no pair of an item of this space and one of the other was judged."""
        raise InputError("labels", "two sets of judged pairs", "must be one of all items")

    def item(self, label: Any) -> NoReturn:
        """Refused: a new item has no judged pair."""
        raise InputError(self.title, f"{label!r:.60}", "a judged pair is no label of one item and cannot be typed")

    def _own_judgments(self) -> tuple[Tensor, Tensor]:
        """The judgments of two items of this space: rows `[J, 2]` and distances `[J]`."""
        graph = self._graph
        row_of = torch.full((len(graph.starts) - 1,), -1, device=self.device)
        row_of[self.positions] = torch.arange(len(self), device=self.device)
        pairs = row_of[graph.pairs]
        own = (pairs >= 0).all(1)
        return pairs[own].sort(dim=1).values, graph.judged[own]

    def _contents(self) -> str:
        return f"{len(self.judged_pairs.rows):,} judged pairs; unit: {self.unit}"


def _checked(pairs: Numbers, distances: Numbers, items: int) -> tuple[Tensor, Tensor]:
    """Pairs `[J, 2]` in int64 and distances `[J]` in float64, on the CPU.

    Raises:
        InputError: they are something else, there is none, an item does not exist, or is paired with itself.
    """
    rows = as_numbers("pairs", pairs, "item numbers [judgments, 2]").cpu()
    values = as_numbers("distances", distances, "numbers [judgments]").cpu().double()
    if rows.ndim != 2 or rows.shape[1:] != (2,) or rows.is_floating_point() or rows.dtype == torch.bool:
        raise InputError("pairs", f"{rows.dtype} {list(rows.shape)}", "must be item numbers [judgments, 2]")
    if values.shape != rows.shape[:1]:
        raise InputError("distances", str(list(values.shape)), f"must be [{len(rows)}], one for each pair")
    if not len(rows):
        raise InputError("pairs", "no judged pair", "must be at least 1")
    rows = rows.long()
    for wrong, allowed in (
        (((rows < 0) | (rows >= items)).any(1), f"must be items 0 to {items - 1}"),
        (rows[:, 0] == rows[:, 1], "must be two items"),
    ):
        if bool(wrong.any()):
            n = int(wrong.nonzero()[0, 0])
            raise InputError(f"pair {n}", str(rows[n].tolist()), allowed)
    if bool((wrong := ~(values.isfinite() & (values >= 0))).any()):
        n = int(wrong.nonzero()[0, 0])
        hint = "of similarities, use PairLabels.from_similarities" if float(values[n]) < 0 else ""
        raise InputError(f"distance of pair {n}", f"{float(values[n]):g}", "must be a finite number, at least 0", hint)
    return rows.sort(dim=1).values, values


def _averaged(pairs: Tensor, distances: Tensor, items: int) -> JudgedPairs:
    """The judgments of pairs `[J, 2]`, the lower item first, of each pair together."""
    keys, pair_of = torch.unique(pairs[:, 0] * items + pairs[:, 1], return_inverse=True)
    zeros = distances.new_zeros(len(keys))
    counts = zeros.index_add(0, pair_of, torch.ones_like(distances))
    means = zeros.index_add(0, pair_of, distances) / counts
    squares = zeros.index_add(0, pair_of, (distances - means[pair_of]).square())
    rows = torch.stack((keys // items, keys % items), 1)
    return JudgedPairs(rows, means, counts.long(), (squares / (counts - 1)).sqrt())


def _graph(pairs: Tensor, judged: Tensor, items: int) -> tuple[_Graph, JudgedPairs]:
    found = _averaged(pairs, judged, items)
    rows, means = found.rows, found.distances
    own = torch.arange(items)
    a, b = torch.cat((own, rows[:, 0], rows[:, 1])), torch.cat((own, rows[:, 1], rows[:, 0]))
    order = (a * items + b).argsort()
    starts = torch.searchsorted(a[order].contiguous(), torch.arange(items + 1))
    distances = torch.cat((means.new_zeros(items), means, means))
    return _Graph(pairs, judged, starts, b[order], distances[order]), found


def _runs(first: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
    """The whole numbers from first to below last of each run `[R]`, one run after another: run and number `[K]`."""
    sizes = last - first
    run = torch.repeat_interleave(torch.arange(len(sizes), device=sizes.device), sizes)
    before = sizes.cumsum(0) - sizes
    return run, torch.arange(len(run), device=sizes.device) - before[run] + first[run]
