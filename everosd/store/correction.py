"""Which entry contradicts which earlier one: what the `corrects` fields of the log say, as a table.

A correction holds while the later entry is live. It never leaves its owner: whatever id a field names, it is looked for
among the entries of the owner in whose file the field stands.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import msgspec

from everosd import types
from everosd.log import entry_text, escape
from everosd.store import state

KINDS = ("atomic_fact", "memory")
"""What can correct something."""

FIELD = "corrects"

MAX_CORRECTIONS = 256
"""What one search hears of at most: somebody whose weight is noted every day corrects themselves for years."""

_WRITTEN = f"**{FIELD}**:"

TABLE = state.Table(
    name="corrections",
    columns=("app", "project", "owner_type", "owner_id", "entry_id", "target", "path"),
    subject="entry_id",
    kind=KINDS[0],
)


class Correction(msgspec.Struct, frozen=True, kw_only=True):
    """A live entry that contradicts an earlier one of the same owner."""

    target: types.EntryKey
    """The earlier one."""
    by: types.EntryKey
    """The later one."""
    entry: types.EntryKey
    """What an answer shows of the later one: the Episode of a fact, else the entry itself."""


def targets(entry_id: str, owner_id: str, written: str) -> tuple[str, ...]:
    """Return the entry ids in a `corrects` field, each once; public ids count where they are the owner's own."""
    found = []
    for each in escape.read_list(written):
        public = types.parse_public_id(each)
        target = each if public is None else public.entry_id if public.owner_id == owner_id else ""
        if target and target != entry_id:
            found.append(target)
    return tuple(dict.fromkeys(found))


def fold(connection: sqlite3.Connection, change: state.Change) -> None:
    """Bring the table in step with what has become of a file; where nothing corrects anything that is one look at it."""
    changed = [entry for _, entry in change.written if entry.kind in KINDS and entry.nth == 0]
    is_known = connection.execute("SELECT 1 FROM corrections WHERE path = ? LIMIT 1", (change.path,)).fetchone()
    if is_known is not None:
        stale = {entry.entry_id for entry in changed} | {
            entry_id for _, entry_id in change.gone if not _is_there(connection, change.path, entry_id)
        }
        connection.executemany(
            "DELETE FROM corrections WHERE path = ? AND entry_id = ?", [(change.path, each) for each in sorted(stale)]
        )
    told = [
        (change.path, entry.entry_id, target, *change.scope)
        for entry in changed
        if _WRITTEN in entry.raw
        for target in _read(entry, change.owner.id)
    ]
    connection.executemany(
        "INSERT INTO corrections (path, entry_id, target, app, project, owner_type, owner_id) VALUES (?, ?, ?, ?, ?, ?, ?)",
        told,
    )


def _is_there(connection: sqlite3.Connection, path: str, entry_id: str) -> bool:
    """Return whether the first entry with an id is in a file still, where another with that id has gone from it."""
    sql = "SELECT 1 FROM entries WHERE path = ? AND entry_id = ? AND nth = 0"
    return connection.execute(sql, (path, entry_id)).fetchone() is not None


def _read(entry: state.EntryState, owner_id: str) -> tuple[str, ...]:
    fields = entry_text.read(entry.kind, entry.entry_id, entry.raw).fields
    return targets(entry.entry_id, owner_id, fields.get(FIELD, ""))


_STEP = """
    CROSS JOIN corrections c ON c.app = e.app AND c.project = e.project AND c.owner_type = e.owner_type
        AND c.owner_id = e.owner_id AND c.target = e.entry_id
    CROSS JOIN entries b ON b.path = c.path AND b.entry_id = c.entry_id AND b.nth = 0
WHERE b.is_shadowed = 0 AND b.status = 'active' AND (b.expires_us IS NULL OR b.expires_us > :now_us)"""
"""From an entry `e` to the live ones that correct it; the joins are in this order, from few rows to few rows."""


_FIND = f"""
WITH RECURSIVE found (target, by) AS (
    SELECT e.key, b.key FROM json_each(:keys) k CROSS JOIN entries e ON e.key = k.value {_STEP}
        AND EXISTS (SELECT 1 FROM corrections o
            WHERE o.app = :app AND o.project = :project AND o.owner_type = :type AND o.owner_id = :id)
    UNION
    SELECT found.by, b.key FROM found CROSS JOIN entries e ON e.key = found.by {_STEP}
    LIMIT {MAX_CORRECTIONS}
)
SELECT found.target, found.by, CASE b.kind WHEN 'atomic_fact' THEN p.key ELSE b.key END AS entry
FROM found CROSS JOIN entries b ON b.key = found.by
    LEFT JOIN entries p ON p.app = b.app AND p.project = b.project AND p.owner_type = b.owner_type
        AND p.owner_id = b.owner_id AND p.entry_id = b.parent_id AND p.is_shadowed = 0
WHERE b.app = :app AND b.project = :project AND b.owner_type = :type AND b.owner_id = :id AND entry IS NOT NULL
"""  # noqa: S608  # all of it is ours


def query(owner: types.Owner, keys: Sequence[int], now_us: int) -> tuple[str, dict[str, object]]:
    """Return the statement that finds what corrects these entries of an owner, and what corrects that in turn.

    Its rows are those of `Correction`, in its order of fields. For an owner without corrections it ends at one look.
    """
    given: dict[str, object] = {
        "keys": str(list(map(int, keys))),
        "app": owner.app,
        "project": owner.project,
        "type": owner.type,
        "id": owner.id,
        "now_us": now_us,
    }
    return _FIND, given
