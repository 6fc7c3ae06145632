"""One cluster consolidated: planned, merged, committed and finished, batch by batch, until nothing is left to be merged."""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Awaitable, Callable, Iterable

import structlog

from everosd import errors, types
from everosd.engine import strategy
from everosd.narrative import source as texts
from everosd.reflection import commit, finish, members, planner, tally
from everosd.store import report

log = structlog.get_logger(__name__)

N_PLANS = 3
"""How often a cluster is planned while a person keeps editing it, before it is left for the next run."""
NO_MODEL = "no model is set up"

Locks = collections.defaultdict[types.Owner, asyncio.Lock]


class Merges:
    """Consolidates clusters. Lives on the event loop."""

    def __init__(
        self,
        plans: planner.Planner,
        commits: commit.Commit,
        finishes: finish.Finish,
        locks: Locks,
        give_way: Callable[[], Awaitable[None]],
    ) -> None:
        """Wire the parts; a lock of `locks` is held while anything is written for its owner."""
        self._plans, self._commit, self._finish, self._locks, self._give_way = plans, commits, finishes, locks, give_way
        self._declined: set[tuple[types.Owner, str]] = set()
        """Clusters of which no narrative came out the last time: the others go first."""

    def forget(self, owner: types.Owner) -> None:
        """Let go of an owner whose memory is gone."""
        self._declined = {one for one in self._declined if one[0] != owner}

    def in_turn(self, clusters: Iterable[report.Candidate]) -> list[report.Candidate]:
        """Return clusters in the order in which they are merged, of some that are largest first."""
        return sorted(clusters, key=lambda one: (one.owner, one.cluster_id) in self._declined)

    async def run(
        self,
        clusters: list[report.Candidate],
        limit: int,
        merging: texts.Merging,
        fire: strategy.Fire,
        done: tally.Tally,
    ) -> None:
        """Consolidate at most `limit` clusters of one owner; what goes wrong with one does not stop the next."""
        n_left = limit
        for one in self.in_turn(clusters):
            done.is_cut_short = done.is_cut_short or (n_left > 0 and fire.is_stopping())
            if not n_left or done.is_cut_short:
                return
            try:
                n_left -= await self._cluster(one, merging, fire, done)
            except Exception as error:  # noqa: BLE001  # the others go on
                done.failed(one.owner, one.cluster_id, error)

    async def _cluster(
        self, one: report.Candidate, merging: texts.Merging, fire: strategy.Fire, done: tally.Tally
    ) -> bool:
        """Merge what there is to be merged in a cluster; return whether there was anything."""
        at, n_merged = (one.owner, one.cluster_id), 0
        try:
            if reason := done.patience.away if merging.is_set_up else NO_MODEL:
                if is_open := await self._plans.is_open(one):
                    await self._skip(one, reason, done, is_away=True)
                else:
                    done.undone(one)
                return is_open
            while not done.is_cut_short and await self._merge(one, merging, done):
                n_merged += 1
                self._declined.discard(at)
                done.is_cut_short = fire.is_stopping()
        except errors.LLMUnavailable as error:
            done.patience.without_answer(error)
            await self._skip(one, str(error), done, is_away=True)
        except errors.LLMRejected as error:
            done.patience.answered()
            self._declined.add(at)
            await self._skip(
                one, error.reason, done, check=error.check.said() if isinstance(error, texts.Refused) else ""
            )
        except errors.WriteRefused as error:
            if tally.is_of_disk(error):
                raise
            await self._skip(one, str(error), done)
        except members.UnsettledError as error:
            await self._skip(one, str(error), done)
        else:
            return n_merged > 0
        return True

    async def _skip(
        self, one: report.Candidate, reason: str, done: tally.Tally, *, check: str = "", is_away: bool = False
    ) -> None:
        done.skipped(
            one, tally.Skipped(reason=reason, topic=await self._plans.topic(one), check=check, is_away=is_away)
        )

    async def _merge(self, one: report.Candidate, merging: texts.Merging, done: tally.Tally) -> bool:
        """Make one merge in a cluster; False: there is none to be made.

        Raises:
            LLMUnavailable, LLMRejected: no narrative came out.
            UnsettledError: a person keeps editing it.
            WriteRefused: nothing was written.
        """
        for _ in range(N_PLANS):
            reading, wanted = await self._plans.next(one, merging)
            if wanted is None:
                if await self._plans.is_undone(one, reading.members):
                    done.undone(one)
                return False
            await self._give_way()
            narrative = await merging.merge(wanted.read)
            done.patience.answered()
            async with self._locks[one.owner]:
                try:
                    made = await self._commit.run(one.owner, one.cluster_id, wanted, narrative, reading.standing)
                except commit.ChangedError as error:
                    log.info("cluster_planned_again", owner=one.owner.id, cluster_id=one.cluster_id, reason=str(error))
                    continue
                except errors.StoreError as error:  # it is on disk, and the ledger does not read it
                    done.left(one.owner, one.cluster_id, error)
                    return False
                try:
                    finished = await self._finish.run(made)
                except Exception as error:  # noqa: BLE001  # it is on disk, and the next run finishes it
                    done.left(one.owner, made.entry_id, error)
                    return False
            done.consolidated(one, wanted, finished)
            return True
        message = f"its Episodes were edited {N_PLANS} times while they were merged"
        raise members.UnsettledError(message)
