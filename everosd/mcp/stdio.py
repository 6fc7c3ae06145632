"""Standard input and output: one client, one JSON-RPC message a line. Imports the SDK.

While this serves, file descriptor 1 leads to standard error: what anything else prints, a library or a process that is
started, cannot get between the messages.
"""

from __future__ import annotations

from typing import Any

from mcp.server import Server
from mcp.server.stdio import stdio_server


async def serve(server: Server[Any]) -> None:
    """Answer until standard input ends."""
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())
