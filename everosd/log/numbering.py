"""Entry ids that nobody has had before: above the highest number in the ledger, in the file and in its neighbours."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence

import msgspec

from everosd import types
from everosd.log import context as contexts
from everosd.log import entry, file, job, layout, parse
from everosd.log import kind as kinds

Slot = tuple[types.Owner, str, str]
"""Owner, prefix and date (`YYYYMMDD`): what a number is unique within."""


class Numbering:
    """The numbers that one writer has given out. Every method may be called from any thread."""

    def __init__(self, context: contexts.Context) -> None:
        """Start knowing of none."""
        self._context = context
        self._high: dict[Slot, int] = {}
        self._lock = threading.Lock()

    def entries(
        self, queue: job.Queue, parsed: parse.Parsed | None, asked: Sequence[job.Append]
    ) -> list[list[entry.Entry]]:
        """Return the drafts of each call as entries, with ids that nobody has had before. Blocks; any thread.

        Args:
            queue: Of the file that they go to.
            parsed: The file as it is; None: there is none, or it is as everosd left it.
            asked: What is asked for; keeps the ids, for an attempt that has to be repeated.
        """
        floors: dict[Slot, int] = {}
        return [self._entries(queue, parsed, what, floors) for what in asked]

    def _entries(
        self, queue: job.Queue, parsed: parse.Parsed | None, what: job.Append, floors: dict[Slot, int]
    ) -> list[entry.Entry]:
        prefix = kinds.BY_NAME[what.kind].prefix
        date = (queue.place.date or layout.UNKNOWN_DATE).replace("-", "")
        slot = (what.owner, prefix, date)
        if queue.place.is_shortened:
            # The path has lost the end of a long owner id; whoever asks knows it.
            queue.place = msgspec.structs.replace(queue.place, owner=what.owner, is_shortened=False)
        if slot not in floors:
            given = self._context.journal.highest(what.owner, prefix, date)
            if slot not in self._high:
                # The ledger may be new and still be reading: what stands in the other files of that day counts too.
                given = max(given, self._highest_on_disk(queue.path, what, date))
            floors[slot] = max(given, 0 if parsed is None else _highest(parsed, prefix, date))
        is_taken = parsed is not None and any(each in parsed.ids for each in what.ids)
        if not what.ids or is_taken:
            with self._lock:  # another file of the owner may be in need of the same numbers
                high = max(self._high.get(slot, 0), floors[slot])
                self._high[slot] = high + len(what.drafts)
            what.ids = tuple(
                types.EntryId(f"{prefix}_{date}_{high + nth:08}") for nth in range(1, len(what.drafts) + 1)
            )
        return [
            entry.Entry(kind=what.kind, id=key, fields=draft.fields, preamble=draft.preamble, sections=draft.sections)
            for key, draft in zip(what.ids, what.drafts, strict=True)
        ]

    def _highest_on_disk(self, path: types.RelPath, what: job.Append, date: str) -> int:
        """Return the highest number in the files of a day, whatever their grammar. Done once for each owner and day."""
        kind = kinds.BY_NAME[what.kind]
        places = self._context.layout
        folder = places.root / places.owner_folder(what.owner) / kind.folder
        day = f"{date[:4]}-{date[4:6]}-{date[6:]}"
        numbers = re.compile(rf"{kind.prefix}_{date}_(\d{{1,8}})(?!\w)".encode())
        high = 0
        for found in (places.root / path, *folder.rglob(f"*{day}*.md")):
            try:
                data = file.read(found).data
            except OSError:
                # A file that cannot be read is reported by whoever reads it for its own sake.
                continue
            high = max((high, *(int(match[1]) for match in numbers.finditer(data))))
        return high


def _highest(parsed: parse.Parsed, prefix: str, date: str) -> int:
    """Return the highest number that the file knows of for a prefix and date."""
    ids = {*parsed.ids, *parsed.deprecated, *parsed.deprecated.values(), *(each.id for each in parsed.entries)}
    high = 0
    for each in ids:
        if (found := types.numbered(each)) is not None and found[:2] == (prefix, date):
            high = max(high, found[2])
    is_own = (parsed.place.date or "").replace("-", "") == date
    return max(high, parsed.entry_count) if is_own and parsed.entry_count <= types.MAX_NUMBER else high
