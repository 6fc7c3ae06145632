"""Typed memories and Episodes as the lifecycle sees them: what their fields say, and what the rows of `.lifecycle/` add.

Read from the tables that `store.memory` and `store.lifecycle_log` keep in step with the log. Filters are patterns: `%` stands
for anything, `foo%` for what begins so, everything else for itself; letters count as they are written.
"""

from __future__ import annotations

import asyncio
import hashlib
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from everosd import types
from everosd.log import entry, entry_text, escape
from everosd.store import owned, read

KINDS = ("memory", "episode")
"""What has a lifecycle."""

BUCKET = "public"
IMPORTANCE = 0.5
CONFIDENCE = 0.7
"""Of what says nothing of it."""

LIMIT = 1_000_000_000
"""As good as none."""


class Record(msgspec.Struct, frozen=True, kw_only=True, gc=False):  # a hundred thousand at a time, and never in a ring
    """One memory as the lifecycle sees it; moments are microseconds since 1970."""

    key: types.EntryKey
    owner: types.Owner
    entry_id: str
    kind: str
    """`memory` or `episode`."""
    memory_type: str
    """Of Episodes: `episodic`."""
    path: str
    """Category; of Episodes: empty."""
    status: str
    """In force; an active one past its `expires_us` is `active` here."""
    own_status: str
    """As written in the entry; `active` where nothing is."""
    importance: float
    """In force, in [0, 1]."""
    own_importance: str
    """As written in the entry; empty: nothing is."""
    confidence: float
    """In [0, 1]."""
    expires_us: int | None
    """None means never."""
    created_us: int
    updated_us: int
    """As written in the entry, else `created_us`; never when the ledger read it."""
    anchor_us: int | None
    """Last restore, pin, update or edit by hand in the log; None: there was none."""
    accessed_us: int | None
    """Last use in the log."""
    n_uses: int
    """How many days and times of use the log has."""
    since_us: int | None
    """From when steps of decay are counted: those of the last valid one, else where importance was given anew. None: creation."""
    steps: int
    """Of the last decay that is valid."""
    moments: tuple[int, ...]
    """Uses, restores, pins, updates and edits after `since_us`, ascending; all of them where that is None."""
    status_since_us: int | None
    """Of the row of the log that decides the status, with what follows; None: none does."""
    reason: str
    successor: str
    """Entry id; empty: nothing took its place."""
    is_pinned: bool
    is_redacted: bool
    bucket: str
    scope: str
    team_id: str
    session_id: str | None
    semantic_key: str
    promotion_key: str
    n_versions: int
    """Highest number of a version that has ended; 0: there is only the present one."""
    lsn: int
    """Of the entry's last change."""
    path_file: types.RelPath


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """How many typed memories an owner has."""

    total: int
    types: dict[str, int]
    """Of those that are not deleted, as are `paths` and `buckets`."""
    statuses: dict[str, int]
    """In force; active ones past their `expires_at` count as `expired`."""
    paths: dict[str, int]
    buckets: dict[str, int]


