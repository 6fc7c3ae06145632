"""Waiting for the ledger to have what an event is about: it is on disk, or somebody has taken it out again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from everosd import clock, errors, types

T = TypeVar("T")

POLL_S = 0.02
GONE_S = 60.0
"""What the ledger has not heard of for so long, over all attempts, is not there any more."""


class Arrivals:
    """Looks for what events are about. Lives on the event loop."""

    def __init__(self, time: clock.Clock, patience_s: float) -> None:
        """Have one run wait for `patience_s` at most; others want to run as well."""
        self._clock, self._patience_s = time, patience_s
        self._missing: dict[tuple[types.Owner, str], float] = {}
        """Since when each has been looked for in vain."""

    async def find(
        self,
        owner: types.Owner,
        subject: str,
        look: Callable[[], Awaitable[T | None]],
        behind: Callable[[], errors.LLMUnavailable],
    ) -> T | None:
        """Return what `look` finds of a subject; None where it is gone.

        Raises:
            errors.LLMUnavailable: `behind`: it may still come, and the run is to be tried again.
        """
        began_s = self._clock.monotonic_s()
        while (found := await look()) is None:
            now_s = self._clock.monotonic_s()
            if now_s - self._missing.setdefault((owner, subject), began_s) > GONE_S:
                break
            if now_s - began_s > self._patience_s:
                raise behind()
            await self._clock.sleep(POLL_S)
        self._missing.pop((owner, subject), None)
        return found

    def forget(self, owner: types.Owner) -> None:
        """Let go of an owner whose memory is gone."""
        for key in [key for key in self._missing if key[0] == owner]:
            del self._missing[key]
