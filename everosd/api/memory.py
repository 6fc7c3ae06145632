"""POST memory/search, POST memory/get and GET entries/{id}."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from everosd import errors, types
from everosd.api import item, lineage, reply, schema, scope, services
from everosd.api import request as requests
from everosd.index import where
from everosd.log import layout, view
from everosd.search import filter as filters
from everosd.search import query
from everosd.store import row as store_row

OwnerTypes = dict[schema.GetMemoryType, types.OwnerType]

OWNER_OF: OwnerTypes = {"episode": "user", "profile": "user", "agent_case": "agent", "agent_skill": "agent"}
"""Which owner each kind of memory/get goes with."""

DATED: dict[types.OwnerType, tuple[str, ...]] = {"user": ("episode", "memory"), "agent": ("agent_case", "memory")}
"""Kinds of which a timeline is made, of each type of owner: what says when it was."""

N_USED = 10
"""Hits of an answer that count as used, the best ones."""
MAX_TOP_K = query.MAX_TOP_K
EVERYTHING = -1
"""`top_k` for as many as there may be; `search.query` reads it so."""

INLINE_CHARS = 500_000
"""Entries with more text than this together are taken apart and encoded beside the event loop, not on it."""

MAX_OFFSET = 2**62
"""SQLite's integers end there; a page beyond is as empty as one just past the end."""

ActiveOnly: tuple[schema.Status, ...] = ("active",)
BuiltT = TypeVar("BuiltT")


