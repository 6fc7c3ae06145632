"""A query and its answer."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeVar

import msgspec

from everosd import clock, errors, types
from everosd.index import contract, text, token, where
from everosd.log import entry_text
from everosd.search import correction, fuse, look, period
from everosd.search import filter as conditions
from everosd.store import correction as store_correction
from everosd.store import memory
from everosd.store import row as store_row

if TYPE_CHECKING:
    from everosd.index import vector
    from everosd.models import embed

T = TypeVar("T")

Method = Literal["keyword", "vector", "hybrid", "agentic", "llm_multiround"]

MAX_TOP_K = 100
"""Also what `top_k` -1 means."""

KINDS_OF: dict[types.OwnerType, tuple[str, ...]] = {
    "user": look.ENTRY_KINDS,
    "agent": ("memory", "agent_case", "agent_skill"),
    "session": (),
}
"""What is searched for each type of owner: users never get an agent's memory and the reverse, though both have typed ones."""

QUERY_TIMEOUT_S = 2.0
"""How long a hybrid search waits for the vector of its query, unless told otherwise."""

_ANY_TERM = (token.Term(text="memory", weight=1.0),)  # the index weighs something always; an entry need not have it

BY_KEYWORD = "answered by keyword"
OPENING = "the model", "being opened"
INDEX_OPENING = "the vector index", "being opened"
EXCHANGED = "the model", "exchanged in the middle of a search"

_QUOTED_FOR_S = 86_400.0
_N_RECALLED = 10_000
_THREADS = 2  # for each index: as many as there are cores on a small machine; both answer in tenths of a millisecond


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """What to look for, and within which bounds."""

    owner: types.Owner
    text: str
    """Any text; blank finds nothing."""
    method: Method = "hybrid"
    top_k: int = -1
    """1..100; -1 means 100. Each array of the answer is cut there."""
    radius: float | None = None
    """Least similarity, in [0, 1]; by keyword, which knows of none, the least score. None means no bound."""
    min_score: float | None = None
    """Least score, in [0, 1]; None means no bound."""
    filter: where.Clause = where.All()
    statuses: tuple[str, ...] = ("active",)
    include_profile: bool = False
    likes: tuple[where.Like, ...] = ()
    """What entries are filed under; bounds act before ranking."""
    entry_ids: tuple[str, ...] = ()
    """Only these entries of the owner; they score what they do among all. Empty: any."""
    kinds: tuple[str, ...] | None = None
    """Names of kinds to look among; None means those of the owner's type."""
    explains: bool = False
    """Hits carry what their score is made of."""
    n_facts: int = look.FACTS_IN_ALL
    """Facts below all Episodes together, beside the best of each; at least 1."""


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """One entry found."""

    row: store_row.EntryRow
    score: float
    """In [0, 1], comparable between queries. None is known of a profile: 0."""
    facts: tuple[Hit, ...] = ()
    """The atomic facts of this Episode that matched, best first, as far as they are among the best of the answer; only where
    the method is hybrid."""
    why: Why | None = None
    """What the score is made of; only where that was asked for."""


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """What a score is made of."""

    question: str
    """What was looked for by words; empty where words were not asked."""
    own: fuse.Evidence
    dated: float
    """How well the entry's moment fits what the query says of when."""
    importance: float | None = None
    """What moved the score last; None: the entry has none."""
    fact: fuse.Evidence | None = None
    """The best fact of the entry, which lifts its score; None: none matched."""
    fact_row: store_row.EntryRow | None = None
    """The fact itself; None also where it went away meanwhile."""
    corrects: store_row.EntryRow | None = None
    """What the entry corrects, and has its score from: that of the entry with the fact that is corrected. None: it has its
    own."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What was found, each array best first."""

    episodes: tuple[Hit, ...] = ()
    """Episodes and typed memories."""
    profiles: tuple[Hit, ...] = ()
    agent_cases: tuple[Hit, ...] = ()
    agent_skills: tuple[Hit, ...] = ()
    facts: tuple[Hit, ...] = ()
    """Atomic facts by themselves; only where `kinds` names them."""
    degraded: tuple[str, ...] = ()
    """Why the answer is less than what was asked for; empty: it is not."""


