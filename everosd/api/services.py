"""What the HTTP door is given by the daemon."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Callable

from everosd import clock as clocks
from everosd import config as settings
from everosd.cascade import apply
from everosd.search import query
from everosd.store import read


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Services:
    """The open parts of a running daemon that requests are answered from."""

    config: settings.Config
    clock: clocks.Clock
    search: query.Search
    reader: read.Reader
    cascade: apply.Cascade
    version: str
    started_at: dt.datetime
    """When the daemon started, aware UTC."""
    stop: Callable[[], None] | None = None
    """Asks the daemon to drain and stop; None where it cannot be asked (a command working on the files alone)."""

    def now_us(self) -> int:
        """Return the current moment, microseconds since 1970."""
        return clocks.to_us(self.clock.now())

    def uptime_s(self) -> float:
        """Return seconds since the start; 0 where the clock was set back behind it."""
        return max(0.0, (self.clock.now() - self.started_at).total_seconds())
