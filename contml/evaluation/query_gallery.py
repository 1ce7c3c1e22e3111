"""Queries and the gallery that they search: which items a query may find, and rankings by exact embedding distance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from contml._support.errors import InputError
from contml.distances import ExactDistances, nearest_vectors
from contml.distances._compiled import rows_in_threads
from contml.distances.vectors import Nearest
from contml.evaluation.inputs import check_embeddings

#: Entries of a `[queries, places]` or `[queries, gallery]` block at a time.
_ENTRIES = 1 << 23


def search_device(device: torch.device | str) -> torch.device:
    """The device that searches data on `device`: the same if it is CUDA, else the CPU (others have no float64)."""
    return torch.device(device if torch.device(device).type == "cuda" else "cpu")


class Baselines(NamedTuple):
    """The oracle's ranking of some queries, and the expectation of a random one."""

    positions: Tensor  # [q,k]
    label_distances: Tensor  # [q,k]
    mean_distance: Tensor  # [q] float64
    mean_gain: Tensor  # [q] float64


class QueryGallery:
    """Embeddings of queries and gallery, checked; a query never finds itself, nor an item of its own group.

    Args:
        queries: embeddings `[Q, d]`.
        gallery: embeddings `[G, d]`.
        self_index: position of each query in the gallery `[Q]`, or -1.
        groups: the groups of the queries `[Q]` and of the gallery `[G]`; None: a query excludes only itself.
        device: where to search, the CPU or a CUDA device.

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
    ) -> None:
        if len(queries) < 1 or len(gallery) < 2:
            got = f"{len(queries)} queries and {len(gallery)} gallery items"
            raise InputError("evaluation", got, "needs at least 1 query and 2 gallery items")
        for name, embeddings in (("query", queries), ("gallery item", gallery)):
            check_embeddings(f"embedding of {name}", embeddings)
        self.queries, self.gallery, self.self_index = queries, gallery, self_index
        self.query_group, self.gallery_group = groups or (self_index, torch.arange(len(gallery)))
        self.device = search_device(device)
        group, size = torch.unique(self.gallery_group, return_counts=True)
        self._most_excluded = int(torch.where(torch.isin(group, self.query_group), size, 0).max())
        self._exact = ExactDistances(gallery)

    @property
    def available(self) -> int:
        """Number of gallery items that every query can find."""
        return len(self.gallery) - self._most_excluded

    def excluded(self, part: slice | Tensor) -> Tensor:
        """The gallery items that these queries must not find, bool `[q, G]`."""
        return self.query_group[part, None] == self.gallery_group

    def parts(self, width: int, entries: int | None = None) -> Iterator[slice]:
        """Parts of queries whose blocks `[part, width]` hold at most `entries` entries. Default: what fits memory."""
        step = max(1, (entries or _ENTRIES) // width)
        for start in range(0, len(self.queries), step):
            yield slice(start, min(start + step, len(self.queries)))

    def nearest(self, part: slice, places: int) -> Nearest:
        """The nearest gallery items of some queries, on the CPU: squared distances and positions `[q, places]`.

        Distances are exact in float64. Ties go to the lower position. An excluded item has an infinite distance.
        """
        # Even if all excluded items are among the nearest, enough others remain.
        count = min(places + self._most_excluded, len(self.gallery))
        vectors = self.queries[part].to(self.device), self.gallery.to(self.device)
        values, positions = (tensor.cpu() for tensor in nearest_vectors(*vectors, count))
        values.masked_fill_(self.query_group[part, None] == self.gallery_group[positions], torch.inf)
        values, order = values.sort(dim=1, stable=True)
        return Nearest(values[:, :places], positions.gather(1, order)[:, :places])

    def baselines(self, part: slice, label_distances: Tensor, k: int) -> Baselines:
        """The oracle's k first places for some queries, and the means over all items that each query can find.

        label_distances `[q, G]`, float32 on the CPU. Ties go to the lower position.
        """
        from contml.distances._ranking import summarize_rows  # here: it imports numba

        d, query_groups, groups = (x.numpy() for x in (label_distances, self.query_group[part], self.gallery_group))
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

    def tied_beyond(self, part: slice, found: Nearest) -> Iterator[tuple[Tensor, Tensor]]:
        """Gallery items that tie with the last place of the rankings `[q, D]` of some queries, but are not in them.

        Yields rows `[n]` of `found` and which items tie, bool `[n, G]`; nothing if there are no such ties.
        """
        queries = torch.arange(len(self.queries))[part]
        tied_at_end = (found.values[:, -1] == found.values[:, -2]).nonzero()[:, 0]
        step = max(1, _ENTRIES // len(self.gallery))
        for start in range(0, len(tied_at_end), step):
            rows = tied_at_end[start : start + step]
            vectors, last_distances = self.queries[queries[rows]], found.values[rows, -1].tolist()
            tied = torch.stack([(self._exact.of(x) == d).cpu() for x, d in zip(vectors, last_distances, strict=True)])
            tied.scatter_(1, found.positions[rows], False)
            yield rows, tied & ~self.excluded(queries[rows])
