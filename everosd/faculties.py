"""What reads conversations, what follows from what was read, and what consolidates it.

Imported once there is something to read: it brings a great many patterns, 8 MB of them, and an empty root needs none.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path

import msgspec

from everosd import clock as clocks
from everosd import config, types
from everosd.cascade import apply, embed
from everosd.engine import settings as strategy_settings
from everosd.engine import strategy
from everosd.intake import case, cluster, episode, extract, fact, opinion, profile, quoted, skill, unasked, unsay
from everosd.lifecycle import alarm, desk, forget, promote, remember, run, scheduled, summarize, update, usage
from everosd.log import layout, writer
from everosd.models import chat, prompt
from everosd.narrative import extractive, merge
from everosd.narrative import source as texts
from everosd.reflection import lag, reflect
from everosd.search import query
from everosd.store import read, row

PROMPTS = Path(__file__).parent / "intake" / "prompts"
FOLDERS = (PROMPTS, merge.PROMPTS, summarize.PROMPTS)
"""Of our prompts: a person's own stand in for those of all."""
CHARS_PER_TOKEN = 4
"""At a guess, for what no model reads."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """What all of it is made of."""

    settings: Callable[[], config.Config]
    """Those of the moment."""
    places: layout.Layout
    pen: writer.Writer
    reader: read.Reader
    search: query.Search
    cascade: apply.Cascade
    model: chat.Chat
    embedding: embed.Embedding | None
    segments: case.Segments
    emit: Callable[[strategy.Event], None]
    owe: Callable[[row.EntryRow], Awaitable[None]]
    """Has the facts of an Episode taken later."""
    is_enabled: Callable[[str], bool]
    """Whether a strategy of this name is."""
    wanted: Callable[[str], strategy_settings.Settings]
    """Settings in force of a strategy of this name."""
    look: Callable[[Collection[types.RelPath]], None]
    """Asks the cascade for a look at these files."""
    is_shown: Callable[[types.Lsn], bool]
    """Whether every index that is open has followed the ledger as far as this."""
    give_way: Callable[[], Awaitable[None]]
    """Waits while somebody is being answered, before something begins."""
    pause: Callable[[], Awaitable[None]]
    """The same for a moment, between pieces of it."""
    caught_up: Callable[[], Awaitable[None]]
    """Waits until the ledger is in step with what was on disk at the start."""
    unsaying: Callable[[], unsay.Unsaying]
    """Gives what takes messages out for good, while others come in."""
    uses: usage.Uses | None
    """Takes note of uses; None where nothing does."""
    time: clocks.Clock

    def zone(self) -> dt.tzinfo:
        """Return `memory.timezone`."""
        return self.settings().memory.zone

    def prompts(self, folder: Path = PROMPTS) -> opinion.Prompts:
        """Return what loads a prompt of ours, from `folder`, or the user's own where there is a usable one."""

        def loaded(name: str) -> prompt.Prompt:
            return prompt.load(name, (self.settings().prompts, folder))

        return loaded


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What one strategy does that events fire."""

    run: strategy.Run
    forget: Callable[[types.Owner], None]
    """Lets go of what `run` remembers of an owner whose memory is gone."""


class Faculties(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    extractor: episode.Extractor
    """Reads segments."""
    judge: unasked.Judge
    """Says where a conversation ends."""
    strategies: Mapping[str, Work]
    """By name: those of `strategies.EVENTS`."""
    reflection: reflect.Reflection
    """Consolidates clusters."""
    lifecycle: scheduled.Scheduled
    """Makes passes over typed memories."""


def make(parts: Parts) -> Faculties:
    """Wire it; nothing runs yet."""
    facts = _facts(parts)
    return Faculties(
        extractor=extract.Extractor(parts.model, parts.prompts(), parts.zone, quoted.Quoted(parts.search)),
        judge=opinion.Opinion(parts.model, parts.prompts(), parts.zone),
        strategies=_strategies(parts, facts),
        reflection=_reflection(parts, facts),
        lifecycle=_lifecycle(parts),
    )


def digest(found: row.EntryRow) -> str:
    """Return the digest of an Episode's present text, as its facts carry it."""
    return fact.source_digest(fact.text_of(found))


def _facts(parts: Parts) -> fact.Facts:
    return fact.Facts(
        reader=parts.reader,
        pen=parts.pen,
        model=parts.model,
        prompts=parts.prompts(),
        search=parts.search,
        zone=parts.zone,
        time=parts.time,
        settled=parts.caught_up,
        pause=parts.pause,
    )


