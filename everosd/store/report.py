"""Consolidations: what the rows of `.clusters/` say of them, as the table `reflection_report`, and read again.

A report is what its rows say: `completed` that a narrative has replaced its sources, `rolled_back` that this is undone,
`restored` that the files say so, too. A report that was rolled back stays so, and one of which there is no `completed` row
has nothing left to restore. Queries of what waits to be done are here as well: narratives whose consolidation is not
completed, rollbacks whose files are not done, clusters that may be merged.
"""

from __future__ import annotations

import datetime as dt
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, Literal, cast

import msgspec

from everosd import clock, types
from everosd.log import entry as forms
from everosd.log import entry_text
from everosd.store import cluster, consolidation, owned, read, state

Status = Literal["completed", "rolled_back"]
SourceMember = consolidation.Member

_COLUMNS = (
    "app_id", "project_id", "owner_type", "owner_id", "id", "cluster_id", "mode", "source_members", "source_count",
    "merged_entry_id", "deprecated_fact_count", "status", "created_at", "updated_at", "sources", "is_restored",
)  # fmt: skip
_N_KEY = 5
TABLE = state.Table(name="reflection_report", columns=_COLUMNS, n_key=_N_KEY, subject="merged_entry_id", kind="cluster")

_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM reflection_report"  # noqa: S608  # our own columns
_OWNER = owned.by(columns=owned.REPORT_COLUMNS)
_ROW_OWNER = owned.by()
_NEWEST = " ORDER BY created_at DESC, id, owner_type, owner_id"
_SOURCES = msgspec.json.Decoder(tuple[tuple[str, str], ...])
_MEMBERS = msgspec.json.Decoder(tuple[SourceMember, ...])


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One consolidation of a cluster."""

    report_id: str
    owner: types.Owner
    cluster_id: str
    mode: str
    """`init` or `update`; empty where no row says."""
    source_members: tuple[SourceMember, ...]
    """What it replaced."""
    source_count: int
    """As its row says; an update counts the narrative before it."""
    merged_entry_id: str
    """Entry id of the narrative."""
    deprecated_fact_count: int
    status: Status
    created_us: int
    """When it was completed."""
    updated_us: int
    """When its status was decided."""
    sources: tuple[tuple[str, str], ...]
    """(entry id, digest of the text that was read) of `source_members`; empty for EverOS's."""
    is_restored: bool
    """Rolled back, and all of its files say so."""


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster with several live Episodes."""

    owner: types.Owner
    cluster_id: str
    n_live: int
    """Live Episodes in it, narratives among them; at least 2."""
    n_narratives: int
    """Of these, what a consolidation wrote."""
    newest_us: int
    """Moment of the newest of them."""


# -- folding, in the transaction that applies a file -------------------------------------------------------------------


def fold(connection: sqlite3.Connection, change: state.Change) -> set[str]:
    """Take over rows of `.clusters/` that were added, changed or removed.

    Returns:
        Narratives of the reports that say something else now: who points to them may be live again.
    """
    scope = change.scope
    is_known = connection.execute(f"SELECT 1 FROM report_rows WHERE {_ROW_OWNER} LIMIT 1", scope).fetchone()  # noqa: S608
    found: set[str] = set()
    if is_known is not None:
        for key, _ in (*change.written, *change.gone):
            one = f" FROM report_rows WHERE {_ROW_OWNER} AND key = ?"
            found.update(each for (each,) in connection.execute(f"SELECT report_id{one}", (*scope, key)))
            connection.execute(f"DELETE{one}", (*scope, key))
    rows = [
        (*scope, key, row.report_id, cluster.place(entry.entry_id))
        for key, entry in change.written
        if consolidation.may_be(entry.raw) and (row := _read(entry.entry_id, entry.raw)) is not None
    ]
    connection.executemany("INSERT INTO report_rows VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    if is_known is None and not rows:
        return set()
    # Not only those of these rows: a row that goes, or comes, may be one that shadows the same in another file.
    for entry_id in change.entry_ids:
        others = connection.execute(
            "SELECT r.report_id FROM entries e JOIN report_rows r ON r.app = e.app AND r.project = e.project"  # noqa: S608
            " AND r.owner_type = e.owner_type AND r.owner_id = e.owner_id AND r.key = e.key"
            f" WHERE {owned.by('e')} AND e.entry_id = ?",
            (*scope, entry_id),
        )
        found.update(each for (each,) in others)
    return {each for report_id in sorted(found) for each in _settle(connection, change, report_id)}


def note(connection: sqlite3.Connection, change: state.Change) -> None:
    """Remember which Episodes of a file say of which report they are."""
    scope = change.scope
    is_known = connection.execute(f"SELECT 1 FROM narratives WHERE {_ROW_OWNER} LIMIT 1", scope).fetchone()  # noqa: S608
    if is_known is not None:
        keys = [(*scope, key) for key, _ in (*change.written, *change.gone)]
        connection.executemany(f"DELETE FROM narratives WHERE {_ROW_OWNER} AND key = ?", keys)  # noqa: S608
    written = [(key, entry) for key, entry in change.written if entry.parent_type == "cluster"]
    told = [
        (
            key,
            entry_text.read(one.kind, one.entry_id, one.raw, form=cast("forms.Form", one.form)).fields.get("report_id"),
        )
        for key, one in written
    ]
    connection.executemany(
        "INSERT INTO narratives VALUES (?, ?, ?, ?, ?, ?)",
        [(*scope, key, report_id) for key, report_id in told if report_id],
    )


def _read(entry_id: str, raw: str) -> consolidation.Row | None:
    return consolidation.read(entry_text.read("cluster", entry_id, raw).fields)


def _settle(connection: sqlite3.Connection, change: state.Change, report_id: str) -> set[str]:
    """Have the table say of a report what its rows say; return the narratives of a change."""
    owner = change.scope
    wanted = _report(report_id, owner, _told(connection, owner, report_id))
    known = connection.execute(f"{_SELECT} WHERE id = ? AND {_OWNER}", (report_id, *owner)).fetchone()
    if wanted == known:
        return set()
    if wanted is None:
        connection.execute(f"DELETE FROM reflection_report WHERE id = ? AND {_OWNER}", (report_id, *owner))  # noqa: S608
    else:
        marks = ", ".join("?" * len(_COLUMNS))
        connection.execute(f"INSERT OR REPLACE INTO reflection_report ({', '.join(_COLUMNS)}) VALUES ({marks})", wanted)  # noqa: S608
    at = _COLUMNS.index("merged_entry_id")
    return {str(each[at]) for each in (wanted, known) if each is not None}


def _told(connection: sqlite3.Connection, owner: owned.Scope, report_id: str) -> list[tuple[consolidation.Row, int]]:
    """Return the rows about a report that count, as they were written, with their moments."""
    found = connection.execute(
        "SELECT e.entry_id, e.raw, e.timestamp_us FROM report_rows r JOIN entries e ON e.key = r.key"  # noqa: S608
        f" WHERE {owned.by('r')} AND r.report_id = ?"
        " AND e.is_shadowed = 0 ORDER BY r.place, e.entry_id",
        (*owner, report_id),
    ).fetchall()
    return [(row, at_us) for entry_id, raw, at_us in found if (row := _read(entry_id, raw)) is not None]


def _report(
    report_id: str, owner: owned.Scope, told: Iterable[tuple[consolidation.Row, int]]
) -> tuple[object, ...] | None:
    """Return the row of the table; None where nothing says that there was such a consolidation."""
    of: dict[consolidation.Event, list[tuple[consolidation.Row, int]]] = {
        "completed": [],
        "rolled_back": [],
        "restored": [],
    }
    for row, at_us in told:
        of[row.event].append((row, at_us))
    completed, undone = of["completed"], of["rolled_back"]
    if not completed and not undone:
        return None
    # What is repeated after a crash says most the last time; what a rollback row lacks, the one before it has.
    said = (completed[-1:] or undone)[0][0]
    created_us = (completed or undone)[0][1]
    updated_us = undone[0][1] if undone else completed[-1][1]
    return (
        *owner,
        report_id,
        said.cluster_id,
        said.mode,
        consolidation.write_members(said.source_members),
        said.source_count,
        said.merged_entry_id,
        said.deprecated_fact_count,
        "rolled_back" if undone else "completed",
        _iso(created_us),
        _iso(updated_us),
        msgspec.json.encode(said.sources).decode(),
        int(bool(undone) and (bool(of["restored"]) or not completed)),
    )


def _iso(us: int) -> str:
    """Return a moment as people read it and SQLite sorts it."""
    return clock.from_us(us).isoformat(timespec="microseconds")


# -- reading -----------------------------------------------------------------------------------------------------------


async def page(
    reader: read.Reader,
    *,
    app: str,
    project: str,
    owner_id: str | None,
    cluster_id: str | None,
    limit: int,
    offset: int,
    owner_type: types.OwnerType = "user",
) -> tuple[list[Report], int]:
    """Return one page of the reports of a scope, the newest first, and how many there are in all.

    None for `owner_id` or `cluster_id` means all of them; `owner_type` is that of `owner_id`.
    """
    condition, values = "app_id = ? AND project_id = ?", [app, project]
    if owner_id is not None:
        condition, values = _OWNER, [app, project, owner_type, owner_id]
    if cluster_id is not None:
        condition, values = f"{condition} AND cluster_id = ?", [*values, cluster_id]
    total = await reader.fetch(f"SELECT count(*) FROM reflection_report WHERE {condition}", values)  # noqa: S608
    found = await _fetch(reader, f" WHERE {condition}{_NEWEST} LIMIT ? OFFSET ?", (*values, limit, offset))
    return found, int(total[0][0])


async def find(
    reader: read.Reader,
    report_id: str,
    *,
    app: str | None = None,
    project: str | None = None,
    owner_id: str | None = None,
) -> list[Report]:
    """Return users' reports of an id: several where a person copied a folder of memory."""
    given = {"app_id": app, "project_id": project, "owner_id": owner_id}
    asked = {name: value for name, value in given.items() if value is not None}
    condition = "".join(f" AND {name} = ?" for name in asked)
    order = " ORDER BY app_id, project_id, owner_id"
    return await _fetch(
        reader, f" WHERE id = ? AND owner_type = 'user'{condition}{order}", (report_id, *asked.values())
    )


