"""Labels of a table that are numbers: a number, an angle, a date, a vector, latitude and longitude."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from contml import InputError
from contml._support.packed_texts import Texts
from contml._support.text import value_text
from contml._support.validation import PositiveFloat
from contml.contracts import PLAIN, Measure
from contml.labels import CircularLabels, DateLabels, GeoLabels, LabelSpace, NumberLabels, VectorLabels
from contml.labels.scales import days_since_1970, parse_date

from .cells import thousands
from .label import Array, Cells, FittedLabel, LabelColumn, TableLabel

#: A number in only one row is named if it is this many ranges of the others away, or is a code of nines.
_FAR = 1000.0


def missing_codes(values: Array) -> dict[float, int]:
    """Return numbers that may stand for a missing value, each with its number of rows.

    A number is far if its distance to the nearest other number exceeds the range of all others. A far number is
    returned if two or more rows have it, or if all its digits are nines (-99, 999). A far number in one row is returned
    if the distance is 1,000 times the range. A smaller limit would also return the largest of random numbers with heavy
    tails. Negative numbers with only nines (-99, -999) in two or more rows are also returned if all others are at least
    0.

    Args:
        values: finite numbers `[N]`.
    """
    numbers, counts = np.unique(values, return_counts=True)
    found: dict[float, int] = {}
    while len(numbers) > 3:
        gaps = {0: numbers[1] - numbers[0], -1: numbers[-1] - numbers[-2]}
        spans = {0: numbers[-1] - numbers[1], -1: numbers[-2] - numbers[0]}  # the range of all others
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
    """Describe the numbers of a column that may stand for a missing value, after a semicolon.

    Return "" if there are no such numbers.

    Args:
        name: the column.
        values: the finite numbers `[N]` of the column.
    """
    found = missing_codes(values)
    if not found:
        return ""
    rows = " and ".join(f"{value_text(code)} in {n:,} row{'s' * (n > 1)}" for code, n in found.items())
    empty = "empty the cells" if len(found) > 1 or sum(found.values()) > 1 else "empty the cell"
    return f"; {name}: {rows} is far from all other numbers: if it means a missing value, {empty}"


LATITUDE = re.compile(r"(?:.*[\W_])?lat(?:itude)?", re.IGNORECASE)
LONGITUDE = re.compile(r"(?:.*[\W_])?(?:lon|lng|long|longitude)", re.IGNORECASE)
#: Names of columns that are probably numbers on a circle, with the period of the circle.
_CIRCLES = {
    360: re.compile(r"(?:.*[\W_])?(?:angle|azimuth|bearing|deg|degrees|heading|hue|orientation|rotation|yaw)", re.I),
    24: re.compile(r"(?:.*[\W_])?(?:hour|hours|hour_of_day|time_of_day)", re.I),
    7: re.compile(r"(?:.*[\W_])?(?:weekday|day_of_week)", re.I),
    12: re.compile(r"(?:.*[\W_])?month", re.I),
}
Scale: TypeAlias = Literal["std", "range", "none"]
_SCALES = {"std": "a standard deviation", "range": "from the 5th to the 95th percentile"}


@dataclass(frozen=True)
class NumberLabel(TableLabel):
    """A number. The label distance is the difference of numbers or of logarithms, in units of their spread.

    Args:
        scale: the unit of a label distance: "std", the standard deviation over training rows; "range", from their 5th
            to their 95th percentile, robust to outliers; "none", unscaled; or "log", the standard deviation of the
            logarithms, which compares numbers above 0 by their ratio, such as prices.
    """

    scale: Literal["std", "range", "none", "log"] = "std"

    short = "scale"

    def read(self, cells: Cells) -> LabelColumn:
        """Return the numbers `[N, 1]`, or their logarithms."""
        values = cells.numbers()
        if self.scale == "log":
            if len(invalid_rows := np.flatnonzero(values[:, 0] <= 0)):
                row = int(invalid_rows[0])
                raise cells.error_at(row, value_text(values[row, 0]), "must be above 0 for number:log")
            values = np.log(values)
        return _column(self, cells, values)

    def fit(self, column: LabelColumn, train: Array, test: Array) -> FittedLabel:  # noqa: ARG002
        """Compute the range and the unit of the training rows."""
        name, comma = column.name, "; decimal comma" if any(column.cells.commas) else ""
        if self.scale == "log":
            spread = _spread(column, column.values[train], "std", lambda value: value_text(float(np.exp(value))))
            mean, step = (
                f"geometric mean {_rounded(np.exp(spread.mean[0]))}",
                f"a factor of {np.exp(spread.units[0]):.4g}",
            )
            by = f"{_by('std')} of the logarithms"
            step, unit = f"{step}{by}", f"{step} in {name}{by}"
            measure = Measure("", float(spread.units[0]), "ratio", name)
        else:
            spread = _spread(column, column.values[train], self.scale, value_text)
            mean, step = f"mean {_rounded(spread.mean[0])}", f"{spread.units[0]:.4g}{_by(self.scale)}"
            unit = f"difference of {name}" if self.scale == "none" else f"difference of {name} by {step}"
            measure = Measure("", float(spread.units[0]), name=name)

        def space(rows: Array) -> LabelSpace:
            return _with_unit(NumberLabels(column.values[rows, 0] / spread.units[0]), unit, measure)

        summary = f"{spread.low} to {spread.high}, {mean}{comma}; a label distance of 1 is {step}"
        if (period := _period(name, column.values[column.present])) is not None:
            summary += f"; if {period} is the same as 0, as for angles and hours, write {name}=circular:{period}"
        return column.fitted(space, summary + _far_numbers(column, np.exp if self.scale == "log" else np.asarray))


@dataclass(frozen=True)
class CircularLabel(TableLabel):
    """A number on a circle, such as an angle or an hour. The label distance is the shorter arc, in radians.

    Args:
        period: the length of the circle: 360 for degrees, 24 for hours, 7 for days of the week.
    """

    period: PositiveFloat = 360.0

    def read(self, cells: Cells) -> LabelColumn:
        """Return the numbers `[N]`."""
        values = cells.numbers()[:, 0]
        if len(invalid_rows := np.flatnonzero(np.abs(np.nan_to_num(values)) > self.period)):
            allowed, row = f"must be -{self.period:g} to {self.period:g}, a period", int(invalid_rows[0])
            hint = f"give another period: {cells.name}=circular:{_likely_period(np.nanmax(np.abs(values)))}"
            raise cells.error_at(row, value_text(values[row]), allowed, hint)
        return LabelColumn(self, cells, values, ~np.isnan(values), cells.missing)

    def fit(self, column: LabelColumn, train: Array, test: Array) -> FittedLabel:  # noqa: ARG002
        """Compute the range of the training rows, and note if they cover the whole circle."""
        known, period = column.values[train], self.period
        if known.min() == known.max():
            problem = f"{value_text(known.min())} in all of {len(known):,} training rows"
            raise column.cells.error(problem, hint="choose another label")
        scale = period / 2 / math.pi
        step = f"a radian, {scale:.4g} of {period:g}"
        measure = Measure("", scale, name=column.name)

        def space(rows: Array) -> LabelSpace:
            labels = CircularLabels(column.values[rows], period, scale=scale)
            labels.unit, labels.measure = f"difference of {column.name} along the circle by {step}", measure
            return labels

        summary = f"{value_text(known.min())} to {value_text(known.max())} on a circle; a label distance of 1 is {step}"
        if np.ptp(known) < period / 5:
            likely = _likely_period(float(np.abs(known).max()))
            summary += f"; few of the {period:g}: if the period is another, write {column.name}=circular:{likely}"
        return column.fitted(space, summary)


@dataclass(frozen=True)
class DateLabel(TableLabel):
    """A date, or a date with a time. The label distance is the difference in days, in units of their spread.

    Args:
        format: the format of dates, as in Python: "%d.%m.%Y". null: year first, as in 2026-11-22.
        scale: the unit of a label distance: "std", the standard deviation over training rows; "range", from their 5th
            to their 95th percentile, robust to outliers; or "none", days.
    """

    format: str | None = None
    scale: Scale = "std"

    short = "format"

    def __post_init__(self) -> None:
        super().__post_init__()
        date = datetime(2001, 2, 3, 4, 5, 6)
        try:
            has_year = self.format is None or datetime.strptime(date.strftime(self.format), self.format).year == 2001
        except ValueError:
            has_year = False
        if not has_year:
            raise InputError("format", repr(self.format), "must be a form of dates with a year, such as %d.%m.%Y")

    def read(self, cells: Cells) -> LabelColumn:
        """Return the days from 1970-01-01 `[N]`, the different dates, and the number of each row's date."""
        (column,) = cells.columns
        texts, codes = column.distinct()
        dates = [parse_date(text, self.format or "") for text in texts]  # None for a text that is not a date
        has_zone = [date is not None and date.tzinfo is not None for date in dates]
        for code, (date, zone) in enumerate(zip(dates, has_zone, strict=True)):
            if date is not None and not zone and any(has_zone):
                problem, hint = f"'{texts[code]}' without a time zone", "give all dates a time zone, or none"
                raise cells.error_at(int((codes == code).argmax()), problem, "must be as the others", hint)
        days = np.array([*(np.nan if date is None else days_since_1970(date) for date in dates), np.nan])[codes]
        if len(invalid_rows := np.flatnonzero(column.filled & np.isnan(days))):
            cell = texts[codes[invalid_rows[0]]]
            allowed = f"must be a date in the form {self.format}"
            if self.format is None:
                allowed = "must be a date, year first, as in 2026-11-22 or 2026-11-22T15:30"
            hint = f"give its form: {cells.name}=date:%d.%m.%Y, or another" if any(map(str.isdigit, cell)) else ""
            raise cells.error_at(int(invalid_rows[0]), f"'{cell[:60]}'", allowed, "" if self.format else hint)
        return LabelColumn(self, cells, (days, dates, codes), ~np.isnan(days), cells.missing)

    def fit(self, column: LabelColumn, train: Array, test: Array) -> FittedLabel:  # noqa: ARG002
        """Compute the range and the unit of the training rows."""
        days, dates, codes = column.values
        spread = _spread(column, days[train, None], self.scale, _day)
        name, scale = column.name, float(spread.units[0])
        step = f"{scale:.4g} days{_by(self.scale)}"
        unit = f"difference of {name} in days" if self.scale == "none" else f"difference of {name} by {step}"
        measure = Measure("days", scale, name=name, dates=True)

        def space(rows: Array) -> LabelSpace:
            return _with_unit(DateLabels([dates[code] for code in codes[rows]], scale=scale), unit, measure)

        return column.fitted(space, f"{spread.low} to {spread.high}; a label distance of 1 is {step}")


