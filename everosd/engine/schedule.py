"""Cron arithmetic: the moments of five fields in a time zone, also in the nights on which the clocks are changed.

A cron that names every hour counts real time: it fires on through both changes. Any other fires once for each moment that it
names on the clock on the wall: one that is skipped fires at the change, one that comes twice the first time. croniter only
counts on a calendar without changes; its own handling of them fires twice or not at all.
"""

from __future__ import annotations

import calendar
import datetime as dt
import re
from collections.abc import Iterable, Sequence
from typing import Protocol

FIELDS = 5

WEEK = dt.timedelta(days=7)
DAY = dt.timedelta(days=1)
MINUTE = dt.timedelta(minutes=1)
LEAST = dt.timedelta(microseconds=1)

_HORIZON = 400 * DAY
"""So far is looked for two fires within a week: every day and month comes by, and every weekday's turn."""

_EPOCH = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
_MONTHS = frozenset("jan feb mar apr may jun jul aug sep oct nov dec".split())  # noqa: SIM905 - reads better than a list
_WEEKDAYS = frozenset("mon tue wed thu fri sat sun l".split())  # noqa: SIM905 - reads better than a list
_FIELDS = (
    ("minute", 0, 59, frozenset[str]()),
    ("hour", 0, 23, frozenset[str]()),
    ("day", 1, 31, frozenset("l")),
    ("month", 1, 12, _MONTHS),
    ("weekday", 0, 7, _WEEKDAYS),
)
"""What each may be, in numbers and in words."""
_PART = re.compile(r"(?<!/)\b[a-z0-9]+\b", re.IGNORECASE)
"""Not how often: that may be any number."""
_CHANCE = re.compile(r"(?<![a-z])[hr](?![a-z])", re.IGNORECASE)
"""croniter's words for a moment drawn by lot: another one at every look."""


def mistake(cron: str) -> str:
    """Return why `cron` names no moments; empty: it does."""
    if len(cron.split()) != FIELDS:  # croniter also takes six and seven, whose order nobody knows
        return f"expected five fields, minute hour day month weekday, such as '0 2 * * 1'; found {cron!r}"
    if _CHANCE.search(cron):
        return "names no moments: R and H are not supported"
    import croniter  # noqa: PLC0415  # 0.1 s, and most people never set one

    try:
        croniter.croniter(cron, _EPOCH).get_next()
    except croniter.CroniterBadDateError:
        return f"names no moments: {_day(cron)} never comes"
    except (croniter.CroniterError, ValueError, KeyError, AttributeError) as error:
        return f"names no moments: {_out_of_bounds(cron) or error}"
    return ""


def _day(cron: str) -> str:
    """Return the day that a cron names, for people."""
    day, month = cron.split()[2:4]
    if month.isdigit():
        return f"{day} {calendar.month_name[int(month)]}"
    return f"the day {day} of month {month}"


def _out_of_bounds(cron: str) -> str:
    """Return which field has what it cannot have; empty: something else is wrong."""
    for text, (name, least, most, words) in zip(cron.split(), _FIELDS, strict=True):
        for found in _PART.findall(text):
            is_number = found.isdigit()
            if (is_number and not least <= int(found) <= most) or (not is_number and found.lower() not in words):
                return f"{found} is no {name} ({least} to {most})"
    return ""


class Times(Protocol):
    """Moments of a cron, in one zone or in several. Arguments and answers are aware; answers are UTC."""

    @property
    def cron(self) -> str: ...  # noqa: D102  # the text

    @property
    def zones(self) -> str:
        """Return the names of the zones."""

    @property
    def is_hasty(self) -> bool:
        """Return whether it ever fires twice within less than a week, in one zone."""

    def after(self, moment: dt.datetime) -> dt.datetime | None:
        """Return the first fire later than `moment`; None: there is none in the calendar."""

    def latest(self, since: dt.datetime, until: dt.datetime) -> dt.datetime | None:
        """Return the last fire in (`since`, `until`]."""

    def grace(self, fire: dt.datetime) -> dt.timedelta:
        """Return how late a fire may still begin."""


def names(zones: Iterable[dt.tzinfo]) -> str:
    """Return the names of zones, each once, sorted."""
    return ", ".join(sorted({str(zone) for zone in zones}))


def of(cron: str, zones: Sequence[dt.tzinfo]) -> Times:
    """Return the moments of a cron in each of `zones`. Blocking: imports."""
    found = {str(zone): zone for zone in zones}
    made = [Schedule(cron, found[name]) for name in sorted(found)]
    return made[0] if len(made) == 1 else Several(made)


class Several:
    """The moments of one cron in several zones: each of them is a fire."""

    def __init__(self, schedules: Sequence[Schedule]) -> None:
        """Take those of each zone; there are at least two, of the same cron."""
        self._schedules = tuple(schedules)
        self.cron = schedules[0].cron
        self.zones = names(one.zone for one in schedules)
        self.is_hasty = schedules[0].is_hasty

    def after(self, moment: dt.datetime) -> dt.datetime | None:
        """Return the first fire later than `moment`; None: there is none in the calendar."""
        return min((found for one in self._schedules if (found := one.after(moment)) is not None), default=None)

    def latest(self, since: dt.datetime, until: dt.datetime) -> dt.datetime | None:
        """Return the last fire in (`since`, `until`]."""
        return max((found for one in self._schedules if (found := one.latest(since, until)) is not None), default=None)

    def grace(self, fire: dt.datetime) -> dt.timedelta:
        """Return how late a fire may still begin: as of the zone that it belongs to, however soon another's is."""
        return max(
            (one.grace(fire) for one in self._schedules if one.after(fire - LEAST) == fire),
            default=self._schedules[0].grace(fire),
        )


