"""Rebuild: every file is read again, then every index is filled anew beside the one that answers.

Each step is remembered in the ledger (stale marks per file, the cursor per index), so that a rebuild that was killed
goes on where it was. What is gone from the disk counts as deleted: this is how a person says that it was meant.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING

from everosd.store import meta

if TYPE_CHECKING:
    from everosd.cascade import apply

Progress = Callable[[str, int, int], None]
"""Called with a stage (`files`, or the name of an index), how much of it is done, and of how much."""

POLL_S = 0.05
"""How often progress is reported."""


def silent(stage: str, done: int, total: int) -> None:
    """Report nothing."""


async def rebuild(cascade: apply.Cascade, progress: Progress = silent) -> None:
    """Read every file again and fill every index anew; searches are answered throughout.

    Raises:
        errors.StoreError: the ledger cannot be written.

    """

    def begin(connection: sqlite3.Connection) -> None:
        meta.mark_all_stale(connection)
        meta.put(connection, meta.REBUILD, "files")

    await cascade.database.write(begin)
    await resume(cascade, progress)


async def resume(cascade: apply.Cascade, progress: Progress = silent) -> None:
    """Go on with the rebuild that the ledger remembers; return at once when there is none."""
    stage = await cascade.database.write(lambda connection: meta.get(connection, meta.REBUILD))
    if stage is None:
        return
    if stage == "files":
        await _read_files(cascade, progress)
        await cascade.database.write(lambda connection: meta.put(connection, meta.REBUILD, "indexes"))
        for projection in cascade.projections:
            await projection.rebuild()
    await _fill_indexes(cascade, progress)
    await cascade.database.write(lambda connection: meta.put(connection, meta.REBUILD, None))


async def refill(cascade: apply.Cascade, progress: Progress = silent) -> None:
    """Fill every index anew from the ledger as it is: nothing that was deleted is left in its files afterwards.

    One that is being filled already is filled to the end first: what was deleted may be in it.
    """
    await _fill_indexes(cascade, progress)
    for projection in cascade.projections:
        await projection.rebuild()
    await _fill_indexes(cascade, progress)


async def _read_files(cascade: apply.Cascade, progress: Progress) -> None:
    with cascade.accepting_deletions():
        cascade.expire_known()
        await cascade.reconcile("rebuild")
        while True:
            done, total = cascade.backlog_progress()
            progress("files", done, total)
            if not cascade.n_waiting():
                return
            await asyncio.sleep(POLL_S)


async def _fill_indexes(cascade: apply.Cascade, progress: Progress) -> None:
    for projection in cascade.projections:
        while projection.is_behind():
            done, total = projection.status().progress or (0, 0)
            progress(projection.name, done, total)
            await asyncio.sleep(POLL_S)
        n = projection.status().documents
        progress(projection.name, n, n)
