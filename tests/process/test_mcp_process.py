"""The official client against the installed everosd, over both transports, with daemons that come and go."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from everosd import lock
from everosd.mcp import tools
from tests.process import conftest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

TRANSPORTS = ("stdio", "http")
MODES = ("auto", "legacy")
NOTE = """\
<!-- entry:ep_20260302_00000001 -->
## ep_20260302_00000001

**owner_id**: {owner}
**timestamp**: 2026-03-02T09:00:00+00:00

### Subject
What {owner} saw

### Content
{text}
<!-- /entry:ep_20260302_00000001 -->
"""
HEAD = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
INITIALIZE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}


def note(root: Path, owner: str, text: str) -> None:
    """Save an Episode of somebody."""
    path = root / f"default_app/default_project/users/{owner}/episodes/episode-2026-03-02.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(NOTE.format(owner=owner, text=text))


def variables(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return what a client gives the server it starts."""
    return conftest._environment({"EVEROS_API__PORT": "0", **(more or {})})


@contextlib.asynccontextmanager
async def over(
    transport: str, daemon: conftest.Daemon, mode: str = "auto", env: Mapping[str, str] | None = None
) -> AsyncIterator[Client]:
    """Give a client of a running daemon, or of a server that is started for it."""
    if transport == "http":
        async with Client(f"{daemon.http.base_url}/mcp", mode=mode) as one:
            yield one
        return
    command = [*conftest.command(), "mcp", "--root", str(daemon.root)]
    started = StdioServerParameters(command=command[0], args=command[1:], env=variables(env))
    async with Client(started, mode=mode) as one:
        yield one


@pytest.fixture
def left(root: Path) -> Iterator[None]:
    """End the daemon that `everosd mcp` leaves running."""
    yield
    found = lock.holder(root)
    if found is not None and found.pid:
        with contextlib.suppress(ProcessLookupError):
            os.kill(found.pid, signal.SIGKILL)


def text_of(result: Any) -> str:
    """Return the text of an answer."""
    found: str = result.content[0].text
    return found


class Agent:
    """Calls tools, and notes which and how they got on."""

    def __init__(self, client: Client) -> None:
        """Speak through `client`."""
        self.client = client
        self.told: list[float] = []
        self.used: set[str] = set()

    async def call(self, tool: str, /, *, refused: str = "", **arguments: object) -> dict[str, Any]:
        """Call a tool; return its data, or nothing where it has to refuse with these words."""
        self.used.add(tool)
        result = await self.client.call_tool(tool, arguments, progress_callback=self._heard)
        assert bool(refused) == bool(result.is_error), f"{tool}: {text_of(result)}"
        if refused:
            assert refused in text_of(result)
            return {}
        data: dict[str, Any] = result.structured_content or {}
        return data

    async def _heard(self, progress: float, total: float | None, message: str | None) -> None:
        del total, message
        self.told.append(progress)


