"""The only code that writes Markdown.

Callers hand in what is to be written and wait until it is on disk. Each file has one worker, and what arrives while it is
busy is written together: many appends, one replacement. Files that people edit are rewritten (`log.rewrite`), those that
only machines write are appended to (`log.rows`).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import zoneinfo
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import cast

import msgspec
import structlog

from everosd import clock as clocks
from everosd import errors, types
from everosd.log import context as contexts
from everosd.log import displaced, entry, file, growth, job, layout, numbering, parse, recent, rewrite, rows, stale
from everosd.log import heal as healing
from everosd.log import kind as kinds

log = structlog.get_logger()

_GIVE_UP_AFTER_S = 60.0
"""Whoever waits for a file that somebody changes all the time is told so."""
_DRAIN_S = 5.0
"""The same while stopping."""
_CONTENDED_AFTER_S = 3.0
"""A file that somebody changes faster than it can be replaced: new entries go to the next part, as with a broken one."""
_CONTENDED_FOR_S = 5.0
_LATE_PAUSE_S = 0.25
"""How often displaced files are looked at."""
_MAX_PART = 99
_N_IDLE_QUEUES = 1000
"""Files that nothing waits for and that something is remembered of."""
_ERASE_PAUSE_S = 0.005
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class Unmerged(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody's save that is not in the log yet. It is on disk, and tried again."""

    path: types.RelPath
    """The file that it is meant for."""
    kept_at: str
    """Where it is, relative to the root; empty where only the file that it was saved into has it."""
    reason: str
    save: displaced.LateSave | None
    """To be tried again at `due_s`; None: the watch finds it again."""
    due_s: float
    """Monotonic."""


class _Turn:
    """Whose turn it is with an owner's memory, and how many want it."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.n = 0


class _Newest:
    """The newest day of an owner's rows of one kind; empty until somebody has looked. Who looks first, appends first."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.day = ""


