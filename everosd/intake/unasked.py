"""What is done without being asked: sessions that a crash or a stop cut off, silence, and a model's opinion."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import structlog

from everosd import clock, config, errors, types
from everosd.intake import boundary, extraction, line, message, task
from everosd.store import db, meta, read

log = structlog.get_logger(__name__)

AFTER_CRASH_S = 10.0
"""A session that a crash cut off is extracted after this much silence: its flush may have been on its way."""
LONGEST_LOOK_S = 15.0
"""Between two looks for sessions that have gone silent."""
N_LOADED_AT_ONCE = 8
RETRY_S = 1.0
"""Between two attempts at a ledger that cannot be written."""
MIN_JUDGED = 4
"""New messages before the model is asked whether a conversation has ended."""
CLEAN = "intake_clean"
"""Key in the ledger's `meta`: the last process ended as it should."""


class Judge(Protocol):
    """A model's opinion about where a conversation ends."""

    @property
    def is_set_up(self) -> bool:
        """Whether there is a model to ask."""

    async def end(self, messages: Sequence[message.Message]) -> int | None:
        """Return how many of the messages belong to a conversation that has ended; None: it goes on."""


class Unasked:
    """Watches over sessions that nobody asks about. Lives on the event loop."""

    def __init__(
        self,
        *,
        lines: line.Lines,
        work: extraction.Extraction,
        judge: Judge,
        database: db.Database,
        reader: read.Reader,
        settings: Callable[[], config.Config],
        time: clock.Clock,
        caught_up: Callable[[], Awaitable[None]],
    ) -> None:
        """Wire it; `caught_up` waits until the ledger is in step with the disk."""
        self.has_taken_up = False
        """What an earlier process left is in memory, and worked on."""
        self._lines, self._extraction, self._judge = lines, work, judge
        self._database, self._reader, self._settings, self._clock = database, reader, settings, time
        self._caught_up = caught_up
        self._tasks: asyncio.TaskGroup | None = None
        self._wakes = asyncio.Event()

    async def run(self) -> None:
        """Take up what was left, then watch, until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                tasks.create_task(self._watch_silence(), name="intake-silence")
                await self._take_up()
        finally:
            self._tasks = None  # while the daemon stops nobody is asked for an opinion

    def stop(self) -> None:
        """Ask the model for no more opinions."""
        self._tasks = None

    async def close(self) -> None:
        """Note that the process ends as it should."""
        if self.has_taken_up:
            await self._database.write(lambda connection: meta.put(connection, CLEAN, "1"))

    # -- after a start ---------------------------------------------------------------------------------------------

    async def _take_up(self) -> None:
        """Take up what an earlier process left: once the ledger is in step with the disk."""
        await self._caught_up()
        is_clean, found = await self._left()
        if found:
            log.info("sessions_taken_up", n_sessions=len(found), after_crash=not is_clean)
        limit = asyncio.Semaphore(N_LOADED_AT_ONCE)
        await asyncio.gather(*(self._take_up_one(at, limit, is_clean=is_clean) for at in found))
        self.has_taken_up = True
        self._wakes.set()

    async def _left(self) -> tuple[bool, list[types.Owner]]:
        """Return whether the last process ended as it should, and what it left; waits for a ledger that is locked."""
        now_us = clock.to_us(self._clock.now())
        kept_us = int(self._settings().memorize_async_queue.row_retention_hours * 3_600_000_000)
        while True:
            try:
                found = await self._reader.unfinished_sessions()
                return await self._database.write(
                    lambda connection: _begin(connection, now_us, now_us - kept_us)
                ), found
            except db.DamagedStoreError:
                raise  # the daemon ends; the next start sets the ledger aside
            except errors.StoreError as error:
                log.error("sessions_not_taken_up", reason=str(error), hint=error.hint)  # noqa: TRY400  # tried again
                await self._clock.sleep(RETRY_S)

    async def _take_up_one(self, at: types.Owner, limit: asyncio.Semaphore, *, is_clean: bool) -> None:
        async with limit:
            here = self._lines.of(at)
            try:
                async with here.lock:
                    state = await here.load()
            except errors.LogError as error:
                log.warning("session_not_taken_up", session=at.id, reason=str(error))
                return
            newest_ns = max((one.mtime_ns for one in state.files.values()), default=0)
            age_s = max(0.0, clock.to_us(self._clock.now()) / 1e6 - newest_ns / 1e9)
            if not is_clean:
                age_s = max(age_s, self._settings().boundary_detection.idle_minutes * 60 - AFTER_CRASH_S)
            here.touched_s = min(here.touched_s, self._clock.monotonic_s() - age_s)
            self._extraction.start(here)
            for segment in list(state.unfollowed.values()):
                try:
                    await self._extraction.follow_up(here, segment)
                except errors.StoreError as error:  # the next start looks again
                    log.warning("segment_not_followed_up", memcell=segment.id, reason=str(error))

    # -- silence ---------------------------------------------------------------------------------------------------

    async def _watch_silence(self) -> None:
        """Cut the sessions that have gone silent."""
        while True:
            self._wakes.clear()
            idle_s = self._settings().boundary_detection.idle_minutes * 60
            wait_s = LONGEST_LOOK_S
            for here in self._lines if idle_s else ():
                if not here.state.waiting or here.state.is_deferred:
                    continue
                left_s = here.touched_s + idle_s - self._clock.monotonic_s()
                if left_s <= 0:
                    await self._cut_silent(here)
                else:
                    wait_s = min(wait_s, left_s)
            await clock.wait(self._wakes, wait_s, self._clock)

    async def _cut_silent(self, here: line.Line) -> None:
        try:
            async with here.lock:
                await here.load()
                await here.cut_complete(self._settings().boundary_detection, is_silent=True)
        except errors.LogError as error:
            here.touched_s = self._clock.monotonic_s()  # and look again after as long
            log.warning("silent_session_not_cut", session=here.owner.id, reason=str(error))
            return
        self._extraction.start(here)

    # -- a model's opinion -----------------------------------------------------------------------------------------

    def added(self, here: line.Line) -> None:
        """Take it that a session has grown: it may go silent, and the model may think that a conversation has ended."""
        if self._settings().boundary_detection.idle_minutes * 60 < LONGEST_LOOK_S:
            self._wakes.set()  # else the next look comes in time
        is_wanted = self._settings().boundary_detection.asks_model and self._judge.is_set_up
        n_new = len(here.state.waiting) - here.n_judged
        if is_wanted and not here.state.is_deferred and n_new >= MIN_JUDGED and self._tasks is not None:
            here.n_judged = len(here.state.waiting)
            asked = tuple(here.state.waiting)
            self._tasks.create_task(self._ask(here, asked), name=f"intake-judge {here.owner.id[:40]}")

    async def _ask(self, here: line.Line, asked: tuple[message.Message, ...]) -> None:
        try:
            n_ended = await self._judge.end(asked)
            if not n_ended:
                return
            async with here.lock:
                state = await here.load(is_sure=True)
                is_same = [one.id for one in state.waiting[:n_ended]] == [one.id for one in asked[:n_ended]]
                if is_same and not state.is_deferred:  # what came in between may have been cut, or stand before it
                    await here.cut([boundary.Cut(n_messages=n_ended, reason="model")])
        except (errors.LLMError, errors.LogError) as error:
            log.debug("no_opinion", reason=str(error))
            return
        except Exception as error:  # noqa: BLE001  # an opinion that cannot be had stops nothing
            log.error("opinion_failed", reason=errors.describe(error))  # noqa: TRY400  # its words may be what was said
            return
        self._extraction.start(here)


def _begin(connection: sqlite3.Connection, now_us: int, before_us: int) -> bool:
    """Put the records of work in order; return whether the last process ended as it should."""
    task.interrupt(connection, now_us)
    task.forget(connection, before_us)
    is_clean = meta.get(connection, CLEAN) is not None
    meta.put(connection, CLEAN, None)
    return is_clean
