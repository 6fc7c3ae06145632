"""A clock that stands still until the test moves it: a week passes in a moment, and a night can be looked at by the minute."""

from __future__ import annotations

import asyncio
import datetime as dt
import heapq
from collections.abc import Awaitable, Callable

from everosd import clock


class StepClock(clock.SystemClock):
    """Moments and monotonic time that only the test moves."""

    def __init__(self, at: dt.datetime) -> None:
        """Show the aware moment `at`."""
        self._at = at
        self._s = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._n = 0

    def now(self) -> dt.datetime:
        """Return the moment shown."""
        return self._at

    def monotonic_s(self) -> float:
        """Return the seconds that have passed."""
        return self._s

    async def sleep(self, seconds: float) -> None:
        """Wait until the test has let `seconds` pass."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._n += 1
        heapq.heappush(self._sleepers, (self._s + seconds, self._n, done))
        await done

    def set(self, at: dt.datetime) -> None:
        """Show another moment, as a person or a suspended machine does; nobody is woken."""
        self._at = at

    async def pass_s(self, seconds: float, rest: Callable[[], Awaitable[None]]) -> None:
        """Let time pass, sleeper by sleeper; `rest` waits until whoever was woken has done what there is to do."""
        until_s = self._s + seconds
        await rest()
        while self._sleepers and self._sleepers[0][0] <= until_s:
            due_s, _, done = heapq.heappop(self._sleepers)
            if not done.done():
                self._to(due_s)
                done.set_result(None)
                await rest()
        self._to(until_s)

    def _to(self, s: float) -> None:
        self._at += dt.timedelta(seconds=s - self._s)
        self._s = s