class Writer:
    """Writes to the files of one root. Lives on one event loop; the disk work is done in threads of its own."""

    def __init__(
        self,
        places: layout.Layout,
        journal: contexts.Journal,
        clock: clocks.Clock,
        timezone: zoneinfo.ZoneInfo,
        *,
        step: file.Step = file.no_step,
    ) -> None:
        """Start with nothing to do.

        Args:
            places: The root.
            journal: The ledger's side.
            clock: For stamps and waiting.
            timezone: `memory.timezone`: what "today" is.
            step: See `log.file`.
        """
        self.layout = places
        self._context = contexts.Context(places, journal, clock, step)
        self._timezone = timezone
        self._clock = clock
        self._watch = displaced.Watch(clock.monotonic_s)
        numbers, appended = numbering.Numbering(self._context), recent.Recent()
        self._appended = appended
        saves = stale.StaleSaves(self._context, self.append, appended)
        self._rewriter = rewrite.Rewriter(self._context, numbers, saves, self._watch)
        self.growth = growth.Growth()
        self._rows = rows.Rows(self._context, numbers, appended, self.growth, self._rewriter)
        self._queues: dict[types.RelPath, job.Queue] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._busy: set[types.RelPath] = set()
        self._late_task: asyncio.Task[None] | None = None
        self._unmerged: dict[Path, Unmerged] = {}
        self._turns: dict[types.Owner, _Turn] = {}
        self._newest: dict[tuple[types.Owner, str], _Newest] = {}
        self._closed: list[frozenset[types.RelPath]] = []
        """Files and folders that are being erased."""
        self._is_closed = self._is_closing = False
        self.on_written: Callable[[types.RelPath], None] = _tell_nobody
        """Called with each file that was written, where nothing watches the root."""

    def newest_stamp(self, path: types.RelPath) -> str:
        """Return the stamp of the last write of this process to a file; empty when there was none."""
        return self._rewriter.newest_stamp(path)

    def unmerged(self) -> tuple[Unmerged, ...]:
        """Return the saves of people that could not be brought into the log so far; cheap."""
        return tuple(self._unmerged.values())

    # -- what callers ask for --------------------------------------------------------------------------------------

    async def append(
        self,
        owner: types.Owner,
        kind: str,
        drafts: Sequence[entry.Draft],
        *,
        date: str | None = None,
        memory_type: str = "",
        memory_path: str = "",
    ) -> tuple[types.EntryId, ...]:
        """Append entries to an owner's log of a day; return their ids once they are on disk.

        All of them go to disk together or not at all. The order of calls is the order in the file.

        Args:
            owner: Whose log.
            kind: Name of the kind, not one of those that are one file each.
            drafts: What to write.
            date: `YYYY-MM-DD`; None: today in `memory.timezone`; of an owner's rows, whose order decides, no day before
                the newest that there is: a clock that was put back must not have them stand before earlier ones.
            memory_type: Of typed memories.
            memory_path: Of typed memories.

        Raises:
            WriteRefused: The disk is full, the file is protected, …: nothing was written.
        """
        if not drafts:
            return ()
        what = job.Append(owner=owner, kind=kind, drafts=tuple(drafts))
        await self._append(what, date, memory_type, memory_path)
        return what.ids

    async def append_seen(self, owner: types.Owner, kind: str, drafts: Sequence[entry.Draft]) -> job.Grew | None:
        """Append entries to a log of today that only machines write; return how the file has grown.

        Whoever knew the file as it was before knows it as it is now. None: something else may have changed as well.

        Raises:
            WriteRefused: The disk is full, the file is protected, …: nothing was written.
        """
        what = job.Append(owner=owner, kind=kind, drafts=tuple(drafts))
        await self._append(what)
        return what.grew

    async def _append(
        self, what: job.Append, date: str | None = None, memory_type: str = "", memory_path: str = ""
    ) -> None:
        day = date or await self._day(what.owner, what.kind)
        path = self.layout.path_for(what.owner, what.kind, day, memory_type=memory_type, memory_path=memory_path)
        await self._ask(path, what)

    async def _day(self, owner: types.Owner, kind: str) -> str:
        today = self._clock.now().astimezone(self._timezone).date().isoformat()
        if kinds.BY_NAME[kind].written != "appended" or owner.type == "session" or self._is_closed:
            return today
        newest = self._newest.setdefault((owner, kind), _Newest())
        async with newest.lock:
            if not newest.day or newest.day > today:  # a day to come may have been taken out of its folder
                newest.day = await self._context.in_thread(lambda: self._newest_day(owner, kind))
            newest.day = max(newest.day, today)
            return newest.day

    def _newest_day(self, owner: types.Owner, kind: str) -> str:
        """Return the newest day that an owner has rows of; empty without any. Blocks."""
        folder = f"{self.layout.owner_folder(owner)}/{kinds.BY_NAME[kind].folder}"
        paths = (types.RelPath(f"{folder}/{found.name}") for found in (self.layout.root / folder).glob("*.md"))
        return max((place.date or "" for each in paths if (place := layout.place(each)) is not None), default="")

    async def update(self, path: types.RelPath, entry_id: str, change: job.Change) -> entry.Entry:
        """Replace the text of one entry by what `change` makes of it; return the new entry once it is on disk.

        `change` is called with the entry as it is in the file at that moment, and again whenever somebody saved before
        the write was done; it must be pure. Returning the entry itself writes nothing.

        Raises:
            NotFound: The file has no such entry.
            WriteRefused: The file may not be rewritten.
        """
        return cast("entry.Entry", await self._ask(path, job.Update(entry_id=entry_id, change=change)))

    async def put_back(self, owner: types.Owner, path: types.RelPath, given: entry.Entry) -> bool:
        """Add an entry to a file that people edit, under the id that it has had before; False where the file has that id.

        Raises:
            WriteRefused: The file may not be rewritten.
        """
        what = job.PutBack(owner=owner, entry=msgspec.structs.replace(given, form="marked", digest=b"", nth=0))
        return cast("bool", await self._ask(path, what))

    async def take(self, path: types.RelPath, entry_id: str, where: job.Condition) -> bool:
        """Take an entry out of a file that people edit, because it stands in another one; False where nothing was to be done.

        `where` is asked about the entry as it stands at that moment: False, and it stays. Pure.

        Raises:
            WriteRefused: The file may not be rewritten.
        """
        return cast("bool", await self._ask(path, job.Take(entry_id=entry_id, where=where)))

    async def deprecate(
        self,
        path: types.RelPath,
        successors: Mapping[str, str],
        where: job.Condition | None = None,
        *,
        revived: Mapping[str, str] | None = None,
    ) -> tuple[str, ...]:
        """Set keys of `deprecated_entries` in the file that has the entries; return the ids that point there now.

        Left out are ids whose entry is not in the file, and those that `where` refuses. It is asked about each entry as it
        stands in the file in the very write that sets the key, and again whenever somebody saved before that was done: no
        edit can come between. Entries that point there already are not asked about.

        Args:
            path: Which file.
            successors: Entry id → successor.
            where: Which entries are meant; None: all of them. Pure.
            revived: Keys that go in the same write: entry id → the successor that it has to name for that; empty: any.

        Raises:
            NotFound: There is no such file.
            WriteRefused: The file may not be rewritten.
        """
        what = job.Point(successors=dict(successors), where=where, revived=dict(revived or {}))
        return cast("tuple[str, ...]", await self._ask(path, what))

    async def revive(self, path: types.RelPath, ids: Iterable[str]) -> None:
        """Remove keys of `deprecated_entries`.

        Raises:
            NotFound: There is no such file.
            WriteRefused: The file may not be rewritten.
        """
        await self._ask(path, job.Point(revived=dict.fromkeys(ids, "")))

    async def adopt(self, path: types.RelPath) -> int:
        """Give hand-written text its markers; return how many entries got theirs.

        Raises:
            NotFound: There is no such file.
            WriteRefused: The file may not be rewritten.
        """
        return cast("int", await self._ask(path, job.Adopt()))

    async def replace(self, path: types.RelPath, change: job.Rewriting) -> bytes | None:
        """Make something else of a file that is one entry (`user.md`, `SKILL.md`); return what is there afterwards.

        `change` gets the bytes of the file (None: there is none) and returns what is to stand there; None or the same
        bytes writes nothing. It is called in a thread, and again whenever somebody saved before the write was done: it
        must be pure. What it raises is raised here, and nothing is written.

        Raises:
            WriteRefused: The file may not be rewritten, or is not one of those.
        """
        self._require_whole(path)
        return cast("bytes | None", await self._ask(path, job.Replace(change=change)))

    async def move(self, path: types.RelPath, to: types.RelPath) -> bool:
        """Give the folder of a skill another name, with all that is in it; False where that name is taken.

        Args:
            path: The skill's file.
            to: Where it is to be afterwards, as `Layout.path_for` says of a skill of another name.

        Raises:
            WriteRefused: The folder may not be renamed, or the paths are not those of skills of one owner.
        """
        place, target = self._require_whole(path), self._require_whole(to)
        if not place.name or not target.name or place.owner != target.owner:
            raise errors.WriteRefused(path, "is not one that is moved")
        absolute = await self._context.in_thread(lambda: self.layout.absolute(to))
        return cast("bool", await self._ask(path, job.Move(to=absolute.parent)))

    def _require_whole(self, path: types.RelPath) -> layout.Place:
        place = layout.place(path)
        if place is None or not kinds.BY_NAME[place.kind].is_whole_file:
            raise errors.WriteRefused(path, "is not one that is replaced as a whole")
        return place

    async def expunge(self, path: types.RelPath, change: job.Expunging) -> tuple[str, ...]:
        """Take entries out of a log, or change them, for good; return the ids of those that went.

        `change` gets the entries as they are in the file at that moment, and is called again whenever somebody saved before
        the write was done: it must be pure. What it takes out is remembered nowhere: no healing puts it back, and what the
        exchange displaced is deleted at once.

        Raises:
            WriteRefused: The file may not be rewritten, or is not one of those.
        """
        place = layout.place(path)
        if place is None or kinds.BY_NAME[place.kind].is_whole_file:
            raise errors.WriteRefused(path, "is not one that entries are taken out of")
        gone = frozenset(cast("tuple[str, ...]", await self._ask(path, job.Expunge(change=change))))
        self._appended.forget(lambda at, entry_id: at == path and entry_id in gone)
        await self._context.in_thread(lambda: self._forget_displaced(frozenset((path,))))
        return tuple(gone)

    @contextlib.asynccontextmanager
    async def in_turn(self, owner: types.Owner) -> AsyncIterator[None]:
        """Let nobody else in who asks for the turn of this owner: for whoever reads what there is and writes by it."""
        turn = self._turns.setdefault(owner, _Turn())
        turn.n += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.n -= 1
            if not turn.n:
                self._turns.pop(owner, None)

    @contextlib.asynccontextmanager
    async def erasing(self, paths: Collection[types.RelPath]) -> AsyncIterator[None]:
        """Have nothing written to these files and folders while the block runs; what was under way has ended before.

        Whoever asks for it meanwhile, or was waiting, is refused.
        """
        closed = frozenset(paths)
        self._closed.append(closed)
        try:
            while busy := [path for path in self._busy if _covers(closed, path)]:
                for path in busy:
                    for each in (*self._queues[path].active, *self._queues[path].jobs):
                        each.fail(_erased(path))
                await asyncio.sleep(_ERASE_PAUSE_S)
            for path in [path for path in self._queues if _covers(closed, path)]:
                del self._queues[path]
            yield
        finally:
            self._closed.remove(closed)

    async def erase(self, path: types.RelPath) -> bool:
        """Delete a file or a folder for good, within `erasing`; False where there is nothing.

        Raises:
            WriteRefused: It may not be deleted.
        """
        paths = frozenset((path,))
        absolute = await self._context.in_thread(lambda: self.layout.absolute(path))
        for key in [key for key, each in self._unmerged.items() if _covers(paths, each.path)]:
            del self._unmerged[key]
        self._appended.forget(lambda at, _: _covers(paths, at))

        def erase() -> bool:
            with file.refusals(absolute):
                is_gone = displaced.erase(absolute, self._context.tmp)
                self._forget_displaced(paths)
                return is_gone

        return await self._context.in_thread(erase)

    async def let_go(self) -> None:
        """Delete at once what `.tmp/` has of files that lost their name, as far as nobody has it open."""
        await self._context.in_thread(self._watch.make_room)

    def _forget_displaced(self, paths: Collection[types.RelPath]) -> None:
        """Delete what `.tmp/` has of files that something was taken out of. Blocks."""
        self._watch.forget(lambda path: _covers(paths, self._relative(path)))
        with file.refusals(self._context.tmp):
            displaced.purge(self._context.tmp, lambda path: _covers(paths, path))

    async def heal(
        self, path: types.RelPath, parsed: parse.Parsed, known: Mapping[str, str] | None = None
    ) -> healing.Report:
        """Put back what a stale buffer wiped, if the file is still stale when its turn comes.

        Args:
            path: Which file.
            parsed: The save that was noticed; the file is read again before anything is written.
            known: Raw texts that the ledger knows of the file, for where the journal does not reach back.
        """
        held = None
        if known is not None:
            stamp = self.newest_stamp(path)
            on_record = await self._context.journal.known(path)
            if on_record is not None and not healing.is_older(on_record.stamp, stamp):
                stamp = on_record.stamp
            keys = {} if on_record is None else on_record.deprecated
            held = healing.Known(stamp=stamp, entries=dict(known), deprecated=keys)
        if not parsed.stamp:
            return healing.Report()
        return cast("healing.Report", await self._ask(path, job.Heal(known=held)))

    async def recover(self) -> None:
        """Put right what a crash left between two names. Call it once, when the root is locked.

        Saves that were caught in between are brought back to their files; the next reconcile reads them.
        """
        for save in await self._context.in_thread(
            lambda: displaced.recover(self.layout.root, self._context.tmp, self._watch)
        ):
            await self._take_up(save)
        self._watch_displaced()

    async def close(self) -> None:
        """Finish what was asked for, look at displaced files once more, and let go of the threads."""
        self._is_closing = True
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._late_task is not None:
            # Not cancelled: it may have a save in its hands.
            await asyncio.gather(self._late_task, return_exceptions=True)
        if not self._is_closed:
            for save in await self._context.in_thread(lambda: self._watch.late_saves(is_final=True)):
                await self._take_up(save)
            await self._context.in_thread(lambda: self._watch.late_saves(is_final=True))
        self._is_closed = True
        self._context.close()

    # -- one worker per file ---------------------------------------------------------------------------------------

    async def _ask(self, path: types.RelPath, what: job.What) -> object:
        if self._is_closed:
            raise errors.WriteRefused(path, "everosd is stopping", hint="repeat the request once it runs again")
        asked = job.Job(what, self._clock.monotonic_s())
        self._enqueue(path, [asked])
        return await asked.future

    def _enqueue(self, path: types.RelPath, jobs: Iterable[job.Job]) -> None:
        if any(_covers(closed, path) for closed in self._closed):
            raise _erased(path)
        queue = self._queues.get(path)
        if queue is None:
            place = layout.place(path)
            if place is None:
                raise errors.WriteRefused(path, "is not a place where memory lives")
            queue = self._queues[path] = job.Queue(path, place)
        queue.jobs.extend(jobs)
        if path not in self._busy:
            self._busy.add(path)
            task = asyncio.get_running_loop().create_task(self._work(queue), name=f"log-writer {path}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _work(self, queue: job.Queue) -> None:
        try:
            while queue.jobs:
                queue.active, queue.jobs = queue.jobs, []
                try:
                    await self._commit(queue)
                except Exception as error:  # noqa: BLE001 - handed to every caller that waits for it
                    for each in queue.active:
                        each.fail(error)
                except BaseException as error:
                    for each in (*queue.active, *queue.jobs):
                        each.fail(error)
                    raise
        finally:
            self._busy.discard(queue.path)
            # What a queue remembers saves a parse and a pause; it is not needed to be right.
            for path in [path for path in self._queues if path not in self._busy][:-_N_IDLE_QUEUES]:
                del self._queues[path]

    async def _commit(self, queue: job.Queue) -> None:
        """Write until nothing waits for this file any more."""
        try:
            await self._take_turns(queue)
        except errors.WriteRefused as error:
            if not len(self._watch) or getattr(error.__cause__, "errno", None) not in _FULL:
                raise
            # What is kept of displaced files is the first thing to go when the disk is full.
            await self._context.in_thread(self._watch.make_room)
            await self._take_turns(queue)

    async def _take_turns(self, queue: job.Queue) -> None:
        is_appended = kinds.BY_NAME[queue.place.kind].written == "appended"
        turn = self._rows.turn if is_appended else self._rewriter.turn
        while jobs := queue.take():
            self._expire(queue, self._clock.monotonic_s())
            jobs = [each for each in jobs if each in queue.active and not each.future.done()]
            if jobs:
                unwritable = await turn(queue, jobs)
                if unwritable is not None:
                    self._redirect(queue, unwritable, jobs)
                self._watch_displaced()
                self.on_written(queue.path)

    def _expire(self, queue: job.Queue, now_s: float) -> None:
        """Send away what has waited too long because somebody changes the file all the time."""
        is_contended = now_s < queue.contended_until_s
        elsewhere = []
        for each in queue.active:
            waited_s = now_s - each.asked_s
            if isinstance(each.what, job.Append) and (is_contended or waited_s > _CONTENDED_AFTER_S):
                elsewhere.append(each)
            elif waited_s > (_DRAIN_S if self._is_closing else _GIVE_UP_AFTER_S) and not (
                isinstance(each.what, job.Late) and not self._is_closing
            ):
                each.fail(
                    errors.WriteRefused(queue.path, "somebody else keeps changing it", hint="close what writes to it")
                )
        if elsewhere and queue.place.part < _MAX_PART and queue.place.date is not None:
            if not is_contended:
                queue.contended_until_s = now_s + _CONTENDED_FOR_S
                log.warning("file_contended", path=queue.path, entries=len(elsewhere))
            self._send_to_next_part(queue, elsewhere)

    def _redirect(self, queue: job.Queue, error: parse.Warning, jobs: Sequence[job.Job]) -> None:
        """While a file cannot be rewritten, new entries go to the next part; the rest is refused."""
        refusal = errors.WriteRefused(
            queue.path,
            f"is not rewritten while it does not parse: {error.reason}",
            line=error.line,
            hint="correct that line and save the file",
        )
        is_last = queue.place.part >= _MAX_PART or queue.place.date is None
        appends = [each for each in jobs if isinstance(each.what, job.Append) and not is_last]
        for each in jobs:
            if each not in appends:
                each.fail(refusal)
        if appends:
            self._send_to_next_part(queue, appends)

    def _send_to_next_part(self, queue: job.Queue, jobs: Sequence[job.Job]) -> None:
        what = cast("job.Append", jobs[0].what)
        following = self.layout.path_for(
            what.owner,
            what.kind,
            queue.place.date,
            memory_type=queue.place.memory_type,
            memory_path=queue.place.memory_path,
            part=queue.place.part + 1,
        )
        queue.active = [each for each in queue.active if each not in jobs]
        now_s = self._clock.monotonic_s()
        for each in jobs:
            each.asked_s = now_s
        self._enqueue(following, jobs)

    # -- saves into displaced files --------------------------------------------------------------------------------

    def _watch_displaced(self) -> None:
        is_idle = self._late_task is None or self._late_task.done()
        if (len(self._watch) or self._unmerged) and is_idle and not self._is_closed:
            loop = asyncio.get_running_loop()
            self._late_task = loop.create_task(self._look_after_displaced(), name="log-displaced")

    async def _look_after_displaced(self) -> None:
        while (len(self._watch) or self._unmerged) and not self._is_closing:
            await self._clock.sleep(_LATE_PAUSE_S)
            try:
                saves = await self._context.in_thread(self._watch.late_saves)
            except OSError as error:
                log.warning("displaced_files_unreadable", error=str(error))
                continue
            now_s = self._clock.monotonic_s()
            again = [each.save for each in self._unmerged.values() if each.save is not None and each.due_s <= now_s]
            for save in (*again, *saves):
                await self._take_up(save)

    async def _take_up(self, save: displaced.LateSave) -> None:
        """Bring a late save into the log; where that fails it stays on disk, is reported, and tried again."""
        # Until it is in the log it is kept as a file, which the next start takes up if this one does not get to it.
        kept = save.kept_at
        try:
            kept = await self._context.in_thread(lambda: displaced.keep(save, self._context.tmp))
        except (OSError, errors.WriteRefused) as error:
            log.debug("late_save_not_kept", path=str(save.path), reason=str(error))
        try:
            path = await self._context.in_thread(lambda: self._relative(save.path))
            await self._ask(path, job.Late(save=save))
        except Exception as error:  # noqa: BLE001 - whatever went wrong, this is a person's text
            self._try_again(save, kept, error)
        else:
            await self._context.in_thread(lambda: self._watch.taken(save))
            if kept is not None:
                await self._context.in_thread(lambda: displaced.discard(kept))
            self._unmerged.pop(_key(save, save.kept_at), None)
            log.info("late_save_taken_up", path=path)

    def _try_again(self, save: displaced.LateSave, kept: Path | None, error: Exception) -> None:
        key = _key(save, kept)
        is_known = key in self._unmerged or self._unmerged.pop(_key(save, save.kept_at), None) is not None
        # Without a copy of its own the file that it was saved into is the only one, and must not be let go.
        is_watched = kept is None and self._watch.give_back(save)
        root = self.layout.root
        self._unmerged[key] = Unmerged(
            path=types.RelPath(os.path.relpath(save.path, root)),
            kept_at="" if kept is None else os.path.relpath(kept, root),
            reason=str(error),
            save=None if is_watched else msgspec.structs.replace(save, kept_at=kept),
            due_s=self._clock.monotonic_s() + displaced.RETRY_S,
        )
        if not is_known:
            log.error("late_save_waits", path=str(save.path), kept=str(kept or ""), reason=str(error))

    def _relative(self, path: Path) -> types.RelPath:
        root = os.path.realpath(self.layout.root)
        return types.RelPath(Path(os.path.realpath(path)).relative_to(root).as_posix())


def _covers(paths: Collection[types.RelPath], path: str) -> bool:
    """Return whether a path is one of these, or lies below one."""
    return any(path == one or path.startswith(f"{one}/") for one in paths)


def _erased(path: types.RelPath) -> errors.WriteRefused:
    return errors.WriteRefused(path, "is being erased", hint="repeat the request in a moment")


def _key(save: displaced.LateSave, kept: Path | None) -> Path:
    """Return what a save that waits is known by: its copy, else the file that it is for."""
    return save.path if kept is None else kept


def _tell_nobody(path: types.RelPath) -> None:
    """Take no notice: the watcher does."""
