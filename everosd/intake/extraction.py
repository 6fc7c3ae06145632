"""Segments become Episodes: one worker a session, so that their order is kept; what fails waits and holds up no other."""

from __future__ import annotations

import asyncio
import datetime as dt
import traceback
from collections.abc import Awaitable, Callable
from typing import Protocol

import structlog

from everosd import clock, config, errors, types
from everosd.engine import strategy
from everosd.intake import episode, line, message

log = structlog.get_logger(__name__)


class Engine(Protocol):
    """What is told of what has happened."""

    def emit(self, event: strategy.Event) -> None:
        """Have strategies run on an event."""

    def touch(self) -> None:
        """Take note that something happens."""


class Extraction:
    """Works on the segments that were cut. Lives on the event loop."""

    def __init__(
        self,
        episodes: episode.Episodes,
        engine: Engine,
        settings: Callable[[], config.Config],
        time: clock.Clock,
        caught_up: Callable[[], Awaitable[None]],
    ) -> None:
        """Wire it; `caught_up` waits until the ledger is in step with the disk."""
        self.n_errors = 0
        """Faults of everosd itself."""
        self.last_error_at: dt.datetime | None = None
        self._episodes, self._engine, self._settings, self._clock = episodes, engine, settings, time
        self._caught_up = caught_up
        self._slots = _Slots(lambda: settings().memorize_async_queue.max_concurrency)
        self._tasks: asyncio.TaskGroup | None = None
        self._drained: asyncio.Queue[str] = asyncio.Queue()
        self._origins: dict[str, tuple[line.Line, message.Segment]] = {}

    async def run(self) -> None:
        """Extract, and note what was followed up, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            tasks.create_task(self._follow(), name="intake-follow")

    def stop(self) -> None:
        """Begin nothing more: the next start does it."""
        self._tasks = None

    def on_drained(self, origin: str) -> None:
        """Take it from the engine that nothing is left to be done of what a segment began."""
        self._drained.put_nowait(origin)

    def start(self, here: line.Line) -> None:
        """Have the segments of a session extracted."""
        if here.state.open and not here.is_extracting and self._tasks is not None:
            here.is_extracting = True
            here.worker = self._tasks.create_task(self._work(here), name=f"intake {here.owner.id[:40]}")

    async def halt(self, here: line.Line) -> None:
        """Stop extracting from a session, under its lock; what was being written is written. `start` goes on."""
        if here.worker is not None and not here.worker.done():
            here.worker.cancel()
            await asyncio.wait((here.worker,))
        here.is_extracting = False

    def forget(self, owner: types.Owner) -> None:
        """Let go of what was noted of an owner whose memory is gone."""
        self._episodes.forget_owner(owner)

    async def follow_up(self, here: line.Line, segment: message.Segment) -> None:
        """Say again what has happened with a segment: an earlier process did not see the end of it."""
        self._emit(here, segment, await self._episodes.of(segment))

    async def _work(self, here: line.Line) -> None:
        try:
            while here.state.open:
                here.kick.clear()
                segment, wait_s = here.next()
                if segment is None:
                    await clock.wait(here.kick, wait_s, self._clock)
                    continue
                if not here.is_new(segment):
                    await self._caught_up()  # before it takes the place of a session that has nothing to wait for
                async with self._slots:
                    await self._attempt(here, segment)
        finally:
            here.is_extracting = False

    async def _attempt(self, here: line.Line, segment: message.Segment) -> None:
        """Extract one segment; whatever goes wrong is tried again later."""
        is_new = here.is_new(segment)
        try:
            written = await self._episodes.write(segment, is_new=is_new)
            here.written(segment)
            await here.finish(segment)
        except (errors.LLMUnavailable, errors.LogError, errors.StoreError) as error:
            self._failed(here, segment, error, is_refused=False)
        except errors.LLMError as error:
            self._failed(here, segment, error, is_refused=True)
        except Exception as error:  # noqa: BLE001  # nothing that a conversation holds stops the others
            self.n_errors += 1
            self.last_error_at = self._clock.now()
            # Without the error's own words above debug: they may hold what was said.
            log.error("extraction_failed", memcell=segment.id, reason=errors.describe(error))  # noqa: TRY400
            log.debug("extraction_failed_in", memcell=segment.id, traceback=traceback.format_exc())
            self._failed(here, segment, error, is_refused=True)
        else:
            self._episodes.forget(segment)
            self._emit(here, segment, written)

    def _failed(self, here: line.Line, segment: message.Segment, error: Exception, *, is_refused: bool) -> None:
        attempt = here.failed(segment, error, self._settings().memorize_async_queue, is_refused=is_refused)
        if attempt.n_failed == 1 or attempt.n_refused == line.DEAD_AFTER:
            log.warning("extraction_waits", memcell=segment.id, reason=attempt.reason, n_failed=attempt.n_failed)

    def _emit(self, here: line.Line, segment: message.Segment, written: dict[types.Owner, types.EntryId]) -> None:
        """Say what has happened, all at once; when nothing of it is left to be done, the log is told."""
        origin = f"{here.owner.app}\x1f{here.owner.project}\x1f{here.owner.id}\x1f{segment.id}"
        self._origins[origin] = (here, segment)
        for owner, entry_id in written.items():
            self._engine.emit(strategy.Event(topic="episode_written", owner=owner, subject=entry_id, origin=origin))
        self._engine.emit(strategy.Event(topic="segment_done", owner=here.owner, subject=segment.id, origin=origin))

    async def _follow(self) -> None:
        while True:
            origin = await self._drained.get()
            if (found := self._origins.pop(origin, None)) is None:
                continue
            here, segment = found
            try:
                await here.follow(segment)
            except errors.LogError as error:  # the next start looks again whether anything is left
                log.warning("follow_up_not_noted", memcell=segment.id, reason=str(error))


class _Slots:
    """At most so many at once, whatever the limit is at that moment."""

    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit
        self._n_taken = 0
        self._freed = asyncio.Condition()

    async def __aenter__(self) -> None:
        async with self._freed:
            await self._freed.wait_for(lambda: self._n_taken < self._limit())
            self._n_taken += 1

    async def __aexit__(self, *_: object) -> None:
        self._n_taken -= 1
        async with self._freed:
            self._freed.notify_all()  # more may fit by now: the limit is that of the moment
