"""The vectors that were once given for a text, on disk: a rebuild of the index never pays a model twice.

It lies outside `.index/`, so deleting that costs no money. Whatever happens to it, the worst is that a text is embedded
again: damage is set aside, and what the disk refuses is raised for the caller to go on without.
"""

from __future__ import annotations

import contextlib
import math
import os
import sqlite3
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import structlog

from everosd import clock, errors, types

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

T = TypeVar("T")
Vector: TypeAlias = "NDArray[np.float32]"

log = structlog.get_logger(__name__)

SCHEMA_VERSION = 1
"""1: float16, little-endian, with a checksum per row. Another one on disk is begun anew."""

_SCHEMA = """
CREATE TABLE spaces (
    space INTEGER PRIMARY KEY,
    model TEXT NOT NULL, dim INTEGER NOT NULL, calibration TEXT NOT NULL,
    UNIQUE (model, dim, calibration)
);
CREATE TABLE vectors (
    space INTEGER NOT NULL, digest BLOB NOT NULL,
    day INTEGER NOT NULL, crc INTEGER NOT NULL, vector BLOB NOT NULL,
    UNIQUE (space, digest)
);
CREATE INDEX vectors_by_day ON vectors (day);
"""

_PRAGMAS = (
    "PRAGMA auto_vacuum = INCREMENTAL",
    "PRAGMA journal_mode = WAL",
    # A killed process loses nothing; a power cut may lose the last vectors, which are then asked for again.
    "PRAGMA synchronous = NORMAL",
    "PRAGMA busy_timeout = 5000",
    "PRAGMA journal_size_limit = 4194304",
    "PRAGMA cache_size = -1024",
    "PRAGMA mmap_size = 0",  # a vanished mount would kill the process instead of raising an error
)
_DAMAGE = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_IOERR_SHORT_READ")
_SELECT = "SELECT rowid, digest, day, crc, vector FROM vectors WHERE space = ? AND digest IN ({})"
_AT_ONCE = 500
"""Digests per SELECT; SQLite takes 999 parameters in its oldest builds."""
_KEPT_SHARE = 0.9
"""Of the limit, once it was passed: room for the next vectors, so that not every one of them has to make its own."""
_GONE_AT_ONCE = 1_000
"""Vectors removed in one transaction, at most."""
_S_PER_DAY = 86_400