ABOUT = {"explain_memory", "memory_stats", "recall_context"}
"""Tools that tell about memories."""


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_the_official_client_drives_every_tool_that_changes(
    transport: str, mode: str, daemon: conftest.Daemon
) -> None:
    """A memory lives from `remember` to `hard_delete`, a conversation from its messages to what came of it."""
    note(daemon.root, "mara", "The lighthouse keeper waved.")
    daemon.start()
    async with over(transport, daemon, mode) as one:
        agent = Agent(one)
        call = agent.call
        found = await call("search_memory", query="lighthouse", limit=3)
        assert "mara_ep_20260302_00000001" == found["hits"][0]["id"]
        await call("add_messages", session_id="s", messages='[{"role": "user", "content": "I moved to Lisbon."}]')
        assert "extracted" == (await call("flush_session", session_id="s"))["status"]
        assert (await call("search_memory", query="Lisbon"))["hits"]
        assert "not_dispatched" == (await call("trigger_strategy", name="reflect_episodes", dry_run=True))["status"]
        await call("trigger_strategy", name="nothing", refused="reflect_episodes")
        await call("rollback_consolidation", report_id="rr_none", refused="NOT_FOUND")
        kept = await call("remember", path="people/mara", content="Mara drinks green tea.", semantic_key="tea")
        assert kept["id"].startswith("mara_mem_")
        again = await call("remember", path="people/mara", content="Mara drinks black tea.", semantic_key="tea")
        assert (kept["id"], "updated") == (again["id"], again["outcome"])
        await call("update_memory", memory_id=kept["id"], importance=0.9, reason="she said so")
        await call("update_memory", memory_id=kept["id"], content="x", expected_version=1, refused="CONFLICT")
        assert (await call("list_memory_versions", memory_id=kept["id"]))["versions"]
        await call("forget_memory", memory_id=kept["id"], mode="hard_delete", refused="confirm=true")
        assert "deleted" == (await call("forget_memory", memory_id=kept["id"]))["status"]
        assert "active" == (await call("restore_memory", memory_id=kept["id"]))["status"]
        assert (await call("reflect", dry_run=True))["dry_run"]
        done = await call("run_lifecycle", dry_run=True, archive=False)
        assert {"expire", "decay"} == {each["action"] for each in done["actions"]}
        assert (await call("query_consolidation_audit", limit=5))["items"]
        assert (await call("forget_memory", memory_id=kept["id"], mode="hard_delete", confirm=True))["removed"]
        assert set(tools.BY_NAME) - ABOUT == agent.used
        assert agent.told
        assert "mara" in (await one.read_resource("everosd://profile")).contents[0].text  # type: ignore[union-attr]
        day = (await one.read_resource("everosd://timeline/2026-03-02")).contents[0]
        assert "keeper waved" in day.text  # type: ignore[union-attr]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_the_official_client_drives_every_tool_that_tells(
    transport: str, mode: str, daemon: conftest.Daemon
) -> None:
    """What is known, how much of it, and why it is found."""
    note(daemon.root, "mara", "The lighthouse keeper waved.")
    daemon.start()
    async with over(transport, daemon, mode) as one:
        agent = Agent(one)
        assert await agent.call("explain_memory", memory_id="mara_ep_20260302_00000001", query="lighthouse")
        assert await agent.call("memory_stats")
        assert "lighthouse" in str(await agent.call("recall_context", query="lighthouse"))
        assert agent.used == ABOUT


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_Z03_nobody_reaches_anybody_elses_memory(transport: str, daemon: conftest.Daemon) -> None:
    """With two users and none named, it is `me`; ids of others are not found, owners in arguments are refused."""
    note(daemon.root, "bob", "The lighthouse is bob's secret.")
    note(daemon.root, "mara", "The harbour is loud.")
    daemon.start()
    async with over(transport, daemon) as one:
        assert "Nothing" in text_of(await one.call_tool("search_memory", {"query": "lighthouse"}))
        for name in ("explain_memory", "list_memory_versions", "forget_memory", "restore_memory"):
            result = await one.call_tool(name, {"memory_id": "bob_ep_20260302_00000001"})
            assert result.is_error
            assert "NOT_FOUND" in text_of(result)
            assert "secret" not in text_of(result)
        for argument in ("user_id", "agent_id", "owner_filter", "filters"):
            result = await one.call_tool("search_memory", {"query": "lighthouse", argument: "bob"})
            assert result.is_error
        with pytest.raises(Exception, match="no memory"):
            await one.read_resource("everosd://memory/bob_ep_20260302_00000001")
    (daemon.root / "everos.toml").write_text('[mcp]\nuser_id = "mara"\n')
    await asyncio.to_thread(conftest.wait_for, lambda: '"mcp.user_id"' in daemon.log(), "the settings")
    async with over(transport, daemon) as one:
        assert "harbour" in text_of(await one.call_tool("search_memory", {"query": "harbour"}))
        assert "Nothing" in text_of(await one.call_tool("search_memory", {"query": "lighthouse"}))


async def test_Z03_one_client_can_be_given_another_owner(daemon: conftest.Daemon) -> None:
    """The environment of one `everosd mcp` says whose memory that client is about."""
    note(daemon.root, "bob", "The lighthouse is old.")
    note(daemon.root, "mara", "The harbour is loud.")
    daemon.start()
    async with over("stdio", daemon, env={"EVEROS_MCP__USER_ID": "bob"}) as one:
        assert "lighthouse" in text_of(await one.call_tool("search_memory", {"query": "lighthouse"}))
        assert "Nothing" in text_of(await one.call_tool("search_memory", {"query": "harbour"}))


