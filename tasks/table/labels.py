"""The kinds of labels that a column can hold: what its cells must be, and the label space that they make."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from contml.contracts import InputError, LabelSpace
from contml.labels import ClassLabels, OrdinalLabels, PlaceLabels, TagLabels, VectorLabels

from .cells import Decimal, decimal_comma, is_nothing, no_number, number, numbers, separator, texts
from .paths import Files
from .reading import Table

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
Scale = Literal["std", "range", "none"]

LATITUDE = re.compile(r"(?:.*[\W_])?lat(?:itude)?", re.IGNORECASE)
LONGITUDE = re.compile(r"(?:.*[\W_])?(?:lon|lng|long|longitude)", re.IGNORECASE)
_SCALES = {"std": "a standard deviation", "range": "from the 5th to the 95th percentile"}


@dataclass(frozen=True)
class Options:
    """What a config lets all labels of a table be told."""

    files: Files
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
        options: what the config says.
    """

    kind: ClassVar[str] = ""
    #: How many columns it takes: from, to; None: any number.
    takes: ClassVar[tuple[int, int | None]] = (1, 1)
    #: What a row without it lacks.
    lacking: ClassVar[str] = "is empty"

    def __init__(self, columns: Sequence[str], weight: float, table: Table, options: Options) -> None:
        self.columns, self.weight, self.table, self.options = tuple(columns), weight, table, options
        self.name = ",".join(columns)
        least, most = self.takes
        if not least <= len(columns) <= (most or len(columns)):
            allowed = f"{least}" if most == least else f"{least} to {most}" if most else f"{least} or more"
            raise InputError(
                f"task.labels: {self.name}={self.kind} names {len(columns)} columns; a {self.kind} takes {allowed}"
            )
        self.present: Array = np.ones(len(table), dtype=bool)
        self._read([table.column(column, f"the label {self.name}") for column in columns])
        del self.table  # its other columns need not stay in memory

    def _read(self, cells: list[list[str]]) -> None:
        """Keep the values of the cells, and note in `present` where there are none."""
        raise NotImplementedError

    def usable(self, train: Array, test: Array) -> Array:  # noqa: ARG002
        """Which of all rows `[N]` can be used, once it is known which are for training: bool."""
        return self.present

    def fit(self, train: Array) -> None:
        """Learn what it needs of the training rows: a scale, the range of its values."""

    def space(self, rows: Array) -> LabelSpace:
        """The label space of these rows."""
        raise NotImplementedError

    def said(self, row: int) -> list[str]:
        """The label of a row in lines of text, to stand under its picture."""
        raise NotImplementedError

    def extent(self) -> str:
        """The values in words: their range, or examples."""
        raise NotImplementedError


class ClassLabel(Label):
    """Any text or number: two rows are alike (0) where it is the same, else not (1)."""

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

    def said(self, row: int) -> list[str]:
        """What stands under a picture."""
        return [f"{self.name}: {self.values[row]}"]

    def extent(self) -> str:
        """The values in words."""
        least, most = min(self.counts.values()), max(self.counts.values())
        each = f"{least}" if least == most else f"{least} to {most}"
        return f"{len(self.counts)} classes of {each} training rows: {_some(self.counts)}"


