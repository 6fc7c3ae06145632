"""Modules that a handler takes and a start has no time for: imported when first asked for, and beside the loop.

An import on the loop would wait for a thread that is importing any of the same just then, as the daemon does after a start.
"""

from __future__ import annotations

import asyncio
import importlib


class Later:
    """Some modules of everosd."""

    def __init__(self, *names: str) -> None:
        """Name them, below `everosd`."""
        self._names = names
        self._is_loaded = False

    async def load(self) -> None:
        """Import them, once; whoever imports them afterwards waits for nothing."""
        if not self._is_loaded:
            for name in self._names:
                await asyncio.to_thread(importlib.import_module, f"everosd.{name}")
            self._is_loaded = True
