"""The rows of `.lifecycle/` about memories, and what they come to: the status, importance and activity of an entry.

Of the rows about an entry the last one about its status decides, and the last decay. A row is void once the entry itself says
something else than what the row was made on (`base`), or once importance was given anew: a hand edit is the new baseline. A `supersede` row is void while nothing
that took the entry's place is there, be it for a ring of such rows; the row before it counts then. A row that does not say what
its action needs, or anything that cannot be, says nothing.
"""

from __future__ import annotations

import datetime as dt
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from everosd import types
from everosd.log import entry_text, view
from everosd.store import cluster, owned, state

STATUS_OF: dict[str, str] = {
    "expire": "expired",
    "archive": "archived",
    "supersede": "superseded",
    "delete": "deleted",
    "restore": "active",
}
"""What an entry becomes by an action."""

ANCHORS = ("restore", "pin", "update", "edited")
"""Actions that are activity: decay and archive count from the last of them."""

VERSIONED = ("update", "pin")

GIVING = ("update", "edited")
"""Actions that may change the importance in an entry."""

_PLAIN = ("redact", "hard_delete", "removed", "summarize")
_MAX_STEPS = 1_000_000
_MAX_VERSION = 999_999
_MAX_MS = 253_402_300_799_999  # the end of the year 9999
_BATCH = 500

_OWNER = owned.by()
_ROW_OWNER, _ENTRY_OWNER = owned.by("r"), owned.by("e")

_STATE_COLUMNS = (
    "status", "status_us", "reason", "successor", "importance", "since_us", "steps", "anchor_us", "accessed_us", "n_uses",
    "moments", "n_versions", "is_redacted",
)  # fmt: skip
_ROW_COLUMNS = (
    "target",
    "action",
    "run_id",
    "at_us",
    "base",
    "value",
    "reason",
    "successor",
    "since_us",
    "steps",
    "version",
)
_N_TEXTS = 8
_TEXTS_FIRST = sorted(_ROW_COLUMNS, key=lambda name: name in ("at_us", "since_us", "steps", "version"))