_FIELDS = """
e.key, e.entry_id, e.kind, e.memory_type, e.memory_path, e.status, e.own_status, e.expires_us, e.timestamp_us, e.session_id,
e.lsn, e.path, m.importance, m.own_importance, m.confidence, m.updated_us, m.is_pinned, m.bucket, m.scope, m.team_id,
m.semantic_key, m.promotion_key, s.status_us, s.reason, s.successor, s.importance, s.since_us, s.steps, s.anchor_us,
s.accessed_us, s.n_uses, s.moments, s.n_versions, s.is_redacted
"""
_JOINED = """
    LEFT JOIN typed_memories m ON m.key = e.key
    LEFT JOIN lifecycle_state s ON s.app = e.app AND s.project = e.project AND s.owner_type = e.owner_type
        AND s.owner_id = e.owner_id AND s.entry_id = e.entry_id
"""
_OWNER = owned.by("e")
_IS_MEMORY = "e.kind IN ('memory', 'episode') AND e.is_shadowed = 0"
_ORDER = " ORDER BY e.timestamp_us, e.entry_id LIMIT ?"
_ALL = " ORDER BY e.timestamp_us LIMIT ?"
"""As the index has them: what is left to sort is sorted faster here."""
_PATTERNS = (
    ("bucket", f"coalesce(m.bucket, '{BUCKET}')"),
    ("scope", "coalesce(m.scope, '')"),
    ("team_id", "coalesce(m.team_id, '')"),
    ("session_id", "coalesce(e.session_id, '')"),
    ("path", "e.memory_path"),
    ("memory_type", "CASE e.kind WHEN 'episode' THEN 'episodic' ELSE e.memory_type END"),
)
_MOMENTS = msgspec.json.Decoder(tuple[int, ...])
INLINE = 1000
"""More records than this are made beside the event loop."""
INLINE_ROWS = 20
"""The same of rows of the log, which may hold whole texts."""


async def records(
    reader: read.Reader,
    owner: types.Owner,
    *,
    kinds: Sequence[str] = ("memory",),
    statuses: Sequence[str] = ("active",),
    bucket: str = "%",
    scope: str = "%",
    team_id: str = "%",
    session_id: str = "%",
    path: str = "%",
    memory_type: str = "%",
    ids: Sequence[str] | None = None,
    from_us: int | None = None,
    to_us: int | None = None,
    after: Record | None = None,
    limit: int = LIMIT,
) -> list[Record]:
    """Return memories of an owner, the oldest first (`created_us`, then `entry_id`).

    Args:
        reader: Of the ledger.
        owner: Whose memories; filters never widen it.
        kinds: `memory`, `episode` or both.
        statuses: In force; empty: any.
        bucket: Pattern, as are `scope`, `team_id`, `session_id`, `path` and `memory_type`; an empty one stands for any.
        scope: Pattern.
        team_id: Pattern.
        session_id: Pattern; one that is not `%` leaves out what has no session.
        path: Pattern of the category.
        memory_type: Pattern; Episodes are `episodic`.
        ids: Only these entry ids; None: all.
        from_us: Created then or later.
        to_us: Created before that.
        after: Only what comes behind this one: the last of the page before.
        limit: At most so many.
    """
    given = {
        "bucket": bucket,
        "scope": scope,
        "team_id": team_id,
        "session_id": session_id,
        "path": path,
        "memory_type": memory_type,
    }
    wheres = [f"{_OWNER} AND e.is_shadowed = 0", _among("e.kind", [each for each in kinds if each in KINDS])]
    values: list[object] = list(owned.scope(owner))
    if statuses:
        wheres.append(f"e.status IN ({', '.join('?' * len(statuses))})")
        values += statuses
    for name, column in _PATTERNS:
        said, its = match(column, given[name])
        wheres.append(said)
        values += its
    if ids is not None:
        wheres.append("e.entry_id IN (SELECT value FROM json_each(?))")
        values.append(msgspec.json.encode(list(ids)).decode())
    if from_us is not None:
        wheres.append("e.timestamp_us >= ?")
        values.append(from_us)
    if to_us is not None:
        wheres.append("e.timestamp_us < ?")
        values.append(to_us)
    if after is not None:
        wheres.append("(e.timestamp_us, e.entry_id) > (?, ?)")
        values += [after.created_us, after.entry_id]
    # Left to itself SQLite walks all memories of the owner and looks whether each is one of the few.
    index = "" if ids is None else "INDEXED BY entries_owner"
    return await _fetch(reader, owner, " AND ".join(filter(None, wheres)), [*values, limit], index)


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """One page of an owner's memories by what they are at a moment, and how many there are."""

    records: list[Record]
    counts: dict[str, int]
    """By status, those of other statuses as well; active ones past their `expires_at` count as `expired`."""


_STATUS_NOW = "CASE WHEN e.status = 'active' AND e.expires_us <= ? THEN 'expired' ELSE e.status END"


