"""Text files: lines, lists of names, JSON, and CSV; an error names the file and the line."""

from __future__ import annotations

import ast
import codecs
import csv
import gzip
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from contml import InputError

from .folders import no_such_file


def read_text(path: Path, option: str = "", encoding: str | None = None) -> str:
    """The text of a file, also compressed as `.gz`, without its byte-order mark, which may say that it is UTF-16.

    `option` is the task's option that names the file, `encoding` the value of its option of that name, if it has one.
    """
    try:
        content = path.read_bytes()
        if path.suffix.lower() == ".gz":
            content = gzip.decompress(content)
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a name that no file can have
        raise no_such_file(path, option) from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(str(path), f"not readable as gzip ({error})") from None
    except OSError as error:
        raise InputError(str(path), f"cannot be read ({error.strerror})") from None
    codec = encoding or "utf-8"
    if codec.lower() in ("utf-8", "utf8"):
        codec = "utf-16" if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
        if codec != "utf-16" and b"\0" in content[:1000]:
            raise InputError(str(path), "not text (it has NUL bytes)", hint="save it as text in UTF-8")
    try:
        return content.decode(codec)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        hint = "save it as UTF-8" + (", or set encoding=latin-1 or another" if encoding else "")
        raise InputError(
            f"{path}:{line}", f"not {codec.removesuffix('-sig')} text (byte 0x{content[error.start]:02x})", hint=hint
        ) from None
    except LookupError:
        raise InputError("encoding", repr(encoding), "must be utf-8, latin-1, utf-16 or similar") from None


def read_lines(path: Path, option: str = "", encoding: str | None = None) -> list[tuple[int, str]]:
    """Lines that are not blank, with their numbers from 1.

    Only line feeds end a line: `str.splitlines` also cuts at U+2028, U+0085 and control characters, and captions have
    these.
    """
    lines = read_text(path, option, encoding).split("\n")
    return [(number, line.removesuffix("\r")) for number, line in enumerate(lines, start=1) if line.strip()]


def read_names(path: Path, option: str = "") -> list[str]:
    """A list of at least one name, one per line, without repetitions."""
    line_by_name: dict[str, int] = {}
    for number, line in read_lines(path, option):
        add_once(line_by_name, line.strip(), path, number)
    if not line_by_name:
        raise InputError(str(path), "names no images", hint="give one name per line")
    return list(line_by_name)


def whole_number(text: str) -> int | None:
    """A whole number of up to 18 digits, 0 or more; None for another text."""
    return int(text) if text.isdecimal() and len(text) <= 18 else None


def add_once(lines: dict[str, int], name: str, path: Path, line: int) -> None:
    """Record the line of a name; refuse a name that appears on an earlier line."""
    if name in lines:
        raise InputError(f"{path}:{line}", f"{name} appears twice, first in line {lines[name]}")
    lines[name] = line


def read_json(path: Path, option: str = "", encoding: str | None = None) -> Any:
    """The content of a JSON file."""
    text = read_text(path, option, encoding)
    try:
        return json.loads(text)
    except ValueError as error:  # also a number of more than 4,300 digits
        raise InputError(str(path), f"incomplete, or not JSON ({error})") from None
    except RecursionError:
        raise InputError(str(path), "lists or objects nested too deeply") from None


def refuse_object(cell: str, where: str, use: str) -> None:
    """Refuse a cell that holds an object of JSON or Python, or a list with one, where a text or a list is wanted.

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
    """The value of a cell in the syntax of JSON or Python; None where it is neither."""
    for read in (json.loads, ast.literal_eval):
        try:
            return read(cell)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
    return None


def csv_rows(path: Path, text: str, delimiter: str = ",", *, uneven: bool = False) -> Iterator[tuple[int, list[str]]]:
    """The rows of a CSV file that are not blank, each with its first line; the first row is the header.

    Args:
        path: the file, for errors.
        text: its content.
        delimiter: the character between cells.
        uneven: rows may be shorter or longer than the header.

    Raises:
        InputError: a delimiter of several characters, a row that is not CSV, or one of another length than the header.
    """
    if len(delimiter) != 1:
        raise InputError("delimiter", repr(delimiter), "must be one character")
    rows = csv.reader(text_lines(text), delimiter=delimiter, strict=True)
    line, width = 1, 0
    try:
        for row in rows:
            first_line, line = line, rows.line_num + 1  # a quoted cell may hold line breaks
            if not any(cell.strip() for cell in row):
                continue
            width = width or len(row)
            if len(row) != width and not uneven:
                hint = f"the delimiter is '{delimiter}': put cells that contain it in double quotes"
                raise InputError(f"{path}:{first_line}", f"{len(row)} cells, but the header has {width}", hint=hint)
            yield first_line, row
    except csv.Error as error:
        raise InputError(f"{path}:{line}", f"not CSV ({error})", hint="close every double quote") from None


def read_csv(
    path: Path,
    option: str,
    columns: Mapping[str, str],
    delimiter: str = ",",
    encoding: str | None = None,
    *,
    uneven: bool = False,
) -> tuple[list[str], list[tuple[int, dict[str, str]]]]:
    """The columns of a CSV file, and its rows with their lines; cells are stripped of white space.

    Args:
        path: the file.
        option: the task's option that names it.
        columns: columns that the file must have, each once, and the option that names each, or "".
        delimiter: the character between cells.
        encoding: the encoding of the file.
        uneven: rows may be shorter or longer than the header; absent cells are empty, further ones are ignored.

    Raises:
        InputError: no such file, not a CSV file, or a column is missing.
    """
    rows = csv_rows(path, read_text(path, option, encoding), delimiter, uneven=uneven)
    line, header = next(rows, (1, []))
    names = [cell.strip() for cell in header]
    for name, column_option in columns.items():
        if names.count(name) != 1:
            problem = f"has {'more than one' if name in names else 'no'} column '{name}'"
            hint = f"set {column_option} to the name of the column" if column_option else ""
            raise InputError(f"{path}:{line}", f"{problem} (it has {', '.join(names) or 'nothing'})", hint=hint)
    empty_row = dict.fromkeys(names, "")
    return names, [
        (line, empty_row | {name: cell.strip() for name, cell in zip(names, row, strict=False)}) for line, row in rows
    ]


def text_lines(text: str) -> Iterator[str]:
    """Lines with their ends. Only line feeds end a line: `str.splitlines` also cuts at characters within texts."""
    if "\n" not in text:
        text = text.replace("\r", "\n")  # as spreadsheets on old Macs write
    return (line.group() for line in re.finditer(r"[^\n]+\n?|\n", text))
