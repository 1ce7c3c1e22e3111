"""Dates as labels: differences in days, whatever form the dates come in."""

from datetime import UTC, date, datetime, time, timedelta, timezone

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from support.refusals import refused, refuses

from contml.labels import DateLabels

DATES = [date(2024, 1, 31), date(2024, 2, 1), date(2023, 12, 31)]
DAYS = [[0, 1, 31], [1, 0, 32], [31, 32, 0]]


@pytest.mark.parametrize(
    "form",
    [
        DATES,
        [datetime.combine(day, time()) for day in DATES],
        [day.isoformat() for day in DATES],
        [f" {day}T00:00 " for day in DATES],
        ["2024-01-31T01:00+01:00", "2024-01-31T22:00-02:00", "2023-12-31T00:00Z"],
        [datetime.combine(day, time(3), timezone(timedelta(hours=3))) for day in DATES],
        np.array(DATES, "M8[D]"),
        np.array(DATES, "M8[ns]"),
        list(np.array(DATES, "M8[D]")),
        iter(DATES),
    ],
    ids=lambda form: repr(form) if isinstance(form, list | np.ndarray) else type(form).__name__,
)
def test_dates_in_any_form_are_days(form):
    space = DateLabels(form)
    assert (space.pairwise().tolist(), (space.unit, space.kind, len(space))) == (DAYS, ("days", "graded", 3))
    assert space.digests() == DateLabels(DATES).digests()
    assert space.measure.dates
    assert space.measure.text(2.5) == "2.50 days"


def test_columns_of_pandas():
    pandas = pytest.importorskip("pandas")
    days = pandas.Series(pandas.to_datetime(DATES), index=[2, 0, 1])
    zoned = days.dt.tz_localize("Europe/Berlin")
    for form in (days, zoned, pandas.DatetimeIndex(days), pandas.DatetimeIndex(zoned), days.to_list(), zoned.to_list()):
        assert DateLabels(form).pairwise().tolist() == DAYS
    for form in (days.astype("datetime64[ns]"), days.astype("category"), days.dt.strftime("%Y-%m-%d")):
        assert DateLabels(form).pairwise().tolist() == DAYS
    across = pandas.Series(pandas.to_datetime(["2024-03-30", "2024-04-01"])).dt.tz_localize("Europe/Berlin")
    assert DateLabels(across).pairwise()[0, 1] == pytest.approx(2 - 1 / 24)  # an hour was left out that night
    for form in (days, zoned, days.astype(object), days.dt.strftime("%Y-%m-%d")):
        with refuses("date of item 1", got="missing"):
            DateLabels(form.where([True, False, True]))
    refused(lambda: DateLabels(days.dt.to_period("M")), "date of item 0", got="Period")


def test_months_and_years_start_with_their_first_day():
    assert DateLabels(np.array(["2024-01", "2024-03"], "M8[M]")).pairwise()[0, 1] == 60
    assert DateLabels(np.array(["2023", "2024"], "M8[Y]")).pairwise()[0, 1] == 365


INSTANTS = st.lists(st.datetimes(datetime(1700, 1, 1), datetime(2240, 1, 1)), min_size=2, max_size=6)


@settings(max_examples=60, deadline=None)
@given(instants=INSTANTS, scale=st.sampled_from([1.0, 7.0, 365.25]))
def test_days_equal_the_loop(instants, scale):
    space = DateLabels(instants, scale)
    expected = [[abs(a - b) / timedelta(days=1) / scale for b in instants] for a in instants]
    torch.testing.assert_close(
        space.distances(space, space), torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=1e-10
    )
    assert torch.equal(space.values, DateLabels(np.array(instants, "M8[us]"), scale).values)
    assert torch.equal(space.values, DateLabels([instant.replace(tzinfo=UTC) for instant in instants], scale).values)
    assert abs(space.date(0) - instants[0]) <= timedelta(microseconds=10)


def test_a_scale_in_days():
    years = DateLabels(["2020-01-01", "2024-01-01"], scale=365.25)
    assert (years.pairwise()[0, 1], years.unit, years.measure.text(4.0)) == (4, "365.25 days", "1,461 days")
    assert years.date(1) == datetime(2024, 1, 1)
    assert years.fingerprint() != DateLabels(["2020-01-01", "2024-01-01"]).fingerprint()
