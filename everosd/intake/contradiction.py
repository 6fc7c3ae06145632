"""Which facts of before a new one contradicts, and which of after contradict it: found by search, told by words or a model."""

from __future__ import annotations

import asyncio
import collections
import datetime as dt
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import structlog

from everosd import clock, errors, types
from everosd.intake import correct, opinion
from everosd.log import entry_text, view
from everosd.models import chat
from everosd.search import query
from everosd.store import row

log = structlog.get_logger(__name__)

PROMPT = "contradictions"

MAX_CORRECTED = 5
"""Facts that one fact corrects at most."""
_N_RECENT = 300
"""Facts of an Episode with a word that are looked at before a fact: what a book says of somebody is not compared with all of it."""
_N_LIKE = 8
"""Facts that each search is asked for."""
_MAX_SHOWN = 24
"""New facts, and old ones, in one question to the model."""
_MIN_SHARED = 2
"""Words that two facts of one Episode share before they are compared."""
_SAME_SUBJECT = 10
"""As how many words it counts that they are about the same."""

FACT = "atomic_fact"


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What the model says."""

    contradictions: tuple[Pair, ...] = ()


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of two statements."""

    later: int
    earlier: int


class Found(NamedTuple):
    """What the new facts of an Episode have to do with others; facts are meant by their place in the list."""

    before: Mapping[int, tuple[str, ...]]
    """Entry ids of earlier facts that each one corrects, the most alike first."""
    within: Mapping[int, tuple[int, ...]]
    """Other new facts that each one corrects."""
    after: tuple[tuple[row.EntryRow, int], ...]
    """Later facts, and which new one each of them corrects: what was said first was read last."""


class Contradictions:
    """Looks for them. Lives on the event loop."""

    def __init__(
        self,
        *,
        search: query.Search,
        model: chat.Chat,
        prompts: opinion.Prompts,
        zone: Callable[[], dt.tzinfo],
        pause: Callable[[], Awaitable[None]],
    ) -> None:
        """Look with `search`, and ask `model` where one is set up; `zone` is that of the days it is shown.

        Before each fact is looked for, `pause` is awaited.
        """
        self._search, self._model, self._prompts, self._zone, self._pause = search, model, prompts, zone, pause

    async def of(self, episode: row.EntryRow, facts: Sequence[str], moments: Sequence[int]) -> Found:
        """Return what the facts of an Episode contradict, and what contradicts them, among its owner's live facts.

        `moments` are theirs, microseconds since 1970: a narrative tells of days that are long over.

        Where nothing can be searched nothing is found: a correction is worth less than the fact.
        """
        like = await self._like(episode, facts)
        found = await asyncio.to_thread(_told, moments, facts, like)
        if self._model.is_set_up and any(like):
            before = await self._asked(episode, facts, like, found.before)
            found = found._replace(before=before)
        return found

    async def _like(self, episode: row.EntryRow, facts: Sequence[str]) -> list[dict[str, row.EntryRow]]:
        """Return, for each fact, others of the owner that speak of the same, by entry id; none of its own Episode."""
        method: query.Method = "hybrid" if self._model.is_set_up else "keyword"
        like: list[dict[str, row.EntryRow]] = []
        for fact in facts:
            about: dict[str, row.EntryRow] = {}
            await self._pause()
            for text in (fact, *correct.topics(fact)):
                asked = query.Query(
                    owner=episode.owner,
                    text=text,
                    method=method if text == fact else "keyword",
                    top_k=_N_LIKE,
                    kinds=(FACT,),
                )
                try:
                    answer = await self._search.run(asked)
                except (errors.DerivedIndexError, errors.IndexUnavailable, errors.StoreError) as error:
                    log.warning("corrections_not_looked_for", entry_id=episode.entry_id, reason=str(error))
                    return [{} for _ in facts]
                about |= {hit.row.entry_id: hit.row for hit in answer.facts if hit.row.parent_id != episode.entry_id}
            like.append(about)
        return like

    async def _asked(
        self,
        episode: row.EntryRow,
        facts: Sequence[str],
        like: Sequence[Mapping[str, row.EntryRow]],
        told: Mapping[int, tuple[str, ...]],
    ) -> dict[int, tuple[str, ...]]:
        """Add what the model says to what the words tell; its numbers can only mean what it was shown."""
        found = {at: list(ids) for at, ids in told.items()}
        waiting = [
            at for at in range(len(facts)) if any(_is_before(one, episode.timestamp_us) for one in like[at].values())
        ]
        while waiting:
            shown, old = _batch(waiting, like, episode)
            waiting = waiting[len(shown) :]
            filled = (await asyncio.to_thread(self._prompts, PROMPT)).filled(
                earlier="\n".join(f"{n}. ({self._day(one)}) {said(one)}" for n, one in enumerate(old, 1)),
                later="\n".join(f"{n}. ({self._day(episode)}) {facts[at]}" for n, at in enumerate(shown, 1)),
            )
            try:
                answer = await self._model.ask(filled, Answer)
            except errors.LLMError as error:
                log.info("corrections_by_words", entry_id=episode.entry_id, reason=str(error))
                break
            for pair in answer.contradictions:
                if not (0 < pair.later <= len(shown) and 0 < pair.earlier <= len(old)):
                    continue
                at, one = shown[pair.later - 1], old[pair.earlier - 1]
                if one.entry_id in like[at] and correct.words(facts[at]) & correct.words(said(one)):
                    found.setdefault(at, []).append(one.entry_id)
        return {at: tuple(dict.fromkeys(ids))[:MAX_CORRECTED] for at, ids in found.items()}

    def _day(self, one: row.EntryRow) -> str:
        return clock.from_us(one.timestamp_us).astimezone(self._zone()).date().isoformat()


