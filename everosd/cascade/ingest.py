"""A chunk of dirty paths into the ledger: read, compare, heal stale saves, and decide what is gone.

Everything known of the disk lives here, as it was when it was last read.
"""

from __future__ import annotations

import collections
import pathlib
import sqlite3
import zoneinfo
from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec
import structlog

from everosd import clock, errors, types
from everosd.cascade import grace, grown, plan, problems, reading
from everosd.cascade import tail as tails
from everosd.log import heal, kind, layout, writer
from everosd.store import db, ledger, meta, numbering, state
from everosd.watch import scan

OPEN_LIMIT_S = 60.0
"""How long entries missing from a file are held while some program keeps it open for writing."""

LARGE_BYTES = 65_536
"""From this size on, asking the ledger which entries are the same costs less than taking all of them apart."""

N_TAILS = 128
"""Logs of which it is remembered where reading may go on."""

Readings = dict[types.RelPath, reading.Reading]

log = structlog.get_logger(__name__)


class Ingest:
    """The way of one chunk from disk to ledger. Lives on the event loop; `read` runs on the reading thread."""

    def __init__(
        self,
        *,
        root: pathlib.Path,
        timezone: zoneinfo.ZoneInfo,
        database: db.Database,
        pen: writer.Writer,
        time: clock.Clock,
        on_failure: Callable[[types.RelPath, str], None],
        on_stale_save: Callable[[types.RelPath, reading.Reading], None],
        on_doubt: Callable[[types.RelPath], None],
    ) -> None:
        """Wire it; `on_failure`, `on_stale_save` and `on_doubt` (read it whole) queue what cannot be done at once."""
        self.root = root
        self.timezone = timezone
        self.known: dict[types.RelPath, plan.Known] = {}
        self.grace = grace.Grace()
        self.problems = problems.Problems()
        self.is_accepting = False
        """What is gone from the disk counts as deleted at once, however much it is."""
        self.meant: set[str] = set()
        """Files, and folders with all that is in them, of which whatever is gone was taken out by everosd itself: it counts as
        deleted at once, and sounds no alarm. A folder ends in a slash."""
        self.alarm = ""
        """Why deletions are held back; empty: they are not."""
        self.lsn = 0
        self.n_entries = 0
        """Memories: what people or models wrote, and a search or a get may show."""
        self.n_rows = 0
        """Entries of logs that only machines write."""
        self._owners: dict[types.Owner, int] = {}
        self._database = database
        self._pen = pen
        self._clock = time
        self._on_failure = on_failure
        self._on_stale_save = on_stale_save
        self._on_doubt = on_doubt
        self._tails: collections.OrderedDict[types.RelPath, tails.Tail] = collections.OrderedDict()
        self._stamps: dict[types.RelPath, str] = {}
        self._as_meant: dict[types.RelPath, bytes] = {}
        self._taken_out: dict[types.RelPath, frozenset[str]] = {}
        """Rows that are gone from the end of a log and were meant to go."""

    async def load(self) -> None:
        """Take what the ledger holds; files read by other rules (version, time zone) are marked as stale."""
        await self._database.write(lambda connection: meta.expire_readings(connection, self.timezone.key))
        self.known, self._stamps, self.lsn, held = await self._database.write(_load)
        self.n_entries, self.n_rows = held
        self._owners = {}
        for path in self.known:
            self._count_owner(path, 1)
        found, standing = await self._database.write(problems.load)
        self.problems.reset(found, standing)

    def n_owners(self) -> int:
        """Return how many users and agents have any file."""
        return sum(owner.type != "session" for owner in self._owners)

    def _count_owner(self, path: types.RelPath, by: int) -> None:
        place = layout.place(path)
        if place is not None:
            left = self._owners.pop(place.owner, 0) + by
            if left > 0:
                self._owners[place.owner] = left

    # -- reading ---------------------------------------------------------------------------------------------------

    def growing(self, chunk: Collection[types.RelPath]) -> dict[types.RelPath, tails.Tail]:
        """Return where reading may go on in those logs of a chunk to which the daemon itself may have appended."""
        return {
            path: tail
            for path in chunk
            if (tail := self._tails.get(path)) is not None
            and not self.grace.waits(path)
            and not self.problems.says(path)
            and (known := self.known.get(path)) is not None
            and (known.digest, known.is_stale) == (tail.digest, False)
        }

    def read_on(self, growing: Mapping[types.RelPath, tails.Tail]) -> dict[types.RelPath, grown.Grown | grown.Same]:
        """Read what was appended; what has to be read whole is left out. Blocking."""
        found = {}
        for path, tail in growing.items():
            look = grown.read(self.root, path, self.timezone, tail, self._pen.growth.reaches, self._clock.monotonic_s())
            if look is not None:
                found[path] = look
        return found

    async def apply_grown(self, looks: Mapping[types.RelPath, grown.Grown | grown.Same], began_us: int) -> None:
        """Add what was appended.

        Raises:
            errors.StoreError: the ledger cannot be written; nothing was added for certain.

        """
        new = {path: look for path, look in looks.items() if isinstance(look, grown.Grown)}
        if not new:
            return

        def job(connection: sqlite3.Connection) -> dict[types.RelPath, state.Outcome | None]:
            return {
                path: ledger.append_rows(
                    connection,
                    look.found,
                    base=look.base.digest,
                    n_before=look.base.n_entries,
                    now_us=began_us,
                    read_at_us=_read_at_us(look, began_us),
                )
                for path, look in new.items()
            }

        outcomes = await self._database.write(job)
        for path, look in new.items():
            outcome = outcomes[path]
            if outcome is None:
                self._tails.pop(path, None)
                self._on_doubt(path)
            else:
                self._added(path, look, outcome, _read_at_us(look, began_us))
        if any(outcome is not None and outcome.is_standing_changed for outcome in outcomes.values()):
            self.problems.standing = await self._database.write(problems.load_standing)

    def _added(self, path: types.RelPath, look: grown.Grown, outcome: state.Outcome, read_at_us: int) -> None:
        found = look.found
        disk = scan.DiskFile(path=path, inode=found.inode, size=found.size, mtime_ns=found.mtime_ns)
        self._remember(disk, found.digest, look.tail.n_entries, read_at_us)
        self._tails[path] = look.tail
        self.problems.readable(path)
        self.lsn = max(self.lsn, outcome.lsn)
        self._count(path, outcome)
        log.debug("file_grown", path=path, lsn=outcome.lsn, added=outcome.added)

    async def held(self, chunk: Collection[types.RelPath]) -> dict[types.RelPath, frozenset[bytes]]:
        """Return, for the large files of a chunk, which entries need not be taken apart again when they are the same.

        A file of which anything is said is read whole: what is said would else be forgotten.
        """
        large = [
            path
            for path in chunk
            if (known := self.known.get(path)) is not None
            and known.size >= LARGE_BYTES
            and not known.is_stale
            and not self.problems.says(path)
        ]
        if not large:
            return {}
        return await self._database.write(lambda connection: {path: ledger.digests(connection, path) for path in large})

    def read(
        self, chunk: Collection[types.RelPath], held: Mapping[types.RelPath, frozenset[bytes]]
    ) -> dict[types.RelPath, reading.Look]:
        """Look at every path of a chunk. Blocking."""
        looks: dict[types.RelPath, reading.Look] = {}
        for path in chunk:
            known = self.known.get(path)
            is_provable = known is not None and not known.is_stale and not self.grace.waits(path)
            digest = known.digest if known is not None and is_provable else None
            try:
                looks[path] = reading.read(
                    self.root, path, self.timezone, digest, held.get(path, ()), self._clock.monotonic_s()
                )
            except Exception as error:  # whatever a file holds, it stops no other one
                log.exception("file_reading_failed", path=path)
                looks[path] = scan.Unreadable(reason=f"everosd failed on it ({error!r})")
        return looks

    async def apply(self, looks: Mapping[types.RelPath, reading.Look], began_us: int) -> None:
        """Bring the ledger in step with what was seen; `began_us` is when the reading began.

        Raises:
            errors.StoreError: the ledger cannot be written; nothing of the chunk was applied for certain.

        """
        for path, look in looks.items():
            if isinstance(look, scan.Unreadable):
                self.problems.unreadable(path, look.reason)
                self._on_failure(path, look.reason)
            elif not isinstance(look, scan.Absent):
                self.problems.readable(path)
                self.grace.found_file(path)
        self._judge_alarm()
        await self._touch([look.disk for look in looks.values() if isinstance(look, reading.Unchanged)], began_us)
        readings = {path: look for path, look in looks.items() if isinstance(look, reading.Reading)}
        for path in [path for path, read in readings.items() if self._is_stale_save(path, read)]:
            self._on_stale_save(path, readings.pop(path))
        short = {path: readings.pop(path) for path in await self._short(readings)}
        if readings:
            await self._write(readings, began_us)
        # Only now: what is missing from one file may have been moved to another one of this chunk.
        for path in await self._short(short):
            self._on_stale_save(path, short.pop(path))
        if short:
            await self._write(short, began_us)
        await self._remove_absent({path: look for path, look in looks.items() if isinstance(look, scan.Absent)})

    async def _touch(self, files: list[scan.DiskFile], began_us: int) -> None:
        """Remember a new stat of unchanged bytes, so that the next comparison need not read them."""
        now_s = self._clock.monotonic_s()
        for file in files:
            tail = self._tails.get(file.path)
            if tail is not None:
                at = tail.identity._replace(inode=file.inode, size=file.size, mtime_ns=file.mtime_ns)
                self._tails[file.path] = msgspec.structs.replace(tail, identity=at, compared_s=now_s)
        moved = [file for file in files if not plan.is_current(self.known[file.path], file)]
        rows = [(file.inode, file.size, file.mtime_ns, began_us, file.path) for file in moved]
        if not rows:
            return

        def job(connection: sqlite3.Connection) -> None:
            connection.executemany(
                "UPDATE files SET inode = ?, size = ?, mtime_ns = ?, read_at_us = ? WHERE path = ?", rows
            )

        await self._database.write(job)
        for file in moved:
            known = self.known[file.path]
            self._remember(file, known.digest, known.n_entries, began_us)

    def _count(self, path: types.RelPath, outcome: state.Outcome) -> None:
        if layout.is_machine_log(path):
            self.n_rows += outcome.entries_delta
        else:
            self.n_entries += outcome.entries_delta

    def _remember(self, file: scan.DiskFile, digest: bytes, n_entries: int, read_at_us: int) -> None:
        if file.path not in self.known:
            self._count_owner(file.path, 1)
        self.known[file.path] = plan.Known(
            inode=file.inode,
            size=file.size,
            mtime_ns=file.mtime_ns,
            read_at_ns=read_at_us * 1000,
            is_stale=False,
            digest=digest,
            n_entries=n_entries,
        )

    async def _write(self, readings: Readings, began_us: int) -> None:
        now_s = self._clock.monotonic_s()
        removable = {str(path): self._removable(path, read, now_s) for path, read in readings.items()}
        stale = {path for path in readings if (at := self.known.get(path)) is not None and at.is_stale}
        forced = [read.found for path, read in readings.items() if path in stale]
        plain = [read.found for path, read in readings.items() if path not in stale]

        def job(connection: sqlite3.Connection) -> dict[str, state.Outcome]:
            outcomes = ledger.apply_files(connection, plain, now_us=began_us, removable=removable)
            return outcomes | ledger.apply_files(connection, forced, now_us=began_us, removable=removable, force=True)

        outcomes = await self._database.write(job)
        for path, read in readings.items():
            self._applied(path, read, outcomes[path], now_s, began_us)
        if any(outcome.is_standing_changed for outcome in outcomes.values()):
            self.problems.standing = await self._database.write(problems.load_standing)

    def _removable(self, path: types.RelPath, read: reading.Reading, now_s: float) -> Collection[grace.Identity] | None:
        """Return which missing entries of a file are gone for certain; None: whatever is missing."""
        if not _is_legible(read):
            return ()  # bytes that say nothing (UTF-16, half a save) are no deletion, however long they stay
        if self.is_accepting or self._is_meant(path):
            return None
        if read.is_being_written and not self.grace.has_waited(path, now_s, OPEN_LIMIT_S):
            return ()
        return self.grace.removable(path, now_s)

    def _applied(
        self, path: types.RelPath, read: reading.Reading, outcome: state.Outcome, now_s: float, began_us: int
    ) -> None:
        found = read.found
        disk = scan.DiskFile(path=path, inode=found.inode, size=found.size, mtime_ns=found.mtime_ns)
        self._remember(disk, found.digest, len(found.entries) + len(outcome.withheld), began_us)
        self.grace.miss_entries(path, outcome.withheld if _is_legible(read) else (), now_s)
        if not outcome.withheld:
            self._taken_out.pop(path, None)
        self._tails.pop(path, None)
        if read.tail is not None and not outcome.withheld:
            self._tails[path] = read.tail
            if len(self._tails) > N_TAILS:
                self._tails.popitem(last=False)
        if not heal.is_older(found.stamp, self._stamps.get(path, "")):
            self._stamps[path] = found.stamp
        self.lsn = max(self.lsn, outcome.lsn)
        self._count(path, outcome)
        self.problems.read(found)
        if outcome.added or outcome.modified or outcome.removed:
            n = {"added": outcome.added, "modified": outcome.modified, "removed": outcome.removed}
            log.debug("file_applied", path=path, lsn=outcome.lsn, **n)

    # -- stale saves -----------------------------------------------------------------------------------------------

    def _is_stale_save(self, path: types.RelPath, read: reading.Reading) -> bool:
        """Return whether the file carries an older stamp than one that is known to have been on disk."""
        stamp = read.found.stamp
        if not stamp or read.found.error or self._as_meant.get(path) == read.found.digest or _is_log(read):
            return False
        return any(
            heal.is_older(stamp, newest) for newest in (self._stamps.get(path, ""), self._pen.newest_stamp(path))
        )

    async def _short(self, readings: Readings) -> list[types.RelPath]:
        """Return the logs of machines from whose end rows are missing that nobody can have meant to take out."""
        logs = {
            path: read.parsed
            for path, read in readings.items()
            if path in self.known and not self._is_meant(path) and _is_log(read)
        }
        if not logs or self.is_accepting:
            return []

        def job(connection: sqlite3.Connection) -> list[types.RelPath]:
            short = []
            for path, parsed in logs.items():
                missing = meta.missing_rows(connection, path, {each.id for each in parsed.entries} | parsed.ids)
                lost = {} if parsed.error is not None else heal.lost_rows(parsed, missing)
                meant = self._taken_out.get(path, frozenset())
                if not lost.keys() <= meant and not lost.keys() <= meta.moved(connection, path, lost) | meant:
                    short.append(path)
            return short

        return await self._database.write(job)

    async def heal(self, path: types.RelPath, read: reading.Reading) -> None:
        """Put back what a stale editor buffer wiped; the file then has to be looked at once more."""
        try:
            entries = None
            if not _is_log(read):
                entries, _ = await self._database.write(lambda connection: meta.held_of(connection, path))
            report = await self._pen.heal(path, read.parsed, entries)
        except errors.EverosdError as error:
            self.problems.unreadable(path, str(error))
            self._on_failure(path, str(error))
            return
        if report:
            log.warning("stale_save_healed", path=path, restored=len(report.restored), conflicts=len(report.conflicts))
            self.problems.healed(path, report.describe())
        elif _is_log(read):
            self._taken_out[path] = frozenset(report.meant)
        if not (report.is_file_changed or _is_log(read)):
            # Nothing of the daemon's is missing, or the person's text has taken its place: looked at once more, it would be again.
            self._as_meant[path] = read.found.digest

    # -- what is gone ----------------------------------------------------------------------------------------------

    def seen(self, files: Mapping[types.RelPath, scan.DiskFile]) -> None:
        """Take note of a full scan: files that were missed and are there again are no longer missed."""
        for path in self.grace.missing_files():
            if path in files:
                self.grace.found_file(path)
        self._judge_alarm()

    def _judge_alarm(self) -> None:
        """End an alarm once so much has come back that the rest needs nobody's word; say how much is gone else."""
        if self.alarm and not (self.grace.missing_files() and self._is_held_back((), self._clock.monotonic_s())):
            self.alarm = ""

    async def _remove_absent(self, absent: dict[types.RelPath, scan.Absent]) -> None:
        now_s = self._clock.monotonic_s()
        ripe = [path for path, look in absent.items() if await self._is_gone(path, look, now_s)]
        if meant := [path for path in ripe if self._is_meant(path)]:
            await self._remove(meant, now_s)
            ripe = [path for path in ripe if path not in meant]
        if ripe and not self._is_held_back(ripe, now_s):
            await self._remove(ripe, now_s)

    def _is_meant(self, path: types.RelPath) -> bool:
        return path in self.meant or any(path.startswith(each) for each in self.meant if each.endswith("/"))

    async def _is_gone(self, path: types.RelPath, look: scan.Absent, now_s: float) -> bool:
        if path not in self.known:
            self.grace.forget(path)
            self.problems.forget(path)
            return False
        if not look.parent_lists:
            self.grace.found_file(path)
            return False
        if self.is_accepting or self._is_meant(path) or self.grace.miss_file(path, now_s):
            return True
        return await self._database.write(lambda connection: ledger.entries_stand_elsewhere(connection, path))

    def _is_held_back(self, paths: Iterable[types.RelPath], now_s: float) -> bool:
        """Return whether so much is gone that a person has to confirm it, and say so."""
        missing = {*paths, *map(types.RelPath, self.grace.missing_files())} & self.known.keys()
        gone: dict[str, grace.Size] = {
            path: _size(path, self.known[path].n_entries) for path in missing if not self._is_meant(path)
        }
        held = grace.Size(self.n_entries, self.n_rows)
        if self.is_accepting or not self.grace.is_mass_deletion(gone, n_files=len(self.known), held=held, now_s=now_s):
            self.alarm = ""
            return False
        n_memories, n_rows = sum(one.memories for one in gone.values()), sum(one.rows for one in gone.values())
        if not self.alarm:
            log.error("mass_deletion_held", files=len(gone), entries=n_memories, rows=n_rows)
        what = f"{n_memories} entries" + (f" and {n_rows} rows of logs" if n_rows else "")
        self.alarm = (
            f"{len(gone)} of {len(self.known)} files with {what} are gone from {self.root}; nothing is"
            " removed from the indexes. If the folder is not mounted, mount it; if you meant it, run `everosd rebuild`"
        )
        return True

    async def _remove(self, paths: list[types.RelPath], now_s: float) -> None:
        now_us = clock.to_us(self._clock.now())
        outcomes = await self._database.write(lambda connection: ledger.remove_files(connection, paths, now_us=now_us))
        for path in paths:
            if self.known.pop(path, None) is not None:
                self._count_owner(path, -1)
            self._tails.pop(path, None)
            self.grace.forget(path)
            self.problems.forget(path)
            outcome = outcomes.get(path)
            if outcome is not None:
                self.lsn = max(self.lsn, outcome.lsn)
                self._count(path, outcome)
                if not (self.is_accepting or self._is_meant(path)):  # what was confirmed is no part of an accident
                    self.grace.deleted(_size(path, outcome.removed), now_s)
        self.problems.standing = await self._database.write(problems.load_standing)


