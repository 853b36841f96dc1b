"""When scheduled jobs run: intervals, times of day across daylight saving, and the settings."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from palimpsest.ops.settings.sections import JobsSettings, Schedule, schedule_of

BERLIN = ZoneInfo("Europe/Berlin")
TIMES = st.datetimes(datetime(2020, 1, 1), datetime(2035, 1, 1), timezones=st.just(UTC))
ZONES = st.sampled_from(["", " Europe/Berlin", " America/New_York", " Australia/Lord_Howe"])
DAILY = st.builds(
    lambda h, m, zone: f"{h:02}:{m:02}{zone}", st.integers(0, 23), st.integers(0, 59), ZONES
)
EVERY = st.builds(
    lambda number, unit: f"every {number} {unit}",
    st.integers(1, 300),
    st.sampled_from(["min", "h", "d"]),
)


def parsed(text: str) -> Schedule:
    found = schedule_of(text)
    assert found is not None
    return found


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@given(text=DAILY | EVERY, now=TIMES)
def test_a_time_lies_between_the_newest_scheduled_time_and_the_next(
    text: str, now: datetime
) -> None:
    schedule = parsed(text)
    latest, following = schedule.latest(now), schedule.following(now)
    assert latest <= now < following
    # Nothing is scheduled in between, and both are the same whenever they are computed.
    assert schedule.latest(following - timedelta(microseconds=1)) == latest
    assert schedule.latest(following) == following
    assert schedule.following(latest) == following


@given(now=TIMES, text=DAILY)
def test_a_time_of_day_comes_once_a_day(now: datetime, text: str) -> None:
    schedule = parsed(text)
    zone = ZoneInfo(text[6:] or "UTC")
    times = [schedule.latest(now)]
    for _ in range(400):
        times.append(schedule.following(times[-1]))
    days = [each.astimezone(zone).date() for each in times]
    assert all(later - day == timedelta(days=1) for day, later in pairwise(days))
    usual = [f"{each.astimezone(zone):%H:%M}" == text[:5] for each in times]
    assert usual.count(False) <= 2  # where the clock skips the time


@pytest.mark.parametrize(
    ("text", "day", "told"),
    [
        ("02:30 Europe/Berlin", "2026-03-28T12:00", "2026-03-28T01:30"),
        # Skipped: an hour later by the clock, 24 hours after the one before.
        ("02:30 Europe/Berlin", "2026-03-29T12:00", "2026-03-29T01:30"),
        ("02:30 Europe/Berlin", "2026-03-30T12:00", "2026-03-30T00:30"),
        # Shown twice: the first time only.
        ("02:30 Europe/Berlin", "2026-10-25T00:29", "2026-10-24T00:30"),
        ("02:30 Europe/Berlin", "2026-10-25T01:45", "2026-10-25T00:30"),
        ("02:30 Europe/Berlin", "2026-10-26T12:00", "2026-10-26T01:30"),
        ("every 6 h", "2026-03-29T05:59", "2026-03-29T00:00"),
        ("every 30 min", "2026-03-29T05:59", "2026-03-29T05:30"),
    ],
)
def test_daylight_saving(text: str, day: str, told: str) -> None:
    assert parsed(text).latest(at(day)) == at(told)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("every 0 h", "not from 1 minute"),
        ("every 400 d", "not from 1 minute"),
        ("24:00", "not a schedule"),
        ("3:00", "not a schedule"),
        ("every 6 hours", "not a schedule"),
        ("", "not a schedule"),
        ("03:00 Europe/Berlim", "not a time zone"),
        ("03:00 ../etc/passwd", "not a time zone"),
        ("03:00 Europe", "not a time zone"),
    ],
)
def test_what_is_no_schedule_is_refused(text: str, told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        JobsSettings(retention=text)


def test_a_job_may_be_off() -> None:
    assert schedule_of(JobsSettings(decay="off").decay) is None
