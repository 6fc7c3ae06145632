"""Vectors of what people look for: asked for once, in time or not at all, and never while the model is known to be away."""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Coroutine
from typing import Any

import structlog

from everosd import clock, errors
from everosd.models import embed

log = structlog.get_logger(__name__)

KEPT = 1_024
"""Queries whose vectors are remembered."""
KEPT_BYTES = 8 << 20
"""Of vectors, whatever their number."""
FIRST_WAIT_S = 0.5
"""From a failure to the first look whether the model is back; twice as long each time after."""
LONGEST_WAIT_S = 30.0

_NOBODY, _NOT_SET_UP = "none", "no embedding model is set up"
_HINT = "name one as `model` under [embedding] in everos.toml, e.g. builtin"


class Queries:
    """Gives the vector of a query; belongs to the event loop.

    After a failure nobody waits for the model: calls fail at once. After an answer that did not come within somebody's
    patience, nobody with as little of it waits. A task of ours asks from time to time until the model is back.
    """

    def __init__(self, embedder: embed.Embedder | None, time: clock.Clock, timeout_s: float) -> None:
        """Ask `embedder`, which stays its maker's to close; None: there is no model."""
        self._embedder = embedder
        self._time = time
        self._timeout_s = timeout_s
        self._kept: collections.OrderedDict[bytes, embed.Vectors] = collections.OrderedDict()
        self._kept_bytes = 0
        self._asking: dict[bytes, asyncio.Task[embed.Vectors]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._failed: errors.LLMUnavailable | None = None
        self._open_until_s = 0.0
        self._late_s = 0.0
        """Patience that was too short; 0: none was."""
        self._recovering: asyncio.Task[None] | None = None
        self._trouble = ""
        self._generation = 0
        self.n_asked = 0
        """Times that the model was asked."""
        self.n_kept = 0
        """Times that it did not have to be."""

    @property
    def is_set_up(self) -> bool:
        """Whether there is a model at all."""
        return self._embedder is not None

    @property
    def state(self) -> str:
        """Return why there are no vectors for queries just now; empty: there are."""
        return self._trouble

    async def vector(self, text: str, *, patience_s: float | None = None) -> embed.Vectors:
        """Return `(dim,)` float32 of length 1, read-only.

        Waits for `patience_s` at most, which is for whoever has something else to give; None: for `timeout_s`. Equal
        queries share one call, and who leaves, leaves it to the others.

        Raises:
            LLMUnavailable: not now: the model is away, too slow, or there is none.
            LLMRejected: not this text.
            ConfigError: the endpoint gives another width than the settings ask for.
        """
        digest = embed.digest(text)
        if (known := self._kept.get(digest)) is not None:
            self._kept.move_to_end(digest)
            self.n_kept += 1
            return known
        embedder = self._embedder
        if embedder is None:
            raise errors.LLMUnavailable(_NOBODY, _NOT_SET_UP, hint=_HINT)
        if (failed := self._failed) is not None:
            wait_s = max(0.0, self._open_until_s - self._time.monotonic_s())
            raise errors.LLMUnavailable(failed.provider, failed.reason, retry_after_s=wait_s, hint=failed.hint)
        if patience_s is not None and patience_s <= self._late_s:
            raise _late(embedder, self._late_s)
        task = self._asking.get(digest)
        if task is None:
            task = self._asking[digest] = self._start(self._ask(embedder, text, digest), "query-vector")
        generation = self._generation
        wait_s = self._timeout_s if patience_s is None else patience_s
        if not await self._is_done(task, wait_s):
            late = _late(embedder, wait_s)
            if generation == self._generation:
                if patience_s is None:
                    self._fail(late, text)
                else:
                    self._be_late(wait_s, text)
            raise late
        if task.cancelled():
            raise errors.LLMUnavailable(embedder.name, "is no longer asked")  # replaced by another model, or closed
        return task.result()

    def replace(self, embedder: embed.Embedder | None, timeout_s: float | None = None) -> None:
        """Ask another model from now on; what was remembered, and what went wrong, is forgotten."""
        self._cancel()
        self.forget()
        self._embedder = embedder
        self._timeout_s = self._timeout_s if timeout_s is None else timeout_s
        self._failed, self._late_s, self._trouble, self._recovering = None, 0.0, "", None

    def forget(self) -> None:
        """Forget the vectors: the same model gives others from now on."""
        self._generation += 1
        self._asking.clear()
        self._kept.clear()
        self._kept_bytes = 0

    async def close(self) -> None:
        """End what is under way; whoever waits for it gets LLMUnavailable."""
        self._embedder = None
        self._cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _ask(self, embedder: embed.Embedder, text: str, digest: bytes) -> embed.Vectors:
        """Ask the model; the answer is remembered, whether or not somebody still waits for it."""
        generation = self._generation
        self.n_asked += 1
        try:
            vector = await embedder.query(text)
        except errors.LLMUnavailable as error:
            if generation == self._generation:
                self._fail(error, text)
            raise
        except errors.ConfigError as error:
            if generation == self._generation:
                self._trouble = str(error)
            raise
        finally:
            if generation == self._generation:
                self._asking.pop(digest, None)
        return self._keep(digest, vector, generation)

    def _keep(self, digest: bytes, vector: embed.Vectors, generation: int) -> embed.Vectors:
        vector.setflags(write=False)
        if generation != self._generation:
            return vector
        if self._failed is None and not self._late_s:
            self._trouble = ""
        old = self._kept.pop(digest, None)
        self._kept[digest] = vector
        self._kept_bytes += vector.nbytes - (0 if old is None else old.nbytes)
        while len(self._kept) > KEPT or self._kept_bytes > KEPT_BYTES:
            self._kept_bytes -= self._kept.popitem(last=False)[1].nbytes
        return vector

    def _fail(self, error: errors.LLMUnavailable, text: str) -> None:
        """Let nobody wait any more until the model is back."""
        self._failed = error
        self._look_whether_back(str(error), text)

    def _be_late(self, patience_s: float, text: str) -> None:
        """Let nobody with that little patience wait any more until the model is fast enough again."""
        self._late_s = max(self._late_s, patience_s)
        if self._embedder is not None and self._failed is None:
            self._look_whether_back(str(_late(self._embedder, self._late_s)), text)

    def _look_whether_back(self, trouble: str, text: str) -> None:
        self._trouble = trouble
        if self._embedder is not None and self._recovering is None:
            log.warning("query_vectors_unavailable", reason=trouble)
            self._recovering = self._start(self._recover(self._embedder, text), "query-vector-recovery")

    async def _recover(self, embedder: embed.Embedder, text: str) -> None:
        """Ask until there is an answer in time; it is the query that failed which is asked again."""
        generation, pause_s = self._generation, FIRST_WAIT_S
        digest = embed.digest(text)
        while True:
            said_s = 0.0 if self._failed is None else self._failed.retry_after_s or 0.0
            self._open_until_s = self._time.monotonic_s() + max(pause_s, said_s)
            await self._time.sleep(max(pause_s, said_s))
            pause_s = min(LONGEST_WAIT_S, pause_s * 2)
            limit_s = self._late_s or self._timeout_s
            self.n_asked += 1
            call: asyncio.Task[embed.Vectors] = self._start(embedder.query(text), "query-vector-call")
            try:
                is_in_time = await self._is_done(call, limit_s)
            finally:
                call.cancel()
            if not is_in_time:
                continue
            try:
                vector = call.result()
            except errors.LLMUnavailable as error:
                self._failed, self._trouble = error, str(error)
                continue
            except errors.EverosdError as error:  # it answers again, if only to say that this text or width will not do
                trouble = str(error) if isinstance(error, errors.ConfigError) else ""
            except Exception as error:  # noqa: BLE001  # whatever it is, nobody else would ask again
                said = {"provider": embedder.name, "exc_info": error}
                await asyncio.to_thread(log.error, "query_vector_failed", **said)
                continue
            else:
                trouble = ""
                self._keep(digest, vector, generation)
            self._failed, self._late_s, self._trouble, self._recovering = None, 0.0, trouble, None
            log.info("query_vectors_back", provider=embedder.name)
            return

    async def _is_done(self, task: asyncio.Task[embed.Vectors], seconds: float) -> bool:
        """Wait for a task, and for `seconds` at most; cancelling us does not cancel it."""
        if task.done():
            return True
        sleep = asyncio.ensure_future(self._time.sleep(seconds))
        try:
            await asyncio.wait({task, sleep}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleep.cancel()
        return task.done()

    def _start(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()  # whoever waited has it; that nobody did is no error
        if error is not None and not isinstance(error, errors.EverosdError):
            log.error("query_vector_failed", exc_info=error)

    def _cancel(self) -> None:
        for task in self._tasks:
            task.cancel()


def _late(embedder: embed.Embedder, seconds: float) -> errors.LLMUnavailable:
    return errors.LLMUnavailable(embedder.name, f"gave no vector within {seconds:g} s")
