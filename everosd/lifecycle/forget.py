"""A memory is forgotten: hidden until it is restored, or its text removed for good, wherever it went by id and lineage.

What is removed for good has a tombstone first, which has no content and is the commit: after a crash the next start goes on
from it, or the same request, and each step is one that can be done twice. The entry itself goes last, because the others are
found by it; a row says when all is done, and from then on nothing is removed again unasked: what is there then, a person put there.
"""

from __future__ import annotations

import contextlib
import functools
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal, cast

import msgspec
import structlog

from everosd import errors, types
from everosd.cascade import rebuild
from everosd.intake import unsay
from everosd.lifecycle import desk, memory, row, trace
from everosd.log import entry, entry_text, heal, job, layout, replacement
from everosd.store import lifecycle
from everosd.store import row as store_row

log = structlog.get_logger(__name__)

Mode = Literal["soft_delete", "redact", "hard_delete"]
_ForGood = Literal["redact", "hard_delete"]

OUT_OF_REACH = ("git", "backups", "editor files")
"""Where copies may be that everosd does not know of."""
REDACTED = "[redacted]"
LEDGER_WAIT_S = 60.0
SWEEP_S = 10.0
N_MOVES = 3
"""How often an entry that is to be gone is followed to another file."""
_LOOK_S = 0.02
_ROWS = 10
_WRITES = msgspec.msgpack.Decoder(heal.Write)


class Forgotten(msgspec.Struct, frozen=True, kw_only=True):
    """What became of it."""

    was: str
    """Status before."""
    status: str
    removed: Mapping[types.RelPath, tuple[str, ...]] = {}
    """File → ids of what is gone, or has lost its text."""
    made_of_it: tuple[str, ...] = ()
    """Public ids of what was made of it, and stays."""
    left: tuple[str, ...] = ()
    """What could not be taken out, or is somebody else's, each with the reason."""


