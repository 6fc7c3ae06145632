"""A person's edit of a typed memory becomes one row `edited` of its log, once the memory has been quiet for a while.

An edit of the importance says so: decay begins anew with it.
What the daemon writes itself is told apart: its rows name the text that they left. Files that are changed by the thousand, as a
checkout does, are no sign that anybody cares about each of them. A crash may write a row twice: it is of the same moment.
"""

from __future__ import annotations

import sqlite3

import msgspec
import structlog

from everosd import clock, errors, types
from everosd.log import entry, entry_text, writer
from everosd.store import db, owned

CHANGE = "memory"
"""In the table `edits`: a typed memory, where other rows are of Episodes."""

MINUTE_US = 60_000_000
MAX_A_MINUTE = 50
"""Memories that a person may change in a minute; where there are more, a program did."""

BATCH = 2000
AGAIN_US = 60_000_000
"""After a row could not be written."""

log = structlog.get_logger(__name__)


class _Edit(msgspec.Struct, frozen=True, kw_only=True):
    key: int
    lsn: int
    at_us: int
    entry_id: str
    owner: types.Owner
    was: str | None = None
    """Importance as written before; None: nobody changed it."""
    importance: str = ""
    """As written now."""
    minute: int
    """Of the edit."""


class _Found(msgspec.Struct, frozen=True, kw_only=True):
    due: tuple[_Edit, ...]
    """Edits that are dealt with now."""
    written: tuple[_Edit, ...]
    """Those of them that are a person's."""
    crowded: frozenset[int]
    """Minutes in which a program changed memories, all of them."""
    oldest_us: int | None
    """Moment of the oldest edit that waits, these included; None: none does."""


class Touches:
    """Writes the rows. Lives on the event loop, asked by the follower."""

    def __init__(self, database: db.Database, pen: writer.Writer, quiet_us: int) -> None:
        """Wait `quiet_us` after the last edit of a memory."""
        self._database, self._pen, self._quiet_us = database, pen, quiet_us
        self._next_us: int | None = 0
        """When to look; None: nothing waits."""
        self._is_failing = False

    async def look(self, now_us: int, *, has_news: bool) -> None:
        """Write what has been quiet long enough.

        Raises:
            errors.StoreError: the ledger cannot be read or written.
        """
        if not has_news and (self._next_us is None or self._next_us > now_us):
            return
        found = await self._database.write(lambda connection: _found(connection, now_us, self._quiet_us))
        by_owner: dict[types.Owner, list[_Edit]] = {}
        for edit in found.written:
            by_owner.setdefault(edit.owner, []).append(edit)
        try:
            for owner, edits in by_owner.items():
                await self._pen.append(owner, "lifecycle", [_row(edit) for edit in edits])
        except errors.WriteRefused as error:
            if not self._is_failing:
                log.warning("edit_not_noted", reason=str(error))
            self._is_failing, self._next_us = True, now_us + AGAIN_US
            return
        self._is_failing = False
        oldest_us = found.oldest_us
        if found.due:
            oldest_us = await self._database.write(lambda connection: _done(connection, found))
        self._next_us = None if oldest_us is None else _ripe_us(oldest_us) + self._quiet_us


def note(connection: sqlite3.Connection, key: int, lsn: int, at_us: int) -> None:
    """Remember that a typed memory was modified, by whomever."""
    connection.execute("INSERT OR REPLACE INTO edits VALUES (?, ?, ?, ?)", (key, lsn, at_us, CHANGE))


