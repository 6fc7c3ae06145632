"""Inline fields of typed memories as a table: what the lifecycle filters and sorts by, and what it changes.

Every entry of the kind has a row; an Episode has one where it says any of this. Values that are none are taken as not written;
what is out of range counts as the nearest that is in it.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
import sqlite3
from collections.abc import Mapping, Sequence
from typing import cast

import msgspec

from everosd.log import entry as forms
from everosd.log import entry_text, view
from everosd.log import kind as kinds
from everosd.store import lifecycle, state

_COLUMNS = (
    "app", "project", "owner_type", "owner_id", "entry_id", "path", "nth", "kind", "importance", "own_importance", "confidence",
    "updated_us", "is_pinned", "bucket", "scope", "team_id", "semantic_key", "promotion_key", "content_digest",
)  # fmt: skip
TABLE = state.Table(
    name="typed_memories", columns=_COLUMNS, n_key=7, subject="entry_id", kind="memory", also=("episode",)
)

_AT_KIND, _AT_OWN_IMPORTANCE = (1 + _COLUMNS.index(name) for name in ("kind", "own_importance"))
_INSERT = f"""
INSERT OR REPLACE INTO typed_memories (key, {", ".join(_COLUMNS)}) VALUES (?, {", ".join("?" * len(_COLUMNS))})
"""  # noqa: S608  # our own columns
_WRITTEN = re.compile(
    r"^\*\*(?:importance|confidence|updated_at|pinned|bucket|scope|team_id|semantic_key|promotion_key)\*\*:",
    re.MULTILINE,
)
_NULLS = ("", "null", "none", "~")
_TRUE = ("true", "yes", "1")


def fold(connection: sqlite3.Connection, change: state.Change) -> None:
    """Bring the table in step with what has become of the entries of a file."""
    scope = change.scope
    gone = [(key,) for key, _ in change.gone]
    connection.executemany("DELETE FROM typed_memories WHERE key = ?", gone)
    connection.executemany("DELETE FROM importance_edits WHERE key = ?", gone)
    rows = []
    for key, entry in change.written:
        if entry.kind == "memory" or (entry.kind == "episode" and _says_any(entry.raw)):
            rows.append((key, *scope, entry.entry_id, change.path, entry.nth, entry.kind, *_values(entry)))
        elif entry.kind == "episode":
            connection.execute("DELETE FROM typed_memories WHERE key = ?", (key,))
    _note_importance(connection, [row for row in rows if row[_AT_KIND] == "memory"])
    connection.executemany(_INSERT, rows)


def _note_importance(connection: sqlite3.Connection, rows: Sequence[Sequence[object]]) -> None:
    """Keep what the importance in memories was before it is another: the row of the edit says so, and nobody else knows."""
    if connection.execute("SELECT 1 FROM typed_memories LIMIT 1").fetchone() is None:
        return  # the ledger is being filled
    written = {row[0]: row[_AT_OWN_IMPORTANCE] for row in rows}
    held = connection.execute(
        "SELECT m.key, m.own_importance FROM json_each(?) j CROSS JOIN typed_memories m ON m.key = j.value",
        (json.dumps(list(written)),),
    )
    changed = [(key, was) for key, was in held.fetchall() if was != written[key]]
    connection.executemany("INSERT OR IGNORE INTO importance_edits VALUES (?, ?)", changed)


def _says_any(raw: str) -> bool:
    """Return whether the fields of an Episode may say anything of this; cheap."""
    end = raw.find("\n###")
    return _WRITTEN.search(raw, 0, len(raw) if end < 0 else end) is not None


def _values(entry: state.EntryState) -> tuple[object, ...]:
    """Return the columns from `importance` on."""
    read = entry_text.read(entry.kind, entry.entry_id, entry.raw, form=cast("forms.Form", entry.form))
    fields = read.fields
    own_importance = importance(fields)
    filed = filing(fields)
    return (
        fraction(own_importance, lifecycle.IMPORTANCE),
        own_importance,
        fraction(fields.get("confidence", ""), lifecycle.CONFIDENCE),
        view.moment_us(fields.get("updated_at", ""), dt.UTC),
        int(fields.get("pinned", "").strip().casefold() in _TRUE),
        filed.bucket,
        filed.scope,
        filed.team_id,
        filed.semantic_key,
        fields.get("promotion_key", "").strip() or _metadata(fields.get("metadata", "")).get("promotion_key", ""),
        lifecycle.content_digest(_content(read)) if entry.kind == "memory" else "",
    )


class Filing(msgspec.Struct, frozen=True, kw_only=True):
    """What a memory is filed under, beside its type and path."""

    bucket: str
    scope: str
    team_id: str
    semantic_key: str


def filing(fields: Mapping[str, str]) -> Filing:
    """Return what the inline fields of an entry say of it."""
    key = fields.get("semantic_key", "").strip()
    return Filing(
        bucket=fields.get("bucket", "").strip() or lifecycle.BUCKET,
        scope=fields.get("scope", "").strip(),
        team_id=fields.get("team_id", "").strip(),
        semantic_key=key or _metadata(fields.get("metadata", "")).get("semantic_key", ""),
    )


def importance(fields: Mapping[str, str]) -> str:
    """Return importance as the inline fields of an entry say it; empty: they say nothing of it."""
    written = fields.get("importance", "").strip()
    return "" if written.casefold() in _NULLS else written


def type_of(kind: str, memory_type: str) -> str:
    """Return which type of memory an entry is: Episodes are episodic; empty: none."""
    return "episodic" if kind == "episode" else memory_type


def _content(read: forms.Entry) -> str:
    """Return what a memory says."""
    last = read.sections[-1] if read.sections else ("", "")
    if last[0] == "Content" and read.form == "marked":  # as everosd writes it
        return last[1]
    seen = view.view(read)
    return seen.content if isinstance(seen, kinds.Memory) else ""


def fraction(written: str, otherwise: float) -> float:
    """Return a number in [0, 1] as a person may write it; `otherwise` where it is none."""
    try:
        number = float(written)
    except ValueError:
        return otherwise
    return min(1.0, max(0.0, number)) if math.isfinite(number) else otherwise


def _metadata(written: str) -> dict[str, str]:
    """Return what a JSON object says of keys; anything else says nothing."""
    if "_key" not in written:
        return {}
    try:
        found = json.loads(written)
    except (ValueError, RecursionError):
        return {}
    return {k: v.strip() for k, v in found.items() if isinstance(v, str)} if isinstance(found, dict) else {}
