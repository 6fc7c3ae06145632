"""The only code that writes Markdown.

Callers hand in what is to be written and wait until it is on disk. Each file has one worker, and what arrives while it is
busy is written together: many appends, one replacement. A worker reads the file, heals it if a stale buffer was saved
over it, applies what was asked, and replaces exactly what it read; when somebody saved meanwhile it begins again.
"""

from __future__ import annotations

import asyncio
import codecs
import concurrent.futures
import datetime as dt
import errno
import os
import re
import zoneinfo
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar, cast

import msgspec
import structlog

from everosd import clock as clocks
from everosd import errors, types
from everosd.log import displaced, entry, file, frontmatter, layout, parse, render
from everosd.log import heal as healing
from everosd.log import kind as kinds

log = structlog.get_logger()

T = TypeVar("T")
Change = Callable[[entry.Entry], entry.Entry]

_URGENT_AFTER_S = 2.0
"""Somebody who saves all the time must not keep the daemon from writing: then comparing alone has to do."""
_GIVE_UP_AFTER_S = 60.0
_DRAIN_S = 5.0
"""The same while stopping."""
_CONTENDED_AFTER_S = 3.0
"""A file that somebody changes faster than it can be replaced: new entries go to the next part, as with a broken one."""
_CONTENDED_FOR_S = 5.0
_RETURN_WAIT_S = 1.0
"""A file that was there and is not: an editor may be about to put its new version there."""
_ABSENT_PAUSE_S = 0.05
_LATE_PAUSE_S = 0.25
_MAX_SEQ = 10**8 - 1
"""Eight digits; greater numbers were written by hand."""
_MAX_PART = 99
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """An entry that is to be written and has no id yet."""

    fields: dict[str, str] = {}
    sections: tuple[tuple[str, str], ...] = ()
    preamble: str = ""


class Journal(Protocol):
    """What the writer needs of the ledger: numbers already given, and a memory of its own writes."""

    async def highest(self, owner: types.Owner, prefix: str, date: str) -> int:
        """Return the highest number ever seen in ids of that owner, prefix and date (`YYYYMMDD`); 0 for none."""

    async def planned(self, path: types.RelPath, write: healing.Write) -> int:
        """Remember a write that is about to happen; return its number."""

    async def landed(self, number: int) -> None:
        """Remember that a planned write is in the file."""

    async def dropped(self, number: int) -> None:
        """Forget a planned write: it did not happen."""

    async def since(self, path: types.RelPath, stamp: str) -> list[healing.Write]:
        """Return the landed writes to a file whose stamp is later than `stamp`."""

    async def known(self, path: types.RelPath) -> healing.Known | None:
        """Return what the ledger last read in a file; None when it has not read it."""


class HealReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was put back into a file after a stale buffer was saved over it."""

    path: types.RelPath
    restored: tuple[str, ...] = ()
    """Ids of entries that were appended again."""
    updated: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    deprecated: tuple[str, ...] = ()
    """Ids whose key in `deprecated_entries` was set or removed again."""
    conflicts: tuple[healing.Conflict, ...] = ()
    """Where both had changed something: the file has the person's text, `.lifecycle/` the daemon's."""

    def __bool__(self) -> bool:
        """Tell whether there was anything to do."""
        return bool(self.restored or self.updated or self.removed or self.deprecated or self.conflicts)

    def describe(self) -> str:
        """Say what happened and what to do if it was not wanted."""
        parts = []
        if self.restored:
            parts.append(
                f"put back {_some(self.restored)}, which an editor had not loaded when it saved; if they were meant to"
                " go (an older version was restored), reload the file and delete them again"
            )
        if self.updated or self.removed or self.deprecated:
            parts.append(f"repeated the changes to {_some((*self.updated, *self.removed, *self.deprecated))}")
        if self.conflicts:
            ids = tuple(dict.fromkeys(each.entry_id for each in self.conflicts))
            parts.append(f"kept your text of {_some(ids)}; what everosd had written is in .lifecycle/ as a conflict")
        return "; ".join(parts)


def _some(ids: Sequence[str]) -> str:
    shown = ", ".join(ids[:5])
    return shown if len(ids) <= 5 else f"{shown} and {len(ids) - 5} more"  # noqa: PLR2004 - as above


class _Append(msgspec.Struct, kw_only=True):
    owner: types.Owner
    kind: str
    drafts: tuple[Draft, ...]
    ids: tuple[types.EntryId, ...] = ()
    """Allotted once: an attempt that has to be repeated keeps them."""


class _Update(msgspec.Struct, kw_only=True):
    entry_id: str
    change: Change


class _Point(msgspec.Struct, kw_only=True):
    successors: dict[str, str]
    """Entry id → successor; empty: the key goes."""


class _Adopt(msgspec.Struct, kw_only=True):
    pass


class _Heal(msgspec.Struct, kw_only=True):
    known: healing.Known | None


class _Late(msgspec.Struct, kw_only=True):
    save: displaced.LateSave
    parsed: tuple[parse.Parsed, parse.Parsed | None] | None = None
    """The save and its base, read once."""


class _Job:
    """One thing asked of one file, and the future that its caller waits for."""

    def __init__(self, what: _Append | _Update | _Point | _Adopt | _Heal | _Late, asked_s: float) -> None:
        self.what = what
        self.asked_s = asked_s
        self.future: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    def finish(self, result: object) -> None:
        if not self.future.done():
            self.future.set_result(result)

    def fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class _Line:
    """What waits for one file, and what is known of it since the daemon last wrote to it."""

    def __init__(self, path: types.RelPath, place: layout.Place) -> None:
        self.path, self.place = path, place
        self.jobs: list[_Job] = []
        """Waiting."""
        self.active: list[_Job] = []
        """Being written."""
        self.n_turns = 0
        self.contended_until_s = 0.0
        self.was_there = False
        self.absent_since_s: float | None = None
        self.settled: file.Identity | None = None
        """State of the file that needs no quiet time."""
        self.digest = b""
        """Of what the daemon wrote last."""
        self.is_plain = False
        """What the daemon wrote last has markers throughout: to add to it, its head is all that has to be read."""
        self.newline = "\n"
        self.disputed: set[tuple[str, str]] = set()
        """Conflicts that are in the log already, so that a repeated attempt does not report them twice."""


class _Plan:
    """What one replacement of one file will do."""

    def __init__(self, parsed: parse.Parsed | None) -> None:
        self.parsed = parsed
        self.entries = {} if parsed is None else {each.id: each for each in parsed.entries if each.nth == 0}
        self.appended: list[entry.Entry] = []
        self.replaced: dict[str, entry.Entry] = {}
        self.removed: list[str] = []
        self.deprecated = {} if parsed is None else dict(parsed.deprecated)
        self.is_adopting = False
        self.stamps: list[str] = [] if parsed is None else [parsed.stamp]
        """What the next stamp has to be later than."""
        self.is_late = False
        """`parsed` is a save into a displaced file, not what is in the file now (`before`)."""
        self.before: parse.Parsed | None = None
        self.verbatim: bytes | None = None
        """A late save that does not parse: it becomes the file as it is, as it would have by its name."""
        self.results: list[tuple[_Job, object]] = []

    def is_empty(self) -> bool:
        before = {} if self.parsed is None else self.parsed.deprecated
        return not (
            self.appended
            or self.replaced
            or self.removed
            or self.is_adopting
            or self.is_late
            or self.deprecated != before
        )

    def leaves_plain_file(self) -> bool:
        """Tell whether everything in the file has markers afterwards."""
        if self.is_late or (self.parsed is not None and kinds.BY_NAME[self.parsed.place.kind].is_whole_file):
            return False
        return bool(self.appended) or all(each.form != "single" for each in self.entries.values())

    def pointers(self) -> dict[str, healing.Pointer]:
        before = {} if self.parsed is None else self.parsed.deprecated
        keys = dict.fromkeys((*before, *self.deprecated))
        return {
            key: healing.Pointer(before=before.get(key, ""), after=self.deprecated.get(key, ""))
            for key in keys
            if before.get(key, "") != self.deprecated.get(key, "")
        }

    def write(self, stamp: str) -> healing.Write:
        """Describe it for the journal."""
        return healing.Write(
            stamp=stamp,
            base_stamp="" if self.parsed is None else self.parsed.stamp,
            added={each.id: _raw(each) for each in self.appended},
            updated={
                key: healing.Update(before=self.entries[key].raw, after=_raw(each))
                for key, each in self.replaced.items()
            },
            removed={key: self.entries[key].raw for key in self.removed},
            deprecated=self.pointers(),
        )

    def difference(self, stamp: str) -> healing.Write:
        """Describe what a late save does to the file, so that another editor's stale buffer cannot wipe it either."""
        if self.verbatim is not None:
            # What it wiped comes back when a person has mended it: nothing of that is to be on record as removed.
            return healing.Write(stamp=stamp, base_stamp=stamp)
        before: healing.Version = ((), {}) if self.before is None else (self.before.entries, self.before.deprecated)
        kept = [self.replaced.get(key, each) for key, each in self.entries.items() if key not in self.removed]
        after = [msgspec.structs.replace(each, raw=_raw(each)) for each in (*kept, *self.appended)]
        return msgspec.structs.replace(
            healing.difference(before, (after, self.deprecated)),
            stamp=stamp,
            base_stamp="" if self.before is None else self.before.stamp,
        )

    def render(self, place: layout.Place, stamp: str) -> bytes:
        if self.verbatim is not None:
            return self.verbatim
        if self.parsed is None:
            return render.new_file(place, self.appended, stamp=stamp)
        pointers = self.pointers()
        return render.rewritten(
            self.parsed,
            appended=self.appended,
            replaced=self.replaced,
            deprecated={key: each.after for key, each in pointers.items() if each.after},
            undeprecated=[key for key, each in pointers.items() if not each.after],
            removed=self.removed,
            stamp=stamp,
            adopt=True,
        )


