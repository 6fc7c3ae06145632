"""What every index offers to the cascade, and what it is fed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from everosd import types


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """An entry as an index sees it: scope and filterable fields as plain values, text as title and body."""

    key: types.EntryKey
    owner: types.Owner
    entry_id: str = ""
    """Id of the entry within its owner: what its facts have as `parent_id`. Facts lift their episode only with it."""
    kind: str
    """Name of the entry's kind, e.g. `episode`."""
    status: str
    """`active`, `deprecated`, `expired`, `superseded`, `archived` or `deleted`."""
    title: str
    """Subject, heading or name; may be empty."""
    body: str
    """All other searchable text of the entry."""
    timestamp_us: int
    """Moment of the entry, microseconds since 1970."""
    expires_us: int | None = None
    """Moment after which the entry is hidden; None means never."""
    session_id: str = ""
    parent_type: str = ""
    parent_id: str = ""
    sender_ids: tuple[str, ...] = ()
    memory_type: str = ""
    """For typed memories: `working`, `episodic`, `semantic`, `procedural`, `identity`."""
    memory_path: str = ""
    """For typed memories: their path, e.g. `projects/atlas`."""


class Index(Protocol):
    """A projection of the ledger. One thread writes; reads may come from any thread."""

    name: str

    def write(self, documents: Iterable[Document], removed: Iterable[types.EntryKey]) -> None:
        """Replace documents by key and remove keys; idempotent; visible after `commit`."""

    def show(self, documents: Sequence[Document], removed: Sequence[types.EntryKey]) -> None:
        """Let searches see a small batch before it is durable; `write` and `commit` of the same batch have to follow."""

    def commit(self) -> None:
        """Make everything written so far durable and visible to new searches; blocking."""

    def count(self) -> int:
        """Return the number of documents that a search can reach."""

    def keys(self) -> set[int]:
        """Return the keys of all documents that a search can reach (for `verify`)."""

    def close(self) -> None:
        """Release files and threads; what was not committed is dropped."""
