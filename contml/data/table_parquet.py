"""Parquet files as tables, without columns of bytes and structures."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from pyarrow import compute, parquet

from contml._support.errors import InputError
from contml.data.table_columns import Table, TableBuilder, TableOptions, column_names, is_number, is_text
from contml.data.text_files import no_such_file, read_content

#: A duration is a number of seconds, whatever its unit in the file.
_PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}


def read_parquet(path: Path, option: str, options: TableOptions) -> Table:
    """Returns the table of a Parquet file; columns of bytes and structures are not read.

    Raises:
        InputError: no such file, damaged, or too large: its number of rows and its bytes are known before it is read.
    """
    try:
        if not path.is_file():
            read_content(path, option, options.max_bytes)  # raises
        with parquet.ParquetFile(path) as file:
            schema, metadata = file.schema_arrow, file.metadata
            if metadata.num_rows > options.max_rows:
                raise options.too_many_rows(path, f"{metadata.num_rows:,} rows")
            opaque = {
                name: what for name, kind in zip(schema.names, schema.types, strict=True) if (what := _opaque(kind))
            }
            names = [name for name in schema.names if name not in opaque]
            _check_parquet_size(path, metadata, {*names}, options)
        leaves = map(metadata.schema.column, range(metadata.num_columns))  # also inside lists and structures
        packed = [column.path for column in leaves if column.physical_type == "BYTE_ARRAY"]
        # As dictionaries: a text of a megabyte may be repeated in each of a million rows.
        with parquet.ParquetFile(path, read_dictionary=packed) as file:
            arrow_table = file.read(columns=names)
        columns = {}
        for name in names:
            cells = arrow_table[name]
            if (size := _unpacked_size(cells)) > options.max_bytes:
                raise options.too_many_bytes(path, f"column {name} unpacks to {size:,} bytes")
            columns[name] = _plain(cells)
            columns[name].validate(full=True)  # texts are UTF-8
            if pyarrow.types.is_temporal(schema.field(name).type) and not _in_calendar(columns[name]):
                opaque[name] = "dates beyond the year 9999, which cannot be read"
                del columns[name]
    except InputError:
        raise
    except FileNotFoundError:
        raise no_such_file(path, option) from None
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError, KeyError) as error:
        raise InputError(str(path), f"not readable as Parquet ({' '.join(str(error).split())[:160]})") from None
    table_names = dict(zip(schema.names, column_names(path, schema.names), strict=True))
    builder = TableBuilder(path, options)
    builder.name([table_names[name] for name in columns])
    builder.add(np.arange(1, len(arrow_table) + 1), {table_names[name]: cells for name, cells in columns.items()})
    return builder.table("Parquet", lines=False, opaque={table_names[name]: what for name, what in opaque.items()})


def _in_calendar(cells: Any) -> bool:
    """Whether texts of dates have four digits for the year; other cells are no dates."""
    if not is_text(cells.type):
        return True
    return bool(compute.all(compute.match_substring_regex(cells, r"^[0-9]{4}-|^[0-9]{2}:")).as_py() in (True, None))


def _check_parquet_size(path: Path, metadata: Any, names: set[str], options: TableOptions) -> None:
    """Refuse columns that unpack to too many bytes, as the file declares them, or have too many elements of lists."""
    size = 0
    for group in range(metadata.num_row_groups):
        for index in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(index)
            if chunk.path_in_schema.partition(".")[0] in names:
                size += max(chunk.total_uncompressed_size, 8 * chunk.num_values)
    if size > options.max_bytes:
        raise options.too_many_bytes(path, f"unpacks to {size:,} bytes")


def _opaque(kind: Any) -> str:
    """What cells of an Arrow type are, if they cannot be read as texts, numbers or lists; else ""."""
    types = pyarrow.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        kind = kind.value_type.value_type if types.is_dictionary(kind.value_type) else kind.value_type
        if not is_text(kind) and not is_number(kind) and not types.is_boolean(kind) and not types.is_null(kind):
            return f"lists of {kind}"[:60]
        return ""
    if (
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
        or types.is_struct(kind)
    ):
        return "bytes or structures (save images to files and give their paths)"
    known = types.is_boolean(kind) or types.is_null(kind) or types.is_temporal(kind) or types.is_decimal(kind)
    return "" if known or is_text(kind) or is_number(kind) else f"cells of the type {kind}"[:60]


def _unpacked_size(cells: Any) -> int:
    """The bytes that a column of dictionaries would take as texts."""
    total = 0
    for chunk in cells.chunks:
        inner = chunk.flatten() if hasattr(chunk, "flatten") and not pyarrow.types.is_dictionary(chunk.type) else chunk
        if pyarrow.types.is_dictionary(inner.type) and len(inner.dictionary):
            lengths = compute.binary_length(inner.dictionary.cast(pyarrow.large_string()))
            total += compute.sum(lengths.take(inner.indices.drop_null())).as_py() or 0
    return total


def _plain(cells: Any) -> Any:
    """A column of Arrow as texts, numbers, lists of texts or lists of numbers."""
    kind, types = cells.type, pyarrow.types
    if types.is_dictionary(kind):
        return _plain(cells.cast(kind.value_type))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        element = kind.value_type
        texts = types.is_dictionary(element) or not is_number(element)
        plain = pyarrow.large_list(pyarrow.large_string() if texts else pyarrow.float64())
        return cells.cast(plain, safe=texts)  # large whole numbers are rounded
    if types.is_float16(kind):
        return _plain(cells.cast(pyarrow.float32()))
    if types.is_floating(kind):
        return pyarrow.chunked_array(
            [compute.if_else(compute.is_nan(chunk), pyarrow.scalar(None, kind), chunk) for chunk in cells.chunks], kind
        )
    if types.is_integer(kind):
        with suppress(pyarrow.ArrowInvalid):  # numbers beyond 63 bits are texts
            return cells.cast(pyarrow.int64())
    if types.is_timestamp(kind):
        # Seconds where there are no fractions, as Python and CSV files write them.
        if kind.unit == "ns":
            cells = cells.cast(pyarrow.timestamp("us", kind.tz), safe=False)
        with suppress(pyarrow.ArrowInvalid):
            cells = cells.cast(pyarrow.timestamp("s", kind.tz))
    if types.is_duration(kind):
        return compute.divide(cells.cast(pyarrow.int64()).cast(pyarrow.float64(), safe=False), _PER_SECOND[kind.unit])
    return cells.cast(pyarrow.large_string())
