"""Checkpoints of the projections: how far each index has followed the ledger."""

from __future__ import annotations

import sqlite3

import msgspec

FOLLOWER = "engine_lsn"
"""Fact in `meta`: the engine has read the changes up to here. Missing: no engine has ever read any."""

_NO_BOUND = 2**63 - 1


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The persisted position of one generation of an index."""

    name: str
    generation: int
    """Number of the folder on disk."""
    lsn: int
    """Every change up to here is in the index."""
    cursor: int | None = None
    """While the index is filled from the entries: all with keys up to this are in. None: filled, only changes follow."""


def load(connection: sqlite3.Connection, name: str) -> Checkpoint | None:
    """Return the checkpoint called `name`."""
    row = connection.execute("SELECT generation, lsn, cursor FROM checkpoints WHERE name = ?", (name,)).fetchone()
    return None if row is None else Checkpoint(name=name, generation=row[0], lsn=row[1], cursor=row[2])


def save(connection: sqlite3.Connection, checkpoint: Checkpoint, now_us: int) -> None:
    """Write one checkpoint and drop the events that everybody has passed."""
    connection.execute(
        "INSERT OR REPLACE INTO checkpoints (name, generation, lsn, cursor, at_us) VALUES (?, ?, ?, ?, ?)",
        (checkpoint.name, checkpoint.generation, checkpoint.lsn, checkpoint.cursor, now_us),
    )
    prune(connection)


def prune(connection: sqlite3.Connection) -> None:
    """Drop the events that every index has passed, and the engine's follower where there is one."""
    connection.execute(
        "DELETE FROM events WHERE lsn <= min((SELECT min(lsn) FROM checkpoints),"
        " coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE key = ?), ?))",
        (FOLLOWER, _NO_BOUND),
    )


def forget(connection: sqlite3.Connection, name: str) -> None:
    """Drop the checkpoints of an index that is not kept any more: it would hold the events back for ever."""
    connection.execute("DELETE FROM checkpoints WHERE name IN (?, ?)", (name, f"{name}.next"))


def promote(connection: sqlite3.Connection, name: str, now_us: int) -> None:
    """Make the replacement `<name>.next` the index called `name`."""
    replacement = load(connection, f"{name}.next")
    if replacement is None:
        return
    connection.execute("DELETE FROM checkpoints WHERE name = ?", (f"{name}.next",))
    save(connection, msgspec.structs.replace(replacement, name=name), now_us)
