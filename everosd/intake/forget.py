"""A whole owner is forgotten: their files, their messages, and every trace of both in what is derived.

Each step is done for good before the next begins, and what is done twice changes nothing: whoever asks again after a
crash has the rest of it done.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import shutil
import sqlite3
from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec
import structlog

from everosd import clock, errors, types
from everosd.cascade import apply, rebuild
from everosd.engine import engine as engines
from everosd.intake import extraction, line, theirs
from everosd.log import kind
from everosd.store import meta, owned

log = structlog.get_logger(__name__)

MAX_NAMED = 200
"""Entries of others that are named; the rest is counted."""
LEDGER_WAIT_S = 60.0
"""How long the ledger may take to notice what is gone."""
_LOOK_S = 0.02
_PENDING = "forget "
"""Begins the key of a fact in `meta`: an owner of whom something may be left."""
_PATHS = msgspec.json.Decoder(list[types.RelPath])
_SET_ASIDE = "*.damaged-*"

OUT_OF_REACH = (
    "backups, other machines that the folder is synced with, and editors that still have one of the files open"
)


class Forgotten(msgspec.Struct, frozen=True, kw_only=True):
    """What is gone, and what is not."""

    owner_id: str
    files: int
    """Of the owner's folder."""
    entries: int
    """Memories of the owner, as the ledger knew them; rows of logs are not counted."""
    messages: int
    """Of the owner, in sessions."""
    sessions: int
    """Of which messages were taken out."""
    sessions_removed: int
    """Of these: nothing was left of them."""
    quoted: int
    """Entries of others that tell of the owner; they stay."""
    quoted_in: tuple[str, ...]
    """Their public ids, up to `MAX_NAMED`."""
    left: tuple[str, ...] = ()
    """What could not be taken out, each with its reason: correct it and ask again."""
    out_of_reach: tuple[str, ...] = ()
    """Where copies may be that everosd does not know of."""


