"""Plans merges of real clusters: their members are read, what was undone is left alone, the rest is `plan`'s."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import structlog

from everosd import types
from everosd.narrative import source as texts
from everosd.reflection import members, plan
from everosd.store import read, report

log = structlog.get_logger(__name__)

ANY = ""
"""Instead of a digest: a consolidation that EverOS made says nothing of texts."""


def by_owner(candidates: Iterable[report.Candidate]) -> Iterator[tuple[types.Owner, list[report.Candidate]]]:
    """Yield owners with those of their clusters that hold anything but narratives, the largest first."""
    for owner, clusters in itertools.groupby(candidates, key=lambda one: one.owner):
        found = [one for one in clusters if one.n_narratives < one.n_live]
        if found:
            yield owner, sorted(found, key=lambda one: (-one.n_live, one.cluster_id))


class Planner:
    """Plans. Lives on the event loop."""

    def __init__(self, reader: read.Reader, reads: members.Members) -> None:
        """Wire the parts."""
        self._reader, self._members = reader, reads

    async def next(
        self, one: report.Candidate, merging: texts.Merging, overlay: members.Overlay | None = None
    ) -> tuple[members.Reading, plan.Plan | None]:
        """Return what a cluster is made of now, and its next merge; None where there is none.

        Raises:
            UnsettledError, WriteRefused: see `members.Members.read`.
        """
        reading = await self._members.read(one.owner, one.cluster_id, overlay)
        return reading, await self.of(one, reading.members, merging)

    async def of(self, one: report.Candidate, found: Sequence[plan.Member], merging: texts.Merging) -> plan.Plan | None:
        """Return the next merge of a cluster that has these live members."""
        if await self.is_undone(one, found):
            return None

        def fits(sources: Sequence[texts.Source]) -> bool:
            return merging.n_fitting(sources) == len(sources)

        outlook = await asyncio.to_thread(plan.outlook, found, fits)
        for entry_id in outlook.too_long:
            log.warning("episode_too_long_to_merge", owner=one.owner.id, cluster_id=one.cluster_id, entry_id=entry_id)
        return outlook.plan

    async def topic(self, one: report.Candidate) -> str:
        """Return the subject of the newest live member, for people; empty where it has none."""
        return await self._members.topic(one.owner, one.cluster_id)

    async def is_open(self, one: report.Candidate) -> bool:
        """Return whether a cluster is more than what a rollback has brought back."""
        if not await report.rolled_back(self._reader, one.owner, one.cluster_id):
            return True
        reading = await self._members.read(one.owner, one.cluster_id)
        return not await self.is_undone(one, reading.members)

    async def is_undone(self, one: report.Candidate, found: Collection[plan.Member]) -> bool:
        """Return whether members are just what rollbacks have brought back: as they are they are not merged again."""
        undone = await report.rolled_back(self._reader, one.owner, one.cluster_id)
        of_narrative = {each.merged_entry_id: each for each in undone}
        return any(
            all((member.id, member.digest) in texts or (member.id, ANY) in texts for member in found)
            for texts in (_brought_back(each, of_narrative) for each in undone)
        )


def _brought_back(undone: report.Report, of_narrative: Mapping[str, report.Report]) -> set[tuple[str, str]]:
    """Return ids and digests of what a rollback has brought back; of narratives that are undone too, what theirs has."""
    texts: set[tuple[str, str]] = set()
    waiting, seen = [undone], {undone.merged_entry_id}
    while waiting:
        each = waiting.pop()
        texts.update(each.sources or ((source.member_id, ANY) for source in each.source_members))
        inner = {entry_id for entry_id, _ in texts} & (of_narrative.keys() - seen)
        seen |= inner
        waiting += [of_narrative[entry_id] for entry_id in inner]
    return texts
