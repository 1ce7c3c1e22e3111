"""Read a table, or the images of a folder, as columns of text, with the line of each row for errors."""

from __future__ import annotations

import csv
import json
import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any
from unicodedata import normalize

from contml import InputError
from contml._support.errors import closest, one_line

from .._readers.folders import IMAGE_SUFFIXES, images_below, no_such_file
from .._readers.splits import part_of
from .._readers.text import csv_rows, read_lines, read_text, text_lines

_CSV, _JSON, _PARQUET = (".csv", ".tsv", ".txt"), (".jsonl", ".ndjson"), (".parquet", ".pq")
#: What to do with files of other forms.
_OTHERS = {
    **dict.fromkeys((".xlsx", ".xls", ".ods"), "save the sheet as CSV"),
    ".json": "write one object per line, as .jsonl",
    **dict.fromkeys((".yaml", ".yml"), "give a config without --data"),
    ".zip": "unpack it, and give the folder or the table in it",
}
#: A field of a pattern, or its star.
_FIELD = re.compile(r"(\{[^{}]*\}|\*)")
_PATTERN_HINT = "say what the names mean: --pattern '{age}_*.jpg'; or give a table"
_DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
#: Number of lines that decide on the delimiter, and of rows that are converted at a time.
_SNIFFED, _CHUNK = 100, 10_000
#: A column with at most this many different texts keeps each in memory once.
_SHARED = 20_000


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of text, `[N]` cells each; a missing cell is an empty text.

    Args:
        path: the file, or the folder.
        form: its format in words.
        columns: the cells of each column, in the order of the file.
        lines: the line of each row, or its file; None: rows are counted from 1.
        opaque: columns whose cells are not texts, numbers or lists of these, and what they are.
        delimiter: between the cells of a row; None where there is none.
    """

    path: Path
    form: str
    columns: dict[str, list[str]]
    lines: Sequence[int] | Sequence[Path] | None = None
    opaque: dict[str, str] = field(default_factory=dict)
    delimiter: str | None = None

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), []))

    def where(self, row: int) -> str:
        """File and line of a row, for errors."""
        if self.lines is None:
            return f"{self.path}: row {row + 1}"
        line = self.lines[row]
        return str(line) if isinstance(line, Path) else f"{self.path}:{line}"

    @property
    def root(self) -> Path:
        """The folder that paths in it are relative to."""
        return self.path if self.path.is_dir() else self.path.parent

    def column(self, name: str, use: str) -> list[str]:
        """The cells of a column; `use` is what needs it, for errors.

        Raises:
            InputError: there is no such column, or its cells are not text.
        """
        if name in self.opaque:
            raise InputError(f"{self.path}: column {name} ({use})", self.opaque[name], "must hold text or numbers")
        if name not in self.columns:
            lower = {column.lower(): column for column in self.columns}
            closest_name = closest(name.lower(), lower)
            allowed = f"must be one of {', '.join(self.columns) or 'none'}"
            hint = f"did you mean '{lower[closest_name]}'?" if closest_name else ""
            raise InputError(f"{self.path}: column {name} ({use})", "no such column", allowed, hint)
        return self.columns[name]


def read_table(path: Path, pattern: str | None = None, delimiter: str | None = None, encoding: str = "utf-8") -> Table:
    """A file of text, of JSON or of Parquet, or a folder of images.

    Args:
        path: the file or the folder.
        pattern: the columns in the names of a folder's images.
        delimiter: between the cells of a file of text; None: found.
        encoding: of a file of text.

    Raises:
        InputError: no such file, another format, damaged, a repeated column name, or a row of another length.
    """
    if path.is_dir():
        return _read_folder(path, pattern)
    if pattern is not None:
        raise InputError("pattern", f"used with the file {path}", hint="give the folder of the images as data")
    suffix = Path(path.name.lower().removesuffix(".gz")).suffix
    if suffix in _PARQUET:
        table = _read_parquet(path)
    elif suffix in _JSON:
        table = _read_json_lines(path, encoding)
    elif suffix in _CSV:
        table = _read_csv(path, read_text(path, encoding=encoding), delimiter)
    elif not path.exists():
        raise no_such_file(path)
    else:
        allowed = f"must be a folder, or end in {', '.join((*_CSV, *_JSON, *_PARQUET))} (of text also .gz)"
        raise InputError(str(path), f"ends in '{suffix}'", allowed, _OTHERS.get(suffix, ""))
    if not len(table):
        raise InputError(str(path), f"has a header ({', '.join(table.columns)}), but no rows")
    return table


def _read_folder(folder: Path, pattern: str | None) -> Table:
    """The images below a folder: their parts of a split by folders, and their fields by a pattern, or their classes."""
    files = images_below(folder)
    folders = [file.relative_to(folder).parts[:-1] for file in files]
    while folders and all(folders) and len({parts[0] for parts in folders}) == 1:
        folders = [parts[1:] for parts in folders]  # photos/images/CLASS/1.jpg: all images are in one folder
    columns = {"image": [file.relative_to(folder).as_posix() for file in files]}
    if all(parts and part_of(parts[0]) for parts in folders) and len({parts[0] for parts in folders}) > 1:
        columns["split"] = [parts[0] for parts in folders]
        folders = [parts[1:] for parts in folders]
    if pattern is not None:
        return Table(folder, f"names like {pattern}", columns | _fields(folder, pattern, columns["image"]), files)
    endings = (*_CSV[:2], *_JSON, *_PARQUET)  # a text is often no table
    tables = [path for path in sorted(folder.iterdir()) if path.suffix.lower() in endings and path.name[0] != "."][:3]
    if outside := [file for file, parts in zip(files, folders, strict=True) if not parts]:
        hint = f"give the table: {' or '.join(map(str, tables))}" if tables else _PATTERN_HINT
        raise InputError(str(outside[0]), "not in the folder of a class", hint=hint)
    columns["class"] = [parts[0] for parts in folders]
    description = "a folder for each class"
    if any(len(parts) > 1 for parts in folders):
        description += ", the outer of several"
    if tables:
        description += f"; {', '.join(table.name for table in tables)} not read"
    return Table(folder, description, columns, files)


def _fields(folder: Path, pattern: str, names: Sequence[str]) -> dict[str, list[str]]:
    """The columns that a pattern finds in the names of images; the cells of a name that does not fit are empty.

    A field takes as few characters as possible, a star any, both within a name. The pattern is compared with as many
    folders as it names. Upper and lower case are the same, as in 1.JPG, and so are the Unicode forms of a character.
    """
    texts, marks = _FIELD.split(pattern)[::2], _FIELD.split(pattern)[1::2]
    fields = [mark[1:-1].strip() for mark in marks if mark != "*"]
    invalid = len(set(fields)) < len(fields) or {"", "image", "split"} & {*fields} or set("{}") & set("".join(texts))
    if not fields or invalid:
        allowed = "must have fields with different names, not image or split, as in '{age}_{sex}_*.jpg'"
        raise InputError("pattern", pattern, allowed)
    pairs = zip(texts, [*("[^/]*" if mark == "*" else "([^/]+?)" for mark in marks), ""], strict=True)
    expression = "(?:.*/)?" + "".join(re.escape(normalize("NFC", text)) + mark for text, mark in pairs)
    regex = re.compile(expression, re.DOTALL | re.IGNORECASE)
    matches = [regex.fullmatch(normalize("NFC", name)) for name in names]
    if not any(matches):
        raise InputError("pattern", pattern, f"fits no image in {folder}", f"one of them is {names[0]}")
    cells = [[""] * len(fields) if match is None else match.groups() for match in matches]
    return {field: list(column) for field, column in zip(fields, zip(*cells, strict=True), strict=True)}


def _read_json_lines(path: Path, encoding: str) -> Table:
    """One JSON object in each line; a column is a key of at least one object."""
    columns: dict[str, list[str]] = {}
    lines = array("q")
    shared: dict[str, str] = {}
    for line, text in read_lines(path, encoding=encoding):
        try:
            row = json.loads(text)
        except (ValueError, RecursionError) as error:
            problem = "nested too deeply" if isinstance(error, RecursionError) else f"not JSON ({error})"
            raise InputError(f"{path}:{line}", problem, "must be one whole object per line") from None
        if not isinstance(row, dict):
            raise InputError(f"{path}:{line}", f"a JSON {type(row).__name__}", 'must be an object, {"image": "1.jpg"}')
        for name in row:
            columns.setdefault(name.strip(), [""] * len(lines))
        for cells in columns.values():
            cells.append("")
        for name, value in row.items():
            columns[name.strip()][-1] = _text(value, shared)
        lines.append(line)
    if not columns:
        raise InputError(str(path), "is empty", 'each line must be an object, {"image": "1.jpg", "age": 31}')
    return Table(path, "JSON lines", columns, lines)


def _read_csv(path: Path, text: str, delimiter: str | None) -> Table:
    if not text.strip():
        raise InputError(str(path), "is empty", "the first line must name the columns")
    delimiter = _sniffed(text) if delimiter is None else delimiter
    rows = csv_rows(path, text, delimiter)
    header_line, header = next(rows, (1, []))
    names = _names(path, header)
    if unnamed := next((name for name in names if name.lower().endswith(IMAGE_SUFFIXES)), None):
        allowed = "the first line must name the columns"
        raise InputError(f"{path}:{header_line}", f"'{unnamed}' where the name of a column is expected", allowed)
    lines = array("q")
    cells: list[list[str]] = [[] for _ in names]
    caches: list[dict[str, str] | None] = [{} for _ in names]
    while chunk := list(islice(rows, _CHUNK)):
        lines.extend(line for line, _ in chunk)
        for index, column in enumerate(zip(*(row for _, row in chunk), strict=True)):
            cache = caches[index]
            cells[index] += column if cache is None else [cache.setdefault(cell, cell) for cell in column]
            if cache is not None and len(cache) > _SHARED:
                caches[index] = None
    description = f"{_DELIMITERS.get(delimiter, repr(delimiter))}-separated"
    return Table(path, description, dict(zip(names, cells, strict=True)), lines, delimiter=delimiter)


def _sniffed(text: str) -> str:
    """The delimiter that splits most rows into as many cells as the header; among equals, the one with most cells."""
    best_score, best_delimiter = (0.0, 1), ","
    for delimiter in _DELIMITERS:
        rows = csv.reader(islice(text_lines(text), _SNIFFED), delimiter=delimiter)
        try:
            widths = [len(row) for row in rows if any(row)]
        except csv.Error:
            continue
        equal_share = sum(width == widths[0] for width in widths) / len(widths) if widths else 0.0
        if widths and widths[0] > 1 and (equal_share, widths[0]) > best_score:
            best_score, best_delimiter = (equal_share, widths[0]), delimiter
    return best_delimiter


def _names(path: Path, header: list[str]) -> list[str]:
    """The names of the columns; one without a name (a saved index) is named after its position."""
    names = [cell.strip() or f"(column {number})" for number, cell in enumerate(header, start=1)]
    for index, name in enumerate(names):
        if (first_index := names.index(name)) < index:
            raise InputError(str(path), f"columns {first_index + 1} and {index + 1} are both named '{name}'")
    return names


def _read_parquet(path: Path) -> Table:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        problem = "Parquet needs pyarrow, which is not installed"
        raise InputError(str(path), problem, hint="pip install 'contml[table]'") from None
    try:
        arrow_table = pyarrow.parquet.ParquetFile(path).read()
    except FileNotFoundError:
        raise no_such_file(path) from None
    except (pyarrow.ArrowException, OSError, ValueError) as error:  # ValueError: a name that is not UTF-8
        raise InputError(str(path), f"not readable as Parquet ({' '.join(str(error).split())[:160]})") from None
    columns: dict[str, list[str]] = {}
    opaque: dict[str, str] = {}
    types = pyarrow.types
    for name, column in zip(_names(path, arrow_table.column_names), arrow_table.columns, strict=True):
        kind = column.type.value_type if types.is_dictionary(column.type) else column.type
        if types.is_struct(kind) or types.is_binary(kind) or types.is_large_binary(kind):
            opaque[name] = "bytes or structures (save images to files and give their paths)"
            continue
        try:
            values = _in_microseconds(column).to_pylist()
        except (ValueError, OverflowError) as error:  # text that is not UTF-8; dates out of the range of Python
            opaque[name] = f"values that cannot be read ({one_line(error)})"
        else:
            shared: dict[str, str] = {}
            columns[name] = [_text(value, shared) for value in values]
    return Table(path, "Parquet", columns, opaque=opaque)


def _in_microseconds(column: Any) -> Any:
    """A column of times without nanoseconds, which Python does not have: pyarrow would return types of pandas."""
    import pyarrow

    kind, types = column.type, pyarrow.types
    if types.is_timestamp(kind) and kind.unit == "ns":
        return column.cast(pyarrow.timestamp("us", kind.tz), safe=False)
    if types.is_time64(kind) and kind.unit == "ns":
        return column.cast(pyarrow.time64("us"), safe=False)
    if types.is_duration(kind) and kind.unit == "ns":
        return column.cast(pyarrow.duration("us"), safe=False)
    return column


def _text(value: Any, shared: dict[str, str]) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return shared.setdefault(value, value) if len(shared) < _SHARED else value
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value).lower() if isinstance(value, bool) else str(value)