@dataclass(frozen=True)
class VectorLabel(TableLabel):
    """Several columns of numbers, each in units of its spread, or one column of lists of numbers, in one unit.

    Args:
        scale: the unit of each column, or of the numbers of a list: "std", the standard deviation over training rows;
            "range", from their 5th to their 95th percentile, robust to outliers; or "none", unscaled.
    """

    scale: Scale = "std"

    takes = (1, None)

    def read(self, cells: Cells) -> LabelColumn:
        """Return the numbers `[N, D]`."""
        return _column(self, cells, cells.vectors())

    def fit(self, column: LabelColumn, train: Array, test: Array) -> FittedLabel:  # noqa: ARG002
        """Compute the unit of each column."""
        values = column.values
        spread = _spread(column, values[train], self.scale, value_text)
        unit = f"Euclidean distance of {column.name}" + _by(self.scale).replace(", ", ", in units of ")

        def space(rows: Array) -> LabelSpace:
            plain = VectorLabels(values[rows])
            texts = Texts(plain.text(row) for row in range(len(rows)))
            labels = VectorLabels(values[rows] / spread.units, scales=spread.units)
            return _with_unit(labels, unit, PLAIN).with_texts(texts)  # each column has its own unit

        summary = f"{values.shape[1]} numbers, {spread.low} to {spread.high}; {unit}"
        return column.fitted(space, summary + _far_numbers(column))


