"""Atomic facts: the statements of an Episode, each of which can be found, and be wrong, by itself.

Facts carry the digest of the text that they were taken from. An Episode has its facts when there are some of its present
text; those of an earlier one are deprecated by them, each by the new one that is most like it.
"""

from __future__ import annotations

import asyncio
import collections
import datetime as dt
import hashlib
import weakref
from collections.abc import Awaitable, Callable, Sequence

import msgspec
import structlog

from everosd import clock, errors, types
from everosd.engine import strategy
from everosd.intake import arrival, contradiction, correct, opinion, verbatim
from everosd.intake import row as rows
from everosd.log import entry, entry_text, escape, kind, view, writer
from everosd.models import chat
from everosd.narrative import check, spoken
from everosd.search import query
from everosd.store import read, row

log = structlog.get_logger(__name__)

NAME = "extract_atomic_facts"
PROMPT = "atomic_facts"
FACT = contradiction.FACT
_NARRATIVE = "cluster"
"""`parent_type` of an Episode that was merged from others."""

MAX_FACT_CHARS = 1_000
"""A longer statement of a model's is none."""
PATIENCE_S = 5.0
"""How long a run waits for the ledger to have what is on disk."""
_ROOM = 0.75
"""Share of what a model takes that the text may fill: the prompt is beside it, and its tokens are counted roughly."""


async def at_once() -> None:
    """Wait for nothing."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What the model says."""

    facts: tuple[str, ...] = ()


