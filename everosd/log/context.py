"""What every part of the writer works with: the root, the ledger's side, the clock and the threads for the disk."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol, TypeVar

from everosd import clock as clocks
from everosd import types
from everosd.log import file, heal, layout

T = TypeVar("T")

_N_THREADS = 4
"""They wait for the disk most of the time, which brings what several ask for to safety in one go."""


class Journal(Protocol):
    """What the writer needs of the ledger: numbers already given, and a memory of its own writes."""

    def highest(self, owner: types.Owner, prefix: str, date: str) -> int:
        """Return the highest number ever seen in ids of that owner, prefix and date (`YYYYMMDD`); 0 for none. Blocks."""

    def planned(self, path: types.RelPath, write: heal.Write) -> int:
        """Remember a write that is about to happen; return its number. Blocks."""

    def landed(self, number: int) -> None:
        """Remember that a planned write is in the file. Blocks."""

    def dropped(self, number: int) -> None:
        """Forget a planned write: it did not happen. Blocks."""

    async def since(self, path: types.RelPath, stamp: str) -> list[heal.Write]:
        """Return the landed writes to a file whose stamp is later than `stamp`."""

    async def known(self, path: types.RelPath) -> heal.Known | None:
        """Return what the ledger last read in a file; None when it has not read it."""

    async def missing(self, path: types.RelPath, there: Collection[str]) -> Sequence[heal.Row]:
        """Return the entries behind the last one of `there` that the ledger read in a file, oldest first."""

    async def moved(self, path: types.RelPath, entries: Mapping[str, str]) -> Collection[str]:
        """Return which entries (id → raw text) the ledger read in another file of the same owner, letter by letter."""


class Context:
    """Shared by the parts of one writer; lives as long as it does."""

    def __init__(
        self,
        places: layout.Layout,
        journal: Journal,
        clock: clocks.Clock,
        step: file.Step,
    ) -> None:
        """Start the threads; for `step` see `log.file`."""
        self.layout, self.journal, self.clock, self.step = places, journal, clock, step
        self.tmp = places.root / ".tmp"
        self._pool = concurrent.futures.ThreadPoolExecutor(_N_THREADS, thread_name_prefix="log-writer")

    async def in_thread(self, call: Callable[[], T]) -> T:
        """Do what blocks beside the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    def close(self) -> None:
        """Let go of the threads; what they do is finished."""
        self._pool.shutdown(wait=False)
