"""Records of runs: written behind the work, in batches, and kept within bounds.

They are for people, and for what was given up; work that must not be lost is in the log. A run that the daemon did not live
to see the end of is released by the next start.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import sqlite3
from collections.abc import Callable, Iterable

import msgspec
import structlog

from everosd import clock, errors, types
from everosd.engine import strategy as strategies
from everosd.store import db

KEPT = 1000
"""Records per strategy, the newest; as many of what was given up."""

SLACK = 100
"""So many more before the oldest are dropped: dropping costs as much for one as for many."""

BATCH_S = 0.25
"""How long records are gathered before they are written."""

RETRY_S = 5.0
MAX_UNWRITTEN = 10_000
"""While the disk takes nothing, older records than these are let go."""

log = structlog.get_logger(__name__)

_COLUMNS = (
    "run_id", "strategy", "trigger", "status", "attempt", "started_at", "finished_at", "error", "result",
    "app", "project", "owner_type", "owner_id", "topic", "subject", "origin",
)  # fmt: skip
_PUT = f"INSERT OR REPLACE INTO runs ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"  # noqa: S608
_GET = f"SELECT {', '.join(_COLUMNS)} FROM runs"  # noqa: S608  # our own columns


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of one strategy, at one event or at one fire of the clock."""

    run_id: str
    strategy: str
    trigger: str
    """`event`, `cron`, `idle`, `manual`, `dry_run` or `recovery` (work of an earlier daemon was finished)."""
    status: str
    """`running`, `success`, `failed` (tried again), `dead_letter` or `released` (cut off; `recovered` once what it had begun
    is finished); `skipped` or `missed`: never begun."""
    attempt: int
    """1 for the first; 0: never begun."""
    started_at: str
    """ISO, UTC."""
    finished_at: str | None = None
    error: str | None = None
    """What the strategy raised, without a word of what it worked on; or why it was never begun, and when it was due."""
    event: strategies.Event | None = None
    """None: it was not fired by one."""
    result: str | None = None
    """What the strategy says it did."""


class Runs:
    """The table `runs`."""

    def __init__(self, database: db.Database, time: clock.Clock) -> None:
        """Record into `database`; `open` reads what an earlier daemon left."""
        self.database = database
        self._clock = time
        self._unwritten: dict[str, Record] = {}
        self._wake = asyncio.Event()
        self._writing = asyncio.Lock()
        self._n: dict[tuple[str, bool], int] = {}
        """Rows per strategy, those of dead letters apart."""

    async def open(self) -> tuple[list[Record], list[Record]]:
        """Release the runs of a daemon that is gone; return the newest of each strategy and the dead letters, oldest first.

        The newest leaves out what was skipped and what ran dry.

        Raises:
            errors.StoreError: the ledger cannot be written.

        """
        now = self.now()
        last, dead, self._n = await self.database.write(lambda connection: _open(connection, now))
        return last, dead

    def now(self) -> str:
        """Return the moment as records hold it."""
        return self._clock.now().isoformat(timespec="milliseconds")

    def put(self, record: Record) -> None:
        """Have a record written soon, in place of an earlier one of the same run."""
        self._unwritten.pop(record.run_id, None)
        self._unwritten[record.run_id] = record
        if len(self._unwritten) > MAX_UNWRITTEN:
            del self._unwritten[next(iter(self._unwritten))]
        self._wake.set()

    async def run(self) -> None:
        """Write what is put, until cancelled."""
        wait_s = BATCH_S
        while True:
            await self._wake.wait()
            await self._clock.sleep(wait_s)
            self._wake.clear()
            try:
                await self.flush()
                wait_s = BATCH_S
            except db.DamagedStoreError:
                raise
            except errors.StoreError as error:
                if wait_s == BATCH_S:
                    log.error("runs_not_written", reason=str(error), hint=error.hint)  # noqa: TRY400  # tried again
                wait_s = RETRY_S
                self._wake.set()

    async def flush(
        self, also: Callable[[sqlite3.Connection], None] | None = None, record: Record | None = None
    ) -> None:
        """Write what was put so far, and do `also` and put `record`, in one transaction: all of it or nothing.

        Raises:
            errors.StoreError: it could not be written, and is kept; `also` and `record` are not.

        """
        async with self._writing:
            batch, self._unwritten = self._unwritten, {}
            if not batch and also is None and record is None:
                return
            n = dict(self._n)
            rows = batch if record is None else batch | {record.run_id: record}

            def write(connection: sqlite3.Connection) -> None:
                _write(connection, rows, n)
                if also is not None:
                    also(connection)

            try:
                await self.database.write(write)
            except BaseException:
                self._unwritten = batch | self._unwritten
                raise
            self._n = n

    async def forget(self, owner: types.Owner) -> None:
        """Let go of what is still to be written of an owner; afterwards the table has all of theirs that it will get."""
        async with self._writing:
            kept = {key: one for key, one in self._unwritten.items() if one.event is None or one.event.owner != owner}
            self._unwritten = kept

    async def close(self) -> None:
        """Write what is left; what cannot be written is let go."""
        with contextlib.suppress(errors.StoreError):
            await self.flush()