def _strategies(parts: Parts, facts: fact.Facts) -> dict[str, Work]:
    """Return what the strategies do that events fire, by name."""
    clustering = cluster.Clustering(
        parts.reader, parts.pen, parts.embedding, lambda: parts.settings().clustering, parts.emit, parts.time
    )
    profiles = profile.Profile(
        reader=parts.reader,
        pen=parts.pen,
        model=parts.model,
        prompts=parts.prompts(),
        zone=parts.zone,
        time=parts.time,
        settled=parts.caught_up,
    )
    cases = case.Cases(
        segments=parts.segments,
        reader=parts.reader,
        pen=parts.pen,
        model=parts.model,
        prompts=parts.prompts(),
        mode=lambda: parts.settings().memorize,
        zone=parts.zone,
        emit=parts.emit,
        settled=parts.caught_up,
    )
    skills = skill.Skills(
        reader=parts.reader,
        pen=parts.pen,
        model=parts.model,
        prompts=parts.prompts(),
        time=parts.time,
        settled=parts.caught_up,
    )
    done = {
        fact.NAME: Work(run=facts.run, forget=facts.forget_owner),
        "trigger_profile_clustering": Work(run=clustering.run, forget=clustering.forget_owner),
        profile.NAME: Work(run=profiles.run, forget=profiles.forget_owner),
        case.NAME: Work(run=cases.run, forget=cases.forget_owner),
        "trigger_skill_clustering": Work(run=clustering.run, forget=clustering.forget_owner),
        skill.NAME: Work(run=skills.run, forget=skills.forget_owner),
    }
    return {name: msgspec.structs.replace(one, run=_polite(one.run, parts.give_way)) for name, one in done.items()}


def _reflection(parts: Parts, facts: fact.Facts) -> reflect.Reflection:
    """Return what consolidates clusters; `facts` are those of the strategies: nobody takes facts of one Episode twice."""
    by_model = merge.ByModel(parts.model, parts.prompts(merge.PROMPTS))

    def merging() -> texts.Merging:
        wanted = parts.settings().reflection
        if wanted.merge == "extractive":
            return extractive.Extractive(wanted.max_narrative_tokens * CHARS_PER_TOKEN)
        return by_model

    return reflect.Reflection(
        reader=parts.reader,
        pen=parts.pen,
        behind=lag.Lag(parts.reader, parts.places, parts.look, parts.is_shown, parts.time),
        merging=merging,
        settings=lambda: parts.settings().reflection,
        facts=facts.run,
        wants_facts=lambda: parts.is_enabled(fact.NAME),
        owe=parts.owe,
        zone=parts.zone,
        settled=parts.caught_up,
        give_way=parts.give_way,
        time=parts.time,
    )


def _lifecycle(parts: Parts) -> scheduled.Scheduled:
    """Return what makes passes over typed memories."""
    alarms = alarm.Alarms()
    here = desk.Desk(parts.reader, parts.cascade, parts.time)
    remembering = remember.Remembering(here, update.Updates(here))
    by_model = merge.ByModel(
        parts.model, parts.prompts(summarize.PROMPTS), name=summarize.NAME, repair=summarize.REPAIR, is_summary=True
    )

    def summing_up() -> texts.Merging | None:
        settings = parts.settings()
        if settings.lifecycle.summarize == "extractive":
            return extractive.Extractive(settings.reflection.max_narrative_tokens * CHARS_PER_TOKEN)
        return by_model if settings.lifecycle.summarize == "llm" else None

    passes = run.Passes(
        here,
        parts.settings,
        consolidators={
            "summarize": summarize.Summarize(here, remembering, summing_up, lambda id_: parts.settings().zone_of(id_)),
            "promote": promote.Promote(here, remembering, lambda: parts.settings().lifecycle_promote),
        },
        uses=parts.uses,
        give_way=parts.give_way,
    )
    passes.on_end = alarms.ended
    return scheduled.Scheduled(
        here,
        passes,
        alarms,
        parts.settings,
        lambda: parts.wanted(scheduled.NAME),
        forget.Forgetting(here, parts.unsaying),
    )


def _polite(run: strategy.Run, give_way: Callable[[], Awaitable[None]]) -> strategy.Run:
    """Return `run`, begun when nobody is being answered."""

    async def begun(event: strategy.Event) -> str:
        await give_way()
        return await run(event)

    return begun
