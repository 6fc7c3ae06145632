"""Events become runs of strategies, in order for each owner, tried again where they fail.

A lane is one strategy for one owner: its runs go one after the other, in the order of the events, while lanes go side by
side. What fails waits aside with growing pauses and lets the others pass; what has failed too often is a dead letter,
until somebody triggers it or a new event asks for the same.
"""

from __future__ import annotations

import asyncio
import heapq
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec
import structlog

from everosd import clock, errors, types
from everosd.engine import backoff, origin
from everosd.engine import desk as desks
from everosd.engine import lane as lanes
from everosd.engine import runs as records
from everosd.engine import settings as strategy_settings
from everosd.engine import strategy as strategies

SLEEP_S = 30.0
"""Longest sleep: after it the clock is looked at again."""

log = structlog.get_logger(__name__)


class _Run(NamedTuple):
    """A run that is under way."""

    task: asyncio.Task[None]
    desk: desks.Desk
    lane: lanes.Lane
    job: lanes.Job


class Events:
    """Runs strategies on events. Every method belongs to the event loop's thread."""

    def __init__(
        self,
        settings: strategy_settings.Watcher,
        runs: records.Runs,
        time: clock.Clock,
        concurrency: int,
        on_turn: Callable[[], None],
    ) -> None:
        """Run at most `concurrency` lanes of each strategy at once; `on_turn` is called after each look at what is due."""
        self.desks: dict[str, desks.Desk] = {}
        self.origins = origin.Origins()
        self.is_stopping = False
        self.on_end: Callable[[], None] = on_turn
        """Called when a run has ended."""
        self._settings = settings
        self._runs = runs
        self._clock = time
        self._concurrency = concurrency
        self._on_turn = on_turn
        self._timers: list[tuple[float, int, desks.Desk, lanes.Lane]] = []
        self._n_timers = 0
        self._tasks: dict[asyncio.Task[None], lanes.Job] = {}
        self._group: asyncio.TaskGroup | None = None
        self._wake = asyncio.Event()
        self._is_turn_planned = False

    # -- events in -------------------------------------------------------------------------------------------------

    def emit(self, event: strategies.Event) -> None:
        """Queue `event` for every enabled strategy that listens to it; one equal to it that still waits is the same."""
        for desk in self.desks.values():
            if event.topic in desk.strategy.topics and self.is_enabled(desk):
                self._queue(desk, event)
        if event.origin:
            self.origins.touch((event.origin,))
        self.turn_soon()

    def _queue(self, desk: desks.Desk, event: strategies.Event) -> None:
        one = desk.lanes.get(event.owner)
        if one is None:
            one = desk.lanes[event.owner] = lanes.Lane(event.owner)
        key = (event.topic, event.subject)
        origins: lanes.Origins = event.origin
        for job in self._forget_dead(desk, event.owner, key):
            origins, _ = lanes.joined(job.origins, origins)
        self.origins.count(origins)
        self.origins.discount(one.add(key, origins, is_per_owner=desk.strategy.is_per_owner))
        self._offer(desk, one)

    def is_enabled(self, desk: desks.Desk) -> bool:
        """Tell whether the settings let a strategy run."""
        return self._settings.of(desk.strategy.name).enabled

    def is_idle(self) -> bool:
        """Tell whether nothing is queued, running or to be tried again."""
        return not self.origins.touched and not any(desk.lanes for desk in self.desks.values())

    def tasks(self) -> Iterator[asyncio.Task[None]]:
        """Yield what a stop waits for."""
        yield from self._tasks

    # -- the loop --------------------------------------------------------------------------------------------------

    async def run(self, group: asyncio.TaskGroup) -> None:
        """Start what is due as tasks of `group`, until cancelled."""
        self._group = group
        try:
            while True:
                self._wake.clear()
                self._turn()
                await clock.wait(self._wake, self._until_due_s(), self._clock)
        finally:
            self._group = None

    def recall(self, record: records.Record) -> None:
        """Take over what an earlier daemon gave up on."""
        desk, event = self.desks.get(record.strategy), record.event
        if desk is None or event is None:
            return
        key = (event.topic, event.subject)
        if event.owner in desk.lanes and desk.lanes[event.owner].has(key, desk.strategy):
            return
        job = lanes.Job(key, event.origin)
        job.attempt, job.record = record.attempt, record
        job.faults = self._max_retries(desk) + 1
        self._bury(desk, event.owner, job)

    def drop_disabled(self) -> None:
        """Let go of what waits for a strategy that was turned off."""
        for desk in self.desks.values():
            if not self.is_enabled(desk):
                for one in tuple(desk.lanes.values()):
                    for job in one.clear():
                        self.origins.discount(job.origins)
                    self._offer(desk, one)
        self.turn_soon()

    def turn_soon(self) -> None:
        """Have a turn once the event loop is back: what is emitted until then is taken together."""
        if not self._is_turn_planned and self._group is not None:
            self._is_turn_planned = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        """Start everything that is due and has a place."""
        self._is_turn_planned = False
        self._begin()
        self._on_turn()

    def _begin(self) -> None:
        now_s = self._clock.monotonic_s()
        while self._timers and self._timers[0][0] <= now_s:
            _, _, desk, one = heapq.heappop(self._timers)
            one.timer_s = float("inf")
            self._offer(desk, one)
        if self.is_stopping or self._group is None:
            return  # a turn that was planned before the end
        for desk in self.desks.values():
            while desk.ready and len(desk.running) < self._concurrency:
                one = desk.ready.popleft()
                one.is_ready = False
                job = one.take(now_s)
                if job is None:
                    self._offer(desk, one)
                elif job.ticket is None and not self.is_enabled(desk):
                    self.origins.discount(job.origins)
                    self._offer(desk, one)
                else:
                    self._start(self._group, desk, one, job)

    def _offer(self, desk: desks.Desk, one: lanes.Lane) -> None:
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

    # -- one run ---------------------------------------------------------------------------------------------------

    def _start(self, group: asyncio.TaskGroup, desk: desks.Desk, one: lanes.Lane, job: lanes.Job) -> None:
        job.attempt += 1
        event = job.event(one.owner)
        record = records.Record(
            run_id=uuid.uuid4().hex if job.ticket is None else job.ticket.run_id,
            strategy=desk.strategy.name,
            trigger="event" if job.ticket is None else "manual",
            status="running",
            attempt=job.attempt,
            started_at=self._runs.now(),
            event=event,
        )
        if job.ticket is not None:
            job.ticket.status = "running"
        job.record = record
        self._runs.put(record)
        one.running = job
        desk.running[one] = self._clock.monotonic_s()
        name = f"{record.strategy}-{record.run_id}"
        task = group.create_task(self._attempt(desk, one, job, record, event), name=name)
        self._tasks[task] = job
        task.add_done_callback(self._left)

    def _left(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        self.on_end()

    async def _attempt(
        self, desk: desks.Desk, one: lanes.Lane, job: lanes.Job, record: records.Record, event: strategies.Event
    ) -> None:
        try:
            result = await desk.strategy.run(event)
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
            self.origins.discount(job.origins)
            self._end(desk, job, msgspec.structs.replace(record, status="success", result=result))
        finally:
            one.running = None
            del desk.running[one]
            self._offer(desk, one)
            self.turn_soon()

    def _end(self, desk: desks.Desk, job: lanes.Job, record: records.Record) -> None:
        """Record how a run ended."""
        record = job.record = desk.last_run = msgspec.structs.replace(record, finished_at=self._runs.now())
        self._runs.put(record)
        if job.ticket is not None:
            job.ticket.end(record)
            job.ticket = None

    def _failed(self, desk: desks.Desk, one: lanes.Lane, job: lanes.Job, error: BaseException) -> None:
        """Have a run tried again, or give it up."""
        assert job.record is not None  # noqa: S101  # it has been started
        name, said = desk.strategy.name, errors.describe(error)[: backoff.MAX_ERROR]
        is_away = backoff.is_away(error)
        job.faults += not is_away
        record = msgspec.structs.replace(job.record, error=said)
        if job.faults > self._max_retries(desk):
            log.error("strategy_gave_up", strategy=name, subject=job.key[1], attempts=job.attempt, reason=said)
            self._end(desk, job, msgspec.structs.replace(record, status="dead_letter"))
            self._bury(desk, one.owner, job)
            self.origins.discount(lanes.each(job.origins))
            return
        retry_after_s = backoff.retry_after_s(error)
        wait_s = backoff.wait_s(job.attempt, retry_after_s)
        now_s = self._clock.monotonic_s()
        job.due_s = now_s + wait_s
        if is_away:
            one.n_setbacks += 1
            one.due_s = now_s + max(min(backoff.wait_s(one.n_setbacks, None), backoff.MAX_AWAY_S), retry_after_s or 0.0)
        told = {"strategy": name, "subject": job.key[1], "reason": said, "retry_s": round(wait_s, 1)}
        if not is_away:
            log.warning("strategy_failed", **told)
        elif job.attempt >= backoff.LONG and not desk.is_ailing:
            desk.is_ailing = True
            log.warning("strategy_waits", **told)
        self._end(desk, job, msgspec.structs.replace(record, status="failed"))
        self.origins.discount(one.put_aside(job, is_per_owner=desk.strategy.is_per_owner))

    def _max_retries(self, desk: desks.Desk) -> int:
        given = self._settings.of(desk.strategy.name).max_retries
        return desk.strategy.max_retries if given is None else given

    # -- what was given up -----------------------------------------------------------------------------------------

    def _bury(self, desk: desks.Desk, owner: types.Owner, job: lanes.Job) -> None:
        """Put an event among those that were given up."""
        desk.dead.setdefault(owner, {})[job.key] = job
        self.origins.give_up(job.origins)

    def _forget_dead(self, desk: desks.Desk, owner: types.Owner, key: lanes.Key) -> Iterator[lanes.Job]:
        """Take out what was given up and is the same work as `key`."""
        found = desk.dead.get(owner)
        for each in tuple(found or ()):
            if found is not None and (each == key or desk.strategy.is_per_owner):
                yield self._dig_out(found.pop(each))
        if found is not None and not found:
            del desk.dead[owner]

    def _dig_out(self, job: lanes.Job) -> lanes.Job:
        """Have what was given up count as such no more, on record too."""
        self.origins.dig_out(job.origins)
        assert job.record is not None  # noqa: S101  # what was given up has been run
        self._runs.put(msgspec.structs.replace(job.record, status="failed"))
        return job

    def put_in_front(self, desk: desks.Desk, owner: types.Owner, job: lanes.Job, ticket: lanes.Ticket) -> None:
        """Have an event that failed run at once."""
        one = desk.lanes.setdefault(owner, lanes.Lane(owner))
        job.ticket = ticket
        if owner in desk.dead and desk.dead[owner].get(job.key) is job:
            del desk.dead[owner][job.key]
            if not desk.dead[owner]:
                del desk.dead[owner]
            self.origins.count(self._dig_out(job).origins)
            self.origins.discount(one.put_aside(job, is_per_owner=desk.strategy.is_per_owner))
        if one.aside.get(job.key) is not job:  # another run does the same
            ticket.skip()
            return
        self._offer(desk, one)

    # -- owners that are forgotten ---------------------------------------------------------------------------------

    async def forget(self, owner: types.Owner) -> None:
        """Let go of all that waits, was given up or is remembered of an owner whose memory is gone, and end what runs."""
        ending: list[_Run] = []
        for desk in self.desks.values():
            for job in tuple(desk.dead.pop(owner, {}).values()):
                self.origins.touch(lanes.each(self._dig_out(job).origins))
            if (one := desk.lanes.get(owner)) is None:
                continue
            for job in one.clear():
                self.origins.discount(job.origins)
            ending += [_Run(task, desk, one, job) for task, job in self._tasks.items() if job is one.running]
            self._offer(desk, one)
        await self._cut_off(ending)
        for desk in self.desks.values():
            if desk.strategy.forget is not None:
                desk.strategy.forget(owner)
        self.turn_soon()

    async def _cut_off(self, runs: Sequence[_Run]) -> None:
        """End runs in the middle; nothing of them is left to be done."""
        for task, *_ in runs:
            task.cancel()
        if runs:
            await asyncio.wait([task for task, *_ in runs])
        for task, desk, one, job in runs:
            if task.cancelled():  # else it ended by itself, and was counted
                self.origins.discount(job.origins)
            if one.running is job:  # cancelled before it had begun
                one.running = None
                del desk.running[one]
                self._offer(desk, one)
