"""Numbers of one transaction: keys of entries, LSNs of changes. None is ever given twice."""

from __future__ import annotations

import sqlite3


class Numbering:
    """Numbers the changes of one transaction: entry keys and LSNs, both above everything ever given."""

    def __init__(self, connection: sqlite3.Connection, now_us: int) -> None:
        """Start above the highest numbers in the ledger."""
        self._connection = connection
        self._now_us = now_us
        self._key = sequence(connection, "entries")
        self._lsn = sequence(connection, "events")
        self._events: list[tuple[int, int, int, str, str]] = []

    @property
    def lsn(self) -> int:
        """The highest LSN given so far."""
        return self._lsn

    def next_key(self) -> int:
        """Return a key that no entry ever had."""
        self._key += 1
        return self._key

    def event(self, key: int, change: str, path: str) -> int:
        """Number one change and return its LSN."""
        self._lsn += 1
        self._events.append((self._lsn, self._now_us, key, change, path))
        return self._lsn

    def flush(self) -> None:
        """Write the events; call once, last."""
        self._connection.executemany(
            "INSERT INTO events (lsn, at_us, key, change, path) VALUES (?, ?, ?, ?, ?)", self._events
        )
        self._events.clear()


def sequence(connection: sqlite3.Connection, table: str) -> int:
    """Return the highest row number that `table` ever gave out."""
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)).fetchone()
    return 0 if row is None else int(row[0])
