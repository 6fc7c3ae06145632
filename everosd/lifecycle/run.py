"""A pass over one owner's memories: what each action decides, in order, and for a real one the rows that make it so.

A dry run and a real one plan alike, on an overlay of what the ledger knows. What is decided by rule is then appended to
`.lifecycle/` in parts, each held against the memories as they are by then; a pass that is cut off leaves whole parts, and the
next one does the rest.
"""

from __future__ import annotations

import asyncio
import uuid
import weakref
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec
import structlog

from everosd import clock, config, errors, types
from everosd.lifecycle import (
    archive,
    audit,
    change,
    decay,
    decisions,
    desk,
    expire,
    guard,
    outcome,
    overlay,
    past,
    policy,
    usage,
)
from everosd.lifecycle import window as windows
from everosd.store import lifecycle as store

log = structlog.get_logger(__name__)

PART = 100
"""Rows that are appended together: some ten milliseconds' work for the ledger and the indexes, which a search may have to wait for."""
LONGEST_REST_S = 0.1
"""After each part there is a rest half as long as it took, so that at least every third search finds nothing in its way."""
SLICE = 150
"""Memories that are decided about without a break, some milliseconds."""

Done = dict[decisions.Action, outcome.Done]


class Found(msgspec.Struct, kw_only=True):
    """What one action decides by rule. Of a hundred thousand memories most are spared each night: few of those are kept."""

    changes: list[change.Change] = msgspec.field(default_factory=list)
    """In the order of the memories; of what is to be applied, and of what is spared, no more than an answer shows."""
    n_due: int = 0
    """All that is to be applied, kept or not."""
    n_spared: int = 0

    def take(self, one: change.Change, limit: int | None) -> None:
        """Count what is to be applied; the first `limit` are kept, None: all."""
        self.n_due += 1
        if limit is None or self.n_due <= limit:
            self.changes.append(one)

    def spare(self, one: change.Change, n_shown: int) -> None:
        """Count what is spared; the first `n_shown` are kept."""
        self.n_spared += 1
        if self.n_spared <= n_shown:
            self.changes.append(one)


class Consolidator(Protocol):
    """Plans one of the two actions that write new memories."""

    async def plan(self, state: overlay.State, call: decisions.Call) -> decisions.Plan:
        """Return what would be done; writes nothing. The sources are `state.episodic(call)`.

        A model that is away or refuses skips its groups with the reason: no fault of the call.

        Raises:
            StoreError: the ledger cannot be read.
        """


async def at_once() -> None:
    """Wait for nothing."""


class Passes:
    """Makes passes. Lives on the event loop."""

    def __init__(
        self,
        parts: desk.Desk,
        settings: Callable[[], config.Config],
        *,
        consolidators: Mapping[decisions.Action, Consolidator] | None = None,
        uses: usage.Uses | None = None,
        give_way: Callable[[], Awaitable[None]] = at_once,
    ) -> None:
        """Wire the parts.

        Args:
            parts: Reads and writes.
            settings: Those of the moment.
            consolidators: What plans `summarize` and `promote`; where one is missing, the action is skipped.
            uses: What is known of uses that the log has not heard of yet: a real pass has it written first.
            give_way: Waits while somebody is being answered.
        """
        self._desk, self._settings, self._uses, self._give_way = parts, settings, uses, give_way
        self.consolidators = dict(consolidators or {})
        self._locks = weakref.WeakValueDictionary[types.Owner, asyncio.Lock]()
        """Of those whose pass goes on, or waits."""
        self.on_end: Callable[[outcome.Result], None] = lambda _: None
        """Called at the end of each real pass."""

    async def reflect(self, owner: types.Owner, wanted: outcome.Wanted) -> outcome.Result:
        """Make a pass over an owner's memories; what it wrote is in the ledger, and in the index, when this returns.

        Raises:
            RequestError: the window ends before it begins.
            WriteRefused: the rest was not written; it is still due.
            StoreError: the ledger cannot be read, or does not take note.
        """
        await self._desk.caught_up(owner)
        async with self._locks.setdefault(owner, asyncio.Lock()):
            if self._uses is not None and not wanted.is_dry_run:
                await self._uses.write(owner)
            made = _Pass(self._desk, policy.of(self._settings()), self._give_way, self.consolidators, self._uses)
            minimum = self._settings().lifecycle.min_group_size
            result = await made.run(owner, wanted, minimum if wanted.min_group_size is None else wanted.min_group_size)
        if not wanted.is_dry_run:
            self.on_end(result)
        return result

    def forget(self, owner: types.Owner) -> None:
        """Let go of an owner whose memory is gone."""
        if self._uses is not None:
            self._uses.forget(owner)


