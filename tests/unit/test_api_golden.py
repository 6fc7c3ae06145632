"""What a session with the daemon looks like on the wire, kept as text so that a change of it is seen in the diff."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from everosd import faculties

if TYPE_CHECKING:
    from tests.unit.conftest import Door, Open, Said

assert faculties.PROMPTS.is_dir()  # imported here: it takes a while, which a first request would seem to
GOLDEN = Path(__file__).parents[1] / "golden" / "http"
IS_WRITING = bool(os.environ.get("EVEROSD_WRITE_GOLDEN"))
"""Set it to write the transcripts anew; then read the diff."""

CHANGING = {"request_id", "updated_at", "uptime_s", "scan_age_s", "version", "age_s", "lsn", "run_id", "evaluated_at"}
"""Fields that differ from run to run."""

BASE = "default_app/default_project"
Step = tuple[str, str, str, object]
"""What it shows, method, path, body (None: none)."""

SEARCH, GET = "/api/v1/memory/search", "/api/v1/memory/get"
ADD, FLUSH = "/api/v1/memory/add", "/api/v1/memory/flush"

READING: tuple[Step, ...] = (
    ("The only user of the scope is meant", "POST", SEARCH, {"query": "puppy", "method": "keyword"}),
    (
        "Hybrid says that it was answered by keyword, and nests facts",
        "POST",
        SEARCH,
        {"query": "vet", "user_id": "mara"},
    ),
    (
        "A filter that the narrative cannot match",
        "POST",
        SEARCH,
        {"query": "puppy", "user_id": "mara", "filters": {"session_id": "s_17"}},
    ),
    (
        "Deprecated entries where they are asked for",
        "POST",
        SEARCH,
        {"query": "puppy", "method": "keyword", "include_status": ["deprecated"]},
    ),
    (
        "A page of Episodes, oldest first",
        "POST",
        GET,
        {"memory_type": "episode", "user_id": "mara", "page_size": 2, "sort_order": "asc"},
    ),
    ("A profile", "POST", GET, {"memory_type": "profile", "user_id": "mara"}),
    ("One entry with its lineage", "GET", "/api/v1/entries/mara_ep_20260309_00000001", None),
    ("An entry that was replaced", "GET", "/api/v1/entries/mara_ep_20260302_00000001", None),
    ("Health", "GET", "/health", None),
)

SAID = [
    {
        "sender_id": "mara",
        "sender_name": "Mara",
        "role": "user",
        "timestamp": 1772445600000,
        "content": "I found a puppy.",
    },
    {
        "sender_id": "helper",
        "role": "assistant",
        "timestamp": 1772445660,
        "content": [{"type": "text", "text": "Where?"}],
    },
]
HERE = {"session_id": "s_1"}

INTAKE: tuple[Step, ...] = (
    ("Messages are kept", "POST", ADD, HERE | {"messages": SAID}),
    ("The same again: counted, and kept once", "POST", ADD, HERE | {"messages": SAID}),
    ("What waits", "POST", SEARCH, {"query": "q", "method": "keyword", "user_id": "mara", "filters": HERE}),
    ("The end of the conversation", "POST", FLUSH, HERE),
    ("Nothing waits any more", "POST", FLUSH, HERE),
    ("An answer before the work", "POST", ADD, {"session_id": "s_2", "messages": SAID[:1], "async_mode": True}),
    ("One that cannot be fired by hand", "POST", "/api/v1/ome/trigger", {"name": "extract_foresight"}),
    ("One that is not there", "POST", "/api/v1/ome/trigger", {"name": "extract_foresigt"}),
    ("A role that is none", "POST", ADD, HERE | {"messages": [SAID[0], {**SAID[1], "role": "system"}]}),
    ("A result without its call", "POST", ADD, HERE | {"messages": [{**SAID[1], "role": "tool"}]}),
    ("A picture", "POST", ADD, HERE | {"messages": [{**SAID[0], "content": [{"type": "image", "uri": "x.png"}]}]}),
    ("A task that is not there", "GET", "/api/v1/tasks/0", None),
    ("A misspelt parameter", "GET", "/api/v1/tasks?sesion_id=s_2", None),
)

REPORTS, ROLLBACK = "/api/v1/reflection/reports", "/api/v1/reflection/rollback"
REPORT = "0123456789abcdef0123456789abcdef"

REFLECTION: tuple[Step, ...] = (
    ("What was consolidated, before and after", "GET", REPORTS, None),
    ("Past the end", "GET", f"{REPORTS}?user_id=mara&offset=1", None),
    ("A misspelt parameter", "GET", f"{REPORTS}?cluster=cl_0123456789ab", None),
    (
        "A dry run, with nothing to do",
        "POST",
        "/api/v1/ome/trigger",
        {"name": "reflect_episodes", "force": True, "dry_run": True},
    ),
    ("Neither of the two ids", "POST", ROLLBACK, {"user_id": "mara"}),
    ("An id that says nothing of whose it is", "POST", ROLLBACK, {"merged_entry_id": "ep_20260309_00000001"}),
    ("A report that is not there", "POST", ROLLBACK, {"report_id": "f" * 32}),
    ("Undone by the narrative's public id", "POST", ROLLBACK, {"merged_entry_id": "mara_ep_20260309_00000001"}),
    ("Undone twice", "POST", ROLLBACK, {"report_id": REPORT}),
    ("Its fragments are found again", "POST", SEARCH, {"query": "puppy", "method": "keyword"}),
    ("And the report says so", "GET", f"{REPORTS}?user_id=mara", None),
)

REFUSALS: tuple[Step, ...] = (
    ("A misspelt field", "POST", SEARCH, {"query": "q", "userid": "mara"}),
    ("A wrong type inside a filter", "POST", SEARCH, {"query": "q", "filters": {"timestamp": {"gte": []}}}),
    ("Scope inside a filter", "POST", SEARCH, {"query": "q", "filters": {"AND": [{"owner_id": "theo"}]}}),
    ("An id that could be a path", "POST", SEARCH, {"query": "q", "user_id": "../theo"}),
    ("A kind without its owner", "POST", GET, {"memory_type": "agent_case", "user_id": "mara"}),
    ("An entry that is not there", "GET", "/api/v1/entries/mara_ep_20260302_00000099", None),
    ("A route that is not there", "GET", "/api/v1/memory", None),
    ("A method that is not there", "GET", SEARCH, None),
)


def root_of(log_of: Callable[..., str], episode: Callable[..., Said]) -> dict[str, str]:
    """Return a small root: a puppy, two fragments made one narrative, a fact, a profile."""
    first = episode(1, "Mara thinks about a puppy.")
    second = episode(2, "The puppy is called Bilbo.", session="s_18")
    merged = episode(
        1,
        "Mara took in a puppy, Bilbo, and found a vet in the Kanalstrasse.",
        date="20260309",
        session=None,
        parent_type="cluster",
        parent_id="cl_0123456789ab",
        sender_ids="[]",
        sources="[ep_20260302_00000001, ep_20260302_00000002]",
    )
    del merged.sections["Summary"]
    fact = (
        "<!-- entry:af_20260309_00000001 -->\n## af_20260309_00000001\n\n**owner_id**: mara\n**parent_type**: episode\n"
        "**timestamp**: 2026-03-09T00:01:00+00:00\n**parent_id**: ep_20260309_00000001\n\n### Fact\nThe vet is in the Kanalstrasse.\n"
        "<!-- /entry:af_20260309_00000001 -->\n"
    )
    user = f"{BASE}/users/mara"
    return {
        f"{user}/episodes/episode-2026-03-02.md": log_of(
            "mara", "2026-03-02", first, second, deprecated={first.id: merged.id, second.id: merged.id}
        ),
        f"{user}/episodes/episode-2026-03-09.md": log_of("mara", "2026-03-09", merged),
        f"{user}/.atomic_facts/atomic_fact-2026-03-09.md": fact,
        f"{user}/user.md": "---\nid: profile_mara\ntype: user_profile\nuser_id: mara\nsummary: Mara has a dog.\n---\nMara has a dog.\n",
    }


def settled(value: Any) -> Any:
    """Return an answer without what differs from run to run, scores to three digits."""
    if isinstance(value, dict):
        return {key: f"<{key}>" if key in CHANGING else settled(part) for key, part in value.items()}
    if isinstance(value, list):
        return [settled(part) for part in value]
    return round(value, 3) if isinstance(value, float) else value


async def transcript(door: Door, steps: tuple[Step, ...]) -> str:
    """Take the steps and return what was asked and answered, as text."""
    parts = []
    for title, method, path, body in steps:
        answer = (
            await door.client.request(method, path, json=body)
            if body is not None
            else await door.client.request(method, path)
        )
        shown = json.dumps(settled(answer.json()), indent=2, ensure_ascii=False)
        if answer.status_code >= 400:
            shown = re.sub(r'"timestamp": "[^"]+"', '"timestamp": "<timestamp>"', shown)
        asked = "" if body is None else f" {json.dumps(body)}"
        parts.append(f"# {title}\n{method} {path}{asked}\n{answer.status_code}\n{shown}\n")
    return "\n".join(parts)


CONSOLIDATED = """\
---
id: cluster_log_mara_2026-03-09
type: cluster_daily
file_type: cluster_daily
schema_version: 1
user_id: mara
track: user
date: '2026-03-09'
entry_count: 1
last_appended_at: '2026-03-09T02:00:00+00:00'
---
<!-- entry:ca_20260309_00000001 -->
## ca_20260309_00000001