class Forgetting:
    """Forgets. Lives on the event loop."""

    def __init__(self, parts: desk.Desk, unsaying: Callable[[], unsay.Unsaying]) -> None:
        """Work with these parts; `unsaying` gives what takes messages out."""
        self._desk, self._unsaying = parts, unsaying

    async def hide(self, owner: types.Owner, entry_id: str, *, reason: str = "", run_id: str = "") -> Forgotten:
        """Have a memory or an Episode found by nobody until it is restored; its text stays, and a snapshot goes to the log.

        Raises:
            NotFound: the owner has no such entry.
            WriteRefused: nothing was written.
            StoreError: it is written, and the ledger does not take note.
        """
        async with self._desk.pen.in_turn(owner):
            await self._desk.caught_up(owner)
            found = await self._desk.reader.find(owner, entry_id)
            if found is None:
                raise _unknown(owner, entry_id)
            if found.status == "deleted":
                return Forgotten(was="deleted", status="deleted")
            record = await lifecycle.find(self._desk.reader, owner, entry_id)
            change = row.Status(
                action="delete",
                target=entry_id,
                base="active" if record is None else record.own_status,
                was=found.status,
                value="deleted",
                reason=reason,
                run_id=run_id,
                before=found.raw,
                file=found.path,
            )
            ids = await self._desk.log(owner, [row.status(change, self._desk.now())])
            self._desk.step("deleted")
            await self._desk.until_logged(owner, ids)
            now = await self._desk.reader.find(owner, entry_id) or found
            await self._desk.until_shown(now.lsn)
            return Forgotten(was=found.status, status=now.status)

    async def look(self, owner: types.Owner, entry_id: str) -> trace.Trace:
        """Return what would be removed for good.

        Raises:
            NotFound: the owner has no such entry, nor ever had one that was removed.
        """
        await self._desk.caught_up(owner)
        if await self._desk.reader.find(owner, entry_id) is None and not await self._tombstone(owner, entry_id):
            raise _unknown(owner, entry_id)
        return await trace.find(self._desk.reader, owner, entry_id, self._unsaying())

    async def remove(
        self,
        owner: types.Owner,
        entry_id: str,
        mode: _ForGood,
        *,
        reason: str = "",
        replacement_text: str = "",
        progress: rebuild.Progress = rebuild.silent,
    ) -> Forgotten:
        """Remove the text of a memory or an Episode for good, and with `hard_delete` the entry itself; all that it left, too.

        Raises:
            NotFound: the owner has no such entry, nor ever had one that was removed.
            WriteRefused: a file may not be rewritten; the same again goes on.
            StoreError: the ledger cannot be written; the same again goes on.
        """
        async with self._desk.pen.in_turn(owner):
            found = await self.look(owner, entry_id)
            before = await self._desk.reader.find(owner, entry_id)
            was = "gone" if before is None else before.status
            await self._bury(owner, entry_id, mode, reason, found, before, replacement_text)
            self._desk.step("buried")
            left = await self._finish(owner, entry_id, mode, found, replacement_text, progress)
            for _ in range(N_MOVES):
                now = await self._now(owner, entry_id)
                if now is None or now.path in found.entries:
                    break
                # Somebody took it to another file meanwhile.
                found = await self.look(owner, entry_id)
                left += await self._finish(owner, entry_id, mode, found, replacement_text, progress)
        now = await self._desk.reader.find(owner, entry_id)
        log.info("memory_removed", owner=owner.id, entry_id=entry_id, mode=mode, left=len(left))
        return Forgotten(
            was=was,
            status="deleted" if now is None else now.status,
            removed=_joined(found.entries, found.derived, found.rows, found.said.paths),
            made_of_it=(*found.made_of_it, *found.others),
            left=tuple(left),
        )

    async def _now(self, owner: types.Owner, entry_id: str) -> store_row.EntryRow | None:
        """Return an entry as it is on disk at this moment, in whatever file; None: there is none."""
        await self._desk.cascade.reconcile("removal")
        folder = types.RelPath(self._desk.places.owner_folder(owner))

        async def is_read() -> bool:
            return not self._desk.cascade.waits_below(folder)

        with contextlib.suppress(errors.StoreError):  # a file that cannot be read says nothing of it
            await self._desk.until(is_read, entry_id, ())
        return await self._desk.reader.find(owner, entry_id)

    async def recover(self) -> int:
        """Finish what an earlier process has begun to remove; return how many that were.

        Raises:
            Exception: what one of them failed with, once the others had their turn; it is tried again by the next start.
        """
        await self._desk.caught_up()
        failed: Exception | None = None
        n_finished = 0
        for owner, told in await lifecycle.unremoved(self._desk.reader):
            mode, target = cast("_ForGood", told.fields["action"]), told.fields["target"]
            try:
                async with self._desk.pen.in_turn(owner):
                    if not any(each == (owner, told) for each in await lifecycle.unremoved(self._desk.reader)):
                        continue  # somebody asked for the same meanwhile, or for more
                    found = await self.look(owner, target)
                    await self._finish(owner, target, mode, found, row.replacement(told), rebuild.silent)
            except Exception as error:  # noqa: BLE001  # the others go on
                log.warning("memory_not_removed", owner=owner.id, entry_id=target, reason=errors.describe(error))
                failed = failed or error
            else:
                log.info("memory_removed", owner=owner.id, entry_id=target, mode=mode)
                n_finished += 1
        if failed is not None:
            raise failed
        return n_finished

    # -- the steps -------------------------------------------------------------------------------------------------

    async def _finish(
        self,
        owner: types.Owner,
        entry_id: str,
        mode: _ForGood,
        found: trace.Trace,
        replacement_text: str,
        progress: rebuild.Progress,
    ) -> list[str]:
        """Do what a tombstone says, and say so; return what is left, and why."""
        left = await self._take_out(entry_id, mode, found, replacement_text)
        await self._scrub(owner, {*found.ids, entry_id}, (*found.entries, *found.derived))
        await self._derive_anew(left, progress)
        told = await lifecycle.rows(self._desk.reader, owner, target=entry_id, actions=(row.REMOVED,), limit=_ROWS)
        if not any(one.fields.get("value") == mode for one in told):
            done = row.removed(mode, entry_id, at=self._desk.now())
            await self._desk.until_logged(owner, await self._desk.log(owner, [done]))
        return left

    async def _tombstone(self, owner: types.Owner, entry_id: str, mode: str | None = None) -> bool:
        actions = row.TOMBSTONES if mode is None else (mode,)
        return bool(await lifecycle.rows(self._desk.reader, owner, target=entry_id, actions=actions, limit=1))

    async def _bury(
        self,
        owner: types.Owner,
        entry_id: str,
        mode: str,
        reason: str,
        found: trace.Trace,
        before: store_row.EntryRow | None,
        replacement_text: str,
    ) -> None:
        """Write the tombstone, once; what is to go altogether is hidden by the same write."""
        if await self._tombstone(owner, entry_id, mode):
            return
        at = self._desk.now()
        drafts = [
            row.tombstone(
                mode,
                entry_id,
                at=at,
                reason=reason,
                message_ids=found.said.message_ids,
                replacement=replacement_text if mode == "redact" else "",
            )
        ]
        if mode == "hard_delete" and before is not None:
            record = await lifecycle.find(self._desk.reader, owner, entry_id)
            base = "active" if record is None else record.own_status
            change = row.Status(action="delete", target=entry_id, base=base, was=before.status, value="deleted")
            drafts.insert(0, row.status(change, at))
        await self._desk.until_logged(owner, await self._desk.log(owner, drafts))

    async def _take_out(self, entry_id: str, mode: str, found: trace.Trace, replacement_text: str) -> list[str]:
        """Take the text out of every file, the entry itself last; return what is left, and why."""
        left = list(found.said.illegible)
        if found.said.others:
            left.append(f"{len(found.said.others)} messages of {found.segment}, which others sent or share")
        bare = functools.partial(_bare_rows, found.ids | {entry_id}, mode=mode)
        of_entry = (
            functools.partial(_without, frozenset((entry_id,)))
            if mode == "hard_delete"
            else functools.partial(_redacted, entry_id, replacement_text or REDACTED)
        )
        known = await self._digests(found, bare, of_entry)
        paths = {*found.entries, *found.derived, *found.rows, *found.said.paths}
        with self._desk.cascade.erasing(paths):
            if found.session is not None:
                await self._unsaying().unsay(
                    found.session, found.segment, lambda one: one.fields.get("message_id") in found.said.message_ids
                )
                self._desk.step("unsaid")
            for path in found.rows:
                await self._desk.pen.expunge(path, bare)
            self._desk.step("versions_removed")
            for path, ids in found.derived.items():
                await self._desk.pen.expunge(path, functools.partial(_without, frozenset(ids)))
            self._desk.step("facts_removed")
            for path in found.entries:
                await self._desk.pen.expunge(path, of_entry)
            self._desk.step("entry_removed")
            await self._until_unknown(paths, known)
        # Another file may have had it a moment ago: before it was moved, or with an older version of it.
        await self._desk.pen.let_go()
        return left + await self._copies(entry_id, found, mode)

    async def _copies(self, entry_id: str, found: trace.Trace, mode: str) -> list[str]:
        """Return second entries of the id in a file: they can be removed, and not be told apart to be rewritten."""
        if mode == "hard_delete":
            return []

        def copied(connection: sqlite3.Connection) -> list[str]:
            one = "SELECT line FROM entries WHERE path = ? AND entry_id = ? AND nth > 0"
            return [
                f"{path}:{line}: a second entry {entry_id}"
                for path in found.entries
                for (line,) in connection.execute(one, (path, entry_id))
            ]

        return await self._desk.cascade.database.write(copied)

    async def _digests(
        self, found: trace.Trace, bare: job.Expunging, of_entry: job.Expunging
    ) -> list[tuple[str, str, bytes]]:
        """Return file, id and digest of all that the ledger has of it and that is to go, as it is before anything is removed."""
        always = [
            (path, each) for some in (found.derived, found.said.paths) for path, ids in some.items() for each in ids
        ]
        perhaps = [
            (path, each, change)
            for some, change in ((found.entries, of_entry), (found.rows, bare))
            for path, ids in some.items()
            for each in ids
        ]

        def known(connection: sqlite3.Connection) -> list[tuple[str, str, bytes]]:
            one = "SELECT digest, kind, raw, form, nth FROM entries WHERE path = ? AND entry_id = ?"
            held = [
                (path, each, digest) for path, each in always for digest, *_ in connection.execute(one, (path, each))
            ]
            return held + [
                (path, each, digest)
                for path, each, change in perhaps
                for digest, kind, raw, form, nth in connection.execute(one, (path, each))
                if change([entry_text.read(kind, each, raw, form=form, nth=nth)])
            ]

        return await self._desk.cascade.database.write(known)

    async def _until_unknown(self, paths: Collection[types.RelPath], known: Sequence[tuple[str, str, bytes]]) -> None:
        """Wait until the ledger has nothing any more of what was taken out.

        Raises:
            StoreError: it has, after a long time.
        """
        one = "SELECT 1 FROM entries WHERE path = ? AND entry_id = ? AND digest = ?"

        def is_clear(connection: sqlite3.Connection) -> bool:
            return not any(connection.execute(one, each).fetchone() for each in known)

        until_s = self._desk.clock.monotonic_s() + LEDGER_WAIT_S
        while not (
            await self._desk.cascade.notice(paths, LEDGER_WAIT_S) and await self._desk.cascade.database.write(is_clear)
        ):
            if self._desk.clock.monotonic_s() > until_s:
                message = "the ledger does not take note of what was removed"
                raise errors.StoreError(message)
            await self._desk.clock.sleep(_LOOK_S)

    async def _scrub(self, owner: types.Owner, ids: Collection[str], paths: Collection[types.RelPath]) -> None:
        """Strike the texts from the record of everosd's own writes, by which stale saves are healed."""
        folder = f"{self._desk.places.owner_folder(owner)}/"
        await self._desk.cascade.database.write(
            functools.partial(_strike, folder=folder, paths=paths, ids=frozenset(ids))
        )
        self._desk.step("scrubbed")

    async def _derive_anew(self, left: list[str], progress: rebuild.Progress) -> None:
        """Make every index anew, and the ledger's file: a row that was deleted is still in their files."""
        cascade = self._desk.cascade
        await rebuild.refill(cascade, progress)
        for projection in cascade.projections:
            until_s = self._desk.clock.monotonic_s() + SWEEP_S
            while not await projection.sweep():
                if self._desk.clock.monotonic_s() > until_s:
                    left.append(f".index/{projection.name}: files that nobody reads any more cannot be deleted")
                    break
                await self._desk.clock.sleep(_LOOK_S)
        await cascade.database.compact()
        self._desk.step("derived_anew")