async def of_narrative(reader: read.Reader, owner: types.Owner, entry_id: str) -> Report | None:
    """Return the report of the consolidation that wrote a narrative."""
    return await _first(
        reader, f" WHERE {_OWNER} AND merged_entry_id = ?{_NEWEST} LIMIT 1", (*owned.scope(owner), entry_id)
    )


async def builds_on(reader: read.Reader, owner: types.Owner, entry_id: str) -> Report | None:
    """Return the newest completed consolidation that replaced an entry; None where there is none, or it is rolled back."""
    has = "EXISTS (SELECT 1 FROM json_each(source_members) WHERE json_extract(value, '$.member_id') = ?)"
    condition = f" WHERE {_OWNER} AND status = 'completed' AND {has}{_NEWEST} LIMIT 1"
    return await _first(reader, condition, (*owned.scope(owner), entry_id))


async def unrestored(reader: read.Reader) -> list[Report]:
    """Return the reports that are rolled back and whose files may not say so yet, the oldest first."""
    return await _fetch(
        reader, " WHERE status = 'rolled_back' AND is_restored = 0 ORDER BY created_at, id, owner_id", ()
    )


def unrestored_rows(connection: sqlite3.Connection, limit: int = 200) -> list[tuple[str, int, str]]:
    """Return (path, line, report id) of the rows that roll back something of which the files do not all say so yet."""
    rows = connection.execute(
        "SELECT e.path, e.line, r.id, max(t.place) FROM reflection_report r JOIN report_rows t ON t.app = r.app_id"
        " AND t.project = r.project_id AND t.owner_type = r.owner_type AND t.owner_id = r.owner_id AND t.report_id = r.id"
        " JOIN entries e ON e.key = t.key WHERE r.status = 'rolled_back' AND r.is_restored = 0 AND e.is_shadowed = 0"
        " GROUP BY r.id, r.app_id, r.project_id, r.owner_type, r.owner_id ORDER BY e.path, e.line LIMIT ?",
        (limit,),
    )
    return [(row[0], row[1], row[2]) for row in rows]


