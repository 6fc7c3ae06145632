"""A query and its answer."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from everosd import clock, errors, types
from everosd.index import contract, text, token, where
from everosd.search import rank
from everosd.store import row as store_row

Method = Literal["keyword", "vector", "hybrid", "agentic", "llm_multiround"]

MAX_TOP_K = 100
"""Also what `top_k` -1 means."""

EPISODE_KINDS = ("episode", "memory")
FACT_KINDS = ("atomic_fact",)
KINDS_OF: dict[types.OwnerType, tuple[str, ...]] = {
    "user": EPISODE_KINDS,
    "agent": ("agent_case", "agent_skill"),
    "session": (),
}
"""What is searched for each type of owner: users never get an agent's memory and the reverse."""

NO_VECTORS = "vectors are not available: answered by keyword"

_SPARE = 10  # hits beyond top_k, for entries that went away between index and ledger
_FACTS_PER_HIT = 4
_MIN_FACTS, _MAX_FACTS = 40, 200
_FACTS_SHOWN = 10  # facts nested under one Episode
_THREADS = 2  # as many as there are cores on a small machine; Tantivy answers in tenths of a millisecond


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """What to look for, and within which bounds."""

    owner: types.Owner
    text: str
    """Any text; blank finds nothing."""
    method: Method = "hybrid"
    top_k: int = -1
    """1..100; -1 means 100. Each array of the answer is cut there."""
    radius: float | None = None
    """Least score, in [0, 1]; None means no bound. With vectors: least similarity."""
    min_score: float | None = None
    """Least score, in [0, 1]; None means no bound."""
    filter: where.Clause = where.All()
    statuses: tuple[str, ...] = ("active",)
    include_profile: bool = False
    kinds: tuple[str, ...] | None = None
    """Names of kinds to look among; None means those of the owner's type."""


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """One entry found."""

    row: store_row.EntryRow
    score: float
    """In [0, 1], comparable between queries. None is known of a profile: 0."""
    facts: tuple[Hit, ...] = ()
    """The atomic facts of this Episode that matched, best first; only where the method is hybrid."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What was found, each array best first."""

    episodes: tuple[Hit, ...] = ()
    """Episodes and typed memories."""
    profiles: tuple[Hit, ...] = ()
    agent_cases: tuple[Hit, ...] = ()
    agent_skills: tuple[Hit, ...] = ()
    degraded: tuple[str, ...] = ()
    """Why the answer is less than what was asked for; empty: it is not."""


class Rows(Protocol):
    """What a search needs of the ledger."""

    async def rows(self, keys: Sequence[int]) -> list[store_row.EntryRow]:
        """Return the live entries with these keys, in the order asked for; keys that are gone are left out."""

    async def page(
        self,
        owner: types.Owner,
        kind: str,
        *,
        where: tuple[str, Sequence[object]] = ("", ()),
        statuses: Sequence[str] = ("active",),
        now_us: int,
        sort_by: str = "timestamp",
        descending: bool = True,
        limit: int,
        offset: int = 0,
    ) -> tuple[list[store_row.EntryRow], int]:
        """Return one page of an owner's live entries of a kind, and how many there are in all."""


class Texts(Protocol):
    """Where the text index is found: a rebuild puts another in its place while searches go on."""

    @property
    def index(self) -> text.TextIndex:
        """The index that answers now; asked anew for every search."""

    def suspect(self) -> None:
        """Have the index's files looked at: a search in it failed."""

    def lack(self) -> str:
        """Say what a search may miss just now; empty: nothing."""


