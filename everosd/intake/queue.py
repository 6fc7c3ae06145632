"""Requests that are worked on after their answer: in order within a session, sessions side by side, and not too many."""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Awaitable, Callable

import msgspec
import structlog

from everosd import clock, config, errors, types
from everosd.intake import line, task
from everosd.store import db

log = structlog.get_logger(__name__)

THIS_SESSION, ALL_SESSIONS = "this session", "all sessions"

Work = Callable[[line.Line], Awaitable[object]]


class Queue:
    """What waits of every session. Lives on the event loop."""

    def __init__(
        self,
        lines: line.Lines,
        database: db.Database,
        settings: Callable[[], config.Config],
        time: clock.Clock,
        work: dict[task.TaskType, Work],
    ) -> None:
        """Keep records in `database`; `work` does what each type of request asks for."""
        self._lines, self._database, self._settings, self._clock, self._work = lines, database, settings, time, work
        self._tasks: asyncio.TaskGroup | None = None
        self._coming: collections.Counter[types.Owner] = collections.Counter()
        """Requests whose messages are being written; they wait once these are on disk."""

    async def run(self) -> None:
        """Work on requests until cancelled; what was not finished is said to be interrupted at the next start."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            await asyncio.Event().wait()

    def stop(self) -> None:
        """Begin nothing more: what waits is said to be interrupted at the next start."""
        self._tasks = None

    def reserve(self, here: line.Line) -> None:
        """Keep a place for one more request of a session, until it is `put` or its place is given back by `release`.

        Raises:
            errors.QueueSaturated: Too many wait already, or are about to.
        """
        limits = self._settings().memorize_async_queue
        n_waiting = len(here.jobs) + self._coming[here.owner]
        if n_waiting >= limits.max_pending_per_session:
            raise errors.QueueSaturated(THIS_SESSION, n_waiting, limits.max_pending_per_session)
        n_waiting = sum(len(one.jobs) for one in self._lines) + self._coming.total()
        if n_waiting >= limits.max_pending_total:
            raise errors.QueueSaturated(ALL_SESSIONS, n_waiting, limits.max_pending_total)
        self._coming[here.owner] += 1

    def release(self, here: line.Line) -> None:
        """Give a place back that was reserved."""
        self._coming[here.owner] -= 1
        if not self._coming[here.owner]:
            del self._coming[here.owner]

    async def put(self, here: line.Line, task_id: str, task_type: task.TaskType) -> int:
        """Queue a request in the place reserved for it; return how many of the session wait, this one included."""
        self.release(here)
        now_us = clock.to_us(self._clock.now())
        one = task.Task(id=task_id, session=here.owner, task_type=task_type, created_us=now_us)
        here.jobs.append(lambda: self._do(here, one))
        n_waiting = len(here.jobs)
        # Before the first await: who asked may be gone after it. While the daemon stops nothing is begun.
        if n_waiting == 1 and self._tasks is not None:
            self._tasks.create_task(self._run(here), name=f"intake-queue {here.owner.id[:40]}")
        await self._record(one)  # on its way to the writer's thread before the worker has a turn
        return n_waiting

    async def _run(self, here: line.Line) -> None:
        while here.jobs:
            try:
                await here.jobs[0]()
            finally:
                here.jobs.popleft()

    async def _do(self, here: line.Line, one: task.Task) -> None:
        """Work on one request; what fails is said of the task, and the messages are extracted later all the same."""
        one = msgspec.structs.replace(one, status="processing")
        await self._record(one)
        error: Exception | None = None
        try:
            await self._work[one.task_type](here)
        except Exception as failed:  # noqa: BLE001  # logged where it arose; here it is told
            error = failed
        await self._record(
            msgspec.structs.replace(
                one,
                status="success" if error is None else "failed",
                error=None if error is None else _told(error),
                error_code=None if error is None else _code(error),
                finished_us=clock.to_us(self._clock.now()),
            )
        )

    async def _record(self, one: task.Task) -> None:
        try:
            await self._database.write(lambda connection: task.put(connection, one))
        except errors.StoreError as error:  # records of work may be lost, work may not
            log.warning("task_not_recorded", task=one.id, reason=str(error))


def _told(error: Exception) -> str:
    return str(error) if isinstance(error, errors.EverosdError) else "an internal error occurred"


def _code(error: Exception) -> str:
    if isinstance(error, errors.LLMError):
        return "EXTERNAL_SERVICE_UNAVAILABLE"
    return "CONFLICT" if isinstance(error, errors.LogError) else "INTERNAL_ERROR"
