"""Requests and answers of the routes that write typed memories."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from everosd.api import schema

MemoryType = Literal["working", "episodic", "semantic", "procedural", "identity"]
MAX_CONTENT_CHARS = 200_000
MAX_LABEL_CHARS = 128
MAX_KEY_CHARS = 512
MAX_REASON_CHARS = 2000
MAX_SOURCES = 1000
MAX_USED = 200

Content = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_CONTENT_CHARS)]
Subject = Annotated[str, msgspec.Meta(max_length=1000)]
Label = Annotated[str, msgspec.Meta(max_length=MAX_LABEL_CHARS)]
Key = Annotated[str, msgspec.Meta(max_length=MAX_KEY_CHARS)]
Reason = Annotated[str, msgspec.Meta(max_length=MAX_REASON_CHARS)]
MemoryId = Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
Moment = str | int
"""ISO 8601 (without offset: in `memory.timezone`), or a number: milliseconds since 1970, seconds in ten digits."""
JsonOrText = schema.JsonObject | str
"""An object, or the same as a JSON string."""
Clearable = Literal[
    "subject", "importance", "confidence", "expires_at", "semantic_key", "promotion_key", "metadata", "provenance"
]


class RememberRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of POST memory/remember."""

    path: str
    """Category, e.g. `projects/atlas`: folders below `memories/`."""
    content: Content
    memory_type: Literal["auto"] | MemoryType = "auto"
    """`auto`: episodic where a `session_id` is given, else semantic."""
    subject: Subject | None = None
    bucket: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_LABEL_CHARS)] = "public"
    scope: Label | None = None
    team_id: Label | None = None
    session_id: schema.SessionId | None = None
    semantic_key: Key | None = None
    """Of the active memories of an owner, bucket, scope and team one has it: a second write updates that one."""
    promotion_key: Key | None = None
    """What memories about the same fact have in common; else `metadata.promotion_key`."""
    importance: schema.Unit | None = None
    confidence: schema.Unit | None = None
    expires_at: Moment | None = None
    timestamp: Moment | None = None
    """When it happened; None: now."""
    pinned: bool = False
    """Never decays and is never archived."""
    dedupe: bool = False
    """Write nothing where an active memory at the same path says the same."""
    metadata: JsonOrText | None = None
    provenance: JsonOrText | None = None
    source_ids: Annotated[
        tuple[Annotated[str, msgspec.Meta(max_length=1000)], ...], msgspec.Meta(max_length=MAX_SOURCES)
    ] = ()
    user_id: schema.OwnerId | None = None
    """Whose memory; without it and `agent_id` the only user of the scope."""
    agent_id: schema.OwnerId | None = None
    app_id: str = "default"
    project_id: str = "default"


class UpdateRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of POST memory/update: what is left out stays."""

    memory_id: MemoryId
    """Public id, or entry id beside its owner."""
    content: Content | None = None
    subject: Subject | None = None
    importance: schema.Unit | None = None
    confidence: schema.Unit | None = None
    expires_at: Moment | None = None
    memory_type: MemoryType | None = None
    path: str | None = None
    pinned: bool | None = None
    semantic_key: Key | None = None
    promotion_key: Key | None = None
    metadata: JsonOrText | None = None
    provenance: JsonOrText | None = None
    clear: tuple[Clearable, ...] = ()
    """What is taken away."""
    expected_version: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Nothing is written where it is at another version."""
    expected_digest: Label | None = None
    """Nothing is written where its text is another one, by whoever's hand."""
    reason: Reason = ""
    user_id: schema.OwnerId | None = None
    agent_id: schema.OwnerId | None = None
    app_id: str = "default"
    project_id: str = "default"


class ForgetMemoryRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of POST memory/forget."""

    memory_id: MemoryId
    mode: Literal["soft_delete", "redact", "hard_delete"] = "soft_delete"
    """`soft_delete` hides it, and it can be restored; `redact` removes its text, `hard_delete` all of it, both for good."""
    reason: Reason = ""
    replacement_content: Content | None = None
    """Of `redact`: what is to stand in its place."""
    confirm: bool = False
    """`redact` and `hard_delete` remove text for good: they do it only where this is true."""
    user_id: schema.OwnerId | None = None
    agent_id: schema.OwnerId | None = None
    app_id: str = "default"
    project_id: str = "default"


class RestoreRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of POST memory/restore."""

    memory_id: MemoryId
    reason: Reason = ""
    user_id: schema.OwnerId | None = None
    agent_id: schema.OwnerId | None = None
    app_id: str = "default"
    project_id: str = "default"


class UsageRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of POST memory/usage."""

    memory_ids: Annotated[tuple[MemoryId, ...], msgspec.Meta(min_length=1, max_length=MAX_USED)]
    user_id: schema.OwnerId | None = None
    agent_id: schema.OwnerId | None = None
    app_id: str = "default"
    project_id: str = "default"


class WrittenData(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of POST memory/remember and POST memory/update."""

    id: str
    """Public id."""
    entry_id: str
    outcome: Literal["created", "updated", "unchanged", "duplicate"]
    version: int
    """From 1."""
    digest: str
    """32 hex that stand for its text as it is: `expected_digest` of an update."""
    memory_type: str
    path: str
    status: str
    file: str
    """Below the root."""


class RemovedItem(msgspec.Struct, frozen=True, kw_only=True):
    """What of one file is gone."""

    file: str
    """Below the root."""
    ids: tuple[str, ...]
    """Entries and rows that it held, or whose text it held."""


class ForgottenData(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of POST memory/forget."""

    id: str
    mode: str
    status: str
    """`deleted`; of `redact` the status that it keeps."""
    was: str
    removed: tuple[RemovedItem, ...] = ()
    narratives: tuple[str, ...] = ()
    """Ids of what was made of it, and stays: look whether it should."""
    left: tuple[str, ...] = ()
    """What could not be taken out, or is of somebody else, each with the reason."""
    out_of_reach: tuple[str, ...] = ()
    """Where copies may be that everosd does not know of."""


class RestoredData(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of POST memory/restore."""

    id: str
    status: str
    was: str
    file: str


class VersionText(msgspec.Struct, frozen=True, kw_only=True):
    """What a memory said."""

    subject: str
    content: str
    fields: dict[str, str]


class VersionItem(msgspec.Struct, frozen=True, kw_only=True):
    """One version that has ended."""

    version: int
    at: str
    """When it ended."""
    action: str
    """`update` or `pin`."""
    reason: str
    run_id: str
    before: VersionText | None
    """What it said; None: that was removed for good."""


class ChangeItem(msgspec.Struct, frozen=True, kw_only=True):
    """One change of status or importance, or another thing that the log tells of it."""

    id: str
    """Entry id of the row."""
    at: str
    action: str
    field: str
    was: str
    value: str
    reason: str
    successor: str | None
    run_id: str


class HistoryData(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of GET entries/{id}/history; the newest first."""

    id: str
    entry_id: str
    status: str
    """`gone`: there is no such entry any more."""
    version: int | None
    """The present one; None: there is none."""
    digest: str | None
    versions: tuple[VersionItem, ...]
    changes: tuple[ChangeItem, ...]


class UsedData(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of POST memory/usage."""

    noted: int
    """How many were taken note of."""
    unknown: tuple[str, ...] = ()
    """Ids that are none of this owner's."""