async def standing(
    reader: read.Reader,
    owner: types.Owner,
    now_us: int,
    *,
    kinds: Sequence[str] = KINDS,
    statuses: Sequence[str],
    memory_type: str = "%",
    path: str = "%",
    limit: int,
    offset: int = 0,
) -> Standing:
    """Return memories of an owner that have one of these statuses at `now_us`, what changed last first.

    Filters are as `records` has them. Blocks nobody: counted and sorted by the ledger.
    """
    where = [f"{_OWNER} AND e.is_shadowed = 0", _among("e.kind", [each for each in kinds if each in KINDS])]
    values: list[object] = list(owned.scope(owner))
    columns = dict(_PATTERNS)
    for column, pattern in ((columns["memory_type"], memory_type), (columns["path"], path)):
        said, its = match(column, pattern)
        where.append(said)
        values += its
    bound = " AND ".join(filter(None, where))
    counted = await reader.fetch(
        f"SELECT {_STATUS_NOW}, count(*) FROM entries e WHERE {bound} GROUP BY 1",  # noqa: S608  # our own columns
        (now_us, *values),
    )
    found = await reader.fetch(
        f"SELECT {_FIELDS} FROM entries e {_JOINED} WHERE {bound}"  # noqa: S608
        f" AND {_STATUS_NOW} IN (SELECT value FROM json_each(?))"
        " ORDER BY coalesce(CASE e.status WHEN 'active' THEN iif(e.expires_us <= ?, e.expires_us, NULL) ELSE s.status_us END,"
        " e.timestamp_us) DESC, e.entry_id DESC LIMIT ? OFFSET ?",
        (*values, now_us, msgspec.json.encode(list(statuses)).decode(), now_us, limit, offset),
    )
    same: dict[str, str] = {}
    return Standing(
        records=[_record(owner, each, same) for each in found], counts={str(name): int(n) for name, n in counted}
    )


def match(column: str, pattern: str) -> tuple[str, tuple[str, ...]]:
    """Return the SQL condition that a column fits a pattern, with its parameters; empty where anything fits."""
    if not pattern.strip("%"):
        return "", ()
    if "%" not in pattern:
        return f"{column} = ?", (pattern,)
    if "\0" in pattern:  # where a pattern ends for SQLite, and nothing that is read from a file has one
        return "0", ()
    # GLOB and not LIKE: `Atlas` and `atlas` are two, and `_` is itself.
    glob = "".join("*" if each == "%" else f"[{each}]" if each in "*?[" else each for each in pattern)
    return f"{column} GLOB ?", (glob,)


def _among(column: str, names: Sequence[str]) -> str:
    """Return the condition that a column is one of our own names."""
    quoted = ", ".join(f"'{name}'" for name in names)
    return f"{column} = {quoted}" if len(names) == 1 else f"{column} IN ({quoted})"


async def _fetch(
    reader: read.Reader, owner: types.Owner, where: str, values: Sequence[object], index: str = ""
) -> list[Record]:
    """Return the records of a condition; the last value is how many."""
    order = _ALL if values[-1] == LIMIT else _ORDER
    found = await reader.fetch(f"SELECT {_FIELDS} FROM entries e {index} {_JOINED} WHERE {where}{order}", values)  # noqa: S608
    if len(found) <= INLINE:
        return _records(owner, found)
    return await asyncio.to_thread(_records, owner, found)


def _records(owner: types.Owner, found: Sequence[Sequence[Any]]) -> list[Record]:
    same: dict[str, str] = {}
    return sorted((_record(owner, each, same) for each in found), key=_by_age)


def _by_age(one: Record) -> tuple[int, str]:
    return one.created_us, one.entry_id


