"""Requests and answers of the routes that tell of memories: recall, explain and stats."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from everosd.api import schema, typed_schema

MAX_TOKENS = 100_000


class RecallRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of POST memory/recall."""

    query: Annotated[str, msgspec.Meta(min_length=1)]
    """What is about to be worked on or answered; any text. Blank recalls nothing."""
    max_items: Annotated[int, msgspec.Meta(ge=1, le=100)] = 10
    max_tokens: Annotated[int, msgspec.Meta(ge=1, le=MAX_TOKENS)] = 1500
    """Of the whole text, as everosd counts: in all likelihood not fewer than a model does."""
    memory_type: schema.Pattern = "%"
    path_filter: schema.Pattern = "%"
    bucket: schema.Pattern = "%"
    scope: schema.Pattern | None = None
    """None: any."""
    team_id: schema.Pattern | None = None
    """None: any."""
    user_id: schema.OwnerId | None = None
    """Whose memory; without it and `agent_id` the only user of the scope."""
    agent_id: schema.OwnerId | None = None
    app_id: str = "default"
    project_id: str = "default"


class RecalledItem(msgspec.Struct, frozen=True, kw_only=True):
    """What one entry gave to the text."""

    id: str
    """Public id; stands in the text, too."""
    kind: str
    """`memory`, `episode`, `agent_case` or `agent_skill`."""
    memory_type: str
    """Of Episodes `episodic`; empty: none of them."""
    path: str
    subject: str
    timestamp: str
    """When it was said, or last changed."""
    score: float
    form: Literal["whole", "facts", "excerpt"]
    """All of its text, statements of it, or its beginning."""
    tokens: int


class RecallData(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of POST memory/recall."""

    text: str
    """Between `<recalled_memory>` and `</recalled_memory>`; what memories say stands behind `> `. Empty: nothing is known, or
    nothing fits."""
    items: tuple[RecalledItem, ...]
    """In the order of the text: the newest first."""
    tokens: int
    """Of the text; at most `max_tokens`."""
    left_out: int
    """Found, and did not fit."""


class ExplainRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of POST memory/explain."""

    memory_id: typed_schema.MemoryId
    """Public id of a typed memory or an Episode, or entry id beside its owner."""
    query: str | None = None
    """A question: does it find the memory, and why?"""
    user_id: schema.OwnerId | None = None
    agent_id: schema.OwnerId | None = None
    app_id: str = "default"
    project_id: str = "default"


class DecayItem(msgspec.Struct, frozen=True, kw_only=True):
    """One time that importance sank."""

    at: str
    action: str
    """`decay`."""
    field: str
    """`importance`."""
    was: str
    value: str
    reason: str
    run_id: str


class ImportanceItem(msgspec.Struct, frozen=True, kw_only=True):
    """How much a memory matters, and how that came about."""

    value: float
    """In force."""
    written: str
    """As the entry says; empty: it says nothing, and 0.5 counts."""
    is_pinned: bool
    last_activity: str
    """Use, update, pin, restore, edit by hand, or that it was written: decay and archive count from then."""
    last_used: str | None
    n_uses: int
    """Days on which a use was written down."""
    decays: tuple[DecayItem, ...]
    """The newest first; what was before the importance that the entry says now counts no more."""
    next_decay: str | None
    """Null: it does not decay, by its type, its pin, its floor or the settings. In the past: by the next pass."""
    next_value: float | None
    next_archive: str | None
    """The same, of the archive."""


class FoundItem(msgspec.Struct, frozen=True, kw_only=True):
    """What a question makes of a memory."""

    query: str
    is_found: bool
    """Whether a search that names no status has it among its first 100."""
    place: int | None
    """From 1; null: it is not there."""
    score: float | None
    """Null: it has no word of the question, and no meaning near it."""
    reason: str
    explain: schema.Explanation | None


class ExplainData(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of POST memory/explain."""

    id: str
    entry_id: str
    kind: str
    memory_type: str
    path: str
    bucket: str
    scope: str
    team_id: str
    semantic_key: str
    status: str
    reason: str
    """Why it is what it is; empty: nothing says."""
    since: str | None
    successor: str | None
    """Public id of what took its place."""
    subject: str
    content: str
    timestamp: str
    updated_at: str | None
    expires_at: str | None
    confidence: float
    importance: ImportanceItem
    version: int
    sources: tuple[str, ...]
    """Public ids of what it was made from."""
    occurred_from: str
    occurred_to: str
    provenance: str
    parent_type: str
    parent_id: str
    session_id: str | None
    facts: tuple[str, ...]
    """Public ids of the statements taken from it."""
    corrects: tuple[str, ...]
    """Public ids of earlier statements that it, or a fact of it, contradicts."""
    corrected_by: tuple[str, ...]
    """Public ids of later entries that contradict it, or a fact of it: recall tells those instead."""
    changes: tuple[typed_schema.ChangeItem, ...]
    """What the log tells of it, the newest first, without decays."""
    file: str
    line: int
    found: FoundItem | None
    """Null: no question was asked."""


class StatsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query string of GET memory/stats."""

    user_id: schema.OwnerId | None = None
    """Whose memory; without it and `agent_id` the only user of the scope."""
    agent_id: schema.OwnerId | None = None
    app_id: str = "default"
    project_id: str = "default"


class StatsData(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of GET memory/stats: of typed memories, but for `episodes`."""

    total: int
    statuses: dict[str, int]
    types: dict[str, int]
    """Of those that are not deleted, as are `paths` and `buckets`."""
    paths: dict[str, int]
    """The 1,000 that have most."""
    n_paths: int
    buckets: dict[str, int]
    used: int
    """Of the active ones, with what follows: those of which the log has a use."""
    never_used: int
    pinned: int
    next_expiry: str | None
    """When the next of them expires; null: none does."""
    next_decay: str | None
    """When the next would sink in importance, or should have; null: none does."""
    next_archive: str | None
    due: dict[str, int]
    """How many a pass would expire, decay or archive now, of memories that are active."""
    episodes: int
    """Active Episodes."""
