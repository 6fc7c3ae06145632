"""/health: what works, what does not, and what to do about it; always 200 while the daemon answers."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from everosd.api import schema
from everosd.cascade import status as cascade_status

MAX_PROBLEMS = 20
"""Problem files shown in /health; `everosd status` shows more."""


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


def health(status: cascade_status.Status, *, version: str, uptime_s: float) -> schema.HealthResponse:
    """Return the answer of GET /health; notices are said beside what the cascade says of itself."""
    why = tuple(reasons(status))
    return schema.HealthResponse(
        status="ok",
        version=version,
        capabilities=schema.HealthCapabilities(embed=status.embedding is not None and not status.embedding.error),
        disabled_features=(*(("vector",) if status.embedding is None else ()), "llm", "rerank"),
        cascade=_cascade(status, why),
        ready=status.phase == "ready",
        degraded=(*why, *_progress(status), *status.notices) or msgspec.UNSET,
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
        scan_age_s=round(status.scan_age_s, 3),
        done=status.done,
        total=status.total,
        projections={
            name: msgspec.convert(projection, schema.ProjectionHealth, from_attributes=True)
            for name, projection in status.projections.items()
        },
    )
