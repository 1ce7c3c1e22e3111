"""The label space of dates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from numbers import Number
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from contml._support.conversion import as_items, is_missing
from contml._support.errors import InputError
from contml._support.validation import PositiveFloat, check_ranges
from contml.contracts import Colours, Measure
from contml.labels.base import LabelSpace
from contml.labels.items import ItemLabels
from contml.labels.vectors import VectorLabels

_MICROSECOND, _DAY = timedelta(microseconds=1), timedelta(days=1)
_1970 = datetime(1970, 1, 1, tzinfo=UTC)


class DateLabels(VectorLabels):
    """Dates, with or without a time of day; the label distance is their difference in days, with fractions.

    Times count to the microsecond. Dates with time zones are compared as instants; dates without one are refused beside
    them.

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
        super().__init__(_days(dates) / scale, squared=False, unit="days" if scale == 1 else f"{scale:g} days")
        self.scale = float(scale)
        self.measure = Measure("days", self.scale, dates=True)

    def arguments(self) -> dict[str, Any]:
        """The dates as texts, and the scale."""
        return {"dates": [self.date(row).isoformat() for row in range(len(self))], "scale": self.scale}

    def parse(self, text: str) -> Any:
        """The date of a text, year first."""
        return text.strip()

    def _item(self, label: Any) -> Self:
        """A date, as the constructor takes it."""
        return ItemLabels._item(self, label)

    def date(self, row: int) -> datetime:
        """The date of an item without a time zone, to the microsecond; in UTC if the dates have time zones."""
        return _1970.replace(tzinfo=None) + timedelta(days=float(self.values[row, 0]) * self.scale)

    def text(self, row: int) -> str:
        """The date of an item, and the time of day where it has one."""
        moment = self.date(row)
        words = moment.isoformat(" ", "minutes") if moment.time() != time() else f"{moment.date()}"
        return LabelSpace.text(self, row) or words

    def plain(self, row: int) -> Any:
        """The date of an item, and the time of day where it has one."""
        return self.text(row)

    def interval_texts(self, value: Any, low: Any, high: Any) -> tuple[str, str, str]:
        """The dates."""
        return LabelSpace.interval_texts(self, value, low, high)

    def colours(self) -> Colours:
        """The days from 1970-01-01 to each date."""
        return Colours(self.values[:, 0].cpu() * self.scale, self.title, scale="date")

    def _contents(self) -> str:
        if not len(self):
            return f"unit: {self.unit}"
        first, last = (self.date(int(row)) for row in (self.values.argmin(), self.values.argmax()))
        return f"{first.date()} to {last.date()}; unit: {self.unit}"


def parse_date(text: str, form: str = "") -> datetime | None:
    """The date in a text of ISO format, year first, or of a form of `datetime.strptime`; None for another text."""
    try:
        return datetime.strptime(text.strip(), form) if form else datetime.fromisoformat(text.strip())
    except ValueError:
        return None


def days_since_1970(instant: date | np.datetime64) -> float:
    """Days from 1970-01-01 to a date, with a fraction for a time of day; without a time zone, as if it were in UTC."""
    if isinstance(instant, np.datetime64):
        return int(instant.astype("M8[us]").astype(np.int64)) * _MICROSECOND / _DAY
    if not isinstance(instant, datetime):
        instant = datetime.combine(instant, time())
    return ((instant if instant.tzinfo else instant.replace(tzinfo=UTC)) - _1970) / _DAY


def _days(dates: object) -> Tensor:
    """Days from 1970-01-01 to each date `[N]`, in float64.

    Raises:
        InputError: they are not dates, one is missing, or some have a time zone and some have none.
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
    """The date of an item."""
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
        hint = "numbers are labels of VectorLabels; of seconds since 1970, make numpy.array(seconds, 'M8[s]')"
    allowed = "must be a date, year first, as in 2026-11-22 or 2026-11-22T15:30"
    raise InputError(subject, f"{value!r:.60}", allowed, hint)
