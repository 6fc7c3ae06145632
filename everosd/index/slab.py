"""What the vector index has on disk: one SQLite file with a row per document and a row per document's vectors.

Each row carries a checksum (`record`), as SQLite's pages have none.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
import structlog

from everosd import errors, types
from everosd.index import record

SCHEMA_VERSION = 2
"""Of the tables and of what stands in them; any change makes another one and with it a rebuild. 1: first. 2: what a memory is
filed under; of 1 the vectors are kept, and documents are written anew."""

FILE_NAME = "vectors.db"

_SUSPECT = "damaged"  # the file whose being there says that the index was found damaged while it was in use
_CHUNK_ROWS = 1_000  # rows that are read at once: bounds the memory beside the result
MAX_KEYS = 500
"""Keys per statement, well under SQLite's limit."""
_VACUUM_PAGES = 256  # given back to the file system per commit, at most: 1 MB
_SPARE_PAGES = 512  # free pages that are kept for the next rows
_DAMAGE = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_IOERR_SHORT_READ", "SQLITE_ERROR", "SQLITE_MISMATCH")
# `SQLITE_ERROR` is a table or column that is not there: our statements are the same each time.

_SCHEMA = """
CREATE TABLE IF NOT EXISTS state (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS spaces (id INTEGER PRIMARY KEY, model TEXT NOT NULL, dim INTEGER NOT NULL,
  calibration TEXT NOT NULL, UNIQUE (model, dim, calibration));
CREATE TABLE IF NOT EXISTS partitions (id INTEGER PRIMARY KEY AUTOINCREMENT, scope TEXT NOT NULL,
  is_short INTEGER NOT NULL, UNIQUE (scope, is_short));
CREATE TABLE IF NOT EXISTS documents (key INTEGER PRIMARY KEY, partition INTEGER NOT NULL, changed INTEGER NOT NULL,
  is_owed INTEGER NOT NULL, digest BLOB NOT NULL, fields BLOB NOT NULL, crc INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS documents_owed ON documents (is_owed, changed);
CREATE INDEX IF NOT EXISTS documents_partition ON documents (partition);
CREATE TABLE IF NOT EXISTS vectors (key INTEGER PRIMARY KEY, space INTEGER NOT NULL, digest BLOB NOT NULL,
  n INTEGER NOT NULL, codes BLOB NOT NULL, crc INTEGER NOT NULL);
"""

_WITHOUT_FILING = 1
_FROM_1 = f"""
BEGIN IMMEDIATE;
DELETE FROM documents;
DELETE FROM state WHERE name = 'is_begun';
PRAGMA user_version = {SCHEMA_VERSION};
COMMIT;
"""  # noqa: S608  # our own number
"""The index counts as new and is filled; a document whose text is the same finds its vectors there."""


log = structlog.get_logger(__name__)


