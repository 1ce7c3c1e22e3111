"""Columns of a table in Arrow, built from chunks of rows."""

from __future__ import annotations

import io
import json
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeAlias
from unicodedata import normalize

import numpy as np
import pyarrow
from pyarrow import compute

from contml._support.errors import InputError, closest
from contml._support.packed import row_numbers
from contml._support.packed_texts import Texts
from contml._support.validation import PositiveInt, check_arguments
from contml.data.text_files import MAX_BYTES, alike, decoded, is_missing, read_content

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

#: Cells that mean a missing value, in lower case: what pandas, R, spreadsheets and data bases write.
MISSING = (
    *("na", "n/a", "n.a.", "nan", "-nan", "+nan", "nat", "null", "none", "nil", "<na>", "<null>"),
    *("-", "--", "?", "\\n"),
    *("#n/a", "#na", "#n/a n/a", "#null!", "#value!", "#ref!", "#div/0!", "#name?", "#num!"),
    *("1.#ind", "-1.#ind", "1.#qnan", "-1.#qnan"),
)


#: The most rows of a table, by default.
MAX_ROWS = 10_000_000
#: The most columns of a table. Each column takes a fifth of a millisecond.
MAX_COLUMNS = 20_000


@dataclass(frozen=True)
class TableOptions:
    """How a table is read, and how large it may be.

    Args:
        delimiter: the character between the cells of a file of text. null detects it.
        encoding: the encoding of a file of text without a byte-order mark.
        sheet: the sheet of an Excel file. null reads the only sheet that is filled.
        missing_words: cells that mean a missing value in upper or lower case, as an empty cell does. null means
            `MISSING`.
        max_bytes: the largest file that is read, in bytes after unpacking.
        max_rows: the most rows that are read.
    """

    #: The text before the name of an option in an error, such as "--table ". It is "" if the option cannot be set.
    set_by: ClassVar[str] = ""

    delimiter: str | None = None
    encoding: str = "utf-8"
    sheet: str | None = None
    missing_words: Sequence[str] | None = None
    max_bytes: PositiveInt = MAX_BYTES
    max_rows: PositiveInt = MAX_ROWS

    def __post_init__(self) -> None:
        check_arguments(type(self), vars(self))
        if self.delimiter is not None and len(self.delimiter) != 1:
            raise InputError("delimiter", repr(self.delimiter), "must be one character")
        try:
            io.TextIOWrapper(io.BytesIO(), self.encoding)
        except LookupError:
            raise InputError("encoding", repr(self.encoding), "must be utf-8, latin-1, utf-16 or similar") from None

    def too_many_bytes(self, path: Path, got: str, limit: int | None = None, hint: str = "") -> InputError:
        """Return the error for a file with too many bytes, or with values that take too much memory."""
        hints = [hint, f"{self.set_by}max_bytes=NUMBER to read more" if self.set_by else ""]
        allowed = f"must be at most {limit or self.max_bytes:,} bytes"
        return InputError(str(path), got, allowed, ", or ".join(filter(None, hints)))

    def too_many_rows(self, path: Path, got: str) -> InputError:
        """Return the error for a file with too many rows."""
        hint = f"{self.set_by}max_rows=NUMBER to read more" if self.set_by else ""
        return InputError(str(path), got, f"must be at most {self.max_rows:,} rows", hint)

    def text(self, path: Path, option: str = "") -> str:
        """Read the text of a file. `option` is the task's option that names the file, for errors.

        Raises:
            InputError: no such file, damaged, too large, or in another encoding.
        """
        hint = f", or {self.set_by}encoding=latin-1 or another" if self.set_by else ""
        return decoded(path, read_content(path, option, self.max_bytes, self.too_many_bytes), self.encoding, hint)


