"""One consolidation undone: its sources and their facts are live again, the narrative is retired, and all of it stays on record.

The row `rolled_back` commits it, and alone has the sources live again (`store.standing`); that the files say so, too, is
tidying, after which `restored` is written. What people undo of it later stays undone.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable, Iterable

import msgspec
import structlog

from everosd import clock, errors, types
from everosd.log import entry, escape, file, writer
from everosd.reflection import finish, lag, source
from everosd.store import read, report, row, standing

log = structlog.get_logger(__name__)

N_TRIES = 3
"""How often keys are taken out of files that somebody keeps putting back, before it is left for later."""


class RolledBack(msgspec.Struct, frozen=True, kw_only=True):
    """What was undone."""

    report_id: str
    restored: tuple[str, ...]
    """Entry ids of the sources that are live again."""
    retired: str
    """Entry id of the narrative."""


class Rollback:
    """Undoes consolidations. Lives on the event loop."""

    def __init__(
        self,
        reader: read.Reader,
        pen: writer.Writer,
        behind: lag.Lag,
        time: clock.Clock,
        step: file.Step = file.no_step,
    ) -> None:
        """Wire the parts; `step`: see `log.file`."""
        self._reader, self._pen, self._lag, self._clock, self._step = reader, pen, behind, time, step

    async def run(self, wanted: report.Report) -> RolledBack:
        """Undo a consolidation that is completed, or go on with undoing it.

        Raises:
            Conflict: it is undone already, a later one builds on it, or nothing of what it replaced is there.
            WriteRefused: a file cannot be read or may not be rewritten. Where the row is written already, the message says
                that the rest is done by the next run or start, or when this is called again.
            StoreError: the ledger does not take note of it, which is done all the same.
        """
        owner, narrative = wanted.owner, wanted.merged_entry_id
        if wanted.status == "rolled_back":
            if not wanted.is_restored:
                return await self._finish(wanted)
            message = f"the consolidation {wanted.report_id} is rolled back already"
            raise errors.Conflict(message)
        if (later := await report.builds_on(self._reader, owner, narrative)) is not None:
            by = types.public_id(owner.id, later.merged_entry_id)
            message = f"a later consolidation, {later.report_id}, has made {by} of this one's narrative"
            raise errors.Conflict(message, hint=f"roll back {by} first (report {later.report_id})")
        if not await self._sources(wanted):
            message = f"nothing of what {types.public_id(owner.id, narrative)} replaced is there any more"
            raise errors.Conflict(message, hint="put the sources back into their files, then try again")
        # A file that does not parse can be left with pointers that nobody may take out: better nothing is done.
        await asyncio.to_thread(self._lag.pointers, await self._paths(wanted), narrative, are_all_needed=True)
        await self._append(wanted, "rolled_back", with_sources=True)
        self._step("rolled_back")
        return await self._finish(wanted)

    async def _finish(self, wanted: report.Report) -> RolledBack:
        """Finish it; what stops that says that it is committed."""
        committed = f"the consolidation {wanted.report_id} is rolled back, and what is left to tidy is done by itself"
        hint = "mend what is said, then the next run of reflect_episodes, a start, or typing the same again finishes it"
        try:
            return await self.finish(wanted)
        except errors.WriteRefused as error:
            reason = f"{error.reason}; {committed}"
            raise errors.WriteRefused(error.path, reason, line=error.line, hint=hint) from error
        except errors.StoreError as error:
            said = type(error) if isinstance(error, errors.StoreRefused) else errors.StoreError
            told = said(f"{error}; {committed}")
            told.hint = hint
            raise told from error

    async def finish(self, wanted: report.Report) -> RolledBack:
        """Have the files say what the row `rolled_back` says, from wherever that was left.

        Raises:
            WriteRefused, StoreError: as `run`.
        """
        # The sources live already, by the row. The narrative goes first: one of their files may be one that takes nothing.
        await self._retire(wanted, await self._sources(wanted))
        self._step("retired")
        await self._restore(wanted)
        self._step("sources_restored")
        await self._append(wanted, "restored")
        self._step("restored")
        await self._lag.until(lambda: self._is_known(wanted), f"the rollback of {wanted.report_id}", ())
        ids = tuple(one.entry_id for one in await self._sources(wanted) if one.deprecated_by is None)
        log.info("consolidation_rolled_back", owner=wanted.owner.id, report_id=wanted.report_id, sources=len(ids))
        return RolledBack(report_id=wanted.report_id, restored=ids, retired=wanted.merged_entry_id)

    async def _sources(self, wanted: report.Report) -> list[row.EntryRow]:
        """Return what the consolidation replaced, as far as it is there, in time order."""
        found = [await self._reader.find(wanted.owner, one.member_id) for one in wanted.source_members]
        return sorted((one for one in found if one is not None), key=lambda one: (one.timestamp_us, one.entry_id))

    async def _restore(self, wanted: report.Report) -> None:
        """Take the pointers to the narrative away from its sources and their facts, in whichever files they stand."""
        owner, narrative = wanted.owner, wanted.merged_entry_id
        ids = {one.member_id for one in wanted.source_members}
        facts = [one.entry_id for one in await self._reader.children(owner, sorted(ids), source.FACT)]
        ours = {*ids, *facts}
        theirs: dict[types.RelPath, list[str]] = {}
        for _ in range(N_TRIES):
            # As the files say it: the ledger may not have read the last of them yet.
            found = await asyncio.to_thread(self._lag.pointers, await self._paths(wanted), narrative)
            theirs = {
                path: [one.entry_id for one in pointers if one.entry_id in ours or one.parent_id in ids]
                for path, pointers in found.items()
            }
            if not any(theirs.values()):
                break
            # In one write where they stand in one file: the narrative is not left without any of them in between.
            for path, group in theirs.items():
                try:
                    await self._pen.deprecate(path, {}, revived=dict.fromkeys(group, narrative))
                except errors.NotFound:  # somebody has deleted the file
                    continue
                self._step("revived")
        else:
            path = next(path for path, group in theirs.items() if group)
            raise errors.WriteRefused(path, f"what points to {narrative} is put back as soon as it is taken out")
        known = {*ours, *(each for group in theirs.values() for each in group)}
        await self._until_known(lambda one: one is None or one.deprecated_by != narrative, owner, sorted(known))

    async def _paths(self, wanted: report.Report) -> list[types.RelPath]:
        """Return the files of all that a consolidation replaced or made, and of what points to its narrative."""
        owner, narrative = wanted.owner, wanted.merged_entry_id
        ids = [*(one.member_id for one in wanted.source_members), narrative]
        rows = [await self._reader.find(owner, each) for each in ids]
        rows += await self._reader.children(owner, ids, source.FACT)
        pointing = [path for path, _ in await standing.pointing(self._reader, owner, narrative)]
        return list(dict.fromkeys([*(one.path for one in rows if one is not None), *pointing]))

    async def _retire(self, wanted: report.Report, sources: list[row.EntryRow]) -> None:
        """Point from the narrative and its facts to its newest source."""
        owner = wanted.owner
        narrative = await self._reader.find(owner, wanted.merged_entry_id)
        if narrative is None or not sources:
            return
        newest = sources[-1].entry_id
        facts = await self._reader.children(owner, [narrative.entry_id], source.FACT)
        live = [one for one in (narrative, *facts) if one.status == "active" or one.deprecated_by == newest]
        for path, ids in finish.by_path(live).items():
            try:
                await self._pen.deprecate(path, dict.fromkeys(ids, newest))
            except errors.NotFound:
                continue
            self._step("retiring")
        await self._until_known(
            lambda one: one is None or one.deprecated_by == newest, owner, [one.entry_id for one in live]
        )

    async def _until_known(
        self, holds: Callable[[row.EntryRow | None], bool], owner: types.Owner, ids: Iterable[str]
    ) -> None:
        """Wait until the ledger says so of each, which a person may have changed again meanwhile."""
        left = list(ids)

        async def is_known() -> bool:
            while left and holds(await self._reader.find(owner, left[-1])):
                left.pop()
            return not left

        try:
            await self._lag.until(is_known, "what was rolled back", ())
        except errors.StoreError as error:
            log.info("rollback_not_seen", reason=str(error))

    async def _is_known(self, wanted: report.Report) -> bool:
        found = await report.find(self._reader, wanted.report_id, app=wanted.owner.app, project=wanted.owner.project)
        return any(one.is_restored for one in found if one.owner == wanted.owner)

    async def _append(self, wanted: report.Report, event: str, *, with_sources: bool = False) -> None:
        fields = {
            "timestamp": self._clock.now().astimezone(dt.UTC).isoformat(),
            "event": event,
            "cluster_id": wanted.cluster_id,
            "report_id": wanted.report_id,
            "merged_entry_id": wanted.merged_entry_id,
        }
        if with_sources:
            members = [{"member_id": one.member_id, "member_type": one.member_type} for one in wanted.source_members]
            fields["source_members"] = msgspec.json.encode(members).decode()
            if wanted.sources:
                fields["sources"] = escape.write_list(f"{entry_id}@{of_text}" for entry_id, of_text in wanted.sources)
        await self._pen.append(wanted.owner, source.ROW, [entry.Draft(fields=fields)])
