"""Where a log of machines ended when it was last read: what has to be known to read on from there."""

from __future__ import annotations

import hashlib
from typing import Protocol

import msgspec

from everosd.log import file, kind, layout, parse
from everosd.store import state


class _Hash(Protocol):
    def update(self, data: bytes, /) -> None: ...
    def copy(self) -> _Hash: ...
    def digest(self) -> bytes: ...


class Tail(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a log, as it was when it was last read."""

    identity: file.Identity
    hash: _Hash
    """BLAKE2b over all bytes. Never updated: copied."""
    digest: bytes
    n_lines: int
    """Newlines before what may be appended."""
    n_entries: int
    place: layout.Place
    """As the frontmatter completed it."""
    stamp: str
    entry_count: int
    compared_s: float
    """Monotonic: when all bytes were last read."""


def of(parsed: parse.Parsed, found: state.FileState, identity: file.Identity, data: bytes, now_s: float) -> Tail | None:
    """Return where appending to a file goes on; None where what was read may depend on what follows it."""
    if kind.BY_NAME[parsed.place.kind].written != "appended" or not is_plain(parsed, found):
        return None
    hasher = hashlib.blake2b(data, digest_size=16)
    return Tail(
        identity=identity,
        hash=hasher,
        digest=hasher.digest(),
        n_lines=parsed.text.count("\n"),
        n_entries=len(parsed.entries),
        place=parsed.place,
        stamp=parsed.stamp,
        entry_count=parsed.entry_count,
        compared_s=now_s,
    )


def is_plain(parsed: parse.Parsed, found: state.FileState) -> bool:
    """Return whether a text is nothing but whole rows in their markers, and nobody has anything to say of it."""
    return (
        parsed.error is None
        and bool(parsed.entries)
        and not parsed.warnings
        and not found.warnings
        and all(each.form == "marked" and each.nth == 0 for each in parsed.entries)
        and all(span.has_open and span.has_close for span in parsed.spans)
        and not parsed.text[parsed.spans[-1].end :].strip()
    )
