"""A clock that shortens waits: what takes a second of grace in life takes some milliseconds in a test."""

from __future__ import annotations

import asyncio
import time

from everosd import clock


class FastClock(clock.SystemClock):
    """The machine's clock, its monotonic time `speed` times as fast; moments are the real ones."""

    def __init__(self, speed: float = 20.0) -> None:
        """Run `speed` times as fast: at 20, a second takes 50 ms."""
        self._speed = speed

    def monotonic_s(self) -> float:
        """Return sped-up seconds."""
        return time.monotonic() * self._speed

    async def sleep(self, seconds: float) -> None:
        """Sleep a fraction of `seconds`."""
        await asyncio.sleep(seconds / self._speed)