class Rows(Protocol):
    """What a search needs of the ledger."""

    async def rows(self, keys: Sequence[int]) -> list[store_row.EntryRow]:
        """Return the live entries with these keys, in the order asked for; keys that are gone are left out."""

    async def orphans(self, keys: Sequence[int], now_us: int) -> set[types.EntryKey]:
        """Return which of these keys are facts of an Episode that no file has any more, or that is past its `expires_at`."""

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

    async def corrections(
        self, owner: types.Owner, keys: Sequence[int], now_us: int
    ) -> tuple[store_correction.Correction, ...]:
        """Return what corrects these entries of an owner, and what corrects that in turn."""


class Texts(Protocol):
    """Where the text index is found: a rebuild puts another in its place while searches go on."""

    @property
    def index(self) -> text.TextIndex:
        """The index that answers now; asked anew for every search."""

    def suspect(self) -> None:
        """Have the index's files looked at: a search in it failed."""

    def lack(self) -> str:
        """Say what a search may miss just now; empty: nothing."""


class Vectors(Protocol):
    """Where the vector index is found."""

    @property
    def index(self) -> vector.VectorIndex:
        """The index that answers now; asked anew for every search. Raises where there is none yet."""

    def suspect(self) -> None:
        """Have the index's files looked at: a search in it failed."""

    def lack(self) -> str:
        """Say what a search may miss just now; empty: nothing."""


class Queries(Protocol):
    """What turns a query into its vector."""

    @property
    def is_set_up(self) -> bool:
        """Whether there is a model at all."""

    async def vector(self, text: str, *, patience_s: float | None = None) -> embed.Vectors:
        """Return `(dim,)`; waits `patience_s` at most, None: as long as a query is waited for at all."""


