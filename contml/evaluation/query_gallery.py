"""Queries and the gallery that they search: items that a query may find, and exact rankings by embedding distance."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from numbers import Integral
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from contml._support.conversion import Numbers, as_numbers
from contml._support.errors import InputError
from contml._support.validation import as_rows
from contml.distances import ExactDistances, nearest_vectors, squared_distances_of
from contml.distances._compiled import rows_in_threads
from contml.distances.nearest import Nearest
from contml.distances.ranks import Ranked, ranked_vectors

#: One K of a metric, or several.
Ks: TypeAlias = int | Sequence[int]
Groups: TypeAlias = tuple[Tensor, Tensor] | None
Device: TypeAlias = torch.device | str
#: Entries of a `[queries, places]` or `[queries, gallery]` block at a time.
_ENTRIES = 1 << 23
#: Entries of a `[queries, gallery]` block of ties.
_ROUND = 1 << 25


def search_device(device: Device) -> torch.device:
    """Return the device that searches data on `device`: the same device if it is CUDA, otherwise the CPU.

    Other devices have no float64.
    """
    return torch.device(device if torch.device(device).type == "cuda" else "cpu")


class Baselines(NamedTuple):
    """The oracle's ranking of some queries, and the expectation of a random ranking."""

    positions: Tensor  # [q,k]
    label_distances: Tensor  # [q,k]
    mean_distance: Tensor  # [q] float64
    mean_gain: Tensor  # [q] float64


