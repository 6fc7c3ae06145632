"""One strategy that the clock or a silence fires: one run at a time, none twice, and none lost without a word.

What is due is decided by `timetable.verdict`; its row is written together with the record of the run, before the run begins.
So a crash leaves either a fire that is still due, or a run that is on record and is begun again.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import uuid
from collections.abc import Awaitable, Callable, Iterator

import msgspec
import structlog

from everosd import clock, errors, types
from everosd.engine import backoff, keeper, recovery, shown, timetable
from everosd.engine import firing as fires
from everosd.engine import lane as lanes
from everosd.engine import runs as records
from everosd.engine import settings as strategy_settings
from everosd.engine import strategy as strategies
from everosd.store import db

LEAST_S = 0.001
"""Shortest sleep: a clock may be a moment behind what was waited for."""

KEPT_S, MAX_KEPT_CHARS = 600.0, 1_000_000
"""What a dry run found is kept so long, up to so much of it, for whoever asks again after waiting too short for it."""

log = structlog.get_logger(__name__)


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What all timed strategies of an engine share."""

    settings: strategy_settings.Watcher
    runs: records.Runs
    time: clock.Clock
    zone: Callable[[], dt.tzinfo]
    """`memory.timezone`, as it is in force."""
    caught_up: Callable[[], Awaitable[None]]
    """Waits until the ledger is in step with what was on disk at the start."""
    keeps_time: Callable[[], bool]
    """Whether clock and silence count here; else strategies run by hand alone."""
    on_change: Callable[[], None]
    """Called when a run has begun or ended, or will not be tried again."""


class _Dry(msgspec.Struct, frozen=True, kw_only=True):
    """A dry run that somebody asked for."""

    ticket: lanes.Ticket
    done: asyncio.Event
    """Set at its end."""


