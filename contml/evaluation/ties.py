"""Metrics of rankings in which items share places: their expectation when the order among equals is drawn at random.

A metric of one order of the equals (that of storage, say) is an accident: a collapsed embedding would score whatever
the order of the files gives it. The expectation needs no drawing, does not depend on the order of the items, and is
the metric itself where there are no ties. McSherry, Najork: "Computing Information Retrieval Performance Measures
Efficiently in the Presence of Tied Scores", ECIR 2008. Ties are equal float64 distances (`contml.distances.exact`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from contml.distances import ExactDistances

#: Entries of a `[rows, gallery]` block at a time.
_ENTRIES = 1 << 24


@dataclass(frozen=True)
class Ties:
    """Rankings `[c, D]` in which items share places.

    A group of equals may go on beyond the end of a ranking that was cut off: `beyond` items of the last group do.
    """

    rows: Tensor  # [c] which rankings these are
    first: Tensor  # [c,D] the place, from 0, at which the group of a place begins
    after: Tensor  # [c,D] the first place after it
    beyond: Tensor  # [c]

    @property
    def size(self) -> Tensor:
        """How many share each place, `[c, D]`."""
        return self.after - self.first + torch.where(self._last, self.beyond[:, None], 0)

    @property
    def _last(self) -> Tensor:
        return self.after == self.after.shape[1]

    def sums(self, values: Tensor, beyond: Tensor) -> Tensor:
        """Sums over the group of each place `[c, D]` of values `[c, D]`, and of `beyond` `[c]` past the end."""
        inside = prefix_sums(values)
        total = inside.gather(1, self.after) - inside.gather(1, self.first)
        return total + torch.where(self._last, beyond[:, None], 0.0)

    def before(self, values: Tensor) -> Tensor:
        """Sums over the places before the group of each place, `[c, D]`."""
        return prefix_sums(values).gather(1, self.first)


def prefix_sums(values: Tensor) -> Tensor:
    """`[c, D + 1]` in float64: sums of the first 0, 1, ... D values."""
    return torch.nn.functional.pad(values.double().cumsum(1), (1, 0))


def find_ties(distances: Tensor) -> Ties:
    """The rankings with ties among distances `[q, D]`, nearest first; nothing beyond their end."""
    again = distances[:, 1:] == distances[:, :-1]
    rows = again.any(1).nonzero()[:, 0]
    again = torch.nn.functional.pad(again[rows], (1, 0))  # [c,D] as near as the one before
    place = torch.arange(distances.shape[1]).expand_as(again)
    first = torch.where(again, 0, place).cummax(1).values
    ends = torch.nn.functional.pad(~again[:, 1:], (0, 1), value=True)
    after = torch.where(ends, place + 1, distances.shape[1]).flip(1).cummin(1).values.flip(1)
    return Ties(rows, first, after, torch.zeros(len(rows), dtype=torch.int64))


def cut_off(distances: Tensor, ties: Ties) -> Tensor:
    """Which of the tied rankings `[c]` end within a group, as far as one can tell: their last two are equal."""
    distances = distances[ties.rows]
    return (distances[:, -1] == distances[:, -2]).nonzero()[:, 0]


def members_beyond(
    queries: Tensor,
    whole: ExactDistances,
    distances: Tensor,
    positions: Tensor,
    excluded: Callable[[slice], Tensor],
    items: int,
) -> Iterator[tuple[slice, Tensor]]:
    """Which of the gallery `[q, items]` are as far as the last of each ranking, but not in it; in parts of rankings.

    Args:
        queries: embeddings `[q, d]`.
        whole: of the gallery.
        distances: of the rankings `[q, D]`.
        positions: in the gallery, of the rankings `[q, D]`.
        excluded: of some queries, the gallery items that they do not look for, such as themselves: bool `[q, items]`.
        items: length of the gallery.
    """
    step = max(1, _ENTRIES // items)
    for start in range(0, len(queries), step):
        part = slice(start, min(start + step, len(queries)))
        last = distances[part, -1].tolist()
        equal = torch.stack([(whole.of(x) == d).cpu() for x, d in zip(queries[part], last, strict=True)])
        equal.scatter_(1, positions[part], False)
        yield part, equal.masked_fill_(excluded(part), False)
