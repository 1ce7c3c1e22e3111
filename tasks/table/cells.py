"""What a cell holds: a number, a date, a list of numbers or texts, or nothing."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from contml import InputError

#: How a column of numbers says that it has none.
_NOTHING = frozenset(("", "na", "n/a", "nan", "null", "none", "-", "?"))
_POINT = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_COMMA = re.compile(r"[-+]?(?:[0-9]+,?[0-9]*|,[0-9]+)(?:[eE][-+]?[0-9]+)?")
_BETWEEN = re.compile(r"[\s;,|]+")
_BETWEEN_COMMAS = re.compile(r"[\s;|]+")
#: Between tags, the first that a column uses.
SEPARATORS = (";", "|", ",")

Decimal = Literal["auto", "point", "comma"]


def is_nothing(cell: str) -> bool:
    """Whether a cell of numbers says that there is none: empty, NA, NaN, null, None, -, ?."""
    return cell.strip().lower() in _NOTHING


def number(cell: str, comma: bool) -> float | None:
    """The number in a cell, None where it is none; `comma`: the decimals follow a comma."""
    cell = cell.strip()
    if not (_COMMA if comma else _POINT).fullmatch(cell):
        return None
    value = float(cell.replace(",", ".") if comma else cell)
    return value if abs(value) != float("inf") else None


def date_in_days(cell: str) -> float | None:
    """The days from 1970-01-01 to an ISO date, with the part of the day where a time follows; None: it is no date."""
    try:
        found = datetime.fromisoformat(cell.strip())
    except ValueError:
        return None
    found = found if found.tzinfo else found.replace(tzinfo=UTC)
    return (found - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() / 86400


def decimal_comma(cells: Sequence[str], decimal: Decimal, delimiter: str | None) -> bool:
    """Whether a column's numbers have a decimal comma: as given, or found where commas are not delimiters.

    1,234 alone could also be a thousand: some number must have one, two, or more than three decimals.
    """
    if decimal != "auto":
        return decimal == "comma"
    if delimiter in (None, ","):
        return False
    commas = [cell for cell in cells if "," in cell and _COMMA.fullmatch(cell.strip())]
    clear = any(len(cell.strip().partition(",")[2]) != 3 for cell in commas)
    return clear and not any("." in cell and _POINT.fullmatch(cell.strip()) for cell in cells)


def numbers(cell: str, comma: bool) -> list[float] | None:
    """A list of numbers: a JSON array, as numpy prints one, or separated by spaces, `;`, `|` or `,`; else None."""
    inside = cell.strip()
    if inside[:1] in ("[", "(") and inside[-1:] in ("]", ")"):
        inside = inside[1:-1].strip()
    parts = (_BETWEEN_COMMAS if comma else _BETWEEN).split(inside)
    found = [number(part, comma) for part in parts if part]
    return None if not found or None in found else [value for value in found if value is not None]


def texts(cell: str) -> list[str] | None:
    """A list of texts written as JSON or as Python prints one; None where the cell is no list."""
    cell = cell.strip()
    if not (cell.startswith("[") and cell.endswith("]")):
        return None
    found: Any = None
    for read in (json.loads, ast.literal_eval):
        try:
            found = read(cell)
            break
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
    return [str(text) for text in found] if isinstance(found, list) else None


def separator(cells: Sequence[str]) -> str | None:
    """What stands between the tags of a column: the first of `;`, `|`, `,` that it uses; None: one tag a cell."""
    return next((mark for mark in SEPARATORS if any(mark in cell for cell in cells)), None)


def no_number(where: str, column: str, cell: str, comma: bool) -> InputError:
    """The error of a cell that should be a number."""
    shown = f"'{cell.strip()[:60]}'"
    if re.fullmatch(r"[-+]?[0-9]{1,3}(?:[,.' ][0-9]{3})+(?:[,.][0-9]+)?", cell.strip()):
        other = "" if comma else "; for a decimal comma set decimal=comma"
        return InputError(f"{where}: {column} is {shown}, no number: leave out thousands separators{other}")
    if not comma and _COMMA.fullmatch(cell.strip()):
        return InputError(f"{where}: {column} is {shown}, no number: for a decimal comma set decimal=comma")
    sign = "decimal comma" if comma else "decimal point"
    return InputError(
        f"{where}: {column} is {shown}, no number; it must be digits with a {sign}, without a unit, "
        "or an empty cell where there is none"
    )
