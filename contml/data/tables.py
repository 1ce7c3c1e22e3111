"""Tables: CSV, JSON, Parquet and Excel files as columns of Arrow, with the line of each row for errors.

    read_table(path) -> Table
        text      cells between delimiters, perhaps in quotes
        JSON      one object per line, or a list of objects
        Parquet   columns of numbers, texts, and lists of these
        .xlsx     the cells of a sheet

The readers of text, Parquet and Excel are in `table_formats.py`.

A cell is a text, a number, a list of texts or a list of numbers. A missing cell is null.
"""

from __future__ import annotations

import ast
import io
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from contml._support.errors import InputError
from contml._support.files import check_table_suffix, table_suffix
from contml._support.progress import note
from contml.data.table_columns import MAX_ROWS, MISSING, Array, Column, Table, TableBuilder, TableOptions, column_names
from contml.data.table_formats import read_delimited, read_parquet, read_sheet
from contml.data.text_files import MAX_BYTES, is_missing, no_such_file, parsed_json

__all__ = ["MAX_BYTES", "MAX_ROWS", "MISSING", "Array", "Column", "Table", "TableOptions", "as_value", "json_table"]
__all__ += ["listed_texts", "read_table", "records_table", "refuse_object", "text_lists", "texts_table"]

#: The line or the number of each record of a file, and its values.
Lines: TypeAlias = Iterable[tuple[int, Mapping[str, Any]]]
#: Numbers by what was counted.
Counts: TypeAlias = Mapping[str, int]
#: Reading a file of at least this many bytes takes seconds, so a note is printed.
_NOTED = 5_000_000
#: The number of rows in a chunk of records.
_CHUNK = 10_000


def read_table(path: Path, options: TableOptions | None = None, *, option: str = "") -> Table:
    """Read the table of a file: CSV, TSV, JSON lines, a JSON list, Parquet or Excel. Text and JSON may also be .gz.

    Args:
        path: the file.
        options: how the file is read.
        option: the task's option that names the file, for errors.

    Raises:
        InputError: no such file, another format, damaged, too large, names of columns that are equal or look equal, or
            a row of another length.
    """
    options, suffix = options or TableOptions(), table_suffix(path)
    if not path.exists():
        raise no_such_file(path, option)
    check_table_suffix(path)
    is_large = path.is_file() and path.stat().st_size >= _NOTED
    if is_large:
        note(f"reading {path} ({path.stat().st_size / 1e6:,.0f} MB)")
    if suffix in (".parquet", ".pq"):
        table = read_parquet(path, option, options)
    elif suffix == ".xlsx":
        table = read_sheet(path, option, options)
    elif suffix in (".jsonl", ".ndjson"):
        table = _read_json_lines(path, options.text(path, option), options)
    elif suffix == ".json":
        table = json_table(path, parsed_json(str(path), options.text(path, option)), options)
    else:
        table = read_delimited(path, options.text(path, option), options)
    if not table.columns:
        raise InputError(str(path), "is empty", "must have columns")
    if not len(table):
        raise InputError(str(path), f"has a header ({', '.join(table.columns)}), but no rows")
    if is_large:
        note(f"{path}: {len(table):,} rows, whose images and labels are read now")
    return table


def json_table(path: Path, content: Any, options: TableOptions) -> Table:
    """Return the table of a list of objects, as a JSON file holds it. A column is a key of at least one object.

    Raises:
        InputError: it is another value.
    """
    example = 'must be a list of objects, [{"image": "1.jpg", "age": 31}]'
    if not isinstance(content, list) or not content:
        raise InputError(str(path), _json_kind(content), example)
    for number, record in enumerate(content, start=1):
        if not isinstance(record, dict):
            raise InputError(f"{path}: row {number}", _json_kind(record), example)
    return records_table(path, "JSON", enumerate(content, start=1), options, numbered=False)


def texts_table(
    path: Path, form: str, columns: Mapping[str, Sequence[str]], lines: Sequence[Path], options: TableOptions
) -> Table:
    """Return the table of columns of texts, with the file of each row."""
    builder = TableBuilder(path, options)
    builder.name(columns)
    builder.add(np.arange(len(lines)), {name: list(cells) for name, cells in columns.items()})
    return replace(builder.table(form), lines=lines)


