"""The engine's tables: what fires each strategy. What it then does is made once the root holds anything, or somebody needs it."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from everosd import types
from everosd.engine import strategy

if TYPE_CHECKING:
    from everosd import faculties
    from everosd.lifecycle import scheduled
    from everosd.reflection import reflect


class Fired(NamedTuple):
    """What fires one strategy."""

    name: str
    topics: tuple[strategy.Topic, ...]
    is_per_owner: bool = False


EVENTS = (
    Fired("extract_atomic_facts", ("episode_written", "episode_edited")),
    Fired("trigger_profile_clustering", ("episode_written",)),
    Fired("extract_user_profile", ("episode_clustered",), is_per_owner=True),
    Fired("extract_agent_case", ("segment_done",)),
    Fired("trigger_skill_clustering", ("case_written",)),
    Fired("extract_agent_skill", ("case_clustered",)),
)
"""In the order in which one follows from the other."""
REFLECTION, LIFECYCLE = "reflect_episodes", "run_lifecycle"
"""Those that the clock fires."""


class TimedWork(Protocol):
    """What the clock fires."""

    async def run(self, fire: strategy.Fire) -> strategy.Done:
        """Do the work."""

    async def recover(self) -> str:
        """Finish what an earlier process began and say what; empty: nothing was left."""

    async def forget(self, owner: types.Owner) -> None:
        """Let go of an owner whose memory is gone."""


class Later:
    """What strategies do, made once somebody needs it. Lives on the event loop."""

    def __init__(
        self,
        make: Callable[[], Awaitable[faculties.Faculties]],
        *,
        is_empty: Callable[[], Awaitable[bool]],
        zones: Callable[[], tuple[dt.tzinfo, ...]],
    ) -> None:
        """Have `make` make it.

        Args:
            make: Called once.
            is_empty: Tells whether the root holds nothing at all, once that is known.
            zones: Gives those of all owners.
        """
        self._make, self._is_empty, self._zones = make, is_empty, zones
        self._making = asyncio.Lock()
        self.made: faculties.Faculties | None = None
        """None: nobody has needed it yet."""

    async def get(self) -> faculties.Faculties:
        """Return it; the first call makes it."""
        async with self._making:
            if self.made is None:
                self.made = await self._make()
            return self.made

    async def reflection(self) -> reflect.Reflection:
        """Return what consolidates clusters."""
        return (await self.get()).reflection

    async def lifecycle(self) -> scheduled.Scheduled:
        """Return what makes passes over typed memories."""
        return (await self.get()).lifecycle

    def made_lifecycle(self) -> scheduled.Scheduled | None:
        """Return the same if it is made."""
        return None if self.made is None else self.made.lifecycle

    def events(self) -> tuple[strategy.Strategy, ...]:
        """Return the engine's table of what events fire."""
        return tuple(
            strategy.Strategy(
                name=one.name,
                topics=one.topics,
                run=self._run(one.name),
                forget=self._forget(one.name),
                is_per_owner=one.is_per_owner,
            )
            for one in EVENTS
        )

    def timed(self) -> tuple[strategy.Timed, ...]:
        """Return the engine's table of what the clock fires."""
        return (
            self._of_clock(REFLECTION, self.reflection),
            msgspec.structs.replace(self._of_clock(LIFECYCLE, self.lifecycle), zones=self._zones),
        )

    def _run(self, name: str) -> strategy.Run:
        async def run(event: strategy.Event) -> str:
            return await (await self.get()).strategies[name].run(event)

        return run

    def _forget(self, name: str) -> Callable[[types.Owner], None]:
        def forget(owner: types.Owner) -> None:
            if self.made is not None:  # else it remembers nothing of anybody
                self.made.strategies[name].forget(owner)

        return forget

    def _of_clock(self, name: str, get: Callable[[], Awaitable[TimedWork]]) -> strategy.Timed:
        async def run(fire: strategy.Fire) -> strategy.Done:
            return await (await get()).run(fire)

        async def recover() -> str:
            return "" if await self._is_empty() else await (await get()).recover()

        async def forget(owner: types.Owner) -> None:
            if self.made is not None:
                await (await get()).forget(owner)

        return strategy.Timed(name=name, run=run, recover=recover, forget=forget)
