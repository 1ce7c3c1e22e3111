"""Labels of a table that are numbers: a number, its logarithm, a date, a vector, latitude and longitude."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import numpy as np

from contml import InputError
from contml._support.text import value_text
from contml.contracts import PLAIN, Measure
from contml.data.tables import Column
from contml.labels import DateLabels, GeoLabels, LabelSpace, VectorLabels
from contml.labels.dates import days_since_1970, parse_date

from .cells import has_decimal_comma, number_column, number_hint, numbers
from .labels import Array, Label

LATITUDE = re.compile(r"(?:.*[\W_])?lat(?:itude)?", re.IGNORECASE)
LONGITUDE = re.compile(r"(?:.*[\W_])?(?:lon|lng|long|longitude)", re.IGNORECASE)
_SCALES = {"std": "a standard deviation", "range": "from the 5th to the 95th percentile"}


class NumberLabel(Label):
    """A number per row: the label distance is the difference, in units of the training rows' spread."""

    kind = "number"
    #: Whether a column has decimal commas.
    comma = False
    #: The words of `describe` for the mean and for a label distance of 1; the unit of the values.
    mean_text, unit_text, value_unit = ", mean {:.4g}", "{:.4g}{by}", ""

    def _read(self, cells: list[Column]) -> None:
        self.values = np.stack([self._column(*pair) for pair in zip(self.columns, cells, strict=True)], 1)  # [N,D]
        self.present = ~np.isnan(self.values).any(1)

    def _column(self, name: str, column: Column) -> Array:
        """The numbers `[N]` of a column, NaN where the cell is missing."""
        comma = has_decimal_comma(column, self.options.decimal, self.table.delimiter)
        self.comma = self.comma or comma
        values, invalid_rows = self._parse(column, comma)
        if len(invalid_rows):
            row = int(invalid_rows[0])
            (cell,) = column.texts([row])
            raise InputError(f"{self.table.where(row)}: {name}", f"'{cell[:60]}'", *self._wanted(cell, comma))
        return values

    def _parse(self, column: Column, comma: bool) -> tuple[Array, Array]:
        """The numbers of a column `[N]`, NaN where a cell is missing, and the rows of cells that are no numbers."""
        return number_column(column, comma)

    def _wanted(self, cell: str, comma: bool) -> tuple[str, str]:
        """What a cell must be, and what to do."""
        return f"must be a number with a decimal {'comma' if comma else 'point'}", number_hint(cell, comma)

    def fit(self, train: Array) -> None:
        """Compute the range and the unit of the training rows."""
        values = np.sort(self.values[train], axis=0)  # sums are rounded, so that they depend on the order
        self.low, self.high = values.min(0), values.max(0)
        self.middle, self.scales = values.mean(0), self._spread(values)
        constant = self.low == self.high
        # In a list some numbers may be constant, but no column may be.
        invalid = np.flatnonzero(
            ~(self.scales > 0) | (constant if len(self.columns) == len(constant) else constant.all())
        )
        if len(invalid):
            index = int(invalid[0])
            column, value = self.columns[min(index, len(self.columns) - 1)], self._text(self.low[index])
            nearly, hint = ("", "") if constant[index] else ("nearly ", ", or set scale=std")
            problem = f"{value} in {nearly}all of {len(train):,} training rows"
            raise InputError(f"labels: {column}", problem, hint=f"choose another label{hint}")

    def _spread(self, values: Array) -> Array:
        """The unit of each column `[D]` of values `[N, D]`."""
        if self.options.scale == "none":
            return np.ones(values.shape[1])
        if self.options.scale == "range":
            low, high = np.quantile(values, [0.05, 0.95], axis=0)
            return np.asarray(high - low)
        return np.asarray(values.std(0))

    def space(self, rows: Array) -> LabelSpace:
        """The label space of these rows."""
        labels = self._space(rows)
        labels.unit, labels.measure = self.unit, self._measure()
        return labels

    def _space(self, rows: Array) -> VectorLabels:
        return VectorLabels(self.values[rows] / self.scales, squared=False)

    def _measure(self) -> Measure:
        """How label distances are printed: in the unit of the column."""
        return Measure(self.value_unit.strip(), float(self.scales[0]), name=self.name)

    @property
    def unit(self) -> str:
        """What a label distance of 1 is."""
        if self.options.scale == "none":
            return f"difference of {self.name}{' in' if self.value_unit else ''}{self.value_unit}"
        return f"difference of {self.name} by {self.scales[0]:.4g}{self.value_unit}, {_SCALES[self.options.scale]}"

    def _original(self, value: float) -> float:
        """A value as it is in the table."""
        return value

    def _text(self, value: float) -> str:
        """A value as the table writes it."""
        return value_text(self._original(value))

    def describe(self) -> str:
        """All values in words."""
        sign = "; decimal comma" if self.comma and self.mean_text else ""
        mean = self.mean_text.format(self._original(self.middle[0])) + sign
        by = "" if self.options.scale == "none" else f", {_SCALES[self.options.scale]}"
        step = self.unit_text.format(self._original(self.scales[0]), by=by)
        return f"{self._text(self.low[0])} to {self._text(self.high[0])}{mean}; a label distance of 1 is {step}"


