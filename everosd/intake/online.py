"""The online path: messages are on disk before their sender hears so, and become Episodes in order.

What is asked of one session is done in order, sessions side by side. Nothing here is only in memory: after any crash the
sessions' logs say what waits, what was cut and what was not finished, and it is taken up without being asked.
"""

from __future__ import annotations

import asyncio
import collections
import datetime as dt
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, Protocol

import msgspec
import structlog

from everosd import clock, config, errors, types
from everosd.engine import strategy
from everosd.intake import boundary, episode, line, message, redact, row, session
from everosd.intake import task as requests
from everosd.log import layout, writer
from everosd.store import db, meta, read

log = structlog.get_logger(__name__)

AFTER_CRASH_S = 10.0
"""A session that a crash cut off is extracted after this much silence: its flush may have been on its way."""
LONGEST_LOOK_S = 15.0
"""Between two looks for sessions that have gone silent."""
N_LINES = 1000
"""Sessions that are kept in memory though nothing is to be done for them."""
N_LOADED_AT_ONCE = 8
MIN_JUDGED = 4
"""New messages before the model is asked whether a conversation has ended."""
THIS_SESSION, ALL_SESSIONS = "this session", "all sessions"
CLEAN = "intake_clean"
"""Key in the ledger's `meta`: the last process ended as it should."""


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a request, checked."""

    sender_id: str
    sender_name: str = ""
    role: message.Role
    timestamp_us: int
    index: int
    """Its place in the request, from 0: with session and moment, what it is known by."""
    text: str
    content: str = ""
    """JSON of the items where they are not exactly one text."""
    tool_calls: str = ""
    """JSON; empty without."""
    tool_call_id: str = ""


class Added(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a request to add."""

    message_count: int
    """All messages of the request, repetitions included."""
    status: Literal["accumulated", "extracted", "queued"]
    pending: int = 0
    """Of a queued one: requests of the session that wait, this one included."""


