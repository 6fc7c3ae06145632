"""Each tool is one request to a route, about the owner that the settings name."""

from __future__ import annotations

import datetime as dt
import urllib.parse
from typing import Any

import pytest

from everosd import config, errors
from everosd.mcp import backend, owner, resource, takes, tools
from tests import mcp_backend

NOW = dt.datetime(2026, 3, 2, 9, 0, tzinfo=dt.UTC)
MARA = owner.Whose(user_id="mara", app_id="default", project_id="default")
CALL = tools.Call(whose=MARA, now=NOW, zone=dt.timezone(dt.timedelta(hours=1)))
OWN = "mara_mem_20260302_00000001"
NAMES = {
    "remember", "search_memory", "recall_context", "update_memory", "forget_memory", "restore_memory",
    "list_memory_versions", "explain_memory", "memory_stats", "reflect", "run_lifecycle", "query_consolidation_audit",
    "trigger_strategy", "rollback_consolidation", "add_messages", "flush_session",
}  # fmt: skip


def request(name: str, **arguments: Any) -> tools.Request:
    """Return the request that a call becomes."""
    tool = tools.BY_NAME[name]
    return tool.request(takes.take(tool.takes, arguments), CALL)


def body(name: str, **arguments: Any) -> dict[str, Any]:
    """Return the body of that request, without its owner."""
    found = dict(request(name, **arguments).body or {})
    assert {"user_id": "mara", "app_id": "default", "project_id": "default"} == {
        key: found.pop(key, None) for key in ("user_id", "app_id", "project_id")
    }
    return found


def settings(user_id: str = "", app_id: str = "default") -> config.Mcp:
    """Return settings of a connection."""
    return config.Mcp(user_id=user_id, app_id=app_id, project_id="default")


def test_the_tools_are_those_that_agents_know() -> None:
    """Names are XMemo's, and four of our own."""
    assert set(tools.BY_NAME) == NAMES
    assert len(tools.TOOLS) == len(NAMES)


def test_every_tool_says_when_it_is_used() -> None:
    """A description is a few sentences; those that change much say to look first."""
    for tool in tools.TOOLS:
        assert 60 < len(tool.description) < 700, tool.name
        if "dry_run" in tool.takes.__struct_fields__:
            assert "dry_run=true" in tool.description, tool.name
            assert tool.is_long
    forget = tools.BY_NAME["forget_memory"].description
    assert "FOR GOOD" in forget
    assert "confirm=true" in forget


def test_requests_name_the_owner_of_the_settings() -> None:
    """Bodies and query strings say whose; filters that restrict nothing are not sent."""
    assert {"query": "tea", "top_k": 10} == body("search_memory", query="tea")
    assert {"query": "tea", "top_k": 3, "memory_type": "semantic", "path_filter": "projects/%"} == body(
        "search_memory", query="tea", limit=3, memory_type="semantic", path_filter="projects/%", bucket="%"
    )
    assert {"query": "tea", "max_tokens": 300} == body("recall_context", query="tea", max_tokens=300)
    asked = request("query_consolidation_audit", action_type="decay", since="2026-03-01T00:00:00Z")
    assert "GET" == asked.method
    assert {
        "limit": "50", "action_type": "decay", "since": "2026-03-01T00:00:00Z",
        "user_id": "mara", "app_id": "default", "project_id": "default",
    } == dict(urllib.parse.parse_qsl(asked.path.partition("?")[2]))  # fmt: skip
    assert "/api/v1/memory/stats?user_id=mara&app_id=default&project_id=default" == request("memory_stats").path


def test_a_memory_is_written_with_what_was_given_alone() -> None:
    """Objects go under the names of the routes, ids of sources are the owner's."""
    assert {"path": "a", "content": "b"} == body("remember", path="a", content="b")
    assert {
        "path": "a", "content": "b", "memory_type": "procedural", "metadata": {"k": 1}, "dedupe": True,
        "source_ids": [OWN],
    } == body(
        "remember", path="a", content="b", memory_type="procedural", metadata_json='{"k": 1}', dedupe=True,
        source_ids=["mem_20260302_00000001"],
    )  # fmt: skip
    assert {"memory_id": OWN, "importance": 0.9} == body("update_memory", memory_id=OWN, importance=0.9)
    with pytest.raises(errors.RequestError, match="metadata_json"):
        request("remember", path="a", content="b", metadata_json="[1]")


