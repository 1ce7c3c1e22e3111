"""An index on disk: ids, vectors and metadata; add items, remove items, search.

index = Index.create("photos.index", dim=128)
index.add(["a.jpg", "b.jpg"], embeddings)
ids, distances, metadata = Index.open("photos.index").search(queries, k=10)
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, TypeAlias, TypeVar

import numpy as np
import torch

from contml._support.errors import InputError, one_line
from contml._support.files import check_new_folder, locked, remove_temporaries
from contml._support.progress import note
from contml.search import segments
from contml.search.nearest import Positions, nearest_rows
from contml.search.segments import COLUMNS, DIM, NORM, ROWS, Floats, Kind, Manifest
from contml.search.where import condition

Ids: TypeAlias = "np.ndarray[Any, np.dtype[np.object_]]"
_T = TypeVar("_T")

#: The message and the hint while another process holds the lock.
_BUSY = ("another process is changing this index", "wait for it, or stop it")
#: The column to search, by the argument `by`.
_COLUMN = {"embedding": "vector", "labels": "label_vector"}
#: A column of row numbers. No key of metadata has this name.
_ROW = "\0row"
#: Bytes of the columns of metadata that stay in memory after they were read.
_KEPT = 1 << 30


class SearchResult(NamedTuple):
    """The nearest items of each query, nearest first."""

    ids: Ids  # [Q,k]
    distances: Floats  # [Q,k] Euclidean
    metadata: list[list[dict[str, Any]]] | None  # [Q][k], {} for items without; None if no item ever had any


class Removed(NamedTuple):
    """The result of `Index.remove`.

    Attributes:
        items: number of items that were removed.
        before: number of named items that had been removed before.
    """

    items: int
    before: int


class _Items(NamedTuple):
    """The items of all segments.

    Attributes:
        ids: the id of each row `[N]`, including removed items.
        live: whether the item of a row is not removed `[N]`.
        rows: the row of each item by id.
        removed: the source of each item that was removed and not added again, by id.
        removed_rows: the file of removed ids: id, source, and row. Row -1 means that the item is no longer in a
            segment.
    """

    ids: Ids
    live: np.ndarray[Any, np.dtype[np.bool_]]
    rows: dict[str, int]
    removed: dict[str, str | None]
    removed_rows: list[tuple[str, str | None, int]]


class Index:
    """An index of vectors in a folder, searched by Euclidean distance.

    Unit vectors have the same ranking by cosine similarity. The distances are exact: computed by subtraction in
    float64, then rounded to float32. Items at equal distance are in the order in which they were added. All items are
    compared with a query, so that nothing is missed.

    `add` and `remove` are finished when they return: a process that is killed later loses nothing. One process changes
    an index at a time, and any number of processes read it. An object reads the index as it was when it was opened.
    After its own changes, it reads the changed index.

    Use `Index.create` or `Index.open`.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.path = folder
        self._manifest = manifest
        self._items: _Items | None = None
        self._loaded: dict[str, tuple[Floats, float]] = {}
        self._live: dict[str, tuple[Floats, Positions]] = {}
        self._metadata: dict[str, dict[str, Any]] = {}
        self._mutex, self._depth = threading.RLock(), 0

    @classmethod
    def create(
        cls, path: str | Path, dim: int, model: Mapping[str, str] | None = None, *, label_dim: int | None = None
    ) -> Self:
        """Make an empty index in a new folder.

        Args:
            path: the folder.
            dim: dimension of the vectors.
            model: texts about the model of the vectors, which the index keeps.
            label_dim: dimension of the label vectors (`contml.search.Embedder.embed`). Default: the items have none.

        Raises:
            InputError: the folder has other files, or cannot be written.
        """
        _check_count("dim", dim, DIM)
        if label_dim is not None:
            _check_count("label_dim", label_dim, DIM)
        folder, manifest = Path(path), Manifest(int(dim), dict(model or {}), label_dim=int(label_dim or 0))
        check_new_folder(folder)
        index = cls(folder, manifest)
        with index._locked():
            check_new_folder(folder)  # another process may have made it meanwhile
            segments.write_manifest(folder, manifest)
        return index

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Open an index.

        Args:
            path: the folder.

        Raises:
            InputError: it is not an index, or damaged.
        """
        return cls(Path(path), segments.read_manifest(Path(path)))

    @property
    def dim(self) -> int:
        """The dimension of the vectors."""
        return self._manifest.dim

    @property
    def label_dim(self) -> int | None:
        """The dimension of the label vectors. None if there are no label vectors."""
        return self._manifest.label_dim or None

    @property
    def model(self) -> dict[str, str]:
        """Texts about the model of the vectors."""
        return dict(self._manifest.model)

    @property
    def columns(self) -> dict[str, Kind]:
        """The keys of metadata with their types."""
        return dict(self._manifest.columns)

    @property
    def ids(self) -> list[str]:
        """The ids of all items, in the order in which they were added."""
        items = self._read()
        return items.ids[items.live].tolist()

    @property
    def removed(self) -> dict[str, str | None]:
        """The items that were removed and not added again, by id, with their sources."""
        return dict(self._read().removed)

    def metadata(self, ids: Sequence[str]) -> list[dict[str, Any]]:
        """Return the metadata of items. An item without metadata has {}."""
        names = _names(ids)
        return self._reading(lambda: self._metadata_of(self._rows(names)))

    def sources(self, ids: Sequence[str]) -> list[str | None]:
        """Return the sources of items, as they were added."""
        names = _names(ids)

        return self._reading(lambda: self._sources_of(self._rows(names)))

    def embeddings(self, ids: Sequence[str]) -> Floats:
        """Return the vectors `[N, d]` of items."""
        names = _names(ids)
        return self._reading(lambda: self._vectors_read("vector")[0][self._rows(names)])

    def __len__(self) -> int:
        return len(self._read().rows)

    def __contains__(self, item: object) -> bool:
        return item in self._read().rows

    def __repr__(self) -> str:
        return f"Index({str(self.path)!r}, {len(self):,} items, dim={self.dim})"

    # -- changing --------------------------------------------------------------------------------------------------

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes from changing the index during several calls. They can still search it.

        Raises:
            InputError: another process changes it, or the folder cannot be written.
        """
        with self._mutex:
            if self._depth:
                yield
                return
            with self._locked():
                self._depth = 1
                try:
                    self._use(segments.read_manifest(self.path))
                    segments.remove_unused(self.path, self._manifest)
                    yield
                finally:
                    self._depth = 0

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with locked(self.path, *_BUSY):
            remove_temporaries(self.path)  # only the process that holds the lock writes there
            yield

    def add(
        self,
        ids: Sequence[str],
        embeddings: Any,
        metadata: Sequence[Mapping[str, Any] | None] | None = None,
        sources: Sequence[str | None] | None = None,
        *,
        label_vectors: Any = None,
    ) -> None:
        """Add items: all of them, or none if it fails or the process is killed.

        Each call writes at least one file, so add many items at once.

        Args:
            ids: ids `[N]` that are not in the index. The id of a removed item is a new item.
            embeddings: `[N, d]`, finite numbers.
            metadata: `[N]`, numbers and texts by name for each item, or None. If values of a key have other types than
                in earlier items, the type is widened for all items.
            sources: `[N]`, texts about what the vectors were made from, or None.
            label_vectors: `[N, label_dim]`, finite numbers. None if the index has no label vectors.
        """
        names, vectors = _names(ids), {"vector": self._vectors("embeddings", embeddings, self.dim)}
        if (label_vectors is None) != (self.label_dim is None):
            allowed = "must be omitted" if self.label_dim is None else f"must be numbers [N, {self.label_dim}]"
            raise InputError("label_vectors", "None" if label_vectors is None else "given", allowed)
        if self.label_dim is not None:
            vectors["label_vector"] = self._vectors("label_vectors", label_vectors, self.label_dim)
        for name, each in zip(("embeddings", "label_vectors"), vectors.values(), strict=False):
            if len(names) != len(each):
                raise InputError("ids", f"{len(names):,} for {len(each):,} {name}", hint="give one id for each")
        entries = _entries(metadata, len(names))
        origins = list(sources) if sources is not None else [None] * len(names)
        if len(origins) != len(names):
            raise InputError("sources", f"{len(origins):,} for {len(names):,} items", hint="give one per item")
        with self.lock():
            items, manifest = self._read(), self._manifest
            if existing := next((name for name in names if name in items.rows), None):
                raise InputError("ids", f"'{existing}' is in the index", hint="remove it first, or choose another id")
            if not names:
                return
            columns = self._widened(entries)
            last, new = self._write(names, vectors, entries, origins, columns)
            self._commit(columns=columns, segments={**manifest.segments, **new}, last=last)
            count = len(items.ids)
            items.rows.update(zip(names, range(count, count + len(names)), strict=True))
            for name in names:
                items.removed.pop(name, None)
            live = np.append(items.live, np.ones(len(names), np.bool_))
            self._items = items._replace(ids=np.concatenate([items.ids, np.array(names, object)]), live=live)

    def _write(
        self,
        names: Sequence[str],
        vectors: Mapping[str, Floats],
        entries: Sequence[Mapping[str, Any]],
        sources: Sequence[str | None],
        columns: Mapping[str, Kind],
    ) -> tuple[int, dict[str, int]]:
        """Write the segments of some items. Return the highest number, and the rows of each segment."""
        written, last = dict[str, int](), self._manifest.last
        for start in range(0, len(names), ROWS):
            part, last = slice(start, start + ROWS), last + 1
            parts = {column: each[part] for column, each in vectors.items()}
            table: dict[str, Any] = {"id": names[part], **parts, "source": sources[part]}
            for key, kind in columns.items():
                values = [entry.get(key) for entry in entries[part]]
                if any(value is not None for value in values):
                    table[segments.column_name(key)] = segments.as_column(values, kind)
            name = f"segment-{last:06d}.parquet"
            segments.write_rows(self.path / name, table, self._manifest.dims)
            written[name] = len(names[part])
        return last, written

    def _widened(self, entries: Sequence[Mapping[str, Any]]) -> dict[str, Kind]:
        """Return the types of all keys, including the keys of new items. Print which types are widened."""
        columns, new = self.columns, dict[str, Kind]()
        for entry in entries:
            for key, value in entry.items():
                if value is not None:
                    new[key] = segments.widened(new.get(key), segments.kind_of(key, value))
        for key, kind in new.items():
            before = columns.get(key)
            columns[key] = segments.widened(before, kind)
            if before is not None and columns[key] != before:
                note(f"{self.path}: metadata '{key}' was {before}, and is {columns[key]} for all items from now on")
        if len(columns) > COLUMNS:
            raise InputError("metadata", f"{len(columns):,} keys", f"must be at most {COLUMNS}")
        return columns

    def remove(self, ids: Sequence[str] = (), *, where: Any = None) -> Removed:
        """Remove items: all of them, or none if it fails or the process is killed.

        Removed items are never found again. Their vectors stay on disk until `compact`. Their ids are kept in
        `removed`.

        Args:
            ids: ids, or folders. A folder means all items whose ids begin with its name and a slash.
            where: also remove the items whose metadata meet this condition, as in `search`.

        Raises:
            InputError: there never was such an item, or the condition is wrong.
        """
        with self.lock():
            items, rows, before = self._read(), dict[int, None](), dict[str, None]()
            if where is not None:
                met = self._reading(lambda: self._meeting(where))
                rows |= dict.fromkeys(np.flatnonzero(met & items.live).tolist())
            for name in _names(ids):
                below = f"{name}/"
                found = [items.rows[name]] if name in items.rows else []
                found = found or [row for each, row in items.rows.items() if each.startswith(below)]
                earlier = [each for each in items.removed if each == name or each.startswith(below)]
                if not found and not earlier:
                    raise InputError("ids", f"'{name}' is not in the index")
                rows |= dict.fromkeys(found)
                before |= dict.fromkeys([] if name in items.rows else earlier)
            names = items.ids[[*rows]].tolist()
            if names:
                self._commit_removed([*items.removed_rows, *zip(names, self.sources(names), rows, strict=True)])
            return Removed(len(names), len(before))

    def _commit_removed(self, log: Sequence[tuple[str, str | None, int]], **changes: Any) -> None:
        last, removed = changes.pop("last", self._manifest.last), dict[str, int]()
        if log:
            last += 1
            removed = {f"removed-{last:06d}.parquet": len(log)}
            columns = dict(zip(("id", "source", "row"), map(list, zip(*log, strict=True)), strict=True))
            segments.write_rows(self.path / next(iter(removed)), columns, {})
        self._commit(removed=removed, last=last, **changes)
        self._items = None

    def compact(self) -> None:
        """Write all segments again, without removed items. The ids of removed items are kept in `removed`.

        If the process is killed, the index is as before.
        """
        with self.lock():
            items = self._read()
            if items.live.all() and all(rows == ROWS for rows in [*self._manifest.segments.values()][:-1]):
                return
            rows = np.flatnonzero(items.live)
            vectors = {column: self._vectors_read(column)[0][rows] for column in self._manifest.dims}
            names, entries, sources = items.ids[rows].tolist(), self._metadata_of(rows), self._sources_of(rows)
            last, written = self._write(names, vectors, entries, sources, self.columns)
            log = [(name, source, -1) for name, source in items.removed.items()]
            self._commit_removed(log, segments=written, last=last)
            segments.remove_unused(self.path, self._manifest)

    def _commit(self, **changes: Any) -> None:
        """Replace the manifest."""
        manifest = replace(self._manifest, **changes)
        segments.write_manifest(self.path, manifest)
        items = self._items
        self._use(manifest)
        self._items = items

    # -- searching -------------------------------------------------------------------------------------------------

    def search(
        self, queries: Any, k: int = 10, *, by: Literal["embedding", "labels"] = "embedding", where: Any = None
    ) -> SearchResult:
        """Find the k nearest items of each query. If there are fewer items, find all of them.

        Args:
            queries: vectors `[Q, d]`, an array or tensor of numbers.
            k: the number of items per query.
            by: what to compare with the queries: the embeddings, or the label vectors.
            where: find only items whose metadata meet this condition. It is a text (`contml.search.where`), such as
                "price < 500000 and room = 'kitchen'", or an expression of `pyarrow.compute`.

        Raises:
            InputError: a vector, a number or the condition is wrong.
        """
        _check_count("k", k, sys.maxsize)
        if by not in _COLUMN:
            raise InputError("by", str(by), f"must be {' or '.join(_COLUMN)}")
        if by == "labels" and self.label_dim is None:
            hint = "make a new index with a model that has labels of training items"
            raise InputError(str(self.path), "an index without label vectors", hint=hint)
        column = _COLUMN[by]
        vectors = self._vectors("queries", queries, self._manifest.dims[column])

        def find() -> SearchResult:
            norm, items = self._vectors_read(column)[1], self._read_items()
            compared, live_rows = self._live_vectors(column)
            if where is not None:
                kept = self._meeting(where)[live_rows]
                compared, live_rows = compared[kept], live_rows[kept]
            nearest = nearest_rows(vectors, compared, min(int(k), len(live_rows)), norm)
            rows: Any = live_rows[nearest.rows]  # [Q,k]
            metadata = None
            if self._manifest.columns:
                wanted, places = np.unique(rows, return_inverse=True)
                found = self._metadata_of(wanted)
                metadata = [[found[place] for place in each] for each in places.reshape(rows.shape).tolist()]
            return SearchResult(items.ids[rows], np.sqrt(nearest.squared).astype(np.float32), metadata)

        return self._reading(find)

    def _vectors(self, name: str, values: Any, dim: int) -> Floats:
        """Check vectors, and copy them in float32."""
        try:
            array = np.asarray(values.detach().cpu().double() if isinstance(values, torch.Tensor) else values)
            if array.dtype.kind not in "fiu":
                raise TypeError(f"an array of {array.dtype}")
            with np.errstate(over="ignore"):
                vectors: Floats = np.array(array, np.float32, order="C")
        except (TypeError, ValueError, RuntimeError, OverflowError) as error:
            raise InputError(name, one_line(error), f"must be numbers [N, {dim}]") from None
        if vectors.ndim != 2 or vectors.shape[1] != dim:
            raise InputError(name, f"shape {list(vectors.shape)}", f"must be [N, {dim}]")
        if len(invalid := np.flatnonzero(~(_norms(vectors) <= NORM))):
            problem = f"have a norm above {NORM:g}" if np.isfinite(vectors[invalid[0]]).all() else "are not finite"
            raise InputError(name, f"the numbers of row {invalid[0]} {problem}")
        return vectors

    # -- reading ---------------------------------------------------------------------------------------------------

    def _use(self, manifest: Manifest) -> None:
        """Take another manifest, and forget all that was read before."""
        if manifest != self._manifest:
            self._manifest, self._items, self._loaded, self._live, self._metadata = manifest, None, {}, {}, {}

    def _reading(self, read: Callable[[], _T]) -> _T:
        """Return the result of a function. Call it again if another process compacted the index meanwhile."""
        with self._mutex:
            while True:
                try:
                    return read()
                except FileNotFoundError as error:
                    manifest = segments.read_manifest(self.path)
                    if manifest == self._manifest:
                        raise segments.damaged(self.path, f"{Path(error.filename).name} is missing") from None
                    self._use(manifest)

    def _columns(self, wanted: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the first row of each segment, and columns of the segment."""
        start = 0
        for name, rows in self._manifest.segments.items():
            yield start, segments.read_rows(self.path, name, rows, wanted, self._manifest.dims)
            start += rows

    def _read(self) -> _Items:
        return self._reading(self._read_items)

    def _read_items(self) -> _Items:
        """Return the items of all segments, read once."""
        if self._items is None:
            self._items = self._items_of([part["id"] for _, part in self._columns(["id"])])
        return self._items

    def _items_of(self, columns: Sequence[Any]) -> _Items:
        """Make the items of all segments from their columns of ids."""
        ids = np.concatenate([np.empty(0, object), *(column.to_numpy(zero_copy_only=False) for column in columns)])
        live, log = np.ones(len(ids), np.bool_), list[tuple[str, str | None, int]]()
        for name, rows in self._manifest.removed.items():
            read = segments.read_rows(self.path, name, rows, ["id", "source", "row"], {})
            log = [*zip(*(read[column].to_pylist() for column in ("id", "source", "row")), strict=True)]
        for name, _, row in log:
            if row >= 0 and not (row < len(ids) and live[row] and ids[row] == name):
                raise segments.damaged(self.path, f"'{name}' was not in row {row:,}, from which it was removed")
            live[row if row >= 0 else slice(0)] = False
        live_rows = np.flatnonzero(live)
        row_by_id = dict(zip(ids[live_rows].tolist(), live_rows.tolist(), strict=True))
        if len(row_by_id) < len(live_rows) or "" in row_by_id:
            repeated = Counter(ids[live_rows].tolist()).most_common(1)[0][0]
            raise segments.damaged(self.path, f"the id '{repeated}' appears twice, or is empty")
        return _Items(ids, live, row_by_id, {name: source for name, source, _ in log if name not in row_by_id}, log)

    def _live_vectors(self, column: str) -> tuple[Floats, Positions]:
        """Return the vectors of items that are not removed, and their rows, made once."""
        if column not in self._live:
            vectors, live = self._vectors_read(column)[0], self._read_items().live
            self._live[column] = vectors if live.all() else vectors[live], np.flatnonzero(live)
        return self._live[column]

    def _vectors_read(self, column: str) -> tuple[Floats, float]:
        """Return the vectors of all rows in a column, and the largest norm, read once."""
        if column not in self._loaded:
            segments.check_sizes(self.path, self._manifest)
            dim = self._manifest.dims[column]
            vectors, norm, ids = np.empty((self._manifest.rows, dim), np.float32), 0.0, list[Any]()
            for start, part in self._columns(["id", column]):
                read = segments.vectors_of(part[column], dim)
                largest = float(_norms(read).max())
                if not largest <= NORM:
                    raise segments.damaged(self.path, f"vectors from row {start:,} on are not finite, or too long")
                vectors[start : start + len(read)], norm = read, max(norm, largest)
                ids.append(part["id"])
            self._items = self._items or self._items_of(ids)
            self._loaded[column] = vectors, norm
        return self._loaded[column]

    def _sources_of(self, rows: Sequence[int] | Positions) -> list[str | None]:
        """Return the sources of rows."""
        wanted, found = np.asarray(rows, np.int64), np.full(len(rows), None, object)
        for start, column in self._columns(["source"]):
            inside = np.flatnonzero((wanted >= start) & (wanted < start + len(column["source"])))
            found[inside] = column["source"].take(wanted[inside] - start).to_pylist()
        return found.tolist()

    def _metadata_of(self, rows: Sequence[int] | Positions) -> list[dict[str, Any]]:
        """Return the metadata of rows."""
        wanted, found = np.asarray(rows, np.int64), [dict[str, Any]() for _ in rows]
        start, columns = 0, self._manifest.columns
        for name, count in self._manifest.segments.items():
            inside = np.flatnonzero((wanted >= start) & (wanted < start + count))
            if len(inside) and columns:
                taken = wanted[inside] - start
                for key, column in self._metadata_in(name, count).items():
                    for place, value in zip(inside.tolist(), column.take(taken).to_pylist(), strict=True):
                        if (given := segments.converted(value, columns[key])) is not None:
                            found[place][key] = given
            start += count
        return found

    def _metadata_in(self, name: str, rows: int) -> dict[str, Any]:
        """Return the columns of metadata of a segment, by key."""
        if name not in self._metadata:
            names = {segments.column_name(key): key for key in self._manifest.columns}
            read = segments.read_rows(self.path, name, rows, [*names], self._manifest.dims)
            columns = {names[column]: values for column, values in read.items()}
            for key, values in columns.items():
                kind = self._manifest.columns[key]
                if segments.widened(segments.kind_of_column(values), kind) != kind:
                    raise segments.damaged(self.path, f"metadata '{key}' of {name} is not {kind}")
            if sum(values.nbytes for part in self._metadata.values() for values in part.values()) > _KEPT:
                self._metadata.clear()
            self._metadata[name] = columns
        return self._metadata[name]

    def _meeting(self, where: Any) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return which rows meet a condition, bool `[N]`."""
        import pyarrow as pa

        columns, manifest = self._manifest.columns, self._manifest
        expression = condition(where, columns) if isinstance(where, str) else where
        start, found = 0, np.zeros(manifest.rows, np.bool_)
        for name, count in manifest.segments.items():
            read = self._metadata_in(name, count) if columns else {}
            arrays = {
                key: read[key]
                if key in read and segments.kind_of_column(read[key]) == kind
                else segments.as_column(read[key].to_pylist() if key in read else [None] * count, kind)
                for key, kind in columns.items()
            }
            table = pa.table({**arrays, _ROW: np.arange(count)})
            try:
                rows = table.filter(expression)[_ROW].to_numpy()
            except (pa.ArrowException, TypeError) as error:
                allowed = f"must be a condition on {', '.join(columns) or 'metadata, of which there is none'}"
                raise InputError("where", one_line(error)[:200], allowed) from None
            found[start + rows] = True
            start += count
        return found

    def _rows(self, names: Sequence[str]) -> list[int]:
        rows = self._read_items().rows
        if unknown := next((name for name in names if name not in rows), None):
            raise InputError("ids", f"'{unknown}' is not in the index")
        return [rows[name] for name in names]


def _check_count(name: str, value: object, most: int) -> None:
    if not isinstance(value, Integral) or not 1 <= int(value) <= most:
        raise InputError(name, str(value), f"must be a whole number of 1 to {most:,}")


def _norms(vectors: Floats) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Compute the norms `[N]` of vectors. A norm is NaN or infinite if a number is not finite."""
    return np.sqrt(np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64))


def _names(ids: Sequence[str]) -> list[str]:
    """Check ids, and return them as a list."""
    if isinstance(ids, str) or not isinstance(ids, Iterable):
        raise InputError("ids", repr(ids), "must be a list of texts")
    names = list(ids)
    for name in names:
        if not isinstance(name, str) or not name or len(name) > segments.TEXT_BYTES // 4:
            raise InputError("ids", repr(name)[:100], "must be texts that are not empty, and not too long")
        try:
            name.encode()
        except UnicodeEncodeError:
            raise InputError("ids", repr(name), "must be valid Unicode: rename the file") from None
    if len(set(names)) < len(names):
        raise InputError("ids", f"'{Counter(names).most_common(1)[0][0]}' appears twice", hint="give each once")
    return [str(name) for name in names]  # plain str: names from a numpy array have a type of numpy


def _entries(metadata: object, count: int) -> list[Mapping[str, Any]]:
    """Return the metadata of new items, one entry for each. Numbers of numpy become numbers of Python."""
    if metadata is None:
        return [{}] * count
    if not isinstance(metadata, Iterable) or isinstance(metadata, str | Mapping):
        raise InputError("metadata", repr(metadata), "must be a list, one per item")
    entries = [{} if entry is None else entry for entry in metadata]
    if len(entries) != count:
        raise InputError("metadata", f"{len(entries):,} for {count:,} items", hint="give one per item, or None")
    for entry in entries:
        if not isinstance(entry, Mapping) or not all(isinstance(key, str) and key for key in entry):
            raise InputError("metadata", repr(entry)[:100], "must be numbers and texts by name")
    return [{key: x.item() if isinstance(x, np.generic) else x for key, x in entry.items()} for entry in entries]