class _Pass:
    """One pass."""

    def __init__(
        self,
        parts: desk.Desk,
        policies: policy.Policy,
        give_way: Callable[[], Awaitable[None]],
        consolidators: Mapping[decisions.Action, Consolidator],
        uses: usage.Uses | None,
    ) -> None:
        self._desk, self._policies, self._give_way, self._consolidators = parts, policies, give_way, consolidators
        self._uses = uses
        self._audit_ids: list[types.EntryId] = []
        self._has_changed = False
        self._written: list[outcome.Written] = []
        self._past: dict[str, past.Past] = {}

    async def run(self, owner: types.Owner, wanted: outcome.Wanted, min_group_size: int) -> outcome.Result:
        now_us = self._desk.now_us()
        call = decisions.Call(
            run_id=wanted.run_id or uuid.uuid4().hex,
            owner=owner,
            evaluated_us=now_us,
            window=wanted.window or windows.of(now_us),
            filters=wanted.filters,
            limit=wanted.limit,
            min_group_size=min_group_size,
            is_dry_run=wanted.is_dry_run,
        )
        asked = [action for action in decisions.ORDER if action in wanted.actions]
        state = overlay.State(self._desk.reader, owner, now_us)
        if any(action in decisions.GUARDED for action in asked):
            found = await store.records(self._desk.reader, owner, kinds=self._policies.kinds, statuses=overlay.GOVERNED)
            state.take(found if self._uses is None or not call.is_dry_run else self._uses.seen(owner, found))
        done: Done = {}
        stopped: guard.Stopped | None = None
        try:
            for action in asked:
                if action not in decisions.GUARDED:
                    done[action] = await self._consolidate(action, state, call)
            stopped = await self._by_rule(asked, state, call, wanted, done)
        except errors.EverosdError as error:
            await self._tell(asked, call, wanted, done, stopped, error=errors.describe(error))
            raise
        await self._tell(asked, call, wanted, done, stopped)
        return outcome.Result(
            run_id=call.run_id,
            owner=owner,
            is_dry_run=call.is_dry_run,
            evaluated_us=now_us,
            window=call.window,
            actions=tuple(done[action] for action in asked),
            audit_ids=tuple(self._audit_ids),
            stopped=stopped,
            written=tuple(self._written),
        )

    # -- summarize and promote -------------------------------------------------------------------------------------

    async def _consolidate(self, action: decisions.Action, state: overlay.State, call: decisions.Call) -> outcome.Done:
        """Plan summaries or promotions and, in a real pass, write them; the overlay has them afterwards."""
        planner = self._consolidators.get(action)
        if planner is None:
            return outcome.Done(action=action, reason=f"{action} is not there yet")
        plan = await planner.plan(state, call)
        made: list[decisions.Decision] = []
        for step in plan.steps:
            if call.is_dry_run:
                made += step.decisions
                state.supersede(step.superseded)
                continue
            applied = await step.apply()
            made += applied.decisions
            self._audit_ids += applied.audit_ids
            sources = tuple(one.id for one in applied.decisions if one.decision == "apply")
            self._written += [
                outcome.Written(action=action, entry_id=one, sources=sources)
                for one in dict.fromkeys((*applied.written, *applied.superseded.values()))
            ]
            self._has_changed |= bool(applied.written or applied.superseded)
            state.supersede(applied.superseded)
        return _done(action, [*made, *plan.skipped], n_more=0, n_left=0, limit=call.limit)

    # -- expire, decay, archive ------------------------------------------------------------------------------------

    async def _by_rule(
        self,
        asked: Sequence[decisions.Action],
        state: overlay.State,
        call: decisions.Call,
        wanted: outcome.Wanted,
        done: Done,
    ) -> guard.Stopped | None:
        """Decide what is decided by rule and, in a real pass, do it; return why nothing of it is done."""
        actions = [action for action in asked if action in decisions.GUARDED]
        if not actions:
            return None
        if "decay" in actions:
            await self._read_past(state)
        drastic: set[str] = set()
        found = whole = await self._decide(actions, state.fork(), call, drastic=drastic)
        max_share = self._policies.max_share if wanted.max_share is None else wanted.max_share
        stopped = None if wanted.is_forced else guard.check(state.records, drastic, max_share)
        if call.limit is not None and any(one.n_due > call.limit for one in whole.values()):
            found = await self._decide(
                actions, state, call, is_limited=True
            )  # what is left is not seen by later actions
        n_shown = _n_shown(call.limit)
        for action in actions:
            some = found[action].changes
            if stopped is not None:
                some = [guard.held_back(one) for one in some]
            elif not call.is_dry_run:
                some = await self._apply(some, call)
            done[action] = _done(
                action,
                [one.decision for one in some],
                n_more=max(0, found[action].n_spared - n_shown),
                n_left=0 if stopped is not None else max(0, whole[action].n_due - found[action].n_due),
                limit=call.limit,
            )
        return stopped

    async def _read_past(self, state: overlay.State) -> None:
        """Read what does not count of the past of those that have one and would decay."""
        due: list[store.Record] = []
        for nth, record in enumerate(state.records):
            if nth % SLICE == SLICE - 1:
                await asyncio.sleep(0)
            if record.anchor_us is None or record.kind != "memory":
                continue
            one = decay.plan(record, state.status(record)[0], self._policies, state.now_us)
            if one is not None and one.is_applied:
                due.append(record)
        for start in range(0, len(due), PART):
            part = due[start : start + PART]
            told = await store.rows_of_each(
                self._desk.reader,
                state.owner,
                {record.entry_id: record.since_us for record in part},
                actions=past.ACTIONS,
                limit=past.MAX_ROWS,
            )
            for record in part:
                self._past[record.entry_id] = past.of(told.get(record.entry_id, ()), is_pinned=record.is_pinned)

    async def _decide(
        self,
        actions: Sequence[decisions.Action],
        state: overlay.State,
        call: decisions.Call,
        *,
        is_limited: bool = False,
        drastic: set[str] | None = None,
    ) -> dict[decisions.Action, Found]:
        """Return what each action decides; the overlay has it afterwards.

        Args:
            actions: In order.
            state: The overlay.
            call: Its limit says how many changes are kept.
            is_limited: No more is decided than is kept; else all is.
            drastic: Takes in the entry ids that the safety stop counts.
        """
        fits, n_shown = windows.fits(call.filters), _n_shown(call.limit)
        result: dict[decisions.Action, Found] = {}
        for action in actions:
            result[action] = found = Found()
            plan = self._planner(action, state)
            for nth, record in enumerate(state.records):
                if nth % SLICE == SLICE - 1:
                    await asyncio.sleep(0)
                one = plan(record) if fits(record) else None
                if one is None:
                    continue
                if not one.is_applied:
                    found.spare(one, n_shown)
                elif not is_limited or found.n_due != call.limit:
                    found.take(one, call.limit)
                    if drastic is not None and one.is_drastic:
                        drastic.add(record.entry_id)
                    if one.decayed is None:
                        state.change((record.entry_id,), str(one.decision.after["status"]))
        return result

    def _planner(
        self, action: decisions.Action, state: overlay.State
    ) -> Callable[[store.Record], change.Change | None]:
        """Return what decides about one memory; asked a hundred thousand times."""
        policies, now_us, status, before = self._policies, state.now_us, state.status, self._past
        if action == "expire":
            return lambda one: None if one.expires_us is None else expire.plan(one, status(one)[0], now_us)
        if action == "decay":
            return lambda one: decay.plan(one, status(one)[0], policies, now_us, before.get(one.entry_id, past.ALL))
        return lambda one: archive.plan(one, *status(one), policies, now_us)

    async def _apply(self, found: Sequence[change.Change], call: decisions.Call) -> list[change.Change]:
        """Append the rows of what is to be applied; what has changed since it was read is skipped, with the reason."""
        wanted = [one for one in found if one.is_applied]
        done = [one for one in found if not one.is_applied]
        applied: list[change.Change] = []
        for start in range(0, len(wanted), PART):
            await self._give_way()
            began_s = self._desk.clock.monotonic_s()
            applied += await self._apply_part(wanted[start : start + PART], call)
            if start + PART < len(wanted):
                took_s = self._desk.clock.monotonic_s() - began_s
                await self._desk.clock.sleep(min(LONGEST_REST_S, took_s / 2))
        return [*applied, *done]

    async def _apply_part(self, part: Sequence[change.Change], call: decisions.Call) -> list[change.Change]:
        owner, reader = call.owner, self._desk.reader
        async with self._desk.pen.in_turn(owner):
            known = await store.records(
                reader, owner, kinds=store.KINDS, statuses=(), ids=[one.record.entry_id for one in part]
            )
            now = {one.entry_id: one for one in known}
            checked = [one if _still(one, now.get(one.record.entry_id)) else _overtaken(one) for one in part]
            good = [one for one in checked if one.is_applied]
            texts: dict[int, str] = {}
            if good and good[0].decision.action == "archive":
                texts = {one.key: one.raw for one in await reader.rows([one.record.key for one in good])}
            at = clock.from_us(max(self._desk.now_us(), call.evaluated_us))
            drafts = [change.draft(one, call.run_id, at, texts.get(one.record.key, "")) for one in good]
            ids = await self._desk.log(owner, drafts)
            self._audit_ids += ids
            self._has_changed |= bool(ids)
            if ids:
                await self._desk.until_logged(owner, ids[-1:])
        return checked

    # -- the call itself -------------------------------------------------------------------------------------------

    async def _tell(
        self,
        asked: Sequence[decisions.Action],
        call: decisions.Call,
        wanted: outcome.Wanted,
        done: Done,
        stopped: guard.Stopped | None,
        *,
        error: str = "",
    ) -> None:
        """Append the audit row of the call, and wait until everything is known."""
        owner = call.owner
        if owner.id not in await self._desk.reader.owner_ids(owner.app, owner.project, owner.type):
            return  # nobody's memory is nothing to write about, and would make somebody of them
        row = audit.draft(
            audit.Told(
                run_id=call.run_id,
                tool=wanted.tool,
                is_dry_run=call.is_dry_run,
                actions=tuple(asked),
                parameters=wanted.parameters,
                until_us=call.window.until_us,
                counts={action: audit.Counts.of(one) for action, one in done.items()},
                stopped=stopped,
                error=error,
            ),
            clock.from_us(max(self._desk.now_us(), call.evaluated_us)),
        )
        try:
            ids = await self._desk.log(owner, [row])
        except errors.WriteRefused as refused:
            if not error:
                raise
            log.warning("audit_not_written", owner=owner.id, run_id=call.run_id, reason=str(refused))
            return
        self._audit_ids += ids
        await self._desk.until_logged(owner, ids)
        if self._has_changed:
            await self._desk.until_shown(await self._desk.reader.lsn())