class Schedule:
    """The moments of one cron in one zone. Arguments and answers are aware; answers are UTC."""

    def __init__(self, cron: str, zone: dt.tzinfo) -> None:
        """Take a cron that has no `mistake`. Blocking: imports."""
        import croniter  # noqa: PLC0415  # 0.1 s, and most people never set one

        self.cron, self.zone, self.zones = cron, zone, str(zone)
        self._calendar = croniter.croniter(cron, _EPOCH)
        self._no_more = croniter.CroniterError
        self._names_every_hour = self._calendar.expanded[1] == ["*"]
        self.is_hasty = self._is_hasty()
        """Whether it ever fires twice within less than a week."""

    def after(self, moment: dt.datetime) -> dt.datetime | None:
        """Return the first fire later than `moment`; None: there is none in the calendar."""
        return self._in_real_time(moment) if self._names_every_hour else self._on_the_wall(moment)

    def latest(self, since: dt.datetime, until: dt.datetime) -> dt.datetime | None:
        """Return the last fire in (`since`, `until`]; the work is that of some twenty steps, however long that is."""
        found = self.after(since)
        if found is None or found > until:
            return None
        none_after = until
        while none_after - found >= MINUTE:
            middle = found + (none_after - found) / 2
            later = self.after(middle)
            if later is not None and later <= until:
                found = later
            else:
                none_after = middle
        return found

    def grace(self, fire: dt.datetime) -> dt.timedelta:
        """Return how late a fire may still begin: half the time until the next one."""
        following = self.after(fire)
        return DAY if following is None else (following - fire) / 2

    def _on_the_wall(self, moment: dt.datetime) -> dt.datetime | None:
        # Nothing that the wall shows earlier than now can be still to come: `_instant` never goes back.
        wall: dt.datetime | None = _minute(moment.astimezone(self.zone).replace(tzinfo=None))
        while (wall := self._next(wall)) is not None:
            due = self._instant(wall)
            if due > moment:
                return due
        return None

    def _in_real_time(self, moment: dt.datetime) -> dt.datetime | None:
        """Count from change to change, each stretch by the offset that it has."""
        since, offset = moment.astimezone(dt.UTC), self._offset(moment)
        wall: dt.datetime | None = _minute(_at(since, offset))
        while (wall := self._next(wall)) is not None:
            due = wall.replace(tzinfo=dt.UTC) - offset
            change = self._change(since, due)
            if change is None:
                return due
            since, offset = change, self._offset(change)
            wall = _minute(_at(change, offset) - LEAST)  # the change itself may be a fire
        return None

    def _next(self, wall: dt.datetime | None) -> dt.datetime | None:
        """Return the next moment on a calendar whose clocks are never changed."""
        if wall is None:
            return None
        try:
            found: dt.datetime = self._calendar.get_next(dt.datetime, start_time=wall.replace(tzinfo=dt.UTC))
        except (self._no_more, OverflowError, ValueError):
            return None
        return found.replace(tzinfo=None)

    def _instant(self, wall: dt.datetime) -> dt.datetime:
        """Return when the wall shows `wall` for the first time, or the moment that leaps over it (PEP 495)."""
        first = wall.replace(tzinfo=self.zone, fold=0).astimezone(dt.UTC)
        if first.astimezone(self.zone).replace(tzinfo=None, fold=0) == wall:
            return first
        before = wall.replace(tzinfo=self.zone, fold=1).astimezone(dt.UTC)
        return self._change(before, first) or first

    def _change(self, since: dt.datetime, until: dt.datetime) -> dt.datetime | None:
        """Return the first moment in (`since`, `until`] with another offset than `since`; no two are within one day."""
        offset = self._offset(since)
        while since < until:
            day = min(since + DAY, until)
            if self._offset(day) != offset:
                while day - since > LEAST:
                    middle = since + (day - since) / 2
                    since, day = (middle, day) if self._offset(middle) == offset else (since, middle)
                return day
            since = day
        return None

    def _offset(self, moment: dt.datetime) -> dt.timedelta:
        return moment.astimezone(self.zone).utcoffset() or dt.timedelta()

    def _is_hasty(self) -> bool:
        wall = self._next(_EPOCH.replace(tzinfo=None))
        until = _EPOCH.replace(tzinfo=None) + _HORIZON
        while wall is not None and wall < until:
            following = self._next(wall)
            if following is not None and following - wall < WEEK:
                return True
            wall = following
        return False


def _at(moment: dt.datetime, offset: dt.timedelta) -> dt.datetime:
    """Return what the wall shows."""
    return (moment + offset).replace(tzinfo=None)


def _minute(wall: dt.datetime) -> dt.datetime:
    return wall.replace(second=0, microsecond=0, fold=0)