def _record(owner: types.Owner, columns: Sequence[Any], same: dict[str, str]) -> Record:
    """Return a memory; what many have in common stands in `same` once."""
    (
        key, entry_id, kind, memory_type, memory_path, status, own_status, expires_us, timestamp_us, session_id,
        lsn, path_file, importance, own_importance, confidence, updated_us, is_pinned, bucket, scope, team_id,
        semantic_key, promotion_key, status_us, reason, successor, decayed, since_us, steps, anchor_us,
        accessed_us, n_uses, moments, n_versions, is_redacted,
    ) = columns  # fmt: skip
    own = IMPORTANCE if importance is None else importance
    return Record(
        key=key,
        owner=owner,
        entry_id=entry_id,
        kind=same.setdefault(kind, kind),
        memory_type="episodic" if kind == "episode" else same.setdefault(memory_type, memory_type),
        path=same.setdefault(memory_path, memory_path),
        status=same.setdefault(status, status),
        own_status=same.setdefault(own_status, own_status),
        importance=own if decayed is None else decayed,
        own_importance=own_importance or "",
        confidence=CONFIDENCE if confidence is None else confidence,
        expires_us=expires_us,
        created_us=timestamp_us,
        updated_us=timestamp_us if updated_us is None else updated_us,
        anchor_us=anchor_us,
        accessed_us=accessed_us,
        n_uses=n_uses or 0,
        since_us=since_us,
        steps=steps or 0,
        moments=() if moments is None or moments == "[]" else _MOMENTS.decode(moments),
        status_since_us=status_us,
        reason=reason or "",
        successor=successor or "",
        is_pinned=bool(is_pinned),
        is_redacted=bool(is_redacted),
        bucket=same.setdefault(bucket, bucket) if bucket else BUCKET,
        scope=scope or "",
        team_id=team_id or "",
        session_id=session_id,
        semantic_key=semantic_key or "",
        promotion_key=promotion_key or "",
        n_versions=n_versions or 0,
        lsn=lsn,
        path_file=types.RelPath(same.setdefault(path_file, path_file)),
    )


async def owners(reader: read.Reader, kinds: Sequence[str] = ("memory",)) -> list[types.Owner]:
    """Return whoever has any entry of these kinds, sorted."""
    known = _among("kind", [each for each in kinds if each in KINDS])
    found = await reader.fetch(
        "SELECT f.app, f.project, f.owner_type, f.owner_id FROM files f"  # noqa: S608  # our own names
        f" WHERE {known.replace('kind', 'f.kind')} AND f.n_entries > 0"
        " GROUP BY f.app, f.project, f.owner_type, f.owner_id ORDER BY f.app, f.project, f.owner_type, f.owner_id"
    )
    return [types.Owner(app=each[0], project=each[1], type=each[2], id=each[3]) for each in found]


async def find(reader: read.Reader, owner: types.Owner, entry_id: str) -> Record | None:
    """Return one memory or Episode of an owner, whatever its status; None where the owner has no such one."""
    where = f"{_OWNER} AND e.entry_id = ? AND {_IS_MEMORY}"
    found = await _fetch(reader, owner, where, (*owned.scope(owner), entry_id, 1))
    return found[0] if found else None


async def by_semantic_key(
    reader: read.Reader,
    owner: types.Owner,
    semantic_key: str,
    *,
    bucket: str = BUCKET,
    scope: str = "",
    team_id: str = "",
) -> Record | None:
    """Return the active memory under a key; bucket, scope and team are compared as they are. Of several the newest."""
    own = owned.by("m")
    keys = (
        "e.key IN (SELECT m.key FROM typed_memories m"  # noqa: S608  # our own columns
        f" WHERE {own} AND m.semantic_key = ? AND m.semantic_key <> '' AND m.kind = 'memory'"
        " AND m.bucket = ? AND m.scope = ? AND m.team_id = ?) AND e.is_shadowed = 0 AND e.status = 'active'"
    )
    found = await _fetch(reader, owner, keys, (*owned.scope(owner), semantic_key, bucket, scope, team_id, LIMIT))
    return found[-1] if found else None


