"""What was read of one file, in the form in which the ledger takes it."""

from __future__ import annotations

import msgspec

from everosd import types
from everosd.store import owned


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


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What one transaction did to the entries of one file; winners and successors are decided."""

    owner: types.Owner
    path: types.RelPath
    written: tuple[tuple[int, EntryState], ...]
    """(key, entry) added or changed, and all of them in a rebuild; some may be shadowed."""
    gone: tuple[tuple[int, str], ...]
    """(key, entry id) removed."""

    @property
    def scope(self) -> tuple[str, str, str, str]:
        """The owner as the ledger's columns have it."""
        return owned.scope(self.owner)

    @property
    def entry_ids(self) -> set[str]:
        """Ids of all that changed."""
        return {entry.entry_id for _, entry in self.written} | {entry_id for _, entry_id in self.gone}


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A table that follows from entries: a rebuild makes it again, row by row the same."""

    name: str
    columns: tuple[str, ...]
    """All that have to be the same: first the owner's four, then those that tell one row from another."""
    n_key: int = 0
    """How many of `columns` tell one row from another; 0: all of them."""
    subject: str
    """The column that has the id a row speaks of."""
    kind: str
    """Of the files that it is made from."""
    also: tuple[str, ...] = ()
    """Other kinds of files that it depends on."""


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
