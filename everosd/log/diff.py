"""What an edit did: entries before, entries after → changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from everosd.log import entry as entries
from everosd.log import event


def diff(before: Mapping[tuple[str, int], bytes], after: Sequence[entries.Entry]) -> tuple[event.EntryChange, ...]:
    """Compare the entries of one file, by (id, nth) and digest; order in the file means nothing.

    Args:
        before: digest of each entry as the ledger has it.
        after: the entries that were just read.

    Returns:
        Removed ones first, then added and modified ones in file order; empty where nothing changed.
    """
    now = {(entry.id, entry.nth) for entry in after}
    changes = [
        event.EntryChange(change="removed", entry_id=entry_id, nth=nth)
        for entry_id, nth in before
        if (entry_id, nth) not in now
    ]
    for entry in after:
        old = before.get((entry.id, entry.nth))
        if old is None:
            changes.append(event.EntryChange(change="added", entry_id=entry.id, nth=entry.nth))
        elif old != entry.digest:
            changes.append(event.EntryChange(change="modified", entry_id=entry.id, nth=entry.nth))
    return tuple(changes)
