"""Work on the whole root, asked for by the command line: answered to this machine only, with progress as it goes."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec
import structlog
from litestar import response

from everosd import config, errors, types
from everosd.api import errors as wire
from everosd.api import guard, health, reply, schema, scope, services
from everosd.api import request as requests
from everosd.cascade import rebuild
from everosd.log import layout

if TYPE_CHECKING:
    from everosd.intake import copied, forget

NDJSON = "application/x-ndjson"
PROGRESS_S = 0.2
"""Shortest time between two progress lines."""
KEEPALIVE_S = 5.0
"""A line is sent after this long even where nothing got on, so that a client can tell slow from dead."""

Work = Callable[[rebuild.Progress], Awaitable[msgspec.Struct]]

log = structlog.get_logger()


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One progress line."""

    stage: str
    """What is under way: `files`, or the name of an index."""
    done: int
    total: int
    """0 while nobody knows yet."""


class Rebuilt(msgspec.Struct, frozen=True, kw_only=True):
    """What there is after a rebuild."""

    files: int
    entries: int


class Reconciled(msgspec.Struct, frozen=True, kw_only=True):
    """What there is after a comparison with the disk."""

    is_settled: bool
    """False: not everything was searchable when the time was over."""
    files: int
    entries: int
    pending: int


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The last line of work that succeeded."""

    result: msgspec.Struct


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """The last line of work that did not."""

    error: schema.FailureBody


Last = Result | Failure


class Admin:
    """Handlers of the admin routes. One piece of work runs at a time, and goes on when who asked for it leaves."""

    def __init__(self, given: services.Services) -> None:
        """Answer from `given`."""
        self._given = given
        self._running: tuple[str, asyncio.Task[Last]] | None = None

    async def status(self, request: reply.Request) -> reply.Response:
        """Answer GET admin/status: what the cascade says of itself, and what is wrong with what learns."""
        reply.called(request, "admin/status")
        _require_local(request)
        now = self._given.status()
        said = (*health.notices(self._given), *now.notices)
        return reply.success(request, msgspec.structs.replace(now, notices=said))

    async def rebuild(self, request: reply.Request) -> response.Stream:
        """Answer POST admin/rebuild: read all Markdown again, make every index anew; accepts what the disk shows."""
        await self._body(request, "rebuild", requests.REBUILD)

        async def work(progress: rebuild.Progress) -> Rebuilt:
            await rebuild.rebuild(self._given.cascade, progress)
            now = self._given.cascade.status()
            return Rebuilt(files=now.files_indexed, entries=now.entries)

        return self._stream("rebuild", work)

    async def verify(self, request: reply.Request) -> response.Stream:
        """Answer POST admin/verify: compare every index with what the Markdown says."""
        await self._body(request, "verify", requests.VERIFY)

        async def work(progress: rebuild.Progress) -> msgspec.Struct:
            done: msgspec.Struct = await (await _module("cascade.verify")).verify(self._given.cascade, progress)
            return done

        return self._stream("verify", work)

    async def adopt(self, request: reply.Request) -> response.Stream:
        """Answer POST admin/adopt: give hand-written entries their markers."""
        asked = await self._body(request, "adopt", requests.ADOPT)
        path = None if asked.path is None else _memory_file(asked.path)

        async def work(progress: rebuild.Progress) -> msgspec.Struct:
            del progress
            return await self._given.cascade.adopt(path)

        return self._stream("adopt", work)

    async def reconcile(self, request: reply.Request) -> response.Stream:
        """Answer POST admin/reconcile: compare with the disk now and wait until all of it is searchable."""
        asked = await self._body(request, "reconcile", requests.RECONCILE)

        async def work(progress: rebuild.Progress) -> Reconciled:
            cascade = self._given.cascade
            progress("files", 0, 0)
            with cascade.accepting_deletions() if asked.accept_deletions else contextlib.nullcontext():
                await cascade.reconcile(asked.reason)
                is_settled = await self._is_settled(asked.timeout_s)
            now = cascade.status()
            return Reconciled(is_settled=is_settled, files=now.files_indexed, entries=now.entries, pending=now.pending)

        return self._stream("reconcile", work)

    async def forget(self, request: reply.Request) -> response.Stream:
        """Answer POST admin/forget: remove everything of an owner."""
        asked = await self._body(request, "forget", requests.FORGET)
        owner = scope.named_owner(asked)
        if owner is None:
            message = "give user_id or agent_id"
            raise errors.RequestError(message, field="user_id")
        if types.nfc(asked.confirm) != owner.id:
            message = f"is not {owner.id}: to confirm, repeat the id"
            raise errors.RequestError(message, field="confirm")
        given, module = self._given, await _module("intake.forget")
        forgetting: forget.Forget
        if given.intake is not None and given.engine is not None:
            forgetting = given.intake.forgetting(given.engine)
        else:
            forgetting = module.Forget(given.cascade, given.clock)
        await forgetting.require(owner)

        async def work(progress: rebuild.Progress) -> msgspec.Struct:
            return await forgetting.forget(owner, progress)

        return self._stream("forget", work)

    async def extract(self, request: reply.Request) -> response.Stream:
        """Answer POST admin/extract: make what follows from Episodes and cases that were copied in as files."""
        asked = await self._body(request, "extract", requests.EXTRACT)
        owner, paths = scope.named_owner(asked), tuple(map(_memory_file, asked.paths))
        given = self._given
        if given.intake is None or given.engine is None:
            message = "no engine runs here: start the daemon with `everosd serve`"
            raise errors.CapabilityMissing(message)
        module = await _module("intake.copied")
        made: copied.Copied = module.Copied(given.cascade, given.engine, given.intake, given.clock, given.model)
        wanted: copied.Wanted = module.Wanted(owner=owner, paths=paths)

        async def work(progress: rebuild.Progress) -> msgspec.Struct:
            return await made.extract(wanted, progress)

        return self._stream("extract", work)

    async def stop(self) -> None:
        """Cancel what runs and wait until it has ended; the work itself can be taken up again."""
        if self._running is not None:
            _, task = self._running
            task.cancel()
            await asyncio.wait({task})

    async def _is_settled(self, timeout_s: float) -> bool:
        """Wait until everything noticed is searchable; tell whether it is."""
        try:
            await self._given.cascade.settled(timeout_s)
        except TimeoutError:
            return False
        return True

    async def _body(
        self, request: reply.Request, route: str, decoder: msgspec.json.Decoder[requests.DecodedT]
    ) -> requests.DecodedT:
        """Return the body of an admin request, `{}` where there is none."""
        reply.called(request, f"admin/{route}")
        _require_local(request)
        return requests.decode(decoder, await reply.body(request) or b"{}")

    def _stream(self, name: str, work: Work) -> response.Stream:
        """Start the work and return its progress as a stream.

        Raises:
            errors.Conflict: Something else runs.
        """
        if self._running is not None and not self._running[1].done():
            message = f"{self._running[0]} is running; wait until it has ended"
            raise errors.Conflict(message)
        steps = _Steps()
        task = asyncio.get_running_loop().create_task(_run(name, work, steps), name=f"admin {name}")
        self._running = (name, task)
        return response.Stream(_lines(task, steps), media_type=NDJSON)


class _Steps:
    """The newest progress of some work, and a bell."""

    def __init__(self) -> None:
        self.newest: Step | None = None
        self.bell = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Take a step; from any thread."""
        self._loop.call_soon_threadsafe(self._set, Step(stage=stage, done=done, total=total))

    def _set(self, step: Step) -> None:
        self.newest = step
        self.bell.set()


