"""What follows from the commit point, until a row says that all of it is done.

The narrative's facts are taken, its sources are deprecated, then their facts; each step may be done again without harm.
Everything is read from the narrative itself, so that any process can do it: the one that wrote it, or the next one.
"""

from __future__ import annotations

import collections
import datetime as dt
from collections.abc import Awaitable, Callable, Iterable, Mapping

import msgspec
import structlog

from everosd import clock, errors, types
from everosd.engine import strategy
from everosd.log import entry, escape, file, writer
from everosd.reflection import lag, source
from everosd.store import read, report, row

log = structlog.get_logger(__name__)


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """What a consolidation came to."""

    report_id: str
    narrative: types.EntryId
    replaced: tuple[str, ...]
    """Sources that it stands for now; those that a person had edited meanwhile stay as they are."""


class Finish:
    """Finishes consolidations. Lives on the event loop."""

    def __init__(
        self,
        *,
        reader: read.Reader,
        pen: writer.Writer,
        behind: lag.Lag,
        facts: strategy.Run,
        wants_facts: Callable[[], bool],
        owe: Callable[[row.EntryRow], Awaitable[None]],
        time: clock.Clock,
        step: file.Step = file.no_step,
    ) -> None:
        """Wire the parts.

        Args:
            reader: What the ledger knows.
            pen: Writes.
            behind: Waits for the ledger.
            facts: Takes the facts of an Episode.
            wants_facts: Whether facts are taken at all.
            owe: Has the facts of an Episode taken later.
            time: For moments and waiting.
            step: See `log.file`.
        """
        self._reader, self._pen, self._lag, self._facts = reader, pen, behind, facts
        self._wants_facts, self._owe, self._clock, self._step = wants_facts, owe, time, step

    async def run(self, narrative: row.EntryRow, *, is_awaited: bool = False) -> Finished:
        """Finish the consolidation that a narrative began, from wherever it was left.

        Args:
            narrative: As the ledger has it.
            is_awaited: Somebody waits for an answer: no model is waited for, facts are taken afterwards.

        Raises:
            WriteRefused: a file may not be rewritten; what was done so far is kept.
            StoreError: the ledger does not take note of what was done.
        """
        owner, seen = narrative.owner, source.episode(narrative)
        self._step("committed")
        await self._take_facts(narrative, is_awaited=is_awaited)
        self._step("facts")
        replaced = await self._deprecate_sources(narrative)
        self._step("sources")
        await self._until_deprecated(narrative, [entry_id for entry_id, _ in replaced])
        of_facts = await self._deprecate_facts(narrative, [entry_id for entry_id, _ in replaced])
        self._step("source_facts")
        await self._until_deprecated(narrative, of_facts)
        members = [{"member_id": entry_id, "member_type": source.EPISODE} for entry_id, _ in replaced]
        fields = {
            "timestamp": self._clock.now().astimezone(dt.UTC).isoformat(),
            "event": "completed",
            "cluster_id": narrative.parent_id,
            "report_id": seen.report_id,
            "mode": seen.mode,
            "source_members": msgspec.json.encode(members).decode(),
            "source_count": str(len(replaced)),
            "merged_entry_id": narrative.entry_id,
            "deprecated_fact_count": str(len(of_facts)),
            "sources": escape.write_list(f"{entry_id}@{of_text}" for entry_id, of_text in replaced),
        }
        await self._pen.append(owner, source.ROW, [entry.Draft(fields=fields)])
        self._step("completed")

        async def is_known() -> bool:
            return await report.of_narrative(self._reader, owner, narrative.entry_id) is not None

        await self._lag.until(is_known, f"the consolidation {seen.report_id}", ())
        ids = tuple(entry_id for entry_id, _ in replaced)
        log.info(
            "cluster_consolidated",
            owner=owner.id,
            cluster_id=narrative.parent_id,
            mode=seen.mode,
            sources=len(ids),
            narrative=narrative.entry_id,
            check=seen.check,
        )
        return Finished(report_id=seen.report_id, narrative=narrative.entry_id, replaced=ids)

    async def _take_facts(self, narrative: row.EntryRow, *, is_awaited: bool) -> None:
        """Take the facts of a narrative; where that fails, they are taken later: what it replaces need not wait for them."""
        if not self._wants_facts():
            return
        if is_awaited:
            await self._owe(narrative)
            return
        event = strategy.Event(topic="episode_edited", owner=narrative.owner, subject=narrative.entry_id)
        try:
            await self._facts(event)
        except Exception as error:  # noqa: BLE001  # the engine tries again, and says so where that does not help either
            log.info("facts_put_off", entry_id=narrative.entry_id, reason=errors.describe(error))
            await self._owe(narrative)

    async def _deprecate_sources(self, narrative: row.EntryRow) -> list[tuple[str, str]]:
        """Point to the narrative from those of its sources that still say what was read; return them with their digests."""
        digests = dict(source.replaced(narrative))
        found = [await self._reader.find(narrative.owner, entry_id) for entry_id in digests]
        rows = [one for one in found if one is not None and _is_free(one, narrative.entry_id)]

        def is_as_read(one: entry.Entry) -> bool:
            return source.digest_of(one) == digests[one.id]

        pointed = await self._point(narrative, rows, is_as_read)
        return [(entry_id, of_text) for entry_id, of_text in digests.items() if entry_id in pointed]

    async def _deprecate_facts(self, narrative: row.EntryRow, sources: list[str]) -> set[str]:
        """Point to the narrative from the facts of its sources that nothing has replaced; return those that do."""
        facts = await self._reader.children(narrative.owner, sources, source.FACT)
        rows = [one for one in facts if _is_free(one, narrative.entry_id)]
        return await self._point(narrative, rows, None)

    async def _point(
        self, narrative: row.EntryRow, rows: Iterable[row.EntryRow], where: Callable[[entry.Entry], bool] | None
    ) -> set[str]:
        pointed: set[str] = set()
        for path, ids in by_path(rows).items():
            try:
                pointed |= set(await self._pen.deprecate(path, dict.fromkeys(ids, narrative.entry_id), where))
            except errors.NotFound:  # somebody has deleted the file
                continue
            self._step("pointed")
        return pointed

    async def _until_deprecated(self, narrative: row.EntryRow, replaced: Iterable[str]) -> None:
        """Wait until the ledger knows: who takes facts of a source just now, who searches, and who undoes it look there."""
        left = list(replaced)
        paths: set[types.RelPath] = set()

        async def is_known() -> bool:
            while left:
                one = await self._reader.find(narrative.owner, left[-1])
                if one is not None and one.deprecated_by != narrative.entry_id:
                    paths.add(one.path)
                    return False
                left.pop()
            return True

        try:
            await self._lag.until(is_known, f"what {narrative.entry_id} has replaced", paths)
        except errors.StoreError as error:  # a person may have revived one at once
            log.info("sources_not_seen_deprecated", narrative=narrative.entry_id, reason=str(error))


def by_path(rows: Iterable[row.EntryRow]) -> Mapping[types.RelPath, list[str]]:
    """Return ids of entries by their files."""
    found: dict[types.RelPath, list[str]] = collections.defaultdict(list)
    for one in rows:
        found[one.path].append(one.entry_id)
    return found


def _is_free(one: row.EntryRow, narrative: str) -> bool:
    """Return whether nothing else has replaced an entry."""
    return one.status == "active" or one.deprecated_by == narrative
