"""POST memory/reflect, GET memory/lifecycle and GET memory/audit: passes over memories, what they put away, and what is told of it."""

from __future__ import annotations

import asyncio
import datetime as dt
import textwrap
from typing import TYPE_CHECKING, cast, get_args

import msgspec

from everosd import clock, errors, types
from everosd.api import item, later, lifecycle_schema, memory, moment, ome, reply, schema, scope, services
from everosd.api import request as requests
from everosd.lifecycle import past
from everosd.log import entry as log_entry
from everosd.log import escape, view
from everosd.store import lifecycle as store
from everosd.store import report
from everosd.store import row as store_row

if TYPE_CHECKING:
    from everosd.lifecycle import decisions, outcome, scheduled

REFLECT = msgspec.json.Decoder(lifecycle_schema.ReflectRequest)
DAY_US = 86_400_000_000
STATUSES = get_args(schema.Status)
AWAY = tuple(status for status in STATUSES if status != "active")
TITLE_CHARS = 100
MANY = 1000
"""Decisions whose answer is made by a thread: the loop has its turns meanwhile."""


class Lifecycle:
    """Handlers of these routes."""

    def __init__(self, given: services.Services) -> None:
        """Answer from `given`."""
        self._given = given
        self._zone = given.config.memory.zone
        self._later = later.Later(
            *(f"lifecycle.{name}" for name in ("archive", "decisions", "outcome", "policy", "window"))
        )

    # -- reflect ---------------------------------------------------------------------------------------------------

    async def reflect(self, request: reply.Request) -> reply.Response:
        """Answer POST memory/reflect."""
        await self._later.load()
        from everosd.lifecycle import decisions, outcome  # noqa: PLC0415  # no command needs them that does not reflect
        from everosd.lifecycle import window as windows  # noqa: PLC0415

        reply.called(request, "memory/reflect")
        body = await reply.body(request)
        asked = requests.decode(REFLECT, body)
        actions = _actions(asked, decisions.ORDER)
        window = windows.of(
            self._given.now_us(),
            hours=asked.time_window_hours,
            since_us=self._moment_us(asked.since, "since"),
            until_us=self._moment_us(asked.until, "until"),
        )
        owner = await scope.owner_or_only_user(asked, self._given.reader)
        wanted = outcome.Wanted(
            actions=actions,
            filters=decisions.Filters(
                bucket=asked.bucket or "%",
                scope=asked.scope or "%",
                team_id=asked.team_id or "%",
                path=asked.path_filter or "%",
            ),
            window=window,
            limit=asked.limit,
            min_group_size=asked.min_group_size,
            max_share=asked.max_share,
            is_forced=asked.force,
            is_dry_run=asked.dry_run,
            parameters=msgspec.json.encode(msgspec.json.decode(body)).decode(),
        )
        found = await (await self._governs()).passes.reflect(owner, wanted)
        data = self._result(found) if found.n_applied < MANY else await asyncio.to_thread(self._result, found)
        return reply.success(request, data)

    async def _governs(self) -> scheduled.Scheduled:
        """Return what makes passes.

        Raises:
            errors.CapabilityMissing: nothing does.
        """
        if self._given.engine is not None:
            await clock.wait(self._given.engine.is_ready, ome.READY_S, self._given.clock)
        if self._given.lifecycle is None:
            message = "nothing that makes passes over memories runs here: start the daemon with `everosd serve`"
            raise errors.CapabilityMissing(message)
        return await self._given.lifecycle()

    def _result(self, found: outcome.Result) -> lifecycle_schema.ReflectData:
        stopped = found.stopped
        return lifecycle_schema.ReflectData(
            run_id=found.run_id,
            dry_run=found.is_dry_run,
            evaluated_at=self._iso(found.evaluated_us),
            window=lifecycle_schema.WindowItem(
                since=self._iso(found.window.since_us), until=self._iso(found.window.until_us)
            ),
            actions=tuple(map(_action, found.actions)),
            audit_ids=tuple(types.public_id(found.owner.id, one) for one in found.audit_ids),
            stopped=None
            if stopped is None
            else lifecycle_schema.StoppedItem(
                reason=stopped.reason, affected=stopped.affected, total=stopped.total, share=stopped.share
            ),
            written=tuple(
                lifecycle_schema.WrittenItem(
                    action=one.action,
                    id=types.public_id(found.owner.id, one.entry_id),
                    sources=tuple(types.public_id(found.owner.id, each) for each in one.sources),
                )
                for one in found.written
            ),
        )

    # -- what was put away -----------------------------------------------------------------------------------------

    async def lifecycle(self, request: reply.Request) -> reply.Response:
        """Answer GET memory/lifecycle."""
        await self._later.load()
        reply.called(request, "memory/lifecycle")
        asked = requests.decode_query(request.query_params.multi_items(), lifecycle_schema.LifecycleQuery)
        statuses = _statuses(asked.status)
        owner = await scope.owner_or_only_user(asked, self._given.reader)
        now_us = self._given.now_us()
        found = await store.standing(
            self._given.reader,
            owner,
            now_us,
            kinds=store.KINDS if asked.kind is None else (asked.kind,),
            statuses=statuses,
            memory_type=memory.of_type(asked.memory_type) or "%",
            path=asked.path_filter or "%",
            limit=asked.limit,
            offset=asked.offset,
        )
        rows = {row.key: row for row in await self._given.reader.rows([one.key for one in found.records])}
        items = [await self._item(one, rows.get(one.key), now_us) for one in found.records]
        total = sum(found.counts.get(status, 0) for status in dict.fromkeys(statuses))
        return reply.success(
            request, lifecycle_schema.LifecycleData(items=tuple(items), total_count=total, counts=found.counts)
        )

    async def _item(
        self, record: store.Record, row: store_row.EntryRow | None, now_us: int
    ) -> lifecycle_schema.LifecycleItem:
        status, reason, since_us, successor = (
            _status(record, now_us),
            record.reason,
            _since_us(record, now_us),
            record.successor,
        )
        if status == "deprecated" and row is not None and row.deprecated_by is not None:
            successor, reason = row.deprecated_by, "replaced by its successor"
            since_us = await self._written_us(record.owner, successor)
        elif status == "expired" and record.status == "active":
            reason, since_us = "expires_at has come", record.expires_us
        following, due_us = self._next(record, status, since_us)
        return lifecycle_schema.LifecycleItem(
            id=types.public_id(record.owner.id, record.entry_id),
            kind=record.kind,
            memory_type=record.memory_type,
            path=record.path,
            subject="" if row is None else _title(item.parsed(row)),
            status=status,
            reason=reason,
            since=None if since_us is None else self._iso(since_us),
            successor=types.public_id(record.owner.id, successor) if successor else None,
            days_left=None if due_us is None else round(max(0, due_us - now_us) / DAY_US, 2),
            next=following,
            importance=record.importance,
            pinned=record.is_pinned,
        )

    async def _written_us(self, owner: types.Owner, successor: str) -> int | None:
        """Return when what replaced something was written, as far as it says."""
        if (made := await report.of_narrative(self._given.reader, owner, successor)) is not None:
            return made.created_us
        row = await self._given.reader.find(owner, successor)
        return None if row is None else row.timestamp_us

    def _next(self, record: store.Record, status: str, since_us: int | None) -> tuple[str | None, int | None]:
        """Return what is due next by the clock, and when; None: nothing is."""
        from everosd.lifecycle import archive, policy  # noqa: PLC0415  # see `reflect`

        policies = policy.of(self._given.config if self._given.in_force is None else self._given.in_force())
        if record.kind not in policies.kinds:
            return None, None
        due_us = archive.due_at(record, status, since_us, policies)
        if status == "active" and record.expires_us is not None and (due_us is None or record.expires_us <= due_us):
            return "expire", record.expires_us
        return (None, None) if due_us is None else ("archive", due_us)

    # -- the audit -------------------------------------------------------------------------------------------------

    async def audit(self, request: reply.Request) -> reply.Response:
        """Answer GET memory/audit."""
        reply.called(request, "memory/audit")
        asked = requests.decode_query(request.query_params.multi_items(), lifecycle_schema.AuditQuery)
        owner = await scope.owner_or_only_user(asked, self._given.reader)
        since_us, until_us = self._moment_us(asked.since, "since"), self._moment_us(asked.until, "until")
        tool = asked.action_type if asked.action_type in ("reflect", "run_lifecycle") else None
        actions = None if asked.action_type is None else ("audit" if tool else asked.action_type,)
        found = await store.rows(
            self._given.reader,
            owner,
            actions=actions,
            run_id=asked.run_id,
            tool=tool,
            since_us=since_us,
            until_us=until_us,
            limit=asked.limit + 1,
            offset=asked.offset,
        )
        items = tuple(self._told(owner, one) for one in found[: asked.limit])
        return reply.success(request, lifecycle_schema.AuditData(items=items, has_more=len(found) > asked.limit))

    def _told(self, owner: types.Owner, one: log_entry.Entry) -> lifecycle_schema.AuditItem:
        fields = one.fields
        at_us = view.moment_us(fields.get("timestamp", ""), dt.UTC)
        target = fields.get("target", "")
        pinned = _pinned(one) if fields.get("action") == "pin" else {}
        return lifecycle_schema.AuditItem(
            id=types.public_id(owner.id, one.id),
            timestamp="" if at_us is None else self._iso(at_us),
            action=fields.get("action", ""),
            target=types.public_id(owner.id, target) if target else "",
            run_id=fields.get("run_id", ""),
            field=fields.get("field", pinned.get("field", "")),
            was=fields.get("was", pinned.get("was", "")),
            value=fields.get("value", pinned.get("value", "")),
            reason=fields.get("reason", ""),
            successor=types.public_id(owner.id, fields["successor"]) if fields.get("successor") else "",
            tool=fields.get("tool", ""),
            dry_run=fields["dry_run"] == "true" if "dry_run" in fields else None,
            actions=escape.read_list(fields.get("actions", "")),
            parameters=_json(fields.get("parameters", "")),
            counts=_json(fields.get("counts", "")),
            error=fields.get("error", ""),
        )

    def _moment_us(self, given: lifecycle_schema.Moment | None, field: str) -> int | None:
        if given is None:
            return None
        found = view.moment_us(str(given), self._zone)
        if found is None:
            message = "expected ISO 8601, as 2026-12-31 or 2026-12-31T18:00:00Z, or milliseconds since 1970"
            raise errors.RequestError(message, field=field)
        return found

    def _iso(self, us: int) -> str:
        return moment.iso(us, self._zone)


