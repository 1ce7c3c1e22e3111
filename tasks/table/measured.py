"""The kinds of labels that are numbers: a number, its logarithm, a date, a vector, a place on the earth."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import numpy as np

from contml import InputError
from contml.labels import GeoLabels, LabelSpace, VectorLabels

from .cells import date_in_days, decimal_comma, is_nothing, no_number, number, numbers
from .labels import Array, Label, Scale

LATITUDE = re.compile(r"(?:.*[\W_])?lat(?:itude)?", re.IGNORECASE)
LONGITUDE = re.compile(r"(?:.*[\W_])?(?:lon|lng|long|longitude)", re.IGNORECASE)
_SCALES = {"std": "a standard deviation", "range": "from the 5th to the 95th percentile"}


class NumberLabel(Label):
    """A number a row, or a vector: the label distance is the difference, in units of the training rows' spread."""

    kind = "number"
    #: Whether its decimals follow a comma.
    comma = False

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
            more, hint = ("", "") if same[flat[0]] else ("nearly ", ", or set scale=std")
            raise InputError(
                f"labels: {what} is {self._text(self.low[flat[0]])} in {more}all of {len(train):,} training rows; "
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
            return f"difference of {self._quantity}"
        return f"difference of {self._quantity} by {self.scales[0]:.4g}, {_SCALES[self.options.scale]}"

    @property
    def _quantity(self) -> str:
        """What is compared."""
        return self.name

    def _text(self, value: float) -> str:
        """A value as it stands in the table."""
        return _plain(value)

    def lines(self, row: int) -> list[str]:
        """The label of a row, to be written under its picture."""
        return [f"{self.name}: {self._text(self.values[row, 0])}"]

    def describe(self) -> str:
        """The values in words: their range, or examples."""
        values = f"{_plain(self.low[0])} to {_plain(self.high[0])}, mean {self.middle[0]:.4g}"
        by = "" if self.options.scale == "none" else f", {_SCALES[self.options.scale]}"
        sign = "; decimal comma" if self.comma else ""
        return f"{values}{sign}; a label distance of 1 is {self.scales[0]:.4g}{by}"


class LogNumberLabel(NumberLabel):
    """A number above 0 of which ratios count, such as a price: the label distance is the difference of logarithms."""

    kind = "number:log"

    def _read(self, cells: list[list[str]]) -> None:
        super()._read(cells)
        wrong = np.flatnonzero(self.values[:, 0] <= 0)
        if len(wrong):
            raise InputError(
                f"{self.table.where(wrong[0])}: {self.name} is {_plain(self.values[wrong[0], 0])}, which has no "
                "logarithm; number:log takes numbers above 0"
            )
        self.values = np.log(self.values)

    @property
    def _quantity(self) -> str:
        """What is compared."""
        return f"log({self.name})"

    def _text(self, value: float) -> str:
        """A value as it stands in the table."""
        return _plain(float(f"{np.exp(value):.12g}"))

    def describe(self) -> str:
        """The values in words: their range, or examples."""
        by = "" if self.options.scale == "none" else f", {_SCALES[self.options.scale]} of the logarithms"
        sign = "; decimal comma" if self.comma else ""
        return (
            f"{self._text(self.low[0])} to {self._text(self.high[0])}, geometric mean {np.exp(self.middle[0]):.4g}"
            f"{sign}; a label distance of 1 is a factor of {np.exp(self.scales[0]):.4g}{by}"
        )


class DateLabel(NumberLabel):
    """A date, or a date with a time: the label distance is the difference in days, in units of their spread."""

    kind = "date"

    def _read(self, cells: list[list[str]]) -> None:
        self.values = np.full((len(cells[0]), 1), np.nan)
        for row, cell in enumerate(cells[0]):
            days = date_in_days(cell)
            if days is not None:
                self.values[row] = days
            elif not is_nothing(cell):
                raise InputError(
                    f"{self.table.where(row)}: {self.name} is '{cell.strip()[:60]}', no date; it must be written "
                    "year first, as in 2026-11-22 or 2026-11-22T15:30"
                )
        self.present = ~np.isnan(self.values[:, 0])

    @property
    def unit(self) -> str:
        """What a label distance of 1 is."""
        if self.options.scale == "none":
            return f"difference of {self.name} in days"
        return f"difference of {self.name} by {self.scales[0]:.4g} days, {_SCALES[self.options.scale]}"

    def _text(self, value: float) -> str:
        """A value as it stands in the table."""
        day = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=float(value))
        return f"{day:%Y-%m-%d}" if float(value).is_integer() else f"{day:%Y-%m-%d %H:%M}"

    def describe(self) -> str:
        """The values in words: their range, or examples."""
        by = "" if self.options.scale == "none" else f", {_SCALES[self.options.scale]}"
        return (
            f"{self._text(self.low[0])} to {self._text(self.high[0])}; "
            f"a label distance of 1 is {self.scales[0]:.4g} days{by}"
        )


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

    def lines(self, row: int) -> list[str]:
        """The label of a row, to be written under its picture."""
        shown = " ".join(_plain(value) for value in self.values[row, :6])
        return [f"{self.name}: {shown}{' …' if self.values.shape[1] > 6 else ''}"]

    def describe(self) -> str:
        """The values in words: their range, or examples."""
        return f"{self.values.shape[1]} numbers, {_plain(self.low.min())} to {_plain(self.high.max())}; {self.unit}"


class PlaceLabel(Label):
    """Latitude and longitude in degrees, two columns or one: the label distance is the way over the earth in km."""

    kind = "place"
    takes = (1, 2)
    comma = False

    def _read(self, cells: list[list[str]]) -> None:
        if len(cells) == 2:
            if LONGITUDE.fullmatch(self.columns[0]) and LATITUDE.fullmatch(self.columns[1]):
                first, second = self.columns
                raise InputError(f"labels: {first},{second}=place: latitude comes first; write {second},{first}")
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
        return GeoLabels(self.values[rows])

    def lines(self, row: int) -> list[str]:
        """The label of a row, to be written under its picture."""
        return ["{:.4f}, {:.4f}".format(*self.values[row])]

    def describe(self) -> str:
        """The values in words: their range, or examples."""
        (south, west), (north, east) = self.low, self.high
        return f"latitude {south:.4g} to {north:.4g}, longitude {west:.4g} to {east:.4g}; distance in km"


def _column(label: NumberLabel | PlaceLabel, column: str, cells: Sequence[str]) -> Array:
    """Numbers `[N]` of a column, NaN where there is none."""
    comma = decimal_comma(cells, label.options.decimal, label.table.delimiter)
    label.comma = label.comma or comma
    values = np.full(len(cells), np.nan)
    for row, cell in enumerate(cells):
        found = number(cell, comma)
        if found is not None:
            values[row] = found
        elif not is_nothing(cell):
            raise no_number(label.table.where(row), column, cell, comma)
    return values


def _lists(label: VectorLabel | PlaceLabel, cells: Sequence[str]) -> Array:
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
