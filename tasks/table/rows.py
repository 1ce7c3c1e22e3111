"""Which rows of a table can be used: incomplete rows are refused, or left out and counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from contml import InputError

from .described import CaptionsLabel
from .labels import Label
from .paths import CellFiles
from .reading import Table

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"


class Rows:
    """The rows that can be used so far, `usable` `[N]`, and those that were left out, by reason.

    Args:
        table: the table.
        missing: "refuse" incomplete rows, or "drop" them.
    """

    def __init__(self, table: Table, missing: Literal["refuse", "drop"]) -> None:
        self.table, self.missing = table, missing
        self.usable = np.ones(len(table), dtype=bool)
        self._dropped: dict[str, Array] = {}  # row numbers by reason

    def drop(self, incomplete: Array, reason: str, problem: str, hint: str = "complete the table") -> None:
        """Leave out the rows that `incomplete` `[N]` marks, or refuse the first of them.

        Args:
            incomplete: bool, one per row of the table.
            reason: why rows are left out, as in "2 without an image file".
            problem: what is wrong with the first of these rows, for an error.
            hint: what to do about it.

        Raises:
            InputError: there are such rows, and they are refused.
        """
        rows = np.flatnonzero(incomplete & self.usable)
        if not len(rows):
            return
        if self.missing == "refuse":
            raise InputError(
                f"{self.table.where(rows[0])}: {problem} ({len(rows):,} such of {len(self.usable):,} rows); {hint}, or "
                "set missing=drop to leave such rows out"
            )
        self._dropped[reason] = np.concatenate((self._dropped.get(reason, rows[:0]), rows))
        self.usable[rows] = False

    def drop_without_image(self, column: str, paths: Sequence[str], files: CellFiles) -> None:
        """Leave out the rows without an image file."""
        absent = np.array([not (path and files.has(path)) for path in paths])
        if not absent.any():
            return
        row = int(absent.argmax())
        if "://" in paths[row]:
            raise InputError(
                f"{self.table.where(row)}: the image is an address; nothing is downloaded here: save the images "
                "to files and give their paths"
            )
        problem = f"there is no image {paths[row]}" if paths[row] else f"the cell of '{column}' is empty"
        hint = f"paths are relative to {files.root}: set root"
        self.drop(absent, "without an image file", problem, hint)

    def merge_captions(self, paths: Sequence[str], labels: Sequence[Label], shared: Sequence[str]) -> None:
        """Make one row of all rows of an image, where captions are labels: many tables have a row for each caption.

        `shared` are the columns that must be the same in all rows of an image.
        """
        captions = [label for label in labels if isinstance(label, CaptionsLabel)]
        if not captions:
            return
        first_row: dict[str, int] = {}
        for row in np.flatnonzero(self.usable).tolist():
            first = first_row.setdefault(paths[row], row)
            if first == row:
                continue
            for name in shared:
                cells = self.table.columns[name]
                if cells[first] != cells[row]:
                    raise InputError(
                        f"{self.table.where(row)}: {name} is '{cells[row]}', but the same image has '{cells[first]}' "
                        f"in {self.table.where(first)}; rows of one image are joined for their captions"
                    )
            for label in captions:
                label.merge(first, row)
            self.usable[row] = False

    def excluded(self, rows: Array) -> dict[str, int]:
        """How many of these rows were left out, by reason."""
        counts = {reason: int(np.isin(dropped, rows).sum()) for reason, dropped in self._dropped.items()}
        return {reason: count for reason, count in counts.items() if count}

    def describe_excluded(self) -> str:
        """What was left out, in words; "" where nothing was."""
        return ", ".join(f"{len(dropped):,} {reason}" for reason, dropped in self._dropped.items())
