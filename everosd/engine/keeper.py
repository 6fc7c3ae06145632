"""Keeps the time of one strategy: its row in the timetable, the silence, and how long there is nothing to do."""

from __future__ import annotations

import asyncio
import datetime as dt
import sqlite3
import uuid
from collections.abc import Callable

import structlog

from everosd import clock, errors
from everosd.engine import runs as records
from everosd.engine import schedule, timetable
from everosd.engine import settings as strategy_settings
from everosd.store import db

SLEEP_S = 30.0
"""Longest sleep: a machine that was suspended and a clock that was set are noticed after it."""

RETRY_S = 5.0
"""Wait after the ledger could not be read or written."""

log = structlog.get_logger(__name__)


class Keeper:
    """Knows what of the clock and of silence has been dealt with. Lives on the event loop."""

    def __init__(
        self,
        name: str,
        runs: records.Runs,
        time: clock.Clock,
        zone: Callable[[], dt.tzinfo],
        *,
        zones: Callable[[], tuple[dt.tzinfo, ...]] | None = None,
    ) -> None:
        """Count for the strategy `name`, presets in all of `zones`; a silence begins now."""
        self._zones = zones
        self._name = name
        self._runs = runs
        self._clock = time
        self._zone = zone
        self.times: schedule.Times | None = None
        """Of the cron in force; None: none is, or it has not been looked at."""
        self.next_at: dt.datetime | None = None
        """When it fires next by the clock."""
        self._row: timetable.Row | None = None
        self._touched_s = time.monotonic_s()
        self._has_stirred = False
        """Something has happened in the silence that has had its run."""

    async def load(self) -> None:
        """Read how far an earlier daemon came; a ledger that cannot be read is asked again."""
        while True:
            try:
                self._row = await self._runs.database.write(lambda connection: timetable.load(connection, self._name))
            except db.DamagedStoreError:
                raise  # the daemon ends; the next start sets the ledger aside
            except errors.StoreError as error:
                log.error("schedule_not_read", strategy=self._name, reason=str(error), hint=error.hint)  # noqa: TRY400
                await self._clock.sleep(RETRY_S)
            else:
                return

    def touch(self) -> bool:
        """Something happened; return whether that ends a silence that has had its run."""
        self._touched_s = self._clock.monotonic_s()
        self._has_stirred = True
        return self._row is not None and self._row.is_quiet

    async def count_by(self, wanted: strategy_settings.Settings) -> None:
        """Go by the cron and the zone in force."""
        cron = wanted.times if wanted.enabled else None
        zones = self._zones() if wanted.is_by_owner and self._zones is not None else (self._zone(),)
        if cron is None:
            self.times = None
        elif self.times is None or (self.times.cron, self.times.zones) != (cron, schedule.names(zones)):
            self.times = await asyncio.to_thread(schedule.of, cron, zones)
        self.next_at = None if self.times is None else self.times.after(self._clock.now())

    def verdict(self, wanted: strategy_settings.Settings, desk: timetable.Desk) -> timetable.Verdict | None:
        """Return what is to be done now, one thing at a time."""
        seen = timetable.Seen(
            strategy=self._name,
            cron="" if self.times is None else self.times.cron,
            zone=str(self._zone()) if self.times is None else self.times.zones,
            times=self.times,
            idle_s=wanted.idle_seconds if wanted.enabled else None,
            now=self._clock.now(),
            quiet_s=self._clock.monotonic_s() - self._touched_s,
            has_stirred=self._has_stirred,
        )
        found = timetable.verdict(self._row, seen, desk)
        if found is not None and found.row is not None and self._row is not None:
            if found.row.handled_us < self._row.handled_us:
                log.warning("clock_was_ahead", strategy=self._name, until=self._row.handled_at.isoformat())
            if found.row.is_quiet and not self._row.is_quiet:
                self._has_stirred = False
        return found

    def once_more(self, due_at: dt.datetime, attempt: int) -> timetable.Row | None:
        """Return the row that counts one more attempt at a fire of the clock; as it is where another came since."""
        if self._row is None or self._row.handled_at != due_at:
            return self._row
        return timetable.with_attempt(self._row, attempt)

    async def save(self, row: timetable.Row | None, record: records.Record | None = None) -> None:
        """Write the row and a record in one transaction.

        Raises:
            errors.StoreError: neither is written.

        """

        def write(connection: sqlite3.Connection) -> None:
            if row is None:
                timetable.drop(connection, self._name)
            else:
                timetable.save(connection, row)

        await self._runs.flush(write, record)
        self._row = row

    def not_begun(self, found: timetable.Verdict, under_way: str) -> records.Record:
        """Return the record of fires that come to nothing, because of the run `under_way` or because they were missed."""
        zone, now = self._zone(), self._runs.now()
        said = f"was due at {found.due_at.astimezone(zone).isoformat(timespec='seconds')}"
        if found.first_at is not None:
            said += f", first at {found.first_at.astimezone(zone).isoformat(timespec='seconds')}"
        if found.act == "missed":
            said += ", while nothing ran here, and noticed too late to make up for it"
            log.warning("fire_missed", strategy=self._name, due_at=found.due_at.isoformat())
        else:
            said += f", while run {under_way} was under way"
            log.info("fire_skipped", strategy=self._name, due_at=found.due_at.isoformat())
        return records.Record(
            run_id=uuid.uuid4().hex,
            strategy=self._name,
            trigger=found.trigger,
            status=found.act,
            attempt=0,
            started_at=now,
            finished_at=now,
            error=said,
        )

    def sleep_s(self, wanted: strategy_settings.Settings) -> float:
        """Return how long nothing can come due."""
        moments = [SLEEP_S]
        if self.next_at is not None:
            moments.append((self.next_at - self._clock.now()).total_seconds())
        if wanted.enabled and wanted.idle_seconds is not None and not (self._row is not None and self._row.is_quiet):
            left_s = wanted.idle_seconds - (self._clock.monotonic_s() - self._touched_s)
            moments.append(left_s if left_s > 0 else SLEEP_S)  # it waits for a dry run, whose end is told
        return min(moments)
