"""The outermost layer: request ids, who may ask, how much they may send, and what is counted.

It stands around the whole application, so that unknown routes and refused requests have ids and are counted too.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import urllib.parse
import uuid
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import structlog

from everosd import clock as clocks
from everosd import config
from everosd.api import errors as wire
from everosd.api import metrics
from everosd.mcp import owner

Scope = Any
"""ASGI's own dictionaries: Litestar and uvicorn type them differently."""

Message = Any
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

DRAIN_BYTES = 64 * 1024 * 1024
"""How much of a body that is too large is read and thrown away: a client that is still writing when the connection
closes sees a reset instead of the 413."""

DRAIN_S = 5.0
"""How long that may take."""

LOCAL_NAMES = frozenset({"localhost", "localhost.localdomain"})
"""Names that cannot be made to point here by somebody else's DNS. Addresses cannot be rebound either."""

log = structlog.get_logger()


class Guard:
    """An ASGI application around another."""

    def __init__(
        self,
        app: App,
        *,
        counted: metrics.Metrics,
        clock: clocks.Clock,
        host: str,
        max_body_bytes: int,
        token: str,
        owners: Callable[[], Iterable[tuple[str, bytes]]] = tuple,
    ) -> None:
        """Stand around `app`; `host` is the configured address, which may be asked for by that name.

        `token` opens every route. `owners` gives, at each request, the users whose own token opens /mcp to their memory.
        """
        self._app = app
        self._metrics = counted
        self._clock = clock
        self._names = LOCAL_NAMES | {host.casefold()}
        self._max_body_bytes = max_body_bytes
        self._token = token.encode()
        self._owners = owners

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id
        began_s = self._clock.monotonic_s()
        status = 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id.encode())]
            await send(message)

        try:
            refused = self._refused(scope)
            if refused is None:
                await self._app(scope, receive, sending)
            else:
                if refused.status == wire.TOO_LARGE.status:
                    await _drain(receive)
                await self._refuse(scope, sending, refused)
        except Exception as error:  # noqa: BLE001  # the application answers for its errors: this broke in the answering
            scope["state"]["fault"] = error
            if not status:
                await self._refuse(scope, sending, wire.answer(error))
        finally:
            await _log_fault(scope)
            took_s = self._clock.monotonic_s() - began_s
            state = scope["state"]
            route, is_degraded = state.get("route", "other"), state.get("is_degraded", False)
            self._metrics.request(route, scope["method"], status, took_s, is_degraded=is_degraded)

    def _refused(self, scope: Scope) -> wire.Answer | None:
        """Return why this request is not even looked at, None when it is."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        if not self._is_local_name(headers.get(b"host", b"").decode("latin-1")):
            return wire.foreign("this Host is not served here", "Host")
        origin = headers.get(b"origin")
        if origin is not None and not self._is_own_origin(origin.decode("latin-1")):
            return wire.foreign("requests from other sites' pages are not answered", "Origin")
        if (unknown := self._unknown(scope, headers.get(b"authorization", b""))) is not None:
            return unknown
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self._max_body_bytes:
            return wire.TOO_LARGE
        return None

    def _is_local_name(self, host: str) -> bool:
        """Tell whether a Host header can only mean this machine's own service. HTTP/1.0 sends none."""
        if not host:
            return True
        name = _host_name(host)
        return name in self._names or _is_address(name)

    def _is_own_origin(self, origin: str) -> bool:
        """Tell whether a page of this daemon, or of this machine, asks; `null` is anybody."""
        try:
            parts = urllib.parse.urlsplit(origin)
        except ValueError:
            return False
        name = _host_name(parts.netloc)
        if parts.scheme not in {"http", "https"} or not name:
            return False
        return name in self._names or config.is_loopback(name)

    def _unknown(self, scope: Scope, authorization: bytes) -> wire.Answer | None:
        """Return why the token of a request does not open its route, None where it does; note whose it is, where a user's own."""
        scheme, _, given = authorization.partition(b" ")
        given = given.strip() if scheme.lower() == b"bearer" else b""
        if self._token and hmac.compare_digest(given, self._token):
            return None
        if scope["path"].rstrip("/") == owner.PATH and (known := tuple(self._owners())):
            for user_id, token in known:
                if hmac.compare_digest(given, token):
                    scope["state"][owner.STATE] = user_id
                    return None
            # Mistyped, or a variable of the client's that is not set: as if there were none it would reach another's memory.
            if authorization or self._token:
                return wire.nobodys(is_given=bool(authorization), has_common=bool(self._token))
        return wire.UNAUTHORIZED if self._token else None

    async def _refuse(self, scope: Scope, send: Send, answer: wire.Answer) -> None:
        log.info("request_refused", status=answer.status, code=answer.code, path=scope["path"])
        body = wire.encode(answer, request_id=scope["state"]["request_id"], path=scope["path"], now=self._clock.now())
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        if answer.status == wire.UNAUTHORIZED.status:
            headers.append((b"www-authenticate", b"Bearer"))
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})


async def _log_fault(scope: Scope) -> None:
    """Log the daemon's own fault in answering a request, once, whoever found it.

    In a thread: writing a traceback reads source files.
    """
    state = scope["state"]
    fault: BaseException | None = state.get("fault")
    if fault is not None:
        fields = {"request_id": state["request_id"], "path": scope["path"], "exc_info": fault}
        await asyncio.to_thread(log.error, "request_failed", **fields)


async def _drain(receive: Receive) -> None:
    """Read what the client is still sending, within bounds."""
    n_bytes = 0
    try:
        async with asyncio.timeout(DRAIN_S):
            while n_bytes < DRAIN_BYTES:
                message = await receive()
                n_bytes += len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    return
    except TimeoutError:
        return


def _host_name(host: str) -> str:
    """Return a Host without its port and brackets, lower case."""
    if host.startswith("["):
        return host[1:].partition("]")[0].casefold()
    return host.partition(":")[0].rstrip(".").casefold()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_forwarded(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Tell whether a proxy passed the request on, so that its peer address says nothing of who asks."""
    return any(name in {b"forwarded", b"x-forwarded-for", b"x-real-ip"} for name, _ in headers)
