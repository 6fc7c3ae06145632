"""One fire of a timed strategy, from when it was due to its last attempt."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Literal

from everosd.engine import lane as lanes
from everosd.engine import runs as records
from everosd.engine import strategy as strategies

Trigger = Literal["cron", "idle", "manual"]


class Firing:
    """One fire, through all its attempts."""

    __slots__ = (
        "attempt",
        "due_at",
        "due_s",
        "faults",
        "first_at",
        "is_dry_run",
        "is_told",
        "record",
        "run_id",
        "ticket",
        "trigger",
    )

    def __init__(
        self,
        trigger: Trigger,
        due_at: dt.datetime,
        *,
        attempt: int = 0,
        is_dry_run: bool = False,
        first_at: dt.datetime | None = None,
    ) -> None:
        """Begin with so many attempts behind it."""
        self.first_at = first_at
        self.trigger: Trigger = trigger
        self.due_at = due_at
        self.attempt = attempt
        self.is_dry_run = is_dry_run
        self.faults = 0
        """Attempts that failed by its own fault: those that count."""
        self.due_s = 0.0
        """When it is tried again, by the monotonic clock."""
        self.is_told = False
        """It was told to stop, and what it did may not be all."""
        self.run_id = ""
        """Of the newest attempt."""
        self.record: records.Record | None = None
        """Of the newest attempt that has ended."""
        self.ticket: lanes.Ticket | None = None

    def fire(self, is_stopping: Callable[[], bool]) -> strategies.Fire:
        """Return what the strategy is run with; that it was told to stop is kept in mind."""

        def asked() -> bool:
            is_told = is_stopping()
            self.is_told |= is_told
            return is_told

        return strategies.Fire(
            run_id=self.run_id,
            trigger=self.trigger,
            due_at=self.due_at,
            first_at=self.first_at,
            is_dry_run=self.is_dry_run,
            is_stopping=asked,
        )