class Forget:
    """Does it. Lives on the event loop."""

    def __init__(
        self,
        cascade: apply.Cascade,
        time: clock.Clock,
        *,
        lines: line.Lines | None = None,
        work: extraction.Extraction | None = None,
        engine: engines.Engine | None = None,
    ) -> None:
        """Work on the root of `cascade`; the others are given where messages are being extracted meanwhile."""
        self._cascade, self._pen, self._database = cascade, cascade.writer, cascade.database
        self._places = cascade.writer.layout
        self._clock = time
        self._lines = line.Lines(self._places, self._pen, time) if lines is None else lines
        self._work, self._engine = work, engine

    async def require(self, owner: types.Owner) -> None:
        """Make sure that there is something to forget.

        Raises:
            errors.NotFound: There is nothing of such an owner; nobody is taken for somebody of a similar name.
        """
        if await self._database.write(lambda connection: _is_known(connection, owner)):
            return
        sender = theirs.Sender(owner, by_role=False)
        has_any = await asyncio.to_thread(
            lambda: bool(theirs.folders(self._places, owner)) or any(True for _ in self._talks(sender))
        )
        if not has_any:
            message = f"there is no {owner.type} {owner.id} in app {owner.app}, project {owner.project}"
            raise errors.NotFound(message)

    async def forget(self, owner: types.Owner, progress: rebuild.Progress = rebuild.silent) -> Forgotten:
        """Forget an owner.

        Raises:
            errors.WriteRefused: A file cannot be deleted; ask again once it can.
            errors.StoreError: The ledger cannot be written; ask again once it can.
        """
        begun = await self._database.write(lambda connection: _begin(connection, owner, ()))
        while self._cascade.phase() != "ready":  # noqa: ASYNC110  # decided by several parts, none of them alone
            await asyncio.sleep(_LOOK_S)
        known = await self._database.write(lambda connection: _known(connection, owner))
        folders, files = await asyncio.to_thread(self._on_disk, owner, known.paths)
        sender = theirs.Sender(owner, by_role=known.has_namesake)
        talks = await asyncio.to_thread(lambda: list(self._talks(sender)))
        told = {*begun, *(path for talk in talks for path in talk.paths)}
        await self._database.write(lambda connection: _begin(connection, owner, told))
        paths = {*known.paths, *files, *told}
        done = _Done()
        with self._cascade.erasing(paths, folders):
            async with self._pen.erasing(folders):
                await self._stop(owner)
                for n, talk in enumerate(talks):
                    progress("sessions", n, len(talks))
                    await self._take_out(sender, talk, done)
                progress("files", 0, len(files))
                for folder in folders:
                    await self._pen.erase(folder)
                await self._ledger_without({*paths, *done.rows}, folders, done)
                await self._stop(owner)  # of what came in between
        await self._database.write(lambda connection: _strike(connection, owner, folders, paths))
        await rebuild.refill(self._cascade, progress)
        progress("ledger", 0, 1)
        await self._sweep_generations(done)
        await asyncio.to_thread(self._sweep_index)
        # Only when nothing is left of the rest: whoever is cut off before that, or refused, may ask again.
        await self._database.compact(lambda connection: meta.put(connection, _pending(owner), None))
        log.info("owner_forgotten", files=len(files), messages=done.n_messages, left=len(done.left))
        return Forgotten(
            owner_id=owner.id,
            files=len(files),
            entries=known.n_entries,
            messages=done.n_messages,
            sessions=done.n_sessions,
            sessions_removed=done.n_removed,
            quoted=len(known.quoted),
            quoted_in=known.quoted[:MAX_NAMED],
            left=tuple(done.left),
            out_of_reach=(*await asyncio.to_thread(self._copies), OUT_OF_REACH),
        )

    def _talks(self, sender: theirs.Sender) -> Iterator[theirs.Talk]:
        return theirs.talks(self._places, sender)

    def _on_disk(
        self, owner: types.Owner, known: Collection[types.RelPath]
    ) -> tuple[list[types.RelPath], list[types.RelPath]]:
        """Return the owner's folders and what is in them. Blocks."""
        usual = self._places.owner_folder(owner)
        n_parts = usual.count("/") + 1
        of_known = (types.RelPath("/".join(path.split("/")[:n_parts])) for path in known)
        folders = list(dict.fromkeys((usual, *theirs.folders(self._places, owner), *of_known)))
        return folders, [path for folder in folders for path in theirs.files(self._places, folder)]

    async def _stop(self, owner: types.Owner) -> None:
        """End what is being made of the owner's memory."""
        if self._engine is not None:
            await self._engine.forget(owner)
        if self._work is not None:
            self._work.forget(owner)

    # -- sessions --------------------------------------------------------------------------------------------------

    async def _take_out(self, sender: theirs.Sender, seen: theirs.Talk, done: _Done) -> None:
        """Take the owner's messages out of one session; whoever adds to it meanwhile waits for that."""
        here = self._lines.of(seen.session)
        async with here.lock:
            if self._work is not None:
                await self._work.halt(here)
            read = functools.partial(theirs.talk, self._places, sender, seen.folder, is_whole=True)
            talk = await asyncio.to_thread(read)
            if talk is not None:
                await self._take_out_of(sender, talk, done)
                left = await asyncio.to_thread(read)
                if left is not None and not left.n_messages and not left.illegible:
                    await self._remove(left, done)
                elif left is not None:
                    done.left += left.illegible
                    done.left += [
                        f"{path}: names the owner, and is no log of the session"
                        for path in await asyncio.to_thread(theirs.strays, self._places, sender, left)
                    ]
                    if left.n_sent and not left.illegible:
                        done.left.append(f"{left.folder}: {left.n_sent} messages could not be taken out")
            with contextlib.suppress(errors.LogError):  # said above
                await here.renew()
        if self._work is not None:
            self._work.start(here)

    async def _take_out_of(self, sender: theirs.Sender, talk: theirs.Talk, done: _Done) -> None:
        change = sender.taken_out(talk)
        for path in talk.paths if talk.n_sent else ():
            try:
                done.rows[path] = frozenset(await self._pen.expunge(path, change))
            except errors.WriteRefused as error:
                done.left.append(str(error))
        done.n_messages += talk.n_sent
        done.n_sessions += bool(talk.n_sent)

    async def _remove(self, talk: theirs.Talk, done: _Done) -> None:
        """Remove a session of which nothing is left, with copies of its log that others have made."""
        async with self._pen.erasing((talk.folder,)):
            await self._pen.erase(talk.folder)
        done.n_removed += 1

    # -- what is derived -------------------------------------------------------------------------------------------

    async def _ledger_without(
        self, paths: Collection[types.RelPath], folders: Collection[types.RelPath], done: _Done
    ) -> None:
        """Wait until the ledger has nothing of what is gone from the disk, nor will have of what was read before it went.

        By the folders, too: until the writer stopped a strategy may have begun a file that nobody has listed.

        Raises:
            errors.StoreError: It has, after a long time.
        """
        until_s = self._clock.monotonic_s() + LEDGER_WAIT_S
        is_clear = await self._cascade.notice(paths, LEDGER_WAIT_S, folders)
        while not (is_clear and await self._database.write(functools.partial(_is_clear, rows=done.rows))):
            if self._clock.monotonic_s() > until_s:
                message = "the ledger does not take note of what was deleted"
                raise errors.StoreError(message)
            await self._clock.sleep(_LOOK_S)

    async def _sweep_generations(self, done: _Done) -> None:
        """Have the files deleted of which the indexes have just been taken: they are closed, and written to, a little longer."""
        until_s = self._clock.monotonic_s() + LEDGER_WAIT_S
        for projection in self._cascade.projections:
            while not await projection.sweep():
                if self._clock.monotonic_s() > until_s:
                    done.left.append(f".index/{projection.name}: files that nobody reads any more cannot be deleted")
                    break
                await self._clock.sleep(_LOOK_S)

    def _sweep_index(self) -> None:
        """Delete derived files that nobody reads any more. Blocks."""
        index = self._places.root / ".index"
        names = {projection.name for projection in self._cascade.projections}
        for folder in (index / "text", index / "vectors"):
            if folder.name not in names:
                shutil.rmtree(folder, ignore_errors=True)
            for damaged in folder.glob(_SET_ASIDE):
                shutil.rmtree(damaged, ignore_errors=True)
        for damaged in self._damaged_ledgers()[1:]:
            for suffix in ("", "-wal", "-shm"):
                damaged.with_name(damaged.name + suffix).unlink(missing_ok=True)

    def _damaged_ledgers(self) -> list[Path]:
        """Return ledgers that were set aside; the first may be one of EverOS, and is nobody's to delete."""
        found = [
            path for path in (self._places.root / ".index").glob("sqlite/*.damaged-*") if path.suffix[-1].isdigit()
        ]
        return sorted(found, key=lambda path: int(path.name.rpartition("-")[2]))

    def _copies(self) -> list[str]:
        """Return what in or around the root may hold copies. Blocks."""
        root = self._places.root
        found = [f"the history of the git repository {at}" for at in (root, *root.parents) if (at / ".git").exists()]
        found += [f"{path}, which was set aside" for path in self._damaged_ledgers()[:1]]
        found += [f"{path}, which was set aside" for path in sorted(root.glob(".index?*"))]
        return found