**timestamp**: 2026-03-09T02:00:00+00:00
**event**: completed
**cluster_id**: cl_0123456789ab
**report_id**: 0123456789abcdef0123456789abcdef
**mode**: init
**source_members**: [{"member_id": "ep_20260302_00000001", "member_type": "episode"}, {"member_id": "ep_20260302_00000002", "member_type": "episode"}]
**source_count**: 2
**merged_entry_id**: ep_20260309_00000001
**deprecated_fact_count**: 0
<!-- /entry:ca_20260309_00000001 -->
"""


STEPS = {"reading": READING, "refusals": REFUSALS, "intake": INTAKE, "reflection": REFLECTION}


@pytest.mark.parametrize("name", STEPS)
async def test_the_wire_says_what_it_said(
    name: str, open_door: Open, log_of: Callable[..., str], episode: Callable[..., Said]
) -> None:
    """Every step answers as the transcript has it (EVEROSD_WRITE_GOLDEN=1 writes it anew)."""
    files = {} if name == "intake" else root_of(log_of, episode)
    if name == "reflection":
        files[f"{BASE}/users/mara/.clusters/cluster-2026-03-09.md"] = CONSOLIDATED
    async with open_door(files, learns=name in ("intake", "reflection")) as door:
        said = await transcript(door, STEPS[name])

    path = GOLDEN / f"{name}.txt"
    if IS_WRITING:
        path.write_text(said, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == said
