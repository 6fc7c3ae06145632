"""The SQLite file of the ledger: opened, migrated, written by one thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import pathlib
import sqlite3
import threading
import urllib.parse
from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec
import structlog

from everosd import errors
from everosd.store import migrate

T = TypeVar("T")
_Identity = tuple[int, int] | None
"""Device and inode."""

log = structlog.get_logger(__name__)

_DAMAGE = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_IOERR_SHORT_READ")
"""SQLite's names for: malformed, no database, shorter than it says."""

FAILURES = (sqlite3.Error, UnicodeDecodeError)
"""What a statement raises: SQLite's words over a damaged schema may hold bytes of anything, which Python cannot read."""

_CHECKPOINT_ATTEMPTS = 5
"""Each waits for readers as long as a statement does for a lock."""

KEPT_ASIDE = 2
"""Newest damaged ledgers that are kept for a look, beside the first one."""

MMAP_BYTES = 0
"""Memory-mapped reads are off: a vanished mount would kill the process with SIGBUS instead of raising an error."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How SQLite is driven; names and defaults are those of the `[sqlite]` section."""

    synchronous: str = "NORMAL"
    """`OFF`, `NORMAL` or `FULL`. In WAL mode NORMAL survives a killed process; a power cut may lose the last
    transactions, which the next start reads from the Markdown again."""
    temp_store: str = "MEMORY"
    busy_timeout_ms: int = 5000
    journal_size_limit_bytes: int = 67_108_864
    cache_size_kb: int = 2048


