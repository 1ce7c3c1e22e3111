"""What a kind of label is: its cells are read and checked, and make a label space; classes, levels, tags."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from contml import InputError
from contml.labels import ClassLabels, LabelSpace, OrdinalLabels, TagLabels

from .cells import Decimal, decimal_comma, is_nothing, number, separator, texts
from .paths import CellFiles
from .reading import Table

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
Scale = Literal["std", "range", "none"]


@dataclass(frozen=True)
class Options:
    """How labels are read: the options that all labels of a table share."""

    files: CellFiles
    scale: Scale = "std"
    decimal: Decimal = "auto"
    separator: str | None = None
    levels: dict[str, list[str]] | None = None
    classes: int | None = None
    ignore: int | None = None
    side: int | None = 112
    vectors: str | None = None
    normalize: bool = False
    dim: int = 100
    seed: int = 0


class Label:
    """One label of a table: its cells read and checked. `present` `[N]` marks the rows that have one.

    Args:
        columns: the columns that it is read from.
        weight: how much it counts beside the other labels.
        table: the table.
        options: how labels are read.
    """

    kind: ClassVar[str] = ""
    #: How many columns it takes: from, to; None: any number.
    takes: ClassVar[tuple[int, int | None]] = (1, 1)
    #: What a row needs in order to be `present`, and to be `usable`; and what is wrong with a row that is not usable.
    content: ClassVar[str] = "a value"
    needs: ClassVar[str] = ""
    unusable: ClassVar[str] = ""

    def __init__(self, columns: Sequence[str], weight: float, table: Table, options: Options) -> None:
        self.columns, self.weight, self.table, self.options = tuple(columns), weight, table, options
        self.name = ",".join(columns)
        least, most = self.takes
        if not least <= len(columns) <= (most or len(columns)):
            allowed = f"{least}" if most == least else f"{least} to {most}" if most else f"{least} or more"
            raise InputError(
                f"labels: {self.name}={self.kind} names {len(columns)} columns; a {self.kind} takes {allowed}"
            )
        self.present: Array = np.ones(len(table), dtype=bool)
        self._read([table.column(column, f"the label {self.name}") for column in columns])
        del self.table  # its other columns need not stay in memory

    def _read(self, cells: list[list[str]]) -> None:
        """Keep the values of the cells, and note in `present` where there are none."""
        raise NotImplementedError

    def problem(self, row: int) -> str:  # noqa: ARG002
        """What is wrong with a row that is not present."""
        return f"no {self.name}"

    def usable(self, train: Array, test: Array) -> Array:  # noqa: ARG002
        """Which of all rows `[N]` can be used, once it is known which are for training: bool."""
        return self.present

    def fit(self, train: Array) -> None:
        """Take what it needs from the training rows: a scale, the range of its values."""

    def space(self, rows: Array) -> LabelSpace:
        """The label space of these rows."""
        raise NotImplementedError

    def lines(self, row: int) -> list[str]:
        """The label of a row, to be written under its picture."""
        raise NotImplementedError

    def describe(self) -> str:
        """The values in words: their range, or examples."""
        raise NotImplementedError


class ClassLabel(Label):
    """Any text or number: the label distance is 0 where it is the same, else 1."""

    kind = "class"

    def _read(self, cells: list[list[str]]) -> None:
        self.values = [cell.strip() for cell in cells[0]]
        self.present = np.array([bool(value) for value in self.values])

    def fit(self, train: Array) -> None:
        """The range and the unit of the training rows."""
        self.counts = Counter(self.values[row] for row in train)

    def space(self, rows: Array) -> LabelSpace:
        """The label space of these rows."""
        return ClassLabels([self.values[row] for row in rows])

    def lines(self, row: int) -> list[str]:
        """The label of a row, to be written under its picture."""
        return [f"{self.name}: {self.values[row]}"]

    def describe(self) -> str:
        """The values in words: their range, or examples."""
        least, most = min(self.counts.values()), max(self.counts.values())
        each = f"{least}" if least == most else f"{least} to {most}"
        return f"{len(self.counts)} classes of {each} training rows: {_some(self.counts)}"


class OrdinalLabel(Label):
    """Levels in order, such as a rating: the label distance is the difference of ranks as a share of the scale."""

    kind = "ordinal"

    def _read(self, cells: list[list[str]]) -> None:
        self.values = [cell.strip() for cell in cells[0]]
        self.present = np.array([not is_nothing(value) for value in self.values])
        used = dict.fromkeys(value for value in self.values if not is_nothing(value))
        given = (self.options.levels or {}).get(self.name)
        if given is None:
            comma = decimal_comma(list(used), self.options.decimal, self.table.delimiter)
            order = {value: number(value, comma) for value in used}
            if any(found is None for found in order.values()):
                raise InputError(
                    f"{self.table.path}: {self.name} has levels in words ({_some(used)}); give their order, from the "
                    f"lowest: levels={{{self.name}: [{', '.join(sorted(used)[:5])}]}}"
                )
            given = sorted(used, key=lambda value: order[value] or 0.0)
        self.levels = given
        for row, value in enumerate(self.values):
            if self.present[row] and value not in given:
                raise InputError(
                    f"{self.table.where(row)}: {self.name} is '{value}', which is no level; levels has "
                    f"{', '.join(given)}"
                )
        if len(given) < 2:
            raise InputError(f"{self.table.path}: {self.name} has {len(given)} level; a scale has at least 2")

    def space(self, rows: Array) -> LabelSpace:
        """The label space of these rows."""
        return OrdinalLabels([self.values[row] for row in rows], self.levels)

    def lines(self, row: int) -> list[str]:
        """The label of a row, to be written under its picture."""
        return [f"{self.name}: {self.values[row]}"]

    def describe(self) -> str:
        """The values in words: their range, or examples."""
        shown = self.levels if len(self.levels) < 8 else [*self.levels[:3], "…", self.levels[-1]]
        return f"{len(self.levels)} levels: {' < '.join(shown)}"


class TagsLabel(Label):
    """A list of tags, a;b;c or a JSON list, [] for none: the label distance is 1 - shared tags / all tags of both."""

    kind = "tags"

    def _read(self, cells: list[list[str]]) -> None:
        mark = self.options.separator or separator([cell for cell in cells[0] if texts(cell) is None])
        self.values: list[list[str]] = []
        for cell in cells[0]:
            listed = texts(cell)
            parts = listed if listed is not None else cell.split(mark) if mark else [cell]
            self.values.append([part.strip() for part in parts if part.strip()])
        self.present = np.array([bool(v) or c.strip() == "[]" for v, c in zip(self.values, cells[0], strict=True)])

    def fit(self, train: Array) -> None:
        """The range and the unit of the training rows."""
        self.counts = Counter(tag for row in train for tag in self.values[row])
        self.most = max(len(self.values[row]) for row in train)

    def space(self, rows: Array) -> LabelSpace:
        """The label space of these rows."""
        return TagLabels([self.values[row] for row in rows])

    def lines(self, row: int) -> list[str]:
        """The label of a row, to be written under its picture."""
        return [f"{self.name}: {', '.join(self.values[row]) or 'none'}"]

    def describe(self) -> str:
        """The values in words: their range, or examples."""
        return f"{len(self.counts)} tags, up to {self.most} a row: {_some(self.counts)}"


def _some(texts_: Counter[str] | dict[str, None]) -> str:
    shown = list(texts_)[:3]
    return ", ".join(text if len(text) <= 24 else text[:23] + "…" for text in shown) + (
        ", …" if len(texts_) > len(shown) else ""
    )
