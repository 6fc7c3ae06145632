"""What makes memories of messages: the model, the online path, the engine and its strategies, opened together."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from everosd import clock as clocks
from everosd import config, errors
from everosd.cascade import embed
from everosd.engine import engine as engines
from everosd.engine import follow, runs, strategy
from everosd.engine import settings as strategy_settings
from everosd.intake import case, cluster, message, online, opinion, verbatim
from everosd.log import layout, writer
from everosd.models import chat, prompt
from everosd.search import query
from everosd.store import db, read

if TYPE_CHECKING:
    from everosd.cascade import apply

PROMPTS = Path(__file__).parent / "intake" / "prompts"


class _Verbatim:
    def __init__(self, settings: Callable[[], config.Config]) -> None:
        self._settings = settings

    async def extract(self, segment: message.Segment) -> message.Extracted:
        return verbatim.extract(segment, self._settings().memory.zone)


class Learning:
    """The online path with everything behind it. Lives on the event loop."""

    def __init__(
        self,
        settings: config.Config,
        *,
        places: layout.Layout,
        pen: writer.Writer,
        database: db.Database,
        reader: read.Reader,
        search: query.Search,
        embedding: embed.Embedding | None,
        cascade: apply.Cascade,
        time: clocks.Clock,
    ) -> None:
        """Wire the parts; nothing runs before `run`."""
        caught_up = functools.partial(_caught_up, cascade)
        self._settings = settings
        self.chat = chat.Chat(settings.llm, time)
        self.engine = engines.Engine(strategy_settings.Watcher(settings.root, time), runs.Runs(database, time), time)
        self._follower = follow.Follower(database, lambda: cascade.lsn, self.engine, time)
        self.intake = online.Intake(
            places=places,
            pen=pen,
            database=database,
            reader=reader,
            extractor=_Verbatim(lambda: self._settings),
            judge=opinion.Opinion(self.chat, self._prompt, lambda: self._settings.memory.zone),
            engine=self.engine,
            settings=self.in_force,
            time=time,
            caught_up=caught_up,
        )
        self.engine.on_drained = self.intake.on_drained
        self._add_strategies(pen, reader, embedding, caught_up, time)

    def _add_strategies(
        self,
        pen: writer.Writer,
        reader: read.Reader,
        embedding: embed.Embedding | None,
        caught_up: Callable[[], Awaitable[None]],
        time: clocks.Clock,
    ) -> None:
        """Fill the engine's table: what follows from Episodes and segments, in the order in which it does."""
        clustering = cluster.Clustering(
            reader, pen, embedding, lambda: self._settings.clustering, self.engine.emit, time
        )
        cases = case.Cases(
            segments=self.intake.segment,
            reader=reader,
            pen=pen,
            model=self.chat,
            prompts=self._prompt,
            mode=lambda: self._settings.memorize,
            zone=lambda: self._settings.memory.zone,
            emit=self.engine.emit,
            settled=caught_up,
        )
        table: tuple[tuple[str, tuple[strategy.Topic, ...], strategy.Run], ...] = (
            ("trigger_profile_clustering", ("episode_written",), clustering.run),
            ("extract_agent_case", ("segment_done",), cases.run),
            ("trigger_skill_clustering", ("case_written",), clustering.run),
        )
        for name, topics, run in table:
            self.engine.add(strategy.Strategy(name=name, topics=topics, run=run))

    def in_force(self) -> config.Config:
        """Return the settings of this moment."""
        return self._settings

    def change(self, settings: config.Config) -> None:
        """Go by other settings from now on."""
        self._settings = settings
        self.chat.use(settings.llm)

    async def run(self) -> None:
        """Run every loop until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.engine.run(), name="engine")
            tasks.create_task(self._follower.run(), name="engine-follow")
            tasks.create_task(self.intake.run(), name="intake")

    async def settled(self, timeout_s: float) -> None:
        """Wait until nothing is being extracted, nor anything that follows from it.

        Raises:
            TimeoutError: something still was after `timeout_s`.
        """
        await self.intake.settled(timeout_s)

    async def close(self) -> None:
        """Let go of the model and note a clean end; call after `run` was cancelled."""
        with contextlib.suppress(errors.StoreError):
            await self.intake.close()
        await self.chat.close()

    def _prompt(self, name: str) -> prompt.Prompt:
        """Return a prompt: the user's own where there is a usable one."""
        theirs = self._settings.llm.prompts
        folder = Path(theirs).expanduser() if theirs else self._settings.root / "prompts"
        return prompt.load(name, (folder, PROMPTS))


async def _caught_up(cascade: apply.Cascade) -> None:
    """Wait until the ledger is in step with what was on disk at the start."""
    while cascade.phase() != "ready":  # noqa: ASYNC110  # decided by several parts, none of them alone
        await asyncio.sleep(0.02)