def test_confirm_is_passed_on_only_where_it_is_true() -> None:
    """The route asks for it; a replacement goes with redact alone."""
    assert {"memory_id": OWN} == body("forget_memory", memory_id=OWN)
    assert {"memory_id": OWN, "mode": "hard_delete"} == body("forget_memory", memory_id=OWN, mode="hard_delete")
    assert {"memory_id": OWN, "mode": "redact", "confirm": True, "replacement_content": "x"} == body(
        "forget_memory", memory_id=OWN, mode="redact", confirm=True, replacement_content="x"
    )
    with pytest.raises(errors.RequestError, match="replacement_content"):
        request("forget_memory", memory_id=OWN, replacement_content="x")


def test_run_lifecycle_is_reflect_with_the_actions_that_are_on() -> None:
    """Summaries and promotions are no part of it."""
    assert {"actions": ["expire", "decay", "archive"]} == body("run_lifecycle")
    assert {"actions": ["archive"], "dry_run": True} == body("run_lifecycle", expire=False, decay=False, dry_run=True)
    assert "/api/v1/memory/reflect" == request("run_lifecycle").path
    with pytest.raises(errors.RequestError, match="nothing to do"):
        request("run_lifecycle", expire=False, decay=False, archive=False)


def test_what_a_person_says_is_said_by_the_owner() -> None:
    """Senders follow from roles; moments are milliseconds, in order where none is given, in the memory's zone else."""
    sent = request(
        "add_messages",
        session_id="s",
        messages=[
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "b", "name": "Helper"},
            {"role": "user", "content": "c", "timestamp": "2026-03-02T10:00:00"},
            {"role": "user", "content": "d", "timestamp": "2026-03-02T10:00:00Z"},
            {"role": "user", "content": "e", "timestamp": 1_772_442_000_000},
        ],
    ).body
    assert sent is not None
    nine = 1_772_442_000_000
    assert [
        ("mara", nine), ("assistant", nine + 1), ("mara", nine), ("mara", nine + 3_600_000), ("mara", nine),
    ] == [(one["sender_id"], one["timestamp"]) for one in sent["messages"]]  # fmt: skip
    assert "Helper" == sent["messages"][1]["sender_name"]
    assert "user_id" not in sent
    for wrong in ("soon", "9" * 400, "10000-01-01T00:00:00", "٣"):
        with pytest.raises(errors.RequestError, match="timestamp"):
            request("add_messages", session_id="s", messages=[{"role": "user", "content": "a", "timestamp": wrong}])


