"""Which entry counts: the winner among equal ids, and the status that its successors give it.

Of entries with the same id the one in the file of the id's date wins, then path order, then order in the file. An
entry is deprecated while its chain of successors leads to an entry that is there; a dangling or circular chain leaves
it live. What a rolled back consolidation replaced is not replaced by its narrative, whatever files say that are behind,
or away, or come back: the row `rolled_back` decides, and taking the keys out of the files is tidying.

A memory or an Episode has the status that it says itself, unless a valid row of `.lifecycle/` gives it another. While an Episode
is expired, superseded, archived or deleted, so are its facts: they are not found without it. Deprecated comes before all of that,
but for `deleted`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable

import msgspec

from everosd import types
from everosd.store import lifecycle, numbering, owned, read

_OWNER = owned.by()

_AWAY = "('archived', 'deleted', 'expired', 'superseded')"
"""As the index `entries_away` has it."""


class _Row(msgspec.Struct, frozen=True, kw_only=True):
    key: int
    path: str
    nth: int
    date: str
    kind: str
    parent_id: str
    is_shadowed: bool
    own_status: str
    status: str
    deprecated_by: str | None


def settle(
    connection: sqlite3.Connection, order: numbering.Numbering, owner: types.Owner, touched: Iterable[str]
) -> bool:
    """Decide winners and status of the `touched` ids of one owner and of all that point to them.

    Returns:
        Whether some entry became shadowed or stopped being so, or one with a successor was among them.
    """
    scope = (owner.app, owner.project, owner.type, owner.id)
    has_successors = _has_deprecations(connection, scope)
    ids = set(touched)
    ordered = sorted(_with_predecessors(connection, scope, ids) if has_successors else ids)
    pass_ = _Pass(connection, order, scope, has_successors=has_successors, has_rows=_has_rows(connection, scope))
    is_changed = pass_.settle(ordered, ids)
    if pass_.facts:  # after their Episodes, whatever the order of their ids
        is_changed |= pass_.settle(sorted(pass_.facts), ())
    return is_changed


class _Pass:
    """One look at entries of an owner."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        order: numbering.Numbering,
        scope: owned.Scope,
        *,
        has_successors: bool,
        has_rows: bool,
    ) -> None:
        self._connection, self._order, self._scope = connection, order, scope
        self._has_successors, self._has_rows = has_successors, has_rows
        self.facts: set[str] = set()
        """Facts of the Episodes that came or went."""

    def settle(self, ids: Iterable[str], touched: Collection[str]) -> bool:
        """Decide the status of `ids`, and the winners of those that are `touched`; return whether that is worth telling."""
        connection, scope = self._connection, self._scope
        is_any_away = _is_any_away(connection, scope)
        is_changed = False
        for entry_id in ids:
            rows = _rows(connection, scope, entry_id)
            has_successor = self._has_successors and _successor(connection, scope, entry_id) is not None
            is_changed |= has_successor
            if not rows:
                self.facts |= _facts(connection, scope, entry_id, f"AND status IN {_AWAY}")
                continue
            may_win = entry_id in touched and (len(rows) > 1 or rows[0].is_shadowed)
            if may_win and _choose(connection, self._order, entry_id, rows):
                is_changed = True
                self._note_facts(entry_id, rows)
            said = _said(connection, scope, entry_id) if self._has_rows else None
            successor = live_successor(connection, scope, entry_id) if has_successor else None
            for row in rows:
                parent = row.parent_id if is_any_away and row.kind == "atomic_fact" else ""
                away = _away(connection, scope, parent) if parent else None
                if _set_status(connection, self._order, row, _standing(row, said, away, successor)):
                    self._note_facts(entry_id, [row])
        return is_changed

    def _note_facts(self, entry_id: str, rows: Iterable[_Row]) -> None:
        if any(row.kind == "episode" for row in rows):
            self.facts |= _facts(self._connection, self._scope, entry_id)


def _standing(
    row: _Row, said: tuple[str, str] | None, away: str | None, successor: str | None
) -> tuple[str, str | None]:
    """Return the status of an entry, and what took its place.

    `said` is what a row of `.lifecycle/` says (status, successor), `away` the status of its Episode where that is away.
    """
    status, replaced_by = row.own_status, None
    if said is not None and row.kind in lifecycle.KINDS:
        status, replaced_by = said[0], said[1] or None
    if away is not None and status == "active":
        status = away
    if successor is not None:
        return ("deleted" if status == "deleted" else "deprecated"), successor
    return status, replaced_by


def _has_rows(connection: sqlite3.Connection, scope: owned.Scope) -> bool:
    row = connection.execute(
        f"SELECT 1 FROM lifecycle_state WHERE {_OWNER} LIMIT 1",  # noqa: S608
        scope,
    ).fetchone()
    return row is not None


