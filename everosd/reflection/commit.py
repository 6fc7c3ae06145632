"""The commit point of a consolidation: one append of the narrative, made only while its sources say what was read."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping

import msgspec

from everosd import clock, errors, types
from everosd.log import entry, escape, writer
from everosd.narrative import source as texts
from everosd.reflection import lag, plan, source
from everosd.store import read, row


class ChangedError(errors.EverosdError):
    """What was read is not what stands there now: it has to be planned again."""


class _Appended(msgspec.Struct, frozen=True, kw_only=True):
    owner: types.Owner
    entry_id: types.EntryId


class Commit:
    """Appends narratives. Lives on the event loop."""

    def __init__(self, reader: read.Reader, pen: writer.Writer, behind: lag.Lag) -> None:
        """Wire the parts."""
        self._reader, self._pen, self._lag = reader, pen, behind
        self._appending: set[asyncio.Task[tuple[types.EntryId, ...]]] = set()
        self._unseen: list[_Appended] = []
        """Narratives that the ledger may not have yet: until it has, their sources look as if nothing had been merged."""

    async def run(
        self,
        owner: types.Owner,
        cluster_id: str,
        wanted: plan.Plan,
        narrative: texts.Narrative,
        standing: Mapping[str, lag.Standing],
    ) -> row.EntryRow:
        """Write a narrative, and return it once the ledger has it.

        A caller that is cancelled leaves the append to end by itself; `caught_up` waits for it.

        Raises:
            ChangedError: a source is not what it was when it was read; nothing was written.
            WriteRefused: nothing was written.
            StoreError: the ledger does not take note of it; it is on disk.
        """
        at = [(one.path, one.id) for one in wanted.replaced]
        now = await asyncio.to_thread(self._lag.standing, at)
        for one in wanted.replaced:
            if now.get(one.id) != standing.get(one.id):
                message = f"{one.id} was changed while it was merged"
                raise ChangedError(message)
        task = asyncio.ensure_future(
            self._pen.append(owner, source.EPISODE, [draft(owner, cluster_id, wanted, narrative)])
        )
        self._appending.add(task)
        task.add_done_callback(lambda done: self._note(owner, done))
        (entry_id,) = await asyncio.shield(task)
        found = await self._lag.until_found(owner, entry_id)
        self._unseen = [one for one in self._unseen if (one.owner, one.entry_id) != (owner, entry_id)]
        return found

    async def caught_up(self) -> None:
        """Wait until the ledger has every narrative that was appended, but for those that somebody has deleted.

        Raises:
            StoreError: it does not take note of one.
            WriteRefused: a log of that owner's cannot be read.
        """
        if self._appending:
            await asyncio.wait(self._appending)
        for one in list(self._unseen):
            if await asyncio.to_thread(self._lag.is_on_disk, one.owner, one.entry_id):
                await self._lag.until_found(one.owner, one.entry_id)
            if one in self._unseen:
                self._unseen.remove(one)

    async def forget(self, owner: types.Owner) -> None:
        """Let go of an owner whose memory is gone; what is being appended for anybody has ended before."""
        if self._appending:
            await asyncio.wait(self._appending)
        self._unseen = [one for one in self._unseen if one.owner != owner]

    def _note(self, owner: types.Owner, done: asyncio.Task[tuple[types.EntryId, ...]]) -> None:
        self._appending.discard(done)
        if not done.cancelled() and done.exception() is None:
            self._unseen += [_Appended(owner=owner, entry_id=each) for each in done.result()]


def draft(owner: types.Owner, cluster_id: str, wanted: plan.Plan, narrative: texts.Narrative) -> entry.Draft:
    """Return the Episode that a narrative is written as: with all that is needed to finish, and to undo, what it begins."""
    sections = (("Subject", narrative.subject), ("Content", narrative.content))
    fields = {
        "owner_id": owner.id,
        "timestamp": clock.from_us(wanted.timestamp_us).isoformat(),
        "parent_type": source.NARRATIVE,
        "parent_id": cluster_id,
        "extracted_by": narrative.by,
        "report_id": uuid.uuid4().hex,
        "mode": wanted.mode,
        "source_count": str(len(wanted.replaced)),
        "sources": escape.write_list(f"{one.id}@{one.digest}" for one in wanted.replaced),
        "read_from": escape.write_list(one.entry_id for one in wanted.read),
        "text_digest": source.digest_of_draft(entry.Draft(sections=sections)),
        "check": narrative.check.said(),
    }
    return entry.Draft(fields=fields, sections=sections)
