"""Which fires of the clock have been dealt with: one row per strategy, and what follows from it at a moment."""

from __future__ import annotations

import datetime as dt
import sqlite3
from typing import Literal

import msgspec

from everosd import clock
from everosd.engine import schedule

MAX_BACK = dt.timedelta(days=1)
"""A clock that is set back by less is waited for, so that no fire is done twice; a row from farther ahead is an error."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """How far one strategy has come."""

    strategy: str
    cron: str
    """That it is counted by; empty: none."""
    zone: str
    handled_us: int
    """Fires due up to here have begun, were skipped or missed, or are from before the cron was in force."""
    attempt: int = 0
    """How often the run of `handled_us` was begun, while it has not come to its end; else 0."""
    is_quiet: bool = False
    """The silence that goes on has had its run."""

    @property
    def handled_at(self) -> dt.datetime:
        """Return `handled_us` as a moment."""
        return clock.from_us(self.handled_us)


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What is so at a moment."""

    strategy: str
    cron: str
    """In force; empty: none, or the strategy is disabled."""
    zone: str
    times: schedule.Times | None
    """Of `cron`; None: there is none."""
    idle_s: float | None
    """After so much silence it is fired; None: it is not, or is disabled."""
    now: dt.datetime
    quiet_s: float
    """Since anything happened."""
    has_stirred: bool = False
    """Something has happened since the silence had its run."""


class Desk(msgspec.Struct, frozen=True, kw_only=True):
    """How the strategy is doing at a moment."""

    is_first: bool = False
    """Nothing has been decided since the daemon started."""
    is_busy: bool = False
    """A run is under way."""
    is_dry: bool = False
    """That only shows what would be done: a fire waits for its end."""
    has_more: bool = False
    """A run that failed waits for its next attempt."""
    max_retries: int = 0


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done, and the row that says that it was."""

    act: Literal["begin", "missed", "skipped", "note"]
    row: Row | None
    """To be written together with the record of the run; None: the strategy is counted no more."""
    trigger: Literal["cron", "idle"] = "cron"
    due_at: dt.datetime
    """When it was due."""
    first_at: dt.datetime | None = None
    """When the first of several fires that are dealt with together was due; None: there is one."""
    attempt: int = 1
    """More than 1: it was begun before, and was cut off."""


def verdict(row: Row | None, seen: Seen, desk: Desk) -> Verdict | None:
    """Return what is to be done now, one thing at a time; None: nothing. Pure."""
    if not seen.cron and seen.idle_s is None:
        return None if row is None else Verdict(act="note", row=None, due_at=seen.now)
    if row is None or (row.cron, row.zone) != (seen.cron, seen.zone):
        is_quiet = row is not None and row.is_quiet
        counted = Row(
            strategy=seen.strategy,
            cron=seen.cron,
            zone=seen.zone,
            handled_us=clock.to_us(seen.now),
            is_quiet=is_quiet,
        )
        return Verdict(act="note", row=counted, due_at=seen.now)
    if row.is_quiet and seen.has_stirred:
        return _note(row, seen, is_quiet=False)
    found = None if seen.times is None else _by_the_clock(row, seen, seen.times, desk)
    if found is None:
        found = _by_silence(row, seen, desk)
    if found is None and row.attempt and not (desk.is_busy or desk.has_more):
        found = _note(row, seen, attempt=0)
    return found


def _by_the_clock(row: Row, seen: Seen, times: schedule.Times, desk: Desk) -> Verdict | None:
    if _is_ahead(row, times, seen.now):
        return _note(row, seen, handled_us=clock.to_us(seen.now))
    due = times.latest(row.handled_at, seen.now)
    if due is None:
        return _again(row, seen, times, desk)
    is_late = seen.now - due > times.grace(due)
    if desk.is_dry and not is_late:
        return None
    first = times.after(row.handled_at)
    after = msgspec.structs.replace(row, handled_us=clock.to_us(due))
    found = Verdict(act="missed", row=after, due_at=due, first_at=None if first == due else first)
    if is_late:
        return found
    if desk.is_busy:
        return msgspec.structs.replace(found, act="skipped")
    return msgspec.structs.replace(found, act="begin", row=with_attempt(after, 1))


def _again(row: Row, seen: Seen, times: schedule.Times, desk: Desk) -> Verdict | None:
    """Have the run of the last fire begun again where it was cut off, by a stop or a crash."""
    is_in_time = seen.now - row.handled_at <= times.grace(row.handled_at)
    if not desk.is_first or desk.is_busy or not 0 < row.attempt <= desk.max_retries or not is_in_time:
        return None
    attempt = row.attempt + 1
    return Verdict(act="begin", row=with_attempt(row, attempt), due_at=row.handled_at, attempt=attempt)


def _by_silence(row: Row, seen: Seen, desk: Desk) -> Verdict | None:
    if seen.idle_s is None or row.is_quiet or seen.quiet_s < seen.idle_s or desk.is_dry:
        return None
    after = msgspec.structs.replace(row, is_quiet=True)
    return Verdict(act="skipped" if desk.is_busy else "begin", row=after, trigger="idle", due_at=seen.now)


def _is_ahead(row: Row, times: schedule.Times, now: dt.datetime) -> bool:
    """Tell whether `row` was written by a clock that was wrong: fires that it has behind it are still to come."""
    if row.handled_at - now <= MAX_BACK:
        return False
    following = times.after(now)
    return following is not None and following < row.handled_at


def _note(row: Row, seen: Seen, **changes: object) -> Verdict:
    return Verdict(act="note", row=msgspec.structs.replace(row, **changes), due_at=seen.now)


def with_attempt(row: Row, attempt: int) -> Row:
    """Return the row once a run of its last fire was begun so often."""
    return msgspec.structs.replace(row, attempt=attempt)


def load(connection: sqlite3.Connection, strategy: str) -> Row | None:
    """Return the row of a strategy; None: there is none."""
    found = connection.execute(
        "SELECT cron, zone, handled_us, attempt, is_quiet FROM schedules WHERE strategy = ?", (strategy,)
    ).fetchone()
    if found is None:
        return None
    cron, zone, handled_us, attempt, is_quiet = found
    return Row(strategy=strategy, cron=cron, zone=zone, handled_us=handled_us, attempt=attempt, is_quiet=bool(is_quiet))


def save(connection: sqlite3.Connection, row: Row) -> None:
    """Put a row in place of the one before."""
    connection.execute(
        "INSERT OR REPLACE INTO schedules (strategy, cron, zone, handled_us, attempt, is_quiet) VALUES (?, ?, ?, ?, ?, ?)",
        (row.strategy, row.cron, row.zone, row.handled_us, row.attempt, row.is_quiet),
    )


def drop(connection: sqlite3.Connection, strategy: str) -> None:
    """Forget that a strategy was ever counted: it counts from now once it is enabled again."""
    connection.execute("DELETE FROM schedules WHERE strategy = ?", (strategy,))
