"""The cascade itself: dirty paths are read, compared, written to the ledger; the projections are woken.

Saves seen by the watcher come first, the backlog of a start-up or rebuild fills the time between them.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import pathlib
import sqlite3
import zoneinfo
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TypeVar

import msgspec
import structlog

from everosd import clock, errors, types
from everosd.cascade import dirty, embed, ingest, plan, problems, project, reading, status, unshown
from everosd.index import contract
from everosd.log import layout, writer
from everosd.store import db
from everosd.watch import scan, settle

T = TypeVar("T")

BULK = 64
"""More files than this at once are a start, a restore, a rebuild: vectors wait until keyword search has them."""

SHOWN_S, SHOWN_LOOK_S = 1.0, 0.005
"""How long a search waits at most for what everosd itself wrote a moment ago, and how often it looks."""

log = structlog.get_logger(__name__)


class Adopted(msgspec.Struct, frozen=True, kw_only=True):
    """What an adoption did."""

    entries: int
    """Hand-written entries that got their markers."""
    refused: tuple[str, ...] = ()
    """Files that were left as they are, each with line and reason."""


class Cascade:
    """Keeps the ledger and every index in step with the disk. Lives on the event loop."""

    def __init__(
        self,
        *,
        root: pathlib.Path,
        timezone: zoneinfo.ZoneInfo,
        database: db.Database,
        projections: Sequence[project.Projection[contract.Index]],
        embedding: embed.Embedding | None = None,
        settler: settle.Settler,
        writer: writer.Writer,
        time: clock.Clock,
        scan_interval_s: float = 30.0,
    ) -> None:
        """Wire the parts; nothing runs before `start` and `run`."""
        self.root = root
        self.timezone = timezone
        self.database = database
        self.projections = tuple(projections)
        self.embedding = embedding
        """Makes the vectors of the projection that needs some; None where there is none."""
        self.gives_way: Callable[[], bool] = _never
        """Asked before what everosd itself wrote is read: whether somebody is being answered."""
        self.writer = writer
        self._settler = settler
        self._clock = time
        self._scan_interval_s = scan_interval_s
        self._reading = concurrent.futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix="cascade-read")
        self._dirty = dirty.Dirty()
        self._ingest = ingest.Ingest(
            root=root,
            timezone=timezone,
            database=database,
            pen=writer,
            time=time,
            on_failure=self._failed,
            on_stale_save=self._start_healing,
            on_doubt=lambda path: self.mark((path,)),
        )
        self._unshown = unshown.Unshown()
        self._n_awaiting = 0
        self._healing: set[types.RelPath] = set()
        self._tasks: asyncio.TaskGroup | None = None
        self._work = asyncio.Event()
        self._phase: status.Phase = "starting"
        self._is_compared = False
        self._scan = scan.Scan()
        self._scanned_s = time.monotonic_s()
        self._scanning = asyncio.Lock()
        for projection in self.projections:
            if not projection.is_prompt:
                projection.gives_way = self._is_catching_up

    # -- life ------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Load what the ledger knows and queue everything that differs on disk. Searches may be answered meanwhile."""
        await self._ingest.load()
        self._wake_projections()
        await self.reconcile("start")
        # Only now: while nothing is queued yet, an empty queue says nothing about the disk.
        self._phase, self._is_compared = "reconciling", False

    async def run(self) -> None:
        """Run every loop until cancelled; a loop that fails takes the others down with it."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            for projection in self.projections:
                tasks.create_task(projection.run(), name=f"projection-{projection.name}")
            if self.embedding is not None:
                tasks.create_task(self.embedding.run(), name="embedding")
            tasks.create_task(self._collect(), name="cascade-collect")
            tasks.create_task(self._apply_loop(), name="cascade-apply")
            tasks.create_task(self._rescan_loop(), name="cascade-rescan")

    async def close(self) -> None:
        """Release the reading thread and the indexes; call after `run` was cancelled."""
        self._phase = "stopping"
        self._reading.shutdown(wait=False, cancel_futures=True)
        if self.embedding is not None:
            await self.embedding.close()
        for projection in self.projections:
            await projection.close()

    # -- what is dirty ---------------------------------------------------------------------------------------------

    def mark(self, paths: Iterable[types.RelPath]) -> None:
        """Ask for a look at these files, before any backlog; logs of sessions, which are not searched, wait for each other."""
        self._mark(paths, layout.is_in_session)

    def _mark(self, paths: Iterable[types.RelPath], is_later: Callable[[types.RelPath], bool]) -> None:
        later: list[types.RelPath] = []
        others: list[types.RelPath] = []
        for path in paths:
            (later if is_later(path) else others).append(path)
        self._dirty.mark(others)
        self._dirty.mark_logs(later, self._clock.monotonic_s(), is_busy=self._is_busy())
        self._work.set()

    def _is_busy(self) -> bool:
        """Tell whether somebody is being answered who does not wait for what is to be read."""
        return not self.is_awaited and self.gives_way()

    def wrote(self, path: types.RelPath) -> None:
        """Take note that everosd itself has just written to a file, so that `until_shown` can wait for it."""
        self._unshown.wrote(path)

    async def _collect(self) -> None:
        while True:
            batch = await self._settler.next()
            self._mark(batch.paths, lambda path: path in self._unshown or layout.is_in_session(path))
            if batch.rescan:
                await self.reconcile(batch.rescan)
            for folder in batch.folders:
                await self._compare_folder(folder)
            if batch.others and not batch.rescan:
                await self._look_at_others(batch.others)

    async def _rescan_loop(self) -> None:
        while True:
            await self._clock.sleep(self._scan_interval_s)
            await self.reconcile("timer")

    async def _compare_folder(self, folder: types.RelPath) -> None:
        seen = await asyncio.to_thread(scan.scan, self.root, below=folder)
        known = {path: at for path, at in self._ingest.known.items() if path.startswith(f"{folder}/")}
        found = plan.plan(known, seen)
        self._ingest.seen(seen.files)  # as they were: nothing is stale, and an alarm over them is over
        self.mark((*found.stale, *found.vanished))

    async def _look_at_others(self, paths: Collection[str]) -> None:
        """Keep conflict copies and strays of the status in step without walking the root."""
        await asyncio.to_thread(self._ingest.problems.look_at, self.root, paths)

    async def reconcile(self, reason: str) -> None:
        """Compare the whole root with the ledger and queue what differs."""
        async with self._scanning:
            seen = await asyncio.to_thread(scan.scan, self.root)
            found = plan.plan(self._ingest.known, seen)
            self._scan, self._scanned_s = seen, self._clock.monotonic_s()
            self._ingest.problems.scanned(seen)
            self._ingest.seen(seen.files)
            if found.stale or found.vanished:
                log.info("reconcile", reason=reason, stale=len(found.stale), vanished=len(found.vanished))
            self._dirty.add_backlog((*found.stale, *found.vanished))
            self._work.set()

    async def _in_thread(self, job: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._reading, job)

    # -- the work --------------------------------------------------------------------------------------------------

    async def _apply_loop(self) -> None:
        while True:
            self._work.clear()
            self._mark_due()
            chunk = self._dirty.take(self._scan.files)
            if chunk:
                await self._apply(chunk)
                continue
            self._is_compared = bool(self._ingest.alarm) or not self._ingest.grace.missing_files()
            await clock.wait(self._work, self._next_due_s(), self._clock)

    async def _apply(self, chunk: tuple[types.RelPath, ...]) -> None:
        """Apply a chunk; what fails as a whole (the ledger cannot be written) is tried again, nothing is dropped."""
        began_us = clock.to_us(self._clock.now())
        self._unshown.taken(chunk)
        try:
            growing = self._ingest.growing(chunk)
            grown = await self._in_thread(lambda: self._ingest.read_on(growing)) if growing else {}
            whole = tuple(path for path in chunk if path not in grown)
            held = await self._ingest.held(whole)
            looks = await self._in_thread(lambda: self._ingest.read(whole, held)) if whole else {}
            for path in (*grown, *looks):
                if not isinstance(looks.get(path), scan.Unreadable):
                    self._dirty.succeeded(path)
            await self._ingest.apply_grown(grown, began_us)
            await self._ingest.apply(looks, began_us)
        except db.DamagedStoreError:
            raise  # the daemon ends; the next start sets the ledger aside and reads the Markdown again
        except errors.StoreError as error:
            if not self._ingest.problems.ledger_error:
                log.error("ledger_write_failed", reason=str(error), n_paths=len(chunk))  # noqa: TRY400  # said in health too
            self._ingest.problems.ledger_failed(str(error))
            self._unshown.dropped()
            self._dirty.put_back()
            await self._clock.sleep(1.0)
        else:
            self._ingest.problems.ledger_failed("")
            self._unshown.applied(self._ingest.lsn, self._shown_lsn())
            self._wake_projections()
            self._dirty.done()

    def _mark_due(self) -> None:
        """Queue what waited for its time: absences that may be certain now, files to be read once more."""
        now_s = self._clock.monotonic_s()
        if not self._ingest.alarm:
            self._dirty.mark(map(types.RelPath, self._ingest.grace.due(now_s)))
        self._dirty.mark_due(now_s, is_busy=self._is_busy())

    def _next_due_s(self) -> float | None:
        now_s = self._clock.monotonic_s()
        waits = [self._dirty.next_due_s(now_s), None if self._ingest.alarm else self._ingest.grace.next_due_s(now_s)]
        due = [wait for wait in waits if wait is not None]
        return min(due) + 0.001 if due else None

    def _failed(self, path: types.RelPath, reason: str) -> None:
        if self._dirty.failed(path, self._clock.monotonic_s()) == 1:
            log.warning("file_unreadable", path=path, reason=reason)

    def _start_healing(self, path: types.RelPath, read: reading.Reading) -> None:
        """Merge a stale save beside the other work: the writer waits until the editor has been quiet."""
        if path not in self._healing:
            self._healing.add(path)
            assert self._tasks is not None  # noqa: S101  # the apply loop runs in it
            self._tasks.create_task(self._heal(path, read), name=f"heal-{path}")

    async def _heal(self, path: types.RelPath, read: reading.Reading) -> None:
        try:
            await self._ingest.heal(path, read)
        finally:
            self._healing.discard(path)
        self.mark((path,))

    # -- what others ask for ---------------------------------------------------------------------------------------

    def _wake_projections(self) -> None:
        for projection in self.projections:
            projection.wake(self._ingest.lsn)

    async def until_shown(self, owner: types.Owner) -> None:
        """Wait until a search by keyword finds what everosd had written of an owner when this was called, but not for long."""
        n = self._unshown.n
        if not self._unshown.is_unread(owner, n) and self._unshown.lsn(owner) <= self._shown_lsn():
            return
        until_s = self._clock.monotonic_s() + SHOWN_S
        self._n_awaiting += 1
        try:
            while self._unshown.is_unread(owner, n) and self._clock.monotonic_s() < until_s:
                self.mark(self._unshown.unread(owner, n))
                await self._clock.sleep(SHOWN_LOOK_S)
            lsn = self._unshown.lsn(owner)
            while lsn > self._shown_lsn() and self._clock.monotonic_s() < until_s:
                await self._clock.sleep(SHOWN_LOOK_S)
        finally:
            self._n_awaiting -= 1

    @property
    def is_awaited(self) -> bool:
        """Whether a search waits for the indexes to show what was written a moment ago."""
        return self._n_awaiting > 0

    def _shown_lsn(self) -> float:
        """Return up to where searches by keyword find everything; an index that is filled or fails is not waited for."""
        return min((at for one in self._prompt() if (at := one.follows()) is not None), default=float("inf"))

    @property
    def lsn(self) -> types.Lsn:
        """How far the ledger has come."""
        return types.Lsn(self._ingest.lsn)

    def pending(self) -> int:
        """Return how much is noticed and not in the ledger and every index."""
        paths = self.n_waiting() + len(self._settler)
        behind = max((projection.status().behind for projection in self.projections), default=0)
        return paths + len(self._ingest.grace) + behind + self.n_owed()

    def n_owed(self) -> int:
        """Return how many entries wait for their vectors only."""
        return 0 if self.embedding is None else self.embedding.n_owed()

    def phase(self) -> status.Phase:
        """Return where the daemon stands; ready once what was on disk at the start is searchable."""
        is_serving = all(projection.is_caught_up() for projection in self._prompt())
        if self._phase == "reconciling" and self._is_compared and is_serving:
            self._phase = "ready"
        return self._phase

    def _prompt(self) -> list[project.Projection[contract.Index]]:
        return [projection for projection in self.projections if projection.is_prompt]

    def _is_catching_up(self) -> bool:
        """Return whether many files are on their way to keyword search, or anything that was read is."""
        return len(self._dirty) > BULK or not all(projection.is_caught_up() for projection in self._prompt())

    def n_waiting(self) -> int:
        """Return how many paths are queued or in work, absences that wait for certainty not counted."""
        return len(self._dirty) + len(self._healing)

    def waits_below(self, folder: types.RelPath) -> bool:
        """Tell whether any file of a folder is noticed and not in the ledger."""
        return self._dirty.waits_below(folder)

    def backlog_progress(self) -> tuple[int, int]:
        """Return (done, total) files of the comparison in progress."""
        return self._dirty.progress()

    @contextlib.contextmanager
    def accepting_deletions(self) -> Iterator[None]:
        """Take what is gone from the disk as deleted at once, however much it is."""
        self._ingest.is_accepting = True
        try:
            yield
        finally:
            self._ingest.is_accepting = False

    @contextlib.contextmanager
    def erasing(self, paths: Iterable[types.RelPath], folders: Iterable[types.RelPath] = ()) -> Iterator[None]:
        """Take what is gone from these files and folders as deleted at once: everosd itself takes it out. `notice` it then."""
        new = {*paths, *(f"{folder}/" for folder in folders)} - self._ingest.meant
        self._ingest.meant |= new
        try:
            yield
        finally:
            self._ingest.meant -= new

    async def notice(
        self, paths: Collection[types.RelPath], timeout_s: float, folders: Collection[types.RelPath] = ()
    ) -> bool:
        """Look at these files, and at all that is known below these folders, until the ledger knows no more of what is gone.

        What was read before this was called, and is not in the ledger yet, is waited for: nothing of it comes in later.
        False: not within `timeout_s`.
        """
        until_s = self._clock.monotonic_s() + timeout_s
        in_work = self._dirty.in_work
        while self._clock.monotonic_s() < until_s:
            self.mark({*paths, *self._known(paths, folders)})
            for _ in range(50):  # until it is asked once more
                is_read = not in_work or self._dirty.in_work is not in_work
                if is_read and not await asyncio.to_thread(_any_gone, self.root, self._known(paths, folders)):
                    return True
                await self._clock.sleep(0.02)
        return False

    def _known(self, paths: Iterable[types.RelPath], folders: Collection[types.RelPath]) -> list[types.RelPath]:
        """Return which of these files, and of those below these folders, the ledger has."""
        below = tuple(f"{folder}/" for folder in folders)
        found = [path for path in self._ingest.known if path.startswith(below)] if below else []
        return found + [path for path in paths if path in self._ingest.known]

    def expire_known(self) -> None:
        """Have every known file read again, as the ledger's stale marks say."""
        known = self._ingest.known
        known.update({path: msgspec.structs.replace(at, is_stale=True) for path, at in known.items()})

    async def adopt(self, path: types.RelPath | None = None) -> Adopted:
        """Give hand-written entries of one file, or of all, their markers.

        Raises:
            NotFound: There is no such file.
            WriteRefused: The file may not be rewritten; of all, it is named and the others go on.
        """
        if path is not None:
            n_adopted = await self.writer.adopt(path)
            self.mark([path])
            return Adopted(entries=n_adopted)
        n_adopted, refused = 0, []
        paths = await self.database.write(_paths_with_hand_text)
        for item in paths:
            try:
                n_adopted += await self.writer.adopt(item)
            except errors.WriteRefused as error:
                refused.append(str(error))
            except errors.NotFound:  # deleted meanwhile
                continue
        self.mark(paths)
        return Adopted(entries=n_adopted, refused=tuple(refused))

    def is_settled(self) -> bool:
        """Return whether everything noticed is searchable by keyword; what an alarm holds back is not waited for."""
        held = len(self._ingest.grace) if self._ingest.alarm else 0
        noticed = self.n_waiting() + len(self._settler) + len(self._ingest.grace)
        return self.phase() == "ready" and noticed == held and not any(p.is_behind() for p in self._prompt())

    async def settled(self, timeout_s: float = 60.0) -> None:
        """Wait until everything noticed is searchable by keyword.

        Raises:
            TimeoutError: it was not after `timeout_s`.

        """
        async with asyncio.timeout(timeout_s):
            while not self.is_settled():  # noqa: ASYNC110  # five parts decide, none of them alone
                await asyncio.sleep(0.005)

    @property
    def problems(self) -> problems.Problems:
        """What is not as it should be on disk."""
        return self._ingest.problems

    def projection_states(self) -> dict[str, status.ProjectionStatus]:
        """Return how far each index is; cheap."""
        states = {projection.name: projection.status() for projection in self.projections}
        return states if self.embedding is None else states | {self.embedding.name: self.embedding.status()}

    def status(self) -> status.Status:
        """Return a snapshot; cheap."""
        problems_now = (
            *problems.of_saves(self.writer.unmerged()),
            *self.problems.listing(),
            *(() if self.embedding is None else self.embedding.problems()),
        )
        n_retryable, n_permanent = self._dirty.n_failed()
        n_refused = 0 if self.embedding is None else self.embedding.n_refused()
        known, missing = self._ingest.known, self._ingest.grace.missing_files()
        done, total = self._dirty.progress()
        return status.Status(
            owners=self._ingest.n_owners(),
            phase=self.phase(),
            lsn=self._ingest.lsn,
            files_on_disk=len(known) - len(missing) + self._dirty.n_new(known),
            files_indexed=len(known),
            entries=self._ingest.n_entries,
            rows=self._ingest.n_rows,
            pending=self.pending(),
            failed_retryable=n_retryable,
            failed_permanent=n_permanent + self.problems.n_errors() + n_refused,
            problems=problems_now[:200],
            n_problems=len(problems_now),
            alarm=self._ingest.alarm,
            scan_age_s=self._clock.monotonic_s() - self._scanned_s,
            done=done if done < total else 0,
            total=total if done < total else 0,
            projections=self.projection_states(),
            embedding=None if self.embedding is None else self.embedding.model_status(),
        )


def _never() -> bool:
    """Give way to nobody."""
    return False


def _any_gone(root: pathlib.Path, paths: Iterable[types.RelPath]) -> bool:
    return any(not (root / path).exists() for path in paths)


def _paths_with_hand_text(connection: sqlite3.Connection) -> list[types.RelPath]:
    rows = connection.execute("SELECT DISTINCT path FROM entries WHERE form IN ('hand', 'headed') ORDER BY path")
    return [types.RelPath(path) for (path,) in rows]
