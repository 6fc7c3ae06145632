"""Typed memories and Episodes as the lifecycle sees them: what their fields say, and what the rows of `.lifecycle/` add.

Read from the tables that `store.memory` and `store.lifecycle_log` keep in step with the log. Filters are patterns: `%` stands
for anything, `foo%` for what begins so, everything else for itself; letters count as they are written.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Sequence

import msgspec

from everosd import types
from everosd.log import entry
from everosd.store import read

KINDS = ("memory", "episode")
"""What has a lifecycle."""

LIMIT = 1_000_000_000
"""As good as none."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One memory as the lifecycle sees it; moments are microseconds since 1970."""

    key: types.EntryKey
    owner: types.Owner
    entry_id: str
    kind: str
    """`memory` or `episode`."""
    memory_type: str
    """Of Episodes: `episodic`."""
    path: str
    """Category; of Episodes: empty."""
    status: str
    """In force; an active one past its `expires_us` is `active` here."""
    own_status: str
    """As written in the entry; `active` where nothing is."""
    importance: float
    """In force, in [0, 1]."""
    own_importance: str
    """As written in the entry; empty: nothing is."""
    confidence: float
    """In [0, 1]."""
    expires_us: int | None
    """None means never."""
    created_us: int
    updated_us: int
    """As written in the entry, else `created_us`; never when the ledger read it."""
    anchor_us: int | None
    """Last restore, pin, update or edit by hand in the log; None: there was none."""
    accessed_us: int | None
    """Last use in the log."""
    n_uses: int
    """How many days and times of use the log has."""
    since_us: int | None
    """Of the last decay that is valid: from when its steps are counted. None: there is none."""
    steps: int
    """Of the last decay that is valid."""
    moments: tuple[int, ...]
    """Uses, restores, pins, updates and edits after `since_us`, ascending; all of them where that is None."""
    status_since_us: int | None
    """Of the row of the log that decides the status, with what follows; None: none does."""
    reason: str
    successor: str
    """Entry id; empty: nothing took its place."""
    is_pinned: bool
    is_redacted: bool
    bucket: str
    scope: str
    team_id: str
    session_id: str | None
    semantic_key: str
    promotion_key: str
    n_versions: int
    """Highest number of a version that has ended; 0: there is only the present one."""
    lsn: int
    """Of the entry's last change."""
    path_file: types.RelPath


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """How many typed memories an owner has."""

    total: int
    types: dict[str, int]
    statuses: dict[str, int]
    """In force; active ones past their `expires_at` count as `expired`."""
    paths: dict[str, int]
    """Of those that are not deleted, as are the next."""
    buckets: dict[str, int]


async def records(
    reader: read.Reader,
    owner: types.Owner,
    *,
    kinds: Sequence[str] = ("memory",),
    statuses: Sequence[str] = ("active",),
    bucket: str = "%",
    scope: str = "%",
    team_id: str = "%",
    session_id: str = "%",
    path: str = "%",
    memory_type: str = "%",
    ids: Sequence[str] | None = None,
    from_us: int | None = None,
    to_us: int | None = None,
    after: Record | None = None,
    limit: int = LIMIT,
) -> list[Record]:
    """Return memories of an owner, the oldest first (`created_us`, then `entry_id`).

    Args:
        reader: Of the ledger.
        owner: Whose memories; filters never widen it.
        kinds: `memory`, `episode` or both.
        statuses: In force; empty: any.
        bucket: Pattern, as are `scope`, `team_id`, `session_id`, `path` and `memory_type`; an empty one stands for any.
        scope: Pattern.
        team_id: Pattern.
        session_id: Pattern; one that is not `%` leaves out what has no session.
        path: Pattern of the category.
        memory_type: Pattern; Episodes are `episodic`.
        ids: Only these entry ids; None: all.
        from_us: Created then or later.
        to_us: Created before that.
        after: Only what comes behind this one: the last of the page before.
        limit: At most so many.
    """
    raise NotImplementedError


async def owners(reader: read.Reader, kinds: Sequence[str] = ("memory",)) -> list[types.Owner]:
    """Return whoever has any entry of these kinds, sorted."""
    raise NotImplementedError


async def find(reader: read.Reader, owner: types.Owner, entry_id: str) -> Record | None:
    """Return one memory or Episode of an owner, whatever its status; None where the owner has no such one."""
    raise NotImplementedError


async def by_semantic_key(
    reader: read.Reader,
    owner: types.Owner,
    semantic_key: str,
    *,
    bucket: str = "public",
    scope: str = "",
    team_id: str = "",
) -> Record | None:
    """Return the active memory under a key; bucket, scope and team are compared as they are. Of several the newest."""
    raise NotImplementedError


async def by_content(reader: read.Reader, owner: types.Owner, digest: str, path: str) -> list[Record]:
    """Return the active memories under a path (no pattern) whose content has a `content_digest`, the oldest first."""
    raise NotImplementedError


async def rows(
    reader: read.Reader,
    owner: types.Owner,
    *,
    target: str | None = None,
    actions: Sequence[str] | None = None,
    run_id: str | None = None,
    since_us: int | None = None,
    until_us: int | None = None,
    limit: int = 100,
    offset: int = 0,
) -> list[entry.Entry]:
    """Return rows of `.lifecycle/` about memories, and audit rows, the newest first; `until_us` is not included.

    Without `actions`: all but `usage`.
    """
    raise NotImplementedError


async def counts(reader: read.Reader, owner: types.Owner, now_us: int) -> Counts:
    """Return how many typed memories an owner has, by type, status, path and bucket."""
    raise NotImplementedError


def content_digest(text: str) -> str:
    """Return 32 hex that are the same for texts that say the same letter for letter.

    Compatible forms, case, white space, and punctuation at the end are of no matter. Empty for a text without content.
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    said = _without_end(" ".join(folded.split()))
    return hashlib.blake2b(said.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest() if said else ""


def _without_end(text: str) -> str:
    """Return text without punctuation and blanks at its end; one that is nothing else stays as it is."""
    n = len(text)
    while n and (text[n - 1].isspace() or unicodedata.category(text[n - 1]).startswith("P")):
        n -= 1
    return text[:n] or text