class Slab:
    """The SQLite file: one connection that writes, one that reads, each behind a lock. All calls block."""

    def __init__(self, folder: Path) -> None:
        """Open the file in `folder`, made where there is none.

        Raises:
            DerivedIndexError: it is damaged or of another version.
            IndexUnavailable: it can't be read or written now.
        """
        self.path = folder / FILE_NAME
        self._suspect = folder / _SUSPECT
        self._write_lock, self._read_lock = threading.RLock(), threading.Lock()
        self.space: types.Space | None = None
        self.on_owed: Callable[[], None] = _nothing
        """Called, from any thread, when documents owe vectors again that were found damaged."""
        self._space_id = 0
        with self._translated(is_opening=True):
            if self._suspect.exists():
                raise errors.DerivedIndexError(record.NAME, "it was found damaged while it was in use")
            self._writer = _connect(self.path)
            try:
                self._reader = self._open()
            except BaseException:
                self._writer.close()
                raise
            self._identity = _identity(self.path)

    def _open(self) -> sqlite3.Connection:
        version = int(self._writer.execute("PRAGMA user_version").fetchone()[0])
        if version not in (0, _WITHOUT_FILING, SCHEMA_VERSION):
            raise errors.DerivedIndexError(
                record.NAME, f"it has schema {version}, this everosd writes {SCHEMA_VERSION}"
            )
        if version == 0:
            if self._writer.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                raise errors.DerivedIndexError(record.NAME, "it has no schema version")
            self._writer.execute("PRAGMA auto_vacuum = INCREMENTAL")
            self._writer.execute("PRAGMA journal_mode = WAL")
            self._writer.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")
            self.path.chmod(0o600)
        _check(self._writer)
        if version == _WITHOUT_FILING:
            self._writer.executescript(_FROM_1)
        state = {str(name): int(value) for name, value in self._writer.execute("SELECT name, value FROM state")}
        self.is_new = not state.get("is_begun", 0)
        self._space_id = state.get("space", 0)
        found = self._writer.execute(
            "SELECT model, dim, calibration FROM spaces WHERE id = ?", (self._space_id,)
        ).fetchone()
        if found is not None:
            self.space = types.Space(model=found[0], dim=found[1], calibration=found[2])
        self._changed = int(
            self._writer.execute(
                "SELECT max(coalesce((SELECT max(changed) FROM documents WHERE is_owed = 0), 0), "
                "coalesce((SELECT max(changed) FROM documents WHERE is_owed = 1), 0))"
            ).fetchone()[0]
        )
        self._count()
        return _connect(self.path)

    def _count(self) -> None:
        self.n_documents = int(self._writer.execute("SELECT count(*) FROM documents").fetchone()[0])
        self.n_owed = int(self._writer.execute("SELECT count(*) FROM documents WHERE is_owed = 1").fetchone()[0])

    def use(self, space: types.Space) -> bool:
        """Compare with vectors of `space` from now on; False where that is so already."""
        if space == self.space:
            return False
        with self._writing() as cursor:
            cursor.execute(
                "INSERT INTO spaces (model, dim, calibration) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                (space.model, space.dim, space.calibration),
            )
            space_id = int(
                cursor.execute(
                    "SELECT id FROM spaces WHERE model = ? AND dim = ? AND calibration = ?",
                    (space.model, space.dim, space.calibration),
                ).fetchone()[0]
            )
            cursor.execute("INSERT OR REPLACE INTO state (name, value) VALUES ('space', ?)", (space_id,))
            cursor.execute(
                "UPDATE documents SET is_owed = 1 - is_owed WHERE is_owed != (digest != x'' AND NOT EXISTS "
                "(SELECT 1 FROM vectors v WHERE v.key = documents.key AND v.space = ? AND v.digest = documents.digest))",
                (space_id,),
            )
        with self._write_lock, self._translated():
            self._count()
        self.space, self._space_id = space, space_id
        return True

    def write(self, changes: record.Changes) -> dict[int, record.Before]:
        """Write all changes in one transaction, durable when it returns; return where the documents lay before."""
        with self._write_lock:  # until all is counted: a search that drops damaged rows counts anew in between
            with self._writing() as cursor:
                before = _before(cursor, changes)
                if before or any(changes.values()):
                    cursor.execute("INSERT OR REPLACE INTO state (name, value) VALUES ('is_begun', 1)")
                gone = [(key,) for key, row in changes.items() if row is None and key in before]
                cursor.executemany("DELETE FROM documents WHERE key = ?", gone)
                cursor.executemany("DELETE FROM vectors WHERE key = ?", gone)
                partitions = self._partitions(cursor, {row.name for row in changes.values() if row is not None})
                rows, silent = [], []
                changed = self._changed
                for key, row in changes.items():
                    if row is not None:
                        partition, fields = partitions[row.name], record.fields_of(row)
                        changed += 1
                        crc = record.document_crc(key, row.name, row.digest, fields)
                        rows.append((key, partition, changed, row.digest, fields, crc, self._space_id))
                        if not row.digest and key in before:
                            silent.append((key,))
                cursor.executemany("DELETE FROM vectors WHERE key = ?", silent)
                cursor.executemany(
                    "INSERT OR REPLACE INTO documents (key, partition, changed, digest, fields, crc, is_owed) VALUES "
                    "(?1, ?2, ?3, ?4, ?5, ?6, ?4 != x'' AND NOT EXISTS "
                    "(SELECT 1 FROM vectors WHERE key = ?1 AND space = ?7 AND digest = ?4))",
                    rows,
                )
                after = _before(cursor, changes)
            self._changed = changed
            self.n_documents += len(after) - len(before)
            self.n_owed += sum(each.is_owed for each in after.values()) - sum(each.is_owed for each in before.values())
        self._give_back()
        return before

    def put(self, done: Sequence[record.Embedded]) -> list[record.Stored]:
        """Keep the vectors of those documents that still have this text; durable when it returns."""
        assert self.space is not None  # noqa: S101  # checked by the caller
        kept: list[record.Stored] = []
        n_paid = 0
        with self._write_lock:
            with self._writing() as cursor:
                for each in done:
                    found = cursor.execute(
                        "SELECT p.scope, p.is_short, d.is_owed, d.digest, d.fields, d.crc "
                        "FROM documents d JOIN partitions p ON p.id = d.partition WHERE d.key = ?",
                        (each.key,),
                    ).fetchone()
                    if found is None or found[3] != each.digest or not len(each.vectors):
                        continue
                    scope, is_short, is_owed, *kept_of_it = found
                    row = record.read(each.key, record.Name(scope, bool(is_short)), *kept_of_it)
                    codes = record.encode(each.vectors)
                    blob = codes.tobytes()
                    cursor.execute(
                        "INSERT OR REPLACE INTO vectors (key, space, digest, n, codes, crc) VALUES (?, ?, ?, ?, ?, ?)",
                        (
                            each.key,
                            self._space_id,
                            each.digest,
                            len(codes),
                            blob,
                            record.vectors_crc(each.key, self._space_id, each.digest, blob),
                        ),
                    )
                    if is_owed:
                        cursor.execute("UPDATE documents SET is_owed = 0 WHERE key = ?", (each.key,))
                        n_paid += 1
                    kept.append(record.Stored(each.key, row, codes))
            self.n_owed -= n_paid
        self._give_back()
        return kept

    def before(self, keys: Iterable[int]) -> dict[int, record.Before]:
        """Return where those of these documents lie that there are."""
        with self._reading() as cursor:
            return _before(cursor, keys)

    def owed(self, limit: int, skip: Container[int]) -> list[record.Owed]:
        """Return up to `limit` documents without vectors of their text in this space, those changed last first."""
        found: list[record.Owed] = []
        if limit > 0:
            with self._reading() as cursor:
                for key, scope, is_short, *kept in cursor.execute(
                    "SELECT d.key, p.scope, p.is_short, d.digest, d.fields, d.crc FROM documents d "
                    "JOIN partitions p ON p.id = d.partition WHERE d.is_owed = 1 ORDER BY d.changed DESC"
                ):
                    if key not in skip:
                        row = record.read(key, record.Name(scope, bool(is_short)), *kept)
                        found.append(record.Owed(key=types.EntryKey(key), digest=row.digest))
                        if len(found) >= limit:
                            break
        return found

    def keys(self) -> set[int]:
        """Return the keys of all documents."""
        with self._reading() as cursor:
            return {int(key) for (key,) in cursor.execute("SELECT key FROM documents")}

    def number(self, name: record.Name) -> int:
        """Return the number of a partition, the same as long as the index lives; 0: nothing was ever in it."""
        with self._reading() as cursor:
            found = cursor.execute("SELECT id FROM partitions WHERE scope = ? AND is_short = ?", name).fetchone()
            return 0 if found is None else int(found[0])

    def size(self, number: int) -> int:
        """Return how many documents a partition has."""
        with self._reading() as cursor:
            found = cursor.execute("SELECT count(*) FROM documents WHERE partition = ?", (number,)).fetchone()
            return int(found[0])

    def read(self, name: record.Name, shown: record.Changes) -> Generator[record.Stored]:
        """Yield the documents of a partition that have vectors in this space, by key; `shown` stands above what is written.

        A row of vectors with a wrong checksum is dropped, and owed again.

        Raises:
            DerivedIndexError: a document's row has a wrong checksum.
        """
        bad: list[int] = []
        with self._reading() as cursor:
            for key, row, vectors in self._rows(cursor, name, shown):
                codes = self._codes(key, *vectors)
                if codes is None:
                    bad.append(key)
                else:
                    yield record.Stored(key, row, codes)
        self._drop(bad)

    def vectors(self, keys: Sequence[int]) -> dict[int, record.Codes]:
        """Return the vectors of up to `MAX_KEYS` documents, by key, without those that lack vectors of their text.

        A row of vectors with a wrong checksum is dropped, and owed again. Not while the space is being changed.
        """
        found: dict[int, record.Codes] = {}
        bad: list[int] = []
        with self._reading() as cursor:
            rows = cursor.execute(
                "SELECT v.key, v.digest, v.n, v.codes, v.crc FROM vectors v JOIN documents d ON d.key = v.key "  # noqa: S608  # placeholders only
                f"WHERE v.key IN ({', '.join('?' * len(keys))}) AND v.space = ? AND d.is_owed = 0",
                (*keys, self._space_id),
            )
            for key, *vectors in rows:
                codes = self._codes(key, *vectors)
                if codes is None:
                    bad.append(key)
                else:
                    found[key] = codes
        self._drop(bad)
        return found

    def _rows(
        self, cursor: sqlite3.Cursor, name: record.Name, shown: record.Changes
    ) -> Iterator[tuple[int, record.Row, tuple[object, object, object, object]]]:
        found = cursor.execute("SELECT id FROM partitions WHERE scope = ? AND is_short = ?", name).fetchone()
        partition = -1 if found is None else int(found[0])
        last = -(2**63)
        while True:
            rows = cursor.execute(
                "SELECT d.key, d.digest, d.fields, d.crc, v.digest, v.n, v.codes, v.crc "
                "FROM documents d JOIN vectors v ON v.key = d.key "
                "WHERE d.partition = ? AND d.key > ? AND v.space = ? ORDER BY d.key LIMIT ?",
                (partition, last, self._space_id, _CHUNK_ROWS),
            ).fetchall()
            for key, digest, fields, crc, *vectors in rows:
                if key not in shown:
                    yield key, record.read(key, name, digest, fields, crc), tuple(vectors)
            if len(rows) < _CHUNK_ROWS:
                break
            last = int(rows[-1][0])
        for key, shown_row in shown.items():
            if shown_row is not None and shown_row.name == name and shown_row.digest:
                vectors = cursor.execute(
                    "SELECT digest, n, codes, crc FROM vectors WHERE key = ? AND space = ?", (key, self._space_id)
                ).fetchone()
                if vectors is not None:
                    yield key, shown_row, vectors

    def _codes(self, key: int, digest: object, n: object, blob: object, crc: object) -> record.Codes | None:
        """Return the vectors of a row as they were put; None where they are not what was put."""
        dim = 0 if self.space is None else self.space.dim
        if not (isinstance(digest, bytes) and isinstance(n, int) and isinstance(blob, bytes)):
            return None
        if len(blob) != 2 * n * dim or crc != record.vectors_crc(key, self._space_id, digest, blob):
            return None
        import numpy as np

        return np.frombuffer(blob, dtype="<i2").reshape(n, dim)

    def _drop(self, keys: Sequence[int]) -> None:
        if keys:
            with self._writing() as cursor:
                cursor.executemany("DELETE FROM vectors WHERE key = ?", [(key,) for key in keys])
                cursor.executemany(
                    "UPDATE documents SET is_owed = 1 WHERE key = ? AND digest != x''", [(key,) for key in keys]
                )
            with self._write_lock, self._translated():
                self._count()
            log.warning("vectors_damaged", path=str(self.path), n_documents=len(keys))
            self.on_owed()

    def close(self) -> None:
        """Bring the write-ahead log into the file and close it."""
        with self._write_lock, self._read_lock, contextlib.suppress(sqlite3.Error):
            self._reader.close()
            with contextlib.suppress(sqlite3.Error):
                self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._writer.close()

    def _partitions(self, cursor: sqlite3.Cursor, names: Iterable[record.Name]) -> dict[record.Name, int]:
        found: dict[record.Name, int] = {}
        for name in names:
            cursor.execute(
                "INSERT INTO partitions (scope, is_short) SELECT ?1, ?2 WHERE NOT EXISTS "
                "(SELECT 1 FROM partitions WHERE scope = ?1 AND is_short = ?2)",
                name,
            )
            found[name] = int(
                cursor.execute("SELECT id FROM partitions WHERE scope = ? AND is_short = ?", name).fetchone()[0]
            )
        return found

    def _give_back(self) -> None:
        """Return pages to the file system where many are free: the file follows what is in it, also downward."""
        with self._write_lock, self._translated():
            n_free = int(self._writer.execute("PRAGMA freelist_count").fetchone()[0])
            if n_free > _SPARE_PAGES:
                n_pages = int(self._writer.execute("PRAGMA page_count").fetchone()[0])
                if n_free * 4 > n_pages:
                    # As a script: `execute` would stop after the first page.
                    self._writer.executescript(f"PRAGMA incremental_vacuum({min(_VACUUM_PAGES, n_free)})")

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Cursor]:
        with self._write_lock, self._translated():
            if _identity(self.path) != self._identity:
                raise errors.DerivedIndexError(record.NAME, f"{FILE_NAME} was deleted or replaced while it was in use")
            cursor = self._writer.cursor()
            cursor.execute("BEGIN IMMEDIATE")
            try:
                yield cursor
                cursor.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    cursor.execute("ROLLBACK")
                raise
            finally:
                cursor.close()

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Cursor]:
        with self._read_lock, self._translated():
            cursor = self._reader.cursor()
            cursor.execute("BEGIN")  # one state, also over several statements
            try:
                yield cursor
            finally:
                with contextlib.suppress(sqlite3.Error):
                    cursor.execute("ROLLBACK")
                cursor.close()

    @contextlib.contextmanager
    def _translated(self, *, is_opening: bool = False) -> Iterator[None]:
        """Turn what SQLite and the disk raise into our errors; damage is remembered, so that it is set aside next time."""
        try:
            yield
        except errors.DerivedIndexError:
            if not is_opening:
                self._remember()
            raise
        except (sqlite3.Error, OSError, UnicodeDecodeError, msgspec.MsgspecError) as error:
            if _is_unavailable(error):
                raise errors.IndexUnavailable(record.NAME, str(error)) from error
            if not is_opening:
                self._remember()
            raise errors.DerivedIndexError(record.NAME, str(error)) from error

    def _remember(self) -> None:
        with contextlib.suppress(OSError):
            self._suspect.touch(mode=0o600)


