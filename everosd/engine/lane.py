"""A lane: what one strategy has to do for one owner, in the order of the events."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable

from everosd import types
from everosd.engine import runs as records
from everosd.engine import shown
from everosd.engine import strategy as strategies

Key = tuple[strategies.Topic, str]
"""Topic and subject: events that are equal in both are the same work."""

Origins = str | dict[str, None]
"""What asked for an event: mostly one, which is then kept as it is, because a hundred thousand events may wait. A dict
is in order of arrival; an empty text is nobody."""

MAX_ASIDE = 64
"""So many events of a lane wait for another attempt at most, before no further one is begun."""


def each(origins: Origins) -> Iterable[str]:
    """Return the origins one by one, nobody left out."""
    if isinstance(origins, dict):
        return origins
    return (origins,) if origins else ()


def newest(origins: Origins) -> str:
    """Return the origin that a run carries on."""
    if isinstance(origins, dict):
        return next(reversed(origins), "")
    return origins


def joined(one: Origins, other: Origins) -> tuple[Origins, list[str]]:
    """Return both together, and the origins that were in both. The first is changed where it is a dict."""
    if not other:
        return one, []
    if not one:
        return other, []
    if one == other and isinstance(one, str):
        return one, [one]
    found = one if isinstance(one, dict) else {one: None}
    both = []
    for origin in each(other):
        if origin in found:
            both.append(origin)
        found[origin] = None
    return found, both


class Ticket:
    """A run that somebody asked for by hand and may be waiting for."""

    __slots__ = ("detail", "error", "on_end", "result", "run_id", "status")

    def __init__(self, run_id: str, on_end: Callable[[], None]) -> None:
        """Call `on_end` when the run has ended, one way or the other."""
        self.run_id = run_id
        self.status = "queued"
        self.error: str | None = None
        self.result: str | None = None
        self.detail: str | None = None
        self.on_end = on_end

    def end(self, record: records.Record, detail: str | None = None) -> None:
        """Take over how it ended; `detail`, as JSON, says more than the record of it."""
        self.status, self.error, self.result, self.detail = record.status, record.error, record.result, detail
        self.on_end()

    def summary(self) -> shown.Summary:
        """Return the run as an answer shows it."""
        return shown.Summary(
            run_id=self.run_id, status=self.status, error=self.error, result=self.result, detail=self.detail
        )

    def skip(self) -> None:
        """Another run does its work."""
        self.status = "skipped"
        self.on_end()


class Job:
    """An event that is being run, is to be tried again, or was given up."""

    __slots__ = ("attempt", "due_s", "faults", "key", "origins", "record", "ticket")

    def __init__(self, key: Key, origins: Origins) -> None:
        """Begin with no attempt."""
        self.key = key
        self.origins = origins
        self.attempt = 0
        self.faults = 0
        """Attempts that failed by its own fault: those that count."""
        self.due_s = 0.0
        self.record: records.Record | None = None
        """Of the newest attempt."""
        self.ticket: Ticket | None = None

    def event(self, owner: types.Owner) -> strategies.Event:
        """Return what the strategy is run on."""
        return strategies.Event(topic=self.key[0], owner=owner, subject=self.key[1], origin=newest(self.origins))


class Lane:
    """The events of one owner that one strategy has to run."""

    __slots__ = ("_order", "aside", "due_s", "is_ready", "n_setbacks", "owner", "running", "timer_s", "waiting")

    def __init__(self, owner: types.Owner) -> None:
        """Begin with nothing to do."""
        self.owner = owner
        self.waiting: dict[Key, Origins] = {}
        """Never run yet."""
        self._order: collections.deque[Key] = collections.deque()
        """Of `waiting`; a key that is not in it any more is passed over. A dict alone slows down when it is emptied from
        the front."""
        self.aside: dict[Key, Job] = {}
        """To be tried again."""
        self.running: Job | None = None
        self.due_s = 0.0
        """Nothing is begun before; what was asked for by hand is."""
        self.n_setbacks = 0
        """Attempts in a row that failed for want of something that all of the lane needs."""
        self.is_ready = False
        """It stands in the line of its strategy."""
        self.timer_s = float("inf")
        """When it is looked at again."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do and nothing under way."""
        return self.running is None and not self.waiting and not self.aside

    def __len__(self) -> int:
        """Return how many events have yet to be run."""
        return len(self.waiting) + len(self.aside)

    def has(self, key: Key, strategy: strategies.Strategy) -> bool:
        """Return whether the same work waits already."""
        return len(self) > 0 if strategy.is_per_owner else key in self.waiting or key in self.aside

    def add(self, key: Key, origins: Origins, *, is_per_owner: bool) -> list[str]:
        """Queue an event, together with one that waits already and is the same work; return the origins of both."""
        if is_per_owner and self.aside:
            ((_, job),) = self.aside.items()
            job.key = key
            self.aside = {key: job}
        elif is_per_owner and self.waiting:
            ((_, before),) = self.waiting.items()
            self.waiting.clear()
            self._order.clear()
            self._push(key, before)
        if (late := self.aside.get(key)) is not None:
            late.origins, both = joined(late.origins, origins)
        elif key in self.waiting:
            self.waiting[key], both = joined(self.waiting[key], origins)
        else:
            self._push(key, origins)
            both = []
        return both

    def _push(self, key: Key, origins: Origins) -> None:
        self.waiting[key] = origins
        self._order.append(key)

    def put_aside(self, job: Job, *, is_per_owner: bool) -> list[str]:
        """Keep an event for another attempt; one that came meanwhile and is the same work is done by it."""
        both: list[str] = []
        same = (*self.aside, *self.waiting) if is_per_owner else (job.key,)
        for key in same:
            late = self.aside.pop(key, None)
            if late is not None and late.ticket is not None:
                late.ticket.skip()
            origins = self.waiting.pop(key, "") if late is None else late.origins
            job.origins, more = joined(job.origins, origins)
            both += more
            job.key = key
        self.aside[job.key] = job
        return both

    def next_due_s(self) -> float | None:
        """Return when there is something to begin, by the monotonic clock; None: not by itself."""
        if any(job.ticket is not None for job in self.aside.values()):
            return 0.0
        moments = [job.due_s for job in self.aside.values()]
        if self.waiting and len(self.aside) < MAX_ASIDE:
            moments.append(0.0)
        return max(self.due_s, min(moments)) if moments else None

    def take(self, now_s: float) -> Job | None:
        """Take out what is to be run next, if anything is due: what was asked for, what is older, what is new."""
        for job in self.aside.values():
            if job.ticket is not None or (job.due_s <= now_s and self.due_s <= now_s):
                del self.aside[job.key]
                return job
        if self.due_s > now_s or len(self.aside) >= MAX_ASIDE:
            return None
        while self._order:
            key = self._order.popleft()
            if key in self.waiting:
                return Job(key, self.waiting.pop(key))
        return None

    def clear(self) -> list[Job]:
        """Take out everything that has not been asked for by hand."""
        gone = [Job(key, origins) for key, origins in self.waiting.items()]
        gone += [job for job in self.aside.values() if job.ticket is None]
        self.waiting.clear()
        self._order.clear()
        self.aside = {key: job for key, job in self.aside.items() if job.ticket is not None}
        return gone