class NumberLabel(Label):
    """A number a row, or a vector: the label distance is the difference, in units of the training rows' spread."""

    kind = "number"

    def _read(self, cells: list[list[str]]) -> None:
        self.values = np.stack([_column(self, *pair) for pair in zip(self.columns, cells, strict=True)], 1)  # [N,D]
        self.present = ~np.isnan(self.values).any(1)

    def fit(self, train: Array) -> None:
        """The range and the unit of the training rows."""
        self.low, self.high = self.values[train].min(0), self.values[train].max(0)
        self.middle, self.scales = self.values[train].mean(0), self._spread(self.values[train])
        self._refuse_flat(train)

    def _refuse_flat(self, train: Array) -> None:
        same = self.low == self.high
        # Of the numbers of a list some may be the same in all rows, of columns none.
        flat = np.flatnonzero(~(self.scales > 0) | (same if len(self.columns) == len(same) else same.all()))
        if len(flat):
            what = self.columns[min(int(flat[0]), len(self.columns) - 1)]
            more, hint = ("", "") if same[flat[0]] else ("nearly ", ", or set task.scale=std")
            raise InputError(
                f"task.labels: {what} is {_plain(self.low[flat[0]])} in {more}all of {len(train):,} training rows; "
                f"leave it out{hint}"
            )

    def _spread(self, values: Array) -> Array:
        return _spreads(values, self.options.scale)

    def space(self, rows: Array) -> LabelSpace:
        """The label space of these rows."""
        return VectorLabels(self.values[rows] / self.scales, squared=False, unit=self.unit)

    @property
    def unit(self) -> str:
        """What a label distance of 1 is."""
        if self.options.scale == "none":
            return f"difference of {self.name}"
        return f"difference of {self.name} by {self.scales[0]:.4g}, {_SCALES[self.options.scale]}"

    def said(self, row: int) -> list[str]:
        """What stands under a picture."""
        return [f"{self.name}: {_plain(self.values[row, 0])}"]

    def extent(self) -> str:
        """The values in words."""
        told = f"{_plain(self.low[0])} to {_plain(self.high[0])}, mean {self.middle[0]:.4g}"
        by = "" if self.options.scale == "none" else f", {_SCALES[self.options.scale]}"
        return f"{told}; a label distance of 1 is {self.scales[0]:.4g}{by}"


class VectorLabel(NumberLabel):
    """Several columns of numbers, each in units of its own spread; or one column of lists of numbers, in one unit."""

    kind = "vector"
    takes = (1, None)

    def _read(self, cells: list[list[str]]) -> None:
        if len(cells) > 1:
            super()._read(cells)
            return
        self.values = _lists(self, cells[0])
        self.present = np.asarray(~np.isnan(self.values).any(1))

    def _spread(self, values: Array) -> Array:
        each = _spreads(values, self.options.scale)
        # Numbers of one list have one unit: their spreads are averaged, so that no direction is stretched.
        return each if len(self.columns) > 1 else np.full_like(each, np.sqrt(np.square(each).mean()))

    @property
    def unit(self) -> str:
        """What a label distance of 1 is."""
        if self.options.scale == "none":
            return f"Euclidean distance of {self.name}"
        return f"Euclidean distance of {self.name}, in units of {_SCALES[self.options.scale]}"

    def said(self, row: int) -> list[str]:
        """What stands under a picture."""
        shown = " ".join(_plain(value) for value in self.values[row, :6])
        return [f"{self.name}: {shown}{' …' if self.values.shape[1] > 6 else ''}"]

    def extent(self) -> str:
        """The values in words."""
        return f"{self.values.shape[1]} numbers, {_plain(self.low.min())} to {_plain(self.high.max())}; {self.unit}"