@dataclass(frozen=True)
class GeoLabel(TableLabel):
    """Latitude and longitude in degrees, and perhaps a heading. The label distance is in km over the earth.

    With a heading, the label distance is in metres. Each degree between two headings counts as `heading_weight` metres.

    Args:
        heading_weight: metres that a degree of heading counts: by default 40 degrees are as far as 25 metres.
    """

    heading_weight: PositiveFloat = 0.625

    takes = (1, 3)

    def read(self, cells: Cells) -> LabelColumn:
        """Return latitude, longitude and perhaps heading `[N, 2 or 3]`."""
        first_column, *other_columns = cells.table.columns
        if other_columns and LONGITUDE.fullmatch(first_column) and LATITUDE.fullmatch(other_columns[0]):
            hint = f"write {','.join((other_columns[0], first_column, *other_columns[1:]))}=geo"
            raise cells.error("longitude first", "latitude must come first", hint)
        values = cells.vectors()
        if values.shape[1] not in (2, 3):
            allowed = "must be two, latitude and longitude, or three, with a heading"
            raise cells.error(f"lists of {values.shape[1]} numbers", allowed)
        for index, (name, limit) in enumerate((("latitude", 90), ("longitude", 180))):
            if len(invalid_rows := np.flatnonzero(np.abs(np.nan_to_num(values[:, index])) > limit)):
                value, allowed = value_text(values[invalid_rows[0], index]), f"must be -{limit} to {limit} degrees"
                position = min(index, len(cells.columns) - 1)
                hint = "latitude comes first"
                raise cells.error_at(int(invalid_rows[0]), value, f"{name} {allowed}", hint, position)
        return _column(self, cells, values)

    def fit(self, column: LabelColumn, train: Array, test: Array) -> FittedLabel:  # noqa: ARG002
        """Compute the range of the training rows."""
        values = column.values
        (south, west), (north, east) = values[train, :2].min(0), values[train, :2].max(0)
        summary = f"latitude {south:.4g} to {north:.4g}, longitude {west:.4g} to {east:.4g}"
        if values.shape[1] == 2:
            summary += "; distance in km"
            return column.fitted(lambda rows: GeoLabels(values[rows]), summary)

        def space(rows: Array) -> LabelSpace:
            return GeoLabels(values[rows, :2], values[rows, 2], self.heading_weight, unit="m")

        summary += f"; distance in metres, a degree of heading as {self.heading_weight:g} m"
        return column.fitted(space, summary)


