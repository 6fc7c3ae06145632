"""What a pass over an owner's memories decides, memory by memory, and what plans the two actions that write new ones.

`expire`, `decay` and `archive` are pure functions over an overlay. `summarize` and `promote` need texts and perhaps a model:
each is a `run.Consolidator`, whose plan is shown by a dry run as it is, and applied, step by step, by a real one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

import msgspec

from everosd import types
from everosd.engine import settings as strategy_settings

Action = strategy_settings.Action

ORDER: tuple[Action, ...] = ("summarize", "promote", "expire", "decay", "archive")
"""In this order, whatever order is asked for: later actions see what earlier ones decided."""

GUARDED: tuple[Action, ...] = ("expire", "decay", "archive")
"""Those that the safety stop holds back."""

DEFAULT_LIMIT = 500
"""Decisions that are applied, per action and call, the oldest memories first."""

Values = Mapping[str, object]
"""What of a memory changes, ready to be written as JSON: `{"importance": 0.5}`, `{"status": "active"}`."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of one memory, or of a group of them, and why."""

    id: str
    """Entry id. Of a summary or promotion to be: the id of its newest source; the other sources have decisions of their own."""
    owner: types.Owner
    action: Action
    decision: Literal["apply", "skip"]
    reason: str
    """A sentence for people, of what was compared: both numbers are in it."""
    before: Values = {}
    """Never mutated."""
    after: Values = {}
    """Never mutated; of a decision to skip: empty, or what would be but for the reason."""


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """Which memories of an owner a call is about; `%` stands for anything, as in LIKE."""

    bucket: str = "%"
    scope: str = "%"
    team_id: str = "%"
    path: str = "%"


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """When what is summarized or promoted must have happened: [`since_us`, `until_us`], microseconds since 1970."""

    since_us: int
    until_us: int


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One pass over one owner's memories, as a planner sees it."""

    run_id: str
    """32 hex; in every row that the call writes."""
    owner: types.Owner
    evaluated_us: int
    """The moment that everything is compared with."""
    window: Window
    filters: Filters = Filters()
    limit: int | None = DEFAULT_LIMIT
    """Memories (of summarize and promote: sources) that each action takes, the oldest first; None: all."""
    min_group_size: int = 2
    is_dry_run: bool = False
    """Nothing may be written: `plan` never does, `apply` is not called."""


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one step."""

    decisions: tuple[Decision, ...]
    """In place of those that were planned: the same, or skipped because of what has happened since."""
    audit_ids: tuple[types.EntryId, ...] = ()
    """Of the rows in `.lifecycle/` that tell of it."""
    written: tuple[types.EntryId, ...] = ()
    """Of the memories that were written or updated."""
    superseded: Mapping[str, str] = {}
    """Entry id → successor."""


class Step(Protocol):
    """One new memory, and what it takes the place of: all of it, or nothing."""

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """One for each source, and all `apply`."""

    @property
    def superseded(self) -> Mapping[str, str]:
        """Entry id of each source that is superseded → successor, as far as it is known; the overlay takes it in."""

    async def apply(self) -> Applied:
        """Write it. Idempotent: what a crash left half done is finished, what is done already is done no more.

        The sources are compared with what was read: what a person has edited meanwhile is skipped, with the reason.

        Raises:
            WriteRefused: nothing was written.
            StoreError: it is on disk and not in the ledger yet.
        """


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What summarize or promote would do."""

    steps: tuple[Step, ...] = ()
    """In the order in which they are applied: that of their oldest source."""
    skipped: tuple[Decision, ...] = ()
    """One for every candidate that nothing is made of, with the reason: of a group too small, below a gate, a model away."""
