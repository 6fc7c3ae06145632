"""What follows from entries and has tables of its own: clusters, consolidations, corrections, typed memories, lifecycle.

Called in the transaction that applies a file, after winners and successors are decided. Each kind of log has its folds here,
and nowhere else; a fold is told what has changed and does work in proportion to that. Whatever way the ledger has come to
hold its entries, the tables are the same: `verify` compares them (`TABLES`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Sequence

from everosd import types
from everosd.store import cluster, correction, lifecycle_log, memory, report, state

Fold = Callable[[sqlite3.Connection, state.Change], Collection[str] | None]
"""May return ids of entries that others point to, and of whose pointers another thing is to be thought now."""

_FOLDS: dict[str, tuple[Fold, ...]] = {
    "cluster": (cluster.fold, report.fold),
    "episode": (cluster.touch, report.note, memory.fold, lifecycle_log.follow),
    "agent_case": (cluster.touch, lifecycle_log.follow),
    "atomic_fact": (correction.fold, lifecycle_log.follow),
    "foresight": (lifecycle_log.follow,),
    "memory": (correction.fold, memory.fold, lifecycle_log.follow),
    "lifecycle": (lifecycle_log.fold,),
}
"""By kind of the file; those of one kind run in this order. What has no lifecycle may hold an id of what has one."""


TABLES: tuple[state.Table, ...] = (
    cluster.CLUSTERS,
    cluster.MEMBERS,
    report.TABLE,
    correction.TABLE,
    memory.TABLE,
    lifecycle_log.ROWS,
    lifecycle_log.STATE,
)
"""All that `verify` compares."""


def apply(
    connection: sqlite3.Connection,
    kind: str,
    owner: types.Owner,
    path: types.RelPath,
    *,
    written: Sequence[tuple[int, state.EntryState]],
    gone: Sequence[tuple[int, str]],
) -> set[str]:
    """Bring the derived tables in step with what has become of one file.

    Args:
        connection: In the transaction of that change.
        kind: Of the file.
        owner: Of the file.
        path: Of the file.
        written: (key, entry) added or changed, and all of them in a rebuild.
        gone: (key, entry id) removed.

    Returns:
        Ids that are to be settled anew, with all that points to them.
    """
    folds = _FOLDS.get(kind)
    unsettled: set[str] = set()
    if folds and (written or gone):
        change = state.Change(owner=owner, path=path, written=tuple(written), gone=tuple(gone))
        for fold in folds:
            unsettled.update(fold(connection, change) or ())
    return unsettled
