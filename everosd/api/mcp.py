"""/mcp: the tools for agents, inside the daemon. Nothing of the SDK is imported before somebody asks."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import importlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import structlog

from everosd import config, errors
from everosd.api import exchange, services
from everosd.mcp import backend, owner

_ANY = msgspec.json.Decoder(dict[str, object])
LARGE = 256 * 1024
"""Bytes of an answer that are not decoded between two others."""
METHOD_NOT_ALLOWED = 405
NO_SDK = 503

log = structlog.get_logger()


class Inside:
    """A backend that asks the application it is part of."""

    def __init__(self, app: exchange.App, token: str) -> None:
        """Ask `app`, whose guard wants `token`; empty: none."""
        self._app = app
        self._token = token
        self._under_way: set[asyncio.Task[exchange.Taken]] = set()

    async def call(self, method: str, path: str, body: object = None, *, is_read: bool = False) -> backend.Reply:
        """Send one request; a call that is given up on is carried out to its end, as requests over HTTP are."""
        asked = exchange.Exchange(body, token=self._token).ask(self._app, method, path)
        task = asyncio.create_task(asked, name=f"mcp {method} {path.partition('?')[0]}")
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        try:
            taken = await asyncio.shield(task)
        except asyncio.CancelledError:
            if is_read:
                task.cancel()
            raise
        body_read = (
            await asyncio.to_thread(_ANY.decode, taken.body) if len(taken.body) > LARGE else _ANY.decode(taken.body)
        )
        return backend.Reply(status=taken.status, body=body_read)

    async def close(self) -> None:
        """Give up what is still under way."""
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)


class Endpoint:
    """The ASGI application at /mcp."""

    def __init__(self, given: services.Services) -> None:
        """Answer for the daemon of `given`; `routes` is set once the application is made."""
        self._given = given
        self._is_asked = asyncio.Event()
        self._is_there = asyncio.Event()
        self._app: exchange.App | None = None
        self.routes: exchange.App | None = None
        """The application whose routes the tools ask, guard included."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request. There is nothing to GET or DELETE: every POST stands for itself."""
        scope["state"]["route"] = "mcp"
        if scope["method"] != "POST":
            await _plain(send, METHOD_NOT_ALLOWED, "MCP is POSTed here; there are no sessions")
            return
        self._is_asked.set()
        await self._is_there.wait()
        if self._app is None:
            await _plain(send, NO_SDK, "MCP cannot be served here: the daemon's log says why")
            return
        await self._app(scope, receive, send)

    @contextlib.asynccontextmanager
    async def lifespan(self, _: object) -> AsyncIterator[None]:
        """Serve while the block runs; what is needed for it is imported when it is asked for first."""
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(self._run(), name="mcp")
            try:
                yield
            finally:
                running.cancel()

    async def _run(self) -> None:
        await self._is_asked.wait()
        try:
            http, server = await asyncio.to_thread(_sdk)
        except ImportError as error:
            self._is_there.set()
            await asyncio.to_thread(log.error, "mcp_unusable", reason=str(error), exc_info=error)
            return
        if self.routes is None:
            message = "the endpoint is no part of an application"
            raise errors.EverosdError(message)
        inside = Inside(self.routes, self._given.config.api.token.reveal())
        memory = server.Memory(inside, settings=self._settings, clock=self._given.clock, zone=self._zone)
        try:
            async with http.serving(memory.server(), max_body_bytes=self._given.config.api.max_body_bytes) as app:
                self._app = app
                self._is_there.set()
                log.info("mcp_serving", path=owner.PATH)
                await asyncio.Event().wait()
        finally:
            self._app = None
            await inside.close()

    def tokens(self) -> tuple[tuple[str, bytes], ...]:
        """Return the users that have a token of their own, with it."""
        return tuple((owner_id, one.token.reveal().encode()) for owner_id, one in self._in_force().owners if one.token)

    def _in_force(self) -> config.Config:
        return self._given.config if self._given.in_force is None else self._given.in_force()

    def _settings(self) -> config.Mcp:
        return self._in_force().mcp

    def _zone(self) -> dt.tzinfo:
        return self._given.config.memory.zone


def _sdk() -> tuple[Any, Any]:
    """Import what speaks MCP; takes about a second."""
    return importlib.import_module("everosd.mcp.http"), importlib.import_module("everosd.mcp.server")


async def _plain(send: Any, status: int, text: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(text)).encode())]
    if status == METHOD_NOT_ALLOWED:
        headers.append((b"allow", b"POST"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text.encode(), "more_body": False})