def _actions(
    asked: lifecycle_schema.ReflectRequest, known: tuple[decisions.Action, ...]
) -> tuple[decisions.Action, ...]:
    """Return which actions are asked for.

    Raises:
        errors.RequestError: one of them is none, or both fields say something.
    """
    if asked.actions_csv is not None and asked.actions is not None:
        message = "give actions or actions_csv, not both"
        raise errors.RequestError(message, field="actions_csv")
    if asked.actions_csv is None and asked.actions is None:
        return known
    field = "actions_csv" if asked.actions is None else "actions"
    given = (asked.actions_csv or "").split(",") if asked.actions is None else asked.actions
    named = [one.strip().casefold() for one in given if one.strip()]
    if not named:
        message = f"names no action; there are {', '.join(known)}"
        raise errors.RequestError(message, field=field)
    for one in named:
        if one not in known:
            message = f"there is no action {one[:50]!r}; there are {', '.join(known)}"
            raise errors.RequestError(message, field=field)
    return cast("tuple[decisions.Action, ...]", tuple(dict.fromkeys(named)))


def _statuses(asked: str | None) -> tuple[str, ...]:
    if asked is None:
        return AWAY
    named = [one.strip().casefold() for one in asked.split(",") if one.strip()]
    for one in named:
        if one not in STATUSES:
            message = f"there is no status {one[:50]!r}; there are {', '.join(STATUSES)}"
            raise errors.RequestError(message, field="status")
    return tuple(named) or AWAY


