"""Requests and answers as they stand on the wire: names, types and limits of the EverOS 1.5 HTTP interface.

`/openapi.json` is made from these same structs, so that it cannot say anything else than what is decoded.
"""

from __future__ import annotations

from typing import Annotated, Any, Generic, Literal, TypeAlias, TypeVar

import msgspec

DataT = TypeVar("DataT")

PREFIXES = ("/api/v1", "/api/v2")
"""Of routes; both answer the same."""

FilterObject: TypeAlias = Annotated[dict[str, Any], msgspec.Meta(extra_json_schema={"x-filter": True})]
"""The filter language of search and get, still as it came; `search.filter.parse` takes it apart."""

Status = Literal["active", "deprecated", "expired", "superseded", "archived", "deleted"]
SearchMethod = Literal["keyword", "vector", "hybrid", "agentic", "llm_multiround"]
GetMemoryType = Literal["episode", "profile", "agent_case", "agent_skill"]

Role = Literal["user", "assistant", "tool"]

Unit = Annotated[float, msgspec.Meta(ge=0, le=1)]
OwnerId = Annotated[str, msgspec.Meta(min_length=1)]
JsonObject: TypeAlias = dict[str, Any]
"""JSON that is passed on as it is."""


Pattern = Annotated[str, msgspec.Meta(max_length=1000)]
"""`%` stands for any text, `foo%` for what begins so, everything else for itself; empty is the same as `%`."""


class SearchRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of POST memory/search."""

    query: Annotated[str, msgspec.Meta(min_length=1)]
    """What to look for; any text is a query. Blank finds nothing."""
    user_id: OwnerId | None = None
    """Whose memory; without it and `agent_id` the only user of the scope."""
    agent_id: OwnerId | None = None
    app_id: str = "default"
    project_id: str = "default"
    method: SearchMethod = "hybrid"
    top_k: int = -1
    """1..100, or -1 for at most 100."""
    radius: Unit | None = None
    """Hits further away than this similarity are left out; None means no limit."""
    min_score: Unit | None = None
    """Hits that score less are left out; None means no limit."""
    include_profile: bool = False
    enable_llm_rerank: bool = False
    filters: FilterObject | None = None
    include_status: tuple[Status, ...] | None = None
    """Statuses to search; None means active ones only, and no status on the items."""
    explain: bool = False
    """Items carry `explain`: what their score is made of. Not in EverOS."""
    memory_type: Pattern = "%"
    """Only memories of this type, out of working, episodic, semantic, procedural and identity; a pattern that fits none is
    refused. Episodes are `episodic`. Not in EverOS, as is what follows."""
    path_filter: Pattern = "%"
    """Only memories filed under this path."""
    bucket: Pattern = "%"
    """Only those of this bucket; Episodes are in `public`."""
    scope: Pattern | None = None
    """None: any."""
    team_id: Pattern | None = None
    """None: any."""
    semantic_key: Pattern | None = None
    """None: any."""
    with_readable_episode: Any = None
    """Taken and ignored: the EverOS cloud SDK always sends it."""


class GetRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of POST memory/get."""

    memory_type: GetMemoryType
    user_id: OwnerId | None = None
    agent_id: OwnerId | None = None
    app_id: str = "default"
    project_id: str = "default"
    page: Annotated[int, msgspec.Meta(ge=1)] = 1
    page_size: Annotated[int, msgspec.Meta(ge=1, le=100)] = 20
    sort_by: Literal["timestamp", "updated_at"] = "timestamp"
    sort_order: Literal["asc", "desc"] = "desc"
    filters: FilterObject | None = None
    include_status: tuple[Status, ...] | None = None
    """Statuses to list; None means active ones only, and no status on the items."""
    with_readable_episode: Any = None
    """Taken and ignored: the EverOS cloud SDK always sends it."""