async def rolled_back(reader: read.Reader, owner: types.Owner, cluster_id: str) -> list[Report]:
    """Return the reports of a cluster that are rolled back, the newest first."""
    condition = f" WHERE {_OWNER} AND cluster_id = ? AND status = 'rolled_back'{_NEWEST}"
    return await _fetch(reader, condition, (*owned.scope(owner), cluster_id))


_IS_LIVE = (
    "e.kind = 'episode' AND e.is_shadowed = 0 AND e.status = 'active' AND (e.expires_us IS NULL OR e.expires_us > ?)"
)

_UNFINISHED = f"""
SELECT n.key FROM narratives n CROSS JOIN entries e ON e.key = n.key
WHERE NOT EXISTS (SELECT 1 FROM reflection_report r WHERE r.id = n.report_id AND r.app_id = n.app
    AND r.project_id = n.project AND r.owner_type = n.owner_type AND r.owner_id = n.owner_id)
AND {_IS_LIVE} ORDER BY e.entry_id, n.app, n.project, n.owner_type, n.owner_id
"""  # noqa: S608  # our own columns


async def unfinished(reader: read.Reader, now_us: int = 0) -> list[types.EntryKey]:
    """Return the live narratives whose report no row of their owner's speaks of, the oldest first."""
    return [types.EntryKey(key) for (key,) in await reader.fetch(_UNFINISHED, (now_us,))]