async def by_content(reader: read.Reader, owner: types.Owner, digest: str, path: str) -> list[Record]:
    """Return the active memories under a path (no pattern) whose content has a `content_digest`, the oldest first."""
    own = owned.by("m")
    keys = (
        "e.key IN (SELECT m.key FROM typed_memories m"  # noqa: S608  # our own columns
        f" WHERE {own} AND m.content_digest = ? AND m.content_digest <> '')"
        " AND e.is_shadowed = 0 AND e.status = 'active' AND e.memory_path = ?"
    )
    return await _fetch(reader, owner, keys, (*owned.scope(owner), digest, path, LIMIT))


async def rows(
    reader: read.Reader,
    owner: types.Owner,
    *,
    target: str | None = None,
    actions: Sequence[str] | None = None,
    run_id: str | None = None,
    tool: str | None = None,
    since_us: int | None = None,
    until_us: int | None = None,
    limit: int = 100,
    offset: int = 0,
) -> list[entry.Entry]:
    """Return rows of `.lifecycle/` about memories, and audit rows, the newest first; `until_us` is not included.

    Without `actions`: all but `usage` and `removed`. `tool` is who called, of audit rows.
    """
    wheres, values = [owned.by("r")], list[object](owned.scope(owner))
    if target is not None:
        wheres.append("r.target = ?")
        values.append(target)
    shown = "r.action <> 'usage' AND r.action <> 'removed'"
    wheres.append(shown if actions is None else f"r.action IN ({', '.join('?' * len(actions))})")
    values += actions or ()
    for condition, value in (("r.run_id = ?", run_id), ("r.at_us >= ?", since_us), ("r.at_us < ?", until_us)):
        if value is not None:
            wheres.append(condition)
            values.append(value)
    if tool is not None:
        wheres.append("instr(e.raw, ?) > 0")
        values.append(f"\n**tool**: {tool}\n")
    found = await reader.fetch(
        "SELECT e.entry_id, e.raw FROM lifecycle_rows r CROSS JOIN entries e ON e.key = r.key"  # noqa: S608
        f" WHERE {' AND '.join(wheres)} AND e.is_shadowed = 0"
        " GROUP BY r.key ORDER BY r.place DESC, e.entry_id DESC LIMIT ? OFFSET ?",
        (*values, limit, offset),
    )
    return _entries(found) if len(found) <= INLINE_ROWS else await asyncio.to_thread(_entries, found)


async def rows_of_each(
    reader: read.Reader,
    owner: types.Owner,
    targets: Mapping[str, int | None],
    *,
    actions: Sequence[str],
    limit: int,
) -> dict[str, list[entry.Entry]]:
    """Return rows of `.lifecycle/` about several memories, of each the newest first; without those that have none.

    Args:
        reader: Of the ledger.
        owner: Whose memories.
        targets: Entry ids, each with the moment from which on rows are wanted; None: all.
        actions: Of the rows.
        limit: At most so many of each.
    """
    found = await reader.fetch(
        "WITH told AS (SELECT r.key, r.target, e.entry_id, row_number() OVER"  # noqa: S608
        " (PARTITION BY r.target ORDER BY r.place DESC, e.entry_id DESC) AS nth"
        " FROM json_each(?) j CROSS JOIN lifecycle_rows r INDEXED BY lifecycle_rows_target"
        f" ON {owned.by('r')} AND r.target = j.key CROSS JOIN entries e ON e.key = r.key"
        f" WHERE e.is_shadowed = 0 AND r.action IN ({', '.join('?' * len(actions))})"
        " AND (j.value IS NULL OR r.at_us >= j.value))"
        " SELECT t.target, t.entry_id, e.raw FROM told t CROSS JOIN entries e ON e.key = t.key"
        " WHERE t.nth <= ? ORDER BY t.target, t.nth",
        (msgspec.json.encode(dict(targets)).decode(), *owned.scope(owner), *actions, limit),
    )
    read_rows = [each[1:] for each in found]
    entries = _entries(read_rows) if len(found) <= INLINE_ROWS else await asyncio.to_thread(_entries, read_rows)
    told: dict[str, list[entry.Entry]] = {}
    for (target, *_), one in zip(found, entries, strict=True):
        told.setdefault(target, []).append(one)
    return told


