"""Label spaces of levels on an ordered scale, of places on earth, of numbers on a circle, and of dates."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from numbers import Number, Real
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor

from contml._support.conversion import Numbers, as_items, as_numbers, is_hashable, is_missing, names_of
from contml._support.errors import InputError, did_you_mean
from contml._support.packed_texts import Texts
from contml._support.text import interval_texts, value_text
from contml._support.validation import PositiveFloat, check_ranges, is_finite
from contml.contracts import Colours, Measure, Part
from contml.distances.labels import circular_difference, great_circle
from contml.labels.base import LabelSpace
from contml.labels.items import ItemLabels, typed_numbers
from contml.labels.vectors import NumberLabels


class OrdinalLabels(ItemLabels):
    """Levels of an ordered scale, such as ratings; the label distance is |rank difference| / (levels - 1), in [0, 1].

    Args:
        labels: the level of each item: numbers or strings.
        levels: all levels from the lowest to the highest; default the categories of an ordered column of pandas, or the
            numbers that occur, sorted. Levels that are other words need this argument.
    """

    unit = "the whole scale"
    largest = 1.0
    title = "level"
    item_arguments: ClassVar[Mapping[str, Any]] = {"labels": list}
    option_arguments: ClassVar[Mapping[str, Any]] = {"levels": list}
    typed_as = "text"
    ranks: Tensor

    def __init__(self, labels: Numbers | Sequence[Hashable], levels: Sequence[Hashable] | None = None) -> None:
        numbers = None  # the number of each item's text among those that differ
        if isinstance(labels, Texts):
            labels, numbers = labels.numbered()
        values = as_items("labels", labels, "a level for each item")
        if not values:
            raise InputError("labels", "no items", "must be a level for each item")
        for item, value in enumerate(values):
            if is_missing(value) or not is_hashable(value):
                raise InputError(f"label of item {item}", repr(value), "must be a level: a number or a string")
        dtype: Any = getattr(labels, "dtype", None)
        if levels is None and getattr(dtype, "ordered", False):  # an ordered column of pandas
            levels = list(dtype.categories)
        if levels is None:
            if words := [value for value in values if not isinstance(value, Real)]:
                got = f"{words[0]!r} has no order"
                raise InputError("labels", got, "must be numbers", "or give levels, from lowest to highest")
            levels = sorted(set(values))
        levels = as_items("levels", levels, "all levels, from lowest to highest")
        valid = [level for level in levels if not is_missing(level) and is_hashable(level)]
        rank = {level: position for position, level in enumerate(valid)}
        if len(rank) < max(2, len(levels)):
            raise InputError("levels", str(levels), "must be at least 2 different levels")
        for item, value in enumerate(values):
            if value not in rank:
                raise InputError(f"label of item {item}", repr(value), f"must be one of the levels {list(rank)}")
        ranks = torch.tensor([rank[value] for value in values], dtype=torch.int64)
        super().__init__(ranks=ranks if numbers is None else ranks[torch.from_numpy(numbers)])
        self.levels = list(rank)
        self.measure = Measure("levels", len(self.levels) - 1)

    def distances(self, x: Self, y: Self) -> Tensor:
        """Return rank differences divided by the largest possible one, `[X, Y]`."""
        return (x.ranks[:, None] - y.ranks).abs().double() / (len(self.levels) - 1)

    def text(self, row: int) -> str:
        """Return the level of an item, as text."""
        return super().text(row) or str(self.levels[int(self.ranks[row])])

    def plain(self, row: int) -> Any:
        """Return the level of an item."""
        return self.levels[int(self.ranks[row])]

    def colours(self) -> Colours:
        """Return the place of each level, from 0."""
        return Colours(self.ranks.double().cpu(), self.title)

    @property
    def vectors(self) -> Tensor:
        """The place of each level on the scale, from 0 to 1, `[N, 1]`."""
        return self.ranks[:, None].double() / (len(self.levels) - 1)

    def arguments(self) -> dict[str, Any]:
        """Return the level of each item, and all levels."""
        return {"labels": [self.levels[rank] for rank in self.ranks.tolist()], "levels": self.levels}

    def parse(self, text: str) -> Any:
        """Return the level with this text."""
        level = next((level for level in self.levels if str(level) == text.strip()), None)
        if level is None:
            names = [str(level) for level in self.levels]
            allowed = f"must be one of {', '.join(names)}"
            raise InputError(self.title, f"no level {text!r:.60}", allowed, did_you_mean(text, names))
        return level

    def of_vectors(self, vectors: Tensor) -> Self:
        """Return the levels nearest to these places on the scale `[M, 1]`."""
        highest = len(self.levels) - 1
        return self._replaced(ranks=(vectors[:, 0].to(self.device) * highest).round().long().clamp(0, highest))

    def _compared_by(self) -> tuple[Tensor, Callable[[Tensor], Tensor]] | None:
        if type(self).distances is not OrdinalLabels.distances:
            return None
        return self.ranks[:, None].double(), lambda squared: squared.sqrt() / (len(self.levels) - 1)

    def _item_contents(self) -> Iterable[bytes]:
        return (repr(self.levels[rank]).encode() for rank in self.ranks.cpu().numpy())


class GeoLabels(ItemLabels):
    """Places on earth; the label distance is the great-circle distance, accurate from millimetres to antipodes.

    With headings, `heading_weight` metres per degree between the two headings, 0 to 180 degrees, are added. Place
    recognition needs them: two photographs from one place that look away from each other show different things.

    Args:
        places: `[N, 2]`: latitude, -90 to 90, and longitude, -180 to 180, in degrees.
        headings: `[N]`: the direction of view in degrees, from north to east; whole turns do not count.
        heading_weight: metres per degree of heading: 0.625 makes 40 degrees as far as 25 metres.
        unit: the unit of the label distance, "km" or "m".
    """

    title = "place"
    item_arguments: ClassVar[Mapping[str, Any]] = {"places": Tensor, "headings": Tensor | None}
    option_arguments: ClassVar[Mapping[str, Any]] = {"heading_weight": float, "unit": str}
    typed_as = "text"
    places: Tensor
    headings: Tensor | None = None

    @check_ranges
    def __init__(
        self,
        places: Numbers,
        headings: Numbers | None = None,
        heading_weight: float = 0.625,
        unit: Literal["km", "m"] = "km",
    ) -> None:
        allowed = "[items, 2]: latitude and longitude in degrees"
        degrees = as_numbers("places", places, allowed).to(torch.float64, copy=True)
        if degrees.ndim != 2 or degrees.shape[1] != 2:
            has_headings = degrees.ndim == 2 and degrees.shape[1] == 3
            hint = "give the directions of view as headings" if has_headings else ""
            raise InputError("places", str(list(degrees.shape)), f"must be {allowed}", hint)
        _, names = names_of(places)
        if names and str(names[0]).lower().startswith(("lon", "lng")):
            hint = f"give table[[{names[1]!r}, {names[0]!r}]]"
            raise InputError("places", f"{names[0]!r} first", "latitude must come first", hint)
        for column, (name, limit) in enumerate((("latitude", 90), ("longitude", 180))):
            invalid_rows = (~(degrees[:, column].abs() <= limit)).nonzero()[:, 0]
            if len(invalid_rows):
                subject, got = f"{name} of item {int(invalid_rows[0])}", f"{float(degrees[invalid_rows[0], column]):g}"
                hint = "latitude comes first" if limit == 90 else "of 0 to 360 degrees, subtract 360 above 180"
                raise InputError(subject, got, f"must be -{limit} to {limit} degrees", hint)
        if headings is None:
            super().__init__(places=degrees)
        else:
            turns = as_numbers("headings", headings, "[items]: degrees").to(degrees.device, torch.float64, copy=True)
            if turns.shape != degrees.shape[:1]:
                raise InputError("headings", str(list(turns.shape)), f"must be [{len(degrees)}], one per place")
            if not is_finite(heading_weight) or heading_weight <= 0:
                allowed = "must be a finite number of metres per degree above 0"
                raise InputError("heading_weight", str(heading_weight), allowed, "omit headings to ignore them")
            super().__init__(places=degrees, headings=turns)
        self.metres_per_unit = 1 if unit == "m" else 1000
        self.heading_weight = float(heading_weight)
        self.measure = Measure(unit)
        self.unit = unit if headings is None else f"{unit}, a degree of heading as {heading_weight:g} m"

    def plain(self, row: int) -> Any:
        """Return latitude and longitude of an item, and its heading if it has one."""
        return [*self.places[row].tolist(), *([] if self.headings is None else [float(self.headings[row])])]

    def arguments(self) -> dict[str, Any]:
        """Return the places, the headings, and the options."""
        options = {"heading_weight": self.heading_weight, "unit": "m" if self.metres_per_unit == 1 else "km"}
        return {"places": self.places, "headings": self.headings, **options}

    def parse(self, text: str) -> list[float]:
        """Return latitude and longitude of a text in degrees, and the heading if the items have one."""
        return typed_numbers(self.title, text.replace("°", ""), 2 if self.headings is None else 3)

    def _item(self, label: Any) -> Self:
        """Return a space of one place: latitude and longitude in degrees, and the heading if the items have one."""
        given = as_numbers(self.title, label, "degrees").double()
        if given.shape != (2 if self.headings is None else 3,):
            allowed = "latitude and longitude" + ("" if self.headings is None else " and heading")
            raise InputError(self.title, f"{list(given.shape)} numbers", f"must be {allowed}")
        headings = None if self.headings is None else given[None, 2]
        return self._made({"places": given[None, :2], "headings": headings, **self._options()})

    def distances(self, x: Self, y: Self) -> Tensor:
        """Compute distances in `unit`, `[X, Y]` in float64."""
        metres = great_circle(x.places, y.places) * 1000
        if x.headings is not None and y.headings is not None:
            metres += self.heading_weight * circular_difference(x.headings, y.headings, 360)
        return metres / self.metres_per_unit

    def text(self, row: int) -> str:
        """Return latitude, longitude and heading of an item in degrees, as text."""
        heading = "" if self.headings is None else f", {float(self.headings[row]):.0f}°"
        return super().text(row) or _degrees(self.places[row]) + heading

    def parts(self, a: int, b: int) -> list[Part]:
        """Return both places and the distance between them, and both headings and the angle between them."""
        x, y = self.places[[a]], self.places[[b]]
        distance = 1000 / self.metres_per_unit * float(great_circle(x, y))
        parts = [Part(self.title, _degrees(x[0]), _degrees(y[0]), self.measure.text(distance))]
        if self.headings is not None:
            u, v = self.headings[[a]], self.headings[[b]]
            texts = (f"{float(angle):.0f}°" for angle in (u, v, circular_difference(u, v, 360)))
            parts.append(Part("heading", *texts))
        return parts


def _degrees(place: Tensor) -> str:
    return ", ".join(f"{degrees:.5f}" for degrees in place.tolist())


class CircularLabels(ItemLabels):
    """Numbers on a circle, such as angles or hours of the day; the label distance is the shorter way along the circle.

    A mean, and so a predicted label, is the circular mean: 0 is the mean of 350 and 10 degrees. Mirroring one of two
    images may change their label distance, as for the directions in which two cars drive. So images are mirrored by
    whole batches.

    Args:
        values: `[N]`; whole periods do not count.
        period: the length of the circle: 360 for degrees, 24 for hours, 7 for days of the week.
        unit: the unit of the labels and of label distances, such as "degrees".
        scale: the difference of two values in a label distance of 1.

    Attributes:
        start: predicted labels are `start` to `start + period`: from 0, or from -period / 2 if a value is below 0.
    """

    title = "angle"
    mirrored = False
    item_arguments: ClassVar[Mapping[str, Any]] = {"values": Tensor}
    option_arguments: ClassVar[Mapping[str, Any]] = {"period": float, "unit": str, "scale": float}
    typed_as = "text"
    values: Tensor

    @check_ranges
    def __init__(
        self, values: Numbers, period: PositiveFloat = 360.0, unit: str = "", scale: PositiveFloat = 1.0
    ) -> None:
        numbers = as_numbers("values", values, "numbers [items]").to(torch.float64, copy=True)
        if numbers.ndim != 1 or numbers.numel() == 0:
            got = str(list(numbers.shape)) if numbers.numel() else "no numbers"
            raise InputError("values", got, "must be numbers [items]")
        super().__init__(values=numbers)
        self.period, self.scale = float(period), float(scale)
        self.start = -self.period / 2 if bool((numbers < 0).any()) else 0.0
        self.largest = self.period / 2 / self.scale
        self.measure = Measure(unit, self.scale)
        self.unit = unit or "difference of labels"

    def arguments(self) -> dict[str, Any]:
        """Return the numbers, and the options."""
        return {"values": self.values, "period": self.period, "unit": self.measure.unit, "scale": self.scale}

    def distances(self, x: Self, y: Self) -> Tensor:
        """Compute the shorter ways along the circle, `[X, Y]` in float64."""
        return circular_difference(x.values, y.values, self.period) / self.scale

    @property
    def vectors(self) -> Tensor:
        """Points on a circle `[N, 2]`, whose circumference is the period as a label distance."""
        angles = self.values * (2 * math.pi / self.period)
        return torch.stack((angles.cos(), angles.sin()), 1) * (self.period / 2 / math.pi / self.scale)

    def of_vectors(self, vectors: Tensor) -> Self:
        """Return the labels in the directions of these points `[M, 2]`."""
        angles = torch.atan2(vectors[:, 1], vectors[:, 0]).to(self.device, torch.float64)
        return self._replaced(values=self._wrapped((angles * (self.period / 2 / math.pi)).round(decimals=9)))

    def _wrapped(self, values: Any) -> Any:
        """Return values from `start` on, below the next start."""
        turn = (values - self.start) % self.period
        return turn * (turn < self.period) + self.start  # -1e-20 % 360 is 360

    def text(self, row: int) -> str:
        """Return the number of an item, with its unit."""
        return super().text(row) or value_text(self.plain(row)) + self.measure.after_label

    def plain(self, row: int) -> Any:
        """Return the number of an item."""
        return float(self.values[row])

    def parse(self, text: str) -> float:
        """Return the number of a text."""
        return typed_numbers(self.title, text.replace("°", ""), 1)[0]

    def interval(self, row: int, bound: float) -> tuple[Any, Any] | None:
        """Return the ends of the arc around a label. The arc may cross the start. Return None for the whole circle."""
        if bound >= self.largest:
            return None
        low, high = (float(self._wrapped(self.values[row] + way * bound * self.scale)) for way in (-1, 1))
        return low, high

    def interval_texts(self, value: Any, low: Any, high: Any) -> tuple[str, str, str]:
        """Return a number with its unit, and the ends of the arc, rounded in proportion to its length."""
        arc = interval_texts(value, value - (value - low) % self.period, value + (high - value) % self.period)
        numbers = [self._wrapped(float(text.replace(",", ""))) for text in arc]
        decimals = len(arc[0].partition(".")[2])
        first, second, third = (f"{number:.{decimals}f}" for number in numbers)
        return first + self.measure.after_label, second, third

    def colours(self) -> Colours:
        """Return the number of each item, as colours."""
        return Colours(self._wrapped(self.values).cpu(), self.title)

    def _contents(self) -> str:
        return f"unit: {self.unit}; period: {self.period:g}"


_MICROSECOND, _DAY = timedelta(microseconds=1), timedelta(days=1)
_1970 = datetime(1970, 1, 1, tzinfo=UTC)


class DateLabels(NumberLabels):
    """Dates, with or without a time of day; the label distance is their difference in days, with fractions.

    Times count to the microsecond. Dates with time zones are compared as instants. Dates with and without a time zone
    cannot be mixed.

    Args:
        dates: `[N]`: `datetime64` of NumPy or pandas, Python's dates and datetimes, or texts in ISO format, year first:
            "2026-11-22", "2026-11-22T15:30", "2026-11-22T15:30+01:00".
        scale: the number of days in a label distance of 1, such as 365.25 for a year.
    """

    title = "date"
    item_arguments: ClassVar[Mapping[str, Any]] = {"dates": list}
    option_arguments: ClassVar[Mapping[str, Any]] = {"scale": float}

    @check_ranges
    def __init__(
        self, dates: np.ndarray[Any, Any] | Sequence[date | str | np.datetime64], scale: PositiveFloat = 1.0
    ) -> None:
        super().__init__(_days(dates) / scale, unit="days" if scale == 1 else f"{scale:g} days")
        self.scale = float(scale)
        self.measure = Measure("days", self.scale, dates=True)

    def arguments(self) -> dict[str, Any]:
        """Return the dates as texts, and the scale."""
        return {"dates": [self.date(row).isoformat() for row in range(len(self))], "scale": self.scale}

    def parse(self, text: str) -> Any:
        """Return the text of a date, year first, without spaces around it."""
        return text.strip()

    def _item(self, label: Any) -> Self:
        """Return a space of one date. `label` is a date as the constructor takes it."""
        return ItemLabels._item(self, label)

    def date(self, row: int) -> datetime:
        """Return the date of an item without a time zone, to the microsecond; in UTC if the dates have time zones."""
        return _1970.replace(tzinfo=None) + timedelta(days=float(self.values[row, 0]) * self.scale)

    def text(self, row: int) -> str:
        """Return the date of an item, and the time of day if it has one."""
        moment = self.date(row)
        words = moment.isoformat(" ", "minutes") if moment.time() != time() else f"{moment.date()}"
        return LabelSpace.text(self, row) or words

    def plain(self, row: int) -> Any:
        """Return the date of an item, and the time of day if it has one."""
        return self.text(row)

    def interval_texts(self, value: Any, low: Any, high: Any) -> tuple[str, str, str]:
        """Return the dates as texts."""
        return LabelSpace.interval_texts(self, value, low, high)

    def colours(self) -> Colours:
        """Return the days from 1970-01-01 to each date."""
        return Colours(self.values[:, 0].cpu() * self.scale, self.title, scale="date")

    def _contents(self) -> str:
        if not len(self):
            return f"unit: {self.unit}"
        first, last = (self.date(int(row)) for row in (self.values.argmin(), self.values.argmax()))
        return f"{first.date()} to {last.date()}; unit: {self.unit}"


def parse_date(text: str, form: str = "") -> datetime | None:
    """Parse a date in ISO format, year first, or in a form of `datetime.strptime`. Return None for another text."""
    try:
        return datetime.strptime(text.strip(), form) if form else datetime.fromisoformat(text.strip())
    except ValueError:
        return None


def days_since_1970(instant: date | np.datetime64) -> float:
    """Return the days from 1970-01-01 to a date, with a fraction for a time of day.

    A date without a time zone counts as UTC.
    """
    if isinstance(instant, np.datetime64):
        return int(instant.astype("M8[us]").astype(np.int64)) * _MICROSECOND / _DAY
    if not isinstance(instant, datetime):
        instant = datetime.combine(instant, time())
    return ((instant if instant.tzinfo else instant.replace(tzinfo=UTC)) - _1970) / _DAY


def _days(dates: object) -> Tensor:
    """Return the days from 1970-01-01 to each date `[N]`, in float64.

    Raises:
        InputError: a value is not a date, one is missing, or only some dates have a time zone.
    """
    allowed = "a date for each item"
    items = [_date(row, value) for row, value in enumerate(as_items("dates", dates, allowed))]
    if not items:
        raise InputError("dates", "no items", f"must be {allowed}")
    has_zone = [isinstance(item, datetime) and item.tzinfo is not None for item in items]
    if any(has_zone) and not all(has_zone):
        row, hint = has_zone.index(False), "give all dates a time zone, or none"
        raise InputError(f"date of item {row}", f"{items[row]}, without a time zone", "must be as the others", hint)
    return torch.tensor([days_since_1970(item) for item in items], dtype=torch.float64)


def _date(row: int, value: Any) -> date | np.datetime64:
    """Return the date of an item."""
    subject = f"date of item {row}"
    if is_missing(value):
        raise InputError(subject, f"missing ({value})", hint="give a date, or omit the item")
    if isinstance(value, np.datetime64):
        year = int(value.astype("M8[Y]").astype(np.int64)) + 1970
        if not 1 <= year <= 9999:
            raise InputError(subject, f"year {year}", "must be a year from 1 to 9999")
        return value
    found = parse_date(value) if isinstance(value, str) else value
    if isinstance(found, date):
        return found
    hint = "pandas.to_datetime reads other formats" if isinstance(value, str) else ""
    if isinstance(value, Number):
        hint = "numbers are labels of NumberLabels; of seconds since 1970, make numpy.array(seconds, 'M8[s]')"
    allowed = "must be a date, year first, as in 2026-11-22 or 2026-11-22T15:30"
    raise InputError(subject, f"{value!r:.60}", allowed, hint)
