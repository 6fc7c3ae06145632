"""Streamable HTTP: each POST stands for itself, so that a daemon that was started anew answers the same clients.

Imports the SDK. Who may ask is the guard's to say, which stands around the whole application.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

from mcp.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

App: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]
"""An ASGI application."""


@contextlib.asynccontextmanager
async def serving(server: Server[Any], *, max_body_bytes: int) -> AsyncIterator[App]:
    """Give the ASGI application of a server while the block runs; calls under way end with it."""
    manager = StreamableHTTPSessionManager(
        app=server,
        stateless=True,  # a session would be 404 after a restart, and clients do not begin another by themselves
        json_response=False,  # progress comes as events before the answer
        security_settings=None,  # Host, Origin and token are looked at before anything gets here
        max_request_body_size=max_body_bytes,
    )
    async with manager.run():
        yield manager.handle_request