def _ripe_us(at_us: int) -> int:
    """Return the end of the minute of an edit: only then it can be counted with the others."""
    return (at_us // MINUTE_US + 1) * MINUTE_US


def _found(connection: sqlite3.Connection, now_us: int, quiet_us: int) -> _Found:
    """Return the edits of minutes that have been quiet, the oldest first.

    A moment in the future comes of a clock that was wrong.
    """
    rows = connection.execute(
        "SELECT d.key, d.lsn, d.at_us, e.entry_id, e.app, e.project, e.owner_type, e.owner_id, e.kind, e.raw,"
        " i.was, ifnull(m.own_importance, '') FROM edits d JOIN entries e ON e.key = d.key"
        " LEFT JOIN typed_memories m ON m.key = d.key LEFT JOIN importance_edits i ON i.key = d.key WHERE d.change = ? AND (d.at_us < ? OR d.at_us > ?)"
        " ORDER BY d.at_us LIMIT ?",
        (CHANGE, (now_us - quiet_us) // MINUTE_US * MINUTE_US, now_us + quiet_us, BATCH),
    ).fetchall()
    due: list[_Edit] = []
    by_minute: dict[int, list[_Edit]] = {}
    for key, lsn, at_us, entry_id, app, project, owner_type, owner_id, kind, raw, was, importance in rows:
        owner = types.Owner(app=app, project=project, type=owner_type, id=owner_id)
        edit = _Edit(
            key=key,
            lsn=lsn,
            at_us=min(at_us, now_us),
            entry_id=entry_id,
            owner=owner,
            was=was if was != importance else None,
            importance=importance,
            minute=at_us // MINUTE_US,
        )
        due.append(edit)
        if not _is_ours(connection, edit, entry_text.digest(kind, entry_id, raw).hex()):
            by_minute.setdefault(edit.minute, []).append(edit)
    crowded = frozenset(minute for minute, edits in by_minute.items() if len(edits) > MAX_A_MINUTE)
    if len(rows) == BATCH and len({edit.minute for edit in due}) > 1:  # of the last minute there may be more
        due = [edit for edit in due if edit.minute != due[-1].minute]
    return _Found(
        due=tuple(due),
        written=tuple(edit for edit in due if edit.minute not in crowded and edit in by_minute.get(edit.minute, ())),
        crowded=crowded,
        oldest_us=_oldest_us(connection),
    )


def _is_ours(connection: sqlite3.Connection, edit: _Edit, digest: str) -> bool:
    """Return whether the newest version is of the daemon's making; of what was redacted nothing is noted any more."""
    owner = edit.owner
    scope = (*owned.scope(owner), edit.entry_id)
    where = owned.by()
    redacted = connection.execute(
        f"SELECT 1 FROM lifecycle_state WHERE {where} AND entry_id = ? AND is_redacted = 1",  # noqa: S608  # our own columns
        scope,
    ).fetchone()
    newest = connection.execute(
        "SELECT e.entry_id, e.raw FROM entries e WHERE e.key = (SELECT key FROM lifecycle_rows"  # noqa: S608
        f" WHERE {where} AND target = ? AND action IN ('update', 'pin') ORDER BY place DESC LIMIT 1)",
        scope,
    ).fetchone()
    if newest is None:
        return redacted is not None
    return redacted is not None or entry_text.read("lifecycle", *newest).fields.get("digest") == digest


def _done(connection: sqlite3.Connection, found: _Found) -> int | None:
    """Forget edits; return the moment of the oldest one that is left."""
    edits = found.due
    connection.executemany("DELETE FROM edits WHERE key = ? AND lsn = ?", [(edit.key, edit.lsn) for edit in edits])
    for minute in found.crowded:  # more than one look takes in: what is left of it is a program's, too
        of_minute = (CHANGE, minute * MINUTE_US, (minute + 1) * MINUTE_US)
        connection.execute(
            "DELETE FROM importance_edits WHERE key IN"
            " (SELECT key FROM edits WHERE change = ? AND at_us >= ? AND at_us < ?)",
            of_minute,
        )
        connection.execute("DELETE FROM edits WHERE change = ? AND at_us >= ? AND at_us < ?", of_minute)
    # Not of what was edited once more since, be it that `edits` does not have that yet.
    connection.executemany(
        "DELETE FROM importance_edits WHERE key = ?"
        " AND NOT EXISTS (SELECT 1 FROM events WHERE lsn > ? AND key = ? AND change = 'modified')",
        [(edit.key, edit.lsn, edit.key) for edit in edits],
    )
    return _oldest_us(connection)


def _oldest_us(connection: sqlite3.Connection) -> int | None:
    found = connection.execute("SELECT min(at_us) FROM edits WHERE change = ?", (CHANGE,)).fetchone()
    return None if found[0] is None else int(found[0])


def _row(edit: _Edit) -> entry.Draft:
    at = clock.from_us(edit.at_us).isoformat(timespec="microseconds")
    fields = {"timestamp": at, "action": "edited", "target": edit.entry_id}
    if edit.was is not None:
        fields |= {"field": "importance", "was": edit.was, "value": edit.importance}
    return entry.Draft(fields={name: text for name, text in fields.items() if text})
