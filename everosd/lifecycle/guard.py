"""The safety stop: a pass that would change most of what an owner has is most often a mistake in a table. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from everosd.lifecycle import change
from everosd.store import lifecycle as store

LEAST = 6
"""Fewer memories than this never stop a pass."""


class Stopped(msgspec.Struct, frozen=True, kw_only=True):
    """Why a pass was stopped."""

    reason: str
    affected: int
    """Memories that would expire, be archived, or decay by more than one step; each counts once."""
    total: int
    """The owner's active memories, and those affected that are no longer active."""
    share: float


def check(records: Iterable[store.Record], affected: Collection[str], max_share: float) -> Stopped | None:
    """Return why a pass is stopped that would change these entries drastically; None: it is not. More than `max_share` stops it."""
    if len(affected) < LEAST:
        return None
    total = sum(one.status == "active" or one.entry_id in affected for one in records)
    share = len(affected) / max(1, total)
    if share <= max_share:
        return None
    reason = (
        f"{len(affected):,} of {total:,} memories would expire, be archived or decay by more than one step:"
        f" {share:.1%} is more than max_share, {max_share:.1%}"
    )
    return Stopped(reason=reason, affected=len(affected), total=total, share=round(share, 4))


def held_back(one: change.Change) -> change.Change:
    """Return the decision as it is once the pass was stopped: nothing is done, and what would have been is shown."""
    if not one.is_applied:
        return one
    decision = msgspec.structs.replace(one.decision, decision="skip", reason=f"safety stop: {one.decision.reason}")
    return msgspec.structs.replace(one, decision=decision)
