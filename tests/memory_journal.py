"""The ledger's side of the writer, kept in memory: what `store.journal` does, without a database."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from everosd import types
from everosd.log import heal


class MemoryJournal:
    """Implements `log.context.Journal`."""

    def __init__(self) -> None:
        """Start with nothing given and nothing written."""
        self.high: dict[tuple[types.Owner, str, str], int] = {}
        self.writes: dict[int, tuple[types.RelPath, heal.Write]] = {}
        self.is_landed: set[int] = set()
        self.on_record: dict[types.RelPath, heal.Known] = {}
        self.rows: dict[types.RelPath, list[heal.Row]] = {}
        self.elsewhere: set[tuple[types.RelPath, str]] = set()
        self._number = 0

    def highest(self, owner: types.Owner, prefix: str, date: str) -> int:
        """Return what a test has put into `high`."""
        return self.high.get((owner, prefix, date), 0)

    def planned(self, path: types.RelPath, write: heal.Write) -> int:
        """Remember a write."""
        self._number += 1
        self.writes[self._number] = (path, write)
        return self._number

    def landed(self, number: int) -> None:
        """Remember that it happened."""
        self.is_landed.add(number)

    def dropped(self, number: int) -> None:
        """Forget it."""
        del self.writes[number]

    async def since(self, path: types.RelPath, stamp: str) -> list[heal.Write]:
        """Return the landed writes after a stamp."""
        return [
            write
            for number, (at, write) in self.writes.items()
            if at == path and number in self.is_landed and heal.is_older(stamp, write.stamp)
        ]

    async def missing(self, path: types.RelPath, there: Collection[str]) -> list[heal.Row]:
        """Return what a test has put into `rows`, behind the last that is there."""
        rows = self.rows.get(path, [])
        last = max((at for at, row in enumerate(rows) if row.id in there), default=-1)
        return rows[last + 1 :]

    async def moved(self, path: types.RelPath, entries: Mapping[str, str]) -> frozenset[str]:
        """Return what a test has put into `elsewhere`."""
        return frozenset(key for key in entries if (path, key) in self.elsewhere)

    async def known(self, path: types.RelPath) -> heal.Known | None:
        """Return what a test has put on record."""
        return self.on_record.get(path)
