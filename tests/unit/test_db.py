"""The file of the ledger: whether it is still the one that is open, and what becomes of a damaged one."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import shutil
import sqlite3

import pytest

from everosd import errors
from everosd.store import db, meta, read


@pytest.mark.parametrize("gone", ["sqlite", "sqlite/system.db", "sqlite/system.db-wal", "sqlite/system.db-shm"])
async def test_a_ledger_whose_files_are_deleted_is_not_sound(tmp_path: pathlib.Path, gone: str) -> None:
    """SQLite goes on in files that no other program can see: whoever holds it open has to be told."""
    database = await db.Database.open(tmp_path / "sqlite" / "system.db")
    assert await asyncio.to_thread(database.is_sound)
    victim = tmp_path / gone
    await asyncio.to_thread(lambda: shutil.rmtree(victim) if victim.is_dir() else victim.unlink())
    assert not await asyncio.to_thread(database.is_sound)
    await database.close()


async def test_X05_damage_that_only_a_reader_meets_is_remembered(tmp_path: pathlib.Path) -> None:
    """The files are cut short under a reader: that is damage, and the ledger counts as unsound until it is set aside."""
    path = tmp_path / "system.db"
    async with contextlib.AsyncExitStack() as stack:
        database = await db.Database.open(path)
        stack.push_async_callback(database.close)
        reader = await read.Reader.open(path)
        stack.push_async_callback(reader.close)
        await asyncio.to_thread(path.write_bytes, b"no database " * 1000)
        await asyncio.to_thread(path.with_name("system.db-wal").write_bytes, b"")
        with pytest.raises(db.DamagedStoreError):
            await reader.lsn()
        assert not await asyncio.to_thread(database.is_sound)
    again = await db.Database.open(path)
    assert await asyncio.to_thread(again.is_sound)
    await again.close()


def test_only_the_first_and_the_last_damaged_ledgers_are_kept(tmp_path: pathlib.Path) -> None:
    """A disk that eats bytes does not fill itself with what is left; the first may be another program's."""
    for _ in range(4):
        for suffix in ("", "-wal", "-shm"):
            (tmp_path / f"system.db{suffix}").write_bytes(b"?")
        db.set_aside(tmp_path / "system.db")
    assert {f"system.db.damaged-{n}{suffix}" for n in (1, 3, 4) for suffix in ("", "-wal", "-shm")} == {
        path.name for path in tmp_path.iterdir()
    }


def test_a_file_where_a_folder_belongs_is_named_with_what_to_do(tmp_path: pathlib.Path) -> None:
    """`.index` is a file of somebody: it stays as it is, and the message says what is in the way."""
    (tmp_path / ".index").write_text("mine")
    with pytest.raises(errors.StoreError) as caught:
        db.connect(tmp_path / ".index" / "sqlite" / "system.db", db.Settings())
    assert "move it away" in caught.value.hint
    assert "mine" == (tmp_path / ".index").read_text()


async def test_X05_a_schema_that_holds_bytes_of_anything_is_damage(tmp_path: pathlib.Path) -> None:
    """SQLite complains in bytes that are no UTF-8: the ledger is set aside like any other damaged one."""
    path = tmp_path / "system.db"
    await (await db.Database.open(path)).close()
    data = path.read_bytes()
    assert b"CREATE TABLE checkpoints" in data
    path.write_bytes(data.replace(b"CREATE TABLE checkpoints", b"CREATE \xb3\xff\xb3\xffE checkpoints"))
    again = await db.Database.open(path)
    assert (tmp_path / "system.db.damaged-1").exists()
    await again.close()


async def test_a_look_and_a_write_from_another_thread(tmp_path: pathlib.Path) -> None:
    """A thread sees what is committed, also while a transaction is under way, and writes in a transaction of the writer's."""
    database = await db.Database.open(tmp_path / "a %?#b" / "system.db")

    def seen() -> list[str]:
        rows = database.look(lambda connection: connection.execute("SELECT key FROM meta ORDER BY key").fetchall())
        return [str(row[0]) for row in rows]

    def put(connection: sqlite3.Connection, key: str) -> list[str]:
        meta.put(connection, key, "1")
        return seen()

    before = await asyncio.to_thread(seen)
    assert before == await database.write(lambda connection: put(connection, "zz1"))
    assert [*before, "zz1"] == await asyncio.to_thread(database.write_now, lambda connection: put(connection, "zz2"))
    assert [*before, "zz1", "zz2"] == await asyncio.to_thread(seen)
    with pytest.raises(errors.StoreError):
        await asyncio.to_thread(database.look, lambda connection: connection.execute("SELECT no FROM meta"))
    await database.close()
    with pytest.raises(errors.StoreError, match="closed"):
        await asyncio.to_thread(seen)
    assert database._look is None, "nobody would close it"
