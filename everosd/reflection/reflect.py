"""Reflection: scattered Episodes of one topic become one narrative, owner by owner; what was done can be undone."""

from __future__ import annotations

import asyncio
import collections
import datetime as dt
from collections.abc import Awaitable, Callable, Coroutine

import structlog

from everosd import clock, config, errors, types
from everosd.engine import strategy
from everosd.log import file, writer
from everosd.narrative import source as texts
from everosd.reflection import commit, finish, lag, members, merges, planner, rehearsal, rollback, tally
from everosd.store import read, report, row

log = structlog.get_logger(__name__)

NAME = "reflect_episodes"


class Reflection:
    """The strategy `reflect_episodes`, and the undoing of what it did. Lives on the event loop."""

    def __init__(
        self,
        *,
        reader: read.Reader,
        pen: writer.Writer,
        behind: lag.Lag,
        merging: Callable[[], texts.Merging],
        settings: Callable[[], config.Reflection],
        facts: strategy.Run,
        wants_facts: Callable[[], bool],
        owe: Callable[[row.EntryRow], Awaitable[None]],
        zone: Callable[[], dt.tzinfo],
        settled: Callable[[], Awaitable[None]],
        give_way: Callable[[], Awaitable[None]],
        time: clock.Clock,
        step: file.Step = file.no_step,
    ) -> None:
        """Wire the parts.

        Args:
            reader: What the ledger knows.
            pen: Writes.
            behind: Waits for the ledger and the indexes.
            merging: What merges, by the settings of the moment.
            settings: Those of the moment.
            facts: Takes the facts of an Episode.
            wants_facts: Whether facts are taken at all.
            owe: Has the facts of an Episode taken later.
            zone: Of the days that a merge is told.
            settled: Returns once the ledger has what was on disk at the start.
            give_way: Waits while somebody is being answered.
            time: For moments and waiting.
            step: See `log.file`.
        """
        self._reader, self._lag, self._merging, self._settings, self._clock = reader, behind, merging, settings, time
        self._settled = settled
        self._locks: merges.Locks = collections.defaultdict(asyncio.Lock)
        self._plans = planner.Planner(reader, members.Members(reader, behind, zone, time))
        self._commit = commit.Commit(reader, pen, behind)
        self._finish = finish.Finish(
            reader=reader,
            pen=pen,
            behind=behind,
            facts=facts,
            wants_facts=wants_facts,
            owe=owe,
            time=time,
            step=step,
        )
        self._rollback = rollback.Rollback(reader, pen, behind, time, step)
        self._merges = merges.Merges(self._plans, self._commit, self._finish, self._locks, give_way)
        self._working: tuple[types.Owner, asyncio.Task[None]] | None = None

    async def run(self, fire: strategy.Fire) -> strategy.Done:
        """Finish what was begun, then consolidate what there is to be.

        A model that is not set up or away, and what it makes up, skip clusters; a fault at one owner does not stop the next.

        Raises:
            Exception: something that is on disk by halves could not be finished; it is tried again.
        """
        await self._settled()
        merging, limit = self._merging(), self._settings().clusters_per_run
        if fire.is_dry_run:
            in_turn = self._merges.in_turn
            return await rehearsal.Rehearsal(self._reader, self._plans, merging, in_turn, limit, self._clock).run(fire)
        await self._commit.caught_up()
        done = tally.Tally()
        halves = await self._finish_begun(done)
        for owner, clusters in planner.by_owner(await report.candidates(self._reader, self._now_us())):
            if fire.is_stopping():
                done.is_cut_short = True
            if done.is_cut_short:
                break
            wanted = [one for one in clusters if (owner, one.cluster_id) not in halves]
            await self._apart(owner, self._merges.run(wanted, limit, merging, fire, done))
        if done.has_written:
            await self._lag.until_shown()  # a search right after this finds what was made, not what it was made from
        if done.unfinished is not None:
            raise done.unfinished
        return strategy.Done(note=done.note(), detail=done.detail())

    async def recover(self) -> str:
        """Finish what an earlier process has begun, and say so; empty: it had begun nothing."""
        await self._settled()
        done = tally.Tally()
        await self._finish_begun(done)
        return done.note() if done.n_finished else ""

    async def forget(self, owner: types.Owner) -> None:
        """Let go of an owner whose memory is gone, and end what is under way for them."""
        if self._working is not None and self._working[0] == owner:
            task = self._working[1]
            task.cancel()
            await asyncio.wait([task])
        async with self._locks[owner]:
            await self._commit.forget(owner)
        self._locks.pop(owner, None)
        self._merges.forget(owner)

    async def rollback(self, wanted: report.Report) -> rollback.RolledBack:
        """Undo one consolidation.

        Raises:
            Conflict: it is undone already, or a later one builds on it, which the hint names.
            NotFound: there is no such consolidation.
            WriteRefused, StoreError: see `rollback.Rollback.run`.
        """
        await self._settled()
        async with self._locks[wanted.owner]:
            await self._commit.caught_up()
            for begun in await self._begun(lambda owner: owner == wanted.owner):
                await self._finish.run(begun, is_awaited=True)  # it may build on what is to be undone
            found = await report.of_narrative(self._reader, wanted.owner, wanted.merged_entry_id)
            if found is not None and found.report_id != wanted.report_id and await self._is_known(wanted):
                of = types.public_id(found.owner.id, found.merged_entry_id)
                message = f"several reports speak of {of}: {found.report_id} counts, not {wanted.report_id}"
                raise errors.Conflict(message, hint=f"roll back {found.report_id}")
            if found is None or found.report_id != wanted.report_id:
                message = f"there is no consolidation {wanted.report_id}"
                raise errors.NotFound(message)
            undone = await self._rollback.run(found)
        await self._lag.until_shown()
        return undone

    async def complete(self, is_meant: Callable[[types.Owner], bool]) -> None:
        """Finish the consolidations that were begun for those who are meant: until then there is no report of them.

        Raises:
            WriteRefused, StoreError: see `finish.Finish.run`.
        """
        await self._settled()
        await self._commit.caught_up()
        for narrative in await self._begun(is_meant):
            async with self._locks[narrative.owner]:
                await self._finish_one(narrative, is_awaited=True)

    async def _is_known(self, wanted: report.Report) -> bool:
        found = await report.find(self._reader, wanted.report_id, owner_id=wanted.owner.id)
        return any(one.owner == wanted.owner for one in found)

    async def _apart(self, owner: types.Owner, work: Coroutine[None, None, None]) -> None:
        """Do the work for one owner such that it can be ended without ending the run."""
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(work, name=f"{NAME}-{owner.id}")
            self._working = (owner, task)
        self._working = None

    async def _finish_begun(self, done: tally.Tally) -> set[tuple[types.Owner, str]]:
        """Finish rollbacks and consolidations; return the clusters of those that cannot be finished now."""
        halves: set[tuple[types.Owner, str]] = set()
        for undone in await report.unrestored(self._reader):
            try:
                async with self._locks[undone.owner]:
                    if any(one == undone for one in await report.unrestored(self._reader)):
                        await self._rollback.finish(undone)
            except Exception as error:  # noqa: BLE001  # the others go on
                halves.add((undone.owner, undone.cluster_id))
                done.left(undone.owner, undone.report_id, error)
            else:
                done.n_finished += 1
        for narrative in await self._begun():
            try:
                async with self._locks[narrative.owner]:
                    await self._finish_one(narrative)
            except Exception as error:  # noqa: BLE001  # the others go on
                halves.add((narrative.owner, narrative.parent_id))
                done.left(narrative.owner, narrative.entry_id, error)
            else:
                done.n_finished += 1
        return halves

    async def _begun(self, is_meant: Callable[[types.Owner], bool] = lambda _: True) -> list[row.EntryRow]:
        """Return the narratives whose consolidation is not completed, the oldest first."""
        rows = await self._reader.rows(await report.unfinished(self._reader, self._now_us()))
        return [one for one in rows if is_meant(one.owner)]

    async def _finish_one(self, narrative: row.EntryRow, *, is_awaited: bool = False) -> None:
        """Finish a consolidation unless somebody else, who held the lock before, has: it may even be undone by now."""
        if narrative.key in await report.unfinished(self._reader, self._now_us()):
            await self._finish.run(narrative, is_awaited=is_awaited)

    def _now_us(self) -> int:
        return clock.to_us(self._clock.now())
