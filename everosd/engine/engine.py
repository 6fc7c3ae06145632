"""The engine: events become runs of strategies, in order for each owner, tried again where they fail.

A lane is one strategy for one owner: its runs go one after the other, in the order of the events, while lanes go side by
side. What fails waits aside with growing pauses and lets the others pass; what has failed too often is a dead letter,
until somebody triggers it or a new event asks for the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from everosd import clock
from everosd.engine import runs as records
from everosd.engine import settings as strategy_settings
from everosd.engine import strategy as strategies


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """One run as an answer to a trigger shows it."""

    run_id: str
    status: str
    """`queued`, `running`, `success`, `failed` (it is tried again), `dead_letter`, `skipped` or `released`."""
    error: str | None = None
    result: str | None = None
    """What the strategy says it did; None while it has not ended."""


class Triggered(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a strategy that was fired by hand."""

    status: Literal["ok", "timeout", "not_dispatched"]
    """`ok`: what was dispatched has ended, one way or the other; `timeout`: not all of it has."""
    name: str
    dispatched: int
    """How many runs."""
    runs: tuple[Summary, ...] = ()
    """Those dispatched, at most `MAX_SHOWN`; where nothing was dispatched, those that are under way."""


class StrategyStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One strategy, as people ask for it."""

    name: str
    enabled: bool
    trigger: strategies.Trigger
    cron: str | None
    """None: not fired by the clock."""
    next_fire_time: str | None = None
    """ISO; None: not fired by the clock."""
    last_run: records.Record | None = None
    """The newest that has ended."""
    settings_error: str | None = None
    """What is wrong with `ome.toml` about it: its settings are those from before the mistake."""
    waiting: int = 0
    """Events that have not been run, those that are to be tried again included."""
    running: int = 0
    running_s: float = 0.0
    """How long the oldest of them has been running."""
    dead: int = 0


class Dead(msgspec.Struct, frozen=True, kw_only=True):
    """An event that a strategy gave up on: a trigger, or a new event about the same, runs it again."""

    strategy: str
    event: strategies.Event
    attempts: int
    error: str


class Engine:
    """Runs strategies. Every method belongs to the event loop's thread."""

    def __init__(
        self,
        settings: strategy_settings.Watcher,
        runs: records.Runs,
        time: clock.Clock,
        concurrency: int = 4,
    ) -> None:
        """Run at most `concurrency` lanes of each strategy at once, so that one that hangs leaves the others their share."""
        self.on_drained: Callable[[str], None] = nobody
        """Called once nothing of an origin is queued, running or to be tried again, and none of it became a dead letter.

        Events of one origin that are emitted without an await in between are taken as one: it is also called when no
        strategy listens to any of them. Origins that the listener does not know are not its own (`edit:…`)."""
        raise NotImplementedError

    def add(self, one: strategies.Strategy) -> None:
        """Take a strategy into the table; before `run`."""
        raise NotImplementedError

    def emit(self, event: strategies.Event) -> None:
        """Queue `event` for every enabled strategy that listens to it; one equal to it that still waits is the same."""
        raise NotImplementedError

    async def run(self) -> None:
        """Start what is due and watch `ome.toml`, until cancelled: then what runs is cancelled too."""
        raise NotImplementedError

    async def stop(self, grace_s: float = 5.0) -> None:
        """Start nothing more, give what runs `grace_s`, then cancel it; what was recorded is written."""
        raise NotImplementedError

    async def trigger(
        self, name: str, *, timeout_s: float = 120.0, force: bool = False, dry_run: bool = False
    ) -> Triggered:
        """Run what a strategy gave up on, or is to try again, now, and wait for it.

        Args:
            name: Of the strategy.
            timeout_s: How long to wait for the runs to end; 0: not at all.
            force: Also where the strategy is disabled.
            dry_run: Only say what would be run.

        Raises:
            errors.NotFound: no strategy has that name.

        """
        raise NotImplementedError

    async def settled(self, timeout_s: float) -> bool:
        """Wait until nothing is queued, running or to be tried again; False: not within `timeout_s`."""
        raise NotImplementedError

    def is_open(self, origin: str) -> bool:
        """Tell whether anything of an origin is queued, running or to be tried again."""
        raise NotImplementedError

    def status(self) -> tuple[StrategyStatus, ...]:
        """Return every strategy that can run, and those of `ome.toml` that cannot yet; cheap."""
        raise NotImplementedError

    def dead(self) -> tuple[Dead, ...]:
        """Return what was given up, oldest first."""
        raise NotImplementedError


def nobody(_: str) -> None:
    """Tell nobody."""
