"""/health: what works, what does not, and what to do about it; always 200 while the daemon answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from everosd import clock, errors
from everosd.api import moment, schema, services
from everosd.cascade import status as cascade_status
from everosd.engine import advice

if TYPE_CHECKING:
    from everosd.engine import shown
    from everosd.intake import online
    from everosd.models import chat

MAX_PROBLEMS = 20
"""Problem files shown in /health; `everosd status` shows more."""

MAX_NAMED = 5
"""Segments named one by one."""


def reasons(status: cascade_status.Status) -> Iterator[str]:
    """Yield what does not work as it should, the worst first, each as a sentence with what to do where that is known."""
    if status.alarm:
        yield status.alarm
    for name, projection in sorted(status.projections.items()):
        yield from _of_projection(name, projection)
    if not status.watch_healthy or status.watch_reason:
        yield f"changes are noticed by {status.watch_mode}: {status.watch_reason or 'the watcher is being restarted'}"
    if status.failed_permanent:
        yield f"not read as it should be: {_n(status.failed_permanent, 'file')}; `everosd doctor` names what to mend"
    if status.failed_retryable:
        yield f"failed and tried again: {_n(status.failed_retryable, 'change')}"
    if status.phase == "ready" and not status.pending and status.files_on_disk != status.files_indexed:
        yield (
            f"{_n(status.files_on_disk, 'file')} on disk, {status.files_indexed} indexed:"
            " `everosd status` names those that cannot be read"
        )


def _of_projection(name: str, projection: cascade_status.ProjectionStatus) -> Iterator[str]:
    if projection.state == "rebuilding":
        done, total = projection.progress or (0, 0)
        yield f"the {name} index is being rebuilt: {done} of {total}"
    elif projection.state == "failing":
        yield f"the {name} index is {projection.state}: {projection.error or 'no reason given'}"


def _progress(status: cascade_status.Status) -> Iterator[str]:
    """Yield what is on its way and nobody's fault."""
    for name, projection in sorted(status.projections.items()):
        if projection.state == "embedding" and projection.progress is not None:
            done, total = projection.progress
            yield f"the {name} are being made: {done:,} of {total:,}; keyword search has everything"


