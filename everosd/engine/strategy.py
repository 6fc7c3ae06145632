"""What a strategy is: a name, what it listens to, and a function that is run on one subject."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec

from everosd import types

Topic = Literal[
    "segment_done", "episode_written", "episode_edited", "episode_clustered", "case_written", "case_clustered"
]
"""What happens: a segment's Episodes are on disk; an Episode was written, or edited by a person; it joined a cluster; an
agent case was written; it joined a cluster."""

Trigger = Literal["event", "cron", "idle"]


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened to one thing of one owner."""

    topic: Topic
    owner: types.Owner
    """Of `segment_done`: the session."""
    subject: str
    """Entry id of the Episode or case, or memcell id of the segment."""
    origin: str = ""
    """What all of this began with: the engine tells when nothing of it is left to be done. Empty: nobody asks."""


Run = Callable[[Event], Awaitable[str]]
"""Does the work for one event and returns a short note of what was done (shown with the run).

Idempotent: it may be called again after a crash in the middle, or for a second event about the same subject, and then does
what is missing. Raises `errors.LLMUnavailable` where it should be tried again later, and anything else where it failed."""


class Strategy(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table of strategies."""

    name: str
    """As in `ome.toml`."""
    trigger: Trigger = "event"
    topics: tuple[Topic, ...] = ()
    """Of a strategy that is triggered by events."""
    run: Run
    forget: Callable[[types.Owner], None] | None = None
    """Lets go of what `run` remembers of an owner whose memory is gone; None: it remembers nothing of anybody."""
    max_retries: int = 3
    """Unless the settings say otherwise."""
    is_per_owner: bool = False
    """Events of one owner that wait at the same time become one run, of the newest."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Fire:
    """What a timed strategy is run with."""

    run_id: str
    trigger: Literal["cron", "idle", "manual"]
    due_at: dt.datetime
    """Aware, UTC: when it should have begun; for one made up that is in the past."""
    first_at: dt.datetime | None = None
    """When the first of several fires that are dealt with together was due; None: there is one."""
    is_dry_run: bool = False
    """Only say what would be done; nothing is written."""
    is_stopping: Callable[[], bool]
    """Asked between two pieces of work: True means end now, the next run does the rest."""


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What a timed strategy did."""

    note: str
    """For people, short."""
    detail: object | None = None
    """Ready to be written as JSON: what a dry run shows, and what people may want to know of a real one beside `note`."""


class Timed(msgspec.Struct, frozen=True, kw_only=True):
    """A strategy that is fired by the clock or by silence, as `ome.toml` says; one run at a time."""

    name: str
    """As in `ome.toml`."""
    run: Callable[[Fire], Awaitable[Done]]
    """Does the work. It may be called again after a crash in the middle, and then does what is missing."""
    recover: Callable[[], Awaitable[str]] | None = None
    """Called once when the engine starts: finishes what an earlier process began and says what; empty: nothing was left."""
    forget: Callable[[types.Owner], Awaitable[None]] | None = None
    """Lets go of an owner whose memory is gone; None: it remembers nothing of anybody."""
    zones: Callable[[], tuple[dt.tzinfo, ...]] | None = None
    """Zones in which the moments of a preset are meant: it fires at each of them. None: in `memory.timezone` alone."""
    max_retries: int = 3
    """Unless the settings say otherwise."""