_CANDIDATES = f"""
SELECT c.app, c.project, c.owner_type, c.owner_id, c.cluster_id, count(*), sum(e.parent_type = 'cluster'), max(e.timestamp_us)
FROM (SELECT app, project, owner_type, owner_id, cluster_id FROM cluster_members
      GROUP BY app, project, owner_type, owner_id, cluster_id HAVING count(*) > 1) c
CROSS JOIN cluster_members m ON m.app = c.app AND m.project = c.project AND m.owner_type = c.owner_type
    AND m.owner_id = c.owner_id AND m.cluster_id = c.cluster_id
CROSS JOIN entries e INDEXED BY entries_owner ON e.app = m.app AND e.project = m.project AND e.owner_type = m.owner_type
    AND e.owner_id = m.owner_id AND e.entry_id = m.member_id
WHERE {_IS_LIVE} GROUP BY c.app, c.project, c.owner_type, c.owner_id, c.cluster_id HAVING count(*) > 1
ORDER BY c.app, c.project, c.owner_type, c.owner_id, count(*) DESC, max(e.timestamp_us) DESC, c.cluster_id
"""  # noqa: S608  # our own columns
"""The joins are in this order, from few rows to few rows: a cluster of one, as consolidation leaves them, is not looked at."""


async def candidates(reader: read.Reader, now_us: int = 0) -> list[Candidate]:
    """Return the clusters of all owners with at least 2 live Episodes, each owner's largest first.

    Live is what is active, wins its id, and does not expire before `now_us`.
    """
    return [
        Candidate(
            owner=types.Owner(app=values[0], project=values[1], type=values[2], id=values[3]),
            cluster_id=values[4],
            n_live=values[5],
            n_narratives=values[6],
            newest_us=values[7],
        )
        for values in await reader.fetch(_CANDIDATES, (now_us,))
    ]


async def _first(reader: read.Reader, where: str, values: Sequence[object]) -> Report | None:
    found = await _fetch(reader, where, values)
    return found[0] if found else None


async def _fetch(reader: read.Reader, where: str, values: Sequence[object]) -> list[Report]:
    return [_made(found) for found in await reader.fetch(_SELECT + where, values)]


def _made(values: Sequence[Any]) -> Report:
    (
        app, project, owner_type, owner_id, report_id, cluster_id, mode, source_members, source_count, merged_entry_id,
        deprecated_fact_count, status, created_at, updated_at, sources, is_restored,
    ) = values  # fmt: skip
    return Report(
        report_id=report_id,
        owner=types.Owner(app=app, project=project, type=owner_type, id=owner_id),
        cluster_id=cluster_id,
        mode=mode,
        source_members=_MEMBERS.decode(source_members),
        source_count=source_count,
        merged_entry_id=merged_entry_id,
        deprecated_fact_count=deprecated_fact_count,
        status=status,
        created_us=clock.to_us(dt.datetime.fromisoformat(created_at)),
        updated_us=clock.to_us(dt.datetime.fromisoformat(updated_at)),
        sources=_SOURCES.decode(sources),
        is_restored=bool(is_restored),
    )