@dataclass(frozen=True, eq=False)
class Column:
    """A column of a table.

    Args:
        cells: `[N]`, null for a missing cell. Cells are texts without white space around them, numbers, lists of texts,
            or lists of numbers.
        missing: the words that were read as missing, and the number of cells with each word. It also counts the nulls
            in lists.
    """

    cells: pyarrow.ChunkedArray
    missing: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.cells)

    @property
    def kind(self) -> str:
        """The kind of cells: "text", "number", "texts" or "numbers"."""
        kind = self.cells.type
        if pyarrow.types.is_large_list(kind):
            return "texts" if pyarrow.types.is_large_string(kind.value_type) else "numbers"
        return "text" if pyarrow.types.is_large_string(kind) else "number"

    @property
    def filled(self) -> Array:
        """True for each cell that has a value, bool `[N]`."""
        return np.asarray(self.cells.is_valid())

    def texts(self, rows: Sequence[int] | None = None) -> list[str]:
        """Return the cells as texts, with "" for a missing cell. A list is written as JSON.

        Args:
            rows: the rows to return. Default: all rows.
        """
        cells = self.cells if rows is None else self.cells.take(pyarrow.array(rows, pyarrow.int64()))
        return _as_text(cells).fill_null("").to_pylist()

    def packed_texts(self) -> Texts:
        """Return the cells as texts in one array."""
        return Texts.of_arrow(_as_text(self.cells))

    def values(self, rows: Iterable[int]) -> list[Any]:
        """Return some cells as texts, numbers or lists of these. A missing cell is None."""
        return self.cells.take(pyarrow.array(row_numbers(rows))).to_pylist()

    def lists(self) -> list[list[Any] | None]:
        """Return the cells of a column of lists. A missing cell is None."""
        return self.cells.to_pylist()

    def in_brackets(self) -> Iterator[tuple[int, str]]:
        """Yield row and text of each cell that begins with a bracket. It may be a list or an object."""
        cells = self.texts() if self.kind != "number" else ()
        yield from ((row, cell) for row, cell in enumerate(cells) if cell.startswith(("[", "{")))

    def distinct(self) -> tuple[list[str], Array]:
        """Return the different texts of the cells, in the order of the rows, and the number of each cell's text `[N]`.

        A missing cell has the number -1.
        """
        texts = _as_text(self.cells)
        texts = texts.combine_chunks() if isinstance(texts, pyarrow.ChunkedArray) else texts
        coded = texts.dictionary_encode()
        return coded.dictionary.to_pylist(), np.asarray(coded.indices.fill_null(-1))


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of `[N]` cells each.

    Args:
        path: the file, or the folder.
        form: the name of its format.
        columns: the columns by name, in the order of the file.
        lines: the line of each row, or its file. If it is None, rows are counted from 1.
        opaque: a description of each column whose cells are not texts, numbers or lists of these.
        delimiter: the delimiter between the cells of a row. None if there is no delimiter.
        left_out: the parts of the file that are not in the table: counts by reason.
        about: the description of a column in the file, by its name, such as the names of joints and the limbs between
            them.
        boxes: the part of the image that belongs to each row `[N, 4]`, as x, y, width and height in pixels. If it is
            None, rows have whole images.
    """

    path: Path
    form: str
    columns: dict[str, Column]
    lines: Sequence[int] | Sequence[Path] | None = None
    opaque: Mapping[str, str] = field(default_factory=dict)
    delimiter: str | None = None
    left_out: Mapping[str, int] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)
    boxes: Array | None = None

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def where(self, row: int) -> str:
        """Return file and line of a row, for errors."""
        if self.lines is None:
            return f"{self.path}: row {row + 1}"
        line = self.lines[row]
        return str(line) if isinstance(line, Path) else f"{self.path}:{line}"

    def refuse_repeated(self, texts: Sequence[str]) -> None:
        """Refuse a text of a row `[N]` that equals the text of an earlier row."""
        first_rows: dict[str, int] = {}
        for row, text in enumerate(texts):
            if (first_row := first_rows.setdefault(text, row)) != row:
                place = self.where(first_row).removeprefix(f"{self.path}:").strip()
                place = f"line {place}" if place.isdecimal() else place
                raise InputError(self.where(row), f"{text} appears twice, first in {place}")

    @property
    def root(self) -> Path:
        """The folder that relative paths in the table start from."""
        return self.path if self.path.is_dir() else self.path.parent

    def __contains__(self, name: str) -> bool:
        return normalize("NFC", name) in self.columns

    def column(self, name: str, use: str, option: str = "") -> Column:
        """Return a column.

        Args:
            name: the name of the column.
            use: the part that needs the column, for errors.
            option: the task's option that names the column, for errors.

        Raises:
            InputError: there is no such column, or its cells are not texts, numbers or lists.
        """
        name = normalize("NFC", name)
        if name in self.opaque:
            raise InputError(f"{self.path}: column {name} ({use})", self.opaque[name], "must hold text or numbers")
        if name not in self.columns:
            lower = {column.lower(): column for column in self.columns}
            closest_name = closest(name.lower(), lower)
            allowed = f"must be one of {', '.join(self.columns) or 'none'}"
            hint = f"set {option} to the name of the column" if option else ""
            hint = f"did you mean '{lower[closest_name]}'?" if closest_name and not option else hint
            raise InputError(f"{self.path}: column {name} ({use})", "no such column", allowed, hint)
        return self.columns[name]

    def texts(self, name: str, use: str, option: str = "") -> list[str]:
        """Return the cells of a column as texts, with "" for a missing cell. Arguments and errors are as in `column`.

        Raises:
            InputError: there is no such column, or its cells are not texts, numbers or lists.
        """
        return self.column(name, use, option).texts()

    def packed_texts(self, name: str, use: str) -> Texts:
        """Return the cells of a column as texts, in one array."""
        return self.column(name, use).packed_texts()


def column_names(path: Path, header: Sequence[str]) -> list[str]:
    """Return the names of the columns. A column without a name, such as a saved index, is named after its position.

    Raises:
        InputError: two names are equal or look equal, or there are too many columns.
    """
    if len(header) > MAX_COLUMNS:
        raise InputError(str(path), f"{len(header):,} columns", f"must be at most {MAX_COLUMNS:,}")
    names = [normalize("NFC", cell.strip()) or f"(column {number})" for number, cell in enumerate(header, start=1)]
    first_indices: dict[str, int] = {}
    for index, name in enumerate(names):
        first_index = first_indices.setdefault(name, index)
        if first_index < index and header[first_index].strip() == header[index].strip():
            raise InputError(str(path), f"columns {first_index + 1} and {index + 1} are both named '{name}'")
    if problem := alike(tuple(cell for cell in header if cell.strip())):
        raise InputError(str(path), f"names of columns: {problem}", hint="rename one")
    return names


class TableBuilder:
    """Columns that grow by chunks of rows.

    Args:
        path: the file, for errors.
        options: how the file is read.
    """

    def __init__(self, path: Path, options: TableOptions) -> None:
        self.path, self.options = path, options
        words = MISSING if options.missing_words is None else options.missing_words
        self._words = [word.strip().lower() for word in words]
        self._longest = max((len(word.encode()) for word in self._words), default=0)
        self._chunks: dict[str, list[Any]] = {}
        self._missing: dict[str, Counter[str]] = {}
        self._lines = array("q")

    def name(self, names: Iterable[str]) -> None:
        """Add columns, which are empty in the rows so far."""
        for name in names:
            self._chunks[name] = [pyarrow.nulls(len(self._lines))] if len(self._lines) else []
            self._missing[name] = Counter()

    def add(self, lines: Array, columns: Mapping[str, Any]) -> None:
        """Add rows: the line of each row, and values by column, as lists or as arrays of Arrow.

        Raises:
            InputError: there are too many rows, or a text is not Unicode.
        """
        if len(self._lines) + len(lines) > self.options.max_rows:
            raise self.options.too_many_rows(self.path, f"more than {self.options.max_rows:,} rows")
        for name, values in columns.items():
            chunks = getattr(values, "chunks", None)
            for chunk in [self._chunk(name, values, lines)] if chunks is None else chunks:
                self._chunks[name].append(self._cleaned(name, chunk))
        self._lines.frombytes(np.ascontiguousarray(lines, np.int64).tobytes())

    def _chunk(self, name: str, values: Sequence[Any], lines: Array) -> Any:
        """Convert Python values to texts, numbers, lists of texts or lists of numbers. Other values become JSON."""
        kinds = {type(value) for value in values} - {type(None)}
        text, number = pyarrow.large_string(), pyarrow.float64()
        try:
            if kinds <= {str}:
                return pyarrow.array(values, text)
            with suppress(OverflowError, pyarrow.ArrowException):  # whole numbers beyond 64 bits are texts
                if kinds <= {int, float}:
                    return pyarrow.array(values, number if float in kinds else pyarrow.int64(), from_pandas=True)
                if kinds == {list}:
                    elements = {type(element) for value in values for element in value or ()} - {type(None)}
                    if elements <= {str}:
                        return pyarrow.array(values, pyarrow.large_list(text))
                    if elements <= {int, float}:
                        return pyarrow.array(values, pyarrow.large_list(number))
            return pyarrow.array([_json_text(value) for value in values], text)
        except UnicodeEncodeError:
            texts = [str(_json_text(value)) for value in values]
            line = next(n for n, text in zip(lines.tolist(), texts, strict=True) if re.search("[\ud800-\udfff]", text))
            raise InputError(f"{self.path}:{line}: {name}", "not valid Unicode") from None

    def _cleaned(self, name: str, cells: Any) -> Any:
        """Strip the texts of a chunk, and replace words that mean a missing value by null. The words are counted."""
        text = pyarrow.large_string()
        if pyarrow.types.is_large_list(cells.type):
            if nulls := cells.flatten().null_count:
                self._missing[name]["null in a list"] += nulls
            return cells
        if cells.type != text:
            return cells
        texts = compute.utf8_trim_whitespace(cells)
        short = texts.filter(compute.less_equal(compute.binary_length(texts), self._longest))
        is_missing_word = compute.is_in(compute.utf8_lower(short), pyarrow.array(self._words, text))
        found = compute.value_counts(short.filter(is_missing_word)).to_pylist()
        for entry in found:
            self._missing[name][entry["values"]] += entry["counts"]
        words = pyarrow.array(["", *(entry["values"] for entry in found)], text)
        return compute.if_else(compute.is_in(texts, words), pyarrow.scalar(None, text), texts)

    def table(self, form: str, delimiter: str | None = None, *, lines: bool = True) -> Table:
        """Return the table of all rows.

        Raises:
            InputError: a column after the first has values and no name.
        """
        columns = {name: Column(_joined(self._chunks.pop(name)), self._missing[name]) for name in [*self._chunks]}
        unnamed = [name for name in columns if name.startswith("(column ")]
        filled = [name for name in unnamed if columns[name].cells.null_count < len(columns[name])]
        if filled and filled != ["(column 1)"]:  # a saved index has no name
            problem = f"{filled[-1][1:-1]} has values, but no name"
            raise InputError(str(self.path), problem, "the first line must name the columns")
        columns = {name: column for name, column in columns.items() if name not in unnamed or name in filled}
        first = self._lines[0] if self._lines else 0
        plain = range(first, first + len(self._lines))  # most files have no blank lines
        is_plain = np.array_equal(np.frombuffer(self._lines, np.int64), np.arange(plain.start, plain.stop))
        numbers = plain if is_plain else self._lines
        return Table(self.path, form, columns, numbers if lines else None, delimiter=delimiter)


def _joined(chunks: Sequence[Any]) -> Any:
    """Join the chunks of one column to one chunk of one type.

    The type is the type of the chunks with values, or text if types differ. Whole numbers and other numbers become
    floats. If a whole number has more than 53 bits, they become texts, so that two different numbers stay different.
    """
    kinds = {chunk.type for chunk in chunks if chunk.null_count < len(chunk)}
    text = pyarrow.large_string()
    kind = kinds.pop() if len(kinds) == 1 else pyarrow.float64() if kinds and all(map(is_number, kinds)) else text
    if kind == pyarrow.float64():
        try:
            return _one_chunk([chunk.cast(kind) for chunk in chunks], kind)
        except pyarrow.ArrowInvalid:
            kind = text
    arrays = []
    for chunk in chunks:
        if chunk.null_count == len(chunk):
            arrays.append(pyarrow.nulls(len(chunk), kind))
        else:
            arrays.append(_as_text(chunk) if kind == text else chunk.cast(kind))
    return _one_chunk(arrays, kind)


def _one_chunk(chunks: Sequence[Any], kind: Any) -> Any:
    """Join chunks to one. A caller that needs one array then makes no copy."""
    return pyarrow.chunked_array([pyarrow.concat_arrays(chunks)] if len(chunks) > 1 else chunks, kind)


def _as_text(cells: Any) -> Any:
    """Convert cells to texts. A number 1.0 becomes "1", a list becomes JSON."""
    text = pyarrow.large_string()
    if not pyarrow.types.is_large_list(cells.type):
        return cells if cells.type == text else cells.cast(text)
    return pyarrow.array([_json_text(cell) for cell in cells.to_pylist()], text)


def _json_text(value: Any) -> str | None:
    """Convert a value to the text of a cell: a text as it is, a number as Arrow writes it, anything else as JSON."""
    if is_missing(value):
        return None
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def is_text(kind: Any) -> bool:
    """Return True if an Arrow type is text."""
    types = pyarrow.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def is_number(kind: Any) -> bool:
    """Return True if an Arrow type is a number."""
    return bool(pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind))
