"""Opens everything, starts everything, stops everything: the only place where the parts are wired together.

The daemon (`everosd.process`) and the commands that work on the files alone open the same parts in the same order.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime as dt
import errno
import importlib
import os
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec

import everosd
from everosd import clock as clocks
from everosd import config, errors, lock, logs

if TYPE_CHECKING:
    from everosd import learning, types
    from everosd.api import guard
    from everosd.cascade import apply, embed, project
    from everosd.index import contract, text, vector
    from everosd.log import layout
    from everosd.models import embed as models
    from everosd.models import queries as query_vectors
    from everosd.search import query
    from everosd.store import db, read
    from everosd.watch import fs

OK, UNEXPECTED, USAGE = 0, 1, 2
EXIT_CODES: tuple[tuple[type[errors.EverosdError], int], ...] = (
    (errors.ConfigError, 3),
    (errors.LockHeld, 4),
    (errors.PortTaken, 5),
    (errors.RootError, 6),
    (errors.SchemaTooNew, 9),
    (errors.StoreRefused, 8),
    (errors.StoreError, 7),
    (errors.DerivedIndexError, 7),
    (errors.IndexUnavailable, 8),
    (errors.WriteRefused, 8),
    (errors.RequestError, USAGE),
)
"""Exit code of an error: the first class that fits; any other error is `UNEXPECTED`. The unit file names those that must
not be tried again."""
DISK_FAILED = 8
DISK_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})

INDEX_FOLDER = ".index"
LEDGER = Path("sqlite", "system.db")
VECTORS = "vectors"
CACHE = Path(".cache", "embeddings.db")
PRIVATE = 0o077
"""What everosd makes is its user's alone."""

log = logs.logger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """The open parts over one root."""

    config: config.Config
    clock: clocks.Clock
    started_at: dt.datetime
    """Aware UTC."""
    database: db.Database
    reader: read.Reader
    text: project.Projection[text.TextIndex]
    meaning: Meaning | None
    """What makes and finds vectors; None where no model is wanted, or for a command that needs none."""
    watcher: fs.Watcher
    cascade: apply.Cascade
    search: query.Search
    learning: learning.Learning | None
    """What makes memories of messages; None for a command that needs none of it."""


def exit_code(error: BaseException) -> int:
    """Return the exit code for an error, from the one table."""
    for kind, code in EXIT_CODES:
        if isinstance(error, kind):
            return code
    is_disk = isinstance(error, OSError) and error.errno in DISK_ERRNOS
    return DISK_FAILED if is_disk else UNEXPECTED


class Meaning:
    """The model behind vector search: opened beside everything else, exchanged when its settings change."""

    def __init__(self, settings: config.Embedding, clock: clocks.Clock, embedding: embed.Embedding) -> None:
        """Wire the parts; the model is opened by `run`."""
        self._settings = settings
        self._clock = clock
        self._embedder: models.Embedder | None = None
        self._queries: query_vectors.Queries | None = None
        self.embedding = embedding
        self._changed = asyncio.Event()
        self._changed.set()

    def change(self, settings: config.Embedding) -> None:
        """Ask the model that these settings name, from the next turn on; the same settings change nothing."""
        if settings != self._settings:
            self._settings = settings
            self._changed.set()

    async def run(self, search: query.Search) -> None:
        """Keep the model of the settings in force open until cancelled; where it cannot be, search goes by keyword."""
        provider = await asyncio.to_thread(importlib.import_module, "everosd.models.provider")
        self._queries = provider.open_queries(self._settings, self._clock)
        queries = self._queries
        self.embedding.on_space, self.embedding.trouble = queries.forget, lambda: queries.state
        while True:
            await self._changed.wait()
            self._changed.clear()
            before, self._embedder = self._embedder, provider.open_embedder(self._settings, self._clock)
            self._queries.replace(self._embedder, self._settings.timeout_seconds)
            self.embedding.use(self._embedder, self._settings)
            search.query_timeout_s = self._settings.query_timeout_seconds
            search.queries = self._queries
            if before is not None:
                await before.close()

    def stop_asking(self) -> None:
        """Have searches under way, and those to come, do without a model: nobody is kept waiting for it by a stop."""
        if self._queries is not None:
            self._queries.replace(None)

    async def close(self) -> None:
        """Let go of the model; call after the cascade has taken the answers that were on their way."""
        if self._queries is not None:
            await self._queries.close()
        if self._embedder is not None:
            await self._embedder.close()