class _Done:
    """What has been done so far."""

    def __init__(self) -> None:
        self.rows: dict[types.RelPath, frozenset[str]] = {}
        """Taken out, by file."""
        self.n_messages = 0
        self.n_sessions = 0
        self.n_removed = 0
        self.left: list[str] = []


class _Known(msgspec.Struct, frozen=True, kw_only=True):
    """What the ledger knows of an owner."""

    paths: tuple[types.RelPath, ...]
    n_entries: int
    has_namesake: bool
    """There is an agent of the name of this user, or a user of the name of this agent."""
    quoted: tuple[str, ...]
    """Public ids of others' entries that tell of them."""


def _begin(connection: sqlite3.Connection, owner: types.Owner, paths: Collection[types.RelPath]) -> list[types.RelPath]:
    """Note that an owner is being forgotten, and the session logs that tell of them; return those that were noted before.

    Once such a log is gone from the disk, nothing there says any more that the ledger has still to be told.
    """
    before = meta.get(connection, _pending(owner))
    found = _PATHS.decode(before) if before and before.startswith("[") else []
    meta.put(connection, _pending(owner), msgspec.json.encode(sorted({*found, *paths})).decode())
    return found


def _pending(owner: types.Owner) -> str:
    return _PENDING + msgspec.json.encode(owned.scope(owner)).decode()


