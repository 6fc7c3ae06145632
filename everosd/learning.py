"""The online path and the engine, opened with the other parts; what reads and follows is made once there is something to read."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from everosd import clock as clocks
from everosd import config, errors, strategies, types
from everosd.engine import engine as engines
from everosd.engine import follow, runs
from everosd.engine import settings as strategy_settings
from everosd.intake import message, online
from everosd.lifecycle import desk, usage
from everosd.log import layout, writer
from everosd.models import chat
from everosd.store import db, read

if TYPE_CHECKING:
    from everosd import faculties
    from everosd.cascade import apply, embed, project
    from everosd.index import contract
    from everosd.search import query


DRAIN_S = 2.0
"""How long a stop waits for runs of strategies."""
PATIENCE_S = 5.0
"""Nothing runs, nothing ends, and something failed: the rest waits for a model or a disk, and is done later."""
LOOK_S = 0.02
STIR_S = 0.5
"""How often an empty root that nobody asks anything of is looked at whether it still is empty."""
COMMIT_PAUSE_S = 0.25
"""Between two commits of the text index while messages come in: each takes 5 ms of CPU, and twenty sessions that are
flushed at once need one."""


class Learning:
    """What makes memories of messages. Lives on the event loop."""

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
        self._settings = settings
        self._places, self._pen, self._reader, self._search, self._embedding = places, pen, reader, search, embedding
        self._clock, self._cascade = time, cascade
        self._caught_up = functools.partial(_caught_up, cascade)
        self.chat = chat.Chat(settings.llm, time)
        self.engine = engines.Engine(
            strategy_settings.Watcher(settings.root, time),
            runs.Runs(database, time),
            time,
            zone=lambda: self._settings.memory.zone,
            caught_up=self._caught_up,
        )
        self._follower = follow.Follower(database, lambda: cascade.lsn, self.engine, time, pen)
        self.strategies = strategies.Later(self._make, is_empty=self._is_empty, zones=lambda: self.in_force().zones())
        reading = _Reading(self.strategies, self.chat)
        self.intake = online.Intake(
            places=places,
            pen=pen,
            database=database,
            reader=reader,
            extractor=reading,
            judge=reading,
            engine=self.engine,
            settings=self.in_force,
            time=time,
            caught_up=self._caught_up,
            cascade=cascade,
        )
        self.engine.on_drained = self.intake.on_drained
        cascade.gives_way = self._is_answering
        for projection in cascade.projections:
            if projection.is_prompt:
                projection.gives_way = functools.partial(_comes_soon, projection, self.intake, cascade)
        self.uses = usage.Uses(desk.Desk(reader, cascade, time), self.in_force)

    def _is_answering(self) -> bool:
        """Tell whether somebody waits for an extraction that takes the processor; while a model is asked there is time."""
        return self.chat.state.n_under_way == 0 and self.intake.is_extracting()

    def in_force(self) -> config.Config:
        """Return the settings of this moment."""
        return self._settings

    def change(self, settings: config.Config) -> None:
        """Go by other settings from now on."""
        self._settings = settings
        self.chat.use(settings.llm)

    async def run(self) -> None:
        """Run every loop until cancelled."""
        for one in self.strategies.events():
            self.engine.add(one)
        for timed in self.strategies.timed():
            self.engine.add_timed(timed)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.engine.run(), name="engine")
            tasks.create_task(self._follower.run(), name="engine-follow")
            tasks.create_task(self.intake.run(), name="intake")
            tasks.create_task(self.uses.run(), name="usage")
            tasks.create_task(self._make_soon(), name="faculties")

    async def _make_soon(self) -> None:
        """Have what reads and follows made once the root is not empty, before somebody has to wait for it."""
        while not (self._cascade.lsn or self.intake.is_used.is_set()):
            await clocks.wait(self.intake.is_used, STIR_S, self._clock)
        await self.intake.give_way()  # importing keeps Python's lock from whoever is being answered
        await self.strategies.get()

    async def _make(self) -> faculties.Faculties:
        """Make what reads and follows; the import takes half a second, in a thread."""
        imported = await asyncio.to_thread(_imported, counts_tokens=self.chat.is_set_up)
        parts: faculties.Parts = imported.Parts(
            settings=self.in_force,
            places=self._places,
            pen=self._pen,
            reader=self._reader,
            search=self._search,
            cascade=self._cascade,
            model=self.chat,
            embedding=self._embedding,
            segments=self.intake.segment,
            emit=self.engine.emit,
            owe=self._follower.owe,
            is_enabled=lambda name: self.engine.settings.of(name).enabled,
            wanted=self.engine.settings.of,
            look=self._cascade.mark,
            is_shown=functools.partial(_is_shown, self._cascade),
            give_way=self.intake.give_way,
            pause=self.intake.pause,
            caught_up=self._caught_up,
            unsaying=self.intake.unsaying,
            uses=self.uses,
            time=self._clock,
        )
        made: faculties.Faculties = imported.make(parts)
        self._follower.digest = imported.digest
        return made

    async def _is_empty(self) -> bool:
        """Tell whether the ledger, once it is in step with the disk, has nothing and never had."""
        await self._caught_up()
        return not self._cascade.lsn

    async def drain(self) -> None:
        """Begin nothing more and let runs of strategies that are under way end, for a moment; the next start does the rest."""
        self.intake.stop()
        await self.engine.stop(DRAIN_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                await self.uses.write_all()

    async def settled(self, timeout_s: float) -> None:
        """Wait until nothing is being extracted, nor anything that follows from it; not for what waits for a model or a disk.

        Raises:
            TimeoutError: something still was after `timeout_s`.
        """
        moved_s, seen = self._clock.monotonic_s(), (0, 0)
        async with asyncio.timeout(timeout_s):
            while self.intake.is_busy() or self.engine.is_firing:
                now_s, now = self._clock.monotonic_s(), (self.intake.n_left(), self._cascade.n_owed())
                is_running = self.chat.state.n_under_way > 0 or any(one.running for one in self.engine.status())
                # A model that is away is asked again and again: none of that is work that comes to an end.
                is_running = is_running and not self.chat.state.is_failing
                if now != seen or is_running or not self._has_failed():
                    moved_s, seen = now_s, now
                elif self.chat.state.is_away or now_s - moved_s > PATIENCE_S:
                    return
                await asyncio.sleep(LOOK_S)

    def _has_failed(self) -> bool:
        """Tell whether something that is left has failed: then it may be left for long."""
        return bool(self.intake.failed() or self.engine.put_off() or self.engine.dead())

    async def close(self) -> None:
        """Let go of the model and note a clean end; call after `run` was cancelled."""
        with contextlib.suppress(errors.StoreError):
            await self.intake.close()
        await self.chat.close()


class _Reading:
    """Reads segments, and says where a conversation ends, with what is made for it by then."""

    def __init__(self, later: strategies.Later, model: chat.Chat) -> None:
        self._later, self._model = later, model

    @property
    def is_set_up(self) -> bool:
        """Whether there is a model to ask."""
        return self._model.is_set_up

    async def end(self, messages: Sequence[message.Message]) -> int | None:
        """Return the judge's opinion."""
        return await (await self._later.get()).judge.end(messages)

    async def extract(self, segment: message.Segment) -> message.Extracted:
        """Return what the extractor reads."""
        return await (await self._later.get()).extractor.extract(segment)


