"""Hand edits become events: an Episode that a person changed or wrote gets new facts once it has been quiet for a while.

Read from the ledger's changes, from a checkpoint of its own. What waits is kept in the table `edits` until its facts are
there, so that neither a restart nor a model that is away for a day loses an edit, and the changes need not be kept. A ledger
that was made anew knows of no edit: facts say of which text they were taken, and every Episode is compared with them once.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable

import msgspec
import structlog

from everosd import clock, errors, types
from everosd.engine import engine as engines
from everosd.engine import strategy as strategies
from everosd.engine import touch
from everosd.log import writer
from everosd.store import checkpoint, db, meta, owned, read, row

QUIET_S = 300.0
"""How long an Episode must have stood still: people save in the middle of a sentence."""

_QUIET_US = int(QUIET_S * 1_000_000)

LOOK_S = 1.0
BATCH = 2000
"""Changes per transaction: the writer's other work goes in between."""

MINUTE_US = 60_000_000
MAX_WRITTEN = 50
"""Entries of a minute that a person may have written by hand; where there are more, files were copied in."""

MAX_EMITTED = 200
"""Edits that the engine has at once: the others wait where they take no memory."""

ADDED = "engine_added"
"""Fact in `meta`: minute, how many were added in it, whether the minute before had too many."""

SWEEP = "engine_sweep"
"""Fact in `meta`: Episodes up to this key have been compared with their facts. Missing: all are, or need not be."""

SWEPT = 100
"""Episodes per look: a hundred thousand take a quarter of an hour, and nothing else waits for them."""

_TAKEN_FROM = re.compile(r"^\*\*source_digest\*\*:[ \t]*(\S+)", re.MULTILINE)

ORIGIN = "edit:"
RETRY_S = 5.0

log = structlog.get_logger(__name__)


class _Edit(msgspec.Struct, frozen=True, kw_only=True):
    """One Episode that was edited."""

    key: int
    lsn: int
    """Of the newest edit."""
    entry_id: str
    owner: types.Owner

    @property
    def origin(self) -> str:
        return f"{ORIGIN}{self.key}.{self.lsn}"