async def _run(name: str, work: Work, steps: _Steps) -> Last:
    """Do the work; what fails is logged here, because who asked may have left."""
    try:
        return Result(result=await work(steps))
    except Exception as error:  # noqa: BLE001  # nobody else would hear of it
        answer = wire.answer(error)
        if answer.is_fault:
            await asyncio.to_thread(log.error, "admin_work_failed", work=name, exc_info=error)
        return Failure(error=schema.FailureBody(code=answer.code, message=answer.message, hint=wire.hint(error)))
    finally:
        steps.bell.set()


async def _lines(task: asyncio.Task[Last], steps: _Steps) -> AsyncIterator[bytes]:
    """Yield progress lines, the newest only, then the last line."""
    shown: Step | None = None
    while not task.done():
        try:
            async with asyncio.timeout(KEEPALIVE_S):
                await steps.bell.wait()
        except TimeoutError:
            shown = None
        steps.bell.clear()
        if not task.done() and steps.newest is not None and steps.newest != shown:
            shown = steps.newest
            yield schema.ENCODER.encode(shown) + b"\n"
            await asyncio.wait({task}, timeout=PROGRESS_S)
    try:
        last = await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.cancelled():
            raise
        body = schema.FailureBody(code="CONFLICT", message="the daemon is stopping", hint="ask again when it is back")
        last = Failure(error=body)
    yield schema.ENCODER.encode(last) + b"\n"


async def _module(name: str) -> Any:  # a module
    """Return a module that a start, and a command that only reads, has no need of."""
    return await asyncio.to_thread(importlib.import_module, f"everosd.{name}")


def _memory_file(path: str) -> types.RelPath:
    """Return a path as the log names it.

    Raises:
        errors.RequestError: No memory is read there.
    """
    relative = types.RelPath(path)
    if layout.place(relative) is None:
        message = f"no memory is read at {path}"
        raise errors.RequestError(message, field="path")
    return relative


def _require_local(request: reply.Request) -> None:
    """Refuse what does not come from this machine.

    Raises:
        wire.Forbidden: It comes from another machine, or through a proxy that may speak for one.
    """
    client = request.scope["client"]
    is_local = client is None or config.is_loopback(client[0])
    if not is_local or guard.is_forwarded(request.scope["headers"]):
        message = "admin routes answer to this machine only"
        raise wire.Forbidden(message)