def _status(record: store.Record, now_us: int) -> str:
    """Return what a memory is at this moment: one past its `expires_at` is expired, whether that was noticed or not."""
    return "expired" if record.status == "active" and _is_over(record, now_us) else record.status


def _since_us(record: store.Record, now_us: int) -> int | None:
    """Return since when a memory is what it is; None: the log does not say, or it is active."""
    if record.status == "active":
        return record.expires_us if _is_over(record, now_us) else None
    return record.status_since_us


def _title(found: log_entry.Entry) -> str:
    return view.title(found) or textwrap.shorten(
        item.content_of(found, view.view(found)), TITLE_CHARS, placeholder=" …"
    )


def _is_over(record: store.Record, now_us: int) -> bool:
    return record.expires_us is not None and record.expires_us <= now_us


def _action(one: outcome.Done) -> lifecycle_schema.ActionItem:
    return lifecycle_schema.ActionItem(
        action=one.action,
        candidates=tuple(
            lifecycle_schema.DecisionItem(
                id=types.public_id(each.owner.id, each.id),
                decision=each.decision,
                reason=each.reason,
                before=dict(each.before),
                after=dict(each.after),
            )
            for each in one.candidates
        ),
        counts=lifecycle_schema.ActionCounts(
            candidates=one.n_applied + one.n_skipped + one.n_left,
            apply=one.n_applied,
            skip=one.n_skipped,
            left=one.n_left,
        ),
        reason=one.reason or None,
    )


def _pinned(one: log_entry.Entry) -> dict[str, str]:
    """Return what a row of pinning changed, which it says by the text before it alone; empty where that is gone."""
    if not past.before(one):
        return {}
    was = past.was_pinned(one)
    return {"field": "pinned", "was": str(was).lower(), "value": str(not was).lower()}


def _json(text: str) -> schema.JsonObject | None:
    """Return the object that a field holds; None where it holds none."""
    if not text:
        return None
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
