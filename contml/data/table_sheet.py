"""Excel files (.xlsx) as tables, by openpyxl."""

from __future__ import annotations

import io
import re
import zipfile
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

import numpy as np

from contml._support.errors import InputError, one_line
from contml.data.table_columns import Table, TableBuilder, TableOptions, column_names
from contml.data.text_files import read_content

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
                raise InputError(
                    "sheet", f"'{sheet}'", f"must be a sheet that is filled: {', '.join(filled) or 'none is'}"
                )
            if sheet is None and len(filled) != 1:
                names = ", ".join(filled)
                hint = f"choose one: sheet={next(iter(filled))}" if filled else ""
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
