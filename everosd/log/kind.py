"""The kinds of memory: one struct and one row in the table each."""

from __future__ import annotations

from typing import Literal

import msgspec

WrittenAs = Literal["replaced", "appended"]
"""`replaced`: people edit the file, the daemon swaps in a whole new one; `appended`: only machines write it."""


class Episode(msgspec.Struct, frozen=True, kw_only=True):
    """What a stretch of conversation was about, for one person."""

    owner_id: str = ""
    session_id: str | None = None
    """None on a merged narrative."""
    timestamp: str = ""
    parent_type: str = ""
    """`memcell` for a conversation, `cluster` for a consolidation."""
    parent_id: str = ""
    sender_ids: tuple[str, ...] = ()
    extracted_by: str = ""
    """`verbatim`, `extractive`, or the model that wrote it."""
    subject: str = ""
    summary: str = ""
    content: str = ""
    report_id: str = ""
    """Of the consolidation that wrote it, 32 hex; empty on what no consolidation of everosd wrote."""
    mode: str = ""
    """`init` or `update`, of a consolidation."""
    source_count: int = 0
    sources: tuple[str, ...] = ()
    """What it replaces: entry ids, each with `@` and 16 hex of the text that was read."""
    read_from: tuple[str, ...] = ()
    """Entry ids of what its text was made from."""
    text_digest: str = ""
    """Of its own text as written; another one means that a person has edited it since."""
    check: str = ""
    """What the comparison with its sources found, in short."""


class AtomicFact(msgspec.Struct, frozen=True, kw_only=True):
    """One statement taken from an Episode."""

    owner_id: str = ""
    session_id: str | None = None
    timestamp: str = ""
    parent_type: str = ""
    parent_id: str = ""
    """Entry id of the Episode."""
    source_digest: str = ""
    """Of the Episode's text that it was taken from (`fact.source_digest`); another one means that it was edited since."""
    corrects: tuple[str, ...] = ()
    """Entry ids of earlier facts that this one contradicts, of the same owner."""
    extracted_by: str = ""
    """`verbatim`, or the model that wrote it."""
    fact: str = ""


