"""Checkpoints of the projections: how far each index has followed the ledger."""

from __future__ import annotations

import sqlite3

import msgspec


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
    """Write one checkpoint and drop the events that every index has passed."""
    connection.execute(
        "INSERT OR REPLACE INTO checkpoints (name, generation, lsn, cursor, at_us) VALUES (?, ?, ?, ?, ?)",
        (checkpoint.name, checkpoint.generation, checkpoint.lsn, checkpoint.cursor, now_us),
    )
    connection.execute("DELETE FROM events WHERE lsn <= (SELECT min(lsn) FROM checkpoints)")


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