_OF_OWNER = owned.by()


def _is_known(connection: sqlite3.Connection, owner: types.Owner) -> bool:
    if meta.get(connection, _pending(owner)) is not None:
        return True
    found = connection.execute(f"SELECT 1 FROM files WHERE {_OF_OWNER} LIMIT 1", owned.scope(owner))  # noqa: S608
    return found.fetchone() is not None


def _known(connection: sqlite3.Connection, owner: types.Owner) -> _Known:
    scope = owned.scope(owner)
    other = "agent" if owner.type == "user" else "user"
    paths = connection.execute(f"SELECT path FROM files WHERE {_OF_OWNER} ORDER BY path", scope)  # noqa: S608
    namesake = connection.execute(
        f"SELECT 1 FROM files WHERE {_OF_OWNER} LIMIT 1",  # noqa: S608
        (owner.app, owner.project, other, owner.id),
    ).fetchone()
    quoted = connection.execute(
        "SELECT owner_id, entry_id FROM entries WHERE app = ? AND project = ? AND owner_type <> 'session' AND is_shadowed = 0"
        " AND NOT (owner_type = ? AND owner_id = ?) AND sender_ids <> '[]'"
        " AND EXISTS (SELECT 1 FROM json_each(sender_ids) WHERE value = ?) ORDER BY owner_id, entry_id",
        (*scope, owner.id),
    )
    return _Known(
        paths=tuple(types.RelPath(path) for (path,) in paths),
        n_entries=connection.execute(
            f"SELECT count(*) FROM entries WHERE {_OF_OWNER} AND kind NOT IN (SELECT value FROM json_each(?))",  # noqa: S608
            (*scope, msgspec.json.encode(sorted(kind.ROWS)).decode()),
        ).fetchone()[0],
        has_namesake=namesake is not None,
        quoted=tuple(types.public_id(*one) for one in quoted),
    )


def _is_clear(connection: sqlite3.Connection, rows: dict[types.RelPath, frozenset[str]]) -> bool:
    """Return whether nothing is known of rows that were taken out."""
    one = "SELECT 1 FROM entries WHERE path = ? AND entry_id = ?"
    return not any(connection.execute(one, (path, each)).fetchone() for path, ids in rows.items() for each in ids)


def _strike(
    connection: sqlite3.Connection, owner: types.Owner, folders: Collection[str], paths: Collection[str]
) -> None:
    """Strike what was written and run for an owner from the records; the numbers that were given to entries stay given."""
    connection.executemany("DELETE FROM writes WHERE path = ?", [(path,) for path in paths])
    for folder in folders:
        connection.execute("DELETE FROM writes WHERE substr(path, 1, ?) = ?", (len(folder) + 1, f"{folder}/"))
    connection.execute(f"DELETE FROM runs WHERE {_OF_OWNER}", owned.scope(owner))  # noqa: S608
