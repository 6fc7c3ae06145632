"""What episodic memories of one place say again and again becomes a fact: a semantic memory, which supersedes them.

A pattern is what they have in common: a promotion key, else a semantic key, else the text itself. The fact has the newest
wording, and names its sources. It is on disk first, the rows that its sources are superseded follow; a pass that is cut off in
between is finished by the next. What somebody has undone stays undone: no memory is superseded a second time.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from everosd import clock, config, errors, types
from everosd.lifecycle import decisions, desk, lineage, memory, overlay, remember, row
from everosd.lifecycle import policy as policies
from everosd.lifecycle import window as windows
from everosd.lifecycle.decisions import Applied, Decision
from everosd.store import lifecycle as store

ACTION: decisions.Action = "promote"
PATH = "reflections/promoted"
"""Where facts are filed whose sources are filed nowhere: Episodes."""
KEYS = "promotion/"
"""What the semantic keys of promoted facts begin with."""

_UNFINISHED = 50
"""Facts, those written last, whose sources are looked at: a pass that is cut off leaves one unfinished."""
_PART = 50
"""Rows that are appended together, as in `run`."""
_SLICE = 150
"""Groups that are looked at without a break."""
_CHANGED = "changed since it was read: the next pass looks again"
_UNDONE = "it was superseded before, and that was undone: it stays"


class Pattern(NamedTuple):
    """What memories have in common that are one fact."""

    bucket: str
    scope: str
    team_id: str
    path: str
    """Empty: of Episodes."""
    name: str
    """Promotion key or semantic key; empty: they have none, and say the same."""
    digest: str
    """Of the text, of those without a key."""

    @property
    def key(self) -> str:
        """Return the semantic key of the fact."""
        return f"{KEYS}{hashlib.blake2b(msgspec.json.encode(tuple(self)), digest_size=8).hexdigest()}"

    def said(self) -> str:
        """Return it in words."""
        return f"{self.name!r} in {self.path or 'conversations'}" if self.name else self.path or "conversations"


class Promote:
    """Plans promotions. Lives on the event loop."""

    def __init__(
        self, parts: desk.Desk, remembering: remember.Remembering, policy: Callable[[], config.Promote]
    ) -> None:
        """Work with these parts, by the table of the moment."""
        self._desk, self._remembering, self._policy = parts, remembering, policy

    async def plan(self, state: overlay.State, call: decisions.Call) -> decisions.Plan:
        """Return what would be done; writes nothing.

        Raises:
            StoreError: the ledger cannot be read.
        """
        policy = self._policy()
        steps = await self._unfinished(state, call)
        is_taken = {one.entry_id for step in steps for one in step.sources}
        records = [one for one in await state.episodic(call) if one.entry_id not in is_taken]
        undone = await lineage.undone(self._desk.reader, call.owner, [one.entry_id for one in records])
        digests = await lineage.digests(self._desk.reader, [one for one in records if not _name(one)])
        skipped = [_skip(one, _UNDONE) for one in records if one.entry_id in undone]
        left = None if call.limit is None else call.limit - len(is_taken)
        is_full = False
        groups = await asyncio.to_thread(grouped, [one for one in records if one.entry_id not in undone], digests)
        for nth, (pattern, some) in enumerate(groups.items()):
            if nth % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)
            if not pattern.name and not pattern.digest:
                skipped += [_skip(one, "it says nothing") for one in some]
                continue
            failed = gate(some, policy)
            if failed:
                skipped += [_skip(one, f"{pattern.said()}: {failed}") for one in some]
                continue
            room = len(some) if left is None else left
            is_full = is_full or (room < len(some) and (bool(steps) or room < policy.min_occurrences))
            if is_full:
                why = f"the limit of {call.limit} is reached: the next pass goes on"
                skipped += [_skip(one, why) for one in some]
                continue
            why = f"the limit of {call.limit} is reached, the oldest first: the next pass goes on"
            skipped += [_skip(one, why) for one in some[room:]]
            found = await self._step(pattern, some[:room], call, policy)
            if isinstance(found, str):
                skipped += [_skip(one, found) for one in some[:room]]
                continue
            steps.append(found)
            left = None if left is None else left - len(found.sources)
        return decisions.Plan(steps=tuple(steps), skipped=tuple(skipped))

    async def _step(
        self, pattern: Pattern, records: Sequence[store.Record], call: decisions.Call, policy: config.Promote
    ) -> _Step | str:
        """Return how a group is promoted that passes the gates, or why it is not."""
        made = await _made(self._desk, call.owner, pattern)
        if made is not None:
            if lineage.is_unwanted(made, records[0].created_us):
                return f"somebody has taken away the fact {made.record.entry_id}"
            if made.record.status != "active":
                made = None
            elif made.is_changed:
                return f"somebody has changed the fact {made.record.entry_id}: it stays as it is, and so does this"
        newest = max(records, key=_by_wording)
        texts = await lineage.texts(self._desk.reader, (newest,))
        if newest.entry_id not in texts:
            return _CHANGED
        return _Step(
            parts=self._desk,
            remembering=self._remembering,
            call=call,
            pattern=pattern,
            sources=tuple(records),
            newest=texts[newest.entry_id],
            policy=policy,
            made=made,
            is_finishing=False,
        )

    async def _unfinished(self, state: overlay.State, call: decisions.Call) -> list[_Step]:
        """Return what finishes promotions that were cut off: their sources are superseded by what is there."""
        fits = windows.fits(call.filters)
        steps: list[_Step] = []
        for made in await lineage.newest(self._desk.reader, call.owner, KEYS, _UNFINISHED):
            some = await store.records(self._desk.reader, call.owner, kinds=store.KINDS, ids=made.sources)
            left = [
                one for one in some if state.is_recallable(one) and fits(one) and one.memory_type == overlay.EPISODIC
            ]
            if not left:
                continue
            undone = await lineage.undone(self._desk.reader, call.owner, [one.entry_id for one in left])
            texts = await lineage.texts(self._desk.reader, left)
            known = [one for one in left if one.entry_id not in undone and one.entry_id in texts]
            digests = await lineage.digests(self._desk.reader, known)
            for pattern, records in grouped(known, digests).items():
                if pattern.key != made.record.semantic_key:
                    continue  # it says something else by now
                steps.append(
                    _Step(
                        parts=self._desk,
                        remembering=self._remembering,
                        call=call,
                        pattern=pattern,
                        sources=tuple(records),
                        newest=texts[records[-1].entry_id],
                        policy=self._policy(),
                        made=made,
                        is_finishing=True,
                    )
                )
        return steps


class _Step:
    """One promotion to be."""

    def __init__(
        self,
        *,
        parts: desk.Desk,
        remembering: remember.Remembering,
        call: decisions.Call,
        pattern: Pattern,
        sources: tuple[store.Record, ...],
        newest: lineage.Text,
        policy: config.Promote,
        made: lineage.Made | None,
        is_finishing: bool,
    ) -> None:
        self._desk, self._remembering, self._call, self._pattern = parts, remembering, call, pattern
        self._newest, self._policy, self._made, self._is_finishing = newest, policy, made, is_finishing
        self.sources = sources

    @property
    def superseded(self) -> Mapping[str, str]:
        """All sources, by the fact, as far as it is there."""
        fact = "" if self._made is None else self._made.record.entry_id
        return {one.entry_id: fact for one in self.sources}

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """One for each source; that of the newest one has the fact."""
        return self._decided(self.sources)

    async def apply(self) -> Applied:
        """Write the fact, then that its sources are superseded by it; those that were changed meanwhile stay.

        Raises:
            WriteRefused: the rest was not written; the next pass does it.
            StoreError: it is on disk and not in the ledger yet.
        """
        same = await lineage.unchanged(self._desk.reader, self.sources, self._desk.now_us())
        if not await self._is_as_read() or not same or (not self._is_finishing and gate(same, self._policy)):
            return Applied(decisions=tuple(_skip(one, _CHANGED) for one in self.sources))
        written: tuple[types.EntryId, ...] = ()
        if self._is_finishing and self._made is not None:
            fact = self._made.record.entry_id
        else:
            try:
                fact = await self._write(same)
            except errors.Conflict:
                return Applied(decisions=tuple(_skip(one, _CHANGED) for one in self.sources))
            written = (types.EntryId(fact),)
            self._desk.step("promoted")
        done, ids = await self._supersede(same, fact)
        kept = {one.entry_id for one in done}
        changed = [_skip(one, _CHANGED) for one in self.sources if one.entry_id not in kept]
        return Applied(
            decisions=(*self._decided(done), *changed),
            audit_ids=ids,
            written=written,
            superseded=dict.fromkeys(kept, fact),
        )

    async def _is_as_read(self) -> bool:
        """Tell whether the fact is as it was, there or not."""
        now = await _made(self._desk, self._call.owner, self._pattern)
        before = None if self._made is None else self._made.record.lsn
        return before == (None if now is None or now.record.status != "active" else now.record.lsn)

    async def _write(self, sources: Sequence[store.Record]) -> str:
        pattern, made = self._pattern, self._made
        fields = {
            **lineage.fields(sources, () if made is None else made.sources),
            "semantic_key": pattern.key,
            "promotion_key": pattern.name,
            "expires_at": _expiry(sources),
        }
        content: str | None = self._newest.content
        subject: str | None = self._newest.subject
        if made is None:
            fields |= {
                "importance": lineage.mean([one.importance for one in sources]),
                "confidence": lineage.mean([one.confidence for one in sources]),
                "provenance": msgspec.json.encode({"action": ACTION}).decode(),
            }
        else:
            del fields["occurred_from"]
            if made.until_us is not None and made.until_us > max(map(_by_wording, sources))[0]:
                content = subject = None
                del fields["occurred_to"]

        async def is_as_read() -> bool:
            now = await lineage.unchanged(self._desk.reader, sources, self._desk.now_us())
            return len(now) == len(sources) and await self._is_as_read()

        done = await self._remembering.remember(
            self._call.owner,
            remember.Wanted(
                path=(pattern.path or PATH) if made is None else made.record.path,
                memory_type="semantic",
                change=memory.Change(content=content, subject=subject, fields=fields),
                bucket=pattern.bucket,
                scope=pattern.scope,
                team_id=pattern.team_id,
                semantic_key=pattern.key,
                reason=f"promoted from {len(sources)} sources",
                run_id=self._call.run_id,
            ),
            still=is_as_read,
        )
        return done.row.entry_id

    async def _supersede(
        self, sources: Sequence[store.Record], fact: str
    ) -> tuple[list[store.Record], tuple[types.EntryId, ...]]:
        """Append the rows; return the sources that they are about, and the ids of the rows."""
        done: list[store.Record] = []
        ids: list[types.EntryId] = []
        for start in range(0, len(sources), _PART):
            some, rows = await self._supersede_part(sources[start : start + _PART], fact)
            done += some
            ids += rows
        return done, tuple(ids)

    async def _supersede_part(
        self, sources: Sequence[store.Record], fact: str
    ) -> tuple[list[store.Record], tuple[types.EntryId, ...]]:
        owner = self._call.owner
        async with self._desk.pen.in_turn(owner):
            same = await lineage.unchanged(self._desk.reader, sources, self._desk.now_us())
            at = clock.from_us(max(self._desk.now_us(), self._call.evaluated_us))
            drafts = [
                row.status(
                    row.Status(
                        action="supersede",
                        target=one.entry_id,
                        base=one.own_status,
                        was=one.status,
                        value="superseded",
                        reason=f"promoted with others to {fact}",
                        run_id=self._call.run_id,
                        successor=fact,
                    ),
                    at,
                )
                for one in same
            ]
            ids = await self._desk.log(owner, drafts)
            if ids:
                await self._desk.until_logged(owner, ids[-1:])
        return same, ids

    def _decided(self, sources: Sequence[store.Record]) -> tuple[Decision, ...]:
        if not sources:
            return ()
        *others, newest = sources
        return (
            *(self._decision(one, sources, {}) for one in others),
            self._decision(newest, sources, self._fact(sources)),
        )

    def _decision(self, record: store.Record, sources: Sequence[store.Record], fact: Mapping[str, object]) -> Decision:
        if self._is_finishing and self._made is not None:
            reason = f"finishes the promotion to {self._made.record.entry_id}, which was cut off"
        else:
            reason = f"{self._pattern.said()}: {passed(sources, self._policy)}"
        return Decision(
            id=record.entry_id,
            owner=record.owner,
            action=ACTION,
            decision="apply",
            reason=reason,
            before={"status": "active"},
            after={"status": "superseded", **fact},
        )

    def _fact(self, sources: Sequence[store.Record]) -> Mapping[str, object]:
        fields = lineage.fields(sources)
        return {
            "fact": self._pattern.key,
            "path": (self._pattern.path or PATH) if self._made is None else self._made.record.path,
            "memory_type": "semantic",
            "subject": self._newest.subject,
            "content": self._newest.content,
            "sources": [one.entry_id for one in sources[-lineage.MAX_SOURCES :]],
            "occurred_from": fields["occurred_from"],
            "occurred_to": fields["occurred_to"],
        }


async def _made(parts: desk.Desk, owner: types.Owner, pattern: Pattern) -> lineage.Made | None:
    return await lineage.made(
        parts.reader, owner, pattern.key, bucket=pattern.bucket, scope=pattern.scope, team_id=pattern.team_id
    )


# -- pure --------------------------------------------------------------------------------------------------------------


def grouped(records: Iterable[store.Record], digests: Mapping[str, str]) -> dict[Pattern, list[store.Record]]:
    """Return memories, which are in time order, by their patterns, in the order of their oldest.

    Args:
        records: Whichever.
        digests: Of the texts of those without a key, by entry id.
    """
    found: dict[Pattern, list[store.Record]] = {}
    for one in records:
        name = _name(one)
        digest = "" if name else digests.get(one.entry_id, "")
        found.setdefault(Pattern(one.bucket, one.scope, one.team_id, one.path, name, digest), []).append(one)
    return found


def gate(records: Sequence[store.Record], policy: config.Promote) -> str:
    """Return which of the gates memories of one pattern do not pass; empty: they pass. Edges are inclusive."""
    failed: list[str] = []
    if len(records) < policy.min_occurrences:
        failed.append(f"{_n(len(records))}, {policy.min_occurrences} are needed")
    for name, values, least in _means(records, policy):
        if not lineage.is_at_least(values, least):
            failed.append(
                f"mean {name} {lineage.mean(values)}, {policies.number(policies.millionths(least))} is needed"
            )
    return "; ".join(failed)


def passed(records: Sequence[store.Record], policy: config.Promote) -> str:
    """Return what of memories was compared with the gates."""
    said = [f"{_n(len(records))}, {policy.min_occurrences} needed"]
    said += [
        f"mean {name} {lineage.mean(values)}, {policies.number(policies.millionths(least))} needed"
        for name, values, least in _means(records, policy)
    ]
    return "; ".join(said)


def _means(
    records: Sequence[store.Record], policy: config.Promote
) -> tuple[tuple[str, list[float], float], tuple[str, list[float], float]]:
    return (
        ("importance", [one.importance for one in records], policy.min_importance),
        ("confidence", [one.confidence for one in records], policy.min_confidence),
    )


def _name(record: store.Record) -> str:
    return record.promotion_key or record.semantic_key


def _by_wording(one: store.Record) -> tuple[int, int, str]:
    """Order memories by when they got the wording that they have."""
    return max(one.updated_us, one.created_us), one.created_us, one.entry_id


def _expiry(sources: Sequence[store.Record]) -> str:
    """Return when the last of the sources expires; empty: one of them never does."""
    ends = [one.expires_us for one in sources if one.expires_us is not None]
    return clock.from_us(max(ends)).isoformat() if len(ends) == len(sources) else ""


def _skip(record: store.Record, reason: str) -> Decision:
    return Decision(id=record.entry_id, owner=record.owner, action=ACTION, decision="skip", reason=reason)


def _n(n: int) -> str:
    return "1 occurrence" if n == 1 else f"{n} occurrences"
