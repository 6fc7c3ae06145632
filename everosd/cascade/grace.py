"""Absence is not deletion: what is gone from the disk waits here until it is certain. Pure, time is an argument.

A file, or an entry of a file, counts as deleted when it is still gone a second after it was first missed. When all
files are gone, or more than half of the root's entries and more than a hundred, nothing is deleted until a person
says so. Rows of logs are entries, too, and there may be many more of them than memories: half of the memories are as much.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

GRACE_S = 1.0
"""How long something has to be gone. Editors that write in place leave a file short for some milliseconds."""

MASS_ENTRIES = 100
"""Deletions of up to this many entries are never held back as a mass deletion."""

WINDOW_S = 60.0
"""Deletions within this time count as one: `rm -r` of a large tree takes a while."""

Identity = tuple[str, int]
"""(entry id, nth) within one file."""


class Size(NamedTuple):
    """How much a file, or the root, holds."""

    memories: int
    rows: int = 0
    """Entries of logs that only machines write."""


class Grace:
    """Remembers since when what is missing."""

    def __init__(self) -> None:
        """Start with nothing missing."""
        self._files: dict[str, float] = {}
        self._entries: dict[str, dict[Identity, float]] = {}
        self._recent: list[tuple[float, Size]] = []
        self._next_look: dict[str, float] = {}

    def __len__(self) -> int:
        """Return how many paths wait."""
        return len(self._files.keys() | self._entries.keys())

    def miss_file(self, path: str, now_s: float) -> bool:
        """Note that a file is absent; return whether it has been so for long enough."""
        return now_s - self._files.setdefault(path, now_s) >= GRACE_S

    def found_file(self, path: str) -> None:
        """Note that a file is there."""
        self._files.pop(path, None)

    def miss_entries(self, path: str, missing: Iterable[Identity], now_s: float) -> None:
        """Note which entries of a file are gone; those of it not named are there again."""
        before = self._entries.pop(path, {})
        since = {identity: before.get(identity, now_s) for identity in missing}
        self._next_look.pop(path, None)
        if since:
            self._entries[path] = since
            # What stays withheld (its file is open for writing) is looked at once a second, not without pause.
            ripe_s = min(since.values()) + GRACE_S
            self._next_look[path] = ripe_s if ripe_s > now_s else now_s + GRACE_S

    def removable(self, path: str, now_s: float) -> frozenset[Identity]:
        """Return the entries of a file that have been gone for long enough."""
        return frozenset(name for name, since in self._entries.get(path, {}).items() if now_s - since >= GRACE_S)

    def waits(self, path: str) -> bool:
        """Return whether anything of a path is missing."""
        return path in self._files or path in self._entries

    def has_waited(self, path: str, now_s: float, limit_s: float) -> bool:
        """Return whether entries of a file have been missing for longer than `limit_s`."""
        return any(now_s - since >= limit_s for since in self._entries.get(path, {}).values())

    def forget(self, path: str) -> None:
        """Drop everything noted of a path."""
        self._files.pop(path, None)
        self._entries.pop(path, None)
        self._next_look.pop(path, None)

    def missing_files(self) -> tuple[str, ...]:
        """Return the absent files that wait."""
        return tuple(self._files)

    def due(self, now_s: float) -> tuple[str, ...]:
        """Return the paths that may be decided now."""
        ripe = [path for path, since in self._files.items() if now_s - since >= GRACE_S]
        ripe += [path for path, at in self._next_look.items() if now_s >= at]
        return tuple(dict.fromkeys(ripe))

    def next_due_s(self, now_s: float) -> float | None:
        """Return in how many seconds the next path may be decided, None when nothing waits."""
        ends = [since + GRACE_S for since in self._files.values()]
        ends += self._next_look.values()
        return max(0.0, min(ends) - now_s) if ends else None

    def is_mass_deletion(self, gone: Mapping[str, Size], *, n_files: int, held: Size, now_s: float) -> bool:
        """Return whether removing the files `gone` has to be confirmed by a person.

        `n_files` and `held` are what the ledger holds before the removal.
        """
        self._recent = [(at, size) for at, size in self._recent if now_s - at < WINDOW_S]
        if gone and len(gone) >= n_files:
            return True
        recently = _sum(size for _, size in self._recent)
        lost = _sum((recently, *gone.values()))
        before = _sum((recently, held))
        return _is_most(lost.memories, before.memories) or _is_most(sum(lost), sum(before))

    def deleted(self, size: Size, now_s: float) -> None:
        """Note that entries were deleted, so that a slow mass deletion is seen as one."""
        self._recent.append((now_s, size))


def _sum(sizes: Iterable[Size]) -> Size:
    listed = tuple(sizes)
    return Size(sum(one.memories for one in listed), sum(one.rows for one in listed))


def _is_most(lost: int, before: int) -> bool:
    return lost > MASS_ENTRIES and lost * 2 > before