class Database:
    """The ledger's writer: jobs run one after the other in a thread of their own, each in a transaction."""

    def __init__(
        self,
        path: pathlib.Path,
        connection: sqlite3.Connection,
        executor: concurrent.futures.Executor,
        files: Mapping[pathlib.Path, _Identity],
    ) -> None:
        """Take over an open connection that belongs to `executor`'s only thread; use `Database.open`."""
        self.path = path
        self._connection = connection
        self._executor = executor
        self._files = files
        self._looking = threading.Lock()
        self._look: sqlite3.Connection | None = None
        self._is_closed = False

    def is_sound(self) -> bool:
        """Tell whether to go on with what is open; False: its files were deleted or replaced, or found damaged.

        A file that cannot be looked at is no deleted one. Blocking, a few microseconds.
        """
        try:
            return not _suspect(self.path).exists() and all(
                found is None or _identity(each) == found for each, found in self._files.items()
            )
        except OSError:
            return True

    @classmethod
    async def open(cls, path: pathlib.Path, settings: Settings | None = None) -> Database:
        """Open or make the ledger at `path` and bring its schema up to date; a damaged one is set aside first.

        Raises:
            errors.SchemaTooNew: a newer everosd made it.
            errors.StoreError: it cannot be opened: no permission, no space, locked by another program.

        """
        executor = concurrent.futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix="ledger-writer")
        loop = asyncio.get_running_loop()
        try:
            connection = await loop.run_in_executor(executor, _open, path, settings or Settings())
            files = await loop.run_in_executor(executor, _files, path)
        except BaseException:
            executor.shutdown(wait=False)
            raise
        return cls(path, connection, executor, files)

    async def write(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """Run `job` in one transaction on the writer thread and return its result.

        Committed when it returns, rolled back when it raises.

        Raises:
            errors.StoreError: SQLite could not write (disk full, read-only, locked by another program).

        """
        return await asyncio.get_running_loop().run_in_executor(self._executor, self._transact, job)

    def write_now(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """Do the same from another thread, which waits. Blocking: never on the event loop."""
        return self._executor.submit(self._transact, job).result()

    def look(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """Run a query that is short in the caller's own thread, on what is committed. Blocks for microseconds; any thread.

        Raises:
            errors.StoreError: SQLite could not read, or the ledger is closed.

        """
        with self._looking:
            if self._is_closed:  # a connection opened now would be closed by nobody
                message = f"{self.path}: closed"
                raise errors.StoreError(message)
            try:
                if self._look is None:
                    self._look = sqlite3.connect(
                        read_only(self.path), uri=True, isolation_level=None, check_same_thread=False
                    )
                return job(self._look)
            except FAILURES as error:
                raise store_error(self.path, error) from error

    def _transact(self, job: Callable[[sqlite3.Connection], T]) -> T:
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            try:
                result = job(connection)
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")
        except FAILURES as error:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            said = store_error(self.path, error)
            raise said from error
        return result

    async def compact(self, last: Callable[[sqlite3.Connection], object] | None = None) -> None:
        """Write the file anew, and empty the write-ahead log: nothing that was deleted is left in either.

        `last` is done when that is so, and only then; nothing of the little that it deletes is left afterwards either.

        Raises:
            errors.StoreError: the disk is full, or a reader does not let go of what it sees; nothing is lost.

        """
        await asyncio.get_running_loop().run_in_executor(self._executor, self._compact, last)

    def _compact(self, last: Callable[[sqlite3.Connection], object] | None) -> None:
        try:
            self._connection.execute("VACUUM")
            self._empty_log()
            if last is not None:
                before = self._connection.execute("PRAGMA secure_delete").fetchone()[0]
                self._connection.execute("PRAGMA secure_delete = ON")
                try:
                    self._transact(last)
                finally:
                    self._connection.execute(f"PRAGMA secure_delete = {before}")
                self._empty_log()
        except FAILURES as error:
            raise store_error(self.path, error) from error

    def _empty_log(self) -> None:
        for _ in range(_CHECKPOINT_ATTEMPTS):
            if not self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
                return
        message = f"{self.path}: its write-ahead log could not be emptied, somebody reads it all the time"
        raise errors.StoreError(message)

    async def close(self) -> None:
        """Checkpoint the WAL and close; waits for jobs that were handed in before."""
        with self._looking:
            self._is_closed = True
            if self._look is not None:
                self._look.close()
                self._look = None
        await asyncio.get_running_loop().run_in_executor(self._executor, self._close)
        self._executor.shutdown(wait=False)

    def _close(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._connection.close()


class DamagedStoreError(errors.StoreError):
    """The file is not a usable database: it can be set aside and read again from the Markdown."""


def _suspect(path: pathlib.Path) -> pathlib.Path:
    """Return the file whose being there says that the ledger was found damaged while it was in use."""
    return path.with_name(f"{path.name}.suspect")


def _side(path: pathlib.Path, suffix: str) -> pathlib.Path:
    """Return one of the files that SQLite keeps beside a database in use."""
    return path.with_name(path.name + suffix)


def _files(path: pathlib.Path) -> dict[pathlib.Path, _Identity]:
    return {each: _identity(each) for each in (path, _side(path, "-wal"), _side(path, "-shm"))}


def _identity(path: pathlib.Path) -> _Identity:
    """Return what a file is known by; None where there is none."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def _open(path: pathlib.Path, settings: Settings) -> sqlite3.Connection:
    if _suspect(path).exists():
        log.error("ledger_set_aside", path=str(set_aside(path)))
    try:
        return connect(path, settings)
    except DamagedStoreError as error:
        log.error("ledger_set_aside", path=str(set_aside(path)), reason=str(error))  # noqa: TRY400  # handled here
        return connect(path, settings)


def connect(path: pathlib.Path, settings: Settings) -> sqlite3.Connection:
    """Open `path` for writing with the ledger's pragmas, and migrate it. Blocking."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not path.exists():
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=256)
    except (OSError, *FAILURES) as error:
        raise store_error(path, error) from error
    try:
        for pragma in pragmas(settings):
            connection.execute(pragma)
        migrate.migrate(connection)
    except FAILURES as error:
        connection.close()
        raise store_error(path, error) from error
    except BaseException:
        connection.close()
        raise
    return connection


def pragmas(settings: Settings) -> tuple[str, ...]:
    """Return the statements that every connection to the ledger starts with."""
    return (
        "PRAGMA journal_mode = WAL",
        f"PRAGMA synchronous = {settings.synchronous}",
        f"PRAGMA temp_store = {settings.temp_store}",
        f"PRAGMA busy_timeout = {settings.busy_timeout_ms}",
        f"PRAGMA journal_size_limit = {settings.journal_size_limit_bytes}",
        f"PRAGMA cache_size = -{settings.cache_size_kb}",
        f"PRAGMA mmap_size = {MMAP_BYTES}",
    )


def store_error(path: pathlib.Path, error: Exception) -> errors.StoreError:
    """Say in words what SQLite or the system said of `path`, and what to do about it; remember a damaged one."""
    text = str(error).lower()
    is_illegible = isinstance(error, UnicodeDecodeError) or "could not decode" in text
    if is_illegible or getattr(error, "sqlite_errorname", "").startswith(_DAMAGE):
        damaged = DamagedStoreError(f"{path}: damaged ({error})")
        damaged.hint = "it is set aside and read again from the Markdown"
        with contextlib.suppress(OSError):
            _suspect(path).touch()
        return damaged
    if isinstance(error, NotADirectoryError | FileExistsError | IsADirectoryError):
        blocked = errors.StoreError(f"{path}: {error}")
        blocked.hint = f"a file stands where the folder {path.parent} belongs: move it away"
        return blocked
    if "full" in text or "no space" in text:
        full = errors.StoreRefused(f"{path}: no space left on the disk")
        full.hint = "free some space: everosd goes on by itself, and nothing that is on disk as Markdown is lost"
        return full
    if "readonly" in text or "read-only" in text or "permission" in text or "unable to open" in text:
        closed = errors.StoreRefused(f"{path}: cannot be written ({error})")
        closed.hint = f"make {path.parent} writable for the user that runs everosd"
        return closed
    if "locked" in text:
        locked = errors.StoreError(f"{path}: locked by another program")
        locked.hint = "close the program that holds a transaction on it (a sqlite3 shell?)"
        return locked
    return errors.StoreError(f"{path}: {error}")


def read_only(path: pathlib.Path) -> str:
    """Return the URI under which SQLite opens a database without ever writing to it."""
    return f"file:{urllib.parse.quote(os.fsencode(path))}?mode=ro"


def set_aside(path: pathlib.Path) -> pathlib.Path:
    """Rename a damaged ledger with its WAL out of the way and return where it went; the first and the newest are kept. Blocking."""
    names = [each.name.rpartition("-")[2] for each in path.parent.glob(f"{path.name}.damaged-*")]
    numbers = sorted(int(name) for name in names if name.isdigit())
    target = path.with_name(f"{path.name}.damaged-{numbers[-1] + 1 if numbers else 1}")
    for suffix in ("-wal", "-shm", ""):
        side = _side(path, suffix)
        if side.exists():
            side.rename(_side(target, suffix))
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        _suspect(path).unlink()
    # The first one stays for good: it may be a database of EverOS that was too damaged to be known as one.
    for number in numbers[1 : max(1, len(numbers) + 1 - KEPT_ASIDE)]:
        for suffix in ("-wal", "-shm", ""):
            _side(path.with_name(f"{path.name}.damaged-{number}"), suffix).unlink(missing_ok=True)
    return target
