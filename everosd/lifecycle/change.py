"""What a pure planner decides about one memory, and the row of `.lifecycle/` that says it."""

from __future__ import annotations

import datetime as dt

import msgspec

from everosd import clock, types
from everosd.lifecycle import decisions, policy
from everosd.lifecycle import row as rows
from everosd.log import entry
from everosd.store import lifecycle as store


class Decayed(msgspec.Struct, frozen=True, kw_only=True):
    """How far importance has sunk, and up to when that is counted."""

    was: int
    """Millionths."""
    value: int
    """Millionths."""
    since_us: int
    """Moment of activity from which `steps` are counted."""
    steps: int
    """Whole periods since then."""
    n_taken: int
    """Steps that this decision takes, those that would lead below the floor left out."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One decision, with what a row of it needs to say."""

    record: store.Record
    decision: decisions.Decision
    was: str = ""
    """Of a status: the one in force before."""
    decayed: Decayed | None = None

    @property
    def is_applied(self) -> bool:
        """Tell whether anything is to be done."""
        return self.decision.decision == "apply"

    @property
    def is_drastic(self) -> bool:
        """Tell whether the safety stop counts it: all but a decay by one step."""
        return self.is_applied and (self.decayed is None or self.decayed.n_taken > 1)


EMPTY: dict[str, object] = {}


def of_status(
    record: store.Record,
    action: decisions.Action,
    was: str,
    value: str,
    reason: str,
    *,
    is_skipped: bool = False,
) -> Change:
    """Return the decision to give a memory another status, or not to."""
    decision = decisions.Decision(
        id=record.entry_id,
        owner=record.owner,
        action=action,
        decision="skip" if is_skipped else "apply",
        reason=reason,
        before={"status": was},
        after=EMPTY if is_skipped else {"status": value},
    )
    return Change(record=record, decision=decision, was=was)


def draft(change: Change, run_id: str, at: dt.datetime, before: str = "") -> entry.Draft:
    """Return the row of a decision that is applied; `before` is the entry's raw text, of a snapshot."""
    record, decision, decayed = change.record, change.decision, change.decayed
    if decayed is None:
        return rows.status(
            rows.Status(
                action=decision.action,
                target=record.entry_id,
                base=record.own_status,
                was=change.was,
                value=str(decision.after["status"]),
                reason=decision.reason,
                run_id=run_id,
                before=before,
                file=record.path_file if before else "",
            ),
            at,
        )
    fields = {
        "timestamp": rows.stamp(at),
        "action": decision.action,
        "target": record.entry_id,
        "run_id": run_id,
        "field": "importance",
        "base": record.own_importance,
        "was": policy.number(decayed.was),
        "value": policy.number(decayed.value),
        "since": iso(decayed.since_us),
        "steps": str(decayed.steps),
        "reason": decision.reason,
    }
    return entry.Draft(fields={name: text for name, text in fields.items() if text})


def iso(us: int) -> str:
    """Return a moment as it stands in a row: ISO 8601, UTC, microseconds."""
    return rows.stamp(clock.from_us(us))


def public_id(decision: decisions.Decision) -> str:
    """Return the id that people know a decision's memory by."""
    return types.public_id(decision.owner.id, decision.id)
