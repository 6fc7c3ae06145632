"""Dirty paths become settled batches: one save of a file is one batch, however many events it made."""

from __future__ import annotations

import asyncio
import heapq
import math
from typing import Literal

import msgspec

from everosd import clock as clocks
from everosd.types import RelPath

QUIET_S = 0.05
"""How long a file that is being changed has to be left alone. A writer that closes the file ends the wait at once;
this is for the others, and for names that come and go within a save (`unlink` then `create`)."""

MAX_S = 2.0
"""Longest wait for quiet: a file that is written to without pause is looked at this often."""

BATCH_S = 0.004
"""How long finished saves wait for each other. A `git checkout` then makes a few batches and not one per file; a
single save pays these milliseconds out of the 30 that it may take to be found."""

MAX_DIRTY = 20_000
"""More dirty paths than this are cheaper to find by walking the root, and must not fill the memory."""

Key = tuple[Literal["file", "folder", "other", "rescan"], str]


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Where to look now. Says nothing about what is there."""

    paths: frozenset[RelPath] = frozenset()
    """Memory files that may have been added, modified or removed."""
    rescan: str = ""
    """Why the whole root has to be compared; empty: it has not."""
    folders: frozenset[RelPath] = frozenset()
    """Folders that appeared, vanished or became readable: everything below them has to be compared. None of them
    lies below another one."""
    others: frozenset[str] = frozenset()
    """Markdown that is no memory, appeared, changed or vanished: conflict copies and strays, for the status."""


class _Dirty:
    """One thing to look at, until it is ripe."""

    __slots__ = ("first_at", "is_final", "ripe_at")

    def __init__(self, first_at: float) -> None:
        self.first_at = first_at
        self.is_final = False
        self.ripe_at = math.inf


class Settler:
    """Collects marks, gives out batches. Lives on the event loop; one consumer.

    A mark with `is_final` (a writer closed the file, a file was moved here) is ripe after `BATCH_S`; any other one
    after `quiet_s` without a further mark, and at the latest `max_s` after the first. A mark that follows a final
    one in time reopens it: somebody is writing again.
    """

    def __init__(
        self, clock: clocks.Clock, quiet_s: float = QUIET_S, max_s: float = MAX_S, *, max_dirty: int = MAX_DIRTY
    ) -> None:
        """Start with nothing dirty."""
        self._clock = clock
        self._quiet_s, self._max_s, self._max_dirty = quiet_s, max_s, max_dirty
        self._dirty: dict[Key, _Dirty] = {}
        self._finals: set[Key] = set()
        self._heap: list[tuple[float, Key]] = []
        """`(moment, key)`: never later than the moment the key is ripe; may be too early or out of date."""
        self._rescan = ""
        self._deadline = math.inf
        """When the consumer wakes by itself: marks that ripen later need not wake it."""
        self._earlier = asyncio.Event()

    def __len__(self) -> int:
        """Return how many paths, folders and rescans wait to be given out."""
        return len(self._dirty)

    def mark(self, path: RelPath, *, is_final: bool = False, is_writing: bool = True) -> None:
        """Note that a memory file may have changed.

        Args:
            path: the file, which need not exist.
            is_final: its writer is done with it.
            is_writing: the mark is a sign that somebody writes; False (a change of permissions or times, which
                editors make after a save) does not reopen a finished save.
        """
        self._mark(("file", path), is_final=is_final, is_writing=is_writing)

    def mark_folder(self, path: RelPath) -> None:
        """Note that anything below a folder may have changed."""
        self._mark(("folder", path), is_final=False)

    def mark_other(self, path: str) -> None:
        """Note that Markdown which is no memory appeared, changed or vanished."""
        self._mark(("other", path), is_final=False)

    def mark_all(self, reason: str) -> None:
        """Ask for a comparison of the whole root; the first reason is the one reported."""
        self._rescan = self._rescan or reason
        self._mark(("rescan", ""), is_final=True)

    async def next(self) -> Batch:
        """Wait until something is ripe and return all that is. Cancelling it loses nothing."""
        while True:
            now = self._clock.monotonic_s()
            batch = self.take(now)
            if batch is not None:
                return batch
            self._earlier.clear()
            self._deadline = self._heap[0][0] if self._heap else math.inf
            wait_s = self._deadline - now
            await clocks.wait(self._earlier, None if wait_s == math.inf else wait_s, self._clock)

    def take(self, now: float) -> Batch | None:
        """Return what is ripe at `now`, without waiting; None when nothing is."""
        ripe: set[Key] = set()
        while self._heap and self._heap[0][0] <= now:
            _, key = heapq.heappop(self._heap)
            dirty = self._dirty.get(key)
            if dirty is None:
                continue
            if dirty.ripe_at > now:
                heapq.heappush(self._heap, (dirty.ripe_at, key))
                continue
            ripe.add(key)
            del self._dirty[key]
        if not ripe:
            return None
        # Finished saves that came a moment later go along: their own wait was only for company.
        for key in self._finals:
            if self._dirty.pop(key, None) is not None:
                ripe.add(key)
        self._finals.clear()
        return self._batch(ripe)

    def _mark(self, key: Key, *, is_final: bool, is_writing: bool = True) -> None:
        now = self._clock.monotonic_s()
        dirty = self._dirty.get(key)
        if dirty is None:
            if len(self._dirty) >= self._max_dirty:
                self._collapse()
            dirty = self._dirty[key] = _Dirty(now)
        elif dirty.is_final and not is_final and not is_writing:
            return
        dirty.is_final = is_final
        if is_final:
            self._finals.add(key)
            ripe_at = now + BATCH_S
        else:
            self._finals.discard(key)
            ripe_at = min(now + self._quiet_s, dirty.first_at + self._max_s)
        # The heap holds a moment for every key already; a later one is found out when that moment comes.
        if ripe_at < dirty.ripe_at:
            heapq.heappush(self._heap, (ripe_at, key))
        dirty.ripe_at = ripe_at
        if ripe_at < self._deadline:
            self._earlier.set()

    def _collapse(self) -> None:
        """Forget the paths and ask for a rescan: it reads everything that they would have led to.

        A file that the rescan meets half written is not lost either: what is written later makes a mark later.
        """
        reason = self._rescan or f"more than {self._max_dirty} paths changed at once"
        self._dirty.clear()
        self._finals.clear()
        self._heap.clear()
        self.mark_all(reason)

    def _batch(self, ripe: set[Key]) -> Batch:
        reason = ""
        if ("rescan", "") in ripe:
            reason, self._rescan = self._rescan, ""
        folders = {path for what, path in ripe if what == "folder"}
        return Batch(
            paths=frozenset(RelPath(path) for what, path in ripe if what == "file"),
            rescan=reason,
            folders=frozenset(RelPath(path) for path in folders if not _has_ancestor_in(path, folders)),
            others=frozenset(path for what, path in ripe if what == "other"),
        )


def _has_ancestor_in(path: str, folders: set[str]) -> bool:
    """Tell whether a folder above `path` is in the set."""
    while path:
        path = path.rpartition("/")[0]
        if path in folders:
            return True
    return False
