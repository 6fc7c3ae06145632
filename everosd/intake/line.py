"""One session at work: its state in step with its log, what is asked of it in order, and the segments being extracted."""

from __future__ import annotations

import asyncio
import collections
import importlib
import random
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from pathlib import PurePosixPath

import msgspec

from everosd import clock, config, errors, types
from everosd.intake import boundary, message, row, session
from everosd.log import entry, file, layout, writer

CHECK_S = 1.0
"""How often it is looked whether a person changed the log of a session that is at work."""
LONGEST_WAIT_S = 900.0
"""Between two attempts at a segment."""
DEAD_AFTER = 3
"""Attempts whose answers were unusable, until the segment is listed as one that needs a look."""

Removed = Callable[[types.Owner], Awaitable[Collection[str]]]
"""A session → ids of messages that were removed for good, perhaps of other sessions, too."""

N_LINES = 1000
"""Sessions that are kept in memory though nothing is to be done for them."""


class Attempt(msgspec.Struct, kw_only=True):
    """How it stands with a segment that failed."""

    n_failed: int = 0
    n_refused: int = 0
    """Of these: not for want of network, quota or disk."""
    due_s: float = 0.0
    """Monotonic: not to be tried before."""
    error: Exception | None = None

    @property
    def reason(self) -> str:
        """Why it failed the last time, without a word of what was said."""
        return "" if self.error is None else errors.describe(self.error)


class Lines:
    """The sessions that something was asked of, or is to be done for. Lives on the event loop."""

    def __init__(
        self,
        places: layout.Layout,
        pen: writer.Writer,
        time: clock.Clock,
        removed: Removed | None = None,
    ) -> None:
        """Start with none; `removed` is given where messages are being taken."""
        self._places, self._pen, self._clock, self._removed = places, pen, time, removed
        self._lines: collections.OrderedDict[types.Owner, Line] = collections.OrderedDict()

    def __iter__(self) -> Iterator[Line]:
        """Yield every session in memory, as of now."""
        return iter(list(self._lines.values()))

    def of(self, owner: types.Owner) -> Line:
        """Return a session; nothing of it is read yet where it was not in memory."""
        if (here := self._lines.get(owner)) is None:
            here = self._lines[owner] = Line(owner, self._places, self._pen, self._clock, self._removed)
            self._evict()
        self._lines.move_to_end(owner)
        return here

    def get(self, owner: types.Owner) -> Line | None:
        """Return a session that is in memory."""
        return self._lines.get(owner)

    def _evict(self) -> None:
        """Let go of the sessions that nothing was asked of for longest."""
        spare = len(self._lines) - N_LINES
        if spare > 0:
            newest = next(reversed(self._lines))
            for owner in [owner for owner, here in self._lines.items() if here.is_idle() and owner != newest][:spare]:
                del self._lines[owner]