def _n(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _of_messages(queue: online.Status) -> Iterator[str]:
    """Yield what became of messages otherwise than they were sent for."""
    for dead in queue.dead[:MAX_NAMED]:
        yield (
            f"failed {dead.n_failed} times: segment {dead.memcell_id} of session {dead.session.id}: {dead.error};"
            " a flush of the session tries it at once"
        )
    if len(queue.dead) > MAX_NAMED:
        yield f"failed so often besides: {_n(len(queue.dead) - MAX_NAMED, 'segment')}"
    if queue.n_conflicting:
        yield (
            f"kept and not extracted: {_n(queue.n_conflicting, 'message')} with the session, timestamp and place of"
            " another that says something else; their `duplicate_of` names it"
        )


def _of_engine(dead: Sequence[shown.Dead], wrong: Sequence[errors.ConfigError]) -> Iterator[str]:
    """Yield what is wrong with the settings of strategies, and what these gave up on."""
    for error in wrong:
        yield f"{error}; the settings of strategies from before are in force"
    by_name: dict[str, list[shown.Dead]] = {}
    for one in dead:
        by_name.setdefault(one.strategy, []).append(one)
    for name, some in sorted(by_name.items()):
        first = some[0]
        if first.event is None:
            yield f"{name} gave up after {_n(first.attempts, 'attempt')}: {first.error}; a trigger runs it again"
            continue
        yield (
            f"{name} gave up on {len(some):,}, first on {first.event.subject} of {first.event.owner.id}: {first.error};"
            " a trigger runs it again"
        )


def _of_model(state: chat.State, n_waiting: int) -> Iterator[str]:
    """Yield why the model that reads conversations is not asked, and how much waits for it."""
    if state.is_failing:
        kept = "what it should read is kept and asked again"
        if n_waiting:
            kept += f": {_n(n_waiting, 'segment')} so far"
        yield f"the model that reads conversations fails: {state.reason}; {kept}"


def _queue(queue: online.Status, why: tuple[str, ...]) -> schema.MemorizeQueueHealthBlock:
    at = queue.last_error_at
    return schema.MemorizeQueueHealthBlock(
        healthy=queue.is_running and not queue.reasons and not queue.dead,
        reasons=why,
        loop_alive=queue.is_running,
        accepting=queue.is_running,
        pending=queue.pending,
        oldest_pending_age_s=None if queue.oldest_pending_age_s is None else round(queue.oldest_pending_age_s, 3),
        failed=queue.failed,
        loop_restarts=queue.n_errors,
        last_loop_error_at=None if at is None else moment.iso(clock.to_us(at), moment.UTC),
    )


class _Learning(NamedTuple):
    """What makes memories of messages, as far as there is any of it."""

    queue: online.Status | None = None
    model: chat.State | None = None
    dead: Sequence[shown.Dead] = ()
    wrong: Sequence[errors.ConfigError] = ()
    stopped: Sequence[str] = ()

    def said(self) -> Iterator[str]:
        """Yield what does not work as it should; no reason of the model's twice."""
        queue, model = self.queue, self.model
        ill = model.reason if model is not None and model.is_failing else ""
        if queue is not None:
            yield from (reason for reason in queue.reasons if not (ill and ill in reason))
            yield from _of_messages(queue)
        yield from _of_engine(self.dead, self.wrong)
        yield from self.stopped
        if model is not None:
            yield from _of_model(model, 0 if queue is None else queue.failed)


def _learning(given: services.Services) -> _Learning:
    model, running, governs = given.model, given.engine, given.made_lifecycle()
    return _Learning(
        queue=None if given.intake is None else given.intake.status(),
        model=model.state if model is not None and model.is_set_up else None,
        dead=() if running is None else running.dead(),
        wrong=() if running is None else running.settings.errors,
        stopped=() if governs is None else governs.alarms.said(),
    )


def notices(given: services.Services) -> tuple[str, ...]:
    """Return what is to be said of what learns, for people who look at the status; /health has the most of it, as `degraded`."""
    return (*_learning(given).said(), *_of_clock(given))


def _of_clock(given: services.Services) -> Iterator[str]:
    """Yield what is to be said of strategies that the clock fires; nothing of it makes the daemon ill."""
    if given.engine is not None:
        settings = given.config if given.in_force is None else given.in_force()
        merges = settings.reflection.merge == "extractive" or (given.model is not None and given.model.is_set_up)
        yield from advice.notices(given.engine.status(), merges=merges)


def answer(given: services.Services) -> schema.HealthResponse:
    """Return the answer of GET /health."""
    now = _learning(given)
    return health(given.status(), version=given.version, uptime_s=given.uptime_s(), **now._asdict())


def health(
    status: cascade_status.Status,
    *,
    version: str,
    uptime_s: float,
    queue: online.Status | None = None,
    model: chat.State | None = None,
    dead: Sequence[shown.Dead] = (),
    wrong: Sequence[errors.ConfigError] = (),
    stopped: Sequence[str] = (),
) -> schema.HealthResponse:
    """Return the answer of GET /health; notices are said beside what the cascade says of itself.

    Args:
        status: What the cascade says of itself.
        version: Of everosd.
        uptime_s: Since the daemon started.
        queue: What the intake says of itself; None where nothing takes messages.
        model: How the model that reads conversations does; None where none is set up.
        dead: What strategies gave up on.
        wrong: What keeps ome.toml as it stands from coming into force.
        stopped: What is to be said of passes of the lifecycle that were stopped.
    """
    why = tuple(reasons(status))
    of_messages = () if queue is None else (*queue.reasons, *_of_messages(queue))
    of_learning = _Learning(queue=queue, model=model, dead=dead, wrong=wrong, stopped=stopped).said()
    return schema.HealthResponse(
        status="ok",
        version=version,
        capabilities=schema.HealthCapabilities(
            llm=model is not None and not model.is_failing,
            embed=status.embedding is not None and not status.embedding.error,
        ),
        disabled_features=(
            *(("vector",) if status.embedding is None else ()),
            *(("llm",) if model is None else ()),
            "rerank",
        ),
        cascade=_cascade(status, why),
        memorize_queue=None if queue is None else _queue(queue, of_messages),
        ready=status.phase == "ready",
        degraded=(*why, *of_learning, *_progress(status), *status.notices) or msgspec.UNSET,
        watch=schema.WatchHealthBlock(mode=status.watch_mode, healthy=status.watch_healthy, reason=status.watch_reason),
        embedding=(
            None
            if status.embedding is None
            else msgspec.convert(status.embedding, schema.EmbeddingHealth, from_attributes=True)
        ),
        problems=tuple(
            schema.ProblemItem(path=problem.path, reason=problem.reason, line=problem.line, kind=problem.kind)
            for problem in status.problems[:MAX_PROBLEMS]
        ),
        n_problems=status.n_problems,
        uptime_s=round(uptime_s, 3),
    )


def _cascade(status: cascade_status.Status, why: tuple[str, ...]) -> schema.CascadeHealthBlock:
    return schema.CascadeHealthBlock(
        healthy=not why,
        reasons=why,
        pending=status.pending,
        failed_permanent=status.failed_permanent,
        failed_retryable=status.failed_retryable,
        index_rows={name: projection.documents for name, projection in status.projections.items()},
        index_emptied=bool(status.alarm),
        phase=status.phase,
        lsn=status.lsn,
        files_on_disk=status.files_on_disk,
        files_indexed=status.files_indexed,
        entries=status.entries,
        rows=status.rows,
        scan_age_s=round(status.scan_age_s, 3),
        done=status.done,
        total=status.total,
        projections={
            name: msgspec.convert(projection, schema.ProjectionHealth, from_attributes=True)
            for name, projection in status.projections.items()
        },
    )