ROWS = state.Table(
    name="lifecycle_rows",
    columns=(*owned.COLUMNS, "place", *_TEXTS_FIRST),
    n_key=len(owned.COLUMNS) + _N_TEXTS,
    subject="target",
    kind="lifecycle",
)
STATE = state.Table(
    name="lifecycle_state",
    columns=(*owned.COLUMNS, "entry_id", *_STATE_COLUMNS),
    n_key=5,
    subject="entry_id",
    kind="lifecycle",
    also=("memory", "episode"),
)


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What one row says of one entry; its fields are `_ROW_COLUMNS`."""

    target: str
    """Entry id; empty: it speaks of none."""
    action: str
    run_id: str
    at_us: int
    base: str = ""
    value: str = ""
    reason: str = ""
    successor: str = ""
    since_us: int | None = None
    steps: int = 0
    version: int = 0


# -- rows, taken apart -------------------------------------------------------------------------------------------------


def read(entry_id: str, raw: str, at_us: int) -> list[Told]:
    """Return what a row says of which entries; nothing where it is not about the lifecycle, or is wrong. Never raises."""
    end = raw.find("\n###")
    fields = entry_text.read("lifecycle", entry_id, raw if end < 0 else raw[:end]).fields
    action, target, run_id = fields.get("action", ""), fields.get("target", ""), fields.get("run_id", "")
    if action == "usage":
        return _uses(fields.get("targets", ""), run_id)
    if action == "audit":
        return [Told(target="", action=action, run_id=run_id, at_us=at_us)]
    if not target:
        return []
    told = Told(target=target, action=action, run_id=run_id, at_us=at_us)
    if action in STATUS_OF:
        told_or_none = _status(told, fields)
    elif action == "decay":
        told_or_none = _decay(told, fields)
    elif action in VERSIONED:
        version = _count(fields.get("version", ""), _MAX_VERSION)
        told_or_none = msgspec.structs.replace(_given(told, fields), version=version or 0)
    elif action == "edited":
        told_or_none = _given(told, fields)
    else:
        value = fields.get("value", "") if action == "removed" else ""
        told_or_none = msgspec.structs.replace(told, value=value) if action in _PLAIN else None
    return [] if told_or_none is None else [told_or_none]


def _status(told: Told, fields: Mapping[str, str]) -> Told | None:
    status = STATUS_OF[told.action]
    successor = fields.get("successor", "") if told.action == "supersede" else ""
    is_lacking = told.action == "supersede" and successor in ("", told.target)
    if is_lacking or fields.get("value", status).strip().casefold() != status:
        return None
    base = fields.get("base", "").strip().casefold() or "active"
    reason = fields.get("reason", "")
    return msgspec.structs.replace(told, base=base, value=status, reason=reason, successor=successor)


def _decay(told: Told, fields: Mapping[str, str]) -> Told | None:
    try:
        importance = float(fields.get("value", ""))
    except ValueError:
        return None
    since_us = view.moment_us(fields.get("since", ""), dt.UTC)
    steps = _count(fields.get("steps", ""), _MAX_STEPS)
    if not 0 <= importance <= 1 or since_us is None or steps is None:
        return None
    base = fields.get("base", "").strip()
    return msgspec.structs.replace(told, base=base, value=repr(importance), since_us=since_us, steps=steps)


def _given(told: Told, fields: Mapping[str, str]) -> Told:
    """Return an edit with the inline importance before and after it, where that is what it changed."""
    if fields.get("field", "") != "importance":
        return told
    return msgspec.structs.replace(told, base=fields.get("was", "").strip(), value=fields.get("value", "").strip())


def _uses(written: str, run_id: str) -> list[Told]:
    """Return the last use of each entry in a list of `<entry id>@<unix ms>`."""
    found: dict[str, int] = {}
    for each in written.strip().strip("[]").split(","):
        target, _, moment = each.strip(' \t"').rpartition("@")
        ms = _count(moment, _MAX_MS)
        if target and ms is not None:
            found[target] = max(ms, found.get(target, 0))
    return [Told(target=target, action="usage", run_id=run_id, at_us=ms * 1000) for target, ms in found.items()]


def _count(written: str, most: int) -> int | None:
    text = written.strip()
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(most))
    return number if is_number and (number := int(text)) <= most else None


# -- folding, in the transaction that applies a file -------------------------------------------------------------------

_INSERT = f"""
INSERT OR REPLACE INTO lifecycle_rows (key, {", ".join((*owned.COLUMNS, "place", *_ROW_COLUMNS))})
VALUES (?, ?, ?, ?, ?, ?, {", ".join("?" * len(_ROW_COLUMNS))})
"""  # noqa: S608  # our own columns


def fold(connection: sqlite3.Connection, change: state.Change) -> set[str]:
    """Take over rows of `.lifecycle/` that were added, changed or removed.

    Returns:
        Entries that have another status now, as far as the rows go.
    """
    scope = change.scope
    targets: set[str] = set()
    decided: set[str] = set()
    known = connection.execute(f"SELECT 1 FROM lifecycle_rows r WHERE {_ROW_OWNER} LIMIT 1", scope).fetchone()  # noqa: S608
    if known is not None:
        for part in _parts([key for key, _ in (*change.written, *change.gone)]):
            _add(
                connection.execute(
                    "SELECT r.target, r.action FROM json_each(?) j CROSS JOIN lifecycle_rows r ON r.key = j.value", part
                ),
                targets,
                decided,
            )
            connection.execute("DELETE FROM lifecycle_rows WHERE key IN (SELECT value FROM json_each(?))", part)
    high: dict[tuple[str, str], int] = {}
    rows = []
    for key, entry in change.written:
        for told in read(entry.entry_id, entry.raw, entry.timestamp_us):
            rows.append((key, *scope, cluster.place(entry.entry_id), *msgspec.structs.astuple(told)))
            _add([(told.target, told.action)], targets, decided)
            for named in (told.target, told.successor):
                if (found := types.numbered(named)) is not None:
                    high[found[:2]] = max(high.get(found[:2], 0), found[2])
    connection.executemany(_INSERT, rows)
    # A new entry must not get an id that a row speaks of, though the entry may be long gone: it would inherit its end.
    connection.executemany(
        "INSERT INTO sequences VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET high = max(high, excluded.high)",
        [(*scope, prefix, date, number) for (prefix, date), number in high.items()],
    )
    # Not only those of these rows: a row that goes, or comes, may be one that shadows the same in another file.
    for part in _parts(sorted(change.entry_ids)):
        found_rows = connection.execute(
            "SELECT r.target, r.action FROM json_each(?) j CROSS JOIN entries e INDEXED BY entries_owner"  # noqa: S608
            f" ON {_ENTRY_OWNER} AND e.entry_id = j.value CROSS JOIN lifecycle_rows r ON r.key = e.key",
            (*part, *scope),
        )
        _add(found_rows, targets, decided)
    return _settle(connection, scope, targets | _before(connection, scope, decided))


def follow(connection: sqlite3.Connection, change: state.Change) -> set[str]:
    """Judge the rows anew that speak of what has changed, or name it as a successor; without rows that is one look.

    Returns:
        Entries that have another status now, as far as the rows go.
    """
    scope = change.scope
    any_row = connection.execute(f"SELECT 1 FROM lifecycle_state WHERE {_OWNER} LIMIT 1", scope).fetchone()  # noqa: S608
    if any_row is None:
        return set()
    return _settle(connection, scope, _before(connection, scope, change.entry_ids))


def _add(rows: Iterable[tuple[str, str]], targets: set[str], decided: set[str]) -> None:
    for target, action in rows:
        if target:
            targets.add(target)
            if action in STATUS_OF:
                decided.add(target)


def _parts(values: Sequence[object]) -> Iterator[tuple[str]]:
    """Yield values in batches, as the JSON that `json_each` takes."""
    for start in range(0, len(values), _BATCH):
        yield (msgspec.json.encode(values[start : start + _BATCH]).decode(),)


def _before(connection: sqlite3.Connection, scope: owned.Scope, ids: Collection[str]) -> set[str]:
    """Return `ids`, and whatever rows say was superseded by one of them, however long the chain."""
    found = set(ids)
    for part in _parts(sorted(ids)):
        rows = connection.execute(
            "WITH RECURSIVE found (id) AS (SELECT value FROM json_each(?) UNION"  # noqa: S608  # our own columns
            " SELECT r.target FROM found CROSS JOIN lifecycle_rows r INDEXED BY lifecycle_rows_successor"
            f" ON {_ROW_OWNER} AND r.successor = found.id AND r.successor <> '') SELECT id FROM found",
            (*part, *scope),
        )
        found.update(each for (each,) in rows)
    return found


def _settle(connection: sqlite3.Connection, scope: owned.Scope, targets: Collection[str]) -> set[str]:
    """Have the table say of entries what their rows come to; return those with another status."""
    changed: set[str] = set()
    ordered = sorted(targets)
    for start in range(0, len(ordered), _BATCH):
        changed |= _settle_some(connection, scope, ordered[start : start + _BATCH])
    return changed


_ROWS = f"""
SELECT {", ".join(f"r.{name}" for name in _ROW_COLUMNS)}
FROM json_each(?) j CROSS JOIN lifecycle_rows r INDEXED BY lifecycle_rows_target ON {_ROW_OWNER} AND r.target = j.value
    CROSS JOIN entries e ON e.key = r.key
