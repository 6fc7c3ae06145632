"""Hand edits become events: an Episode that a person changed or wrote gets new facts once it has been quiet for a while."""

from __future__ import annotations

from everosd import clock
from everosd.engine import engine
from everosd.store import db


class Follower:
    """Reads the ledger's changes from a checkpoint of its own."""

    def __init__(self, database: db.Database, engine: engine.Engine, time: clock.Clock) -> None:
        """Emit into `engine`."""
        raise NotImplementedError

    def wake(self, lsn: int) -> None:
        """Tell that the ledger has come up to `lsn`."""
        raise NotImplementedError

    async def run(self) -> None:
        """Follow until cancelled."""
        raise NotImplementedError