class Line:
    """One session. Lives on the event loop."""

    def __init__(
        self,
        owner: types.Owner,
        places: layout.Layout,
        pen: writer.Writer,
        time: clock.Clock,
        removed: Removed | None = None,
    ) -> None:
        """Nothing is read yet."""
        self.owner = owner
        self.lock = asyncio.Lock()
        """Held while the log is appended to, never while something is extracted."""
        self.jobs: collections.deque[Callable[[], Awaitable[None]]] = collections.deque()
        """Requests that are worked on after their answer, in order; the first one is under way."""
        self.attempts: dict[str, Attempt] = {}
        """By segment: what failed so far."""
        self.touched_s = time.monotonic_s()
        """When something was added last."""
        self.is_extracting = False
        self.worker: asyncio.Task[None] | None = None
        """What extracts its segments, or did last."""
        self.kick = asyncio.Event()
        """What waits for its time is tried now."""
        self.n_judged = 0
        """Messages that waited when the model was asked last whether the conversation had ended."""
        self._places, self._pen, self._clock, self._removed = places, pen, time, removed
        self._state = session.Session(owner)
        self._is_read = False
        self._checked_s = 0.0
        self._has_counter = False
        """What counts tokens is imported."""
        self._sizes: dict[str, int] = {}
        """Tokens of messages that wait, by id, as far as they had to be counted."""
        self._new: set[str] = set()
        self._on_disk: set[str] = set()
        """Segments that have their Episodes and not yet the row that says so."""
        self._waiters: dict[str, list[asyncio.Future[None]]] = {}

    @property
    def state(self) -> session.Session:
        """What is known; as of the last `load`."""
        return self._state

    async def load(self, *, is_sure: bool = False) -> session.Session:
        """Return the state, in step with the log; under the lock.

        `is_sure`: also with what a person saved a moment ago; else it is looked at once a second.

        Raises:
            errors.LogError: a file of it cannot be read.
        """
        now_s = self._clock.monotonic_s()
        if self._is_read and now_s - self._checked_s < CHECK_S and not is_sure:
            return self._state
        if not await self._is_in_step():
            state = await asyncio.to_thread(session.read, self._places, self.owner)
            if self._removed is not None:
                state.forget(await self._removed(self.owner))
            self._state = state
            self._is_read = True
            self._sizes.clear()
            self._release()
        self._checked_s = now_s
        return self._state

    def _release(self) -> None:
        """Let those go on who wait for a segment that a person took out of the log."""
        for memcell_id in self._waiters.keys() - self._state.open.keys():
            for waiter in self._waiters.pop(memcell_id):
                if not waiter.done():
                    waiter.set_result(None)

    async def _is_in_step(self) -> bool:
        """Tell whether the log was read, and nobody else has written to it since."""
        return self._is_read and await self._identities() == self._state.files

    async def _identities(self) -> dict[str, file.Identity]:
        return await asyncio.to_thread(session.identities, self._places, self.owner)

    async def renew(self) -> None:
        """Read the log again, under the lock and with nothing being extracted: messages were taken out of it.

        Raises:
            errors.LogError: a file of it cannot be read.
        """
        if not self._is_read:
            return
        self._is_read = False
        # What was written of a segment that lost messages is another question than before.
        self._new.clear()
        state = await self.load()
        self._on_disk &= state.open.keys()
        self.attempts = {one: attempt for one, attempt in self.attempts.items() if one in state.open}
        self.n_judged = min(self.n_judged, len(state.waiting))

    async def append(self, kind: str, drafts: Sequence[entry.Draft]) -> None:
        """Append rows to the log of the session; under the lock."""
        was_read, self._is_read = self._is_read, False
        # Where somebody else wrote to it, or this ends half way, the log is read again: what is in it holds.
        grew = await self._pen.append_seen(self.owner, kind, drafts)
        if grew is None or not was_read:
            return
        name = PurePosixPath(grew.path).name
        if self._state.files.get(name) == grew.before:
            self._state.files[name] = grew.after
            self._is_read = True

    async def keep(self, rows: Sequence[tuple[session.Key, message.Message]], drafts: Sequence[entry.Draft]) -> None:
        """Write messages and note them as waiting; under the lock."""
        await self.append("message", drafts)
        for key, one in rows:
            self._state.keep(one, key)
        self.touched_s = self._clock.monotonic_s()

    async def cut_complete(
        self, limits: config.BoundaryDetection, *, is_flush: bool = False, is_silent: bool = False
    ) -> list[message.Segment]:
        """Cut what is complete, under the lock; of a deferred session only a flush does. Silence completes all of it."""
        is_all = is_flush or is_silent
        if not self._may_cut(is_flush=is_flush):
            return []
        if not self._has_counter and boundary.has_to_count(self._state.waiting, limits):
            await asyncio.to_thread(importlib.import_module, "everosd.models.piece")  # NumPy with it: not on the loop
            self._has_counter = True
        if not self._cuts(limits, is_all=is_all):
            return []
        await self.load(is_sure=True)  # what a person took out a moment ago is in no segment
        found = self._cuts(limits, is_all=is_all) if self._may_cut(is_flush=is_flush) else []
        if is_silent:
            found = [msgspec.structs.replace(one, reason="idle") for one in found]
        return await self.cut(found)

    def _cuts(self, limits: config.BoundaryDetection, *, is_all: bool) -> list[boundary.Cut]:
        return boundary.cuts(self._state.waiting, limits, is_flush=is_all, known=self._sizes)

    def _may_cut(self, *, is_flush: bool) -> bool:
        return is_flush or not self._state.is_deferred

    async def cut(self, found: Sequence[boundary.Cut]) -> list[message.Segment]:
        """Write that the first messages that wait are segments; under the lock."""
        if not found:
            return []
        segments = self._state.segments((one.n_messages, one.reason) for one in found)
        now = self._clock.now()
        await self.append("segment", [row.of_segment(one, "open", now) for one in segments])
        self._state.cut(segments)
        self._new.update(one.id for one in segments if one.id not in self._state.finished)
        self._sizes.clear()
        self.n_judged = 0
        return segments

    def is_new(self, segment: message.Segment) -> bool:
        """Return whether this process cut the segment: nobody else can have written anything of it."""
        return segment.id in self._new

    async def finish(self, segment: message.Segment) -> None:
        """Write that the Episodes of a segment are on disk."""
        async with self.lock:
            if segment.id not in self._state.open:  # all of its messages were taken out of the log meanwhile
                return
            await self.append("segment", [row.of_segment(segment, "done", self._clock.now())])
            self._state.open.pop(segment.id, None)
            self._state.unfollowed[segment.id] = segment
            self._new.discard(segment.id)
            self._on_disk.discard(segment.id)
            self.attempts.pop(segment.id, None)

    async def follow(self, segment: message.Segment) -> None:
        """Write that all that follows from a segment is on disk."""
        async with self.lock:
            if segment.id not in self._state.unfollowed:
                return
            await self.append("segment", [row.of_segment(segment, "followed", self._clock.now())])
            self._state.unfollowed.pop(segment.id, None)

    # -- attempts --------------------------------------------------------------------------------------------------

    def next(self) -> tuple[message.Segment | None, float | None]:
        """Return the first segment that may be tried now; else how long until one may, seconds; None: there is none."""
        now_s = self._clock.monotonic_s()
        waits = []
        for segment in self._state.open.values():
            wait_s = self.attempts[segment.id].due_s - now_s if segment.id in self.attempts else 0.0
            if wait_s <= 0:
                return segment, 0.0
            waits.append(wait_s)
        return None, min(waits, default=None)

    def hurry(self) -> None:
        """Have everything that failed tried again now."""
        for attempt in self.attempts.values():
            attempt.due_s = 0.0
        self.kick.set()

    def failed(
        self, segment: message.Segment, error: Exception, settings: config.AsyncQueue, *, is_refused: bool
    ) -> Attempt:
        """Note a failed attempt, and tell those who wait for the segment."""
        attempt = self.attempts.setdefault(segment.id, Attempt())
        attempt.n_failed += 1
        attempt.n_refused += is_refused
        attempt.error = error
        wait_s = min(settings.retry_backoff_seconds * 2 ** min(attempt.n_failed - 1, 30), LONGEST_WAIT_S)
        wait_s *= random.uniform(0.75, 1.25)  # noqa: S311  # so that not all come back at once
        wait_s = max(wait_s, getattr(error, "retry_after_s", None) or 0.0)
        attempt.due_s = self._clock.monotonic_s() + wait_s
        for waiter in self._waiters.pop(segment.id, []):
            if not waiter.done():
                waiter.set_exception(error)
        return attempt

    def unwritten(self) -> list[message.Segment]:
        """Return the segments whose Episodes are not on disk, in order."""
        return [segment for segment in self._state.open.values() if segment.id not in self._on_disk]

    def written(self, segment: message.Segment) -> None:
        """Tell those who wait for a segment that its Episodes are on disk."""
        self._on_disk.add(segment.id)
        for waiter in self._waiters.pop(segment.id, []):
            if not waiter.done():
                waiter.set_result(None)

    def coming(self, segments: Sequence[message.Segment]) -> list[asyncio.Future[None]]:
        """Return what comes of each of these segments: Episodes on disk, or what the next attempt at it failed with.

        To be asked for before anything is awaited: of an attempt that has failed already nothing comes.
        """
        found: list[asyncio.Future[None]] = []
        for segment in segments:
            if segment.id in self._state.open and segment.id not in self._on_disk:
                found.append(asyncio.get_running_loop().create_future())
                self._waiters.setdefault(segment.id, []).append(found[-1])
        return found

    # -- what is left ----------------------------------------------------------------------------------------------

    def is_idle(self) -> bool:
        """Return whether nothing is to be done, and nothing will have to be before somebody asks."""
        state = self._state
        is_at_rest = not self.lock.locked() and not self.jobs and not self.is_extracting
        return is_at_rest and not state.open and not state.unfollowed and (not state.waiting or state.is_deferred)

    def is_busy(self) -> bool:
        """Return whether something is being done for it that ends by itself."""
        return bool(self.jobs or self.is_extracting or self._state.open or self._state.unfollowed)
