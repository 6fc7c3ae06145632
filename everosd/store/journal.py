"""What the daemon wrote into files that people edit, kept so that a stale editor buffer can be merged.

A write is noted before its file is replaced and marked as landed afterwards, so that neither a crash nor a save from
outside in between leaves a write that nobody knows of.
"""

from __future__ import annotations

import pathlib
import re
import sqlite3
from collections.abc import Collection, Mapping

import msgspec

from everosd import clock, types
from everosd.log import heal
from everosd.store import db, meta, owned

KEEP_DAYS = 30
"""How long a write can be told from a person's deletion. An editor buffer older than that gets back everything that
is missing from it, which loses nothing either."""

_HEAD_BYTES = 65_536
_STAMP = re.compile(rb"^last_appended_at:[ \t]*['\"]?([^'\"\r\n]+)", re.MULTILINE)
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(heal.Write)


class Journal:
    """The `writes` table, and the numbers that were given to entries. What is not awaited blocks: call it from a thread."""

    def __init__(self, database: db.Database, time: clock.Clock) -> None:
        """Use an open ledger; call `recover` before the first write."""
        self._database = database
        self._clock = time

    async def recover(self, root: pathlib.Path) -> None:
        """Settle writes that a crash left open, by what is on disk, and forget those that are too old to matter."""
        now_us = clock.to_us(self._clock.now())

        def job(connection: sqlite3.Connection) -> None:
            open_rows = connection.execute("SELECT id, path, stamp FROM writes WHERE is_landed = 0").fetchall()
            for number, path, stamp in open_rows:
                found = stamp_on_disk(root / path)
                if found and not heal.is_older(found, stamp):
                    connection.execute("UPDATE writes SET is_landed = 1 WHERE id = ?", (number,))
                else:
                    connection.execute("DELETE FROM writes WHERE id = ?", (number,))
            connection.execute("DELETE FROM writes WHERE at_us < ?", (now_us - KEEP_DAYS * 86_400_000_000,))

        await self._database.write(job)

    def highest(self, owner: types.Owner, prefix: str, date: str) -> int:
        """Return the highest number ever given to an entry of this owner, prefix and date (`YYYYMMDD`); 0 for none. Blocks."""

        def job(connection: sqlite3.Connection) -> int:
            row = connection.execute(
                f"SELECT high FROM sequences WHERE {owned.by()} AND prefix = ? AND date = ?",  # noqa: S608
                (*owned.scope(owner), prefix, date.replace("-", "")),
            ).fetchone()
            return 0 if row is None else int(row[0])

        return self._database.look(job)

    def planned(self, path: types.RelPath, write: heal.Write) -> int:
        """Note a write before its file is replaced; return its number. Blocks."""
        now_us = clock.to_us(self._clock.now())

        def job(connection: sqlite3.Connection) -> int:
            cursor = connection.execute(
                "INSERT INTO writes (path, stamp, at_us, change) VALUES (?, ?, ?, ?)",
                (path, write.stamp, now_us, _ENCODER.encode(write)),
            )
            return int(cursor.lastrowid or 0)

        return self._database.write_now(job)

    def landed(self, number: int) -> None:
        """Mark a write as on disk; only then may it be acknowledged. Blocks."""
        self._database.write_now(
            lambda connection: connection.execute("UPDATE writes SET is_landed = 1 WHERE id = ?", (number,))
        )

    def dropped(self, number: int) -> None:
        """Forget a write whose file was not replaced after all. Blocks."""
        self._database.write_now(lambda connection: connection.execute("DELETE FROM writes WHERE id = ?", (number,)))

    async def since(self, path: types.RelPath, stamp: str) -> list[heal.Write]:
        """Return the writes that landed in a file after `stamp`, oldest first."""

        def job(connection: sqlite3.Connection) -> list[bytes]:
            rows = connection.execute("SELECT change FROM writes WHERE path = ? AND is_landed = 1 ORDER BY id", (path,))
            return [row[0] for row in rows]

        writes = [_DECODER.decode(change) for change in await self._database.write(job)]
        return [write for write in writes if heal.is_older(stamp, write.stamp)]

    async def known(self, path: types.RelPath) -> heal.Known | None:
        """Return what the ledger last read in a file; None when it has not read it."""

        def job(connection: sqlite3.Connection) -> heal.Known | None:
            row = connection.execute("SELECT stamp FROM files WHERE path = ?", (path,)).fetchone()
            if row is None:
                return None
            entries, deprecated = meta.held_of(connection, path)
            return heal.Known(stamp=row[0], entries=entries, deprecated=deprecated)

        return await self._database.write(job)

    async def missing(self, path: types.RelPath, there: Collection[str]) -> list[heal.Row]:
        """Return the entries behind the last one of `there` that the ledger read in a file, oldest first."""
        return await self._database.write(lambda connection: meta.missing_rows(connection, path, there))

    async def moved(self, path: types.RelPath, entries: Mapping[str, str]) -> frozenset[str]:
        """Return which entries (id → raw text) the ledger read in another file of the same owner, letter by letter."""
        return await self._database.write(lambda connection: meta.moved(connection, path, entries))


def stamp_on_disk(path: pathlib.Path) -> str:
    """Return `last_appended_at` as it stands at the head of a file; empty when there is none. Blocking."""
    try:
        with path.open("rb") as file:
            match = _STAMP.search(file.read(_HEAD_BYTES))
    except OSError:
        return ""
    return "" if match is None else match[1].decode("utf-8", "replace").strip()