class Search:
    """Answers queries; any number at once, from the event loop."""

    def __init__(
        self,
        reader: Rows,
        texts: Texts,
        time: clock.Clock,
        vectors: Vectors | None = None,
        queries: Queries | None = None,
        query_timeout_s: float = QUERY_TIMEOUT_S,
    ) -> None:
        """Look in the indexes and read what was found from the ledger; without `vectors` by words alone.

        `queries` and `query_timeout_s` may be set anew at any time; None: the model is not open yet.
        """
        self._reader = reader
        self._texts = texts
        self._vectors = vectors
        self._clock = time
        self.queries = queries
        self.query_timeout_s = query_timeout_s
        self._recalled: dict[types.Owner, float] = {}
        """When each owner's memory was shown last, the oldest first."""
        self._words = concurrent.futures.ThreadPoolExecutor(_THREADS, thread_name_prefix="search-words")
        # Apart: while an owner's vectors are read from the disk, a second for 100,000 of them, nobody's words wait.
        self._nearness = concurrent.futures.ThreadPoolExecutor(_THREADS, thread_name_prefix="search-vectors")

    def note_recall(self, owner: types.Owner) -> None:
        """Take it that somebody outside was shown of an owner's memory, and may quote it from now on."""
        self._recalled.pop(owner, None)
        self._recalled[owner] = self._clock.monotonic_s()
        while len(self._recalled) > _N_RECALLED:
            del self._recalled[next(iter(self._recalled))]

    def was_recalled(self, owner: types.Owner) -> bool:
        """Tell whether that was so within a day, as far as this process knows."""
        at_s = self._recalled.get(owner)
        return at_s is not None and self._clock.monotonic_s() - at_s < _QUOTED_FOR_S

    async def run(self, query: Query) -> Answer:
        """Answer a query.

        Raises:
            errors.DerivedIndexError, errors.IndexUnavailable: the index cannot be searched; it is being looked after.
            errors.StoreError: the ledger cannot be read.
            errors.NoVectors, errors.LLMError, errors.ConfigError, errors.WrongWidth: the method is `vector`, and the
                query has no vector, or none that fits.
        """
        now_us = clock.to_us(self._clock.now())
        aim = _aim(query, now_us)
        lacks: list[str] = []
        if not aim.terms or not aim.kinds:
            found = look.Ranking()
        elif query.method == "keyword":
            found = await self._by_words(aim, lacks)
        elif query.method == "vector":
            found = await self._by_vector(query.text, aim, lacks)
        else:
            found = await self._by_both(query.text, aim, lacks)
        hits = await self._read(query, aim, found)
        profiles: tuple[Hit, ...] = ()
        if query.include_profile and query.owner.type == "user":
            page, _ = await self._reader.page(query.owner, "profile", statuses=query.statuses, now_us=now_us, limit=1)
            profiles = tuple(Hit(row=one, score=0.0) for one in page)
        return Answer(
            episodes=_of_kinds(hits, look.ENTRY_KINDS, aim.top_k),
            profiles=profiles,
            agent_cases=_of_kinds(hits, ("agent_case",), aim.top_k),
            agent_skills=_of_kinds(hits, ("agent_skill",), aim.top_k),
            facts=_of_kinds(hits, look.FACT_KINDS, aim.top_k),
            degraded=tuple(dict.fromkeys(filter(None, lacks))),
        )

    async def can_find(self, owner: types.Owner, kind: str, entry_id: str) -> bool:
        """Return whether a search by words can come upon a live entry.

        Raises:
            errors.DerivedIndexError, errors.IndexUnavailable: the index cannot be searched; it is being looked after.
        """
        bounds = where.Where(owner=owner, kinds=(kind,), now_us=clock.to_us(self._clock.now()))
        links = [contract.link(owner, entry_id)]
        words = look.Words(self._texts.index, _ANY_TERM)
        return bool(await self._in_thread(lambda: words.score(bounds, links)))

    async def _by_words(self, aim: look.Aim, lacks: list[str]) -> look.Ranking:
        lacks.append(self._texts.lack())
        words = look.Words(self._texts.index, aim.terms)
        return await self._in_thread(lambda: look.rank(aim, look.find(words, aim, is_alone=True), None))

    async def _by_vector(self, question: str, aim: look.Aim, lacks: list[str]) -> look.Ranking:
        if not self._texts.index.count() and not self._texts.lack():
            return look.Ranking()  # a fresh root: no model needs to be asked, and none to be there
        vector = await self._vector(question, None)
        lacks.append(self._vectors.lack() if self._vectors else "")
        return await self._in_vectors(vector, lambda near: look.rank(aim, None, look.find(near, aim, is_alone=True)))

    async def _by_both(self, question: str, aim: look.Aim, lacks: list[str]) -> look.Ranking:
        """Ask the text index while the vector of the query is on its way; without it, answer by words alone."""
        lacks.append(self._texts.lack())
        words = look.Words(self._texts.index, aim.terms)
        found, vector = await asyncio.gather(
            self._in_thread(lambda: look.find(words, aim, is_alone=False)),
            self._vector(question, self.query_timeout_s),
            return_exceptions=True,
        )
        if isinstance(found, BaseException):
            raise found
        if isinstance(vector, BaseException):
            return await self._without(vector, found, aim, lacks)
        lack = "" if self._vectors is None else self._vectors.lack()
        try:
            ranking = await self._in_vectors(
                vector, lambda near: look.rank(aim, found, look.find(near, aim, is_alone=False), nests_facts=True)
            )
        except _LACKING as error:
            return await self._without(error, found, aim, lacks)
        lacks.append(lack)
        return ranking

    async def _vector(self, question: str, patience_s: float | None) -> _Asked:
        """Return the vector of the query; nobody is asked where there is no index to look into."""
        vectors, queries = self._meaning()
        try:
            space = vectors.index.space
        except errors.DerivedIndexError:  # a model may be there before the index that its vectors are looked for in
            raise errors.LLMUnavailable(*INDEX_OPENING, retry_after_s=1.0) from None
        return _Asked(await queries.vector(question, patience_s=patience_s), space)

    async def _without(self, error: BaseException, words: look.Found, aim: look.Aim, lacks: list[str]) -> look.Ranking:
        """Answer by words alone and say why; an error that has nothing to do with vectors goes on."""
        if not isinstance(error, _LACKING) or _is_of_texts(error):
            raise error
        lacks.append(f"{error}: {BY_KEYWORD}")
        return await self._in_thread(lambda: look.rank(aim, words, None, nests_facts=True))

    def _meaning(self) -> tuple[Vectors, Queries]:
        if self._vectors is None or (self.queries is not None and not self.queries.is_set_up):
            raise errors.NoVectors
        if self.queries is None:
            raise errors.LLMUnavailable(*OPENING, retry_after_s=1.0)
        return self._vectors, self.queries

    async def _in_thread(self, job: Callable[[], T]) -> T:
        """Look in the indexes; one that fails is looked at."""
        try:
            return await _in(self._words, job)
        except (errors.DerivedIndexError, errors.IndexUnavailable) as error:
            self._suspect(error)
            raise

    async def _in_vectors(self, asked: _Asked, job: Callable[[look.Nearness], T]) -> T:
        """Look in the vector index, anew where another one has taken its place meanwhile: the old one is closed then.

        Raises:
            LLMUnavailable: the model was exchanged meanwhile: vectors of two were compared.
        """
        vectors, _ = self._meaning()
        index = vectors.index
        while True:
            near = look.Nearness(index, asked.vector)
            try:
                found = await _in(self._nearness, lambda near=near: job(near))  # type: ignore[misc]
            except (errors.DerivedIndexError, errors.IndexUnavailable) as error:
                before, index = index, vectors.index
                if index is before or _is_of_texts(error):
                    self._suspect(error)
                    raise
            else:
                if index.space != asked.space:
                    raise errors.LLMUnavailable(*EXCHANGED, retry_after_s=1.0)
                return found

    def _suspect(self, error: errors.DerivedIndexError | errors.IndexUnavailable) -> None:
        if _is_of_texts(error):
            self._texts.suspect()
        elif self._vectors is not None:
            self._vectors.suspect()

    async def _read(self, query: Query, aim: look.Aim, found: look.Ranking) -> list[Hit]:
        """Read what was found; what the ledger has changed since the index saw it is judged by the ledger."""
        keys = _keys(query, found, found.ranked)
        if not keys:
            return []
        rows, corrected = await asyncio.gather(self._rows(query, aim, keys), self._corrections(aim, found))
        found, is_more = _weighed(aim, found, rows)
        if is_more:  # importance may bring in what stands behind
            more = _keys(query, found, found.ranked)
            rows |= await self._rows(query, aim, [key for key in more if key not in rows])
            found, _ = _weighed(aim, found, rows)
            corrected = await self._corrections(aim, found)
        if corrected:
            found = await self._corrected(query, aim, found, corrected, rows)
        return [_hit(query, one, found, rows) for one in found.ranked if one.own.key in rows]

    async def _rows(self, query: Query, aim: look.Aim, keys: Iterable[int]) -> dict[types.EntryKey, store_row.EntryRow]:
        found = await self._reader.rows(list(dict.fromkeys(keys)))
        by_themselves = [one.key for one in found if one.kind in look.FACT_KINDS and one.kind in aim.kinds]
        # Facts go with their Episode, and come back with it; nested ones are not asked for without it.
        now_us = 0 if "expired" in query.statuses else aim.now_us
        gone = await self._reader.orphans(by_themselves, now_us) if by_themselves else set()
        return {one.key: one for one in found if one.key not in gone and _is_within(one, query, aim.now_us)}

    async def _corrections(self, aim: look.Aim, found: look.Ranking) -> tuple[store_correction.Correction, ...]:
        if not look.has_facts(aim):
            return ()
        return await self._reader.corrections(aim.owner, correction.keys(found), aim.now_us)

    async def _corrected(
        self,
        query: Query,
        aim: look.Aim,
        found: look.Ranking,
        corrected: Sequence[store_correction.Correction],
        rows: dict[types.EntryKey, store_row.EntryRow],
    ) -> look.Ranking:
        """Return the ranking with what corrects its entries; what that brings in is added to `rows`."""
        keys = {key for one in corrected for key in (one.by, one.entry, *([one.target] if query.explains else []))}
        rows |= await self._rows(query, aim, keys - rows.keys())

        def may_come_in(row: store_row.EntryRow) -> bool:
            if row.kind not in aim.kinds or aim.only:
                return False
            if row.kind in look.FACT_KINDS:
                return True
            return conditions.fits(aim.clause, row) and _is_filed(aim.likes, row)

        nests = query.method not in ("keyword", "vector")
        return correction.applied(found, corrected, rows, may_come_in=may_come_in, nests_facts=nests)

    def close(self) -> None:
        """Release the threads; searches under way end first."""
        for threads in (self._words, self._nearness):
            threads.shutdown()


