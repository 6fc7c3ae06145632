"""What an agent gets back: text and data of a bounded size, errors that it can act on, progress, and nothing after it left."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections.abc import AsyncIterator, Callable
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # its stubs are a package more
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp import Client, MCPError

from everosd import clock, config, errors
from everosd.mcp import backend, refusal, server, shape, takes, tools
from tests import mcp_backend

SEARCH = "/api/v1/memory/search"
OWN = "mara_mem_20260302_00000001"
MODES = ("auto", "legacy")
"""Clients of this revision of MCP, and of those before."""


@contextlib.asynccontextmanager
async def client(asked: mcp_backend.Table, mode: str = "auto") -> AsyncIterator[Client]:
    """Give the official client of a server over `asked`."""
    named = config.Mcp(user_id="mara", app_id="default", project_id="default")
    memory = server.Memory(asked, settings=lambda: named, clock=clock.SystemClock(), zone=lambda: dt.UTC)
    async with Client(memory.server(), mode=mode) as one:
        yield one


def hit(number: int, text: str = "Mara drinks tea.", **more: object) -> dict[str, object]:
    """Return a hit as the route gives it."""
    return {
        "id": f"mara_ep_20260302_{number:08}",
        "timestamp": "2026-03-02T09:00:00Z",
        "subject": f"About {number}",
        "summary": "",
        "episode": text,
        "score": 0.5,
        "atomic_facts": [],
        **more,
    }


async def until(look: Callable[[], bool]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(10):
        while not look():  # noqa: ASYNC110  # what is waited for tells nobody
            await asyncio.sleep(0.01)


def text_of(result: Any) -> str:
    """Return the text of an answer."""
    found: str = result.content[0].text
    return found


@pytest.mark.parametrize("mode", MODES)
async def test_the_official_client_sees_every_tool_and_page(mode: str) -> None:
    """Tools have schemas and hints; pages and templates are listed."""
    async with client(mcp_backend.Table(), mode) as one:
        listed = {tool.name: tool for tool in (await one.list_tools()).tools}
        pages = {page.uri for page in (await one.list_resources()).resources}
        templates = {page.uri_template for page in (await one.list_resource_templates()).resource_templates}
    assert set(listed) == set(tools.BY_NAME)
    for tool in listed.values():
        jsonschema.Draft202012Validator.check_schema(tool.input_schema)
        assert tool.annotations is not None
    reads = {name for name, tool in listed.items() if tool.annotations and tool.annotations.read_only_hint}
    assert {
        "search_memory", "recall_context", "list_memory_versions", "explain_memory", "memory_stats",
        "query_consolidation_audit",
    } == reads  # fmt: skip
    assert {"everosd://profile", "everosd://timeline"} == pages
    assert {"everosd://timeline/{date}", "everosd://memory/{memory_id}"} == templates


@pytest.mark.parametrize("mode", MODES)
async def test_a_search_is_text_and_data(mode: str) -> None:
    """Hits are numbered, with id, type, date and score; what the text says stands in the data, as its schema says."""
    asked = mcp_backend.Table()
    found = [
        hit(1),
        hit(2, memory_type="semantic", path="projects/atlas", atomic_facts=[{"id": "f", "content": "A fact."}]),
    ]
    asked.answers[SEARCH] = backend.Reply(
        status=200, body={"data": {"episodes": found, "profiles": []}, "degraded": ["vectors: no model"]}
    )
    async with client(asked, mode) as one:
        result = await one.call_tool("search_memory", {"query": "tea"})
    assert not result.is_error
    jsonschema.validate(result.structured_content, shape.HITS)
    data = result.structured_content
    assert data is not None
    assert ["episode", "memory"] == [each["kind"] for each in data["hits"]]
    assert ["vectors: no model"] == data["degraded"]
    text = text_of(result)
    assert "[2] mara_ep_20260302_00000002 (semantic, projects/atlas, 2026-03-02T09:00:00Z, score 0.50)" in text
    assert "- A fact." in text
    assert "vectors: no model" in text


async def test_nothing_found_is_said() -> None:
    """An empty list is an answer."""
    asked = mcp_backend.Table()
    asked.answers[SEARCH] = {"episodes": [], "profiles": []}
    async with client(asked) as one:
        result = await one.call_tool("search_memory", {"query": "tea"})
    assert "Nothing in memory matches." == text_of(result)
    assert {"hits": []} == result.structured_content


async def test_long_texts_are_cut_and_say_so() -> None:
    """`max_chars` bounds each hit, 0 shows all of it."""
    asked = mcp_backend.Table()
    asked.answers[SEARCH] = {"episodes": [hit(1, "word " * 2000)]}
    async with client(asked) as one:
        cut = await one.call_tool("search_memory", {"query": "tea"})
        whole = await one.call_tool("search_memory", {"query": "tea", "max_chars": 0})
    assert cut.structured_content is not None
    assert whole.structured_content is not None
    assert cut.structured_content["hits"][0]["is_cut"]
    assert len(cut.structured_content["hits"][0]["text"]) <= 4000
    assert "max_chars=0" in text_of(cut)
    assert "word " * 2000 == whole.structured_content["hits"][0]["text"]


async def test_a_big_answer_stays_below_what_clients_take() -> None:
    """Thirty hits of 40,000 of the worst characters are fewer hits, and what is left out is counted."""
    asked = mcp_backend.Table()
    asked.answers[SEARCH] = {"episodes": [hit(nth, "\x01記" * 20_000) for nth in range(1, 31)]}
    async with client(asked) as one:
        result = await one.call_tool("search_memory", {"query": "tea", "limit": 30, "max_chars": 0})
    assert len(result.model_dump_json(by_alias=True).encode()) < 1_000_000
    assert result.structured_content is not None
    assert 30 == len(result.structured_content["hits"]) + result.structured_content["left_out"]


NAMES = st.sampled_from(["items", "actions", "candidates", "x", "text"])
INNER = st.dictionaries(NAMES, st.lists(st.text(max_size=40), max_size=6) | st.text(max_size=200), max_size=3)


@settings(max_examples=50)
@given(st.dictionaries(NAMES, st.lists(INNER, max_size=8) | INNER | st.text(max_size=400), max_size=4))
def test_whatever_is_answered_fits(data: dict[str, Any]) -> None:
    """The bound holds for any shape; the answer that was given stays as it is."""
    before = msgspec.json.encode(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shape, "MAX_BYTES", 512)
        assert len(msgspec.json.encode(shape.bounded(data))) <= 512
    assert before == msgspec.json.encode(data)


def test_what_changes_is_shown_before_what_does_not() -> None:
    """Where a long dry run is cut, the decisions to change something are still there."""
    candidates = [{"id": str(nth), "decision": "skip"} for nth in range(5)] + [{"id": "9", "decision": "apply"}]
    shown = shape.decided({"actions": [{"action": "decay", "candidates": candidates}]}, None)
    assert "9" == shown.data["actions"][0]["candidates"][0]["id"]


def test_recall_is_its_block_of_text() -> None:
    """The text is for reading, where it comes from stands in the data."""
    shown = shape.recalled({"text": "2 March: tea.", "items": [{"id": OWN}]}, takes.RecallContext(query="x"))
    assert "2 March: tea." == shown.text
    assert [{"id": OWN}] == shown.data["items"]
    assert "Nothing is remembered of that." == shape.recalled({"text": "", "items": []}, None).text


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (mcp_backend.refusal(404, "NOT_FOUND", "no such memory"), "search_memory"),
        (mcp_backend.refusal(409, "CONFLICT", "it is at version 3"), "version 3"),
        (mcp_backend.refusal(409, "CONFIRMATION_REQUIRED", "2 files"), "confirm=true only if they agree"),
        (mcp_backend.refusal(404, "NOT_FOUND", "Not Found", detail="Not Found"), "restart it"),
        (mcp_backend.refusal(500, "INTERNAL_ERROR", "an internal error occurred"), "log"),
        (mcp_backend.refusal(422, "INVALID_INPUT", "no such id: user_id"), "[mcp] in everos.toml"),
        (mcp_backend.refusal(422, "INVALID_INPUT", "is too long: reason"), "correct the argument"),
        (mcp_backend.refusal(401, "UNAUTHORIZED", "token"), "[api] token"),
        (backend.Reply(status=502, body={"x": 1}), "502"),
        (backend.Unanswered("connection refused", is_sent=False), "nothing was done"),
        (backend.Unanswered("it ended", is_sent=True), "look before you send it again"),
        (ValueError("secret words of a note"), "something is wrong inside everosd"),
    ],
    ids=str,
)
async def test_what_goes_wrong_is_an_error_of_the_tool(
    mode: str, reply: backend.Reply | Exception, expected: str
) -> None:
    """The agent is told what and what to do; nothing of a stranger's error but where it arose."""
    asked = mcp_backend.Table()
    asked.answers["/api/v1/memory/forget"] = reply
    async with client(asked, mode) as one:
        result = await one.call_tool("forget_memory", {"memory_id": OWN, "mode": "hard_delete"})
    assert result.is_error
    assert expected in text_of(result)
    assert "secret" not in text_of(result)


