"""Read a CSV or Parquet file as columns of text, with the line of each row for errors."""

from __future__ import annotations

import csv
import json
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from contml import InputError
from contml._support.errors import closest, one_line

from .._readers.folders import no_such_file
from .._readers.text import csv_rows, read_text, text_lines

_CSV, _PARQUET = (".csv", ".tsv", ".txt"), (".parquet", ".pq")
_DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
#: Number of lines that decide on the delimiter, and of rows that are converted at a time.
_SNIFFED, _CHUNK = 100, 10_000
#: A column with at most this many different texts keeps each in memory once.
_SHARED = 20_000


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of text, `[N]` cells each; a missing cell is an empty text.

    Args:
        path: the file.
        form: its format in words.
        columns: the cells of each column, in the order of the file.
        lines: the line of each row; None: rows are counted from 1.
        opaque: columns whose cells are not texts, numbers or lists of these, and what they are.
        delimiter: between the cells of a row; None where there is none.
    """

    path: Path
    form: str
    columns: dict[str, list[str]]
    lines: Sequence[int] | None = None
    opaque: dict[str, str] = field(default_factory=dict)
    delimiter: str | None = None

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), []))

    def where(self, row: int) -> str:
        """File and line of a row, for errors."""
        return f"{self.path}: row {row + 1}" if self.lines is None else f"{self.path}:{self.lines[row]}"

    def column(self, name: str, use: str) -> list[str]:
        """The cells of a column; `use` is what needs it, for errors.

        Raises:
            InputError: there is no such column, or its cells are not text.
        """
        if name in self.opaque:
            raise InputError(f"{self.path}: column {name} ({use})", self.opaque[name], "must hold text or numbers")
        if name not in self.columns:
            lower = {column.lower(): column for column in self.columns}
            near = closest(name.lower(), lower)
            allowed = f"must be one of {', '.join(self.columns) or 'none'}"
            hint = f"did you mean '{lower[near]}'?" if near else ""
            raise InputError(f"{self.path}: column {name} ({use})", "no such column", allowed, hint)
        return self.columns[name]


def read_table(path: Path, delimiter: str | None = None, encoding: str = "utf-8") -> Table:
    """A CSV or a Parquet file; the delimiter of a CSV file is found where none is given.

    Raises:
        InputError: no such file, another format, damaged, a repeated column name, or a row of another length.
    """
    if path.is_dir():
        raise InputError(str(path), "is a folder", "must be one file, .csv or .parquet")
    suffix = path.suffix.lower()
    if suffix in _PARQUET:
        table = _read_parquet(path)
    elif suffix in _CSV:
        table = _read_csv(path, read_text(path, "data", encoding), delimiter)
    else:
        raise InputError(str(path), f"ends in '{suffix}'", f"must end in one of {', '.join((*_CSV, *_PARQUET))}")
    if not len(table):
        raise InputError(str(path), f"has a header ({', '.join(table.columns)}), but no rows")
    return table


def _read_csv(path: Path, text: str, delimiter: str | None) -> Table:
    if not text.strip():
        raise InputError(str(path), "is empty", "the first line must name the columns")
    delimiter = _sniffed(text) if delimiter is None else delimiter
    rows = csv_rows(path, text, delimiter)
    names = _names(path, next(rows, (1, []))[1])
    lines = array("q")
    cells: list[list[str]] = [[] for _ in names]
    shared: list[dict[str, str] | None] = [{} for _ in names]
    while chunk := list(islice(rows, _CHUNK)):
        lines.extend(line for line, _ in chunk)
        for place, column in enumerate(zip(*(row for _, row in chunk), strict=True)):
            known = shared[place]
            cells[place] += column if known is None else [known.setdefault(cell, cell) for cell in column]
            if known is not None and len(known) > _SHARED:
                shared[place] = None
    form = f"{_DELIMITERS.get(delimiter, repr(delimiter))}-separated"
    return Table(path, form, dict(zip(names, cells, strict=True)), lines, delimiter=delimiter)


def _sniffed(text: str) -> str:
    """The delimiter that splits most rows into as many cells as the header; among equals, the one with most cells."""
    best, found = (0.0, 1), ","
    for delimiter in _DELIMITERS:
        rows = csv.reader(islice(text_lines(text), _SNIFFED), delimiter=delimiter)
        try:
            widths = [len(row) for row in rows if any(row)]
        except csv.Error:
            continue
        even = sum(width == widths[0] for width in widths) / len(widths) if widths else 0.0
        if widths and widths[0] > 1 and (even, widths[0]) > best:
            best, found = (even, widths[0]), delimiter
    return found


def _names(path: Path, header: list[str]) -> list[str]:
    """The names of the columns; one without a name (a saved index) is named after its position."""
    names = [cell.strip() or f"(column {place})" for place, cell in enumerate(header, start=1)]
    for place, name in enumerate(names):
        if (first := names.index(name)) < place:
            raise InputError(str(path), f"columns {first + 1} and {place + 1} are both named '{name}'")
    return names


def _read_parquet(path: Path) -> Table:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        found = "Parquet needs pyarrow, which is not installed"
        raise InputError(str(path), found, hint="pip install 'contml[table]'") from None
    try:
        read = pyarrow.parquet.ParquetFile(path).read()
    except FileNotFoundError:
        raise no_such_file(path, "data") from None
    except (pyarrow.ArrowException, OSError, ValueError) as error:  # ValueError: a name that is not UTF-8
        raise InputError(str(path), f"not readable as Parquet ({' '.join(str(error).split())[:160]})") from None
    columns: dict[str, list[str]] = {}
    opaque: dict[str, str] = {}
    types = pyarrow.types
    for name, column in zip(_names(path, read.column_names), read.columns, strict=True):
        kind = column.type.value_type if types.is_dictionary(column.type) else column.type
        if types.is_struct(kind) or types.is_binary(kind) or types.is_large_binary(kind):
            opaque[name] = "bytes or structures (save images to files and give their paths)"
            continue
        try:
            values = column.to_pylist()
        except (ValueError, OverflowError) as error:  # text that is not UTF-8; dates out of the range of Python
            opaque[name] = f"values that cannot be read ({one_line(error)})"
        else:
            shared: dict[str, str] = {}
            columns[name] = [_text(value, shared) for value in values]
    return Table(path, "Parquet", columns, opaque=opaque)


def _text(value: Any, shared: dict[str, str]) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return shared.setdefault(value, value) if len(shared) < _SHARED else value
    if isinstance(value, list):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value).lower() if isinstance(value, bool) else str(value)
