"""Moments as answers show them."""

from __future__ import annotations

import datetime as dt
import zoneinfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everosd import clock
from everosd.api import moment

MARCH = clock.to_us(dt.datetime(2026, 3, 2, 18, 39, 55, tzinfo=dt.UTC))


@pytest.mark.parametrize(
    ("us", "zone", "shown"),
    [
        (MARCH, "UTC", "2026-03-02T18:39:55Z"),
        (MARCH + 382_000, "UTC", "2026-03-02T18:39:55.382000Z"),
        (MARCH, "Europe/Berlin", "2026-03-02T19:39:55+01:00"),
        (MARCH, "Asia/Kathmandu", "2026-03-03T00:24:55+05:45"),
        (-1, "UTC", "1969-12-31T23:59:59.999999Z"),
    ],
)
def test_a_moment_is_shown_in_the_zone_of_the_memory(us: int, zone: str, shown: str) -> None:
    """The offset is explicit, `Z` for UTC; microseconds are shown where there are any."""
    assert shown == moment.iso(us, zoneinfo.ZoneInfo(zone))


def test_a_moment_at_the_end_of_the_calendar_is_shown_in_utc() -> None:
    """A zone that would push it past year 9999 does not make an error of it."""
    last = clock.to_us(dt.datetime(9999, 12, 31, 23, 59, tzinfo=dt.UTC))

    assert "9999-12-31T23:59:00Z" == moment.iso(last, zoneinfo.ZoneInfo("Asia/Tokyo"))


@given(
    st.integers(-60_000_000_000_000_000, 250_000_000_000_000_000),
    st.sampled_from(["UTC", "America/New_York", "Asia/Tokyo"]),
)
def test_the_instant_never_moves(us: int, zone: str) -> None:
    """Whatever the zone, what is shown reads back as the same microsecond."""
    assert us == clock.to_us(dt.datetime.fromisoformat(moment.iso(us, zoneinfo.ZoneInfo(zone))))