@pytest.mark.usefixtures("left")
def test_A09_only_json_rpc_on_standard_output(root: Path) -> None:
    """At debug level, with a model that fails loudly, every line of standard output is a message of the protocol."""
    calls: list[dict[str, Any]] = [
        INITIALIZE,
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        _call(2, "add_messages", session_id="s", messages=[{"role": "user", "content": "I moved to Lisbon."}]),
        _call(3, "flush_session", session_id="s"),
        _call(4, "search_memory", query="Lisbon"),
        _call(5, "nothing"),
        _call(6, "remember", user_id="bob"),
    ]
    noisy = {
        "EVEROS_LOG__LEVEL": "debug",
        "EVEROS_LLM__MODEL": "none-such",
        "EVEROS_LLM__BASE_URL": "http://127.0.0.1:9/v1",
        "EVEROS_LLM__API_KEY": "sk-secret",
        "EVEROS_LLM__MAX_RETRIES": "0",
        "EVEROS_EMBEDDING__MODEL": "none-such",
        "EVEROS_EMBEDDING__BASE_URL": "http://127.0.0.1:9/v1",
        "PYTHONWARNINGS": "always",
    }
    with subprocess.Popen(
        [*conftest.command(), "mcp", "--root", str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=variables(noisy),
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        lines = []
        server.stdin.write(b"this is no JSON\n\n{}\n")
        for one in calls:
            server.stdin.write(json.dumps(one).encode() + b"\n")
            server.stdin.flush()
            while "id" in one:
                lines.append(server.stdout.readline())
                assert lines[-1], "the server ended"
                if json.loads(lines[-1]).get("id") == one["id"]:
                    break
        rest, said = server.communicate(timeout=30)
    messages = [json.loads(line) for line in [*lines, *rest.splitlines()]]
    assert all(one["jsonrpc"] == "2.0" for one in messages)
    assert 2 == sum("error" in one and one["id"] is None for one in messages)  # of the lines that are no messages
    flushed = next(one for one in messages if one.get("id") == 3)
    assert "model is away" in str(flushed)
    assert b"tool_refused" in said
    assert b"sk-secret" not in said + b"".join(lines) + rest


def _call(number: int, name: str, **arguments: object) -> dict[str, Any]:
    params = {"name": name, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


async def test_Z03_a_token_names_its_owner(daemon: conftest.Daemon) -> None:
    """Two users, each with a token, at once; a token that is taken away opens nothing any more."""
    note(daemon.root, "bob", "The lighthouse is old.")
    note(daemon.root, "mara", "The harbour is loud.")
    settings = daemon.root / "everos.toml"
    his, hers = "a-long-secret-of-bob", "a-long-secret-of-mara"
    settings.write_text(f'[mcp]\nuser_id = "mara"\n[owners.bob]\ntoken = "{his}"\n[owners.mara]\ntoken = "{hers}"\n')
    daemon.start()
    for token, finds, owner in ((his, "lighthouse", "bob"), (hers, "harbour", "mara")):
        async with _by_token(daemon, token) as one:
            for query in ("lighthouse", "harbour"):
                found = text_of(await one.call_tool("search_memory", {"query": query}))
                assert ("Nothing" not in found) == (query == finds)
            made = await one.call_tool("remember", {"path": "notes", "content": f"said to {owner}"})
            assert made.structured_content["id"].startswith(f"{owner}_mem_")
            assert finds in str(await one.read_resource("everosd://timeline"))
    settings.write_text(f'[mcp]\nuser_id = "mara"\n[owners.mara]\ntoken = "{hers}"\n')
    await asyncio.to_thread(conftest.wait_for, lambda: '"owners"' in daemon.log(), "the settings")
    head = {**HEAD, "Authorization": f"Bearer {his}"}
    refused = await asyncio.to_thread(daemon.http.post, "/mcp", headers=head, json=INITIALIZE)
    assert (401, True) == (refused.status_code, "this bearer is nobody's" in refused.json()["error"]["message"])


@pytest.mark.usefixtures("left")
async def test_a_daemon_is_started_and_left_running(daemon: conftest.Daemon) -> None:
    """Where none serves the root, one is started; it outlives the client, and the next client uses it."""
    note(daemon.root, "mara", "The lighthouse keeper waved.")
    async with over("stdio", daemon, env={"EVEROS_MCP__USER_ID": "mara"}) as one:
        assert "keeper" in text_of(await one.call_tool("search_memory", {"query": "lighthouse"}))
    first = lock.holder(daemon.root)
    assert first is not None
    async with over("stdio", daemon) as one:
        assert "keeper" in text_of(await one.call_tool("search_memory", {"query": "lighthouse"}))
    assert first == lock.holder(daemon.root)
    environ = Path(f"/proc/{first.pid}/environ").read_bytes()
    assert b"EVEROS_MCP__" not in environ
    assert 0o600 == (daemon.root / ".cache/daemon.log").stat().st_mode & 0o777


@pytest.mark.usefixtures("left")
async def test_two_clients_at_once_start_one_daemon(daemon: conftest.Daemon) -> None:
    """Whoever is slower uses the daemon of the faster one, and both write to one memory."""
    async with over("stdio", daemon) as one, over("stdio", daemon) as other:
        results = await asyncio.gather(
            *(
                who.call_tool(
                    "add_messages", {"session_id": f"s{nth}", "messages": [{"role": "user", "content": f"{nth}"}]}
                )
                for nth, who in enumerate((one, other) * 5)
            )
        )
    assert [text_of(result) for result in results if result.is_error] == []


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_daemon_that_is_killed_between_two_calls_is_found_again(
    transport: str, daemon: conftest.Daemon
) -> None:
    """A restart is noticed by nobody: the same client goes on."""
    note(daemon.root, "mara", "The lighthouse keeper waved.")
    daemon.start()
    port = daemon.http.base_url.port
    async with over(transport, daemon) as one:
        assert "keeper" in text_of(await one.call_tool("search_memory", {"query": "lighthouse"}))
        await asyncio.to_thread(daemon.kill)
        again = asyncio.create_task(asyncio.to_thread(daemon.start, "--port", str(port)))
        if transport == "http":
            await again  # the client speaks to the port alone
        assert "keeper" in text_of(await one.call_tool("search_memory", {"query": "lighthouse"}))
        await again


@pytest.mark.usefixtures("left")
async def test_a_daemon_that_was_started_here_and_killed_is_started_again(daemon: conftest.Daemon) -> None:
    """Nobody else will: a call after its end starts the next one, without waiting."""
    async with over("stdio", daemon) as one:
        await one.call_tool("search_memory", {"query": "a"})
        first = lock.holder(daemon.root)
        assert first is not None
        os.kill(first.pid, signal.SIGKILL)
        result = await one.call_tool("search_memory", {"query": "a"})
        assert not result.is_error, text_of(result)
    second = lock.holder(daemon.root)
    assert second is not None
    assert first.pid != second.pid


@pytest.mark.usefixtures("left")
async def test_a_daemon_that_cannot_start_is_said_to_the_agent(daemon: conftest.Daemon) -> None:
    """The tool's error has the reason and what to do; the connection stays."""
    index = daemon.root / ".index/sqlite"
    index.mkdir(parents=True)
    (daemon.root / "everos.toml").write_text("")
    async with over("stdio", daemon, env={"EVEROS_API__HOST": "192.0.2.1", "EVEROS_API__TOKEN": "t" * 20}) as one:
        result = await one.call_tool("search_memory", {"query": "a"})
        assert result.is_error
        assert "everosd doctor" in text_of(result)
        assert "cannot listen" in text_of(result)
        assert len((await one.list_tools()).tools) == len(tools.TOOLS)


@pytest.mark.usefixtures("left")
async def test_the_usual_port_may_be_taken(daemon: conftest.Daemon, tmp_path: Path) -> None:
    """Another root's daemon has it: this one gets another, and is found by its lock file."""
    daemon.start()
    other = tmp_path / "other"
    other.mkdir()
    taken = {"EVEROS_API__PORT": str(daemon.http.base_url.port)}
    second = conftest.Daemon(other, tmp_path / "other.log")
    try:
        async with over("stdio", second, env=taken) as one:
            result = await one.call_tool("search_memory", {"query": "a"})
            assert not result.is_error, text_of(result)
    finally:
        found = lock.holder(other)
        if found is not None:
            os.kill(found.pid, signal.SIGKILL)


def test_the_guard_stands_before_mcp_too(daemon: conftest.Daemon) -> None:
    """Another site's page, a Host of somebody's own, a missing token, a body too large: refused as everywhere."""
    (daemon.root / "everos.toml").write_text('[api]\ntoken = "a-long-secret"\nmax_body_bytes = 4096\n')
    process = daemon.spawn()
    port = conftest.wait_for(lambda: daemon._port(process), "the port")
    http = daemon.client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30)
    head = {**HEAD, "Authorization": "Bearer a-long-secret"}

    def post(headers: Mapping[str, str], body: object = INITIALIZE) -> int:
        return http.post("/mcp", headers=dict(headers), json=body).status_code

    assert 401 == post(HEAD)
    assert 403 == post({**head, "Origin": "https://evil.example"})
    assert 403 == post({**head, "Host": "evil.example"})
    assert 413 == post(head, {**INITIALIZE, "x": "y" * 5000})
    assert 200 == post(head)
    assert 405 == http.get("/mcp", headers=head).status_code
    assert 405 == http.delete("/mcp", headers=head).status_code
    for wrong in (b"", b"[]", b"{", b"\xff", b'{"jsonrpc": "2.0"}', b"[" * 4000):
        assert 400 <= http.post("/mcp", headers=head, content=wrong).status_code < 500
    chunks = http.post("/mcp", headers=head, content=iter([b"x" * 3000, b"x" * 3000]))
    assert 413 == chunks.status_code
    asyncio.run(_with_token(daemon))


@contextlib.asynccontextmanager
async def _by_token(daemon: conftest.Daemon, token: str) -> AsyncIterator[Client]:
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}) as sender,
        Client(streamable_http_client(f"{daemon.http.base_url}/mcp", http_client=sender)) as one,
    ):
        yield one


