"""Embedding: what the vector index owes is embedded, the newest first, beside everything else.

Keyword search never waits for any of this. A text is asked for once: its vector is in `.cache/` before anything else
happens to it, so that neither a crash nor a rebuild pays for it again. A provider that fails is asked again at growing
intervals; a text that alone fails is set apart, and the others go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import pathlib
import random
import sqlite3
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec
import structlog

from everosd import clock, config, errors, types
from everosd.cascade import project, setback, status, turn
from everosd.store import row

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from everosd.index import vector
    from everosd.models import embed

T = TypeVar("T")

log = structlog.get_logger(__name__)

ROUND = 400
"""Entries looked at in one turn: an edit made meanwhile is first in the next."""

RETRY_S = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0)
"""Waits between attempts while the provider fails; each is shortened at random by up to half, lest many ask at once."""

NEUTRAL = "The weather is fine today."
"""Asked for to tell a provider that fails from a text that makes it fail."""

MAX_BARREN = 3
"""Rounds without anything from the cache, after which it is taken to have nothing: it may have been deleted."""

DRAIN_S = 2.0
"""How long a stop waits for answers that are on their way and paid for."""

NO_VECTORS_RETRY_S = 2.0
"""When to ask again for vectors that could not be read."""

OPENING = "the vector index is being opened"

QUIET = 32
"""Entries without vectors that are not worth a word in an answer: the edits of the last second."""


class Rows(Protocol):
    """What embedding needs of the ledger."""

    async def rows(self, keys: Sequence[int]) -> list[row.EntryRow]:
        """Return the live entries with these keys, in the order asked for; keys that are gone are left out."""


class _ReplacedError(errors.EverosdError):
    """Another index, or another model, has taken the place of the one that was worked with."""

    def __init__(self) -> None:
        super().__init__("the vector index, or the model, was replaced")


class Embedding:
    """Brings the vectors of a projection up to date. Lives on the event loop."""

    def __init__(
        self,
        projection: project.Projection[vector.VectorIndex],
        reader: Rows,
        cache_path: pathlib.Path,
        time: clock.Clock,
    ) -> None:
        """Wire the parts; nothing is opened before `run`, nothing is asked of a model before `use`."""
        self.name = projection.name
        self._projection = projection
        projection.on_commit, projection.before_swap = self.wake, self.fill_from_cache
        self._reader = reader
        self._cache_path = cache_path
        self._clock = time
        self._settings: config.Embedding | None = None
        self._embedder: embed.Embedder | None = None
        self._started: embed.Embedder | None = None
        self._store = turn.Store()
        self._pace = turn.Pace(1)
        self._wake = asyncio.Event()
        self._turn: turn.Turn | None = None
        self._in_force: tuple[vector.VectorIndex, types.Space] | None = None
        self._setbacks = setback.Setbacks(time)
        self._n_outage = 0
        self._reason = ""
        self._failure: errors.LLMError | errors.ConfigError | None = None  # behind the reason, where it is one of these
        self._progressed_s = time.monotonic_s()
        self._owed_nothing = True
        self.on_space: Callable[[], None] = project.nothing
        """Called when vectors of another space are made from now on."""
        self.trouble: Callable[[], str] = _none
        """Asked why there are no vectors for queries just now; empty: there are."""
        self.n_requested = 0
        """Texts that the model was asked for since the start."""
        self.n_from_cache = 0
        """Texts whose vectors were there already."""

    # -- what searches see -----------------------------------------------------------------------------------------

    @property
    def index(self) -> vector.VectorIndex:
        """The index that answers now; ask anew for every search.

        Raises:
            LLMUnavailable: it is not known yet whether its vectors are of the model that makes those of queries.
            LLMRejected, ConfigError: nor will it be, with this model or these settings.
        """
        if self._in_force is None and self._projection.is_open:
            if self._failure is not None:
                raise self._failure.with_traceback(None)
            name = "the embedding model" if self._embedder is None else self._embedder.name
            raise errors.LLMUnavailable(name, self._reason or "has not answered yet", retry_after_s=1.0)
        return self._projection.index

    @property
    def is_wanted(self) -> bool:
        """Whether a model is to make vectors; also while it is not known which."""
        return self._embedder is not None or (self._settings is None and not self._reason)

    async def vectors(
        self, keys: Sequence[types.EntryKey]
    ) -> tuple[types.Space, dict[types.EntryKey, NDArray[np.float32]]]:
        """Return the space in force, and the vectors in it of those entries that have theirs: `(n_pieces, dim)`.

        Raises:
            LLMUnavailable: they cannot be told just now, or not with this model or these settings.
        """
        if not self._projection.is_open:
            raise self._no_vectors(OPENING)
        try:
            index = self.index
            assert self._in_force is not None  # noqa: S101  # else there was no index
            space = self._in_force[1]
            found = await asyncio.to_thread(index.vectors, keys, space)
        except errors.DerivedIndexError as error:
            self.suspect()
            raise self._no_vectors(error) from error
        except (errors.LLMRejected, errors.ConfigError, errors.IndexUnavailable) as error:
            raise self._no_vectors(error) from error
        if space != index.space:
            raise self._no_vectors(_ReplacedError())
        return space, found

    def _no_vectors(self, reason: object) -> errors.LLMUnavailable:
        name = "the embedding model" if self._embedder is None else self._embedder.name
        return errors.LLMUnavailable(name, str(reason), retry_after_s=NO_VECTORS_RETRY_S)

    def refuses(self, key: types.EntryKey) -> bool:
        """Return whether the model has refused the text of an entry more than once: it is not asked again soon."""
        return self._setbacks.refuses(key)

    def suspect(self) -> None:
        """Have the index looked at: a search in it failed."""
        self._projection.suspect()

    def lack(self) -> str:
        """Say what a search by vector may miss just now; empty: nothing."""
        if not self._projection.is_open:
            return OPENING
        if lack := self._projection.lack():
            return lack
        n = self.n_owed()
        if n and (self._reason or n > QUIET):
            total = self._projection.index.count()
            return f"vectors are being made: {max(0, total - n):,} of {total:,} entries have theirs"
        return ""

    # -- life ------------------------------------------------------------------------------------------------------

    def use(self, embedder: embed.Embedder | None, settings: config.Embedding) -> None:
        """Ask this model from now on; the one before is the caller's to close."""
        self._embedder, self._settings = embedder, settings
        self._setbacks.clear()
        self._n_outage, self._reason, self._failure, self._in_force = 0, "", None, None
        self._pace = turn.Pace(1 if embedder is None else embedder.batch_size)
        self._store.limit(settings.cache_max_mb << 20)
        self.wake()

    def wake(self) -> None:
        """Tell that the index may owe something, or that the model may answer again."""
        if self._owed_nothing:
            self._progressed_s = self._clock.monotonic_s()  # until now there was nothing to get on with
        self._owed_nothing = not self.n_owed()
        self._wake.set()

    async def run(self) -> None:
        """Embed what is owed until cancelled."""
        await self._open_cache()
        while True:
            self._wake.clear()
            embedder = self._embedder
            try:
                wait_s = await self._step() if self._projection.is_open else None
            except _ReplacedError:
                wait_s = 0  # the vectors that have come meanwhile are in the cache
            except (errors.EverosdError, OSError, ValueError, sqlite3.Error) as error:
                # That a model was closed while it was asked says nothing of the one that has taken its place.
                wait_s = await self._failed(error) if embedder is self._embedder else 0
            if wait_s != 0:
                await self._rest(wait_s)

    async def _rest(self, wait_s: float | None) -> None:
        """Wait, or until there is news; while the provider fails news is no reason to hammer it."""
        if self._n_outage and wait_s is not None:
            await self._clock.sleep(min(wait_s, RETRY_S[0]))
            wait_s = max(0.0, wait_s - RETRY_S[0])
        await clock.wait(self._wake, wait_s, self._clock)

    async def _failed(self, error: Exception) -> float:
        """Note why nothing moves and return how long to wait."""
        is_news = self._n_outage == 0 or str(error) != self._reason
        self._reason = str(error)
        self._failure = error if isinstance(error, errors.LLMError | errors.ConfigError) else None
        wait_s = RETRY_S[min(self._n_outage, len(RETRY_S) - 1)] * random.uniform(0.5, 1.0)  # noqa: S311  # no secret
        self._n_outage += 1
        if is_news:
            trace = None if isinstance(error, errors.EverosdError) else error
            said = {"reason": str(error), "owed": self.n_owed(), "exc_info": trace}
            await asyncio.to_thread(log.warning, "embedding_failed", **said)
        asked = error.retry_after_s if isinstance(error, errors.LLMUnavailable) else None
        return max(wait_s, asked or 0.0)

    async def close(self) -> None:
        """Keep the answers that are on their way, for a moment, then let go; call after `run` was cancelled."""
        if self._turn is not None:
            await self._turn.drain(DRAIN_S)
        await self._store.close()

    async def _open_cache(self) -> None:
        cache = await asyncio.to_thread(importlib.import_module, "everosd.models.cache")
        max_bytes = (1024 if self._settings is None else self._settings.cache_max_mb) << 20  # else `use` says it later
        self._store = turn.Store(cache.Cache(self._cache_path, max_bytes, self._clock))  # which opens nothing yet

    # -- the work --------------------------------------------------------------------------------------------------

    async def _step(self) -> float | None:
        """Embed some of what is owed, the newest first.

        Returns:
            Seconds until there may be more to do: 0 at once, None when told.
        """
        embedder, index = self._embedder, self._projection.index
        if embedder is None:
            return None
        await self._projection.give_way()
        if self._started is not embedder:
            await embedder.start()
            self._started = embedder
        space = await self._space(embedder, index)
        entries = await self._read(await self._owed(index))
        if not entries:
            self._n_outage, self._reason = 0, ""
            self._owed_nothing = not self.n_owed()
            return self._setbacks.next_due_s()
        now = self._turn = turn.Turn(space, entries, self._store, self._pace)
        await now.take_from_cache()
        self.n_from_cache += now.n_from_cache
        n_ready = await self._put(index, now)
        if not now.waiting:
            return 0
        if self._n_outage:
            await embedder.passages([NEUTRAL])
        n_from_cache = now.n_from_cache
        try:
            await now.ask(embedder, self._setbacks, lambda: self._put(index, now))
        finally:
            self.n_requested += now.n_requested
            self.n_from_cache += now.n_from_cache - n_from_cache
        await self._weigh(embedder, index, now)
        has_more = n_ready or now.n_answers or now.is_in_doubt or self._in_force != (index, space)
        return 0 if has_more else self._setbacks.next_due_s()

    async def _space(self, embedder: embed.Embedder, index: vector.VectorIndex) -> types.Space:
        """Return the space of the vectors to come, in force in the index from now on.

        The model is asked only where the index does not know: a restart costs no call.
        """
        if self._in_force is not None and self._in_force[0] is index:
            return self._in_force[1]
        known = index.space
        space = known if known is not None and embedder.expect(known) else await embedder.probe()
        await self._enter(embedder, index, space)
        return space

    async def _enter(self, embedder: embed.Embedder, index: vector.VectorIndex, space: types.Space) -> None:
        self._refuse_replaced(embedder)
        loop = asyncio.get_running_loop()
        index.on_owed = lambda: _wake_from_thread(loop, self.wake)
        n_owed = await self._in_index(index, lambda: index.use(space))
        self._refuse_replaced(embedder)  # or its successor's vectors would be filed under this model's name
        log.info("embedding_space", model=space.model, dim=space.dim, owed=n_owed)
        self._in_force = (index, space)
        self.on_space()

    def _refuse_replaced(self, embedder: embed.Embedder) -> None:
        """Go no further with a model that another one has taken the place of."""
        if embedder is not self._embedder:
            raise _ReplacedError

    async def _owed(self, index: vector.VectorIndex) -> list[vector.Owed]:
        """Return what to embed next, without what failed and has to wait."""
        found = await self._in_index(index, lambda: index.owed(ROUND + len(self._setbacks)))
        return [one for one in found if not self._setbacks.has_to_wait(one.key, one.digest)][:ROUND]

    async def _read(self, owed: Sequence[vector.Owed]) -> list[turn.Entry]:
        """Return the texts of entries; one that changed meanwhile comes again."""
        if not owed:
            return []  # cutting texts takes NumPy
        rows: dict[int, row.EntryRow] = {one.key: one for one in await self._reader.rows([one.key for one in owed])}
        assert self._settings is not None  # noqa: S101  # a model came with them
        return await asyncio.to_thread(turn.entries, owed, rows, self._settings.max_tokens)

    async def _put(self, index: vector.VectorIndex, now: turn.Turn) -> int:
        """Hand entries that are complete to the index."""
        done = now.complete()
        if not done:
            return 0
        await self._in_index(index, lambda: index.put(done, now.space))
        for entry in done:
            self._setbacks.forget(entry.key)
        self._progressed_s = self._clock.monotonic_s()
        return len(done)

    async def _weigh(self, embedder: embed.Embedder, index: vector.VectorIndex, now: turn.Turn) -> None:
        """Tell a provider that fails from texts that make it fail, and set those apart.

        Raises:
            LLMUnavailable: it is the provider.
        """
        self._refuse_replaced(embedder)  # it was closed: no text is at fault
        if now.n_answers == 0 and any(isinstance(one, errors.LLMUnavailable) for one in now.failures.values()):
            await embedder.passages([NEUTRAL])
        elif now.is_in_doubt or (now.n_answers == 0 and now.failures):
            space = await embedder.probe()
            self._refuse_replaced(embedder)
            self._pace.n_refusals, self._pace.is_careful = 0, now.is_in_doubt
            if space != now.space:
                await self._enter(embedder, index, space)  # it gives others than it did: none of the texts is at fault
                return
        else:
            self._pace.is_careful = False
        self._n_outage, self._reason = 0, ""
        for entry in now.waiting.values():
            if (error := now.failure_of(entry)) is not None:
                self._setbacks.add(entry, error)

    async def _in_index(self, index: vector.VectorIndex, job: Callable[[], T]) -> T:
        """Do something with an index on its own thread.

        Raises:
            _ReplacedError: it was replaced by another one: it is closed by now, or about to be.
        """

        def checked() -> T:
            if not self._projection.holds(index):
                raise _ReplacedError
            return job()

        return await self._projection.in_thread(checked)

    async def fill_from_cache(self, index: vector.VectorIndex) -> None:
        """Give an index that is about to take over the vectors that are there already; no model is asked."""
        if self._in_force is None:
            return
        space = self._in_force[1]
        await self._in_index(index, lambda: index.use(space))
        lacking: set[types.EntryKey] = set()
        n_barren = 0
        while n_barren < MAX_BARREN and (owed := await self._in_index(index, lambda: index.owed(ROUND, lacking))):
            entries = await self._read(owed)
            now = turn.Turn(space, entries, self._store, self._pace)
            await now.take_from_cache()
            n_barren = 0 if await self._put(index, now) else n_barren + 1
            lacking.update(now.waiting)
            lacking.update({one.key for one in owed} - {entry.key for entry in entries})

    async def settled(self, timeout_s: float) -> None:
        """Wait until everything in the ledger has its vectors, or until it is known that it won't.

        Raises:
            TimeoutError: neither, after `timeout_s`.
        """
        async with asyncio.timeout(timeout_s):
            while not (self._reason or self._is_idle()):  # noqa: ASYNC110  # three parts decide, none of them alone
                await asyncio.sleep(0.005)

    def _is_idle(self) -> bool:
        if self._settings is None:
            return False
        return self._embedder is None or (
            self._projection.is_open
            and self._projection.is_caught_up()
            and self._in_force is not None
            and not self.n_owed()
        )

    # -- what is said of it ----------------------------------------------------------------------------------------

    def n_owed(self) -> int:
        """Return how many entries lack vectors that can be made; none where no model is wanted."""
        is_wanted = self._embedder is not None or self._settings is None
        if not (is_wanted and self._projection.is_open):
            return 0
        return max(0, self._projection.index.n_owed() - self.n_refused())

    def n_refused(self) -> int:
        """Return how many entries the model refuses."""
        return self._setbacks.n_refused

    def problems(self) -> list[status.FileProblem]:
        """Return the entries whose text could not be embedded."""
        return self._setbacks.problems()

    def model_status(self) -> status.EmbeddingStatus | None:
        """Return which model makes the vectors, and how it does; None where none is wanted."""
        if self._embedder is None and self._settings is not None:
            return None
        space = None if self._in_force is None else self._in_force[1]
        return status.EmbeddingStatus(
            model="" if self._embedder is None else self._embedder.name,
            dim=0 if space is None else space.dim,
            owed=self.n_owed(),
            refused=self.n_refused(),
            requested=self.n_requested,
            from_cache=self.n_from_cache,
            error=self._reason or self.trouble(),
        )

    def status(self) -> status.ProjectionStatus:
        """Return how far the vectors are: those of the index, with what it owes; cheap."""
        now = self._projection.status()
        if not self._projection.is_open:
            return now
        n, total, reason = self.n_owed(), self._projection.index.count(), self._reason or self.trouble()
        return msgspec.structs.replace(
            now,
            behind=now.behind + n,
            age_s=max(now.age_s, self._clock.monotonic_s() - self._progressed_s if n else 0.0),
            state=now.state if now.state != "ok" else "failing" if reason else "embedding" if n else "ok",
            progress=now.progress or ((max(0, total - n), total) if n else None),
            error=now.error or reason,
        )


def _none() -> str:
    """Know of no trouble."""
    return ""


def _wake_from_thread(loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed: nothing more will be embedded
        loop.call_soon_threadsafe(wake)
