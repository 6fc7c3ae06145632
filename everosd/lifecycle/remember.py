"""Something is to be remembered: a new memory, the next version of the one under its key, or nothing, where it is known."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from everosd import errors, types
from everosd.lifecycle import desk, memory, row, update, versions
from everosd.log import entry
from everosd.store import lifecycle
from everosd.store import row as store_row

AUTO = "auto"


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be remembered, checked; inline fields as they are written."""

    path: str
    memory_type: str = AUTO
    """`auto`: episodic with a session, else semantic; of a memory that is updated: as it is."""
    change: memory.Change
    """Content, subject, and every field but `memory_type`, `bucket`, `scope` and `team_id`."""
    bucket: str = memory.DEFAULT_BUCKET
    scope: str = ""
    team_id: str = ""
    semantic_key: str = ""
    dedupe: bool = False
    reason: str = ""
    run_id: str = ""


Still = Callable[[], Awaitable[bool]]
"""Tells whether something is to be written still."""


async def _always() -> bool:
    return True


class Remembering:
    """Remembers. Lives on the event loop."""

    def __init__(self, parts: desk.Desk, updates: update.Updates) -> None:
        """Work with these parts."""
        self._desk, self._updates = parts, updates
        self._unread: dict[types.Owner, dict[str, types.RelPath]] = {}
        """Written, and not known to be in the ledger: whoever looks something up there waits for it."""

    async def remember(self, owner: types.Owner, wanted: Wanted, *, still: Still = _always) -> update.Written:
        """Remember something; it is on disk, and in the ledger, when this returns.

        What is under the same key is updated, and its version before kept; requests under one key make one memory, however
        many come at once. Of what has a key, `still` is asked when nobody else changes anything of the owner's any more: what it
        was made of may have gone for good while others had their turn.

        Raises:
            RequestError: the path is none that there can be.
            Conflict: `still` says no; nothing was written.
            WriteRefused: nothing was written.
            StoreError: nothing was written, because the ledger cannot say what there is already.
        """
        wanted = msgspec.structs.replace(wanted, path=memory.check_path(wanted.path))
        if not (wanted.semantic_key or wanted.dedupe):
            return await self._create(owner, wanted)
        async with self._desk.pen.in_turn(owner):
            await self._desk.caught_up(owner)
            await self._read_up(owner)
            if not await still():
                message = "what it was made of has changed meanwhile"
                raise errors.Conflict(message)
            if (under_key := await self._under_key(owner, wanted)) is not None:
                return await self._updated(under_key, wanted)
            if wanted.dedupe and (same := await self._same(owner, wanted)) is not None:
                return await self._known(same)
            return await self._create(owner, wanted)

    # -- what there is already -------------------------------------------------------------------------------------

    async def _under_key(self, owner: types.Owner, wanted: Wanted) -> lifecycle.Record | None:
        if not wanted.semantic_key:
            return None
        found = await lifecycle.by_semantic_key(
            self._desk.reader,
            owner,
            wanted.semantic_key,
            bucket=wanted.bucket,
            scope=wanted.scope,
            team_id=wanted.team_id,
        )
        return None if found is None or found.is_redacted else found

    async def _updated(self, record: lifecycle.Record, wanted: Wanted) -> update.Written:
        fields = dict(wanted.change.fields)
        if self._is_over(record):
            fields.setdefault("expires_at", "")  # what is written now is not over already
        fields.pop("owner_id", None)
        if wanted.memory_type != AUTO:
            fields["memory_type"] = wanted.memory_type
        change = msgspec.structs.replace(wanted.change, fields=fields)
        return await self._updates.locked(
            await self._row(record),
            change,
            path=wanted.path,
            expected=update.Expected(),
            reason=wanted.reason,
            run_id=wanted.run_id,
        )

    async def _same(self, owner: types.Owner, wanted: Wanted) -> lifecycle.Record | None:
        """Return the oldest memory that says the same, at the same path, to the same people."""
        digest = lifecycle.content_digest(wanted.change.content or "")
        if not digest:
            return None
        place = (wanted.bucket, wanted.scope, wanted.team_id)
        for each in await lifecycle.by_content(self._desk.reader, owner, digest, wanted.path):
            if (each.bucket, each.scope, each.team_id) == place and not each.is_redacted and not self._is_over(each):
                return each
        return None

    async def _known(self, record: lifecycle.Record) -> update.Written:
        found = await self._row(record)
        now = memory.of_row(found)
        version = await versions.number(self._desk.reader, found.owner, now)
        return update.Written(outcome="duplicate", row=found, version=version, digest=memory.digest_of(now))

    async def _row(self, record: lifecycle.Record) -> store_row.EntryRow:
        found = await self._desk.reader.find(record.owner, record.entry_id)
        if found is None:
            message = f"{record.entry_id} is being taken out of its file"
            raise errors.Conflict(message, hint="send the same again")
        return found

    def _is_over(self, record: lifecycle.Record) -> bool:
        return record.expires_us is not None and record.expires_us <= self._desk.now_us()

    # -- what is new -----------------------------------------------------------------------------------------------

    async def _create(self, owner: types.Owner, wanted: Wanted) -> update.Written:
        fields = dict(wanted.change.fields)
        memory_type = wanted.memory_type
        if memory_type == AUTO:
            memory_type = "episodic" if fields.get("session_id") else "semantic"
        fields |= {"owner_id": owner.id, "memory_type": memory_type, "scope": wanted.scope, "team_id": wanted.team_id}
        fields["bucket"] = "" if wanted.bucket == memory.DEFAULT_BUCKET else wanted.bucket
        fields.setdefault("timestamp", row.stamp(self._desk.now()))
        made = memory.draft(msgspec.structs.replace(wanted.change, fields=fields))
        (entry_id,) = await self._desk.pen.append(
            owner, memory.KIND, [made], memory_type=memory_type, memory_path=wanted.path
        )
        path = self._path(owner, entry_id, memory_type, wanted.path)
        digest = memory.digest_of(
            entry.Entry(kind=memory.KIND, id=entry_id, fields=made.fields, sections=made.sections)
        )
        unread = self._unread.setdefault(owner, {})
        unread[entry_id] = path
        try:
            found = await self._desk.until_found(owner, entry_id, path)
        except errors.StoreError:
            # It is on disk: whoever is told otherwise writes it once more.
            return update.Written(
                outcome="created", row=_row_of(owner, entry_id, path, made, wanted.path), version=1, digest=digest
            )
        self._read(owner, entry_id)
        return update.Written(outcome="created", row=found, version=1, digest=digest)

    def _path(self, owner: types.Owner, entry_id: str, memory_type: str, memory_path: str) -> types.RelPath:
        day = entry_id.split("_")[1]
        date = f"{day[:4]}-{day[4:6]}-{day[6:]}"
        return self._desk.places.path_for(owner, memory.KIND, date, memory_type=memory_type, memory_path=memory_path)

    async def _read_up(self, owner: types.Owner) -> None:
        """Wait until the ledger has all that was written of an owner here.

        Raises:
            StoreError: it still has not.
        """
        for entry_id, path in list(self._unread.get(owner, {}).items()):
            try:
                await self._desk.until_found(owner, entry_id, path)
            except errors.StoreError:
                if await self._is_on_disk(path, entry_id):
                    raise
            self._read(owner, entry_id)

    async def _is_on_disk(self, path: types.RelPath, entry_id: str) -> bool:
        try:
            await self._desk.pen.update(path, entry_id, lambda one: one)
        except errors.NotFound:
            return False
        return True

    def _read(self, owner: types.Owner, entry_id: str) -> None:
        unread = self._unread.get(owner, {})
        unread.pop(entry_id, None)
        if not unread:
            self._unread.pop(owner, None)


def _row_of(
    owner: types.Owner, entry_id: types.EntryId, path: types.RelPath, made: entry.Draft, memory_path: str
) -> store_row.EntryRow:
    """Return a memory as the ledger will have it."""
    return store_row.EntryRow(
        key=types.EntryKey(0),
        path=path,
        line=1,
        entry_id=entry_id,
        kind=memory.KIND,
        form="marked",
        owner=owner,
        lsn=types.Lsn(0),
        session_id=made.fields.get("session_id"),
        timestamp_us=0,
        parent_type="",
        parent_id="",
        sender_ids=(),
        memory_type=made.fields["memory_type"],
        memory_path=memory_path,
        status="active",
        deprecated_by=None,
        expires_us=None,
        updated_us=0,
        raw="",
    )
