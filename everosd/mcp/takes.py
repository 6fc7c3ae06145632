"""What each tool takes: names, types, and what an agent is told of each.

Fields that are left out, or are null, are not sent: the routes have the defaults, and the ones here are theirs. None of
these structs has a field for an owner.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Meta

from everosd import errors

TakenT = TypeVar("TakenT", bound=msgspec.Struct)

JsonObject: TypeAlias = dict[str, Any]
"""JSON that is passed on as it is."""

WHOSE = frozenset(
    {
        "user_id",
        "agent_id",
        "owner",
        "owner_id",
        "owner_type",
        "owner_filter",
        "user",
        "app_id",
        "project_id",
        "sender_id",
    }
)
"""What agents try where they mean somebody else's memory."""

MemoryType = Literal["working", "episodic", "semantic", "procedural", "identity"]
Unit = Annotated[float, Meta(ge=0, le=1)]

Id = Annotated[str, Meta(min_length=1, description="Id of the memory, as search_memory and remember give it.")]
Bucket = Annotated[str, Meta(description="Bucket of memories; `%` is any text.")]
Scope = Annotated[str, Meta(description="Scope within the bucket, e.g. a repository; left out: any.")]
Team = Annotated[str, Meta(description="Team; left out: any.")]
TypeFilter = Annotated[
    str,
    Meta(
        description="`%` for all, else working, episodic, semantic, procedural or identity. "
        "Conversations are episodic too."
    ),
]
PathFilter = Annotated[
    str, Meta(description="Only memories filed under this path: `projects/atlas` alone, `projects/%` all below.")
]
Reason = Annotated[str, Meta(description="Why, in a few words; kept in the history.")]
Importance = Annotated[float, Meta(ge=0, le=1, description="0 trivial … 1 vital. Default 0.5. Decays while unused.")]
Confidence = Annotated[float, Meta(ge=0, le=1, description="0 guess … 1 certain. Default 0.7.")]
Moment = Annotated[str, Meta(description="ISO 8601 moment, e.g. 2026-03-02T09:00:00+01:00.")]
ExpiresAt = Annotated[
    str, Meta(description="ISO 8601 moment after which it is no longer found, e.g. 2026-12-31T00:00:00Z.")
]
Path = Annotated[
    str,
    Meta(
        min_length=1, description="Category to file it under, short and stable, e.g. `projects/atlas` or `people/mara`."
    ),
]
SemanticKey = Annotated[
    str,
    Meta(
        description="Names what the memory is about, e.g. `atlas.deploy-target`. There is one active memory per key: "
        "writing it again updates that one and keeps the version before. Use it for what changes over time."
    ),
]
PromotionKey = Annotated[
    str, Meta(description="Names the pattern of a recurring event: episodes that share it can become one fact.")
]
Json = Annotated[JsonObject | str, Meta(description="An object, or the same as a JSON string.")]
DryRun = Annotated[
    bool, Meta(description="Only tell what would change; nothing is written but the record of this call.")
]
Window = Annotated[
    float, Meta(gt=0, description="How far back summarize and promote look, hours. Default 24; since/until replace it.")
]
Limit = Annotated[int, Meta(ge=1, description="At most so many memories per action, the oldest first. Default 500.")]
MaxShare = Annotated[
    float,
    Meta(
        ge=0,
        le=1,
        description="Stop where more than this share of all memories would expire, be archived or lose much importance. "
        "Default 0.5.",
    ),
]
Force = Annotated[bool, Meta(description="Go on past that stop. Only when the person has seen the dry run and agreed.")]
SessionId = Annotated[
    str, Meta(min_length=1, max_length=128, description="Id of the conversation: any text, the same for all of it.")
]


