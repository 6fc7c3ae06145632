"""Reads from the ledger: rows for search, get, entries and status."""

from __future__ import annotations

import asyncio
import collections
import itertools
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

import aiosqlite
import msgspec

from everosd import types
from everosd.log import entry_text, escape
from everosd.store import correction, db, owned, row

N_CONNECTIONS = 2
"""Readers side by side; each is a thread. WAL readers never wait for the writer."""

MAX_VARIABLES = 500
"""Placeholders per statement, well under SQLite's limit."""

FIELDS = """e.key, e.path, e.line, e.entry_id, e.kind, e.form, e.app, e.project, e.owner_type, e.owner_id, e.lsn,
e.session_id, e.timestamp_us, e.parent_type, e.parent_id, e.sender_ids, e.memory_type, e.memory_path, e.status,
e.deprecated_by, e.expires_us, e.updated_us, e.raw"""

_IMPORTANCE = """coalesce(s.importance, CASE WHEN m.own_importance <> '' THEN m.importance END)"""
"""What decay has left of it, else what the entry says."""
_WITH_IMPORTANCE = """entries e LEFT JOIN typed_memories m ON m.key = e.key
    LEFT JOIN lifecycle_state s ON s.app = e.app AND s.project = e.project AND s.owner_type = e.owner_type
        AND s.owner_id = e.owner_id AND s.entry_id = e.entry_id"""

_OWNER = owned.by("e")
_SORT_COLUMNS = {"timestamp": "e.timestamp_us", "updated_at": "e.updated_us"}
_SENDERS = msgspec.json.Decoder(tuple[str, ...])


