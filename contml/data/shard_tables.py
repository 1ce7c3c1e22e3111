"""Tables with the bytes of images in a column: Parquet files, and the Arrow files of Hugging Face data sets."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow
from pyarrow import compute, parquet, types

from contml._support.errors import InputError, did_you_mean, one_line
from contml._support.texts import Texts
from contml.data.shards import MOST_METADATA, Address, Shard, plain_name, texts_of

State: TypeAlias = "tuple[int, int]"
#: The column of names that WebDataset's tables have.
_KEY = "__key__"
#: Bytes of images that are decoded at a time, and the most rows.
_BLOCK_BYTES, _BLOCK_ROWS = 1 << 25, 64
#: Names that are read at a time, and the longest in bytes: a long one may be repeated in each of a million rows.
_NAMES, _LONGEST_NAME = 512, 4096
#: Files that are open at a time in a process.
_MOST_OPEN = 8


class _Columns(NamedTuple):
    """What is read of a table.

    Attributes:
        image: the column of the images.
        content: the leaf with their bytes: "image", or "image.bytes" of a structure.
        names: the leaf with their names; "": row numbers.
        is_chosen: the user chose the column of names: each row must have one of its own.
        others: the other columns that can be shown.
    """

    image: str
    content: str
    names: str
    is_chosen: bool
    others: list[str]


class TableShard(Shard):
    """A table with images. Their names are their row numbers, or the paths that come with them, if these differ.

    Raises:
        InputError: it is damaged, has no column of bytes of images, or several, or a row without a name.
    """

    def __init__(self, address: Address, state: State) -> None:
        self._state = state
        with _one_kind_of_error(address):
            schema, rows = self._read_schema(address)
            self.columns = _chosen(address, schema)
            if rows > state[0]:
                got = f"{rows:,} rows in {state[0]:,} bytes"
                raise InputError(str(address), got, "must hold the bytes of an image in each row")
            if not rows:
                raise InputError(str(address), "no rows", "must hold images")
            super().__init__(address, self._names(address, rows))

    def _names(self, address: Address, rows: int) -> Texts:
        name = self.columns.names
        if name:
            cells = (value for batch in self._read_column(address, name) for value in _checked(address, batch, name))
            names = Texts("" if value is None else plain_name(str(value)) for value in cells)
            empty = next((row for row, text in enumerate(names) if not text), None)
            if self.columns.is_chosen:
                if empty is not None:
                    raise InputError(f"{address}, row {empty}", f"no name in column {name}", hint="choose another")
                return names
            if empty is None and len({*map(hash, names)}) == len(names):
                return names
        return Texts(map(str, range(rows)))

    def read(self, row: int) -> bytes:
        """The bytes of a row."""
        value = self._value(row, (self.columns.content,))[self.columns.image]
        if isinstance(value, dict):
            value = value["bytes"]
        if value is None:
            raise OSError(f"no bytes in column {self.columns.image}")
        if not value:
            raise OSError("empty file")
        return bytes(value)

    def sizes(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The lengths of the bytes, which are all read."""
        name = self.columns.content
        with _one_kind_of_error(self.address):
            cells = (
                _cells(batch, name).cast(pyarrow.large_binary()) for batch in self._read_column(self.address, name)
            )
            lengths = [compute.binary_length(each).fill_null(0) for each in cells]
        return np.concatenate([np.asarray(each, np.int64) for each in lengths])

    def metadata(self, row: int) -> dict[str, str]:
        """The other columns of a row."""
        texts = texts_of(self._value(row, tuple(self.columns.others))) if self.columns.others else {}
        if (size := sum(map(len, texts.values()))) > MOST_METADATA:
            raise OSError(f"metadata of {size:,} characters; must be at most {MOST_METADATA:,}")
        return texts

    def _value(self, row: int, columns: tuple[str, ...]) -> dict[str, Any]:
        """The cells of a row.

        Raises:
            OSError: they cannot be read.
        """
        try:
            reader = _reader(type(self), self.address.file, self._state, columns, os.getpid())
            found: dict[str, Any] = reader.row(row)
        except (pyarrow.ArrowException, ValueError, StopIteration, IndexError) as error:
            raise OSError(one_line(error) or "damaged") from None
        return found

    @staticmethod
    @abstractmethod
    def _read_schema(address: Address) -> tuple[Any, int]:
        """The schema of the table, and its number of rows."""

    @staticmethod
    @abstractmethod
    def _read_column(address: Address, name: str) -> Iterator[Any]:
        """The batches of a column, or of a leaf of it."""

    @staticmethod
    @abstractmethod
    def reader(file: str, columns: tuple[str, ...]) -> Any:
        """An open file, whose `row(number)` returns the cells of a row by column."""


