"""What was read of one file, in the form in which the ledger takes it."""

from __future__ import annotations

import msgspec

from everosd import types


class EntryState(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a file: its identity, its text, and the columns that filters use."""

    entry_id: str
    nth: int
    line: int
    form: str
    kind: str
    digest: bytes
    session_id: str | None
    timestamp_us: int
    parent_type: str
    parent_id: str
    sender_ids: str
    """JSON array."""
    memory_type: str
    memory_path: str
    own_status: str
    expires_us: int | None
    raw: str


class SameEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry that the ledger is known to hold as it stands: only its place in the file may have moved."""

    entry_id: str
    nth: int
    line: int
    form: str
    digest: bytes


class Warning(msgspec.Struct, frozen=True, kw_only=True):  # noqa: A001  # the grammar's own word, used qualified
    """Something in a file that is not as it should be."""

    reason: str
    line: int | None = None


class FileState(msgspec.Struct, frozen=True, kw_only=True):
    """One file as it was read."""

    path: types.RelPath
    kind: str
    owner: types.Owner
    date: str
    """`YYYYMMDD` of the file, empty without one: decides which of two equal ids wins."""
    inode: int
    size: int
    mtime_ns: int
    digest: bytes
    """Of the bytes."""
    stamp: str
    """`last_appended_at`, empty without one."""
    entry_count: int
    """As the frontmatter says: ids up to it were given out once, though their entries may be gone."""
    entries: tuple[EntryState | SameEntry, ...]
    deprecated: dict[str, str]
    """`deprecated_entries`: entry id → its successor."""
    warnings: tuple[Warning, ...] = ()
    error: str | None = None
    error_line: int | None = None


class Outcome(msgspec.Struct, kw_only=True):
    """What one transaction did."""

    added: int = 0
    modified: int = 0
    removed: int = 0
    withheld: tuple[tuple[str, int], ...] = ()
    """(entry id, nth) that are gone from the file but kept for now: absence is not deletion yet."""
    entries_delta: int = 0
    """Change in the number of live entries."""
    is_standing_changed: bool = False
    """What is to be told of duplicate ids and of successors that are not there may be another thing than before."""
    lsn: int = 0
    """Highest LSN after the transaction."""