class Flushed(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a request to flush."""

    status: Literal["extracted", "no_extraction", "queued"]
    pending: int = 0


class Dead(msgspec.Struct, frozen=True, kw_only=True):
    """A segment that several attempts failed to extract; it is tried again now and then, and by every flush."""

    session: types.Owner
    memcell_id: str
    n_failed: int
    error: str


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """What the online path says of itself."""

    reasons: tuple[str, ...] = ()
    """What is wrong; empty: nothing is."""
    is_running: bool
    pending: int
    """Requests that wait and segments that are not extracted."""
    oldest_pending_age_s: float | None
    failed: int
    """Segments whose last attempt failed."""
    n_errors: int
    """Faults of everosd itself while extracting."""
    last_error_at: dt.datetime | None
    dead: tuple[Dead, ...] = ()
    n_conflicting: int = 0
    """Messages that came under the key of another one, with another text."""


class Judge(Protocol):
    """A model's opinion about where a conversation ends."""

    @property
    def is_set_up(self) -> bool:
        """Whether there is a model to ask."""

    async def end(self, messages: Sequence[message.Message]) -> int | None:
        """Return how many of the messages belong to a conversation that has ended; None: it goes on."""


class Engine(Protocol):
    """What is told of what has happened."""

    def emit(self, event: strategy.Event) -> None:
        """Have strategies run on an event."""


class Intake:
    """Takes messages in. Lives on the event loop."""

    def __init__(
        self,
        *,
        places: layout.Layout,
        pen: writer.Writer,
        database: db.Database,
        reader: read.Reader,
        extractor: episode.Extractor,
        judge: Judge,
        engine: Engine,
        settings: Callable[[], config.Config],
        time: clock.Clock,
        caught_up: Callable[[], Awaitable[None]],
    ) -> None:
        """Wire it; `settings` are asked anew each time, `caught_up` waits until the ledger is in step with the disk."""
        self._places, self._pen, self._database, self._reader = places, pen, database, reader
        self._judge, self._engine, self._settings, self._clock = judge, engine, settings, time
        self._caught_up = caught_up
        self._episodes = episode.Episodes(extractor, pen, reader)
        self._lines: collections.OrderedDict[types.Owner, line.Line] = collections.OrderedDict()
        self._tasks: asyncio.TaskGroup | None = None
        self._has_started = asyncio.Event()
        self._is_stopping = False
        self._slots = _Slots(lambda: settings().memorize_async_queue.max_concurrency)
        self._finished: asyncio.Queue[str] = asyncio.Queue()
        self._origins: dict[str, tuple[line.Line, message.Segment]] = {}
        self._wakes_idle = asyncio.Event()
        self._n_errors = 0
        self._last_error_at: dt.datetime | None = None
        self._is_caught_up = self._has_taken_up = False

    # -- life ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Extract, follow up and watch for silence until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            self._has_started.set()
            tasks.create_task(self._idle_loop(), name="intake-idle")
            tasks.create_task(self._follow_loop(), name="intake-follow")
            tasks.create_task(self._take_up(), name="intake-take-up")

    async def close(self) -> None:
        """Note that the process ends as it should; call after `run` was cancelled."""
        self._is_stopping = True
        if self._is_caught_up:
            await self._database.write(lambda connection: meta.put(connection, CLEAN, "1"))

    def on_drained(self, origin: str) -> None:
        """Take it from the engine that nothing is left to be done of what a segment began."""
        self._finished.put_nowait(origin)

    # -- what is asked ---------------------------------------------------------------------------------------------

    async def add(
        self,
        at: types.Owner,
        messages: Sequence[Given],
        *,
        task_id: str,
        is_async: bool = False,
        is_deferred: bool = False,
    ) -> Added:
        """Take messages of a session in; they are on disk when this returns.

        Args:
            at: The session.
            messages: In the order of the request.
            task_id: Id of the request, under which `task` knows it if it is queued.
            is_async: Whatever is to be extracted is extracted later.
            is_deferred: Nothing is extracted before a flush.

        Raises:
            errors.QueueSaturated: Too much waits; nothing was taken.
            errors.WriteRefused: The log cannot be written; nothing was taken.
        """
        here = await self._line(at)
        is_queued = is_async or bool(here.jobs)
        if is_queued:
            self._require_room(here)
        async with here.lock:
            await here.load()
            await self._keep(here, messages, is_deferred=is_deferred)
            cut = [] if is_queued else await self._cut(here, is_flush=False)
        self._wakes_idle.set()
        if is_queued:
            await self._queue(here, task_id, "memory_add")
            return Added(message_count=len(messages), status="queued", pending=len(here.jobs))
        self._extract(here)
        self._ask_judge(here)
        try:
            await here.extracted(cut)
        except (errors.LLMError, errors.LogError):  # the messages are safe, and are extracted later
            return Added(message_count=len(messages), status="accumulated")
        return Added(message_count=len(messages), status="extracted" if cut else "accumulated")

    async def flush(self, at: types.Owner, *, task_id: str) -> Flushed:
        """Have everything of a session extracted; the Episodes are on disk when this returns `extracted`.

        Raises:
            errors.LLMError: The model does not do it now; the messages are kept, and extracted without being asked again.
            errors.QueueSaturated: Too much waits.
            errors.WriteRefused: The log cannot be written.
        """
        here = await self._line(at)
        if here.jobs:
            self._require_room(here)
            await self._queue(here, task_id, "memory_flush")
            return Flushed(status="queued", pending=len(here.jobs))
        return Flushed(status="extracted" if await self._flush(here) else "no_extraction")

    async def _flush(self, here: line.Line) -> bool:
        """Return whether an Episode was made of anything."""
        async with here.lock:
            await here.load()
            await self._cut(here, is_flush=True)
            segments = list(here.state.open.values())
        here.hurry()
        self._extract(here)
        await here.extracted(segments)
        return any(segment.user_ids for segment in segments)

    async def task(self, task_id: str) -> requests.Task | None:
        """Return what is known of a request that was queued."""
        return await self._database.write(lambda connection: requests.find(connection, task_id))

    async def tasks(
        self, app: str, project: str, *, session_id: str | None, status: str | None, page: int, page_size: int
    ) -> tuple[list[requests.Task], int]:
        """Return a page of the requests that were queued, the newest first, and how many there are."""
        offset = min((page - 1) * page_size, 2**62)
        return await self._database.write(
            lambda connection: requests.page(
                connection, (app, project), session_id=session_id, status=status, limit=page_size, offset=offset
            )
        )

    async def segment(self, at: types.Owner, memcell_id: str) -> message.Segment | None:
        """Return a segment of a session with its messages, whatever has become of it."""
        here = self._lines.get(at)
        if here is not None:
            found = here.state.open.get(memcell_id) or here.state.unfollowed.get(memcell_id)
            if found is not None:
                return found
        return await asyncio.to_thread(session.segment, self._places, at, memcell_id)

    async def unprocessed(self, at: types.Owner) -> tuple[message.Message, ...] | None:
        """Return the messages of a session that nothing was extracted from, in time order, the newest included.

        None: nothing was asked of the session of late, or its log cannot be read; the ledger knows as much.
        """
        if (here := self._lines.get(at)) is None:
            return None
        try:
            async with here.lock:
                state = await here.load()
        except errors.LogError:
            return None
        cut = [one for segment in state.open.values() for one in segment.messages]
        return tuple(sorted((*cut, *state.waiting), key=session.BY_TIME))

    def retry(self) -> int:
        """Have every segment that failed tried again now; return how many there are."""
        n_failed = 0
        for here in self._lines.values():
            n_failed += len(here.attempts)
            here.hurry()
            self._extract(here)
        return n_failed

    async def settled(self, timeout_s: float) -> None:
        """Wait until nothing is being extracted and nothing that was extracted waits to be followed up.

        Raises:
            TimeoutError: Something still was after `timeout_s`.
        """
        async with asyncio.timeout(timeout_s):
            while not self._has_taken_up or any(  # noqa: ASYNC110  # many parts decide, none of them alone
                here.jobs or here.is_extracting or here.state.open or here.state.unfollowed
                for here in self._lines.values()
            ):
                await asyncio.sleep(0.005)

    def status(self) -> Status:
        """Return a snapshot; cheap."""
        lines = list(self._lines.values())
        attempts = [(here, memcell_id, one) for here in lines for memcell_id, one in here.attempts.items()]
        dead = tuple(
            Dead(session=here.owner, memcell_id=memcell_id, n_failed=one.n_failed, error=str(one.error))
            for here, memcell_id, one in attempts
            if one.n_refused >= line.DEAD_AFTER
        )
        busy = [here for here in lines if here.jobs or here.state.open]
        now_s = self._clock.monotonic_s()
        reasons = {str(one.error): one for _, _, one in attempts if one.error is not None}
        return Status(
            reasons=tuple(f"extraction is tried again: {reason}" for reason in reasons),
            is_running=self._has_started.is_set() and not self._is_stopping,
            pending=sum(len(here.jobs) + len(here.state.open) for here in busy),
            oldest_pending_age_s=max((now_s - here.touched_s for here in busy), default=None),
            failed=len(attempts),
            n_errors=self._n_errors,
            last_error_at=self._last_error_at,
            dead=dead,
            n_conflicting=sum(len(here.state.conflicting) for here in lines),
        )

    # -- one session -----------------------------------------------------------------------------------------------

    async def _line(self, at: types.Owner) -> line.Line:
        await self._has_started.wait()
        if (here := self._lines.get(at)) is None:
            here = self._lines[at] = line.Line(at, self._places, self._pen, self._clock)
            self._evict()
        self._lines.move_to_end(at)
        return here

    def _evict(self) -> None:
        """Let go of the sessions that nothing was asked of for longest."""
        spare = len(self._lines) - N_LINES
        if spare > 0:
            newest = next(reversed(self._lines))
            for at in [at for at, here in self._lines.items() if here.is_idle() and at != newest][:spare]:
                del self._lines[at]

    async def _keep(self, here: line.Line, given: Sequence[Given], *, is_deferred: bool) -> None:
        """Write what is new of a request; a message that the session has is not written again."""
        state = here.state
        rows: list[tuple[session.Key, message.Message]] = []
        drafts = []
        clean = await self._redacted(given)
        for one, text in zip(given, clean, strict=True):
            key = (one.timestamp_us // 1000, one.index)
            made = _message(one, state.new_id(key), text)
            digest = row.digest(made)
            known = state.known(key, digest)
            if known is None:
                rows.append((key, made))
                drafts.append(row.of_message(made, is_deferred=is_deferred))
            elif known.digest != digest and (key, digest) not in state.conflicting:
                state.conflicting.add((key, digest))
                second = msgspec.structs.replace(made, id=f"{known.id}-{digest.hex()[:8]}")
                drafts.append(row.of_message(second, duplicate_of=known.id))
        if drafts:
            await here.keep(rows, drafts)
        if rows:
            state.is_deferred = is_deferred

    async def _redacted(self, given: Sequence[Given]) -> list[tuple[str, str, str]]:
        """Return text, content and tool calls of each message without what must not be written."""
        parts = [(one.text, one.content, one.tool_calls) for one in given]
        if not self._settings().intake.redact:
            return parts
        if sum(len(part) for each in parts for part in each) > redact.INLINE_CHARS:
            return await asyncio.to_thread(lambda: [redact.redacted_all(each) for each in parts])
        return [redact.redacted_all(each) for each in parts]

    async def _cut(self, here: line.Line, *, is_flush: bool) -> list[message.Segment]:
        """Cut what is complete; of a deferred session only a flush does. Under the lock."""
        if here.state.is_deferred and not is_flush:
            return []
        limits = self._settings().boundary_detection
        return await here.cut(boundary.cuts(here.state.waiting, limits, is_flush=is_flush))

    # -- extraction ------------------------------------------------------------------------------------------------

    def _extract(self, here: line.Line) -> None:
        """Have the segments of a session extracted; one worker a session, so that their order is kept."""
        if here.state.open and not here.is_extracting and not self._is_stopping:
            here.is_extracting = True
            self._spawn(self._work(here), f"intake {here.owner.id[:40]}")

    def _spawn(self, work: collections.abc.Coroutine[object, object, None], name: str) -> None:
        assert self._tasks is not None  # noqa: S101  # whoever comes here has waited for the start
        self._tasks.create_task(work, name=name)

    async def _work(self, here: line.Line) -> None:
        try:
            while here.state.open:
                here.kick.clear()
                segment, wait_s = here.next()
                if segment is None:
                    await clock.wait(here.kick, wait_s, self._clock)
                    continue
                async with self._slots:
                    await self._attempt(here, segment)
        finally:
            here.is_extracting = False

    async def _attempt(self, here: line.Line, segment: message.Segment) -> None:
        """Extract one segment; whatever goes wrong is tried again later, and holds up no other session."""
        try:
            if not here.is_new(segment) and not self._is_caught_up:
                await self._caught_up()
            written = await self._episodes.write(segment, is_new=here.is_new(segment))
            here.written(segment)
            await here.finish(segment)
        except (errors.LLMUnavailable, errors.LogError, errors.StoreError) as error:
            self._failed(here, segment, error, is_refused=False)
        except errors.LLMError as error:
            self._failed(here, segment, error, is_refused=True)
        except Exception as error:  # nothing that a conversation holds stops the others
            self._n_errors += 1
            self._last_error_at = self._clock.now()
            log.exception("extraction_failed", session=here.owner.id, memcell=segment.id)
            self._failed(here, segment, error, is_refused=True)
        else:
            self._episodes.forget(segment)
            self._emit(here, segment, written)

    def _failed(self, here: line.Line, segment: message.Segment, error: Exception, *, is_refused: bool) -> None:
        attempt = here.failed(segment, error, self._settings().memorize_async_queue, is_refused=is_refused)
        if attempt.n_failed == 1 or attempt.n_refused == line.DEAD_AFTER:
            log.warning("extraction_waits", memcell=segment.id, reason=str(error), n_failed=attempt.n_failed)

    def _emit(self, here: line.Line, segment: message.Segment, written: dict[types.Owner, types.EntryId]) -> None:
        """Say what has happened, all at once; when nothing of it is left to be done, the log is told."""
        origin = f"{here.owner.app}\x1f{here.owner.project}\x1f{here.owner.id}\x1f{segment.id}"
        self._origins[origin] = (here, segment)
        for owner, entry_id in written.items():
            self._engine.emit(strategy.Event(topic="episode_written", owner=owner, subject=entry_id, origin=origin))
        self._engine.emit(strategy.Event(topic="segment_done", owner=here.owner, subject=segment.id, origin=origin))

    async def _follow_loop(self) -> None:
        while True:
            origin = await self._finished.get()
            if (found := self._origins.pop(origin, None)) is None:
                continue
            here, segment = found
            try:
                await here.follow(segment)
            except errors.LogError as error:  # the next start looks again whether anything is left
                log.warning("follow_up_not_noted", memcell=segment.id, reason=str(error))

    # -- requests that are worked on later -------------------------------------------------------------------------

    def _require_room(self, here: line.Line) -> None:
        limits = self._settings().memorize_async_queue
        if len(here.jobs) >= limits.max_pending_per_session:
            raise errors.QueueSaturated(THIS_SESSION, len(here.jobs), limits.max_pending_per_session)
        n_waiting = sum(len(one.jobs) for one in self._lines.values())
        if n_waiting >= limits.max_pending_total:
            raise errors.QueueSaturated(ALL_SESSIONS, n_waiting, limits.max_pending_total)

    async def _queue(self, here: line.Line, task_id: str, task_type: requests.TaskType) -> None:
        now_us = clock.to_us(self._clock.now())
        one = requests.Task(id=task_id, session=here.owner, task_type=task_type, created_us=now_us)
        self._enqueue(here, one)
        await self._put(one)

    def _enqueue(self, here: line.Line, one: requests.Task) -> None:
        here.jobs.append(lambda: self._do(here, one))
        if len(here.jobs) == 1:
            self._spawn(self._run_jobs(here), f"intake-queue {here.owner.id[:40]}")

    async def _run_jobs(self, here: line.Line) -> None:
        while here.jobs:
            try:
                await here.jobs[0]()
            finally:
                here.jobs.popleft()

    async def _do(self, here: line.Line, one: requests.Task) -> None:
        """Work on one request; what fails is said of the task, and the messages are extracted later all the same."""
        one = msgspec.structs.replace(one, status="processing")
        await self._put(one)
        error: Exception | None = None
        try:
            if one.task_type == "memory_flush":
                await self._flush(here)
            else:
                async with here.lock:
                    await here.load()
                    cut = await self._cut(here, is_flush=False)
                self._extract(here)
                self._ask_judge(here)
                await here.extracted(cut)
        except Exception as failed:  # noqa: BLE001  # logged where it arose; here it is told
            error = failed
        finished = msgspec.structs.replace(
            one,
            status="success" if error is None else "failed",
            error=None if error is None else _told(error),
            error_code=None if error is None else _code(error),
            finished_us=clock.to_us(self._clock.now()),
        )
        await self._put(finished)

    async def _put(self, one: requests.Task) -> None:
        try:
            await self._database.write(lambda connection: requests.put(connection, one))
        except errors.StoreError as error:  # records of work may be lost, work may not
            log.warning("task_not_recorded", task=one.id, reason=str(error))

    # -- without being asked ---------------------------------------------------------------------------------------

    async def _take_up(self) -> None:
        """Take up what an earlier process left: once the ledger is in step with the disk."""
        await self._caught_up()
        now_us = clock.to_us(self._clock.now())
        kept_us = int(self._settings().memorize_async_queue.row_retention_hours * 3_600_000_000)
        is_clean = await self._database.write(lambda connection: _begin(connection, now_us, now_us - kept_us))
        self._is_caught_up = True
        found = await self._reader.unfinished_sessions()
        if found:
            log.info("sessions_taken_up", n_sessions=len(found), after_crash=not is_clean)
        limit = asyncio.Semaphore(N_LOADED_AT_ONCE)
        await asyncio.gather(*(self._take_up_one(at, limit, is_clean=is_clean) for at in found))
        self._has_taken_up = True
        self._wakes_idle.set()

    async def _take_up_one(self, at: types.Owner, limit: asyncio.Semaphore, *, is_clean: bool) -> None:
        async with limit:
            here = await self._line(at)
            try:
                async with here.lock:
                    state = await here.load()
            except errors.LogError as error:
                log.warning("session_not_taken_up", session=at.id, reason=str(error))
                return
            newest_ns = max((one.mtime_ns for one in state.files.values()), default=0)
            age_s = max(0.0, clock.to_us(self._clock.now()) / 1e6 - newest_ns / 1e9)
            idle_s = self._settings().boundary_detection.idle_minutes * 60
            if not is_clean:
                age_s = max(age_s, idle_s - AFTER_CRASH_S)
            here.touched_s = min(here.touched_s, self._clock.monotonic_s() - age_s)
            for segment in list(state.unfollowed.values()):
                self._emit(here, segment, await self._episodes.of(segment))
            self._extract(here)

    async def _idle_loop(self) -> None:
        """Cut the sessions that have gone silent."""
        while True:
            self._wakes_idle.clear()
            idle_s = self._settings().boundary_detection.idle_minutes * 60
            now_s = self._clock.monotonic_s()
            wait_s = LONGEST_LOOK_S
            for here in list(self._lines.values()) if idle_s else []:
                if not here.state.waiting or here.state.is_deferred:
                    continue
                left_s = here.touched_s + idle_s - now_s
                if left_s > 0:
                    wait_s = min(wait_s, left_s)
                else:
                    await self._cut_silent(here)
            await clock.wait(self._wakes_idle, wait_s, self._clock)

    async def _cut_silent(self, here: line.Line) -> None:
        try:
            async with here.lock:
                state = await here.load()
                found = boundary.cuts(state.waiting, self._settings().boundary_detection, is_flush=True)
                await here.cut([msgspec.structs.replace(one, reason="idle") for one in found])
        except errors.LogError as error:
            here.touched_s = self._clock.monotonic_s()  # and look again after as long
            log.warning("silent_session_not_cut", session=here.owner.id, reason=str(error))
            return
        self._extract(here)

    def _ask_judge(self, here: line.Line) -> None:
        """Ask the model, beside everything else, whether the conversation has ended."""
        wanted = self._settings().boundary_detection.asks_model and self._judge.is_set_up
        n_new = len(here.state.waiting) - here.n_judged
        if wanted and not here.state.is_deferred and n_new >= MIN_JUDGED and not self._is_stopping:
            here.n_judged = len(here.state.waiting)
            self._spawn(self._judge_one(here, tuple(here.state.waiting)), f"intake-judge {here.owner.id[:40]}")

    async def _judge_one(self, here: line.Line, asked: tuple[message.Message, ...]) -> None:
        try:
            n_ended = await self._judge.end(asked)
            if not n_ended:
                return
            async with here.lock:
                state = await here.load()
                same = [one.id for one in state.waiting[:n_ended]] == [one.id for one in asked[:n_ended]]
                if same and not state.is_deferred:  # what came in between may have been cut, or stand before it
                    await here.cut([boundary.Cut(n_messages=n_ended, reason="model")])
        except (errors.LLMError, errors.LogError):
            return  # an opinion that does not come is none
        self._extract(here)


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
            self._freed.notify()


def _message(given: Given, message_id: str, clean: tuple[str, str, str]) -> message.Message:
    text, content, tool_calls = clean
    return message.Message(
        id=message_id,
        sender_id=given.sender_id,
        sender_name=given.sender_name,
        role=given.role,
        timestamp_us=given.timestamp_us,
        text=text,
        content=content,
        tool_calls=tool_calls,
        tool_call_id=given.tool_call_id,
    )


def _begin(connection: sqlite3.Connection, now_us: int, before_us: int) -> bool:
    """Put the records of work in order; return whether the last process ended as it should."""
    requests.interrupt(connection, now_us)
    requests.forget(connection, before_us)
    is_clean = meta.get(connection, CLEAN) is not None
    meta.put(connection, CLEAN, None)
    return is_clean


def _told(error: Exception) -> str:
    return str(error) if isinstance(error, errors.EverosdError) else "an internal error occurred"


def _code(error: Exception) -> str:
    if isinstance(error, errors.LLMError):
        return "EXTERNAL_SERVICE_UNAVAILABLE"
    return "CONFLICT" if isinstance(error, errors.LogError) else "INTERNAL_ERROR"
