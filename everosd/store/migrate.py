"""Schema versions of the ledger: numbered SQL files, applied in order, each in a transaction."""

from __future__ import annotations

import functools
import importlib.resources
import sqlite3

from everosd import errors

APPLICATION_ID = 0x45564F44
"""`EVOD` in the SQLite header: tells our ledger from an EverOS database of the same name."""


@functools.cache
def steps() -> tuple[tuple[int, str], ...]:
    """Return (version, SQL) of every schema file, ascending."""
    folder = importlib.resources.files("everosd.store") / "schema"
    names = sorted(item.name for item in folder.iterdir() if item.name.endswith(".sql"))
    return tuple((int(name.split("-", 1)[0]), (folder / name).read_text("utf-8")) for name in names)


def migrate(connection: sqlite3.Connection) -> int:
    """Apply what is missing and return the schema version now in force.

    Raises:
        errors.SchemaTooNew: the file was made by a newer everosd; it is left as it is.

    """
    found = int(connection.execute("PRAGMA user_version").fetchone()[0])
    known = steps()[-1][0]
    if found > known:
        raise errors.SchemaTooNew(found, known)
    for version, sql in steps():
        if version <= found:
            continue
        connection.executescript(
            f"BEGIN IMMEDIATE;\n{sql}\nPRAGMA application_id = {APPLICATION_ID};\nPRAGMA user_version = {version};\nCOMMIT;"
        )
    return known
