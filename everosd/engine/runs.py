"""Records of runs: written behind the work, in batches, and kept within bounds.

They are for people and for what was given up; work that must not be lost is in the log.
"""

from __future__ import annotations

import msgspec

from everosd import clock
from everosd.engine import strategy as strategies
from everosd.store import db


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of one strategy at one event."""

    run_id: str
    strategy: str
    trigger: str
    """`event`, `cron`, `idle` or `manual`."""
    status: str
    """`running`, `success`, `failed`, `dead_letter`, `skipped` or `released`."""
    attempt: int
    """1 for the first."""
    started_at: str
    """ISO, UTC."""
    finished_at: str | None = None
    error: str | None = None
    event: strategies.Event


class Runs:
    """The table `runs`."""

    def __init__(self, database: db.Database, time: clock.Clock) -> None:
        """Record into `database`."""
        raise NotImplementedError