class Follower:
    """Reads the ledger's changes from a checkpoint of its own."""

    def __init__(
        self,
        database: db.Database,
        lsn: Callable[[], int],
        engine: engines.Engine,
        time: clock.Clock,
        pen: writer.Writer | None = None,
    ) -> None:
        """Emit into `engine`; `lsn` tells how far the ledger has come, and is asked every second (`Cascade.lsn`).

        With a `pen` edits of typed memories are written down.
        """
        self.digest: Callable[[row.EntryRow], str] | None = None
        """Of the present text of an Episode, as its facts carry it in `source_digest`; None: they are not compared."""
        self._database = database
        self._lsn = lsn
        self._engine = engine
        self._clock = time
        self._at = -1
        """Read up to here; -1: not known yet."""
        self._next_us: int | None = None
        """When the edit that has waited longest is due."""
        self._emitted: dict[int, _Edit] = {}
        self._touches = None if pen is None else touch.Touches(database, pen, _QUIET_US)
        self._began_us = clock.to_us(time.now())
        self._is_swept = False
        self.n_waiting = 0
        """Edits whose facts have not been taken."""

    async def run(self) -> None:
        """Follow until cancelled; a ledger that cannot be written is tried again."""
        is_failing = False
        while True:
            try:
                await self.look()
                is_failing = False
            except db.DamagedStoreError:
                raise  # the daemon ends; the next start sets the ledger aside
            except errors.StoreError as error:
                if not is_failing:
                    log.error("edits_not_followed", reason=str(error), hint=error.hint)  # noqa: TRY400  # tried again
                is_failing = True
                await self._clock.sleep(RETRY_S)
            await self._clock.sleep(LOOK_S)

    async def look(self) -> None:
        """Take in what has changed, emit what has been quiet long enough, forget what is done.

        Raises:
            errors.StoreError: the ledger cannot be written.

        """
        has_news = self._at < 0 or self._lsn() > self._at
        is_last = not has_news
        while not is_last:
            self._at, is_last = await self._database.write(_take)
        if self._touches is not None:
            await self._touches.look(clock.to_us(self._clock.now()), has_news=has_news)
        is_old = clock.to_us(self._clock.now()) - self._began_us >= _QUIET_US
        if is_old and not self._is_swept and self.digest is not None:
            # Not before: a ledger that is being filled has Episodes whose facts are still to be read.
            has_news |= await self._sweep(self.digest)
        done = [edit for edit in self._emitted.values() if not self._engine.is_open(edit.origin)]
        is_due = self._next_us is not None and self._next_us <= clock.to_us(self._clock.now())
        if has_news or done or (is_due and len(self._emitted) < MAX_EMITTED):
            await self._emit(done)

    async def owe(self, episode: row.EntryRow) -> None:
        """Have the facts of an Episode taken as soon as they can be, after a restart too.

        Raises:
            errors.StoreError: the ledger cannot be written.
        """
        at_us = clock.to_us(self._clock.now()) - _QUIET_US
        values = (episode.key, episode.lsn, at_us)
        await self._database.write(
            lambda connection: connection.execute("INSERT OR REPLACE INTO edits VALUES (?, ?, ?, 'modified')", values)
        )
        self._next_us = at_us + _QUIET_US

    async def _sweep(self, digest: Callable[[row.EntryRow], str]) -> bool:
        """Compare some Episodes with their facts; return whether any has others than those of its text."""
        now_us = clock.to_us(self._clock.now())
        found, self._is_swept = await self._database.write(lambda connection: _sweep(connection, digest, now_us))
        return found > 0

    async def _emit(self, done: list[_Edit]) -> None:
        now_us = clock.to_us(self._clock.now())
        emitted = dict(self._emitted)
        for edit in done:
            emitted.pop(edit.key, None)

        def job(connection: sqlite3.Connection) -> tuple[list[_Edit], int | None, int]:
            connection.executemany("DELETE FROM edits WHERE key = ? AND lsn = ?", [(e.key, e.lsn) for e in done])
            due = _due(connection, now_us, frozenset(emitted), MAX_EMITTED - len(emitted))
            return due, *_left(connection, frozenset(emitted) | {edit.key for edit in due})

        due, next_us, self.n_waiting = await self._database.write(job)
        for edit in due:
            emitted[edit.key] = edit
            self._engine.emit(
                strategies.Event(topic="episode_edited", owner=edit.owner, subject=edit.entry_id, origin=edit.origin)
            )
        if due:
            log.info("edits_followed", episodes=len(due))
        self._emitted = emitted
        self._next_us = None if next_us is None else next_us + _QUIET_US


def _take(connection: sqlite3.Connection) -> tuple[int, bool]:
    """Note the edits of one batch of changes; return how far that is, and whether it is the end."""
    before = meta.get(connection, checkpoint.FOLLOWER)
    if before is None:
        meta.put(connection, SWEEP, "0")
    at = int(before or 0)
    found = connection.execute(
        "SELECT v.lsn, v.at_us, v.key, v.change, e.kind, e.parent_type, e.is_shadowed FROM events v"
        " LEFT JOIN entries e ON e.key = v.key WHERE v.lsn > ? ORDER BY v.lsn LIMIT ?",
        (at, BATCH),
    ).fetchall()
    minutes = _Minutes(connection)
    for lsn, at_us, key, change, kind, parent_type, is_shadowed in found:
        if kind is None or is_shadowed:
            connection.execute("DELETE FROM edits WHERE key = ?", (key,))
        elif kind == "memory" and change == "modified":
            touch.note(connection, key, lsn, at_us)
        elif kind != "episode":
            continue
        elif change == "modified":
            connection.execute("INSERT OR REPLACE INTO edits VALUES (?, ?, ?, 'modified')", (key, lsn, at_us))
        elif change == "added" and not parent_type and minutes.may_be_written(at_us):
            connection.execute("INSERT OR REPLACE INTO edits VALUES (?, ?, ?, 'added')", (key, lsn, at_us))
    minutes.save()
    is_last = len(found) < BATCH
    if is_last:  # what was dropped before there was a checkpoint to hold it back is past, too
        newest = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone()
        at = max(at, int(newest[0]) if newest else 0)
    else:
        at = int(found[-1][0])
    meta.put(connection, checkpoint.FOLLOWER, str(at))
    checkpoint.prune(connection)
    return at, is_last


