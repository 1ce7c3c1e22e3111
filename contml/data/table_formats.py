"""Tables in files: Excel sheets, Parquet, and cells between delimiters (commas, semicolons, tabs, bars)."""

from __future__ import annotations

import csv
import io
import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import date, datetime, time
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow
from pyarrow import compute, large_string, parquet

from contml._support.errors import InputError, one_line
from contml._support.files import most_unpacked
from contml.data.decode import names_image
from contml.data.table_columns import Table, TableBuilder, TableOptions, column_names, is_number, is_text
from contml.data.text_files import no_such_file, read_content

#: Sheets are slow to read: their XML may have this share of the bytes of other files. Rows are converted in chunks.
_SHEET_SHARE, _CHUNK = 8, 10_000
#: A cell of a sheet with a formula, and no value or an empty one.
_NO_VALUE = re.compile(
    rb'<(?:\w+:)?c\s[^>]*?r="([A-Z]+[0-9]+)"[^>]*>\s*<(?:\w+:)?f(?:\s[^>]*)?(?:/>|>[^<]*</(?:\w+:)?f>)'
    rb"\s*(?:<(?:\w+:)?v\s*/>|<(?:\w+:)?v>\s*</(?:\w+:)?v>)?\s*</(?:\w+:)?c>"
)


def read_sheet(path: Path, option: str, options: TableOptions) -> Table:
    """Read the table of a sheet of an Excel file.

    Raises:
        InputError: no such file or sheet, damaged, too large, or it has merged cells or formulas without values.
    """
    sheet, limit = options.sheet, options.max_bytes // _SHEET_SHARE
    content = read_content(path, option, options.max_bytes, options.too_many_bytes)
    try:
        import openpyxl
    except ImportError:
        hint = "pip install 'contml[xlsx]', or save the sheet as CSV"
        raise InputError(str(path), "Excel files need openpyxl, which is not installed", hint=hint) from None
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as packed:
            size = sum(member.file_size for member in packed.infolist())
            if size > limit:
                raise options.too_many_bytes(path, f"unpacks to {size:,} bytes", limit, "save the sheet as CSV")
            sheets = openpyxl.load_workbook(io.BytesIO(content), read_only=True, data_only=True).worksheets
            filled = {found.title: rows for found in sheets if (rows := _sheet_rows(path, found, options))}
            if sheet is not None and sheet not in filled:
                allowed = f"must be a sheet that is filled: {', '.join(filled) or 'none is'}"
                raise InputError(f"{path}: sheet", f"'{sheet}'", allowed)
            if sheet is None and len(filled) != 1:
                names = ", ".join(filled)
                hint = f"{options.set_by}sheet={next(iter(filled))}" if filled else ""
                raise InputError(str(path), f"several sheets are filled: {names}" if filled else "is empty", hint=hint)
            chosen = sheet or next(iter(filled))
            _check_sheet(path, packed.read(next(s._worksheet_path for s in sheets if s.title == chosen)))
    except InputError:
        raise
    except Exception as error:  # on damaged files, zipfile and openpyxl raise errors of many types
        raise InputError(str(path), f"not readable as .xlsx ({one_line(error)[:160]})") from None
    (_, header), *rows = filled[chosen]
    width = max(len(row) for _, row in filled[chosen])
    texts = ["" if value is None else str(_sheet_value(value)) for value in _padded(header, width)]
    table_names = column_names(path, texts)
    builder = TableBuilder(path, options)
    builder.name(table_names)
    for start in range(0, len(rows), _CHUNK):
        numbers, chunk = zip(*rows[start : start + _CHUNK], strict=True)
        values = zip(*(map(_sheet_value, _padded(row, width)) for row in chunk), strict=True)
        builder.add(np.array(numbers), dict(zip(table_names, map(list, values), strict=True)))
    return builder.table(f"sheet '{chosen}'")


def _padded(row: tuple[Any, ...], width: int) -> tuple[Any, ...]:
    return row + (None,) * (width - len(row))


def _sheet_rows(path: Path, sheet: Any, options: TableOptions) -> list[tuple[int, tuple[Any, ...]]]:
    """Return the rows of a sheet that have a value, with their numbers. Each row ends at its last value."""
    sheet.reset_dimensions()  # what the file says of its size may be wrong
    rows, size = [], 0
    for number, row in enumerate(sheet.iter_rows(values_only=True), start=1):
        last = next((index for index in range(len(row), 0, -1) if row[index - 1] is not None), 0)
        size += len(row)
        if last:
            rows.append((number, row[:last]))
        if len(rows) > options.max_rows + 1:
            raise options.too_many_rows(path, f"more than {options.max_rows:,} rows")
        if 8 * size > options.max_bytes:
            raise options.too_many_bytes(path, f"more than {size:,} cells, of 8 bytes")
    return rows


