"""The plan: which files have to be read, which are gone. Pure, from what is known and what a scan saw."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from everosd import types
from everosd.watch import scan

PROOF_NS = 50_000_000
"""A file read within this time after its last change may have changed again in the same clock tick: its stat proves
nothing, its bytes are compared once more. Kernels stamp files every 1 to 10 ms."""

COARSE_PROOF_NS = 2_000_000_000
"""The same where a whole second as the time of the change suggests a file system that keeps no finer ones (FAT: 2 s)."""


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What the ledger remembers of a file on disk."""

    inode: int
    size: int
    mtime_ns: int
    read_at_ns: int
    is_stale: bool
    """To be read whatever the stat says."""
    digest: bytes
    n_entries: int


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a full comparison with the disk found."""

    stale: tuple[types.RelPath, ...]
    """New or changed files, and those whose stat is no proof, by path."""
    vanished: tuple[types.RelPath, ...]
    """Known files that the scan did not see, those left out that a folder which could not be listed may hide."""


def is_current(known: Known, found: scan.DiskFile) -> bool:
    """Return whether the stat proves that the file is the one last read."""
    return (
        not known.is_stale
        and (known.inode, known.size, known.mtime_ns) == (found.inode, found.size, found.mtime_ns)
        and known.read_at_ns - known.mtime_ns > (PROOF_NS if known.mtime_ns % 1_000_000_000 else COARSE_PROOF_NS)
    )


def plan(known: Mapping[types.RelPath, Known], seen: scan.Scan) -> Plan:
    """Compare what is known with what a scan saw."""
    stale = [path for path, found in seen.files.items() if path not in known or not is_current(known[path], found)]
    closed = tuple(path for path, _ in seen.unreadable)
    vanished = [path for path in known if path not in seen.files and not _is_below(path, closed)]
    return Plan(stale=tuple(sorted(stale)), vanished=tuple(sorted(vanished)))


def _is_below(path: str, folders: tuple[str, ...]) -> bool:
    return any(folder in ("", ".") or path == folder or path.startswith(f"{folder}/") for folder in folders)
