"""The Episodes of a segment: one for each of its users, each written once, whatever happens in between."""

from __future__ import annotations

import asyncio
from typing import Protocol

import structlog

from everosd import errors, types
from everosd.intake import message, row
from everosd.log import entry, escape, layout, writer
from everosd.store import read

log = structlog.get_logger(__name__)


class Extractor(Protocol):
    """What reads a segment."""

    async def extract(self, segment: message.Segment) -> message.Extracted:
        """Return what the segment says.

        Raises:
            errors.LLMUnavailable: the same may succeed later.
            errors.LLMRejected: the model's answers are unusable.
        """


class Episodes:
    """Writes the Episodes of segments. Lives on the event loop."""

    def __init__(self, extractor: Extractor, pen: writer.Writer, reader: read.Reader) -> None:
        """Read segments with `extractor`, write with `pen`, and ask `reader` what an earlier process wrote."""
        self._extractor, self._pen, self._reader = extractor, pen, reader
        self._written: dict[tuple[types.Owner, str], types.EntryId] = {}
        """By user and segment: what this process wrote and the ledger may not know yet."""

    async def write(self, segment: message.Segment, *, is_new: bool) -> dict[types.Owner, types.EntryId]:
        """Have every user of the segment own an Episode of it; return their entry ids once all are on disk.

        Args:
            segment: What to read; one without users makes none.
            is_new: It was cut by this process; otherwise an earlier one may have written its Episodes, and the ledger,
                which has to be in step with the disk, is asked.

        Raises:
            errors.LLMError, errors.WriteRefused: nothing is lost, the same may be asked again.
        """
        owners = self._owners(segment)
        found = {owner: self._written.get((owner, segment.id)) for owner in owners}
        if not is_new:
            for owner in owners:
                found[owner] = found[owner] or await self.find(owner, segment.id)
        missing = [owner for owner in owners if found[owner] is None]
        if missing:
            extracted = await self._extractor.extract(segment)
            # What was begun is finished and noted, whatever becomes of the others: nobody writes it once more.
            writing = asyncio.gather(
                *(self._append(owner, segment, extracted) for owner in missing), return_exceptions=True
            )
            try:
                outcomes = await asyncio.shield(writing)
            except asyncio.CancelledError:
                await asyncio.wait((writing,))
                raise
            for failed in (one for one in outcomes if one is not None):
                raise failed
        return {owner: found[owner] or self._written[owner, segment.id] for owner in owners}

    async def find(self, owner: types.Owner, memcell_id: str) -> types.EntryId | None:
        """Return the Episode that a user has of a segment, as far as the ledger knows."""
        rows = await self._reader.children(owner, (memcell_id,), "episode")
        return rows[0].entry_id if rows else None

    async def of(self, segment: message.Segment) -> dict[types.Owner, types.EntryId]:
        """Return the Episodes that there are of a segment, as far as the ledger knows."""
        found = {owner: await self.find(owner, segment.id) for owner in self._owners(segment)}
        return {owner: entry_id for owner, entry_id in found.items() if entry_id is not None}

    def forget(self, segment: message.Segment) -> None:
        """Let go of what was noted of a segment: the log says that it is done."""
        for owner in self._owners(segment):
            self._written.pop((owner, segment.id), None)

    def forget_owner(self, owner: types.Owner) -> None:
        """Let go of what was noted of an owner whose memory is gone."""
        self._written = {at: entry_id for at, entry_id in self._written.items() if at[0] != owner}

    async def _append(self, owner: types.Owner, segment: message.Segment, extracted: message.Extracted) -> None:
        (entry_id,) = await self._pen.append(owner, "episode", [_draft(owner, segment, extracted)])
        self._written[owner, segment.id] = entry_id

    def _owners(self, segment: message.Segment) -> list[types.Owner]:
        """Return whose memory the segment becomes; an id that nobody can have is passed over."""
        found = []
        for user_id in segment.user_ids:
            try:
                layout.check_scope_id(types.nfc(user_id), "sender_id")
            except errors.RequestError as error:  # a row that a person wrote into the log
                log.warning("sender_passed_over", memcell=segment.id, reason=str(error))
                continue
            at = segment.session
            found.append(types.Owner(app=at.app, project=at.project, type="user", id=types.nfc(user_id)))
        return list(dict.fromkeys(found))


def _draft(owner: types.Owner, segment: message.Segment, extracted: message.Extracted) -> entry.Draft:
    return entry.Draft(
        fields={
            "owner_id": owner.id,
            "session_id": segment.session.id,
            "timestamp": row.iso(segment.timestamp_us),
            "parent_type": "memcell",
            "parent_id": segment.id,
            "sender_ids": escape.write_list(segment.sender_ids),
            "extracted_by": extracted.by,
        },
        sections=(("Subject", extracted.subject), ("Summary", extracted.summary), ("Content", extracted.content)),
    )