def _imported(*, counts_tokens: bool) -> ModuleType:
    """Import what reads and follows, and what counts the tokens of a model, which takes NumPy."""
    if counts_tokens:
        with contextlib.suppress(ImportError, RuntimeError):  # NumPy is broken: who counts says so
            importlib.import_module("everosd.models.piece")
    return importlib.import_module("everosd.faculties")


def _is_shown(cascade: apply.Cascade, lsn: types.Lsn) -> bool:
    """Return whether every index that is open and well has followed the ledger as far as `lsn`."""
    states = [projection.status() for projection in cascade.projections if projection.is_open]
    return all(one.lsn >= lsn or one.state != "ok" for one in states)


def _comes_soon(projection: project.Projection[contract.Index], intake: online.Intake, cascade: apply.Cascade) -> bool:
    """Tell whether a commit has time: messages are being taken, the last commit was a moment ago, and no search waits."""
    return intake.is_asked() and projection.since_commit_s() < COMMIT_PAUSE_S and not cascade.is_awaited


async def _caught_up(cascade: apply.Cascade) -> None:
    """Wait until the ledger is in step with what was on disk at the start."""
    while cascade.phase() != "ready":  # noqa: ASYNC110  # decided by several parts, none of them alone
        await asyncio.sleep(0.02)
