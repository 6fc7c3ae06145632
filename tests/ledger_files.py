"""Files as the ledger takes them, made by hand: for tests of what follows from them, without a disk."""

from __future__ import annotations

import asyncio
import hashlib
import pathlib
import sqlite3
from collections.abc import Callable, Coroutine
from typing import TypeVar

from everosd import types
from everosd.store import derived, ledger, migrate, read, state

T = TypeVar("T")

MARA = types.Owner(app="default", project="default", type="user", id="mara")
JUN = types.Owner(app="default", project="default", type="user", id="jun")


def ask(path: pathlib.Path, question: Callable[[read.Reader], Coroutine[None, None, T]]) -> T:
    """Ask the ledger as the daemon does."""

    async def asked() -> T:
        reader = await read.Reader.open(path)
        try:
            return await question(reader)
        finally:
            await reader.close()

    return asyncio.run(asked())


def entry(entry_id: str, kind: str, raw: str, timestamp_us: int = 1) -> state.EntryState:
    """One entry of a file."""
    return state.EntryState(
        entry_id=entry_id,
        nth=0,
        line=1,
        form="marked",
        kind=kind,
        digest=hashlib.blake2b(f"{entry_id}{raw}".encode(), digest_size=16).digest(),
        session_id=None,
        timestamp_us=timestamp_us,
        parent_type="",
        parent_id="",
        sender_ids="[]",
        memory_type="",
        memory_path="",
        own_status="active",
        expires_us=None,
        raw=raw,
    )


def ep(number: int | str) -> str:
    """Return the id of an Episode."""
    return f"ep_20260302_{int(number):08}"


def episode(number: int, text: str = "text") -> state.EntryState:
    """One Episode, a second after the one before."""
    return entry(ep(number), "episode", text, number * 1_000_000)


def file(path: str, *entries: state.EntryState, owner: types.Owner = MARA, kind: str = "cluster") -> state.FileState:
    """One file."""
    return state.FileState(
        path=types.RelPath(f"{owner.id}/{path}"),
        kind=kind,
        owner=owner,
        date="20260302",
        inode=1,
        size=1,
        mtime_ns=1,
        digest=path.encode(),
        stamp="",
        entry_count=0,
        entries=entries,
        deprecated={},
    )


def episodes(*numbers: int, owner: types.Owner = MARA) -> state.FileState:
    """A file of Episodes."""
    return file("episodes.md", *(episode(n) for n in numbers), owner=owner, kind="episode")


def apply(connection: sqlite3.Connection, *files: state.FileState, force: bool = False) -> None:
    """Read files."""
    connection.execute("BEGIN")
    ledger.apply_files(connection, files, now_us=7, force=force)
    connection.execute("COMMIT")


def remove(connection: sqlite3.Connection, *paths: str) -> None:
    """Forget files."""
    connection.execute("BEGIN")
    ledger.remove_files(connection, paths, now_us=9)
    connection.execute("COMMIT")


def tables(connection: sqlite3.Connection) -> dict[str, list[tuple[object, ...]]]:
    """Return everything that `verify` compares."""
    return {
        table.name: sorted(connection.execute(f"SELECT {', '.join(table.columns)} FROM {table.name}"))  # noqa: S608
        for table in derived.TABLES
    }


def ledger_in_memory() -> sqlite3.Connection:
    """An empty ledger that is on no disk."""
    made = sqlite3.connect(":memory:", isolation_level=None)
    migrate.migrate(made)
    return made