class Foresight(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is expected to hold for a while."""

    owner_id: str = ""
    session_id: str | None = None
    timestamp: str = ""
    parent_type: str = ""
    parent_id: str = ""
    start_time: str = ""
    end_time: str = ""
    duration_days: str = ""
    foresight: str = ""
    evidence: str = ""


class AgentCase(msgspec.Struct, frozen=True, kw_only=True):
    """One task an agent worked on, and how."""

    owner_id: str = ""
    session_id: str = ""
    timestamp: str = ""
    parent_type: str = ""
    parent_id: str = ""
    quality_score: float = 0.0
    extracted_by: str = ""
    """`verbatim`, or the model that wrote it."""
    task_intent: str = ""
    approach: str = ""
    key_insight: str | None = None


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """A typed memory: what an agent or a person asked to be remembered under a path."""

    owner_id: str = ""
    session_id: str | None = None
    timestamp: str = ""
    memory_type: str = "episodic"
    importance: float = 0.5
    confidence: float = 0.7
    status: str = "active"
    expires_at: str | None = None
    path: str = ""
    semantic_key: str = ""
    """Of the active memories of an owner, bucket, scope and team one has it: what is written under it updates that one."""
    promotion_key: str = ""
    """What memories about the same fact have in common; empty: their text."""
    updated_at: str = ""
    """When it was changed last by a request; empty: not since it was written. Decay leaves it."""
    pinned: str = ""
    """`true`: never decays and is never archived."""
    bucket: str = "public"
    scope: str = ""
    team_id: str = ""
    metadata: str = ""
    """JSON object, as it was given; empty without."""
    provenance: str = ""
    """JSON object that says where it comes from, as it was given; empty without."""
    sources: tuple[str, ...] = ()
    """Entry ids of what it was made from."""
    occurred_from: str = ""
    """With `occurred_to`: moments of the oldest and the newest of its sources."""
    occurred_to: str = ""
    version: int = 1
    """Number of this version, from 1."""
    subject: str = ""
    content: str = ""


class LifecycleRow(msgspec.Struct, frozen=True, kw_only=True):
    """A change of status or importance, a version before an update, or an audit record."""

    timestamp: str = ""
    action: str = ""
    """What happened. Of memories: `decay`, `expire`, `archive`, `supersede`, `delete`, `restore`, `update`, `pin`, `edited`
    (by hand), `usage`, `summarize` (it was made as a summary, or made anew), `redact`, `hard_delete`, `removed` (all is done
    that these two say); `audit` is the call itself. Others
    are of other parts: `conflict`, …"""
    target: str = ""
    """Entry id that it happened to."""
    targets: tuple[str, ...] = ()
    """Of `usage`: `<entry id>@<unix ms>` each, when it was used last."""
    run_id: str = ""
    field: str = ""
    """`importance` or `status`."""
    base: str = ""
    """The inline value that the row was made on (of a status: `active` where none is written); the row is void once the entry
    says otherwise."""
    was: str = ""
    """What was in force before."""
    value: str = ""
    """What is now; of `removed`: which of `redact` and `hard_delete` is done."""
    since: str = ""
    """Of `decay`: the activity from which `steps` are counted."""
    steps: int = 0
    """Of `decay`: whole periods since then."""
    successor: str = ""
    """Of `supersede`: entry id of what took its place; while there is no such entry the row is void."""
    version: int = 0
    """Of `update` and `pin`: number of the version that ends here, from 1."""
    digest: str = ""
    """Of `update` and `pin`: 32 hex of the entry's digest after the change."""
    sources: tuple[str, ...] = ()
    """Of `summarize`: what it was made of, entry ids, each with `@` and 16 hex of the text that was read."""
    message_ids: tuple[str, ...] = ()
    """Of `redact` and `hard_delete`: what may not bring it back."""
    tool: str = ""
    """Of `audit`, with what follows."""
    dry_run: str = ""
    """`true` or `false`."""
    actions: tuple[str, ...] = ()
    parameters: str = ""
    """JSON."""
    counts: str = ""
    """JSON."""
    error: str = ""
    reason: str = ""
    before: str = ""
    """Text of the entry before the change, where it is kept."""


class ClusterRow(msgspec.Struct, frozen=True, kw_only=True):
    """An entry joined a cluster, or a consolidation of one was completed or rolled back."""

    timestamp: str = ""
    event: str = ""
    """`joined`: a member joined a cluster; `completed`: a consolidation is done, all of it; `rolled_back`: it is to be
    undone; `restored`: that is done, too; `no_facts`: nothing could be taken from the member's text."""
    cluster_id: str = ""
    member_id: str = ""
    member_type: str = ""
    similarity: str = ""
    """Cosine with the centroid when it joined."""
    digest: str = ""
    """Of the member's text that the row was made on."""
    report_id: str = ""
    mode: str = ""
    source_members: str = ""
    """JSON `[{member_id, member_type}]` of a consolidation: those that it really replaced."""
    source_count: int = 0
    merged_entry_id: str = ""
    deprecated_fact_count: int = 0
    sources: tuple[str, ...] = ()
    """The same as the narrative names them: entry ids, each with `@` and 16 hex of the text; EverOS's rows have none."""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message as it arrived."""

    type: str = "message"
    message_id: str = ""
    """`m_<session>_<ms>_<idx>`."""
    sender_id: str = ""
    sender_name: str | None = None
    role: str = ""
    timestamp: str = ""
    tool_calls: str = ""
    """JSON, as it arrived; empty without tool calls."""
    tool_call_id: str | None = None
    duplicate_of: str = ""
    """Message id of the first one under the same key, whose text differs; such a row is not extracted."""
    content: str = ""
    """JSON of the items as they arrived where there were several or none; empty: the text is all there was."""
    is_deferred: str = ""
    """`true` where it was added with `defer_extraction`: only a flush cuts the session then."""
    forgotten: str = ""
    """`true` where what was said was removed for good; the row stays, so that nobody brings it back by saying it again."""
    text: str = ""


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of a session cut for extraction (`segment`), or its closing row (`done`)."""

    type: str = "segment"
    memcell_id: str = ""
    """`mc_<12 hex>`."""
    timestamp: str = ""
    message_ids: tuple[str, ...] = ()
    state: str = ""
    """`open` when cut, `done` when the Episodes are on disk, `followed` when facts, clusters and the rest are, too."""
    reason: str = ""
    """Why it was cut: `flush`, `tokens`, `messages`, `gap`, `idle` or `model`."""


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a person, as one file; everything is in the frontmatter, the body is the summary."""

    id: str = ""
    user_id: str = ""
    summary: str = ""


class AgentSkill(msgspec.Struct, frozen=True, kw_only=True):
    """A procedure that an agent learned; the body is the procedure."""

    id: str = ""
    agent_id: str = ""
    name: str = ""
    description: str = ""
    confidence: float = 0.0
    maturity_score: float = 0.0
    source_case_ids: tuple[str, ...] = ()
    cluster_id: str = ""


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table of kinds: where files of the kind live and how they read."""

    name: str
    struct: type[msgspec.Struct]
    """Typed view of an entry: inline fields by name, sections by snake_case title."""
    prefix: str = ""
    """Entry id prefix; empty for kinds that are one file each."""
    owners: tuple[str, ...]
    """Owner types that have it, first the one that a prefix stands for."""
    folder: str = ""
    """Folder below the owner's; empty: the owner's folder itself."""
    stem: str = ""
    """Daily log file names are `<stem>-<YYYY-MM-DD>.md`; whole files are named `<stem>.md`."""
    file_type: str = ""
    """`type` and `file_type` in the frontmatter."""
    sections: tuple[str, ...] = ()
    """Titles of the `###` sections in the order written; the last one takes everything to the close."""
    written: WrittenAs = "replaced"
    is_whole_file: bool = False
    """One entry per file, its fields in the frontmatter and its text in the body."""
    takes_hand_text: bool = False
    """Text outside markers is an entry too."""
    is_searchable: bool = True
    """Goes to the text index."""


KINDS: tuple[Kind, ...] = (
    Kind(
        name="episode",
        struct=Episode,
        prefix="ep",
        owners=("user",),
        folder="episodes",
        stem="episode",
        file_type="episode_daily",
        sections=("Subject", "Summary", "Content"),
        takes_hand_text=True,
    ),
    Kind(
        name="atomic_fact",
        struct=AtomicFact,
        prefix="af",
        owners=("user",),
        folder=".atomic_facts",
        stem="atomic_fact",
        file_type="atomic_fact_daily",
        sections=("Fact",),
        takes_hand_text=True,
    ),
    Kind(
        name="foresight",
        struct=Foresight,
        prefix="fs",
        owners=("user",),
        folder=".foresights",
        stem="foresight",
        file_type="foresight_daily",
        sections=("Foresight", "Evidence"),
        takes_hand_text=True,
    ),
    Kind(
        name="memory",
        struct=Memory,
        prefix="mem",
        owners=("user", "agent"),
        folder="memories",
        stem="",
        file_type="memory_daily",
        sections=("Subject", "Content"),
        takes_hand_text=True,
    ),
    Kind(
        name="agent_case",
        struct=AgentCase,
        prefix="ac",
        owners=("agent",),
        folder=".cases",
        stem="agent_case",
        file_type="agent_case_daily",
        sections=("TaskIntent", "Approach", "KeyInsight"),
    ),
    Kind(
        name="lifecycle",
        struct=LifecycleRow,
        prefix="lc",
        owners=("user", "agent"),
        folder=".lifecycle",
        stem="lifecycle",
        file_type="lifecycle_daily",
        sections=("Before",),
        written="appended",
        is_searchable=False,
    ),
    Kind(
        name="cluster",
        struct=ClusterRow,
        prefix="ca",
        owners=("user", "agent"),
        folder=".clusters",
        stem="cluster",
        file_type="cluster_daily",
        written="appended",
        is_searchable=False,
    ),
    Kind(
        name="message",
        struct=Message,
        prefix="ms",
        owners=("session",),
        stem="messages",
        file_type="session_daily",
        sections=("Text",),
        written="appended",
        is_searchable=False,
    ),
    Kind(
        name="segment",
        struct=Segment,
        prefix="ms",
        owners=("session",),
        stem="messages",
        file_type="session_daily",
        written="appended",
        is_searchable=False,
    ),
    Kind(
        name="profile",
        struct=Profile,
        owners=("user",),
        stem="user",
        file_type="user_profile",
        is_whole_file=True,
    ),
    Kind(
        name="agent_skill",
        struct=AgentSkill,
        owners=("agent",),
        folder="skills",
        stem="SKILL",
        file_type="agent_skill",
        is_whole_file=True,
    ),
)
"""Every kind. `message` and `segment` share a file: an entry whose inline `type` is `segment` is the latter."""

BY_NAME: dict[str, Kind] = {kind.name: kind for kind in KINDS}

ROWS: frozenset[str] = frozenset(kind.name for kind in KINDS if kind.written == "appended")
"""Kinds whose entries are rows of a log that only machines write: nobody's memories."""