def _said(connection: sqlite3.Connection, scope: owned.Scope, entry_id: str) -> tuple[str, str] | None:
    """Return status and successor that the log gives an entry; None: nothing there decides."""
    row = connection.execute(
        f"SELECT status, successor FROM lifecycle_state WHERE {_OWNER}"  # noqa: S608
        " AND entry_id = ? AND status <> ''",
        (*scope, entry_id),
    ).fetchone()
    return None if row is None else (row[0], row[1])


_IS_AWAY = f"kind = 'episode' AND status IN {_AWAY} AND is_shadowed = 0"


def _is_any_away(connection: sqlite3.Connection, scope: owned.Scope) -> bool:
    row = connection.execute(
        f"SELECT 1 FROM entries INDEXED BY entries_away WHERE {_OWNER}"  # noqa: S608
        f" AND {_IS_AWAY} LIMIT 1",
        scope,
    ).fetchone()
    return row is not None


def _away(connection: sqlite3.Connection, scope: owned.Scope, parent_id: str) -> str | None:
    """Return the status of an Episode that is away; None: it is there, or there is none."""
    row = connection.execute(
        f"SELECT status FROM entries INDEXED BY entries_away WHERE {_OWNER}"  # noqa: S608
        f" AND entry_id IN (?, ?) AND {_IS_AWAY} LIMIT 1",
        (*scope, parent_id, parent_id.removeprefix(f"{scope[3]}_")),
    ).fetchone()
    return None if row is None else str(row[0])


def _facts(connection: sqlite3.Connection, scope: owned.Scope, episode_id: str, more: str = "") -> set[str]:
    """Return the ids of the facts of an Episode."""
    rows = connection.execute(
        f"SELECT entry_id FROM entries INDEXED BY entries_parent WHERE {_OWNER}"  # noqa: S608
        f" AND parent_id IN (?, ?) AND kind = 'atomic_fact' AND parent_id <> '' {more}",
        (*scope, episode_id, types.public_id(scope[3], episode_id)),
    )
    return {str(entry_id) for (entry_id,) in rows}


def _has_deprecations(connection: sqlite3.Connection, scope: owned.Scope) -> bool:
    row = connection.execute(
        f"SELECT 1 FROM deprecations WHERE {_OWNER} LIMIT 1",  # noqa: S608
        scope,
    ).fetchone()
    return row is not None


def _with_predecessors(connection: sqlite3.Connection, scope: owned.Scope, ids: set[str]) -> set[str]:
    """Return `ids` and every id whose chain of successors passes through one of them."""
    found, waiting = set(ids), list(ids)
    while waiting:
        rows = connection.execute(
            f"SELECT entry_id FROM deprecations WHERE {_OWNER} AND successor = ?",  # noqa: S608
            (*scope, waiting.pop()),
        )
        for (entry_id,) in rows:
            if entry_id not in found:
                found.add(entry_id)
                waiting.append(entry_id)
    return found


def _rows(connection: sqlite3.Connection, scope: owned.Scope, entry_id: str) -> list[_Row]:
    rows = connection.execute(
        "SELECT e.key, e.path, e.nth, f.date, e.kind, e.parent_id, e.is_shadowed, e.own_status, e.status, e.deprecated_by"  # noqa: S608
        " FROM entries e JOIN files f ON f.path = e.path"
        f" WHERE {owned.by('e')} AND e.entry_id = ?",
        (*scope, entry_id),
    )
    return [
        _Row(
            key=row[0],
            path=row[1],
            nth=row[2],
            date=row[3],
            kind=row[4],
            parent_id=row[5],
            is_shadowed=bool(row[6]),
            own_status=row[7],
            status=row[8],
            deprecated_by=row[9],
        )
        for row in rows
    ]


def _choose(connection: sqlite3.Connection, order: numbering.Numbering, entry_id: str, rows: list[_Row]) -> bool:
    """Mark all but the winner as shadowed; number what became visible or hidden. Return whether anything changed."""
    match = types.ENTRY_ID.fullmatch(entry_id)
    date = match["date"] if match else ""
    ordered = sorted(rows, key=lambda row: (row.date != date, row.path, row.nth))
    is_changed = False
    for row in ordered:
        is_shadowed = row is not ordered[0]
        if is_shadowed != row.is_shadowed:
            lsn = order.event(row.key, "removed" if is_shadowed else "added", row.path)
            connection.execute("UPDATE entries SET is_shadowed = ?, lsn = ? WHERE key = ?", (is_shadowed, lsn, row.key))
            is_changed = True
    return is_changed


def live_successor(connection: sqlite3.Connection, scope: owned.Scope, entry_id: str) -> str | None:
    """Return the direct successor of `entry_id` when it counts as deprecated, else None."""
    first = following = _successor(connection, scope, entry_id)
    seen = {entry_id}
    is_there = False
    while following is not None:
        if following in seen:
            return None
        seen.add(following)
        is_there = is_there or _exists(connection, scope, following)
        following = _successor(connection, scope, following)
    return first if is_there else None