class LogNumberLabel(NumberLabel):
    """A number above 0, compared by ratio, such as a price: the label distance is the difference of logarithms."""

    kind = "number:log"
    mean_text, unit_text = ", geometric mean {:.4g}", "a factor of {:.4g}{by}"

    def _read(self, cells: list[Column]) -> None:
        super()._read(cells)
        invalid_rows = np.flatnonzero(self.values[:, 0] <= 0)
        if len(invalid_rows):
            location = f"{self.table.where(invalid_rows[0])}: {self.name}"
            raise InputError(location, value_text(self.values[invalid_rows[0], 0]), "must be above 0 for number:log")
        self.values = np.log(self.values)

    def _measure(self) -> Measure:
        return Measure("", float(self.scales[0]), "ratio", self.name)

    @property
    def unit(self) -> str:
        """What a label distance of 1 is."""
        spread = "" if self.options.scale == "none" else f", {_SCALES[self.options.scale]} of the logarithms"
        return f"a factor of {np.exp(self.scales[0]):.4g} in {self.name}{spread}"

    def _original(self, value: float) -> float:
        return float(np.exp(value))

    def describe(self) -> str:
        """All values in words."""
        return super().describe() + ("" if self.options.scale == "none" else " of the logarithms")


class DateLabel(NumberLabel):
    """A date, or a date with a time: the label distance is the difference in days, in units of their spread."""

    kind = "date"
    mean_text, unit_text, value_unit = "", "{:.4g} days{by}", " days"

    def _parse(self, column: Column, comma: bool) -> tuple[Array, Array]:  # noqa: ARG002
        texts, self.codes = column.distinct()
        self.dates: list[Any] = [parse_date(text, self.form) for text in texts]  # None for what is no date
        has_zone = [date is not None and date.tzinfo is not None for date in self.dates]
        for text, date, zone in zip(texts, self.dates, has_zone, strict=True):
            if date is not None and not zone and any(has_zone):
                location = f"{self.table.where(int(np.flatnonzero(self.codes == texts.index(text))[0]))}: {self.name}"
                hint = "give all dates a time zone, or none"
                raise InputError(location, f"'{text}' without a time zone", "must be as the others", hint)
        days = [np.nan if date is None else days_since_1970(date) for date in self.dates]
        values = np.array([*days, np.nan])[self.codes]
        return values, np.flatnonzero(column.filled & np.isnan(values))

    def _space(self, rows: Array) -> VectorLabels:
        return DateLabels([self.dates[code] for code in self.codes[rows]], scale=self.scales[0])

    def _measure(self) -> Measure:
        return replace(super()._measure(), dates=True)

    def _wanted(self, cell: str, comma: bool) -> tuple[str, str]:  # noqa: ARG002
        if self.form:
            return f"must be a date in the form {self.form}", ""
        hint = f"give its form: {self.name}=date:%d.%m.%Y, or another" if any(map(str.isdigit, cell)) else ""
        return "must be a date, year first, as in 2026-11-22 or 2026-11-22T15:30", hint

    def _text(self, value: float) -> str:
        day = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=float(value))
        return f"{day:%Y-%m-%d}" if float(value).is_integer() else f"{day:%Y-%m-%d %H:%M}"


