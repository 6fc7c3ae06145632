"""A dry run: what a run would do, merge by merge, seen through what it would have done before; nothing is written."""

from __future__ import annotations

import asyncio
import datetime as dt
import difflib
from collections.abc import Callable, Iterable, Sequence

import structlog

from everosd import clock, errors, types
from everosd.engine import strategy
from everosd.narrative import source as texts
from everosd.reflection import members, merges, plan, planner, source, tally
from everosd.store import read, report, row

log = structlog.get_logger(__name__)

Shown = dict[str, object]
"""Ready to be written as JSON."""


class Rehearsal:
    """One dry run. Lives on the event loop."""

    def __init__(
        self,
        reader: read.Reader,
        plans: planner.Planner,
        merging: texts.Merging,
        in_turn: Callable[[Iterable[report.Candidate]], list[report.Candidate]],
        limit: int,
        time: clock.Clock,
    ) -> None:
        """Show at most `limit` clusters of each owner, in turn as `merges.Merges` has it."""
        self._reader, self._plans, self._merging, self._in_turn = reader, plans, merging, in_turn
        self._limit, self._clock = limit, time
        self._patience = tally.Patience()
        self._n_undone = 0

    async def run(self, fire: strategy.Fire) -> strategy.Done:
        """Return what would be done."""
        now_us = clock.to_us(self._clock.now())
        halves = await self._reader.rows(await report.unfinished(self._reader, now_us))
        overlays = {(one.owner, one.parent_id): _overlay(one) for one in halves}
        shown: list[Shown] = []
        for owner, clusters in planner.by_owner(await report.candidates(self._reader, now_us)):
            n_left = self._limit
            for one in self._in_turn(clusters):
                if fire.is_stopping() or not n_left:
                    break
                found = await self._cluster(one, overlays.get((owner, one.cluster_id)), fire)
                shown += found
                n_left -= bool(found)
        n_merges = sum(one["narrative"] is not None for one in shown)
        n_skipped = len(shown) - n_merges
        note = f"would make {n_merges} narrative{'' if n_merges == 1 else 's'}, and skip {n_skipped}"
        detail = {
            "evaluated_at": clock.from_us(now_us).astimezone(dt.UTC).isoformat(),
            "clusters": shown,
            "undone": self._n_undone,
            "unfinished": [types.public_id(one.owner.id, one.entry_id) for one in halves],
        }
        return strategy.Done(note=note, detail=detail)

    async def _cluster(
        self, one: report.Candidate, overlay: members.Overlay | None, fire: strategy.Fire
    ) -> list[Shown]:
        shown: list[Shown] = []
        wanted: plan.Plan | None = None
        try:
            if reason := self._patience.away if self._merging.is_set_up else merges.NO_MODEL:
                if await self._plans.is_open(one):
                    return [_shown(one, None, reason=reason, topic=await self._plans.topic(one))]
                self._n_undone += 1
                return []
            reading, wanted = await self._plans.next(one, self._merging, overlay)
            found: Sequence[plan.Member] = reading.members
            self._n_undone += wanted is None and await self._plans.is_undone(one, found)
            while wanted is not None and not fire.is_stopping():
                narrative = await self._merging.merge(wanted.read)
                self._patience.answered()
                shown.append(await asyncio.to_thread(_shown, one, wanted, narrative))
                found = _after(found, wanted, narrative, len(shown))
                wanted = await self._plans.of(one, found, self._merging)
        except errors.LLMRejected as error:
            self._patience.answered()
            check = error.check.said() if isinstance(error, texts.Refused) else None
            shown.append(_shown(one, wanted, reason=error.reason, check=check))
        except errors.LLMUnavailable as error:
            self._patience.without_answer(error)
            shown.append(_shown(one, wanted, reason=str(error)))
        except (members.UnsettledError, errors.WriteRefused) as error:
            shown.append(_shown(one, wanted, reason=str(error)))
        except Exception as error:  # the others are shown
            log.exception("rehearsal_failed", owner=one.owner.id, cluster_id=one.cluster_id)
            shown.append(_shown(one, wanted, reason=errors.describe(error)))
        return shown


def _overlay(narrative: row.EntryRow) -> members.Overlay:
    gone = frozenset(entry_id for entry_id, _ in source.replaced(narrative))
    return members.Overlay(gone=gone, joined=(narrative.key,))


def _after(
    found: Sequence[plan.Member], wanted: plan.Plan, narrative: texts.Narrative, number: int
) -> list[plan.Member]:
    """Return the members of a cluster after a merge."""
    gone = {one.id for one in wanted.replaced}
    before = next((one for one in wanted.replaced if one.source.is_narrative), None)
    fragments = [one.source for one in wanted.replaced if one is not before]
    is_known = before is None or bool(before.originals)
    edited = [before.source] if before is not None and before.source.is_latest else []
    made = plan.Member(
        source=texts.Source(
            entry_id=f"narrative {number} of this run",
            at=max(one.source.at for one in wanted.replaced),
            subject=narrative.subject,
            content=narrative.content,
            is_narrative=True,
        ),
        digest="",
        path=types.RelPath(""),
        timestamp_us=wanted.timestamp_us,
        originals=(*(before.originals if before is not None else ()), *edited, *fragments) if is_known else (),
    )
    return [*(one for one in found if one.id not in gone), made]


def _shown(
    one: report.Candidate,
    wanted: plan.Plan | None,
    narrative: texts.Narrative | None = None,
    *,
    reason: str | None = None,
    check: str | None = None,
    topic: str | None = None,
) -> Shown:
    replaced = () if wanted is None else wanted.replaced
    after = None if narrative is None else {"subject": narrative.subject, "content": narrative.content}
    return {
        "owner_id": one.owner.id,
        "owner_type": one.owner.type,
        "app_id": one.owner.app,
        "project_id": one.owner.project,
        "cluster_id": one.cluster_id,
        "topic": topic if topic is not None or not replaced else replaced[-1].source.subject,
        "mode": None if wanted is None else wanted.mode,
        "sources": [types.public_id(one.owner.id, each.id) for each in replaced],
        "narrative": after,
        "diff": None if narrative is None else _diff(replaced, narrative),
        "check": check if narrative is None else narrative.check.said(),
        "reason": reason,
    }


def _diff(replaced: Sequence[plan.Member], narrative: texts.Narrative) -> str:
    """Return what changes, as `diff -u` would say it."""
    before = "\n\n".join(f"{one.source.subject}\n\n{one.source.content}".strip() for one in replaced)
    after = f"{narrative.subject}\n\n{narrative.content}".strip()
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), ", ".join(one.id for one in replaced), "narrative", lineterm=""
    )
    return "\n".join(lines)
