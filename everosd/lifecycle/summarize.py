"""Episodic memories of one place and time become a summary: a semantic memory under `reflections/episodic`.

A group is an owner's memories of one bucket, scope, team, session and path; its summary is known by the group and the day of its
newest source, so that a second pass adds nothing, and one that finds more updates it. Sources are left as they are. A text is
held against them before it is stored; of a group that is too long for the model, the newest part is summarized.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import structlog

from everosd import clock, errors, types
from everosd.lifecycle import decisions, desk, lineage, memory, overlay, remember, row, update
from everosd.lifecycle.decisions import Applied, Decision
from everosd.narrative import source
from everosd.store import lifecycle as store

log = structlog.get_logger(__name__)

ACTION: decisions.Action = "summarize"
PATH = "reflections/episodic"
KEYS = "summary/"
"""What the semantic keys of summaries begin with."""
PROMPTS = Path(__file__).parent / "prompts"
"""Folder of the prompts, of these names."""
NAME, REPAIR = "summarize", "summarize_repair"

_SLICE = 150
"""Groups that are looked at without a break."""
_CHANGED = "a source was changed while it was read: the next pass looks again"


class Group(NamedTuple):
    """What memories have in common that are summarized together."""

    bucket: str
    scope: str
    team_id: str
    session_id: str
    """Empty: none."""
    path: str
    """Empty: of Episodes."""

    @classmethod
    def of(cls, record: store.Record) -> Group:
        """Return the group of a memory."""
        return cls(record.bucket, record.scope, record.team_id, record.session_id or "", record.path)

    def key(self, newest: dt.date) -> str:
        """Return the semantic key of its summary of a day."""
        said = msgspec.json.encode(tuple(self))
        return f"{KEYS}{hashlib.blake2b(said, digest_size=8).hexdigest()}/{newest.isoformat()}"

    def said(self) -> str:
        """Return it in words."""
        path = self.path or "conversations"
        return f"{path}, session {self.session_id}" if self.session_id else path


class _Asking:
    """The one who writes, during one pass."""

    def __init__(self, merging: source.Merging) -> None:
        self.merging = merging
        self.away = ""
        """Why nobody is asked any more; empty: it was not so."""

    async def write(self, sources: Sequence[source.Source]) -> source.Narrative | str:
        """Return the summary, or why there is none."""
        if self.away:
            return self.away
        try:
            return await self.merging.merge(sources)
        except errors.LLMRejected as error:
            return f"not summarized: {error}"
        except errors.LLMUnavailable as error:
            self.away = f"the model is away: {error}"
            return self.away


class Summarize:
    """Plans summaries. Lives on the event loop."""

    def __init__(
        self,
        parts: desk.Desk,
        remembering: remember.Remembering,
        merging: Callable[[], source.Merging | None],
        zone: Callable[[str], dt.tzinfo],
    ) -> None:
        """Wire the parts.

        Args:
            parts: Reads and writes.
            remembering: Writes summaries.
            merging: Who writes their text at the moment; None: nobody is to.
            zone: Of an owner's days, by their id.
        """
        self._desk, self._remembering, self._merging, self._zone = parts, remembering, merging, zone

    async def plan(self, state: overlay.State, call: decisions.Call) -> decisions.Plan:
        """Return what would be done; a dry run asks for the texts, a real pass does when it writes them.

        Raises:
            StoreError: the ledger cannot be read.
        """
        merging = self._merging()
        asking = None if merging is None or not merging.is_set_up else _Asking(merging)
        reason = "" if asking else _nobody(merging)
        gone = await lineage.taken_away(self._desk.reader, call.owner) if asking else []
        steps: list[_Step] = []
        skipped: list[Decision] = []
        left = call.limit
        is_full = False
        groups = await asyncio.to_thread(grouped, await state.episodic(call))
        for nth, (group, records) in enumerate(groups.items()):
            if nth % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)
            if len(records) < call.min_group_size:
                why = f"{_n(len(records))} of {group.said()} in the window: {call.min_group_size} are needed"
            elif is_full:
                why = f"the limit of {call.limit} is reached: the next pass goes on"
            elif asking is None:
                why = reason
            else:
                found = await self._step(group, records, state, call, asking, left, gone, is_first=not steps)
                if isinstance(found, _Full):
                    is_full = True
                    why = f"the limit of {call.limit} is reached: the next pass goes on"
                elif isinstance(found, str):
                    why = found
                else:
                    why = await found.ask() if call.is_dry_run else ""
                    if not why:
                        steps.append(found)
                        left = None if left is None else left - len(found.sources)
                        taken = {one.entry_id for one in found.sources}
                        records = [one for one in records if one.entry_id not in taken]  # noqa: PLW2901
                        why = f"the summary is of the newest {len(taken)}, as much as fits"
            skipped += [_skip(one, why) for one in records]
        return decisions.Plan(steps=tuple(steps), skipped=tuple(skipped))

    async def _step(
        self,
        group: Group,
        records: Sequence[store.Record],
        state: overlay.State,
        call: decisions.Call,
        asking: _Asking,
        left: int | None,
        gone: Sequence[tuple[str, frozenset[str]]],
        *,
        is_first: bool,
    ) -> _Step | _Full | str:
        """Return how a group is summarized, or why it is not."""
        zone = self._zone(call.owner.id)
        key = group.key(clock.local(records[-1].created_us, zone).date())
        made = await lineage.made(
            self._desk.reader, call.owner, key, bucket=group.bucket, scope=group.scope, team_id=group.team_id
        )
        if made is not None:
            why = _as_it_is(made, records)
            if why:
                return why
            if made.record.status == "active":
                records = await self._with_earlier(group, records, made, state)
            else:
                made = None
        room = max(1, min(lineage.MAX_SOURCES, len(records) if left is None else left))
        if left is not None and len(records) > left and not is_first:
            return _Full()
        texts = await lineage.texts(self._desk.reader, records[-room:])
        known = [one for one in records[-room:] if one.entry_id in texts]
        sources = [lineage.as_source(one, texts[one.entry_id], zone) for one in known]
        n = await asyncio.to_thread(n_newest, asking.merging, sources)
        if n < min(call.min_group_size, len(records)):
            return f"only {n} of {len(records)} fit: {call.min_group_size} are needed"
        if made is not None and {one.entry_id for one in known[-n:]} <= set(made.sources):
            return _told(made, len(known[-n:]))
        read_as = [lineage.read_as(one.entry_id, texts[one.entry_id]) for one in known[-n:]]
        for summary, its in gone:
            if its.issuperset(read_as):
                return f"somebody has taken away the summary {summary}, which was made of {_the_same(n)}"
        return _Step(
            parts=self._desk,
            remembering=self._remembering,
            asking=asking,
            call=call,
            group=group,
            key=key,
            sources=tuple(known[-n:]),
            texts=tuple(sources[-n:]),
            read_as=tuple(read_as),
            n_all=len(records),
            made=made,
        )

    async def _with_earlier(
        self, group: Group, records: Sequence[store.Record], made: lineage.Made, state: overlay.State
    ) -> list[store.Record]:
        """Return sources, and what the summary was made of before, as far as it can be recalled; the oldest first."""
        ids = set(made.sources) - {one.entry_id for one in records}
        earlier = await store.records(self._desk.reader, made.record.owner, kinds=store.KINDS, ids=sorted(ids))
        kept = [one for one in earlier if Group.of(one) == group and state.is_recallable(one)]
        newest = records[-1].created_us
        return sorted((*(one for one in kept if one.created_us <= newest), *records), key=_by_age)


class _Full:
    """There is no room for the group within the limit of the call."""


class _Step:
    """One summary to be."""

    def __init__(
        self,
        *,
        parts: desk.Desk,
        remembering: remember.Remembering,
        asking: _Asking,
        call: decisions.Call,
        group: Group,
        key: str,
        sources: tuple[store.Record, ...],
        texts: tuple[source.Source, ...],
        read_as: tuple[str, ...],
        n_all: int,
        made: lineage.Made | None,
    ) -> None:
        self._desk, self._remembering, self._asking, self._call = parts, remembering, asking, call
        self._group, self._key, self._texts, self._n_all, self._made = group, key, texts, n_all, made
        self.sources, self._read_as = sources, read_as
        self._narrative: source.Narrative | None = None

    @property
    def superseded(self) -> Mapping[str, str]:
        """Nothing: sources are left as they are."""
        return {}

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """One for each source; that of the newest one has the summary."""
        *others, newest = self.sources
        return (*(self._decision(one, {"summary": self._key}) for one in others), self._decision(newest, self._after()))

    async def ask(self) -> str:
        """Have the text written; return why there is none, empty: there is."""
        found = await self._asking.write(self._texts)
        if isinstance(found, str):
            log.info("not_summarized", owner=self._call.owner.id, reason=found)
            return found
        self._narrative = found
        return ""

    async def apply(self) -> Applied:
        """Write the summary, unless a source, or the summary, was changed meanwhile.

        Raises:
            WriteRefused: nothing was written.
            StoreError: it is on disk and not in the ledger yet.
        """
        why = "" if self._narrative is not None else await self.ask()
        if why or self._narrative is None:
            return self._skipped(why)
        if not await self._is_as_read():
            return self._skipped(_CHANGED)
        try:
            written = await self._write(self._narrative)
        except errors.Conflict:
            return self._skipped(_CHANGED)
        self._desk.step("summarized")
        return Applied(
            decisions=self.decisions,
            audit_ids=await self._log(written.row.entry_id),
            written=(types.EntryId(written.row.entry_id),),
        )

    async def _log(self, entry_id: str) -> tuple[types.EntryId, ...]:
        """Append the row that says what the summary was made of."""
        told = row.made(
            entry_id, at=self._desk.now(), sources=self._read_as, reason=self._reason, run_id=self._call.run_id
        )
        owner = self._call.owner
        async with self._desk.pen.in_turn(owner):
            ids = await self._desk.log(owner, [told])
            await self._desk.until_logged(owner, ids)
        return ids

    @property
    def _reason(self) -> str:
        return f"summary of {len(self.sources)} sources"

    async def _is_as_read(self) -> bool:
        same = await lineage.unchanged(self._desk.reader, self.sources, self._desk.now_us())
        now = await lineage.made(
            self._desk.reader,
            self._call.owner,
            self._key,
            bucket=self._group.bucket,
            scope=self._group.scope,
            team_id=self._group.team_id,
        )
        before = None if self._made is None else self._made.record.lsn
        after = None if now is None or now.record.status != "active" else now.record.lsn
        return len(same) == len(self.sources) and before == after

    async def _write(self, narrative: source.Narrative) -> update.Written:
        by = msgspec.json.encode({"action": ACTION, "by": narrative.by}).decode()
        fields = {
            **lineage.fields(self.sources),
            "semantic_key": self._key,
            "expires_at": _expiry(self.sources),
            "provenance": by,
        }
        if self._made is None:
            fields |= {
                "session_id": self._group.session_id,
                "importance": lineage.mean([one.importance for one in self.sources]),
                "confidence": lineage.mean([one.confidence for one in self.sources]),
            }
        return await self._remembering.remember(
            self._call.owner,
            remember.Wanted(
                path=PATH if self._made is None else self._made.record.path,
                memory_type="semantic",
                change=memory.Change(content=narrative.content, subject=narrative.subject, fields=fields),
                bucket=self._group.bucket,
                scope=self._group.scope,
                team_id=self._group.team_id,
                semantic_key=self._key,
                reason=self._reason,
                run_id=self._call.run_id,
            ),
            still=self._is_as_read,
        )

    def _skipped(self, why: str) -> Applied:
        return Applied(decisions=tuple(_skip(one, why) for one in self.sources))

    def _decision(self, record: store.Record, after: Mapping[str, object]) -> Decision:
        part = f"the newest {len(self.sources)} of {self._n_all}" if len(self.sources) < self._n_all else ""
        reason = f"{part or _n(len(self.sources))} of {self._group.said()} in one summary"
        before: Mapping[str, object] = {}
        if self._made is not None:
            reason += f"; the one there is has {len(self._made.sources)}"
            before = {"summary": self._key, "n_sources": len(self._made.sources)}
        return Decision(
            id=record.entry_id,
            owner=record.owner,
            action=ACTION,
            decision="apply",
            reason=reason,
            before=before,
            after=after,
        )

    def _after(self) -> Mapping[str, object]:
        fields = lineage.fields(self.sources)
        told: dict[str, object] = {
            "summary": self._key,
            "path": PATH if self._made is None else self._made.record.path,
            "memory_type": "semantic",
            "sources": [one.entry_id for one in self.sources],
            "occurred_from": fields["occurred_from"],
            "occurred_to": fields["occurred_to"],
        }
        if self._narrative is not None:
            told |= {"subject": self._narrative.subject, "content": self._narrative.content}
        return told


# -- pure --------------------------------------------------------------------------------------------------------------


def grouped(records: Iterable[store.Record]) -> dict[Group, list[store.Record]]:
    """Return memories, which are in time order, by their groups, in the order of their oldest."""
    found: dict[Group, list[store.Record]] = {}
    for one in records:
        found.setdefault(Group.of(one), []).append(one)
    return found


def n_newest(merging: source.Merging, sources: Sequence[source.Source]) -> int:
    """Return how many of the newest of sources, which are in time order, fit into one text. Takes a while."""
    low, high = 0, len(sources)
    while low < high:
        n = (low + high + 1) // 2
        if merging.n_fitting(sources[len(sources) - n :]) == n:
            low = n
        else:
            high = n - 1
    return low


def _as_it_is(made: lineage.Made, records: Sequence[store.Record]) -> str:
    """Return why a summary is left as it is; empty: there is more to say."""
    if lineage.is_unwanted(made, records[0].created_us):
        return f"somebody has taken away the summary {made.record.entry_id}"
    if {one.entry_id for one in records} <= set(made.sources):
        return _told(made, len(records))
    if made.is_changed and made.record.status == "active":
        return f"somebody has changed the summary {made.record.entry_id}: it stays as it is"
    return ""


def _told(made: lineage.Made, n: int) -> str:
    return f"{made.record.entry_id} is a summary of {len(made.sources)} sources, all {n} among them"


def _the_same(n: int) -> str:
    return "it" if n == 1 else f"these {n}"


def _expiry(sources: Sequence[store.Record]) -> str:
    """Return when the first of the sources expires: what it says is not to be known any longer; empty: none does."""
    ends = [one.expires_us for one in sources if one.expires_us is not None]
    return clock.from_us(min(ends)).isoformat() if ends else ""


def _nobody(merging: source.Merging | None) -> str:
    if merging is None:
        return 'summarize = "off" under [lifecycle]'
    return 'no model is set up: set one under [llm], or summarize = "extractive" under [lifecycle]'


def _skip(record: store.Record, reason: str) -> Decision:
    return Decision(id=record.entry_id, owner=record.owner, action=ACTION, decision="skip", reason=reason)


def _n(n: int) -> str:
    return "1 memory" if n == 1 else f"{n} memories"


def _by_age(one: store.Record) -> tuple[int, str]:
    return one.created_us, one.entry_id