class PlaceLabel(Label):
    """Latitude and longitude in degrees, two columns or one: the label distance is the way over the earth in km."""

    kind = "place"
    takes = (1, 2)

    def _read(self, cells: list[list[str]]) -> None:
        if len(cells) == 2:
            if LONGITUDE.fullmatch(self.columns[0]) and LATITUDE.fullmatch(self.columns[1]):
                first, second = self.columns
                raise InputError(f"task.labels: {first},{second}=place: latitude comes first; write {second},{first}")
            self.values = np.stack([_column(self, *pair) for pair in zip(self.columns, cells, strict=True)], 1)
        else:
            self.values = _lists(self, cells[0])
            if self.values.shape[1] != 2:
                raise InputError(
                    f"{self.table.path}: {self.name} holds lists of {self.values.shape[1]} numbers; a place is two: "
                    "latitude and longitude"
                )
        self.present = ~np.isnan(self.values).any(1)
        for place, (what, most) in enumerate((("latitude", 90), ("longitude", 180))):
            wrong = np.flatnonzero(np.abs(np.nan_to_num(self.values[:, place])) > most)
            if len(wrong):
                column = self.columns[min(place, len(self.columns) - 1)]
                raise InputError(
                    f"{self.table.where(wrong[0])}: {column} is {_plain(self.values[wrong[0], place])}, no {what}: "
                    f"it must be -{most} to {most} degrees, and latitude comes first"
                )

    def fit(self, train: Array) -> None:
        """The range and the unit of the training rows."""
        self.low, self.high = self.values[train].min(0), self.values[train].max(0)

    def space(self, rows: Array) -> LabelSpace:
        """The label space of these rows."""
        return PlaceLabels(self.values[rows])

    def said(self, row: int) -> list[str]:
        """What stands under a picture."""
        return ["{:.4f}, {:.4f}".format(*self.values[row])]

    def extent(self) -> str:
        """The values in words."""
        (south, west), (north, east) = self.low, self.high
        return f"latitude {south:.4g} to {north:.4g}, longitude {west:.4g} to {east:.4g}; distance in km"


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
                    f"lowest: task.levels={{{self.name}: [{', '.join(sorted(used)[:5])}]}}"
                )
            given = sorted(used, key=lambda value: order[value] or 0.0)
        self.levels = given
        for row, value in enumerate(self.values):
            if self.present[row] and value not in given:
                raise InputError(
                    f"{self.table.where(row)}: {self.name} is '{value}', which is no level; task.levels has "
                    f"{', '.join(given)}"
                )
        if len(given) < 2:
            raise InputError(f"{self.table.path}: {self.name} has {len(given)} level; a scale has at least 2")

    def space(self, rows: Array) -> LabelSpace:
        """The label space of these rows."""
        return OrdinalLabels([self.values[row] for row in rows], self.levels)

    def said(self, row: int) -> list[str]:
        """What stands under a picture."""
        return [f"{self.name}: {self.values[row]}"]

    def extent(self) -> str:
        """The values in words."""
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

    def said(self, row: int) -> list[str]:
        """What stands under a picture."""
        return [f"{self.name}: {', '.join(self.values[row]) or 'none'}"]

    def extent(self) -> str:
        """The values in words."""
        return f"{len(self.counts)} tags, up to {self.most} a row: {_some(self.counts)}"


def _column(label: Label, column: str, cells: Sequence[str]) -> Array:
    """Numbers `[N]` of a column, NaN where there is none."""
    comma = decimal_comma(cells, label.options.decimal, label.table.delimiter)
    values = np.full(len(cells), np.nan)
    for row, cell in enumerate(cells):
        found = number(cell, comma)
        if found is not None:
            values[row] = found
        elif not is_nothing(cell):
            raise no_number(label.table.where(row), column, cell, comma)
    return values


def _lists(label: Label, cells: Sequence[str]) -> Array:
    """Lists of numbers `[N, D]`, a row of NaN where there is none."""
    comma = label.options.decimal == "comma"
    found = [None if is_nothing(cell) else numbers(cell, comma) for cell in cells]
    length, first = 0, 0
    for row, (cell, one) in enumerate(zip(cells, found, strict=True)):
        if one is None and not is_nothing(cell):
            raise InputError(
                f"{label.table.where(row)}: {label.name} is '{cell.strip()[:60]}', no list of numbers; it must be "
                "a JSON array, or numbers separated by spaces"
            )
        if one is not None and length and len(one) != length:
            raise InputError(
                f"{label.table.where(row)}: {label.name} has {len(one)} numbers, but {length} in "
                f"{label.table.where(first).removeprefix(f'{label.table.path}').lstrip(': ')}; all need as many"
            )
        if one is not None and not length:
            length, first = len(one), row
    values = np.full((len(cells), max(length, 1)), np.nan)
    for row, one in enumerate(found):
        if one is not None:
            values[row] = one
    return values


def _spreads(values: Array, scale: Scale) -> Array:
    """The unit of each column `[D]` of values `[N, D]`."""
    if scale == "none":
        return np.ones(values.shape[1])
    if scale == "range":
        low, high = np.quantile(values, [0.05, 0.95], axis=0)
        return np.asarray(high - low)
    return np.asarray(values.std(0))


def _plain(value: float) -> str:
    return f"{value:,.0f}".replace(",", "") if float(value).is_integer() and abs(value) < 1e15 else f"{value:.4g}"


def _some(texts_: Counter[str] | dict[str, None]) -> str:
    shown = list(texts_)[:3]
    return ", ".join(text if len(text) <= 24 else text[:23] + "…" for text in shown) + (
        ", …" if len(texts_) > len(shown) else ""
    )
