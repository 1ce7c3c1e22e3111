"""Which rows of a table can be used: what is missing is refused, or left out and counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from contml import InputError

from .described import CaptionsLabel
from .labels import Label
from .paths import Files
from .reading import Table

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"


class Rows:
    """The rows that can be used so far, `usable` `[N]`, and how many were left out for what, `dropped`.

    Args:
        table: the table.
        missing: "refuse" rows that lack something, or "drop" them.
    """

    def __init__(self, table: Table, missing: Literal["refuse", "drop"]) -> None:
        self.table, self.missing = table, missing
        self.usable = np.ones(len(table), dtype=bool)
        self.dropped: dict[str, int] = {}

    def without(self, lacking: Array, why: str, hint: str = "complete the table") -> None:
        """Go on without the rows that `lacking` `[N]` marks, or refuse the first of them.

        Raises:
            InputError: there are such rows, and they are to be refused.
        """
        rows = np.flatnonzero(lacking & self.usable)
        if not len(rows):
            return
        if self.missing == "refuse":
            raise InputError(
                f"{self.table.where(rows[0])}: {why} ({len(rows):,} such of {len(self.usable):,} rows); {hint}, or set "
                "task.missing=drop to leave such rows out"
            )
        self.dropped[why] = self.dropped.get(why, 0) + len(rows)
        self.usable[rows] = False

    def without_images(self, column: str, paths: Sequence[str], files: Files) -> None:
        """Go on with the rows whose image file is there."""
        away = np.array([not (path and files.has(path)) for path in paths])
        if not away.any():
            return
        row = int(away.argmax())
        if "://" in paths[row]:
            raise InputError(
                f"{self.table.where(row)}: the image is an address; nothing is downloaded here: save the images "
                "to files and give their paths"
            )
        if self.missing == "drop":
            self.without(away, "no image file")
        what = f"there is no image {paths[row]}" if paths[row] else f"the cell of '{column}' is empty"
        self.without(away, what, f"paths are relative to {files.root}: set task.root")

    def merge_images(self, paths: Sequence[str], read: Sequence[Label], alike: Sequence[str]) -> None:
        """Where captions are labels, make one row of the rows of an image, as many tables have a row a caption.

        `alike` are columns that all rows of an image must have alike.
        """
        captions = [label for label in read if isinstance(label, CaptionsLabel)]
        if not captions:
            return
        first: dict[str, int] = {}
        for row in np.flatnonzero(self.usable).tolist():
            at = first.setdefault(paths[row], row)
            if at == row:
                continue
            for name in alike:
                cells = self.table.columns[name]
                if cells[at] != cells[row]:
                    raise InputError(
                        f"{self.table.where(row)}: {name} is '{cells[row]}', but the same image has '{cells[at]}' in "
                        f"{self.table.where(at)}; rows of one image are joined for their captions"
                    )
            for label in captions:
                label.merge(at, row)
            self.usable[row] = False

    def told(self) -> str:
        """What was left out, in words."""
        return ", ".join(f"{count:,} with {why}" for why, count in self.dropped.items())
