"""What everybody needs who writes memories by hand: the parts, and waiting until the ledger has what was written."""

from __future__ import annotations

import datetime as dt
from collections.abc import Awaitable, Callable, Collection, Sequence

from everosd import clock, errors, types
from everosd.cascade import apply
from everosd.lifecycle import row as rows
from everosd.log import entry, file, kind, layout
from everosd.store import read
from everosd.store import row as store_row

POLL_S = 0.005
PATIENCE_S = 10.0
"""How long something may take to be read that is on disk."""
START_S = 60.0
"""How long whoever has to know all that there is waits for the comparison at the start."""
SHOWN_S = 1.0
"""How long the indexes may take to follow the ledger, as a search waits for them."""
_LOOK_AGAIN = 100
"""After so many looks in vain the file is marked again."""

ROWS = "what was written into .lifecycle/"
_STARTING = "everosd still compares the files with what it knows"


class Desk:
    """Reads and writes an owner's memories. Lives on the event loop."""

    def __init__(
        self,
        reader: read.Reader,
        cascade: apply.Cascade,
        time: clock.Clock,
        step: file.Step = file.no_step,
    ) -> None:
        """Wire the parts; `step`: see `log.file`."""
        self.reader, self.cascade, self.clock, self.step = reader, cascade, time, step
        self.pen = cascade.writer
        self.zone = cascade.timezone

    @property
    def places(self) -> layout.Layout:
        """Where memory lives."""
        return self.pen.layout

    def now(self) -> dt.datetime:
        """Return the current moment, aware UTC."""
        return self.clock.now().astimezone(dt.UTC)

    def now_us(self) -> int:
        """Return the same in microseconds since 1970."""
        return clock.to_us(self.clock.now())

    async def caught_up(self, owner: types.Owner | None = None) -> None:
        """Wait until the ledger is in step with what was on disk at the start, and with the rows of `owner` since.

        A row that it did not take in time, on a full disk, decides as much as any other: whoever does not know of it
        would answer that a memory is there, and the row would take it away a moment later.

        Raises:
            StoreError: it was not after a long time.
        """
        until_s = self.clock.monotonic_s() + START_S
        while self.cascade.phase() != "ready":
            if self.clock.monotonic_s() > until_s:
                raise errors.StoreError(_STARTING)
            await self.clock.sleep(POLL_S)
        if owner is None:
            return
        folder = types.RelPath(f"{self.places.owner_folder(owner)}/{kind.BY_NAME[rows.KIND].folder}")

        async def is_read() -> bool:
            return not self.cascade.waits_below(folder)

        await self.until(is_read, ROWS, ())

    async def log(self, owner: types.Owner, drafts: Sequence[entry.Draft]) -> tuple[types.EntryId, ...]:
        """Append rows to the owner's `.lifecycle/`; return their ids once they are on disk.

        Raises:
            WriteRefused: nothing was written.
        """
        return await self.pen.append(owner, rows.KIND, drafts)

    async def until_logged(self, owner: types.Owner, ids: Collection[str]) -> None:
        """Wait until the ledger has rows that were appended.

        Raises:
            StoreError: it had not after `PATIENCE_S`.
        """
        left = list(ids)
        days = {f"{one[3:7]}-{one[7:9]}-{one[9:11]}" for one in left}
        paths = [self.places.path_for(owner, rows.KIND, day) for day in days]

        async def are_there() -> bool:
            while left and await self.reader.find(owner, left[-1]) is not None:
                left.pop()
            return not left

        await self.until(are_there, ROWS, paths)

    async def until_found(self, owner: types.Owner, entry_id: str, path: types.RelPath) -> store_row.EntryRow:
        """Return an entry that was written, once the ledger has it.

        Raises:
            StoreError: it had not after `PATIENCE_S`.
        """
        found: list[store_row.EntryRow] = []

        async def is_there() -> bool:
            one = await self.reader.find(owner, entry_id)
            found[:] = [] if one is None else [one]
            return one is not None

        await self.until(is_there, entry_id, (path,))
        return found[0]

    async def until_changed(self, before: store_row.EntryRow) -> store_row.EntryRow | None:
        """Return an entry that was changed, once the ledger has taken note; None: it is not there any more.

        Raises:
            StoreError: it had not after `PATIENCE_S`.
        """
        found: list[store_row.EntryRow | None] = [before]

        async def is_changed() -> bool:
            found[0] = one = await self.reader.find(before.owner, before.entry_id)
            return one is None or one.lsn > before.lsn or one.key != before.key

        await self.until(is_changed, before.entry_id, (before.path,))
        return found[0]

    async def until(self, holds: Callable[[], Awaitable[bool]], what: str, paths: Collection[types.RelPath]) -> None:
        """Wait until something that was written to these files is in the ledger.

        Raises:
            StoreError: it was not after `PATIENCE_S`.
        """
        until_s = self.clock.monotonic_s() + PATIENCE_S
        n = 0
        while not await holds():
            if self.clock.monotonic_s() > until_s:
                message = f"{what} is on disk, and the ledger has not read it yet"
                raise errors.StoreError(message)
            if n % _LOOK_AGAIN == 0:
                self.cascade.mark(paths)
            n += 1
            await self.clock.sleep(POLL_S)

    async def until_shown(self, lsn: int) -> None:
        """Wait until searches by keyword go by what the ledger has up to `lsn`, but not for long."""
        until_s = self.clock.monotonic_s() + SHOWN_S
        while self._shown() < lsn and self.clock.monotonic_s() < until_s:
            await self.clock.sleep(POLL_S)

    def _shown(self) -> float:
        """Return how far searches by keyword have come; an index that is filled or fails is not waited for."""
        prompt = (one.follows() for one in self.cascade.projections if one.is_prompt)
        return min((at for at in prompt if at is not None), default=float("inf"))
