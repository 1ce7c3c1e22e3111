"""Which rows are for training, for testing, and queries: by a column, or by a draw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from contml import InputError
from contml.data import draw_queries

from .._readers.splits import part_of
from .reading import Table

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

#: Of more test rows than the first number, the second number are queries where nothing else is given.
_MANY, _QUERIES = 5_000, 1_000


class Parts(NamedTuple):
    """Rows of a table, and how they were found, in words."""

    train: Array
    test: Array
    query: Array  # the test rows that are queries; none: all are
    how: str


def split_by_column(table: Table, column: str, rows: Array) -> Parts:
    """The parts that a column names; rows with an empty cell and validation rows are left out.

    Raises:
        InputError: a cell that is no part.
    """
    cells = table.column(column, "split")
    named = np.array([part_of(cells[row]) for row in rows])
    for row, part in zip(rows, named, strict=True):
        if not part and cells[row].strip():
            raise InputError(
                f"{table.where(row)}: {column} is '{cells[row].strip()}'; it must be train, test, query (a test "
                "row that is a query), val or an empty cell (left out)"
            )
    rest = int((named == "val").sum() + (named == "").sum())
    how = f"by the column '{column}'" + (f", {rest:,} rows in neither part" if rest else "")
    return Parts(rows[named == "train"], rows[(named == "test") | (named == "query")], rows[named == "query"], how)


def split_by_draw(units: Sequence[str], rows: Array, share: float, seed: int, what: str) -> Parts:
    """A draw of whole units, such as persons or images, until a share of the rows is for testing.

    Raises:
        InputError: there are fewer than two units.
    """
    number: dict[str, int] = {}
    unit = np.array([number.setdefault(units[row], len(number)) for row in rows])
    if len(number) < 2:
        raise InputError(f"all {len(rows)} rows have one {what}; a split needs at least two")
    sizes = np.bincount(unit)
    order = np.random.default_rng(seed).permutation(len(sizes))
    upto = np.cumsum(sizes[order])
    taken = 1 + int(np.abs(upto[:-1] - share * len(rows)).argmin())
    testing = np.isin(unit, order[:taken])
    how = f"drawn, {share:.0%} for testing, no {what} in both (seed {seed})"
    return Parts(rows[~testing], rows[testing], rows[:0], how)


def refuse_shared(table: Table, units: Sequence[str], parts: Parts, what: str) -> None:
    """Refuse a split that has a unit in both parts."""
    first = {units[row]: row for row in parts.train}
    for row in parts.test:
        if units[row] in first:
            raise InputError(
                f"{table.where(row)}: the {what} '{units[row]}' is in test here, and in train in "
                f"{table.where(first[units[row]])}; a test shows nothing where it was trained on"
            )


def choose_queries(parts: Parts, queries: int | None, seed: int) -> Array:
    """Which of the test rows are queries, by their positions; none: every row is a query."""
    count = len(parts.test)
    if len(parts.query):
        if queries is not None:
            raise InputError(f"queries={queries}: the split names {len(parts.query)} queries; leave it out")
        if len(parts.query) > count - 2:
            raise InputError(
                f"{len(parts.query)} of {count} test rows are queries; at least 2 others must be left to find: "
                "mark fewer"
            )
        return np.flatnonzero(np.isin(parts.test, parts.query))
    if queries is None:
        queries = _QUERIES if count > _MANY else 0
    return np.sort(np.asarray(draw_queries(queries, count, seed), np.int64))
