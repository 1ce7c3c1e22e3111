"""The files of an index: Parquet segments that are only ever written whole, and a manifest that names them.

    INDEX/manifest.json              what counts: dimension, model, metadata columns, segments, removed ids
    INDEX/segment-000001.parquet     id, vectors, source, and a typed column per metadata key; up to 65,536 rows
    INDEX/removed-000002.parquet     ids that were removed, with their sources and rows

    add     : write segments ---> replace the manifest
    remove  : write the removed ids ---> replace the manifest
    compact : write all segments again ---> replace the manifest ---> delete the old ones

A change does not exist until the manifest is replaced. Files that the manifest does not name are left from a killed
process, and the next writer deletes them. Numbers of files are never used again, so a reader never takes a new file for
an old one.

An index may come from a stranger. A name in the manifest is a plain file inside the folder: it is opened without
following links, and checked on the open descriptor. Files are read, not mapped. Columns must be neither compressed nor
encoded. So their unpacked size is known from the size of the file before they are read.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, TypeAlias

import numpy as np
from pydantic import ConfigDict, Field, TypeAdapter
from pydantic.dataclasses import dataclass

from contml._support.door import opened
from contml._support.errors import InputError, one_line
from contml._support.files import atomic, write

Floats: TypeAlias = "np.ndarray[Any, np.dtype[np.float32]]"
#: The type of a metadata column. A key that has two types is widened: int to float, all others to text.
Kind: TypeAlias = Literal["bool", "int", "float", "text"]
#: A value of metadata; None if it is missing.
Value: TypeAlias = bool | int | float | str | None
#: The metadata of items by name.
Metadata: TypeAlias = Mapping[str, Mapping[str, Value]]

MANIFEST = "manifest.json"
#: The most rows of a segment, metadata columns, and numbers of a vector.
ROWS, COLUMNS, DIM = 1 << 16, 256, 1 << 14
#: The most bytes of a manifest, of a text, and of the rest of a file beside its vectors.
MANIFEST_BYTES, TEXT_BYTES, OTHER_BYTES = 4 << 20, 1 << 20, 1 << 30
#: The largest norm of a vector: squares of sums of two stay finite in float32.
NORM = 1e18
#: Whole numbers up to this size are exact as float; larger ones are kept as text.
_EXACT = 1 << 53
_OWN = ("id", "vector", "label_vector", "source")
_FILE = re.compile(r"(segment|removed)-[0-9]{6,12}\.parquet")
_Name = Annotated[str, Field(pattern=f"^{_FILE.pattern}$")]


@dataclass(frozen=True, config=ConfigDict(extra="forbid", strict=True))
class Manifest:
    """The content of an index.

    Attributes:
        dim: dimension of the vectors.
        label_dim: dimension of the label vectors. 0 if there are no label vectors.
        model: texts about the model of the vectors.
        columns: the metadata keys with their types.
        segments: the number of rows of each segment, in the order of the rows.
        removed: the number of rows of the file of removed ids. Empty if no id was ever removed.
        last: the highest number of a file so far.
        pending: 0. Indexes of earlier versions have other numbers.
        format: the format of the files.
    """

    dim: Annotated[int, Field(ge=1, le=DIM)]
    model: dict[str, str]
    columns: Annotated[dict[str, Kind], Field(max_length=COLUMNS)] = Field(default_factory=dict)
    segments: dict[_Name, Annotated[int, Field(ge=1, le=ROWS)]] = Field(default_factory=dict)
    removed: Annotated[dict[_Name, Annotated[int, Field(ge=1, lt=10**11)]], Field(max_length=1)] = Field(
        default_factory=dict
    )
    last: Annotated[int, Field(ge=0, lt=10**11)] = 0
    pending: Annotated[int, Field(ge=0, lt=10**11)] = 0
    label_dim: Annotated[int, Field(ge=0, le=DIM)] = 0
    format: Literal[3] = 3

    @property
    def dims(self) -> dict[str, int]:
        """The columns of vectors with their dimensions."""
        return {"vector": self.dim, **({"label_vector": self.label_dim} if self.label_dim else {})}

    @property
    def rows(self) -> int:
        """The number of rows of all segments, including removed items."""
        return sum(self.segments.values())


_MANIFEST = TypeAdapter(Manifest)


def damaged(folder: Path, cause: str) -> InputError:
    """Return the error of an index whose files are damaged."""
    return InputError(str(folder), f"damaged: {cause}", hint="restore it from a copy, or make it again")


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of an index.

    Raises:
        InputError: there is none, or it is damaged.
    """
    try:
        with _opened(folder, MANIFEST) as file:
            content = file.read(MANIFEST_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        got = "not an index" if folder.exists() else "no such index"
        raise InputError(str(folder), got, hint="contml index RUN IMAGES... --out INDEX makes one") from None
    if len(content) > MANIFEST_BYTES:
        raise damaged(folder, f"{MANIFEST} has more than {MANIFEST_BYTES:,} bytes")
    try:
        return _MANIFEST.validate_json(content)
    except ValueError as error:
        written = re.search(rb'"format": ([0-9]{1,9})\b', content)
        if written is not None and int(written[1]) != Manifest.format:
            hint = "make it again: contml index RUN IMAGES... --out INDEX"
            raise InputError(str(folder), f"format {int(written[1])}", f"must be {Manifest.format}", hint) from None
        raise damaged(folder, f"{MANIFEST} cannot be read ({one_line(error)})") from None


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replace the manifest of an index, after the files that it names are on disk.

    Raises:
        InputError: it cannot be written, or has too many segments.
    """
    content = json.dumps(asdict(manifest), indent=1).encode()
    if len(content) > MANIFEST_BYTES:
        problem = f"{len(manifest.segments):,} segments, {len(content):,} bytes of {MANIFEST}"
        raise InputError(str(folder), problem, f"must be at most {MANIFEST_BYTES:,}", "compact it: --compact")
    _sync(folder)
    write(folder / MANIFEST, lambda temporary: temporary.write_bytes(content))
    _sync(folder)


def remove_unused(folder: Path, manifest: Manifest) -> None:
    """Delete the segments in a folder that its manifest does not name."""
    for path in folder.iterdir():
        if _FILE.fullmatch(path.name) and path.name not in {**manifest.segments, **manifest.removed}:
            with suppress(OSError):  # on Windows, a reader keeps it open
                path.unlink()


def check_sizes(folder: Path, manifest: Manifest) -> None:
    """Check that segments are as large as their vectors, before memory is allocated.

    Raises:
        FileNotFoundError: there is no such file.
        InputError: one is smaller.
    """
    for name, rows in manifest.segments.items():
        if (folder / name).lstat().st_size < 4 * rows * sum(manifest.dims.values()):
            raise damaged(folder, f"{name} is too small for {rows:,} rows")


def _sync(folder: Path) -> None:
    """Make the names of new files durable."""
    with suppress(OSError):  # Windows does not open folders
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _opened(folder: Path, name: str) -> BinaryIO:
    """Open a file of an index, which must be a regular file and not a link.

    Raises:
        FileNotFoundError: there is no such file.
        InputError: it is something else, or cannot be read.
    """
    try:
        return opened(folder / name, links=False)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except InputError as error:
        raise damaged(folder, f"{name} is {error.got}") from None
    except (OSError, ValueError) as error:
        text = getattr(error, "strerror", None) or one_line(error)
        raise damaged(folder, f"{name} cannot be read ({text})") from None


# -- segments ----------------------------------------------------------------------------------------------------------


def write_rows(path: Path, columns: Mapping[str, Any], dims: Mapping[str, int]) -> None:
    """Write columns as a Parquet file. A column is an array of Arrow, a list, or vectors of the dimension in `dims`.

    Raises:
        InputError: it cannot be written.
    """
    import pyarrow as pa
    from pyarrow import parquet

    fields, arrays = [], []
    for name, values in columns.items():
        if name in dims:
            values = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), type=_types(dims)[name])
        elif not isinstance(values, pa.Array):
            values = pa.array(values, _types(dims).get(name))
        arrays.append(values)
        fields.append(pa.field(name, values.type, nullable=name not in ("id", "row", *dims)))
    table = pa.table(arrays, schema=pa.schema(fields))
    if table.nbytes > 4 * len(table) * sum(dims.values()) + OTHER_BYTES // 2:
        raise InputError(str(path), f"{table.nbytes:,} bytes", "too many for a segment", "give less metadata")
    with atomic(path) as temporary:
        plain = {"use_dictionary": False, "write_statistics": False, "write_page_checksum": True}
        parquet.write_table(table, temporary, row_group_size=max(1, len(table)), compression="none", **plain)


def read_rows(folder: Path, name: str, rows: int, wanted: Sequence[str], dims: Mapping[str, int]) -> dict[str, Any]:
    """Return columns of a file of an index, as arrays of Arrow: the columns of `wanted` that the file has.

    Args:
        folder: the index.
        name: the file.
        rows: its number of rows, by the manifest.
        wanted: the names of columns.
        dims: the columns of vectors with their dimensions.

    Raises:
        FileNotFoundError: there is no such file.
        InputError: it is damaged, or does not hold this.
    """
    import pyarrow as pa
    from pyarrow import compute, parquet

    try:
        with _opened(folder, name) as file:
            size = os.fstat(file.fileno()).st_size
            if size > 4 * rows * sum(dims.values()) + OTHER_BYTES:
                raise ValueError(f"{size:,} bytes, too many for {rows:,} rows")
            content = file.read(size)
        limits = {"thrift_string_size_limit": 1 << 20, "thrift_container_size_limit": 1 << 16}
        # Not of the open file: a thread of Arrow that has one may abort the process at its end.
        parsed = parquet.ParquetFile(pa.BufferReader(content), page_checksum_verification=True, **limits)
        _check_layout(parsed, content, rows, wanted, dims)
        present = [column for column in wanted if column in parsed.schema_arrow.names]
        table = parsed.read(columns=present)
        arrays = {column: pa.concat_arrays(table[column].chunks) for column in present}
        for column, array in arrays.items():
            array.validate(full=True)
            if pa.types.is_string(array.type):
                longest = compute.max(compute.binary_length(array)).as_py() or 0
                if longest > TEXT_BYTES:
                    raise ValueError(f"column {column} has a text of {longest:,} bytes")
        return arrays
    except (FileNotFoundError, InputError):
        raise
    # A hostile file may cause any error of the reader.
    except (pa.ArrowException, OSError, ValueError, TypeError, LookupError, ArithmeticError, MemoryError) as error:
        raise damaged(folder, f"{name} cannot be read ({one_line(error)})") from None


def _check_layout(parsed: Any, content: bytes, rows: int, wanted: Sequence[str], dims: Mapping[str, int]) -> None:
    """Check the layout of a Parquet file, which limits the unpacked size of its columns.

    A column without compression and dictionary has all its values in the file. It unpacks to at most twice its size,
    and eight bytes for each missing number. The pages are checked too, because a reader trusts them more than the
    footer.
    """
    layout, schema, types = parsed.metadata, parsed.schema_arrow, _types(dims)
    if layout.num_rows != rows:
        raise ValueError(f"{layout.num_rows:,} rows instead of {rows:,}")
    names = schema.names
    if layout.num_columns > COLUMNS + len(_OWN) or len({*names}) < len(names) or layout.num_row_groups != 1:
        raise ValueError("its layout is not that of a segment")
    columns = [parsed.schema.column(number) for number in range(layout.num_columns)]
    for number, column in enumerate(columns):
        field, chunk = schema.field(number), layout.row_group(0).column(number)
        expected = types.get(field.name)
        levels = {"id": (0, 0), "row": (0, 0), **dict.fromkeys(dims, (1, 1))}.get(field.name, (1, 0))
        if (column.max_definition_level, column.max_repetition_level) != levels:
            raise ValueError(f"column {field.name} is not that of a segment")
        if field.type not in ([expected] if expected is not None else list(_kinds().values())):
            raise ValueError(f"column {field.name} is {field.type}")
        if chunk.compression != "UNCOMPRESSED" or not {*chunk.encodings} <= {"PLAIN", "RLE", "BIT_PACKED"}:
            raise ValueError(f"column {field.name} is compressed or encoded")
        if chunk.has_dictionary_page or chunk.num_values != rows * dims.get(field.name, 1):
            raise ValueError(f"column {field.name} has {chunk.num_values:,} values")
        _check_pages(content, chunk)
    if missing := [column for column in wanted if column in types and column not in names]:
        raise ValueError(f"no column {missing[0]}")


def _check_pages(content: bytes, chunk: Any) -> None:
    """Check that the pages of a column have its values, without encoding."""
    place, end, values, pages = chunk.data_page_offset, chunk.data_page_offset + chunk.total_compressed_size, 0, 0
    while place < end and pages < _PAGES:
        header, place = _fields(content, place)
        pages += 1
        kind, unpacked, packed, (count, encoding) = header[1], header[2], header[3], (header[5][1], header[5][2])
        if kind != _DATA_PAGE or encoding not in _ENCODINGS or unpacked != packed or packed < 0:
            raise ValueError("a page that is not one of a segment")
        place, values = place + packed, values + count
    if place != end or values != chunk.num_values:
        raise ValueError(f"pages of {values:,} values instead of {chunk.num_values:,}")


def _fields(content: bytes, place: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """Return the fields of a struct in Thrift's compact protocol by number, and the end of the struct."""
    found, number = dict[int, Any](), 0
    while (head := content[place]) != 0:
        place, kind = place + 1, head & 15
        number += head >> 4
        if not head >> 4 or depth > 2:
            raise ValueError("a page header that is not one of a segment")
        if kind in (_TRUE, _FALSE):
            found[number] = kind == _TRUE
        elif kind == _STRUCT:
            found[number], place = _fields(content, place, depth + 1)
        else:
            value = shift = 0
            while True:
                value, shift, place = value | (content[place] & 127) << shift, shift + 7, place + 1
                if content[place - 1] < 128 or shift > 63:
                    break
            if kind == _BINARY:
                place += value
            elif kind in _WHOLE:
                found[number] = (value >> 1) ^ -(value & 1)
            else:
                raise ValueError("a page header that is not one of a segment")
    return found, place + 1


#: The most pages of a column; each has 1 MB.
_PAGES = 1 << 16
#: The type of a page with values, in Parquet; plain values, and booleans by their runs.
_DATA_PAGE, _ENCODINGS = 0, (0, 3)
#: Types of fields in Thrift.
_TRUE, _FALSE, _WHOLE, _BINARY, _STRUCT = 1, 2, (4, 5, 6), 8, 12


def vectors_of(column: Any, dim: int) -> Floats:
    """Return the vectors `[n, dim]` of a column."""
    return column.flatten().to_numpy(zero_copy_only=False).reshape(-1, dim)


# -- metadata ----------------------------------------------------------------------------------------------------------


def column_name(key: str) -> str:
    """Return the name of the column of a metadata key.

    The name gets a prefix if the index itself has a column of this name.
    """
    return f"metadata.{key}" if key in (*_OWN, "row") or key.startswith("metadata.") else key


def kind_of(key: str, value: object) -> Kind:
    """Return the type of a value of metadata.

    Raises:
        InputError: it is neither a number nor a text, not finite, or too long.
    """
    match value:
        case bool():
            return "bool"
        case int():
            return "int" if abs(value) <= _EXACT else "text"
        case float() if math.isfinite(value):
            return "float"
        case str() if len(value) <= TEXT_BYTES // 4:
            try:
                value.encode()
            except UnicodeEncodeError:
                raise InputError(f"metadata {key}", repr(value), "must be valid Unicode") from None
            return "text"
    allowed = f"must be finite numbers, texts of {TEXT_BYTES // 4:,} characters, or None"
    raise InputError(f"metadata {key}", repr(value)[:100], allowed)


def widened(first: Kind | None, second: Kind) -> Kind:
    """Return the type that holds the values of both types."""
    if first is None or first == second:
        return second
    return "float" if {first, second} == {"int", "float"} else "text"


def converted(value: Any, kind: Kind) -> Value:
    """Return a value in the type of its column. A missing value is None."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return str(value) if kind == "text" else float(value) if kind == "float" else value


def as_column(values: Sequence[Any], kind: Kind) -> Any:
    """Return values of metadata as an array of Arrow. None is missing."""
    import pyarrow as pa

    return pa.array([converted(value, kind) for value in values], _kinds()[kind])


def kind_of_column(column: Any) -> Kind:
    """Return the type of an array of Arrow."""
    return next(kind for kind, each in _kinds().items() if each == column.type)


def _kinds() -> dict[Kind, Any]:
    import pyarrow as pa

    return {"bool": pa.bool_(), "int": pa.int64(), "float": pa.float64(), "text": pa.string()}


def _types(dims: Mapping[str, int]) -> dict[str, Any]:
    """Return the types of the columns of an index that are not metadata."""
    import pyarrow as pa

    element = pa.field("element", pa.float32(), nullable=False)
    vectors = {name: pa.list_(element, dim) for name, dim in dims.items()}
    return {"id": pa.string(), **vectors, "source": pa.string(), "row": pa.int64()}