class _Minutes:
    """Tells entries that a person wrote from files that were copied in, by how many come at once."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        minute, n, was_over = (meta.get(connection, ADDED) or "0 0 0").split()
        self._minute, self._n, self._was_over = int(minute), int(n), bool(int(was_over))

    def may_be_written(self, at_us: int) -> bool:
        """Count one more; those of the same minute, and of the one before, that were taken for written are let go."""
        minute = at_us // MINUTE_US
        if minute != self._minute:
            is_next = minute == self._minute + 1
            self._was_over = is_next and (self._n > MAX_WRITTEN)
            self._minute, self._n = minute, 0
        self._n += 1
        if self._n == MAX_WRITTEN + 1:
            since_us = (minute - 1) * MINUTE_US
            self._connection.execute("DELETE FROM edits WHERE change = 'added' AND at_us >= ?", (since_us,))
        return self._n <= MAX_WRITTEN and not self._was_over

    def save(self) -> None:
        meta.put(self._connection, ADDED, f"{self._minute} {self._n} {int(self._was_over)}")


def _sweep(connection: sqlite3.Connection, digest: Callable[[row.EntryRow], str], now_us: int) -> tuple[int, bool]:
    """Note Episodes whose facts are all of another text; return how many, and whether there are none left to look at."""
    cursor = meta.get(connection, SWEEP)
    if cursor is None:
        return 0, True
    rows = connection.execute(
        f"SELECT {read.FIELDS} FROM entries e WHERE e.key > ? AND e.kind = 'episode' AND e.is_shadowed = 0"  # noqa: S608
        " AND e.status = 'active' ORDER BY e.key LIMIT ?",
        (int(cursor), SWEPT),
    ).fetchall()
    n = 0
    for episode in map(read.to_row, rows):
        owner = episode.owner
        facts = connection.execute(
            f"SELECT raw FROM entries WHERE {owned.by()} AND parent_id = ?"  # noqa: S608
            " AND kind = 'atomic_fact' AND is_shadowed = 0 AND status = 'active'",
            (*owned.scope(owner), episode.entry_id),
        )
        taken_from = {match[1] for (raw,) in facts if (match := _TAKEN_FROM.search(raw))}
        if taken_from and digest(episode) not in taken_from:
            n += connection.execute(
                "INSERT OR IGNORE INTO edits VALUES (?, ?, ?, 'modified')",
                (episode.key, episode.lsn, now_us - _QUIET_US),
            ).rowcount
    is_last = len(rows) < SWEPT
    meta.put(connection, SWEEP, None if is_last else str(rows[-1][0]))
    return n, is_last


def _due(connection: sqlite3.Connection, now_us: int, emitted: frozenset[int], limit: int) -> list[_Edit]:
    """Return edits that have been quiet long enough, oldest first; a moment in the future comes of a clock that was wrong."""
    rows = connection.execute(
        "SELECT d.key, d.lsn, e.entry_id, e.app, e.project, e.owner_type, e.owner_id FROM edits d"
        " JOIN entries e ON e.key = d.key WHERE d.change <> ? AND (d.at_us <= ? OR d.at_us > ?)"
        " ORDER BY d.at_us, d.lsn LIMIT ?",
        (touch.CHANGE, now_us - _QUIET_US, now_us + _QUIET_US, limit + len(emitted)),
    )
    found = [
        _Edit(
            key=row[0],
            lsn=row[1],
            entry_id=row[2],
            owner=types.Owner(app=row[3], project=row[4], type=row[5], id=row[6]),
        )
        for row in rows
        if row[0] not in emitted
    ]
    return found[: max(0, limit)]


def _left(connection: sqlite3.Connection, emitted: frozenset[int]) -> tuple[int | None, int]:
    """Return the moment of the oldest edit that has not been emitted, and how many edits there are in all."""
    of_episodes = "FROM edits WHERE change <> ?"
    rows = connection.execute(
        f"SELECT key, at_us {of_episodes} ORDER BY at_us LIMIT ?",  # our own words
        (touch.CHANGE, len(emitted) + 1),
    )
    oldest = next((at_us for key, at_us in rows if key not in emitted), None)
    return oldest, int(connection.execute(f"SELECT count(*) {of_episodes}", (touch.CHANGE,)).fetchone()[0])
