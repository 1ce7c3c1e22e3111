"""The files of an index: a process that is killed at any moment loses nothing that was added, and adds nothing twice.

    INDEX/index.sqlite              ids, metadata, checksums, and the state: what counts is what this file names; images
                                    that were given, and are not in the index
    INDEX/vectors-000001.f32        float32 [N, d], only appended to; row n is the item at position n
    INDEX/structure-000002.safetensors    the search structure of the first rows, if there is one

    add     : append vectors, fsync ---> one transaction: ids, checksum, new state
    compact : vectors-(s+1), fsync  ---> one transaction: new positions, new state ---> delete vectors-s

Until its transaction, a change does not exist: rows after the last one that the state counts, and files that it does
not name, are what a killed process left, and the next writer removes them.

SQLite has a rollback journal, not a write-ahead log: a log would need a third file that every reader can write, so an
index on a read-only disk could not be searched. One process writes at a time, under the lock of the folder; any number
read, and each search sees the last finished change.

Everything has a checksum (CRC-32): rows of vectors in the chunks in which they were added, each id with its position,
each item's metadata, the state. All but metadata is checked when it is loaded, metadata when it is returned.

A checksum finds damage, not intent: an index may come from a stranger, who writes checksums too. So the tables of the
file, the types and ranges of all values, and what the search structure refers to are checked as well.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import numpy as np
from pydantic import Field, JsonValue, NonNegativeInt, PositiveInt, TypeAdapter

from contml._support.errors import InputError, one_line
from contml._support.files import atomic, check_new_folder, locked, remove_temporaries, unwritable, write

Floats: TypeAlias = "np.ndarray[Any, np.dtype[np.float32]]"
Flags: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"
#: Ids `[N]`: text, or None for an item that was removed.
Ids: TypeAlias = "np.ndarray[Any, np.dtype[np.object_]]"
CodeKind: TypeAlias = Literal["int8", "binary"]
Kind: TypeAlias = Literal["auto", "flat", "hnsw", "ivf_pq", "int8", "binary"]

FILE = "index.sqlite"
#: The format of the files: a reader refuses another one.
FORMAT = 1
#: What is said while another process holds the lock, and what to do.
_BUSY = ("another process is changing this index", "wait for it, or stop it")
#: Seconds to wait for a transaction of another process.
_TIMEOUT = 60.0
#: Rows that compaction copies at a time, which are a chunk of the new file.
_COPIED = 1 << 16

_TABLES = """
CREATE TABLE state (format INTEGER NOT NULL, content TEXT NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE chunks (start INTEGER PRIMARY KEY, count INTEGER NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE items (position INTEGER PRIMARY KEY, id TEXT NOT NULL, crc INTEGER NOT NULL,
    metadata TEXT, metadata_crc INTEGER);
CREATE TABLE removed (number INTEGER PRIMARY KEY, vectors INTEGER NOT NULL, position INTEGER NOT NULL,
    id TEXT NOT NULL, crc INTEGER NOT NULL);
"""
#: What indexes of contml 0.1 do not have; the next change adds it. Of each item, and of each image that was given and
#: is not in the index: the state of its file when it was read (`contml.data.copies.with_digest`), and why it is not in
#: the index, NULL as long as it is not embedded.
_STATES = """
ALTER TABLE items ADD COLUMN state TEXT;
CREATE TABLE left_out (id TEXT PRIMARY KEY, state TEXT, cause TEXT);
"""
#: Why an image is left out that was removed.
_REMOVED = "removed"


@dataclass(frozen=True)
class StructureFile:
    """A file with a search structure.

    Args:
        number: its number, which is part of its name.
        kind: "hnsw", "ivf_pq", "int8" or "binary".
        count: it covers the first `count` rows of the vectors.
        trained: the number of rows when its quantizers were trained; 0 for HNSW, which has none.
        size: bytes.
        crc: the checksum of its content.
        breadth: of a search: the candidates that HNSW keeps, or the lists that IVF-PQ searches.
        candidates: but of HNSW: candidates per result whose exact distance is computed.
        recall: the share of the true 10 nearest that such a search found; None: not measured yet.
    """

    number: NonNegativeInt
    kind: Kind
    count: NonNegativeInt
    trained: NonNegativeInt
    size: NonNegativeInt
    crc: int
    breadth: Annotated[int, Field(ge=1, le=4096)] = 64
    candidates: Annotated[int, Field(ge=1, le=100)] = 10
    recall: float | None = None


@dataclass(frozen=True)
class IndexState:
    """What is in the index, besides ids and vectors.

    Args:
        dim: dimension of the embeddings.
        kind: the kind of the search structure; "auto" chooses by the number of items.
        model: what is known of the model: its identity, and its run.
        vectors: the number of the file of vectors, which is part of its name.
        count: rows of that file, with those of removed items.
        live: items: rows that are not removed.
        removed: removals since the index was created.
        norm: at least the largest norm of a vector.
        described: whether an item was ever added with metadata.
        last: the last number that was given to a file.
        compared: the number of rows for which kind "auto" found no structure that finds enough of the nearest items:
            all are compared until there are twice as many.
        structure: the file of the search structure, if there is one.
    """

    dim: PositiveInt
    kind: Kind
    model: dict[str, Any]
    vectors: NonNegativeInt = 0
    count: NonNegativeInt = 0
    live: NonNegativeInt = 0
    removed: NonNegativeInt = 0
    norm: Annotated[float, Field(ge=0, le=1e150, allow_inf_nan=False)] = 0.0
    described: bool = False
    last: NonNegativeInt = 0
    compared: NonNegativeInt = 0
    structure: StructureFile | None = None


@dataclass(frozen=True, eq=False)
class Content:
    """An index at one moment.

    Args:
        state: its state.
        vectors: `[N, d]`, mapped from the file.
        ids: `[N]`, None where the item was removed.
        live: `[N]`, False where the item was removed.
    """

    state: IndexState
    vectors: Floats
    ids: Ids
    live: Flags


_STATE = TypeAdapter(IndexState)
#: Metadata of an item: JSON values by name.
_METADATA: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, JsonValue])


def check_folder(folder: Path) -> None:
    """Checks that a folder can be that of an index.

    Raises:
        InputError: it has files, and is not an index.
    """
    if not (folder / FILE).is_file():
        check_new_folder(folder)


class LeftOut(NamedTuple):
    """An image that was given, and is not in the index.

    Attributes:
        id: its id.
        state: that of its file when it was read; None: not known.
        cause: why it cannot be read, or "removed"; None: it is not embedded yet.
    """

    id: str
    state: str | None
    cause: str | None


class ChangedError(Exception):
    """Another process has changed the index since its content was read: read it again."""


class Store:
    """The files of one index.

    Args:
        folder: the folder of the index.

    Raises:
        InputError: it is not an index, or damaged.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / FILE
        if not self.file.is_file():
            problem = "not an index, it has no index.sqlite" if folder.is_dir() else "no such index"
            raise InputError(str(folder), problem, hint="'contml index RUN IMAGES... --out INDEX' makes one")
        self._mutex, self._writer, self._depth = threading.RLock(), threading.RLock(), 0
        self._version: int | None = None
        self._content: Content | None = None
        with self._reading():
            # Also where it may only be read: SQLite then opens it read-only. After a crash, it rolls the journal back.
            self._connection = sqlite3.connect(
                f"{self.file.absolute().as_uri()}?mode=rw",
                uri=True,
                timeout=_TIMEOUT,
                isolation_level=None,
                check_same_thread=False,
            )
            for pragma in ("trusted_schema = OFF", "cell_size_check = ON", "synchronous = FULL"):
                self._connection.execute(f"PRAGMA {pragma}")
        try:
            self._check_tables()
            self.content()
        except BaseException:
            self.close()
            raise

    @staticmethod
    def create(folder: Path, state: IndexState) -> None:
        """Makes the folder of an empty index.

        Raises:
            InputError: it is an index already, has other files, or cannot be written; or another process makes it.
        """
        check_folder(folder)

        def save(temporary: Path) -> None:
            connection = sqlite3.connect(temporary, isolation_level=None)
            try:
                connection.executescript(f"BEGIN;{_TABLES}{_STATES}COMMIT;")
                _put_state(connection, state)
            except sqlite3.Error as error:
                raise OSError(one_line(error)) from None
            finally:
                connection.close()

        with locked(folder, *_BUSY):
            if (folder / FILE).exists():
                raise InputError(str(folder), "exists already", hint="open it, or choose another folder")
            write(folder / FILE, save)

    def close(self) -> None:
        """Closes the file; the index cannot be used any more."""
        with self._mutex:
            self._connection.close()

    # -- reading ---------------------------------------------------------------------------------------------------

    def _check_tables(self) -> None:
        """Checks that the file has the tables of an index and nothing else, such as a view that never ends."""
        with self._reading():
            tables = self._connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY name").fetchall()
        expected = []
        with closing(sqlite3.connect(":memory:")) as empty:
            for script in (_TABLES, _STATES):
                empty.executescript(script)
                expected.append(empty.execute("SELECT type, name, sql FROM sqlite_master ORDER BY name").fetchall())
        if tables not in expected:
            raise self._damaged("its tables are not those of an index")
        self._has_states = tables == expected[1]

    def content(self) -> Content:
        """The content after the last finished change, read again if another process has changed it.

        Raises:
            InputError: a file is damaged.
        """
        with self._mutex:
            while True:
                with self._reading():
                    (version,) = self._connection.execute("PRAGMA data_version").fetchone()
                if self._content is None or version != self._version:
                    try:
                        self._content = self._load(self._content)
                    except FileNotFoundError:  # compaction by another process has replaced it meanwhile
                        with self._reading():
                            (current_version,) = self._connection.execute("PRAGMA data_version").fetchone()
                        if current_version == version:
                            raise self._damaged("the file of its vectors is missing") from None
                        continue
                self._version = version
                return self._content

    def metadata(self, content: Content, positions: Sequence[int]) -> dict[int, dict[str, Any]]:
        """The metadata of the items at some positions, {} for items without.

        Raises:
            ChangedError: an item was removed, or moved by compaction, since `content` was read.
            InputError: the file is damaged.
        """
        query = "SELECT id, metadata, metadata_crc FROM items WHERE position = ?"
        with self._mutex:
            with self._reading():
                (version,) = self._connection.execute("PRAGMA data_version").fetchone()
                rows = [self._connection.execute(query, (position,)).fetchone() for position in positions]
            unchanged = version == self._version and content is self._content
        metadata = {}
        for position, row in zip(positions, rows, strict=True):
            if row is None or row[0] != content.ids[position]:
                raise self._damaged("an item is missing") if unchanged else ChangedError
            if row[1] is not None and not (isinstance(row[1], str) and zlib.crc32(row[1].encode()) == row[2]):
                raise self._damaged(f"the metadata of '{row[0]}' changed")
            try:
                metadata[position] = {} if row[1] is None else _METADATA.validate_json(row[1])
                json.dumps(metadata[position], allow_nan=False)  # 1e999 is read as infinity
            except (ValueError, RecursionError):
                raise self._damaged(f"the metadata of '{row[0]}' are not JSON values by name") from None
        return metadata

    def removed_ids(self) -> set[str]:
        """The ids of all items that were ever removed."""
        with self._mutex, self._reading():
            return {row[0] for row in self._connection.execute("SELECT id FROM removed")}

    def states(self, content: Content, positions: Sequence[int]) -> list[str | None]:
        """The states of the files of the items at some positions; None where it is not known."""
        if not self._has_states:
            return [None] * len(positions)
        query = "SELECT state FROM items WHERE position = ? AND id = ?"
        with self._mutex, self._reading():
            rows = [self._connection.execute(query, (each, content.ids[each])).fetchone() for each in positions]
        return [None if row is None else row[0] for row in rows]

    def left_out(self) -> list[LeftOut]:
        """The images that were given and are not in the index, but those that are not embedded yet."""
        if not self._has_states:
            return []
        with self._mutex, self._reading():
            rows = self._connection.execute("SELECT * FROM left_out WHERE cause IS NOT NULL").fetchall()
        if not all(isinstance(name, str) and isinstance(cause, str) for name, _, cause in rows):
            raise self._damaged("the images that are left out changed")
        return [LeftOut(*row) for row in rows]

    def pending(self) -> int:
        """The number of images that were given and are not embedded yet."""
        if not self._has_states:
            return 0
        with self._mutex, self._reading():
            (count,) = self._connection.execute("SELECT COUNT(*) FROM left_out WHERE cause IS NULL").fetchone()
        return int(count)

    def vectors_file(self, content: Content) -> tuple[Path, str]:
        """The file of the vectors, and a hash of the vectors: of the checksums of their chunks."""
        query = "SELECT * FROM chunks WHERE start < ? ORDER BY start"
        with self._mutex, self._reading():
            chunks = self._connection.execute(query, (content.state.count,)).fetchall()
        return self._vectors(content.state.vectors), hashlib.sha256(repr(chunks).encode()).hexdigest()

    def fingerprint(self, content: Content) -> str:
        """A hash of the items: vectors, ids and metadata, by their checksums."""
        with self._mutex, self._reading():
            items = self._connection.execute(
                "SELECT position, crc, metadata_crc FROM items ORDER BY position"
            ).fetchall()
        return hashlib.sha256(f"{self.vectors_file(content)[1]} {items}".encode()).hexdigest()

    def structure_path(self, number: int) -> Path:
        """The file of the search structure with this number."""
        return self.folder / f"structure-{number:06d}.safetensors"

    def _load(self, before: Content | None) -> Content:
        """The content on disk; what `before` has already is not read again."""
        with self._reading():
            self._connection.execute("BEGIN")
            try:
                state = self._read_state()
                if before is not None and before.state.vectors != state.vectors:
                    before = None
                first_position, num_removed = (0, 0) if before is None else (before.state.count, before.state.removed)
                chunks = self._connection.execute(
                    "SELECT * FROM chunks WHERE start >= ? ORDER BY start", (first_position,)
                )
                new_chunks = chunks.fetchall()
                query = "SELECT position, id, crc FROM items WHERE position >= ? ORDER BY position"
                items = self._connection.execute(query, (first_position,)).fetchall()
                query = "SELECT * FROM removed WHERE number > ? ORDER BY number"
                removed = self._connection.execute(query, (num_removed,)).fetchall()
            finally:
                self._connection.execute("ROLLBACK")
        vectors = self._map(state)
        ids, live = np.full(state.count, None, object), np.zeros(state.count, np.bool_)
        if before is not None:
            ids[:first_position], live[:first_position] = before.ids, before.live
        for position, name, crc in items:
            if not isinstance(name, str) or not 0 <= position < state.count or crc != _crc(position, name):
                raise self._damaged(f"the id of item {position:,} changed")
            ids[position], live[position] = name, True
        for expected, (number, file, position, name, crc) in enumerate(removed, num_removed + 1):
            if number != expected or crc != _crc(number, file, position, name) or not isinstance(name, str):
                raise self._damaged(f"removal {expected:,} changed")
            if file == state.vectors:
                if not isinstance(position, int) or not 0 <= position < state.count:
                    raise self._damaged(f"removal {expected:,} is of no item")
                ids[position], live[position] = None, False
        if int(live.sum()) != state.live or num_removed + len(removed) != state.removed:
            raise self._damaged(f"{int(live.sum()):,} items are left of {state.live:,}")
        self._check_vectors(vectors, first_position, new_chunks, state.norm)
        return Content(state, vectors, ids, live)

    def _read_state(self) -> IndexState:
        rows = self._connection.execute("SELECT format, content, crc FROM state").fetchall()
        if len(rows) != 1:
            raise self._damaged("it has no state")
        format_number, content, crc = rows[0]
        if not isinstance(content, str) or crc != _crc(format_number, content):
            raise self._damaged("its state changed")
        if format_number != FORMAT:
            raise InputError(
                str(self.folder), f"format {format_number}", f"must be {FORMAT}", "use the version that wrote it"
            )
        try:
            return _STATE.validate_json(content)
        except ValueError as error:
            raise self._damaged(f"its state cannot be read ({one_line(error)})") from None

    def _map(self, state: IndexState) -> Floats:
        return map_vectors(self._vectors(state.vectors), state.count, state.dim)

    def _check_vectors(self, vectors: Floats, first: int, chunks: Sequence[tuple[int, int, int]], norm: float) -> None:
        for start, count, crc in chunks:
            chunk = vectors[first : first + count] if isinstance(count, int) else vectors[:0]
            if start != first or len(chunk) != count or zlib.crc32(chunk.data) != crc:
                raise self._damaged(f"the vectors of items {first:,} and following changed")
            squares = np.einsum("nd,nd->n", chunk, chunk, dtype=np.float64)
            if not squares.max(initial=0) <= (norm * (1 + 1e-6)) ** 2:
                raise self._damaged(f"the vectors of items {first:,} and following are not finite, or too long")
            first += count
        if first != len(vectors):
            raise self._damaged(f"{len(vectors) - first:,} vectors have no checksum")

    def _vectors(self, number: int) -> Path:
        return self.folder / f"vectors-{number:06d}.f32"

    def _damaged(self, cause: str) -> InputError:
        return InputError(str(self.folder), f"damaged: {cause}", hint="restore it from a copy, or make it again")

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, UnicodeError) as error:  # names in a damaged file may not be text
            raise InputError(str(self.file), f"cannot be read ({one_line(error)})") from None

    # -- writing ---------------------------------------------------------------------------------------------------

    @contextmanager
    def lock(self, *, wait: bool = False) -> Iterator[Content]:
        """Holds the lock of the folder, and yields its content; may be nested.

        Args:
            wait: wait for another process that holds it.

        Raises:
            InputError: another process changes the index, or the folder cannot be written.
        """
        with self._writer:
            if self._depth:
                yield self.content()
                return
            with locked(self.folder, *(() if wait else _BUSY)):
                self._depth = 1
                try:
                    self._check_tables()
                    if not self._has_states:
                        with self._reading():
                            self._connection.executescript(f"BEGIN;{_STATES}COMMIT;")
                        self._has_states = True
                    content = self.content()
                    remove_temporaries(self.folder)  # only the process that holds the lock writes there
                    self._remove_unused(content.state)
                    yield content
                finally:
                    self._depth = 0

    def append(
        self,
        ids: Sequence[str],
        vectors: Floats,
        metadata: Sequence[str | None],
        states: Sequence[str | None],
        norm: float,
    ) -> None:
        """Adds items after the last one; call it with the lock."""
        old_content = self.content()
        state = old_content.state
        first_position, path = state.count, self._vectors(state.vectors)
        data = np.ascontiguousarray(vectors, np.dtype("<f4")).data
        try:
            with path.open("r+b" if first_position else "w+b") as file:
                file.seek(4 * first_position * state.dim)
                file.truncate()  # rows of a process that was killed before its transaction
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            if not first_position:
                _sync_folder(self.folder)
        except OSError as error:
            raise unwritable(path, error) from None
        rows = [
            (position, name, _crc(position, name), text, text and zlib.crc32(text.encode()), item_state)
            for position, (name, text, item_state) in enumerate(zip(ids, metadata, states, strict=True), first_position)
        ]
        described = state.described or any(text is not None for text in metadata)
        state = replace(
            state,
            count=first_position + len(rows),
            live=state.live + len(rows),
            norm=max(norm, state.norm),
            described=described,
        )
        content = Content(
            state,
            self._map(state),
            np.concatenate([old_content.ids, np.array(ids, object)]),
            np.append(old_content.live, np.ones(len(rows), np.bool_)),
        )
        with self._transaction(state, content) as connection:
            connection.execute("INSERT INTO chunks VALUES (?, ?, ?)", (first_position, len(rows), zlib.crc32(data)))
            connection.executemany("INSERT INTO items VALUES (?, ?, ?, ?, ?, ?)", rows)
            connection.executemany("DELETE FROM left_out WHERE id = ?", ((name,) for name in ids))

    def set_states(self, states: Mapping[int, str]) -> None:
        """Records the states of the files of the items at some positions; call it with the lock."""
        if states:
            with self._transaction(self.content().state) as connection:
                rows = ((state, position) for position, state in states.items())
                connection.executemany("UPDATE items SET state = ? WHERE position = ?", rows)

    def leave_out(self, images: Iterable[LeftOut]) -> None:
        """Records images that were given and are not in the index; call it with the lock."""
        with self._transaction(self.content().state) as connection:
            connection.executemany("INSERT OR REPLACE INTO left_out VALUES (?, ?, ?)", images)

    def remove(self, positions: Sequence[int], below: Mapping[str, Sequence[int]]) -> int:
        """Removes items, and forgets images that are not in the index, unless they were removed; call it with the lock.

        Args:
            positions: of items.
            below: positions of the items whose ids begin with a text and a slash, by the text; or the id of an image
                that is not in the index, and no positions.

        Returns:
            The number of images.

        Raises:
            InputError: there is no such image; all items stay.
        """
        content = self.content()
        state, rows = content.state, sorted({*positions}.union(*below.values()))
        log = [
            (number, state.vectors, position, name, _crc(number, state.vectors, position, name))
            for number, position in enumerate(rows, state.removed + 1)
            for name in (content.ids[position],)
        ]
        state = replace(state, live=state.live - len(log), removed=state.removed + len(log))
        count = len(rows)
        with self._transaction(state) as connection:
            query = "DELETE FROM left_out WHERE (id = ? OR substr(id, 1, ?) = ?) AND cause IS NOT ?"
            for name, found in below.items():
                forgotten = connection.execute(query, (name, len(name) + 1, f"{name}/", _REMOVED)).rowcount
                if not (found or forgotten):
                    raise InputError("ids", f"'{name}' is not in the index")
                count += forgotten
            query = f"INSERT OR REPLACE INTO left_out SELECT id, state, '{_REMOVED}' FROM items WHERE position = ?"
            connection.executemany(query, [(position,) for position in rows])
            connection.executemany("DELETE FROM items WHERE position = ?", [(position,) for position in rows])
            connection.executemany("INSERT INTO removed VALUES (?, ?, ?, ?, ?)", log)
        return count

    def compact(self) -> None:
        """Replaces the vectors by those that are left, and numbers the items anew; call it with the lock."""
        content = self.content()
        live_rows = np.flatnonzero(content.live)
        number = content.state.last + 1
        chunks = []
        with atomic(self._vectors(number)) as temporary, temporary.open("r+b") as file:
            for start in range(0, len(live_rows), _COPIED):
                chunk = np.ascontiguousarray(content.vectors[live_rows[start : start + _COPIED]])
                file.write(chunk.data)
                chunks.append((start, len(chunk), zlib.crc32(chunk.data)))
        _sync_folder(self.folder)
        state = replace(content.state, vectors=number, count=len(live_rows), last=number, structure=None)
        with self._transaction(state) as connection:
            query = "SELECT id, metadata, metadata_crc, state FROM items ORDER BY position"
            items = connection.execute(query).fetchall()
            if [item[0] for item in items] != content.ids[live_rows].tolist():
                raise self._damaged("the ids changed")
            connection.execute("DELETE FROM items")
            connection.executemany(
                "INSERT INTO items VALUES (?, ?, ?, ?, ?, ?)",
                ((position, name, _crc(position, name), *others) for position, (name, *others) in enumerate(items)),
            )
            connection.execute("DELETE FROM chunks")
            connection.executemany("INSERT INTO chunks VALUES (?, ?, ?)", chunks)

    def commit_structure(self, structure: StructureFile | None, compared: int = 0) -> None:
        """Names the file of the search structure in the state; call it with the lock.

        compared: the number of rows for which no structure finds enough of the nearest items; 0: not known.
        """
        state = self.content().state
        last_number = state.last if structure is None else structure.number
        with self._transaction(replace(state, structure=structure, last=last_number, compared=compared)):
            pass

    def commit_model(self, model: dict[str, Any]) -> None:
        """Names the model in the state; call it with the lock."""
        with self._transaction(replace(self.content().state, model=model)):
            pass

    @contextmanager
    def _transaction(self, state: IndexState, content: Content | None = None) -> Iterator[sqlite3.Connection]:
        """A change to the next state: all of it, or nothing if the block fails or this process is killed.

        Args:
            state: the next state.
            content: the next content; None to read it from the files.
        """
        with self._mutex:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                try:
                    yield self._connection
                    _put_state(self._connection, state)
                    self._connection.execute("COMMIT")
                except BaseException:
                    if self._connection.in_transaction:
                        self._connection.execute("ROLLBACK")
                    raise
            except (sqlite3.Error, UnicodeError) as error:
                raise InputError(str(self.file), f"cannot be written ({one_line(error)})") from None
            self._content = self._load(self._content) if content is None else content
        self._remove_unused(state)

    def _remove_unused(self, state: IndexState) -> None:
        used_names = {self._vectors(state.vectors).name}
        if state.structure is not None:
            used_names.add(self.structure_path(state.structure.number).name)
        for pattern in ("vectors-*.f32", "structure-*"):
            for path in self.folder.glob(pattern):
                if path.name not in used_names:
                    with suppress(OSError):  # on Windows, a reader keeps it open
                        path.unlink()


def map_vectors(path: Path, count: int, dim: int) -> Floats:
    """The first vectors `[count, dim]` of a file.

    Raises:
        FileNotFoundError: there is no such file.
        InputError: it is cut short, or cannot be read.
    """
    if not count:
        return np.empty((0, dim), np.float32)
    if (size := path.stat().st_size) < 4 * count * dim:
        raise InputError(str(path), f"{size:,} bytes", f"must be {4 * count * dim:,}: cut short")
    try:
        # Copy on write: torch warns about arrays that cannot be written. A plain array: faiss.contrib.torch_utils,
        # which pytorch-metric-learning imports, takes no subclass.
        return np.asarray(np.memmap(path, np.dtype("<f4"), "c", shape=(count, dim)))
    except OSError as error:
        raise InputError(str(path), f"cannot be read ({error.strerror or one_line(error)})") from None


def _put_state(connection: sqlite3.Connection, state: IndexState) -> None:
    content = json.dumps(asdict(state))
    connection.execute("DELETE FROM state")
    connection.execute("INSERT INTO state VALUES (?, ?, ?)", (FORMAT, content, _crc(FORMAT, content)))


def _crc(*values: object) -> int:
    return zlib.crc32(" ".join(map(str, values)).encode())


def _sync_folder(folder: Path) -> None:
    """Makes the name of a new file durable."""
    with suppress(OSError):  # Windows does not open folders
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
