"""A memory or an Episode comes back: by the row that says so, and from its snapshot where its text is gone from the files."""

from __future__ import annotations

import msgspec

from everosd import errors, types
from everosd.lifecycle import desk, memory, row, update
from everosd.log import entry, entry_text, layout
from everosd.store import lifecycle
from everosd.store import row as store_row

FOR_GOOD = "its text was removed for good"


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """What came back."""

    row: store_row.EntryRow
    was: str
    """Status before; `gone` where no file had it."""


class Restoring:
    """Restores. Lives on the event loop."""

    def __init__(self, parts: desk.Desk, updates: update.Updates) -> None:
        """Work with these parts."""
        self._desk, self._updates = parts, updates

    async def restore(self, owner: types.Owner, entry_id: str, *, reason: str = "", run_id: str = "") -> Restored:
        """Have an entry found again by whoever looks for it; one that is found anyway stays as it is.

        Raises:
            NotFound: the owner has no such entry, and no snapshot of one.
            Conflict: its text is gone for good, a consolidation replaces it, or another memory has its key now.
            WriteRefused: nothing was written, or not all of it; the same again goes on.
            StoreError: it is written, and the ledger does not take note.
        """
        async with self._desk.pen.in_turn(owner):
            await self._desk.caught_up(owner)
            found = await self._desk.reader.find(owner, entry_id)
            was = "gone" if found is None else self._status(found)
            if found is None:
                found = await self._put_back(owner, entry_id)
            record = await lifecycle.find(self._desk.reader, owner, entry_id)
            await self._require_possible(found, record)
            if was == "active":
                return Restored(row=found, was=was)
            found = await self._unexpired(found, reason=reason, run_id=run_id)
            change = row.Status(
                action="restore",
                target=entry_id,
                base="active" if record is None else record.own_status,
                was=was,
                value="active",
                reason=reason,
                run_id=run_id,
            )
            ids = await self._desk.log(owner, [row.status(change, self._desk.now())])
            self._desk.step("restored")
            await self._desk.until_logged(owner, ids)
            now = await self._desk.reader.find(owner, entry_id) or found
            await self._desk.until_shown(now.lsn)
            return Restored(row=now, was=was)

    async def _require_possible(self, found: store_row.EntryRow, record: lifecycle.Record | None) -> None:
        if record is not None and record.is_redacted:
            raise errors.Conflict(FOR_GOOD)
        if found.status == "deprecated":
            message = f"{found.deprecated_by} has taken its place in a consolidation"
            raise errors.Conflict(message, hint="roll that consolidation back (POST reflection/rollback)")
        if record is not None and record.semantic_key and found.status != "active":
            other = await lifecycle.by_semantic_key(
                self._desk.reader,
                found.owner,
                record.semantic_key,
                bucket=record.bucket,
                scope=record.scope,
                team_id=record.team_id,
            )
            update.require_same(other, found.entry_id, record.semantic_key)

    async def _unexpired(self, found: store_row.EntryRow, *, reason: str, run_id: str) -> store_row.EntryRow:
        """Take an `expires_at` away that has passed: it would be over again at once."""
        if found.expires_us is None or found.expires_us > self._desk.now_us():
            return found
        if found.kind != memory.KIND:
            await self._desk.pen.update(found.path, found.entry_id, _without_expiry)
            return await self._desk.until_changed(found) or found
        written = await self._updates.locked(
            found,
            memory.Change(fields={"expires_at": ""}),
            expected=update.Expected(),
            reason=reason or "restored",
            run_id=run_id,
        )
        return written.row

    async def _put_back(self, owner: types.Owner, entry_id: str) -> store_row.EntryRow:
        """Write an entry that no file has any more as it was when it was deleted or archived."""
        told = await lifecycle.rows(
            self._desk.reader, owner, target=entry_id, actions=(*row.SNAPSHOTS, *row.TOMBSTONES), limit=100
        )
        if any(one.fields.get("action") in row.TOMBSTONES for one in told):
            raise errors.Conflict(FOR_GOOD)
        for one in told:
            text = dict(one.sections).get(row.BEFORE, "")
            kind = _kind_of(entry_id)
            if text and kind:
                made = entry_text.read(kind, entry_id, text)
                path = self._path(owner, one, made)
                if path is not None:
                    await self._desk.pen.put_back(owner, path, made)
                    return await self._desk.until_found(owner, entry_id, path)
        message = f"{owner.type} {owner.id} has no entry {entry_id}, and no snapshot of it"
        raise errors.NotFound(message)

    def _path(self, owner: types.Owner, told: entry.Entry, made: entry.Entry) -> types.RelPath | None:
        """Return where an entry is put back; None: nobody knows."""
        written = types.RelPath(told.fields.get("file", ""))
        place = layout.place(written) if written else None
        if place is not None and place.kind == made.kind and self._desk.places.owner_folder(owner) == _folder(written):
            return written
        numbered = types.ENTRY_ID.fullmatch(made.id)
        if made.kind == memory.KIND or numbered is None:
            return None
        digits = numbered["date"]
        return self._desk.places.path_for(owner, made.kind, f"{digits[:4]}-{digits[4:6]}-{digits[6:]}")

    def _status(self, found: store_row.EntryRow) -> str:
        is_over = found.expires_us is not None and found.expires_us <= self._desk.now_us()
        return "expired" if found.status == "active" and is_over else found.status


def _without_expiry(one: entry.Entry) -> entry.Entry:
    fields = {name: text for name, text in one.fields.items() if name != "expires_at"}
    return msgspec.structs.replace(one, fields=fields)


def _kind_of(entry_id: str) -> str:
    return {"mem": memory.KIND, "ep": "episode"}.get(entry_id.partition("_")[0], "")


def _folder(path: types.RelPath) -> str:
    return "/".join(path.split("/")[:4])
