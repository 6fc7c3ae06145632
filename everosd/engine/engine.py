"""The engine: events become runs of strategies, in order for each owner, tried again where they fail.

A lane is one strategy for one owner: its runs go one after the other, in the order of the events, while lanes go side by
side. What fails waits aside with growing pauses and lets the others pass; what has failed too often is a dead letter,
until somebody triggers it or a new event asks for the same.
"""

from __future__ import annotations

import asyncio
import collections
import errno
import heapq
import random
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec
import structlog

from everosd import clock, errors, types
from everosd.engine import lane as lanes
from everosd.engine import runs as records
from everosd.engine import settings as strategy_settings
from everosd.engine import strategy as strategies
from everosd.store import db

RETRY_S, MAX_RETRY_S = 2.0, 900.0
"""Wait before the second attempt, and at most; it doubles in between."""

MAX_LANE_S = 60.0
"""How long the other events of an owner wait at most while a model, the network or the disk is away."""

MAX_DOUBLINGS = 12
JITTER = 0.25
"""Waits are longer or shorter by up to this share, so that what failed together is not tried together."""

LONG = 3
"""Attempts after which it is said that something is away: vectors, for one, are often only on their way."""

SLEEP_S = 30.0
"""Longest sleep: after it the clock is looked at again."""

MAX_SHOWN = 100
MAX_ERROR = 500
"""Characters of an error that are kept."""

_AWAY = (errors.LLMUnavailable, errors.StoreError, errors.WriteRefused, errors.IndexUnavailable)
_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE})

log = structlog.get_logger(__name__)


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """One run as an answer to a trigger shows it."""

    run_id: str
    status: str
    """`queued`, `running`, `success`, `failed` (it is tried again), `dead_letter`, `skipped` or `released`."""
    error: str | None = None
    result: str | None = None
    """What the strategy says it did; None while it has not ended."""


