"""Tables in files: CSV and Parquet as columns of text, and where each row stands, for errors."""

from __future__ import annotations

import csv
import json
from array import array
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from contml import InputError
from contml._support.errors import closest

from .._readers.folders import no_such_file
from .._readers.text import csv_rows, read_text, text_lines

_CSV, _PARQUET = (".csv", ".tsv", ".txt"), (".parquet", ".pq")
_DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
#: Lines that decide on the delimiter, and rows that are taken apart at a time.
_SNIFFED, _CHUNK = 100, 10_000
#: Up to so many different texts of a column are kept once each.
_SHARED = 20_000


class Table:
    """Columns of text, `[N]` cells each; an empty text is an empty cell.

    Args:
        path: the file.
        form: how it is written, in words.
        columns: the cells of each column, in the order of the file.
        lines: the line of each row; none: rows are counted from 1.
        opaque: columns whose cells are no text, numbers or lists of these, and what they are.
        delimiter: between the cells of a row; none: there are no such.
    """

    def __init__(
        self,
        path: Path,
        form: str,
        columns: dict[str, list[str]],
        lines: Sequence[int] | None = None,
        opaque: dict[str, str] | None = None,
        delimiter: str | None = None,
    ) -> None:
        self.path, self.form, self.columns, self.lines = path, form, columns, lines
        self.opaque, self.delimiter = opaque or {}, delimiter

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), []))

    def where(self, row: int) -> str:
        """File and line of a row, as errors begin."""
        return f"{self.path}: row {row + 1}" if self.lines is None else f"{self.path}:{self.lines[row]}"

    def column(self, name: str, use: str) -> list[str]:
        """The cells of a column; `use` says what for.

        Raises:
            InputError: there is no such column, or its cells are no text.
        """
        if name in self.opaque:
            raise InputError(f"{self.path}: column '{name}' ({use}) holds {self.opaque[name]}; give text or numbers")
        if name not in self.columns:
            lower = {column.lower(): column for column in self.columns}
            near = closest(name.lower(), lower)
            has = f"it has {', '.join(self.columns) or 'none'}"
            hint = f"did you mean '{lower[near]}'? ({has})" if near else has
            raise InputError(f"{self.path}: there is no column '{name}' ({use}); {hint}")
        return self.columns[name]


def read_table(path: Path, delimiter: str | None = None, encoding: str = "utf-8") -> Table:
    """A CSV or a Parquet file; the delimiter of a CSV file is found where none is given.

    Raises:
        InputError: no such file, of neither form, damaged, a header with a name twice, or a row of another length.
    """
    if path.is_dir():
        raise InputError(f"{path}: is a folder; data is one file, .csv or .parquet")
    suffix = path.suffix.lower()
    if suffix in _PARQUET:
        table = _read_parquet(path)
    elif suffix in _CSV:
        table = _read_csv(path, read_text(path, "data", encoding), delimiter)
    else:
        raise InputError(f"{path}: a table is read from {', '.join((*_CSV, *_PARQUET))}; save it as one of these")
    if not len(table):
        raise InputError(f"{path}: has a header ({', '.join(table.columns)}), but no rows")
    return table


def _read_csv(path: Path, text: str, delimiter: str | None) -> Table:
    if not text.strip():
        raise InputError(f"{path}: is empty; the first line names the columns")
    delimiter = _sniffed(text) if delimiter is None else delimiter
    rows = csv_rows(path, text, delimiter)
    names = _names(path, next(rows, (1, []))[1])
    lines = array("q")
    cells: list[list[str]] = [[] for _ in names]
    shared: list[dict[str, str] | None] = [{} for _ in names]
    while chunk := list(islice(rows, _CHUNK)):
        lines.extend(line for line, _ in chunk)
        _spread([row for _, row in chunk], cells, shared)
    form = f"{_DELIMITERS.get(delimiter, repr(delimiter))}-separated"
    return Table(path, form, dict(zip(names, cells, strict=True)), lines, delimiter=delimiter)


def _sniffed(text: str) -> str:
    """The delimiter of which most rows have as many as the header, and of these that with the most columns."""
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
    """The names of the columns; one without (an index that was saved along) is called by its place."""
    names = [cell.strip() or f"(column {place})" for place, cell in enumerate(header, start=1)]
    for place, name in enumerate(names):
        if names.index(name) < place:
            raise InputError(
                f"{path}: columns {names.index(name) + 1} and {place + 1} are both called '{name}'; rename one"
            )
    return names


def _spread(chunk: list[list[str]], cells: list[list[str]], shared: list[dict[str, str] | None]) -> None:
    """Rows to columns; a text that comes again and again is kept once."""
    for place, column in enumerate(zip(*chunk, strict=True)):
        known = shared[place]
        if known is None:
            cells[place] += column
            continue
        cells[place] += [known.setdefault(cell, cell) for cell in column]
        if len(known) > _SHARED:
            shared[place] = None


def _read_parquet(path: Path) -> Table:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise InputError(
            f"{path}: Parquet files are read by pyarrow, which is not installed: pip install 'contml[table]'"
        ) from None
    try:
        read = pyarrow.parquet.ParquetFile(path).read()
    except FileNotFoundError:
        raise no_such_file(path, "data") from None
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"{path}: not readable as Parquet ({' '.join(str(error).split())[:160]})") from None
    columns: dict[str, list[str]] = {}
    opaque: dict[str, str] = {}
    for name, column in zip(_names(path, read.column_names), read.columns, strict=True):
        kind = column.type
        kind = kind.value_type if pyarrow.types.is_dictionary(kind) else kind
        if pyarrow.types.is_struct(kind) or pyarrow.types.is_binary(kind) or pyarrow.types.is_large_binary(kind):
            opaque[name] = "bytes or structures (images inside the table? write them to files and give their paths)"
        else:
            shared: dict[str, str] = {}
            columns[name] = [_text(value, shared) for value in column.to_pylist()]
    return Table(path, "Parquet", columns, opaque=opaque)


def _text(value: Any, shared: dict[str, str]) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return shared.setdefault(value, value) if len(shared) < _SHARED else value
    if isinstance(value, list):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value).lower() if isinstance(value, bool) else str(value)
