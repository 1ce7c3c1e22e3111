"""Files of cells between delimiters: commas, semicolons, tabs, bars; perhaps with cells in double quotes."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from pyarrow import csv as arrow_csv, large_string

from contml._support.errors import InputError
from contml.data.decode import names_image
from contml.data.table_columns import Array, Table, TableBuilder, TableOptions, column_names

_DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
#: Excel's first line, which names the delimiter.
_SEP = re.compile(r'"?sep=(.)"?[ ]*\n', re.IGNORECASE)
#: The delimiter is found in so many lines and bytes. Plain cells are read in blocks of so many bytes, and no line may
#: be longer; quoted ones in so many rows at a time.
_SNIFFED, _SNIFFED_BYTES, _BLOCK, _CHUNK = 100, 1 << 20, 1 << 24, 10_000
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
    source = _TableSource(path, content, delimiter, lines_before)

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
            raise InputError(f"{self.path}:{number}", f"not CSV ({error})", hint="close every double quote") from None

    def _holds_rows(self, row: list[str]) -> bool:
        """Whether the lines of a row look like rows of their own: they name images, or have as many cells."""
        first, *others = (line.split(self.delimiter) for line in self.delimiter.join(row).split("\n"))
        if any(map(_names_image, first)):
            return any(_names_image(cell) for line in others for cell in line)
        return all(len(line) == len(row) for line in (first, *others))

    def every_line_is_a_row(self) -> bool:
        """Whether every line has as many cells as the first one, and quotes are a part of texts.

        That is, no cell both begins and ends with one, and those that begin with one have several words.
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