def records_table(
    path: Path,
    form: str,
    records: Lines,
    options: TableOptions,
    *,
    numbered: bool = True,
    left_out: Counts | None = None,
) -> Table:
    """Return the table of records. A column is a key of at least one record.

    Args:
        path: the file, for errors.
        form: the name of its format.
        records: for each record its line, or its number, and its values.
        options: how large the table may be, and which words mean a missing value.
        numbered: whether the numbers of the records are lines of the file.
        left_out: as in `Table`.
    """
    builder, rows, names = TableBuilder(path, options), iter(records), dict[str, str]()
    while chunk := list(islice(rows, _CHUNK)):
        if new := [key for key in dict.fromkeys(key for _, record in chunk for key in record) if key not in names]:
            keys = [*names, *new]
            names = dict(zip(keys, column_names(path, keys), strict=True))
            builder.name([names[key] for key in new])
        cells = {name: [record.get(key) for _, record in chunk] for key, name in names.items()}
        builder.add(np.array([number for number, _ in chunk]), cells)
    return replace(builder.table(form, lines=numbered), left_out=left_out or {})


def _read_json_lines(path: Path, text: str, options: TableOptions) -> Table:
    """Read one JSON object from each line."""
    if not text.strip():
        raise InputError(str(path), "is empty", 'each line must be an object, {"image": "1.jpg", "age": 31}')

    def records() -> Iterator[tuple[int, dict[str, Any]]]:
        for line, content in enumerate(io.StringIO(text, newline="\n"), start=1):
            if not content.strip():
                continue
            try:
                row = parsed_json(f"{path}:{line}", content.removesuffix("\n"))
            except InputError as error:
                got = error.got.replace("incomplete, or ", "")
                raise InputError(error.subject, got, "must be one whole object per line", error.hint) from None
            if not isinstance(row, dict):
                raise InputError(f"{path}:{line}", _json_kind(row), 'must be an object, {"image": "1.jpg"}')
            yield line, row

    return records_table(path, "JSON lines", records(), options)


def _json_kind(value: Any) -> str:
    names = {dict: "object", list: "list", str: "text", bool: "true or false", int: "number", float: "number"}
    if value is None:
        return "null"
    return f"an empty JSON {names[type(value)]}" if value in ([], {}) else f"a JSON {names[type(value)]}"


# The text of a cell


def refuse_object(cell: str, where: str, use: str) -> None:
    """Refuse a cell that holds an object of JSON or Python, or a list with an object. It must be a text or a list.

    Args:
        cell: the text.
        where: its file, line and column.
        use: the kind of value that it is read as.
    """
    cell = cell.strip()
    if (cell[:1], cell[-1:]) not in (("{", "}"), ("[", "]")) or "{" not in cell:
        return
    content = as_value(cell)
    if isinstance(content, dict) or (isinstance(content, list) and any(isinstance(value, dict) for value in content)):
        problem = f"a{' list with a' if isinstance(content, list) else ''} JSON object, {cell[:60]}"
        raise InputError(where, problem, f"{use} must be a text or a list of texts", "write the value that counts")


def as_value(cell: str) -> Any:
    """Parse a cell in the syntax of JSON or Python, and return its value. Return None if it has neither syntax."""
    for read in (json.loads, ast.literal_eval):
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            return read(cell)
    return None


def listed_texts(cell: str) -> list[str] | None:
    """Parse a cell as a list of texts in the syntax of JSON or Python, with "" for null.

    Return None if the cell is not a list.
    """
    value = as_value(cell) if cell.startswith("[") and cell.endswith("]") else None
    return ["" if is_missing(text) else str(text) for text in value] if isinstance(value, list) else None


def text_lists(column: Column, missing: Counter[str] | None = None) -> list[list[str] | str | None]:
    """Return each cell of a column as a list of texts if it is a list, otherwise as a text. A missing cell is None.

    Args:
        column: texts or lists.
        missing: counts the nulls in lists that are written as text. Nulls are left out.
    """
    if column.kind == "texts":
        return [None if cell is None else [text for text in cell if text is not None] for cell in column.lists()]
    cells: list[list[str] | str | None] = [cell or None for cell in column.texts()]
    for row, cell in column.in_brackets():
        if (listed := listed_texts(cell)) is not None:
            cells[row] = [text for text in listed if text]
            if missing is not None and (nulls := listed.count("")):
                missing["null in a list"] += nulls
    return cells