class Memory:
    """Handlers of the memory routes."""

    def __init__(self, given: services.Services) -> None:
        """Answer from `given`."""
        self._given = given
        self._zone = given.config.memory.zone

    async def search(self, request: reply.Request) -> reply.Response:
        """Answer POST memory/search."""
        reply.called(request, "memory/search")
        asked = requests.decode(requests.SEARCH, await reply.body(request))
        _check_top_k(asked.top_k)
        statuses = _statuses(asked.include_status)
        wanted = self._wanted(asked)
        owner = await scope.owner_or_only_user(asked, self._given.reader)
        self._given.search.note_recall(owner)
        await self._given.cascade.until_shown(owner)
        answer = await self._given.search.run(
            query.Query(
                owner=owner,
                text=asked.query,
                method=asked.method,
                top_k=asked.top_k,
                radius=asked.radius,
                min_score=asked.min_score,
                filter=wanted,
                likes=filed(asked),
                statuses=statuses,
                include_profile=asked.include_profile,
                explains=asked.explain,
            )
        )
        note_uses(self._given, owner, [hit.row for hit in answer.episodes])
        maker = self._maker(has_status=asked.include_status is not None)
        messages = await self._unprocessed(asked, owner, maker)
        size = INLINE_CHARS + 1 if asked.explain else _n_chars(answer)  # explaining takes every text apart
        data = await _beside_loop(lambda: _found(maker, answer, messages), size)
        return reply.success(request, data, degraded=answer.degraded)

    async def get(self, request: reply.Request) -> reply.Response:
        """Answer POST memory/get."""
        reply.called(request, "memory/get")
        asked = requests.decode(requests.GET, await reply.body(request))
        owner = _owner_for(asked)
        self._given.search.note_recall(owner)
        await self._given.cascade.until_shown(owner)
        rows, total = await self._given.reader.page(
            owner,
            asked.memory_type,
            where=filters.to_sql(self._wanted(asked)),
            statuses=_statuses(asked.include_status),
            now_us=self._given.now_us(),
            sort_by=asked.sort_by,
            descending=asked.sort_order == "desc",
            limit=asked.page_size,
            offset=min((asked.page - 1) * asked.page_size, MAX_OFFSET),
        )
        maker = self._maker(has_status=asked.include_status is not None)
        size = sum(len(row.raw) for row in rows)
        data = await _beside_loop(lambda: _page(maker, asked.memory_type, rows, total), size)
        return reply.success(request, data)

    async def timeline(self, request: reply.Request) -> reply.Response:
        """Answer GET memory/timeline."""
        reply.called(request, "memory/timeline")
        asked = requests.decode_query(request.query_params.multi_items(), schema.TimelineQuery)
        ends = [("e.timestamp_us >= ?", asked.since, "since"), ("e.timestamp_us < ?", asked.until, "until")]
        given = [(said, self._moment_us(text, name)) for said, text, name in ends if text is not None]
        owner = await scope.owner_or_only_user(asked, self._given.reader)
        self._given.search.note_recall(owner)
        await self._given.cascade.until_shown(owner)
        rows, total = await self._given.reader.page(
            owner,
            DATED[owner.type],
            where=(" AND ".join(said for said, _ in given), [us for _, us in given]),
            now_us=self._given.now_us(),
            descending=asked.order == "desc",
            limit=asked.limit,
            offset=asked.offset,
        )
        maker = self._maker(has_status=False)
        items = await _beside_loop(lambda: tuple(map(maker.dated, rows)), sum(len(row.raw) for row in rows))
        return reply.success(request, schema.TimelineData(items=items, total_count=total))

    def _moment_us(self, text: str, name: str) -> int:
        found = view.moment_us(text, self._zone)
        if found is None:
            message = "expected ISO 8601, as 2026-12-31 or 2026-12-31T18:00:00Z, or milliseconds since 1970"
            raise errors.RequestError(message, field=name)
        return found

    async def entry(self, request: reply.Request) -> reply.Response:
        """Answer GET entries/{id}."""
        reply.called(request, "entries")
        asked = requests.decode_query(request.query_params.multi_items(), schema.EntryQuery)
        public_id = str(request.path_params["entry_id"]).removeprefix("/")
        for owner in lineage.owners(asked, public_id):
            await self._given.cascade.until_shown(owner)
        row = await lineage.find(self._given.reader, asked, public_id)
        if row is None:
            message = "there is no such entry in this scope"
            raise errors.NotFound(message)
        data = await lineage.entry(self._given.reader, self._maker(has_status=True), row)
        return reply.success(request, data)

    def _wanted(self, asked: schema.SearchRequest | schema.GetRequest) -> where.Clause:
        return where.All() if asked.filters is None else filters.parse(asked.filters, timezone=self._zone)

    def _maker(self, *, has_status: bool) -> item.Maker:
        return item.Maker(zone=self._zone, now_us=self._given.now_us(), has_status=has_status)

    async def _unprocessed(
        self, asked: schema.SearchRequest, owner: types.Owner, maker: item.Maker
    ) -> tuple[schema.UnprocessedMessageDTO, ...]:
        """Return the messages not yet extracted of the session that the filter names as a plain value, if it does."""
        session_id = (asked.filters or {}).get("session_id")
        if not isinstance(session_id, str):
            return ()
        where = types.Owner(app=owner.app, project=owner.project, type="session", id=types.nfc(session_id))
        intake = self._given.intake
        kept = None if intake is None else await intake.unprocessed(where)
        if kept is not None and (not kept or any(lineage.is_from(one.sender_id, one.role, owner) for one in kept)):
            return lineage.waiting(maker, where, kept)  # what was added a moment ago is not in the ledger yet
        rows = await self._given.reader.messages(where.app, where.project, where.id)
        if kept is not None and lineage.took_part(rows, owner):
            return lineage.waiting(maker, where, kept)
        return lineage.unprocessed(maker, rows, owner)


class Filed(Protocol):
    """A request that may be about what is filed under something."""

    @property
    def memory_type(self) -> str: ...  # noqa: D102  # as on the wire
    @property
    def path_filter(self) -> str: ...  # noqa: D102  # as on the wire
    @property
    def bucket(self) -> str: ...  # noqa: D102  # as on the wire
    @property
    def scope(self) -> str | None: ...  # noqa: D102  # as on the wire
    @property
    def team_id(self) -> str | None: ...  # noqa: D102  # as on the wire


def filed(asked: Filed) -> tuple[where.Like, ...]:
    """Return what a request restricts a search to.

    Raises:
        errors.RequestError: a pattern is no text, or there is no such type.
    """
    given = {
        "memory_type": of_type(asked.memory_type),
        "path_filter": asked.path_filter,
        "bucket": asked.bucket,
        "scope": asked.scope,
        "team_id": asked.team_id,
        "semantic_key": getattr(asked, "semantic_key", None),
    }
    patterns = {name: None if text is None else _pattern(text, name) for name, text in given.items()}
    return where.likes(memory_path=patterns.pop("path_filter"), **patterns)


