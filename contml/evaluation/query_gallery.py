"""Queries and the gallery that they search: which items a query may find, and rankings by exact embedding distance.

Several processes divide queries and gallery (`contml.processes.Shares`). Each ranks the gallery for its own queries: it
sees the embeddings of the other processes one block after the other, and holds those of its own and one block.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from contml._support.errors import InputError
from contml.distances import ExactDistances, nearest_vectors, squared_distances_of
from contml.distances._compiled import rows_in_threads
from contml.distances.vectors import Nearest, Ranked, ranked_vectors
from contml.evaluation.inputs import check_embeddings
from contml.processes import Shares, places

#: Entries of a `[queries, places]` or `[queries, gallery]` block at a time.
_ENTRIES = 1 << 23
#: Entries of a `[queries, gallery]` block for which all processes look at the gallery together.
_ROUND = 1 << 25


def search_device(device: torch.device | str) -> torch.device:
    """The device that searches data on `device`: the same if it is CUDA, else the CPU (others have no float64)."""
    return torch.device(device if torch.device(device).type == "cuda" else "cpu")


class Baselines(NamedTuple):
    """The oracle's ranking of some queries, and the expectation of a random one."""

    positions: Tensor  # [q,k]
    label_distances: Tensor  # [q,k]
    mean_distance: Tensor  # [q] float64
    mean_gain: Tensor  # [q] float64


class Block:
    """A block of the gallery: its positions `[b]`, ascending, and embeddings `[b, d]`; `items` of the whole gallery."""

    def __init__(self, positions: Tensor, vectors: Tensor, items: int) -> None:
        self.positions, self.vectors, self._items = positions, vectors, items

    @cached_property
    def exact(self) -> ExactDistances:
        """Distances to the block."""
        return ExactDistances(self.vectors)

    @cached_property
    def place(self) -> Tensor:
        """The row in the block of each position in the gallery, or -1; the last entry, for position -1, is -1."""
        return places(self.positions, self._items + 1)