class VectorLabel(NumberLabel):
    """Several columns of numbers, each in units of its own spread; or one column of lists of numbers, in one unit."""

    kind = "vector"
    takes: ClassVar[tuple[int, int | None]] = (1, None)

    def _read(self, cells: list[Column]) -> None:
        if len(cells) > 1:
            super()._read(cells)
            return
        self.values = self._lists(cells[0])
        self.present = np.asarray(~np.isnan(self.values).any(1))

    def _lists(self, column: Column) -> Array:
        """Lists of numbers `[N, D]`, a row of NaN where the cell is missing."""
        comma, rows = self.options.decimal == "comma", np.flatnonzero(column.filled)
        if column.kind == "numbers":
            lists = column.lists()
        else:
            lists = [numbers(cell, comma) if cell else None for cell in column.texts()]
        first_row = int(rows[0]) if len(rows) else 0
        length = len(lists[first_row] or ()) if len(rows) else 1
        values = np.full((len(column), max(length, 1)), np.nan)
        for row in rows.tolist():
            row_values, location = lists[row], f"{self.table.where(row)}: {self.name}"
            if row_values is None:
                allowed = "must be a JSON array, or numbers separated by spaces"
                raise InputError(location, f"'{column.texts([row])[0][:60]}'", allowed)
            if len(row_values) != length:
                allowed = f"must be {length} as in {self.table.where(first_row)}"
                raise InputError(location, f"{len(row_values)} numbers", allowed)
            values[row] = [np.nan if value is None else value for value in row_values]
        if (infinite := np.isinf(values).any(1)).any():
            raise InputError(
                f"{self.table.where(int(infinite.argmax()))}: {self.name}", "inf", "must be finite numbers"
            )
        return values

    def _spread(self, values: Array) -> Array:
        spreads = super()._spread(values)
        # Numbers of one list have one unit: their spreads are averaged, so that no direction is stretched.
        return spreads if len(self.columns) > 1 else np.full_like(spreads, np.sqrt(np.square(spreads).mean()))

    def _measure(self) -> Measure:
        return PLAIN  # each column has a unit of its own

    @property
    def unit(self) -> str:
        """What a label distance of 1 is."""
        unit_suffix = "" if self.options.scale == "none" else f", in units of {_SCALES[self.options.scale]}"
        return f"Euclidean distance of {self.name}{unit_suffix}"

    def _space(self, rows: Array) -> VectorLabels:
        texts = VectorLabels(self.values[rows])  # each column has a unit of its own
        return super()._space(rows).with_texts([texts.text(row) for row in range(len(rows))])

    def describe(self) -> str:
        """All values in words."""
        low, high = value_text(self.low.min()), value_text(self.high.max())
        return f"{self.values.shape[1]} numbers, {low} to {high}; {self.unit}"


class GeoLabel(VectorLabel):
    """Latitude and longitude in degrees, and perhaps a heading: the label distance is that over the earth in km.

    With a heading, it is in metres, and each degree between two headings counts as `heading_weight` metres.
    """

    kind = "geo"
    takes = (1, 3)

    def _read(self, cells: list[Column]) -> None:
        first_column, *other_columns = self.columns
        if other_columns and LONGITUDE.fullmatch(first_column) and LATITUDE.fullmatch(other_columns[0]):
            hint = f"write {','.join((other_columns[0], first_column, *other_columns[1:]))}=geo"
            raise InputError(f"labels: {self.name}=geo", "longitude first", "latitude must come first", hint)
        super()._read(cells)
        if self.values.shape[1] not in (2, 3):
            allowed = "must be two, latitude and longitude, or three, with a heading"
            raise InputError(f"{self.table.path}: {self.name}", f"lists of {self.values.shape[1]} numbers", allowed)
        for index, (name, limit) in enumerate((("latitude", 90), ("longitude", 180))):
            invalid = np.flatnonzero(np.abs(np.nan_to_num(self.values[:, index])) > limit)
            if len(invalid):
                location = f"{self.table.where(invalid[0])}: {self.columns[min(index, len(self.columns) - 1)]}"
                value, allowed = (
                    value_text(self.values[invalid[0], index]),
                    f"{name} must be -{limit} to {limit} degrees",
                )
                raise InputError(location, value, allowed, "latitude comes first")

    def fit(self, train: Array) -> None:
        """Compute the range of the training rows."""
        self.low, self.high = self.values[train].min(0), self.values[train].max(0)

    def space(self, rows: Array) -> LabelSpace:
        """The label space of these rows."""
        coordinates, headings = self.values[rows, :2], self.values[rows, 2:]
        if not headings.size:
            return GeoLabels(coordinates)
        return GeoLabels(coordinates, headings[:, 0], self.options.heading_weight, unit="m")

    def describe(self) -> str:
        """All values in words."""
        (south, west), (north, east) = self.low[:2], self.high[:2]
        range_ = f"latitude {south:.4g} to {north:.4g}, longitude {west:.4g} to {east:.4g}"
        if len(self.low) == 2:
            return f"{range_}; distance in km"
        return f"{range_}; distance in metres, a degree of heading as {self.options.heading_weight:g} m"
