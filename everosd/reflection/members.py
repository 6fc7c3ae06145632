"""The live members of a cluster, read where the ledger and the disk agree, and what narratives among them were made from."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable, Collection, Sequence

import msgspec

from everosd import clock, errors, types
from everosd.log import view
from everosd.narrative import source as texts
from everosd.reflection import lag, plan, source
from everosd.store import cluster, read, row

AGREE_S = 3.0
"""How long somebody may go on saving before a cluster is left for the next run."""


class UnsettledError(errors.EverosdError):
    """Somebody is changing what was to be merged."""


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """The live members of a cluster, as they were read."""

    members: tuple[plan.Member, ...]
    standing: dict[str, lag.Standing]
    """By entry id, as they stood in their files then. Never mutated."""


class Overlay(msgspec.Struct, frozen=True, kw_only=True):
    """What a consolidation that is not completed will have done to a cluster: a dry run looks through it."""

    gone: frozenset[str] = frozenset()
    joined: tuple[types.EntryKey, ...] = ()


class Members:
    """Reads members. Lives on the event loop."""

    def __init__(self, reader: read.Reader, behind: lag.Lag, zone: Callable[[], dt.tzinfo], time: clock.Clock) -> None:
        """Days are told in `zone`."""
        self._reader, self._lag, self._zone, self._clock = reader, behind, zone, time

    async def read(self, owner: types.Owner, cluster_id: str, overlay: Overlay | None = None) -> Reading:
        """Return the live members of a cluster.

        Raises:
            UnsettledError: what is on disk is not what the ledger has, even after a while.
            WriteRefused: a file of theirs may not be rewritten, so that nothing in it can be deprecated.
        """
        until_s = self._clock.monotonic_s() + AGREE_S
        while True:
            rows = await self._rows(owner, cluster_id, overlay or Overlay())
            standing, others = await asyncio.to_thread(self._compared, rows)
            if not others:
                break
            if self._clock.monotonic_s() > until_s:
                message = f"{others[0].path} is being changed"
                raise UnsettledError(message)
            self._lag.look({one.path for one in others})
            await self._clock.sleep(lag.POLL_S)
        facts = await source.facts(self._reader, owner, rows)
        members = [await self._member(one, facts[one.entry_id]) for one in rows]
        return Reading(members=tuple(members), standing=standing)

    async def topic(self, owner: types.Owner, cluster_id: str) -> str:
        """Return the subject of the newest live member, as the ledger has it; empty where it has none."""
        rows = await self._rows(owner, cluster_id, Overlay())
        newest = max(rows, key=lambda one: (one.timestamp_us, one.entry_id), default=None)
        return "" if newest is None else " ".join(view.title(source.of_row(newest)).split())

    async def _rows(self, owner: types.Owner, cluster_id: str, overlay: Overlay) -> list[row.EntryRow]:
        found = await cluster.members(self._reader, owner, cluster_id)
        keys = [one.key for one in found if one.status == "active" and one.entry_id not in overlay.gone]
        rows = await self._reader.rows([*keys, *overlay.joined])
        now_us = clock.to_us(self._clock.now())
        return [
            one
            for one in rows
            if one.kind == source.EPISODE
            and one.status == "active"
            and (one.expires_us is None or one.expires_us > now_us)
        ]

    def _compared(self, rows: Sequence[row.EntryRow]) -> tuple[dict[str, lag.Standing], list[row.EntryRow]]:
        """Return how entries stand on disk, and those of which the ledger says something else. Blocks."""
        standing = self._lag.standing([(one.path, one.entry_id) for one in rows])
        others = [one for one in rows if (at := standing.get(one.entry_id)) is None or at.digest != source.digest(one)]
        return standing, others

    async def _member(self, found: row.EntryRow, facts: Collection[str]) -> plan.Member:
        is_narrative = source.is_narrative(found)
        return plan.Member(
            source=source.of(found, tuple(facts), self._zone(), is_latest=is_narrative and source.is_edited(found)),
            digest=source.digest(found),
            path=found.path,
            timestamp_us=found.timestamp_us,
            originals=await self._originals(found) if is_narrative else (),
        )

    async def _originals(self, narrative: row.EntryRow) -> tuple[texts.Source, ...]:
        """Return what a narrative was made from, down to what nobody merged; empty where any of it is gone.

        A narrative in between that a person had edited stands for all that it was made of, as of its own moment.
        """
        found: dict[str, row.EntryRow] = {}
        waiting = [narrative]
        while waiting:
            for entry_id, _ in source.replaced(waiting.pop()):
                one = await self._reader.find(narrative.owner, entry_id)
                if one is None or one.kind != source.EPISODE or one.status == "deleted":
                    return ()
                if one.entry_id in found or one.entry_id == narrative.entry_id:
                    continue
                if source.is_narrative(one) and source.replaced(one) and not source.is_edited(one):
                    waiting.append(one)
                else:
                    found[one.entry_id] = one
        rows = list(found.values())
        facts = await source.facts(self._reader, narrative.owner, rows)
        return tuple(source.of(one, facts[one.entry_id], self._zone()) for one in rows)