def _check_sheet(path: Path, sheet: bytes) -> None:
    """Refuse merged cells, and formulas whose values were never computed. Both would be read as empty."""
    if merged := re.findall(rb'<(?:\w+:)?mergeCell [^>]*?ref="([^"]+)"', sheet):
        cells = ", ".join(cell.decode() for cell in merged[:3])
        raise InputError(str(path), f"merged cells ({cells})", hint="unmerge them, and fill each")
    if formula := _NO_VALUE.search(sheet):
        hint = "open the file in a spreadsheet program, and save it"
        raise InputError(f"{path}: cell {formula[1].decode()}", "a formula without a value", hint=hint)


def _sheet_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.date().isoformat() if value.time() == time() else value.isoformat(sep=" ")
    return value.isoformat() if isinstance(value, date | time) else value


#: A duration is a number of seconds, whatever its unit in the file.
_PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
#: Dates as Spark writes them (INT96): in nanoseconds, years outside of 1677 to 2262 would become other years.
_EXACT: dict[str, Any] = {"coerce_int96_timestamp_unit": "us"}


def read_parquet(path: Path, option: str, options: TableOptions) -> Table:
    """Read the table of a Parquet file. Columns of bytes and structures are not read.

    Raises:
        InputError: no such file, damaged, or too large. The number of rows and bytes is checked before the file is
            read.
    """
    try:
        if not path.is_file():
            read_content(path, option, options.max_bytes)  # raises
        with parquet.ParquetFile(path, **_EXACT) as file:
            schema, metadata = file.schema_arrow, file.metadata
            if metadata.num_rows > options.max_rows:
                raise options.too_many_rows(path, f"{metadata.num_rows:,} rows")
            described = dict(zip(schema.names, map(_opaque, schema.types), strict=True))
            opaque = {name: what for name, what in described.items() if what}
            names = [name for name in schema.names if name not in opaque]
            _check_parquet_size(path, metadata, {*names}, options)
        classes = _class_names(schema.metadata or {})
        leaves = map(metadata.schema.column, range(metadata.num_columns))  # also inside lists and structures
        packed = [column.path for column in leaves if column.physical_type == "BYTE_ARRAY"]
        # As dictionaries: a text of a megabyte may be repeated in each of a million rows.
        with parquet.ParquetFile(path, read_dictionary=packed, **_EXACT) as file:
            arrow_table = file.read(columns=names)
        columns = {}
        for name in names:
            cells = arrow_table[name]
            if (size := _unpacked_size(cells)) > options.max_bytes:
                raise options.too_many_bytes(path, f"column {name} unpacks to {size:,} bytes")
            columns[name] = _plain(_named(path, name, cells, classes.get(name)))
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
    described = {table_names[name]: what for name, what in opaque.items()}
    return replace(builder.table("Parquet", lines=False), opaque=described)


def _class_names(metadata: Mapping[bytes, bytes]) -> dict[str, list[str]]:
    """Return the names of the classes of columns with class numbers, as Hugging Face `datasets` writes them."""
    try:
        features = json.loads(metadata.get(b"huggingface", b"{}"))["info"]["features"]
        found = {name: {**kind, **kind.get("feature", {})}.get("names") for name, kind in features.items()}
        return {name: [*map(str, names)] for name, names in found.items() if names}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):  # of another program
        return {}


def _named(path: Path, column: str, cells: Any, names: list[str] | None) -> Any:
    """Replace class numbers, or lists of class numbers, by the names of the classes. -1 becomes a missing value."""
    kind = cells.type
    inner = kind.value_type if pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind) else kind
    if names is None or not pyarrow.types.is_integer(inner):
        return cells
    numbers = cells.combine_chunks().flatten() if inner is not kind else cells
    extremes = compute.min_max(numbers).as_py()
    if extremes["max"] is not None and not -1 <= extremes["min"] <= extremes["max"] < len(names):
        got = f"class numbers {extremes['min']} to {extremes['max']}"
        raise InputError(f"{path}: column {column}", got, f"must be below {len(names)}, the number of names")
    texts = pyarrow.array([*names, None], large_string())
    taken = texts.take(compute.if_else(compute.less(numbers, 0), len(names), numbers))
    if inner is kind:
        return taken
    offsets = cells.combine_chunks().offsets
    lists = pyarrow.LargeListArray.from_arrays(compute.subtract(offsets, offsets[0]).cast("int64"), taken)
    return pyarrow.chunked_array([compute.if_else(cells.combine_chunks().is_valid(), lists, None)])


