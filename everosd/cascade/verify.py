"""Verify: a second ledger is made from the Markdown alone and compared with the live one, row by row.

Compared are the live entries with their fields, text, status, successors and place, what follows from them (memberships
of clusters and the like), and the documents of every index.
LSNs, row numbers and moments of reading are outside it: they differ between two ledgers that say the same.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import pathlib
import sqlite3
import tempfile
import zoneinfo
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from everosd import errors, types
from everosd.cascade import reading, rebuild
from everosd.log import kind, layout
from everosd.store import db, derived, ledger, state
from everosd.watch import scan

if TYPE_CHECKING:
    from everosd.cascade import apply

ATTEMPTS = 3
"""A root that people edit meanwhile is compared this often before its differences are believed."""

FAILING_S = 10.0
"""An index that fails is tried again by itself; one that has failed for this long needs a person."""

SETTLE_S = 600.0
"""How long what is noticed may take to be searchable before nothing can be compared."""

CHUNK = 64
"""Files per transaction of the second ledger."""

_COLUMNS = (
    "app, project, owner_type, owner_id, entry_id, path, nth, position, line, form, kind, is_shadowed, hex(digest), session_id,"
    " timestamp_us, parent_type, parent_id, sender_ids, memory_type, memory_path, own_status, status, deprecated_by, expires_us,"
    " raw"
)
_ROWS = f"SELECT {_COLUMNS} FROM entries ORDER BY app, project, owner_type, owner_id, entry_id, path, nth"  # noqa: S608
_MAX_DIFFERENCES = 100  # documented on Report


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One place where the live state is not what the Markdown says."""

    what: str
    """`missing` (on disk, not live), `surplus` (live, not on disk), `differs`, or `index <name>`."""
    path: str
    entry_id: str
    detail: str = ""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a comparison."""

    is_clean: bool
    digest_live: str
    """BLAKE2b over the live rows, hex."""
    digest_disk: str
    """The same over the rows made from the Markdown; equal when clean."""
    files: int
    entries: int
    """Memories."""
    rows: int
    """Entries of logs that only machines write."""
    differences: tuple[Difference, ...]
    """At most 100."""
    unreadable: tuple[str, ...] = ()
    """Paths that could not be read, so that nothing is known of them."""


async def verify(cascade: apply.Cascade, progress: rebuild.Progress = rebuild.silent) -> Report:
    """Compare the live state with a fresh reading of the disk. Writes nothing but a scratch file, removed at the end.

    Raises:
        errors.IndexUnavailable: something keeps what is on disk from being searchable.
        errors.StoreError: the ledger cannot be read.
    """
    for attempt in range(ATTEMPTS):
        await cascade.reconcile("verify")
        await _settled(cascade)
        lsn = cascade.status().lsn
        loop = asyncio.get_running_loop()
        report = await loop.run_in_executor(
            None, _compare, cascade.root, cascade.database.path, cascade.timezone, _thread_safe(loop, progress)
        )
        found = [
            item
            for projection in cascade.projections
            if projection.is_prompt or projection.is_caught_up()
            for item in await _index_differences(cascade, projection.name)
        ]
        if found:
            report = msgspec.structs.replace(report, is_clean=False, differences=(*report.differences, *found)[:100])
        is_still = lsn == cascade.status().lsn and attempt
        if report.is_clean or is_still or attempt == ATTEMPTS - 1:
            return report
    raise AssertionError


async def _settled(cascade: apply.Cascade) -> None:
    """Wait while there is progress, and not for an index that only fails."""
    try:
        async with asyncio.timeout(SETTLE_S):
            while not cascade.is_settled():  # five parts decide, none of them alone
                for name, state in cascade.status().projections.items():
                    if state.state == "failing" and state.age_s > FAILING_S:
                        raise errors.IndexUnavailable(name, state.error)
                await asyncio.sleep(rebuild.POLL_S)
    except TimeoutError:
        behind = ", ".join(item.name for item in cascade.projections if item.is_behind()) or "ledger"
        reason = f"not everything on disk was searchable after {SETTLE_S:.0f} s (`everosd status` has more)"
        raise errors.IndexUnavailable(behind, reason) from None


def _thread_safe(loop: asyncio.AbstractEventLoop, progress: rebuild.Progress) -> rebuild.Progress:
    def tell(stage: str, done: int, total: int) -> None:
        loop.call_soon_threadsafe(progress, stage, done, total)

    return tell


def _compare(
    root: pathlib.Path, live_path: pathlib.Path, timezone: zoneinfo.ZoneInfo, progress: rebuild.Progress
) -> Report:
    seen = scan.scan(root)
    scratch_folder = root / ".tmp"
    scratch_folder.mkdir(mode=0o700, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=scratch_folder, prefix="verify-") as folder:
        scratch = db.connect(pathlib.Path(folder) / "scratch.db", db.Settings(synchronous="OFF"))
        live = _connect(live_path)
        try:
            unreadable = _fill(scratch, root, list(seen.files), timezone, progress, _remembered(live))
            illegible = scratch.execute("SELECT path FROM files WHERE error IS NOT NULL AND n_entries = 0").fetchall()
            unreadable += [path for (path,) in illegible] + [path for path, _ in seen.unreadable]
            return _report(live, scratch, len(seen.files), unreadable)
        finally:
            scratch.close()
            live.close()


def _connect(path: pathlib.Path) -> sqlite3.Connection:
    """Open the live ledger to read it: where it is gone, none is made."""
    try:
        live = sqlite3.connect(db.read_only(path), uri=True, isolation_level=None)
        live.execute("SELECT 1 FROM entries LIMIT 1")
    except db.FAILURES as error:
        raise db.store_error(path, error) from error
    return live


def _remembered(live: sqlite3.Connection) -> dict[str, dict[str, str]]:
    """Return the successors that the ledger keeps of files whose frontmatter does not parse."""
    found: dict[str, dict[str, str]] = {}
    rows = live.execute(
        "SELECT d.path, d.entry_id, d.successor FROM files f CROSS JOIN deprecations d ON d.path = f.path"
        " WHERE f.error IS NOT NULL"
    )
    for path, entry_id, successor in rows:
        found.setdefault(path, {})[entry_id] = successor
    return found


def _fill(
    scratch: sqlite3.Connection,
    root: pathlib.Path,
    paths: list[types.RelPath],
    timezone: zoneinfo.ZoneInfo,
    progress: rebuild.Progress,
    remembered: dict[str, dict[str, str]],
) -> list[str]:
    unreadable: list[str] = []
    for start in range(0, len(paths), CHUNK):
        files = []
        for path in paths[start : start + CHUNK]:
            look = reading.read(root, path, timezone, None)
            if isinstance(look, reading.Reading):
                found = look.found
                if found.error is not None:  # what it said before counts, and stands nowhere but in the ledger
                    known = remembered.get(found.path, {}) | found.deprecated
                    found = msgspec.structs.replace(found, deprecated=known)
                files.append(found)
            elif isinstance(look, scan.Unreadable):
                unreadable.append(path)
        scratch.execute("BEGIN")
        ledger.apply_files(scratch, files, now_us=0)
        scratch.execute("COMMIT")
        progress("files", min(start + CHUNK, len(paths)), len(paths))
    return unreadable


def _report(live: sqlite3.Connection, disk: sqlite3.Connection, n_files: int, unreadable: list[str]) -> Report:
    tally = _Tally()
    n_entries = n_rows = 0
    for left, right in _pairs(live.execute(_ROWS), disk.execute(_ROWS), 7):
        if left is None or left[5] not in unreadable:
            if right is not None:
                is_row = right[10] in kind.ROWS
                n_entries, n_rows = n_entries + (not is_row), n_rows + is_row
            tally.add(left, right, _difference)
    for table in derived.TABLES:
        tell = functools.partial(_derived_difference, table)
        for left, right in _derived(live, disk, table, unreadable):
            tally.add(left, right, tell)
    return Report(
        is_clean=not tally.differences,
        digest_live=tally.live.hexdigest(),
        digest_disk=tally.disk.hexdigest(),
        files=n_files,
        entries=n_entries,
        rows=n_rows,
        differences=tuple(tally.differences),
        unreadable=tuple(unreadable),
    )


class _Tally:
    """What both sides come to, row by row."""

    def __init__(self) -> None:
        self.live, self.disk = hashlib.blake2b(digest_size=16), hashlib.blake2b(digest_size=16)
        self.differences: list[Difference] = []

    def add(self, live: Row | None, disk: Row | None, tell: Callable[[Row | None, Row | None], Difference]) -> None:
        for made, values in ((self.live, live), (self.disk, disk)):
            if values is not None:
                made.update(msgspec.msgpack.encode(values))
        if live != disk and len(self.differences) < _MAX_DIFFERENCES:
            self.differences.append(tell(live, disk))


Row = tuple[object, ...]


def _derived(
    live: sqlite3.Connection, disk: sqlite3.Connection, table: state.Table, unreadable: list[str]
) -> Iterator[tuple[Row | None, Row | None]]:
    """Walk a derived table on both sides, without owners of whom a file that it is made from cannot be read."""
    places = [layout.place(types.RelPath(path)) for path in unreadable]
    owners = [place.owner for place in places if place is not None and place.kind in (table.kind, *table.also)]
    unknown = {(owner.app, owner.project, owner.type, owner.id) for owner in owners}
    n = table.n_key or len(table.columns)
    sql = f"SELECT {', '.join(table.columns)} FROM {table.name} ORDER BY {', '.join(table.columns[:n])}"  # noqa: S608  # ours
    for left, right in _pairs(live.execute(sql), disk.execute(sql), n):
        shown = left or right or ()
        if shown[:4] not in unknown:
            yield left, right


def _pairs(left: Iterator[Row], right: Iterator[Row], n: int) -> Iterator[tuple[Row | None, Row | None]]:
    """Walk two lists of rows side by side that are sorted by their first `n` columns."""
    one, other = next(left, None), next(right, None)
    while one is not None or other is not None:
        here = None if one is None else tuple(map(str, one[:n]))
        there = None if other is None else tuple(map(str, other[:n]))
        if there is None or (here is not None and here < there):
            yield one, None
            one = next(left, None)
        elif here is None or there < here:
            yield None, other
            other = next(right, None)
        else:
            yield one, other
            one, other = next(left, None), next(right, None)


def _difference(live: Row | None, disk: Row | None) -> Difference:
    names = [name.strip().removeprefix("hex(").removesuffix(")") for name in _COLUMNS.split(", ")]
    what, shown, detail = _how(names, live, disk)
    return Difference(what=what, path=str(shown[5]), entry_id=str(shown[4]), detail=detail)


def _derived_difference(table: state.Table, live: Row | None, disk: Row | None) -> Difference:
    names = table.columns
    what, shown, detail = _how(names, live, disk)
    said = f"in {table.name} of {shown[2]} {shown[3]} ({shown[0]}/{shown[1]}){': ' if detail else ''}{detail}"
    path = str(shown[names.index("path")]) if "path" in names else ""
    return Difference(what=what, path=path, entry_id=str(shown[names.index(table.subject)]), detail=said)


def _how(names: Sequence[str], live: Row | None, disk: Row | None) -> tuple[str, Row, str]:
    """Return how two rows differ, the one that there is, and in which columns."""
    shown = live if live is not None else disk
    assert shown is not None  # noqa: S101  # a pair has at least one side
    if live is None:
        return "missing", shown, ""
    if disk is None:
        return "surplus", shown, ""
    return "differs", shown, ", ".join(name for name, a, b in zip(names, live, disk, strict=True) if a != b)


async def _index_differences(cascade: apply.Cascade, name: str) -> list[Difference]:
    """Compare the documents of one index with the live entries that belong in it."""
    projection = next(item for item in cascade.projections if item.name == name)
    keys = await projection.in_thread(projection.index.keys)
    searchable = [row.name for row in kind.KINDS if row.is_searchable]

    def wanted(connection: sqlite3.Connection) -> dict[int, tuple[str, str]]:
        marks = ", ".join("?" * len(searchable))
        rows = connection.execute(
            f"SELECT key, path, entry_id FROM entries WHERE is_shadowed = 0 AND kind IN ({marks})",  # noqa: S608
            searchable,
        )
        return {key: (path, entry_id) for key, path, entry_id in rows}

    rows = await cascade.database.write(wanted)
    found = [
        Difference(what=f"index {name}", path=rows[key][0], entry_id=rows[key][1], detail="not in the index")
        for key in sorted(rows.keys() - keys)[:100]
    ]
    found += [
        Difference(what=f"index {name}", path="", entry_id="", detail=f"document {key} belongs to no entry")
        for key in sorted(keys - rows.keys())[:100]
    ]
    return found