class Reader:
    """Asynchronous reads; every method may be called from the event loop at any time, and raises `StoreError`."""

    def __init__(self, path: pathlib.Path, connections: Sequence[aiosqlite.Connection]) -> None:
        """Take over open connections to the ledger at `path`; use `Reader.open`."""
        self._path = path
        self._connections = connections
        self._turn = itertools.cycle(connections)

    @classmethod
    async def open(cls, path: pathlib.Path, settings: db.Settings | None = None) -> Reader:
        """Open read connections to the ledger at `path`, which a `db.Database` has made."""
        connections = []
        for _ in range(N_CONNECTIONS):
            connection = await aiosqlite.connect(db.read_only(path), uri=True, isolation_level=None)
            connections.append(connection)
            for pragma in db.pragmas(settings or db.Settings())[2:]:
                await connection.execute(pragma)
        return cls(path, connections)

    async def close(self) -> None:
        """Close the connections."""
        for connection in self._connections:
            await connection.close()

    async def _all(self, sql: str, parameters: Sequence[object] | dict[str, object] = ()) -> list[aiosqlite.Row]:
        try:
            return list(await next(self._turn).execute_fetchall(sql, parameters))
        except db.FAILURES as error:
            raise db.store_error(self._path, error) from error

    async def fetch(self, sql: str, parameters: Sequence[object] = ()) -> list[aiosqlite.Row]:
        """Return the rows of a query of another module of the store."""
        return await self._all(sql, parameters)

    async def rows(self, keys: Sequence[int]) -> list[row.EntryRow]:
        """Return the live entries with these keys, in the order asked for; keys that are gone are left out.

        They carry their importance.
        """
        found: dict[int, row.EntryRow] = {}
        for start in range(0, len(keys), MAX_VARIABLES):
            part = keys[start : start + MAX_VARIABLES]
            marks = ", ".join("?" * len(part))
            sql = (
                f"SELECT {_IMPORTANCE}, {FIELDS} FROM {_WITH_IMPORTANCE}"  # noqa: S608  # placeholders
                f" WHERE e.key IN ({marks}) AND e.is_shadowed = 0"
            )
            for importance, *values in await self._all(sql, part):
                found[values[0]] = to_row(values, importance)
        return [found[key] for key in keys if key in found]

    async def orphans(self, keys: Sequence[int], now_us: int) -> set[types.EntryKey]:
        """Return which of these keys are facts of an Episode that no file has any more, or that is past its `expires_at`.

        Where its status says that it is away, so does that of its facts.
        """
        found: set[types.EntryKey] = set()
        for start in range(0, len(keys), MAX_VARIABLES):
            part = keys[start : start + MAX_VARIABLES]
            marks = ", ".join("?" * len(part))
            rows = await self._all(
                f"SELECT e.key FROM entries e WHERE e.key IN ({marks}) AND e.parent_type = 'episode' AND e.parent_id <> ''"  # noqa: S608
                " AND NOT EXISTS (SELECT 1 FROM entries p WHERE p.app = e.app AND p.project = e.project"
                " AND p.owner_type = e.owner_type AND p.owner_id = e.owner_id"
                " AND p.entry_id IN (e.parent_id, substr(e.parent_id, length(e.owner_id) + 2))"
                " AND (p.expires_us IS NULL OR p.expires_us > ? OR p.status <> 'active'))",
                (*part, now_us),
            )
            found.update(types.EntryKey(key) for (key,) in rows)
        return found

    async def find(self, owner: types.Owner, entry_id: str) -> row.EntryRow | None:
        """Return one live entry of an owner."""
        found = await self._all(
            f"SELECT {FIELDS} FROM entries e WHERE {_OWNER}"  # noqa: S608
            " AND e.entry_id = ? AND e.is_shadowed = 0",
            (*owned.scope(owner), entry_id),
        )
        return to_row(found[0]) if found else None

    async def find_each(self, app: str, project: str, owner_id: str, entry_id: str) -> list[row.EntryRow]:
        """Return the live entries with this id of all that are called `owner_id`: a user, an agent, a session."""
        owners = [
            types.Owner(app=app, project=project, type=each, id=owner_id) for each in ("user", "agent", "session")
        ]
        return [found for owner in owners if (found := await self.find(owner, entry_id)) is not None]

    async def page(
        self,
        owner: types.Owner,
        kind: str | Sequence[str],
        *,
        where: tuple[str, Sequence[object]] = ("", ()),
        statuses: Sequence[str] = ("active",),
        now_us: int,
        sort_by: str = "timestamp",
        descending: bool = True,
        limit: int,
        offset: int = 0,
    ) -> tuple[list[row.EntryRow], int]:
        """Return one page of an owner's live entries of a kind, or of several, and how many there are in all.

        `where` is SQL on the alias `e` with its parameters. An entry past its `expires_at` counts as `expired`.
        """
        effective = "CASE WHEN e.status = 'active' AND e.expires_us <= ? THEN 'expired' ELSE e.status END"
        kinds = (kind,) if isinstance(kind, str) else tuple(kind)
        condition = (
            f"{_OWNER} AND e.kind IN ({', '.join('?' * len(kinds))}) AND e.is_shadowed = 0"
            f" AND {effective} IN ({', '.join('?' * len(statuses))})" + (f" AND ({where[0]})" if where[0] else "")
        )
        values = (*owned.scope(owner), *kinds, now_us, *statuses, *where[1])
        total = await self._all(f"SELECT count(*) FROM entries e WHERE {condition}", values)  # noqa: S608  # our own columns
        direction = "DESC" if descending else "ASC"
        found = await self._all(
            f"SELECT {FIELDS} FROM entries e WHERE {condition}"  # noqa: S608  # our own columns
            f" ORDER BY {_SORT_COLUMNS[sort_by]} {direction}, e.entry_id {direction} LIMIT ? OFFSET ?",
            (*values, limit, offset),
        )
        return [to_row(values) for values in found], int(total[0][0])

    async def children(self, owner: types.Owner, parent_ids: Sequence[str], kind: str) -> list[row.EntryRow]:
        """Return the live entries of a kind whose parent is one of `parent_ids`, in file order."""
        found: list[row.EntryRow] = []
        for start in range(0, len(parent_ids), MAX_VARIABLES):
            part = parent_ids[start : start + MAX_VARIABLES]
            marks = ", ".join("?" * len(part))
            rows = await self._all(
                f"SELECT {FIELDS} FROM entries e WHERE {_OWNER}"  # noqa: S608
                f" AND e.parent_id IN ({marks}) AND e.parent_id <> '' AND e.kind = ? AND e.is_shadowed = 0"
                " ORDER BY e.path, e.position",
                (*owned.scope(owner), *part, kind),
            )
            found += [to_row(values) for values in rows]
        return found

    async def corrections(
        self, owner: types.Owner, keys: Sequence[int], now_us: int
    ) -> tuple[correction.Correction, ...]:
        """Return what corrects these entries of an owner, and what corrects that in turn, as far as it is live."""
        found = await self._all(*correction.query(owner, keys, now_us))
        return tuple(correction.Correction(target=one[0], by=one[1], entry=one[2]) for one in found)

    async def messages(self, app: str, project: str, session_id: str) -> list[row.EntryRow]:
        """Return the rows of one session's log, oldest first."""
        rows = await self._all(
            f"SELECT {FIELDS} FROM entries e WHERE e.app = ? AND e.project = ? AND e.owner_type = 'session'"  # noqa: S608
            " AND e.owner_id = ? AND e.is_shadowed = 0 ORDER BY e.path, e.position",
            (app, project, session_id),
        )
        return [to_row(values) for values in rows]

    async def unfinished_sessions(self) -> list[types.Owner]:
        """Return the sessions of which messages may wait, or segments not be finished; each has to be looked at.

        Counted, not compared: a session whose log has second copies, or that a person edited, is named as well.
        """
        counted = await self._all(
            "SELECT app, project, owner_id, count(*) FROM entries WHERE owner_type = 'session' AND kind = 'message'"
            " AND is_shadowed = 0 GROUP BY app, project, owner_id"
        )
        segments = await self._all(
            "SELECT app, project, owner_id, entry_id, raw FROM entries WHERE owner_type = 'session' AND kind = 'segment'"
            " AND is_shadowed = 0"
        )
        return await asyncio.to_thread(_unfinished, counted, segments)

    async def owner_ids(self, app: str, project: str, owner_type: str, limit: int = -1) -> list[str]:
        """Return the ids of the owners of a type in a scope that have any file, sorted."""
        rows = await self._all(
            "SELECT DISTINCT owner_id FROM files WHERE app = ? AND project = ? AND owner_type = ? ORDER BY owner_id LIMIT ?",
            (app, project, owner_type, limit),
        )
        return [str(values[0]) for values in rows]

    async def lsn(self) -> int:
        """Return the highest LSN ever given."""
        rows = await self._all("SELECT seq FROM sqlite_sequence WHERE name = 'events'")
        return int(rows[0][0]) if rows else 0


