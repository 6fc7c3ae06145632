"""A memory is changed: the version before it is in the log first, then the entry is replaced as it stands in its file.

Whoever changed it meanwhile, by hand or otherwise, has their text kept: it becomes the version that ends. A request that
names the version or the text that it was made on is refused where there is another.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Literal

import msgspec

from everosd import errors, types
from everosd.lifecycle import desk, memory, moved, row, versions
from everosd.log import entry, layout
from everosd.store import lifecycle
from everosd.store import memory as fields_of
from everosd.store import row as store_row

N_TRIES = 20
"""How often somebody may save while the version before is being written."""

Outcome = Literal["created", "updated", "unchanged", "duplicate"]


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """What a memory has to be for a change to be made."""

    version: int | None = None
    """None: any."""
    digest: str | None = None
    """Of its text, 32 hex; None: any."""


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a request to write."""

    outcome: Outcome
    row: store_row.EntryRow
    """As the ledger has it afterwards."""
    version: int
    digest: str


class _Step(msgspec.Struct, frozen=True, kw_only=True):
    """A change worked out on the entry as it stood."""

    old: entry.Entry
    new: entry.Entry
    number: int
    """Of the version of `old`."""


class Updates:
    """Changes memories. Lives on the event loop."""

    def __init__(self, parts: desk.Desk) -> None:
        """Work with these parts."""
        self._desk = parts

    async def update(
        self,
        owner: types.Owner,
        entry_id: str,
        change: memory.Change,
        *,
        path: str | None = None,
        expected: Expected | None = None,
        action: str = "update",
        reason: str = "",
        run_id: str = "",
    ) -> Written:
        """Change a typed memory of an owner.

        Args:
            owner: Whose.
            entry_id: Which.
            change: What is to be another.
            path: Category that it is to be under; None: stays.
            expected: What it has to be at that moment.
            action: `update`, or `pin` where nothing else is changed.
            reason: Why; goes to the log.
            run_id: Of the call, where it is one of several.

        Raises:
            NotFound: the owner has no such memory.
            Conflict: it is not as expected, its text is gone for good, or another one has its key.
            WriteRefused: its file may not be rewritten.
            StoreError: it is written, and the ledger does not take note.
        """
        if path is not None:
            path = memory.check_path(path)
        async with self._desk.pen.in_turn(owner):
            await self._desk.caught_up(owner)
            found = await self._found(owner, entry_id)
            await self._require_free_key(found, change)
            return await self.locked(
                found,
                change,
                path=path,
                expected=expected or Expected(),
                action=action,
                reason=reason,
                run_id=run_id,
            )

    async def _found(self, owner: types.Owner, entry_id: str) -> store_row.EntryRow:
        found = await self._desk.reader.find(owner, entry_id)
        if found is None or found.kind != memory.KIND:
            message = f"{owner.type} {owner.id} has no memory {entry_id}"
            raise errors.NotFound(message)
        record = await lifecycle.find(self._desk.reader, owner, entry_id)
        if record is not None and record.is_redacted:
            message = f"the text of {entry_id} was redacted: it is not changed any more"
            raise errors.Conflict(message, hint="remember what is to be known instead")
        return found

    async def _require_free_key(self, found: store_row.EntryRow, change: memory.Change) -> None:
        """Make sure that no other active memory has the key that this one is to have."""
        key = change.fields.get("semantic_key", "")
        if not key:
            return
        seen = memory.seen_of(memory.of_row(found))
        other = await lifecycle.by_semantic_key(
            self._desk.reader, found.owner, key, bucket=seen.bucket, scope=seen.scope, team_id=seen.team_id
        )
        require_same(other, found.entry_id, key)

    async def locked(
        self,
        found: store_row.EntryRow,
        change: memory.Change,
        *,
        path: str | None = None,
        expected: Expected,
        action: str = "update",
        reason: str = "",
        run_id: str = "",
    ) -> Written:
        """Do the same within the owner's turn, with the entry as the ledger has it."""
        at = self._desk.now()
        if await moved.finish(self._desk, found.owner, found.entry_id):
            found = await self._desk.reader.find(found.owner, found.entry_id) or found
        target = self._moved(found, path)
        for _ in range(N_TRIES):
            step = await self._worked_out(found, change, expected, at)
            if step.new is step.old and target == found.path:
                return await self._unchanged(found, step)
            step = self._step_for_move(step, at)
            digest = memory.digest_of(step.new)
            ids = await self._desk.log(
                found.owner,
                [
                    row.version(
                        action,
                        found.entry_id,
                        number=step.number,
                        digest=digest,
                        before=step.old.raw,
                        at=at,
                        importance=(fields_of.importance(step.old.fields), fields_of.importance(step.new.fields)),
                        reason=reason,
                        run_id=run_id,
                    )
                ],
            )
            self._desk.step("version_written")
            with self._desk.cascade.erasing(() if target == found.path else (found.path,)):
                if not await self._replaced(found, step, target):
                    continue
                self._desk.step("replaced")
                now = await self._known(found, step, target, digest)
                await self._desk.until_logged(found.owner, ids)
            return Written(outcome="updated", row=now, version=step.number + 1, digest=digest)
        raise errors.WriteRefused(found.path, "somebody else keeps changing it", hint="close what writes to it")

    async def _worked_out(
        self, found: store_row.EntryRow, change: memory.Change, expected: Expected, at: dt.datetime
    ) -> _Step:
        """Return the change of the entry as it stands in its file."""
        old = await self._in_file(found, lambda one: one)
        if not old.raw:  # somebody else's change is in the same write; the next look has it
            old = await self._in_file(found, lambda one: one)
        number = await versions.number(self._desk.reader, found.owner, old)
        if expected.version not in (None, number):
            message = f"{found.entry_id} is at version {number}, not {expected.version}"
            raise errors.Conflict(message, hint="read it again, then decide")
        if expected.digest not in (None, memory.digest_of(old)):
            message = (
                f"{found.entry_id} says something else than what the request was made on (it is at version {number})"
            )
            raise errors.Conflict(message, hint="read it again, then decide")
        return _Step(old=old, new=memory.changed(old, change, number + 1, row.stamp(at)), number=number)

    async def _in_file(self, found: store_row.EntryRow, change: Callable[[entry.Entry], entry.Entry]) -> entry.Entry:
        """Change an entry in its file.

        Raises:
            Conflict: it is not in that file any more, and the ledger will soon know where it is.
        """
        try:
            return await self._desk.pen.update(found.path, found.entry_id, change)
        except errors.NotFound as error:
            self._desk.cascade.mark((found.path,))
            message = f"{found.entry_id} was taken out of {found.path} a moment ago"
            raise errors.Conflict(message, hint="send the same again in a moment") from error

    def _step_for_move(self, step: _Step, at: dt.datetime) -> _Step:
        """Return the step where nothing but the path is another: that is a version, too."""
        if step.new is not step.old:
            return step
        fields = step.old.fields | {"updated_at": row.stamp(at), "version": str(step.number + 1)}
        new = msgspec.structs.replace(step.old, fields=fields, raw="", digest=b"")
        return msgspec.structs.replace(step, new=new)

    def _moved(self, found: store_row.EntryRow, path: str | None) -> types.RelPath:
        """Return the file that the entry is to stand in."""
        if path is None or path == found.memory_path:
            return found.path
        place = layout.place(found.path)
        numbered = types.ENTRY_ID.fullmatch(found.entry_id)
        digits = "" if numbered is None else numbered["date"]
        day = f"{digits[:4]}-{digits[4:6]}-{digits[6:]}" if digits else None
        memory_type = found.memory_type if place is None else place.memory_type or found.memory_type
        return self._desk.places.path_for(found.owner, memory.KIND, day, memory_type=memory_type, memory_path=path)

    async def _replaced(self, found: store_row.EntryRow, step: _Step, target: types.RelPath) -> bool:
        """Write the new text; False where the entry is not as it was any more."""
        is_same = False

        def change(now: entry.Entry) -> entry.Entry:
            nonlocal is_same
            is_same = now.raw == step.old.raw
            return step.new if is_same else now

        if target == found.path:
            await self._in_file(found, change)
            return is_same
        # In both files for a moment: nobody finds it in none.
        if not await self._desk.pen.put_back(found.owner, target, step.new):
            await self._put_over(found, step, target)
        self._desk.step("put_down")
        if await self._desk.pen.take(found.path, found.entry_id, lambda now: now.raw == step.old.raw):
            return True
        # Somebody changed it, moved it or took it out meanwhile: until that has been looked at it stands where it stood.
        digest = memory.digest_of(step.new)
        await self._desk.pen.take(target, found.entry_id, lambda now: memory.digest_of(now) == digest)
        return False

    async def _put_over(self, found: store_row.EntryRow, step: _Step, target: types.RelPath) -> None:
        """Write the new text over a second copy of the entry; what a person made of that is in the log first."""
        self._desk.step("second_found")
        kept = {step.old.raw}
        seen, is_put = "", False

        def change(now: entry.Entry) -> entry.Entry:
            nonlocal seen, is_put
            seen, is_put = now.raw, now.raw in kept
            return step.new if is_put else now

        for _ in range(N_TRIES):
            try:
                await self._desk.pen.update(target, found.entry_id, change)
            except errors.NotFound:  # somebody has taken the copy out meanwhile
                is_put = await self._desk.pen.put_back(found.owner, target, step.new)
            if is_put:
                return
            if seen:
                told = row.conflict(found.entry_id, seen, self._desk.now())
                await self._desk.until_logged(found.owner, await self._desk.log(found.owner, [told]))
                kept.add(seen)
        raise errors.WriteRefused(target, "somebody else keeps changing it", hint="close what writes to it")

    async def _known(
        self, found: store_row.EntryRow, step: _Step, target: types.RelPath, digest: str
    ) -> store_row.EntryRow:
        """Return the entry once the ledger has what was written, or what somebody made of it since.

        What a person saved just before, and the change was made on, may be read first: that is not it.
        """
        latest = found

        async def is_known() -> bool:
            nonlocal latest
            now = await self._desk.reader.find(found.owner, found.entry_id)
            if now is None:
                return False
            if target != found.path and not await moved.is_gone(self._desk, found.path, found.entry_id, step.old.raw):
                return False
            latest = now  # wherever it is: a person may have renamed its file since
            is_as_written = memory.digest_of_text(now.kind, now.entry_id, now.raw) == digest
            is_another = now.raw != step.old.raw and (now.lsn > found.lsn or now.key != found.key)
            return is_as_written or is_another

        await self._desk.until(is_known, found.entry_id, {found.path, target})
        return latest

    async def _unchanged(self, found: store_row.EntryRow, step: _Step) -> Written:
        return Written(
            outcome="unchanged",
            row=await self._desk.reader.find(found.owner, found.entry_id) or found,
            version=step.number,
            digest=memory.digest_of(step.old),
        )


def require_same(other: lifecycle.Record | None, entry_id: str, key: str) -> None:
    """Make sure that the memory under a key is this one, or none.

    Raises:
        Conflict: it is another one.
    """
    if other is not None and other.entry_id != entry_id:
        message = f"{types.public_id(other.owner.id, other.entry_id)} is active under the semantic_key {key!r}"
        raise errors.Conflict(message, hint="update or forget that one, or use another key")
