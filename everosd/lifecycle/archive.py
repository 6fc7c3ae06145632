"""Archive: what is expired at once, what is superseded after a while, what is left alone for long. Pure.

Nothing leaves its file: an archived memory is found only by who asks for archived ones, and can be restored.
"""

from __future__ import annotations

from everosd.lifecycle import age, change, decisions, policy
from everosd.store import lifecycle as store

_ACTION: decisions.Action = "archive"


def plan(
    record: store.Record, status: str, since_us: int | None, policies: policy.Policy, now_us: int
) -> change.Change | None:
    """Return what is decided about a memory that has this status by now, since then; None: it is no candidate.

    `since_us` None: the log does not say since when (a person wrote it into the entry); then it counts from the last activity.
    """
    reason = due(record, status, since_us, policies, now_us)
    if not reason:
        return None
    if record.memory_type == policy.IDENTITY:
        return change.of_status(record, _ACTION, status, "", "identity: exempt", is_skipped=True)
    if record.is_pinned:
        return change.of_status(record, _ACTION, status, "", "pinned: exempt", is_skipped=True)
    return change.of_status(record, _ACTION, status, "archived", reason)


def due(record: store.Record, status: str, since_us: int | None, policies: policy.Policy, now_us: int) -> str:
    """Return why a memory would be archived, whatever is exempt; empty: it would not."""
    if status == "expired":
        return "expired"
    if status == "superseded":
        age_us = now_us - (age.last_us(record) if since_us is None else since_us)
        if age_us < policies.superseded_us:
            return ""
        return f"superseded {policy.days(age_us)} days ago, kept {policy.days(policies.superseded_us)}"
    kept_us = policies.retention_us.get(record.memory_type)
    if status != "active" or kept_us is None:
        return ""
    age_us = now_us - age.last_us(record)
    if age_us < kept_us:
        return ""
    return f"{record.memory_type}, not used for {policy.days(age_us)} days, kept {policy.days(kept_us)}"


def due_at(record: store.Record, status: str, since_us: int | None, policies: policy.Policy) -> int | None:
    """Return when a memory would be archived at the earliest, microseconds since 1970; None: by no rule."""
    if record.memory_type == policy.IDENTITY or record.is_pinned:
        return None
    last_us = age.last_us(record)
    if status == "expired":
        return since_us if since_us is not None else last_us
    if status == "superseded":
        return (last_us if since_us is None else since_us) + policies.superseded_us
    kept_us = policies.retention_us.get(record.memory_type)
    return None if status != "active" or kept_us is None else last_us + kept_us