AppId = Annotated[str, msgspec.Meta(min_length=1, max_length=128, pattern="^[a-zA-Z0-9_.@+-]+$")]
SessionId = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
"""Any characters."""
SenderId = Annotated[str, msgspec.Meta(min_length=1, max_length=128, pattern="^[a-zA-Z0-9_.@+-]+$")]
ContentType = Literal["text", "image", "audio", "doc", "pdf", "html", "email"]


class ContentItemDTO(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A part of a message: text, or something that only a multimodal model could read."""

    type: ContentType
    text: str | None = None
    uri: str | None = None
    base64: str | None = None
    ext: str | None = None
    name: str | None = None
    extras: JsonObject | None = None


class ToolFunctionDTO(msgspec.Struct, frozen=True, kw_only=True):
    """Which tool an agent used, and with what."""

    name: str
    arguments: str
    """JSON, as the agent wrote it; not read here."""


class ToolCallDTO(msgspec.Struct, frozen=True, kw_only=True):
    """One use of a tool."""

    id: str
    type: str = "function"
    function: ToolFunctionDTO


class MessageItemDTO(msgspec.Struct, frozen=True, kw_only=True):
    """One message of POST memory/add."""

    sender_id: SenderId
    sender_name: str | None = None
    role: Role
    timestamp: Annotated[int, msgspec.Meta(gt=0)]
    """Milliseconds since 1970; a value of ten digits is seconds."""
    content: str | tuple[ContentItemDTO, ...]
    tool_calls: tuple[ToolCallDTO, ...] | None = None
    tool_call_id: str | None = None
    """Which use of a tool this is the result of; a message of role `tool` needs it."""


class MemorizeAddRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Body of POST memory/add. Fields that are not listed are ignored."""

    session_id: SessionId
    app_id: AppId = "default"
    project_id: AppId = "default"
    messages: Annotated[tuple[MessageItemDTO, ...], msgspec.Meta(min_length=1, max_length=500)]
    defer_extraction: bool = False
    """Only kept: the session is cut by a flush alone."""
    async_mode: bool = False
    """Answered with 202 at once; GET tasks tells what became of it."""


class MemorizeFlushRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Body of POST memory/flush. Fields that are not listed are ignored."""

    session_id: SessionId
    app_id: AppId = "default"
    project_id: AppId = "default"


class TriggerRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Body of POST ome/trigger. Fields that are not listed are ignored."""

    name: str
    timeout: float = 120.0
    """Seconds to wait until what was started has ended; 0 or less: none."""
    force: bool = False
    """Also where the strategy is switched off."""
    dry_run: bool = False
    """Only tell what a run would do. Not in EverOS."""


class TasksQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query string of GET tasks."""

    session_id: str | None = None
    """Tasks of this session alone."""
    status: str | None = None
    """Tasks of this status alone; one that there is not has none."""
    page: Annotated[int, msgspec.Meta(ge=1)] = 1
    page_size: Annotated[int, msgspec.Meta(ge=1)] = 20
    app_id: str = "default"
    project_id: str = "default"


class TimelineQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query string of GET memory/timeline."""

    since: str | None = None
    """ISO 8601 (without offset: in `memory.timezone`) or milliseconds since 1970; None: from the beginning."""
    until: str | None = None
    """Not included; None: to the end."""
    order: Literal["asc", "desc"] = "desc"
    """By moment: `desc` is the newest first."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=100)] = 50
    offset: Annotated[int, msgspec.Meta(ge=0, le=2**62)] = 0
    user_id: OwnerId | None = None
    """Whose memory; without it and `agent_id` the only user of the scope."""
    agent_id: OwnerId | None = None
    app_id: str = "default"
    project_id: str = "default"


class NoQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query string of a route that takes none."""


class EntryQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query string of GET entries/{id}."""

    user_id: OwnerId | None = None
    """Where given, only this user's entry is shown."""
    agent_id: OwnerId | None = None
    """Where given, only this agent's entry is shown."""
    owner_type: Literal["user", "agent", "session"] | None = None
    """Tells owners of the same name apart; None means what the id's prefix says."""
    app_id: str = "default"
    project_id: str = "default"


class ReportsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query string of GET reflection/reports."""

    user_id: OwnerId | None = None
    """Whose; without it the only user of the scope."""
    app_id: str = "default"
    project_id: str = "default"
    cluster_id: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    """Consolidations of this cluster alone."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=100)] = 20
    offset: Annotated[int, msgspec.Meta(ge=0, le=2**62)] = 0

    @property
    def agent_id(self) -> None:
        """Agents have no Episodes, and so no consolidations."""
        return


class RollbackRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of POST reflection/rollback: one of the two ids."""

    report_id: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    merged_entry_id: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    """Public id of the narrative, or its entry id beside `user_id`."""
    user_id: OwnerId | None = None
    """Where given, only a consolidation of this user is undone."""
    app_id: str = "default"
    project_id: str = "default"


class RebuildRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of POST admin/rebuild."""


class VerifyRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of POST admin/verify."""


class AdoptRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of POST admin/adopt."""

    path: str | None = None
    """File below the root whose hand-written entries get their markers; None means all files."""


class ReconcileRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of POST admin/reconcile."""

    reason: str = "asked for"
    accept_deletions: bool = False
    """Take what the disk shows for true where a mass deletion was held back."""
    timeout_s: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 60.0
    """How long to wait until everything noticed is searchable."""


class ForgetRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of POST admin/forget."""

    confirm: str
    """The same id once more: what is forgotten does not come back."""
    user_id: OwnerId | None = None
    agent_id: OwnerId | None = None
    app_id: str = "default"
    project_id: str = "default"


class ExtractRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of POST admin/extract."""

    paths: tuple[str, ...] = ()
    """Files below the root whose Episodes and cases are meant; none means all files."""
    user_id: OwnerId | None = None
    """Whose; without `agent_id` either, everybody's in every app and project."""
    agent_id: OwnerId | None = None
    app_id: str = "default"
    project_id: str = "default"


class ExplainedFact(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fact that lifts the score of its Episode."""

    id: str
    content: str
    keyword: float | None
    """None where words were not asked."""
    similarity: float | None
    """None where vectors were not asked, or the fact has none yet."""
    score: float


class Explanation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a score is made of.

    `lifted = own + (1 - own) * lift * fact.score`, `own` without a fact; `score = lifted + (1 - lifted) * date_lift * dated`.
    """

    keyword: float | None
    """Share of the BM25 that the query could reach, in [0, 1]; None where words were not asked."""
    similarity: float | None
    """Cosine of the nearest piece, in [0, 1]; None where vectors were not asked, or the entry has none yet."""
    own: float
    """What both make: their weighted root mean square; one of them where the other was not asked."""
    lift: float
    fact: ExplainedFact | None
    """The best of its facts; None: none matched."""
    date_lift: float
    dated: float
    """How well its moment fits what the query says of when: 1 within, 0.5 in the week after, 0 else, or where it says
    nothing."""
    words: tuple[str, ...]
    """Words of the query that stand in it, in some form."""
    importance: float | msgspec.UnsetType = msgspec.UNSET
    """What moved the score last, of an entry that has any: `s` becomes `s · (1 + w)` where `w`, 0.2 · (2 · importance - 1), is
    negative, and `s + w · s · (1 - s)` else."""
    corrects: str | None = None
    """Id of an earlier statement that it corrects; the score is then that of the entry that the earlier one stands for.
    None: the score is its own."""


class GetEpisodeItem(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An Episode, or a typed memory among Episodes."""

    id: str
    user_id: str | None
    app_id: str = "default"
    project_id: str = "default"
    session_id: str | None
    timestamp: str
    sender_ids: tuple[str, ...] = ()
    summary: str
    subject: str
    episode: str
    """The full text."""
    type: Literal["Conversation"] = "Conversation"
    status: str | msgspec.UnsetType = msgspec.UNSET
    deprecated_by: str | msgspec.UnsetType | None = msgspec.UNSET


class SearchAtomicFactItem(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A fact that matched, inside its Episode."""

    id: str
    content: str
    score: float


class SearchEpisodeItem(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An Episode that was found, or a typed memory among Episodes."""

    id: str
    user_id: str | None
    app_id: str = "default"
    project_id: str = "default"
    session_id: str | None = None
    timestamp: str
    sender_ids: tuple[str, ...] = ()
    summary: str
    subject: str
    episode: str
    """The full text."""
    type: Literal["Conversation"] = "Conversation"
    score: float
    atomic_facts: tuple[SearchAtomicFactItem, ...] = ()
    memory_type: str | msgspec.UnsetType = msgspec.UNSET
    """On typed memories only."""
    path: str | msgspec.UnsetType = msgspec.UNSET
    """On typed memories only."""
    explain: Explanation | msgspec.UnsetType = msgspec.UNSET
    status: str | msgspec.UnsetType = msgspec.UNSET
    deprecated_by: str | msgspec.UnsetType | None = msgspec.UNSET


class GetProfileItem(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is known of a person."""

    id: str
    user_id: str | None
    app_id: str = "default"
    project_id: str = "default"
    profile_data: JsonObject
    status: str | msgspec.UnsetType = msgspec.UNSET
    deprecated_by: str | msgspec.UnsetType | None = msgspec.UNSET


class SearchProfileItem(GetProfileItem, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is known of a person, beside what was found."""

    score: float | None = None


class GetAgentCaseItem(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One task an agent worked on."""

    id: str
    agent_id: str
    app_id: str = "default"
    project_id: str = "default"
    session_id: str
    task_intent: str
    approach: str
    quality_score: float
    key_insight: str | None = None
    timestamp: str
    status: str | msgspec.UnsetType = msgspec.UNSET
    deprecated_by: str | msgspec.UnsetType | None = msgspec.UNSET


class SearchAgentCaseItem(GetAgentCaseItem, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One task an agent worked on, as found."""

    score: float
    explain: Explanation | msgspec.UnsetType = msgspec.UNSET


class GetAgentSkillItem(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A procedure that an agent learned."""

    id: str
    agent_id: str
    app_id: str = "default"
    project_id: str = "default"
    name: str
    description: str
    content: str
    confidence: float
    maturity_score: float
    source_case_ids: tuple[str, ...] = ()
    status: str | msgspec.UnsetType = msgspec.UNSET
    deprecated_by: str | msgspec.UnsetType | None = msgspec.UNSET


class SearchAgentSkillItem(GetAgentSkillItem, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A procedure that an agent learned, as found."""

    score: float
    explain: Explanation | msgspec.UnsetType = msgspec.UNSET


class UnprocessedMessageDTO(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message of the session that nothing was extracted from yet."""

    id: str
    app_id: str = "default"
    project_id: str = "default"
    session_id: str
    sender_id: str
    sender_name: str | None = None
    role: Role
    content: str | tuple[JsonObject, ...]
    timestamp: str
    tool_calls: tuple[JsonObject, ...] | None = None
    tool_call_id: str | None = None


class SearchData(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a search found: always exactly these five arrays."""

    episodes: tuple[SearchEpisodeItem, ...] = ()
    profiles: tuple[SearchProfileItem, ...] = ()
    agent_cases: tuple[SearchAgentCaseItem, ...] = ()
    agent_skills: tuple[SearchAgentSkillItem, ...] = ()
    unprocessed_messages: tuple[UnprocessedMessageDTO, ...] = ()


class GetData(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One page of what there is: always these four arrays, one of them filled."""

    episodes: tuple[GetEpisodeItem, ...] = ()
    profiles: tuple[GetProfileItem, ...] = ()
    agent_cases: tuple[GetAgentCaseItem, ...] = ()
    agent_skills: tuple[GetAgentSkillItem, ...] = ()
    total_count: int = 0
    """Items before paging."""
    count: int = 0
    """Items on this page."""


class TimelineItem(msgspec.Struct, frozen=True, kw_only=True):
    """What was remembered of a moment: an Episode, a typed memory, or a case of an agent."""

    id: str
    """Public id."""
    kind: str
    """`episode`, `memory` or `agent_case`."""
    memory_type: str
    """Of Episodes `episodic`; of cases empty."""
    path: str
    """Of typed memories; else empty."""
    session_id: str | None
    timestamp: str
    subject: str
    text: str


class TimelineData(msgspec.Struct, frozen=True, kw_only=True):
    """One page of an owner's timeline: what is active, in the order of its moments."""

    items: tuple[TimelineItem, ...]
    total_count: int
    """Items before paging."""


class AddResponseData(msgspec.Struct, frozen=True, kw_only=True):
    """What became of messages that were given."""

    message_count: int
    """How many of them are accounted for: all, those that were there already included."""
    status: Literal["accumulated", "extracted"]


class AcceptedResponseData(msgspec.Struct, frozen=True, kw_only=True):
    """Work that goes on after the answer."""

    status: Literal["queued"] = "queued"
    message_count: int
    """0 for a flush."""
    pending: int
    """Requests of this session that wait, this one included."""


class FlushResponseData(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a session's messages."""

    status: Literal["extracted", "no_extraction"]


class TaskItem(msgspec.Struct, frozen=True, kw_only=True):
    """A request that was answered before it was done."""

    id: str
    """The request id of its answer."""
    status: Literal["queued", "processing", "success", "failed"]
    task_type: Literal["memory_add", "memory_flush"]
    error: str | None = None
    error_code: str | None = None
    created_at: str
    finished_at: str | None = None


class TaskPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of tasks, the newest first."""

    total: int
    """Tasks before paging."""
    page: int
    page_size: int
    items: tuple[TaskItem, ...]


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a strategy."""

    run_id: str
    status: str
    """`queued`, `running`, `success`, `failed` (it is tried again), `dead_letter`, `skipped` or `released`."""
    error: str | None = None
    result: Any | msgspec.UnsetType = msgspec.UNSET
    """What the run did, in a few words; of a dry run what it would do, of a strategy that the clock fires as an object.
    Absent while it has not ended. Not in EverOS."""
    detail: Any | msgspec.UnsetType = msgspec.UNSET
    """Of reflection: the clusters that it skipped and why (`skipped`), how many are left as a rollback brought them back
    (`undone`). Absent of others and of a dry run. Not in EverOS."""


class TriggerResponse(msgspec.Struct, frozen=True, kw_only=True):
    """POST ome/trigger: a bare object."""

    status: str
    """`ok`: all of it has ended, look at `runs`; `timeout`: it goes on; `not_dispatched`: nothing was started."""
    name: str
    dispatched: int
    runs: tuple[RunSummary, ...] = ()


class LastRun(msgspec.Struct, frozen=True, kw_only=True):
    """The newest run of a strategy that has ended."""

    run_id: str
    trigger: str
    """`event`, `cron`, `idle`, `manual` or `recovery` (work of an earlier daemon was finished)."""
    status: str
    """As in `runs`, or `missed`: it was due while nothing ran here, `error` says when; or `recovered`."""
    attempt: int
    """1 for the first; 0: it was never begun."""
    started_at: str
    finished_at: str | None
    error: str | None
    result: str | None
    """What the run says it did."""


class StrategyItem(msgspec.Struct, frozen=True, kw_only=True):
    """One strategy of the engine."""

    name: str
    enabled: bool
    trigger: str
    """`event`, `cron` or `idle`."""
    cron: str | None
    idle_seconds: float | None
    """Started after so long a silence; None: not by silence."""
    next_fire_time: str | None
    """None where no clock starts it."""
    last_run: LastRun | None
    """None: none is on record."""
    settings_error: str | None
    """What is wrong in `ome.toml`; the last good settings are in force."""
    waiting: int
    """Events that wait for it, those that are tried again included."""
    running: int
    dead: int
    """Events that failed at every try; a trigger by hand runs them again."""


class Strategies(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine runs."""

    items: tuple[StrategyItem, ...]


class ReportMember(msgspec.Struct, frozen=True, kw_only=True):
    """An entry that a consolidation replaced."""

    member_id: str
    """Entry id."""
    member_type: str


class ReportSource(msgspec.Struct, frozen=True, kw_only=True):
    """What stood there before, as it reads now."""

    id: str
    """Public id."""
    timestamp: str | None
    """None where no file has it any more."""
    subject: str
    text: str
    status: str
    """`deprecated` while the narrative stands for it, `active` where it is live, `gone` where no file has it."""


class ReportNarrative(msgspec.Struct, frozen=True, kw_only=True):
    """What was made of it, as it reads now."""

    id: str
    """Public id."""
    timestamp: str
    subject: str
    content: str
    status: str
    deprecated_by: str | None
    """Public id of what replaces it: a later narrative, or after a rollback the newest source."""


class ReportItem(msgspec.Struct, frozen=True, kw_only=True):
    """One consolidation: its row of `reflection_report`, and the texts."""

    report_id: str
    id: str
    """The same."""
    cluster_id: str
    owner_id: str
    app_id: str
    project_id: str
    owner_type: str
    mode: str
    """`init`: the first of this cluster; `update`: a narrative and what came since."""
    source_members: tuple[ReportMember, ...]
    source_count: int
    merged_entry_id: str
    """Entry id of the narrative."""
    deprecated_fact_count: int
    status: str
    """`completed` or `rolled_back`."""
    created_at: str
    updated_at: str
    before: tuple[ReportSource, ...]
    after: ReportNarrative | None
    """None where no file has it any more."""
    check: str | None
    """How the narrative was held against its sources, and what came of it."""


class ReportsData(msgspec.Struct, frozen=True, kw_only=True):
    """One page of consolidations, the newest first."""

    items: tuple[ReportItem, ...]
    total_count: int
    """Before paging."""


class RollbackData(msgspec.Struct, frozen=True, kw_only=True):
    """What undoing a consolidation did."""

    restored: tuple[str, ...]
    """Public ids of the sources that live again."""
    retired: str
    """Public id of the narrative."""
    report_id: str


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """One `###` section of an entry."""

    title: str
    text: str


class EntryItem(msgspec.Struct, frozen=True, kw_only=True):
    """One entry with everything that is known of it."""

    id: str
    """Public id."""
    entry_id: str
    kind: str
    user_id: str | None = None
    agent_id: str | None = None
    app_id: str
    project_id: str
    session_id: str | None
    timestamp: str
    updated_at: str
    """When the ledger last saw it change."""
    status: str
    deprecated_by: str | None
    """Public id of what replaces it; None while nothing does."""
    parent_type: str
    parent_id: str
    sender_ids: tuple[str, ...]
    subject: str
    summary: str
    content: str
    """What it says: the Content of an Episode, the Fact of a fact, the text of a message, all of it where no section
    is the main one; uncut."""
    text: str
    """All of its text, every section under its title, uncut."""
    fields: dict[str, str]
    """Inline fields as they stand in the file, unknown ones included."""
    sections: tuple[Section, ...]
    memory_type: str | None
    path: str | None
    importance: float | None
    confidence: float | None
    expires_at: str | None
    sources: tuple[str, ...]
    """Public ids of the entries that it replaced."""
    facts: tuple[str, ...]
    """Public ids of the facts taken from it."""
    messages: tuple[UnprocessedMessageDTO, ...]
    """The messages it was extracted from, where they are still in the log."""
    file: str
    """Path below the memory root."""
    line: int
    form: str
    lsn: int


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong."""

    code: str
    message: str
    timestamp: str
    path: str


class FailureBody(msgspec.Struct, frozen=True, kw_only=True):
    """Why work that was already streaming its progress failed."""

    code: str
    message: str
    hint: str = ""
    """What to type next; empty where nobody knows."""


class ErrorEnvelope(msgspec.Struct, frozen=True, kw_only=True):
    """Every answer that is not a success."""

    request_id: str
    error: ErrorBody
    detail: str | msgspec.UnsetType = msgspec.UNSET
    """On unknown routes and methods only."""


class Envelope(msgspec.Struct, Generic[DataT], frozen=True, kw_only=True):
    """Every success under /api."""

    request_id: str
    data: DataT
    degraded: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    """What could not be done as asked; absent when nothing."""


class HealthCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    """Which models are there."""

    llm: bool = False
    embed: bool = False
    rerank: bool = False
    multimodal_llm: bool = False
    parser: bool = False


class ProjectionHealth(msgspec.Struct, frozen=True, kw_only=True):
    """How far one index has come."""

    state: str
    lsn: int
    behind: int
    documents: int
    age_s: float
    """Seconds since it last got on while there is something to do."""
    progress: tuple[int, int] | None = None
    error: str = ""


class CascadeHealthBlock(msgspec.Struct, frozen=True, kw_only=True):
    """How far the indexes have followed the disk."""

    healthy: bool
    reasons: tuple[str, ...]
    pending: int
    """0 means that everything on disk is in every index."""
    failed_permanent: int
    failed_retryable: int
    drain_consecutive_failures: int = 0
    unrecoverable_total: int = 0
    optimize_failure_streak: int = 0
    prune_stale_seconds: float = 0.0
    index_rows: dict[str, int] = {}
    index_emptied: bool = False
    phase: str = ""
    lsn: int = 0
    files_on_disk: int = 0
    files_indexed: int = 0
    entries: int = 0
    """Memories, put away or not; no rows of logs."""
    rows: int = 0
    """Of logs that only machines write: messages, segments, what became of memories and clusters."""
    scan_age_s: float = 0.0
    done: int = 0
    total: int = 0
    projections: dict[str, ProjectionHealth] = {}


class WatchHealthBlock(msgspec.Struct, frozen=True, kw_only=True):
    """How changes are noticed."""

    mode: str
    healthy: bool
    reason: str


class ProblemItem(msgspec.Struct, frozen=True, kw_only=True):
    """A file that is not read as it should be."""

    path: str
    reason: str
    line: int | None
    kind: str


class MemorizeQueueHealthBlock(msgspec.Struct, frozen=True, kw_only=True):
    """The queue of messages to extract from."""

    healthy: bool
    reasons: tuple[str, ...]
    loop_alive: bool
    accepting: bool
    pending: int
    oldest_pending_age_s: float | None
    failed: int
    loop_restarts: int
    last_loop_error_at: str | None


class EmbeddingHealth(msgspec.Struct, frozen=True, kw_only=True):
    """Which model makes the vectors, and how it does."""

    model: str
    dim: int
    owed: int
    """Entries that wait for their vectors."""
    refused: int
    requested: int
    """Texts that the model was asked for since the start."""
    from_cache: int
    error: str


class HealthResponse(msgspec.Struct, frozen=True, kw_only=True):
    """GET /health: a bare object."""

    status: str
    version: str
    capabilities: HealthCapabilities
    disabled_features: tuple[str, ...]
    cascade: CascadeHealthBlock | None = None
    memorize_queue: MemorizeQueueHealthBlock | None = None
    ready: bool = False
    """Keyword search answers from what was on disk when the daemon started, or later."""
    degraded: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    """What does not work as it should; absent when all is well."""
    watch: WatchHealthBlock | None = None
    embedding: EmbeddingHealth | None = None
    """None where no vectors are wanted."""
    problems: tuple[ProblemItem, ...] = ()
    """The first of the files that are not read as they should be."""
    n_problems: int = 0
    uptime_s: float = 0.0


ENCODER = msgspec.json.Encoder(decimal_format="number")