def _in_calendar(cells: Any) -> bool:
    """Return True if texts of dates have four digits for the year, or if cells are not texts."""
    if not is_text(cells.type):
        return True
    return bool(compute.all(compute.match_substring_regex(cells, r"^[0-9]{4}-|^[0-9]{2}:")).as_py() in (True, None))


def _check_parquet_size(path: Path, metadata: Any, names: set[str], options: TableOptions) -> None:
    """Refuse columns that unpack to too many bytes, as the file declares them, or have too many elements of lists."""
    size = unpacked = 0
    for group in range(metadata.num_row_groups):
        for index in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(index)
            if chunk.path_in_schema.partition(".")[0] in names:
                of_lists = chunk.physical_type == "BYTE_ARRAY" and "." in chunk.path_in_schema
                size += max(chunk.total_uncompressed_size, (24 if of_lists else 8) * chunk.num_values)
                unpacked += chunk.total_uncompressed_size
    if size > options.max_bytes:
        raise options.too_many_bytes(path, f"unpacks to {size:,} bytes")
    if unpacked > most_unpacked(path.stat().st_size):
        raise InputError(str(path), f"unpacks to {unpacked:,} bytes", hint="write it again without compression")


def _opaque(kind: Any) -> str:
    """Describe cells of an Arrow type that cannot be read as texts, numbers or lists.

    Return "" for a type that can be read.
    """
    types = pyarrow.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        kind = kind.value_type.value_type if types.is_dictionary(kind.value_type) else kind.value_type
        if not is_text(kind) and not is_number(kind) and not types.is_boolean(kind) and not types.is_null(kind):
            return f"lists of {kind}"[:60]
        return ""
    is_opaque = (types.is_binary, types.is_large_binary, types.is_fixed_size_binary, types.is_struct)
    if any(is_kind(kind) for is_kind in is_opaque):
        return "bytes or structures (save images to files and give their paths)"
    known = types.is_boolean(kind) or types.is_null(kind) or types.is_temporal(kind) or types.is_decimal(kind)
    return "" if known or is_text(kind) or is_number(kind) else f"cells of the type {kind}"[:60]


def _unpacked_size(cells: Any) -> int:
    """Compute the bytes that a dictionary-encoded column would take as texts."""
    total = 0
    for chunk in cells.chunks:
        inner = chunk.flatten() if hasattr(chunk, "flatten") and not pyarrow.types.is_dictionary(chunk.type) else chunk
        if pyarrow.types.is_dictionary(inner.type) and len(inner.dictionary):
            lengths = compute.binary_length(inner.dictionary.cast(pyarrow.large_string()))
            total += compute.sum(lengths.take(inner.indices.drop_null())).as_py() or 0
    return total


def _plain(cells: Any) -> Any:
    """Convert a column of Arrow to texts, numbers, lists of texts or lists of numbers."""
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
        null = pyarrow.scalar(None, kind)
        return pyarrow.chunked_array([compute.if_else(compute.is_nan(x), null, x) for x in cells.chunks], kind)
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


_DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
#: Excel's first line, which names the delimiter.
_SEP = re.compile(r'"?sep=(.)"?[ ]*\n', re.IGNORECASE)
#: The lines and the characters in which the delimiter is searched, and the most characters of a cell.
_SNIFFED, _SNIFFED_TEXT, _LONGEST_CELL = 100, 1 << 20, 1 << 24


def read_delimited(path: Path, text: str, options: TableOptions) -> Table:
    """Read a file of cells between delimiters. Cells in double quotes may contain delimiters and line breaks.

    A text that begins with a quotation mark would swallow all rows up to the next mark. So if the file cannot be read
    with quotes, but every line has as many cells as the header, quotation marks are read as text.
    """
    delimiter = options.delimiter
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    lines_before = 0
    if match := _SEP.match(text):
        delimiter, lines_before = delimiter or match[1], 1
        text = text[match.end() :]
    if not text.strip():
        raise InputError(str(path), "is empty", "the first line must name the columns")
    delimiter = _delimiter(text, path.name) if delimiter is None else delimiter
    source = _TableText(path, text, delimiter, lines_before, options)
    csv.field_size_limit(_LONGEST_CELL)
    try:
        return source.table(csv.QUOTE_MINIMAL)
    except InputError:
        if not source.every_line_is_a_row():
            raise
    return source.table(csv.QUOTE_NONE)


def _delimiter(text: str, name: str) -> str:
    """Return the delimiter that splits most rows into as many cells as the header.

    Of equal ones, it has the most cells.
    """
    lines = [line + "\n" for line in text[:_SNIFFED_TEXT].split("\n") if line.strip()][:_SNIFFED]
    if ".tsv" in name.lower() and "\t" in lines[0]:
        return "\t"
    best_score, best_delimiter = (0.0, 1), ","
    for delimiter in _DELIMITERS:
        with suppress(csv.Error):
            widths = [len(row) for row in csv.reader(lines, delimiter=delimiter, skipinitialspace=True) if any(row)]
            equal_share = sum(width == widths[0] for width in widths) / len(widths) if widths else 0.0
            if widths and widths[0] > 1 and (equal_share, widths[0]) > best_score:
                best_score, best_delimiter = (equal_share, widths[0]), delimiter
    return best_delimiter