@lru_cache(maxsize=_MOST_OPEN)
def _reader(kind: type[TableShard], file: str, state: State, columns: tuple[str, ...], process: int) -> Any:  # noqa: ARG001
    """An open file. It is opened again if it has changed, and in a forked process, which would share its position."""
    return kind.reader(file, columns)


class ParquetShard(TableShard):
    """A Parquet file. Its images are read in blocks, in the order of the rows; a row before the last one is slow."""

    @staticmethod
    def _read_schema(address: Address) -> tuple[Any, int]:
        with parquet.ParquetFile(address.file) as file:
            return file.schema_arrow, file.metadata.num_rows

    @staticmethod
    def _read_column(address: Address, name: str) -> Iterator[Any]:
        with parquet.ParquetFile(address.file) as file:
            yield from file.iter_batches(_NAMES, columns=[name])

    @staticmethod
    def reader(file: str, columns: tuple[str, ...]) -> Any:
        """Reads blocks of rows."""
        return _Blocks(file, columns)


class _Blocks:
    """The rows of a Parquet file, a block at a time: each row group is decoded once for rows in ascending order."""

    def __init__(self, file: str, columns: tuple[str, ...]) -> None:
        # Not the whole row group at a time: it may be of any size.
        self._file = parquet.ParquetFile(file, pre_buffer=False, buffer_size=1 << 20)
        self._columns = [*columns]
        about = self._file.metadata
        groups = [about.row_group(number) for number in range(about.num_row_groups)]
        self._starts = np.cumsum([0, *(group.num_rows for group in groups)])
        bytes_per_row = sum(group.total_byte_size for group in groups) // max(1, about.num_rows) + 1
        self._rows = max(1, min(_BLOCK_ROWS, _BLOCK_BYTES // bytes_per_row))
        self._group, self._start, self._end = -1, 0, 0
        self._batches: Iterator[Any] = iter(())
        self._block: Any = None

    def row(self, number: int) -> dict[str, Any]:
        """The cells of a row by column."""
        group = int(np.searchsorted(self._starts, number, side="right")) - 1
        if group != self._group or number < self._start:
            self._group, self._start, self._end = group, int(self._starts[group]), int(self._starts[group])
            self._batches = self._file.iter_batches(self._rows, [group], self._columns, use_threads=False)
        while number >= self._end:
            self._block = next(self._batches)
            self._start, self._end = self._end, self._end + len(self._block)
        cells = self._block.slice(number - self._start, 1)
        return {name: cells.column(position)[0].as_py() for position, name in enumerate(cells.schema.names)}


class ArrowShard(TableShard):
    """An Arrow file, as `datasets` saves it; it is memory-mapped."""

    @staticmethod
    def _read_schema(address: Address) -> tuple[Any, int]:
        table = _mapped(address.file)
        for batch in table.to_batches():
            batch.validate(full=True)  # compiled code would read out of bounds
        return table.schema, len(table)

    @staticmethod
    def _read_column(address: Address, name: str) -> Iterator[Any]:
        column, _, leaf = name.partition(".")
        yield from _mapped(address.file).select([column if leaf else name]).to_batches()

    @staticmethod
    def reader(file: str, columns: tuple[str, ...]) -> Any:
        """Reads single rows."""
        return _Rows(file, columns)


class _Rows:
    """The rows of a memory-mapped table."""

    def __init__(self, file: str, columns: tuple[str, ...]) -> None:
        table = _mapped(file)
        self._columns = {
            name: table.column(name)
            for name in (each if each in table.schema.names else each[: -len(_BYTES)] for each in columns)
        }

    def row(self, number: int) -> dict[str, Any]:
        """The cells of a row by column."""
        return {name: column[number].as_py() for name, column in self._columns.items()}


def _mapped(file: str) -> Any:
    """The table in an Arrow file or stream, without a copy."""
    with open(file, "rb") as stream:  # noqa: PTH123
        is_file = stream.read(6) == b"ARROW1"
    source = pyarrow.memory_map(file)
    return (pyarrow.ipc.open_file if is_file else pyarrow.ipc.open_stream)(source).read_all()


@contextmanager
def _one_kind_of_error(address: Address) -> Iterator[None]:
    try:
        yield
    except (InputError, FileNotFoundError):
        raise
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError, KeyError) as error:
        got = f"damaged, cut short or of another format ({one_line(error)[:120]})"
        raise InputError(address.file, got, hint="copy it again") from None


# -- columns -----------------------------------------------------------------------------------------------------------

#: The leaf with the bytes of an image, and that with its name, in a structure of Hugging Face.
_BYTES, _PATH = ".bytes", ".path"


def _is_bytes(kind: Any) -> bool:
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind))