@pytest.mark.parametrize(
    "wrong",
    [
        "bob_mem_20260302_00000001", "mara2_mem_20260302_00000001", "mara_bob_mem_20260302_00000001", "%", "*", "",
        "../bob/mem_20260302_00000001", "mara_", "mem_20260302_00000001/../../x", "mara_mem_20260302_00000001?user_id=bob",
        "mara_mem_20260302_00000001\x00", "MARA_mem_20260302_00000001", "mara_zz_20260302_00000001",
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "name",
    [
        "update_memory",
        "forget_memory",
        "restore_memory",
        "list_memory_versions",
        "explain_memory",
        "rollback_consolidation",
    ],
)
def test_Z03_ids_of_anybody_else_are_not_asked_for(name: str, wrong: str) -> None:
    """An id that is none of the owner's is not found, before any route is asked."""
    arguments: dict[str, Any] = {"merged_entry_id" if name == "rollback_consolidation" else "memory_id": wrong}
    with pytest.raises((errors.NotFound, errors.RequestError)):
        request(name, **arguments)


@pytest.mark.parametrize("given", [OWN, "mem_20260302_00000001", f" {OWN} "])
def test_ids_of_the_owner_are_taken_with_and_without_the_owner(given: str) -> None:
    """A bare entry id is the owner's, too."""
    assert {"memory_id": OWN} == body("restore_memory", memory_id=given)
    assert f"/api/v1/entries/{OWN}/history" == request("list_memory_versions", memory_id=given).path.partition("?")[0]


@pytest.mark.parametrize(
    ("users", "user_id", "expected"),
    [
        (("mara",), "", "mara"),
        ((), "", "me"),
        (("bob", "mara"), "", "me"),
        (("bob", "mara"), "mara", "mara"),
        (("bob",), "mara", "mara"),
        ((), "Jose\u0301", "Jos\u00e9"),
    ],
)
async def test_Z03_the_owner_is_the_settings_or_the_only_user(
    users: tuple[str, ...], user_id: str, expected: str
) -> None:
    """`[mcp] user_id`, else the only user of the scope, else `me`."""
    found = await owner.whose(mcp_backend.Table(*users), settings(user_id))
    assert expected == found.user_id


async def test_Z03_an_owner_that_cannot_be_told_is_an_error() -> None:
    """Where the daemon does not say who is there, nobody is guessed."""
    asked = mcp_backend.Table()
    asked.answers["/api/v1/owners"] = mcp_backend.refusal(503, "CAPABILITY_UNAVAILABLE", "no")
    with pytest.raises(errors.EverosdError, match="whose memory"):
        await owner.whose(asked, settings())


def page(asked: mcp_backend.Table, *episodes: dict[str, object]) -> None:
    """Have the routes give what was remembered, as it is dated."""
    asked.answers["/api/v1/memory/timeline"] = {"items": list(episodes), "total_count": len(episodes)}


def episode(number: int, at: str = "2026-03-02T09:00:00+01:00", text: str = "We met.") -> dict[str, object]:
    """Return an Episode as the route gives it."""
    return {"id": f"mara_ep_20260302_{number:08}", "timestamp": at, "subject": f"About {number}", "text": text}


@pytest.mark.parametrize(
    ("date", "first", "end"),
    [
        ("2026-03-02", "2026-03-02T00:00:00+01:00", "2026-03-03T00:00:00+01:00"),
        ("2026-12-31", "2026-12-31T00:00:00+01:00", "2027-01-01T00:00:00+01:00"),
        ("2026-12", "2026-12-01T00:00:00+01:00", "2027-01-01T00:00:00+01:00"),
        ("2026", "2026-01-01T00:00:00+01:00", "2027-01-01T00:00:00+01:00"),
    ],
)
async def test_a_timeline_is_a_day_a_month_or_a_year(date: str, first: str, end: str) -> None:
    """Its edges are midnights of the memory's zone."""
    asked = mcp_backend.Table("mara")
    filed = {"memory_type": "semantic", "path": "projects/atlas"}
    page(asked, episode(1), episode(2, at="2026-03-03T10:30:00+01:00") | filed)
    text = await resource.read(f"everosd://timeline/{date}", CALL, asked)
    wanted = dict(urllib.parse.parse_qsl(asked.last.query))
    assert (first, end, "asc", "mara") == tuple(wanted[name] for name in ("since", "until", "order", "user_id"))
    assert "## 2026-03-02" in text
    assert "### 10:30 About 2\n\nid: mara_ep_20260302_00000002 (semantic, projects/atlas)\n\nWe met." in text


@pytest.mark.parametrize(
    "uri",
    [
        "everosd://timeline/2026-13", "everosd://timeline/2026-02-30", "everosd://timeline/../bob", "everosd://bob/profile",
        "everosd://", "file:///etc/passwd", "everosd://memory/bob_mem_20260302_00000001", "everosd://memory/",
        "everosd://profile/bob", "everosd://timeline/0000", "everosd://timeline/9999-12-31",
    ],
)  # fmt: skip
async def test_Z03_pages_that_there_are_not_are_not_found(uri: str) -> None:
    """No page leads to anybody else's memory."""
    asked = mcp_backend.Table("mara")
    with pytest.raises(errors.NotFound):
        await resource.read(uri, CALL, asked)
    assert [] == asked.asked


async def test_a_long_timeline_says_what_is_left_out() -> None:
    """A page stays within what a client takes, and counts what is missing."""
    asked = mcp_backend.Table("mara")
    page(asked, *[episode(nth, text="x" * 10_000) for nth in range(1, 41)])
    text = await resource.read("everosd://timeline/2026", CALL, asked)
    assert len(text) < 200_000
    assert "26 more are left out" in text


async def test_one_memory_is_read_in_full() -> None:
    """Its page has the text, the status and the file."""
    asked = mcp_backend.Table("mara")
    asked.answers[f"/api/v1/entries/{OWN}"] = {
        "subject": "Tea", "status": "active", "file": "a.md", "line": 7, "text": "### Content\nTea.",
    }  # fmt: skip
    text = await resource.read(f"everosd://memory/{OWN}", CALL, asked)
    assert "# Tea" in text
    assert "a.md:7" in text
    asked.answers[f"/api/v1/entries/{OWN}"] = mcp_backend.refusal(404, "NOT_FOUND", "no such entry")
    with pytest.raises(errors.NotFound):
        await resource.read(f"everosd://memory/{OWN}", CALL, asked)
    asked.answers[f"/api/v1/entries/{OWN}"] = backend.Reply(status=500, body={})
    with pytest.raises(errors.EverosdError, match="500"):
        await resource.read(f"everosd://memory/{OWN}", CALL, asked)