class Facts:
    """The strategy. Lives on the event loop."""

    def __init__(
        self,
        *,
        reader: read.Reader,
        pen: writer.Writer,
        model: chat.Chat,
        prompts: opinion.Prompts,
        search: query.Search,
        zone: Callable[[], dt.tzinfo],
        time: clock.Clock,
        settled: Callable[[], Awaitable[None]],
        pause: Callable[[], Awaitable[None]] = at_once,
    ) -> None:
        """Wire it.

        Args:
            reader: Finds the Episode and the facts that it has.
            pen: Writes facts.
            model: Asked where one is set up.
            prompts: Where its prompts are found.
            search: Finds facts that may be contradicted.
            zone: Of the days that the model is shown.
            time: For waiting, and the moment of notes.
            settled: Returns once the ledger has what was on disk at the start.
            pause: Awaited between pieces of work that take a few milliseconds each.
        """
        self._reader, self._pen, self._model, self._prompts, self._search = reader, pen, model, prompts, search
        self._zone, self._clock, self._settled = zone, time, settled
        self._arrivals = arrival.Arrivals(time, PATIENCE_S)
        self._turns: weakref.WeakValueDictionary[tuple[types.Owner, str], asyncio.Lock] = weakref.WeakValueDictionary()
        """Of Episodes whose facts are being taken."""
        self._contradictions = contradiction.Contradictions(
            search=search, model=model, prompts=prompts, zone=zone, pause=pause
        )

    async def run(self, event: strategy.Event) -> str:
        """Give an Episode the facts of its present text, unless it has them; of several calls for one the first does it.

        Raises:
            errors.LLMUnavailable: the model cannot be asked now.
            errors.LogError, errors.StoreError: what is on disk or in the ledger cannot be read or written.
        """
        turn = self._turns.setdefault((event.owner, event.subject), asyncio.Lock())
        async with turn:
            return await self._run(event)

    async def _run(self, event: strategy.Event) -> str:
        episode = await self._find(event)
        if episode is None or episode.kind != "episode":
            return "the Episode is gone"
        if episode.status != "active":
            return f"the Episode is {episode.status}"
        text = text_of(episode)
        digest = source_digest(text)
        children = await self._reader.children(event.owner, [episode.entry_id], FACT)
        live = [one for one in children if one.status == "active"]
        digests = {one.entry_id: _field(one, "source_digest") for one in live}
        current = [one for one in live if digests[one.entry_id] == digest]
        others = [one for one in live if digests[one.entry_id] != digest and one.form != "hand"]
        if event.topic == "episode_written" and others and not any(digests.values()):
            return f"it has {len(others)} facts of other programs"
        if current:
            await self._link(current)
            written = {one.entry_id: contradiction.said(one) for one in current}
        elif await self._is_empty(episode, digest):
            written = {}
        else:
            written = await self._write(episode, text, digest)
            if written and (successor := await self._successor(episode)) is not None:
                await self._replace_all(episode.owner, written, successor)
                return f"the Episode was replaced by {successor} meanwhile, and its facts with it"
        n_replaced = await self._replace(episode, others, written)
        done = f"{len(written)} fact{'s' if len(written) != 1 else ''}"
        return f"{done}, {n_replaced} replaced" if n_replaced else done

    def forget_owner(self, owner: types.Owner) -> None:
        """Let go of an owner whose files have been deleted."""
        self._arrivals.forget(owner)

    async def _find(self, event: strategy.Event) -> row.EntryRow | None:
        """Return the Episode once the ledger has it; None where it is gone.

        Raises:
            errors.LLMUnavailable: the ledger is behind.
        """
        await self._settled()
        return await self._arrivals.find(
            event.owner,
            event.subject,
            lambda: self._reader.find(event.owner, event.subject),
            lambda: errors.LLMUnavailable("the ledger", "it has not read the Episode yet", retry_after_s=1.0),
        )

    async def _until_found(self, owner: types.Owner, entry_id: str) -> None:
        """Wait until a fact that is on disk can be found by its words, but not for long."""
        began_s = self._clock.monotonic_s()
        try:
            while not await self._search.can_find(owner, FACT, entry_id):
                if self._clock.monotonic_s() - began_s > PATIENCE_S:
                    break
                await self._clock.sleep(arrival.POLL_S)
        except (errors.DerivedIndexError, errors.IndexUnavailable) as error:
            log.info("facts_not_searchable_yet", entry_id=entry_id, reason=str(error))

    async def _write(self, episode: row.EntryRow, text: str, digest: str) -> dict[types.EntryId, str]:
        """Take the facts of a text, and write them with what they correct; return them by id."""
        facts, by = await self._read(episode, text)
        if not facts:
            await self._note_empty(episode, digest)
            return {}
        moments = _moments(episode, facts, self._zone())
        found = await self._contradictions.of(episode, facts, moments)
        drafts = [
            _draft(episode, fact, at_us=moments[at], digest=digest, by=by, corrects=found.before.get(at, ()))
            for at, fact in enumerate(facts)
        ]
        ids = await self._pen.append(episode.owner, FACT, drafts)
        # The owner's next Episode may contradict these facts: it is read when they can be found.
        await self._until_found(episode.owner, ids[-1])
        for later, at in found.after:
            await self._correct(later, (ids[at],))
        for at, earlier in found.within.items():
            if (one := await self._reader.find(episode.owner, ids[at])) is not None:
                await self._correct(one, [ids[each] for each in earlier])
        return dict(zip(ids, facts, strict=True))

    async def _link(self, current: Sequence[row.EntryRow]) -> None:
        """Finish what a crash may have left: facts that correct others of the same Episode say so."""
        found = await asyncio.to_thread(contradiction.within, [contradiction.said(one) for one in current])
        for at, earlier in found.items():
            await self._correct(current[at], [current[each].entry_id for each in earlier])

    async def _correct(self, later: row.EntryRow, earlier: Sequence[str]) -> None:
        """Have a fact that is on disk say that it corrects others, too."""

        def changed(one: entry.Entry) -> entry.Entry:
            known = escape.read_list(one.fields.get("corrects", ""))
            wanted = tuple(dict.fromkeys((*known, *earlier)))[: max(len(known), contradiction.MAX_CORRECTED)]
            if wanted == known:
                return one
            return msgspec.structs.replace(one, fields=one.fields | {"corrects": escape.write_list(wanted)})

        try:
            await self._pen.update(later.path, later.entry_id, changed)
        except (errors.NotFound, errors.WriteRefused) as error:
            log.info("correction_not_written", entry_id=later.entry_id, reason=str(error))

    # -- what the text says ----------------------------------------------------------------------------------------

    async def _read(self, episode: row.EntryRow, text: str) -> tuple[list[str], str]:
        """Return the facts of a text and who took them: the model's as far as the text has what they say, else verbatim."""
        if self._model.is_set_up:
            try:
                facts = await self._asked(episode, text)
            except errors.LLMRejected as error:
                log.info("facts_verbatim", entry_id=episode.entry_id, reason=str(error))
                facts = []
            if facts:
                return facts, self._model.name
        return await asyncio.to_thread(spoken.facts, text), verbatim.BY

    async def _asked(self, episode: row.EntryRow, text: str) -> list[str]:
        day = clock.from_us(episode.timestamp_us).astimezone(self._zone()).date()
        grounds = await asyncio.to_thread(lambda: check.Grounds([text], dates=[day]))
        found: list[str] = []
        asked = await asyncio.to_thread(self._prompts, PROMPT)
        for part in await asyncio.to_thread(self._parts, text):
            filled = asked.filled(
                content=part,
                date=day.isoformat(),
                language=self._model.language or "the language of the text",
            )
            answer = await self._model.ask(filled, Answer)
            found += [" ".join(one.split()) for one in answer.facts]
        known = [one for one in dict.fromkeys(found) if 0 < len(one) <= MAX_FACT_CHARS][: spoken.MAX_FACTS]
        return await asyncio.to_thread(lambda: [one for one in known if grounds.supports(one)])

    def _parts(self, text: str) -> list[str]:
        """Return a text in parts that the model takes, cut between lines; a line that is too long is cut as well."""
        room = max(200, int(self._model.max_input_tokens * _ROOM) - 400)
        parts: list[str] = []
        lines: list[str] = []
        used = 0
        for line in (piece for whole in text.split("\n") for piece in _pieces(whole, room)):
            cost = self._model.n_tokens(line) + 1
            if lines and used + cost > room:
                parts.append("\n".join(lines))
                lines, used = [], 0
            lines.append(line)
            used += cost
        parts.append("\n".join(lines))
        return [part for part in parts if part.strip()]

    # -- what was there before -------------------------------------------------------------------------------------

    async def _replace(
        self, episode: row.EntryRow, others: Sequence[row.EntryRow], written: dict[types.EntryId, str]
    ) -> int:
        """Deprecate facts of an earlier text by the nearest of the present one, or by the Episode where it has none."""
        successors: dict[types.RelPath, dict[str, str]] = collections.defaultdict(dict)
        for one in others:
            successors[one.path][one.entry_id] = _nearest(contradiction.said(one), written) or episode.entry_id
        for path, ids in successors.items():
            await self._pen.deprecate(path, ids)
        return len(others)

    async def _successor(self, episode: row.EntryRow) -> str | None:
        """Return what has replaced an Episode while its facts were taken: who did has not seen them."""
        now = await self._reader.find(episode.owner, episode.entry_id)
        return None if now is None else now.deprecated_by

    async def _replace_all(self, owner: types.Owner, written: dict[types.EntryId, str], successor: str) -> None:
        """Deprecate facts with their Episode."""
        for entry_id in written:
            if (one := await self._reader.find(owner, entry_id)) is not None:
                await self._pen.deprecate(one.path, {entry_id: successor})

    async def _is_empty(self, episode: row.EntryRow, digest: str) -> bool:
        """Return whether the log says that nothing can be taken from this text."""
        notes = await self._reader.children(episode.owner, [episode.entry_id], "cluster")
        return any(
            (_field(one, "event"), _field(one, "digest"), _field(one, "member_id"))
            == ("no_facts", digest, episode.entry_id)
            for one in notes
        )

    async def _note_empty(self, episode: row.EntryRow, digest: str) -> None:
        fields = {
            "timestamp": self._clock.now().astimezone(dt.UTC).isoformat(),
            "event": "no_facts",
            "member_id": episode.entry_id,
            "member_type": "episode",
            "digest": digest,
            "parent_type": "episode",
            "parent_id": episode.entry_id,  # so that it is found with the Episode's other children
        }
        await self._pen.append(episode.owner, "cluster", [entry.Draft(fields=fields)])