def _entries(found: Sequence[Sequence[Any]]) -> list[entry.Entry]:
    return [entry_text.read("lifecycle", entry_id, raw) for entry_id, raw in found]


_FOR_GOOD = "{0}.action IN ('hard_delete', 'redact', 'removed') AND {0}.action <> 'removed'"
"""Tombstones, said with the words of the index that has them: by others SQLite does not use it."""


async def unremoved(reader: read.Reader) -> list[tuple[types.Owner, entry.Entry]]:
    """Return the tombstones of which no row says that all was done that they say, the oldest first."""
    found = await reader.fetch(
        "SELECT t.app, t.project, t.owner_type, t.owner_id, e.entry_id, e.raw FROM lifecycle_rows t"  # noqa: S608
        f" CROSS JOIN entries e ON e.key = t.key AND e.is_shadowed = 0 WHERE {_FOR_GOOD.format('t')}"
        " AND NOT EXISTS (SELECT 1 FROM lifecycle_rows d JOIN entries of ON of.key = d.key AND of.is_shadowed = 0"
        " WHERE d.app = t.app AND d.project = t.project AND d.owner_type = t.owner_type AND d.owner_id = t.owner_id"
        " AND d.target = t.target AND d.action = 'removed' AND d.value IN (t.action, 'hard_delete'))"
        " ORDER BY t.place, t.app, t.project, t.owner_type, t.owner_id",
        (),
    )
    return [
        (types.Owner(app=app, project=project, type=kind, id=id_), entry_text.read("lifecycle", entry_id, raw))
        for app, project, kind, id_, entry_id, raw in found
    ]


async def removed_messages(reader: read.Reader, app: str, project: str) -> list[str]:
    """Return the ids of messages that were removed for good; whatever session they are of. Cheap where none were."""
    found = await reader.fetch(
        "SELECT e.entry_id, e.raw FROM lifecycle_rows r CROSS JOIN entries e ON e.key = r.key"  # noqa: S608
        f" WHERE r.app = ? AND r.project = ? AND {_FOR_GOOD.format('r')} AND e.is_shadowed = 0",
        (app, project),
    )
    rows = (entry_text.read("lifecycle", entry_id, raw) for entry_id, raw in found)
    return [one for row in rows for one in escape.read_list(row.fields.get("message_ids", ""))]


async def counts(reader: read.Reader, owner: types.Owner, now_us: int) -> Counts:
    """Return how many typed memories an owner has, by type, status, path and bucket."""
    found = await reader.fetch(
        "SELECT e.memory_type, CASE WHEN e.status = 'active' AND e.expires_us <= ? THEN 'expired' ELSE e.status END AS now,"  # noqa: S608
        f" e.memory_path, m.bucket, count(*) FROM entries e JOIN typed_memories m ON m.key = e.key WHERE {_OWNER}"
        " AND e.kind = 'memory' AND e.is_shadowed = 0 GROUP BY 1, 2, 3, 4",
        (now_us, *owned.scope(owner)),
    )
    by: tuple[dict[str, int], ...] = ({}, {}, {}, {})
    for *names, n in found:
        for at, name in enumerate(names):
            if names[1] != "deleted" or at == 1:
                by[at][name] = by[at].get(name, 0) + n
    return Counts(total=sum(each[-1] for each in found), types=by[0], statuses=by[1], paths=by[2], buckets=by[3])


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """What befalls active memories of a type that are left alone; spans of time in microseconds."""

    memory_type: str
    period_us: int | None
    """None: it does not decay."""
    floor: float
    kept_us: int | None
    """None: it is not archived."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Of an owner's active memories; moments are microseconds since 1970, None where there is none."""

    total: int
    used: int
    """Those of which the log has a use."""
    pinned: int
    next_expiry_us: int | None
    next_decay_us: int | None
    """The earliest; what should have been counts as well."""
    next_archive_us: int | None
    n_decay: int
    """Due by now."""
    n_archive: int


