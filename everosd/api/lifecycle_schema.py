"""Requests and answers of the routes about passes over memories: reflect, what is put away, and the audit."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from everosd.api import schema

Moment = str | int
"""ISO 8601 (without offset: in `memory.timezone`), or a number: milliseconds since 1970, seconds in ten digits."""
Pattern = Annotated[str, msgspec.Meta(max_length=1000)]
"""`%` stands for anything, `foo%` for what begins so."""
MAX_LIMIT = 100_000
MAX_PAGE = 1000
MAX_ACTIONS, MAX_ACTIONS_CHARS = 20, 200
"""What was asked for stands in the row of the call."""


class ReflectRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of POST memory/reflect."""

    actions_csv: Annotated[str, msgspec.Meta(max_length=MAX_ACTIONS_CHARS)] | None = None
    """Of summarize, promote, expire, decay and archive, with commas between; they run in this order. None: all."""
    actions: (
        Annotated[
            tuple[Annotated[str, msgspec.Meta(max_length=MAX_ACTIONS_CHARS)], ...], msgspec.Meta(max_length=MAX_ACTIONS)
        ]
        | None
    ) = None
    """The same as a list."""
    dry_run: bool = False
    """Show every decision and its reason; nothing is written but the record of the call."""
    time_window_hours: Annotated[float, msgspec.Meta(gt=0, le=876_000)] = 24.0
    """Of what is summarized and promoted: the last so many hours."""
    since: Moment | None = None
    """Instead of `time_window_hours`: from then on."""
    until: Moment | None = None
    """Up to then; None: now."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_LIMIT)] = 500
    """Memories that each action changes at most, the oldest first."""
    bucket: Pattern = "%"
    scope: Pattern | None = None
    """None: any."""
    team_id: Pattern | None = None
    """None: any."""
    path_filter: Pattern = "%"
    min_group_size: Annotated[int, msgspec.Meta(ge=1, le=100_000)] | None = None
    """None: as the settings say."""
    max_share: schema.Unit | None = None
    """None: as the settings say."""
    force: bool = False
    """Go on where so many memories would change that the pass stops."""
    user_id: schema.OwnerId | None = None
    """Whose memory; without it and `agent_id` the only user of the scope."""
    agent_id: schema.OwnerId | None = None
    app_id: str = "default"
    project_id: str = "default"


class WindowItem(msgspec.Struct, frozen=True, kw_only=True):
    """When what was summarized and promoted happened."""

    since: str
    until: str


class DecisionItem(msgspec.Struct, frozen=True, kw_only=True):
    """What was decided about one memory."""

    id: str
    """Public id."""
    decision: str
    """`apply` or `skip`."""
    reason: str
    before: schema.JsonObject
    after: schema.JsonObject


class ActionCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many decisions of an action."""

    candidates: int
    """All that follow, together."""
    apply: int
    skip: int
    left: int
    """Due, and left for the next call by `limit`."""


class ActionItem(msgspec.Struct, frozen=True, kw_only=True):
    """What one action did, or would do."""

    action: str
    candidates: tuple[DecisionItem, ...]
    """What is applied, then what is skipped; of that no more than `limit`."""
    counts: ActionCounts
    reason: str | None = None
    """Why it did nothing at all; null: it was not so."""


class StoppedItem(msgspec.Struct, frozen=True, kw_only=True):
    """Why nothing expired, decayed or was archived."""

    reason: str
    affected: int
    total: int
    share: float


class WrittenItem(msgspec.Struct, frozen=True, kw_only=True):
    """A memory that the call wrote, updated or finished."""

    action: str
    """`summarize` or `promote`."""
    id: str
    """Public id."""
    sources: tuple[str, ...]
    """Public ids of the candidates that went into it, the oldest first."""


class ReflectData(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of POST memory/reflect."""

    run_id: str
    dry_run: bool
    evaluated_at: str
    """The moment that everything was compared with."""
    window: WindowItem
    actions: tuple[ActionItem, ...]
    audit_ids: tuple[str, ...]
    """Public ids of the rows in `.lifecycle/`, that of the call itself last."""
    stopped: StoppedItem | None = None
    written: tuple[WrittenItem, ...] = ()
    """Summaries and promotions; of a dry run: none."""


class LifecycleQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query string of GET memory/lifecycle."""

    status: str | None = None
    """Of active, deprecated, expired, superseded, archived and deleted, with commas between; None: all but active."""
    kind: Literal["memory", "episode"] | None = None
    """Typed memories or Episodes alone; None: both."""
    memory_type: Pattern = "%"
    path_filter: Pattern = "%"
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_PAGE)] = 100
    offset: Annotated[int, msgspec.Meta(ge=0, le=2**62)] = 0
    user_id: schema.OwnerId | None = None
    """Whose memory; without it and `agent_id` the only user of the scope."""
    agent_id: schema.OwnerId | None = None
    app_id: str = "default"
    project_id: str = "default"


class LifecycleItem(msgspec.Struct, frozen=True, kw_only=True):
    """One memory, and what has become of it."""

    id: str
    """Public id: POST memory/restore takes it."""
    kind: str
    """`memory` or `episode`."""
    memory_type: str
    path: str
    subject: str
    """Where it has none: the beginning of its text."""
    status: str
    reason: str
    since: str | None
    """Null: the log does not say; a person wrote it into the entry."""
    successor: str | None
    """Public id of what took its place."""
    days_left: float | None
    """Until the next thing that is due by the clock; null: nothing is."""
    next: str | None
    """What that is: `expire` or `archive`."""
    importance: float
    """As decay has left it."""
    pinned: bool


class LifecycleData(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of GET memory/lifecycle; what changed last is first."""

    items: tuple[LifecycleItem, ...]
    total_count: int
    counts: dict[str, int]
    """By status: of all of the owner's memories and Episodes that the other filters let through."""


class AuditQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query string of GET memory/audit."""

    action_type: str | None = None
    """`decay`, `archive`, `update`, …; or whose call it was: `reflect`, `run_lifecycle`; or `audit`: all calls."""
    run_id: str | None = None
    since: str | None = None
    until: str | None = None
    """Not included."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_PAGE)] = 50
    offset: Annotated[int, msgspec.Meta(ge=0, le=2**62)] = 0
    user_id: schema.OwnerId | None = None
    """Whose memory; without it and `agent_id` the only user of the scope."""
    agent_id: schema.OwnerId | None = None
    app_id: str = "default"
    project_id: str = "default"


class AuditItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One row of `.lifecycle/`; what a row does not say is left out."""

    id: str
    """Public id of the row."""
    timestamp: str
    action: str
    target: str = ""
    """Public id of the memory that it happened to."""
    run_id: str = ""
    field: str = ""
    was: str = ""
    value: str = ""
    reason: str = ""
    successor: str = ""
    tool: str = ""
    dry_run: bool | None = None
    actions: tuple[str, ...] = ()
    parameters: schema.JsonObject | None = None
    counts: schema.JsonObject | None = None
    error: str = ""


class AuditData(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of GET memory/audit; the newest first."""

    items: tuple[AuditItem, ...]
    has_more: bool