class QueryGallery:
    """Embeddings of queries and gallery, checked. A query never finds itself, nor an item of its own group.

    Args:
        queries: embeddings `[Q, d]`.
        gallery: embeddings `[G, d]`.
        self_index: position of each query in the gallery `[Q]`, or -1.
        groups: the groups of the queries `[Q]` and of the gallery `[G]`. Default: a query excludes only itself.
        device: where to search, the CPU or a CUDA device.

    Attributes:
        query_group: the groups of the queries `[Q]`.
        gallery_group: the groups of the gallery `[G]`.

    Raises:
        InputError: fewer than one query or two gallery items, or an embedding that is not finite or too large.
    """

    def __init__(
        self, queries: Tensor, gallery: Tensor, self_index: Tensor, *, groups: Groups = None, device: Device = "cpu"
    ) -> None:
        self.queries, self.gallery, self.self_index = queries, gallery, self_index
        if len(queries) < 1 or self.items < 2:
            got = f"{len(queries)} queries and {self.items} gallery items"
            raise InputError("evaluation", got, "needs at least 1 query and 2 gallery items")
        check_embeddings("embedding of query", queries)
        check_embeddings("embedding of gallery item", gallery)
        self.query_group, self.gallery_group = groups or (self_index, torch.arange(self.items))
        self.device = search_device(device)
        group, size = torch.unique(self.gallery_group, return_counts=True)
        self._most_excluded = int(torch.where(torch.isin(group, self.query_group), size, 0).max())

    @cached_property
    def _exact(self) -> ExactDistances:
        return ExactDistances(self.gallery)

    @property
    def items(self) -> int:
        """The number of gallery items."""
        return len(self.gallery)

    @property
    def available(self) -> int:
        """The number of gallery items that every query can find."""
        return self.items - self._most_excluded

    def excluded(self, part: slice | Tensor) -> Tensor:
        """Return the gallery items that these queries must not find, bool `[q, G]`."""
        return self.query_group[part, None] == self.gallery_group

    def parts(self, width: int, entries: int | None = None, among: slice | None = None) -> Iterator[slice]:
        """Yield parts of the queries whose blocks `[part, width]` hold at most `entries` entries.

        Default: as many entries as fit memory. The parts are of all queries, or of the queries `among`.
        """
        start, stop = (0, len(self.queries)) if among is None else (among.start, among.stop)
        step = max(1, (entries or _ENTRIES) // width)
        for begin in range(start, stop, step):
            yield slice(begin, min(begin + step, stop))

    def rounds(self, width: int) -> Iterator[slice]:
        """Yield parts of the queries whose blocks `[part, width]` and `[part, G]` fit memory."""
        yield from self.parts(1, max(1, min(_ROUND // self.items, _ENTRIES // width)))

    def nearest(self, places: int) -> Nearest:
        """Find the nearest gallery items of all queries: squared distances and positions, both `[Q, places]`.

        The result is on the CPU. Distances are exact in float64. Ties go to the lower position. An excluded item has an
        infinite distance.
        """
        vectors, nearest = self.gallery.to(self.device), []
        # Even if all excluded items are among the nearest, enough others remain.
        count = min(places + self._most_excluded, self.items)
        for part in self.parts(places):
            found = nearest_vectors(self.queries[part].to(self.device), vectors, count)
            values, positions = found.values.cpu(), found.positions.cpu()
            values.masked_fill_(self.query_group[part, None] == self.gallery_group[positions], torch.inf)
            values, order = values.sort(dim=1, stable=True)
            nearest.append(Nearest(values[:, :places], positions.gather(1, order)[:, :places]))
        return Nearest(*map(torch.cat, zip(*nearest, strict=True)))

    def baselines(self, part: slice, label_distances: Tensor, k: int) -> Baselines:
        """Compute the oracle's k first places for some queries, and the means over all items that each query can find.

        `label_distances` `[q, G]` are float32 on the CPU. Ties go to the lower position.
        """
        from contml.distances._nearest_loops import summarize_rows  # here: it imports numba

        d, asked, groups = (x.numpy() for x in (label_distances, self.query_group[part], self.gallery_group))
        near, positions = np.empty((len(d), k), d.dtype), np.empty((len(d), k), np.int64)
        sums = np.empty((3, len(d)))

        def work(share: slice) -> None:
            buffers = np.empty(2 * k, d.dtype), np.empty(2 * k, np.int64)
            summarize_rows(d[share], asked[share], groups, near[share], positions[share], sums[:, share], *buffers)

        rows_in_threads(work, len(d), d.size)
        count, distance, gain = torch.from_numpy(sums)
        return Baselines(torch.from_numpy(positions), torch.from_numpy(near), distance / count, gain / count)

    def tied_beyond(self, part: slice, found: Nearest) -> tuple[Tensor, Tensor]:
        """Find gallery items that tie with the last place of the rankings of some queries, but are not in the rankings.

        Args:
            part: a part of the queries, one of `rounds`.
            found: the rankings of all queries `[Q, D]`.

        Returns:
            The queries that have such items `[n]`, ascending, and which items tie, bool `[n, G]`.
        """
        values = found.values[part]
        rows = part.start + (values[:, -1] == values[:, -2]).nonzero()[:, 0]
        tied = torch.zeros(len(rows), self.items, dtype=torch.bool)
        for row, (query, last) in enumerate(zip(self.queries[rows], found.values[rows, -1].tolist(), strict=True)):
            tied[row] = (self._exact.of(query) == last).cpu()
        tied.scatter_(1, found.positions[rows], False)
        return rows, tied & ~self.excluded(rows)

    def ranked(self, rows: Tensor) -> Ranked:
        """Compute the whole rankings of some queries `[n, G]`, on the CPU."""
        return ranked_vectors(self.queries[rows], self.gallery, self.excluded(rows))

    def distances(self, rows: Tensor, items: Tensor) -> Tensor:
        """Compute squared distances `[P]` of pairs of a query and a gallery item, in float64 on the CPU."""
        return squared_distances_of(self.queries, self.gallery, rows, items).cpu()


#: Larger embeddings would have squared distances above the range of float64.
_LARGEST = 1e150


def as_embeddings(name: str, values: Numbers) -> Tensor:
    """Convert embeddings to a tensor `[N, d]`, detached. Whole numbers become float64.

    Raises:
        InputError: they have another shape, or are not real numbers.
    """
    x = as_numbers(name, values)
    if x.ndim != 2 or not x.shape[1]:
        raise InputError(name, f"shape {list(x.shape)}", "must be [items, dimensions]")
    return x if x.is_floating_point() else x.double()


def check_embeddings(name: str, x: Tensor) -> None:
    """Check that embeddings `[N, d]` are finite, and that their squared distances are finite.

    Args:
        name: the name of one embedding in the message, before its number.
        x: the embeddings.

    Raises:
        InputError: an embedding is not finite, or too large.
    """
    low, high = torch.aminmax(x, dim=1)
    largest = torch.maximum(-low, high).double()  # [N], NaN where a number is NaN
    invalid = (~(largest <= _LARGEST)).nonzero()[:, 0]
    if len(invalid):
        subject, value = f"{name} {int(invalid[0])}", float(largest[invalid[0]])
        if not math.isfinite(value):
            raise InputError(subject, "not finite", hint="check whether training diverged")
        raise InputError(subject, f"{value:g}", f"must be numbers up to {_LARGEST:g}", "scale the embeddings")


def as_row_numbers(name: str, rows: Numbers, length: int) -> Tensor:
    """Convert row numbers `[R]` below `length` to int64 on the CPU.

    Raises:
        InputError: a row does not exist, or they are not whole numbers.
    """
    try:
        return as_rows(as_numbers(name, rows), length)
    except InputError as error:
        raise InputError(name, error.got, error.allowed) from None


def as_ks(name: str, k: object, largest: int | None = None) -> list[int]:
    """Check the K of a metric, which are whole numbers from 1 on, and return them as a list.

    Raises:
        InputError: there is no K, or one is not a whole number, below 1, or above `largest`.
    """
    ks = list(k) if isinstance(k, Iterable) else []
    if ks and all(isinstance(each, Integral) and 1 <= int(each) <= (largest or int(each)) for each in ks):
        return [int(each) for each in ks]
    allowed = "from 1 on" if largest is None else f"from 1 to {largest}, the number of items of a list"
    raise InputError(name, str(ks or k), f"must be a list of whole numbers {allowed}")


def at_each_k(k: Ks, values: Callable[[list[int]], Sequence[Any]], largest: int | None = None) -> Any:
    """Return the value of a metric at K. For several K, return a dict.

    Args:
        k: one K or several K.
        values: computes the values at each K of a list.
        largest: the largest K.

    Raises:
        InputError: a K is not a whole number, below 1, or above `largest`.
    """
    if isinstance(k, Integral):
        return values(as_ks("k", [k], largest))[0]
    ks = as_ks("k", k, largest)
    return dict(zip(ks, values(ks), strict=True))