class QueryGallery:
    """Embeddings of queries and gallery, checked; a query never finds itself, nor an item of its own group.

    All processes call the methods that look at the gallery, in the same order: `blocks`, `nearest`, `tied_beyond`,
    `ranked` and `distances`.

    Args:
        queries: embeddings `[q, d]` of the queries of this process; of one process: of all.
        gallery: embeddings `[g, d]` of the gallery items of this process.
        self_index: position of each query in the gallery `[Q]`, or -1.
        groups: the groups of the queries `[Q]` and of the gallery `[G]`; None: a query excludes only itself.
        device: where to search, the CPU or a CUDA device.
        shares: how queries and gallery are divided between processes; None: this one has all.

    Attributes:
        own: positions of the queries of this process among all queries `[q]`, ascending.
        query_group: the groups of all queries `[Q]`.
        own_group: the groups of the queries of this process `[q]`.

    Raises:
        InputError: fewer than one query or two gallery items, or an embedding that is not finite or too large.
    """

    def __init__(
        self,
        queries: Tensor,
        gallery: Tensor,
        self_index: Tensor,
        *,
        groups: tuple[Tensor, Tensor] | None = None,
        device: torch.device | str = "cpu",
        shares: tuple[Shares, Shares] | None = None,
    ) -> None:
        self.query_shares, self.gallery_shares = shares or (Shares.whole(len(queries)), Shares.whole(len(gallery)))
        if len(self.query_shares) < 1 or self.items < 2:
            got = f"{len(self.query_shares)} queries and {self.items} gallery items"
            raise InputError("evaluation", got, "needs at least 1 query and 2 gallery items")
        with self.query_shares.together():
            check_embeddings("embedding of query", queries, self.query_shares.own)
            check_embeddings("embedding of gallery item", gallery, self.gallery_shares.own)
        self.queries, self.gallery, self.self_index = queries, gallery, self_index
        self.query_group, self.gallery_group = groups or (self_index, torch.arange(self.items))
        self.own = self.query_shares.own
        self.own_group = self.query_group[self.own]
        self.device = search_device(device)
        group, size = torch.unique(self.gallery_group, return_counts=True)
        self._most_excluded = int(torch.where(torch.isin(group, self.query_group), size, 0).max())
        self._whole = Block(self.gallery_shares.own, gallery, self.items)

    @property
    def items(self) -> int:
        """Number of gallery items."""
        return len(self.gallery_shares)

    @property
    def available(self) -> int:
        """Number of gallery items that every query can find."""
        return self.items - self._most_excluded

    def excluded(self, part: slice | Tensor) -> Tensor:
        """The gallery items that these queries of this process must not find, bool `[q, G]`."""
        return self.own_group[part, None] == self.gallery_group

    def parts(self, width: int, entries: int | None = None, among: slice | None = None) -> Iterator[slice]:
        """Parts of the queries of this process whose blocks `[part, width]` hold at most `entries` entries.

        Default: what fits memory, of all of them; or only those `among` a larger part.
        """
        start, stop = (0, len(self.queries)) if among is None else (among.start, among.stop)
        step = max(1, (entries or _ENTRIES) // width)
        for begin in range(start, stop, step):
            yield slice(begin, min(begin + step, stop))

    def rounds(self, width: int) -> Iterator[slice]:
        """Parts of the queries of this process, as many on each process: in each, all look at the gallery together.

        Their blocks `[part, width]` fit memory. A process that has fewer queries than others gets empty parts.
        """
        step, count = max(1, min(_ROUND // self.items, _ENTRIES // width)), len(self.queries)
        for start in range(0, self.query_shares.largest, step):
            yield slice(min(start, count), min(start + step, count))

    def blocks(self) -> Iterator[Block]:
        """The gallery in blocks; with one process, it is one block."""
        if self.gallery_shares.processes == 1:
            yield self._whole
            return
        for positions, vectors in self.gallery_shares.blocks(self.gallery):
            yield Block(positions, vectors, self.items)

    def nearest(self, places: int) -> Nearest:
        """The nearest gallery items of the queries of this process, on the CPU: squared distances and positions.

        Both are `[q, places]`. Distances are exact in float64. Ties go to the lower position. An excluded item has an
        infinite distance.
        """
        parts = [*self.parts(places)] or [slice(0, 0)]
        nearest = [Nearest(torch.empty(0), torch.empty(0))] * len(parts)
        for number, block in enumerate(self.blocks()):
            vectors = block.vectors.to(self.device)
            # Even if all excluded items are among the nearest, enough others remain.
            count = min(places + self._most_excluded, len(vectors))
            for n, part in enumerate(parts):
                found = nearest_vectors(self.queries[part].to(self.device), vectors, count)
                values, positions = found.values.cpu(), block.positions[found.positions.cpu()]
                values.masked_fill_(self.own_group[part, None] == self.gallery_group[positions], torch.inf)
                if number:
                    positions, order = torch.cat((nearest[n].positions, positions), 1).sort(dim=1)
                    values = torch.cat((nearest[n].values, values), 1).gather(1, order)
                values, order = values.sort(dim=1, stable=True)
                nearest[n] = Nearest(values[:, :places], positions.gather(1, order)[:, :places])
        return Nearest(*map(torch.cat, zip(*nearest, strict=True)))

    def baselines(self, part: slice, label_distances: Tensor, k: int) -> Baselines:
        """The oracle's k first places for some queries, and the means over all items that each query can find.

        part: of those of this process; label_distances `[q, G]`, float32 on the CPU. Ties go to the lower position.
        """
        from contml.distances._ranking import summarize_rows  # here: it imports numba

        d, query_groups, groups = (x.numpy() for x in (label_distances, self.own_group[part], self.gallery_group))
        near, positions = np.empty((len(d), k), d.dtype), np.empty((len(d), k), np.int64)
        sums = np.empty((3, len(d)))

        def work(share: slice) -> None:
            buffers = np.empty(2 * k, d.dtype), np.empty(2 * k, np.int64)
            summarize_rows(
                d[share], query_groups[share], groups, near[share], positions[share], sums[:, share], *buffers
            )

        rows_in_threads(work, len(d), d.size)
        count, distance, gain = torch.from_numpy(sums)
        return Baselines(torch.from_numpy(positions), torch.from_numpy(near), distance / count, gain / count)

    def tied_beyond(self, part: slice, found: Nearest) -> tuple[Tensor, Tensor]:
        """Gallery items that tie with the last place of the rankings of some queries, but are not in them.

        Args:
            part: a part of the queries of this process, one of `rounds`.
            found: the rankings of all its queries `[q, D]`.

        Returns:
            The queries of this process that have such items `[n]`, ascending, and which items tie, bool `[n, G]`.
        """
        values = found.values[part]
        rows = part.start + (values[:, -1] == values[:, -2]).nonzero()[:, 0]
        tied = torch.zeros(len(rows), self.items, dtype=torch.bool)
        if not self.query_shares.any(len(rows) > 0):
            return rows, tied
        queries = [*zip(self.queries[rows], found.values[rows, -1].tolist(), strict=True)]
        for block in self.blocks():
            for row, (query, last_distance) in enumerate(queries):
                tied[row, block.positions] = (block.exact.of(query) == last_distance).cpu()
        tied.scatter_(1, found.positions[rows], False)
        return rows, tied & ~self.excluded(rows)

    def ranked(self, rows: Tensor) -> Ranked:
        """The whole rankings of some queries of this process `[n, G]`, on the CPU."""
        return ranked_vectors(
            self.queries[rows],
            lambda: ((block.positions, block.vectors) for block in self.blocks()),
            self.excluded(rows),
        )

    def distances(self, rows: Tensor, items: Tensor) -> Tensor:
        """Squared distances `[P]` of pairs of a query of this process and a gallery item, in float64 on the CPU."""
        out = torch.empty(len(rows), dtype=torch.float64)
        for block in self.blocks():
            if len(block.positions) == self.items:
                return squared_distances_of(self.queries, block.vectors, rows, items).cpu()
            cols = block.place[items]
            inside = (cols >= 0).nonzero()[:, 0]
            out[inside] = squared_distances_of(self.queries, block.vectors, rows[inside], cols[inside]).cpu()
        return out