def said(fact: row.EntryRow) -> str:
    """Return what a fact says."""
    seen = view.view(entry_text.read(fact.kind, fact.entry_id, fact.raw, form=fact.form))
    return str(getattr(seen, "fact", ""))


def within(facts: Sequence[str]) -> dict[int, tuple[int, ...]]:
    """Return which facts of one Episode correct which ones before them, by place. Takes a moment for hundreds."""
    having: dict[object, list[int]] = collections.defaultdict(list)
    found: dict[int, tuple[int, ...]] = {}
    for at, fact in enumerate(facts):
        words, subjects = correct.words(fact), correct.subjects(fact)
        shared = collections.Counter(other for word in words for other in having[word][-_N_RECENT:])
        for subject in subjects:
            shared.update(dict.fromkeys(having[subject][-_N_RECENT:], _SAME_SUBJECT))
        alike = [other for other, n in shared.most_common(_N_LIKE) if n >= _MIN_SHARED]
        if ids := tuple(other for other in alike if correct.contradicts(fact, facts[other]))[:MAX_CORRECTED]:
            found[at] = ids
        for key in (*words, *subjects):
            having[key].append(at)
    return found


def _told(moments: Sequence[int], facts: Sequence[str], like: Sequence[Mapping[str, row.EntryRow]]) -> Found:
    """Tell by words alone. Runs in a thread."""
    before: dict[int, tuple[str, ...]] = {}
    after: list[tuple[row.EntryRow, int]] = []
    for at, fact in enumerate(facts):
        earlier = []
        for one in like[at].values():
            if _is_before(one, moments[at]):
                if correct.contradicts(fact, said(one)):
                    earlier.append(one.entry_id)
            elif correct.contradicts(said(one), fact):
                after.append((one, at))
        if earlier:
            before[at] = tuple(earlier[:MAX_CORRECTED])
    return Found(before=before, within=within(facts), after=tuple(after))


def _is_before(one: row.EntryRow, moment_us: int) -> bool:
    """Return whether a fact that is there was said before a moment; of the same moment, it was."""
    return one.timestamp_us <= moment_us


def _batch(
    waiting: Sequence[int], like: Sequence[Mapping[str, row.EntryRow]], episode: row.EntryRow
) -> tuple[list[int], list[row.EntryRow]]:
    """Return the first new facts that fit into one question, at least one, with all that they may contradict."""
    shown: list[int] = []
    old: dict[types.EntryId, row.EntryRow] = {}
    for at in waiting[:_MAX_SHOWN]:
        more = old | {one.entry_id: one for one in _before(like[at].values(), episode)}
        if shown and len(more) > _MAX_SHOWN:
            break
        shown.append(at)
        old = more
    return shown, list(old.values())[: 2 * _MAX_SHOWN]


def _before(rows: Iterable[row.EntryRow], episode: row.EntryRow) -> list[row.EntryRow]:
    return [one for one in rows if _is_before(one, episode.timestamp_us)]
