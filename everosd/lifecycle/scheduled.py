"""The strategy `run_lifecycle`: passes over every owner's memories, by the clock of each owner or by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import structlog

from everosd import clock, config, errors, types
from everosd.engine import schedule, strategy
from everosd.engine import settings as strategy_settings
from everosd.lifecycle import alarm, audit, decisions, desk, forget, moved, outcome, run
from everosd.lifecycle import window as windows
from everosd.store import lifecycle as store

log = structlog.get_logger(__name__)

NAME = "run_lifecycle"

SHOWN = 100
"""Decisions of each action and owner in what a dry run shows; all are counted."""
SHOWN_OWNERS = 100
"""Owners of whom a dry run shows decisions; of all of them they are counted."""
_ROWS = 100
"""Audit rows that are read at once, until the last run is found …"""
_MAX_ROWS = 10_000
"""… among so many."""


class Scheduled:
    """The strategy. Lives on the event loop."""

    def __init__(
        self,
        parts: desk.Desk,
        passes: run.Passes,
        alarms: alarm.Alarms,
        settings: Callable[[], config.Config],
        wanted: Callable[[], strategy_settings.Settings],
        removals: forget.Forgetting | None = None,
    ) -> None:
        """Make passes by the settings of the moment: those of everos.toml, and those of the strategy.

        `removals` finishes at the start what was to be removed for good.
        """
        self.passes, self.alarms = passes, alarms
        self._desk, self._settings, self._wanted, self._removals = parts, settings, wanted, removals

    async def recover(self) -> str:
        """Finish moves and what was being removed for good, and say so; read which passes were stopped before this start.

        A pass that was cut off is not finished: the next one does what is left.
        """
        await self._desk.caught_up()
        for owner in await store.owners(self._desk.reader, store.KINDS):
            async for _, told in self._told(owner):
                if not told.is_dry_run and set(told.actions) & set(decisions.GUARDED):
                    self.alarms.note(owner, told.stopped)
                    break
        n_moved = await moved.recover(self._desk)
        n_removed = 0 if self._removals is None else await self._removals.recover()
        done = [f"moving {n_moved:,}"] if n_moved else []
        done += [f"removing {n_removed:,} for good"] if n_removed else []
        return f"finished {' and '.join(done)}" if done else ""

    async def forget(self, owner: types.Owner) -> None:
        """Let go of an owner whose memory is gone."""
        self.passes.forget(owner)
        self.alarms.note(owner, None)

    async def run(self, fire: strategy.Fire) -> strategy.Done:
        """Make a pass over the memories of every owner whose time it is; by hand, of every one.

        A fault at one owner does not stop the next. What was cut off is begun again, and does what is left.

        Raises:
            Exception: the first of such faults, once everybody had their turn.
        """
        await self._desk.caught_up()
        found = _Summary()
        failed: Exception | None = None
        for owner in await store.owners(self._desk.reader, store.KINDS):
            if fire.is_stopping():
                break
            if not self._is_due(owner, fire):
                continue
            try:
                found.take(await self._pass(owner, fire))
            except Exception as error:  # the others have their turn
                failed = failed or error
                if isinstance(error, errors.EverosdError):
                    log.error("lifecycle_failed", owner=owner.id, reason=str(error), hint=error.hint)  # noqa: TRY400
                else:
                    log.exception("lifecycle_failed", owner=owner.id)
        if failed is not None:
            raise failed
        return strategy.Done(note=found.note(), detail=found.detail())

    def _is_due(self, owner: types.Owner, fire: strategy.Fire) -> bool:
        wanted = self._wanted()
        if fire.trigger != "cron" or not wanted.is_by_owner or wanted.times is None:
            return True
        times = schedule.Schedule(wanted.times, self._settings().zone_of(owner.id))
        first_at = fire.first_at or fire.due_at
        return times.latest(first_at - schedule.LEAST, fire.due_at) is not None

    async def _pass(self, owner: types.Owner, fire: strategy.Fire) -> outcome.Result:
        actions = self._wanted().actions
        return await self.passes.reflect(
            owner,
            outcome.Wanted(
                actions=decisions.ORDER if actions is None else actions,
                window=await self._window(owner),
                limit=None,
                is_dry_run=fire.is_dry_run,
                tool=NAME,
                run_id=fire.run_id,
            ),
        )

    async def _window(self, owner: types.Owner) -> decisions.Window:
        """Return the time since the last run, at least a day: however seldom it runs, nothing is left out."""
        now_us = self._desk.now_us()
        window = windows.of(now_us)
        async for at_us, told in self._told(owner, tool=NAME):
            if not told.is_dry_run and not told.error:
                since_us = at_us if told.until_us is None else told.until_us
                return decisions.Window(since_us=min(window.since_us, since_us), until_us=now_us)
        return window

    async def _told(self, owner: types.Owner, tool: str | None = None) -> AsyncIterator[tuple[int, audit.Told]]:
        """Yield audit rows with their moments, the newest first: dry runs of an agent may lie before the last real one."""
        for offset in range(0, _MAX_ROWS, _ROWS):
            found = await store.rows(
                self._desk.reader, owner, actions=(audit.ACTION,), tool=tool, limit=_ROWS, offset=offset
            )
            for one in found:
                if (told := audit.read(one)) is not None:
                    yield audit.at_us(one) or 0, told
            if len(found) < _ROWS:
                return


class _Summary:
    """What is told of passes over many owners; what they decided is let go of, one by one."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(decisions.ORDER, 0)
        self._owners: list[dict[str, object]] = []
        self._n_stopped = 0
        self._evaluated_us = 0

    def take(self, found: outcome.Result) -> None:
        """Take in what became of one owner."""
        for one in found.actions:
            self._counts[one.action] += one.n_applied
        self._n_stopped += found.stopped is not None
        self._evaluated_us = max(self._evaluated_us, found.evaluated_us)
        n_shown = SHOWN if found.is_dry_run and len(self._owners) < SHOWN_OWNERS else 0
        self._owners.append(_of_owner(found, n_shown))

    def note(self) -> str:
        """Return what was done, in one line."""
        done = ", ".join(f"{action} {n:,}" for action, n in self._counts.items() if n) or "nothing was due"
        n = len(self._owners)
        said = f"{n:,} owner{'' if n == 1 else 's'}: {done}"
        return f"{said}; {self._n_stopped:,} stopped as too much at once" if self._n_stopped else said

    def detail(self) -> dict[str, object]:
        """Return the same by owner."""
        at = clock.from_us(self._evaluated_us).isoformat() if self._owners else None
        return {"evaluated_at": at, "owners": self._owners}


def _of_owner(found: outcome.Result, n_shown: int) -> dict[str, object]:
    return {
        "owner_id": found.owner.id,
        "owner_type": found.owner.type,
        "app_id": found.owner.app,
        "project_id": found.owner.project,
        "evaluated_at": clock.from_us(found.evaluated_us).isoformat(),
        "stopped": None if found.stopped is None else found.stopped.reason,
        "actions": [
            {
                "action": one.action,
                "counts": {"apply": one.n_applied, "skip": one.n_skipped, "left": one.n_left},
                **({"reason": one.reason} if one.reason else {}),
                "candidates": [
                    {
                        "id": types.public_id(each.owner.id, each.id),
                        "decision": each.decision,
                        "reason": each.reason,
                        "before": each.before,
                        "after": each.after,
                    }
                    for each in one.candidates[:n_shown]
                ],
            }
            for one in found.actions
        ],
    }