_FIGURES = f"""
WITH rule (type, period, floor, kept) AS (SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3 FROM json_each(?)),
one (is_used, is_pinned, expires_us, decay_us, archive_us) AS (
    SELECT ifnull(s.n_uses, 0) > 0, m.is_pinned, e.expires_us,
        CASE WHEN NOT m.is_pinned AND round(coalesce(s.importance, m.importance), 6) > r.floor THEN
            max(e.timestamp_us, ifnull(m.updated_us, 0), ifnull(s.accessed_us, 0), ifnull(s.anchor_us, 0), ifnull(s.since_us, 0))
            + (1 + CASE WHEN s.since_us = max(e.timestamp_us, ifnull(m.updated_us, 0), ifnull(s.accessed_us, 0),
                ifnull(s.anchor_us, 0), s.since_us) THEN s.steps ELSE 0 END) * r.period END,
        CASE WHEN NOT m.is_pinned THEN
            max(e.timestamp_us, ifnull(m.updated_us, 0), ifnull(s.accessed_us, 0), ifnull(s.anchor_us, 0)) + r.kept END
    FROM entries e JOIN typed_memories m ON m.key = e.key LEFT JOIN rule r ON r.type = e.memory_type
        LEFT JOIN lifecycle_state s ON s.app = e.app AND s.project = e.project AND s.owner_type = e.owner_type
            AND s.owner_id = e.owner_id AND s.entry_id = e.entry_id
    WHERE {_OWNER} AND e.kind = 'memory' AND e.is_shadowed = 0 AND e.status = 'active'
        AND (e.expires_us IS NULL OR e.expires_us > ?)
)
SELECT count(*), total(is_used), total(is_pinned), min(expires_us), min(decay_us), min(archive_us),
    total(decay_us <= ?), total(archive_us <= ?) FROM one
"""  # noqa: S608  # our own columns


async def figures(reader: read.Reader, owner: types.Owner, rules: Sequence[Rule], now_us: int) -> Figures:
    """Return what there is to say of an owner's active memories as a whole; 0.5 s for 100,000, beside the event loop."""
    table = [(one.memory_type, one.period_us, one.floor, one.kept_us) for one in rules]
    (found,) = await reader.fetch(
        _FIGURES, (msgspec.json.encode(table).decode(), *owned.scope(owner), now_us, now_us, now_us)
    )
    return Figures(
        total=found[0],
        used=int(found[1]),
        pinned=int(found[2]),
        next_expiry_us=found[3],
        next_decay_us=found[4],
        next_archive_us=found[5],
        n_decay=int(found[6]),
        n_archive=int(found[7]),
    )


async def n_active(reader: read.Reader, owner: types.Owner, kind: str, now_us: int) -> tuple[int, int]:
    """Return how many entries of a kind are active, and how many of them are past their `expires_at`."""
    (found,) = await reader.fetch(
        f"SELECT count(*), total(e.expires_us <= ?) FROM entries e WHERE {_OWNER} AND e.kind = ?"  # noqa: S608
        " AND e.is_shadowed = 0 AND e.status = 'active'",
        (now_us, *owned.scope(owner), kind),
    )
    return int(found[0]), int(found[1])


def content_digest(text: str) -> str:
    """Return 32 hex that are the same for texts that say the same letter for letter.

    Compatible forms, case, white space, and punctuation at the end are of no matter. Empty for a text without content.
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    said = _without_end(" ".join(folded.split()))
    return hashlib.blake2b(said.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest() if said else ""


def _without_end(text: str) -> str:
    """Return text without punctuation and blanks at its end; one that is nothing else stays as it is."""
    n = len(text)
    while n and (text[n - 1].isspace() or unicodedata.category(text[n - 1]).startswith("P")):
        n -= 1
    return text[:n] or text
