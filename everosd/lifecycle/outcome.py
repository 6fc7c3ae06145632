"""What a call to reflect asks for, and what it answers: the same for a dry run."""

from __future__ import annotations

import msgspec

from everosd import types
from everosd.lifecycle import decisions, guard


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a call asks for, checked."""

    actions: tuple[decisions.Action, ...] = decisions.ORDER
    """In any order; each counts once."""
    filters: decisions.Filters = decisions.Filters()
    window: decisions.Window | None = None
    """None: the last 24 hours."""
    limit: int | None = decisions.DEFAULT_LIMIT
    """Memories that each action changes at most, the oldest first; None: all that are due."""
    min_group_size: int | None = None
    """None: as the settings say."""
    max_share: float | None = None
    """None: as the settings say."""
    is_forced: bool = False
    """The safety stop is not asked."""
    is_dry_run: bool = False
    tool: str = "reflect"
    """Who asks, as the audit row names it."""
    parameters: str = ""
    """What was asked for as it came, JSON, for the audit row."""
    run_id: str = ""
    """32 hex; empty: a new one."""


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What one action did, or would do."""

    action: decisions.Action
    candidates: tuple[decisions.Decision, ...] = ()
    """What is applied, the oldest first, then what is skipped: of that no more than of the other may be."""
    n_applied: int = 0
    n_skipped: int = 0
    """All that were looked at and spared, shown or not."""
    n_left: int = 0
    """What is due besides, and was left for the next call."""
    reason: str = ""
    """Why the action did nothing at all; empty: it was not so."""


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """A summary or a promotion that a pass wrote, updated or finished."""

    action: decisions.Action
    entry_id: str
    sources: tuple[str, ...]
    """Entry ids of the memories that the pass took into it, the oldest first."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What a call did, or would do."""

    run_id: str
    owner: types.Owner
    is_dry_run: bool
    evaluated_us: int
    window: decisions.Window
    actions: tuple[Done, ...]
    audit_ids: tuple[types.EntryId, ...] = ()
    """Of the rows that were written, the call's own last."""
    stopped: guard.Stopped | None = None
    written: tuple[Written, ...] = ()
    """In the order in which they were written; of a dry run: none."""

    @property
    def n_applied(self) -> int:
        """Return how many decisions were applied, or would be."""
        return sum(one.n_applied for one in self.actions)
