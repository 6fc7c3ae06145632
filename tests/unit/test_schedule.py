"""Cron arithmetic: which moments a cron names, in which zone, in which night."""

from __future__ import annotations

import datetime as dt
import itertools
import random
import zoneinfo
from collections.abc import Iterator

import pytest

from everosd.engine import schedule

BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
SANTIAGO = zoneinfo.ZoneInfo("America/Santiago")
MINUTE = dt.timedelta(minutes=1)


def utc(*parts: int) -> dt.datetime:
    """Return a moment."""
    return dt.datetime(*parts, tzinfo=dt.UTC)  # type: ignore[arg-type, misc]


def fires(cron: str, zone: dt.tzinfo, since: dt.datetime, until: dt.datetime) -> Iterator[dt.datetime]:
    """Yield every fire in (since, until]."""
    times = schedule.Schedule(cron, zone)
    at = times.after(since)
    while at is not None and at <= until:
        yield at
        at = times.after(at)


def walls(cron: str, zone: dt.tzinfo, since: dt.datetime, until: dt.datetime) -> list[str]:
    """Return every fire as the clock on the wall shows it."""
    return [at.astimezone(zone).strftime("%a %d. %H:%M%z") for at in fires(cron, zone, since, until)]


@pytest.mark.parametrize(
    ("cron", "zone", "since", "shown"),
    [
        # At 02:00 the clock in Berlin is set to 03:00, on another Sunday at 03:00 to 02:00.
        ("30 2 * * *", BERLIN, (2026, 3, 28), ["Sat 28. 02:30+0100", "Sun 29. 03:00+0200", "Mon 30. 02:30+0200"]),
        ("30 2 * * *", BERLIN, (2026, 10, 24), ["Sat 24. 02:30+0200", "Sun 25. 02:30+0200", "Mon 26. 02:30+0100"]),
        ("0 3 * * 0", BERLIN, (2026, 3, 28), ["Sun 29. 03:00+0200"]),
        ("0 3 * * 0", BERLIN, (2026, 10, 24), ["Sun 25. 03:00+0100"]),
        # In Santiago midnight is skipped; on another day the hour before it comes twice.
        ("0 0 * * *", SANTIAGO, (2026, 9, 5, 12), ["Sun 06. 01:00-0300", "Mon 07. 00:00-0300", "Tue 08. 00:00-0300"]),
        ("0 0 * * *", SANTIAGO, (2026, 4, 4, 12), ["Sun 05. 00:00-0400", "Mon 06. 00:00-0400", "Tue 07. 00:00-0400"]),
        ("30 23 * * *", SANTIAGO, (2026, 4, 4, 12), ["Sat 04. 23:30-0300", "Sun 05. 23:30-0400", "Mon 06. 23:30-0400"]),
    ],
)
def test_T03_each_intended_day_has_one_fire_over_both_changes(
    cron: str, zone: dt.tzinfo, since: tuple[int, ...], shown: list[str]
) -> None:
    """What the change skips fires at the change, what comes twice fires the first time."""
    start = utc(*since)
    assert shown == walls(cron, zone, start, start + dt.timedelta(days=3))


@pytest.mark.parametrize("day", [(2026, 3, 28, 22), (2026, 10, 24, 22)])
@pytest.mark.parametrize("cron", ["*/5 * * * *", "*/5 0-23 * * *"])
def test_T03_a_cron_of_every_hour_fires_in_real_time_through_both_changes(cron: str, day: tuple[int, ...]) -> None:
    """Every five minutes, whatever the clock on the wall does."""
    start = utc(*day)
    found = list(fires(cron, BERLIN, start, start + dt.timedelta(hours=8)))
    assert [start + n * 5 * MINUTE for n in range(1, 97)] == found


def test_M22_weekdays_are_those_of_every_cron() -> None:
    """Day 1 is Monday; 0, 7 and sun are Sunday."""
    friday = utc(2026, 3, 6)
    week = friday + dt.timedelta(days=7)
    assert ["Mon 09. 02:00+0000"] == walls("0 2 * * 1", dt.UTC, friday, week)
    for sunday in ("0", "7", "sun", "SUN"):
        assert ["Sun 08. 03:00+0000"] == walls(f"0 3 * * {sunday}", dt.UTC, friday, week)
    assert ["Fri 06. 04:00+0000", "Sat 07. 04:00+0000", "Sun 08. 04:00+0000"] == walls(
        "0 4 * * 5-7", dt.UTC, friday, week
    )


def _enumerated(cron: str, zone: dt.tzinfo, since: dt.datetime, until: dt.datetime) -> list[dt.datetime]:
    """Return fires as somebody finds them who looks at the wall each minute, and never at a formula."""
    minutes, hours = ({*_values(field, n)} for field, n in zip(cron.split()[:2], (60, 24), strict=True))
    found, shown, before = [], set(), None
    at = since - dt.timedelta(hours=3)
    while (at := at + MINUTE) <= until:
        wall = at.astimezone(zone).replace(tzinfo=None, fold=0)
        new = [wall] if len(hours) == 24 else []
        while len(hours) < 24 and before is not None and before < wall:
            before += MINUTE
            new += [] if before in shown else [before]
        shown |= set(new)
        before = wall
        if at > since and any(each.minute in minutes and each.hour in hours for each in new):
            found.append(at)
    return found


def _values(field: str, n: int) -> Iterator[int]:
    if field == "*":
        yield from range(n)
    for part in field.split(",") if field != "*" else ():
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


