"""Which entries are about the same: the rows of `.clusters/` folded into members, and read again.

A row says of a member that it belongs to a cluster from then on; of several rows about one member the one that was written
last holds. A member counts while its entry is there: a file that is deleted takes its memberships along, and brings them back.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from everosd import types
from everosd.log import entry_text
from everosd.store import consolidation, owned, read, state

KEPT_CHANGES = 10_000
"""Of `cluster_changes`; who has seen fewer looks at everything anew."""

_OWNER = owned.by()
_ROW_OWNER, _STEP_OWNER, _MEMBER_OWNER = owned.by("e"), owned.by("s"), owned.by("m")

CLUSTERS = state.Table(
    name="clusters",
    columns=(*owned.COLUMNS, "cluster_id", "created_us"),
    n_key=5,
    subject="cluster_id",
    kind="cluster",
)
MEMBERS = state.Table(
    name="cluster_members",
    columns=(*owned.COLUMNS, "member_id", "member_type", "cluster_id", "similarity", "added_us"),
    n_key=5,
    subject="member_id",
    kind="cluster",
)


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """An entry that belongs to a cluster."""

    key: types.EntryKey
    entry_id: str
    member_type: str
    """Kind of the entry, as its row says."""
    cluster_id: str
    similarity: str
    """Cosine with the centroid when it joined, as its row says; may be empty."""
    added_us: int
    """When it joined."""
    timestamp_us: int
    """Moment of the entry."""
    status: str
    """Of the entry: deprecated ones are members, too."""


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """Entries of one owner that are about the same."""

    cluster_id: str
    created_us: int
    n_members: int
    """Of entries that are there; at least 1."""
    newest_us: int
    """Moment of the newest of them."""


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """A member that joined, moved, left, came back, or has another text."""

    owner: types.Owner
    member_id: str


class _Step(msgspec.Struct, frozen=True, kw_only=True):
    """What a row says of one member."""

    member_id: str
    member_type: str
    cluster_id: str
    """Where it belongs from then on; empty: nowhere."""
    similarity: str = ""


def _joined(fields: Mapping[str, str]) -> list[_Step]:
    member_id, cluster_id = fields.get("member_id", ""), fields.get("cluster_id", "")
    if not (member_id and cluster_id):
        return []
    return [
        _Step(
            member_id=member_id,
            member_type=fields.get("member_type", ""),
            cluster_id=cluster_id,
            similarity=fields.get("similarity", ""),
        )
    ]


def _completed(fields: Mapping[str, str]) -> list[_Step]:
    """Have the narrative take the place of what it replaces."""
    row = consolidation.read(fields)
    if row is None:
        return []
    left = [_Step(member_id=each.member_id, member_type=each.member_type, cluster_id="") for each in row.source_members]
    return [*left, _Step(member_id=row.merged_entry_id, member_type="episode", cluster_id=row.cluster_id)]


def _rolled_back(fields: Mapping[str, str]) -> list[_Step]:
    """Have what was replaced take the place of the narrative."""
    row = consolidation.read(fields)
    if row is None:
        return []
    back = [
        _Step(member_id=each.member_id, member_type=each.member_type, cluster_id=row.cluster_id)
        for each in row.source_members
    ]
    return [_Step(member_id=row.merged_entry_id, member_type="episode", cluster_id=""), *back]


_STEPS: dict[str, Callable[[Mapping[str, str]], list[_Step]]] = {
    "joined": _joined,
    "completed": _completed,
    "rolled_back": _rolled_back,
}
"""By `event` of the row; other rows move nobody."""


# -- folding, in the transaction that applies a file -------------------------------------------------------------------


def fold(connection: sqlite3.Connection, change: state.Change) -> None:
    """Take over rows of `.clusters/` that were added, changed or removed."""
    members: set[str] = set()
    clusters: set[str] = set()
    keys = [(key,) for key, _ in (*change.written, *change.gone)]
    for key in keys:
        _add(
            connection.execute("SELECT member_id, cluster_id FROM cluster_steps WHERE key = ?", key), members, clusters
        )
    connection.executemany("DELETE FROM cluster_steps WHERE key = ?", keys)
    _insert(connection, change)
    # Not only those of these rows: a row that goes, or comes, may be one that shadows the same in another file.
    for entry_id in change.entry_ids:
        found = connection.execute(
            "SELECT s.member_id, s.cluster_id FROM entries e JOIN cluster_steps s ON s.key = e.key"  # noqa: S608  # ours
            f" WHERE {_ROW_OWNER} AND e.entry_id = ?",
            (*change.scope, entry_id),
        )
        _add(found, members, clusters)
    _note(
        connection, change.scope, [member_id for member_id in sorted(members) if _settle(connection, change, member_id)]
    )
    for cluster_id in sorted(clusters):
        _settle_cluster(connection, change, cluster_id)


def touch(connection: sqlite3.Connection, change: state.Change) -> None:
    """Note which members of clusters have changed with the entries of a file."""
    owned = connection.execute(f"SELECT 1 FROM cluster_members WHERE {_OWNER} LIMIT 1", change.scope)  # noqa: S608
    if owned.fetchone() is None:
        return
    is_member = f"SELECT 1 FROM cluster_members WHERE {_OWNER} AND member_id = ?"  # noqa: S608  # our own columns
    ids = sorted(change.entry_ids)
    _note(
        connection,
        change.scope,
        [each for each in ids if connection.execute(is_member, (*change.scope, each)).fetchone()],
    )


def _add(rows: Iterable[tuple[str, str]], members: set[str], clusters: set[str]) -> None:
    for member_id, cluster_id in rows:
        members.add(member_id)
        clusters.add(cluster_id)


def _insert(connection: sqlite3.Connection, change: state.Change) -> None:
    rows = []
    high: dict[tuple[str, str], int] = {}
    for key, entry in change.written:
        fields = entry_text.read("cluster", entry.entry_id, entry.raw).fields
        steps = _STEPS.get(fields.get("event", ""), _nobody)(fields)
        at = place(entry.entry_id)
        for step in {step.member_id: step for step in steps}.values():
            values = (step.member_id, step.member_type, step.cluster_id, step.similarity)
            rows.append((key, *change.scope, *values, entry.timestamp_us, at))
            if (found := types.numbered(step.member_id)) is not None:
                prefix, date, number = found
                high[prefix, date] = max(high.get((prefix, date), 0), number)
    connection.executemany("INSERT INTO cluster_steps VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
    # A new entry must not get an id that a row speaks of, though the entry may be long gone: it would inherit the cluster.
    connection.executemany(
        "INSERT INTO sequences VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET high = max(high, excluded.high)",
        [(*change.scope, prefix, date, number) for (prefix, date), number in high.items()],
    )


def _nobody(_fields: Mapping[str, str]) -> list[_Step]:
    return []


def place(entry_id: str) -> str:
    """Return what sorts rows as they were written: by day and number, whatever the clock said and file they are in."""
    found = types.numbered(entry_id)
    return entry_id if found is None else f"{found[0]}_{found[1]}_{found[2]:020d}"


def _settle(connection: sqlite3.Connection, change: state.Change, member_id: str) -> bool:
    """Put a member where the last row about it says, and return whether it was elsewhere."""
    wanted = connection.execute(
        "SELECT s.member_type, s.cluster_id, s.similarity, s.at_us FROM cluster_steps s JOIN entries e ON e.key = s.key"  # noqa: S608
        f" WHERE {_STEP_OWNER} AND s.member_id = ? AND e.is_shadowed = 0"
        " ORDER BY s.place DESC, e.entry_id DESC LIMIT 1",
        (*change.scope, member_id),
    ).fetchone()
    if wanted is not None and not wanted[1]:
        wanted = None
    found = connection.execute(
        f"SELECT member_type, cluster_id, similarity, added_us FROM cluster_members WHERE {_OWNER} AND member_id = ?",  # noqa: S608
        (*change.scope, member_id),
    ).fetchone()
    if wanted == found:
        return False
    if wanted is None:
        connection.execute(f"DELETE FROM cluster_members WHERE {_OWNER} AND member_id = ?", (*change.scope, member_id))  # noqa: S608
    else:
        connection.execute(
            "INSERT OR REPLACE INTO cluster_members VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*change.scope, member_id, *wanted),
        )
    return True


def _settle_cluster(connection: sqlite3.Connection, change: state.Change, cluster_id: str) -> None:
    """Have a cluster begin with the first row that speaks of it; without any there is none."""
    first = connection.execute(
        "SELECT s.at_us FROM cluster_steps s JOIN entries e ON e.key = s.key"  # noqa: S608  # our own columns
        f" WHERE {_STEP_OWNER} AND s.cluster_id = ? AND e.is_shadowed = 0 ORDER BY s.at_us LIMIT 1",
        (*change.scope, cluster_id),
    ).fetchone()
    if first is None or not cluster_id:
        connection.execute(f"DELETE FROM clusters WHERE {_OWNER} AND cluster_id = ?", (*change.scope, cluster_id))  # noqa: S608
    else:
        connection.execute(
            "INSERT INTO clusters VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET created_us = excluded.created_us"
            " WHERE created_us <> excluded.created_us",
            (*change.scope, cluster_id, *first),
        )


def _note(connection: sqlite3.Connection, scope: owned.Scope, member_ids: Sequence[str]) -> None:
    if member_ids:
        connection.executemany(
            "INSERT INTO cluster_changes (app, project, owner_type, owner_id, member_id) VALUES (?, ?, ?, ?, ?)",
            [(*scope, member_id) for member_id in member_ids],
        )
        connection.execute(
            "DELETE FROM cluster_changes WHERE n <= (SELECT max(n) FROM cluster_changes) - ?", (KEPT_CHANGES,)
        )


# -- reading -----------------------------------------------------------------------------------------------------------

_MEMBERS = f"""
SELECT e.key, m.member_id, m.member_type, m.cluster_id, m.similarity, m.added_us, e.timestamp_us, e.status
FROM cluster_members m CROSS JOIN entries e INDEXED BY entries_owner ON e.app = m.app AND e.project = m.project
AND e.owner_type = m.owner_type AND e.owner_id = m.owner_id AND e.entry_id = m.member_id
WHERE {_MEMBER_OWNER} AND e.is_shadowed = 0 AND e.status <> 'deleted'
"""  # noqa: S608  # our own columns
"""From members to entries: left to itself SQLite walks all entries of the owner, facts and rows included."""

_MEMBERS_OF_ONE = _MEMBERS.replace("cluster_members m", "cluster_members m INDEXED BY cluster_members_cluster", 1) + (
    " AND m.cluster_id = ? ORDER BY e.timestamp_us, m.member_id"
)


async def members(reader: read.Reader, owner: types.Owner, cluster_id: str) -> list[Member]:
    """Return the members of a cluster whose entries are there, the oldest first."""
    return [_member(found) for found in await reader.fetch(_MEMBERS_OF_ONE, (*owned.scope(owner), cluster_id))]


async def all_members(reader: read.Reader, owner: types.Owner) -> list[Member]:
    """Return all members of an owner's clusters whose entries are there, in no order."""
    return [_member(found) for found in await reader.fetch(_MEMBERS, owned.scope(owner))]