@contextlib.asynccontextmanager
async def open_node(
    settings: config.Config, clock: clocks.Clock, *, has_vectors: bool = False, learns: bool = False
) -> AsyncIterator[Node]:
    """Open the files alone, under the root's lock, with every loop running but no watcher and no port.

    Edits are noticed when asked for: `await node.cascade.reconcile(...)`, then `await node.cascade.settled(...)`.

    Raises:
        LockHeld: a daemon, or another command, has the root.
    """
    os.umask(PRIVATE)
    held = await asyncio.to_thread(lock.acquire, settings.root, started_at=clock.now().isoformat())
    with held:
        opened = open_parts(settings, clock, has_vectors=has_vectors, learns=learns)
        async with opened as node, loops(node, is_watching=False):
            yield node


@contextlib.asynccontextmanager
async def open_parts(
    settings: config.Config, clock: clocks.Clock, *, has_vectors: bool = False, learns: bool = False
) -> AsyncIterator[Node]:
    """Open the parts in the order in which they need each other, and close them in the opposite one.

    The vector index and the model open later, when the loops run: nothing waits for them.
    """
    # In a thread, because it takes longer than anything may hold the loop up; what stands below finds it done.
    await asyncio.to_thread(
        _import, ("cascade.apply", "index.text", "search.query", *(("learning",) if learns else ()))
    )
    from everosd.cascade import apply, embed, project
    from everosd.index import text
    from everosd.log import layout, writer
    from everosd.search import query
    from everosd.store import db, journal, read
    from everosd.watch import fs, settle

    root, zone = settings.root, settings.memory.zone
    places = layout.Layout(root, await asyncio.to_thread(layout.is_case_insensitive, root))
    await _take_over(settings, places, clock)
    async with contextlib.AsyncExitStack() as stack:
        database = await db.Database.open(root / INDEX_FOLDER / LEDGER, _sqlite(settings))
        stack.push_async_callback(database.close)
        reader = await read.Reader.open(database.path, _sqlite(settings))
        stack.push_async_callback(reader.close)
        record = journal.Journal(database, clock)
        await record.recover(root)  # before the writer's own recovery, which merges by what is on record
        pen = writer.Writer(places, record, clock, zone)
        stack.push_async_callback(pen.close)
        await pen.recover()
        words = project.Projection("text", root / INDEX_FOLDER / "text", text.open_or_set_aside, database, clock)
        projections = [cast("project.Projection[contract.Index]", words)]
        embedding: embed.Embedding | None = None
        meaning: Meaning | None = None
        if settings.embedding.provider == "none":
            await database.write(_forget_vectors)
        elif has_vectors:
            vectors = project.Projection(
                VECTORS, root / INDEX_FOLDER / VECTORS, _opener(settings), database, clock, is_prompt=False
            )
            embedding = embed.Embedding(vectors, reader, root / CACHE, clock)
            meaning = Meaning(settings.embedding, clock, embedding)
            stack.push_async_callback(meaning.close)
            projections.append(cast("project.Projection[contract.Index]", vectors))
        settler = settle.Settler(clock, settings.watch.settle_ms / 1000)
        cascade = apply.Cascade(
            root=root,
            timezone=zone,
            database=database,
            projections=projections,
            embedding=embedding,
            settler=settler,
            writer=pen,
            time=clock,
            scan_interval_s=settings.watch.scan_interval_s,
        )
        stack.push_async_callback(cascade.close)
        await words.open()
        finder = query.Search(reader, words, clock, vectors=embedding)
        stack.push_async_callback(asyncio.to_thread, finder.close)
        learner: learning.Learning | None = None
        if learns:
            from everosd import learning

            learner = learning.Learning(
                settings,
                places=places,
                pen=pen,
                database=database,
                reader=reader,
                search=finder,
                embedding=embedding,
                cascade=cascade,
                time=clock,
            )
            stack.push_async_callback(learner.close)
        yield Node(
            config=settings,
            clock=clock,
            started_at=clock.now(),
            database=database,
            reader=reader,
            text=words,
            meaning=meaning,
            watcher=fs.Watcher(
                root,
                settler,
                clock=clock,
                mode=settings.watch.mode,
                poll_interval_s=settings.watch.poll_interval_s,
            ),
            cascade=cascade,
            search=finder,
            learning=learner,
        )


def _import(names: Iterable[str]) -> None:
    for name in names:
        importlib.import_module(f"everosd.{name}")


def _opener(settings: config.Config) -> Callable[[Path], tuple[vector.VectorIndex, bool]]:
    """Return what opens the vector index, on the index's own thread; nothing waits for it."""

    def opened(folder: Path) -> tuple[vector.VectorIndex, bool]:
        from everosd.index import vector

        return vector.open_or_set_aside(folder, memory_bytes=settings.vectors.memory_mb << 20)

    return opened


