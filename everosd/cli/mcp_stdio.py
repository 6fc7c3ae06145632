"""One agent on standard input and output, for as long as its client keeps them open."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import importlib
from pathlib import Path
from typing import Any

from everosd import clock, config, errors, logs
from everosd.cli import attach

log = logs.logger(__name__)


class Settings:
    """The settings of this connection, read again for each call; those that cannot be read leave the last good ones."""

    def __init__(self, root: Path) -> None:
        """Read them.

        Raises:
            ConfigError: they cannot be read, and there are none before.
        """
        self._root = root
        self._last = config.load(root)

    def now(self) -> config.Config:
        """Return what is in force."""
        with contextlib.suppress(errors.ConfigError):
            self._last = config.load(self._root)
        return self._last

    def mcp(self) -> config.Mcp:
        """Return whose memory this connection is about."""
        return self.now().mcp

    def zone(self) -> dt.tzinfo:
        """Return the zone of moments that name none."""
        return self._last.memory.zone


def run(root: Path) -> None:
    """Speak MCP until standard input ends. Standard output has JSON-RPC and nothing else; the log goes to standard error.

    Raises:
        RootError: there is no such root.
        ConfigError: the settings cannot be read.
    """
    if not root.is_dir():
        missing = errors.RootError(str(root), "no such folder")
        missing.hint = "make it with: everosd init"
        raise missing
    settings = Settings(root)
    logs.set_up(settings.now().log)
    asyncio.run(_serve(root, settings))


async def _serve(root: Path, settings: Settings) -> None:
    asked = attach.Attached(root)
    try:
        async with asyncio.TaskGroup() as tasks:
            beginning = tasks.create_task(asked.begin(), name="attach")  # the daemon starts while the SDK is imported
            # Takes about a second.
            server: Any = await asyncio.to_thread(importlib.import_module, "everosd.mcp.server")
            memory = server.Memory(asked, settings=settings.mcp, clock=clock.SystemClock(), zone=settings.zone)
            await server.serve_stdio(memory.server())
            beginning.cancel()
    finally:
        asked.close()
