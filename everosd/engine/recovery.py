"""What an earlier process began and did not end is finished once, before a timed strategy is run."""

from __future__ import annotations

import asyncio
import uuid

import msgspec
import structlog

from everosd import errors
from everosd.engine import backoff
from everosd.engine import runs as records
from everosd.engine import strategy as strategies

log = structlog.get_logger(__name__)


async def recover(strategy: strategies.Timed, runs: records.Runs, last: records.Record | None) -> records.Record | None:
    """Have `strategy` finish what was begun; return the record of it, put, or None where nothing was left.

    The run `last`, if it was released, becomes `recovered`; a failure is on record too, and the next run has another try.
    """
    if strategy.recover is None:
        return None
    began_at, error = runs.now(), None
    said = ""
    try:
        said = await strategy.recover()
    except (Exception, asyncio.CancelledError) as failed:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # A traceback quotes sources, which have to be read from the disk.
        await asyncio.to_thread(log.error, "not_recovered", exc_info=failed, strategy=strategy.name)
        error = errors.describe(failed)[: backoff.MAX_ERROR]
    if not said and error is None:
        return None
    if error is None and last is not None and last.status == "released":
        record = msgspec.structs.replace(last, status="recovered", result=said)
    else:
        record = records.Record(
            run_id=uuid.uuid4().hex,
            strategy=strategy.name,
            trigger="recovery",
            status="failed" if error else "recovered",
            attempt=1,
            started_at=began_at,
            finished_at=runs.now(),
            error=error,
            result=said or None,
        )
    runs.put(record)
    log.info("strategy_recovered", strategy=strategy.name, run_id=record.run_id, status=record.status)
    return record