def _period(name: str, values: Array) -> int | None:
    """Return the period of a column that is probably on a circle.

    Such a column is named like an angle or an hour, and covers the whole circle.
    """
    low, high = values.min(), values.max()
    for period, names in _CIRCLES.items():
        in_range = (low >= 0 or low >= -period / 2 >= -180) and high <= period
        if names.fullmatch(name) and in_range and high - low >= 0.8 * period:
            return period
    return None


def _likely_period(largest: float) -> str:
    """Return the shortest usual period that holds a number: radians, days of a week, months, hours, degrees.

    Return the number itself if every usual period is shorter.
    """
    return next((f"{period:g}" for period in (6.28319, 7, 12, 24, 360) if largest <= period), f"{largest:g}")


def _column(kind: TableLabel, cells: Cells, values: Array) -> LabelColumn:
    """Return a label of numbers `[N, D]`. A row with NaN has no value."""
    return LabelColumn(kind, cells, values, np.asarray(~np.isnan(values).any(1)), cells.missing)


class _Spread(NamedTuple):
    """The lowest and the highest training numbers as texts, and mean and unit of each column `[D]`."""

    low: str
    high: str
    mean: Array
    units: Array


def _spread(column: LabelColumn, values: Array, scale: Scale, text: Callable[[float], str]) -> _Spread:
    """Return the spread of the numbers of training rows.

    Args:
        column: the label, for errors.
        values: the numbers of training rows `[T, D]`.
        scale: the kind of unit.
        text: converts a number to a text.

    Raises:
        InputError: a column has no spread, or no number of a list has a spread.
    """
    names, count = list(column.cells.table.columns), values.shape[1]
    values = np.sort(values, axis=0)  # sums are rounded, so that they depend on the order
    low, high, units = values.min(0), values.max(0), values.std(0)
    if scale == "none":
        units = np.ones(count)
    elif scale == "range":
        units = np.subtract(*np.quantile(values, [0.95, 0.05], axis=0))
    if count > len(names):
        # Numbers of one list have one unit. Their spreads are averaged, so that no direction is stretched.
        units = np.full(count, np.sqrt(np.square(units).mean()))
    constant = low == high
    # In a list some numbers may be constant, but no column may be.
    if (invalid := ~(units > 0) | (constant if len(names) == count else constant.all())).any():
        index = int(invalid.argmax())
        nearly, hint = ("", "") if constant[index] else ("nearly ", ", or set scale=std")
        problem = f"{text(low[index])} in {nearly}all of {len(values):,} training rows"
        name = f"{names[index]}: " if len(names) > 1 else ""
        raise column.cells.error(f"{name}{problem}", hint=f"choose another label{hint}")
    return _Spread(text(low.min()), text(high.max()), values.mean(0), units)


def _far_numbers(column: LabelColumn, number: Callable[[Array], Array] = np.asarray) -> str:
    """Describe the numbers of each column that may stand for a missing value.

    `number` converts values to the numbers of a cell.
    """
    names = [*column.cells.table.columns]
    columns = number(column.values[column.present]).T
    if len(columns) > len(names):  # lists of numbers
        names = [f"number {place} of {column.name}" for place in range(1, len(columns) + 1)]
    far = "".join(words(name, values) for name, values in zip(names, columns, strict=True))
    decimal = column.cells.reading.table.decimal
    found = ((name, thousands(each, decimal)) for name, each in column.cells.table.columns.items())
    return far + "".join(f"; {name}: {text}" for name, text in found if text)


def _by(scale: Scale) -> str:
    return f", {_SCALES[scale]}" if scale != "none" else ""


def _day(days: float) -> str:
    day = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=float(days))
    return f"{day:%Y-%m-%d}" if float(days).is_integer() else f"{day:%Y-%m-%d %H:%M}"


def _with_unit(labels: VectorLabels, unit: str, measure: Measure) -> VectorLabels:
    """Set the unit of a label distance of 1, and the format of label distances. Return the labels."""
    labels.unit, labels.measure = unit, measure
    return labels


def _rounded(value: float) -> str:
    """Return a mean as a text with four significant digits."""
    return value_text(float(f"{value:.4g}"))