class Cache:
    """Vectors by space and digest of the text; blocking, from any thread, one call at a time.

    Nothing is opened before the first call, and what could not be opened is tried again at the next.

    Every call raises:
        StoreRefused: the disk takes nothing, or gives nothing: it is full, read-only, not ours. Go on without.
        StoreError: anything else that SQLite says; go on without just the same.
    """

    def __init__(self, path: Path, max_bytes: int, time: clock.Clock | None = None) -> None:
        """Keep vectors at `path`; about `max_bytes` of them, those not used for the most days leave first."""
        self.max_bytes = max_bytes
        self._path = path
        self._time = time or clock.SystemClock()
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._opened: tuple[int, int] | None = None
        self._spaces: dict[types.Space, int] = {}

    def get(self, space: types.Space, digests: Sequence[bytes]) -> dict[bytes, Vector]:
        """Return the vectors that are known, `(dim,)` float32 each, exact to float16; what is damaged is not among them."""
        return self._run(lambda connection: self._get(connection, space, digests)) if digests else {}

    def put(self, space: types.Space, vectors: Mapping[bytes, Vector]) -> None:
        """Keep vectors; committed when it returns. The same digest again replaces."""
        if vectors:
            self._run(lambda connection: self._put(connection, space, vectors))

    def n_bytes(self) -> int:
        """Return what the cache takes on disk."""
        sizes = 0
        for suffix in ("", "-wal"):
            with contextlib.suppress(OSError):
                sizes += self._side(suffix).stat().st_size
        return sizes

    def close(self) -> None:
        """Write the WAL back and close; a later call opens it again."""
        with self._lock:
            self._close()

    def _run(self, job: Callable[[sqlite3.Connection], T]) -> T:
        with self._lock, self._in_words():
            try:
                return job(self._open())
            except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
                if not _is_damage(error):
                    raise
                self._set_aside(str(error))
                return job(self._open())

    @contextlib.contextmanager
    def _in_words(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error, UnicodeDecodeError) as error:
            # What is open may be a file that is gone, or one whose disk has gone read-only: the next call looks anew.
            self._close()
            text = str(error).lower()
            if isinstance(error, OSError) or any(
                word in text for word in ("full", "readonly", "unable to open", "disk i/o")
            ):
                refused = errors.StoreRefused(f"{self._path}: {error}")
                refused.hint = f"free space or make {self._path.parent} writable: until then texts are embedded anew"
                raise refused from error
            said = errors.StoreError(f"{self._path}: {error}")
            raise said from error

    def _open(self) -> sqlite3.Connection:
        if self._connection is not None and _identity(self._path) == self._opened:
            return self._connection
        self._close()
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with contextlib.suppress(FileExistsError):
            os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        try:
            found = _begin(connection)
        except BaseException:
            connection.close()
            raise
        if found != SCHEMA_VERSION:
            connection.close()
            self._set_aside(f"it has schema {found}, this everosd writes {SCHEMA_VERSION}")
            return self._open()
        self._connection, self._opened = connection, _identity(self._path)
        return connection

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        self._spaces.clear()
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def _set_aside(self, reason: str) -> None:
        """Rename what is there, so that it can be looked at; only the last one is kept."""
        self._close()
        target = self._path.with_name(f"{self._path.name}.damaged")
        for suffix in ("-shm", "-wal", ""):
            target.with_name(target.name + suffix).unlink(missing_ok=True)
            with contextlib.suppress(FileNotFoundError):
                self._side(suffix).rename(target.with_name(target.name + suffix))
        log.warning("embedding_cache_set_aside", path=str(target), reason=reason)

    def _side(self, suffix: str) -> Path:
        return self._path.with_name(self._path.name + suffix)

    def _today(self) -> int:
        return int(self._time.now().timestamp()) // _S_PER_DAY

    def _get(self, connection: sqlite3.Connection, space: types.Space, digests: Sequence[bytes]) -> dict[bytes, Vector]:
        import numpy as np

        number = self._number(connection, space)
        if number is None:
            return {}
        found: dict[bytes, Vector] = {}
        used: list[int] = []
        damaged: list[int] = []
        today = self._today()
        for at in range(0, len(digests), _AT_ONCE):
            some = digests[at : at + _AT_ONCE]
            rows = connection.execute(_SELECT.format(",".join("?" * len(some))), (number, *some))
            for row, digest, day, crc, blob in rows:
                if len(blob) != 2 * space.dim or zlib.crc32(blob, zlib.crc32(digest)) != crc:
                    damaged.append(row)
                    continue
                found[digest] = np.frombuffer(blob, dtype="<f2").astype(np.float32)
                if day != today:
                    used.append(row)
        # Where nothing can be written, what was read is still good.
        with contextlib.suppress(sqlite3.OperationalError), _transaction(connection, needed=bool(used or damaged)):
            connection.executemany("UPDATE vectors SET day = ? WHERE rowid = ?", [(today, row) for row in used])
            connection.executemany("DELETE FROM vectors WHERE rowid = ?", [(row,) for row in damaged])
        if damaged:
            log.warning("embedding_cache_rows_damaged", n_rows=len(damaged))
        return found

    def _put(self, connection: sqlite3.Connection, space: types.Space, vectors: Mapping[bytes, Vector]) -> None:
        today = self._today()
        with _transaction(connection):
            number = self._number(connection, space)
            if number is None:
                number = connection.execute(
                    "INSERT INTO spaces (model, dim, calibration) VALUES (?, ?, ?) RETURNING space",
                    (space.model, space.dim, space.calibration),
                ).fetchone()[0]
            rows = []
            for digest, vector in vectors.items():
                blob = vector.astype("<f2").tobytes()
                rows.append((number, digest, today, zlib.crc32(blob, zlib.crc32(digest)), blob))
            connection.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?, ?, ?)", rows)
        self._spaces[space] = number
        self._shrink(connection)

    def _number(self, connection: sqlite3.Connection, space: types.Space) -> int | None:
        """Return the row of a space; remembered only once it is committed."""
        if space in self._spaces:
            return self._spaces[space]
        row = connection.execute(
            "SELECT space FROM spaces WHERE (model, dim, calibration) = (?, ?, ?)",
            (space.model, space.dim, space.calibration),
        ).fetchone()
        return None if row is None else int(row[0])

    def _shrink(self, connection: sqlite3.Connection) -> None:
        """Let the vectors go that were not used for longest, while there are too many."""
        page_bytes, n_pages, n_free = (
            connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_size", "page_count", "freelist_count")
        )
        if (n_pages - n_free) * page_bytes > self.max_bytes:
            while (n_bytes := (n_pages - n_free) * page_bytes) > self.max_bytes * _KEPT_SHARE:
                with _transaction(connection):
                    n_kept = connection.execute("SELECT count(*) FROM vectors").fetchone()[0]
                    n_too_many = math.ceil(n_kept * (1 - self.max_bytes * _KEPT_SHARE / n_bytes))
                    gone = connection.execute(
                        "DELETE FROM vectors WHERE rowid IN (SELECT rowid FROM vectors ORDER BY day, rowid LIMIT ?)",
                        (min(n_too_many, _GONE_AT_ONCE),),
                    ).rowcount
                n_pages = connection.execute("PRAGMA page_count").fetchone()[0]
                n_free = connection.execute("PRAGMA freelist_count").fetchone()[0]
                if not gone:
                    break
        if n_pages * page_bytes > self.max_bytes and n_free:
            connection.executescript("PRAGMA incremental_vacuum")  # `execute` would step once, and free a page
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


def _begin(connection: sqlite3.Connection) -> int:
    """Set the pragmas, make the tables where there are none, and return the version of the schema."""
    for pragma in _PRAGMAS:
        connection.execute(pragma)
    if connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0:
        with _transaction(connection):
            for statement in _SCHEMA.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection, *, needed: bool = True) -> Iterator[None]:
    if not needed:
        yield
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def _is_damage(error: Exception) -> bool:
    text = str(error).lower()
    return (
        isinstance(error, UnicodeDecodeError)
        or getattr(error, "sqlite_errorname", "").startswith(_DAMAGE)
        or any(words in text for words in ("could not decode", "no such table", "no such column"))
    )