class Search:
    """Answers queries; any number at once, from the event loop."""

    def __init__(self, reader: Rows, texts: Texts, time: clock.Clock) -> None:
        """Look in the text index and read what was found from the ledger."""
        self._reader = reader
        self._texts = texts
        self._clock = time
        self._threads = concurrent.futures.ThreadPoolExecutor(_THREADS, thread_name_prefix="search")

    async def run(self, query: Query) -> Answer:
        """Answer a query.

        Raises:
            errors.DerivedIndexError, errors.IndexUnavailable: the index cannot be searched; it is being looked after.
            errors.StoreError: the ledger cannot be read.
        """
        now_us = clock.to_us(self._clock.now())
        loop = asyncio.get_running_loop()
        lacks = [NO_VECTORS] if query.method != "keyword" else []
        if lack := self._texts.lack():
            lacks.append(lack)
        try:
            found = await loop.run_in_executor(self._threads, _look, self._texts.index, query, now_us)
        except (errors.DerivedIndexError, errors.IndexUnavailable):
            self._texts.suspect()
            raise
        hits = await self._read(query, found, now_us)
        profiles: tuple[Hit, ...] = ()
        if query.include_profile and query.owner.type == "user":
            page, _ = await self._reader.page(query.owner, "profile", statuses=query.statuses, now_us=now_us, limit=1)
            profiles = tuple(Hit(row=one, score=0.0) for one in page)
        return Answer(
            episodes=_of_kinds(hits, EPISODE_KINDS, query),
            profiles=profiles,
            agent_cases=_of_kinds(hits, ("agent_case",), query),
            agent_skills=_of_kinds(hits, ("agent_skill",), query),
            degraded=tuple(lacks),
        )

    async def _read(self, query: Query, found: _Found, now_us: int) -> list[Hit]:
        """Read what was found; what the ledger has changed since the index saw it is judged by the ledger."""
        keys = [one.key for one in found.ranked] + [fact.key for facts in found.facts.values() for fact in facts]
        if not keys:
            return []
        read = {one.key: one for one in await self._reader.rows(keys) if _is_within(one, query, now_us)}
        return [
            Hit(
                row=read[one.key],
                score=one.score,
                facts=tuple(
                    Hit(row=read[fact.key], score=fact.score)
                    for fact in found.facts.get(one.link, ())
                    if fact.key in read
                ),
            )
            for one in found.ranked
            if one.key in read
        ]

    def close(self) -> None:
        """Release the threads; searches under way end first."""
        self._threads.shutdown()


class _Found(msgspec.Struct, frozen=True, kw_only=True):
    """Keys with scores, before the ledger is asked."""

    ranked: list[rank.Ranked]
    facts: dict[int, list[contract.Hit]]
    """Facts to nest, by the link of their Episode."""


def _look(index: text.TextIndex, query: Query, now_us: int) -> _Found:
    """Search the index; blocking, about half a millisecond at 10,000 entries."""
    terms = token.query_terms(query.text)
    kinds = KINDS_OF[query.owner.type] if query.kinds is None else query.kinds
    threshold = max(query.min_score or 0.0, query.radius or 0.0)
    top_k = _top_k(query)
    if not terms or not kinds:
        return _Found(ranked=[], facts={})

    def bounds(kinds: tuple[str, ...], clause: where.Clause) -> where.Where:
        return where.Where(owner=query.owner, kinds=kinds, statuses=query.statuses, now_us=now_us, clause=clause)

    with_facts = tuple(kind for kind in kinds if kind in EPISODE_KINDS)
    alone = tuple(kind for kind in kinds if kind not in EPISODE_KINDS)
    ranked: list[rank.Ranked] = []
    facts: list[contract.Hit] = []
    if with_facts:
        own = bounds(with_facts, query.filter)
        n_facts = min(_MAX_FACTS, max(_MIN_FACTS, _FACTS_PER_HIT * top_k))
        # The filter speaks of Episodes (their parent is a conversation, a fact's is its Episode): it is applied to the
        # Episodes that the facts belong to, not to the facts.
        facts = index.search(terms, bounds(FACT_KINDS, where.All()), n_facts)
        best = rank.parents(facts)
        hits = {hit.key: hit for hit in index.search(terms, own, top_k + _SPARE)}
        known = {hit.own_link for hit in hits.values()}
        hits |= {hit.key: hit for hit in index.score(terms, own, [one for one in best if one not in known])}
        ranked += rank.cut(rank.lifted(hits.values(), best), threshold)[: top_k + _SPARE]
    for kind in alone:
        ranked += rank.cut(rank.plain(index.search(terms, bounds((kind,), query.filter), top_k + _SPARE)), threshold)
    return _Found(ranked=ranked, facts=_nested(facts, ranked[:top_k]) if query.method == "hybrid" else {})


def _nested(facts: list[contract.Hit], ranked: list[rank.Ranked]) -> dict[int, list[contract.Hit]]:
    wanted = {one.link for one in ranked}
    nested: dict[int, list[contract.Hit]] = {}
    for fact in facts:
        if fact.parent_link in wanted and len(nested.setdefault(fact.parent_link, [])) < _FACTS_SHOWN:
            nested[fact.parent_link].append(fact)
    return nested


def _is_within(found: store_row.EntryRow, query: Query, now_us: int) -> bool:
    """Return whether the ledger, too, says that the entry may be shown."""
    is_over = found.status == "active" and found.expires_us is not None and found.expires_us <= now_us
    return found.owner == query.owner and ("expired" if is_over else found.status) in query.statuses


def _of_kinds(hits: list[Hit], kinds: tuple[str, ...], query: Query) -> tuple[Hit, ...]:
    return tuple([hit for hit in hits if hit.row.kind in kinds][: _top_k(query)])


def _top_k(query: Query) -> int:
    return MAX_TOP_K if query.top_k < 0 else min(query.top_k, MAX_TOP_K)
