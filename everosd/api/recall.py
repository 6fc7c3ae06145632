"""POST memory/recall, POST memory/explain and GET memory/stats: what memory has to say, and what there is to say of it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, get_args

import msgspec

from everosd import clock, config, errors, types
from everosd.api import item, later, lineage, memory, moment, recall_schema, reply, schema, scope, services, typed
from everosd.api import request as requests
from everosd.log import entry as log_entry
from everosd.log import view
from everosd.search import query
from everosd.store import correction, lifecycle
from everosd.store import memory as store_memory
from everosd.store import row as store_row

if TYPE_CHECKING:
    from everosd.search import context

RECALL = msgspec.json.Decoder(recall_schema.RecallRequest)
EXPLAIN = msgspec.json.Decoder(recall_schema.ExplainRequest)
STATUSES = get_args(schema.Status)
N_PATHS = 1000
N_CHANGES = 1000
"""Rows of the log that are told of one memory."""
_LATER = ("search.context", "lifecycle.versions", "lifecycle.archive", "lifecycle.decay")
"""With what they bring: tokens are counted by NumPy."""


class Recall:
    """Handlers of these routes."""

    def __init__(self, given: services.Services, memories: typed.Typed) -> None:
        """Answer from `given`; `memories` knows which entry an id means."""
        self._given, self._memories = given, memories
        self._zone = given.config.memory.zone
        self._later = later.Later(*_LATER)

    # -- recall ----------------------------------------------------------------------------------------------------

    async def recall(self, request: reply.Request) -> reply.Response:
        """Answer POST memory/recall."""
        await self._later.load()
        from everosd.search import context  # noqa: PLC0415  # see `_LATER`

        reply.called(request, "memory/recall")
        asked = requests.decode(RECALL, await reply.body(request))
        likes = memory.filed(asked)
        owner = await scope.owner_or_only_user(asked, self._given.reader)
        self._given.search.note_recall(owner)
        await self._given.cascade.until_shown(owner)
        recalls = context.Recall(self._given.search, self._given.reader, self._given.clock, self._zone)
        wanted = context.Wanted(
            owner=owner, text=asked.query, max_items=asked.max_items, max_tokens=asked.max_tokens, likes=likes
        )
        found = await recalls.recall(wanted)
        memory.note_uses(self._given, owner, [one.row for one in found.items])
        data = recall_schema.RecallData(
            text=found.text,
            items=tuple(map(self._recalled, found.items)),
            tokens=found.tokens,
            left_out=found.left_out,
        )
        return reply.success(request, data, degraded=found.degraded)

    def _recalled(self, one: context.Item) -> recall_schema.RecalledItem:
        return recall_schema.RecalledItem(
            id=item.public(one.row),
            kind=one.row.kind,
            memory_type=store_memory.type_of(one.row.kind, one.row.memory_type),
            path=one.row.memory_path,
            subject=one.subject,
            timestamp=self._iso(one.at_us),
            score=one.score,
            form=one.form,
            tokens=one.tokens,
        )

    # -- explain ---------------------------------------------------------------------------------------------------

    async def explain(self, request: reply.Request) -> reply.Response:
        """Answer POST memory/explain."""
        await self._later.load()
        from everosd.lifecycle import versions  # noqa: PLC0415  # see `_LATER`

        reply.called(request, "memory/explain")
        asked = requests.decode(EXPLAIN, await reply.body(request))
        owner, entry_id = await self._memories.target(asked, asked.memory_id)
        await self._given.cascade.until_shown(owner)
        reader = self._given.reader
        row, record = await reader.find(owner, entry_id), await lifecycle.find(reader, owner, entry_id)
        if row is None or record is None:
            message = "there is no such entry in this scope"
            raise errors.NotFound(message)
        entry = item.parsed(row)
        told = await lifecycle.rows(reader, owner, target=entry_id, limit=N_CHANGES)
        facts = (
            await reader.children(owner, (entry_id, item.public(row)), "atomic_fact") if row.kind == "episode" else []
        )
        now_us = self._given.now_us()
        corrections = await reader.corrections(owner, [row.key, *(fact.key for fact in facts)], now_us)
        found, degraded = (None, ()) if asked.query is None else await self._found(asked.query, row)
        maker = self._maker()
        filed = store_memory.filing(entry.fields)
        status = maker.status(row)
        successor = row.deprecated_by or record.successor
        reason = record.reason
        if status == "expired" and row.status == "active":
            reason = "expires_at has come"
        elif status == "deprecated":
            reason = "replaced by its successor"
        data = recall_schema.ExplainData(
            id=item.public(row),
            entry_id=entry_id,
            kind=row.kind,
            memory_type=record.memory_type,
            path=row.memory_path,
            bucket=filed.bucket,
            scope=filed.scope,
            team_id=filed.team_id,
            semantic_key=filed.semantic_key,
            status=status,
            reason=reason,
            since=None if record.status_since_us is None else self._iso(record.status_since_us),
            successor=types.public_id(owner.id, successor) if successor else None,
            subject=view.title(entry),
            content=item.content_of(entry, view.view(entry)),
            timestamp=self._iso(row.timestamp_us),
            updated_at=None if record.updated_us == record.created_us else self._iso(record.updated_us),
            expires_at=None if row.expires_us is None else self._iso(row.expires_us),
            confidence=record.confidence,
            importance=self._importance(record, status, told, now_us),
            version=await versions.number(reader, owner, entry),
            sources=lineage.sources(owner.id, entry.fields.get("sources", "")),
            occurred_from=entry.fields.get("occurred_from", ""),
            occurred_to=entry.fields.get("occurred_to", ""),
            provenance=entry.fields.get("provenance", ""),
            parent_type=row.parent_type,
            parent_id=row.parent_id,
            session_id=row.session_id or None,
            facts=tuple(map(item.public, facts)),
            corrects=_corrects(owner, [entry, *map(item.parsed, facts)]),
            corrected_by=await self._correcting(row, facts, corrections),
            changes=tuple(self._memories.changed(owner, one) for one in told if one.fields.get("action") != "decay"),
            file=row.path,
            line=row.line,
            found=found,
        )
        return reply.success(request, data, degraded=degraded)

    def _importance(
        self, record: lifecycle.Record, status: str, told: Sequence[log_entry.Entry], now_us: int
    ) -> recall_schema.ImportanceItem:
        from everosd.lifecycle import age, archive, decay, policy  # noqa: PLC0415  # see `explain`

        policies = policy.of(self._in_force())
        is_governed = record.kind in policies.kinds
        following = decay.due_at(record, policies, now_us) if is_governed and status == "active" else None
        archive_us = archive.due_at(record, status, record.status_since_us, policies) if is_governed else None
        sank = [
            one
            for one in told
            if one.fields.get("action") == "decay" and one.fields.get("base", "") == record.own_importance
        ]
        return recall_schema.ImportanceItem(
            value=record.importance,
            written=record.own_importance,
            is_pinned=record.is_pinned,
            last_activity=self._iso(age.last_us(record)),
            last_used=None if record.accessed_us is None else self._iso(record.accessed_us),
            n_uses=record.n_uses,
            decays=tuple(map(self._decay, sank)),
            next_decay=None if following is None else self._iso_or_none(following[0]),
            next_value=None if following is None else following[1],
            next_archive=self._iso_or_none(archive_us),
        )

    def _decay(self, one: log_entry.Entry) -> recall_schema.DecayItem:
        fields = one.fields
        at_us = view.moment_us(fields.get("timestamp", ""), dt.UTC)
        names = ("action", "field", "was", "value", "reason", "run_id")
        return recall_schema.DecayItem(
            at="" if at_us is None else self._iso(at_us), **{name: fields.get(name, "") for name in names}
        )

    async def _found(self, text: str, row: store_row.EntryRow) -> tuple[recall_schema.FoundItem, tuple[str, ...]]:
        """Return what a question makes of an entry, and why that may be less than what was asked for."""
        asked = query.Query(
            owner=row.owner, text=text, statuses=STATUSES, entry_ids=(row.entry_id,), explains=True, kinds=(row.kind,)
        )
        alone = await self._given.search.run(asked)
        hit = next((one for one in alone.episodes if one.row.key == row.key), None)
        listed = await self._given.search.run(query.Query(owner=row.owner, text=text))
        keys = [one.row.key for one in listed.episodes]
        place = keys.index(row.key) + 1 if row.key in keys else None
        status = self._maker().status(row)
        if hit is None:
            reason = "no word of the question stands in it, and it means nothing near it"
        elif status != "active":
            reason = f"it is {status}: only a search that names this status finds it"
        elif place is None:
            reason = f"the first {query.MAX_TOP_K} all score more"
        else:
            reason = f"in place {place} of {len(keys)}"
        shown = None if hit is None else self._maker().found_episode(hit)
        found = recall_schema.FoundItem(
            query=text,
            is_found=place is not None,
            place=place,
            score=None if hit is None else hit.score,
            reason=reason,
            explain=None if shown is None or not isinstance(shown.explain, schema.Explanation) else shown.explain,
        )
        return found, tuple(dict.fromkeys((*alone.degraded, *listed.degraded)))

    async def _correcting(
        self, row: store_row.EntryRow, facts: Sequence[store_row.EntryRow], found: Sequence[correction.Correction]
    ) -> tuple[str, ...]:
        own = {row.key, *(fact.key for fact in facts)}
        by = [one.by for one in found if one.target in own and one.by not in own]
        return tuple(item.public(each) for each in await self._given.reader.rows(list(dict.fromkeys(by))))

    # -- stats -----------------------------------------------------------------------------------------------------

    async def stats(self, request: reply.Request) -> reply.Response:
        """Answer GET memory/stats."""
        await self._later.load()
        from everosd.lifecycle import policy  # noqa: PLC0415  # see `explain`

        reply.called(request, "memory/stats")
        asked = requests.decode_query(request.query_params.multi_items(), recall_schema.StatsQuery)
        owner = await scope.owner_or_only_user(asked, self._given.reader)
        reader, now_us = self._given.reader, self._given.now_us()
        counts = await lifecycle.counts(reader, owner, now_us)
        figures = await lifecycle.figures(reader, owner, policy.rules(policy.of(self._in_force())), now_us)
        _, n_over = await lifecycle.n_active(reader, owner, "memory", now_us)
        n_episodes, n_over_episodes = await lifecycle.n_active(reader, owner, "episode", now_us)
        data = recall_schema.StatsData(
            total=counts.total,
            statuses=_ranked(counts.statuses),
            types=_ranked(counts.types),
            paths=_ranked(counts.paths, N_PATHS),
            n_paths=len(counts.paths),
            buckets=_ranked(counts.buckets, N_PATHS),
            used=figures.used,
            never_used=figures.total - figures.used,
            pinned=figures.pinned,
            next_expiry=self._iso_or_none(figures.next_expiry_us),
            next_decay=self._iso_or_none(figures.next_decay_us),
            next_archive=self._iso_or_none(figures.next_archive_us),
            due={"expire": n_over, "decay": figures.n_decay, "archive": figures.n_archive},
            episodes=n_episodes - n_over_episodes,
        )
        return reply.success(request, data)

    def _maker(self) -> item.Maker:
        return item.Maker(zone=self._zone, now_us=self._given.now_us(), has_status=True)

    def _in_force(self) -> config.Config:
        return self._given.config if self._given.in_force is None else self._given.in_force()

    def _iso(self, us: int) -> str:
        return moment.iso(us, self._zone)

    def _iso_or_none(self, us: int | None) -> str | None:
        """Return a moment to come; None: there is none, or only after the end of the calendar."""
        return None if us is None or us > clock.LAST_US else self._iso(us)


def _corrects(owner: types.Owner, entries: Sequence[log_entry.Entry]) -> tuple[str, ...]:
    """Return the public ids of what these entries contradict."""
    named = [
        each for one in entries for each in correction.targets(one.id, owner.id, one.fields.get(correction.FIELD, ""))
    ]
    return tuple(types.public_id(owner.id, each) for each in dict.fromkeys(named))


def _ranked(counted: Mapping[str, int], most: int | None = None) -> dict[str, int]:
    return dict(sorted(counted.items(), key=lambda one: (-one[1], one[0]))[:most])
