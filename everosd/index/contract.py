"""What every index offers to the cascade, and what it is fed."""

from __future__ import annotations

import functools
import hashlib
import json
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
    """`working`, `episodic`, `semantic`, `procedural`, `identity`; Episodes are `episodic`, other kinds none of them."""
    memory_path: str = ""
    """For typed memories: their path, e.g. `projects/atlas`."""
    bucket: str = ""
    """What else it is filed under, with what follows; Episodes are in `public` unless they say otherwise."""
    scope: str = ""
    team_id: str = ""
    semantic_key: str = ""


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """One document found."""

    key: types.EntryKey
    score: float
    """In [0, 1] and comparable between queries. Text: what BM25 gives of what it could give for this query at most (each
    term there, endlessly often), bent upward: one of several words is weak, each of them once is about 0.6. Vectors: the
    cosine of the document's nearest piece, negative ones as 0."""
    own_link: int
    """Stands for owner and entry id; what a part of this entry has as its `parent_link`."""
    parent_link: int
    """Stands for owner and parent id."""
    timestamp_us: int
    """Moment of the entry, microseconds since 1970."""


def link(owner: types.Owner, entry_id: str) -> int:
    """Return the number that stands for an entry of an owner: 62 bits of a hash; 0 for no entry."""
    if not entry_id:
        return 0
    digest = hashlib.blake2b(scope(owner).encode() + b"\0" + entry_id.encode(), digest_size=8).digest()
    return (int.from_bytes(digest) >> 2) or 1


@functools.lru_cache(maxsize=1024)  # the documents of one file, and those of one search, have one owner
def scope(owner: types.Owner) -> str:
    """Return an owner as one term."""
    return json.dumps([owner.app, owner.project, owner.type, owner.id], ensure_ascii=False)


def text_digest(document: Document) -> bytes:
    """Return 16 bytes that change with the document's text and with nothing else."""
    return hashlib.blake2b(f"{document.title}\0{document.body}".encode(), digest_size=16).digest()


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