class Desk:
    """One timed strategy, with all that it has to do. Lives on the event loop."""

    def __init__(self, strategy: strategies.Timed, around: Surroundings) -> None:
        """Begin with nothing on record."""
        self.strategy = strategy
        self.last_run: records.Record | None = None
        self.given_up: fires.Firing | None = None
        self.is_stopping = False
        self._around = around
        self._clock = around.time
        self._group: asyncio.TaskGroup | None = None
        self._keeper = keeper.Keeper(strategy.name, around.runs, around.time, around.zone, zones=strategy.zones)
        self._under_way: fires.Firing | None = None
        self._began_s = 0.0
        self._aside: fires.Firing | None = None
        """To be tried again."""
        self._dry: _Dry | None = None
        """The newest dry run, while nobody has been told its end."""
        self._dry_ended_s = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_first = True
        self._is_recovered, self._wake = asyncio.Event(), asyncio.Event()

    # -- what the engine does with it ------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Return the strategy's name."""
        return self.strategy.name

    @property
    def is_busy(self) -> bool:
        """Whether a run is under way, or is to be tried again."""
        return self._under_way is not None or self._aside is not None

    @property
    def is_running(self) -> bool:
        """Whether a run is under way."""
        return self._under_way is not None

    def tasks(self) -> Iterator[asyncio.Task[None]]:
        """Yield what a stop waits for."""
        yield from self._tasks

    def recall(self, record: records.Record) -> None:
        """Take over what an earlier daemon gave up on; the newest is enough."""
        self._dig_out()
        self.given_up = fires.Firing("manual", dt.datetime.fromisoformat(record.started_at), attempt=record.attempt)
        self.given_up.record = record
        self.given_up.faults = self._max_retries() + 1

    def touch(self) -> None:
        """Something happened: a silence begins."""
        if self._keeper.touch():
            self._wake.set()

    def wake(self) -> None:
        """Have the settings looked at."""
        self._wake.set()

    def stop(self) -> None:
        """Begin nothing more, and tell what runs."""
        self.is_stopping = True
        self._wake.set()

    def open(self, group: asyncio.TaskGroup) -> None:
        """Have runs become tasks of `group`; what an earlier process began is finished before the first of them."""
        self._group = group
        self._begin_task(self._recover(), f"{self.name}-recover")

    async def run(self) -> None:
        """Keep time until cancelled; after `open`."""
        await self._keeper.load()
        is_failing = False
        while True:
            self._wake.clear()
            try:
                wait_s = await self._look()
                is_failing = False
            except db.DamagedStoreError:
                raise  # the daemon ends; the next start sets the ledger aside
            except errors.StoreError as error:  # nothing was begun: it stays due
                if not is_failing:
                    log.error("schedule_not_kept", strategy=self.name, reason=str(error), hint=error.hint)  # noqa: TRY400
                is_failing, wait_s = True, keeper.RETRY_S
            await clock.wait(self._wake, max(LEAST_S, wait_s), self._clock)

    def _begin_task(self, work: Awaitable[None], name: str) -> None:
        assert self._group is not None  # noqa: S101  # set by `run`
        task = self._group.create_task(_awaited(work), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._left)

    def _left(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._around.on_change()

    # -- keeping time ----------------------------------------------------------------------------------------------

    async def _look(self) -> float:
        """Do what is due; return how long to sleep."""
        wanted = self._wanted()
        if self._aside is not None and not wanted.enabled:
            aside, self._aside = self._aside, None
            self._bury(aside)
            self._around.on_change()
        await self._keeper.count_by(wanted)
        if self._around.keeps_time():
            while not self.is_stopping and (found := self._keeper.verdict(wanted, self._now())) is not None:
                await self._do(found)
            self._is_first = False
        again = self._aside
        if again is None or self._under_way is not None or self.is_stopping:
            return self._keeper.sleep_s(wanted)
        if (left_s := again.due_s - self._clock.monotonic_s()) > 0:
            return min(left_s, self._keeper.sleep_s(wanted))
        await self._begin(again, self._keeper.once_more(again.due_at, again.attempt + 1))
        return self._keeper.sleep_s(wanted)

    def _now(self) -> timetable.Desk:
        return timetable.Desk(
            is_first=self._is_first,
            is_busy=self._under_way is not None,
            is_dry=self._under_way is not None and self._under_way.is_dry_run,
            has_more=self._aside is not None,
            max_retries=self._max_retries(),
        )

    async def _do(self, found: timetable.Verdict) -> None:
        if found.act == "begin":
            firing = fires.Firing(found.trigger, found.due_at, attempt=found.attempt - 1, first_at=found.first_at)
            await self._begin(firing, found.row)
        elif found.act == "note":
            await self._keeper.save(found.row)
        else:
            busy = self._under_way
            record = self._keeper.not_begun(found, busy.run_id if busy is not None else "")
            await self._keeper.save(found.row, record)
            if found.act == "missed":
                self.last_run = record

    # -- one run ---------------------------------------------------------------------------------------------------

    async def _begin(self, firing: fires.Firing, row: timetable.Row | None) -> None:
        """Begin a run once it is on record that its fire has been dealt with.

        Raises:
            errors.StoreError: it cannot be recorded; nothing was begun.

        """
        record = self._enter(firing)
        try:
            await self._keeper.save(row, record)
        except BaseException:
            self._under_way = None
            firing.attempt -= 1
            self._around.on_change()
            raise
        self._aside = self._dry = None  # a new fire does what the old one did not, and what a dry run found is over
        self._dig_out()
        log.info("strategy_fired", strategy=self.name, trigger=firing.trigger, run_id=record.run_id)
        self._start(firing, record)

    def _start(self, firing: fires.Firing, record: records.Record) -> None:
        self._begin_task(self._attempt(firing, record), f"{self.name}-{record.run_id}")

    def _enter(self, firing: fires.Firing) -> records.Record:
        """Take the one place there is."""
        firing.attempt += 1
        firing.run_id = uuid.uuid4().hex
        self._under_way, self._began_s = firing, self._clock.monotonic_s()
        self._around.on_change()
        return records.Record(
            run_id=firing.run_id,
            strategy=self.name,
            trigger="dry_run" if firing.is_dry_run else firing.trigger,
            status="running",
            attempt=firing.attempt,
            started_at=self._around.runs.now(),
        )

    async def _attempt(self, firing: fires.Firing, record: records.Record) -> None:
        detail = None
        try:
            await self._is_recovered.wait()
            done = await self.strategy.run(firing.fire(lambda: self.is_stopping))
            if done.detail is not None:
                detail = msgspec.json.encode(done.detail).decode()
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                self._end(firing, msgspec.structs.replace(record, status="released"))
                raise
            self._failed(firing, record, error)
        except Exception as error:  # noqa: BLE001  # whatever a strategy raises, the others go on
            self._failed(firing, record, error)
        else:
            said = f"dry run: {done.note}" if firing.is_dry_run else done.note
            status = "released" if firing.is_told else "success"  # the next start, or the next fire, does the rest
            self._end(firing, msgspec.structs.replace(record, status=status, result=said), detail)
        finally:
            self._under_way = None
            self._wake.set()

    def _end(self, firing: fires.Firing, record: records.Record, detail: str | None = None) -> None:
        """Record how a run ended."""
        firing.record = msgspec.structs.replace(record, finished_at=self._around.runs.now())
        self._around.runs.put(firing.record)
        if firing.is_dry_run:
            self._dry_ended_s = self._clock.monotonic_s()
        else:
            self.last_run = firing.record
        if firing.ticket is not None:
            firing.ticket.end(firing.record, detail)
            firing.ticket = None

    def _failed(self, firing: fires.Firing, record: records.Record, error: BaseException) -> None:
        """Have a run tried again, or give it up."""
        said = errors.describe(error)[: backoff.MAX_ERROR]
        record = msgspec.structs.replace(record, error=said)
        is_away = backoff.is_away(error)
        firing.faults += not is_away
        is_over = firing.faults > self._max_retries() or not self._wanted().enabled  # which nothing would try again
        if not firing.is_dry_run and is_over:
            log.error("strategy_gave_up", strategy=self.name, attempts=firing.attempt, reason=said)
            self._end(firing, msgspec.structs.replace(record, status="dead_letter"))
            self.given_up = firing
            return
        self._end(firing, msgspec.structs.replace(record, status="failed"))
        if firing.is_dry_run:
            return
        wait_s = backoff.wait_s(firing.attempt, backoff.retry_after_s(error))
        firing.due_s = self._clock.monotonic_s() + wait_s
        self._aside = firing
        if not is_away or firing.attempt == backoff.LONG:
            log.warning("strategy_failed", strategy=self.name, reason=said, retry_s=round(wait_s, 1))

    def _bury(self, firing: fires.Firing) -> None:
        """Give up what waits for another attempt, since there will be none unless somebody asks for it."""
        assert firing.record is not None  # noqa: S101  # it has failed
        firing.record = self.last_run = msgspec.structs.replace(firing.record, status="dead_letter")
        self._around.runs.put(firing.record)
        self.given_up = firing

    def _dig_out(self) -> None:
        """Have what was given up count as such no more, on record too."""
        if self.given_up is not None and self.given_up.record is not None:
            self._around.runs.put(msgspec.structs.replace(self.given_up.record, status="failed"))
        self.given_up = None

    async def _recover(self) -> None:
        await self._around.caught_up()
        record = await recovery.recover(self.strategy, self._around.runs, self.last_run)
        self.last_run = record or self.last_run
        self._is_recovered.set()

    def _wanted(self) -> strategy_settings.Settings:
        return self._around.settings.of(self.name)

    def _max_retries(self) -> int:
        given = self._wanted().max_retries
        return self.strategy.max_retries if given is None else given

    # -- by hand ---------------------------------------------------------------------------------------------------

    async def trigger(self, *, timeout_s: float, force: bool, is_dry_run: bool) -> shown.Triggered:
        """Run it now, and wait for the end of the run; what failed or was given up is run again.

        A dry run that is under way, or has ended a moment ago and was waited for too short, is the one that is asked for.
        """
        if is_dry_run and (force or self._wanted().enabled) and (dry := self._dry_run()) is not None:
            return await self._waited(dry.ticket, dry.done, timeout_s, is_dry_run=True)
        if (busy := self._under_way) is not None:
            runs = (shown.Summary(run_id=busy.run_id, status="running"),)
            return shown.Triggered(status="not_dispatched", name=self.name, dispatched=0, runs=runs)
        if self._group is None or self.is_stopping or not (force or self._wanted().enabled):
            return shown.Triggered(status="not_dispatched", name=self.name, dispatched=0)
        done = asyncio.Event()
        firing = self._by_hand(is_dry_run=is_dry_run)
        record = self._enter(firing)
        ticket = firing.ticket = lanes.Ticket(record.run_id, done.set)
        ticket.status = record.status
        self._dry = _Dry(ticket=ticket, done=done) if is_dry_run else None
        self._around.runs.put(record)
        self._start(firing, record)
        return await self._waited(ticket, done, timeout_s, is_dry_run=is_dry_run)

    def _dry_run(self) -> _Dry | None:
        """Return the dry run whose end nobody was told, while it is worth telling."""
        dry = self._dry
        if dry is not None and dry.done.is_set():
            age_s = self._clock.monotonic_s() - self._dry_ended_s
            if age_s > KEPT_S or len(dry.ticket.detail or "") > MAX_KEPT_CHARS:
                dry = self._dry = None
        return dry

    async def _waited(
        self, ticket: lanes.Ticket, done: asyncio.Event, timeout_s: float, *, is_dry_run: bool
    ) -> shown.Triggered:
        if timeout_s > 0:
            await clock.wait(done, timeout_s, self._clock)
        if done.is_set() and self._dry is not None and self._dry.ticket is ticket:
            self._dry = None
        return shown.Triggered(
            status="ok" if done.is_set() else "timeout",
            name=self.name,
            dispatched=0 if is_dry_run else 1,
            runs=(ticket.summary(),),
        )

    def _by_hand(self, *, is_dry_run: bool) -> fires.Firing:
        if is_dry_run:
            return fires.Firing("manual", self._clock.now(), is_dry_run=True)
        found = self._aside or self.given_up or fires.Firing("manual", self._clock.now())
        found.trigger = "manual"
        self._dig_out()
        self._aside = None
        return found

    async def forget(self, owner: types.Owner) -> None:
        """Let go of an owner whose memory is gone."""
        if self.strategy.forget is not None:
            await self.strategy.forget(owner)

    def dead(self) -> Iterator[tuple[str, shown.Dead]]:
        """Yield what was given up, with when."""
        if (found := self.given_up) is not None and (record := found.record) is not None:
            one = shown.Dead(strategy=self.name, event=None, attempts=found.attempt, error=record.error or "")
            yield record.finished_at or "", one

    def status(self) -> shown.StrategyStatus:
        """Return what people ask for; cheap."""
        wanted, now_s = self._wanted(), self._clock.monotonic_s()
        times, next_at = self._keeper.times, self._keeper.next_at
        is_counted = wanted.enabled and times is not None and times.cron == wanted.times
        return shown.StrategyStatus(
            name=self.name,
            enabled=wanted.enabled,
            trigger="idle" if wanted.times is None and wanted.idle_seconds is not None else "cron",
            cron=wanted.times,
            idle_seconds=wanted.idle_seconds,
            next_fire_time=next_at.isoformat() if is_counted and next_at is not None else None,
            is_hasty=is_counted and times is not None and times.is_hasty,
            last_run=self.last_run,
            settings_error=self._around.settings.error_of(self.name),
            waiting=int(self._aside is not None),
            running=int(self._under_way is not None),
            running_s=now_s - self._began_s if self._under_way is not None else 0.0,
            dead=int(self.given_up is not None),
        )


async def _awaited(work: Awaitable[None]) -> None:
    await work