def _nothing() -> None:
    """Tell nobody."""


def _is_unavailable(error: BaseException) -> bool:
    """Return whether a disk refused, which is no damage: no permission, no space, locked, failing."""
    if isinstance(error, sqlite3.Error):
        name = getattr(error, "sqlite_errorname", "")
        if not name:  # of Python's own: closed, wrong thread
            return isinstance(error, sqlite3.ProgrammingError)
        return not str(name).startswith(_DAMAGE) or str(name).startswith("SQLITE_ERROR_")
    return isinstance(error, OSError) and not isinstance(error, FileNotFoundError)


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5.0)
    # The ledger's checkpoint says that a commit is on the disk: it has to be.
    for pragma in ("synchronous = FULL", "cache_size = -1024", "mmap_size = 0", "journal_size_limit = 4194304"):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    return connection


def _check(connection: sqlite3.Connection) -> None:
    """Look at every page, 12 ms per 10,000 documents: SQLite else notices a damaged one when it gets there, or never."""
    found = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if found != "ok":
        raise errors.DerivedIndexError(record.NAME, str(found))


def _identity(path: Path) -> tuple[int, int]:
    found = os.stat(path)  # noqa: PTH116  # once per commit
    return found.st_dev, found.st_ino


def _before(cursor: sqlite3.Cursor, keys: Iterable[int]) -> dict[int, record.Before]:
    wanted = list(keys)
    found: dict[int, record.Before] = {}
    for start in range(0, len(wanted), MAX_KEYS):
        part = wanted[start : start + MAX_KEYS]
        rows = cursor.execute(
            "SELECT d.key, p.scope, p.is_short, d.is_owed FROM documents d JOIN partitions p ON p.id = d.partition "  # noqa: S608  # placeholders only
            f"WHERE d.key IN ({', '.join('?' * len(part))})",
            part,
        )
        found |= {
            int(key): record.Before(record.Name(scope, bool(is_short)), bool(is_owed))
            for key, scope, is_short, is_owed in rows
        }
    return found