class _TableText(NamedTuple):
    """The text of a file in which only line feeds end a line. `lines_before` lines are before it in the file."""

    path: Path
    text: str
    delimiter: str
    lines_before: int
    options: TableOptions

    def table(self, quoting: int) -> Table:
        """Return the table. `quoting` defines whether double quotes enclose some cells, as in `csv`.

        Raises:
            InputError: a row has another number of cells, a quote is not closed, or encloses text that looks like rows.
        """
        rows = self._rows(quoting)
        line, header = next(rows, (1, []))
        names = column_names(self.path, header)
        if unnamed := next(filter(_names_image, names), None):
            allowed = "the first line must name the columns"
            raise InputError(f"{self.path}:{line}", f"'{unnamed}' where the name of a column is expected", allowed)
        builder = TableBuilder(self.path, self.options)
        builder.name(names)
        while chunk := list(islice(rows, _CHUNK)):
            numbers, cells = zip(*chunk, strict=True)
            builder.add(np.array(numbers), dict(zip(names, zip(*cells, strict=True), strict=True)))
        return builder.table(f"{_DELIMITERS.get(self.delimiter, repr(self.delimiter))}-separated", self.delimiter)

    def _rows(self, quoting: int) -> Iterator[tuple[int, list[str]]]:
        """Yield the line and the cells of each row, the header first."""
        form: Any = {"delimiter": self.delimiter, "skipinitialspace": self.delimiter != " ", "quoting": quoting}
        rows: Any = csv.reader(io.StringIO(self.text, newline="\n"), strict=True, **form)
        number, width = self.lines_before + 1, 0
        try:
            for row in rows:
                first, number = number, self.lines_before + rows.line_num + 1
                if not any(map(str.strip, row)):
                    continue
                width = width or len(row)
                cells = row if len(row) == width else self._checked(first, row, width)
                if number - first > 1 and self._holds_rows(cells):
                    problem = f"a cell in double quotes has {number - first:,} lines, which look like rows"
                    hint = "if the quotation mark is a part of the text, double it, and enclose the cell in quotes"
                    raise InputError(f"{self.path}:{first}", problem, hint=hint)
                yield first, cells
        except csv.Error as error:
            hint = "close every double quote"
            if '" ' in self.text[:_SNIFFED_TEXT].partition("\n")[0]:
                hint = f"if spaces separate the cells, {self.options.set_by}delimiter=' '"
            raise InputError(f"{self.path}:{number}", f"not CSV ({error})", hint=hint) from None

    def _checked(self, number: int, cells: list[str], width: int) -> list[str]:
        """Return the cells of a row, without empty cells after the last column, which spreadsheets write."""
        if len(cells) < width or any(cell.strip() for cell in cells[width:]):
            hint = f"the delimiter is '{self.delimiter}': put cells that contain it in double quotes"
            first = self.text.split("\n", _SNIFFED)[1:_SNIFFED]
            if all(line.count(self.delimiter) == width for line in first if line.strip()):
                hint = "give the first column of row names, as R writes it, a name in the first line too"
            raise InputError(f"{self.path}:{number}", f"{len(cells)} cells, but the header has {width}", hint=hint)
        return cells[:width]

    def _holds_rows(self, row: list[str]) -> bool:
        """Return True if the lines of a row look like rows of their own: they name images, or have as many cells."""
        first, *others = (line.split(self.delimiter) for line in self.delimiter.join(row).split("\n"))
        if any(map(_names_image, first)):
            return any(_names_image(cell) for line in others for cell in line)
        return all(len(line) == len(row) for line in (first, *others))

    def every_line_is_a_row(self) -> bool:
        """Return True if every line has as many cells as the first line, and quotes are a part of texts.

        Quotes are a part of texts if no cell both begins and ends with a quote. Cells that begin with a quote must also
        have several words.
        """
        width = 0
        for line in io.StringIO(self.text, newline="\n"):
            cells = [cell.strip() for cell in line.split(self.delimiter)]
            if any(cells):
                width = width or len(cells)
                begun = [cell for cell in cells if cell.startswith('"')]
                if len(cells) != width or any(cell.endswith('"') or " " not in cell for cell in begun):
                    return False
        return width > 1


def _names_image(cell: str) -> bool:
    return names_image(cell.strip().strip('"'))