class _Asked(NamedTuple):
    """The vector of a query, with the space of the index at the moment at which it was asked for."""

    vector: embed.Vectors
    space: types.Space | None


_LACKING = (
    errors.NoVectors,
    errors.LLMError,
    errors.ConfigError,
    errors.WrongWidth,
    errors.DerivedIndexError,
    errors.IndexUnavailable,
)
"""Why a search has to do without vectors."""


async def _in(threads: concurrent.futures.Executor, job: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(threads, job)


def _is_of_texts(error: BaseException) -> bool:
    return isinstance(error, (errors.DerivedIndexError, errors.IndexUnavailable)) and error.index == text.TextIndex.name


def _aim(query: Query, now_us: int) -> look.Aim:
    return look.Aim(
        owner=query.owner,
        terms=token.query_terms(query.text),
        kinds=KINDS_OF[query.owner.type] if query.kinds is None else query.kinds,
        statuses=query.statuses,
        now_us=now_us,
        clause=query.filter,
        periods=period.named(query.text, now_us),
        top_k=MAX_TOP_K if query.top_k < 0 else min(query.top_k, MAX_TOP_K),
        min_score=query.min_score or 0.0,
        radius=query.radius or 0.0,
        likes=query.likes,
        only=tuple(contract.link(query.owner, each) for each in query.entry_ids),
        n_facts=query.n_facts,
    )


def _keys(query: Query, found: look.Ranking, ranked: Sequence[fuse.Ranked]) -> list[types.EntryKey]:
    """Return what has to be read to show these entries."""
    keys = [one.own.key for one in ranked]
    keys += [fact.key for one in ranked for fact in found.facts.get(one.own.link, ())]
    if query.explains:
        keys += [one.fact.key for one in ranked if one.fact is not None]
    return keys


def _weighed(
    aim: look.Aim, found: look.Ranking, rows: Mapping[types.EntryKey, store_row.EntryRow]
) -> tuple[look.Ranking, bool]:
    """Return the ranking with importance in it, and whether something was added that has to be read for that.

    Importance is the ledger's alone: a pass changes it for a hundred thousand memories without an index noticing. Scores are
    weighed once; what was read before is not weighed again.
    """
    ranked = [_weigh(one, rows.get(one.own.key)) for one in found.ranked]
    has_any = any(one.importance is not None for one in ranked)
    ranked = fuse.ordered(ranked) if has_any else ranked
    more: list[fuse.Ranked] = []
    if has_any and found.rest:
        shown = [one.score for one in ranked if (row := rows.get(one.own.key)) and row.kind in look.ENTRY_KINDS]
        bar = shown[aim.top_k - 1] if len(shown) >= aim.top_k else 0.0
        more = [one for one in found.rest if fuse.weighed(one.score, 1.0) > bar]
    kept = fuse.cut(ranked, min_score=found.floor)
    return look.Ranking(ranked=(*kept, *more), facts=found.facts, floor=found.floor), bool(more)


def _weigh(one: fuse.Ranked, row: store_row.EntryRow | None) -> fuse.Ranked:
    if row is None or row.importance is None or one.importance is not None:
        return one
    return msgspec.structs.replace(one, importance=row.importance, score=fuse.weighed(one.score, row.importance))


def _is_filed(likes: Sequence[where.Like], row: store_row.EntryRow) -> bool:
    """Return what the indexes say of an entry: whether it is filed under what is wanted."""
    if not likes:
        return True
    entry = entry_text.read(row.kind, row.entry_id, row.raw, form=row.form)
    filed = memory.filing(entry.fields)
    values: dict[where.Filing, str] = {
        "memory_type": memory.type_of(row.kind, row.memory_type),
        "memory_path": row.memory_path,
        "bucket": filed.bucket,
        "scope": filed.scope,
        "team_id": filed.team_id,
        "semantic_key": filed.semantic_key,
    }
    return all(where.fitting(like.pattern)(values[like.field]) for like in likes)


def _hit(
    query: Query,
    one: fuse.Ranked,
    found: look.Ranking,
    read: Mapping[types.EntryKey, store_row.EntryRow],
) -> Hit:
    facts = tuple(
        Hit(row=read[fact.key], score=fact.score) for fact in found.facts.get(one.own.link, ()) if fact.key in read
    )
    why = None
    if query.explains:
        why = Why(
            question="" if one.own.keyword is None else query.text,
            own=one.own,
            dated=one.dated,
            importance=one.importance,
            fact=one.fact,
            fact_row=None if one.fact is None else read.get(one.fact.key),
            corrects=None if one.corrects is None else read.get(one.corrects),
        )
    return Hit(row=read[one.own.key], score=one.score, facts=facts, why=why)


def _is_within(found: store_row.EntryRow, query: Query, now_us: int) -> bool:
    """Return whether the ledger, too, says that the entry may be shown."""
    is_over = found.status == "active" and found.expires_us is not None and found.expires_us <= now_us
    return found.owner == query.owner and ("expired" if is_over else found.status) in query.statuses


def _of_kinds(hits: list[Hit], kinds: tuple[str, ...], top_k: int) -> tuple[Hit, ...]:
    return tuple([hit for hit in hits if hit.row.kind in kinds][:top_k])
