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
from everosd.cascade import grace, plan, problems, project, reading, rebuild, status, verify
from everosd.index import contract
from everosd.log import heal, writer
from everosd.store import db, ledger, meta, state
from everosd.watch import scan, settle

CHUNK_FILES = 64
"""Files per transaction. A save that arrives meanwhile waits for at most this many."""

CHUNK_BYTES = 4_000_000
"""Bytes per transaction, so that many large files do not make one long one."""

RETRY_S = (0.2, 1.0, 5.0, 15.0, 60.0)
"""Waits before a file that could not be read is tried again."""

PERMANENT_ATTEMPTS = 5
"""A file that failed this often counts as failed for good (and is still tried once a minute)."""

OPEN_LIMIT_S = 60.0
"""How long entries missing from a file are held while some program keeps it open for writing."""

T = TypeVar("T")

log = structlog.get_logger(__name__)


class Cascade:
    """Keeps the ledger and every index in step with the disk. Lives on the event loop."""

    def __init__(
        self,
        *,
        root: pathlib.Path,
        timezone: zoneinfo.ZoneInfo,
        database: db.Database,
        projections: Sequence[project.Projection[contract.Index]],
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
        self.writer = writer
        self._settler = settler
        self._clock = time
        self._scan_interval_s = scan_interval_s
        self._reading = concurrent.futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix="cascade-read")
        self.known: dict[types.RelPath, plan.Known] = {}
        self._stamps: dict[types.RelPath, str] = {}
        self._urgent: dict[types.RelPath, None] = {}
        self._backlog: dict[types.RelPath, None] = {}
        self._inflight: tuple[types.RelPath, ...] = ()
        self._retries: dict[types.RelPath, tuple[int, float]] = {}
        self._grace = grace.Grace()
        self._healing: set[types.RelPath] = set()
        self._as_meant: dict[types.RelPath, bytes] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._is_accepting = False
        self._work = asyncio.Event()
        self.problems = problems.Problems()
        self._phase: status.Phase = "starting"
        self._lsn = 0
        self._n_entries = 0
        self._scan = scan.Scan()
        self._scanned_s = time.monotonic_s()
        self._scanning = asyncio.Lock()
        self._total = 0
        self._alarm = ""
        self._progressed_s = time.monotonic_s()

    # -- life ------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Load what the ledger knows and queue everything that differs on disk. Searches may be answered meanwhile."""
        self._phase = "reconciling"
        await self.database.write(lambda connection: meta.expire_readings(connection, self.timezone.key))
        self.known, self._stamps, self._lsn, self._n_entries = await self.database.write(_load)
        found, duplicates = await self.database.write(problems.load)
        self.problems.reset(found, duplicates)
        self._wake_projections()
        await self.reconcile("start")

    async def run(self) -> None:
        """Run every loop until cancelled; a loop that fails takes the others down with it."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            for projection in self.projections:
                tasks.create_task(projection.run(), name=f"projection-{projection.name}")
            tasks.create_task(self._collect(), name="cascade-collect")
            tasks.create_task(self._apply_loop(), name="cascade-apply")
            tasks.create_task(self._rescan_loop(), name="cascade-rescan")
            tasks.create_task(rebuild.resume(self), name="cascade-resume-rebuild")

    async def close(self) -> None:
        """Release the reading thread and the indexes; call after `run` was cancelled."""
        self._phase = "stopping"
        self._reading.shutdown(wait=False, cancel_futures=True)
        for projection in self.projections:
            await projection.close()

    # -- what is dirty ---------------------------------------------------------------------------------------------

    def mark(self, paths: Iterable[types.RelPath]) -> None:
        """Ask for a look at these files, before any backlog."""
        for path in paths:
            self._urgent[path] = None
        self._work.set()

    async def _collect(self) -> None:
        while True:
            batch = await self._settler.next()
            if batch.rescan:
                await self.reconcile(batch.rescan)
            for folder in batch.folders:
                await self._compare_folder(folder)
            if batch.others and not batch.rescan:
                await self._rescan_others(batch.others)
            self.mark(batch.paths)

    async def _rescan_loop(self) -> None:
        while True:
            await self._clock.sleep(self._scan_interval_s)
            await self.reconcile("timer")

    async def _compare_folder(self, folder: types.RelPath) -> None:
        seen = await self._in_thread(lambda: scan.scan(self.root, below=folder))
        known = {path: at for path, at in self.known.items() if path.startswith(f"{folder}/")}
        found = plan.plan(known, seen)
        self.mark((*found.stale, *found.vanished))

    async def _rescan_others(self, paths: Collection[str]) -> None:
        """Keep conflict copies and strays of the status in step without walking the root."""
        await self._in_thread(lambda: self.problems.look_at(self.root, paths))

    async def reconcile(self, reason: str) -> None:
        """Compare the whole root with the ledger and queue what differs."""
        async with self._scanning:
            seen = await self._in_thread(lambda: scan.scan(self.root))
            found = plan.plan(self.known, seen)
            self._scan, self._scanned_s = seen, self._clock.monotonic_s()
            self.problems.scanned(seen)
            for path in self._grace.missing_files():
                if path in seen.files:
                    self._grace.found_file(path)
            if not self._grace.missing_files():
                self._alarm = ""
            if found.stale or found.vanished:
                log.info("reconcile", reason=reason, stale=len(found.stale), vanished=len(found.vanished))
            self._backlog.update(dict.fromkeys((*found.stale, *found.vanished)))
            self._total = len(self._backlog)
            self._work.set()

    async def _in_thread(self, job: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._reading, job)

    # -- the work --------------------------------------------------------------------------------------------------

    async def _apply_loop(self) -> None:
        while True:
            self._work.clear()
            self._take_due()
            chunk = self._next_chunk()
            if chunk:
                await self._guarded(chunk)
                continue
            if self._phase == "reconciling" and (self._alarm or not self._grace.missing_files()):
                self._phase = "ready"
            await clock.wait(self._work, self._next_due_s(), self._clock)

    async def _guarded(self, chunk: tuple[types.RelPath, ...]) -> None:
        """Apply a chunk; what fails as a whole (the ledger cannot be written) is tried again, nothing is dropped."""
        self._inflight = chunk
        try:
            await self._apply(chunk)
        except db.DamagedStoreError:
            raise  # the daemon ends; the next start sets the ledger aside and reads the Markdown again
        except errors.StoreError as error:
            log.exception("ledger_write_failed", n_paths=len(chunk))
            self.problems.ledger_failed(str(error))
            self._backlog = dict.fromkeys(chunk) | self._backlog
            await self._clock.sleep(1.0)
        else:
            self.problems.ledger_failed("")
            self._progressed_s = self._clock.monotonic_s()
        finally:
            self._inflight = ()

    def _next_chunk(self) -> tuple[types.RelPath, ...]:
        source = self._urgent or self._backlog
        chunk: list[types.RelPath] = []
        n_bytes = 0
        for path in source:
            seen = self._scan.files.get(path)
            n_bytes += 0 if seen is None else seen.size
            if chunk and (len(chunk) >= CHUNK_FILES or n_bytes > CHUNK_BYTES):
                break
            chunk.append(path)
        for path in chunk:
            self._urgent.pop(path, None)
            self._backlog.pop(path, None)
        return tuple(chunk)

    def _take_due(self) -> None:
        """Queue what waited for its time: absences that may be certain now, files to be read once more."""
        now_s = self._clock.monotonic_s()
        if not self._alarm:
            self._urgent.update(dict.fromkeys(map(types.RelPath, self._grace.due(now_s))))
        for path, (_, due_s) in self._retries.items():
            if due_s <= now_s:
                self._urgent[path] = None

    def _next_due_s(self) -> float | None:
        now_s = self._clock.monotonic_s()
        waits = [max(0.0, due_s - now_s) for _, due_s in self._retries.values()]
        waiting = None if self._alarm else self._grace.next_due_s(now_s)
        if waiting is not None:
            waits.append(waiting)
        return min(waits) + 0.001 if waits else None

    async def _apply(self, chunk: tuple[types.RelPath, ...]) -> None:
        looks = await self._in_thread(lambda: self._read(chunk))
        readings = {path: look for path, look in looks.items() if isinstance(look, reading.Reading)}
        for path, look in looks.items():
            if isinstance(look, scan.Unreadable):
                self._failed(path, look.reason)
            else:
                self._retries.pop(path, None)
                self.problems.readable(path)
                if not isinstance(look, scan.Absent):
                    self._grace.found_file(path)
        unchanged = [look.disk for look in looks.values() if isinstance(look, reading.Unchanged)]
        if unchanged:
            await self._touch(unchanged)
        stale_saves = [path for path, read in readings.items() if self._is_stale_save(path, read)]
        for path in stale_saves:
            self._start_healing(path, readings.pop(path))
        if readings:
            await self._write(readings)
        absent = {path: look for path, look in looks.items() if isinstance(look, scan.Absent)}
        if absent:
            await self._remove_absent(absent)
        self._wake_projections()

    def _read(self, chunk: tuple[types.RelPath, ...]) -> dict[types.RelPath, reading.Look]:
        looks: dict[types.RelPath, reading.Look] = {}
        for path in chunk:
            known = self.known.get(path)
            is_provable = known is not None and not known.is_stale and not self._grace.waits(path)
            digest = known.digest if known is not None and is_provable else None
            try:
                looks[path] = reading.read(self.root, path, self.timezone, digest)
            except Exception as error:  # whatever a file holds, it stops no other one
                log.exception("file_reading_failed", path=path)
                looks[path] = scan.Unreadable(reason=f"everosd failed on it ({error!r})")
        return looks

    def _failed(self, path: types.RelPath, reason: str) -> None:
        attempts = self._retries.get(path, (0, 0.0))[0] + 1
        wait_s = RETRY_S[min(attempts, len(RETRY_S)) - 1]
        self._retries[path] = (attempts, self._clock.monotonic_s() + wait_s)
        if attempts == 1:
            log.warning("file_unreadable", path=path, reason=reason)
        self.problems.unreadable(path, reason)

    async def _touch(self, files: list[scan.DiskFile]) -> None:
        """Remember a new stat of unchanged bytes, so that the next comparison need not read them."""
        now_us = clock.to_us(self._clock.now())
        rows = [(file.inode, file.size, file.mtime_ns, now_us, file.path) for file in files]

        def job(connection: sqlite3.Connection) -> None:
            connection.executemany(
                "UPDATE files SET inode = ?, size = ?, mtime_ns = ?, read_at_us = ? WHERE path = ?", rows
            )

        await self.database.write(job)
        for file in files:
            known = self.known[file.path]
            self._remember(file, known.digest, known.n_entries, now_us)

    def _remember(self, file: scan.DiskFile, digest: bytes, n_entries: int, now_us: int) -> None:
        self.known[file.path] = plan.Known(
            inode=file.inode,
            size=file.size,
            mtime_ns=file.mtime_ns,
            read_at_ns=now_us * 1000,
            is_stale=False,
            digest=digest,
            n_entries=n_entries,
        )

    async def _write(self, readings: dict[types.RelPath, reading.Reading]) -> None:
        now_s, now_us = self._clock.monotonic_s(), clock.to_us(self._clock.now())
        removable = {path: self._removable(path, read, now_s) for path, read in readings.items()}
        forced = [read.found for path, read in readings.items() if (at := self.known.get(path)) and at.is_stale]
        plain = [read.found for path, read in readings.items() if not ((at := self.known.get(path)) and at.is_stale)]

        def job(connection: sqlite3.Connection) -> dict[str, state.Outcome]:
            outcomes = ledger.apply_files(connection, plain, now_us=now_us, removable=removable)
            outcomes |= ledger.apply_files(connection, forced, now_us=now_us, removable=removable, force=True)
            return outcomes

        outcomes = await self.database.write(job)
        for path, read in readings.items():
            self._applied(path, read, outcomes[path], now_s, now_us)
        if any(outcome.is_shadow_changed for outcome in outcomes.values()):
            self.problems.duplicates = await self.database.write(problems.load_duplicates)

    def _removable(
        self, path: types.RelPath, read: reading.Reading, now_s: float
    ) -> Collection[grace.Identity] | None:
        """Return which missing entries of a file are gone for certain; None: whatever is missing."""
        if self._is_accepting:
            return None
        if read.is_being_written and not self._grace.has_waited(path, now_s, OPEN_LIMIT_S):
            return ()
        return self._grace.removable(path, now_s)

    def _applied(
        self, path: types.RelPath, read: reading.Reading, outcome: state.Outcome, now_s: float, now_us: int
    ) -> None:
        found = read.found
        disk = scan.DiskFile(path=path, inode=found.inode, size=found.size, mtime_ns=found.mtime_ns)
        self._remember(disk, found.digest, len(found.entries) + len(outcome.withheld), now_us)
        self._grace.miss_entries(path, outcome.withheld, now_s)
        if not heal.is_older(found.stamp, self._stamps.get(path, "")):
            self._stamps[path] = found.stamp
        self._lsn = max(self._lsn, outcome.lsn)
        self._n_entries += outcome.entries_delta
        self.problems.read(found)
        if outcome.added or outcome.modified or outcome.removed:
            log.debug(
                "file_applied", path=path, added=outcome.added, modified=outcome.modified, removed=outcome.removed,
                lsn=outcome.lsn,
            )  # fmt: skip

    # -- stale saves -----------------------------------------------------------------------------------------------

    def _is_stale_save(self, path: types.RelPath, read: reading.Reading) -> bool:
        """Return whether the file carries an older stamp than one that is known to have been on disk."""
        stamp = read.found.stamp
        if not stamp or read.found.error or self._as_meant.get(path) == read.found.digest:
            return False
        return any(heal.is_older(stamp, newest) for newest in (self._stamps.get(path, ""), self.writer.newest_stamp(path)))

    def _start_healing(self, path: types.RelPath, read: reading.Reading) -> None:
        """Merge a stale save beside the other work: the writer waits until the editor has been quiet."""
        if path not in self._healing:
            self._healing.add(path)
            assert self._tasks is not None  # noqa: S101  # the apply loop runs in it
            self._tasks.create_task(self._heal(path, read), name=f"heal-{path}")

    async def _heal(self, path: types.RelPath, read: reading.Reading) -> None:
        """Put back what a stale editor buffer wiped; the healed file is then read like any other save."""
        try:
            entries, _ = await self.database.write(lambda connection: meta.held_of(connection, path))
            report = await self.writer.heal(path, read.parsed, entries)
        except errors.EverosdError as error:
            self._failed(path, str(error))
            return
        finally:
            self._healing.discard(path)
        if report:
            log.warning("stale_save_healed", path=path, restored=len(report.restored), conflicts=len(report.conflicts))
            self.problems.healed(path, report.describe())
        else:
            # Nothing of the daemon's is missing: the save counts as it stands, old stamp and all.
            self._as_meant[path] = read.found.digest
        self.mark((path,))

    # -- what is gone ----------------------------------------------------------------------------------------------

    async def _remove_absent(self, absent: dict[types.RelPath, scan.Absent]) -> None:
        now_s = self._clock.monotonic_s()
        ripe: list[types.RelPath] = []
        for path, look in absent.items():
            if path not in self.known:
                self._grace.forget(path)
                self.problems.forget(path)
            elif not look.parent_lists:
                self._grace.found_file(path)
            elif self._is_accepting or await self.database.write(
                lambda connection, path=path: ledger.entries_stand_elsewhere(connection, path)  # type: ignore[misc]
            ) or self._grace.miss_file(path, now_s):
                ripe.append(path)
        if ripe and not self._is_held_back(ripe, now_s):
            await self._remove(ripe, now_s)

    def _is_held_back(self, paths: list[types.RelPath], now_s: float) -> bool:
        missing = {*paths, *map(types.RelPath, self._grace.missing_files())} & self.known.keys()
        gone = {path: self.known[path].n_entries for path in missing}
        if self._is_accepting or not self._grace.is_mass_deletion(
            gone, n_files=len(self.known), n_entries=self._n_entries, now_s=now_s
        ):
            self._alarm = ""
            return False
        self._alarm = (
            f"{len(gone)} of {len(self.known)} files with {sum(gone.values())} entries are gone from {self.root}; nothing is"
            " removed from the indexes. If the folder is not mounted, mount it; if you meant it, run `everosd rebuild`"
        )
        log.error("mass_deletion_held", files=len(gone), entries=sum(gone.values()))
        return True

    async def _remove(self, paths: list[types.RelPath], now_s: float) -> None:
        now_us = clock.to_us(self._clock.now())
        outcomes = await self.database.write(lambda connection: ledger.remove_files(connection, paths, now_us=now_us))
        for path in paths:
            self.known.pop(path, None)
            self._grace.forget(path)
            self.problems.forget(path)
            outcome = outcomes.get(path)
            if outcome is not None:
                self._lsn = max(self._lsn, outcome.lsn)
                self._n_entries += outcome.entries_delta
                self._grace.deleted(outcome.removed, now_s)
        self.problems.duplicates = await self.database.write(problems.load_duplicates)

    # -- what others ask for ---------------------------------------------------------------------------------------

    def _wake_projections(self) -> None:
        for projection in self.projections:
            projection.wake(self._lsn)

    def pending(self) -> int:
        """Return how much is noticed and not in the ledger and every index."""
        paths = self.n_waiting() + len(self._settler)
        behind = max((projection.status().behind for projection in self.projections), default=0)
        return paths + len(self._grace) + behind

    def n_waiting(self) -> int:
        """Return how many paths are queued or in work, absences that wait for certainty not counted."""
        return len(self._urgent.keys() | self._backlog.keys()) + len(self._inflight) + len(self._healing)

    def backlog_progress(self) -> tuple[int, int]:
        """Return (done, total) files of the comparison in progress."""
        return max(0, self._total - len(self._backlog)), self._total

    @contextlib.contextmanager
    def accepting_deletions(self) -> Iterator[None]:
        """Take what is gone from the disk as deleted at once, however much it is."""
        self._is_accepting = True
        try:
            yield
        finally:
            self._is_accepting = False

    def expire_known(self) -> None:
        """Have every known file read again, as the ledger's stale marks say."""
        self.known = {path: msgspec.structs.replace(at, is_stale=True) for path, at in self.known.items()}

    async def rebuild(self, progress: rebuild.Progress | None = None) -> None:
        """Read every file again and fill every index anew; see `cascade.rebuild`."""
        await rebuild.rebuild(self, progress or rebuild.silent)

    async def verify(self, progress: rebuild.Progress | None = None) -> verify.Report:
        """Compare the live state with a fresh reading of the disk; see `cascade.verify`."""
        return await verify.verify(self, progress or rebuild.silent)

    async def adopt(self, path: types.RelPath | None = None) -> int:
        """Give hand-written entries of one file, or of all, their markers; return how many got them."""
        paths = [path] if path is not None else await self.database.write(_paths_with_hand_text)
        n_adopted = 0
        for item in paths:
            n_adopted += await self.writer.adopt(item)
        self.mark(paths)
        return n_adopted

    def is_settled(self) -> bool:
        """Return whether everything noticed is searchable."""
        return self._phase == "ready" and self.pending() == 0 and not any(p.is_behind() for p in self.projections)

    async def settled(self, timeout_s: float = 60.0) -> None:
        """Wait until everything noticed is searchable.

        Raises:
            TimeoutError: it was not after `timeout_s`.

        """
        async with asyncio.timeout(timeout_s):
            while not self.is_settled():
                await asyncio.sleep(0.005)  # noqa: ASYNC110  # five parts decide, none of them alone

    def status(self) -> status.Status:
        """Return a snapshot; cheap."""
        counted = self.problems.listing()
        waiting = len(self._backlog)
        attempts = [n for n, _ in self._retries.values()]
        return status.Status(
            phase=self._phase,
            lsn=self._lsn,
            files_on_disk=len(self._scan.files.keys() | self.known.keys() - set(self._grace.missing_files())),
            files_indexed=len(self.known),
            entries=self._n_entries,
            pending=self.pending(),
            failed_retryable=sum(n < PERMANENT_ATTEMPTS for n in attempts),
            failed_permanent=sum(n >= PERMANENT_ATTEMPTS for n in attempts) + self.problems.n_errors(),
            problems=counted[:200],
            n_problems=len(counted),
            alarm=self._alarm,
            scan_age_s=self._clock.monotonic_s() - self._scanned_s,
            done=max(0, self._total - waiting),
            total=self._total if waiting else 0,
            projections={projection.name: projection.status() for projection in self.projections},
        )


