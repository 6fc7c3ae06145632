"""The engine: strategies, what fires them, and what people ask of them.

Those that events fire are run by `events`, those of the clock and of silence by one `timed.Desk` each. The engine starts and
stops them together, watches their settings, and answers for them all.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Literal

import structlog

from everosd import clock, errors, types
from everosd.engine import backoff, events, shown, timed
from everosd.engine import desk as desks
from everosd.engine import lane as lanes
from everosd.engine import runs as records
from everosd.engine import settings as strategy_settings
from everosd.engine import strategy as strategies
from everosd.store import db

log = structlog.get_logger(__name__)


def nobody(_: str) -> None:
    """Tell nobody."""


def utc() -> dt.tzinfo:
    """Return the zone of those who name none."""
    return dt.UTC


async def at_once() -> None:
    """Wait for nothing."""


class Engine:
    """Runs strategies. Every method belongs to the event loop's thread."""

    def __init__(
        self,
        settings: strategy_settings.Watcher,
        runs: records.Runs,
        time: clock.Clock,
        concurrency: int = 4,
        *,
        zone: Callable[[], dt.tzinfo] = utc,
        caught_up: Callable[[], Awaitable[None]] = at_once,
    ) -> None:
        """Run at most `concurrency` lanes of each strategy at once, so that one that hangs leaves the others their share.

        Args:
            settings: Should have had its first look before events come in.
            runs: Where runs are recorded.
            time: The clock.
            concurrency: Lanes of a strategy at once.
            zone: `memory.timezone` as it is in force; crons are counted in it.
            caught_up: Waits until the ledger is in step with what was on disk at the start.

        """
        self.on_drained: Callable[[str], None] = nobody
        """Called once nothing of an origin is queued, running or to be tried again, and none of it became a dead letter.

        Events of one origin that are emitted without an await in between are taken as one: it is also called when no
        strategy listens to any of them. Origins that the listener does not know are not its own (`edit:…`)."""
        self.settings = settings
        self.keeps_time = True
        """Whether clock and silence fire strategies here; a command that opens the files has them run by hand alone."""
        self._runs = runs
        self._clock = time
        self._events = events.Events(settings, runs, time, concurrency, self._tell)
        self._events.on_end = self._has_changed
        self._timed: dict[str, timed.Desk] = {}
        self._around = timed.Surroundings(
            settings=settings,
            runs=runs,
            time=time,
            zone=zone,
            caught_up=caught_up,
            keeps_time=lambda: self.keeps_time,
            on_change=self._has_changed,
        )
        self.is_ready = asyncio.Event()
        """Every strategy is there, and what earlier runs left is known."""
        self._is_blind = False
        """Whether the last look at the settings ended in what nobody expected."""
        self._ended, self._settled = asyncio.Event(), asyncio.Event()

    def add(self, one: strategies.Strategy) -> None:
        """Take a strategy into the table; before `run`."""
        self._events.desks[one.name] = desks.Desk(one)

    def add_timed(self, one: strategies.Timed) -> None:
        """Take a strategy that is fired by the clock or by silence into the table; before `run`."""
        self._timed[one.name] = timed.Desk(one, self._around)

    def emit(self, event: strategies.Event) -> None:
        """Queue `event` for every enabled strategy that listens to it; one equal to it that still waits is the same."""
        self.touch()
        self._events.emit(event)
        self._settled.clear()

    def touch(self) -> None:
        """Take note that something happens: whatever waits for a silence waits for the next."""
        for desk in self._timed.values():
            desk.touch()

    # -- life ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Start what is due and watch `ome.toml`, until cancelled: then what runs is cancelled too."""
        await self._look()
        await self._recall()
        try:
            async with asyncio.TaskGroup() as group:
                for desk in self._timed.values():
                    desk.open(group)
                    group.create_task(desk.run(), name=f"strategies-{desk.name}")
                self.is_ready.set()
                group.create_task(self._watch(), name="strategies-settings")
                group.create_task(self._runs.run(), name="strategies-records")
                await self._events.run(group)
        finally:
            await self._runs.close()

    async def stop(self, grace_s: float = 5.0) -> None:
        """Start nothing more, give what runs `grace_s`, then cancel it; what was recorded is written."""
        self._events.is_stopping = True
        for desk in self._timed.values():
            desk.stop()
        until_s = self._clock.monotonic_s() + grace_s
        while any(self._tasks()) and (left_s := until_s - self._clock.monotonic_s()) > 0:
            self._ended.clear()
            await clock.wait(self._ended, left_s, self._clock)
        tasks = tuple(self._tasks())
        for task in tasks:
            task.cancel()
        if tasks:
            log.warning("strategies_cut_off", runs=len(tasks), after_s=grace_s)
            await asyncio.wait(tasks, timeout=grace_s)
        await self._runs.close()

    def _tasks(self) -> Iterator[asyncio.Task[None]]:
        yield from self._events.tasks()
        for desk in self._timed.values():
            yield from desk.tasks()

    async def _recall(self) -> None:
        """Take over what earlier runs left on record."""
        last, dead = await self._records()
        for record in last:
            desk = self._timed.get(record.strategy) or self._events.desks.get(record.strategy)
            if desk is not None and desk.last_run is None:
                desk.last_run = record
        for record in dead:
            if (one := self._timed.get(record.strategy)) is not None:
                one.recall(record)
            else:
                self._events.recall(record)

    async def _records(self) -> tuple[list[records.Record], list[records.Record]]:
        while True:
            try:
                return await self._runs.open()
            except db.DamagedStoreError:
                raise  # the daemon ends; the next start sets the ledger aside
            except errors.StoreError as error:
                log.error("runs_not_read", reason=str(error), hint=error.hint)  # noqa: TRY400  # tried again
                await self._clock.sleep(backoff.RETRY_S)

    async def _watch(self) -> None:
        """Look at ome.toml all the time; what waits for a strategy that was turned off is let go."""
        while True:
            await self._clock.sleep(strategy_settings.LOOK_S)
            if await self._look():
                self._events.drop_disabled()
                for desk in self._timed.values():
                    desk.wake()

    async def _look(self) -> bool:
        """Have the settings looked at; whatever a file does to what reads it, the settings in force stay so."""
        try:
            found = await self.settings.look()
        except Exception:  # looked at again in a moment
            if not self._is_blind:
                log.exception("strategies_not_read", path=str(self.settings.path))
            self._is_blind = True
            return False
        self._is_blind = False
        return found

    def _has_changed(self) -> None:
        """Have a turn after a run has begun or ended."""
        self._ended.set()
        if any(desk.is_busy for desk in self._timed.values()):
            self._settled.clear()
        self._events.turn_soon()

    def _tell(self) -> None:
        """Tell of origins of which nothing is left, and whoever waits for there to be nothing at all."""
        for origin in self._events.origins.drained():
            try:
                self.on_drained(origin)
            except Exception:  # the listener's fault must not end the runs of everybody
                log.exception("drained_not_told")
        if self._events.is_idle() and not any(desk.is_busy for desk in self._timed.values()):
            self._settled.set()

    async def forget(self, owner: types.Owner) -> None:
        """Let go of all that waits, was given up or is remembered of an owner whose memory is gone, and end what runs.

        What the clock fired goes on, and lets go of that owner by itself.
        """
        await self._events.forget(owner)
        for desk in self._timed.values():
            await desk.forget(owner)
        await self._runs.forget(owner)

    # -- by hand ---------------------------------------------------------------------------------------------------

    async def trigger(
        self, name: str, *, timeout_s: float = 120.0, force: bool = False, dry_run: bool = False
    ) -> shown.Triggered:
        """Run a strategy of the clock, or what one of events gave up on or is to try again, now, and wait for it.

        Args:
            name: Of the strategy.
            timeout_s: How long to wait for the runs to end; 0: not at all.
            force: Also where the strategy is disabled.
            dry_run: Only say what would be done, or be run.

        Raises:
            errors.NotFound: no strategy has that name.

        """
        if (one := self._timed.get(name)) is not None:
            return await one.trigger(timeout_s=timeout_s, force=force, is_dry_run=dry_run)
        desk = self._events.desks.get(name)
        if desk is None:
            if name in self.settings.names:  # of EverOS, and nothing runs under it
                return shown.Triggered(status="not_dispatched", name=name, dispatched=0)
            raise _not_found(name, (*self._events.desks, *self._timed))
        failed = desk.failed()
        if not failed or not (force or self._events.is_enabled(desk)):
            return shown.Triggered(status="not_dispatched", name=name, dispatched=0, runs=desk.under_way())
        if dry_run:
            runs = tuple(_would_run(job) for _, job in failed[: shown.MAX_SHOWN])
            return shown.Triggered(status="ok", name=name, dispatched=0, runs=runs)
        return await self._run_again(desk, failed, timeout_s)

    async def _run_again(
        self, desk: desks.Desk, failed: list[tuple[types.Owner, lanes.Job]], timeout_s: float
    ) -> shown.Triggered:
        done, left = asyncio.Event(), [len(failed)]

        def ended() -> None:
            left[0] -= 1
            if not left[0]:
                done.set()

        tickets = [lanes.Ticket(uuid.uuid4().hex, ended) for _ in failed]
        self._settled.clear()
        for (owner, job), ticket in zip(failed, tickets, strict=True):
            self._events.put_in_front(desk, owner, job, ticket)
        self._events.turn_soon()
        if left[0] and timeout_s > 0:
            await clock.wait(done, timeout_s, self._clock)
        runs = tuple(ticket.summary() for ticket in tickets[: shown.MAX_SHOWN])
        status: Literal["ok", "timeout"] = "timeout" if left[0] else "ok"
        return shown.Triggered(status=status, name=desk.strategy.name, dispatched=len(failed), runs=runs)

    # -- what people ask for ---------------------------------------------------------------------------------------

    async def settled(self, timeout_s: float) -> bool:
        """Wait until nothing is queued, running or to be tried again; False: not within `timeout_s`.

        Fires that are still to come are not waited for.
        """
        await clock.wait(self._settled, timeout_s, self._clock)
        return self._settled.is_set()

    @property
    def is_firing(self) -> bool:
        """Whether a strategy of the clock is being run, by whatever fired it."""
        return any(desk.is_running for desk in self._timed.values())

    def is_open(self, origin: str) -> bool:
        """Tell whether anything of an origin is queued, running or to be tried again."""
        return self._events.origins.is_open(origin)

    def status(self) -> tuple[shown.StrategyStatus, ...]:
        """Return every strategy that can run, and those of `ome.toml` that cannot yet; cheap."""
        names = dict.fromkeys((*self._events.desks, *self.settings.names, *self._timed))
        return tuple(map(self._status, names))

    def hasty(self) -> tuple[str, ...]:
        """Return the names of enabled strategies that the clock fires more than once a week."""
        return tuple(desk.name for desk in self._timed.values() if desk.status().is_hasty)

    def _status(self, name: str) -> shown.StrategyStatus:
        if (one := self._timed.get(name)) is not None:
            return one.status()
        desk, wanted, error = self._events.desks.get(name), self.settings.of(name), self.settings.error_of(name)
        if desk is None:
            trigger: strategies.Trigger = "cron" if wanted.cron else "event"
            return shown.StrategyStatus(
                name=name, enabled=wanted.enabled, trigger=trigger, cron=wanted.cron, settings_error=error
            )
        return desk.status(self.settings, self._clock.monotonic_s())

    def put_off(self) -> tuple[shown.Dead, ...]:
        """Return events that failed and are to be tried again by themselves."""
        return tuple(one for desk in self._events.desks.values() for one in desk.put_off())

    def dead(self) -> tuple[shown.Dead, ...]:
        """Return what was given up, oldest first."""
        found = [pair for desk in self._events.desks.values() for pair in desk.given_up()]
        found += [pair for desk in self._timed.values() for pair in desk.dead()]
        return tuple(one for _, one in sorted(found, key=lambda pair: pair[0]))


def _not_found(name: str, known: Iterable[str]) -> errors.NotFound:
    return errors.NotFound(f"no strategy is called {name[:100]}; there are {', '.join(known)}")


def _would_run(job: lanes.Job) -> shown.Summary:
    assert job.record is not None  # noqa: S101  # what failed has been run
    said = f"would be run again on {job.key[1]}, after {job.attempt} attempts"
    return shown.Summary(run_id=job.record.run_id, status=job.record.status, error=job.record.error, result=said)
