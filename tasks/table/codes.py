"""Numbers that may stand for a missing value: -999, 9999, or 0 in a column of heights."""

from __future__ import annotations

import numpy as np

from contml._support.text import value_text

from .label import Array

#: A number that only one row has is named if it is so many times the range of the others away, or is a code of nines.
_FAR = 1000.0


def missing_codes(values: Array) -> dict[float, int]:
    """Numbers that are far from all others, each with its number of rows.

    A number is far if it is farther from the nearest other one than the range of all others. It must be in two or more
    rows, or be written with nines alone (-99, 999), or be 1,000 ranges away: the largest of drawn numbers with heavy
    tails may be far, but is drawn once. -99, -999 and so on in two or more rows are also named where all others are
    at least 0.

    Args:
        values: `[N]`, finite numbers.
    """
    numbers, counts = np.unique(values, return_counts=True)
    found: dict[float, int] = {}
    while len(numbers) > 3:
        gaps = {0: numbers[1] - numbers[0], -1: numbers[-1] - numbers[-2]}
        spans = {0: numbers[-1] - numbers[1], -1: numbers[-2] - numbers[0]}  # of all others
        for end in sorted(gaps, key=lambda end: -gaps[end] / spans[end]):
            number, count = float(numbers[end]), int(counts[end])
            is_code = abs(number) >= 99 and number.is_integer() and {*str(abs(int(number)))} == {"9"}
            is_far = gaps[end] > spans[end] and (count > 1 or is_code or gaps[end] > _FAR * spans[end])
            if is_far or (is_code and count > 1 and number < 0 <= numbers[1]):
                break
        else:
            break
        found[number] = count
        numbers, counts = np.delete(numbers, end), np.delete(counts, end)
    return found


def words(name: str, values: Array) -> str:
    """The numbers of a column that may stand for a missing value, after a semicolon; "" for none.

    Args:
        name: the column.
        values: `[N]`, its finite numbers.
    """
    found = missing_codes(values)
    if not found:
        return ""
    rows = " and ".join(f"{value_text(code)} in {n:,} row{'s' * (n > 1)}" for code, n in found.items())
    empty = "empty the cells" if len(found) > 1 or sum(found.values()) > 1 else "empty the cell"
    return f"; {name}: {rows} is far from all other numbers: if it means a missing value, {empty}"
