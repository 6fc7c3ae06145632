"""What the HTTP door is given by the daemon."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec

from everosd import clock as clocks
from everosd import config as settings
from everosd.cascade import apply
from everosd.cascade import status as cascade_status
from everosd.search import query
from everosd.store import read
from everosd.watch import fs

if TYPE_CHECKING:  # a command that only reads needs none of them
    from everosd.engine import engine as engines
    from everosd.intake import online
    from everosd.lifecycle import scheduled, usage
    from everosd.models import chat
    from everosd.reflection import reflect


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
    intake: online.Intake | None = None
    """What takes messages; None where nothing does (a command working on the files alone)."""
    engine: engines.Engine | None = None
    """What runs strategies; None where nothing does."""
    reflection: Callable[[], Awaitable[reflect.Reflection]] | None = None
    """Gives what consolidates, made where it is not there yet; None where nothing does."""
    lifecycle: Callable[[], Awaitable[scheduled.Scheduled]] | None = None
    """Gives what makes passes over typed memories, made where it is not there yet; None where nothing does."""
    made_lifecycle: Callable[[], scheduled.Scheduled | None] = lambda: None
    """Gives the same if it is there: where it is not, it has nothing to say."""
    model: chat.Chat | None = None
    """The model that reads conversations; None where nothing would ask it."""
    usage: usage.Noting | None = None
    """Takes note of uses; None where nothing does."""
    in_force: Callable[[], settings.Config] | None = None
    """Gives the settings of this moment, which may have been saved since the start; None: `config` stays in force."""
    stop: Callable[[], None] | None = None
    """Asks the daemon to drain and stop; None where it cannot be asked (a command working on the files alone)."""

    watcher: fs.Watcher | None = None
    """What notices changes; None where nothing watches (a command working on the files alone)."""
    notices: Callable[[], tuple[str, ...]] = tuple
    """What else /health and status should say, e.g. of settings that were refused."""

    def status(self) -> cascade_status.Status:
        """Return what the cascade says of itself, with how changes are noticed and what else there is to say; cheap."""
        now = msgspec.structs.replace(self.cascade.status(), notices=self.notices())
        if self.watcher is None:
            return now
        return msgspec.structs.replace(
            now, watch_mode=self.watcher.mode, watch_healthy=self.watcher.healthy, watch_reason=self.watcher.reason
        )

    def now_us(self) -> int:
        """Return the current moment, microseconds since 1970."""
        return clocks.to_us(self.clock.now())

    def uptime_s(self) -> float:
        """Return seconds since the start; 0 where the clock was set back behind it."""
        return max(0.0, (self.clock.now() - self.started_at).total_seconds())
