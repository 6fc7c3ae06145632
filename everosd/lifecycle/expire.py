"""Expire: an active memory whose `expires_at` has come. Pure."""

from __future__ import annotations

from everosd.lifecycle import change
from everosd.store import lifecycle as store


def plan(record: store.Record, status: str, now_us: int) -> change.Change | None:
    """Return what is decided about a memory that has this status by now; None: it is no candidate.

    At or after `expires_at`, to the microsecond. Type and pin are of no matter: who set the date meant it.
    """
    if status != "active" or record.expires_us is None or record.expires_us > now_us:
        return None
    reason = f"expires_at {change.iso(record.expires_us)[:16]}Z has come"
    return change.of_status(record, "expire", status, "expired", reason)