def of_type(pattern: str) -> str:
    """Return a pattern that fits a type of memory; an empty one and `%` fit all.

    Raises:
        errors.RequestError: there is none that it fits: what is misspelt is said, and not answered as if nothing was known.
    """
    if pattern and not any(map(where.fitting(pattern), layout.MEMORY_TYPES)):
        message = f"there is no type {pattern[:60]!r}; there are {', '.join(layout.MEMORY_TYPES)}"
        raise errors.RequestError(message, field="memory_type")
    return pattern


def note_uses(given: services.Services, owner: types.Owner, rows: Sequence[store_row.EntryRow]) -> None:
    """Take note that an answer had these entries in it: the first of them, as far as they are in force."""
    if given.usage is None:
        return
    now = given.config if given.in_force is None else given.in_force()
    kinds = ("memory", "episode") if now.lifecycle.episodes else ("memory",)
    used = [row.entry_id for row in rows[:N_USED] if row.kind in kinds and row.status == "active"]
    if used:
        given.usage.note(owner, used, given.now_us())


def _pattern(text: str, name: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        message = "half a surrogate pair is no text"
        raise errors.RequestError(message, field=name) from None
    return types.nfc(text)


def _check_top_k(asked: int) -> None:
    if asked != EVERYTHING and not 1 <= asked <= MAX_TOP_K:
        message = f"expected -1 or 1..{MAX_TOP_K}"
        raise errors.RequestError(message, field="top_k")


def _statuses(asked: tuple[schema.Status, ...] | None) -> tuple[schema.Status, ...]:
    """Return the statuses to look among, each once."""
    if asked is None:
        return ActiveOnly
    if not asked:
        message = "name at least one status"
        raise errors.RequestError(message, field="include_status")
    return tuple(dict.fromkeys(asked))


def _owner_for(asked: schema.GetRequest) -> types.Owner:
    """Return the owner of memory/get, who has to be named and of the type that the kind goes with."""
    owner = scope.named_owner(asked)
    wanted = OWNER_OF[asked.memory_type]
    if owner is None or owner.type != wanted:
        message = f"memory_type {asked.memory_type} goes with {wanted}_id"
        raise errors.RequestError(message, field=f"{wanted}_id")
    return owner


def _found(
    maker: item.Maker, answer: query.Answer, messages: tuple[schema.UnprocessedMessageDTO, ...]
) -> schema.SearchData:
    return schema.SearchData(
        episodes=tuple(maker.found_episode(hit) for hit in answer.episodes),
        profiles=tuple(maker.found_profile(hit) for hit in answer.profiles),
        agent_cases=tuple(maker.found_agent_case(hit) for hit in answer.agent_cases),
        agent_skills=tuple(maker.found_agent_skill(hit) for hit in answer.agent_skills),
        unprocessed_messages=messages,
    )


def _page(
    maker: item.Maker, kind: schema.GetMemoryType, rows: Sequence[store_row.EntryRow], total: int
) -> schema.GetData:
    if kind == "episode":
        return schema.GetData(episodes=tuple(map(maker.got_episode, rows)), total_count=total, count=len(rows))
    if kind == "profile":
        return schema.GetData(profiles=tuple(map(maker.got_profile, rows)), total_count=total, count=len(rows))
    if kind == "agent_case":
        return schema.GetData(agent_cases=tuple(map(maker.got_agent_case, rows)), total_count=total, count=len(rows))
    return schema.GetData(agent_skills=tuple(map(maker.got_agent_skill, rows)), total_count=total, count=len(rows))


def _n_chars(answer: query.Answer) -> int:
    groups = (answer.episodes, answer.profiles, answer.agent_cases, answer.agent_skills)
    return sum(len(hit.row.raw) for hits in groups for hit in hits)


async def _beside_loop(build: Callable[[], BuiltT], n_chars: int) -> BuiltT:
    """Build an answer; in a thread where that would hold the event loop up."""
    return await asyncio.to_thread(build) if n_chars > INLINE_CHARS else build()
