"""One request to the application inside this process, and what came back."""

from __future__ import annotations

import asyncio
import urllib.parse
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import msgspec

App: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]
"""An ASGI application."""
LineSink: TypeAlias = Callable[[bytes], None]
"""Takes one line of a streamed answer."""

STREAM = "application/x-ndjson"


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """What came back."""

    status: int
    body: bytes
    """Of a streamed answer its last line."""


class Exchange:
    """One request, to be sent once."""

    def __init__(self, body: object = None, on_line: LineSink | None = None, *, token: str = "") -> None:
        """Keep the request's body, where lines of a streamed answer go, and what the guard wants to see."""
        payload = b"" if body is None else msgspec.json.encode(body)
        self._waiting = [{"type": "http.request", "body": payload, "more_body": False}]
        self._on_line = on_line
        self._token = token
        self._is_complete = asyncio.Event()
        self._status = 0
        self._is_stream = False
        self._rest = b""
        self._last = b""

    async def ask(self, app: App, method: str, path: str) -> Taken:
        """Send the request and return the answer."""
        await app(self._scope(method, path), self._receive, self._send)
        if self._is_stream and self._rest.strip():
            self._line(self._rest)
        return Taken(status=self._status, body=self._last if self._is_stream else self._rest)

    def _scope(self, method: str, path: str) -> Any:  # the protocol's own dictionary
        """Return the ASGI scope of a request from this machine."""
        bare, _, query = path.partition("?")
        headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
        if self._token:
            headers.append((b"authorization", f"Bearer {self._token}".encode()))
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": urllib.parse.unquote(bare),
            "raw_path": bare.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": headers,
            "client": ("127.0.0.1", 0),
            "server": ("127.0.0.1", 0),
        }

    async def _receive(self) -> Any:  # a message of the protocol
        """Hand the body over once; hang up when the answer is complete, as servers do."""
        if self._waiting:
            return self._waiting.pop()
        await self._is_complete.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:  # a message of the protocol
        """Take the answer, line by line where it is streamed."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._is_stream = any(STREAM.encode() in value for _, value in message["headers"])
        elif message["type"] == "http.response.body":
            self._rest += message["body"]
            if self._is_stream:
                *lines, self._rest = self._rest.split(b"\n")
                for line in filter(bytes.strip, lines):
                    self._line(line)
            if not message.get("more_body"):
                self._is_complete.set()

    def _line(self, line: bytes) -> None:
        """Keep the newest line and pass it on."""
        self._last = line
        if self._on_line is not None:
            self._on_line(line)