def _n_shown(limit: int | None) -> int:
    """Return how many of those that are spared an answer shows of each action."""
    return decisions.DEFAULT_LIMIT if limit is None else limit


def _done(
    action: decisions.Action, found: Iterable[decisions.Decision], *, n_more: int, n_left: int, limit: int | None
) -> outcome.Done:
    """Return what an action decided; what is skipped is shown up to the limit, and `n_more` are not even in `found`."""
    applied: list[decisions.Decision] = []
    skipped: list[decisions.Decision] = []
    for one in found:
        (applied if one.decision == "apply" else skipped).append(one)
    shown = skipped[: _n_shown(limit)]
    return outcome.Done(
        action=action,
        candidates=(*applied, *shown),
        n_applied=len(applied),
        n_skipped=len(skipped) + n_more,
        n_left=n_left,
    )


_SAME = ("key", "own_status", "own_importance", "importance", "is_pinned", "expires_us", "anchor_us", "accessed_us")
"""What a decision was made on; the status is compared apart."""


def _still(one: change.Change, now: store.Record | None) -> bool:
    """Tell whether a memory is as it was when it was decided about, but for what this pass itself has done to it."""
    before = one.record
    if now is None or now.status not in (before.status, one.was or before.status):
        return False
    return all(getattr(now, name) == getattr(before, name) for name in _SAME if name != "importance" or one.decayed)


def _overtaken(one: change.Change) -> change.Change:
    decision = msgspec.structs.replace(
        one.decision, decision="skip", reason="changed since it was read: the next pass looks again"
    )
    return msgspec.structs.replace(one, decision=decision)
