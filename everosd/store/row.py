"""A row of the ledger as the stages above see it."""

from __future__ import annotations

import msgspec

from everosd import types
from everosd.log import entry


class EntryRow(msgspec.Struct, frozen=True, kw_only=True):
    """One live entry: where it stands, what filters see of it, and its text."""

    key: types.EntryKey
    path: types.RelPath
    line: int
    """1-based line in the file."""
    entry_id: types.EntryId
    kind: str
    form: entry.Form
    owner: types.Owner
    lsn: types.Lsn
    session_id: str | None
    timestamp_us: int
    parent_type: str
    parent_id: str
    sender_ids: tuple[str, ...]
    memory_type: str
    memory_path: str
    status: str
    """`active`, `deprecated`, `expired`, `superseded`, `archived` or `deleted`, after successors."""
    deprecated_by: str | None
    expires_us: int | None
    updated_us: int
    """When the ledger last saw it change."""
    raw: str
    """The entry's own text; `log.entry_text.read(kind, entry_id, raw)` takes it apart again."""
    importance: float | None = None
    """In force, in [0, 1]. None: nothing says any, or it was not asked for."""
