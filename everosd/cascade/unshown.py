"""What everosd itself has written of each owner and a search cannot find yet: a search waits for it, for a moment."""

from __future__ import annotations

import functools
from collections.abc import Iterable

import msgspec

from everosd import types
from everosd.log import kind, layout

MAX_PATHS = 4096
"""Files that are remembered as written: those from before have long been read."""

_Written = dict[types.RelPath, tuple[int, types.Owner]]
"""File → number of the first write since it was read last, and whose it is."""


class Unshown:
    """Follows writes from the file over the ledger to the index. Lives on the event loop."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.n = 0
        """Writes so far."""
        self._written: _Written = {}
        self._taken: _Written = {}
        """Being read just now."""
        self._lsns: dict[types.Owner, int] = {}
        """Where in the ledger the newest is that no index has shown, as far as is known."""

    def wrote(self, path: types.RelPath) -> None:
        """Take note of a write; of what no search finds none is taken."""
        place = layout.place(path)
        if place is None or not kind.BY_NAME[place.kind].is_searchable:
            return
        self.n += 1
        self._written.setdefault(path, (self.n, _short(place.owner) if place.is_shortened else place.owner))
        if len(self._written) > MAX_PATHS:
            del self._written[next(iter(self._written))]

    def __contains__(self, path: types.RelPath) -> bool:
        """Tell whether a file was written and not read since."""
        return path in self._written

    def taken(self, paths: Iterable[types.RelPath]) -> None:
        """These files are being read."""
        self._taken = {path: self._written.pop(path) for path in paths if path in self._written}

    def applied(self, lsn: int, shown: float) -> None:
        """What was taken is in the ledger, up to `lsn`; the indexes show everything up to `shown`."""
        self._lsns |= dict.fromkeys((owner for _, owner in self._taken.values()), lsn)
        self._lsns = {owner: at for owner, at in self._lsns.items() if at > shown}
        self._taken = {}

    def dropped(self) -> None:
        """What was taken could not be put into the ledger: nobody waits for that."""
        self._taken = {}

    def unread(self, owner: types.Owner, n: int) -> list[types.RelPath]:
        """Return the files that an owner's first `n` writes went to and that are still to be read."""
        names = _names(owner)
        return [path for path, (first, whose) in self._written.items() if whose in names and first <= n]

    def is_unread(self, owner: types.Owner, n: int) -> bool:
        """Tell whether any of an owner's first `n` writes is not in the ledger."""
        names = _names(owner)
        of_owner = (first for one in (self._written, self._taken) for first, whose in one.values() if whose in names)
        return any(first <= n for first in of_owner)

    def lsn(self, owner: types.Owner) -> int:
        """Return how far an index has to be for all of an owner's writes that are in the ledger; 0: that is so."""
        return max(self._lsns.get(name, 0) for name in _names(owner))


@functools.lru_cache(maxsize=1024)
def _names(owner: types.Owner) -> tuple[types.Owner, types.Owner]:
    """Return what an owner may be called here: a folder's name that was shortened has the end of the id's digest alone."""
    return owner, msgspec.structs.replace(owner, id=layout.ending(owner.id))


def _short(owner: types.Owner) -> types.Owner:
    return msgspec.structs.replace(owner, id=f"~{owner.id.rpartition('~')[2]}")