class Triggered(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a strategy that was fired by hand."""

    status: Literal["ok", "timeout", "not_dispatched"]
    """`ok`: what was dispatched has ended, one way or the other; `timeout`: not all of it has."""
    name: str
    dispatched: int
    """How many runs."""
    runs: tuple[Summary, ...] = ()
    """Those dispatched, at most `MAX_SHOWN`; where nothing was dispatched, those that are under way."""


class StrategyStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One strategy, as people ask for it."""

    name: str
    enabled: bool
    trigger: strategies.Trigger
    cron: str | None
    """None: not fired by the clock."""
    next_fire_time: str | None = None
    """ISO; None: not fired by the clock."""
    last_run: records.Record | None = None
    """The newest that has ended."""
    settings_error: str | None = None
    """What is wrong with `ome.toml` about it: its settings are those from before the mistake."""
    waiting: int = 0
    """Events that have not been run, those that are to be tried again included."""
    running: int = 0
    running_s: float = 0.0
    """How long the oldest of them has been running."""
    dead: int = 0


class Dead(msgspec.Struct, frozen=True, kw_only=True):
    """An event that a strategy gave up on: a trigger, or a new event about the same, runs it again."""

    strategy: str
    event: strategies.Event
    attempts: int
    error: str


class _Desk:
    """One strategy, with all that it has to do."""

    __slots__ = ("dead", "is_ailing", "lanes", "last_run", "ready", "running", "strategy")

    def __init__(self, one: strategies.Strategy) -> None:
        self.strategy = one
        self.lanes: dict[types.Owner, lanes.Lane] = {}
        """Of owners with something to do."""
        self.ready: collections.deque[lanes.Lane] = collections.deque()
        """In the order in which they get their turn."""
        self.running: dict[lanes.Lane, float] = {}
        """With the moment of their beginning."""
        self.dead: dict[types.Owner, dict[lanes.Key, lanes.Job]] = {}
        self.last_run: records.Record | None = None
        self.is_ailing = False
        """It has waited long for something that is away, which was said."""


class _Run(NamedTuple):
    """A run that is under way."""

    task: asyncio.Task[None]
    desk: _Desk
    lane: lanes.Lane
    job: lanes.Job


class Engine:
    """Runs strategies. Every method belongs to the event loop's thread."""

    def __init__(
        self,
        settings: strategy_settings.Watcher,
        runs: records.Runs,
        time: clock.Clock,
        concurrency: int = 4,
    ) -> None:
        """Run at most `concurrency` lanes of each strategy at once, so that one that hangs leaves the others their share.

        `settings` should have had its first look before events come in.
        """
        self.on_drained: Callable[[str], None] = nobody
        """Called once nothing of an origin is queued, running or to be tried again, and none of it became a dead letter.

        Events of one origin that are emitted without an await in between are taken as one: it is also called when no
        strategy listens to any of them. Origins that the listener does not know are not its own (`edit:…`)."""
        self.settings = settings
        self._runs = runs
        self._clock = time
        self._concurrency = concurrency
        self._desks: dict[str, _Desk] = {}
        self._timed: dict[str, strategies.Timed] = {}
        self._open: dict[str, int] = {}
        """Events per origin that are queued, running or to be tried again, once for each strategy."""
        self._n_dead: dict[str, int] = {}
        self._touched: dict[str, None] = {}
        """Origins of which something began or ended."""
        self._timers: list[tuple[float, int, _Desk, lanes.Lane]] = []
        self._n_timers = 0
        self._tasks: dict[asyncio.Task[None], lanes.Job] = {}
        self._group: asyncio.TaskGroup | None = None
        self.is_ready = asyncio.Event()
        """Every strategy is there, and what earlier runs left is known."""
        self._wake, self._ended, self._settled = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._is_turn_planned = False
        self._is_stopping = False

    def add(self, one: strategies.Strategy) -> None:
        """Take a strategy into the table; before `run`."""
        self._desks[one.name] = _Desk(one)

    def add_timed(self, one: strategies.Timed) -> None:
        """Take a strategy that is fired by the clock or by silence into the table; before `run`."""
        self._timed[one.name] = one

    # -- events in -------------------------------------------------------------------------------------------------

    def emit(self, event: strategies.Event) -> None:
        """Queue `event` for every enabled strategy that listens to it; one equal to it that still waits is the same."""
        for desk in self._desks.values():
            if event.topic in desk.strategy.topics and self._is_enabled(desk):
                self._queue(desk, event)
        if event.origin:
            self._touched[event.origin] = None
        self._settled.clear()
        self._turn_soon()

    def _queue(self, desk: _Desk, event: strategies.Event) -> None:
        one = desk.lanes.get(event.owner)
        if one is None:
            one = desk.lanes[event.owner] = lanes.Lane(event.owner)
        key = (event.topic, event.subject)
        origins: lanes.Origins = event.origin
        for job in self._forget_dead(desk, event.owner, key):
            origins, _ = lanes.joined(job.origins, origins)
        self._count(origins)
        self._discount(one.add(key, origins, is_per_owner=desk.strategy.is_per_owner))
        self._offer(desk, one)

    def _is_enabled(self, desk: _Desk) -> bool:
        return self.settings.of(desk.strategy.name).enabled

    def _count(self, origins: lanes.Origins) -> None:
        for origin in lanes.each(origins):
            self._open[origin] = self._open.get(origin, 0) + 1

    def _discount(self, origins: lanes.Origins | Iterable[str]) -> None:
        for origin in lanes.each(origins) if isinstance(origins, str) else origins:
            self._open[origin] -= 1
            if not self._open[origin]:
                del self._open[origin]
            self._touched[origin] = None

    # -- the loop --------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Start what is due and watch `ome.toml`, until cancelled: then what runs is cancelled too."""
        await self.settings.look()
        await self._recall()
        self.is_ready.set()
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                group.create_task(self._watch(), name="strategies-settings")
                group.create_task(self._runs.run(), name="strategies-records")
                while True:
                    self._wake.clear()
                    self._turn()
                    await clock.wait(self._wake, self._until_due_s(), self._clock)
        finally:
            self._group = None
            await self._runs.close()

    async def stop(self, grace_s: float = 5.0) -> None:
        """Start nothing more, give what runs `grace_s`, then cancel it; what was recorded is written."""
        self._is_stopping = True
        until_s = self._clock.monotonic_s() + grace_s
        while self._tasks and (left_s := until_s - self._clock.monotonic_s()) > 0:
            self._ended.clear()
            await clock.wait(self._ended, left_s, self._clock)
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            log.warning("strategies_cut_off", runs=len(tasks), after_s=grace_s)
            await asyncio.wait(tasks, timeout=grace_s)
        await self._runs.close()

    async def _recall(self) -> None:
        """Take over what earlier runs left on record."""
        last, dead = await self._records()
        for record in last:
            if (desk := self._desks.get(record.strategy)) is not None and desk.last_run is None:
                desk.last_run = record
        for record in dead:
            desk, event = self._desks.get(record.strategy), record.event
            key = (event.topic, event.subject)
            if desk is None or (event.owner in desk.lanes and desk.lanes[event.owner].has(key, desk.strategy)):
                continue
            job = lanes.Job(key, event.origin)
            job.attempt, job.record = record.attempt, record
            job.faults = self._max_retries(desk) + 1
            self._bury(desk, event.owner, job)

    async def _records(self) -> tuple[list[records.Record], list[records.Record]]:
        while True:
            try:
                return await self._runs.open()
            except db.DamagedStoreError:
                raise  # the daemon ends; the next start sets the ledger aside
            except errors.StoreError as error:
                log.error("runs_not_read", reason=str(error), hint=error.hint)  # noqa: TRY400  # tried again
                await self._clock.sleep(RETRY_S)

    async def _watch(self) -> None:
        """Look at ome.toml all the time; what waits for a strategy that was turned off is let go."""
        while True:
            await self._clock.sleep(strategy_settings.LOOK_S)
            if not await self.settings.look():
                continue
            for desk in self._desks.values():
                if not self._is_enabled(desk):
                    for one in tuple(desk.lanes.values()):
                        for job in one.clear():
                            self._discount(job.origins)
                        self._offer(desk, one)
            self._turn_soon()

    def _turn_soon(self) -> None:
        """Have a turn once the event loop is back: what is emitted until then is taken together."""
        if not self._is_turn_planned and self._group is not None:
            self._is_turn_planned = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        """Start everything that is due and has a place, and tell what is over."""
        self._is_turn_planned = False
        self._begin()
        self._tell()

    def _begin(self) -> None:
        now_s = self._clock.monotonic_s()
        while self._timers and self._timers[0][0] <= now_s:
            _, _, desk, one = heapq.heappop(self._timers)
            one.timer_s = float("inf")
            self._offer(desk, one)
        if self._is_stopping or self._group is None:
            return  # a turn that was planned before the end
        for desk in self._desks.values():
            while desk.ready and len(desk.running) < self._concurrency:
                one = desk.ready.popleft()
                one.is_ready = False
                job = one.take(now_s)
                if job is None:
                    self._offer(desk, one)
                elif job.ticket is None and not self._is_enabled(desk):
                    self._discount(job.origins)
                    self._offer(desk, one)
                else:
                    self._start(self._group, desk, one, job)

    def _offer(self, desk: _Desk, one: lanes.Lane) -> None:
        """Put a lane in line if it has something that is due, on a timer if it will have, away if it has nothing."""
        if one.is_empty:
            if desk.lanes.get(one.owner) is one:
                del desk.lanes[one.owner]
            return
        if one.running is not None or one.is_ready or (due_s := one.next_due_s()) is None:
            return
        if due_s <= self._clock.monotonic_s():
            one.is_ready = True
            desk.ready.append(one)
        elif due_s < one.timer_s:
            one.timer_s = due_s
            self._n_timers += 1
            heapq.heappush(self._timers, (due_s, self._n_timers, desk, one))
            if self._timers[0][3] is one:
                self._wake.set()  # earlier than what the loop sleeps for

    def _until_due_s(self) -> float:
        if not self._timers:
            return SLEEP_S
        return min(SLEEP_S, max(0.001, self._timers[0][0] - self._clock.monotonic_s()))

    def _tell(self) -> None:
        """Tell of origins of which nothing is left, and whoever waits for there to be nothing at all."""
        touched, self._touched = self._touched, {}
        for origin in touched:
            if origin in self._open or origin in self._n_dead:
                continue
            try:
                self.on_drained(origin)
            except Exception:  # the listener's fault must not end the runs of everybody
                log.exception("drained_not_told")
        if not self._touched and not any(desk.lanes for desk in self._desks.values()):
            self._settled.set()

    # -- one run ---------------------------------------------------------------------------------------------------

    def _start(self, group: asyncio.TaskGroup, desk: _Desk, one: lanes.Lane, job: lanes.Job) -> None:
        job.attempt += 1
        record = records.Record(
            run_id=uuid.uuid4().hex if job.ticket is None else job.ticket.run_id,
            strategy=desk.strategy.name,
            trigger="event" if job.ticket is None else "manual",
            status="running",
            attempt=job.attempt,
            started_at=self._runs.now(),
            event=job.event(one.owner),
        )
        if job.ticket is not None:
            job.ticket.status = "running"
        job.record = record
        self._runs.put(record)
        one.running = job
        desk.running[one] = self._clock.monotonic_s()
        task = group.create_task(self._attempt(desk, one, job, record), name=f"{record.strategy}-{record.run_id}")
        self._tasks[task] = job
        task.add_done_callback(self._left)

    def _left(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        self._ended.set()

    async def _attempt(self, desk: _Desk, one: lanes.Lane, job: lanes.Job, record: records.Record) -> None:
        try:
            result = await desk.strategy.run(record.event)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                # Its origin stays open: the next start has it all over again.
                self._end(desk, job, msgspec.structs.replace(record, status="released"))
                raise
            self._failed(desk, one, job, error)
        except Exception as error:  # noqa: BLE001  # whatever a strategy raises, the others go on
            self._failed(desk, one, job, error)
        else:
            desk.is_ailing = False
            one.n_setbacks, one.due_s = 0, 0.0
            self._discount(job.origins)
            self._end(desk, job, msgspec.structs.replace(record, status="success", result=result))
        finally:
            one.running = None
            del desk.running[one]
            self._offer(desk, one)
            self._turn_soon()

    def _end(self, desk: _Desk, job: lanes.Job, record: records.Record) -> None:
        """Record how a run ended."""
        record = job.record = desk.last_run = msgspec.structs.replace(record, finished_at=self._runs.now())
        self._runs.put(record)
        if job.ticket is not None:
            job.ticket.end(record)
            job.ticket = None

    def _failed(self, desk: _Desk, one: lanes.Lane, job: lanes.Job, error: BaseException) -> None:
        """Have a run tried again, or give it up."""
        assert job.record is not None  # noqa: S101  # it has been started
        name, said = desk.strategy.name, errors.describe(error)[:MAX_ERROR]
        is_away = isinstance(error, _AWAY) or (isinstance(error, OSError) and error.errno in _DISK)
        job.faults += not is_away
        record = msgspec.structs.replace(job.record, error=said)
        if job.faults > self._max_retries(desk):
            log.error("strategy_gave_up", strategy=name, subject=job.key[1], attempts=job.attempt, reason=said)
            self._end(desk, job, msgspec.structs.replace(record, status="dead_letter"))
            self._bury(desk, one.owner, job)
            self._discount(lanes.each(job.origins))
            return
        retry_after_s = error.retry_after_s if isinstance(error, errors.LLMUnavailable) else None
        wait_s = _wait_s(job.attempt, retry_after_s)
        now_s = self._clock.monotonic_s()
        job.due_s = now_s + wait_s
        if is_away:
            one.n_setbacks += 1
            one.due_s = now_s + max(min(_wait_s(one.n_setbacks, None), MAX_LANE_S), retry_after_s or 0.0)
        told = {"strategy": name, "subject": job.key[1], "reason": said, "retry_s": round(wait_s, 1)}
        if not is_away:
            log.warning("strategy_failed", **told)
        elif job.attempt >= LONG and not desk.is_ailing:
            desk.is_ailing = True
            log.warning("strategy_waits", **told)
        self._end(desk, job, msgspec.structs.replace(record, status="failed"))
        self._discount(one.put_aside(job, is_per_owner=desk.strategy.is_per_owner))

    def _max_retries(self, desk: _Desk) -> int:
        given = self.settings.of(desk.strategy.name).max_retries
        return desk.strategy.max_retries if given is None else given

    def _bury(self, desk: _Desk, owner: types.Owner, job: lanes.Job) -> None:
        """Put an event among those that were given up."""
        desk.dead.setdefault(owner, {})[job.key] = job
        for origin in lanes.each(job.origins):
            self._n_dead[origin] = self._n_dead.get(origin, 0) + 1

    def _forget_dead(self, desk: _Desk, owner: types.Owner, key: lanes.Key) -> Iterator[lanes.Job]:
        """Take out what was given up and is the same work as `key`."""
        found = desk.dead.get(owner)
        for each in tuple(found or ()):
            if found is not None and (each == key or desk.strategy.is_per_owner):
                yield self._dig_out(found.pop(each))
        if found is not None and not found:
            del desk.dead[owner]

    def _dig_out(self, job: lanes.Job) -> lanes.Job:
        """Have what was given up count as such no more, on record too."""
        for origin in lanes.each(job.origins):
            self._n_dead[origin] -= 1
            if not self._n_dead[origin]:
                del self._n_dead[origin]
        assert job.record is not None  # noqa: S101  # what was given up has been run
        self._runs.put(msgspec.structs.replace(job.record, status="failed"))
        return job

    # -- by hand ---------------------------------------------------------------------------------------------------

    async def trigger(
        self, name: str, *, timeout_s: float = 120.0, force: bool = False, dry_run: bool = False
    ) -> Triggered:
        """Run what a strategy gave up on, or is to try again, now, and wait for it.

        Args:
            name: Of the strategy.
            timeout_s: How long to wait for the runs to end; 0: not at all.
            force: Also where the strategy is disabled.
            dry_run: Only say what would be run.

        Raises:
            errors.NotFound: no strategy has that name.

        """
        desk = self._desks.get(name)
        if desk is None:
            if name in self.settings.names:  # of EverOS, and nothing runs under it
                return Triggered(status="not_dispatched", name=name, dispatched=0)
            raise _not_found(name, self._desks)
        found = [(owner, job) for owner, jobs in desk.dead.items() for job in jobs.values()]
        found += [(one.owner, job) for one in desk.lanes.values() for job in one.aside.values() if job.ticket is None]
        if not found or not (force or self._is_enabled(desk)):
            return Triggered(status="not_dispatched", name=name, dispatched=0, runs=_under_way(desk))
        if dry_run:
            runs = tuple(_would_run(job) for _, job in found[:MAX_SHOWN])
            return Triggered(status="ok", name=name, dispatched=0, runs=runs)
        done, left = asyncio.Event(), [len(found)]

        def ended() -> None:
            left[0] -= 1
            if not left[0]:
                done.set()

        tickets = [lanes.Ticket(uuid.uuid4().hex, ended) for _ in found]
        for (owner, job), ticket in zip(found, tickets, strict=True):
            self._put_in_front(desk, owner, job, ticket)
        self._turn_soon()
        until_s = self._clock.monotonic_s() + timeout_s
        while left[0] and (left_s := until_s - self._clock.monotonic_s()) > 0:
            await clock.wait(done, left_s, self._clock)
        runs = tuple(
            Summary(run_id=ticket.run_id, status=ticket.status, error=ticket.error, result=ticket.result)
            for ticket in tickets[:MAX_SHOWN]
        )
        return Triggered(status="timeout" if left[0] else "ok", name=name, dispatched=len(found), runs=runs)

    def _put_in_front(self, desk: _Desk, owner: types.Owner, job: lanes.Job, ticket: lanes.Ticket) -> None:
        """Have an event that failed run at once."""
        one = desk.lanes.setdefault(owner, lanes.Lane(owner))
        job.ticket = ticket
        if owner in desk.dead and desk.dead[owner].get(job.key) is job:
            del desk.dead[owner][job.key]
            if not desk.dead[owner]:
                del desk.dead[owner]
            self._count(self._dig_out(job).origins)
            self._discount(one.put_aside(job, is_per_owner=desk.strategy.is_per_owner))
        if one.aside.get(job.key) is not job:  # another run does the same
            ticket.skip()
            return
        self._settled.clear()
        self._offer(desk, one)

    async def forget(self, owner: types.Owner) -> None:
        """Let go of all that waits, was given up or is remembered of an owner whose memory is gone, and end what runs."""
        ending: list[_Run] = []
        for desk in self._desks.values():
            for job in tuple(desk.dead.pop(owner, {}).values()):
                self._touched |= dict.fromkeys(lanes.each(self._dig_out(job).origins))
            if (one := desk.lanes.get(owner)) is None:
                continue
            for job in one.clear():
                self._discount(job.origins)
            ending += [_Run(task, desk, one, job) for task, job in self._tasks.items() if job is one.running]
            self._offer(desk, one)
        await self._cut_off(ending)
        for desk in self._desks.values():
            if desk.strategy.forget is not None:
                desk.strategy.forget(owner)
        self._turn_soon()

    async def _cut_off(self, runs: Sequence[_Run]) -> None:
        """End runs in the middle; nothing of them is left to be done."""
        for task, *_ in runs:
            task.cancel()
        if runs:
            await asyncio.wait([task for task, *_ in runs])
        for task, desk, one, job in runs:
            if task.cancelled():  # else it ended by itself, and was counted
                self._discount(job.origins)
            if one.running is job:  # cancelled before it had begun
                one.running = None
                del desk.running[one]
                self._offer(desk, one)

    # -- what people ask for ---------------------------------------------------------------------------------------

    async def settled(self, timeout_s: float) -> bool:
        """Wait until nothing is queued, running or to be tried again; False: not within `timeout_s`."""
        await clock.wait(self._settled, timeout_s, self._clock)
        return self._settled.is_set()

    def is_open(self, origin: str) -> bool:
        """Tell whether anything of an origin is queued, running or to be tried again."""
        return origin in self._open

    def status(self) -> tuple[StrategyStatus, ...]:
        """Return every strategy that can run, and those of `ome.toml` that cannot yet; cheap."""
        names = dict.fromkeys((*self._desks, *self.settings.names))
        return tuple(self._status(name, self._desks.get(name)) for name in names)

    def _status(self, name: str, desk: _Desk | None) -> StrategyStatus:
        wanted, error = self.settings.of(name), self.settings.error_of(name)
        if desk is None:
            trigger: strategies.Trigger = "cron" if wanted.cron else "event"
            return StrategyStatus(
                name=name, enabled=wanted.enabled, trigger=trigger, cron=wanted.cron, settings_error=error
            )
        now_s = self._clock.monotonic_s()
        return StrategyStatus(
            name=name,
            enabled=wanted.enabled,
            trigger=desk.strategy.trigger,
            cron=wanted.cron,
            last_run=desk.last_run,
            settings_error=error,
            waiting=sum(map(len, desk.lanes.values())),
            running=len(desk.running),
            running_s=now_s - min(desk.running.values(), default=now_s),
            dead=sum(map(len, desk.dead.values())),
        )

    def put_off(self) -> tuple[Dead, ...]:
        """Return what failed and is to be tried again by itself."""
        return tuple(
            Dead(
                strategy=name,
                event=job.event(one.owner),
                attempts=job.attempt,
                error="" if job.record is None else job.record.error or "",
            )
            for name, desk in self._desks.items()
            for one in desk.lanes.values()
            for job in one.aside.values()
        )

    def dead(self) -> tuple[Dead, ...]:
        """Return what was given up, oldest first."""
        found: list[tuple[str, Dead]] = []
        for name, desk in self._desks.items():
            for owner, jobs in desk.dead.items():
                for job in jobs.values():
                    assert job.record is not None  # noqa: S101  # what was given up has been run
                    said = job.record.error or ""
                    one = Dead(strategy=name, event=job.event(owner), attempts=job.attempt, error=said)
                    found.append((job.record.finished_at or "", one))
        return tuple(one for _, one in sorted(found, key=lambda pair: pair[0]))


def nobody(_: str) -> None:
    """Tell nobody."""


def _wait_s(attempt: int, retry_after_s: float | None) -> float:
    """Return how long to wait after so many attempts; never shorter than the provider said."""
    plain_s: float = RETRY_S * 2.0 ** min(attempt - 1, MAX_DOUBLINGS)
    spread = 1 + JITTER * random.uniform(-1, 1)  # noqa: S311  # no secret
    if retry_after_s is None:
        return min(MAX_RETRY_S, plain_s * spread)
    return max(retry_after_s, min(plain_s, MAX_LANE_S) * spread)


def _not_found(name: str, known: Iterable[str]) -> errors.NotFound:
    return errors.NotFound(f"no strategy is called {name[:100]}; there are {', '.join(known)}")


def _under_way(desk: _Desk) -> tuple[Summary, ...]:
    records_ = [one.running.record for one in desk.running if one.running is not None]
    return tuple(
        Summary(run_id=record.run_id, status="running") for record in records_[:MAX_SHOWN] if record is not None
    )


def _would_run(job: lanes.Job) -> Summary:
    assert job.record is not None  # noqa: S101  # what failed has been run
    said = f"would be run again on {job.key[1]}, after {job.attempt} attempts"
    return Summary(run_id=job.record.run_id, status=job.record.status, error=job.record.error, result=said)