class _Takes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Arguments of a tool."""


class Remember(_Takes, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Arguments of `remember`."""

    path: Path
    content: Annotated[
        str,
        Meta(
            min_length=1,
            description="What to remember: one self-contained statement or note, with names and dates written out "
            "(`on 2 March 2026`, not `today`).",
        ),
    ]
    memory_type: Annotated[
        Literal["auto", "working", "episodic", "semantic", "procedural", "identity"],
        Meta(
            description="working: needed for a few days; episodic: something that happened; semantic: a fact, preference "
            "or decision; procedural: how something is done; identity: who the person is, never forgotten. "
            "auto: episodic with a session_id, else semantic."
        ),
    ] = "auto"
    subject: Annotated[str, Meta(description="A title of a few words.")] | None = None
    bucket: Annotated[str, Meta(description="Bucket to keep it in. Default `public`.")] = "public"
    scope: Annotated[str, Meta(description="Scope within the bucket, e.g. a repository.")] | None = None
    team_id: Annotated[str, Meta(description="Team that it belongs to.")] | None = None
    session_id: SessionId | None = None
    semantic_key: SemanticKey | None = None
    promotion_key: PromotionKey | None = None
    importance: Importance | None = None
    confidence: Confidence | None = None
    expires_at: ExpiresAt | None = None
    timestamp: Annotated[str, Meta(description="ISO 8601 moment that it is about. Default: now.")] | None = None
    pinned: Annotated[bool, Meta(description="Never decay and never archive it.")] = False
    dedupe: Annotated[bool, Meta(description="Where the same text is there already, keep that one and add none.")] = (
        False
    )
    metadata_json: Json | None = None
    provenance_json: Json | None = None
    source_ids: Annotated[tuple[str, ...], Meta(description="Ids of memories that it was drawn from.")] = ()


