"""Where an entry has left its text: its files, its facts, versions and snapshots, messages; and what was made of it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from everosd import types
from everosd.intake import unsay
from everosd.lifecycle import row
from everosd.log import entry
from everosd.store import owned, read
from everosd.store import row as store_row

_OF_OWNER = owned.by()
_MADE_OF = ("episode", "memory", "profile", "agent_case", "agent_skill")
_DERIVED = ("atomic_fact", "foresight")


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one entry has left in the log."""

    entries: Mapping[types.RelPath, tuple[str, ...]] = {}
    """File → ids of the entry itself in it. Never mutated, as are the next."""
    derived: Mapping[types.RelPath, tuple[str, ...]] = {}
    """The same of the facts that were taken from it."""
    rows: Mapping[types.RelPath, tuple[str, ...]] = {}
    """The same of rows about them in `.lifecycle/`; not of what a summary was made of, which has no text."""
    session: types.Owner | None = None
    """Where it was said; None: nowhere that is known."""
    segment: str = ""
    said: unsay.Said = unsay.Said()
    made_of_it: tuple[str, ...] = ()
    """Public ids of the owner's entries that name it as a source."""
    others: tuple[str, ...] = ()
    """Public ids of other owners' entries that were made from the same messages."""

    @property
    def ids(self) -> frozenset[str]:
        """Ids of the entry and its facts."""
        return frozenset(one for found in (self.entries, self.derived) for ids in found.values() for one in ids)


async def find(reader: read.Reader, owner: types.Owner, entry_id: str, unsaying: unsay.Unsaying) -> Trace:
    """Return what an entry has left; nothing of it where it is gone already."""
    scope = owned.scope(owner)
    own = await reader.fetch(
        f"SELECT path, entry_id FROM entries WHERE {_OF_OWNER} AND entry_id = ? ORDER BY path",  # noqa: S608
        (*scope, entry_id),
    )
    marks = ", ".join("?" * len(_DERIVED))
    derived = await reader.fetch(
        f"SELECT path, entry_id FROM entries WHERE {_OF_OWNER} AND kind IN ({marks}) AND parent_type <> 'memcell'"  # noqa: S608
        " AND parent_id IN (?, ?) ORDER BY path, position",
        (*scope, *_DERIVED, entry_id, types.public_id(owner.id, entry_id)),
    )
    ids = {entry_id, *(str(one) for _, one in derived)}
    told = await reader.fetch(
        f"SELECT path, entry_id, raw FROM entries WHERE {_OF_OWNER} AND kind = 'lifecycle'"  # noqa: S608
        " AND EXISTS (SELECT 1 FROM json_each(?) WHERE instr(raw, '**target**: ' || value) > 0) ORDER BY path, position",
        (*scope, msgspec.json.encode(sorted(ids)).decode()),
    )
    rows = [
        (path, one) for path, one, raw in told if _field(raw, "target") in ids and _field(raw, "action") != row.MADE
    ]
    marks = ", ".join("?" * len(_MADE_OF))
    made = await reader.fetch(
        f"SELECT entry_id, kind, raw FROM entries WHERE {_OF_OWNER} AND kind IN ({marks}) AND entry_id <> ?"  # noqa: S608
        " AND is_shadowed = 0 AND instr(raw, ?) > 0 ORDER BY entry_id",
        (*scope, *_MADE_OF, entry_id, entry_id),
    )
    trace = Trace(
        entries=_by_path(own),
        derived=_by_path(derived),
        rows=_by_path(rows),
        made_of_it=tuple(types.public_id(owner.id, one) for one, _, raw in made if _names(raw, entry_id)),
    )
    found = await reader.find(owner, entry_id)
    if found is None or found.parent_type != "memcell" or not found.session_id:
        return trace
    return await _with_messages(reader, trace, found, unsaying)


async def _with_messages(
    reader: read.Reader, trace: Trace, found: store_row.EntryRow, unsaying: unsay.Unsaying
) -> Trace:
    owner = found.owner
    at = types.Owner(app=owner.app, project=owner.project, type="session", id=found.session_id or "")
    others = await reader.fetch(
        "SELECT owner_type, owner_id, entry_id FROM entries WHERE app = ? AND project = ? AND session_id = ? AND parent_id = ?"
        " AND kind IN ('episode', 'agent_case') AND is_shadowed = 0 AND NOT (owner_type = ? AND owner_id = ?)"
        " ORDER BY owner_id, entry_id",
        (owner.app, owner.project, at.id, found.parent_id, owner.type, owner.id),
    )
    is_shared = any(owner_type == "user" for owner_type, _, _ in others)
    said = await unsaying.look(at, found.parent_id, theirs(owner, is_shared=is_shared))
    return msgspec.structs.replace(
        trace,
        session=at,
        segment=found.parent_id,
        said=said,
        others=tuple(types.public_id(owner_id, one) for _, owner_id, one in others),
    )


def theirs(owner: types.Owner, *, is_shared: bool) -> unsay.Whose:
    """Return which messages go with an owner's Episode: their own, and what was answered, unless another user shares it."""

    def is_theirs(message: entry.Entry) -> bool:
        if message.fields.get("role") == "user":
            return types.nfc(message.fields.get("sender_id", "")) == owner.id
        return not is_shared

    return is_theirs


def _by_path(found: object) -> dict[types.RelPath, tuple[str, ...]]:
    listed: dict[types.RelPath, list[str]] = {}
    for path, entry_id in found:  # type: ignore[attr-defined]  # rows of a query
        listed.setdefault(types.RelPath(path), []).append(str(entry_id))
    return {path: tuple(ids) for path, ids in listed.items()}


def _field(raw: str, name: str) -> str:
    """Return an inline field of a row; empty: it has none of that name."""
    _, sign, rest = raw.partition(f"**{name}**: ")
    return rest.partition("\n")[0].strip() if sign else ""


def _names(raw: str, entry_id: str) -> bool:
    """Tell whether a text names an id, and not a longer one that begins with it."""
    at = raw.find(entry_id)
    while at >= 0:
        after = raw[at + len(entry_id) : at + len(entry_id) + 1]
        if not (after.isalnum() or after == "_"):
            return True
        at = raw.find(entry_id, at + 1)
    return False