async def test_what_would_go_is_shown_with_the_refusal() -> None:
    """Details that a route adds to an error reach the agent."""
    reply = mcp_backend.refusal(409, "CONFIRMATION_REQUIRED", "it would go", removed=["a.md"])
    assert '"removed":["a.md"]' in refusal.of_reply(reply)


@pytest.mark.parametrize("mode", MODES)
async def test_an_unknown_tool_is_an_error_of_the_protocol(mode: str) -> None:
    """As MCP has it: the name is the client's mistake, and those that there are are named."""
    async with client(mcp_backend.Table(), mode) as one:
        with pytest.raises(MCPError, match="search_memory"):
            await one.call_tool("forget_everything", {})
        with pytest.raises(MCPError, match="no resource"):
            await one.read_resource("everosd://bob")


@pytest.mark.parametrize("mode", MODES)
async def test_long_calls_tell_how_they_get_on(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress comes while reflect is at work, and grows; a short call has none."""
    monkeypatch.setattr(server, "PROGRESS_S", 0.02)
    asked = mcp_backend.Table()
    asked.answers["/api/v1/memory/reflect"] = {"run_id": "r", "actions": []}
    asked.answers["/api/v1/memory/stats"] = {"total": 0}
    asked.delay_s = 0.2
    told: list[float] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        del total, message
        told.append(progress)

    async with client(asked, mode) as one:
        result = await one.call_tool("reflect", {"dry_run": True}, progress_callback=note)
        n_told = len(told)
        await one.call_tool("memory_stats", {}, progress_callback=note)
    assert not result.is_error
    assert n_told >= 3
    assert sorted(told) == told
    assert n_told == len(told)


@pytest.mark.parametrize("mode", MODES)
async def test_a_cancelled_call_ends_and_the_next_is_answered(mode: str) -> None:
    """A client that gives up on a call is not waited for, and goes on with others."""
    asked = mcp_backend.Table()
    asked.answers["/api/v1/memory/reflect"] = {"actions": []}
    asked.answers["/api/v1/memory/stats"] = {"total": 1}
    asked.delay_s = 30.0
    async with client(asked, mode) as one:
        call = asyncio.create_task(one.call_tool("reflect", {}))
        await until(lambda: any(each.path.endswith("reflect") for each in asked.asked))
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        asked.delay_s = 0.0
        result = await one.call_tool("memory_stats", {})
        assert {"total": 1} == result.structured_content
        await until(lambda: asked.n_cancelled > 0)


async def test_calls_at_once_do_not_wait_for_each_other() -> None:
    """Twenty slow searches take as long as one."""
    asked = mcp_backend.Table()
    asked.answers[SEARCH] = {"episodes": []}
    asked.delay_s = 0.3
    async with client(asked) as one, asyncio.timeout(4):
        results = await asyncio.gather(*(one.call_tool("search_memory", {"query": str(nth)}) for nth in range(20)))
    assert not any(result.is_error for result in results)
    assert {str(nth) for nth in range(20)} == {one.body["query"] for one in asked.asked if one.path == SEARCH}


async def test_only_what_changes_nothing_may_be_sent_again() -> None:
    """A backend is told which requests it may repeat where an answer was lost."""
    asked = mcp_backend.Table()
    for tool in tools.TOOLS:
        required: dict[str, object] = {
            "memory_id": OWN,
            "path": "a",
            "content": "b",
            "query": "c",
            "name": "d",
            "session_id": "s",
        }
        required |= {"messages": [{"role": "user", "content": "x"}]}
        fields = {one.name for one in msgspec.structs.fields(tool.takes) if one.required}
        async with client(asked) as one:
            await one.call_tool(tool.name, {name: required[name] for name in fields})
        assert (tool.reads or tool.repeats) == asked.last.is_read, tool.name
        assert asked.last.body.get("user_id", "mara") == "mara"


def test_errors_of_our_own_keep_their_hints() -> None:
    """What a person could do about it is said."""
    error = errors.EverosdError("no")
    error.hint = "do this"
    assert "no\ndo this" == refusal.of_error(error)
