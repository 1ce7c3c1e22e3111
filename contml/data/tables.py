"""Tables: CSV, JSON, Parquet and Excel files as columns of Arrow, with the line of each row for errors.

    read_table(path) -> Table
        text      cells between delimiters, perhaps in quotes
        JSON      one object per line, or a list of objects
        Parquet   columns of numbers, texts, and lists of these
        .xlsx     the cells of a sheet

The readers of text, Parquet and Excel are in `table_formats.py`.

A cell is a text, a number, a list of texts or a list of numbers; a missing one is null.
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
from typing import Any

import numpy as np

from contml._support.errors import InputError
from contml._support.files import check_table_suffix, table_suffix
from contml._support.progress import note
from contml.data.table_columns import (
    MAX_ROWS as MAX_ROWS,
    MISSING as MISSING,
    Array as Array,
    Column as Column,
    Table as Table,
    TableBuilder,
    TableOptions as TableOptions,
    column_names,
)
from contml.data.table_formats import read_delimited, read_parquet, read_sheet
from contml.data.text_files import MAX_BYTES as MAX_BYTES, is_missing, no_such_file, parsed_json

#: The bytes of a file whose reading is announced, since it takes seconds.
_NOTED = 5_000_000
#: Records are converted in chunks of so many rows.
_CHUNK = 10_000


def read_table(path: Path, options: TableOptions | None = None, *, option: str = "") -> Table:
    """Returns the table of a file: CSV, TSV, JSON lines, a JSON list, Parquet or Excel; text and JSON also as .gz.

    Args:
        path: the file.
        options: how it is read.
        option: the task's option that names it, for errors.

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
    """Returns the table of a list of objects, as a JSON file holds it; a column is a key of at least one object.

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
    path: Path,
    form: str,
    columns: Mapping[str, Sequence[str]],
    lines: Sequence[Path],
    options: TableOptions,
) -> Table:
    """Returns the table of columns of texts, with the file of each row."""
    builder = TableBuilder(path, options)
    builder.name(columns)
    builder.add(np.arange(len(lines)), {name: list(cells) for name, cells in columns.items()})
    return replace(builder.table(form), lines=lines)


def records_table(
    path: Path,
    form: str,
    records: Iterable[tuple[int, Mapping[str, Any]]],
    options: TableOptions,
    *,
    numbered: bool = True,
    left_out: Mapping[str, int] | None = None,
) -> Table:
    """Returns the table of records: a column is a key of at least one of them.

    Args:
        path: the file, for errors.
        form: its format in words.
        records: the line of each, or its number, and its values.
        options: how large it may be, and what means a missing value.
        numbered: whether the numbers of the records are lines of the file.
        left_out: as in `Table`.
    """
    builder, rows, names = TableBuilder(path, options), iter(records), dict[str, str]()
    while chunk := list(islice(rows, _CHUNK)):
        if new := [key for key in dict.fromkeys(key for _, record in chunk for key in record) if key not in names]:
            keys = [*names, *new]
            names = dict(zip(keys, column_names(path, keys), strict=True))
            builder.name([names[key] for key in new])
        builder.add(
            np.array([number for number, _ in chunk]),
            {name: [record.get(key) for _, record in chunk] for key, name in names.items()},
        )
    return builder.table(form, lines=numbered, left_out=left_out)


def _read_json_lines(path: Path, text: str, options: TableOptions) -> Table:
    """One JSON object in each line."""
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
                allowed = 'must be an object, {"image": "1.jpg"}'
                raise InputError(f"{path}:{line}", _json_kind(row), allowed)
            yield line, row

    return records_table(path, "JSON lines", records(), options)


def _json_kind(value: Any) -> str:
    names = {dict: "object", list: "list", str: "text", bool: "true or false", int: "number", float: "number"}
    if value is None:
        return "null"
    return f"an empty JSON {names[type(value)]}" if value in ([], {}) else f"a JSON {names[type(value)]}"


# The text of a cell


def refuse_object(cell: str, where: str, use: str) -> None:
    """Refuses a cell that holds an object of JSON or Python, or a list with one, where a text or a list is wanted.

    Args:
        cell: the text.
        where: its file, line and column.
        use: what it is read as.
    """
    cell = cell.strip()
    if (cell[:1], cell[-1:]) not in (("{", "}"), ("[", "]")) or "{" not in cell:
        return
    content = as_value(cell)
    if isinstance(content, dict) or (isinstance(content, list) and any(isinstance(value, dict) for value in content)):
        problem = f"a{' list with a' if isinstance(content, list) else ''} JSON object, {cell[:60]}"
        raise InputError(where, problem, f"{use} must be a text or a list of texts", "write the value that counts")


def as_value(cell: str) -> Any:
    """Returns the value of a cell in the syntax of JSON or Python; None where it is neither."""
    for read in (json.loads, ast.literal_eval):
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            return read(cell)
    return None


def listed_texts(cell: str) -> list[str] | None:
    """Returns a list of texts in the syntax of JSON or Python, "" for null; None where the cell is not a list."""
    value = as_value(cell) if cell.startswith("[") and cell.endswith("]") else None
    return ["" if is_missing(text) else str(text) for text in value] if isinstance(value, list) else None


def text_lists(column: Column, missing: Counter[str] | None = None) -> list[list[str] | str | None]:
    """Returns the cells of a column as lists of texts where they are lists, else as texts; None for a missing cell.

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
