"""Small facts about the ledger itself, and reads that only the cascade needs."""

from __future__ import annotations

import sqlite3

READER_VERSION = "2"
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
