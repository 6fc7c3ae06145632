"""One strategy that events fire: what it has to do, what runs, what it gave up on."""

from __future__ import annotations

import collections
from collections.abc import Iterator

from everosd import types
from everosd.engine import lane as lanes
from everosd.engine import runs as records
from everosd.engine import settings as strategy_settings
from everosd.engine import shown
from everosd.engine import strategy as strategies


class Desk:
    """One strategy, with all that it has to do."""

    __slots__ = ("dead", "is_ailing", "lanes", "last_run", "ready", "running", "strategy")

    def __init__(self, one: strategies.Strategy) -> None:
        """Begin with nothing to do."""
        self.strategy = one
        self.lanes: dict[types.Owner, lanes.Lane] = {}
        """Of owners with something to do."""
        self.ready: collections.deque[lanes.Lane] = collections.deque()
        """In the order in which they get their turn."""
        self.running: dict[lanes.Lane, float] = {}
        """With the moment of their beginning."""
        self.dead: dict[types.Owner, dict[lanes.Key, lanes.Job]] = {}
        self.last_run: records.Record | None = None
        self.is_ailing = False
        """It has waited long for something that is away, which was said."""

    @property
    def name(self) -> str:
        """Return the strategy's name."""
        return self.strategy.name

    def failed(self) -> list[tuple[types.Owner, lanes.Job]]:
        """Return what was given up, and what is to be tried again by itself."""
        found = [(owner, job) for owner, jobs in self.dead.items() for job in jobs.values()]
        return found + [
            (one.owner, job) for one in self.lanes.values() for job in one.aside.values() if job.ticket is None
        ]

    def under_way(self) -> tuple[shown.Summary, ...]:
        """Return runs that are under way."""
        found = [one.running.record for one in self.running if one.running is not None]
        return tuple(
            shown.Summary(run_id=record.run_id, status="running")
            for record in found[: shown.MAX_SHOWN]
            if record is not None
        )

    def put_off(self) -> Iterator[shown.Dead]:
        """Yield what failed and is to be tried again by itself."""
        for one in self.lanes.values():
            for job in one.aside.values():
                yield self._dead(one.owner, job)

    def given_up(self) -> Iterator[tuple[str, shown.Dead]]:
        """Yield what was given up, with when."""
        for owner, jobs in self.dead.items():
            for job in jobs.values():
                at = "" if job.record is None else job.record.finished_at or ""
                yield at, self._dead(owner, job)

    def _dead(self, owner: types.Owner, job: lanes.Job) -> shown.Dead:
        error = "" if job.record is None else job.record.error or ""
        return shown.Dead(strategy=self.name, event=job.event(owner), attempts=job.attempt, error=error)

    def status(self, settings: strategy_settings.Watcher, now_s: float) -> shown.StrategyStatus:
        """Return what people ask for; cheap."""
        wanted = settings.of(self.name)
        return shown.StrategyStatus(
            name=self.name,
            enabled=wanted.enabled,
            trigger=self.strategy.trigger,
            cron=wanted.cron,
            last_run=self.last_run,
            settings_error=settings.error_of(self.name),
            waiting=sum(map(len, self.lanes.values())),
            running=len(self.running),
            running_s=now_s - min(self.running.values(), default=now_s),
            dead=sum(map(len, self.dead.values())),
        )