WHERE e.is_shadowed = 0 ORDER BY r.target, r.place, e.entry_id
"""  # noqa: S608  # our own columns
_ENTRIES = f"""
SELECT e.entry_id, e.own_status, coalesce(m.own_importance, '')
FROM json_each(?) j CROSS JOIN entries e INDEXED BY entries_owner ON {_ENTRY_OWNER} AND e.entry_id = j.value
    LEFT JOIN typed_memories m ON m.key = e.key
WHERE e.is_shadowed = 0 AND e.kind IN ('memory', 'episode')
"""  # noqa: S608  # our own columns
_STATES = f"""
SELECT entry_id, {", ".join(_STATE_COLUMNS)} FROM lifecycle_state
WHERE {_OWNER} AND entry_id IN (SELECT value FROM json_each(?))
"""  # noqa: S608  # our own columns
_PUT = f"""
INSERT OR REPLACE INTO lifecycle_state ({", ".join(STATE.columns)}) VALUES ({", ".join("?" * len(STATE.columns))})
"""  # noqa: S608  # our own columns


def _settle_some(connection: sqlite3.Connection, scope: owned.Scope, targets: list[str]) -> set[str]:
    part = msgspec.json.encode(targets).decode()
    told: dict[str, list[Told]] = {}
    for row in connection.execute(_ROWS, (part, *scope)):
        told.setdefault(row[0], []).append(_told(row))
    own = {row[0]: (row[1], row[2]) for row in connection.execute(_ENTRIES, (part, *scope))}
    known = {row[0]: row[1:] for row in connection.execute(_STATES, (*scope, part))}
    changed: set[str] = set()
    gone, new = [], []
    for target in targets:
        before = known.get(target)
        rows = told.get(target)
        after = None if rows is None else _state(connection, scope, rows, own.get(target))
        if before == after:
            continue
        if after is None:
            gone.append((*scope, target))
        else:
            new.append((*scope, target, *after))
        if _shown(before) != _shown(after):
            changed.add(target)
    connection.executemany(f"DELETE FROM lifecycle_state WHERE {_OWNER} AND entry_id = ?", gone)  # noqa: S608
    connection.executemany(_PUT, new)
    return changed


def _shown(columns: Sequence[object] | None) -> tuple[object, object]:
    """Return status and successor of a row of the table."""
    return ("", "") if columns is None else (columns[0], columns[3])


def _told(row: Sequence[Any]) -> Told:
    return Told(**dict(zip(_ROW_COLUMNS, row, strict=True)))


def _state(
    connection: sqlite3.Connection, scope: owned.Scope, rows: list[Told], own: tuple[str, str] | None
) -> tuple[object, ...]:
    """Return the columns of `_STATE_COLUMNS`; `own` are status and importance as the entry has them, None without one."""
    status = None if own is None else _decisive(connection, scope, rows, own[0])
    decay, since_us = (None, None) if own is None else _sunk(rows, own[1])
    uses = [each.at_us for each in rows if each.action == "usage"]
    anchors = [each.at_us for each in rows if each.action in ANCHORS]
    moments = sorted({us for us in (*uses, *anchors) if since_us is None or us > since_us})
    return (
        "" if status is None else status.value,
        None if status is None else status.at_us,
        "" if status is None else status.reason,
        "" if status is None else status.successor,
        None if decay is None else float(decay.value),
        since_us,
        0 if decay is None else decay.steps,
        max(anchors, default=None),
        max(uses, default=None),
        len(uses),
        msgspec.json.encode(moments).decode(),
        max((each.version for each in rows), default=0),
        int(any(each.action == "redact" for each in rows)),
    )


def _sunk(rows: Sequence[Told], own: str) -> tuple[Told | None, int | None]:
    """Return the decay that is in force, and from when steps are counted; None: none is, and from the creation.

    An importance that somebody gives is the new baseline: what was taken before is void, and the time before counts nothing.
    Where no row tells when it was given, it was after the decay that is void by it. `own` is as the entry has it.
    """
    for row in reversed(rows):
        if row.action == "decay":
            return (row, row.since_us) if row.base == own else (None, row.at_us)
        if row.base != row.value and row.action in GIVING and row.base != own:
            return None, row.at_us  # one that was made on what the entry still says never came to be
    return None, None


def _decisive(connection: sqlite3.Connection, scope: owned.Scope, rows: list[Told], own: str) -> Told | None:
    """Return the row that decides the status; None: what the entry itself says is in force."""
    for row in reversed(rows):
        if row.action not in STATUS_OF:
            continue
        if row.base != own:
            return None
        if row.action != "supersede" or _stands(connection, scope, row):
            return row
    return None


def _stands(connection: sqlite3.Connection, scope: owned.Scope, row: Told) -> bool:
    """Return whether the chain of successors of a row leads to an entry that is there, and not back."""
    seen, following, is_there = {row.target}, row.successor, False
    while following:
        if following in seen:
            return False
        seen.add(following)
        own = connection.execute(
            f"SELECT own_status FROM entries e WHERE {_ENTRY_OWNER} AND entry_id = ? ORDER BY is_shadowed LIMIT 1",  # noqa: S608
            (*scope, following),
        ).fetchone()
        is_there = is_there or own is not None
        following = _successor(connection, scope, following, "active" if own is None else own[0])
    return is_there


def _successor(connection: sqlite3.Connection, scope: owned.Scope, entry_id: str, own: str) -> str:
    """Return what the last row about an entry's status says took its place; empty: it has its own."""
    marks = ", ".join("?" * len(STATUS_OF))
    found = connection.execute(
        "SELECT r.successor, r.base FROM lifecycle_rows r INDEXED BY lifecycle_rows_target CROSS JOIN entries e"  # noqa: S608
        f" ON e.key = r.key WHERE {_ROW_OWNER} AND r.target = ? AND r.action IN ({marks}) AND e.is_shadowed = 0"
        " ORDER BY r.place DESC, e.entry_id DESC LIMIT 1",
        (*scope, entry_id, *STATUS_OF),
    ).fetchone()
    return str(found[0]) if found is not None and found[1] == own else ""
