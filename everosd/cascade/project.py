"""A projection: one index that follows the ledger at its own pace, from its checkpoint.

Changes are applied by state, not by delta: the batch names keys, the ledger's rows as they are now are written, so that
applying a batch twice changes nothing. A new or damaged index is filled from the entries first (the cursor), then
follows the changes. A rebuild fills a second generation beside the one that answers, and swaps when it has caught up.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import pathlib
import shutil
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

import msgspec
import structlog

from everosd import clock, errors, types
from everosd.cascade import status
from everosd.index import contract
from everosd.log import entry_text, kind, view
from everosd.store import checkpoint, db, memory, read, row

T = TypeVar("T")
I = TypeVar("I", bound=contract.Index)  # noqa: E741  # an index

BATCH = 2000
"""Changes per commit: large enough that a commit's fixed cost vanishes, small enough to be searchable within a second."""

SHOWN = 64
"""Up to this many changes are shown before they are durable: a commit to the disk takes 15 ms at best, and as long as
the disk likes at worst, while a person's edit should be found at once."""

HELD_S, LOOK_S = 5.0, 0.02
"""How long one batch lets more urgent work go first at most, and how often it looks whether that is done."""

RETRY_S = (0.5, 1.0, 2.0, 5.0, 15.0, 30.0)
"""Waits between attempts while an index cannot be written (read-only, full disk)."""

log = structlog.get_logger(__name__)


class _Batch(msgspec.Struct, frozen=True, kw_only=True):
    documents: tuple[contract.Document, ...]
    removed: tuple[types.EntryKey, ...]
    position: checkpoint.Checkpoint
    """Where the index is once the batch is committed."""
    is_last: bool