def _load(
    connection: sqlite3.Connection,
) -> tuple[dict[types.RelPath, plan.Known], dict[types.RelPath, str], int, int]:
    """Return what the ledger holds: files, their stamps, the highest LSN, the number of entries."""
    known, stamps = {}, {}
    rows = connection.execute("SELECT path, inode, size, mtime_ns, read_at_us, is_stale, digest, n_entries, stamp FROM files")
    for path, inode, size, mtime_ns, read_at_us, is_stale, digest, n_entries, stamp in rows:
        known[types.RelPath(path)] = plan.Known(
            inode=inode,
            size=size,
            mtime_ns=mtime_ns,
            read_at_ns=read_at_us * 1000,
            is_stale=bool(is_stale),
            digest=digest,
            n_entries=n_entries,
        )
        stamps[types.RelPath(path)] = stamp
    for path, stamp in connection.execute("SELECT path, stamp FROM writes WHERE is_landed = 1 ORDER BY id"):
        if not heal.is_older(stamp, stamps.get(types.RelPath(path), "")):
            stamps[types.RelPath(path)] = stamp
    n_entries = int(connection.execute("SELECT count(*) FROM entries").fetchone()[0])
    return known, stamps, ledger.sequence(connection, "events"), n_entries


def _paths_with_hand_text(connection: sqlite3.Connection) -> list[types.RelPath]:
    rows = connection.execute("SELECT DISTINCT path FROM entries WHERE form IN ('hand', 'headed') ORDER BY path")
    return [types.RelPath(path) for (path,) in rows]