class Writer:
    """Writes to the files of one root. Lives on one event loop; the disk work is done in threads of its own."""

    def __init__(
        self,
        places: layout.Layout,
        journal: Journal,
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
        self._journal, self._clock, self._timezone, self._step = journal, clock, timezone, step
        self._lines: dict[types.RelPath, _Line] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._busy: set[types.RelPath] = set()
        self._stamps: dict[types.RelPath, str] = {}
        self._high: dict[tuple[types.Owner, str, str], int] = {}
        self._watch = displaced.Watch(clock.monotonic_s)
        self._late_task: asyncio.Task[None] | None = None
        self._pool = concurrent.futures.ThreadPoolExecutor(2, thread_name_prefix="log-writer")
        self._is_closed = self._is_closing = False

    @property
    def _tmp(self) -> Path:
        return self.layout.root / ".tmp"

    def newest_stamp(self, path: types.RelPath) -> str:
        """Return the stamp of the last write of this process to a file; empty when there was none."""
        return self._stamps.get(path, "")

    # -- what callers ask for --------------------------------------------------------------------------------------

    async def append(
        self,
        owner: types.Owner,
        kind: str,
        drafts: Sequence[Draft],
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
            date: `YYYY-MM-DD`; None: today in `memory.timezone`.
            memory_type: Of typed memories.
            memory_path: Of typed memories.

        Raises:
            WriteRefused: The disk is full, the file is protected, …: nothing was written.
        """
        if not drafts:
            return ()
        day = date or self._clock.now().astimezone(self._timezone).date().isoformat()
        path = self.layout.path_for(owner, kind, day, memory_type=memory_type, memory_path=memory_path)
        job = _Append(owner=owner, kind=kind, drafts=tuple(drafts))
        return cast("tuple[types.EntryId, ...]", await self._ask(path, job))

    async def update(self, path: types.RelPath, entry_id: str, change: Change) -> entry.Entry:
        """Replace the text of one entry by what `change` makes of it; return the new entry once it is on disk.

        `change` is called with the entry as it is in the file at that moment, and again whenever somebody saved before
        the write was done; it must be pure. Returning the entry itself writes nothing.

        Raises:
            NotFound: The file has no such entry.
            WriteRefused: The file may not be rewritten.
        """
        return cast("entry.Entry", await self._ask(path, _Update(entry_id=entry_id, change=change)))

    async def deprecate(self, path: types.RelPath, successors: Mapping[str, str]) -> None:
        """Set keys of `deprecated_entries` (entry id → successor) in the file that has the entries.

        Raises:
            NotFound: There is no such file.
            WriteRefused: The file may not be rewritten.
        """
        await self._ask(path, _Point(successors=dict(successors)))

    async def revive(self, path: types.RelPath, ids: Iterable[str]) -> None:
        """Remove keys of `deprecated_entries`.

        Raises:
            NotFound: There is no such file.
            WriteRefused: The file may not be rewritten.
        """
        await self._ask(path, _Point(successors=dict.fromkeys(ids, "")))

    async def adopt(self, path: types.RelPath) -> int:
        """Give hand-written text its markers; return how many entries got theirs.

        Raises:
            NotFound: There is no such file.
            WriteRefused: The file may not be rewritten.
        """
        return cast("int", await self._ask(path, _Adopt()))

    async def heal(
        self, path: types.RelPath, parsed: parse.Parsed, known: Mapping[str, str] | None = None
    ) -> HealReport:
        """Put back what a stale buffer wiped, if the file is still stale when its turn comes.

        Args:
            path: Which file.
            parsed: The save that was noticed; the file is read again before anything is written.
            known: Raw texts that the ledger knows of the file, for where the journal does not reach back.
        """
        held = None
        if known is not None:
            stamp = self.newest_stamp(path)
            on_record = await self._journal.known(path)
            if on_record is not None and not healing.is_older(on_record.stamp, stamp):
                stamp = on_record.stamp
            keys = {} if on_record is None else on_record.deprecated
            held = healing.Known(stamp=stamp, entries=dict(known), deprecated=keys)
        if not parsed.stamp:
            return HealReport(path=path)
        return cast("HealReport", await self._ask(path, _Heal(known=held)))

    async def recover(self) -> None:
        """Put right what a crash left between two names. Call it once, when the root is locked.

        Saves that were caught in between are brought back to their files; the next reconcile reads them.
        """
        for save in await self._in_thread(lambda: displaced.recover(self.layout.root, self._tmp, self._watch)):
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
            for save in await self._in_thread(lambda: self._watch.late_saves(is_final=True)):
                await self._take_up(save)
            await self._in_thread(lambda: self._watch.late_saves(is_final=True))
        self._is_closed = True
        self._pool.shutdown(wait=False)

    # -- one worker per file ---------------------------------------------------------------------------------------

    async def _ask(self, path: types.RelPath, what: _Append | _Update | _Point | _Adopt | _Heal | _Late) -> object:
        if self._is_closed:
            raise errors.WriteRefused(path, "everosd is stopping", hint="repeat the request once it runs again")
        job = _Job(what, self._clock.monotonic_s())
        self._queue(path, [job])
        return await job.future

    def _queue(self, path: types.RelPath, jobs: Iterable[_Job]) -> None:
        line = self._lines.get(path)
        if line is None:
            place = layout.place(path)
            if place is None:
                raise errors.WriteRefused(path, "is not a place where memory lives")
            line = self._lines[path] = _Line(path, place)
        line.jobs.extend(jobs)
        if path not in self._busy:
            self._busy.add(path)
            task = asyncio.get_running_loop().create_task(self._work(line), name=f"log-writer {path}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _work(self, line: _Line) -> None:
        try:
            while line.jobs:
                line.active, line.jobs = line.jobs, []
                try:
                    await self._commit(line)
                except Exception as error:  # noqa: BLE001 - handed to every caller that waits for it
                    for job in line.active:
                        job.fail(error)
                except BaseException as error:
                    for job in (*line.active, *line.jobs):
                        job.fail(error)
                    raise
        finally:
            self._busy.discard(line.path)
            self._forget_lines()

    def _forget_lines(self) -> None:
        # What a line remembers saves a parse and a pause; it is not needed to be right.
        for path in [path for path in self._lines if path not in self._busy][:-1000]:
            del self._lines[path]

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    async def _commit(self, line: _Line) -> None:
        """Write until nothing waits for this file any more."""
        absolute = await self._in_thread(lambda: self.layout.absolute(line.path))
        is_appended = kinds.BY_NAME[line.place.kind].written == "appended"
        commit = self._commit_rows if is_appended else self._commit_file
        try:
            await commit(line, absolute)
        except errors.WriteRefused as error:
            if not len(self._watch) or getattr(error.__cause__, "errno", None) not in _FULL:
                raise
            # What is kept of displaced files is the first thing to go when the disk is full.
            await self._in_thread(self._watch.make_room)
            await commit(line, absolute)

    def _take(self, line: _Line) -> list[_Job]:
        """Return what is to be written in the next turn: all that waits, but a late save alone."""
        line.active = [job for job in (*line.active, *line.jobs) if not job.future.done()]
        line.jobs = []
        late = [job for job in line.active if isinstance(job.what, _Late)]
        others = [job for job in line.active if not isinstance(job.what, _Late)]
        line.n_turns += 1
        # Turn and turn about: neither may keep the other waiting while somebody keeps changing the file.
        return late[:1] if late and (not others or line.n_turns % 2) else others

    def _expire(self, line: _Line, now_s: float) -> None:
        """Send away what has waited too long because somebody changes the file all the time."""
        is_contended = now_s < line.contended_until_s
        elsewhere = []
        for job in line.active:
            waited_s = now_s - job.asked_s
            if isinstance(job.what, _Append) and (is_contended or waited_s > _CONTENDED_AFTER_S):
                elsewhere.append(job)
            elif waited_s > (_DRAIN_S if self._is_closing else _GIVE_UP_AFTER_S) and not (
                isinstance(job.what, _Late) and not self._is_closing
            ):
                job.fail(
                    errors.WriteRefused(line.path, "somebody else keeps changing it", hint="close what writes to it")
                )
        if elsewhere and line.place.part < _MAX_PART and line.place.date is not None:
            if not is_contended:
                line.contended_until_s = now_s + _CONTENDED_FOR_S
                log.warning("file_contended", path=line.path, entries=len(elsewhere))
            self._send_to_next_part(line, elsewhere)

    # -- files that people edit ------------------------------------------------------------------------------------

    async def _commit_file(self, line: _Line, absolute: Path) -> None:
        while jobs := self._take(line):
            self._expire(line, self._clock.monotonic_s())
            jobs = [job for job in jobs if job in line.active and not job.future.done()]
            if jobs:
                pause_s = await self._attempt(line, absolute, jobs)
                if pause_s:
                    await self._clock.sleep(pause_s)

    async def _attempt(self, line: _Line, absolute: Path, jobs: list[_Job]) -> float:
        """Try once; what could be finished is. Returns how long to wait before trying again what could not."""
        now_s = self._clock.monotonic_s()
        late = next((job for job in jobs if isinstance(job.what, _Late)), None)
        is_urgent = now_s - min(job.asked_s for job in jobs) > _URGENT_AFTER_S
        is_light = all(isinstance(job.what, _Append | _Point) for job in jobs)
        found = await self._in_thread(lambda: self._load(line, absolute, is_urgent=is_urgent, is_light=is_light))
        if isinstance(found, file.Busy):
            line.settled = found.identity
            return found.wait_s
        data, parsed = found
        if not data and line.was_there:
            # An editor that has emptied the file is about to write it; one that moved it away, to put a new one there.
            line.absent_since_s = line.absent_since_s or now_s
            if now_s - line.absent_since_s < _RETURN_WAIT_S:
                return _ABSENT_PAUSE_S
        else:
            line.absent_since_s = None
        if parsed is not None and parsed.error is not None:
            self._redirect(line, parsed, jobs)
            return 0.0
        if late is not None:
            plan = await self._plan_late(line, parsed, late)
        else:
            plan = await self._plan(line, parsed, jobs)
        if plan.is_empty():
            _finish(plan)
            return 0.0
        outcome = await self._replace(line, absolute, data, plan, is_urgent=is_urgent)
        self._watch_displaced()
        if isinstance(outcome, file.Busy):
            line.settled = outcome.identity
            return outcome.wait_s
        if isinstance(outcome, file.Replaced):
            _finish(plan)
        return 0.0

    def _load(
        self, line: _Line, absolute: Path, *, is_urgent: bool, is_light: bool
    ) -> tuple[bytes | None, parse.Parsed | None] | file.Busy:
        if not is_urgent:
            busy = file.busy(absolute, line.settled)
            if busy is not None:
                return busy
        try:
            data = file.read(absolute).data
        except (FileNotFoundError, NotADirectoryError):
            return None, None
        except OSError as error:
            raise file.refusal(absolute, error) from error
        line.was_there = True
        if is_light and line.is_plain and file.digest(data) == line.digest:
            return data, self._parse_head(line, data)
        return data, parse.parse(line.path, data, line.place, timezone=self._timezone)

    def _parse_head(self, line: _Line, data: bytes) -> parse.Parsed:
        """Read what an addition needs of a file that is as the daemon left it: everything but the entries."""
        has_bom = data.startswith(codecs.BOM_UTF8)
        text = data[len(codecs.BOM_UTF8) if has_bom else 0 :].decode("utf-8", "surrogateescape")
        head = text[: frontmatter.read(text).end].encode("utf-8", "surrogateescape")
        parsed = parse.parse(line.path, head, line.place, timezone=self._timezone)
        return msgspec.structs.replace(parsed, text=text, has_bom=has_bom, digest=line.digest)

    async def _replace(
        self, line: _Line, absolute: Path, data: bytes | None, plan: _Plan, *, is_urgent: bool
    ) -> file.Replaced | file.Changed | file.Busy:
        stamp = self._next_stamp(line.path, plan)

        def prepare() -> tuple[bytes, healing.Write]:
            new = plan.render(line.place, stamp)
            return new, plan.difference(stamp) if plan.is_late else plan.write(stamp)

        def perform() -> file.Replaced | file.Changed | file.Busy:
            if data is None:
                file.make_folder(absolute.parent)
            outcome = file.replace(
                absolute, data, new, self._tmp, settled=line.settled, is_urgent=is_urgent, step=self._step
            )
            for each in outcome.displaced if not isinstance(outcome, file.Busy) else ():
                self._watch.add(each)
            return outcome

        try:
            new, write = await self._in_thread(prepare)
        except ValueError:
            if not self._blame(plan):
                raise
            return file.Changed()
        number = await self._journal.planned(line.path, write)
        try:
            outcome = await self._in_thread(perform)
        except errors.WriteRefused:
            await self._journal.dropped(number)
            raise
        if isinstance(outcome, file.Replaced):
            line.settled, line.digest, line.was_there = outcome.identity, file.digest(new), True
            line.is_plain = plan.leaves_plain_file()
            self._stamps[line.path] = stamp
            await self._landed(line.path, number)
        else:
            await self._journal.dropped(number)
        return outcome

    def _blame(self, plan: _Plan) -> bool:
        """Fail those callers whose entries cannot be written (a field name that is none, half a surrogate pair)."""
        found = False
        for job, _ in plan.results:
            ids = job.what.ids if isinstance(job.what, _Append) else ()
            if isinstance(job.what, _Update):
                ids = (types.EntryId(job.what.entry_id),)
            for each in (*plan.appended, *plan.replaced.values()):
                try:
                    if each.id in ids:
                        _raw(each).encode()
                except ValueError as error:
                    job.fail(error)
                    found = True
        return found

    async def _landed(self, path: types.RelPath, number: int) -> None:
        try:
            await self._journal.landed(number)
        except errors.StoreError as error:
            # The entries are on disk: to refuse them now would have them written twice. At the next start the ledger
            # finds out from the file whether the planned write is in it.
            log.exception("write_not_recorded", path=path, reason=str(error))

    def _next_stamp(self, path: types.RelPath, plan: _Plan) -> str:
        """Return a stamp later than every one that the file has had, as far as anybody knows."""
        floors = [healing.moment(each) for each in (self.newest_stamp(path), *plan.stamps)]
        latest = max((each for each in floors if each is not None), default=None)
        now = self._clock.now()
        if latest is not None and latest >= now:
            try:
                now = latest.astimezone(dt.UTC) + dt.timedelta(microseconds=1)
            except OverflowError:
                log.warning("stamp_in_the_far_future", path=path, stamp=latest.isoformat())
        return now.astimezone(dt.UTC).isoformat(timespec="microseconds")

    def _redirect(self, line: _Line, parsed: parse.Parsed, jobs: Sequence[_Job]) -> None:
        """While a file cannot be rewritten, new entries go to the next part; the rest is refused."""
        error = parsed.error or parse.Warning(line=1, reason="it does not parse")
        refusal = errors.WriteRefused(
            line.path,
            f"is not rewritten while it does not parse: {error.reason}",
            line=error.line,
            hint="correct that line and save the file",
        )
        is_last = line.place.part >= _MAX_PART or line.place.date is None
        appends = [job for job in jobs if isinstance(job.what, _Append) and not is_last]
        for job in jobs:
            if job not in appends:
                job.fail(refusal)
        if appends:
            self._send_to_next_part(line, appends)

    def _send_to_next_part(self, line: _Line, jobs: Sequence[_Job]) -> None:
        what = cast("_Append", jobs[0].what)
        following = self.layout.path_for(
            what.owner,
            what.kind,
            line.place.date,
            memory_type=line.place.memory_type,
            memory_path=line.place.memory_path,
            part=line.place.part + 1,
        )
        line.active = [job for job in line.active if job not in jobs]
        now_s = self._clock.monotonic_s()
        for job in jobs:
            job.asked_s = now_s
        self._queue(following, jobs)

    # -- what a replacement will do --------------------------------------------------------------------------------

    async def _plan(self, line: _Line, parsed: parse.Parsed | None, jobs: Sequence[_Job]) -> _Plan:
        plan = _Plan(parsed)
        known = next((job.what.known for job in jobs if isinstance(job.what, _Heal)), None)
        report = await self._heal_into(line, plan, known)
        floors: dict[tuple[types.Owner, str, str], int] = {}
        for job in jobs:
            what = job.what
            try:
                if isinstance(what, _Append):
                    plan.appended += await self._entries(line, parsed, what, floors)
                    plan.results.append((job, what.ids))
                elif isinstance(what, _Heal):
                    plan.results.append((job, report))
                else:
                    plan.results.append((job, _apply(plan, line.path, what)))
            except Exception as error:  # noqa: BLE001 - one caller's mistake is not that of those who wrote with it
                job.fail(error)
        return plan

    async def _heal_into(self, line: _Line, plan: _Plan, known: healing.Known | None) -> HealReport:
        """Find out whether the file was saved from a stale buffer, and plan what puts it right."""
        parsed = plan.parsed
        if parsed is None or not parsed.stamp or parsed.digest == line.digest:
            return HealReport(path=line.path)
        writes = await self._journal.since(line.path, parsed.stamp)
        if known is None:
            known = await self._journal.known(line.path)
        merged = healing.heal(parsed, writes, known)
        plan.stamps += [write.stamp for write in writes]
        if known is not None:
            plan.stamps.append(known.stamp)
        await self._heal_by(line, plan, merged)
        return HealReport(
            path=line.path,
            restored=tuple(merged.restored),
            updated=tuple(merged.updated),
            removed=merged.removed,
            deprecated=(*merged.deprecated, *merged.undeprecated),
            conflicts=merged.conflicts,
        )

    async def _heal_by(self, line: _Line, plan: _Plan, merged: healing.Healing) -> None:
        # The daemon's side of a conflict is in the log before the file loses its last trace.
        await self._report_conflicts(line, merged.conflicts)
        kind = line.place.kind
        plan.appended += [parse.parse_entry(kind, key, raw) for key, raw in merged.restored.items()]
        for key, raw in merged.updated.items():
            plan.replaced[key] = parse.parse_entry(kind, key, raw, form=plan.entries[key].form)
        plan.removed += merged.removed
        plan.deprecated |= merged.deprecated
        for key in merged.undeprecated:
            plan.deprecated.pop(key, None)

    async def _report_conflicts(self, line: _Line, conflicts: Sequence[healing.Conflict]) -> None:
        new = [each for each in conflicts if (each.entry_id, each.daemon_text) not in line.disputed]
        if not new:
            return
        owner, now = line.place.owner, self._clock.now().isoformat()
        drafts = [
            Draft(
                fields={
                    "timestamp": now,
                    "action": "conflict",
                    "target": each.entry_id,
                    **({"field": "deprecated_by", "value": each.daemon_text} if each.is_key else {}),
                    "reason": "a person and everosd changed it at the same time; the person's version is in the file",
                },
                sections=() if each.is_key else (("Before", each.daemon_text),),
            )
            for each in new
        ]
        await self.append(owner, "lifecycle", drafts)
        line.disputed.update((each.entry_id, each.daemon_text) for each in new)

    async def _plan_late(self, line: _Line, current: parse.Parsed | None, job: _Job) -> _Plan:
        """Plan how a save into a displaced file gets into the present one: as if both had been made at once."""
        save = cast("_Late", job.what).save

        def read(data: bytes) -> parse.Parsed:
            return parse.parse(line.path, data, line.place, timezone=self._timezone)

        def read_both() -> tuple[parse.Parsed, parse.Parsed | None]:
            return read(save.data), None if save.base is None else read(save.base)

        what = cast("_Late", job.what)
        if what.parsed is None:
            what.parsed = await self._in_thread(read_both)
        late, base = what.parsed
        plan = _Plan(late)
        plan.is_late, plan.before = True, current
        if late.error is not None:
            plan.verbatim = save.data
        elif current is not None:
            plan.stamps.append(current.stamp)
            before: healing.Version = ((), {}) if base is None else (base.entries, base.deprecated)
            since = healing.difference(before, (current.entries, current.deprecated))
            # The base may be a file that the editor had emptied already; what it had loaded is older still.
            writes = await self._journal.since(line.path, late.stamp)
            unseen = healing.unseen(late, writes, await self._journal.known(line.path))
            plan.stamps += [write.stamp for write in writes]
            await self._heal_by(line, plan, healing.merge(late, healing.over(unseen, since)))
        plan.results.append((job, None))
        return plan

    async def _entries(
        self,
        line: _Line,
        parsed: parse.Parsed | None,
        what: _Append,
        floors: dict[tuple[types.Owner, str, str], int],
    ) -> list[entry.Entry]:
        """Return the drafts of one call as entries, with ids that nobody has had before."""
        prefix = kinds.BY_NAME[what.kind].prefix
        date = (line.place.date or layout.UNKNOWN_DATE).replace("-", "")
        slot = (what.owner, prefix, date)
        if line.place.is_shortened:
            line.place = msgspec.structs.replace(line.place, owner=what.owner, is_shortened=False)
        if slot not in floors:
            given = await self._journal.highest(what.owner, prefix, date)
            if slot not in self._high:
                # The ledger may be new and still be reading: what stands in the other files of that day counts too.
                given = max(given, await self._in_thread(lambda: self._highest_on_disk(line.path, what, prefix, date)))
            floors[slot] = max(given, 0 if parsed is None else _highest(parsed, prefix, date))
        # From here on nothing waits, so that no other file of the owner can take the same numbers.
        taken = parsed is not None and any(each in parsed.ids for each in what.ids)
        if not what.ids or taken:
            high = max(self._high.get(slot, 0), floors[slot])
            what.ids = tuple(
                types.EntryId(f"{prefix}_{date}_{high + nth:08}") for nth in range(1, len(what.drafts) + 1)
            )
            self._high[slot] = high + len(what.drafts)
        return [
            entry.Entry(kind=what.kind, id=key, fields=draft.fields, preamble=draft.preamble, sections=draft.sections)
            for key, draft in zip(what.ids, what.drafts, strict=True)
        ]

    def _highest_on_disk(self, path: types.RelPath, what: _Append, prefix: str, date: str) -> int:
        """Return the highest number in the files of a day, whatever their grammar. Done once for each owner and day."""
        kind = kinds.BY_NAME[what.kind]
        folder = self.layout.root / self.layout.owner_folder(what.owner) / kind.folder
        day = f"{date[:4]}-{date[4:6]}-{date[6:]}"
        numbers = re.compile(rf"{prefix}_{date}_(\d{{1,8}})(?!\w)".encode())
        high = 0
        for found in (self.layout.root / path, *folder.rglob(f"*{day}*.md")):
            try:
                data = file.read(found).data
            except OSError:
                continue
            high = max((high, *(int(match[1]) for match in numbers.finditer(data))))
        return high

    # -- files that only machines write ----------------------------------------------------------------------------

    async def _commit_rows(self, line: _Line, absolute: Path) -> None:
        while jobs := self._take(line):
            for job in jobs:
                if not isinstance(job.what, _Append):
                    job.fail(errors.WriteRefused(line.path, "is only appended to"))
            self._expire(line, self._clock.monotonic_s())
            jobs = [job for job in jobs if job in line.active and not job.future.done()]
            if not jobs:
                continue
            is_there, parsed = await self._in_thread(lambda: self._load_rows(line, absolute))
            if parsed is not None and parsed.error is not None:
                self._redirect(line, parsed, jobs)
                continue
            floors: dict[tuple[types.Owner, str, str], int] = {}
            asked = [(job, await self._entries(line, parsed, cast("_Append", job.what), floors)) for job in jobs]
            good, rows = await self._in_thread(lambda: _encodable(asked))  # noqa: B023 - awaited before the next turn
            if not rows:
                # Those who asked have been told, on the loop's next turn.
                await asyncio.sleep(0)
                continue
            outcome = await self._in_thread(lambda: self._write_rows(line, absolute, rows, is_there=is_there))  # noqa: B023
            line.settled = None
            if not isinstance(outcome, file.Changed):
                line.settled = outcome.identity
                for job in good:
                    job.finish(cast("_Append", job.what).ids)

    def _load_rows(self, line: _Line, absolute: Path) -> tuple[bool, parse.Parsed | None]:
        """Read the file, unless it is as the daemon left it; cut what a crash left half-written."""
        identity = file.identify(absolute)
        if identity is None:
            return False, None
        if identity == line.settled:
            return True, None
        file.cut_torn_tail(absolute, self._tmp)
        try:
            data = file.read(absolute).data
        except OSError as error:
            raise file.refusal(absolute, error) from error
        parsed = parse.parse(line.path, data, line.place, timezone=self._timezone)
        line.newline = parsed.newline
        return True, parsed

    def _write_rows(
        self, line: _Line, absolute: Path, rows: Sequence[entry.Entry], *, is_there: bool
    ) -> file.Appended | file.Replaced | file.Changed:
        if is_there:
            text = "".join(render.entry_text(each, line.newline) for each in rows)
            return file.append(absolute, text.encode("utf-8", "surrogatepass"), step=self._step)
        file.make_folder(absolute.parent)
        stamp = self._clock.now().astimezone(dt.UTC).isoformat(timespec="microseconds")
        new = render.new_file(line.place, rows, stamp=stamp)
        return cast("file.Replaced | file.Changed", file.replace(absolute, None, new, self._tmp, step=self._step))

    # -- saves into displaced files --------------------------------------------------------------------------------

    def _watch_displaced(self) -> None:
        if len(self._watch) and (self._late_task is None or self._late_task.done()) and not self._is_closed:
            loop = asyncio.get_running_loop()
            self._late_task = loop.create_task(self._look_after_displaced(), name="log-displaced")

    async def _look_after_displaced(self) -> None:
        while len(self._watch) and not self._is_closing:
            await self._clock.sleep(_LATE_PAUSE_S)
            try:
                saves = await self._in_thread(self._watch.late_saves)
            except OSError as error:
                log.warning("displaced_files_unreadable", error=str(error))
                continue
            for save in saves:
                await self._take_up(save)

    async def _take_up(self, save: displaced.LateSave) -> None:
        """Bring a late save into the log; where that fails it is kept as a file."""

        def relative() -> types.RelPath:
            root = os.path.realpath(self.layout.root)
            return types.RelPath(Path(os.path.realpath(save.path)).relative_to(root).as_posix())

        # Until it is in the log it is kept as a file, which the next start takes up if this one does not get to it.
        kept = await self._in_thread(lambda: displaced.keep(save, self._tmp))
        try:
            path = await self._in_thread(relative)
            await self._ask(path, _Late(save=save))
        except Exception as error:
            # Whatever went wrong, this is a person's text.
            log.exception("late_save_kept_aside", path=str(save.path), kept=str(kept), reason=str(error))
        else:
            await self._in_thread(lambda: displaced.discard(kept))
            log.info("late_save_taken_up", path=path)


def _apply(plan: _Plan, path: types.RelPath, what: _Update | _Point | _Adopt | _Late) -> object:
    """Add to the plan what one caller asked for; return what they get when it is done."""
    if plan.parsed is None:
        message = f"there is no {path}"
        raise errors.NotFound(message)
    if isinstance(what, _Update):
        return _apply_update(plan, path, what)
    if isinstance(what, _Point):
        for key, successor in what.successors.items():
            if successor:
                plan.deprecated[key] = successor
            else:
                plan.deprecated.pop(key, None)
        return None
    n_hand = sum(each.form in ("hand", "headed") for each in plan.parsed.entries)
    plan.is_adopting = plan.is_adopting or n_hand > 0
    return n_hand


def _apply_update(plan: _Plan, path: types.RelPath, what: _Update) -> entry.Entry:
    for at, each in enumerate(plan.appended):
        if each.id == what.entry_id:
            plan.appended[at] = _changed(each, what.change)
            return plan.appended[at]
    old = plan.replaced.get(what.entry_id) or plan.entries.get(what.entry_id)
    if old is None:
        message = f"{path} has no entry {what.entry_id}"
        raise errors.NotFound(message)
    new = _changed(old, what.change)
    if new is not old:
        plan.replaced[what.entry_id] = new
    return new


def _changed(old: entry.Entry, change: Change) -> entry.Entry:
    new = change(old)
    parts = (new.fields, new.preamble, new.heading, new.sections)
    if parts == (old.fields, old.preamble, old.heading, old.sections):
        return old
    return msgspec.structs.replace(new, id=old.id, kind=old.kind, form=old.form, nth=old.nth, raw="", digest=b"")


def _encodable(asked: Iterable[tuple[_Job, list[entry.Entry]]]) -> tuple[list[_Job], list[entry.Entry]]:
    """Return what can be written; fail those callers whose entries cannot."""
    good: list[_Job] = []
    rows: list[entry.Entry] = []
    for job, entries in asked:
        try:
            for each in entries:
                _raw(each).encode()
        except ValueError as error:
            job.future.get_loop().call_soon_threadsafe(job.fail, error)
        else:
            good.append(job)
            rows += entries
    return good, rows


def _raw(each: entry.Entry) -> str:
    return render.whole_text(each) if each.form == "whole" else render.inner_text(each)


def _finish(plan: _Plan) -> None:
    for job, result in plan.results:
        job.finish(result)


def _highest(parsed: parse.Parsed, prefix: str, date: str) -> int:
    """Return the highest number that the file knows of for a prefix and date."""
    ids = {*parsed.ids, *parsed.deprecated, *parsed.deprecated.values(), *(each.id for each in parsed.entries)}
    high = 0
    for each in ids:
        match = types.ENTRY_ID.fullmatch(each)
        if match is None or match["prefix"] != prefix or match["date"] != date:
            continue
        seq = match["seq"]
        if seq.isascii() and seq.isdigit() and int(seq) <= _MAX_SEQ:
            high = max(high, int(seq))
    is_own = (parsed.place.date or "").replace("-", "") == date
    return max(high, parsed.entry_count) if is_own and parsed.entry_count <= _MAX_SEQ else high
