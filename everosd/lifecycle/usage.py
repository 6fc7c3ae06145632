"""Uses of memories: what answers had in them, and what programs say that they used.

Noted in memory by whoever answers, and appended to `.lifecycle/` later: once an hour, before a pass that decays, and at stop;
of each entry at most once a day. What is used once more on that day waits for the next one.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import msgspec
import structlog

from everosd import clock, config, errors, types
from everosd.lifecycle import change, decay, desk, policy
from everosd.lifecycle import row as rows
from everosd.log import entry, escape
from everosd.store import lifecycle as store

EVERY_S = 3600.0
"""What a crash takes of it at most."""
PER_ROW = 200
MAX_NOTED = 100_000
"""Entries of which a use is remembered; beyond, no more are taken in until these are written."""
ACTION = "usage"
MAX_MOMENTS = 200
"""Moments of activity between which decay is counted: of a memory that has more and owes nothing, they are counted up to the
newest, once, so that they do not grow with years of use."""
_AT_ONCE = 500  # entries that the ledger is asked for

log = structlog.get_logger(__name__)


class Noting(Protocol):
    """Takes note of uses. Cheap; what is noted is appended to `.lifecycle/` later, once per entry and day at most."""

    def note(self, owner: types.Owner, entry_ids: Sequence[str], at_us: int) -> None:
        """Take note that these entries of an owner were used, at a moment in microseconds since 1970."""


class Uses:
    """Takes note of uses, and writes them. Lives on the event loop."""

    def __init__(self, parts: desk.Desk, settings: Callable[[], config.Config]) -> None:
        """Write with `parts`; whether Episodes count is as the settings of the moment say."""
        self._desk, self._settings = parts, settings
        self._noted: dict[types.Owner, dict[str, int]] = {}
        self._written: dict[types.Owner, set[str]] = {}
        """Entries that the log was told of on `_written_on`: the ledger hears of it later."""
        self._written_on: dt.date | None = None
        self._n = 0
        self._is_noted = asyncio.Event()
        self._failed = ""

    def note(self, owner: types.Owner, entry_ids: Sequence[str], at_us: int) -> None:
        """Take note that these entries of an owner were used, at a moment in microseconds since 1970."""
        at_us -= at_us % 1000  # as the log has it
        known = self._noted.setdefault(owner, {})
        for entry_id in entry_ids:
            if entry_id in known:
                known[entry_id] = max(known[entry_id], at_us)
            elif self._n < MAX_NOTED:
                known[entry_id] = at_us
                self._n += 1
        self._is_noted.set()

    def seen(self, owner: types.Owner, records: Iterable[store.Record]) -> list[store.Record]:
        """Return memories of an owner as they will be once what is noted has been written: what a dry run goes by."""
        noted = self._noted.get(owner)
        if not noted:
            return list(records)
        return [_used(one, noted[one.entry_id]) if self._is_due(one, noted) else one for one in records]

    async def write(self, owner: types.Owner) -> None:
        """Append what is noted of an owner, and wait until the ledger has it.

        Raises:
            WriteRefused: nothing was written; it is noted still.
            StoreError: the ledger cannot be read, or does not take note.
        """
        if ids := await self._write(owner):
            await self._desk.until_logged(owner, ids[-1:])

    async def write_all(self) -> None:
        """Append what is noted of anybody; what cannot be written now stays noted, and does not stop the next owner."""
        failed = ""
        for owner in list(self._noted):
            try:
                await self._write(owner)
            except (errors.WriteRefused, errors.StoreError) as error:
                failed = failed or str(error)
        if failed and failed != self._failed:
            log.warning("usage_not_written", reason=failed)
        self._failed = failed

    async def run(self) -> None:
        """Append every hour until cancelled, as long as anything is used."""
        while True:
            await self._is_noted.wait()
            await self._desk.clock.sleep(EVERY_S)
            self._is_noted.clear()
            await self.write_all()
            if self._failed:
                self._is_noted.set()  # tried again, whether anything else is used or not

    def forget(self, owner: types.Owner) -> None:
        """Let go of an owner whose memory is gone."""
        self._n -= len(self._noted.pop(owner, {}))
        self._written.pop(owner, None)

    async def _write(self, owner: types.Owner) -> tuple[types.EntryId, ...]:
        async with self._desk.pen.in_turn(owner):  # a pass and the hour at once would write a use twice
            return await self._write_in_turn(owner)

    async def _write_in_turn(self, owner: types.Owner) -> tuple[types.EntryId, ...]:
        taken = dict(self._noted.get(owner, {}))
        if not taken:
            return ()
        kinds = ("memory", "episode") if self._settings().lifecycle.episodes else ("memory",)
        known: list[store.Record] = []
        for part in _parts(list(taken)):
            # By id and owner: an id of somebody else's, or of what is gone, is not found.
            known += await store.records(self._desk.reader, owner, kinds=kinds, statuses=(), ids=part)
        due = [one.entry_id for one in known if self._is_due(one, taken)]
        written: tuple[types.EntryId, ...] = ()
        if due and owner in self._noted:
            # What is counted up to was before these uses: it stands before them.
            drafts = [*self._counted(known), *self._drafts({each: taken[each] for each in sorted(due)})]
            written = await self._desk.log(owner, drafts)
            self._written_today().setdefault(owner, set()).update(due)
        waiting = {one.entry_id for one in known if taken[one.entry_id] > (one.accessed_us or 0)} - set(due)
        self._let_go(owner, {each: at_us for each, at_us in taken.items() if each not in waiting})
        return written

    def _let_go(self, owner: types.Owner, done: dict[str, int]) -> None:
        """Forget what was written, or is to be written never; what was used once more meanwhile stays noted."""
        noted = self._noted.get(owner, {})
        for entry_id, at_us in done.items():
            if noted.get(entry_id) == at_us:
                del noted[entry_id]
                self._n -= 1
        if not noted:
            self._noted.pop(owner, None)

    def _is_due(self, record: store.Record, noted: dict[str, int]) -> bool:
        """Return whether a use is written now: it is news, and the first of the entry that is written on this day."""
        at_us = noted.get(record.entry_id)
        if at_us is None or (record.kind == "episode" and not self._settings().lifecycle.episodes):
            return False
        accessed_us = record.accessed_us
        if accessed_us is not None and (at_us <= accessed_us or self._day(accessed_us) == self._today()):
            return False
        return record.entry_id not in self._written_today().get(record.owner, ())

    def _written_today(self) -> dict[types.Owner, set[str]]:
        if self._written_on != self._today():
            self._written_on = self._today()
            self._written.clear()
        return self._written

    def _counted(self, known: Iterable[store.Record]) -> Iterator[entry.Draft]:
        """Yield the rows that take the place of moments of which there are too many."""
        now_us, policies = self._desk.now_us(), policy.of(self._settings())
        for one in known:
            if len(one.moments) > MAX_MOMENTS and (found := decay.settled(one, policies, now_us)) is not None:
                yield change.draft(found, "", self._desk.now())

    def _drafts(self, uses: dict[str, int]) -> Iterator[entry.Draft]:
        at = rows.stamp(self._desk.now())
        for part in _parts(list(uses), PER_ROW):
            targets = escape.write_list(f"{each}@{uses[each] // 1000}" for each in part)
            yield entry.Draft(fields={"timestamp": at, "action": ACTION, "targets": targets}, sections=())

    def _today(self) -> dt.date:
        return self._desk.now().astimezone(self._desk.zone).date()

    def _day(self, us: int) -> dt.date:
        return clock.local(us, self._desk.zone).date()


def _used(record: store.Record, at_us: int) -> store.Record:
    moments = record.moments
    if record.since_us is None or at_us > record.since_us:
        moments = tuple(sorted({*moments, at_us}))
    return msgspec.structs.replace(record, accessed_us=at_us, n_uses=record.n_uses + 1, moments=moments)


def _parts(ids: list[str], size: int = _AT_ONCE) -> Iterator[list[str]]:
    return (ids[start : start + size] for start in range(0, len(ids), size))