def text_of(episode: row.EntryRow) -> str:
    """Return the text that facts are taken from: the content, or all that a person wrote."""
    read_entry = entry_text.read(episode.kind, episode.entry_id, episode.raw, form=episode.form)
    seen = view.view(read_entry)
    if isinstance(seen, kind.Episode) and seen.content.strip():
        return seen.content
    return view.body(read_entry)


def source_digest(text: str) -> str:
    """Return 16 hex digits that stand for the text that facts were taken from."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _moments(episode: row.EntryRow, facts: Sequence[str], zone: dt.tzinfo) -> list[int]:
    """Return when each fact of an Episode was so: a narrative tells of many days, and is as old as the last of them.

    Of a day before that, noon of it: the narrative does not have the time.
    """
    if episode.parent_type != _NARRATIVE:
        return [episode.timestamp_us] * len(facts)
    newest = clock.from_us(episode.timestamp_us).astimezone(zone)
    return [_moment(spoken.day_of(fact), newest) for fact in facts]


def _moment(day: str, newest: dt.datetime) -> int:
    try:
        at = dt.datetime.combine(dt.date.fromisoformat(day), dt.time(12), newest.tzinfo)
    except ValueError:  # none, or none that there is
        at = newest
    return clock.to_us(at if at.date() < newest.date() else newest)


def _draft(
    episode: row.EntryRow, fact: str, *, at_us: int, digest: str, by: str, corrects: Sequence[str]
) -> entry.Draft:
    fields = {
        "owner_id": episode.owner.id,
        "timestamp": rows.iso(at_us),
        "parent_type": "episode",
        "parent_id": episode.entry_id,
        "session_id": episode.session_id or "",
        "source_digest": digest,
        "corrects": escape.write_list(corrects) if corrects else "",
        "extracted_by": by,
    }
    return entry.Draft(fields={name: value for name, value in fields.items() if value}, sections=(("Fact", fact),))


def _field(one: row.EntryRow, name: str) -> str:
    return entry_text.read(one.kind, one.entry_id, one.raw, form=one.form).fields.get(name, "")


def _nearest(fact: str, written: dict[types.EntryId, str]) -> types.EntryId | None:
    """Return the new fact that has most words in common with an old one, of equal ones the first; None without any."""
    words = correct.words(fact)

    def share(text: str) -> float:
        other = correct.words(text)
        return 2.0 if text == fact else len(words & other) / (len(words | other) or 1)

    return max(written, key=lambda each: share(written[each]), default=None)


def _pieces(line: str, room: int) -> list[str]:
    """Return a line in pieces of at most `room` characters, which never are more tokens than that."""
    return [line[at : at + room] for at in range(0, len(line), room)] if len(line) > room else [line]
