"""POST ome/trigger and GET ome/strategies: what the engine runs, asked for by hand."""

from __future__ import annotations

import datetime as dt
import math
from typing import TYPE_CHECKING

import msgspec

from everosd import clock, errors
from everosd.api import moment, reply, schema, services
from everosd.api import request as requests

if TYPE_CHECKING:
    from everosd.engine import engine, runs, shown

MAX_TIMEOUT_S = 86_400.0
"""Nobody waits longer than a day; larger numbers overflow timers."""

READY_S = 10.0
"""How long a request waits for the strategies of a daemon that has just started."""


class Ome:
    """Handlers of the engine's routes."""

    def __init__(self, given: services.Services) -> None:
        """Answer from `given`."""
        self._given = given
        self._zone = given.config.memory.zone

    async def trigger(self, request: reply.Request) -> reply.Response:
        """Answer POST ome/trigger with a bare object: 200 whatever came of the runs."""
        reply.called(request, "ome/trigger")
        asked = requests.decode(requests.TRIGGER, await reply.body(request))
        if not math.isfinite(asked.timeout):  # EverOS takes a number as text, and `nan` is none
            message = "expected a number of seconds"
            raise errors.RequestError(message, field="timeout")
        timeout_s = max(0.0, min(asked.timeout, MAX_TIMEOUT_S))
        engine = await self._ready()
        done = await engine.trigger(asked.name, timeout_s=timeout_s, force=asked.force, dry_run=asked.dry_run)
        answer = schema.TriggerResponse(
            status=done.status,
            name=done.name,
            dispatched=done.dispatched,
            runs=tuple(
                schema.RunSummary(
                    run_id=run.run_id,
                    status=run.status,
                    error=run.error,
                    result=msgspec.UNSET if run.result is None else _result(run, is_dry=asked.dry_run),
                    detail=msgspec.UNSET if run.detail is None or asked.dry_run else msgspec.Raw(run.detail.encode()),
                )
                for run in done.runs
            ),
        )
        return reply.raw(schema.ENCODER.encode(answer))

    async def strategies(self, request: reply.Request) -> reply.Response:
        """Answer GET ome/strategies."""
        reply.called(request, "ome/strategies")
        requests.decode_query(request.query_params.multi_items(), schema.NoQuery)
        items = tuple(map(self._item, (await self._ready()).status()))
        return reply.success(request, schema.Strategies(items=items))

    async def _ready(self) -> engine.Engine:
        """Return the engine once its strategies are there, or after a while.

        Raises:
            errors.CapabilityMissing: none runs here.
        """
        if self._given.engine is None:
            message = "no engine runs here: start the daemon with `everosd serve`"
            raise errors.CapabilityMissing(message)
        await clock.wait(self._given.engine.is_ready, READY_S, self._given.clock)
        return self._given.engine

    def _item(self, one: shown.StrategyStatus) -> schema.StrategyItem:
        return schema.StrategyItem(
            name=one.name,
            enabled=one.enabled,
            trigger=one.trigger,
            cron=one.cron,
            idle_seconds=one.idle_seconds,
            next_fire_time=self._moment(one.next_fire_time),
            last_run=None if one.last_run is None else self._run(one.last_run),
            settings_error=one.settings_error,
            waiting=one.waiting,
            running=one.running,
            dead=one.dead,
        )

    def _run(self, one: runs.Record) -> schema.LastRun:
        return schema.LastRun(
            run_id=one.run_id,
            trigger=one.trigger,
            status=one.status,
            attempt=one.attempt,
            started_at=self._moment(one.started_at) or one.started_at,
            finished_at=self._moment(one.finished_at),
            error=one.error,
            result=one.result,
        )

    def _moment(self, iso: str | None) -> str | None:
        """Return a moment in the zone of the memory."""
        return None if iso is None else moment.iso(clock.to_us(dt.datetime.fromisoformat(iso)), self._zone)


def _result(run: shown.Summary, *, is_dry: bool) -> str | msgspec.Raw | None:
    """Return what a run did in words; what a dry run found as the object that it is."""
    return msgspec.Raw(run.detail.encode()) if is_dry and run.detail is not None else run.result
