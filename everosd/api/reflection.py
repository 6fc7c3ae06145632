"""GET reflection/reports and POST reflection/rollback: what was consolidated, before and after, and undoing it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from everosd import clock, errors, types
from everosd.api import item, moment, ome, reply, schema, scope, services
from everosd.api import request as requests
from everosd.log import view
from everosd.store import report
from everosd.store import row as store_row

if TYPE_CHECKING:
    from everosd.reflection import reflect

GONE = "gone"
"""Status of a source that no file has any more."""
FIELD = "merged_entry_id"
UNKNOWN = "there is no such consolidation in this scope"


class Reflection:
    """Handlers of the routes of consolidations."""

    def __init__(self, given: services.Services) -> None:
        """Answer from `given`."""
        self._given = given
        self._zone = given.config.memory.zone

    async def reports(self, request: reply.Request) -> reply.Response:
        """Answer GET reflection/reports: those of one user, the newest first."""
        reply.called(request, "reflection/reports")
        asked = requests.decode_query(request.query_params.multi_items(), schema.ReportsQuery)
        owner = await scope.owner_or_only_user(asked, self._given.reader)
        found, total = await report.page(
            self._given.reader,
            app=owner.app,
            project=owner.project,
            owner_id=owner.id,
            cluster_id=asked.cluster_id,
            limit=asked.limit,
            offset=asked.offset,
        )
        items = [await self._item(one) for one in found]
        return reply.success(request, schema.ReportsData(items=tuple(items), total_count=total))

    async def rollback(self, request: reply.Request) -> reply.Response:
        """Answer POST reflection/rollback: the sources of one consolidation live again, its narrative is retired."""
        reply.called(request, "reflection/rollback")
        asked = requests.decode(requests.ROLLBACK, await reply.body(request))
        found = await self._asked_for(asked)
        done = await (await self._reflection()).rollback(found)
        return reply.success(
            request,
            schema.RollbackData(
                restored=tuple(types.public_id(found.owner.id, one) for one in done.restored),
                retired=types.public_id(found.owner.id, done.retired),
                report_id=done.report_id,
            ),
        )

    async def _asked_for(self, asked: schema.RollbackRequest) -> report.Report:
        """Return the report that a request names, by its id or by its narrative's.

        Raises:
            errors.RequestError: it names none, or two.
            errors.NotFound: there is none such in that scope.
            errors.LogError, errors.StoreError: it may be one that is not completed yet, and that cannot be completed.
        """
        where = scope.space(asked)
        named = None if asked.user_id is None else where.owner("user", asked.user_id)
        if (asked.report_id is None) == (asked.merged_entry_id is None):
            message = "give report_id or merged_entry_id, one of them"
            raise errors.RequestError(message, field="report_id" if asked.report_id is None else FIELD)
        found = await self._find(asked, where, named)
        if found is None and (reflection := await self._ready()) is not None:
            await reflection.complete(lambda owner: (owner.app, owner.project) == (where.app, where.project))
            found = await self._find(asked, where, named)
        if found is None:
            raise errors.NotFound(UNKNOWN)
        return found

    async def _find(
        self, asked: schema.RollbackRequest, where: scope.Space, named: types.Owner | None
    ) -> report.Report | None:
        if asked.report_id is None:
            owner, entry_id = _whose(where, named, types.nfc(asked.merged_entry_id or ""))
            return await report.of_narrative(self._given.reader, owner, entry_id)
        owner_id = None if named is None else named.id
        found = await report.find(
            self._given.reader, asked.report_id, app=where.app, project=where.project, owner_id=owner_id
        )
        if len(found) > 1:
            owners = " and ".join(one.owner.id for one in found)
            message = f"has to say which is meant, {owners} have a report {asked.report_id}"
            raise errors.RequestError(message, field="user_id")
        return found[0] if found else None

    async def _reflection(self) -> reflect.Reflection:
        """Return what undoes consolidations, once it is there.

        Raises:
            errors.CapabilityMissing: nothing does.
        """
        found = await self._ready()
        if found is None:
            message = "nothing that reflects runs here: start the daemon with `everosd serve`"
            raise errors.CapabilityMissing(message)
        return found

    async def _ready(self) -> reflect.Reflection | None:
        """Return it once it is there; None: nothing reflects here."""
        if self._given.engine is not None:
            await clock.wait(self._given.engine.is_ready, ome.READY_S, self._given.clock)
        return None if self._given.reflection is None else await self._given.reflection()

    async def _item(self, one: report.Report) -> schema.ReportItem:
        before = [await self._source(one.owner, member.member_id) for member in one.source_members]
        after = await self._given.reader.find(one.owner, one.merged_entry_id)
        return schema.ReportItem(
            report_id=one.report_id,
            id=one.report_id,
            cluster_id=one.cluster_id,
            owner_id=one.owner.id,
            app_id=one.owner.app,
            project_id=one.owner.project,
            owner_type=one.owner.type,
            mode=one.mode,
            source_members=tuple(
                schema.ReportMember(member_id=member.member_id, member_type=member.member_type)
                for member in one.source_members
            ),
            source_count=one.source_count,
            merged_entry_id=one.merged_entry_id,
            deprecated_fact_count=one.deprecated_fact_count,
            status=one.status,
            created_at=self._iso(one.created_us),
            updated_at=self._iso(one.updated_us),
            before=tuple(before),
            after=None if after is None else self._narrative(after),
            check=None if after is None else item.parsed(after).fields.get("check"),
        )

    async def _source(self, owner: types.Owner, entry_id: str) -> schema.ReportSource:
        row = await self._given.reader.find(owner, entry_id)
        if row is None:
            return schema.ReportSource(
                id=types.public_id(owner.id, entry_id), timestamp=None, subject="", text="", status=GONE
            )
        taken = item.parsed(row)
        return schema.ReportSource(
            id=item.public(row),
            timestamp=self._iso(row.timestamp_us),
            subject=view.title(taken),
            text=item.content_of(taken, view.view(taken)),
            status=self._maker().status(row),
        )

    def _narrative(self, row: store_row.EntryRow) -> schema.ReportNarrative:
        taken = item.parsed(row)
        return schema.ReportNarrative(
            id=item.public(row),
            timestamp=self._iso(row.timestamp_us),
            subject=view.title(taken),
            content=item.content_of(taken, view.view(taken)),
            status=self._maker().status(row),
            deprecated_by=item.successor(row),
        )

    def _maker(self) -> item.Maker:
        return item.Maker(zone=self._zone, now_us=self._given.now_us(), has_status=True)

    def _iso(self, us: int) -> str:
        return moment.iso(us, self._zone)


def _whose(where: scope.Space, named: types.Owner | None, given: str) -> tuple[types.Owner, str]:
    """Return whose narrative is meant, and its entry id.

    Raises:
        errors.RequestError: a bare entry id does not say whose.
    """
    if named is not None:
        return named, given.removeprefix(f"{named.id}_")
    parts = types.parse_public_id(given)
    if parts is None:
        if types.ENTRY_ID.fullmatch(given):
            message = f"is needed, {given} says nothing of whose it is (its public id does)"
            raise errors.RequestError(message, field="user_id")
        raise errors.NotFound(UNKNOWN)
    return where.owner("user", parts.owner_id), parts.entry_id