CHANGES = [
    ("Europe/Berlin", utc(2026, 3, 29)),
    ("Europe/Berlin", utc(2026, 10, 25)),
    ("America/Santiago", utc(2026, 9, 6)),
    ("America/Santiago", utc(2026, 4, 5)),
    ("Australia/Lord_Howe", utc(2026, 10, 3, 12)),  # half an hour
    ("Australia/Lord_Howe", utc(2026, 4, 4, 12)),
    ("America/New_York", utc(2026, 11, 1)),
    ("Asia/Kathmandu", utc(2026, 3, 1)),
]


CRONS = ["30 2 * * *", "0 0 * * *", "7 * * * *", "*/9 * * * *", "0,20,40 1-3 * * *", "15 0,23 * * *", "0 0,2,4 * * *"]


@pytest.mark.parametrize(("place", "midnight"), CHANGES)
def test_fires_are_those_that_a_watcher_of_the_wall_sees(place: str, midnight: dt.datetime) -> None:
    """From any second on; the latest of any stretch is the last of them; they only grow."""
    zone, chance = zoneinfo.ZoneInfo(place), random.Random(place)  # noqa: S311  # no secret
    since = midnight - dt.timedelta(hours=3)
    until = since + dt.timedelta(hours=9)
    for cron in CRONS:
        expected = _enumerated(cron.replace("*/9", "0,9,18,27,36,45,54"), zone, since, until)
        found = list(fires(cron, zone, since, until))
        assert expected == found, cron
        assert all(one < other for one, other in itertools.pairwise(found))
        a, b = sorted(since + dt.timedelta(seconds=chance.randrange(9 * 3600)) for _ in range(2))
        inside = [at for at in expected if a < at <= b]
        assert (inside[-1] if inside else None) == schedule.Schedule(cron, zone).latest(a, b), (cron, a, b)


def test_the_latest_fire_of_ten_years_takes_some_steps_only() -> None:
    """A daemon that was off for long is not held up."""
    times, n = schedule.Schedule("*/5 * * * *", BERLIN), [0]
    after = times.after

    def counted(moment: dt.datetime) -> dt.datetime | None:
        n[0] += 1
        return after(moment)

    times.after = counted  # type: ignore[method-assign]
    assert utc(2026, 1, 2) == times.latest(utc(2016, 1, 2), utc(2026, 1, 2, 0, 4, 59))
    assert n[0] < 50


def test_a_fire_has_half_the_time_to_the_next_one() -> None:
    """Two and a half minutes of five; three and a half days of a week."""
    assert dt.timedelta(minutes=2.5) == schedule.Schedule("*/5 * * * *", dt.UTC).grace(utc(2026, 3, 2))
    assert dt.timedelta(days=3.5) == schedule.Schedule("0 2 * * 1", dt.UTC).grace(utc(2026, 3, 2, 2))


@pytest.mark.parametrize(
    ("cron", "is_hasty"),
    [
        ("0 2 * * 1", False),
        ("0 2 1 * *", False),
        ("0 2 1,8,15,22 * *", False),
        ("0 2 * * 1#2", False),
        ("0 2 * * 1,4", True),
        ("0 2 */7 * *", True),  # the 29th and the 1st
        ("*/5 * * * *", True),
        ("0,30 2 * * 1", True),
    ],
)
def test_what_fires_more_than_weekly_is_hasty(cron: str, is_hasty: bool) -> None:  # noqa: FBT001
    """Two fires within less than seven days, in any month."""
    assert is_hasty == schedule.Schedule(cron, BERLIN).is_hasty


@pytest.mark.parametrize(
    "cron",
    [
        "",
        "0 2 * *",
        "0 2 * * 1 *",
        "@weekly",
        "0 24 * * *",
        "0 2 * * 8",
        "0 0 31 2 *",
        "R R * * *",
        "h 2 * * *",
        "a b c d e",
    ],
)
def test_what_names_no_moments_is_told(cron: str) -> None:
    """Also six fields, a day that never comes, and moments drawn by lot."""
    assert schedule.mistake(cron)


@pytest.mark.parametrize(
    ("cron", "said"),
    [
        ("61 * * * *", "61 is no minute (0 to 59)"),
        ("0 25 * * *", "25 is no hour (0 to 23)"),
        ("0 2 0 * *", "0 is no day (1 to 31)"),
        ("0 2 * 13 *", "13 is no month (1 to 12)"),
        ("0 2 * * 1,9", "9 is no weekday (0 to 7)"),
        ("0 2 * * monday", "monday is no weekday (0 to 7)"),
        ("0 2 30 2 *", "30 February never comes"),
        ("0 2 31 4,6 *", "the day 31 of month 4,6 never comes"),
    ],
)
def test_a_mistake_is_named_by_its_field(cron: str, said: str) -> None:
    """What cannot be, and what could; a day that no month has."""
    assert f"names no moments: {said}" == schedule.mistake(cron)


def test_what_names_moments_is_no_mistake() -> None:
    """Names of days and months, with the letters of lots in them."""
    for cron in ("0 2 * * 1", "*/5 * * * *", "0 2 * mar,apr thu", "0 0 29 2 *", "0 2 L * *"):
        assert not schedule.mistake(cron)


def test_a_day_that_comes_every_four_years_is_found_and_the_end_of_time_is_none() -> None:
    """The 29th of February; the year 9999."""
    assert utc(2028, 2, 29) == schedule.Schedule("0 0 29 2 *", dt.UTC).after(utc(2026, 3, 1))
    assert schedule.Schedule("0 0 1 1 *", dt.UTC).after(utc(9999, 6, 1)) is None
