"""The online path: messages are on disk before their sender hears so, and become Episodes in order.

What is asked of one session is done in order, sessions side by side. Nothing here is only in memory: after any crash the
sessions' logs say what waits, what was cut and what was not finished, and it is taken up without being asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import functools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal

import msgspec

from everosd import clock, config, errors, types
from everosd.cascade import apply
from everosd.engine import engine as engines
from everosd.intake import (
    episode,
    extraction,
    line,
    message,
    queue,
    redact,
    retention,
    row,
    session,
    unasked,
)
from everosd.intake import task as requests
from everosd.log import layout, writer
from everosd.store import db, lifecycle, read

if TYPE_CHECKING:
    from everosd.intake import forget, unsay

STOPPING = "everosd", "is stopping; the messages are kept, and the next start extracts them"

QUIET_S = 0.2
"""Nobody asks any more after so long without a request."""
LONGEST_WAY_S = 1.0
LOOK_S = 0.02
PIECE_S = 0.2
"""The longest that one piece of what has begun waits for requests."""
BURST_S = 0.1
"""Sessions that are flushed together follow each other within this time."""
_MAX_INTEGER = 2**62
"""SQLite's integers end there."""


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
        judge: unasked.Judge,
        engine: extraction.Engine,
        settings: Callable[[], config.Config],
        time: clock.Clock,
        caught_up: Callable[[], Awaitable[None]],
        cascade: apply.Cascade,
    ) -> None:
        """Wire it; `settings` are asked anew each time, `caught_up` waits until the ledger is in step with the disk."""
        self._cascade = cascade
        self._places, self._database, self._settings, self._clock = places, database, settings, time
        self._lines = line.Lines(places, pen, time, functools.partial(_removed, reader))
        self._episodes = episode.Episodes(extractor, pen, reader)
        self._touch = engine.touch
        self._extraction = extraction.Extraction(self._episodes, engine, settings, time, caught_up)
        self.on_drained = self._extraction.on_drained
        """Takes it from the engine that nothing is left to be done of an origin."""
        work: dict[requests.TaskType, queue.Work] = {"memory_add": self._work_on, "memory_flush": self._flush}
        self._queue = queue.Queue(self._lines, database, settings, time, work)
        self._unasked = unasked.Unasked(
            lines=self._lines,
            work=self._extraction,
            judge=judge,
            database=database,
            reader=reader,
            settings=settings,
            time=time,
            caught_up=caught_up,
        )
        self._retention = retention.Retention(
            cascade=cascade, lines=self._lines, settings=settings, time=time, caught_up=caught_up
        )
        self.is_used = asyncio.Event()
        """Anything was asked since the start."""
        self._n_asking = 0
        self._asked_s = self._extracted_s = float("-inf")
        self._n_extracting = 0
        self._way = asyncio.Lock()
        self._has_started = asyncio.Event()
        self._is_stopping = asyncio.Event()

    async def run(self) -> None:
        """Run every loop until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for name, part in (
                    ("extraction", self._extraction),
                    ("queue", self._queue),
                    ("unasked", self._unasked),
                    ("retention", self._retention),
                ):
                    tasks.create_task(part.run(), name=f"intake-{name}")
                await asyncio.sleep(0)  # they have begun when this goes on
                self._has_started.set()
        finally:
            self.stop()

    def stop(self) -> None:
        """Begin no further work; messages are still taken, and whoever waits for an extraction is told."""
        self._is_stopping.set()
        self._has_started.set()
        for part in (self._extraction, self._queue, self._unasked):
            part.stop()

    async def close(self) -> None:
        """Note that the process ends as it should; call after `run` was cancelled."""
        await self._unasked.close()

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
            errors.LogError: The log cannot be read or written; nothing was taken.
        """
        await self._has_started.wait()
        with self._asking():
            return await self._add(at, messages, task_id=task_id, is_async=is_async, is_deferred=is_deferred)

    async def _add(
        self, at: types.Owner, messages: Sequence[Given], *, task_id: str, is_async: bool, is_deferred: bool
    ) -> Added:
        here = self._lines.of(at)
        is_queued = is_async or bool(here.jobs)
        if is_queued:
            self._queue.reserve(here)
        try:
            self._touch()
            async with here.lock:
                await here.load()
                await self._keep(here, messages, is_deferred=is_deferred)
                limits = self._settings().boundary_detection
                cut = [] if is_queued else await here.cut_complete(limits)
        except BaseException:
            if is_queued:
                self._queue.release(here)
            raise
        self._unasked.added(here)
        if is_queued:
            pending = await self._queue.put(here, task_id, "memory_add")
            return Added(message_count=len(messages), status="queued", pending=pending)
        self._extraction.start(here)
        try:
            await self._extracted(here, cut)
        except (errors.LLMError, errors.LogError):  # the messages are safe, and are extracted later
            return Added(message_count=len(messages), status="accumulated")
        return Added(message_count=len(messages), status="extracted" if cut else "accumulated")

    async def flush(self, at: types.Owner, *, task_id: str) -> Flushed:
        """Have everything of a session extracted; the Episodes are on disk when this returns `extracted`.

        Raises:
            errors.LLMError: The model does not do it now; the messages are kept, and extracted without being asked again.
            errors.QueueSaturated: Too much waits.
            errors.LogError: The log cannot be read or written.
        """
        await self._has_started.wait()
        with self._asking():
            return await self._flush_or_queue(self._lines.of(at), task_id)

    async def _flush_or_queue(self, here: line.Line, task_id: str) -> Flushed:
        if here.jobs:
            self._queue.reserve(here)
            return Flushed(status="queued", pending=await self._queue.put(here, task_id, "memory_flush"))
        return Flushed(status="extracted" if await self._flush(here) else "no_extraction")

    async def task(self, task_id: str) -> requests.Task | None:
        """Return what is known of a request that was queued."""
        return await self._database.write(lambda connection: requests.find(connection, task_id))

    async def tasks(
        self, app: str, project: str, *, session_id: str | None, status: str | None, page: int, page_size: int
    ) -> tuple[list[requests.Task], int]:
        """Return a page of the requests that were queued, the newest first, and how many there are."""
        limit = min(page_size, _MAX_INTEGER)
        offset = min((page - 1) * limit, _MAX_INTEGER)
        return await self._database.write(
            lambda connection: requests.page(
                connection, (app, project), session_id=session_id, status=status, limit=limit, offset=offset
            )
        )

    async def segment(self, at: types.Owner, memcell_id: str) -> message.Segment | None:
        """Return a segment of a session with its messages, whatever has become of it; None where there is none.

        Raises:
            errors.LogError: A file of the session cannot be read.
        """
        if (here := self._lines.get(at)) is not None:
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
        cut = [one for segment in here.unwritten() for one in segment.messages]
        return tuple(sorted((*cut, *state.waiting), key=session.BY_TIME))

    def retry(self) -> int:
        """Have every segment that failed tried again now; return how many there are."""
        n_failed = 0
        for here in self._lines:
            n_failed += len(here.attempts)
            here.hurry()
            self._extraction.start(here)
        return n_failed

    def forgetting(self, engine: engines.Engine) -> forget.Forget:
        """Return what forgets an owner while messages come in."""
        from everosd.intake import forget  # noqa: PLC0415  # whoever asks for it has imported it, beside the loop

        return forget.Forget(self._cascade, self._clock, lines=self._lines, work=self._extraction, engine=engine)

    def unsaying(self) -> unsay.Unsaying:
        """Return what takes out for good what was said in a segment, while messages come in."""
        from everosd.intake import unsay  # noqa: PLC0415  # the same

        return unsay.Unsaying(self._places, self._cascade.writer, self._clock, lines=self._lines, work=self._extraction)

    def failed(self) -> dict[tuple[types.Owner, str], tuple[int, str]]:
        """Return the segments whose last attempt failed, by session and id: how often, and why."""
        return {
            (here.owner, memcell_id): (one.n_failed, one.reason)
            for here in self._lines
            for memcell_id, one in here.attempts.items()
        }

    async def settled(self, timeout_s: float) -> None:
        """Wait until nothing is being extracted and nothing that was extracted waits to be followed up.

        Raises:
            TimeoutError: Something still was after `timeout_s`.
        """
        async with asyncio.timeout(timeout_s):
            while self.is_busy():  # noqa: ASYNC110  # many parts decide, none of them alone
                await asyncio.sleep(0.005)

    def is_busy(self) -> bool:
        """Return whether anything is left to be done that is done without being asked."""
        return not self._unasked.has_taken_up or any(here.is_busy() for here in self._lines)

    def n_left(self) -> int:
        """Return how many requests and segments are not done with, what follows from them included."""
        return sum(len(here.jobs) + len(here.state.open) + len(here.state.unfollowed) for here in self._lines)

    def status(self) -> Status:
        """Return a snapshot; cheap."""
        lines = list(self._lines)
        attempts = [(here.owner, memcell_id, one) for here in lines for memcell_id, one in here.attempts.items()]
        dead = tuple(
            Dead(session=owner, memcell_id=memcell_id, n_failed=one.n_failed, error=one.reason)
            for owner, memcell_id, one in attempts
            if one.n_refused >= line.DEAD_AFTER
        )
        busy = [here for here in lines if here.jobs or here.state.open]
        now_s = self._clock.monotonic_s()
        reasons = dict.fromkeys(one.reason for _, _, one in attempts)
        return Status(
            reasons=tuple(f"extraction is tried again: {reason}" for reason in reasons),
            is_running=self._has_started.is_set() and not self._is_stopping.is_set(),
            pending=sum(len(here.jobs) + len(here.state.open) for here in busy),
            oldest_pending_age_s=max((now_s - here.touched_s for here in busy), default=None),
            failed=len(attempts),
            n_errors=self._extraction.n_errors,
            last_error_at=self._extraction.last_error_at,
            dead=dead,
            n_conflicting=sum(len(here.state.conflicting) for here in lines),
        )

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        """Note that somebody waits for an answer while the block runs."""
        self.is_used.set()
        self._n_asking += 1
        try:
            yield
        finally:
            self._n_asking -= 1
            self._asked_s = self._clock.monotonic_s()

    def is_asked(self) -> bool:
        """Tell whether somebody waits for an answer just now."""
        return self._n_asking > 0

    def is_extracting(self) -> bool:
        """Tell whether somebody waits for an extraction, or did a moment ago: the next one may be on its way."""
        return self._n_extracting > 0 or self._clock.monotonic_s() - self._extracted_s < BURST_S

    async def give_way(self) -> None:
        """Wait while requests are answered, but not for long: what only follows from messages has time, who asks has not.

        While they keep coming, one caller a second goes on.
        """
        async with self._way:
            until_s = self._clock.monotonic_s() + LONGEST_WAY_S
            while (now_s := self._clock.monotonic_s()) < until_s:
                if not self._n_asking and now_s - self._asked_s >= QUIET_S:
                    return
                await self._clock.sleep(LOOK_S)

    async def pause(self) -> None:
        """Wait while a request is being answered, but not for long: what follows from messages goes on piece by piece."""
        until_s = self._clock.monotonic_s() + PIECE_S
        while (self._n_asking or self.is_extracting()) and self._clock.monotonic_s() < until_s:
            await self._clock.sleep(LOOK_S)

    # -- one session -----------------------------------------------------------------------------------------------

    async def _flush(self, here: line.Line) -> bool:
        """Extract everything; return whether an Episode was made of any of it."""
        async with here.lock:
            await here.load()
            await here.cut_complete(self._settings().boundary_detection, is_flush=True)
            segments = list(here.state.open.values())
        here.hurry()
        self._extraction.start(here)
        await self._extracted(here, segments)
        return any(segment.user_ids for segment in segments)

    async def _extracted(self, here: line.Line, segments: Sequence[message.Segment]) -> None:
        """Wait until the Episodes of these segments are on disk; not longer than the daemon runs.

        Raises:
            errors.LLMUnavailable: The daemon stops; the next start extracts them.
            Exception: What an attempt at one of them failed with.
        """
        coming = here.coming(segments)
        if not coming:
            return
        stopping = asyncio.create_task(self._is_stopping.wait(), name="intake-stopping")
        self._n_extracting += 1
        try:
            for one in coming:
                await asyncio.wait((one, stopping), return_when=asyncio.FIRST_COMPLETED)
                if not one.done():
                    raise errors.LLMUnavailable(*STOPPING)
                one.result()
        finally:
            self._n_extracting -= 1
            self._extracted_s = self._clock.monotonic_s()
            stopping.cancel()
            for one in coming:
                if not one.cancel():
                    one.exception()  # of the others nobody is told

    async def _work_on(self, here: line.Line) -> None:
        """Extract what is complete."""
        async with here.lock:
            await here.load()
            cut = await here.cut_complete(self._settings().boundary_detection)
        self._extraction.start(here)
        await self._extracted(here, cut)

    async def _keep(self, here: line.Line, given: Sequence[Given], *, is_deferred: bool) -> None:
        """Write what is new of a request; a message that the session has is not written again."""
        state = here.state
        rows: list[tuple[session.Key, message.Message]] = []
        drafts = []
        clean = await self._redacted(given)
        for one, texts in zip(given, clean, strict=True):
            key = (one.timestamp_us // 1000, one.index)
            made = _message(one, state.new_id(key), texts)
            digest = row.digest(made)
            known = state.known(key, digest)
            if known is None:
                rows.append((key, made))
                drafts.append(row.of_message(made, is_deferred=is_deferred))
            elif known.is_forgotten:
                continue
            elif known.digest != digest and (key, digest) not in state.conflicting:
                state.conflicting.add((key, digest))
                second = msgspec.structs.replace(made, id=f"{known.id}-{digest.hex()[:8]}")
                drafts.append(row.of_message(second, duplicate_of=known.id))
        if drafts:
            await here.keep(rows, drafts)
        if rows:
            state.is_deferred = is_deferred

    async def _redacted(self, given: Sequence[Given]) -> list[redact.Texts]:
        """Return the texts of each message without what must not be written."""
        parts = [(one.text, one.content, one.tool_calls, one.tool_call_id, one.sender_name) for one in given]
        if not self._settings().intake.redact:
            return parts
        if sum(len(part) for each in parts for part in each) > redact.INLINE_CHARS:
            return await asyncio.to_thread(lambda: [redact.redacted_all(each) for each in parts])
        return [redact.redacted_all(each) for each in parts]


async def _removed(reader: read.Reader, at: types.Owner) -> list[str]:
    """Return the ids of messages that were removed for good in the scope of a session, as far as the ledger knows by now.

    Nobody waits for a ledger that is being made anew: messages are taken from the first moment on.
    """
    return await lifecycle.removed_messages(reader, at.app, at.project)


def _message(given: Given, message_id: str, clean: redact.Texts) -> message.Message:
    text, content, tool_calls, tool_call_id, sender_name = clean
    return message.Message(
        id=message_id,
        sender_id=given.sender_id,
        sender_name=sender_name,
        role=given.role,
        timestamp_us=given.timestamp_us,
        text=text,
        content=content,
        tool_calls=tool_calls,
        tool_call_id=tool_call_id,
    )
