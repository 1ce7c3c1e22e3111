"""The cells of a table: a number, a date, a list of numbers or of texts, the path of a file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import pyarrow
from PIL import Image
from pyarrow import compute

from contml._support.validation import PositiveInt as PositiveInt  # of the fields that TableReading inherits
from contml.data.decode import from_file, names_image
from contml.data.tables import Array, Column, TableOptions
from contml.data.text_files import spellings, written_path
from contml.labels.scales import parse_date

from .._readers.folders import DiskFiles

# In all patterns below, a digit matches in one way only. Otherwise a long cell would take quadratic time.
_POINT = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_COMMA = re.compile(r"[-+]?(?:[0-9]+(?:,[0-9]*)?|,[0-9]+)(?:[eE][-+]?[0-9]+)?")
#: 1.234,50: with thousands separators and a decimal comma. 1.234 alone could have a decimal point.
_GROUPED = re.compile(r"[-+]?[1-9][0-9]{0,2}(?:\.[0-9]{3})+,[0-9]+")
_POINTS = re.compile(r"[-+]?[1-9][0-9]{0,2}(?:\.[0-9]{3})+")
_BETWEEN = re.compile(r"[\s;,|]+")
_BETWEEN_COMMAS = re.compile(r"[\s;|]+")
#: A number with a currency before it, or a unit after it, or thousands separators.
_MEASURED = re.compile(r"([$€£¥]?) ?[-+]?[0-9]+(?:[,.' ][0-9]{3})*(?:[,.][0-9]+)?( ?[^\d\s,;|]{0,8})")
_THOUSANDS = re.compile(r"[-+]?[0-9]{1,3}(?:[,.' ][0-9]{3})+(?:[,.][0-9]+)?")
#: Separators of tags. A column uses the first one that its cells contain.
SEPARATORS = (";", "|", ",")
_MAP_MODES = ("1", "L", "P", "I", "I;16")
#: A photograph has more grey values than this. A label map seldom has more.
_FEW_VALUES = 64

Decimal = Literal["auto", "point", "comma"]


@dataclass(frozen=True)
class TableReading(TableOptions):
    """Options for reading the cells of a table.

    Args:
        decimal: "point" or "comma" before decimals. "auto": a comma if the column has commas that do not separate
            cells.
        box: each row is a part of its image: the columns "x,y,w,h", or one column of lists [x, y, w, h], in pixels.
            An annotation file of COCO then has a row for each object, with the column "bbox".
    """

    decimal: Decimal = "auto"
    box: str | None = None

    set_by: ClassVar[str] = "set table."


def number(cell: str, comma: bool) -> float | None:
    """Return the number in a cell, or None if there is no number. `comma` is True for a decimal comma."""
    cell = cell.strip()
    if comma and _GROUPED.fullmatch(cell):
        cell = cell.replace(".", "")
    if not (_COMMA if comma else _POINT).fullmatch(cell):
        return None
    value = float(cell.replace(",", ".") if comma else cell)
    return value if abs(value) != float("inf") else None


def number_column(column: Column, comma: bool) -> tuple[Array, Array]:
    """Return the numbers of a column `[N]`, NaN if a cell is missing, and the rows of cells that are not numbers.

    Args:
        column: texts or numbers.
        comma: True if texts have decimal commas.
    """
    cells = column.cells
    if column.kind == "number":
        values = np.asarray(cells.cast(pyarrow.float64(), safe=False).fill_null(float("nan")))  # rounds beyond 2**53
        return values, np.flatnonzero(np.isinf(values))
    if column.kind != "text":
        return np.full(len(column), np.nan), np.flatnonzero(column.filled)
    texts = column.texts()
    if comma and not any("," in text for text in texts):  # 1.140 has a thousands separator
        texts = [text.replace(".", "") if _POINTS.fullmatch(text) else text for text in texts]
    values = np.array([np.nan if (value := number(text, comma)) is None else value for text in texts], np.float64)
    return values, np.flatnonzero(column.filled & np.isnan(values))


def number_hint(cell: str, comma: bool) -> str:
    """Return a hint for a cell that is not a number."""
    if '"' in cell:
        return "remove the quotation mark, or close it"
    if parse_date(cell) is not None:
        return "a date has the kind date"
    if not any(character.isdigit() for character in cell):
        return "leave the cell empty where there is no number, or choose another kind"
    thousands = "omit thousands separators" if _THOUSANDS.fullmatch(cell.strip()) else ""
    decimals = not comma and (thousands or _COMMA.fullmatch(cell.strip()))
    hints = [thousands, "set table.decimal=comma for decimal commas" if decimals else ""]
    return ", or ".join(hint for hint in hints if hint) or "omit units, and leave the cell empty where there is none"


def is_comma_pair(cell: str) -> bool:
    """Return True if a cell is a number with a decimal comma, or two whole numbers with a comma between: 3,5."""
    return "," in cell and bool(_COMMA.fullmatch(cell.strip()))


def units(cells: Sequence[str]) -> str:
    """Return the first cell with a unit or currency, if all cells are numbers with the same one.

    Without units, return the first cell with thousands separators. Return "" if there is no such cell.
    """
    matches = [_MEASURED.fullmatch(cell.strip()) for cell in cells]
    marks = {match.group(1, 2) for match in matches if match}
    if not all(matches) or len(marks) != 1:
        return ""
    return next((cell for cell in cells if marks != {("", "")} or _THOUSANDS.fullmatch(cell)), "")


def has_decimal_comma(column: Column, decimal: Decimal, delimiter: str | None) -> bool:
    """Return True if the numbers of a whole column have a decimal comma.

    If `decimal` is "auto", the cells show it.
    """
    has_commas = column.kind == "text" and compute.any(compute.match_substring(column.cells, ",")).as_py()
    if decimal == "auto" and not has_commas:
        return False
    return decimal_comma(column.texts(), decimal, delimiter, one_number=True)


def decimal_comma(cells: Sequence[str], decimal: Decimal, delimiter: str | None, one_number: bool = False) -> bool:
    """Return True if a column's numbers have a decimal comma.

    If `decimal` is "auto", the cells show it. The answer is then False if commas are delimiters. 1,234 could also have
    a thousands separator, so some number must not have exactly three digits after its comma. 1.234,50 could also be two
    numbers, such as coordinates. Such a cell counts only with `one_number`, where each cell holds one number.
    """
    if decimal != "auto":
        return decimal == "comma"
    if delimiter in (None, ","):
        return False
    comma_cells = [cell for cell in cells if "," in cell and _COMMA.fullmatch(cell.strip())]
    grouped = one_number and any(_GROUPED.fullmatch(cell.strip()) for cell in cells)
    unambiguous = grouped or any(len(cell.strip().partition(",")[2]) != 3 for cell in comma_cells)
    return unambiguous and not any("." in cell and _POINT.fullmatch(cell.strip()) for cell in cells)


def thousands(column: Column, decimal: Decimal) -> str:
    """Return a note that 1.140 may be 1140. Return "" if the numbers of a column are clear.

    The numbers are unclear if some are whole and all decimals have three digits.
    """
    if column.kind != "text" or decimal != "auto":
        return ""
    cells = column.cells.drop_null()
    patterns = r"^[-+]?[0-9]+$", f"^(?:{_POINTS.pattern})$"
    is_plain, is_dotted = (np.asarray(compute.match_substring_regex(cells, pattern)) for pattern in patterns)
    if not (is_plain.any() and is_dotted.any() and (is_plain | is_dotted).all()):
        return ""
    cell = cells[int(is_dotted.argmax())].as_py()
    plain = cell.replace(".", "")
    return f"'{cell}' is read as {float(cell):g}: set task.table.decimal=comma if it is {plain}, or point if not"


def numbers(cell: str, comma: bool) -> list[float] | None:
    """Read a list of numbers: a JSON array, a printed numpy array, or numbers between spaces, `;`, `|` or `,`.

    Return None if the cell is not a list of numbers.
    """
    content = cell.strip()
    if content[:1] in ("[", "(") and content[-1:] in ("]", ")"):
        content = content[1:-1].strip()
    parts = (_BETWEEN_COMMAS if comma else _BETWEEN).split(content)
    values = []
    for part in filter(None, parts):
        if (value := number(part, comma)) is None:
            return None
        values.append(value)
    return values or None


def separator(cells: Iterable[str]) -> str | None:
    """Return the separator of the tags of a column: the first of `;`, `|`, `,` in its cells.

    Return None if each cell has one tag.
    """
    used = {mark for cell in cells for mark in SEPARATORS if mark in cell}
    return next((mark for mark in SEPARATORS if mark in used), None)


class CellFiles(DiskFiles):
    """The files that cells name.

    Args:
        root: the folder that relative paths start from.
    """

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = str(root)
        self._start = "" if self.root == "." else self.root
        self._inside = f"{root.absolute()}{os.sep}"

    def place(self, cell: str) -> str:
        """Return the path of a cell's file. Its name may have another Unicode form (ä as one character or two)."""
        path = os.path.join(self._start, written_path(cell))  # noqa: PTH118
        return path if path.isascii() else next(filter(self.has, spellings(path)), path)

    def key(self, cell: str) -> str:
        """Return the path of a cell's file, relative to the root folder if the file is in it.

        The path stays the same if the root folder is moved.
        """
        return os.path.normpath(written_path(cell)).removeprefix(self._inside)


def looks_like_paths(cells: Sequence[str]) -> bool:
    """Return True if at least nine in ten cells look like paths of images."""
    return sum(map(names_image, cells)) >= 0.9 * len(cells) > 0


def looks_like_maps(paths: Sequence[str]) -> bool:
    """Return True if files may hold label maps: one channel, lossless, few values."""
    for path in paths:
        try:
            if not from_file(Path(path), _looks_like_map):
                return False
        except OSError:
            return False
    return bool(paths)


def _looks_like_map(picture: Image.Image) -> bool:
    if picture.mode not in _MAP_MODES or picture.format in ("JPEG", "WEBP"):
        return False
    return len(np.unique(np.asarray(picture))) <= _FEW_VALUES