class Projection(Generic[I]):
    """Owns one index: its folder, its writer thread, its checkpoint."""

    def __init__(
        self,
        name: str,
        folder: pathlib.Path,
        opener: Callable[[pathlib.Path], tuple[I, bool]],
        database: db.Database,
        time: clock.Clock,
        *,
        is_prompt: bool = True,
    ) -> None:
        """Project into `folder/<generation>`; `opener` returns the index there and whether it had to be made anew.

        The daemon is ready once the prompt projections are; one that is not opens when it runs.
        """
        self.name = name
        self.is_prompt = is_prompt
        self.on_commit: Callable[[], None] = nothing
        """Called on the event loop after each batch, and when `run` has opened the index or opened it anew."""
        self.before_swap: Callable[[I], Awaitable[None]] = _at_once
        """Awaited before a replacement takes over: it may still lack something that the index it replaces has."""
        self.gives_way: Callable[[], bool] = _never
        """Asked before each batch: whether something more urgent has need of the processor."""
        self._folder = folder
        self._opener = opener
        self._database = database
        self._clock = time
        self._executor = concurrent.futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"index-{name}")
        self._connection: sqlite3.Connection | None = None
        self._wake = asyncio.Event()
        self._beginning = asyncio.Lock()
        self._index: I | None = None
        self._at = checkpoint.Checkpoint(name=name, generation=1, lsn=0, cursor=0)
        self._next: tuple[I, checkpoint.Checkpoint] | None = None
        self._progress: tuple[int, int] | None = None
        self._progressed_s = time.monotonic_s()
        self._committed_s = float("-inf")
        self._error = ""
        self._is_suspect = False
        self._lsn_seen = 0
        self._lsn_shown = 0
        """Up to here searches find everything, be it durable or not; 0: only what is."""

    @property
    def is_open(self) -> bool:
        """Whether there is an index to search."""
        return self._index is not None

    @property
    def index(self) -> I:
        """The generation that answers searches now; ask anew for every search."""
        if self._index is None:
            raise errors.DerivedIndexError(self.name, "not open yet")
        return self._index

    def holds(self, index: I) -> bool:
        """Return whether this is the index that answers, or its replacement; any other one is closed.

        Asked on the index's own thread too, where the event loop may put another in place between two looks.
        """
        planned = self._next
        return index is self._index or (planned is not None and index is planned[0])

    async def open(self) -> None:
        """Open the index, or make it anew where it is missing or damaged; afterwards searches are answered."""
        await self.in_thread(self._open)

    def _open(self) -> None:
        if self._index is not None:
            return
        self._connection = sqlite3.connect(db.read_only(self._database.path), uri=True, isolation_level=None)
        found = checkpoint.load(self._connection, self.name)
        if found is None:  # another ledger: what lies there was written under its keys
            shutil.rmtree(self._folder, ignore_errors=True)
        at = found or self._fresh(1)
        self._index, is_new = self._opener(self._folder / str(at.generation))
        if is_new and found is not None:
            at = self._fresh(at.generation)
        self._at = at
        planned = checkpoint.load(self._connection, f"{self.name}.next")
        if planned is not None:
            index, is_new = self._opener(self._folder / str(planned.generation))
            self._next = (index, self._fresh(planned.generation, f"{self.name}.next") if is_new else planned)
        self._sweep()

    def _fresh(self, generation: int, name: str | None = None) -> checkpoint.Checkpoint:
        return checkpoint.Checkpoint(name=name or self.name, generation=generation, lsn=self._ledger_lsn(), cursor=0)

    def _ledger_lsn(self) -> int:
        assert self._connection is not None  # noqa: S101  # opened first
        found = self._connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone()
        return 0 if found is None else int(found[0])

    async def sweep(self) -> bool:
        """Delete generations that neither answer nor are being built; False: something of one is left, ask again.

        Tantivy may be merging what was given up: a folder that it writes to meanwhile is not empty when it is to go.
        """
        return await self.in_thread(self._sweep)

    def _sweep(self) -> bool:
        is_clean = True
        kept = {str(self._at.generation)} | ({str(self._next[1].generation)} if self._next else set())
        if self._folder.is_dir():
            for child in self._folder.iterdir():
                if child.name.isdigit() and child.name not in kept:
                    shutil.rmtree(child, ignore_errors=True)
                    is_clean &= not child.exists()
        return is_clean

    async def in_thread(self, job: Callable[[], T]) -> T:
        """Run `job` on the index's own thread, between two batches."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, job)
        except db.FAILURES as error:
            raise db.store_error(self._database.path, error) from error

    def wake(self, lsn: int) -> None:
        """Tell that the ledger has come up to `lsn`."""
        if not self.is_behind():
            self._progressed_s = self._clock.monotonic_s()  # until now there was nothing to get on with
        self._lsn_seen = max(self._lsn_seen, lsn)
        self._wake.set()

    def since_commit_s(self) -> float:
        """Return how long ago a batch was last committed, seconds."""
        return self._clock.monotonic_s() - self._committed_s

    def suspect(self) -> None:
        """Tell that a search failed: the files are compared with their checksums before anything else."""
        self._is_suspect = True
        self._wake.set()

    def lack(self) -> str:
        """Say what a search may miss just now; empty: nothing."""
        if self._at.cursor is None:
            return ""
        done, total = self._progress or (0, 0)
        return f"the {self.name} index is being filled: {done} of {total} entries"

    def is_behind(self) -> bool:
        """Return whether the index lacks anything the ledger is known to hold."""
        return self._at.cursor is not None or self._at.lsn < self._lsn_seen or self._next is not None

    def follows(self) -> int | None:
        """Return up to which LSN searches find everything; None while the index is being filled, or fails."""
        return None if self._at.cursor is not None or self._error else max(self._at.lsn, self._lsn_shown)

    def is_caught_up(self) -> bool:
        """Return whether the index that answers has everything the ledger is known to hold."""
        return self._at.cursor is None and self._at.lsn >= self._lsn_seen

    async def run(self) -> None:
        """Follow the ledger until cancelled."""
        n_failures = 0
        while True:
            self._wake.clear()
            try:
                if self._index is None:
                    await self.open()
                    self.on_commit()  # what waits for the index may have nothing else to be woken by
                elif self._is_suspect:
                    await self.in_thread(self._reopen)
                    self.on_commit()
                await self.give_way()
                while await self._step():
                    n_failures, self._error = 0, ""
                    await self.give_way()
                self._error = ""
                await self._wake.wait()
            except db.DamagedStoreError:
                raise  # the daemon ends; the next start sets the ledger aside and reads the Markdown again
            except (errors.EverosdError, OSError, ValueError) as error:
                wait_s = RETRY_S[min(n_failures, len(RETRY_S) - 1)]
                if n_failures == 0:
                    said = {"index": self.name, "lsn": self._at.lsn, "retry_s": wait_s}
                    await asyncio.to_thread(log.error, "projection_failed", exc_info=error, **said)
                n_failures += 1
                self._error = str(error)
                self._is_suspect = isinstance(error, errors.DerivedIndexError | errors.IndexUnavailable)
                await self._clock.sleep(wait_s)

    async def give_way(self) -> None:
        """Let what is more urgent go first, for a while."""
        until_s = self._clock.monotonic_s() + HELD_S
        while self.gives_way() and self._clock.monotonic_s() < until_s:
            await self._clock.sleep(LOOK_S)

    def _reopen(self) -> None:
        """Drop what was half written and open anew, which sets a damaged index aside; until then the old one answers.

        What Tantivy says does not tell damage from a disk that refuses; the checksums do.
        """
        self.index.close()
        self._lsn_shown = 0
        self._index, is_new = self._opener(self._folder / str(self._at.generation))
        if is_new:
            self._at = self._fresh(self._at.generation)
        if self._next is not None:
            index, at = self._next
            index.close()
            index, is_new = self._opener(self._folder / str(at.generation))
            self._next = (index, self._fresh(at.generation, at.name) if is_new else at)
        self._is_suspect = False

    async def _step(self) -> bool:
        """Take one batch into the index that answers, and one into its replacement; return whether there may be more."""
        is_more = await self._advance(self.index, self._at)
        if self._next is None:
            self._progress = self._progress if self._at.cursor is not None else None
            return is_more
        index, at = self._next
        is_more |= await self._advance(index, at)
        if not is_more:
            await self._swap()
        return is_more

    async def _advance(self, index: I, at: checkpoint.Checkpoint) -> bool:
        def apply() -> _Batch | None:
            batch = self._fill(at) if at.cursor is not None else self._follow(at)
            if batch is not None and (batch.documents or batch.removed):
                if at.cursor is None and len(batch.documents) + len(batch.removed) <= SHOWN:
                    index.show(batch.documents, batch.removed)
                    if index is self._index:
                        self._lsn_shown = batch.position.lsn
                index.write(batch.documents, batch.removed)
                index.commit()
            return batch

        if at.cursor == 0:  # a crash must not leave the position of an index that is gone beside the one begun now
            await self._save(at)
        batch = await self.in_thread(apply)
        if batch is None:
            return False
        await self._save(batch.position)
        if self._next is not None and at is self._next[1]:
            self._next = (index, batch.position)
        else:
            self._at = batch.position
        self._progressed_s = self._committed_s = self._clock.monotonic_s()
        self.on_commit()
        return not batch.is_last

    async def _save(self, at: checkpoint.Checkpoint) -> None:
        now_us = clock.to_us(self._clock.now())
        await self._database.write(lambda connection: checkpoint.save(connection, at, now_us))

    def _fill(self, at: checkpoint.Checkpoint) -> _Batch:
        assert self._connection is not None  # noqa: S101  # opened first
        rows = self._connection.execute(
            f"SELECT {read.FIELDS}, e.is_shadowed FROM entries e WHERE e.key > ? ORDER BY e.key LIMIT ?",  # noqa: S608  # our own columns
            (at.cursor, BATCH),
        ).fetchall()
        documents = tuple(_documents([read.to_row(values[:-1]) for values in rows if not values[-1]]))
        total = int(self._connection.execute("SELECT count(*) FROM entries").fetchone()[0])
        done = int(self._connection.execute("SELECT count(*) FROM entries WHERE key <= ?", (at.cursor,)).fetchone()[0])
        self._progress = (min(total, done + len(rows)), total)
        cursor = int(rows[-1][0]) if len(rows) == BATCH else None
        position = msgspec.structs.replace(at, cursor=cursor)
        return _Batch(documents=documents, removed=(), position=position, is_last=False)

    def _follow(self, at: checkpoint.Checkpoint) -> _Batch | None:
        assert self._connection is not None  # noqa: S101  # opened first
        newest = self._ledger_lsn()  # read first: what is written meanwhile is among the events
        events = self._connection.execute(
            "SELECT lsn, key FROM events WHERE lsn > ? ORDER BY lsn LIMIT ?", (at.lsn, BATCH)
        ).fetchall()
        if not events and newest > at.lsn:
            # Dropped before this index had a checkpoint to hold them back: it was filled from the entries after that.
            return _Batch(documents=(), removed=(), position=msgspec.structs.replace(at, lsn=newest), is_last=True)
        if not events:
            return None
        keys = list(dict.fromkeys(key for _, key in events))
        rows: list[row.EntryRow] = []
        for start in range(0, len(keys), read.MAX_VARIABLES):
            part = keys[start : start + read.MAX_VARIABLES]
            found = self._connection.execute(
                f"SELECT {read.FIELDS} FROM entries e WHERE e.key IN ({', '.join('?' * len(part))}) AND e.is_shadowed = 0",  # noqa: S608
                part,
            )
            rows += [read.to_row(values) for values in found]
        documents = tuple(_documents(rows))
        present = {document.key for document in documents}
        position = msgspec.structs.replace(at, lsn=int(events[-1][0]))
        removed = tuple(types.EntryKey(key) for key in keys if key not in present)
        return _Batch(documents=documents, removed=removed, position=position, is_last=len(events) < BATCH)

    async def rebuild(self) -> None:
        """Begin to fill a new generation beside the one that answers; `run` does the work, also after a restart."""
        async with self._beginning:
            await self.open()
            if self._next is not None:  # begun by an earlier run, which only opening tells, or by another call
                return
            index, at = await self._begin()
            await self._save(at)
            self._next = (index, at)
            self._progressed_s = self._clock.monotonic_s()
            self._wake.set()

    async def _begin(self) -> tuple[I, checkpoint.Checkpoint]:
        def begin() -> tuple[I, checkpoint.Checkpoint]:
            at = self._fresh(self._at.generation + 1, f"{self.name}.next")
            folder = self._folder / str(at.generation)
            shutil.rmtree(folder, ignore_errors=True)
            return self._opener(folder)[0], at

        return await self.in_thread(begin)

    async def _swap(self) -> None:
        """Let the replacement answer from now on; the old generation is closed and deleted."""
        assert self._next is not None  # noqa: S101  # checked by the caller
        await self.before_swap(self._next[0])
        now_us = clock.to_us(self._clock.now())
        await self._database.write(lambda connection: checkpoint.promote(connection, self.name, now_us))
        self._lsn_shown = 0
        old, (self._index, at) = self._index, self._next
        self._at, self._next, self._progress = msgspec.structs.replace(at, name=self.name), None, None
        if old is not None:
            await self.in_thread(old.close)
        await self.in_thread(self._sweep)
        self.on_commit()
        log.info("index_swapped", index=self.name, generation=self._at.generation, lsn=self._at.lsn)

    def status(self) -> status.ProjectionStatus:
        """Return how far the index is; cheap."""
        is_rebuilding = self._next is not None or self._at.cursor is not None
        behind = max(0, self._lsn_seen - self._at.lsn)
        is_busy = behind > 0 or is_rebuilding
        return status.ProjectionStatus(
            lsn=self._at.lsn,
            behind=behind,
            documents=0 if self._index is None else self._index.count(),
            age_s=self._clock.monotonic_s() - self._progressed_s if is_busy else 0.0,
            state="failing" if self._error else "rebuilding" if is_rebuilding else "ok",
            progress=self._progress if is_rebuilding else None,
            error=self._error,
        )

    async def close(self) -> None:
        """Close the index and its thread; call after `run` was cancelled."""
        await self.in_thread(self._close)
        self._executor.shutdown(wait=False)

    def _close(self) -> None:
        for index in (self._index, self._next[0] if self._next else None):
            if index is not None:
                index.close()
        if self._connection is not None:
            self._connection.close()


def nothing() -> None:
    """Tell nobody."""


async def _at_once(_: object) -> None:
    """Wait for nothing."""


def _documents(rows: Sequence[row.EntryRow]) -> list[contract.Document]:
    return [document(found) for found in rows if kind.BY_NAME[found.kind].is_searchable]


def document(found: row.EntryRow) -> contract.Document:
    """Return a row as the indexes see it."""
    entry = entry_text.read(found.kind, found.entry_id, found.raw, form=found.form)
    filed = memory.filing(entry.fields)
    return contract.Document(
        key=found.key,
        entry_id=found.entry_id,
        owner=found.owner,
        kind=found.kind,
        status=found.status,
        title=view.title(entry),
        body=view.body(entry),
        timestamp_us=found.timestamp_us,
        expires_us=found.expires_us,
        session_id=found.session_id or "",
        parent_type=found.parent_type,
        parent_id=found.parent_id,
        sender_ids=found.sender_ids,
        memory_type=memory.type_of(found.kind, found.memory_type),
        memory_path=found.memory_path,
        bucket=filed.bucket,
        scope=filed.scope,
        team_id=filed.team_id,
        semantic_key=filed.semantic_key,
    )


def _never() -> bool:
    """Give way to nobody."""
    return False