async def _with_token(daemon: conftest.Daemon) -> None:
    async with _by_token(daemon, "a-long-secret") as one:
        assert not (await one.call_tool("search_memory", {"query": "a"})).is_error
    async with over("stdio", daemon) as one:
        assert not (await one.call_tool("search_memory", {"query": "a"})).is_error


async def test_a_stop_does_not_wait_for_clients_that_are_connected(daemon: conftest.Daemon) -> None:
    """SIGTERM ends an idle daemon at once, whoever has spoken MCP to it."""
    daemon.start()
    async with over("http", daemon, "legacy") as one:
        await one.call_tool("search_memory", {"query": "a"})
        began_s = asyncio.get_running_loop().time()
        assert 0 == await asyncio.to_thread(daemon.stop)
        assert asyncio.get_running_loop().time() - began_s < 2.5


def test_the_daemon_pays_for_mcp_only_where_it_is_used(daemon: conftest.Daemon) -> None:
    """Nothing of the SDK is in the process before the first request to /mcp."""
    daemon.command = conftest.command()  # a process of its own: a forked one has what its parent imported
    daemon.start()
    assert daemon.process is not None
    maps = Path(f"/proc/{daemon.process.pid}/maps")
    assert "pydantic_core" not in maps.read_text()
    daemon.http.post("/mcp", headers=HEAD, json=INITIALIZE).raise_for_status()
    assert "pydantic_core" in maps.read_text()


async def test_a_cancelled_call_does_not_hold_up_the_next(daemon: conftest.Daemon) -> None:
    """Forty long calls that a client gives up on leave room for others."""
    daemon.start()
    async with over("stdio", daemon) as one:
        await one.call_tool("search_memory", {"query": "a"})
        for _ in range(40):
            call = asyncio.create_task(one.call_tool("trigger_strategy", {"name": "reflect_episodes", "force": True}))
            await asyncio.sleep(0)
            call.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await call
        async with asyncio.timeout(20):
            assert not (await one.call_tool("search_memory", {"query": "a"})).is_error