def _unknown(owner: types.Owner, entry_id: str) -> errors.NotFound:
    return errors.NotFound(f"{owner.type} {owner.id} has no entry {entry_id}")


def _joined(*found: Mapping[types.RelPath, tuple[str, ...]]) -> dict[types.RelPath, tuple[str, ...]]:
    paths = dict.fromkeys(path for each in found for path in each)
    return {path: tuple(one for each in found for one in each.get(path, ())) for path in paths}


def _without(ids: frozenset[str], entries: Sequence[entry.Entry]) -> dict[str, entry.Entry | None]:
    return {one.id: None for one in entries if one.id in ids}


def _redacted(entry_id: str, text: str, entries: Sequence[entry.Entry]) -> dict[str, entry.Entry | None]:
    changed: dict[str, entry.Entry | None] = {}
    for one in entries:
        if one.id == entry_id and one.nth == 0:
            new = memory.redacted(one, text)
            if replacement.raw(new) != one.raw:
                changed[one.id] = new
    return changed


def _bare_rows(targets: frozenset[str], entries: Sequence[entry.Entry], *, mode: str) -> dict[str, entry.Entry | None]:
    """Take the texts out of rows about an entry; where it goes altogether, the rows, too, but for its tombstones."""
    changed: dict[str, entry.Entry | None] = {}
    for one in entries:
        if one.fields.get("target") not in targets or one.fields.get("action") in (row.REMOVED, row.MADE):
            continue
        if one.fields.get("action") in row.TOMBSTONES:
            if mode == "hard_delete" and one.sections:  # what stood in the place of the text goes with it
                changed[one.id] = msgspec.structs.replace(one, preamble="", sections=(), raw="", digest=b"")
        elif mode == "hard_delete" or one.fields.get("action") == "conflict":
            changed[one.id] = None
        elif one.sections or one.fields.get("reason"):
            fields = {name: text for name, text in one.fields.items() if name != "reason"}
            changed[one.id] = msgspec.structs.replace(one, fields=fields, preamble="", sections=(), raw="", digest=b"")
    return changed


def _strike(connection: sqlite3.Connection, *, folder: str, paths: Collection[str], ids: frozenset[str]) -> None:
    """Take entries out of what is recorded of writes to an owner's files."""
    rows = connection.execute(
        "SELECT id, path, change FROM writes WHERE substr(path, 1, ?) = ?", (len(folder), folder)
    ).fetchall()
    for number, path, packed in rows:
        write = _WRITES.decode(packed)
        place = layout.place(path)
        if path not in paths and (place is None or place.kind not in ("memory", "episode", "atomic_fact", "foresight")):
            continue
        kept = msgspec.structs.replace(
            write,
            added={key: text for key, text in write.added.items() if key not in ids},
            updated={key: each for key, each in write.updated.items() if key not in ids},
            removed={key: text for key, text in write.removed.items() if key not in ids},
        )
        if kept != write:
            connection.execute("UPDATE writes SET change = ? WHERE id = ?", (msgspec.msgpack.encode(kept), number))
