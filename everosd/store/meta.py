"""Small facts about the ledger itself, and reads that only the cascade needs."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping

from everosd.log import heal

READER_VERSION = "5"
"""Raised when the same bytes read differently than before: every file is then read again at the next start."""

REBUILD = "rebuild"
"""Key of a rebuild in progress: it is taken up again after a crash."""


def get(connection: sqlite3.Connection, key: str) -> str | None:
    """Return one fact."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return None if row is None else str(row[0])


def put(connection: sqlite3.Connection, key: str, value: str | None) -> None:
    """Set one fact; None removes it."""
    if value is None:
        connection.execute("DELETE FROM meta WHERE key = ?", (key,))
    else:
        connection.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (key, value))


def expire_readings(connection: sqlite3.Connection, timezone: str) -> bool:
    """Have every file read again when it was read by other rules: another reader version, another time zone."""
    wanted = f"{READER_VERSION} {timezone}"
    found = get(connection, "reader")
    if found == wanted:
        return False
    mark_all_stale(connection)
    put(connection, "reader", wanted)
    return found is not None


def mark_all_stale(connection: sqlite3.Connection) -> int:
    """Have every file read again; return how many there are."""
    return connection.execute("UPDATE files SET is_stale = 1").rowcount


def held_of(connection: sqlite3.Connection, path: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return what the ledger holds of one file: entry id → raw text in file order, and entry id → successor."""
    entries = connection.execute(
        "SELECT entry_id, raw FROM entries WHERE path = ? AND nth = 0 ORDER BY position", (path,)
    )
    deprecated = connection.execute("SELECT entry_id, successor FROM deprecations WHERE path = ?", (path,))
    return dict(entries.fetchall()), dict(deprecated.fetchall())


def missing_rows(connection: sqlite3.Connection, path: str, there: Collection[str]) -> list[heal.Row]:
    """Return the entries behind the last one of `there` that the ledger holds of a file, oldest first."""
    keys = []
    for key, entry_id in connection.execute(
        "SELECT key, entry_id FROM entries WHERE path = ? AND nth = 0 ORDER BY position DESC", (path,)
    ):
        if entry_id in there:
            break
        keys.append(key)
    found = []
    for key in reversed(keys):
        row = connection.execute("SELECT entry_id, raw, updated_us FROM entries WHERE key = ?", (key,)).fetchone()
        found.append(heal.Row(id=row[0], text=row[1], at_us=row[2]))
    return found


def moved(connection: sqlite3.Connection, path: str, rows: Mapping[str, str]) -> frozenset[str]:
    """Return which entries of a file (id → raw text) also stand in another file of its owner, letter by letter."""
    query = (
        "SELECT 1 FROM files f JOIN entries e ON e.app = f.app AND e.project = f.project AND e.owner_type = f.owner_type"
        " AND e.owner_id = f.owner_id WHERE f.path = ? AND e.entry_id = ? AND e.raw = ? AND e.path <> f.path LIMIT 1"
    )
    return frozenset(key for key, raw in rows.items() if connection.execute(query, (path, key, raw)).fetchone())