def _fields(kind: Any) -> dict[str, Any]:
    return {kind.field(n).name: kind.field(n).type for n in range(kind.num_fields)} if types.is_struct(kind) else {}


def _holds_images(kind: Any) -> bool:
    return _is_bytes(kind) or _is_bytes(_fields(kind).get("bytes", pyarrow.null()))


def _is_name(kind: Any) -> bool:
    return bool(
        types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind) or types.is_integer(kind)
    )


def _can_be_shown(kind: Any) -> bool:
    """Whether cells have no bytes, and have none inside."""
    if types.is_struct(kind):
        return all(map(_can_be_shown, _fields(kind).values()))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _can_be_shown(kind.value_type)
    if types.is_dictionary(kind):
        return _can_be_shown(kind.value_type)
    return not (_is_bytes(kind) or types.is_fixed_size_binary(kind) or types.is_nested(kind))


def _chosen(address: Address, schema: Any) -> _Columns:
    """The columns that an address names, or those that a table has for it."""
    kinds = dict(zip(schema.names, schema.types, strict=True))
    if len(kinds) < len(schema.names):
        raise InputError(str(address), "two columns with one name", hint="rename one")
    image, _, names = address.part[1:].partition(":")
    found = [name for name, kind in kinds.items() if _holds_images(kind)]
    for column in filter(None, (image, names)):
        if column not in kinds:
            allowed = found if column == image else [*kinds]
            raise InputError(
                address.file, f"no column '{column}'", hint=did_you_mean(column, allowed, _one_of(allowed))
            )
    if image and image not in found:
        is_text = _is_name(kinds[image])
        hint = f"read the paths in it with '@{address.file}:{image}'" if is_text else _one_of(found)
        raise InputError(address.file, f"{kinds[image]} in column '{image}'", "must be the bytes of images", hint)
    if not image and len(found) != 1:
        if found:
            got, hint = f"{len(found)} columns of bytes", f"choose one: '{address.file}:{found[0]}'; {_one_of(found)}"
        else:
            got, hint = (
                f"no column of bytes of images ({', '.join(kinds)})",
                "a column of paths is read with '@FILE:COLUMN'",
            )
        raise InputError(address.file, got, hint=hint)
    image = image or found[0]
    fields = _fields(kinds[image])
    if names and not _is_name(kinds[names]):
        raise InputError(address.file, f"{kinds[names]} in column '{names}'", "must be texts or whole numbers")
    default = (
        _KEY
        if _KEY in kinds and _is_name(kinds[_KEY])
        else f"{image}{_PATH}"
        if _is_name(fields.get("path", pyarrow.null()))
        else ""
    )
    others = [name for name, kind in kinds.items() if name != image and _can_be_shown(kind)]
    return _Columns(image, f"{image}{_BYTES}" if fields else image, names or default, bool(names), others)


def _one_of(names: list[str]) -> str:
    return f"one of {', '.join(names)}" if names else "it has none"


def _cells(batch: Any, name: str) -> Any:
    """The cells of the only column of a batch, or of a leaf `column.field` of it."""
    column = batch.column(0)
    return column.field(name.rpartition(".")[2]) if types.is_struct(column.type) else column


def _checked(address: Address, batch: Any, name: str) -> list[Any]:
    """The names in a column, or in a leaf `column.field`."""
    cells = _cells(batch, name)
    if not types.is_integer(cells.type):
        longest = compute.max(compute.binary_length(cells)).as_py() or 0
        if longest > _LONGEST_NAME:
            got = f"a name of {longest:,} bytes in column {name}"
            raise InputError(address.file, got, f"must be at most {_LONGEST_NAME:,}")
    found: list[Any] = cells.to_pylist()
    return found