def _open(connection: sqlite3.Connection, now: str) -> tuple[list[Record], list[Record], dict[tuple[str, bool], int]]:
    connection.execute("UPDATE runs SET status = 'released', finished_at = ? WHERE status = 'running'", (now,))
    dead = _records(connection.execute(f"{_GET} WHERE status = 'dead_letter' ORDER BY started_at"))
    n: dict[tuple[str, bool], int] = {}
    for name, is_dead, count in connection.execute(
        "SELECT strategy, status = 'dead_letter', count(*) FROM runs GROUP BY 1, 2"
    ):
        n[name, bool(is_dead)] = count
    last = []
    for name in dict.fromkeys(name for name, _ in n):
        query = f"{_GET} WHERE strategy = ? AND status <> 'skipped' AND trigger <> 'dry_run' ORDER BY started_at DESC LIMIT 1"
        last += _records(connection.execute(query, (name,)))
    return last, dead, n


def _write(connection: sqlite3.Connection, batch: dict[str, Record], n: dict[tuple[str, bool], int]) -> None:
    connection.executemany(_PUT, [_row(record) for record in batch.values()])
    put = collections.Counter((record.strategy, record.status == "dead_letter") for record in batch.values())
    for (name, is_dead), count in put.items():
        # A record that takes the place of an earlier one of its run is counted twice: dropping counts anew.
        n[name, is_dead] = n.get((name, is_dead), 0) + count
        if n[name, is_dead] > KEPT + SLACK:
            n[name, is_dead] = _drop(connection, name, is_dead=is_dead)


def _drop(connection: sqlite3.Connection, name: str, *, is_dead: bool) -> int:
    """Drop the oldest records of a strategy and return how many are left."""
    which = "strategy = ? AND (status = 'dead_letter') = ? AND status <> 'running'"
    connection.execute(
        f"DELETE FROM runs WHERE {which} AND run_id NOT IN"  # noqa: S608  # our own words
        f" (SELECT run_id FROM runs WHERE {which} ORDER BY started_at DESC LIMIT {KEPT})",
        (name, is_dead, name, is_dead),
    )
    found = connection.execute(f"SELECT count(*) FROM runs WHERE {which}", (name, is_dead)).fetchone()  # noqa: S608
    return int(found[0])


def _row(record: Record) -> tuple[object, ...]:
    return (
        record.run_id, record.strategy, record.trigger, record.status, record.attempt, record.started_at,
        record.finished_at, record.error, record.result, *_event(record.event),
    )  # fmt: skip


def _event(event: strategies.Event | None) -> tuple[str, ...]:
    if event is None:
        return ("",) * 7
    owner = event.owner
    return owner.app, owner.project, owner.type, owner.id, event.topic, event.subject, event.origin


def _records(rows: Iterable[tuple[str, ...]]) -> list[Record]:
    """Return rows as records; those that another everosd wrote of what this one does not know are left out."""
    found = []
    for row in rows:
        values = dict(zip(_COLUMNS, row, strict=True))
        owner = {key: values.pop(key) for key in ("app", "project")}
        owner |= {key: values.pop(f"owner_{key}") for key in ("type", "id")}
        event = {key: values.pop(key) for key in ("topic", "subject", "origin")} | {"owner": owner}
        with contextlib.suppress(msgspec.ValidationError):
            found.append(msgspec.convert(values | {"event": event if event["topic"] else None}, Record))
    return found