def _unfinished(counted: Iterable[Sequence[Any]], segments: Iterable[Sequence[Any]]) -> list[types.Owner]:
    """Return the sessions with more messages than were cut, or with a segment that was cut and not followed up."""
    n_cut: collections.Counter[tuple[str, str, str]] = collections.Counter()
    cut: dict[tuple[str, str, str], set[str]] = {}
    followed: dict[tuple[str, str, str], set[str]] = {}
    for app, project, owner_id, entry_id, raw in segments:
        fields = entry_text.read("segment", entry_id, raw).fields
        at = (app, project, owner_id)
        states = followed if fields.get("state") == "followed" else cut
        states.setdefault(at, set()).add(fields.get("memcell_id", ""))
        n_cut[at] += len(escape.read_list(fields.get("message_ids", "")))
    return [
        types.Owner(app=app, project=project, type="session", id=owner_id)
        for app, project, owner_id, n_messages in counted
        if n_messages > n_cut[app, project, owner_id]
        or cut.get((app, project, owner_id), set()) - followed.get((app, project, owner_id), set())
    ]


def to_row(values: Sequence[Any] | aiosqlite.Row, importance: float | None = None) -> row.EntryRow:
    """Return the columns of `FIELDS` as a struct."""
    (
        key, path, line, entry_id, kind, form, app, project, owner_type, owner_id, lsn, session_id, timestamp_us,
        parent_type, parent_id, sender_ids, memory_type, memory_path, status, deprecated_by, expires_us, updated_us, raw,
    ) = values  # fmt: skip
    return row.EntryRow(
        key=key,
        path=path,
        line=line,
        entry_id=entry_id,
        kind=kind,
        form=form,
        owner=types.Owner(app=app, project=project, type=owner_type, id=owner_id),
        lsn=lsn,
        session_id=session_id,
        timestamp_us=timestamp_us,
        parent_type=parent_type,
        parent_id=parent_id,
        sender_ids=() if sender_ids == "[]" else _SENDERS.decode(sender_ids),
        memory_type=memory_type,
        memory_path=memory_path,
        status=status,
        deprecated_by=deprecated_by,
        expires_us=expires_us,
        updated_us=updated_us,
        raw=raw,
        importance=importance,
    )