class SearchMemory(_Takes, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Arguments of `search_memory`."""

    query: Annotated[
        str,
        Meta(min_length=1, description="What to look for: words or a question. Dates in it are understood. Any text."),
    ]
    limit: Annotated[int, Meta(ge=1, le=100, description="At most so many hits.")] = 10
    memory_type: TypeFilter = "%"
    path_filter: PathFilter = "%"
    bucket: Bucket = "%"
    scope: Scope | None = None
    team_id: Team | None = None
    semantic_key: Annotated[str, Meta(description="Only the memory of this key; `%` is any text.")] | None = None
    explain: Annotated[bool, Meta(description="Say what each score is made of.")] = False
    max_chars: Annotated[
        int,
        Meta(ge=0, description="Longest text shown of one hit, characters; 0: all of it, as far as one answer holds."),
    ] = 4000


class RecallContext(_Takes, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Arguments of `recall_context`."""

    query: Annotated[str, Meta(min_length=1, description="What you are about to work on or answer.")]
    max_items: Annotated[int, Meta(ge=1, le=100, description="At most so many memories. Default 10.")] = 10
    max_tokens: Annotated[int, Meta(ge=1, description="Longest text block, tokens. Default 1500.")] = 1500
    memory_type: TypeFilter = "%"
    path_filter: PathFilter = "%"
    bucket: Bucket = "%"
    scope: Scope | None = None
    team_id: Team | None = None


class UpdateMemory(_Takes, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Arguments of `update_memory`."""

    memory_id: Id
    content: (
        Annotated[str, Meta(description="The whole new text; what it said before is kept as a version.")] | None
    ) = None
    subject: Annotated[str, Meta(description="Another title.")] | None = None
    importance: Importance | None = None
    confidence: Confidence | None = None
    expires_at: ExpiresAt | None = None
    memory_type: Annotated[MemoryType, Meta(description="Another type; it then moves to that type's file.")] | None = (
        None
    )
    path: Path | None = None
    pinned: Annotated[bool, Meta(description="true: never decay and never archive it.")] | None = None
    semantic_key: SemanticKey | None = None
    promotion_key: PromotionKey | None = None
    metadata_json: Json | None = None
    provenance_json: Json | None = None
    clear: Annotated[tuple[str, ...], Meta(description='Fields to empty, e.g. ["expires_at"].')] = ()
    expected_version: (
        Annotated[
            int, Meta(ge=1, description="Refuse where the memory has another version by now: somebody changed it.")
        ]
        | None
    ) = None
    expected_digest: (
        Annotated[str, Meta(description="The same by its text: also an edit of its file counts.")] | None
    ) = None
    reason: Reason | None = None


class ForgetMemory(_Takes, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Arguments of `forget_memory`."""

    memory_id: Id
    mode: Annotated[
        Literal["soft_delete", "redact", "hard_delete"],
        Meta(
            description="soft_delete: no longer found, restore_memory brings it back. redact: its text is replaced for "
            "good. hard_delete: it is removed from every file for good. The last two cannot be undone."
        ),
    ] = "soft_delete"
    reason: Reason | None = None
    replacement_content: Annotated[str, Meta(description="What a redacted memory says instead.")] | None = None
    confirm: Annotated[
        bool,
        Meta(
            description="Needed for redact and hard_delete: true only after the person has seen what goes and agreed. "
            "Without it you are told what would go, and nothing is done."
        ),
    ] = False


class RestoreMemory(_Takes, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Arguments of `restore_memory`."""

    memory_id: Id
    reason: Reason | None = None


class ListMemoryVersions(_Takes, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Arguments of `list_memory_versions`."""

    memory_id: Id


class ExplainMemory(_Takes, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Arguments of `explain_memory`."""

    memory_id: Id
    query: Annotated[str, Meta(description="A question: why is it found by it, or why not?")] | None = None


class MemoryStats(_Takes, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Arguments of `memory_stats`: none."""


class Reflect(_Takes, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Arguments of `reflect`."""

    actions_csv: Annotated[
        str,
        Meta(
            description="Which of summarize, promote, expire, decay, archive; they always run in this order. Default all."
        ),
    ] = "summarize,promote,expire,decay,archive"
    dry_run: DryRun = False
    time_window_hours: Window | None = None
    since: Moment | None = None
    until: Moment | None = None
    limit: Limit | None = None
    bucket: Bucket = "%"
    scope: Scope | None = None
    team_id: Team | None = None
    path_filter: PathFilter = "%"
    min_group_size: Annotated[int, Meta(ge=1, description="Smallest group that is summarized. Default 2.")] | None = (
        None
    )
    max_share: MaxShare | None = None
    force: Force = False


class RunLifecycle(_Takes, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Arguments of `run_lifecycle`."""

    expire: Annotated[bool, Meta(description="Mark what is past its expires_at.")] = True
    decay: Annotated[bool, Meta(description="Lower the importance of what was not used for long.")] = True
    archive: Annotated[bool, Meta(description="Put away what is expired, superseded or long unused.")] = True
    dry_run: DryRun = False
    limit: Limit | None = None
    bucket: Bucket = "%"
    scope: Scope | None = None
    team_id: Team | None = None
    path_filter: PathFilter = "%"
    max_share: MaxShare | None = None
    force: Force = False


class QueryConsolidationAudit(_Takes, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Arguments of `query_consolidation_audit`."""

    action_type: Annotated[str, Meta(description="Only this action, e.g. decay, archive, update, delete.")] | None = (
        None
    )
    since: Moment | None = None
    until: Moment | None = None
    run_id: Annotated[str, Meta(description="Only what this run did; reflect gives the id.")] | None = None
    limit: Annotated[int, Meta(ge=1, le=1000, description="At most so many records, the newest first.")] = 50
    offset: Annotated[int, Meta(ge=0, description="Leave out so many.")] = 0


class TriggerStrategy(_Takes, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Arguments of `trigger_strategy`."""

    name: Annotated[
        str, Meta(min_length=1, description="E.g. `reflect_episodes`; a wrong name is answered with those there are.")
    ]
    dry_run: Annotated[bool, Meta(description="Only tell what a run would do.")] = False
    force: Annotated[bool, Meta(description="Also where the strategy is switched off.")] = False
    timeout: Annotated[
        float, Meta(ge=0, le=3600, description="How long to wait for its end, seconds; it goes on afterwards.")
    ] = 120.0


class RollbackConsolidation(_Takes, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Arguments of `rollback_consolidation`."""

    report_id: Annotated[str, Meta(min_length=1, description="Id of the consolidation's report.")] | None = None
    merged_entry_id: Annotated[str, Meta(min_length=1, description="Or: id of the narrative that it wrote.")] | None = (
        None
    )


class Message(_Takes, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One message of `add_messages`."""

    role: Annotated[
        Literal["user", "assistant", "tool"],
        Meta(description="user: the person whose memory this is; assistant: you; tool: what a tool gave."),
    ]
    content: Annotated[str, Meta(description="What was said, word by word.")]
    timestamp: (
        Annotated[int | str, Meta(description="When: milliseconds since 1970, or ISO 8601. Default: now.")] | None
    ) = None
    name: Annotated[str, Meta(description="Name of who speaks, as people read it.")] | None = None
    tool_calls: Annotated[tuple[JsonObject, ...], Meta(description="Tools that an assistant message calls.")] = ()
    tool_call_id: Annotated[str, Meta(description="Which call a tool message answers; it needs one.")] | None = None


class AddMessages(_Takes, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Arguments of `add_messages`."""

    session_id: SessionId
    messages: Annotated[tuple[Message, ...], Meta(min_length=1, max_length=500, description="In the order spoken.")]


class FlushSession(_Takes, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Arguments of `flush_session`."""

    session_id: SessionId


_UNKNOWN = re.compile(r"Object contains unknown field `(?P<field>.*?)`(?P<at> - at .*)?", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(?P<field>.*?)`(?P<at> - at .*)?", re.DOTALL)
_AT = re.compile(r"(?P<what>.*) - at `\$\.?(?P<path>.*)`", re.DOTALL)


def take(kind: type[TakenT], given: Mapping[str, Any] | None) -> TakenT:
    """Return a tool's arguments, checked. Lists and objects may be JSON strings, numbers may be text; null is left out.

    Raises:
        RequestError: they are not what the tool takes; the message says which, and what it takes instead.
    """
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    values: dict[str, Any] = {}
    for name, value in (given or {}).items():
        if value is None and name in fields and not fields[name].required:
            continue
        values[name] = _opened(name, value) if name in _nested(kind) and isinstance(value, str) else value
    try:
        return msgspec.convert(values, kind, strict=False)
    except (msgspec.ValidationError, RecursionError) as error:
        raise _refusal(str(error), fields) from error


def _nested(kind: type[msgspec.Struct]) -> set[str]:
    """Return the fields that are lists or objects."""
    return {name for name in kind.__struct_fields__ if name in _NESTED_NAMES}


_NESTED_NAMES = frozenset({"messages", "clear", "source_ids", "metadata_json", "provenance_json"})


def _opened(name: str, text: str) -> object:
    """Return what a JSON string holds; of a list of words also without brackets, as they are often written.

    Raises:
        RequestError: it holds no JSON.
    """
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        if name in {"clear", "source_ids"}:
            return [one.strip() for one in text.split(",") if one.strip()]
        message = f"the text is no JSON ({error})"
        raise errors.RequestError(message, field=name) from error


def _refusal(said: str, fields: Mapping[str, object]) -> errors.RequestError:
    """Return what an agent is told of arguments that do not fit."""
    if unknown := _UNKNOWN.fullmatch(said):
        name = unknown["field"]
        if name in WHOSE:
            message = "no tool says whose memory it is about: the settings of this connection do ([mcp] user_id). Leave it out"
            return errors.RequestError(message, field=name)
        if unknown["at"]:
            return errors.RequestError("unknown field", field=name)
        near = difflib.get_close_matches(name, list(fields), n=1)
        also = f"did you mean {near[0]}?" if near else f"known are {', '.join(fields) or 'none'}"
        return errors.RequestError(f"unknown argument; {also}", field=name[:200])
    if missing := _MISSING.fullmatch(said):
        return errors.RequestError("missing argument", field=missing["field"])
    if at := _AT.fullmatch(said):
        return errors.RequestError(at["what"], field=at["path"])
    return errors.RequestError(said)


def input_schema(kind: type[msgspec.Struct]) -> JsonObject:
    """Return the JSON Schema of a tool's arguments: one object, no references, no null (which counts as left out)."""
    _, components = msgspec.json.schema_components([kind], ref_template="{name}")
    return cast("JsonObject", _plain(components[kind.__name__], components))


def _plain(shape: Any, components: Mapping[str, Any]) -> Any:  # JSON
    """Return a schema with references put in place, and without what says nothing to an agent."""
    if isinstance(shape, list):
        return [_plain(one, components) for one in shape]
    if not isinstance(shape, dict):
        return shape
    if "$ref" in shape:
        return _plain(components[shape["$ref"]], components)
    if "anyOf" in shape:
        said = [one for one in shape["anyOf"] if one.get("type") != "null"]
        if len(said) == 1:
            return _plain(
                {**said[0], **{key: part for key, part in shape.items() if key not in {"anyOf", "default"}}}, components
            )
    found: JsonObject = {}
    for key, part in shape.items():
        if key == "properties":
            found[key] = {name: _plain(one, components) for name, one in part.items()}
        elif key not in {"title", "description"} or shape.get("type") != "object" or "properties" not in shape:
            if key == "default" and part in ([], None):
                continue
            found[key] = part if key in {"default", "enum", "required"} else _plain(part, components)
    return found
