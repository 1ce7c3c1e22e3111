"""Tables in files: Excel sheets, Parquet, and cells between delimiters (commas, semicolons, tabs, bars)."""

from __future__ import annotations

import csv
import io
import json
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, time
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow
from pyarrow import compute, csv as arrow_csv, large_string, parquet

from contml._support.errors import InputError, one_line
from contml._support.files import most_unpacked
from contml.data.decode import names_image
from contml.data.table_columns import Array, Table, TableBuilder, TableOptions, column_names, is_number, is_text
from contml.data.text_files import no_such_file, read_content

#: Sheets are slow to read: their XML may have this share of the bytes of other files. Rows are converted in chunks.
_SHEET_SHARE, _CHUNK = 8, 10_000
#: A cell of a sheet with a formula, and no value or an empty one.
_NO_VALUE = re.compile(
    rb'<(?:\w+:)?c\s[^>]*?r="([A-Z]+[0-9]+)"[^>]*>\s*<(?:\w+:)?f(?:\s[^>]*)?(?:/>|>[^<]*</(?:\w+:)?f>)'
    rb"\s*(?:<(?:\w+:)?v\s*/>|<(?:\w+:)?v>\s*</(?:\w+:)?v>)?\s*</(?:\w+:)?c>"
)


def read_sheet(path: Path, option: str, options: TableOptions) -> Table:
    """Returns the table of a sheet of an Excel file.

    Raises:
        InputError: no such file or sheet, damaged, too large, or it has merged cells or formulas without values.
    """
    sheet = options.sheet
    content = read_content(path, option, options.max_bytes, options.too_many_bytes)
    try:
        import openpyxl
    except ImportError:
        hint = "pip install 'contml[xlsx]', or save the sheet as CSV"
        raise InputError(str(path), "Excel files need openpyxl, which is not installed", hint=hint) from None
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as packed:
            size = sum(member.file_size for member in packed.infolist())
            if size > options.max_bytes // _SHEET_SHARE:
                limit, hint = options.max_bytes // _SHEET_SHARE, "save the sheet as CSV"
                raise options.too_many_bytes(path, f"unpacks to {size:,} bytes", limit, hint)
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
    table_names = column_names(
        path, ["" if value is None else str(_sheet_value(value)) for value in _padded(header, width)]
    )
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
    """The rows of a sheet that have a value, with their numbers, each up to its last value."""
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
    """Refuse merged cells and formulas whose values were never computed: both would be read as empty."""
    if merged := re.findall(rb'<(?:\w+:)?mergeCell [^>]*?ref="([^"]+)"', sheet):
        cells = ", ".join(cell.decode() for cell in merged[:3])
        raise InputError(str(path), f"merged cells ({cells})", hint="unmerge them, and fill each")
    if formula := _NO_VALUE.search(sheet):
        cell = formula[1].decode()
        hint = "open the file in a spreadsheet program, and save it"
        raise InputError(f"{path}: cell {cell}", "a formula without a value", hint=hint)


def _sheet_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.date().isoformat() if value.time() == time() else value.isoformat(sep=" ")
    return value.isoformat() if isinstance(value, date | time) else value


#: A duration is a number of seconds, whatever its unit in the file.
_PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
#: Dates as Spark writes them (INT96): in nanoseconds, years outside of 1677 to 2262 would become other years.
_EXACT: dict[str, Any] = {"coerce_int96_timestamp_unit": "us"}


def read_parquet(path: Path, option: str, options: TableOptions) -> Table:
    """Returns the table of a Parquet file; columns of bytes and structures are not read.

    Raises:
        InputError: no such file, damaged, or too large: its number of rows and its bytes are known before it is read.
    """
    try:
        if not path.is_file():
            read_content(path, option, options.max_bytes)  # raises
        with parquet.ParquetFile(path, **_EXACT) as file:
            schema, metadata = file.schema_arrow, file.metadata
            if metadata.num_rows > options.max_rows:
                raise options.too_many_rows(path, f"{metadata.num_rows:,} rows")
            opaque = {
                name: what for name, kind in zip(schema.names, schema.types, strict=True) if (what := _opaque(kind))
            }
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
    return builder.table("Parquet", lines=False, opaque={table_names[name]: what for name, what in opaque.items()})


def _class_names(metadata: Mapping[bytes, bytes]) -> dict[str, list[str]]:
    """The names of the classes that columns have by number, as Hugging Face `datasets` writes them."""
    try:
        features = json.loads(metadata.get(b"huggingface", b"{}"))["info"]["features"]
        found = {name: {**kind, **kind.get("feature", {})}.get("names") for name, kind in features.items()}
        return {name: [*map(str, names)] for name, names in found.items() if names}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):  # of another program
        return {}


def _named(path: Path, column: str, cells: Any, names: list[str] | None) -> Any:
    """The names of class numbers, or of lists of these; -1 is a missing one."""
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
    """Whether texts of dates have four digits for the year; other cells are no dates."""
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


_DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
#: Excel's first line, which names the delimiter.
_SEP = re.compile(r'"?sep=(.)"?[ ]*\n', re.IGNORECASE)
#: The delimiter is found in so many lines and bytes. Plain cells are read in blocks of so many bytes, and no line may
#: be longer; quoted ones in so many rows at a time.
_SNIFFED, _SNIFFED_BYTES, _BLOCK = 100, 1 << 20, 1 << 24
#: The line and the names of the header; then rows in blocks: the line of each, and their columns.
_Parsed: TypeAlias = "tuple[int, list[str], Iterator[tuple[Array, Sequence[Any]]]]"


def read_delimited(path: Path, text: str, options: TableOptions) -> Table:
    """A file of cells between delimiters, perhaps in double quotes, which may enclose delimiters and line breaks.

    A text that begins with a quotation mark would swallow all rows up to the next one. So the marks are a part of the
    text where they cannot be quotes, if every line is then a row.
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
    has_quotes, content = '"' in text, text.encode()
    del text
    source = _TableSource(path, content, delimiter, lines_before, options.set_by)

    def table(parsed: _Parsed) -> Table:
        line, header, blocks = parsed
        names = column_names(path, header)
        if unnamed := next(filter(_names_image, names), None):
            allowed = "the first line must name the columns"
            raise InputError(f"{path}:{line}", f"'{unnamed}' where the name of a column is expected", allowed)
        builder = TableBuilder(path, options)
        builder.name(names)
        for numbers, columns in blocks:
            builder.add(numbers, dict(zip(names, columns, strict=True)))
        return builder.table(f"{_DELIMITERS.get(delimiter, repr(delimiter))}-separated", delimiter)

    if not has_quotes:
        return table(source.plain())
    try:
        return table(source.quoted())
    except InputError:
        if not source.every_line_is_a_row():
            raise
    return table(source.plain())


def _delimiter(text: str, name: str) -> str:
    """The delimiter that splits most rows into as many cells as the header; among equals, the one with most cells."""
    lines = [line + "\n" for line in text[:_SNIFFED_BYTES].split("\n") if line.strip()][:_SNIFFED]
    if ".tsv" in name.lower() and "\t" in lines[0]:
        return "\t"
    best_score, best_delimiter = (0.0, 1), ","
    for delimiter in _DELIMITERS:
        try:
            widths = [len(row) for row in csv.reader(lines, delimiter=delimiter, skipinitialspace=True) if any(row)]
        except csv.Error:
            continue
        equal_share = sum(width == widths[0] for width in widths) / len(widths) if widths else 0.0
        if widths and widths[0] > 1 and (equal_share, widths[0]) > best_score:
            best_score, best_delimiter = (equal_share, widths[0]), delimiter
    return best_delimiter


class _TableSource(NamedTuple):
    """The text of a file in UTF-8, where only line feeds end a line; `lines_before` are before it in the file."""

    path: Path
    content: bytes
    delimiter: str
    lines_before: int
    set_by: str

    def plain(self) -> _Parsed:
        """The cells between delimiters, whatever they hold.

        Raises:
            InputError: a row has another number of cells, or a line is too long.
        """
        lines = enumerate(io.BytesIO(self.content), self.lines_before + 1)
        number, header = next((number, line) for number, line in lines if not self._blank(line))
        names = header.decode().removesuffix("\n").split(self.delimiter)
        return number, names, self._plain_blocks(number, len(names))

    def _blank(self, line: bytes) -> bool:
        return not line.replace(self.delimiter.encode(), b"").strip()

    def _plain_blocks(self, header_line: int, width: int) -> Iterator[tuple[Array, Sequence[Any]]]:

        names = [str(index) for index in range(width)]
        read = arrow_csv.ReadOptions(use_threads=False, column_names=names, block_size=2 * _BLOCK)
        parse = arrow_csv.ParseOptions(delimiter=self.delimiter, quote_char=False, double_quote=False)
        convert = arrow_csv.ConvertOptions(check_utf8=False, column_types=dict.fromkeys(names, large_string()))
        start, number, size = 0, self.lines_before + 1, len(self.content)
        while start < size:
            stop = size if start + _BLOCK >= size else self.content.rfind(b"\n", start, start + _BLOCK) + 1
            if not stop:
                raise InputError(f"{self.path}:{number}", f"a line of more than {_BLOCK:,} bytes", "is this a table?")
            block = self.content[start:stop]
            numbers, rows = self._rows(number, block, header_line, width)
            if len(numbers):
                yield numbers, arrow_csv.read_csv(io.BytesIO(rows), read, parse, convert).columns
            start, number = stop, number + block.count(b"\n")

    def _rows(self, number: int, block: bytes, header_line: int, width: int) -> tuple[Array, bytes]:
        """The rows of a block after the header: their lines, and their bytes, without blank lines."""
        mark, characters = self.delimiter.encode(), np.frombuffer(block, np.uint8)
        ends = np.flatnonzero(characters == ord("\n"))
        if not block.endswith(b"\n"):
            ends = np.append(ends, len(block))
        starts = np.concatenate(([0], ends[:-1] + 1))
        if len(mark) == 1:
            marks = np.flatnonzero(characters == mark[0])
        else:
            marks = np.array([match.start() for match in re.finditer(re.escape(mark), block)], np.int64)
        widths = np.searchsorted(marks, ends) - np.searchsorted(marks, starts) + 1
        numbers = number + np.arange(len(ends))
        unusual = np.flatnonzero((widths != width) | (ends - starts < 2 * width))  # these may be blank
        if number > header_line and not len(unusual):
            return numbers, block
        lines = [block[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        kept = numbers > header_line
        for index in unusual.tolist():
            if kept[index] and self._blank(lines[index]):
                kept[index] = False
            elif kept[index] and widths[index] != width:
                cells = self._checked(int(numbers[index]), lines[index].decode().split(self.delimiter), width)
                lines[index] = self.delimiter.join(cells).encode()
        return numbers[kept], b"\n".join(line for line, keep in zip(lines, kept.tolist(), strict=True) if keep)

    def _checked(self, number: int, cells: list[str], width: int) -> list[str]:
        """The cells of a row, without empty ones after the last column, which spreadsheets write."""
        if len(cells) < width or any(cell.strip() for cell in cells[width:]):
            hint = f"the delimiter is '{self.delimiter}': put cells that contain it in double quotes"
            first = self.content.split(b"\n", _SNIFFED)[1:_SNIFFED]
            if all(line.count(self.delimiter.encode()) == width for line in first if line.strip()):
                hint = "give the first column of row names, as R writes it, a name in the first line too"
            raise InputError(f"{self.path}:{number}", f"{len(cells)} cells, but the header has {width}", hint=hint)
        return cells[:width]

    def quoted(self) -> _Parsed:
        """The cells, where double quotes enclose some.

        Raises:
            InputError: a row has another number of cells, a quote is not closed, or encloses what looks like rows.
        """
        rows = self._quoted_rows()
        number, header = next(rows)
        return number, header, _in_chunks(rows)

    def _quoted_rows(self) -> Iterator[tuple[int, list[str]]]:
        text = io.TextIOWrapper(io.BytesIO(self.content), encoding="utf-8", newline="\n")
        rows = csv.reader(text, delimiter=self.delimiter, strict=True, skipinitialspace=self.delimiter != " ")
        number, width = self.lines_before + 1, 0
        try:
            for row in rows:
                first, number = number, self.lines_before + rows.line_num + 1
                if not any(cell.strip() for cell in row):
                    continue
                width = width or len(row)
                cells = row if len(row) == width else self._checked(first, row, width)
                if number - first > 1 and self._holds_rows(cells):
                    problem = f"a cell in double quotes has {number - first:,} lines, which look like rows"
                    hint = "if the quotation mark is a part of the text, double it, and enclose the cell in quotes"
                    raise InputError(f"{self.path}:{first}", problem, hint=hint)
                yield first, cells
        except csv.Error as error:
            spaces = b'" ' in self.content[:_SNIFFED_BYTES].partition(b"\n")[0]
            hint = f"if spaces separate the cells, {self.set_by}delimiter=' '" if spaces else "close every double quote"
            raise InputError(f"{self.path}:{number}", f"not CSV ({error})", hint=hint) from None

    def _holds_rows(self, row: list[str]) -> bool:
        """Whether the lines of a row look like rows of their own: they name images, or have as many cells."""
        first, *others = (line.split(self.delimiter) for line in self.delimiter.join(row).split("\n"))
        if any(map(_names_image, first)):
            return any(_names_image(cell) for line in others for cell in line)
        return all(len(line) == len(row) for line in (first, *others))

    def every_line_is_a_row(self) -> bool:
        """Whether every line has as many cells as the first one, and quotes are a part of texts.

        That is, no cell both begins and ends with one, and cells that begin with one have several words.
        """
        width = 0
        for line in io.BytesIO(self.content):
            if self._blank(line):
                continue
            cells = [cell.strip() for cell in line.decode().split(self.delimiter)]
            width = width or len(cells)
            begun = [cell for cell in cells if cell.startswith('"')]
            if len(cells) != width or any(cell.endswith('"') or " " not in cell for cell in begun):
                return False
        return width > 1


def _in_chunks(rows: Iterator[tuple[int, list[str]]]) -> Iterator[tuple[Array, Sequence[Any]]]:
    while chunk := list(islice(rows, _CHUNK)):
        yield np.array([line for line, _ in chunk]), list(zip(*(row for _, row in chunk), strict=True))


def _names_image(cell: str) -> bool:
    return names_image(cell.strip().strip('"'))