def _forget_vectors(connection: sqlite3.Connection) -> None:
    """Let the ledger's events go, which an index that nobody feeds would keep for ever."""
    from everosd.store import checkpoint

    checkpoint.forget(connection, VECTORS)


async def _take_over(settings: config.Config, places: layout.Layout, clock: clocks.Clock) -> None:
    """Bring what only an EverOS index knows into the log, before our own ledger takes its place.

    The writer needs a ledger to number entries by; until ours is there a passing one does.
    """
    from everosd.cascade import everos

    if not await asyncio.to_thread(everos.is_everos, settings.root / INDEX_FOLDER):
        return
    from everosd.cascade import takeover
    from everosd.log import writer
    from everosd.store import db, journal

    with tempfile.TemporaryDirectory(prefix="everosd-") as folder:
        database = await db.Database.open(Path(folder, LEDGER.name), _sqlite(settings))
        pen = writer.Writer(places, journal.Journal(database, clock), clock, settings.memory.zone)
        try:
            await takeover.take_over(settings.root, pen)
        finally:
            await pen.close()
            await database.close()


def _sqlite(settings: config.Config) -> db.Settings:
    """Return the ledger's pragmas."""
    from everosd.store import db

    wanted = settings.sqlite
    return db.Settings(
        synchronous=wanted.synchronous,
        busy_timeout_ms=wanted.busy_timeout_ms,
        journal_size_limit_bytes=wanted.journal_size_limit_bytes,
        cache_size_kb=wanted.cache_size_kb,
    )


@contextlib.asynccontextmanager
async def loops(node: Node, *, is_watching: bool) -> AsyncIterator[None]:
    """Run the cascade and, for a daemon, the watcher while the block runs; a loop that fails ends the block.

    The watcher hears before the disk is compared, so that no change falls between the two.
    """
    from everosd.cascade import rebuild

    def written(path: types.RelPath) -> None:
        node.cascade.wrote(path)
        if not is_watching:
            node.cascade.mark((path,))

    node.cascade.writer.on_written = written
    try:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(node.cascade.run(), name="cascade")]
            if node.meaning is not None:
                running.append(tasks.create_task(node.meaning.run(node.search), name="meaning"))
            if node.learning is not None:
                node.learning.engine.keeps_time = is_watching  # a command runs nothing that it was not asked for
                running.append(tasks.create_task(node.learning.run(), name="learning"))
            if is_watching:
                await node.watcher.start()
                running.append(tasks.create_task(node.watcher.run(), name="watcher"))
            await node.cascade.start()
            running.append(tasks.create_task(rebuild.resume(node.cascade), name="rebuild"))
            yield
            if node.learning is not None:
                await node.learning.drain()
            for task in reversed(running):  # the watcher first: what it would still hear, the next start finds
                task.cancel()
    except BaseExceptionGroup as group:
        raise cause(group) from None


def cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the error of a group that says most: one of ours before any other."""
    leaves: list[BaseException] = []
    waiting: list[BaseException] = [group]
    while waiting:
        one = waiting.pop()
        if isinstance(one, BaseExceptionGroup):
            waiting.extend(reversed(one.exceptions))
        else:
            leaves.append(one)
    ours = [leaf for leaf in leaves if isinstance(leaf, errors.EverosdError)]
    return (ours or leaves)[0]


def application(
    node: Node,
    *,
    token: str = "",
    stop: Callable[[], None] | None = None,
    notices: Callable[[], tuple[str, ...]] = tuple,
) -> guard.App:
    """Return the ASGI application over a node.

    A command's own node has no `token` (none is asked for), cannot be stopped, and nothing watches for it.
    """
    from everosd.api import http, services

    wanted = msgspec.structs.replace(node.config.api, token=config.Secret(token))
    return http.create_app(
        services.Services(
            config=msgspec.structs.replace(node.config, api=wanted),
            clock=node.clock,
            search=node.search,
            reader=node.reader,
            cascade=node.cascade,
            version=everosd.__version__,
            started_at=node.started_at,
            stop=stop,
            watcher=None if stop is None else node.watcher,
            notices=notices,
            intake=None if node.learning is None else node.learning.intake,
            engine=None if node.learning is None else node.learning.engine,
            reflection=None if node.learning is None else node.learning.strategies.reflection,
            lifecycle=None if node.learning is None else node.learning.strategies.lifecycle,
            made_lifecycle=lambda: None if node.learning is None else node.learning.strategies.made_lifecycle(),
            usage=None if node.learning is None else node.learning.uses,
            model=None if node.learning is None else node.learning.chat,
            in_force=None if node.learning is None else node.learning.in_force,
        )
    )