def _size(path: types.RelPath, n_entries: int) -> grace.Size:
    return grace.Size(0, n_entries) if layout.is_machine_log(path) else grace.Size(n_entries)


def _read_at_us(look: grown.Grown, began_us: int) -> int:
    """Return when all of a file was read; without that its stat proves nothing, and its bytes are compared in time."""
    return began_us if look.is_compared else look.found.mtime_ns // 1000


def _is_log(read: reading.Reading) -> bool:
    """Return whether only machines write a file."""
    return kind.BY_NAME[read.parsed.place.kind].written == "appended"


def _is_legible(read: reading.Reading) -> bool:
    """Return whether what is missing from a file means anything.

    A log whose frontmatter does not parse tells no stamp: whether its last rows were taken out shows once it is mended.
    """
    return not read.found.error or (bool(read.found.entries) and not _is_log(read))


def _load(
    connection: sqlite3.Connection,
) -> tuple[dict[types.RelPath, plan.Known], dict[types.RelPath, str], int, grace.Size]:
    """Return what the ledger holds: files, their stamps, the highest LSN, how many memories and rows."""
    known, stamps = {}, {}
    held = dict(connection.execute("SELECT path, count(*) FROM entries GROUP BY path"))
    rows = connection.execute(
        "SELECT path, inode, size, mtime_ns, read_at_us, is_stale, digest, n_entries, stamp FROM files"
    )
    for path, inode, size, mtime_ns, read_at_us, is_stale, digest, n_entries, stamp in rows:
        known[types.RelPath(path)] = plan.Known(
            inode=inode,
            size=size,
            mtime_ns=mtime_ns,
            read_at_ns=read_at_us * 1000,
            # More than was read in it: what was gone from it was withheld when the last process ended.
            is_stale=bool(is_stale) or held.get(path, 0) > n_entries,
            digest=digest,
            n_entries=n_entries,
        )
        stamps[types.RelPath(path)] = stamp
    for path, stamp in connection.execute("SELECT path, stamp FROM writes WHERE is_landed = 1 ORDER BY id"):
        if not heal.is_older(stamp, stamps.get(types.RelPath(path), "")):
            stamps[types.RelPath(path)] = stamp
    n_rows = sum(n for path, n in held.items() if layout.is_machine_log(path))
    return known, stamps, numbering.sequence(connection, "events"), grace.Size(sum(held.values()) - n_rows, n_rows)
