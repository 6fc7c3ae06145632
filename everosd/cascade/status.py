"""What the cascade says of itself: the material of /health, `everosd status` and /metrics."""

from __future__ import annotations

from typing import Literal

import msgspec

Phase = Literal["starting", "reconciling", "ready", "stopping"]

ProblemKind = Literal[
    "error", "unreadable", "duplicate", "successor", "conflict", "warning", "healed", "link", "stray", "unembedded"
]
"""What is not as it should be with a file, the worst first: its frontmatter or bytes do not parse; it cannot be read; an
id stands in two places; a successor is not there; a sync program's copy, or a save that is not in its file yet; something about
one entry; a stale save was merged; a link is not followed; it lies where no memory is read; the model gives no vector of an entry."""


class ProjectionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How far one index has followed the ledger."""

    lsn: int
    """Checkpoint: every change up to here is searchable."""
    behind: int
    """Changes in the ledger that are not in the index yet."""
    documents: int
    age_s: float
    """Seconds since the last progress while there is something to do; 0 when there is nothing."""
    state: str = "ok"
    """`ok`, `rebuilding`, `failing`, or `embedding`: vectors are being made."""
    progress: tuple[int, int] | None = None
    """(done, total) documents of what is in progress."""
    error: str = ""


class EmbeddingStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Which model makes the vectors, and how it does."""

    model: str
    """As people know it; empty while none is in force."""
    dim: int
    """Numbers per vector; 0 while that is not known."""
    owed: int
    """Entries that wait for their vectors."""
    refused: int
    """Entries whose text the model refuses."""
    requested: int
    """Texts that the model was asked for since the start."""
    from_cache: int
    """Texts since the start whose vectors were in `.cache/`."""
    error: str = ""
    """Why the model does not answer; empty: it does."""


class FileProblem(msgspec.Struct, frozen=True, kw_only=True):
    """A file that is not read as it should be, and why."""

    path: str
    reason: str
    line: int | None = None
    kind: ProblemKind = "warning"


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot, cheap to take at any time from the event loop."""

    phase: Phase
    lsn: int
    files_on_disk: int
    """Memory files the last scan saw."""
    files_indexed: int
    entries: int
    """Memories in the ledger: what a search or a get may show, and what is put away; no rows of logs."""
    pending: int
    """Paths noticed and not in the ledger plus ledger changes not in every index."""
    failed_retryable: int
    failed_permanent: int
    problems: tuple[FileProblem, ...]
    """At most 200, errors first."""
    n_problems: int
    alarm: str = ""
    """Why deletions are held back (mass deletion, vanished root), with what to type; empty: all is well."""
    watch_mode: str = "inotify"
    """`inotify` or `polling`."""
    watch_healthy: bool = True
    watch_reason: str = ""
    scan_age_s: float = 0.0
    """Seconds since the last full comparison with the disk."""
    done: int = 0
    total: int = 0
    """Files compared of the start-up or rebuild pass in progress."""
    projections: dict[str, ProjectionStatus] = {}
    embedding: EmbeddingStatus | None = None
    """None where no vectors are wanted."""
    owners: int = 0
    rows: int = 0
    """Entries of logs that only machines write: messages, segments, rows of `.lifecycle/` and `.clusters/`."""
    notices: tuple[str, ...] = ()
    """What the process around the cascade has to say, each a sentence, e.g. of settings that wait for a restart."""