def _successor(connection: sqlite3.Connection, scope: owned.Scope, entry_id: str) -> str | None:
    rows = connection.execute(
        f"SELECT successor FROM deprecations WHERE {_OWNER} AND entry_id = ? ORDER BY path",  # noqa: S608
        (*scope, entry_id),
    ).fetchall()
    return next((str(each) for (each,) in rows if not _is_undone(connection, scope, entry_id, each)), None)


_UNDONE_ANY = f"""
SELECT 1 FROM reflection_report WHERE {owned.by(columns=owned.REPORT_COLUMNS)}
    AND merged_entry_id = ? AND status = 'rolled_back' LIMIT 1
"""  # noqa: S608
_UNDONE = f"""
SELECT 1 FROM reflection_report r, json_each(r.source_members) m
WHERE {owned.by("r", owned.REPORT_COLUMNS)} AND r.merged_entry_id = ?
    AND r.status = 'rolled_back' AND json_extract(m.value, '$.member_id') IN (?{{more}}) LIMIT 1
"""  # noqa: S608
_PARENTS = f"""
SELECT DISTINCT parent_id FROM entries WHERE {_OWNER} AND entry_id = ?
    AND kind = 'atomic_fact' AND parent_id <> ''
"""  # noqa: S608


def _is_undone(connection: sqlite3.Connection, scope: owned.Scope, entry_id: str, successor: str) -> bool:
    """Return whether the consolidation is rolled back in which `successor` took the place of an entry, or of its Episode."""
    is_any = connection.execute(_UNDONE_ANY, (*scope, successor)).fetchone()
    if is_any is None:
        return False
    # Whichever of several with this id counts: that may not be decided yet.
    ids = [entry_id, *(str(each) for (each,) in connection.execute(_PARENTS, (*scope, entry_id)))]
    sql = _UNDONE.format(more=", ?" * (len(ids) - 1))
    return connection.execute(sql, (*scope, successor, *ids)).fetchone() is not None


def _exists(connection: sqlite3.Connection, scope: owned.Scope, entry_id: str) -> bool:
    row = connection.execute(
        f"SELECT 1 FROM entries WHERE {_OWNER} AND entry_id = ? LIMIT 1",  # noqa: S608
        (*scope, entry_id),
    ).fetchone()
    return row is not None


def _set_status(
    connection: sqlite3.Connection, order: numbering.Numbering, row: _Row, standing: tuple[str, str | None]
) -> bool:
    """Write down how an entry stands, under a number of its own; return whether it stood otherwise."""
    if standing == (row.status, row.deprecated_by):
        return False
    lsn = order.event(row.key, "status", row.path)
    connection.execute(
        "UPDATE entries SET status = ?, deprecated_by = ?, lsn = ? WHERE key = ?", (*standing, lsn, row.key)
    )
    return True


async def pointing(reader: read.Reader, owner: types.Owner, successor: str) -> list[tuple[types.RelPath, str]]:
    """Return file and id of every entry of an owner that a file says was replaced by `successor`, be it there or not."""
    found = await reader.fetch(
        f"SELECT path, entry_id FROM deprecations WHERE {_OWNER} AND successor = ? ORDER BY path, entry_id",  # noqa: S608
        (*owned.scope(owner), successor),
    )
    return [(types.RelPath(path), str(entry_id)) for path, entry_id in found]


def unresolved(connection: sqlite3.Connection, limit: int = 200) -> list[tuple[str, int, str, str]]:
    """Return (path, line, entry id, successor) of deprecations that lead nowhere: dangling or circular."""
    rows = connection.execute(
        "SELECT d.path, e.line, d.entry_id, d.successor, d.app, d.project, d.owner_type, d.owner_id FROM deprecations d"
        " JOIN entries e ON e.app = d.app AND e.project = d.project"
        " AND e.owner_type = d.owner_type AND e.owner_id = d.owner_id AND e.entry_id = d.entry_id"
        " WHERE e.deprecated_by IS NULL AND e.is_shadowed = 0 ORDER BY d.path, e.line LIMIT ?",
        (limit,),
    )
    return [tuple(row[:4]) for row in rows if not _is_undone(connection, tuple(row[4:]), row[2], row[3])]


def duplicates(connection: sqlite3.Connection, limit: int = 200) -> list[tuple[str, int, str, str]]:
    """Return (path, line, entry id, path of the winner) of entries whose id another one holds."""
    rows = connection.execute(
        "SELECT a.path, a.line, a.entry_id, b.path FROM entries a JOIN entries b ON b.app = a.app AND b.project = a.project"
        " AND b.owner_type = a.owner_type AND b.owner_id = a.owner_id AND b.entry_id = a.entry_id AND b.is_shadowed = 0"
        " WHERE a.is_shadowed = 1 ORDER BY a.path, a.line LIMIT ?",
        (limit,),
    )
    return [(row[0], row[1], row[2], row[3]) for row in rows]
