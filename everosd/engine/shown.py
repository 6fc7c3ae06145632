"""What people are shown of strategies and their runs."""

from __future__ import annotations

from typing import Literal

import msgspec

from everosd.engine import runs as records
from everosd.engine import strategy as strategies

MAX_SHOWN = 100
"""Runs in one answer."""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """One run as an answer to a trigger shows it."""

    run_id: str
    status: str
    """`queued`, `running`, `success`, `failed` (it is tried again), `dead_letter`, `skipped` or `released`."""
    error: str | None = None
    result: str | None = None
    """What the strategy says it did; None while it has not ended."""
    detail: str | None = None
    """What it says beside that, as JSON: what a dry run found, what a real one left out; None: nothing."""


class Triggered(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a strategy that was fired by hand."""

    status: Literal["ok", "timeout", "not_dispatched"]
    """`ok`: what was dispatched has ended, one way or the other; `timeout`: not all of it has."""
    name: str
    dispatched: int
    """How many runs; a dry run is none."""
    runs: tuple[Summary, ...] = ()
    """Those dispatched, at most `MAX_SHOWN`; where nothing was dispatched, those that are under way."""


class StrategyStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One strategy, as people ask for it."""

    name: str
    enabled: bool
    trigger: strategies.Trigger
    cron: str | None
    """None: not fired by the clock."""
    idle_seconds: float | None = None
    """Fired after so long a silence; None: not by silence."""
    next_fire_time: str | None = None
    """ISO; None: not fired by the clock, or disabled."""
    is_hasty: bool = False
    """The clock fires it more than once a week."""
    last_run: records.Record | None = None
    """The newest that has ended or was missed; no dry run."""
    settings_error: str | None = None
    """What is wrong with `ome.toml` about it: its settings are those from before the mistake."""
    waiting: int = 0
    """Events that have not been run, those that are to be tried again included; of a timed one 1 while it is."""
    running: int = 0
    running_s: float = 0.0
    """How long the oldest of them has been running."""
    dead: int = 0


class Dead(msgspec.Struct, frozen=True, kw_only=True):
    """What a strategy gave up on: a trigger, or the next event or fire about the same, runs it again."""

    strategy: str
    event: strategies.Event | None
    """None: it is fired by the clock."""
    attempts: int
    error: str
