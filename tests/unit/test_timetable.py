"""What is to be done at a moment: no fire is dealt with twice, and none is passed over."""

from __future__ import annotations

import datetime as dt
import itertools
import random
import zoneinfo

import msgspec
import pytest

from everosd.engine import schedule, timetable

BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
START = dt.datetime(2026, 3, 28, 12, tzinfo=dt.UTC)
"""The clocks are changed in the night that follows."""


def seen(times: schedule.Schedule, now: dt.datetime) -> timetable.Seen:
    """Return a moment at which nothing but the clock matters."""
    return timetable.Seen(
        strategy="s", cron=times.cron, zone=str(times.zone), times=times, idle_s=None, now=now, quiet_s=0.0
    )


@pytest.mark.parametrize("cron", ["*/5 * * * *", "30 2 * * *", "0 1,2,3 * * *", "17 */2 * * *"])
def test_T01_through_stops_naps_and_busy_hours_each_fire_is_dealt_with_once(cron: str) -> None:
    """Looks come after seconds or after days, while a run is under way or not, after restarts or not."""
    times = schedule.Schedule(cron, BERLIN)
    for seed in range(10):
        chance, row = random.Random(seed), None  # noqa: S311  # no secret
        now = began = START
        dealt: list[tuple[dt.datetime, dt.datetime]] = []
        for _ in range(30):
            now += dt.timedelta(seconds=chance.choice((5, 30, 400, 4000, 40_000)) * chance.random())
            desk = timetable.Desk(
                is_first=chance.random() < 0.3,
                is_busy=chance.random() < 0.3,
                has_more=chance.random() < 0.1,
                max_retries=3,
            )
            while (found := timetable.verdict(row, seen(times, now), desk)) is not None:
                is_new = row is not None and found.row is not None and found.row.handled_us > row.handled_us
                if found.act == "begin":
                    desk = msgspec.structs.replace(desk, is_busy=True, is_first=False)
                    assert is_new or found.attempt > 1
                    assert now - found.due_at <= times.grace(found.due_at)
                if found.act != "note" and is_new:
                    dealt.append((found.first_at or found.due_at, found.due_at))
                began, row = (now if row is None else began), found.row
        assert times.after(began) == dealt[0][0], "it counts from the first look"
        for (_, last), (first, _) in itertools.pairwise(dealt):
            assert times.after(last) == first, "none twice, none passed over"
        assert times.latest(dealt[-1][1], now) is None


def test_a_cut_off_run_is_begun_again_at_the_start_only_and_within_its_grace() -> None:
    """Attempt 2 of the same fire; not after the first look, not too late, not too often, not where another fire is due."""
    times = schedule.Schedule("0 2 * * 1", dt.UTC)
    due = dt.datetime(2026, 3, 2, 2, tzinfo=dt.UTC)
    row = timetable.Row(
        strategy="s", cron=times.cron, zone="UTC", handled_us=int(due.timestamp()) * 1_000_000, attempt=1
    )
    first = timetable.Desk(is_first=True, max_retries=3)

    def act(row: timetable.Row, desk: timetable.Desk, hours: float) -> tuple[str, int, int]:
        found = timetable.verdict(row, seen(times, due + dt.timedelta(hours=hours)), desk)
        assert found is not None
        assert found.row is not None
        return found.act, found.attempt, found.row.attempt

    assert ("begin", 2, 2) == act(row, first, 1)
    assert ("note", 1, 0) == act(row, msgspec.structs.replace(first, is_first=False), 1)
    assert ("note", 1, 0) == act(row, first, 4 * 24)
    assert ("note", 1, 0) == act(msgspec.structs.replace(row, attempt=4), first, 1)
    assert ("begin", 1, 1) == act(row, first, 7 * 24 + 1)
