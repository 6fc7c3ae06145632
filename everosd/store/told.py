"""What is new since a place in the log, and what people are called there."""

from __future__ import annotations

from everosd import types
from everosd.log import entry_text, escape
from everosd.store import owned, read

_WRITTEN = f"""
SELECT e.key FROM entries e
WHERE {owned.by("e")} AND e.kind = ? AND e.is_shadowed = 0
AND e.status = 'active' AND e.entry_id > ? AND e.entry_id NOT GLOB '??_????????_h*'
AND instr(e.raw, '**extracted_by**: ') > 0
ORDER BY e.entry_id DESC LIMIT ?
"""  # noqa: S608  # our own columns

_JOINED = f"""
SELECT e.key, m.added_us FROM cluster_members m CROSS JOIN entries e INDEXED BY entries_owner ON e.app = m.app
AND e.project = m.project AND e.owner_type = m.owner_type AND e.owner_id = m.owner_id AND e.entry_id = m.member_id
WHERE {owned.by("m")} AND m.added_us >= ?
AND e.kind = ? AND e.is_shadowed = 0 AND e.status = 'active' AND instr(e.raw, '**extracted_by**: ') = 0
ORDER BY m.added_us DESC LIMIT ?
"""  # noqa: S608  # our own columns
"""From the members to their entries: the other way round the text of every Episode is read for the few that are new."""

_MESSAGE = """
SELECT e.entry_id, e.raw FROM entries e
WHERE e.app = ? AND e.project = ? AND e.owner_type = 'session' AND e.owner_id = ? AND e.kind = 'message'
AND e.is_shadowed = 0 AND instr(e.raw, ?) > 0 AND instr(e.raw, '**sender_name**: ') > 0
ORDER BY e.timestamp_us DESC LIMIT 1
"""


async def written_since(
    reader: read.Reader, owner: types.Owner, kind: str, after_id: str, *, limit: int
) -> list[types.EntryKey]:
    """Return the live entries of a kind that everosd wrote after the one with an id; at most the last `limit`."""
    values = (owner.app, owner.project, owner.type, owner.id, kind, after_id, limit)
    return [types.EntryKey(found[0]) for found in await reader.fetch(_WRITTEN, values)]


async def joined_since(
    reader: read.Reader, owner: types.Owner, kind: str, from_us: int, *, limit: int
) -> dict[types.EntryKey, int]:
    """Return the live entries of a kind that others wrote and that joined a cluster from a moment on, with when they did."""
    values = (owner.app, owner.project, owner.type, owner.id, from_us, kind, limit)
    return {types.EntryKey(found[0]): int(found[1]) for found in await reader.fetch(_JOINED, values)}


async def sender_name(reader: read.Reader, session: types.Owner, sender_id: str) -> str:
    """Return what a sender of a session is called, as their newest message that says so has it; empty where none does."""
    said = f"**sender_id**: {escape.write_value(sender_id)}\n"
    found = await reader.fetch(_MESSAGE, (session.app, session.project, session.id, said))
    return entry_text.read("message", found[0][0], found[0][1]).fields.get("sender_name", "").strip() if found else ""