async def member(reader: read.Reader, owner: types.Owner, member_id: str) -> Member | None:
    """Return one member; None where it is in no cluster, or its entry is not there."""
    found = await reader.fetch(f"{_MEMBERS} AND m.member_id = ?", (*owned.scope(owner), member_id))
    return _member(found[0]) if found else None


async def cluster_of(reader: read.Reader, owner: types.Owner, member_id: str) -> str | None:
    """Return the cluster that an entry belongs to, be the entry there or not."""
    found = await reader.fetch(
        f"SELECT cluster_id FROM cluster_members WHERE {_OWNER} AND member_id = ?",  # noqa: S608  # our own columns
        (*owned.scope(owner), member_id),
    )
    return str(found[0][0]) if found else None


async def clusters(reader: read.Reader, owner: types.Owner) -> list[Cluster]:
    """Return an owner's clusters that have any member, in the order in which they began."""
    found = await reader.fetch(
        "SELECT c.cluster_id, c.created_us, count(*), max(l.timestamp_us)"  # noqa: S608  # our own columns
        f" FROM ({_MEMBERS}) l JOIN clusters c ON {_OWNER} AND c.cluster_id = l.cluster_id"
        " GROUP BY c.cluster_id ORDER BY c.created_us, c.cluster_id",
        (*owned.scope(owner), *owned.scope(owner)),
    )
    return [
        Cluster(cluster_id=values[0], created_us=values[1], n_members=values[2], newest_us=values[3])
        for values in found
    ]


async def n_changes(reader: read.Reader) -> int:
    """Return the number of the newest change of any member."""
    found = await reader.fetch("SELECT seq FROM sqlite_sequence WHERE name = 'cluster_changes'")
    return int(found[0][0]) if found else 0


async def changes(reader: read.Reader, after: int) -> tuple[int, list[Changed]] | None:
    """Return what has changed since change number `after`, and the number of the last; None where that is not known."""
    found = await reader.fetch(
        "SELECT n, app, project, owner_type, owner_id, member_id FROM cluster_changes WHERE n > ? ORDER BY n", (after,)
    )
    if not found:
        return (after, []) if await n_changes(reader) == after else None
    if found[0][0] != after + 1:
        return None
    return int(found[-1][0]), [
        Changed(owner=types.Owner(app=values[1], project=values[2], type=values[3], id=values[4]), member_id=values[5])
        for values in found
    ]


def _member(values: Sequence[Any]) -> Member:
    return Member(
        key=values[0],
        entry_id=values[1],
        member_type=values[2],
        cluster_id=values[3],
        similarity=values[4],
        added_us=values[5],
        timestamp_us=values[6],
        status=values[7],
    )
