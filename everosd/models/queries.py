"""Vectors of what people look for: asked for once, in time or not at all, and never while the model is known to be away."""

from __future__ import annotations

import asyncio
import collections
import contextlib
from collections.abc import Coroutine
from typing import Any

import structlog

from everosd import clock, errors
from everosd.models import embed, piece

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

    After a failure, or an answer that took longer than `timeout_s`, nobody waits for the model any more: calls fail at
    once, and a task of ours asks from time to time until it answers in time again.
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

        Waits for `patience_s` at most; None: for `timeout_s`. Equal queries share one call, and who is cancelled leaves
        it to the others.

        Raises:
            LLMUnavailable: not now: the model is away, too slow, or there is none.
            LLMRejected: not this text.
            ConfigError: the endpoint gives another width than the settings ask for.
        """
        digest = piece.digest(text)
        if (known := self._kept.get(digest)) is not None:
            self._kept.move_to_end(digest)
            self.n_kept += 1
            return known
        embedder = self._embedder
        if embedder is None:
            raise errors.LLMUnavailable(_NOBODY, _NOT_SET_UP, hint=_HINT)
        task = self._asking.get(digest)
        if (failed := self._failed) is not None and (task is None or patience_s is None):
            wait_s = max(0.0, self._open_until_s - self._time.monotonic_s())
            raise errors.LLMUnavailable(failed.provider, failed.reason, retry_after_s=wait_s, hint=failed.hint)
        if task is None:
            task = self._asking[digest] = self._start(self._ask(embedder, text, digest), "query-vector")
        generation = self._generation
        wait_s = self._timeout_s if patience_s is None else patience_s
        if not await self._is_done(task, wait_s):
            late = errors.LLMUnavailable(embedder.name, f"gave no vector within {wait_s:g} s")
            if wait_s >= self._timeout_s:  # the call has taken at least as long: the next one need not find out itself
                self._fail(late, text, digest, generation)
            raise late
        if task.cancelled():
            raise errors.LLMUnavailable(embedder.name, "was replaced by another model")
        return task.result()

    def replace(self, embedder: embed.Embedder | None, timeout_s: float | None = None) -> None:
        """Ask another model from now on; what was remembered, and what went wrong, is forgotten."""
        self._cancel()
        self.forget()
        self._embedder = embedder
        self._timeout_s = self._timeout_s if timeout_s is None else timeout_s
        self._failed, self._trouble = None, ""

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
        """Ask the model; a late answer is remembered too, though nobody who comes meanwhile waits for it."""
        generation = self._generation
        self.n_asked += 1
        call: asyncio.Task[embed.Vectors] = self._start(embedder.query(text), "query-vector-call")
        try:
            if not await self._is_done(call, self._timeout_s):
                late = errors.LLMUnavailable(embedder.name, f"gave no vector within {self._timeout_s:g} s")
                self._fail(late, text, digest, generation)
                await asyncio.wait({call})
            try:
                vector = call.result()
            except errors.LLMUnavailable as error:
                self._fail(error, text, digest, generation)
                raise
            except errors.ConfigError as error:
                if generation == self._generation:
                    self._trouble = str(error)
                raise
        finally:
            call.cancel()
            if generation == self._generation:
                self._asking.pop(digest, None)
        return self._keep(digest, vector, generation)

    def _keep(self, digest: bytes, vector: embed.Vectors, generation: int) -> embed.Vectors:
        vector.setflags(write=False)
        if generation != self._generation:
            return vector
        if self._failed is None:
            self._trouble = ""
        old = self._kept.pop(digest, None)
        self._kept[digest] = vector
        self._kept_bytes += vector.nbytes - (0 if old is None else old.nbytes)
        while len(self._kept) > KEPT or self._kept_bytes > KEPT_BYTES:
            self._kept_bytes -= self._kept.popitem(last=False)[1].nbytes
        return vector

    def _fail(self, error: errors.LLMUnavailable, text: str, digest: bytes, generation: int) -> None:
        """Let nobody wait any more, and look from time to time whether the model is back."""
        if generation != self._generation or self._embedder is None:
            return
        self._trouble = str(error)
        is_new, self._failed = self._failed is None, error
        if is_new:
            log.warning("query_vectors_unavailable", reason=str(error))
            self._start(self._recover(self._embedder, text, digest), "query-vector-recovery")

    async def _recover(self, embedder: embed.Embedder, text: str, digest: bytes) -> None:
        """Ask until there is an answer in time; it is the query that failed which is asked again."""
        generation, wait_s = self._generation, FIRST_WAIT_S
        while True:
            said_s = self._failed.retry_after_s if self._failed is not None else None
            pause_s = max(wait_s, said_s or 0.0)
            self._open_until_s = self._time.monotonic_s() + pause_s
            await self._time.sleep(pause_s)
            wait_s = min(LONGEST_WAIT_S, wait_s * 2)
            self.n_asked += 1
            call: asyncio.Task[embed.Vectors] = self._start(embedder.query(text), "query-vector-call")
            try:
                is_in_time = await self._is_done(call, self._timeout_s)
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
                self._failed, self._trouble = None, str(error) if isinstance(error, errors.ConfigError) else ""
            else:
                self._failed = None
                self._keep(digest, vector, generation)
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
        with contextlib.suppress(asyncio.CancelledError):
            task.exception()  # whoever waited has it; that nobody did is no error

    def _cancel(self) -> None:
        for task in self._tasks:
            task.cancel()
